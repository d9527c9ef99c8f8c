//! Golden vectors of ARP and neighbour discovery: what is read from the hosts' messages, what is refused
//! and why, and the switch's own messages byte for byte. The bytes were made by an independent
//! implementation (scapy). The switch is 02:00:00:00:00:01, 10.0.1.1 and fd00:0:0:1::1; the host is
//! 02:00:00:00:00:0a, 10.0.1.2 and fd00:0:0:1::2.

mod golden;

use std::net::{Ipv4Addr, Ipv6Addr};

use golden::{dump, hex, written};
use weft::counters::DropReason;
use weft::fabric::reply::{
    Arp, ArpOp, Neighbour, NeighbourOp, arp_read, arp_reply, arp_request, is_neighbour_message, nd_read,
    neighbour_advertisement, neighbour_solicitation, tags,
};
use weft::wire::{MacAddr, parse};

const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const SWITCH4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const SWITCH6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1);
const HOST6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2);
const NOBODY: MacAddr = MacAddr([0; 6]);

fn read_arp(frame: &str) -> Result<Arp, DropReason> {
    let frame = hex(frame);
    arp_read(&frame, &parse(&frame).expect("an Ethernet frame"))
}

fn read_nd(frame: &str) -> Result<Neighbour, DropReason> {
    let frame = hex(frame);
    nd_read(&frame, &parse(&frame).expect("an Ethernet frame"))
}

#[test]
fn arp_packets_are_read() {
    let request =
        Arp { op: ArpOp::Request, sender_mac: HOST, sender_ip: HOST4, target_mac: NOBODY, target_ip: SWITCH4 };
    for (what, frame, arp) in [
        (
            "a request",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
            request,
        ),
        (
            "a request in two VLANs",
            "ffffffffffff 02000000000a 88a8  a00a8100  10140806
             00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
            request,
        ),
        (
            "a probe: the sender has no address yet",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0000 00000000 00000000 0a000101",
            Arp { sender_ip: Ipv4Addr::UNSPECIFIED, ..request },
        ),
        (
            "a gratuitous request",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a000102",
            Arp { target_ip: HOST4, ..request },
        ),
        (
            "a reply",
            "020000000001 02000000000a 0806  00010800 06040002 02000000 000a0a00 01020200 00000001 0a000101",
            Arp { op: ArpOp::Reply, target_mac: SWITCH, ..request },
        ),
    ] {
        assert_eq!(read_arp(frame), Ok(arp), "{what}");
    }
}

#[test]
fn a_malformed_arp_packet_is_refused() {
    for (what, frame) in [
        (
            "hardware type 6, IEEE 802",
            "ffffffffffff 02000000000a 0806  00060800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "protocol type IPv6",
            "ffffffffffff 02000000000a 0806  000186dd 06040001 02000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "hardware address of 8 bytes",
            "ffffffffffff 02000000000a 0806  00010800 08040001 02000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "hardware address of 0 bytes",
            "ffffffffffff 02000000000a 0806  00010800 00040001 02000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "protocol address of 16 bytes",
            "ffffffffffff 02000000000a 0806  00010800 06100001 02000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "operation 0",
            "ffffffffffff 02000000000a 0806  00010800 06040000 02000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "operation 3, reverse ARP",
            "ffffffffffff 02000000000a 0806  00010800 06040003 02000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "the sender claims a multicast MAC",
            "ffffffffffff 02000000000a 0806  00010800 06040001 03000000 000a0a00 01020000 00000000 0a000101",
        ),
        (
            "the sender claims the broadcast MAC",
            "ffffffffffff 02000000000a 0806  00010800 06040001 ffffffff ffff0a00 01020000 00000000 0a000101",
        ),
        (
            "the sender claims the zero MAC",
            "ffffffffffff 02000000000a 0806  00010800 06040001 00000000 00000a00 01020000 00000000 0a000101",
        ),
        (
            "the sender claims a multicast address",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000ae000 01020000 00000000 0a000101",
        ),
        (
            "the sender claims the broadcast address",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000affff ffff0000 00000000 0a000101",
        ),
        (
            "the sender claims a loopback address",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a7f00 01020000 00000000 0a000101",
        ),
        (
            "one byte short",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a0001",
        ),
        ("nothing behind the EtherType", "ffffffffffff 02000000000a 0806"),
        (
            "not ARP",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007d8d 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
        ),
    ] {
        assert_eq!(read_arp(frame), Err(DropReason::BadNeighbourMessage), "{what}");
    }
}

#[test]
fn an_arp_request_is_answered_to_its_sender_with_its_tags() {
    for (what, request, reply) in [
        (
            "a request",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
            "02000000000a 020000000001 0806  00010800 06040002 02000000 00010a00 01010200 0000000a 0a000102
             00000000 00000000 00000000 00000000 0000",
        ),
        (
            "priority, drop-eligible bit and order of the tags are kept",
            "ffffffffffff 02000000000a 88a8  a00a8100  10140806
             00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
            "02000000000a 020000000001 88a8  a00a8100  10140806
             00010800 06040002 02000000 00010a00 01010200 0000000a 0a000102  00000000 00000000 0000",
        ),
        (
            "a probe is answered to address 0.0.0.0 (RFC 5227)",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0000 00000000 00000000 0a000101",
            "02000000000a 020000000001 0806  00010800 06040002 02000000 00010a00 01010200 0000000a 00000000
             00000000 00000000 00000000 00000000 0000",
        ),
    ] {
        let frame = hex(request);
        let headers = parse(&frame).expect(what);
        let arp = arp_read(&frame, &headers).expect(what);
        let bytes = written(2048, |out| arp_reply(&arp, SWITCH, tags(&frame, &headers), out)).expect(what);
        assert_eq!(dump(&bytes), dump(&hex(reply)), "{what}");
    }
    let is_at =
        read_arp("020000000001 02000000000a 0806  00010800 06040002 02000000 000a0a00 01020200 00000001 0a000101")
            .expect("a reply");
    assert_eq!(written(2048, |out| arp_reply(&is_at, SWITCH, &[], out)), None, "a reply is not answered");
}

#[test]
fn an_arp_request_asks_everybody() {
    let plain = written(2048, |out| arp_request(SWITCH, SWITCH4, HOST4, &[], out)).expect("it fits");
    assert_eq!(
        dump(&plain),
        dump(&hex("ffffffffffff 020000000001 0806  00010800 06040001 02000000 00010a00 01010000 00000000 0a000102
             00000000 00000000 00000000 00000000 0000"))
    );
    let tag = hex("81000064");
    let tagged = written(2048, |out| arp_request(SWITCH, SWITCH4, HOST4, &tag, out)).expect("it fits");
    assert_eq!(
        dump(&tagged),
        dump(&hex("ffffffffffff 020000000001 8100  00640806
             00010800 06040001 02000000 00010a00 01010000 00000000 0a000102  00000000 00000000 00000000 0000"))
    );
    assert_eq!(written(59, |out| arp_request(SWITCH, SWITCH4, HOST4, &[], out)), None, "59 bytes are too few");
}

#[test]
fn neighbour_messages_are_read() {
    let solicitation = Neighbour { op: NeighbourOp::Solicitation, source: HOST6, target: SWITCH6, mac: Some(HOST) };
    let advertisement = |solicited, overrides| Neighbour {
        op: NeighbourOp::Advertisement { router: false, solicited, overrides },
        source: HOST6,
        target: HOST6,
        mac: Some(HOST),
    };
    let other = MacAddr([2, 0, 0, 0, 0, 0xb]);
    for (what, frame, message) in [
        (
            "a solicitation",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007d8d 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
            solicitation,
        ),
        (
            "unicast, without link-layer address, in two VLANs",
            "020000000001 02000000000a 88a8  a00a8100  001486dd
             60000000 00183aff fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             870081a3 00000000 fd000000 00000001 00000000 00000001",
            Neighbour { mac: None, ..solicitation },
        ),
        (
            "duplicate address detection with a nonce (RFC 7527)",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff 00000000 00000000 00000000 00000000 ff020000 00000000 00000001 ff000001
             8700668f 00000000 fd000000 00000001 00000000 00000001  0e010102 03040506",
            Neighbour { source: Ipv6Addr::UNSPECIFIED, mac: None, ..solicitation },
        ),
        (
            "the link-layer address is the second option",
            "3333ff000001 02000000000a 86dd
             60000000 00283aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87006677 00000000 fd000000 00000001 00000000 00000001  0e010102 03040506  01010200 0000000b",
            Neighbour { mac: Some(other), ..solicitation },
        ),
        (
            "a solicited advertisement",
            "020000000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             88001c8f 60000000 fd000000 00000001 00000000 00000002  02010200 0000000a",
            advertisement(true, true),
        ),
        (
            "an unsolicited one to all nodes",
            "333300000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000000 00000001
             88005a8e 20000000 fd000000 00000001 00000000 00000002  02010200 0000000a",
            advertisement(false, true),
        ),
        (
            "one without link-layer address",
            "020000000001 02000000000a 86dd
             60000000 00183aff fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             880040a2 40000000 fd000000 00000001 00000000 00000002",
            Neighbour { mac: None, ..advertisement(true, false) },
        ),
    ] {
        assert_eq!(read_nd(frame), Ok(message), "{what}");
    }
}

/// RFC 4861, sections 7.1.1 and 7.1.2.
#[test]
fn an_invalid_neighbour_message_is_refused() {
    for (what, frame) in [
        (
            "hop limit 254: it was routed",
            "3333ff000001 02000000000a 86dd
             60000000 00203afe fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007d8d 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
        ),
        (
            "checksum off by one",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007d8c 00000000 fd000000 00000001 00000000 00000001 01010200 0000000a",
        ),
        (
            "code 1",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87017d8c 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
        ),
        (
            "23 bytes of ICMP",
            "3333ff000001 02000000000a 86dd
             60000000 00173aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             870080a2 00000000 fd000000 00000001 00000000 000000",
        ),
        (
            "the target is a multicast address",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007b8c 00000000 ff020000 00000000 00000000 00000001  01010200 0000000a",
        ),
        (
            "an option of length 0",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007d8e 00000000 fd000000 00000001 00000000 00000001 01000200 0000000a",
        ),
        (
            "an option of length 0 behind a good one",
            "3333ff000001 02000000000a 86dd
             60000000 00283aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87006f85 00000000 fd000000 00000001 00000000 00000001 01010200 0000000a 0e000000 00000000",
        ),
        (
            "an option that reaches past the packet",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007296 00000000 fd000000 00000001 00000000 00000001 0e020000 00000000",
        ),
        (
            "an option of one byte",
            "3333ff000001 02000000000a 86dd
             60000000 00193aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             8700729f 00000000 fd000000 00000001 00000000 00000001 0e",
        ),
        (
            "a link-layer address option of 16 bytes",
            "3333ff000001 02000000000a 86dd
             60000000 00283aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007d84 00000000 fd000000 00000001 00000000 00000001 01020200 0000000a 00000000 00000000",
        ),
        (
            "the link-layer address is a multicast one",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007c8d 00000000 fd000000 00000001 00000000 00000001 01010300 0000000a",
        ),
        (
            "the link-layer address is zero",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007f97 00000000 fd000000 00000001 00000000 00000001 01010000 00000000",
        ),
        (
            "from the unspecified address with a link-layer address",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff 00000000 00000000 00000000 00000000 ff020000 00000000 00000001 ff000001
             87007a91 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
        ),
        (
            "from the unspecified address to all nodes",
            "333300000001 02000000000a 86dd
             60000000 00183aff 00000000 00000000 00000000 00000000 ff020000 00000000 00000000 00000001
             87007ca6 00000000 fd000000 00000001 00000000 00000001",
        ),
        (
            "from the unspecified address to what only looks like a solicited-node address",
            "3333ff000001 02000000000a 86dd
             60000000 00183aff 00000000 00000000 00000000 00000000 ff020000 00000000 00000002 ff000001
             87007da3 00000000 fd000000 00000001 00000000 00000001",
        ),
        (
            "from a multicast address",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff ff020000 00000000 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007b8c 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
        ),
        (
            "from the loopback address",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff 00000000 00000000 00000000 00000001 ff020000 00000000 00000001 ff000001
             87007a90 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
        ),
        (
            "with a fragment header, though atomic (RFC 6980)",
            "3333ff000001 02000000000a 86dd
             60000000 00282cff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             3a000000 deadbeef  87007d8d 00000000 fd000000 00000001 00000000 00000001 01010200 0000000a",
        ),
        (
            "an advertisement that is solicited and to all nodes",
            "333300000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000000 00000001
             88001a8e 60000000 fd000000 00000001 00000000 00000002  02010200 0000000a",
        ),
        (
            "an advertisement from the unspecified address",
            "020000000001 02000000000a 86dd
             60000000 00203aff 00000000 00000000 00000000 00000000 fd000000 00000001 00000000 00000001
             88001993 60000000 fd000000 00000001 00000000 00000002  02010200 0000000a",
        ),
    ] {
        assert_eq!(read_nd(frame), Err(DropReason::BadNeighbourMessage), "{what}");
        let frame = hex(frame);
        assert!(is_neighbour_message(&frame, &parse(&frame).expect(what)), "{what}: not even recognised");
    }
}

#[test]
fn what_is_no_neighbour_message_is_not_taken_for_one() {
    for (what, frame) in [
        (
            "a router solicitation",
            "333300000002 02000000000a 86dd
             60000000 00083aff fe800000 00000000 000000ff fe00000a ff020000 00000000 00000000 00000002
             85007e2d 00000000",
        ),
        (
            "ICMPv6 without a byte",
            "020000000001 02000000000a 86dd
             60000000 00003aff fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001",
        ),
        ("ARP", "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101"),
    ] {
        assert_eq!(read_nd(frame), Err(DropReason::BadNeighbourMessage), "{what}");
        let frame = hex(frame);
        assert!(!is_neighbour_message(&frame, &parse(&frame).expect(what)), "{what}");
    }
}

#[test]
fn a_solicitation_is_answered_by_a_routers_advertisement() {
    for (what, solicitation, advertisement) in [
        (
            "to its source, solicited",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87007d8d 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
            "02000000000a 020000000001 86dd
             60000000 00203aff fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             88009c98 e0000000 fd000000 00000001 00000000 00000001  02010200 00000001",
        ),
        (
            "without a link-layer address: to the MAC it came from, with its tags",
            "020000000001 02000000000a 88a8  a00a8100  001486dd
             60000000 00183aff fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             870081a3 00000000 fd000000 00000001 00000000 00000001",
            "02000000000a 020000000001 88a8  a00a8100  001486dd
             60000000 00203aff fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             88009c98 e0000000 fd000000 00000001 00000000 00000001  02010200 00000001",
        ),
        (
            "duplicate address detection: to all nodes, not solicited",
            "3333ff000001 02000000000a 86dd
             60000000 00203aff 00000000 00000000 00000000 00000000 ff020000 00000000 00000001 ff000001
             8700668f 00000000 fd000000 00000001 00000000 00000001  0e010102 03040506",
            "333300000001 020000000001 86dd
             60000000 00203aff fd000000 00000001 00000000 00000001 ff020000 00000000 00000000 00000001
             8800da98 a0000000 fd000000 00000001 00000000 00000001  02010200 00000001",
        ),
        (
            "to the link-layer address it names, not to the one it came from",
            "3333ff000001 02000000000a 86dd
             60000000 00283aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
             87006677 00000000 fd000000 00000001 00000000 00000001  0e010102 03040506  01010200 0000000b",
            "02000000000b 020000000001 86dd
             60000000 00203aff fd000000 00000001 00000000 00000001 fd000000 00000001 00000000 00000002
             88009c98 e0000000 fd000000 00000001 00000000 00000001  02010200 00000001",
        ),
    ] {
        let frame = hex(solicitation);
        let headers = parse(&frame).expect(what);
        let message = nd_read(&frame, &headers).expect(what);
        let answer = |out: &mut _| neighbour_advertisement(&frame, &headers, &message, SWITCH, out);
        let bytes = written(2048, answer).expect(what);
        assert_eq!(dump(&bytes), dump(&hex(advertisement)), "{what}");
        assert_eq!(written(bytes.len() - 1, answer), None, "{what}: a byte too few");
    }
    let frame = hex("020000000001 02000000000a 86dd
             60000000 00203aff fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
             88001c8f 60000000 fd000000 00000001 00000000 00000002  02010200 0000000a");
    let headers = parse(&frame).expect("an Ethernet frame");
    let message = nd_read(&frame, &headers).expect("an advertisement");
    let answered = written(2048, |out| neighbour_advertisement(&frame, &headers, &message, SWITCH, out));
    assert_eq!(answered, None, "an advertisement is not answered");
}

#[test]
fn a_solicitation_goes_to_the_solicited_node_group() {
    let tag = hex("81000064");
    let bytes = written(2048, |out| neighbour_solicitation(SWITCH, SWITCH6, HOST6, &tag, out)).expect("it fits");
    assert_eq!(
        dump(&bytes),
        dump(&hex("3333ff000002 020000000001 8100  006486dd
             60000000 00203aff fd000000 00000001 00000000 00000001 ff020000 00000000 00000001 ff000002
             87007d95 00000000 fd000000 00000001 00000000 00000002  01010200 00000001"))
    );
}
