//! Golden vectors of ICMP errors and echo replies, byte for byte, and of the rules that forbid them. The
//! bytes were made by an independent implementation (scapy); messages of any length are checked with
//! another one (etherparse). The switch is 02:00:00:00:00:01, 10.0.1.1 and fd00:0:0:1::1; the host is
//! 02:00:00:00:00:0a, 10.0.1.2 and fd00:0:0:1::2.

mod golden;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use golden::{dump, hex, written};
use weft::counters::DropReason;
use weft::fabric::reply::{IcmpError, echo_reply, icmp_error, may_answer_with_error};
use weft::wire::{L3, MacAddr, parse};

const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const SWITCH4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
const SWITCH6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1));

/// The switch's address of the frame's IP version.
fn our_ip(frame: &[u8]) -> IpAddr {
    if parse(frame).expect("an Ethernet frame").kind == L3::Ipv6 { SWITCH6 } else { SWITCH4 }
}

fn error(kind: IcmpError, frame: &[u8], capacity: usize) -> Option<Vec<u8>> {
    let headers = parse(frame).expect("an Ethernet frame");
    written(capacity, |out| icmp_error(kind, frame, &headers, our_ip(frame), out))
}

fn echo(frame: &[u8], capacity: usize) -> Result<Vec<u8>, DropReason> {
    let headers = parse(frame).expect("an Ethernet frame");
    let mut result = Ok(());
    let bytes = written(capacity, |out| {
        result = echo_reply(frame, &headers, SWITCH, our_ip(frame), out);
        result.is_ok()
    });
    result.map(|()| bytes.expect("written"))
}

/// Parses what the switch wrote with etherparse and checks every checksum in it; gives the ICMP message.
fn verified(frame: &[u8]) -> &[u8] {
    let packet = SlicedPacket::from_ethernet(frame).expect("a well-formed frame");
    match (packet.net, packet.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(header.time_to_live, 64);
            assert_eq!(Sum16BitWords::new().add_slice(icmp.slice()).ones_complement(), 0, "ICMP checksum");
            icmp.slice()
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
            let header = ip.header();
            assert_eq!(header.hop_limit(), 64);
            assert!(icmp.is_checksum_valid(header.source(), header.destination()), "ICMPv6 checksum");
            icmp.slice()
        }
        other => panic!("neither ICMP nor ICMPv6: {other:?}"),
    }
}

#[test]
fn icmp_errors_quote_the_packet_and_go_back_to_its_source() {
    for (what, kind, cause, expected) in [
        (
            "time exceeded in transit",
            IcmpError::HopLimitExceeded,
            "020000000001 02000000000a 0800  45000028 12340000 01069297 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "02000000000a 020000000001 0800  45c00044 00004000 400123f7 0a000101 0a000102  0b000a20 00000000
             45000028 12340000 01069297 0a000102 0a010003  04d20050 00000001 00000002 50100400 91aa0000",
        ),
        (
            "host unreachable, in two VLANs",
            IcmpError::HostUnreachable,
            "020000000001 02000000000a 88a8  a00a8100  00140800  45000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "02000000000a 020000000001 88a8  a00a8100 00140800  45c00044 00004000 400123f7 0a000101 0a000102
             0301121f 00000000  45000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
        ),
        (
            "network unreachable; options and all data are quoted",
            IcmpError::NoRoute,
            "020000000001 02000000000a 0800  46000025 12340000 4011508d 0a000102 0a010003 01010101
             03e8829a 000d207a  68656c6c 6f",
            "02000000000a 020000000001 0800  45c00041 00004000 400123fa 0a000101 0a000102  03001224 00000000
             46000025 12340000 4011508d 0a000102 0a010003  01010101 03e8829a 000d207a 68656c6c 6f",
        ),
        (
            "about a packet of just a header",
            IcmpError::NoRoute,
            "020000000001 02000000000a 0800  45000014 12340000 40fd52b4 0a000102 0a010003",
            "02000000000a 020000000001 0800  45c00030 00004000 4001240b 0a000101 0a000102  0300fcff 00000000
             45000014 12340000 40fd52b4 0a000102 0a010003",
        ),
        (
            "port unreachable; Ethernet padding is not quoted",
            IcmpError::PortUnreachable,
            "020000000001 02000000000a 0800  4500001d 12340000 4011529a 0a000102 0a000101  03e8829a 0009eb56  78
             aaaaaaaa aaaaaaaa aaaaaaaa aaaaaaaa aa",
            "02000000000a 020000000001 0800  45c00039 00004000 40012402 0a000101 0a000102  0303131a 00000000
             4500001d 12340000 4011529a 0a000102 0a000101  03e8829a 0009eb56 78",
        ),
        (
            "ICMPv6 time exceeded",
            IcmpError::HopLimitExceeded,
            "020000000001 02000000000a 86dd
             60000000 00140601 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
            "02000000000a 020000000001 86dd
             60000000 00443a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             03009c7f 00000000
             60000000 00140601 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
        ),
        (
            "ICMPv6 no route",
            IcmpError::NoRoute,
            "020000000001 02000000000a 86dd
             60000000 00140601 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
            "02000000000a 020000000001 86dd
             60000000 00443a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             01009e7f 00000000
             60000000 00140601 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
        ),
        (
            "ICMPv6 address unreachable, in a VLAN",
            IcmpError::HostUnreachable,
            "020000000001 02000000000a 8100  006486dd
             60000000 00091140 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             03e8829a 00090751  78",
            "02000000000a 020000000001 8100  006486dd
             60000000 00393a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             01039353 00000000
             60000000 00091140 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             03e8829a 00090751 78",
        ),
        (
            "ICMPv6 port unreachable",
            IcmpError::PortUnreachable,
            "020000000001 02000000000a 86dd
             60000000 00091140 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             03e8829a 00090753  78",
            "02000000000a 020000000001 86dd
             60000000 00393a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             01049352 00000000
             60000000 00091140 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             03e8829a 00090753 78",
        ),
    ] {
        let bytes = error(kind, &hex(cause), 2048).expect(what);
        assert_eq!(dump(&bytes), dump(&hex(expected)), "{what}");
        verified(&bytes);
        assert_eq!(error(kind, &hex(cause), bytes.len() - 1), None, "{what}: a byte too few");
    }
}

/// A packet of zeros behind `headers`, `len` bytes of frame.
fn zeros_after(headers: &str, len: usize) -> Vec<u8> {
    let mut frame = hex(headers);
    frame.resize(len, 0);
    frame
}

#[test]
fn an_icmp_error_is_576_bytes_at_most_and_names_the_next_hop_mtu() {
    let cause = zeros_after(
        "020000000001 02000000000a 0800  45000274 12344000 40111140 0a000102 0a010003  03e8829a 02605fa6",
        642,
    );
    let bytes = error(IcmpError::TooBig { mtu: 576 }, &cause, 2048).expect("it may be answered");
    assert_eq!(bytes.len(), 14 + 576);
    assert_eq!(
        dump(&bytes[..42]),
        dump(&hex("02000000000a 020000000001 0800  45c00240 00004000 400121fb 0a000101 0a000102  03041233 00000240"))
    );
    assert_eq!(dump(&bytes[42..]), dump(&cause[14..14 + 548]));
    verified(&bytes);
}

#[test]
fn an_icmpv6_error_is_1280_bytes_at_most_and_names_the_next_hop_mtu() {
    let cause = zeros_after(
        "020000000001 02000000000a 86dd
             60000000 05801140 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             03e8829a 05807463",
        1462,
    );
    let bytes = error(IcmpError::TooBig { mtu: 1400 }, &cause, 2048).expect("it may be answered");
    assert_eq!(bytes.len(), 14 + 1280);
    assert_eq!(
        dump(&bytes[..62]),
        dump(&hex("02000000000a 020000000001 86dd
             60000000 04d83a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             0200883f 00000578"))
    );
    assert_eq!(dump(&bytes[62..]), dump(&cause[14..14 + 1232]));
    verified(&bytes);
}

#[test]
fn an_error_needs_an_address_of_the_packets_ip_version() {
    for (cause, wrong) in [
        (
            "020000000001 02000000000a 0800  45000028 12340000 01069297 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            SWITCH6,
        ),
        (
            "020000000001 02000000000a 86dd
             60000000 00140601 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
            SWITCH4,
        ),
    ] {
        let frame = hex(cause);
        let headers = parse(&frame).expect("an Ethernet frame");
        let made = written(2048, |out| icmp_error(IcmpError::NoRoute, &frame, &headers, wrong, out));
        assert_eq!(made, None);
    }
}

/// RFC 1812, section 4.3.2.7, and RFC 4443, section 2.4 (e).
#[test]
fn no_error_is_sent_about() {
    for (what, frame) in [
        (
            "destination unreachable",
            "020000000001 02000000000a 0800  45000038 12340000 4001538c 0a000102 0a010003  0300fcff 00000000
             00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        ),
        (
            "source quench",
            "020000000001 02000000000a 0800  45000038 12340000 4001538c 0a000102 0a010003  0400fbff 00000000
             00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        ),
        (
            "redirect",
            "020000000001 02000000000a 0800  45000038 12340000 4001538c 0a000102 0a010003  0500faff 00000000
             00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        ),
        (
            "time exceeded",
            "020000000001 02000000000a 0800  45000038 12340000 4001538c 0a000102 0a010003  0b00f4ff 00000000
             00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        ),
        (
            "parameter problem",
            "020000000001 02000000000a 0800  45000038 12340000 4001538c 0a000102 0a010003  0c00f3ff 00000000
             00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        ),
        (
            "an ICMP type that is not known",
            "020000000001 02000000000a 0800  4500001c 12340000 400153a8 0a000102 0a010003  c80037ff 00000000",
        ),
        ("ICMP without a type", "020000000001 02000000000a 0800  45000014 12340000 400153b0 0a000102 0a010003"),
        (
            "a later fragment",
            "020000000001 02000000000a 0800  4500001c 12340003 40115395 0a000102 0a010003  00000000 00000000",
        ),
        (
            "a packet to a multicast address",
            "020000000001 02000000000a 0800  4500001c 12340000 40117d92 0a000102 e0000009  03e8829a 00088e50",
        ),
        (
            "a packet to the broadcast address",
            "020000000001 02000000000a 0800  4500001c 12340000 40115d9c 0a000102 ffffffff  03e8829a 00086e5a",
        ),
        (
            "a link-layer broadcast",
            "ffffffffffff 02000000000a 0800  4500001c 12340000 40115398 0a000102 0a010003  03e8829a 00086456",
        ),
        (
            "a link-layer multicast",
            "01005e000009 02000000000a 0800  4500001c 12340000 40115398 0a000102 0a010003  03e8829a 00086456",
        ),
        (
            "a frame from a group MAC",
            "020000000001 03000000000a 0800  4500001c 12340000 40115398 0a000102 0a010003  03e8829a 00086456",
        ),
        (
            "source 0.0.0.0",
            "020000000001 02000000000a 0800  4500001c 12340000 40115e9a 00000000 0a010003  03e8829a 00086f58",
        ),
        (
            "a loopback source",
            "020000000001 02000000000a 0800  4500001c 12340000 4011df98 7f000001 0a010003  03e8829a 0008f056",
        ),
        (
            "a multicast source",
            "020000000001 02000000000a 0800  4500001c 12340000 40117e98 e0000001 0a010003  03e8829a 00088f56",
        ),
        (
            "a reserved source",
            "020000000001 02000000000a 0800  4500001c 12340000 40116e98 f0000001 0a010003  03e8829a 00087f56",
        ),
        (
            "the broadcast address as source",
            "020000000001 02000000000a 0800  4500001c 12340000 40115e9a ffffffff 0a010003  03e8829a 00086f58",
        ),
        (
            "a bad header checksum",
            "020000000001 02000000000a 0800  45000028 12340000 01069296 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
        ),
        (
            "ICMPv6 destination unreachable",
            "020000000001 02000000000a 86dd
             60000000 000c3a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             010004b1 00000000 00000000",
        ),
        (
            "ICMPv6 packet too big",
            "020000000001 02000000000a 86dd
             60000000 000c3a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             020003b1 00000000 00000000",
        ),
        (
            "ICMPv6 time exceeded",
            "020000000001 02000000000a 86dd
             60000000 000c3a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             030002b1 00000000 00000000",
        ),
        (
            "ICMPv6 parameter problem",
            "020000000001 02000000000a 86dd
             60000000 000c3a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             040001b1 00000000 00000000",
        ),
        (
            "an ICMPv6 error that is not known",
            "020000000001 02000000000a 86dd
             60000000 00083a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             7f0086b4 00000000",
        ),
        (
            "ICMPv6 redirect",
            "020000000001 02000000000a 86dd
             60000000 00283a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             89007c94 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
        ),
        (
            "ICMPv6 without a type",
            "020000000001 02000000000a 86dd
             60000000 00003a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003",
        ),
        (
            "the unspecified source",
            "020000000001 02000000000a 86dd
             60000000 00081140 00000000 00000000 00000000 00000000 fd000000 00010000 00000000 00000003
             03e8829a 00087c57",
        ),
        (
            "an IPv6 multicast source",
            "020000000001 02000000000a 86dd
             60000000 00081140 ff020000 00000000 00000000 00000001 fd000000 00010000 00000000 00000003
             03e8829a 00087d53",
        ),
        (
            "the IPv6 loopback source",
            "020000000001 02000000000a 86dd
             60000000 00081140 00000000 00000000 00000000 00000001 fd000000 00010000 00000000 00000003
             03e8829a 00087c56",
        ),
        (
            "a packet to an IPv6 multicast address",
            "020000000001 02000000000a 86dd
             60000000 00081140 fd000000 00000001 00000000 00000002 ff0e0000 00000000 00000000 00000001
             03e8829a 00087d48",
        ),
        (
            "an IPv6 packet in a link-layer multicast",
            "333300000001 02000000000a 86dd
             60000000 00081140 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             03e8829a 00087f53",
        ),
        (
            "a later IPv6 fragment",
            "020000000001 02000000000a 86dd
             60000000 00102c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             11000008 deadbeef  00000000 00000000",
        ),
        (
            "an extension header chain that is cut",
            "020000000001 02000000000a 86dd
             60000000 00043c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003  3a000000",
        ),
        ("ARP", "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101"),
    ] {
        let frame = hex(frame);
        assert!(!may_answer_with_error(&frame, &parse(&frame).expect(what)), "{what}");
        assert_eq!(error(IcmpError::NoRoute, &frame, 2048), None, "{what}");
    }
}

#[test]
fn an_error_may_be_sent_about() {
    for (what, frame) in [
        ("UDP", "020000000001 02000000000a 0800  4500001c 12340000 40115398 0a000102 0a010003  03e8829a 00086456"),
        (
            "an echo request",
            "020000000001 02000000000a 0800  4500001c 12340000 400153a8 0a000102 0a010003  0800f7fd 00010001",
        ),
        (
            "a timestamp request",
            "020000000001 02000000000a 0800  4500001c 12340000 400153a8 0a000102 0a010003  0d00f2ff 00000000",
        ),
        (
            "the first fragment",
            "020000000001 02000000000a 0800  45000024 12342000 40113390 0a000102 0a010003  03e8829a 00106446
             00000000 00000000",
        ),
        (
            "UDP over IPv6",
            "020000000001 02000000000a 86dd
             60000000 00081140 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             03e8829a 00087f53",
        ),
        (
            "an ICMPv6 echo request",
            "020000000001 02000000000a 86dd
             60000000 00083a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             800085b2 00010001",
        ),
        (
            "the first IPv6 fragment",
            "020000000001 02000000000a 86dd
             60000000 00102c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             11000001 deadbeef  03e8829a 00100000",
        ),
        (
            "an IPv6 packet with no next header",
            "020000000001 02000000000a 86dd
             60000000 00003b40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003",
        ),
        (
            "a packet from a link-local address",
            "020000000001 02000000000a 86dd
             60000000 00081140 fe800000 00000000 000000ff fe00000a fd000000 00010000 00000000 00000003
             03e8829a 00087ecc",
        ),
    ] {
        let frame = hex(frame);
        assert!(may_answer_with_error(&frame, &parse(&frame).expect(what)), "{what}");
        verified(&error(IcmpError::NoRoute, &frame, 2048).expect(what));
    }
}

#[test]
fn a_ping_to_the_switch_is_answered() {
    for (what, request, reply) in [
        (
            "DSCP is reflected, ECN is not; padded to 60 bytes",
            "020000000001 02000000000a 0800  45b9001f 12340000 400151ef 0a000102 0a000101  08001260 12340007
             6f6464",
            "02000000000a 020000000001 0800  45b8001f 00004000 40012424 0a000101 0a000102  00001a60 12340007
             6f6464  00000000 00000000 00000000 000000",
        ),
        (
            "IPv4 options are not reflected",
            "020000000001 02000000000a 0800  4700003e 12340000 40014582 0a000102 0a000101 07070400 00000000
             08006962 00010001  61626364 65666768 696a6b6c 6d6e6f70 71727374 75767778 797a",
            "02000000000a 020000000001 0800  45000036 00004000 400124c5 0a000101 0a000102  00007162 00010001
             61626364 65666768 696a6b6c 6d6e6f70 71727374 75767778 797a",
        ),
        (
            "in two VLANs; padding is not payload",
            "020000000001 02000000000a 88a8  a00a8100  00140800  45000020 12340000 400152a7 0a000102 0a000101
             0800f3f7 00010001  01020304  aaaaaaaa aaaaaaaa aaaaaaaa aaaaaaaa aaaaaaaa",
            "02000000000a 020000000001 88a8  a00a8100  00140800  45000020 00004000 400124db 0a000101 0a000102
             0000fbf7 00010001  01020304  00000000 0000",
        ),
        (
            "IPv6: DSCP is reflected, ECN and flow label are not",
            "020000000001 02000000000a 86dd
             62a12345 000b3a40 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             8000a013 12340007 6f6464",
            "02000000000a 020000000001 86dd
             62800000 000b3a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             81009f13 12340007 6f6464",
        ),
        (
            "IPv6 in a VLAN: extension headers are not reflected",
            "020000000001 02000000000a 8100  006486dd
             60000000 00103c40 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             3a000104 00000000  800085b4 00010001",
            "02000000000a 020000000001 8100  006486dd
             60000000 00083a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             810084b4 00010001",
        ),
        (
            "to all nodes: from an address and the MAC of the switch",
            "333300000001 02000000000a 86dd
             60000000 000b3a40 fd000000 00000001 00000000 00000002 ff020000 00000000 00000000 00000001
             8000b643 00010001 616c6c",
            "02000000000a 020000000001 86dd
             60000000 000b3a40 fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             8100b744 00010001 616c6c",
        ),
    ] {
        let bytes = echo(&hex(request), 2048).expect(what);
        assert_eq!(dump(&bytes), dump(&hex(reply)), "{what}");
        assert_eq!(echo(&hex(request), bytes.len() - 1), Err(DropReason::NoFrame), "{what}: a byte too few");
    }
}

#[test]
fn what_is_no_ping_to_answer_is_dropped_for_its_reason() {
    for (what, frame, reason) in [
        (
            "a wrong ICMP checksum",
            "020000000001 02000000000a 0800  45b9001f 12340000 400151ef 0a000102 0a000101
             08001260 12340007 6f6465",
            DropReason::BadIcmpChecksum,
        ),
        (
            "a wrong ICMPv6 checksum",
            "020000000001 02000000000a 86dd
             62a12345 000b3a40 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             8000a013 12340007 6f6465",
            DropReason::BadIcmpChecksum,
        ),
        (
            "on its way through us by a routing header",
            "020000000001 02000000000a 86dd
             60000000 00302b40 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             3a040401 01000000 fd000000 00030000 00000000 00000009 fd000000 00000001 00000000 00000001
             800085ac 00000000",
            DropReason::BadIcmpChecksum,
        ),
        (
            "code 1",
            "020000000001 02000000000a 0800  4500001c 12340000 400152ab 0a000102 0a000101  0801f7fe 00000000",
            DropReason::NoListener,
        ),
        (
            "a fragment",
            "020000000001 02000000000a 0800  45000024 12342000 400132a3 0a000102 0a000101  0800f7fd 00010001
             00000000 00000000",
            DropReason::NoListener,
        ),
        (
            "an IPv6 fragment",
            "020000000001 02000000000a 86dd
             60000000 00102c40 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             3a000001 deadbeef  80000000 00010001",
            DropReason::NoListener,
        ),
        (
            "seven bytes of ICMP",
            "020000000001 02000000000a 0800  4500001b 12340000 400152ac 0a000102 0a000101  0800f7ff 000000",
            DropReason::NoListener,
        ),
        (
            "UDP",
            "020000000001 02000000000a 0800  4500001c 12340000 4011529b 0a000102 0a000101  03e8829a 00086359",
            DropReason::NoListener,
        ),
        (
            "an echo reply",
            "020000000001 02000000000a 86dd
             60000000 00083a40 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             810084b6 00000000",
            DropReason::NoListener,
        ),
        (
            "from 0.0.0.0",
            "020000000001 02000000000a 0800  4500001c 12340000 40015dad 00000000 0a000101  0800f7ff 00000000",
            DropReason::MartianSource,
        ),
        (
            "from the unspecified address",
            "020000000001 02000000000a 86dd
             60000000 00083a40 00000000 00000000 00000000 00000000 fd000000 00000001 00000000 00000001
             800082ba 00000000",
            DropReason::MartianSource,
        ),
        (
            "ARP",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
            DropReason::NoListener,
        ),
    ] {
        assert_eq!(echo(&hex(frame), 2048), Err(reason), "{what}");
    }
}

/// An echo request of `payload` bytes counting up, made by etherparse, with its Ethernet frame.
fn request(v6: bool, payload: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload).map(|i| i as u8).collect();
    let ethernet = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0xa], SWITCH.0);
    let mut frame = Vec::new();
    let write = if v6 {
        let IpAddr::V6(switch) = SWITCH6 else { unreachable!("an IPv6 address") };
        let host = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2);
        let step = ethernet.ipv6(host.octets(), switch.octets(), 64).icmpv6_echo_request(0xbeef, 0x0102);
        step.write(&mut frame, &payload)
    } else {
        let step = ethernet.ipv4([10, 0, 1, 2], [10, 0, 1, 1], 64).icmpv4_echo_request(0xbeef, 0x0102);
        step.write(&mut frame, &payload)
    };
    write.expect("a packet of this size");
    frame
}

#[test]
fn a_ping_of_any_size_comes_back_whole() {
    for payload in (0..70).chain([576, 1231, 1232, 1451, 1452, 1471, 1472, 1551, 1552]) {
        for (v6, first) in [(false, [0, 0]), (true, [129, 0])] {
            let frame = request(v6, payload);
            let reply = echo(&frame, 2048).expect("a valid request");
            let message = verified(&reply);
            let l4 = if v6 { 54 } else { 34 };
            assert_eq!(message[..2], first, "type and code");
            assert_eq!(message[4..], frame[l4 + 4..], "identifier, sequence number and payload of {payload} bytes");
            assert_eq!(reply.len(), frame.len().max(60));
        }
    }
}

#[test]
fn an_error_about_a_packet_of_any_size_is_well_formed() {
    for payload in (0..80).chain(505..=530).chain(1175..=1200).chain([1472]) {
        for v6 in [false, true] {
            let frame = request(v6, payload);
            let (ip_header, limit) = if v6 { (40, 1280) } else { (20, 576) };
            let bytes = error(IcmpError::HopLimitExceeded, &frame, 2048).expect("it may be answered");
            let message = verified(&bytes);
            assert_eq!(bytes.len(), 14 + (ip_header + 8 + frame.len() - 14).min(limit));
            assert_eq!(message[8..], frame[14..14 + message.len() - 8], "the quote");
        }
    }
}
