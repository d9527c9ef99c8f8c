//! One switch, one packet: what leaves, what is kept, what is counted.

use weft::counters::DropReason;
use weft::fabric::clos::Direction::{Egress, Ingress};
use weft::time::MILLIS;
use weft::topo::Fabric;
use weft::wire::ethernet::HEADER_LEN;

use crate::packets::{self, mend_ipv4};
use crate::rig::{Hop, Net, clos, lines, options, tcp, with_tag};

const FROM: &str = "h0-1-2";
const TO: &str = "h1-1-2";

fn net() -> Net {
    Net::new(&clos(&options()))
}

/// A packet of flow `port` from `FROM` to `TO`, as `peer` sends it to `at`.
fn packet(net: &Net, at: &str, peer: &str, port: u16, v6: bool) -> Vec<u8> {
    tcp(net.between(at, peer, FROM, TO, v6), (port, 80), 0)
}

/// A response about that flow: addresses the other way round, ports not.
fn response(net: &Net, at: &str, peer: &str, port: u16, v6: bool, tag: &str) -> Vec<u8> {
    with_tag(&tcp(net.between(at, peer, TO, FROM, v6), (port, 80), 0), tag)
}

fn all(hops: &[Hop]) -> Vec<String> {
    lines(hops, |_| true)
}

/// A flow that goes by `peer` at `at` by its hash, when `from` sends it there.
fn flow_by(net: &mut Net, at: &str, from: &str, peer: &str) -> u16 {
    let by = |net: &mut Net, port: &u16| {
        let frame = packet(net, at, from, *port, false);
        net.at(at, from, &frame)[0].to == peer
    };
    (5_000..5_064).find(|port| by(net, port)).expect("a flow of 64 goes there")
}

#[test]
fn a_tor_opens_a_flow_once_and_again_when_its_entry_has_aged() {
    for v6 in [false, true] {
        let mut net = net();
        net.load("tor0-1", "agg0-1", Egress, 6);
        let first = net.flow(FROM, "h1-0-2", 5_000, v6, 0);
        assert_eq!(first[0].tag(), "88b50206");
        // Ticks of 100 ms: an entry lives through that of its last packet and the next one.
        net.now = net.now + 199 * MILLIS;
        assert_eq!(net.flow(FROM, "h1-0-2", 5_000, v6, 9)[0].tag(), "-");
        net.now = net.now + 100 * MILLIS;
        assert_eq!(net.flow(FROM, "h1-0-2", 5_000, v6, 9)[0].tag(), "-");
        assert_eq!(net.counters("tor0-1").requests, 1);
        net.now = net.now + 200 * MILLIS;
        // The load is long forgotten.
        assert_eq!(net.flow(FROM, "h1-0-2", 5_000, v6, 9)[0].tag(), "88b50200");
        assert_eq!(net.counters("tor0-1").requests, 2);
    }
}

#[test]
fn a_tor_opens_a_flow_by_its_hash_whatever_the_load() {
    let mut net = net();
    net.load("tor0-1", "agg0-0", Egress, 7);
    let way = |net: &mut Net, port: u16| {
        let frame = tcp(net.ends(FROM, TO, false), (port, 80), 0);
        let hops = net.at("tor0-1", FROM, &frame);
        assert_eq!(hops[0].tag(), "88b50270");
        hops[0].to.clone()
    };
    let busy = (5_000..5_064).filter(|port| way(&mut net, *port) == "agg0-0").count();
    assert!((16..=48).contains(&busy), "{busy} of 64 by the loaded uplink");
    assert!(net.pat("tor0-1").iter().all(|(_, origin)| *origin == "ecmp"));
}

#[test]
fn a_flow_whose_uplink_fails_is_opened_anew_over_the_others() {
    let mut net = net();
    let frame = tcp(net.ends(FROM, TO, false), (5_000, 80), 0);
    let hops = net.at("tor0-1", FROM, &frame);
    let first = hops[0].to.clone();
    let (other, flags) = if first == "agg0-0" { ("agg0-1", "f0") } else { ("agg0-0", "0f") };
    assert_eq!(hops[0].tag(), "88b50200");
    net.set_link("tor0-1", &first, false);
    let hops = net.at("tor0-1", FROM, &frame);
    assert_eq!(all(&hops), [format!("tor0-1 {other} 88b502{flags}")]);
    assert_eq!(net.pat("tor0-1"), [(other.into(), "ecmp")]);
    // The mended link is no reason to move.
    net.set_link("tor0-1", &first, true);
    assert_eq!(all(&net.at("tor0-1", FROM, &frame)), [format!("tor0-1 {other} -")]);
}

#[test]
fn other_packets_than_whole_tcp_segments_go_by_their_hash_without_a_tag() {
    let mut net = net();
    let ends = net.ends(FROM, TO, false);
    let udp = packets::udp(ends, 64, (5_000, 80), &[0; 40]);
    let mut fragment = tcp(ends, (5_000, 80), 64);
    fragment[HEADER_LEN + 6] |= 0x20;
    mend_ipv4(&mut fragment, HEADER_LEN);
    for frame in [udp, fragment] {
        let hops = net.at("tor0-1", FROM, &frame);
        assert_eq!((hops.len(), hops[0].tag()), (1, "-".into()));
    }
    assert_eq!((net.pat("tor0-1"), net.counters("tor0-1").requests), (vec![], 0));
}

#[test]
fn a_flow_whose_slot_is_taken_goes_by_its_hash_without_a_tag() {
    let mut net = Net::with(&clos(&options()), |config| config.slots = 1);
    let hops = net.flow(FROM, TO, 5_000, false, 0);
    assert_eq!(hops[0].tag(), "88b50200");
    let kept = net.pat("tor0-1");
    let hops = net.flow(FROM, TO, 5_001, false, 0);
    assert!(hops.iter().all(|hop| hop.tag() == "-"), "{hops:?}");
    assert_eq!((net.pat("tor0-1"), net.counters("tor0-1").untracked), (kept, 1));
    // At the aggregation switch the first one's way has the slot as well.
    let frame = response(&net, "agg0-0", "core0", 5_001, false, "8200");
    net.at("agg0-0", "core0", &frame);
    assert_eq!(net.counters("agg0-0").unkept, 1);
}

#[test]
fn a_request_that_the_link_has_no_room_for_goes_on_without_its_tag() {
    let mut options = options();
    options.fabric_mtu = 1500;
    let mut net = Net::new(&Fabric::leaf_spine(2, 3, &options).expect("a fabric"));
    // A link carries its MTU behind one VLAN tag, of 4 B; a tag of 3 metrics takes 5 B. So 1499 B of IP fit, 40 of them
    // headers, and one more does not.
    for (len, tag) in [(1_459, "88b5030000"), (1_460, "-")] {
        let frame = tcp(net.ends("h0-0-2", "h0-1-2", false), (len, 80), len.into());
        let hops = net.at("leaf0", "h0-0-2", &frame);
        assert_eq!((hops.len(), hops[0].tag().as_str()), (1, tag), "{len} B");
    }
    let counters = net.counters("leaf0");
    assert_eq!((counters.requests, counters.untagged), (2, 1));
}

#[test]
fn a_host_may_not_send_tags() {
    let mut net = net();
    for tag in ["0213", "80"] {
        let frame = with_tag(&tcp(net.ends(FROM, TO, false), (5_000, 80), 0), tag);
        assert_eq!(all(&net.at("tor0-1", FROM, &frame)), [""; 0]);
    }
    assert_eq!(net.drops("tor0-1", DropReason::TagFromHost), 2);
}

#[test]
fn the_far_tor_answers_by_the_best_sound_uplink() {
    for (carried, down, expected) in [
        // max(1, 2) = 2 against max(2, 1) = 2: the lowest.
        ("0212", None, Some("agg1-0")),
        // max(5, 2) = 5 against 2.
        ("0252", None, Some("agg1-1")),
        // Failed at the near side, whatever bits stand beside the flag.
        ("0282", None, Some("agg1-1")),
        ("0267", Some("agg1-0"), Some("agg1-1")),
        ("02f7", None, Some("agg1-1")),
        ("02ff", None, None),
        ("020f", Some("agg1-0"), None),
    ] {
        for came in ["agg1-0", "agg1-1"] {
            let mut net = net();
            net.load("tor1-1", "agg1-0", Ingress, 2);
            net.load("tor1-1", "agg1-1", Ingress, 1);
            let request = with_tag(&packet(&net, "tor1-1", came, 5_000, false), carried);
            if let Some(down) = down.filter(|down| *down != came) {
                net.set_link("tor1-1", down, false);
            } else if down.is_some() {
                continue;
            }
            let mut found = all(&net.at("tor1-1", came, &request));
            found.sort();
            let mut wanted: Vec<_> = expected.map(|agg| format!("tor1-1 {agg} 88b580")).into_iter().collect();
            wanted.push(format!("tor1-1 {TO} -"));
            assert_eq!(found, wanted, "{carried} off {came}, {down:?} down");
            let counters = net.counters("tor1-1");
            let answered = u64::from(expected.is_some());
            assert_eq!((counters.responses_sent, counters.no_way), (answered, 1 - answered));
        }
    }
}

/// The response is the request's segment turned round (addresses, not ports), without its data.
#[test]
fn a_response_is_about_the_flow_that_it_answers() {
    for v6 in [false, true] {
        let mut net = net();
        let ends = net.between("tor1-1", "agg1-1", FROM, TO, v6);
        let request = with_tag(&tcp(ends, (5_000, 80), 700), "0200");
        let hops = net.at("tor1-1", "agg1-1", &request);
        let sent = hops.iter().find(|hop| hop.to == "agg1-0").expect("a response");
        let expected = response(&net, "agg1-0", "tor1-1", 5_000, v6, "80");
        // Ports; the addresses' order is that of the expected frame up to the checksums.
        let l3 = 17;
        let (addresses, l4) = if v6 { (l3 + 8..l3 + 40, l3 + 40) } else { (l3 + 12..l3 + 20, l3 + 20) };
        assert_eq!(sent.frame[..l3], expected[..l3]);
        assert_eq!(sent.frame[addresses.clone()], expected[addresses]);
        assert_eq!(sent.frame[l4..l4 + 4], [0x13, 0x88, 0, 80]);
        assert_eq!(sent.frame.len(), (l4 + 20).max(60));
    }
}

#[test]
fn a_request_that_does_not_fit_the_fabric_is_delivered_and_not_answered() {
    let mut net = net();
    let ends = net.between("tor1-1", "agg1-0", FROM, TO, false);
    let whole = tcp(ends, (5_000, 80), 0);
    let udp = packets::udp(ends, 64, (5_000, 80), &[0; 40]);
    for frame in [with_tag(&whole, "0110"), with_tag(&whole, "031230"), with_tag(&udp, "0212")] {
        assert_eq!(all(&net.at("tor1-1", "agg1-0", &frame)), [format!("tor1-1 {TO} -")]);
    }
    let counters = net.counters("tor1-1");
    assert_eq!((counters.requests_down, counters.requests_odd, counters.responses_sent), (3, 3, 0));
}

#[test]
fn a_tor_takes_a_response_for_the_way_of_a_flow_that_it_has() {
    for v6 in [false, true] {
        let mut net = net();
        let frame = tcp(net.ends(FROM, TO, v6), (5_000, 80), 0);
        let opened = net.at("tor0-1", FROM, &frame)[0].to.clone();
        let other = if opened == "agg0-0" { "agg0-1" } else { "agg0-0" };
        let answer = |net: &mut Net, by: &str, port| {
            let frame = response(net, "tor0-1", by, port, v6, "80");
            assert_eq!(all(&net.at("tor0-1", by, &frame)), [""; 0], "it ends here");
        };
        answer(&mut net, &opened, 5_000);
        assert_eq!(net.pat("tor0-1"), [(opened.clone(), "response")]);
        answer(&mut net, other, 5_000);
        assert_eq!(net.pat("tor0-1"), [(other.into(), "response")]);
        assert_eq!(all(&net.at("tor0-1", FROM, &frame)), [format!("tor0-1 {other} -")]);
        answer(&mut net, other, 5_001);
        let counters = net.counters("tor0-1");
        assert_eq!((counters.stayed, counters.moved, counters.orphans), (1, 1, 1));
        // Nor is an entry that has aged brought back.
        net.now = net.now + 200 * MILLIS;
        answer(&mut net, other, 5_000);
        assert_eq!((net.pat("tor0-1"), net.counters("tor0-1").orphans), (vec![], 2));
    }
}

#[test]
fn tags_that_nobody_sends_to_a_tor_are_dropped() {
    let mut net = net();
    // CAFT's choice of a core, which answers a request (TF 0, NoC 0).
    let choice = response(&net, "tor0-1", "agg0-0", 5_000, false, "00");
    let full = response(&net, "tor0-1", "agg0-0", 5_000, false, "8233");
    let elsewhere = response(&net, "tor0-0", "agg0-0", 5_000, false, "80");
    for (tor, frame) in [("tor0-1", choice), ("tor0-1", full), ("tor0-0", elsewhere)] {
        assert_eq!(all(&net.at(tor, "agg0-0", &frame)), [""; 0]);
    }
    let drops = |tor, reason| net.drops(tor, reason);
    assert_eq!(drops("tor0-1", DropReason::StrayTag), 1);
    assert_eq!(drops("tor0-1", DropReason::BadTag), 1);
    assert_eq!(drops("tor0-0", DropReason::StrayTag), 1);
}

#[test]
fn an_agg_passes_requests_on_as_they_are_by_the_flows_way_or_its_hash() {
    for v6 in [false, true] {
        let mut net = net();
        net.load("agg0-0", "core0", Egress, 5);
        let request = with_tag(&packet(&net, "agg0-0", "tor0-1", 5_000, v6), "0213");
        let hops = net.at("agg0-0", "tor0-1", &request);
        let hashed = hops[0].to.clone();
        assert_eq!((hops.len(), hops[0].tag().as_str()), (1, "88b50213"));
        assert_eq!(net.pat("agg0-0"), [], "a request leaves nothing behind");
        let (other, idle) = if hashed == "core0" { ("core1", "82f0") } else { ("core0", "820f") };
        let answer = response(&net, "agg0-0", "core0", 5_000, v6, idle);
        net.at("agg0-0", "core0", &answer);
        assert_eq!(net.pat("agg0-0"), [(other.into(), "response")]);
        assert_eq!(all(&net.at("agg0-0", "tor0-1", &request)), [format!("agg0-0 {other} 88b50213")]);
        // Down, off a core.
        let request = with_tag(&packet(&net, "agg1-0", "core1", 5_000, v6), "0213");
        assert_eq!(all(&net.at("agg1-0", "core1", &request)), ["agg1-0 tor1-1 88b50213"]);
    }
}

#[test]
fn a_flow_whose_core_fails_at_its_agg_goes_by_its_hash_again() {
    let mut net = net();
    let port = flow_by(&mut net, "agg0-0", "tor0-1", "core0");
    let data = packet(&net, "agg0-0", "tor0-1", port, false);
    let answer = response(&net, "agg0-0", "core0", port, false, "82f0");
    net.at("agg0-0", "core0", &answer);
    assert_eq!(all(&net.at("agg0-0", "tor0-1", &data)), ["agg0-0 core1 -"]);
    net.set_link("agg0-0", "core1", false);
    assert_eq!(all(&net.at("agg0-0", "tor0-1", &data)), ["agg0-0 core0 -"]);
    net.set_link("agg0-0", "core1", true);
    assert_eq!(all(&net.at("agg0-0", "tor0-1", &data)), ["agg0-0 core0 -"], "by the hash, not as before");
}

#[test]
fn a_response_from_below_takes_the_aggs_load_to_a_core_or_is_turned_round() {
    for v6 in [false, true] {
        let mut net = net();
        net.load("agg1-1", "core2", Ingress, 2);
        net.load("agg1-1", "core3", Egress, 7);
        net.set_link("agg1-1", "core3", false);
        let up = response(&net, "agg1-1", "tor1-1", 5_000, v6, "80");
        assert_eq!(all(&net.at("agg1-1", "tor1-1", &up)), ["agg1-1 core2 88b5822f"]);
        let round = with_tag(&tcp(net.between("agg1-1", "tor1-1", TO, "h1-0-2", v6), (5_000, 80), 0), "80");
        assert_eq!(all(&net.at("agg1-1", "tor1-1", &round)), ["agg1-1 tor1-0 88b580"]);
        let counters = net.counters("agg1-1");
        assert_eq!((counters.responses_up, counters.responses_turned), (1, 1));
        assert_eq!(net.pat("agg1-1"), []);
    }
}

#[test]
fn a_response_off_a_core_gives_the_flow_the_core_of_the_least_loaded_worse_link() {
    for (carried, down, expected) in [
        // max(5, 3) = 5 against max(4, 3) = 4.
        ("8233", None, Some("core3")),
        // max(5, 3) = 5 against max(4, 7) = 7.
        ("8237", None, Some("core2")),
        // Equal: the lowest.
        ("8255", None, Some("core2")),
        ("82f7", None, Some("core3")),
        ("823c", None, Some("core2")),
        ("8207", Some("core2"), Some("core3")),
        ("82ff", None, None),
    ] {
        let mut net = net();
        net.load("agg0-1", "core2", Egress, 5);
        net.load("agg0-1", "core3", Egress, 4);
        if let Some(down) = down {
            net.set_link("agg0-1", down, false);
        }
        let answer = response(&net, "agg0-1", "core3", 5_000, false, carried);
        assert_eq!(all(&net.at("agg0-1", "core3", &answer)), ["agg0-1 tor0-1 88b580"], "{carried}: the plane stands");
        let kept: Vec<_> = expected.map(|core| (core.to_string(), "response")).into_iter().collect();
        assert_eq!(net.pat("agg0-1"), kept, "{carried}, {down:?} down");
        let counters = net.counters("agg0-1");
        assert_eq!((counters.responses_down, counters.no_way), (1, u64::from(expected.is_none())));
    }
}

#[test]
fn tags_that_nobody_sends_to_an_agg_are_dropped() {
    let mut net = net();
    let udp = packets::udp(net.between("agg0-0", "core0", TO, FROM, false), 64, (5_000, 80), &[0; 40]);
    for (peer, frame, reason) in [
        ("core0", response(&net, "agg0-0", "core0", 5_000, false, "00"), DropReason::StrayTag),
        ("core0", packet(&net, "agg0-0", "core0", 5_000, false), DropReason::StrayTag),
        ("core0", response(&net, "agg0-0", "core0", 5_000, false, "80"), DropReason::BadTag),
        ("core0", response(&net, "agg0-0", "core0", 5_000, false, "833330"), DropReason::BadTag),
        ("tor0-1", response(&net, "agg0-0", "tor0-1", 5_000, false, "8233"), DropReason::BadTag),
        ("core0", with_tag(&udp, "8233"), DropReason::BadTag),
    ] {
        // The second is a response to another pod that comes off a core.
        let frame = if frame[12..14] == [8, 0] { with_tag(&frame, "8233") } else { frame };
        let before = net.drops("agg0-0", reason);
        assert_eq!(all(&net.at("agg0-0", peer, &frame)), [""; 0]);
        assert_eq!(net.drops("agg0-0", reason), before + 1, "{frame:02x?}");
    }
    assert_eq!(net.pat("agg0-0"), []);
}

#[test]
fn a_core_passes_tags_on_as_they_are_but_for_what_nobody_sends() {
    let mut net = net();
    let request = with_tag(&packet(&net, "core3", "agg0-1", 5_000, true), "0213");
    assert_eq!(all(&net.at("core3", "agg0-1", &request)), ["core3 agg1-1 88b50213"]);
    let answer = response(&net, "core3", "agg1-1", 5_000, true, "8233");
    assert_eq!(all(&net.at("core3", "agg1-1", &answer)), ["core3 agg0-1 88b58233"]);
    let choice = response(&net, "core3", "agg1-1", 5_000, true, "00");
    assert_eq!(all(&net.at("core3", "agg1-1", &choice)), [""; 0]);
    assert_eq!(net.drops("core3", DropReason::StrayTag), 1);
}

/// A tag of three metrics takes five bytes, which no VLAN tags do.
#[test]
fn who_is_told_of_a_lost_request_is_told_without_its_tag() {
    for v6 in [false, true] {
        let mut net = net();
        let mut lost = packet(&net, "core3", "agg0-1", 5_000, v6);
        lost[HEADER_LEN + if v6 { 7 } else { 8 }] = 1;
        if !v6 {
            mend_ipv4(&mut lost, HEADER_LEN);
        }
        assert_eq!(all(&net.at("core3", "agg0-1", &with_tag(&lost, "031230"))), [""; 0]);
        assert_eq!(net.drops("core3", DropReason::TtlExpired), 1);
        let [told] = &net.said[..] else { panic!("{:02x?}", net.said) };
        let told = packets::icmp(told).expect("an ICMP message");
        assert_eq!((told.kind, told.code), if v6 { (3, 0) } else { (11, 0) }, "time exceeded in transit");
        assert_eq!(told.ends.dst, net.ends(FROM, TO, v6).src);
        assert_eq!(told.rest, packets::ip_packet(&lost));
    }
}

/// A response has no data, and fits everywhere. One that does not is not made a packet of the flow.
#[test]
fn a_response_that_a_link_has_no_room_for_is_dropped_and_nobody_is_told() {
    let mut options = options();
    options.fabric_mtu = 1500;
    let mut net = Net::new(&clos(&options));
    // 1,500 B of IP behind a tag of 6 B, 2 B more than the VLAN tag that a link has room for.
    for (at, peer, tag, expected) in [
        ("core3", "agg1-1", "86333333", None),
        ("core3", "agg1-1", "8233", Some("core3 agg0-1 88b58233")),
        ("agg0-1", "core3", "8233", Some("agg0-1 tor0-1 88b580")),
    ] {
        let frame = with_tag(&tcp(net.between(at, peer, TO, FROM, false), (5_000, 80), 1_460), tag);
        let expected: Vec<_> = expected.map(String::from).into_iter().collect();
        assert_eq!(all(&net.at(at, peer, &frame)), expected, "{tag} at {at}");
        assert_eq!(net.said, Vec::<Vec<u8>>::new());
    }
    assert_eq!(net.drops("core3", DropReason::TooBig), 1);
}
