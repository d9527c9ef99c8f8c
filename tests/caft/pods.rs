//! Flows from end to end where the rows leave off: within a pod, repeated, lost and late, both ways, and in each
//! other's slot (6a to 6g of the rules).

use weft::counters::DropReason;
use weft::dataplane;
use weft::fabric::clos::{Clos, ClosEgress, Sent};
use weft::fabric::{Fabric, FabricEgress, FabricIngress, Handled, Scheme, SchemeEgress, SchemeIngress};
use weft::frame::{Burst, Frame, Pool};
use weft::id::{PortId, PortKind, PortMask};
use weft::pisa::table::Group;
use weft::pisa::{Context, Meta, Pipe, Queue, Switch};
use weft::time::{Instant, SECONDS};

use crate::net::{Hop, Net, tags};
use crate::packets;
use crate::rig::{DOWN, Node, UP, has_tag, options, tree};
use crate::segment::{ACK, Flow, SYN, apart, both, with_macs, with_tag};
use crate::tor::goes;

const FROM: &str = "h0-1-2";

/// The links that frames without a tag took.
fn way(hops: &[Hop]) -> Vec<String> {
    hops.iter().filter(|hop| !has_tag(&hop.frame)).map(|hop| format!("{} {}", hop.from, hop.to)).collect()
}

fn between_pods() -> [Flow; 2] {
    both((0, 1, 2), (1, 1, 2))
}

#[test]
fn within_a_pod_the_far_tor_answers_by_the_best_way_of_all_and_the_flow_takes_that() {
    for flow in both((0, 1, 2), (0, 0, 2)) {
        for (ingress, agg, pair, port) in [([4, 0], "agg0-1", "30", UP[1]), ([0, 7], "agg0-0", "10", UP[0])] {
            let mut net = Net::of(&tree(&options()), &["tor0-0", "tor0-1", "agg0-0", "agg0-1"]);
            net.node("tor0-1").load_up([1, 3]);
            net.node("tor0-0").load_down(ingress);
            let hops = net.send(FROM, &flow.syn());
            let mut expected = [
                "tor0-1 agg0-0 88b5 02 13".to_string(),
                "agg0-0 tor0-0 88b5 02 13".into(),
                "tor0-0 h0-0-2".into(),
                format!("tor0-0 {agg} 88b5 82 {pair}"),
                format!("{agg} tor0-1 88b5 82 {pair}"),
            ];
            let mut got = tags(&hops);
            got.sort();
            expected.sort();
            assert_eq!(got, expected);
            assert_eq!(net.node("tor0-1").outport(&flow.syn()), Some((port, true)));
            let hops = net.send(FROM, &flow.data(1000));
            assert_eq!(tags(&hops), [format!("tor0-1 {agg}"), format!("{agg} tor0-0"), "tor0-0 h0-0-2".into()]);
            for (name, entries) in [("tor0-0", 0), ("agg0-0", 0), ("agg0-1", 0), ("tor0-1", 1)] {
                assert_eq!(net.node(name).entries(), entries, "{name}");
            }
        }
    }
}

#[test]
fn a_request_within_the_pod_that_came_by_the_only_uplink_that_works_is_answered_by_it() {
    for flow in both((0, 1, 2), (0, 0, 2)) {
        let mut net = Net::of(&tree(&options()), &["tor0-0", "tor0-1", "agg0-0", "agg0-1"]);
        net.node("tor0-0").set_up(UP[1], false);
        assert!(tags(&net.send(FROM, &flow.syn())).contains(&"agg0-0 tor0-1 88b5 82 00".to_string()));
    }
}

#[test]
fn a_syn_sent_again_goes_plainly_while_the_entry_lives_and_is_a_new_request_after() {
    for flow in between_pods() {
        let mut net = Net::whole();
        net.send(FROM, &flow.syn());
        // The entry of 1.000 s lives until 1.200 s.
        net.wait(150);
        let again = net.send(FROM, &flow.syn());
        assert_eq!(way(&again).len(), again.len(), "no tag: {:?}", tags(&again));
        assert_eq!(net.node("tor0-1").counters().requests, 1);
        // The timer of Linux: 1 s.
        net.wait(1000);
        assert_eq!(net.node("tor0-1").outport(&flow.syn()), None);
        let again = tags(&net.send(FROM, &flow.syn()));
        assert!(again.contains(&"tor0-1 agg0-0 88b5 02 00".into()), "{again:?}");
        assert!(again.contains(&"agg0-1 tor0-1 88b5 88 00 00 00 00".into()), "{again:?}");
        assert_eq!(net.node("tor0-1").counters().requests, 2);
    }
}

#[test]
fn without_the_choice_of_a_core_the_near_switch_goes_on_by_hash() {
    for flow in between_pods() {
        let mut net = Net::whole();
        net.lose("agg1-0", "core0");
        net.lose("agg1-0", "core1");
        let request = tags(&net.send(FROM, &flow.syn()));
        let by_hash = net.node("agg0-0").outport(&flow.syn()).expect("an entry").0;
        assert!(request.iter().any(|line| *line == format!("agg0-0 core{} 88b5 04 00 00", by_hash - UP[0])));
        assert_eq!(net.node("agg0-0").outport(&flow.syn()), Some((by_hash, false)));
        for _ in 0..3 {
            let data = tags(&net.send(FROM, &flow.data(700)));
            assert_eq!(data[1], format!("agg0-0 core{}", by_hash - UP[0]));
            assert_eq!(data.last().expect("it arrives"), "tor1-1 h1-1-2");
        }
    }
}

#[test]
fn without_the_response_the_flow_stays_on_its_first_way() {
    for flow in between_pods() {
        let mut net = Net::whole();
        // The second way would be better.
        net.node("tor1-1").load_down([5, 0]);
        net.lose("agg0-1", "tor0-1");
        net.send(FROM, &flow.syn());
        assert_eq!(net.node("tor0-1").outport(&flow.syn()), Some((UP[0], true)));
        let data = tags(&net.send(FROM, &flow.data(700)));
        assert_eq!((&*data[0], data.len()), ("tor0-1 agg0-0", 5));
        assert_eq!(data[4], "tor1-1 h1-1-2");
        // Lost once; the next request finds it.
        net.heal();
        net.wait(1000);
        net.node("tor1-1").load_down([5, 0]);
        net.send(FROM, &flow.syn());
        assert_eq!(net.node("tor0-1").outport(&flow.syn()), Some((UP[1], true)));
    }
}

#[test]
fn after_a_request_without_a_response_the_next_one_takes_another_uplink_if_there_is_one() {
    for flow in between_pods() {
        let mut net = Net::whole();
        // Neither the request nor anything else gets into the far rack by this plane.
        net.lose("agg1-0", "tor1-1");
        assert_eq!(tags(&net.send(FROM, &flow.syn()))[0], "tor0-1 agg0-0 88b5 02 00");
        net.wait(1000);
        let again = tags(&net.send(FROM, &flow.syn()));
        assert_eq!(again[0], "tor0-1 agg0-1 88b5 02 00");
        assert!(again.contains(&"tor1-1 h1-1-2".into()), "{again:?}");
        // Unanswered, too: the response went by the plane that is broken, so it is the first one's turn.
        net.wait(1000);
        net.node("tor0-1").set_up(UP[0], false);
        assert_eq!(tags(&net.send(FROM, &flow.syn()))[0], "tor0-1 agg0-1 88b5 02 f0", "no other is left");
    }
}

#[test]
fn a_response_that_comes_twice_changes_nothing_the_second_time() {
    for flow in between_pods() {
        for (tag, port) in [("88b5 88 00 14 22 00", UP[1]), ("88b5 88 70 14 22 00", UP[0])] {
            let mut tor = Node::new("tor0-1");
            tor.send(DOWN[0], &flow.syn());
            let mut found = vec![];
            for _ in 0..3 {
                assert_eq!(tor.send(UP[1], &with_tag(&flow.message(SYN), tag)), []);
                found.push((tor.path(&flow.syn()), tor.entries()));
            }
            assert_eq!(found[0].0.expect("an entry").port, PortId(port));
            assert!(found.iter().all(|f| *f == found[0]), "{found:?}");
        }
    }
}

#[test]
fn the_way_back_is_found_by_itself() {
    for flow in between_pods() {
        let mut net = Net::whole();
        // Each direction is loaded on the first plane at its own end.
        net.node("tor1-1").load_up([2, 0]);
        net.send(FROM, &flow.syn());
        let answer = flow.back().segment(SYN | ACK, &[], 0, 64);
        let hops = tags(&net.send("h1-1-2", &answer));
        assert_eq!(hops[0], "tor1-1 agg1-1 88b5 02 20");
        assert!(hops.contains(&"tor0-1 h0-1-2".into()), "{hops:?}");
        assert_eq!(net.node("tor1-1").outport(&answer), Some((UP[1], true)));
        assert_eq!(net.node("tor0-1").outport(&flow.syn()), Some((UP[0], true)));
        assert_eq!((net.node("tor0-1").entries(), net.node("tor1-1").entries()), (1, 1));
    }
}

#[test]
fn a_segment_after_a_pause_is_a_request_however_long_it_is_and_so_is_a_fin() {
    for flow in between_pods() {
        let mut net = Net::whole();
        net.send(FROM, &flow.syn());
        for packet in [flow.data(1400), flow.segment(ACK | 1, &[], 0, 64)] {
            net.wait(200);
            let hops = net.send(FROM, &packet);
            let lines = tags(&hops);
            assert!(
                lines.contains(&"agg0-0 core0 88b5 04 00 00".into())
                    || lines.contains(&"agg0-0 core1 88b5 04 00 00".into())
            );
            assert!(lines.contains(&"agg0-1 tor0-1 88b5 88 00 00 00 00".into()), "{lines:?}");
            // It is delivered whole, and what was made of it carries nothing.
            let last = hops.iter().find(|hop| hop.to == "h1-1-2").expect("delivered");
            assert_eq!(packets::ip_packet(&last.frame).len(), packets::ip_packet(&packet).len());
            let messages = hops.iter().map(|hop| apart(&hop.frame)).filter(|(tag, _)| tag.starts_with("88b5 8"));
            let lengths: Vec<usize> = messages.map(|(_, frame)| frame.len()).collect();
            // By both planes, over four links each: nothing has come from the host by the other one yet.
            assert_eq!(lengths, [if flow.v6 { 74 } else { 54 }; 8]);
        }
    }
}

#[test]
fn of_two_flows_in_one_slot_the_second_goes_by_hash_until_the_first_has_ended() {
    let slot = |tor: &Node, flow: Flow| tor.flow(&flow.syn()) & 4095;
    for flow in between_pods() {
        let mut tor = Node::new("tor0-1");
        let other = (1..=65_000).map(|port| flow.port(port)).find(|f| *f != flow && slot(&tor, *f) == slot(&tor, flow));
        let other = other.expect("one of 65,000 in a slot of 4,096");
        tor.send(DOWN[0], &flow.syn());
        let by_hash = UP[usize::from(tor.flow(&other.syn()) >> 63 == 1)];
        // Not by load.
        tor.load_up(if by_hash == UP[0] { [5, 0] } else { [0, 5] });
        assert_eq!(tor.send(DOWN[0], &other.syn()), [goes(&tor, by_hash, "", &other.syn())]);
        assert_eq!((tor.counters().untracked, tor.entries()), (1, 1));
        assert_eq!(tor.outport(&flow.syn()), Some((UP[0], true)));
        tor.wait(200);
        assert!(tor.send(DOWN[0], &other.syn())[0].1.starts_with("88b5 02"));
        assert!(tor.outport(&other.syn()).is_some());
    }
}

/// A scheme that forgets to take tags off.
#[derive(Debug)]
struct Leaky;

#[derive(Debug)]
struct LeakyIngress(Clos);

impl Scheme for Leaky {
    type Ingress = LeakyIngress;
    type Egress = ClosEgress;
    type Control = ();
}

impl SchemeIngress for LeakyIngress {
    type Feedback = Sent;
    type Command = ();

    fn choose(&mut self, _: Instant, group: &Group, _: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        group.pick(meta.flow_hash)
    }

    fn message(&mut self, _: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Handled> {
        self.0.read(frame, meta).map(|_| Handled::Route(Queue::Data))
    }
}

#[test]
fn a_tag_that_should_still_be_there_where_the_last_switch_sends_to_a_host_is_held_back_and_counted() {
    let mut node = Node::new("tor0-1");
    let config = node.config.clone();
    let mtus = vec![1600; 4];
    let described = dataplane::fabric_config(&config, &mtus, Pipe::ONLY);
    let scheme = dataplane::caft_config(&config).clos;
    let ingress = FabricIngress::new(described.clone(), LeakyIngress(Clos::new(&described, &scheme)));
    let mut egress = ClosEgress::new(scheme.tpid);
    for (port, kind) in (0..).zip([PortKind::Host, PortKind::Host, PortKind::Up, PortKind::Up]) {
        let description = weft::fabric::SchemePort {
            kind,
            rate: Default::default(),
            mtu: 1600,
            tx_mtu: 1600,
            peer: node.peer(port),
            uplink: None,
        };
        egress.set_port(Instant::ZERO, PortId(port), Some(description));
    }
    let limits = dataplane::port_limits(&config);
    let mut switch: Switch<Fabric<Leaky>> = Switch::new(ingress, FabricEgress::new(egress), &limits);
    let (now, mut pool, mut burst) = (Instant(SECONDS), Pool::heap(64, 2048), Burst::new());
    let mut send = |switch: &mut Switch<Fabric<Leaky>>, port, frame: &[u8]| {
        burst.push(pool.alloc_with(frame).expect("a free chunk"));
        switch.receive(now, PortId(port), &mut pool, &mut burst);
        let mut sent = PortMask::EMPTY;
        for port in switch.backlog().iter() {
            switch.transmit(now, port, &mut pool, 64, &mut burst);
            sent = if burst.is_empty() { sent } else { sent.with(port) };
            burst.drain().for_each(|frame| pool.free(frame));
        }
        switch.ledger().check().expect("the books balance");
        sent
    };
    let [flow, _] = both((1, 1, 2), (0, 1, 2));
    let us = (node.peer(0), "10.0.1.2".parse().expect("an address"));
    let gateway = (config.mac, "10.0.1.1".parse().expect("an address"));
    send(&mut switch, 0, &packets::arp(false, us, gateway, weft::wire::MacAddr::BROADCAST, &[]));
    send(&mut switch, 0, &packets::arp(true, us, gateway, config.mac, &[]));
    let tagged = with_macs(&with_tag(&flow.syn(), "88b5 04 00 00"), config.mac, node.peer(UP[0]));
    assert_eq!(send(&mut switch, UP[0], &tagged), PortMask::EMPTY);
    assert_eq!(switch.counters(PortId(0)).egress_drops.nonzero().collect::<Vec<_>>(), [(DropReason::TagToHost, 1)]);
    // CAFT itself takes it off.
    assert_eq!(node.send(UP[0], &with_tag(&flow.syn(), "88b5 04 00 00"))[0], goes(&node, DOWN[0], "", &flow.syn()));
}
