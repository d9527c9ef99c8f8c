//! Golden vectors of CAFT's tag and of the messages with it, byte for byte. The tags are those of the paper's
//! example (arXiv 2010.00720: a four-port tree, the first packet from ToR (1,2) to ToR (2,2)) and of four
//! variants of it, worked out by hand; the messages were made by hand from RFC 9293, 791 and 8200, checksums
//! summed by another program, and are read back by etherparse.

mod golden;

use etherparse::{NetSlice, SlicedPacket};
use golden::{dump, hex};
use weft::pisa::FlowHash;
use weft::wire::caft::{
    self, Full, MAX_METRICS, Metric, Metrics, TPID, Tag, TagError, Trip, emit_message, is_tagged, swap_addresses,
};
use weft::wire::{Headers, MacAddr, parse_behind};

/// A metric of the examples: a load or, as F, a failure.
fn metric(digit: char) -> Metric {
    if digit == 'F' { Metric::FAILED } else { Metric::load(digit.to_digit(8).expect("a load") as u8) }
}

fn tag(trip: Trip, digits: &str) -> Tag {
    let mut metrics = Metrics::new();
    metrics.extend(digits.chars().map(metric)).expect("127 or fewer");
    Tag { trip, metrics }
}

fn emitted(tag: &Tag) -> Vec<u8> {
    let mut bytes = vec![0xee; caft::len(tag.metrics.len())];
    tag.emit(TPID, &mut bytes);
    bytes
}

/// A frame with `tag` behind its addresses and just an EtherType behind that.
fn frame_with(tag: &[u8]) -> Vec<u8> {
    [&[2; 12][..], tag, &[0x08, 0x00]].concat()
}

/// Headers of `frame` behind its tag, if it has one.
fn headers(frame: &[u8]) -> Headers {
    let len = Tag::read(frame, TPID).map_or(0, |(_, len)| len);
    let mut headers = Headers::default();
    parse_behind(frame, len, &mut headers).expect("an Ethernet frame");
    headers
}

#[test]
fn every_tag_of_the_papers_example_and_its_variants_is_these_bytes() {
    use Trip::{Inbound, Outbound};
    for (what, trip, metrics, bytes) in [
        ("request from the source ToR: its links to both aggregation switches", Outbound, "13", "88b5 02 13"),
        ("request from the source aggregation switch: its links to both cores", Outbound, "1342", "88b5 04 13 42"),
        ("the choice of a core: nothing", Outbound, "", "88b5 00"),
        ("request from the destination aggregation switch: the chosen core's pair", Outbound, "1322", "88b5 04 13 22"),
        ("response from the destination ToR: chosen, forwarding, core", Inbound, "301422", "88b5 86 30 14 22"),
        ("response from the chosen aggregation switch", Inbound, "30142233", "88b5 88 30 14 22 33"),
        // The paper prints the last pair as (3, 4); all others are egress first, and so is this one.
        ("response from the source's other aggregation switch", Inbound, "30142243", "88b5 88 30 14 22 43"),
        // Load 5 instead of 2 towards core (1,2): core (1,1) is chosen.
        ("variant 1, request", Outbound, "1345", "88b5 04 13 45"),
        ("variant 1, the chosen core's pair", Outbound, "1343", "88b5 04 13 43"),
        ("variant 1, response", Inbound, "301443", "88b5 86 30 14 43"),
        ("variant 1, response at its end", Inbound, "30144343", "88b5 88 30 14 43 43"),
        // Load 5 instead of 4 into the destination ToR from the forwarding aggregation switch.
        ("variant 2, response", Inbound, "301522", "88b5 86 30 15 22"),
        ("variant 2, response at its end", Inbound, "30152243", "88b5 88 30 15 22 43"),
        // Loads 1 and 7 into the destination ToR: the forwarder would be best, the other is taken.
        ("variant 3, response", Inbound, "371122", "88b5 86 37 11 22"),
        ("variant 3, response at its end", Inbound, "37112243", "88b5 88 37 11 22 43"),
        // The link from the source aggregation switch to core (1,1) is down: core (1,2) is chosen.
        ("variant 4, request", Outbound, "13F2", "88b5 04 13 f2"),
        ("variant 4, the chosen core's pair", Outbound, "1322", "88b5 04 13 22"),
    ] {
        let (tag, bytes) = (tag(trip, metrics), hex(bytes));
        assert_eq!(dump(&emitted(&tag)), dump(&bytes), "{what}");
        assert_eq!(Tag::read(&frame_with(&bytes), TPID), Ok((tag, bytes.len())), "{what}");
    }
}

/// In a tree of k-port switches every ToR and aggregation switch has n = k/2 links up. Metrics: a request has
/// n, n + n and n + 2, a choice 0, a response 6, 6 + n and 8.
#[test]
fn a_tag_takes_three_bytes_and_half_a_byte_for_each_metric() {
    for (k, metrics, bytes) in [
        (4, [2, 4, 4, 0, 6, 8, 8], [4, 5, 5, 3, 6, 7, 7]),
        (8, [4, 8, 6, 0, 6, 10, 8], [5, 7, 6, 3, 6, 8, 7]),
        (16, [8, 16, 10, 0, 6, 14, 8], [7, 11, 8, 3, 6, 10, 7]),
        (64, [32, 64, 34, 0, 6, 38, 8], [19, 35, 20, 3, 6, 22, 7]),
    ] {
        assert_eq!(metrics.map(caft::len), bytes, "k = {k}");
    }
    assert_eq!((caft::len(126), caft::len(MAX_METRICS), caft::MAX_LEN), (66, 67, 67));
}

#[test]
fn every_number_of_metrics_comes_back_and_the_odd_nibble_is_not_looked_at() {
    for count in 0..=MAX_METRICS {
        for (trip, first) in [(Trip::Outbound, 0x00), (Trip::Inbound, 0x80)] {
            let digits: String = (0..count).map(|i| "F0741".as_bytes()[i % 5] as char).collect();
            let tag = tag(trip, &digits);
            let mut bytes = emitted(&tag);
            assert_eq!(bytes[..3], [0x88, 0xb5, first | count as u8]);
            let text: String = bytes[3..].iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(text, digits + ["", "0"][count % 2], "{count}");
            if count % 2 == 1 {
                *bytes.last_mut().expect("a byte of metrics") |= 0x0d;
            }
            assert_eq!(Tag::read(&frame_with(&bytes), TPID), Ok((tag, bytes.len())), "{count}");
        }
    }
}

#[test]
fn a_frame_that_ends_in_its_tag_or_in_the_type_behind_it_is_truncated() {
    for tag in ["88b5 00", "88b5 01 50", "88b5 88 30 14 22 43"].map(hex) {
        let frame = frame_with(&tag);
        for end in 0..frame.len() {
            let expected = if end < 14 { TagError::NoTag } else { TagError::Truncated };
            assert_eq!(Tag::read(&frame[..end], TPID), Err(expected), "{end} of {}", frame.len());
            assert_eq!(is_tagged(&frame[..end], TPID), end >= 14);
        }
    }
}

#[test]
fn only_the_configured_tpid_right_behind_the_addresses_is_a_tag() {
    let frame = frame_with(&hex("88b5 02 13"));
    assert_eq!(Tag::read(&frame, 0x88b6), Err(TagError::NoTag));
    let mut other = frame.clone();
    tag(Trip::Outbound, "13").emit(0x9999, &mut other[12..16]);
    assert!(is_tagged(&other, 0x9999) && !is_tagged(&other, TPID));
    let behind_a_vlan_tag = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    assert_eq!(Tag::read(&behind_a_vlan_tag, TPID), Err(TagError::NoTag));
}

#[test]
fn a_failed_link_is_worse_than_any_load_whatever_stands_beside_its_flag() {
    for nibble in 0..=15 {
        let metric = Metric::from_nibble(nibble);
        assert_eq!((metric.is_failed(), metric.nibble()), (nibble >= 8, if nibble >= 8 { 15 } else { nibble }));
        assert_eq!(metric.max(Metric::load(7)) == Metric::FAILED, nibble >= 8);
    }
    assert_eq!(Metric::load(8), Metric::load(7), "as much as there is");
    assert!(Metric::load(7) < Metric::FAILED && Metric::load(3) < Metric::load(4));
    // What is sent on is F.
    let (tag, _) = Tag::read(&frame_with(&hex("88b5 04 13 82")), TPID).expect("a tag");
    assert_eq!(emitted(&tag), hex("88b5 04 13 f2"));
}

#[test]
fn metrics_are_appended_wholly_or_not_at_all() {
    let mut metrics = tag(Trip::Outbound, &"4".repeat(125)).metrics;
    let before = metrics;
    assert_eq!(metrics.extend([Metric::load(1); 3]), Err(Full));
    assert_eq!(metrics, before);
    assert_eq!(metrics.extend([Metric::load(1); 2]), Ok(()));
    assert_eq!((metrics.len(), metrics.push(Metric::FAILED), metrics.len()), (127, Err(Full), 127));
    assert_eq!((metrics.get(124), metrics.get(126), metrics.get(127)), (Some(&metric('4')), Some(&metric('1')), None));
    metrics.truncate(2);
    assert_eq!(metrics, tag(Trip::Outbound, "44").metrics, "what was there no longer counts");
    metrics.truncate(5);
    assert_eq!(metrics.as_slice(), [metric('4'); 2]);
}

const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const NEXT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn message(tag: &Tag, packet: &[u8], out: &mut [u8]) -> Option<usize> {
    emit_message(out, (NEXT, SWITCH), TPID, tag, packet, &headers(packet))
}

#[test]
fn a_message_is_the_packets_headers_turned_round() {
    for (what, tag, packet, expected) in [
        (
            "the choice of a core, of a SYN with options and ECN set up, tagged and in a VLAN",
            tag(Trip::Outbound, ""),
            "020000000001 020000000007 88b504 1342 8100a00a 0800
             4500003c 12344000 3e061384 0a000102 0a000203
             9c401451 00001000 00000000 a0c2faf0 30530000 020405b4 0402080a 11223344 00000000 01030307",
            "020000000001 02000000000a 88b500 0800
             45000028 12344000 40061198 0a000203 0a000102
             9c401451 00001000 00000000 50c2faf0 dc9b0000 000000",
        ),
        (
            "a response, of urgent data with IPv4 options, DSCP 46 and congestion experienced, the flag AE set",
            tag(Trip::Inbound, "301422"),
            "020000000001 020000000007 88b504 1322 0800
             47bb003f beef0000 03064904 0a000102 0a000203 01010101 94040000
             9c401451 00001001 00002001 813801f5 97490002 0101080a 11223344 55667788 6f6464",
            "020000000001 02000000000a 88b586 301422 0800
             45bb0028 beef0000 4006a421 0a000203 0a000102
             9c401451 00001001 00002001 513801f5 b51d0002",
        ),
        (
            "the choice of a core, of an IPv6 SYN behind hop-by-hop options and an atomic fragment's header",
            tag(Trip::Outbound, ""),
            "020000000001 020000000007 88a8a00a 81000014 86dd
             60012345 0038003d fd000000 00000001 00000000 00000002 fd000000 00000002 00000000 00000003
             2c000104 00000000 06000000 deadbeef
             9c401451 fffffff0 00000000 a002ffff 590e0000 020405b4 0402080a 11223344 00000000 01030307",
            "020000000001 02000000000a 88b500 86dd
             60012345 00140640 fd000000 00000002 00000000 00000003 fd000000 00000001 00000000 00000002
             9c401451 fffffff0 00000000 5002ffff 05570000",
        ),
        (
            "a response at its end, of IPv6 data with DSCP 10, ECT(0) and a flow label",
            tag(Trip::Inbound, "30142243"),
            "020000000001 020000000007 88b588 30142233 86dd
             62a12345 001b0602 fd000000 00000001 00000000 00000002 fd000000 00000002 00000000 00000003
             9c401451 00001001 00002001 501801f5 6e400000 68656c6c 6f2121",
            "020000000001 02000000000a 88b588 30142243 86dd
             62a12345 00140640 fd000000 00000002 00000000 00000003 fd000000 00000001 00000000 00000002
             9c401451 00001001 00002001 501801f5 d33a0000",
        ),
    ] {
        let packet = hex(packet);
        let mut out = [0xee; caft::MAX_MESSAGE];
        let len = message(&tag, &packet, &mut out).expect(what);
        let bytes = &mut out[..len];
        assert_eq!(dump(bytes), dump(&hex(expected)), "{what}");
        read_back(bytes);

        let mut small = vec![0xee; len - 1];
        assert_eq!(message(&tag, &packet, &mut small), None, "{what}: a byte too few");
        assert!(small.iter().all(|byte| *byte == 0xee), "{what}: declined, but something was written");

        // The flow is found again by exchanging the addresses back.
        let (hash, there) = (FlowHash::new(7), headers(bytes));
        let flow = hash.packet(&packet, &headers(&packet));
        assert_ne!(hash.packet(bytes, &there), flow, "{what}");
        swap_addresses(bytes, &there);
        assert_eq!(hash.packet(bytes, &there), flow, "{what}");
        read_back(bytes);
    }
}

/// What etherparse says of a message without its tag: sound, with right checksums, no options and no data.
fn read_back(message: &[u8]) {
    let (_, len) = Tag::read(message, TPID).expect("a tag");
    let plain = [&message[..12], &message[12 + len..]].concat();
    let packet = SlicedPacket::from_ethernet(&plain).expect("a well-formed frame");
    let tcp = match &packet.transport {
        Some(etherparse::TransportSlice::Tcp(tcp)) => tcp,
        other => panic!("{other:?}"),
    };
    assert!(tcp.options().is_empty() && tcp.payload().is_empty());
    let summed = match packet.net.expect("a network header") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            tcp.calc_checksum_ipv4(header.source, header.destination)
        }
        NetSlice::Ipv6(ip) => tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()),
        NetSlice::Arp(_) => panic!("ARP"),
    };
    assert_eq!(Ok(tcp.checksum()), summed);
}

#[test]
fn what_is_not_a_segment_with_its_whole_header_leads_to_no_message() {
    const V4: &str = "020000000001 020000000007 88b502 13 0800";
    const V6: &str = "020000000001 020000000007 88b502 13 86dd";
    for (what, start, packet) in [
        (
            "a first fragment",
            V4,
            "45000028 12342000 40063198 0a000102 0a000203 9c401451 00001000 00000000 5002faf0 dd5b0000",
        ),
        (
            "a later fragment",
            V4,
            "45000028 12340005 40065193 0a000102 0a000203 9c401451 00001000 00000000 5002faf0 dd5b0000",
        ),
        (
            "a data offset past the packet",
            V4,
            "45000028 12344000 40061198 0a000102 0a000203 9c401451 00001000 00000000 6002faf0 dd5b0000 aaaaaaaa",
        ),
        ("UDP", V4, "45000020 12344000 40111195 0a000102 0a000203 9c401451 000c0000 61626364"),
        (
            "a wrong header checksum",
            V4,
            "45000028 12344000 40060000 0a000102 0a000203 9c401451 00001000 00000000 5002faf0 dd5b0000",
        ),
        (
            "an IPv6 fragment",
            V6,
            "60000000 001c2c40 fd000000 00000001 00000000 00000002 fd000000 00000002 00000000 00000003
             06000001 00000001 9c401451 00000001 00000000 50020009 053e0000",
        ),
        (
            "an extension header that reaches past the packet",
            V6,
            "60000000 00080040 fd000000 00000001 00000000 00000002 fd000000 00000002 00000000 00000003
             06010000 00000000",
        ),
        ("ARP", "020000000001 020000000007 0806", "0001"),
    ] {
        let packet = hex(&(start.to_string() + packet));
        let mut out = [0xee; caft::MAX_MESSAGE];
        assert_eq!(message(&tag(Trip::Outbound, ""), &packet, &mut out), None, "{what}");
        assert_eq!(out, [0xee; caft::MAX_MESSAGE], "{what}: declined, but something was written");
    }
}

#[test]
fn only_a_sound_ip_packet_has_addresses_to_exchange() {
    for frame in [
        "020000000001 020000000007 0806 0001080006040001 020000000007 0a000102 000000000000 0a000203",
        "020000000001 020000000007 0800 45000028 12344000 40060000 0a000102 0a000203 9c401451 00001000",
    ] {
        let frame = hex(frame);
        let mut swapped = frame.clone();
        swap_addresses(&mut swapped, &headers(&frame));
        assert_eq!(swapped, frame);
    }
}
