//! Properties of the packet-path parser and the checksums: no bytes make them panic or look outside the
//! frame, and they agree with an independent implementation (etherparse) on generated packets, whole and
//! damaged.

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    IpAuthHeader, IpFragOffset, IpHeaders, IpNumber, IpSlice, Ipv4Extensions, Ipv4Header, Ipv6Extensions,
    Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, Ipv6RoutingExtensions, PacketBuilder, ip_number,
};
use proptest::collection::vec;
use proptest::prelude::*;
use weft::counters::DropReason;
use weft::pisa::FlowHash;
use weft::wire::caft::{self, MAX_METRICS, Metric, Metrics, Tag, TagError, Trip};
use weft::wire::{Headers, L3, MacAddr, checksum, ethernet, ipv4, ipv6, parse, parse_behind, tcp};

/// What follows the IP header and its extensions.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp,
    Udp,
    Echo,
}

/// A valid packet, to be built by etherparse.
#[derive(Clone, Debug)]
struct Packet {
    tags: Vec<(u16, u16)>,
    ip: IpHeaders,
    transport: Transport,
    ports: (u16, u16),
    payload: Vec<u8>,
    padding: Vec<u8>,
}

impl Packet {
    fn build(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        let step = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ip(self.ip.clone());
        let written = match (self.transport, &self.ip) {
            (Transport::Tcp, _) => {
                step.tcp(self.ports.0, self.ports.1, 7, 1024).ack(9).write(&mut frame, &self.payload)
            }
            (Transport::Udp, _) => step.udp(self.ports.0, self.ports.1).write(&mut frame, &self.payload),
            (Transport::Echo, IpHeaders::Ipv4(..)) => {
                step.icmpv4_echo_request(self.ports.0, self.ports.1).write(&mut frame, &self.payload)
            }
            (Transport::Echo, IpHeaders::Ipv6(..)) => {
                step.icmpv6_echo_request(self.ports.0, self.ports.1).write(&mut frame, &self.payload)
            }
        };
        written.expect("a packet that can be");
        for (tpid, tci) in self.tags.iter().rev() {
            let [a, b, c, d] = [tpid.to_be_bytes(), tci.to_be_bytes()].concat()[..] else { unreachable!("four bytes") };
            frame.splice(12..12, [a, b, c, d]);
        }
        frame.extend_from_slice(&self.padding);
        frame
    }
}

fn ipv4_headers(fragments: bool) -> impl Strategy<Value = IpHeaders> {
    let fragment = if fragments {
        prop_oneof![Just((false, 0)), (any::<bool>(), 0u16..600)].boxed()
    } else {
        Just((false, 0)).boxed()
    };
    (any::<([u8; 4], [u8; 4], u8, u16, bool)>(), 0usize..=10, fragment).prop_map(
        |((source, destination, ttl, id, df), option_words, (more, offset))| {
            let mut header = Ipv4Header::new(0, ttl, IpNumber(0), source, destination).expect("a length that can be");
            header.identification = id;
            header.dont_fragment = df;
            header.more_fragments = more;
            header.fragment_offset = IpFragOffset::try_new(offset).expect("13 bits");
            header.options = vec![1u8; option_words * 4].as_slice().try_into().expect("at most 40 bytes");
            IpHeaders::Ipv4(header, Ipv4Extensions::default())
        },
    )
}

/// A raw extension header of 8 to 32 bytes: padding options, or a routing header with no hop to visit.
fn raw_extension() -> impl Strategy<Value = Ipv6RawExtHeader> {
    (0usize..4).prop_map(|n| Ipv6RawExtHeader::new_raw(IpNumber(0), &vec![0; 6 + 8 * n]).expect("a multiple of 8"))
}

fn ipv6_headers(fragments: bool) -> impl Strategy<Value = IpHeaders> {
    let fragment = if fragments {
        prop_oneof![Just(None), Just(Some((false, 0))), (any::<bool>(), 0u16..600).prop_map(Some)].boxed()
    } else {
        prop_oneof![Just(None), Just(Some((false, 0)))].boxed() // none, or atomic
    };
    let routing = (raw_extension(), prop::option::of(raw_extension()));
    (
        any::<([u8; 16], [u8; 16], u8)>(),
        prop::option::of(raw_extension()),
        prop::option::of(raw_extension()),
        prop::option::of(routing),
        fragment,
        prop::option::of(0usize..4),
    )
        .prop_map(
            |((source, destination, hop_limit), hop_by_hop, destination_options, routing, fragment, auth)| {
                let header = Ipv6Header { source, destination, hop_limit, ..Ipv6Header::default() };
                let extensions = Ipv6Extensions {
                    hop_by_hop_options: hop_by_hop,
                    destination_options,
                    routing: routing
                        .map(|(routing, last)| Ipv6RoutingExtensions { routing, final_destination_options: last }),
                    fragment: fragment.map(|(more, offset)| {
                        let offset = IpFragOffset::try_new(offset).expect("13 bits");
                        Ipv6FragmentHeader::new(IpNumber(0), offset, more, 0xdead_beef)
                    }),
                    // IPv6 wants the header a multiple of 8: 12 bytes and an odd number of words.
                    auth: auth
                        .map(|n| IpAuthHeader::new(IpNumber(0), 1, 2, &vec![0xaa; 4 + 8 * n]).expect("whole words")),
                };
                IpHeaders::Ipv6(header, extensions)
            },
        )
}

fn packets(fragments: bool) -> impl Strategy<Value = Packet> {
    (
        vec((prop::sample::select(vec![0x8100u16, 0x88a8, 0x9100]), any::<u16>()), 0..4),
        prop_oneof![ipv4_headers(fragments), ipv6_headers(fragments)],
        prop::sample::select(vec![Transport::Tcp, Transport::Udp, Transport::Echo]),
        any::<(u16, u16)>(),
        vec(any::<u8>(), 0..200),
        vec(any::<u8>(), 0..30),
    )
        .prop_map(|(tags, ip, transport, ports, payload, padding)| Packet {
            tags,
            ip,
            transport,
            ports,
            payload,
            padding,
        })
}

/// Bytes that get past the Ethernet header more often than random ones do.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let l3 = prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x88cc, 0x0040]);
    let first = prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60, 0x6f, 0x00]);
    prop_oneof![
        vec(any::<u8>(), 0..80),
        (vec(any::<u8>(), 12), l3, first, vec(any::<u8>(), 0..300)).prop_map(|(mut frame, l3, first, rest)| {
            frame.extend(l3.to_be_bytes());
            frame.push(first);
            frame.extend(rest);
            frame
        }),
        damaged().prop_map(|(_, frame)| frame),
    ]
}

/// A packet, and the same with some bytes changed or its end cut off. IPv4 header checksums are mended
/// half of the time, so that what they would hide is reached.
fn damaged() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    (packets(true), vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), 0usize..60, any::<(bool, bool)>()).prop_map(
        |(packet, changes, cut, (do_cut, mend))| {
            let whole = packet.build();
            let mut frame = whole.clone();
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            if do_cut {
                frame.truncate(frame.len().saturating_sub(cut));
            }
            let l3 = 14 + 4 * packet.tags.len();
            if mend && matches!(packet.ip, IpHeaders::Ipv4(..)) && frame.len() > l3 {
                let end = l3 + usize::from(frame[l3] & 15) * 4;
                if end >= l3 + 20 && end <= frame.len() {
                    frame[l3 + 10..l3 + 12].fill(0);
                    let sum = Sum16BitWords::new().add_slice(&frame[l3..end]).ones_complement();
                    // etherparse sums in the machine's byte order.
                    frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_ne_bytes());
                }
            }
            (whole, frame)
        },
    )
}

/// Whether every offset lies in the frame and in the order that the headers stand in.
fn check_offsets(frame: &[u8], h: &Headers) {
    assert!(usize::from(h.end) <= frame.len());
    assert!(h.l3 >= 14 && h.l3 <= h.end);
    assert!(h.l4 == 0 || (h.l3 < h.l4 && h.l4 <= h.end));
    assert_eq!((h.l3 - 14) % 4, 0, "whole tags");
    assert!(h.fault.is_none() || (h.l4 == 0 && h.proto == 0 && usize::from(h.end) == frame.len()));
    assert!(!h.is_later_fragment() || (h.is_fragment() && h.l4 == 0));
    match h.kind {
        L3::Ipv4 if h.fault.is_none() => assert!(h.l4 == 0 || h.l4 - h.l3 >= 20),
        L3::Ipv6 if h.fault.is_none() => assert!(h.l4 == 0 || h.l4 - h.l3 >= 40),
        L3::Arp | L3::Other => assert!(h.l4 == 0 && h.proto == 0 && h.fault.is_none()),
        _ => {}
    }
}

/// Where the TCP or UDP checksum of a whole packet or first fragment stands, and what a sender that
/// leaves it to its NIC writes there: the folded pseudo-header sum.
fn partial_checksum(frame: &[u8], headers: &Headers) -> Option<(usize, [u8; 2])> {
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let field = match headers.proto {
        _ if l4 == 0 => return None,
        6 => l4 + 16,
        17 => l4 + 6,
        _ => return None,
    };
    let addresses = if headers.kind == L3::Ipv4 { &frame[l3 + 12..l3 + 20] } else { &frame[l3 + 8..l3 + 40] };
    let pseudo = Sum16BitWords::new()
        .add_slice(addresses)
        .add_2bytes([0, headers.proto])
        .add_2bytes((headers.end - headers.l4).to_be_bytes());
    Some((field, (!pseudo.ones_complement()).to_ne_bytes())) // etherparse sums in the machine's byte order
}

/// `headers` of a frame in which `by` bytes were put before them.
fn shifted(mut headers: Headers, by: usize) -> Headers {
    headers.l3 += by as u16;
    headers.end += by as u16;
    headers.l4 += if headers.l4 == 0 { 0 } else { by as u16 };
    headers
}

fn tags() -> impl Strategy<Value = Tag> {
    (any::<bool>(), vec(any::<u8>(), 0..=MAX_METRICS)).prop_map(|(inbound, nibbles)| {
        let mut metrics = Metrics::new();
        metrics.extend(nibbles.into_iter().map(Metric::from_nibble)).expect("no more than fit");
        Tag { trip: if inbound { Trip::Inbound } else { Trip::Outbound }, metrics }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_bytes_make_the_parser_panic_or_point_outside(frame in any_frame()) {
        match parse(&frame) {
            Err(reason) => prop_assert!(matches!(reason, DropReason::Runt | DropReason::TruncatedTag)),
            Ok(headers) => {
                check_offsets(&frame, &headers);
                headers.ports(&frame);
            }
        }
    }

    #[test]
    fn no_bytes_make_reading_a_tag_panic_and_what_was_read_is_written_the_same(
        start: [u8; 12],
        tpid: u16,
        is_tag in prop::bool::weighted(0.9),
        rest in vec(any::<u8>(), 0..90),
        cut in 0usize..20,
    ) {
        let mut frame = start.to_vec();
        frame.extend(if is_tag { tpid } else { !tpid }.to_be_bytes());
        frame.extend(&rest);
        frame.truncate(frame.len().saturating_sub(cut));
        match Tag::read(&frame, tpid) {
            Err(TagError::NoTag) => prop_assert!(!is_tag || frame.len() < 14),
            // The shortest that could be whole has no metrics.
            Err(TagError::Truncated) => {
                prop_assert!(is_tag && (frame.len() < 17 || frame.len() < 17 + usize::from(frame[14] & 0x7f).div_ceil(2)));
            }
            Ok((tag, len)) => {
                prop_assert!(is_tag && frame.len() >= 12 + len + 2);
                let mut written = vec![0xee; len];
                tag.emit(tpid, &mut written);
                // A failed link is sent as F, and an odd nibble as 0.
                let canonical = |nibble: u8| if nibble > 7 { 0xf } else { nibble };
                let mut expected = frame[12..12 + len].to_vec();
                expected[3..].iter_mut().for_each(|byte| *byte = canonical(*byte >> 4) << 4 | canonical(*byte & 15));
                if expected[2] & 1 == 1 {
                    expected[len - 1] &= 0xf0;
                }
                prop_assert_eq!(written, expected);
            }
        }
    }

    #[test]
    fn behind_a_tag_headers_are_found_as_without_it(frame in any_frame(), tag in tags()) {
        let Some((addresses, rest)) = frame.split_at_checked(12) else { return Ok(()) };
        let len = caft::len(tag.metrics.len());
        let mut bytes = vec![0; len];
        tag.emit(caft::TPID, &mut bytes);
        let tagged = [addresses, &bytes, rest].concat();
        let mut headers = Headers::default();
        let found = parse_behind(&tagged, len, &mut headers).map(|()| headers);
        prop_assert_eq!(found, parse(&frame).map(|headers| shifted(headers, len)));
    }

    #[test]
    fn a_message_is_made_of_every_whole_segment_and_names_its_flow(
        frame in prop_oneof![packets(true).prop_map(|packet| packet.build()), any_frame()],
        tag in tags(),
        capacity in prop_oneof![0usize..=caft::MAX_MESSAGE, Just(caft::MAX_MESSAGE)],
    ) {
        let Ok(headers) = parse(&frame) else { return Ok(()) };
        let (mut out, macs) = (vec![0xee; capacity], (MacAddr([2; 6]), MacAddr([4; 6])));
        let tag_len = caft::len(tag.metrics.len());
        let needed = if headers.kind == L3::Ipv4 { 14 + tag_len + 40 } else { 14 + tag_len + 60 }.max(60);
        let is_segment = tcp::is_whole(&frame, &headers);
        let made = caft::emit_message(&mut out, macs, caft::TPID, &tag, &frame, &headers);
        prop_assert_eq!(made, (is_segment && needed <= capacity).then_some(needed));
        prop_assert!(out[made.unwrap_or(0)..].iter().all(|byte| *byte == 0xee));
        let Some(len) = made else { return Ok(()) };
        let message = &mut out[..len];
        prop_assert_eq!(Tag::read(message, caft::TPID), Ok((tag, tag_len)));
        let mut there = Headers::default();
        parse_behind(message, tag_len, &mut there).expect("an Ethernet frame");
        prop_assert!(tcp::is_whole(message, &there) && tcp::has_right_checksum(message, &there));
        prop_assert_eq!(tcp::payload_len(message, &there), 0);
        caft::swap_addresses(message, &there);
        prop_assert!(tcp::has_right_checksum(message, &there));
        let hash = FlowHash::new(1);
        prop_assert_eq!(hash.packet(message, &there), hash.packet(&frame, &headers));
        let (l4, old) = (usize::from(there.l4), usize::from(headers.l4));
        prop_assert_eq!(&message[l4..l4 + 12], &frame[old..old + 12], "ports and numbers");
        prop_assert_eq!(message[l4 + 13], frame[old + 13], "flags");
    }

    #[test]
    fn no_bytes_make_a_rewrite_panic_or_write_outside_its_field(frame in any_frame()) {
        let Ok(headers) = parse(&frame) else { return Ok(()) };
        let mut completed = frame.clone();
        if checksum::complete_partial(&mut completed, &headers) {
            let l4 = usize::from(headers.l4);
            completed[l4..headers.end.into()].fill(0);
            let mut rest = frame.clone();
            rest[l4..headers.end.into()].fill(0);
            prop_assert_eq!(completed, rest);
        } else {
            prop_assert_eq!(&completed, &frame);
        }
        if headers.fault.is_some() {
            return Ok(());
        }
        let l3 = usize::from(headers.l3);
        let mut rewritten = frame.clone();
        match headers.kind {
            L3::Ipv4 => {
                if ipv4::ttl(&frame, l3) > 0 {
                    ipv4::decrement_ttl(&mut rewritten, l3);
                }
                ipv4::mark_ce(&mut rewritten, l3);
            }
            L3::Ipv6 => {
                if ipv6::hop_limit(&frame, l3) > 0 {
                    ipv6::decrement_hop_limit(&mut rewritten, l3);
                }
                ipv6::mark_ce(&mut rewritten, l3);
                prop_assert!(ipv6::extensions(&frame, &headers).count() <= ipv6::MAX_EXTENSIONS);
            }
            L3::Arp | L3::Other => {}
        }
        // Whatever was rewritten, the packet is as valid as before and its headers stand where they did.
        prop_assert_eq!(parse(&rewritten), Ok(headers));
    }

    #[test]
    fn the_headers_of_a_valid_packet_are_where_it_was_built_with_them(packet in packets(true)) {
        let frame = packet.build();
        let headers = parse(&frame).expect("an Ethernet frame");
        check_offsets(&frame, &headers);
        let l3 = 14 + 4 * packet.tags.len();
        let (kind, ip_len, more, offset) = match &packet.ip {
            IpHeaders::Ipv4(h, _) => (L3::Ipv4, h.header_len(), h.more_fragments, h.fragment_offset.value()),
            IpHeaders::Ipv6(_, x) => {
                let fragment = x.fragment.as_ref();
                let offset = fragment.map_or(0, |f| f.fragment_offset.value());
                (L3::Ipv6, 40 + x.header_len(), fragment.is_some_and(|f| f.more_fragments), offset)
            }
        };
        let (proto, transport_len) = match (packet.transport, kind) {
            (Transport::Tcp, _) => (6, 20),
            (Transport::Udp, _) => (17, 8),
            (Transport::Echo, L3::Ipv4) => (1, 8),
            (Transport::Echo, _) => (58, 8),
        };
        prop_assert_eq!(headers.fault, None);
        prop_assert_eq!((headers.kind, usize::from(headers.l3)), (kind, l3));
        prop_assert_eq!(usize::from(headers.end), l3 + ip_len + transport_len + packet.payload.len());
        prop_assert_eq!(headers.is_fragment(), more || offset > 0);
        prop_assert_eq!(headers.is_later_fragment(), offset > 0);
        if offset == 0 {
            prop_assert_eq!(usize::from(headers.l4), l3 + ip_len);
            prop_assert_eq!(headers.proto, proto);
        }
        let ports = u32::from(packet.ports.0) << 16 | u32::from(packet.ports.1);
        let has_ports = !matches!(packet.transport, Transport::Echo) && !headers.is_fragment();
        prop_assert_eq!(headers.ports(&frame), has_ports.then_some(ports));
    }

    /// What etherparse refuses as IPv4 has a fault; what it takes has none, but for the checksum, which it
    /// leaves unchecked; and both find the same payload.
    #[test]
    fn damaged_packets_are_judged_as_etherparse_judges_them((_, frame) in damaged()) {
        let Ok(headers) = parse(&frame) else { return Ok(()) };
        let packet = &frame[headers.l3.into()..];
        let judged = match headers.kind {
            L3::Ipv4 | L3::Ipv6 => IpSlice::from_slice(packet),
            _ => return Ok(()),
        };
        let start = packet.as_ptr() as usize - usize::from(headers.l3);
        match judged {
            Ok(IpSlice::Ipv4(ip)) if headers.kind == L3::Ipv4 => {
                let header = ip.header().to_header();
                // Over the bytes: `calc_header_checksum` would leave the reserved flag out.
                if Sum16BitWords::new().add_slice(ip.header().slice()).ones_complement() != 0 {
                    prop_assert_eq!(headers.fault, Some(DropReason::BadIpChecksum));
                } else {
                    prop_assert_eq!(headers.fault, None);
                    prop_assert_eq!(headers.proto, header.protocol.0);
                    prop_assert_eq!(headers.is_fragment(), header.is_fragmenting_payload());
                    prop_assert_eq!(headers.end - headers.l3, header.total_len);
                    let later = header.fragment_offset.value() > 0;
                    prop_assert_eq!(headers.is_later_fragment(), later);
                    prop_assert_eq!(usize::from(headers.l4), if later { 0 } else { usize::from(headers.l3) + header.header_len() });
                }
            }
            // An IPv4 packet of protocol 51 is whole, whatever its authentication header says.
            Err(_) if headers.kind == L3::Ipv4 => {
                prop_assert!(headers.fault.is_some() || headers.proto == ip_number::AUTH.0);
            }
            Ok(IpSlice::Ipv6(ip)) if headers.kind == L3::Ipv6 => {
                // etherparse takes length 0 for a jumbogram of the bytes there are.
                if ip.header().payload_length() == 0 {
                    return Ok(());
                }
                prop_assert_eq!(headers.fault, None);
                prop_assert_eq!(headers.end - headers.l3 - 40, ip.header().payload_length());
                let payload = ip.payload();
                // It does not know these, reads on behind a later fragment's header, and has no limit.
                let unknown = [135, 139, 140].contains(&payload.ip_number.0);
                if !unknown && !headers.is_later_fragment() && ip.extensions().clone().into_iter().count() <= 8 {
                    prop_assert_eq!(headers.is_fragment(), payload.fragmented);
                    prop_assert_eq!(headers.proto, payload.ip_number.0);
                    let l4 = payload.payload.as_ptr() as usize - start;
                    let l4 = if payload.ip_number == ip_number::IPV6_NO_NEXT_HEADER { 0 } else { l4 };
                    prop_assert_eq!(usize::from(headers.l4), l4);
                }
            }
            // The version nibble says the other one.
            Ok(_) => prop_assert_eq!(headers.fault, Some(DropReason::BadIpVersion)),
            // A chain of extension headers that etherparse refuses is not followed, but no fault.
            Err(_) => {}
        }
    }

    #[test]
    fn an_incremental_checksum_equals_the_full_one(
        mut words in vec(any::<u16>(), 1..40),
        at in any::<prop::sample::Index>(),
        new in any::<u16>(),
    ) {
        let full = |words: &[u16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            u16::from_be(Sum16BitWords::new().add_slice(&bytes).ones_complement())
        };
        words.push(0x4500); // some word that never changes: no sum is of zeros alone
        let at = at.index(words.len() - 1);
        let (old, before) = (words[at], full(&words));
        words[at] = new;
        prop_assert_eq!(checksum::update(before, old, new), full(&words));
    }

    #[test]
    fn a_sum_is_what_etherparse_sums(bytes in vec(any::<u8>(), 0..3000)) {
        let theirs = u16::from_be(Sum16BitWords::new().add_slice(&bytes).ones_complement());
        prop_assert_eq!(!checksum::fold(checksum::sum(&bytes, 0)), theirs);
    }

    /// etherparse wrote the finished checksums.
    #[test]
    fn completing_a_partial_checksum_gives_the_finished_one(packet in packets(false)) {
        let finished = packet.build();
        let headers = parse(&finished).expect("an Ethernet frame");
        let mut frame = finished.clone();
        let Some((field, pseudo)) = partial_checksum(&finished, &headers) else {
            prop_assert!(!checksum::complete_partial(&mut frame, &headers), "neither TCP nor UDP");
            return Ok(());
        };
        let changed = checksum::complete_partial(&mut frame, &headers);
        prop_assert_eq!(changed, finished[field..field + 2] == pseudo);
        prop_assert_eq!(&frame, &finished, "a finished checksum was changed");

        frame[field..field + 2].copy_from_slice(&pseudo);
        prop_assert!(checksum::complete_partial(&mut frame, &headers));
        prop_assert_eq!(&frame, &finished);
    }

    #[test]
    fn a_fragment_is_never_touched(packet in packets(true)) {
        let frame = packet.build();
        let headers = parse(&frame).expect("an Ethernet frame");
        if !headers.is_fragment() {
            return Ok(());
        }
        let mut bytes = frame.clone();
        if let Some((field, pseudo)) = partial_checksum(&frame, &headers) {
            bytes[field..field + 2].copy_from_slice(&pseudo);
        }
        let before = bytes.clone();
        prop_assert!(!checksum::complete_partial(&mut bytes, &headers));
        prop_assert_eq!(bytes, before);
    }
}

#[test]
fn a_finished_checksum_that_equals_the_pseudo_header_sum_stays_the_same() {
    // Two payload bytes steer the checksum through all its values; a few of the packets are such.
    let mut met = 0;
    for steer in 0..=u16::MAX {
        let step = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let step = step.ipv4([10, 0, 1, 2], [10, 1, 0, 3], 64).udp(1000, 53);
        let mut frame = Vec::new();
        step.write(&mut frame, &steer.to_be_bytes()).expect("a packet");
        let finished = frame.clone();
        let headers = parse(&frame).expect("an Ethernet frame");
        met += u32::from(checksum::complete_partial(&mut frame, &headers));
        assert_eq!(frame, finished);
    }
    assert_eq!(met, 1);
}

#[test]
fn a_frame_too_long_for_16_bit_offsets_is_refused() {
    let mut frame = vec![0; usize::from(u16::MAX)];
    frame[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
    assert!(parse(&frame).is_ok());
    frame.push(0);
    assert_eq!(parse(&frame), Err(DropReason::Giant));
    // Nothing but tags: every offset still fits.
    let mut frame = [0x81, 0x00].repeat(usize::from(u16::MAX) / 2);
    assert_eq!(parse(&frame), Err(DropReason::TruncatedTag));
    let end = frame.len();
    frame[end - 2..].copy_from_slice(&ethernet::ETHERTYPE_IPV4.to_be_bytes());
    let headers = parse(&frame).expect("an Ethernet frame");
    check_offsets(&frame, &headers);
    assert_eq!((usize::from(headers.l3), headers.fault), (end, Some(DropReason::TruncatedL3)));
}
