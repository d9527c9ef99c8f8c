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
