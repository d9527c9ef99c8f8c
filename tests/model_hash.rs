//! The flow hash: what changes it, what must not, and that its bits are good.

#[path = "packets/mod.rs"]
mod packets;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packets::{Ends, mend_ipv4, tagged, udp};
use proptest::prelude::*;
use weft::pisa::FlowHash;
use weft::wire::{MacAddr, parse};

fn hash(seed: u64, frame: &[u8]) -> u64 {
    let headers = parse(frame).expect("an Ethernet frame");
    assert_eq!(headers.fault, None);
    FlowHash::new(seed).packet(frame, &headers)
}

fn ends() -> impl Strategy<Value = Ends> {
    let v4 = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| (Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into()));
    let v6 = (any::<u128>(), any::<u128>()).prop_map(|(a, b)| (Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into()));
    prop_oneof![v4, v6].prop_map(|(src, dst): (IpAddr, IpAddr)| Ends {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src,
        dst,
    })
}

/// Offset of the protocol or next-header byte.
fn protocol_at(ends: &Ends) -> usize {
    14 + if ends.src.is_ipv4() { 9 } else { 6 }
}

fn mend(frame: &mut [u8]) {
    if frame[14] >> 4 == 4 {
        mend_ipv4(frame, 14);
    }
}

/// IPv4 fragments of one datagram: first, middle, last.
fn fragments_v4(packet: &[u8]) -> Vec<Vec<u8>> {
    let fragment = |offset: u16, more: bool| {
        let mut frame = packet.to_vec();
        frame[20..22].copy_from_slice(&(u16::from(more) << 13 | offset).to_be_bytes());
        mend_ipv4(&mut frame, 14);
        frame
    };
    vec![fragment(0, true), fragment(6, true), fragment(12, false)]
}

/// IPv6 fragments of one datagram, the payload's first header being `kind`.
fn fragments_v6(packet: &[u8], kind: u8, payload: &[u8]) -> Vec<Vec<u8>> {
    let fragment = |offset: u16, more: bool| {
        let header = [&[kind, 0], &(offset << 3 | u16::from(more)).to_be_bytes()[..], &7u32.to_be_bytes()].concat();
        let mut frame = [&packet[..54], &header, payload].concat();
        frame[14 + 6] = 44;
        frame[18..20].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        frame
    };
    vec![fragment(0, true), fragment(6, true), fragment(12, false)]
}

fn all_equal(seed: u64, frames: &[Vec<u8>]) -> bool {
    frames.iter().all(|f| hash(seed, f) == hash(seed, &frames[0]))
}

proptest! {
    #[test]
    fn each_field_of_the_five_tuple_changes_the_hash(seed: u64, ends in ends(), ports: (u16, u16), bit in 0usize..128) {
        let packet = udp(ends, 64, ports, b"payload!");
        let before = hash(seed, &packet);
        let width = if ends.src.is_ipv4() { 32 } else { 128 };
        let addresses = if ends.src.is_ipv4() { 26 } else { 22 };
        let transport = addresses + 2 * width / 8;
        let flip = |start: usize, width: usize| {
            let mut frame = packet.clone();
            frame[start + bit % width / 8] ^= 1 << (bit % 8);
            mend(&mut frame);
            frame
        };
        for (what, frame) in [
            ("source address", flip(addresses, width)),
            ("destination address", flip(addresses + width / 8, width)),
            ("source port", flip(transport, 16)),
            ("destination port", flip(transport + 2, 16)),
        ] {
            prop_assert_ne!(hash(seed, &frame), before, "{}", what);
        }
        let mut tcp = packet.clone();
        tcp[protocol_at(&ends)] = 6;
        mend(&mut tcp);
        prop_assert_ne!(hash(seed, &tcp), before, "protocol");
        prop_assert_ne!(hash(seed ^ 1 << (bit % 64), &packet), before, "seed");
    }

    #[test]
    fn nothing_else_changes_the_hash(seed: u64, ends in ends(), ports: (u16, u16), tags in prop::collection::vec(any::<u16>(), 0..3)) {
        let packet = udp(ends, 64, ports, b"payload!");
        let before = hash(seed, &packet);
        let tags: Vec<[u8; 4]> = tags.iter().map(|t| [0x81, 0, (t >> 8) as u8, *t as u8]).collect();
        prop_assert_eq!(hash(seed, &tagged(&packet, &tags)), before, "tags");
        prop_assert_eq!(hash(seed, &udp(ends, 3, ports, b"another payload")), before, "TTL, length, payload");
        let macs = Ends { src_mac: ends.dst_mac, dst_mac: ends.src_mac, ..ends };
        prop_assert_eq!(hash(seed, &udp(macs, 64, ports, b"payload!")), before, "MAC addresses");
        let mut marked = packet;
        marked[15] |= if ends.src.is_ipv4() { 0xbb } else { 0xf0 }; // DSCP and ECN; traffic class and flow label
        mend(&mut marked);
        prop_assert_eq!(hash(seed, &marked), before, "DSCP, ECN, flow label");
    }

    #[test]
    fn the_two_directions_of_a_connection_hash_apart(seed: u64, ends in ends(), ports: (u16, u16)) {
        prop_assume!(ends.src != ends.dst || ports.0 != ports.1);
        let back = Ends { src: ends.dst, dst: ends.src, ..ends };
        prop_assert_ne!(hash(seed, &udp(ends, 64, ports, b"")), hash(seed, &udp(back, 64, (ports.1, ports.0), b"")));
    }

    #[test]
    fn all_fragments_of_a_datagram_hash_alike(seed: u64, ends in ends(), ports: (u16, u16)) {
        let packet = udp(ends, 64, ports, &[0x33; 48]);
        if ends.src.is_ipv4() {
            prop_assert!(all_equal(seed, &fragments_v4(&packet)));
        } else {
            prop_assert!(all_equal(seed, &fragments_v6(&packet, 17, &packet[54..])));
            // Destination options may stand behind the fragment header; only the first fragment shows
            // that UDP follows them.
            let options = [&[17, 0, 1, 4, 0, 0, 0, 0], &packet[54..]].concat();
            prop_assert!(all_equal(seed, &fragments_v6(&packet, 60, &options)));
        }
    }
}

#[test]
fn every_bit_of_the_input_flips_every_bit_of_the_hash_half_of_the_time() {
    const SAMPLES: u32 = 4096;
    let ends = |number: u32| Ends {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src: Ipv4Addr::from(0x0a00_0002 + (number >> 6)).into(),
        dst: Ipv4Addr::new(10, 3, 1, (number & 63) as u8).into(),
    };
    // Source and destination address, both ports.
    for bit in 0..96 {
        let mut flips = [0u32; 64];
        for number in 0..SAMPLES {
            let mut frame = udp(ends(number), 64, (40_000 + (number % 97) as u16, 80), b"");
            let before = hash(7, &frame);
            frame[26 + bit / 8] ^= 1 << (bit % 8);
            mend_ipv4(&mut frame, 14);
            let changed = before ^ hash(7, &frame);
            (0..64).for_each(|out| flips[out] += (changed >> out & 1) as u32);
        }
        // Seven standard deviations of 4,096 fair coins.
        let skewed = flips.iter().position(|n| n.abs_diff(SAMPLES / 2) > 7 * 32);
        assert_eq!(skewed, None, "input bit {bit}: {flips:?}");
    }
}
