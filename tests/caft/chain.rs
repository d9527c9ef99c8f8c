//! The paper's worked example: a flow from t(1,2) to t(2,2), from switch to switch, every frame byte for byte.

use weft::pisa::pat::Origin;
use weft::wire::caft::Metric;

use crate::net::{Hop, Net, tags};
use crate::packets;
use crate::rig::{UP, options, tree};
use crate::segment::{Flow, SYN, apart, both, with_macs};

const FROM: &str = "h0-1-2";
const TO: &str = "h1-1-2";

/// The switches that its packets may pass.
const SWITCHES: [&str; 10] =
    ["tor0-1", "agg0-0", "agg0-1", "agg1-0", "agg1-1", "tor1-1", "core0", "core1", "core2", "core3"];

/// The loads of the example.
fn net() -> Net {
    let mut net = Net::of(&tree(&options()), &SWITCHES);
    net.node("tor0-1").load_up([1, 3]);
    net.node("agg0-0").load_up([4, 2]);
    net.node("agg1-0").load_down([3, 2]);
    net.node("tor1-1").load_down([4, 0]);
    net.node("agg1-1").load_down([3, 3]);
    net.node("agg0-1").load_up([5, 4]);
    net
}

fn flows() -> [Flow; 2] {
    both((0, 1, 2), (1, 1, 2))
}

/// The flow of those that differ in their source port alone which leaves the first and second aggregation switch by
/// these uplinks: SYN and M2, whose addresses are the other way round, are spread by hash there.
fn flow_by(net: &mut Net, flow: Flow, syn: u8, response: u8) -> Flow {
    let pick = |net: &mut Net, at: &str, frame: &[u8]| 2 + (net.node(at).flow(frame) >> 63) as u8;
    (40_000..40_100)
        .map(|port| flow.port(port))
        .find(|f| pick(net, "agg0-0", &f.syn()) == syn && pick(net, "agg1-1", &f.message(SYN)) == response)
        .expect("one of a hundred flows")
}

/// The frames of `hops` with a tag, as the links that they took and the tag; checked to be the SYN or, where addresses
/// are swapped, the message about it, with a hop less at each switch and the link's addresses.
fn example(net: &mut Net, flow: Flow, hops: &[Hop]) -> Vec<String> {
    for hop in hops {
        let (tag, frame) = apart(&hop.frame);
        let message = tag.starts_with("88b5 00") || tag.starts_with("88b5 8");
        // Both start with TTL 64; a message leaves the switch that makes it with that, the SYN its host.
        let (start, first) = match &*tag {
            "88b5 00" => (flow.message(SYN), "agg1-0"),
            _ if message => (flow.message(SYN), "tor1-1"),
            _ => (flow.syn(), FROM),
        };
        let way: &[&str] = match (message, first) {
            (true, "agg1-0") => &["agg1-0", "core", "agg0-0"],
            (true, _) => &["tor1-1", "agg1-1", "core", "agg0-1", "tor0-1"],
            _ => &[FROM, "tor0-1", "agg0-0", "core", "agg1-0", "tor1-1", TO],
        };
        let at = way.iter().position(|name| hop.from.starts_with(name)).expect("on its way");
        assert!(hop.to.starts_with(way[at + 1]), "{hop:?}");
        let mut expected = start;
        for _ in 0..at {
            expected = packets::routed(&expected, Default::default(), Default::default());
        }
        let src = net.node(&hop.from).config.mac;
        let dst = match hop.to.starts_with('h') {
            true => weft::topo::address::host_mac(1, 1, 2),
            false => net.node(&hop.to).config.mac,
        };
        let expected = crate::segment::trimmed(&with_macs(&expected, dst, src));
        assert_eq!(frame, expected, "{} to {} with {tag}", hop.from, hop.to);
    }
    tags(hops)
}

fn core(plane: u8, uplink: u8) -> String {
    format!("core{}", 2 * plane + uplink - 2)
}

#[test]
fn the_worked_example_gives_the_tags_of_the_paper_byte_for_byte_whatever_cores_the_hash_picks() {
    for flow in flows() {
        for (syn, response) in [(2, 2), (2, 3), (3, 2), (3, 3)] {
            let mut net = net();
            let flow = flow_by(&mut net, flow, syn, response);
            let hops = net.send(FROM, &flow.syn());
            let (up, back) = (core(0, syn), core(1, response));
            let mut got = example(&mut net, flow, &hops);
            let mut expected = [
                "tor0-1 agg0-0 88b5 02 13".to_string(),
                format!("agg0-0 {up} 88b5 04 13 42"),
                format!("{up} agg1-0 88b5 04 13 42"),
                "agg1-0 core1 88b5 00".into(),
                "core1 agg0-0 88b5 00".into(),
                "agg1-0 tor1-1 88b5 04 13 22".into(),
                "tor1-1 agg1-1 88b5 86 30 14 22".into(),
                format!("tor1-1 {TO}"),
                format!("agg1-1 {back} 88b5 88 30 14 22 33"),
                format!("{back} agg0-1 88b5 88 30 14 22 33"),
                "agg0-1 tor0-1 88b5 88 30 14 22 43".into(),
            ];
            if (syn, response) == (2, 2) {
                println!("{} from {FROM} to {TO}:\n  {}", if flow.v6 { "IPv6" } else { "IPv4" }, got.join("\n  "));
            }
            got.sort();
            expected.sort();
            assert_eq!(got, expected);
            assert_paths(&mut net, flow, (UP[0], Origin::Request));

            let decisions: Vec<_> = net.node("tor0-1").scheme().decisions().iter().copied().collect();
            let [decision] = &decisions[..] else { panic!("one decision: {decisions:?}") };
            let metrics = |loads: [u8; 4]| loads.map(|load| Some(Metric::load(load)));
            let first = decision.first;
            assert_eq!((first.uplink, first.metrics), (0, metrics([1, 2, 2, 4])));
            assert_eq!((decision.second.uplink, decision.second.metrics), (1, metrics([3, 4, 3, 0])));
            assert!(!decision.moved, "4 against 4 is no reason to move");
            assert_eq!(decision.ends.map(|end| end.0), [flow.ends().src, flow.ends().dst]);
            assert_eq!(decision.ends.map(|end| end.1), [flow.ports.0, 80]);
        }
    }
}

/// The entries that the example leaves: the ToR's, those of both aggregation switches of pod 0 by uplink 1, and no
/// others.
fn assert_paths(net: &mut Net, flow: Flow, tor: (u8, Origin)) {
    let found = |net: &mut Net, at: &str| net.node(at).path(&flow.syn()).map(|p| (p.port.0, p.valid, p.origin));
    assert_eq!(found(net, "tor0-1"), Some((tor.0, true, tor.1)));
    assert_eq!(found(net, "agg0-0"), Some((UP[1], true, Origin::Request)));
    assert_eq!(found(net, "agg0-1"), Some((UP[1], true, Origin::Response)));
    for at in SWITCHES {
        let expected = usize::from(["tor0-1", "agg0-0", "agg0-1"].contains(&at));
        assert_eq!(net.node(at).entries(), expected, "entries at {at}");
    }
}

#[test]
fn after_the_example_data_takes_the_way_that_was_found_without_a_tag() {
    for flow in flows() {
        let mut net = net();
        net.send(FROM, &flow.syn());
        let hops = net.send(FROM, &flow.data(1000));
        let way = ["tor0-1 agg0-0", "agg0-0 core1", "core1 agg1-0", "agg1-0 tor1-1", "tor1-1 h1-1-2"];
        assert_eq!(tags(&hops), way);
    }
}

/// Runs the example with other loads or links; the tags that went over any link but for the ones that the hash picks.
fn variant(flow: Flow, change: impl FnOnce(&mut Net)) -> (Net, Vec<String>) {
    let mut net = net();
    change(&mut net);
    let hops = net.send(FROM, &flow.syn());
    let got = example(&mut net, flow, &hops);
    (net, got)
}

fn has(got: &[String], lines: &[&str]) {
    for line in lines {
        assert!(got.iter().any(|l| l == line), "{line} is not in {got:#?}");
    }
}

#[test]
fn with_5_on_the_link_to_core_1_the_far_aggregation_switch_takes_core_0() {
    for flow in flows() {
        // 3 more eighths: 5 on c12.
        let (mut net, got) = variant(flow, |net| net.node("agg0-0").load_up([0, 3]));
        // max(4, 3) against max(5, 2).
        has(&got, &["agg1-0 core0 88b5 00", "agg1-0 tor1-1 88b5 04 13 43", "tor1-1 agg1-1 88b5 86 30 14 43"]);
        has(&got, &["agg0-1 tor0-1 88b5 88 30 14 43 43"]);
        // {1, 4, 3, 4} against {3, 4, 3, 0}: still 4 against 4.
        assert_eq!(net.node("tor0-1").outport(&flow.syn()), Some((UP[0], true)));
        assert_eq!(net.node("agg0-0").outport(&flow.syn()), Some((UP[0], true)));
    }
}

#[test]
fn with_5_on_the_last_link_of_the_first_way_the_flow_moves_to_the_second() {
    for flow in flows() {
        let (mut net, got) = variant(flow, |net| net.node("tor1-1").load_down([1, 0]));
        // max(1, 5) against max(3, 0).
        has(&got, &["tor1-1 agg1-1 88b5 86 30 15 22", "agg0-1 tor0-1 88b5 88 30 15 22 43"]);
        // {1, 2, 2, 5} against {3, 4, 3, 0}.
        assert_paths(&mut net, flow, (UP[1], Origin::Response));
        assert_eq!(net.node("tor0-1").counters().moved, 1);
        let hops = net.send(FROM, &flow.data(1000));
        let way = ["tor0-1 agg0-1", "agg0-1 core3", "core3 agg1-1", "agg1-1 tor1-1", "tor1-1 h1-1-2"];
        assert_eq!(tags(&hops), way);
    }
}

#[test]
fn the_response_never_goes_by_the_aggregation_switch_that_the_request_came_by() {
    for flow in flows() {
        // Ingress of t(2,2) [1, 7]: without the 4 of the example.
        let mut net = Net::of(&tree(&options()), &SWITCHES);
        net.node("tor0-1").load_up([1, 3]);
        net.node("agg0-0").load_up([4, 2]);
        net.node("agg1-0").load_down([3, 2]);
        net.node("tor1-1").load_down([1, 7]);
        net.node("agg1-1").load_down([3, 3]);
        net.node("agg0-1").load_up([5, 4]);
        let hops = net.send(FROM, &flow.syn());
        let got = example(&mut net, flow, &hops);
        has(&got, &["tor1-1 agg1-1 88b5 86 37 11 22", "agg0-1 tor0-1 88b5 88 37 11 22 43"]);
        // {1, 2, 2, 1} against {3, 4, 3, 7}.
        assert_paths(&mut net, flow, (UP[0], Origin::Request));
    }
}

#[test]
fn with_the_link_to_core_0_down_the_request_says_so_and_core_1_is_taken() {
    for flow in flows() {
        for port in 0..20 {
            let flow = flow.port(40_000 + port);
            let (mut net, got) = variant(flow, |net| net.node("agg0-0").set_up(UP[0], false));
            // Whatever the hash says.
            has(&got, &["agg0-0 core1 88b5 04 13 f2", "core1 agg1-0 88b5 04 13 f2"]);
            has(&got, &["agg1-0 core1 88b5 00", "agg1-0 tor1-1 88b5 04 13 22", "tor1-1 agg1-1 88b5 86 30 14 22"]);
            let agg = net.node("agg1-0");
            let rows: Vec<_> = agg.scheme().failures().rows(agg.now).map(|row| row.failed).collect();
            assert_eq!(rows, [weft::id::PortMask::only(weft::id::PortId(UP[0]))], "core 0 does not lead to pod 0");
        }
    }
}

#[test]
fn after_it_has_heard_of_the_failure_the_far_switch_sends_nothing_to_the_pod_by_that_core() {
    for flow in flows() {
        let mut net = net();
        net.node("agg0-0").set_up(UP[0], false);
        net.send(FROM, &flow.syn());
        // The paper's t(2,3) -> t(1,3), in a pod with two ToRs: another ToR of each.
        let back = Flow { from: (1, 0, 2), to: (0, 0, 2), ..flow };
        let hashes: std::collections::BTreeSet<u64> = (1..=200)
            .map(|port| {
                let (flow, agg) = (back.port(port), net.node("agg1-0"));
                for packet in [flow.syn(), flow.data(10)] {
                    let out = agg.send(0, &packet);
                    assert_eq!(out, [(UP[1], String::new(), agg.passed(UP[1], &packet))]);
                }
                let request = crate::segment::with_tag(&flow.syn(), "88b5 02 00");
                let out = agg.send(0, &request);
                // What it sends adds up on the way.
                assert!(matches!(&out[..], [(3, tag, _)] if tag.starts_with("88b5 04 00 0")), "{out:?}");
                agg.flow(&flow.syn()) >> 60
            })
            .collect();
        assert_eq!(hashes.len(), 16, "not all hash values were tried");
        // Pod 2 is not concerned.
        let other = Flow { to: (2, 0, 2), ..back };
        let agg = net.node("agg1-0");
        let ports: std::collections::BTreeSet<u8> =
            (1..=50).map(|port| agg.send(0, &other.port(port).data(10))[0].0).collect();
        assert_eq!(ports, UP.into());
    }
}
