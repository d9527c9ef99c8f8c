//! Properties of the switch's own messages: no bytes from a host make a function of `fabric::reply` panic,
//! and whatever it writes is a valid packet with the tags of the frame it answers.

mod golden;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use golden::{hex, written};
use proptest::collection::vec;
use proptest::prelude::*;
use weft::fabric::reply::{
    IcmpError, arp_read, arp_reply, echo_reply, icmp_error, nd_read, neighbour_advertisement, tags,
};
use weft::wire::{L3, MacAddr, ethernet, parse};

const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OURS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1))];

/// ARP request, solicitation, pings and TCP of both IP versions, as golden_neighbour.rs and golden_reply.rs
/// have them.
const SEEDS: &[&str] = &[
    "ffffffffffff 02000000000a 88a8  a00a8100  10140806
     00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
    "3333ff000001 02000000000a 86dd
     60000000 00203aff fd000000 00000001 00000000 00000002 ff020000 00000000 00000001 ff000001
     87007d8d 00000000 fd000000 00000001 00000000 00000001  01010200 0000000a",
    "020000000001 02000000000a 0800  4700003e 12340000 40014582 0a000102 0a000101 07070400 00000000
     08006962 00010001  61626364 65666768 696a6b6c 6d6e6f70 71727374 75767778 797a",
    "020000000001 02000000000a 8100  006486dd
     60000000 00103c40 fd000000 00000001 00000000 00000002 fd000000 00000001 00000000 00000001
     3a000104 00000000  800085b4 00010001",
    "020000000001 02000000000a 88a8  a00a8100  00140800  45000028 12340000 40065397 0a000102 0a010003
     04d20050 00000001 00000002 50100400 91aa0000",
    "020000000001 02000000000a 86dd
     60000000 00540040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
     3c000000 00000000  2b000000 00000000  2c000000 00000000
     33000000 00000001 3c040000 00000000 00000000 00000000 00000000 00000000 06000000 00000000
     04d20050 00000001 00000002 50100400 00000000",
];

/// A frame of [`SEEDS`] with some bytes changed, some appended or its end cut off.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::sample::select(SEEDS), changes, vec(any::<u8>(), 0..700), prop_oneof![Just(0), 0usize..80]).prop_map(
        |(seed, changes, tail, cut)| {
            let mut frame = hex(seed);
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            frame.extend(tail);
            frame.truncate(frame.len() - cut.min(frame.len()));
            frame
        },
    )
}

/// Asserts that `out` is a valid answer to `frame`.
fn check(frame: &[u8], out: &[u8]) {
    let (asked, answered) = (parse(frame).expect("it was answered"), parse(out).expect("an Ethernet frame"));
    assert_eq!(answered.fault, None);
    assert_eq!(tags(out, &answered), tags(frame, &asked));
    assert!(out.len() >= ethernet::MIN_FRAME);
    assert!(!ethernet::src(out).is_multicast());
    assert!(out[answered.end.into()..].iter().all(|byte| *byte == 0), "padding shows what the chunk held");
    assert_eq!(answered.kind, asked.kind);
    if answered.kind != L3::Arp {
        assert!(
            etherparse::SlicedPacket::from_ethernet(out).is_ok() || tags(out, &answered).len() > 3 * ethernet::TAG_LEN
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn whatever_a_host_sends_the_answer_is_valid_or_none(frame in frames(), capacity in 40usize..1700) {
        let Ok(headers) = parse(&frame) else { return Ok(()) };
        let mut answers = Vec::new();
        if let Ok(arp) = arp_read(&frame, &headers) {
            answers.extend(written(capacity, |out| arp_reply(&arp, SWITCH, tags(&frame, &headers), out)));
        }
        if let Ok(nd) = nd_read(&frame, &headers) {
            answers.extend(written(capacity, |out| neighbour_advertisement(&frame, &headers, &nd, SWITCH, out)));
        }
        for ours in OURS {
            answers.extend(written(capacity, |out| echo_reply(&frame, &headers, SWITCH, ours, out).is_ok()));
            for kind in [IcmpError::HopLimitExceeded, IcmpError::TooBig { mtu: 1280 }] {
                answers.extend(written(capacity, |out| icmp_error(kind, &frame, &headers, ours, out)));
            }
        }
        for answer in answers {
            check(&frame, &answer);
        }
    }
}
