#!/usr/bin/env bash
# Drives the kernel's packet generator (pktgen), where the kernel has it: the fastest source of frames
# there is, but without probes, so `weft sink` counts them as foreign. Where it is absent, use
# `weft gen --live`.
#
# Usage: scripts/pktgen.sh -i IFACE -m DST_MAC -d DST_IP [options]
#   -i IFACE    interface to send from, in this namespace
#   -m MAC      destination MAC
#   -d IP       destination IPv4 address
#   -s BYTES    frame size without FCS [60]
#   -n COUNT    frames to send; 0 = until the time is over [0]
#   -t SECONDS  longest time [10]
#   -f FLOWS    UDP source ports to use [1]
#   -r PPS      frames per second; 0 = as fast as possible [0]
#   -c CPU      core of the kernel thread that sends [0]
# Needs root. Exit code: 0 sent, 1 failed, 2 misuse or no pktgen here.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

fail() {
    warn "$@"
    exit 1
}
misuse() {
    usage >&2
    exit 2
}

iface='' mac='' dst='' size=60 count=0 seconds=10 flows=1 pps=0 cpu=0
while getopts 'i:m:d:s:n:t:f:r:c:h' option; do
    case $option in
        i) iface=$OPTARG ;; m) mac=$OPTARG ;; d) dst=$OPTARG ;; s) size=$OPTARG ;; n) count=$OPTARG ;;
        t) seconds=$OPTARG ;; f) flows=$OPTARG ;; r) pps=$OPTARG ;; c) cpu=$OPTARG ;; h) usage && exit ;;
        *) misuse ;;
    esac
done
[[ $iface && $mac && $dst ]] || misuse
is_root || die 'run it as root'
[[ -d /proc/net/pktgen ]] || modprobe pktgen 2>/dev/null || true
[[ -d /proc/net/pktgen ]] || die 'this kernel has no pktgen (CONFIG_NET_PKTGEN): use `weft gen --live`'

thread=/proc/net/pktgen/kpktgend_$cpu
device=/proc/net/pktgen/$iface
[[ -e $thread ]] || die "no pktgen thread for core $cpu"

# A command that pktgen refuses fails the write or shows in the file's last line.
set_pg() {
    local file=$1; shift
    echo "$*" >"$file" || fail "pktgen refused '$*': $(tail -n1 "$file")"
}
cleanup() {
    echo stop >/proc/net/pktgen/pgctrl 2>/dev/null || true
    echo rem_device_all >"$thread" 2>/dev/null || true
}
trap cleanup EXIT
# A second signal ends nothing half done.
trap "trap '' INT TERM; exit 130" INT TERM

set_pg "$thread" rem_device_all
set_pg "$thread" add_device "$iface"
# A veth hands the skb on, so it can't be sent twice.
set_pg "$device" clone_skb 0
set_pg "$device" count "$count"
set_pg "$device" pkt_size "$size"
set_pg "$device" dst_mac "$mac"
set_pg "$device" dst "$dst"
set_pg "$device" udp_dst_min 9
set_pg "$device" udp_dst_max 9
set_pg "$device" udp_src_min 1024
set_pg "$device" udp_src_max $((1024 + flows - 1))
set_pg "$device" flag UDPCSUM
if ((pps > 0)); then set_pg "$device" ratep "$pps"; else set_pg "$device" delay 0; fi

# `start` returns when all frames are sent: the time limit ends it from outside.
(sleep "$seconds"; echo stop >/proc/net/pktgen/pgctrl) &
watchdog=$!
echo start >/proc/net/pktgen/pgctrl || true
kill "$watchdog" 2>/dev/null || true
sed -n '/^Result:/,$p' "$device"
