//! Where a tag has no room: MTUs without slack, chunks and pools that are full.

use weft::frame::{Frame, Pool};
use weft::topo;

use crate::net::{Net, tags};
use crate::packets;
use crate::rig::{DOWN, Node, UP, options, tree};
use crate::segment::{ACK, Flow, SYN, both, with_tag};
use crate::tor::{goes, says};

const FROM: &str = "h0-1-2";

fn flows() -> [Flow; 2] {
    both((0, 1, 2), (1, 1, 2))
}

/// A segment that fills an MTU of 1,500 B.
fn full(flow: Flow) -> Vec<u8> {
    let packet = flow.data(1500 - if flow.v6 { 60 } else { 40 });
    assert_eq!(packet.len(), 1514);
    packet
}

fn without_slack() -> topo::Fabric {
    tree(&topo::FabricOptions { fabric_mtu: 1500, ..options() })
}

fn whole(fabric: &topo::Fabric) -> Net {
    let names: Vec<&str> = fabric.switches.iter().map(|s| s.name()).collect();
    Net::of(fabric, &names)
}

#[test]
fn a_full_segment_after_a_pause_carries_its_tag_where_the_fabrics_mtu_leaves_room() {
    for flow in flows() {
        let mut net = whole(&tree(&options()));
        net.send(FROM, &flow.syn());
        net.wait(500);
        let hops = net.send(FROM, &full(flow));
        let lines = tags(&hops);
        assert_eq!(lines[0], "tor0-1 agg0-0 88b5 02 00");
        assert!(lines.contains(&"agg1-0 tor1-1 88b5 04 00 00".into()), "{lines:?}");
        assert!(lines.contains(&"agg0-1 tor0-1 88b5 88 00 00 00 00".into()), "{lines:?}");
        assert_eq!(hops.iter().map(|hop| hop.frame.len()).max(), Some(1519));
        let last = hops.iter().find(|hop| hop.to == "h1-1-2").expect("delivered");
        assert_eq!(last.frame.len(), 1514);
    }
}

#[test]
fn without_slack_four_bytes_of_tag_fit_and_where_it_would_grow_it_is_left_out_and_nothing_is_lost() {
    for flow in flows() {
        let mut net = whole(&without_slack());
        let hops = net.send(FROM, &full(flow));
        let lines = tags(&hops);
        // Linux lets a frame have a VLAN tag's four bytes more than MTU and Ethernet header.
        assert_eq!((&*lines[0], hops[0].frame.len()), ("tor0-1 agg0-0 88b5 02 00", 1518));
        assert!(lines[1..].iter().all(|line| !line.contains("88b5")), "{lines:?}");
        assert_eq!((lines.len(), &*lines[4]), (5, "tor1-1 h1-1-2"));
        assert!(hops.iter().all(|hop| hop.frame.len() <= 1518));
        assert_eq!(net.node("agg0-0").counters().untagged, 1);
        let drops: Vec<_> = net.nodes.values().flat_map(Node::drops).collect();
        assert_eq!(drops, []);
        // The flow has its first way, as with a request that is lost.
        assert_eq!(net.node("tor0-1").outport(&flow.syn()), Some((UP[0], true)));
        assert_eq!(net.node("agg0-0").outport(&flow.syn()).map(|path| path.1), Some(false));
        let data = tags(&net.send(FROM, &full(flow)));
        assert_eq!(data.last().expect("it arrives"), "tor1-1 h1-1-2");
    }
}

#[test]
fn one_byte_less_than_full_fits_with_five_bytes_of_tag() {
    for flow in flows() {
        for (less, fits) in [(0, false), (1, true)] {
            let mut agg = Node::of(&without_slack(), "agg0-0");
            let packet = flow.data(1500 - less - if flow.v6 { 60 } else { 40 });
            let out = agg.send(DOWN[1], &with_tag(&packet, "88b5 02 00"));
            let tag = if fits { "88b5 04 00 00" } else { "" };
            assert_eq!(out, [goes(&agg, out[0].0, tag, &packet)]);
            assert_eq!(agg.counters().untagged, u64::from(!fits));
        }
    }
}

#[test]
fn a_vlan_tag_takes_the_slack_that_the_tag_would_need() {
    for flow in flows() {
        let mut tor = Node::of(&without_slack(), "tor0-1");
        let packet = packets::tagged(&full(flow), &[[0x81, 0, 0, 5]]);
        assert_eq!(tor.send(DOWN[0], &packet), [goes(&tor, UP[0], "", &packet)]);
        assert_eq!((tor.counters().requests, tor.counters().untagged), (1, 1));
        assert_eq!(tor.outport(&flow.syn()), Some((UP[0], true)));
    }
}

#[test]
fn a_frame_that_fills_its_chunk_goes_on_without_a_tag() {
    for flow in flows() {
        let mut tor = Node::new("tor0-1");
        tor.pool = Pool::heap(64, 1516);
        assert_eq!(tor.send(DOWN[0], &full(flow)), [goes(&tor, UP[0], "", &full(flow))]);
        assert_eq!((tor.counters().requests, tor.counters().untagged), (1, 1));
    }
}

#[test]
fn without_a_frame_to_make_it_of_a_message_is_as_if_it_were_lost() {
    for flow in flows() {
        for (name, port, out, tag) in [("tor1-1", UP[0], DOWN[0], ""), ("agg1-0", UP[0], DOWN[1], "88b5 04 00 00")] {
            let mut node = Node::new(name);
            // One is left, for the request.
            let held: Vec<Frame> = (0..node.pool.chunks() - 1).map(|_| node.pool.alloc().expect("a chunk")).collect();
            let sent = node.send(port, &with_tag(&flow.syn(), "88b5 04 00 00"));
            assert_eq!(sent, [goes(&node, out, tag, &flow.syn())]);
            assert_eq!(node.counters().unmade, 1);
            held.into_iter().for_each(|frame| node.pool.free(frame));
        }
    }
}

#[test]
fn a_response_that_a_link_cannot_carry_with_its_tag_is_never_sent_without() {
    // No switch makes one with data, but a link can bring anything.
    for flow in flows() {
        let back = Flow { from: flow.to, to: flow.from, ..flow };
        let message = back.segment(ACK, &[], 1500 - if flow.v6 { 60 } else { 40 }, 64);
        for (name, port, tag) in [
            ("agg1-1", DOWN[1], "88b5 86 00 00 00"),
            ("core2", 1, "88b5 88 00 00 00 00"),
            ("agg0-1", UP[0], "88b5 88 00 00 00 00"),
        ] {
            let mut node = Node::of(&without_slack(), name);
            let before = node.drops();
            node.refuse(port, &with_tag(&message, tag));
            assert_eq!(before, []);
        }
        // A choice fits: its tag has three bytes.
        let mut core = Node::of(&without_slack(), "core0");
        assert_eq!(core.send(1, &with_tag(&message, "88b5 00")), [goes(&core, 0, "88b5 00", &message)]);
        let vlan = packets::tagged(&message, &[[0x81, 0, 0, 5]]);
        core.refuse(1, &with_tag(&vlan, "88b5 00"));
    }
}

#[test]
fn of_very_many_messages_at_once_64_go_ahead_of_data_for_hellos_are_there_too() {
    let fabric = tree(&topo::FabricOptions { rate: weft::units::BitRate(1_000_000_000), ..options() });
    for flow in flows() {
        let mut tor = Node::of(&fabric, "tor1-1");
        for port in 1..=40 {
            let frame = tor.from(DOWN[0], &packets::udp(flow.back().ends(), 64, (port, 9), &[0; 1400]));
            tor.raw(DOWN[0], &frame);
        }
        for port in 1..=100 {
            let frame = tor.from(UP[0], &with_tag(&flow.port(port).syn(), "88b5 04 00 00"));
            tor.raw(UP[0], &frame);
        }
        let mut left = vec![];
        for _ in 0..200 {
            tor.now = tor.now + 10_000;
            left.extend(tor.leave().into_iter().filter(|(port, _)| *port == UP[1]));
        }
        let is_message: Vec<bool> = left.iter().map(|(_, frame)| frame[12..14] == [0x88, 0xb5]).collect();
        let last_data = is_message.iter().rposition(|message| !message).expect("data");
        let ahead = is_message[..last_data].iter().filter(|message| **message).count();
        assert_eq!((ahead, is_message.iter().filter(|message| **message).count()), (64, 100));
    }
}

#[test]
fn messages_go_ahead_of_data() {
    let mut options = options();
    // A link that takes 12 us for a full frame.
    options.rate = weft::units::BitRate(1_000_000_000);
    let fabric = tree(&options);
    for flow in flows() {
        let mut tor = Node::of(&fabric, "tor1-1");
        let queued = |tor: &mut Node, port: u8, frame: &[u8]| {
            let frame = tor.from(port, frame);
            tor.raw(port, &frame)
        };
        // A backlog on uplink 1, then a request that came by uplink 0.
        for port in 1..=40 {
            queued(&mut tor, DOWN[0], &packets::udp(flow.back().ends(), 64, (port, 9), &[0; 1400]));
        }
        queued(&mut tor, UP[0], &with_tag(&flow.syn(), "88b5 04 00 00"));
        let mut left = vec![];
        for _ in 0..100 {
            tor.now = tor.now + 10_000;
            left.extend(tor.leave().into_iter().filter(|(port, _)| *port == UP[1]));
        }
        let at = left.iter().position(|(_, frame)| frame[12..14] == [0x88, 0xb5]).expect("a response");
        assert!(at <= 1 && left.len() > 10, "behind {at} of {}", left.len());
        let (tag, frame) = crate::segment::apart(&left[at].1);
        assert_eq!((UP[1], tag, frame), says(&tor, UP[1], "88b5 86 00 00 00", &flow.message(SYN)));
    }
}
