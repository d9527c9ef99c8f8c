//! Rows A1 to A9 and C1: aggregation switches and cores. Flows go from the rack of `tor0-1` to that of `tor1-1`, by
//! `agg0-0` up and by `agg1-0` down.

use std::collections::BTreeSet;

use weft::counters::DropReason;
use weft::id::{PortId, PortMask};
use weft::pisa::pat::Origin;

use crate::packets;
use crate::rig::{DOWN, Node, UP};
use crate::segment::{ACK, Flow, SYN, both, with_tag};
use crate::tor::{goes, says};

const NEAR: &str = "agg0-0";
const FAR: &str = "agg1-0";
/// Of the rack of the flows, at either.
const RACK: u8 = DOWN[1];

fn flows() -> [Flow; 2] {
    both((0, 1, 2), (1, 1, 2))
}

/// The uplinks that the switch knows not to lead to some pod.
fn known(agg: &Node) -> Vec<PortMask> {
    agg.scheme().failures().rows(agg.now).map(|row| row.failed).collect()
}

#[test]
fn a1_a_request_on_its_way_up_gets_the_loads_of_the_uplinks_and_goes_by_hash() {
    for flow in flows() {
        let mut by = BTreeSet::new();
        for port in 1..=20 {
            let flow = flow.port(port);
            let mut agg = Node::new(NEAR);
            agg.load_up([4, 2]);
            agg.load_down([6, 6]);
            let out = agg.send(RACK, &with_tag(&flow.syn(), "88b5 02 13"));
            let up = out[0].0;
            assert_eq!(out, [goes(&agg, up, "88b5 04 13 42", &flow.syn())]);
            let path = agg.path(&flow.syn()).expect("an entry");
            assert_eq!((path.port.0, path.valid, path.origin), (up, false, Origin::Ecmp));
            assert_eq!((agg.entries(), agg.counters().requests_up), (1, 1));
            by.insert(up);
        }
        assert_eq!(by, UP.into(), "not by load, {flow:?}");
    }
}

#[test]
fn a1_whatever_the_tors_number_of_uplinks_is_the_loads_follow_theirs() {
    let [flow, _] = flows();
    let mut agg = Node::new(NEAR);
    agg.load_up([4, 2]);
    for (tag, longer) in [
        ("88b5 01 70", "88b5 03 74 20"),
        ("88b5 03 12 30", "88b5 05 12 34 20"),
        // An F of the paper, whatever the load beside it.
        ("88b5 02 1c", "88b5 04 1f 42"),
    ] {
        assert_eq!(agg.send(RACK, &with_tag(&flow.syn(), tag))[0].1, longer);
    }
    // NoC has seven bits: 126 and 2 more are too many. The request goes on, without.
    let out = agg.send(RACK, &with_tag(&flow.syn(), &format!("88b5 7e{}", " 00".repeat(63))));
    assert_eq!(out, [goes(&agg, out[0].0, "", &flow.syn())]);
    assert_eq!(agg.counters().untagged, 1);
}

#[test]
fn a2_what_stays_in_the_pod_goes_down_as_it_came() {
    for flow in both((0, 1, 2), (0, 0, 2)) {
        let mut agg = Node::new(NEAR);
        agg.load_up([4, 2]);
        let request = agg.send(RACK, &with_tag(&flow.syn(), "88b5 02 13"));
        assert_eq!(request, [goes(&agg, DOWN[0], "88b5 02 13", &flow.syn())]);
        let message = flow.message(SYN);
        let response = agg.send(DOWN[0], &with_tag(&message, "88b5 82 34"));
        assert_eq!(response, [goes(&agg, RACK, "88b5 82 34", &message)]);
        let data = agg.send(RACK, &flow.data(50));
        assert_eq!(data, [goes(&agg, DOWN[0], "", &flow.data(50))]);
        assert_eq!((agg.entries(), agg.counters()), (0, Default::default()));
    }
}

#[test]
fn a3_the_far_switch_chooses_the_core_tells_the_near_one_and_sends_the_pair_down() {
    for flow in flows() {
        for (up, down, best, tag) in [
            ("42", [3, 2], UP[1], "88b5 04 13 22"),
            ("45", [3, 2], UP[0], "88b5 04 13 43"),
            ("07", [5, 0], UP[0], "88b5 04 13 05"),
            // A tie: the lower number.
            ("52", [3, 5], UP[0], "88b5 04 13 53"),
            // One failed at the other end.
            ("f7", [0, 7], UP[1], "88b5 04 13 77"),
        ] {
            for came in UP {
                let mut agg = Node::new(FAR);
                agg.load_down(down);
                agg.load_up([7, 7]);
                let out = agg.send(came, &with_tag(&flow.syn(), &format!("88b5 04 13 {up}")));
                let choice = says(&agg, best, "88b5 00", &flow.message(SYN));
                assert_eq!(out, [goes(&agg, RACK, tag, &flow.syn()), choice]);
                let counters = agg.counters();
                assert_eq!((counters.requests_down, counters.choices_sent, agg.entries()), (1, 1, 0));
            }
        }
    }
}

#[test]
fn a3_an_uplink_that_is_down_at_the_far_switch_is_not_chosen() {
    for flow in flows() {
        let mut agg = Node::new(FAR);
        agg.set_up(UP[0], false);
        let out = agg.send(UP[1], &with_tag(&flow.syn(), "88b5 04 13 06"));
        let choice = says(&agg, UP[1], "88b5 00", &flow.message(SYN));
        assert_eq!(out, [goes(&agg, RACK, "88b5 04 13 60", &flow.syn()), choice]);
        // It is this pod's link, and the other pod's are sound.
        assert_eq!(known(&agg), []);
    }
}

#[test]
fn a4_if_no_core_works_at_both_ends_none_is_chosen_and_the_pair_says_so() {
    for flow in flows() {
        let mut agg = Node::new(FAR);
        let out = agg.send(UP[0], &with_tag(&flow.syn(), "88b5 04 13 ff"));
        assert_eq!(out, [goes(&agg, RACK, "88b5 04 13 ff", &flow.syn())]);
        assert_eq!(known(&agg), [PortMask::only(PortId(2)).with(PortId(3))]);
        // One failed there, the other here.
        let mut agg = Node::new(FAR);
        agg.set_up(UP[1], false);
        let out = agg.send(UP[0], &with_tag(&flow.syn(), "88b5 04 13 f0"));
        assert_eq!(out, [goes(&agg, RACK, "88b5 04 13 ff", &flow.syn())]);
        assert_eq!(known(&agg), [PortMask::only(PortId(2))]);
        let counters = agg.counters();
        assert_eq!((counters.requests_down, counters.no_second, counters.choices_sent), (1, 1, 0));
    }
}

#[test]
fn a5_a_choice_sets_the_path_to_the_core_it_came_by_and_ends_here() {
    for flow in flows() {
        for came in UP {
            let mut agg = Node::new(NEAR);
            agg.send(RACK, &with_tag(&flow.syn(), "88b5 02 00"));
            assert_eq!(agg.outport(&flow.syn()).map(|path| path.1), Some(false));
            // Twice: it may be there already.
            for _ in 0..2 {
                assert_eq!(agg.send(came, &with_tag(&flow.message(SYN), "88b5 00")), []);
                assert_eq!(agg.outport(&flow.syn()), Some((came, true)));
            }
            assert_eq!((agg.entries(), agg.counters().choices_taken), (1, 2));
            assert_eq!(agg.drops(), []);
            assert_eq!(agg.send(RACK, &flow.data(9)), [goes(&agg, came, "", &flow.data(9))]);
        }
    }
}

#[test]
fn a6_a_response_on_its_way_up_gets_the_loads_of_what_comes_down_and_goes_by_hash() {
    // The plane of the second way, in the pod that the flow goes to.
    for flow in flows() {
        let mut by = BTreeSet::new();
        for port in 1..=20 {
            let message = flow.port(port).message(SYN);
            let mut agg = Node::new("agg1-1");
            agg.load_down([3, 5]);
            agg.load_up([6, 6]);
            let out = agg.send(RACK, &with_tag(&message, "88b5 86 30 14 22"));
            let up = out[0].0;
            assert_eq!(out, [goes(&agg, up, "88b5 88 30 14 22 35", &message)]);
            assert_eq!((agg.entries(), agg.counters().responses_up), (0, 1));
            by.insert(up);
        }
        assert_eq!(by, UP.into(), "{flow:?}");
    }
}

#[test]
fn a7_the_second_way_is_completed_kept_and_told_to_the_tor() {
    for flow in flows() {
        for (up, down, best, tag) in [
            ([5, 4], "33", UP[1], "88b5 88 30 14 22 43"),
            ([2, 4], "33", UP[0], "88b5 88 30 14 22 23"),
            ([0, 0], "f1", UP[1], "88b5 88 30 14 22 01"),
            ([3, 1], "13", UP[0], "88b5 88 30 14 22 31"),
        ] {
            let mut agg = Node::new("agg0-1");
            agg.load_up(up);
            agg.load_down([7, 7]);
            let message = flow.message(SYN);
            for _ in 0..2 {
                let out = agg.send(UP[0], &with_tag(&message, &format!("88b5 88 30 14 22 {down}")));
                assert_eq!(out, [goes(&agg, RACK, tag, &message)]);
            }
            let path = agg.path(&flow.syn()).expect("an entry");
            assert_eq!((path.port.0, path.valid, path.origin), (best, true, Origin::Response));
            assert_eq!((agg.entries(), agg.counters().responses_down), (1, 2));
        }
    }
}

#[test]
fn a7_without_a_core_that_works_there_is_no_entry_and_the_tor_is_told() {
    for flow in flows() {
        let message = flow.message(SYN);
        let mut agg = Node::new("agg0-1");
        let out = agg.send(UP[0], &with_tag(&message, "88b5 88 00 77 77 ff"));
        assert_eq!(out, [goes(&agg, RACK, "88b5 88 00 77 77 ff", &message)]);
        agg.set_up(UP[1], false);
        let out = agg.send(UP[0], &with_tag(&message, "88b5 88 00 77 77 f0"));
        assert_eq!(out, [goes(&agg, RACK, "88b5 88 00 77 77 ff", &message)]);
        assert_eq!((agg.entries(), agg.counters().no_second), (0, 2));
    }
}

#[test]
fn a8_data_follows_the_entry_keeps_it_alive_and_without_one_goes_by_hash() {
    for flow in flows() {
        let mut agg = Node::new(NEAR);
        let by_hash = agg.send(RACK, &flow.data(50))[0].0;
        assert_eq!(agg.entries(), 0, "data opens nothing");
        let other = UP[usize::from(by_hash == UP[0])];
        agg.send(other, &with_tag(&flow.message(SYN), "88b5 00"));
        for _ in 0..5 {
            agg.wait(90);
            let out = agg.send(RACK, &flow.data(50));
            assert_eq!(out, [goes(&agg, other, "", &flow.data(50))]);
        }
        agg.wait(200);
        assert_eq!(agg.send(RACK, &flow.data(50))[0].0, by_hash);
    }
}

#[test]
fn a9_what_comes_down_without_a_tag_goes_to_its_rack() {
    for flow in flows() {
        let mut agg = Node::new(FAR);
        for packet in [flow.data(50), packets::udp(flow.ends(), 64, (1, 2), &[0; 40])] {
            let out = agg.send(UP[0], &packet);
            assert_eq!(out, [goes(&agg, RACK, "", &packet)]);
        }
        assert_eq!((agg.entries(), agg.counters()), (0, Default::default()));
    }
}

#[test]
fn c1_a_core_routes_what_has_a_tag_like_what_has_none_and_leaves_the_tag_alone() {
    for flow in flows() {
        let mut core = Node::new("core1");
        let message = flow.message(SYN);
        let long = format!("88b5 7f{} 70", " 12".repeat(63));
        // From pod 0 to pod 1, and back.
        for (tag, packet, from, to) in [
            ("", flow.syn(), 0, 1),
            ("88b5 04 13 42", flow.syn(), 0, 1),
            ("88b5 00", message.clone(), 1, 0),
            ("88b5 88 30 14 22 33", message, 1, 0),
            ("88b5 03 12 30", flow.segment(ACK, &[], 1460, 9), 0, 1),
            (&long, flow.syn(), 0, 1),
        ] {
            let frame = if tag.is_empty() { packet.clone() } else { with_tag(&packet, tag) };
            let out = core.send(from, &frame);
            assert_eq!(out, [goes(&core, to, tag, &packet)]);
        }
        assert_eq!((core.entries(), core.counters()), (0, Default::default()));
        assert_eq!(core.drops(), []);
    }
}

#[test]
fn messages_about_others_are_dropped_at_an_aggregation_switch() {
    for flow in flows() {
        let mut agg = Node::new(NEAR);
        // A choice from below, and one for a flow of another pod.
        let choice = with_tag(&flow.message(SYN), "88b5 00");
        assert_eq!(agg.refuse(RACK, &choice), DropReason::StrayTag);
        let other = Flow { from: (2, 0, 2), ..flow };
        assert_eq!(agg.refuse(UP[0], &with_tag(&other.message(SYN), "88b5 00")), DropReason::StrayTag);
        assert_eq!(agg.refuse(UP[0], &with_tag(&other.message(SYN), "88b5 88 00 00 00 00")), DropReason::StrayTag);
        // Responses of other lengths: eight metrics from above, six from below, two within the pod.
        for n in (0..=127usize).filter(|n| *n != 8) {
            let tag = format!("88b5 {:02x}{}", 0x80 | n, " 00".repeat(n.div_ceil(2)));
            assert_eq!(agg.refuse(UP[0], &with_tag(&flow.message(SYN), &tag)), DropReason::BadTag, "{n}");
        }
        for n in (0..=127usize).filter(|n| *n != 6) {
            let tag = format!("88b5 {:02x}{}", 0x80 | n, " 00".repeat(n.div_ceil(2)));
            let message = Flow { from: (1, 1, 2), to: (0, 1, 2), ..flow }.message(SYN);
            assert_eq!(agg.refuse(RACK, &with_tag(&message, &tag)), DropReason::BadTag, "{n}");
        }
        assert_eq!(agg.entries(), 0);
    }
}

#[test]
fn a_request_without_metrics_of_its_tor_goes_down_without_a_tag_and_is_not_answered() {
    for flow in flows() {
        let mut agg = Node::new(FAR);
        // Two of this tier's, and none of the ToR's; or less.
        for tag in ["88b5 01 00", "88b5 02 00"] {
            let out = agg.send(UP[0], &with_tag(&flow.syn(), tag));
            assert_eq!(out, [goes(&agg, RACK, "", &flow.syn())]);
        }
        assert_eq!((agg.counters().requests_odd, agg.counters().choices_sent), (2, 0));
        // Three: a ToR with one uplink, for all that is known here. The ToR there knows better (T11).
        let out = agg.send(UP[0], &with_tag(&flow.syn(), "88b5 03 50 00"));
        assert_eq!(out[0], goes(&agg, RACK, "88b5 03 50 00", &flow.syn()));
    }
}
