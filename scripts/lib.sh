# Shared by the scripts of this directory, which source it. Not a command itself.
# shellcheck shell=bash

# What the build needs: clang compiles the XDP program, m4 and libelf go into libxdp and libbpf.
build_packages=(clang libelf-dev m4 zlib1g-dev pkg-config make gcc libc6-dev)
# What the tests on veths and the demo run.
tool_packages=(iproute2 iputils-ping iperf3 traceroute ethtool jq)

say() { printf '\n== %s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    warn "$@"
    exit 2
}

is_root() { [[ $(id -u) -eq 0 ]]; }

# Prints the comment at the head of the script: its --help.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# missing_packages PACKAGE...: those that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
    done
}

# install_packages PACKAGE...: installs what is missing, and nothing else.
install_packages() {
    local missing
    if ! command -v dpkg-query >/dev/null; then
        warn "not a Debian: make sure that these, or their like, are installed: $*"
        return
    fi
    mapfile -t missing < <(missing_packages "$@")
    [[ ${#missing[@]} -gt 0 ]] || return 0
    is_root || die "missing packages; as root: apt-get install --no-install-recommends ${missing[*]}"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# Puts cargo on the PATH, also under sudo, where the toolchain is its caller's.
find_cargo() {
    local home
    command -v cargo >/dev/null && return
    for home in "$HOME" "${SUDO_USER:+$(getent passwd "$SUDO_USER" | cut -d: -f6)}"; do
        if [[ -n $home && -x $home/.cargo/bin/cargo ]]; then
            export PATH="$home/.cargo/bin:$PATH" RUSTUP_HOME="${RUSTUP_HOME:-$home/.rustup}"
            return
        fi
    done
    die "no cargo: install Rust 1.88 or newer from https://rustup.rs (Debian 12's own is too old)"
}

# The directory that cargo builds into.
target_dir() { echo "${CARGO_TARGET_DIR:-target}"; }

# The tests under tests/ that need privileges: those that know how to skip themselves.
privileged_tests() {
    grep -rl --include='*.rs' '^mod privilege;' tests | sed -E 's|^tests/([^/.]+).*|\1|' | sort -u
}

# The tests under tests/ that need none: files, and folders with a main.rs.
plain_tests() {
    comm -23 <(ls tests/*.rs tests/*/main.rs |
        sed -E 's|^tests/([^/.]+).*|\1|' | sort -u) <(privileged_tests)
}

# exit_on_signals [COMMAND]: a signal ends the script, after COMMAND, by its EXIT trap. It may come twice, to the
# process and to its group: the second must not end what the first began.
exit_on_signals() {
    trap "trap '' INT TERM HUP; ${1:-:}; exit 130" INT
    trap "trap '' INT TERM HUP; ${1:-:}; exit 143" TERM HUP
}

# What follows is for scripts that measure in a lab. They set `bin`, the weft binary, and `patience`, the seconds
# after which a command in the lab is ended.

# begin_lab PREFIX: gives `lab`, a name for the lab, and `dir`, a directory, and sees to it that both and all jobs
# are removed at the end, also after a signal. A script that is about to bring the lab up sets `lab_tried=yes`.
begin_lab() {
    lab=$1$$
    dir=$(mktemp -d)
    lab_tried=no
    exec 3>&1 # a trap runs with the redirections of the command that it interrupts
    trap end_lab EXIT
    exit_on_signals
}

end_lab() {
    local status=$?
    trap '' INT TERM HUP
    exec >&3
    end_jobs
    [[ $lab_tried == no ]] || "$bin" lab down --name "$lab" >/dev/null || true
    rm -rf "$dir"
    exit "$status"
}

end_jobs() {
    local running
    mapfile -t running < <(jobs -pr)
    [[ ${#running[@]} -eq 0 ]] || kill "${running[@]}" 2>/dev/null || true
    # A signal that came just before ends a wait before its time.
    until wait 2>/dev/null || true && [[ -z $(jobs -pr) ]]; do sleep 0.05; done
}

fail() {
    warn "$@"
    exit 1
}

# start OUTPUT HOST COMMAND...: in the host's namespace, in the background, its output in a file and its errors in
# OUTPUT.errors. The job is in $!.
start() {
    timeout --kill-after=5 "$patience" "$bin" lab exec --name "$lab" "$2" -- "${@:3}" >"$1" 2>"$1.errors" 3>&- &
}

# at OUTPUT HOST COMMAND...: the same, and waits, so that a signal is acted on at once.
at() {
    start "$@"
    wait $!
}

# await WORD FILE...: until a line of each says it.
await() {
    local file deadline=$((SECONDS + 15))
    for file in "${@:2}"; do
        until grep -qs "$1" "$file"; do
            [[ $SECONDS -lt $deadline ]] || fail "not $1: $(cat "$file" "$file.errors" 2>/dev/null)"
            sleep 0.05
        done
    done
}

# await_ping HOST ADDRESS WHAT
await_ping() {
    local deadline=$((SECONDS + 15))
    until at "$dir/ping" "$1" ping -nqc 1 -W 1 "$2"; do
        [[ $SECONDS -lt $deadline ]] || fail "$3: $1 gets no ping reply from $2"
    done
}
