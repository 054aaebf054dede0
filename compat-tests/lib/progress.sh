# shellcheck shell=bash
#
# To be sourced.
#
#   with_progress LABEL COMMAND...   runs the command and passes its output on; while it is silent, prints
#                                    a line every ten seconds with the label and the time it has taken

with_progress() {
    local label=$1
    shift
    # Not a ticker beside the command: only what reads the output knows when it is silent.
    "$@" 2>&1 | _progress_relay "$label" "$SECONDS"
}

_progress_relay() {
    local label=$1 begun=$2 line status
    while true; do
        status=0
        IFS= read -r -t 10 line || status=$?
        if ((status == 0)); then
            printf '%s\n' "$line"
        elif ((status > 128)); then
            # What has arrived of an unfinished line, such as the name of the test that is running.
            [[ -z $line ]] || printf '%s\n' "$line"
            printf '   ... %s: running for %d s\n' "$label" $((SECONDS - begun))
        else
            printf '%s' "$line"
            return
        fi
    done
}
