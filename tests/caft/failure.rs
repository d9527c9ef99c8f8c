//! Links that fail: what requests and responses say of them, what the failure table keeps of that, and which ways are
//! left out.

use std::collections::BTreeSet;

use weft::counters::DropReason;
use weft::dataplane::Dataplane;
use weft::id::{PortId, PortMask};
use weft::time::MILLIS;
use weft::units::Duration;

use crate::net::{Net, tags};
use crate::packets;
use crate::rig::{DOWN, Node, UP, options, tree};
use crate::segment::{Flow, SYN, both, with_tag};
use crate::tor::goes;

const FAR: &str = "agg1-0";
const RACK: u8 = DOWN[1];

fn flows() -> [Flow; 2] {
    both((0, 1, 2), (1, 1, 2))
}

/// What the table knows of pod 0: the one row that it has.
fn row(agg: &Node) -> PortMask {
    let rows: Vec<_> = agg.scheme().failures().rows(agg.now).collect();
    assert!(rows.len() <= 1, "{rows:?}");
    rows.first().map_or(PortMask::EMPTY, |row| row.failed)
}

fn ports(ports: &[u8]) -> PortMask {
    ports.iter().map(|port| PortId(*port)).collect()
}

/// The ports by which data to the flow's other end leaves, over many flows.
fn used(agg: &mut Node, from: u8, flow: Flow) -> BTreeSet<u8> {
    (1..=40).flat_map(|port| agg.send(from, &flow.port(port).data(30))).map(|out| out.0).collect()
}

#[test]
fn a_link_that_is_down_is_told_as_failed_in_both_directions() {
    for flow in flows() {
        // Up: by requests.
        let mut tor = Node::new("tor0-1");
        tor.load_up([1, 1]);
        tor.set_up(UP[0], false);
        assert_eq!(tor.send(DOWN[0], &flow.syn()), [goes(&tor, UP[1], "88b5 02 f1", &flow.syn())]);
        let mut agg = Node::new("agg0-0");
        agg.set_up(UP[1], false);
        let request = with_tag(&flow.syn(), "88b5 02 f1");
        assert_eq!(agg.send(RACK, &request), [goes(&agg, UP[0], "88b5 04 f1 0f", &flow.syn())]);
        // Down: by responses.
        let message = flow.message(SYN);
        let mut agg = Node::new("agg1-1");
        agg.set_up(UP[0], false);
        let response = with_tag(&message, "88b5 86 00 00 00");
        assert_eq!(agg.send(RACK, &response), [goes(&agg, UP[1], "88b5 88 00 00 00 f0", &message)]);
        // And the pair of one on which a request was still under way.
        let mut tor = Node::new("tor1-1");
        tor.set_up(UP[0], false);
        let out = tor.send(UP[1], &with_tag(&flow.syn(), "88b5 04 00 00"));
        let only = crate::tor::says(&tor, UP[1], "88b5 86 ff 00 00", &flow.message(SYN));
        assert_eq!(out, [goes(&tor, DOWN[0], "", &flow.syn()), only], "no other way back");
        // Up again, with the load that it had.
        let mut tor = Node::new("tor0-1");
        tor.load_up([1, 2]);
        tor.set_up(UP[0], false);
        tor.set_up(UP[0], true);
        assert_eq!(tor.send(DOWN[0], &flow.syn()), [goes(&tor, UP[0], "88b5 02 12", &flow.syn())]);
    }
}

#[test]
fn requests_and_responses_tell_of_failed_links_and_the_next_one_takes_it_back() {
    for flow in flows() {
        let back = Flow { from: flow.to, to: flow.from, ..flow };
        for (what, bad, good) in [
            ("request", with_tag(&flow.syn(), "88b5 04 00 f0"), with_tag(&flow.syn(), "88b5 04 00 00")),
            (
                "response",
                with_tag(&back.message(SYN), "88b5 88 00 00 00 f0"),
                with_tag(&back.message(SYN), "88b5 88 00 00 00 00"),
            ),
        ] {
            let mut agg = Node::new(FAR);
            assert_eq!(used(&mut agg, RACK, back), UP.into());
            agg.send(UP[1], &bad);
            assert_eq!(row(&agg), ports(&[UP[0]]), "{what}");
            assert_eq!(used(&mut agg, RACK, back), [UP[1]].into());
            // Each tells all: the other has failed now, and only that.
            let mut other = bad.clone();
            let at = if what == "request" { 16 } else { 18 };
            other[at] = 0x0f;
            agg.send(UP[1], &other);
            assert_eq!(row(&agg), ports(&[UP[1]]), "{what}");
            assert_eq!(used(&mut agg, RACK, back), [UP[0]].into());
            agg.send(UP[1], &good);
            assert_eq!(row(&agg), PortMask::EMPTY, "{what}");
            assert_eq!(used(&mut agg, RACK, back), UP.into());
        }
    }
}

#[test]
fn what_was_told_is_believed_for_ten_seconds() {
    for flow in flows() {
        let back = Flow { from: flow.to, to: flow.from, ..flow };
        let mut agg = Node::new(FAR);
        let told = agg.now;
        agg.send(UP[1], &with_tag(&flow.syn(), "88b5 04 00 f0"));
        agg.now = told + 10_000 * MILLIS;
        assert_eq!((row(&agg), used(&mut agg, RACK, back)), (ports(&[UP[0]]), [UP[1]].into()));
        agg.now = told + 10_000 * MILLIS + 1;
        assert_eq!((row(&agg), used(&mut agg, RACK, back)), (PortMask::EMPTY, UP.into()));
    }
}

#[test]
fn a_timeout_of_0_believes_for_ever() {
    let mut options = options();
    options.caft.failure_timeout = Duration(0);
    let [flow, _] = flows();
    let mut agg = Node::of(&tree(&options), FAR);
    agg.send(UP[1], &with_tag(&flow.syn(), "88b5 04 00 f0"));
    agg.wait(3_600_000);
    assert_eq!(row(&agg), ports(&[UP[0]]));
}

#[test]
fn a_failure_of_a_pod_is_none_of_other_pods_nor_of_its_own() {
    for flow in flows() {
        let mut agg = Node::new(FAR);
        agg.send(UP[1], &with_tag(&flow.syn(), "88b5 04 00 f0"));
        let from = |to| Flow { from: (1, 1, 2), to, ..flow };
        assert_eq!(used(&mut agg, RACK, from((2, 0, 2))), UP.into());
        assert_eq!(used(&mut agg, RACK, from((1, 0, 2))), [DOWN[0]].into());
        // What comes from its own pod by a core tells nothing of another.
        let mut agg = Node::new(FAR);
        let within = Flow { from: (1, 0, 2), ..flow };
        agg.send(UP[1], &with_tag(&within.syn(), "88b5 04 00 f0"));
        assert_eq!(row(&agg), PortMask::EMPTY);
    }
}

#[test]
fn a_flow_whose_uplink_does_not_lead_on_any_more_is_spread_anew_and_stays_there_when_it_does_again() {
    for flow in flows() {
        let mut agg = Node::new("agg0-0");
        // Pod 1 says that its link to core 0 has failed; then the agg's own is down.
        let told = with_tag(&flow.back().syn(), "88b5 04 00 f0");
        let sound = with_tag(&flow.back().syn(), "88b5 04 00 00");
        for failure in ["table", "link"] {
            agg.send(UP[0], &with_tag(&flow.message(SYN), "88b5 00"));
            assert_eq!(agg.outport(&flow.syn()), Some((UP[0], true)));
            match failure {
                "table" => drop(agg.send(UP[1], &told)),
                _ => agg.set_up(UP[0], false),
            }
            assert_eq!(agg.send(RACK, &flow.data(9)), [goes(&agg, UP[1], "", &flow.data(9))], "{failure}");
            assert_eq!(agg.outport(&flow.syn()), Some((UP[1], true)), "{failure}");
            agg.send(UP[1], &sound);
            agg.set_up(UP[0], true);
            assert_eq!(agg.send(RACK, &flow.data(9)), [goes(&agg, UP[1], "", &flow.data(9))], "until a choice says so");
        }
    }
}

#[test]
fn a_flow_whose_tor_has_lost_the_uplink_looks_for_a_new_way() {
    for flow in flows() {
        let mut tor = Node::new("tor0-1");
        tor.send(DOWN[0], &flow.syn());
        tor.set_up(UP[0], false);
        assert_eq!(tor.send(DOWN[0], &flow.data(9)), [goes(&tor, UP[1], "88b5 02 f0", &flow.data(9))]);
        assert_eq!((tor.outport(&flow.syn()), tor.counters().requests), (Some((UP[1], true)), 2));
        // No uplink at all: the sender is told.
        tor.set_up(UP[1], false);
        let out = tor.send(DOWN[0], &flow.data(9));
        let icmp = packets::icmp(&out[0].2).expect("ICMP");
        assert_eq!((out.len(), icmp.kind, icmp.code), (1, if flow.v6 { 1 } else { 3 }, 0));
        assert_eq!((tor.drops(), tor.counters().no_path), (vec![(DropReason::EmptyGroup, 1)], 1));
    }
}

#[test]
fn without_any_core_that_leads_to_the_pod_packets_are_dropped_and_counted_and_no_host_is_told() {
    for flow in flows() {
        let back = Flow { from: flow.to, to: flow.from, ..flow };
        for own in [false, true] {
            let mut agg = Node::new(FAR);
            // All of the other pod's links, or one of these and the other here.
            agg.send(UP[1], &with_tag(&flow.syn(), if own { "88b5 04 00 f0" } else { "88b5 04 00 ff" }));
            if own {
                agg.set_up(UP[1], false);
            }
            // Who is told while a connection is opened gives it up, instead of trying again by another switch.
            assert_eq!(agg.send(RACK, &back.data(30)), []);
            assert_eq!(agg.send(RACK, &with_tag(&back.syn(), "88b5 02 00")), []);
            let response = with_tag(&flow.message(SYN), "88b5 86 00 00 00");
            assert_eq!(agg.send(RACK, &response), []);
            assert_eq!(agg.counters().no_path, 3);
            assert_eq!(
                (agg.drops(), agg.entries()),
                (vec![(DropReason::EmptyGroup, 2), (DropReason::LostMessage, 1)], 0)
            );
            // UDP by the same rule.
            assert_eq!(agg.send(RACK, &packets::udp(back.ends(), 64, (1, 2), &[0; 40])), []);
            assert_eq!(agg.counters().no_path, 4);
        }
    }
}

#[test]
fn an_uplink_that_is_removed_counts_as_failed_and_keeps_its_number_for_the_next() {
    for flow in flows() {
        let mut agg = Node::new("agg0-0");
        agg.load_up([3, 2]);
        agg.remove(UP[0]);
        let request = with_tag(&flow.syn(), "88b5 02 00");
        assert_eq!(agg.send(RACK, &request), [goes(&agg, UP[1], "88b5 04 00 f2", &flow.syn())]);
        agg.describe(UP[0], true);
        assert!(agg.send(RACK, &request)[0].1.starts_with("88b5 04 00 02"), "what it counted was of another link");
        // What was said of it is forgotten with it.
        let mut agg = Node::new(FAR);
        agg.send(UP[1], &with_tag(&flow.syn(), "88b5 04 00 f0"));
        agg.remove(UP[0]);
        agg.describe(UP[0], true);
        assert_eq!(row(&agg), PortMask::EMPTY);
    }
}

#[test]
fn a_link_whose_hellos_have_stopped_counts_as_failed() {
    let mut options = options();
    options.hello_interval = Duration(10 * MILLIS);
    let fabric = tree(&options);
    for flow in flows() {
        let mut tor = Node::of(&fabric, "tor0-1");
        let mut peers = [Node::of(&fabric, "agg0-0"), Node::of(&fabric, "agg0-1")];
        // Both of them speak, then only the second.
        for i in 0..40 {
            tor.wait(5);
            tor.switch.tick(tor.now, &mut tor.pool);
            let said = tor.leave();
            for (up, peer) in UP.into_iter().zip(&mut peers) {
                peer.wait(5);
                said.iter().filter(|(port, _)| *port == up).for_each(|(_, frame)| drop(peer.raw(RACK, frame)));
                peer.switch.tick(peer.now, &mut peer.pool);
                for (port, frame) in peer.leave() {
                    if port == RACK && (i < 20 || up == UP[1]) {
                        tor.raw(up, &frame);
                    }
                }
            }
            if i == 19 {
                assert_eq!(Dataplane::live(&tor.switch), ports(&[0, 1, 2, 3]));
            }
        }
        assert_eq!(Dataplane::live(&tor.switch), ports(&[0, 1, 3]));
        assert!(tor.switch.is_port_up(PortId(UP[0])), "the device is up");
        let out = tor.send(DOWN[0], &flow.syn());
        assert_eq!(out.last(), Some(&goes(&tor, UP[1], "88b5 02 f0", &flow.syn())));
    }
}

#[test]
fn with_a_link_down_that_a_way_leads_round_every_flow_gets_through_once_both_pods_have_heard() {
    // Not the links of the far rack: below the core there is one way only, and no tag tells a ToR of those.
    let fabric = tree(&options());
    let links: Vec<_> = fabric.links.iter().filter(|link| !link.a.node.starts_with('h')).cloned().collect();
    let [flow, _] = flows();
    for link in links.iter().filter(|link| ["tor0-1", "agg0-0", "agg1-0", "agg1-1"].contains(&&*link.a.node)) {
        let mut net = Net::whole();
        for end in [&link.a, &link.b] {
            let node = net.node(&end.node);
            let port = node.config.ports.iter().position(|p| p.interface == end.interface);
            node.set_up(port.expect("a port") as u8, false);
        }
        for port in 1..=12 {
            // Both ends speak, so that both pods hear.
            net.send("h0-1-2", &flow.port(port).syn());
            net.send("h1-1-2", &flow.back().port(port).syn());
        }
        for port in 101..=120 {
            let lines = tags(&net.send("h0-1-2", &flow.port(port).syn()));
            assert!(lines.contains(&"tor1-1 h1-1-2".into()), "{} {}: {lines:?}", link.a.node, link.b.node);
        }
    }
}

#[test]
fn a_tor_learns_from_a_request_in_vain_that_a_plane_has_lost_a_pod() {
    // A blind spot of the protocol: the idle uplink looks best (6i).
    for flow in flows() {
        let mut net = Net::whole();
        UP.into_iter().for_each(|port| net.node("agg0-0").set_up(port, false));
        assert_eq!(tags(&net.send("h0-1-2", &flow.syn())), ["tor0-1 agg0-0 88b5 02 00"]);
        assert_eq!(net.node("agg0-0").counters().no_path, 1);
        net.wait(1000);
        let again = tags(&net.send("h0-1-2", &flow.syn()));
        assert!(again.contains(&"tor1-1 h1-1-2".into()), "{again:?}");
        // The next flow to that host knows, also one that is no TCP; those to others have yet to find out.
        assert_eq!(tags(&net.send("h0-1-2", &flow.port(7).syn()))[0], "tor0-1 agg0-1 88b5 02 00");
        for port in 1..=20 {
            let udp = packets::udp(flow.ends(), 64, (port, 2), &[0; 40]);
            assert_eq!(tags(&net.send("h0-1-2", &udp))[0], "tor0-1 agg0-1");
        }
        let other = Flow { to: (1, 1, 3), ..flow };
        assert_eq!(tags(&net.send("h0-1-2", &other.syn()))[0], "tor0-1 agg0-0 88b5 02 00");
        // Something that comes that way ends the doubt.
        UP.into_iter().for_each(|port| net.node("agg0-0").set_up(port, true));
        let back = tags(&net.send("h1-1-2", &flow.back().syn()));
        assert!(back.contains(&"agg0-0 tor0-1 88b5 04 00 00".into()), "{back:?}");
        assert_eq!(tags(&net.send("h0-1-2", &flow.port(8).syn()))[0], "tor0-1 agg0-0 88b5 02 00");
    }
}

#[test]
fn an_answer_by_an_uplink_that_nothing_has_come_by_is_given_by_the_request_s_own_too() {
    for flow in flows() {
        let mut tor = Node::new("tor1-1");
        let request = with_tag(&flow.syn(), "88b5 04 00 00");
        let second = |tor: &Node| crate::tor::says(tor, UP[1], "88b5 86 00 00 00", &flow.message(SYN));
        let only = |tor: &Node| crate::tor::says(tor, UP[0], "88b5 86 ff 00 00", &flow.message(SYN));
        let delivered = |tor: &Node| goes(tor, DOWN[0], "", &flow.syn());
        assert_eq!(tor.send(UP[0], &request), [delivered(&tor), second(&tor)], "the first time");
        tor.wait(99);
        assert_eq!(tor.send(UP[0], &request), [delivered(&tor), second(&tor)], "something may be under way");
        tor.wait(1);
        assert_eq!(tor.send(UP[0], &request), [delivered(&tor), only(&tor), second(&tor)]);
        // Of another host, and of this one.
        let other = Flow { from: (0, 1, 3), ..flow };
        tor.send(UP[1], &with_tag(&other.syn(), "88b5 04 00 00"));
        assert_eq!(tor.send(UP[0], &request), [delivered(&tor), only(&tor), second(&tor)]);
        tor.send(UP[1], &with_tag(&flow.port(9).syn(), "88b5 04 00 00"));
        assert_eq!(tor.send(UP[0], &request), [delivered(&tor), second(&tor)]);
    }
}

#[test]
fn a_request_in_vain_by_one_core_is_followed_by_one_by_another() {
    for flow in flows() {
        let mut agg = Node::new("agg0-0");
        let mut by = || {
            let out = agg.send(DOWN[0], &with_tag(&flow.syn(), "88b5 02 00"));
            assert_eq!(out.len(), 1);
            out[0].0
        };
        let (first, second, third) = (by(), by(), by());
        assert_eq!((first == second, first == third), (false, true));
        // Told of a core, the flow is not in doubt: by its hash again.
        agg.send(first, &with_tag(&flow.message(SYN), "88b5 00"));
        let mut fresh = Node::new("agg0-0");
        let request = with_tag(&flow.syn(), "88b5 02 00");
        assert_eq!(agg.send(DOWN[0], &request)[0].0, fresh.send(DOWN[0], &request)[0].0);
    }
}

#[test]
fn requests_in_vain_try_every_uplink_in_turn() {
    let fabric = weft::topo::Fabric::fat_tree(8, &crate::rig::options()).expect("a fabric");
    let flow = Flow { from: (0, 1, 2), to: (1, 1, 2), ports: (40000, 80), v6: false };
    let mut tor = Node::of(&fabric, "tor0-1");
    let mut agg = Node::of(&fabric, "agg0-0");
    let ups = |node: &Node| -> BTreeSet<u8> {
        let ports = node.config.ports.iter().enumerate();
        ports.filter(|(_, port)| port.kind == weft::id::PortKind::Up).map(|(i, _)| i as u8).collect()
    };
    let mut tried: Vec<u8> = vec![];
    for _ in 0..8 {
        tried.push(tor.send(0, &flow.syn())[0].0);
        tor.now = tor.now + 1_000_000_000;
    }
    assert_eq!(tried[..4].iter().copied().collect::<BTreeSet<_>>(), ups(&tor), "{tried:?}");
    assert_eq!(tried[..4], tried[4..]);
    let request = with_tag(&flow.syn(), "88b5 04 00 00");
    let tried: Vec<u8> = (0..8).map(|_| agg.send(0, &request)[0].0).collect();
    assert_eq!(tried[..4].iter().copied().collect::<BTreeSet<_>>(), ups(&agg), "{tried:?}");
}

#[test]
fn of_the_only_uplink_to_a_rack_the_core_that_was_chosen_stays() {
    use weft::topo::{LinkChange, LinkException, Shape};
    let except = vec![LinkException { a: "tor1-1".into(), b: "agg1-0".into(), change: LinkChange::Absent }];
    let fabric = Shape::FatTree { k: 4 }.build_with(&options(), &except).expect("a fabric");
    let names: Vec<String> = fabric.switches.iter().map(|s| s.name().into()).collect();
    let mut net = Net::of(&fabric, &names.iter().map(String::as_str).collect::<Vec<_>>());
    for flow in both((0, 0, 2), (1, 1, 2)) {
        for (host, answer, agg, f) in [
            ("h0-0-2", "agg0-1 tor0-0 88b5 88 ff 00 00 00", "agg0-1", flow),
            ("h1-1-2", "agg1-1 tor1-1 88b5 88 ff 00 00 00", "agg1-1", flow.back()),
        ] {
            let lines = tags(&net.send(host, &f.syn()));
            assert_eq!(lines.last().map(String::as_str), Some(answer), "{lines:?}");
            let path = net.node(agg).path(&f.syn()).expect("a path");
            assert_eq!((path.valid, path.origin), (true, weft::pisa::pat::Origin::Request));
        }
    }
}
