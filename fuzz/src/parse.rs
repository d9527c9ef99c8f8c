//! One frame of any bytes through the parser and every decoder: offsets stay inside it, and what is written
//! in answer is a sound frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft::fabric::reply::{
    IcmpError, NeighbourOp, arp_read, arp_reply, echo_reply, icmp_error, is_neighbour_message, may_answer_with_error,
    nd_read, neighbour_advertisement, tags,
};
use weft::frame::{Frame, Pool};
use weft::pisa::FlowHash;
use weft::wire::caft::{self, Metric, Tag, TagError};
use weft::wire::{Headers, L3, MacAddr, checksum, ethernet, ipv4, ipv6, parse, parse_behind, parse_into, tcp};

const SWITCH: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 1]);
const OURS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1))];
/// Bytes of the chunk that answers are written to: some inputs choose one that is too small for them.
const CAPACITIES: [usize; 4] = [2048, 1500, 128, 64];

pub fn run(data: &[u8]) {
    let Some((choice, frame)) = data.split_first() else { return };
    let mut pool = Pool::heap(1, CAPACITIES[usize::from(*choice) % 4]);
    tagged(frame);
    let Ok(headers) = parse(frame) else { return };
    let mut again = Headers::default();
    assert_eq!(parse_into(frame, &mut again), Ok(()));
    assert_eq!(headers, again);
    offsets(frame, &headers);
    rewritten(frame, &headers);
    answered(frame, &headers, &mut pool);
    assert_eq!(pool.out_count(), 0);
}

fn offsets(frame: &[u8], headers: &Headers) {
    let (l3, l4, end) = (headers.l3 as usize, headers.l4 as usize, headers.end as usize);
    assert!((14..=frame.len()).contains(&l3) && (l3..=frame.len()).contains(&end), "{headers:?}");
    assert!(l4 == 0 || (l3 < l4 && l4 <= end), "{headers:?}");
    assert_eq!(tags(frame, headers).len() % ethernet::TAG_LEN, 0);
    let _ = (ethernet::dst(frame), ethernet::src(frame), headers.ports(frame));
    let hash = FlowHash::new(1);
    assert_eq!(hash.packet(frame, headers), hash.packet(frame, headers));
    if headers.kind == L3::Ipv6 && headers.fault.is_none() {
        let bytes: usize = ipv6::extensions(frame, headers).map(|(_, bytes)| bytes.len()).sum();
        assert!(l3 + ipv6::HEADER + bytes <= end, "{headers:?}");
    }
}

/// A frame with a CAFT tag is the one without it, further in; and a message made of a segment in it reads as
/// one of its flow.
fn tagged(frame: &[u8]) {
    let (tag, len) = match Tag::read(frame, caft::TPID) {
        Ok(read) => read,
        Err(TagError::NoTag) => return assert!(!caft::is_tagged(frame, caft::TPID)),
        Err(TagError::Truncated) => return assert!(caft::is_tagged(frame, caft::TPID)),
    };
    let plain = [&frame[..12], &frame[12 + len..]].concat();
    let mut headers = Headers::default();
    let found = parse_behind(frame, len, &mut headers);
    match parse(&plain) {
        Err(reason) => return assert_eq!(found, Err(reason)),
        Ok(mut expected) => {
            for offset in [&mut expected.l3, &mut expected.l4, &mut expected.end] {
                *offset += if *offset == 0 { 0 } else { len as u16 };
            }
            assert_eq!((found, headers), (Ok(()), expected));
        }
    }
    let mut bytes = vec![0; len];
    tag.emit(caft::TPID, &mut bytes);
    assert_eq!(bytes[..3], frame[12..15]);
    for (i, metric) in tag.metrics.iter().enumerate() {
        let nibble = |bytes: &[u8]| bytes[3 + i / 2] >> (4 * (1 - i % 2));
        assert_eq!((*metric, nibble(&bytes) & 15), (Metric::from_nibble(nibble(&frame[12..])), metric.nibble()));
    }
    let mut out = [0; caft::MAX_MESSAGE];
    let made = caft::emit_message(&mut out, (SWITCH, SWITCH), caft::TPID, &tag, frame, &headers);
    assert_eq!(made.is_some(), tcp::is_whole(frame, &headers));
    let Some(message) = made.map(|len| &mut out[..len]) else { return };
    assert_eq!(Tag::read(message, caft::TPID), Ok((tag, len)));
    let mut there = Headers::default();
    assert_eq!(parse_behind(message, len, &mut there), Ok(()));
    assert!(tcp::is_whole(message, &there) && tcp::has_right_checksum(message, &there));
    caft::swap_addresses(message, &there);
    assert!(tcp::has_right_checksum(message, &there));
    let hash = FlowHash::new(1);
    assert_eq!(hash.packet(message, &there), hash.packet(frame, &headers));
}

/// What the packet path changes leaves the frame as sound as it was.
fn rewritten(frame: &[u8], headers: &Headers) {
    let l3 = headers.l3 as usize;
    let mut changed = frame.to_vec();
    if checksum::complete_partial(&mut changed, headers) {
        assert_eq!(parse(&changed), Ok(*headers));
    } else {
        assert_eq!(changed, frame);
    }
    if headers.fault.is_some() {
        return;
    }
    match headers.kind {
        L3::Ipv4 => {
            let _ = (ipv4::src(frame, l3), ipv4::dst(frame, l3));
            ipv4::mark_ce(&mut changed, l3);
            if ipv4::ttl(frame, l3) > 0 {
                ipv4::decrement_ttl(&mut changed, l3);
            }
        }
        L3::Ipv6 => {
            let _ = (ipv6::src(frame, l3), ipv6::dst(frame, l3));
            ipv6::mark_ce(&mut changed, l3);
            if ipv6::hop_limit(frame, l3) > 0 {
                ipv6::decrement_hop_limit(&mut changed, l3);
            }
        }
        L3::Arp | L3::Other => return,
    }
    assert_eq!(parse(&changed), Ok(*headers), "rewriting broke it");
}

fn answered(frame: &[u8], headers: &Headers, pool: &mut Pool) {
    let mut write = |make: &mut dyn FnMut(&mut Frame) -> bool| {
        let mut out = pool.alloc().expect("a free chunk");
        if make(&mut out) {
            sound(&out, frame, headers);
        } else {
            assert!(out.is_empty(), "declined, but something was written");
        }
        pool.free(out);
    };
    if let Ok(arp) = arp_read(frame, headers) {
        write(&mut |out| arp_reply(&arp, SWITCH, tags(frame, headers), out));
    }
    if let Ok(message) = nd_read(frame, headers) {
        assert!(is_neighbour_message(frame, headers));
        if message.op == NeighbourOp::Solicitation {
            write(&mut |out| neighbour_advertisement(frame, headers, &message, SWITCH, out));
        }
    }
    for ours in OURS {
        write(&mut |out| echo_reply(frame, headers, SWITCH, ours, out).is_ok());
        for kind in [
            IcmpError::HopLimitExceeded,
            IcmpError::NoRoute,
            IcmpError::HostUnreachable,
            IcmpError::PortUnreachable,
            IcmpError::TooBig { mtu: 1280 },
        ] {
            write(&mut |out| {
                let made = icmp_error(kind, frame, headers, ours, out);
                assert!(!made || may_answer_with_error(frame, headers));
                made
            });
        }
    }
}

/// An answer parses, has the tags of what it answers, and leads to no error message about itself.
fn sound(out: &[u8], frame: &[u8], headers: &Headers) {
    let answer = parse(out).expect("a frame");
    assert_eq!(answer.fault, None, "{out:02x?}");
    assert!(out.len() >= ethernet::MIN_FRAME);
    assert_eq!(tags(out, &answer), tags(frame, headers));
}
