//! Rows T1 to T12: a ToR. The one under test is `tor0-1`, the paper's t(1,2).

use weft::counters::DropReason;
use weft::fabric::SchemeIngress;
use weft::id::{PortId, PortMask};
use weft::pisa::pat::Origin;

use crate::packets;
use crate::rig::{DOWN, EIGHTH, Node, Out, UP};
use crate::segment::{ACK, Flow, SYN, both, with_tag};

const TOR: &str = "tor0-1";
const HERE: (u8, u8, u8) = (0, 1, 2);
const POD_1: (u8, u8, u8) = (1, 1, 2);
const SAME_POD: (u8, u8, u8) = (0, 0, 2);

/// What leaves when `packet` goes on by `port` with `tag`.
pub fn goes(node: &Node, port: u8, tag: &str, packet: &[u8]) -> Out {
    (port, tag.into(), node.passed(port, packet))
}

/// What leaves when the switch makes a message by `port`.
pub fn says(node: &Node, port: u8, tag: &str, message: &[u8]) -> Out {
    (port, tag.into(), node.made(port, message))
}

/// A ToR that has opened the flow, by uplink 0.
fn opened(flow: Flow) -> Node {
    let mut tor = Node::new(TOR);
    let out = tor.send(DOWN[0], &flow.syn());
    assert_eq!(out, [goes(&tor, UP[0], "88b5 02 00", &flow.syn())]);
    tor
}

#[test]
fn t1_a_syn_to_a_host_of_the_same_rack_is_delivered_without_tag_and_entry() {
    for flow in both(HERE, (0, 1, 3)) {
        let mut tor = Node::new(TOR);
        let out = tor.send(DOWN[0], &flow.syn());
        assert_eq!(out, [goes(&tor, DOWN[1], "", &flow.syn())]);
        assert_eq!((tor.entries(), tor.counters().requests), (0, 0));
    }
}

#[test]
fn t2_a_flow_with_an_entry_goes_where_that_says_without_a_tag_and_keeps_it_alive() {
    for flow in both(HERE, POD_1) {
        let mut tor = opened(flow);
        // Uplink 1 is less loaded now, but the flow has its way. Each packet comes 90 ms after the last.
        tor.load_up([3, 0]);
        for _ in 0..5 {
            tor.wait(90);
            let out = tor.send(DOWN[0], &flow.data(100));
            assert_eq!(out, [goes(&tor, UP[0], "", &flow.data(100))]);
        }
        assert_eq!((tor.entries(), tor.counters().requests), (1, 1));
    }
}

#[test]
fn t3_the_first_packet_of_a_flow_to_another_pod_takes_the_least_loaded_uplink_and_tells_all_loads() {
    for flow in both(HERE, POD_1) {
        for (loads, port, tag) in [
            ([1, 3], UP[0], "88b5 02 13"),
            ([3, 1], UP[1], "88b5 02 31"),
            ([7, 6], UP[1], "88b5 02 76"),
            ([2, 2], UP[0], "88b5 02 22"),
            // 9 eighths, after a burst, are told as 7.
            ([9, 0], UP[1], "88b5 02 70"),
        ] {
            let mut tor = Node::new(TOR);
            tor.load_up(loads);
            // What comes down says nothing about the way up.
            tor.load_down([5, 5]);
            let out = tor.send(DOWN[0], &flow.syn());
            assert_eq!(out, [goes(&tor, port, tag, &flow.syn())]);
            let path = tor.path(&flow.syn()).expect("an entry");
            assert_eq!((path.port.0, path.valid, path.origin), (port, true, Origin::Request));
            assert_eq!((tor.entries(), tor.counters().requests), (1, 1));
        }
    }
}

#[test]
fn t3_of_equally_loaded_uplinks_the_flows_of_an_idle_fabric_take_all() {
    let mut options = crate::rig::options();
    options.caft.deterministic = false;
    // So that no two of the flows have one slot.
    options.caft.slots = 1 << 20;
    let fabric = crate::rig::tree(&options);
    for flow in both(HERE, POD_1) {
        let mut tor = Node::of(&fabric, TOR);
        let mut by = [0; 2];
        for port in 1..=100 {
            let [(up, tag, _)] = &tor.send(DOWN[0], &flow.port(port).syn())[..] else { panic!("one frame") };
            assert_eq!(tag, "88b5 02 00");
            by[usize::from(up - UP[0])] += 1;
        }
        // 100 fair draws stay within four standard deviations, 20, but for one time in 16,000.
        assert!(by.iter().all(|n| (30..=70).contains(n)), "{by:?}");
    }
}

#[test]
fn t4_within_the_pod_a_request_is_opened_all_the_same() {
    for flow in both(HERE, SAME_POD) {
        let mut tor = Node::new(TOR);
        tor.load_up([2, 1]);
        let out = tor.send(DOWN[0], &flow.syn());
        assert_eq!(out, [goes(&tor, UP[1], "88b5 02 21", &flow.syn())]);
        assert_eq!(tor.outport(&flow.syn()), Some((UP[1], true)));
    }
}

#[test]
fn t5_what_is_not_tcp_is_spread_by_hash_without_tag_and_entry() {
    for flow in both(HERE, POD_1) {
        let mut tor = Node::new(TOR);
        tor.load_up([7, 0]);
        let mut by = [0; 2];
        for port in 1..=60 {
            let udp = packets::udp(flow.ends(), 64, (port, 53), &[1; 40]);
            let out = tor.send(DOWN[0], &udp);
            let [(up, _, _)] = out[..] else { panic!("one frame: {out:?}") };
            assert_eq!(out, [goes(&tor, up, "", &udp)]);
            assert_eq!(tor.send(DOWN[0], &udp)[0].0, up, "a flow stays on its way");
            by[usize::from(up - UP[0])] += 1;
        }
        assert!(by.iter().all(|n| *n > 10), "{by:?}");
        let ping = packets::echo(flow.ends(), 64, false, 1, &[7; 20]);
        let out = tor.send(DOWN[0], &ping);
        assert_eq!(out, [goes(&tor, out[0].0, "", &ping)]);
        assert_eq!((tor.entries(), tor.counters().requests), (0, 0));
    }
}

#[test]
fn t6_a_tag_of_a_host_is_dropped_wherever_it_is_sent_also_behind_a_vlan_tag() {
    for flow in both(HERE, POD_1) {
        let mut tor = Node::new(TOR);
        let tagged = with_tag(&flow.syn(), "88b5 02 00");
        let behind = packets::tagged(&tagged, &[[0x81, 0, 0, 5]]);
        for frame in [&tagged, &behind, &with_tag(&flow.syn(), "88b5 00"), &with_tag(&flow.syn(), "88b5 88 01")] {
            assert_eq!(tor.refuse(DOWN[0], frame), DropReason::TagFromHost);
        }
        // To a neighbour, to nobody known, to all: not flooded either.
        for dst in [tor.peer(DOWN[1]), weft::wire::MacAddr([2, 9, 9, 9, 9, 9]), weft::wire::MacAddr::BROADCAST] {
            let frame = crate::segment::with_macs(&tagged, dst, tor.peer(DOWN[0]));
            assert_eq!(tor.raw(DOWN[0], &frame), []);
        }
        assert_eq!(tor.drops(), [(DropReason::TagFromHost, 7)]);
        assert_eq!((tor.entries(), tor.counters()), (0, Default::default()));
    }
}

/// A packet to the rack's host, and what a ToR makes of it.
fn arrives(flow: Flow, tor: &mut Node, port: u8, tag: &str) -> Vec<Out> {
    tor.send(port, &with_tag(&flow.segment(SYN, &[], 0, 61), tag))
}

fn delivered(flow: Flow, tor: &Node) -> Out {
    goes(tor, DOWN[0], "", &flow.segment(SYN, &[], 0, 61))
}

#[test]
fn t7_a_request_is_answered_by_the_best_other_way_and_delivered_without_its_tag() {
    for flow in both(POD_1, HERE) {
        for (down, came, out, tag) in [
            // Request egress 1, 3; first pair 2, 4.
            ([4, 0], UP[0], UP[1], "88b5 86 30 14 24"),
            ([4, 0], UP[1], UP[0], "88b5 86 14 30 24"),
            // It came by the best.
            ([0, 7], UP[0], UP[1], "88b5 86 37 10 24"),
        ] {
            let mut tor = Node::new(TOR);
            tor.load_down(down);
            tor.load_up([6, 6]);
            let sent = arrives(flow, &mut tor, came, "88b5 04 13 24");
            assert_eq!(sent, [delivered(flow, &tor), says(&tor, out, tag, &flow.message(SYN))]);
            let counters = tor.counters();
            assert_eq!((counters.requests_down, counters.responses_sent, tor.entries()), (1, 1, 0));
        }
    }
}

#[test]
fn t7_the_response_has_no_options_no_data_and_right_checksums_whatever_the_request_had() {
    for flow in both(POD_1, HERE) {
        let mut tor = Node::new(TOR);
        // A segment in mid-flow with an option of 12 bytes, full of data.
        let options = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8];
        let packet = flow.segment(ACK, &options, 1400, 9);
        let sent = tor.send(UP[0], &with_tag(&packet, "88b5 04 00 00"));
        let message = says(&tor, UP[1], "88b5 86 00 00 00", &flow.message(ACK));
        assert_eq!(sent, [goes(&tor, DOWN[0], "", &packet), message]);
    }
}

#[test]
fn t8_without_another_uplink_that_works_the_request_is_delivered_and_answered_by_its_own_way_that_there_is_no_second() {
    for flow in both(POD_1, HERE) {
        let mut tor = Node::new(TOR);
        tor.set_up(UP[1], false);
        let only = says(&tor, UP[0], "88b5 86 ff 00 00", &flow.message(SYN));
        let sent = arrives(flow, &mut tor, UP[0], "88b5 04 00 00");
        assert_eq!(sent, [delivered(flow, &tor), only.clone()]);
        // The other one works, but not at its far end.
        tor.set_up(UP[1], true);
        let sent = arrives(flow, &mut tor, UP[0], "88b5 04 0f 00");
        assert_eq!(sent, [delivered(flow, &tor), only]);
        let counters = tor.counters();
        assert_eq!((counters.requests_down, counters.no_second, counters.responses_sent), (2, 2, 2));
        // Which its source takes for that: the flow stays.
        let mut source = Node::new(TOR);
        let back = flow.back();
        source.send(DOWN[0], &back.syn());
        let (port, _) = source.outport(&back.syn()).expect("an entry");
        source.send(port, &with_tag(&back.message(SYN), "88b5 88 ff 00 00 ff"));
        assert_eq!((source.counters().stayed, source.outport(&back.syn())), (1, Some((port, true))));
    }
}

#[test]
fn t9_the_flow_moves_to_the_second_way_only_if_its_worst_link_is_strictly_better() {
    for flow in both(HERE, POD_1) {
        // e2 i2, e1 i1, up1 down1, up2 down2.
        for (tag, moves) in [
            ("88b5 88 30 14 22 43", false), // 4 against 4
            ("88b5 88 30 15 22 43", true),  // 4 against 5
            ("88b5 88 30 10 25 43", true),
            ("88b5 88 30 10 52 43", true),
            ("88b5 88 30 50 22 43", true),
            ("88b5 88 50 14 22 43", false),
            ("88b5 88 05 14 22 43", false),
            ("88b5 88 30 14 22 50", false),
            ("88b5 88 30 14 22 05", false),
            // A failed link is worse than any load; with one on both ways the flow stays.
            ("88b5 88 77 1f 22 77", true),
            ("88b5 88 30 77 77 ff", false),
            ("88b5 88 30 ff 22 ff", false),
            // 8 to 14 say failed, too.
            ("88b5 88 30 77 77 08", false),
        ] {
            let mut tor = opened(flow);
            assert_eq!(tor.send(UP[1], &with_tag(&flow.message(SYN), tag)), []);
            let expected = if moves { (UP[1], Origin::Response) } else { (UP[0], Origin::Request) };
            let path = tor.path(&flow.syn()).expect("an entry");
            assert_eq!(((path.port.0, path.origin), path.valid), (expected, true), "{tag}");
            let counters = tor.counters();
            assert_eq!((counters.moved, counters.stayed), (u64::from(moves), u64::from(!moves)), "{tag}");
            assert_eq!(tor.send(DOWN[0], &flow.data(9)), [goes(&tor, expected.0, "", &flow.data(9))]);
            assert_eq!(tor.drops(), []);
        }
    }
}

#[test]
fn t9_a_response_makes_its_flow_live_on_whether_it_moves_or_not() {
    for flow in both(HERE, POD_1) {
        for tag in ["88b5 88 00 11 11 00", "88b5 88 11 00 00 11"] {
            let mut tor = opened(flow);
            // 1.000 s + 190 ms is in the tick after that of the SYN, + 290 ms in the one after that.
            tor.wait(190);
            tor.send(UP[1], &with_tag(&flow.message(SYN), tag));
            tor.wait(100);
            assert!(tor.path(&flow.syn()).is_some(), "{tag}");
        }
    }
}

#[test]
fn t9_a_flow_does_not_move_to_an_uplink_whose_hellos_have_stopped_though_the_response_came_by_it() {
    for flow in both(HERE, POD_1) {
        let mut tor = opened(flow);
        // The device is up: what comes in is taken.
        let live = PortMask(u64::MAX).without(PortId(UP[1]));
        tor.switch.ingress_mut().scheme_mut().set_live(live);
        tor.send(UP[1], &with_tag(&flow.message(SYN), "88b5 88 00 77 77 00"));
        assert_eq!(tor.outport(&flow.syn()), Some((UP[0], true)));
        assert_eq!((tor.counters().moved, tor.counters().stayed), (0, 1));
    }
}

#[test]
fn t10_a_response_about_a_flow_that_is_not_known_any_more_is_counted_and_changes_nothing() {
    for flow in both(HERE, POD_1) {
        let mut tor = opened(flow);
        let other = flow.port(40_001);
        assert_eq!(tor.send(UP[1], &with_tag(&other.message(SYN), "88b5 88 00 77 77 00")), []);
        assert_eq!((tor.outport(&other.syn()), tor.entries()), (None, 1));
        // 200 ms later no entry of 1.000 s is left.
        tor.wait(200);
        assert_eq!(tor.send(UP[1], &with_tag(&flow.message(SYN), "88b5 88 00 77 77 00")), []);
        assert_eq!((tor.outport(&flow.syn()), tor.entries()), (None, 0));
        assert_eq!(tor.counters().orphans, 2);
        assert_eq!(tor.drops(), [], "they were for this switch");
    }
}

#[test]
fn t11_a_choice_of_a_core_has_no_business_at_a_tor() {
    for flow in both(HERE, POD_1) {
        let mut tor = opened(flow);
        assert_eq!(tor.refuse(UP[0], &with_tag(&flow.message(SYN), "88b5 00")), DropReason::StrayTag);
        assert_eq!(tor.refuse(UP[0], &with_tag(&flow.back().syn(), "88b5 00")), DropReason::StrayTag);
        assert_eq!(tor.outport(&flow.syn()), Some((UP[0], true)));
    }
}

#[test]
fn t11_a_request_whose_numbers_do_not_fit_the_fabric_is_delivered_and_not_answered() {
    for flow in both(POD_1, HERE) {
        let mut tor = Node::new(TOR);
        // Two uplinks, and a pair: four metrics; without the pair from another pod, one uplink, three, 127.
        let long = format!("88b5 7f{}", " 00".repeat(64));
        for tag in ["88b5 02 00", "88b5 03 00 00", "88b5 05 00 00 00", "88b5 01 00", "88b5 06 00 00 00", &long] {
            let sent = arrives(flow, &mut tor, UP[0], tag);
            assert_eq!(sent, [delivered(flow, &tor)], "{tag}");
        }
        assert_eq!((tor.counters().requests_odd, tor.counters().responses_sent), (6, 0));
    }
}

#[test]
fn t11_a_response_of_any_other_length_is_dropped() {
    for flow in both(HERE, POD_1) {
        let mut tor = opened(flow);
        for n in (0..=127usize).filter(|n| ![2, 8].contains(n)) {
            let tag = format!("88b5 {:02x}{}", 0x80 | n, " 00".repeat(n.div_ceil(2)));
            assert_eq!(tor.refuse(UP[1], &with_tag(&flow.message(SYN), &tag)), DropReason::BadTag, "{n}");
        }
        assert_eq!(tor.outport(&flow.syn()), Some((UP[0], true)));
    }
}

#[test]
fn what_is_for_another_rack_is_not_taken_for_ours() {
    for flow in both(HERE, POD_1) {
        let mut tor = opened(flow);
        // A response about a flow of another rack.
        let other = Flow { from: (0, 0, 2), ..flow };
        let response = with_tag(&other.message(SYN), "88b5 88 00 77 77 00");
        assert_eq!(tor.refuse(UP[1], &response), DropReason::StrayTag);
        // A request that came down to the wrong ToR is not answered, and does not go up again.
        let request = other.back().syn();
        let out = tor.send(UP[1], &with_tag(&request, "88b5 04 00 00"));
        assert!(out.iter().all(|out| packets::icmp(&out.2).is_some()), "{out:?}");
        assert_eq!(tor.counters().responses_sent, 0);
        assert_eq!(tor.drops(), [(DropReason::StrayTag, 1), (DropReason::NoRoute, 1)]);
    }
}

#[test]
fn t12_what_comes_down_without_a_tag_is_delivered() {
    for flow in both(POD_1, HERE) {
        let mut tor = Node::new(TOR);
        let out = tor.send(UP[1], &flow.data(700));
        assert_eq!(out, [goes(&tor, DOWN[0], "", &flow.data(700))]);
        assert_eq!((tor.entries(), tor.counters()), (0, Default::default()));
    }
}

#[test]
fn a_load_is_of_whole_frames_with_their_tags_sent_and_received_and_falls_when_nothing_comes() {
    let [flow, _] = both(HERE, POD_1);
    let mut tor = Node::new(TOR);
    // 1,514 B each way; 20 of them are 30,280 B. The tag of the first takes 4 more: 30,284 B.
    for _ in 0..20 {
        tor.send(DOWN[0], &flow.data(1460));
    }
    for _ in 0..20 {
        tor.send(UP[0], &flow.back().data(1460));
    }
    // 966 B to the next eighth: a frame of 964 B and one of 60 B, then a request of its own flow sees it.
    tor.send(DOWN[0], &flow.data(964 - 54));
    assert_eq!(30_284 + 964, EIGHTH - 2);
    let probe = |tor: &mut Node, port: u16| tor.send(DOWN[0], &flow.port(port).syn())[0].1.clone();
    assert_eq!(probe(&mut tor, 1), "88b5 02 00");
    // That one was 64 B and went by uplink 0: both were 0.
    assert_eq!(probe(&mut tor, 2), "88b5 02 10");
    // Down 30,280 B: 0; one more makes 31,794 B.
    let answer = |tor: &mut Node| {
        let request = with_tag(&flow.back().syn(), "88b5 04 77 77");
        tor.send(UP[1], &request).into_iter().find(|out| !out.1.is_empty()).expect("a response").1
    };
    assert_eq!(answer(&mut tor), "88b5 86 70 70 77");
    tor.send(UP[0], &flow.back().data(1460));
    assert_eq!(answer(&mut tor), "88b5 86 71 70 77");
    // 0.9 of 31,794 B is below the eighth.
    tor.now = tor.now + 20_000;
    assert_eq!(answer(&mut tor), "88b5 86 70 70 77");
    assert_eq!(probe(&mut tor, 3), "88b5 02 00");
}
