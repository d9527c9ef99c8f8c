//! Frames that are not a plain SYN: tagged by VLAN, with options, in fragments; malformed tags; and packets whose TTL
//! ends under way.

use weft::counters::DropReason;

use crate::net::{Net, tags};
use crate::packets::{self, Icmp};
use crate::rig::{DOWN, Node, UP, has_tag};
use crate::segment::{ACK, Flow, SYN, both, segment, trimmed, with_fragment, with_macs, with_options, with_tag};
use crate::tor::{goes, says};

const FROM: &str = "h0-1-2";
const VLAN: [u8; 4] = [0x81, 0, 0, 5];

fn flows() -> [Flow; 2] {
    both((0, 1, 2), (1, 1, 2))
}

/// The tag that the response has at its end, in an idle fabric.
const RESPONSE: &str = "agg0-1 tor0-1 88b5 88 00 00 00 00";

/// `packet` is sent; it opens a flow, of which the response comes back, and arrives as it was but for six hops.
fn finds_a_way(flow: Flow, packet: &[u8]) -> Vec<crate::net::Hop> {
    let mut net = Net::whole();
    let hops = net.send(FROM, packet);
    let lines = tags(&hops);
    assert_eq!(lines[0], "tor0-1 agg0-0 88b5 02 00");
    assert!(lines.contains(&RESPONSE.to_string()), "{lines:?}");
    let mut expected = packet.to_vec();
    for _ in 0..5 {
        expected = packets::routed(&expected, net.node("tor1-1").config.mac, weft::topo::address::host_mac(1, 1, 2));
    }
    let delivered: Vec<_> = hops.iter().filter(|hop| hop.to.starts_with('h')).collect();
    assert_eq!((delivered.len(), trimmed(&delivered[0].frame)), (1, trimmed(&expected)));
    assert_eq!(net.node("tor0-1").counters().stayed, 1);
    assert!(net.node("tor0-1").outport(&flow.syn()).is_some(), "the VLAN and options are none of the flow's");
    hops
}

#[test]
fn the_tag_stands_before_vlan_tags_which_come_out_as_they_went_in() {
    for flow in flows() {
        for vlan in [&[VLAN][..], &[[0x88, 0xa8, 0xa0, 1], VLAN]] {
            let packet = packets::tagged(&flow.syn(), vlan);
            let hops = finds_a_way(flow, &packet);
            // What the tag takes has its own length on each hop up.
            for (hop, len) in hops.iter().zip([4, 5]) {
                assert_eq!(hop.frame[12 + len..][..4 * vlan.len()], vlan.concat());
            }
            // Messages have none.
            let message = hops.iter().find(|hop| hop.from == "agg0-1").expect("a response");
            assert_eq!(message.frame[12 + 7..14 + 7], if flow.v6 { [0x86, 0xdd] } else { [8, 0] });
        }
    }
}

#[test]
fn ipv4_options_and_ipv6_extension_headers_are_carried_and_left_out_of_messages() {
    for flow in flows() {
        let packet = with_options(&flow.syn(), flow.v6);
        finds_a_way(flow, &packet);
        let mut tor = Node::new("tor1-1");
        let response = says(&tor, UP[1], "88b5 86 00 00 00", &flow.message(SYN));
        let out = tor.send(UP[0], &with_tag(&packet, "88b5 04 00 00"));
        assert_eq!(out, [goes(&tor, DOWN[0], "", &packet), response]);
    }
}

#[test]
fn an_atomic_fragment_is_a_whole_packet() {
    let [_, flow] = flows();
    finds_a_way(flow, &with_fragment(&flow.syn(), true, 0, false));
}

#[test]
fn fragments_of_tcp_first_and_later_ones_go_one_way_by_hash_without_tag_and_entry() {
    for flow in flows() {
        let mut net = Net::whole();
        let first = with_fragment(&flow.data(64), flow.v6, 0, true);
        let later = with_fragment(&flow.data(64), flow.v6, 8, false);
        let way = tags(&net.send(FROM, &first));
        assert_eq!((way.len(), &*way[4]), (5, "tor1-1 h1-1-2"));
        assert!(way.iter().all(|line| !line.contains("88b5")));
        assert_eq!(tags(&net.send(FROM, &later)), way);
        assert!(net.nodes.values().all(|node| node.entries() == 0));
    }
}

#[test]
fn a_tag_around_what_no_switch_tags_is_taken_off_a_request_and_a_message_is_dropped() {
    for flow in flows() {
        let udp = packets::udp(flow.ends(), 61, (40_000, 80), &[0; 40]);
        let fragment = with_fragment(&flow.data(64), flow.v6, 0, true);
        // TCP that ends inside its header.
        let mut short = trimmed(&flow.syn());
        short.truncate(short.len() - 1);
        let at = if flow.v6 { 18 } else { 16 };
        let len = u16::from_be_bytes([short[at], short[at + 1]]) - 1;
        short[at..at + 2].copy_from_slice(&len.to_be_bytes());
        if !flow.v6 {
            packets::mend_ipv4(&mut short, 14);
        }
        for packet in [udp, fragment, packets::padded(short)] {
            let mut agg = Node::new("agg1-0");
            let request = with_tag(&packet, "88b5 04 00 00");
            assert_eq!(agg.send(UP[0], &request), [goes(&agg, DOWN[1], "", &packet)]);
            assert_eq!(agg.counters().requests_odd, 1);
            let mut tor = Node::new("tor1-1");
            assert_eq!(tor.send(UP[0], &request), [goes(&tor, DOWN[0], "", &packet)]);
            assert_eq!(tor.counters().requests_odd, 1);
            assert_eq!(agg.refuse(UP[0], &with_tag(&packet, "88b5 00")), DropReason::StrayTag);
            assert_eq!(agg.refuse(UP[0], &with_tag(&packet, "88b5 88 00 00 00 00")), DropReason::BadTag);
            assert_eq!(tor.refuse(UP[0], &with_tag(&packet, "88b5 88 00 00 00 00")), DropReason::BadTag);
            assert_eq!((agg.entries(), tor.entries()), (0, 0));
        }
    }
}

#[test]
fn no_message_is_made_of_a_segment_with_a_data_offset_that_cannot_be() {
    for flow in flows() {
        let mut packet = flow.syn();
        packet[if flow.v6 { 66 } else { 46 }] = 0xf0;
        let mut tor = Node::new("tor1-1");
        let out = tor.send(UP[0], &with_tag(&packet, "88b5 04 00 00"));
        assert_eq!(out, [goes(&tor, DOWN[0], "", &packet)]);
        assert_eq!((tor.counters().requests_odd, tor.counters().responses_sent), (1, 0));
        let mut agg = Node::new("agg1-0");
        let out = agg.send(UP[0], &with_tag(&packet, "88b5 04 00 00"));
        assert_eq!(out, [goes(&agg, DOWN[1], "", &packet)]);
        assert_eq!((agg.counters().requests_odd, agg.counters().choices_sent), (1, 0));
    }
}

#[test]
fn a_tagged_frame_that_is_cut_off_anywhere_goes_nowhere() {
    for flow in flows() {
        for (name, port) in [("tor1-1", UP[0]), ("agg1-0", UP[0]), ("agg0-0", DOWN[1]), ("core0", 0)] {
            let mut node = Node::new(name);
            for tag in ["88b5 04 13 42", "88b5 00", "88b5 88 30 14 22 33"] {
                let packet = trimmed(&if tag == "88b5 04 13 42" { flow.syn() } else { flow.message(SYN) });
                let frame = node.from(port, &with_tag(&packet, tag));
                for len in 0..frame.len() {
                    let before = node.drops().iter().map(|(_, n)| n).sum::<u64>();
                    assert_eq!(node.raw(port, &frame[..len]), [], "{len} bytes of {tag} at {name}");
                    assert_eq!(node.drops().iter().map(|(_, n)| n).sum::<u64>(), before + 1);
                }
            }
            let known = [DropReason::Runt, DropReason::TruncatedL3, DropReason::BadTag];
            assert!(node.drops().iter().all(|(reason, _)| known.contains(reason)), "{:?}", node.drops());
            assert_eq!((node.entries(), node.counters()), (0, Default::default()));
        }
    }
}

#[test]
fn a_tag_around_anything_but_ip_is_dropped_and_so_is_one_that_does_not_come_first() {
    for flow in flows() {
        for (name, port) in [("tor1-1", UP[0]), ("agg1-0", UP[0]), ("core0", 0)] {
            let mut node = Node::new(name);
            let arp = packets::arp(
                false,
                (node.peer(port), "10.0.1.2".parse().expect("an address")),
                (node.peer(port), "10.1.1.2".parse().expect("an address")),
                node.config.mac,
                &[],
            );
            let mut other = flow.syn();
            other[12..14].copy_from_slice(&[0x12, 0x34]);
            let tagged = with_tag(&flow.syn(), "88b5 04 00 00");
            for frame in [
                with_tag(&arp, "88b5 04 00 00"),
                with_tag(&other, "88b5 04 00 00"),
                with_tag(&tagged, "88b5 04 00 00"),
                packets::tagged(&tagged, &[VLAN]),
            ] {
                assert_eq!(node.refuse(port, &frame), DropReason::BadTag, "{name}");
            }
            // Broken IP behind a tag.
            let mut broken = tagged.clone();
            broken[12 + 5 + 2] = 0x35;
            assert_eq!(node.refuse(port, &broken), DropReason::BadIpVersion);
            // For another switch.
            let frame = with_macs(&tagged, weft::wire::MacAddr([2, 1, 1, 1, 1, 1]), node.peer(port));
            assert_eq!(node.raw(port, &frame), []);
            assert!(node.drops().contains(&(DropReason::NotForUs, 1)));
            assert_eq!(node.entries(), 0);
        }
    }
}

#[test]
fn a_link_works_with_tags_before_the_peers_address_is_known() {
    for flow in flows() {
        let mut tor = Node::new("tor1-1");
        let frame = with_macs(&with_tag(&flow.syn(), "88b5 04 00 00"), weft::config::FABRIC_MAC, tor.peer(UP[0]));
        assert_eq!(tor.raw(UP[0], &frame).len(), 2);
    }
}

#[test]
fn a_choice_whose_addresses_are_of_a_request_the_other_way_keeps_both_apart() {
    // The first ambiguity of the paper: at a(1,1) an M1 about t(1,2) -> t(2,2) and a request of t(2,2) -> t(1,2) both
    // come from a core with TF 0 and the same addresses. NoC tells them apart.
    for flow in flows() {
        let mut agg = Node::new("agg0-0");
        let request = flow.back().syn();
        let out = agg.send(UP[1], &with_tag(&request, "88b5 04 00 31"));
        let choice = says(&agg, UP[1], "88b5 00", &flow.back().message(SYN));
        assert_eq!(out, [goes(&agg, DOWN[1], "88b5 04 00 10", &request), choice]);
        assert_eq!((agg.outport(&flow.syn()), agg.outport(&request)), (None, None));
        assert_eq!(agg.send(UP[1], &with_tag(&flow.message(SYN), "88b5 00")), []);
        assert_eq!((agg.outport(&flow.syn()), agg.outport(&request)), (Some((UP[1], true)), None));
    }
}

/// The time exceeded that came to the host, checked to have no tag and to quote the packet without one.
fn time_exceeded(hops: &[crate::net::Hop], packet: &[u8]) -> Icmp {
    let at_hosts: Vec<_> = hops.iter().filter(|hop| hop.to.starts_with('h')).collect();
    let [hop] = at_hosts[..] else { panic!("one frame to a host: {:?}", tags(hops)) };
    assert_eq!(hop.to, FROM);
    let icmp = packets::icmp(&hop.frame).expect("ICMP");
    assert!([(11, 0), (3, 0)].contains(&(icmp.kind, icmp.code)), "{icmp:?}");
    // All but TTL and IPv4's checksum.
    let sent = packets::ip_packet(packet);
    let (ttl, all) = if sent[0] >> 4 == 4 { (8..12, 28) } else { (7..8, 48) };
    let mask =
        |bytes: &[u8]| bytes.iter().enumerate().map(|(i, b)| if ttl.contains(&i) { 0 } else { *b }).collect::<Vec<_>>();
    assert_eq!(mask(&icmp.rest[..all]), mask(&sent[..all]));
    icmp
}

#[test]
fn a_traceroute_by_tcp_sees_every_switch_though_each_of_its_packets_is_a_request() {
    for flow in flows() {
        let mut net = Net::whole();
        let mut seen = vec![];
        for ttl in 1..=5 {
            let packet = flow.port(1000 + u16::from(ttl)).segment(SYN, &[], 0, ttl);
            let hops = net.send(FROM, &packet);
            assert!(ttl == 1 || has_tag(&hops[0].frame));
            seen.push(time_exceeded(&hops, &packet).ends.src);
        }
        let address = |net: &mut Net, name: &str| -> std::net::IpAddr {
            let config = &net.node(name).config;
            let segment = config.segment.as_ref();
            match flow.v6 {
                false => config.router_ipv4.or(segment.and_then(|s| s.ipv4).map(|n| n.addr())).expect("own").into(),
                true => config.router_ipv6.or(segment.and_then(|s| s.ipv6).map(|n| n.addr())).expect("own").into(),
            }
        };
        for (i, name) in [(0, "tor0-1"), (1, "agg0-0"), (3, "agg1-0"), (4, "tor1-1")] {
            assert_eq!(seen[i], address(&mut net, name), "hop {}", i + 1);
        }
        assert!([address(&mut net, "core0"), address(&mut net, "core1")].contains(&seen[2]));
    }
}

#[test]
fn no_host_is_told_what_becomes_of_a_message() {
    for flow in flows() {
        let message = |ttl| {
            let ends = flow.ends();
            let back = Flow { from: flow.to, to: flow.from, ..flow };
            assert_eq!((back.ends().src, back.ends().dst), (ends.dst, ends.src));
            back.segment(SYN, &[], 0, ttl)
        };
        for (name, port, tag) in [
            ("agg1-1", DOWN[1], "88b5 86 00 00 00"),
            ("core2", 1, "88b5 88 00 00 00 00"),
            ("agg0-1", UP[0], "88b5 88 00 00 00 00"),
            ("core0", 1, "88b5 00"),
        ] {
            let mut node = Node::new(name);
            assert_eq!(node.refuse(port, &with_tag(&message(1), tag)), DropReason::TtlExpired, "{tag} at {name}");
            // A request, there, of which its sender is told.
            let request = with_tag(&message(1), "88b5 04 00 00");
            assert_eq!(node.send(port, &request).iter().filter(|out| packets::icmp(&out.2).is_some()).count(), 1);
        }
        // No way on: all uplinks down; and in a core, the pod's.
        for (name, port, tag, down) in [
            ("agg1-1", DOWN[1], "88b5 86 00 00 00", &UP[..]),
            ("core2", 1, "88b5 88 00 00 00 00", &[0]),
            ("core0", 1, "88b5 00", &[0]),
        ] {
            let mut node = Node::new(name);
            down.iter().for_each(|port| node.set_up(*port, false));
            assert_eq!(node.refuse(port, &with_tag(&message(64), tag)), DropReason::LostMessage, "{tag} at {name}");
        }
        // To a rack that the pod does not have.
        let mut agg = Node::new("agg0-1");
        let nowhere = Flow { from: (1, 1, 2), to: (0, 9, 2), ..flow }.segment(ACK, &[], 10, 9);
        assert_eq!(agg.refuse(UP[0], &with_tag(&nowhere, "88b5 88 00 00 00 00")), DropReason::LostMessage);
    }
}

#[test]
fn a_connection_to_a_switch_itself_is_refused_and_the_tag_of_its_request_does_not_come_back() {
    for flow in flows() {
        let mut net = Net::whole();
        let config = net.node("agg0-0").config.clone();
        let own = |v6| -> std::net::IpAddr {
            if v6 { config.router_ipv6.expect("own").into() } else { config.router_ipv4.expect("own").into() }
        };
        let ends = packets::Ends { dst: own(flow.v6), ..flow.ends() };
        let hops = net.send(FROM, &segment(ends, flow.ports, SYN, &[], 0, 64));
        assert_eq!(tags(&hops), ["tor0-1 agg0-0 88b5 02 00", "agg0-0 tor0-1", "tor0-1 h0-1-2"]);
        let icmp = packets::icmp(&hops[2].frame).expect("ICMP");
        assert_eq!((icmp.kind, icmp.code), if flow.v6 { (1, 4) } else { (3, 3) });
        assert_eq!(icmp.ends.src, ends.dst);
    }
}

#[test]
fn a_ping_to_a_core_is_answered_without_the_tag_that_somebody_put_on_it() {
    for flow in flows() {
        let mut core = Node::new("core0");
        let own = match flow.v6 {
            false => core.config.router_ipv4.expect("own").into(),
            true => core.config.router_ipv6.expect("own").into(),
        };
        let ping = packets::echo(packets::Ends { dst: own, ..flow.ends() }, 9, false, 7, &[1, 2, 3]);
        let out = core.send(0, &with_tag(&ping, "88b5 04 00 00"));
        let [(0, tag, frame)] = &out[..] else { panic!("one answer: {out:?}") };
        assert_eq!(tag, "");
        let icmp = packets::icmp(frame).expect("ICMP");
        assert_eq!((icmp.kind, icmp.ends.src, icmp.ends.dst), (if flow.v6 { 129 } else { 0 }, own, flow.ends().src));
    }
}

#[test]
fn a_request_is_not_opened_or_believed_in_the_name_of_another_pod() {
    for flow in flows() {
        // A host behind the ToR says that it is in another pod.
        let forged = Flow { from: (2, 0, 2), ..flow }.syn();
        let mut tor = Node::new("tor0-1");
        let out = tor.send(DOWN[0], &forged);
        assert_eq!(out.iter().map(|(_, tag, _)| &**tag).collect::<Vec<_>>(), [""]);
        assert_eq!((tor.entries(), tor.counters().foreign), (0, 1));
        // From below, for another pod, but not from this one; and from a core, back out of it.
        let mut agg = Node::new("agg0-0");
        let foreign = Flow { from: flow.to, ..flow };
        let out = agg.send(DOWN[0], &with_tag(&foreign.syn(), "88b5 02 f0"));
        assert_eq!(out.iter().map(|(_, tag, _)| &**tag).collect::<Vec<_>>(), [""]);
        let mut far = Node::new("agg1-0");
        let own = Flow { from: flow.to, ..flow };
        let out = far.send(UP[0], &with_tag(&own.syn(), "88b5 04 00 ff"));
        assert_eq!(out.iter().map(|(_, tag, _)| &**tag).collect::<Vec<_>>(), [""]);
        assert_eq!((agg.entries(), far.entries()), (0, 0));
        assert_eq!((agg.counters().requests_odd, far.counters().requests_odd, far.counters().choices_sent), (1, 1, 0));
    }
}
