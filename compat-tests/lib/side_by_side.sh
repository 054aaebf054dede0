# shellcheck shell=bash
#
# To be sourced.
#
#   side_by_side MOST RUN NAME...   calls `RUN NAME` for each name, at most MOST at the same time, in this order.
#                                   Each has its output printed whole, when it has ended. The first that fails
#                                   ends the others, and is the result; the names of tests that failed are
#                                   printed last

# All of it runs in the subshell that `side_by_side` is.
# shellcheck disable=SC2030,SC2031

side_by_side() (
    most=$1 run=$2
    shift 2
    declare -A name_of=() begun_at=()
    outputs=$(mktemp -d)
    # Each job is a process group of its own, so that it can be ended with all that it has started.
    set -m
    trap '_side_by_side_end; rm -rf "$outputs"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    for name in "$@"; do
        ((${#name_of[@]} < most)) || _side_by_side_next || exit 1
        echo "-- $name: begins"
        "$run" "$name" >"$outputs/$name" 2>&1 </dev/null &
        name_of[$!]=$name begun_at[$!]=$SECONDS
    done
    while ((${#name_of[@]})); do
        _side_by_side_next || exit 1
    done
)

# Waits for one of them.
_side_by_side_next() {
    local id status=0 name
    wait -n -p id "${!name_of[@]}" || status=$?
    name=${name_of[$id]}
    unset "name_of[$id]"
    cat "$outputs/$name"
    if ((!status)); then
        echo "-- $name: passed in $((SECONDS - begun_at[$id])) s"
        return
    fi
    ((!${#name_of[@]})) || echo "-- ended, as $name failed: ${name_of[*]}"
    echo "-- $name: FAILED after $((SECONDS - begun_at[$id])) s"
    sed -n "s/^test \(.*\) \.\.\. FAILED\$/   FAILED: $name: \1/p" "$outputs/$name"
    return 1
}

_side_by_side_end() {
    local id
    for id in "${!name_of[@]}"; do
        kill -TERM -- "-$id" 2>/dev/null || true
    done
    # Otherwise the shell says of each that it was terminated.
    { wait; } 2>/dev/null
}
