//! Frames that a switch might see: well-formed ones between the stations it knows, and ones near to that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft::wire::{L3, MacAddr, parse};

use super::bytes::Bytes;
use super::packets::{self, Ends, Nd};

/// The switch, what any fabric port takes, two peers, four hosts, all, and groups of some kinds.
pub const MACS: [MacAddr; 12] = [
    MacAddr([2, 0x77, 0, 0, 0, 1]),
    MacAddr([2, 0x77, 0, 0, 0, 1]),
    MacAddr([2, 0x77, 0x65, 0x66, 0x74, 0]),
    MacAddr([2, 0x77, 0, 0, 1, 3]),
    MacAddr([2, 0x68, 0, 0, 0, 0]),
    MacAddr([2, 0x68, 0, 0, 0, 1]),
    MacAddr([2, 0x68, 0, 0, 0, 2]),
    MacAddr([2, 0x68, 0, 0, 0, 3]),
    MacAddr::BROADCAST,
    MacAddr([0x33, 0x33, 0xff, 0, 0, 1]),
    MacAddr([1, 0x80, 0xc2, 0, 0, 0]),
    MacAddr([0; 6]),
];

/// The gateway, hosts of the segment, its broadcast, a far host, a discarded prefix, a router, and addresses
/// that are nobody's.
const V4: [Ipv4Addr; 12] = [
    Ipv4Addr::new(10, 0, 1, 1),
    Ipv4Addr::new(10, 0, 1, 2),
    Ipv4Addr::new(10, 0, 1, 3),
    Ipv4Addr::new(10, 0, 1, 4),
    Ipv4Addr::new(10, 0, 1, 255),
    Ipv4Addr::new(10, 0, 2, 2),
    Ipv4Addr::new(10, 0, 9, 2),
    Ipv4Addr::new(10, 255, 0, 1),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::UNSPECIFIED,
    Ipv4Addr::BROADCAST,
];

const fn v6(a: u16, rack: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, 0, 0, rack, 0, 0, 0, host)
}

/// The same for IPv6.
const V6: [Ipv6Addr; 12] = [
    v6(0xfd00, 1, 1),
    v6(0xfd00, 1, 2),
    v6(0xfd00, 1, 3),
    v6(0xfd00, 1, 4),
    v6(0xfe80, 0, 2),
    v6(0xfd00, 2, 2),
    v6(0xfd00, 9, 2),
    Ipv6Addr::new(0xfd00, 0, 0xffff, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
    Ipv6Addr::LOCALHOST,
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
];

/// Longest frame that is made.
const MAX_FRAME: usize = 2000;

/// The frame that `bytes` describe.
pub fn frame(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let recipe = bytes.u8();
    let mut frame = whole(bytes, recipe & 7, recipe & 8 != 0);
    if recipe & 0x10 != 0 {
        let tag = bytes.choose(&[[0x81, 0, 0, 5], [0x88, 0xa8, 0x20, 7], [0x91, 0, 0, 0]]);
        let tags: Vec<_> = (0..=bytes.below(3)).map(|_| tag).collect();
        frame = packets::tagged(&frame, &tags);
    }
    if recipe & 0x20 != 0 {
        frame.resize(usize::from(bytes.u16()) % MAX_FRAME, 0);
    }
    if recipe & 0x40 != 0 && !frame.is_empty() {
        for _ in 0..=bytes.below(4) {
            // Mostly among the headers.
            let at = usize::from(if recipe & 0x80 != 0 { bytes.u16() } else { bytes.u8().into() }) % frame.len();
            frame[at] = bytes.u8();
        }
    }
    if recipe & 0x80 != 0
        && let Ok(headers) = parse(&frame)
        && headers.kind == L3::Ipv4
    {
        let (l3, words) = (headers.l3 as usize, frame.get(headers.l3 as usize).map_or(0, |b| b & 0xf));
        if words >= 5 && l3 + usize::from(words) * 4 <= frame.len() {
            packets::mend_ipv4(&mut frame, l3);
        }
    }
    frame
}

fn whole(bytes: &mut Bytes<'_>, kind: u8, is_v6: bool) -> Vec<u8> {
    let (src_mac, dst_mac) = (bytes.choose(&MACS), bytes.choose(&MACS));
    let (from, to) = (bytes.below(V4.len()), bytes.below(V4.len()));
    let ip = |i: usize| if is_v6 { IpAddr::V6(V6[i]) } else { IpAddr::V4(V4[i]) };
    let ends = Ends { src_mac, dst_mac, src: ip(from), dst: ip(to) };
    match kind {
        0 => {
            let rest = usize::from(bytes.u8());
            let payload = bytes.take(rest);
            [&dst_mac.0[..], &src_mac.0[..], payload].concat()
        }
        1 | 2 => {
            let (ttl, port, len) = (bytes.u8(), bytes.u16(), usize::from(bytes.u16()) % 1700);
            packets::udp(ends, ttl, (port, 53), &vec![0x5a; len])
        }
        3 => {
            let (ttl, reply) = (bytes.u8(), bytes.u8());
            packets::echo(ends, ttl, reply & 1 == 1, 1, &[0x5a; 56][..usize::from(reply) % 57])
        }
        4 => packets::arp(is_v6, (src_mac, V4[from]), (bytes.choose(&MACS), V4[to]), dst_mac, &[]),
        5 => packets::solicitation((src_mac, V6[from]), V6[to]),
        6 => {
            let (flags, mac) = (bytes.u8(), bytes.choose(&MACS));
            let ends = Ends { src: V6[from].into(), dst: V6[to].into(), ..ends };
            let mac = (flags & 1 == 1).then_some(mac);
            packets::nd(&Nd { ends, target: V6[bytes.below(V6.len())], mac, flags: Some(flags & 0xe0) })
        }
        // Learning by what a host says of itself: its own address, from its own port.
        _ => {
            let host = 1 + from % 3;
            let mac = MACS[3 + host];
            match is_v6 {
                true => packets::advertisement((mac, V6[host]), (MACS[0], V6[0]), false),
                false => packets::arp(true, (mac, V4[host]), (MACS[0], V4[0]), MACS[0], &[]),
            }
        }
    }
}
