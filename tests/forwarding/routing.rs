//! Routing up and down: the rewrite, the choice of uplink, the longest prefix.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft::counters::DropReason;
use weft::fabric::{FabricConfig, FabricPort};
use weft::id::{PortId, PortMask};
use weft::pisa::PortLimits;

use crate::packets::{Ends, icmp, ip_packet, mend_ipv4, routed, tagged, udp};
use crate::rig::{
    FABRIC, FAR, GATEWAY4, GATEWAY6, H0, H1, ROUTER4, Rig, SWITCH, Sent, UPLINKS, agg_config, peer, tor_config,
};

const TAGS: [[u8; 4]; 2] = [[0x88, 0xa8, 0, 100], [0x81, 0, 0x20, 10]];

fn families() -> [IpAddr; 2] {
    [FAR.v4.into(), FAR.v6.into()]
}

/// The one frame that was sent.
fn one(sent: Vec<Sent>) -> Sent {
    let [one] = <[Sent; 1]>::try_from(sent).unwrap_or_else(|sent| panic!("one frame: {sent:?}"));
    one
}

#[test]
fn up_goes_by_an_uplink_with_new_addresses_one_hop_less_and_a_valid_checksum() {
    for tags in [&[][..], &TAGS[1..], &TAGS] {
        for far in families() {
            let mut rig = Rig::tor();
            let packet = tagged(&udp(H0.to_gateway(far), 64, (1000, 2000), b"up"), tags);
            let (port, frame) = one(rig.send(0, &packet));
            assert!(UPLINKS.contains(&port), "by port {port}");
            assert_eq!(frame, routed(&packet, SWITCH, peer(port)), "padding, tags and payload stay as they were");
        }
    }
}

#[test]
fn padding_that_the_next_link_would_not_carry_is_left_behind() {
    let mut config = tor_config();
    UPLINKS.iter().for_each(|uplink| config.ports[*uplink as usize].mtu = 1280);
    for tags in [&[][..], &TAGS[1..], &TAGS] {
        for far in families() {
            let mut rig = Rig::new(config.clone(), PortLimits::default(), 64);
            let packet = tagged(&udp(H0.to_gateway(far), 64, (1000, 2000), b"little"), tags);
            let mut padded = packet.clone();
            padded.resize(1500, 0xee);
            let (port, frame) = one(rig.send(0, &padded));
            // What makes a frame long enough stays, behind its tags.
            assert_eq!(frame, routed(&packet, SWITCH, peer(port)));
        }
    }
}

#[test]
fn every_checksum_stays_valid_whatever_the_packet() {
    let mut rig = Rig::tor();
    for i in 0..=u16::MAX {
        let mut packet = udp(H0.to_gateway(FAR.v4.into()), 2 + (i % 254) as u8, (1, 2), b"");
        packet[14 + 4..14 + 6].copy_from_slice(&i.to_be_bytes()); // the identification
        mend_ipv4(&mut packet, 14);
        let (port, frame) = one(rig.send(0, &packet));
        assert_eq!(frame, routed(&packet, SWITCH, peer(port)), "identification {i}");
    }
}

#[test]
fn a_flow_keeps_its_uplink_and_many_flows_share_the_uplinks_evenly() {
    for far in families() {
        let mut rig = Rig::tor();
        let mut flows = BTreeMap::<u8, u32>::new();
        for port in 1000..3000 {
            let packet = udp(H0.to_gateway(far), 64, (port, 80), b"x");
            let (uplink, _) = one(rig.send(0, &packet));
            for _ in 0..3 {
                assert_eq!(one(rig.send(0, &packet)).0, uplink, "flow {port}");
            }
            *flows.entry(uplink).or_default() += 1;
        }
        assert_eq!(flows.keys().copied().collect::<Vec<_>>(), UPLINKS);
        // 2,000 fair coins: six standard deviations are 134.
        assert!(flows.values().all(|n| n.abs_diff(1000) < 134), "{flows:?}");
    }
}

#[test]
fn all_fragments_of_a_datagram_take_one_uplink() {
    let mut rig = Rig::tor();
    let mut uplinks = BTreeMap::<u8, u32>::new();
    for id in 0..200u16 {
        let dst: IpAddr = [10, 0, 2, id as u8].into();
        let fragment = |offset: u16, more: bool| {
            let mut packet = udp(H0.to_gateway(dst), 64, (id, 80), &[0; 64]);
            packet[14 + 4..14 + 6].copy_from_slice(&id.to_be_bytes());
            packet[14 + 6..14 + 8].copy_from_slice(&(u16::from(more) << 13 | offset).to_be_bytes());
            mend_ipv4(&mut packet, 14);
            packet
        };
        let (first, _) = one(rig.send(0, &fragment(0, true)));
        for (offset, more) in [(9, true), (18, true), (27, false)] {
            assert_eq!(one(rig.send(0, &fragment(offset, more))).0, first, "datagram {id}");
        }
        *uplinks.entry(first).or_default() += 1;
    }
    assert_eq!(uplinks.len(), 2, "fragments to many hosts are spread: {uplinks:?}");
}

#[test]
fn an_ipv4_header_with_options_is_routed_with_them() {
    let mut rig = Rig::tor();
    let plain = udp(H0.to_gateway(FAR.v4.into()), 64, (1, 2), &[9; 40]);
    // Router alert (RFC 2113) behind the fixed header.
    let mut packet = [&plain[..34], &[0x94, 4, 0, 0], &plain[34..]].concat();
    packet[14] = 0x46;
    let length = u16::from_be_bytes([packet[16], packet[17]]) + 4;
    packet[16..18].copy_from_slice(&length.to_be_bytes());
    mend_ipv4(&mut packet, 14);
    let (port, frame) = one(rig.send(0, &packet));
    assert_eq!(frame, routed(&packet, SWITCH, peer(port)));
}

#[test]
fn hosts_of_one_segment_that_send_by_the_gateway_are_routed_on_the_segment() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for to in [IpAddr::from(H1.v4), H1.v6.into()] {
        let packet = udp(H0.to_gateway(to), 64, (1, 2), b"hairpin");
        assert_eq!(rig.send(0, &packet), [(1, routed(&packet, SWITCH, H1.mac))]);
    }
}

#[test]
fn down_goes_to_a_known_host_at_once() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for to in [IpAddr::from(H1.v4), H1.v6.into()] {
        for uplink in UPLINKS {
            let packet = tagged(&udp(FAR.by_fabric(uplink, to), 60, (1, 2), b"down"), &TAGS);
            assert_eq!(rig.send(uplink, &packet), [(1, routed(&packet, SWITCH, H1.mac))]);
        }
    }
}

#[test]
fn an_agg_sends_down_by_the_longest_prefix_and_up_by_the_default() {
    let mut rig = Rig::agg();
    for v6 in [false, true] {
        // From above, and across from the other rack of the pod.
        for port in [2, 3, 0] {
            let packet = udp(FAR.by_fabric(port, FAR.ip(v6)), 9, (1, 2), b"down");
            assert_eq!(rig.send(port, &packet), [(1, routed(&packet, SWITCH, peer(1)))]);
        }
        let abroad: IpAddr = if v6 { "fd00:0:7:1::2" } else { "10.7.1.2" }.parse().expect("an address");
        let packet = udp(FAR.by_fabric(1, abroad), 9, (1, 2), b"up");
        let (port, frame) = one(rig.send(1, &packet));
        assert!([2, 3].contains(&port));
        assert_eq!(frame, routed(&packet, SWITCH, peer(port)));
    }
}

#[test]
fn a_route_without_ports_discards_and_never_falls_to_the_default() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for (dst, kind) in [("10.0.9.2", 3), ("fd00:0:0:9::2", 1)] {
        let packet = udp(H0.to_gateway(dst.parse().expect("an address")), 64, (1, 2), b"nowhere");
        let (sent, dropped) = rig.refuse(0, &packet);
        assert_eq!(dropped, [DropReason::EmptyGroup]);
        let (port, error) = one(sent);
        let error = icmp(&error).expect("an ICMP message");
        assert_eq!((port, error.kind, error.code, &error.rest[..]), (0, kind, 0, ip_packet(&packet)));
    }
    // The agg's discard of its pod's prefix: the racks in it are reached, the rest is not sent up.
    let mut agg = Rig::agg();
    let (sent, dropped) = agg.refuse(1, &udp(FAR.by_fabric(1, [10, 0, 77, 2].into()), 9, (1, 2), b"?"));
    assert_eq!(dropped, [DropReason::EmptyGroup]);
    assert_eq!(one(sent).0, 1, "only the error, to where the packet came from");
}

#[test]
fn with_all_uplinks_down_a_packet_is_a_counted_drop_and_goes_to_no_port() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for uplink in UPLINKS {
        rig.set_up(uplink, false);
    }
    for far in families() {
        // From port 1, so that port 0 would be seen.
        let (sent, dropped) = rig.refuse(1, &udp(H1.to_gateway(far), 64, (1, 2), b"up?"));
        assert_eq!(dropped, [DropReason::EmptyGroup]);
        let (port, error) = one(sent);
        assert_eq!((port, icmp(&error).expect("an ICMP message").ends.dst), (1, H1.ip(far.is_ipv6())));
    }
    for uplink in UPLINKS {
        rig.set_up(uplink, true);
    }
    assert!(UPLINKS.contains(&one(rig.send(1, &udp(H1.to_gateway(FAR.v4.into()), 64, (1, 2), b"up"))).0));
}

#[test]
fn with_one_uplink_down_the_other_carries_all_flows() {
    let mut rig = Rig::tor();
    rig.set_up(3, false);
    for port in 0..100 {
        assert_eq!(one(rig.send(0, &udp(H0.to_gateway(FAR.v4.into()), 64, (port, 80), b"x"))).0, 4);
    }
}

#[test]
fn without_a_route_the_source_is_told_that_the_network_is_unreachable() {
    let mut config = tor_config();
    config.forwarding.routes.clear();
    let mut rig = Rig::new(config, PortLimits::default(), 64);
    rig.meet_hosts();
    for (far, gateway, kind) in [(FAR.v4.into(), IpAddr::from(GATEWAY4), 3), (FAR.v6.into(), GATEWAY6.into(), 1)] {
        let packet = udp(H0.to_gateway(far), 64, (1, 2), b"?");
        let (sent, dropped) = rig.refuse(0, &packet);
        assert_eq!(dropped, [DropReason::NoRoute]);
        let error = icmp(&one(sent).1).expect("an ICMP message");
        let ends = Ends { src_mac: SWITCH, dst_mac: H0.mac, src: gateway, dst: H0.ip(far.is_ipv6()) };
        assert_eq!((error.ends, error.kind, error.code, &error.rest[..]), (ends, kind, 0, ip_packet(&packet)));
    }
}

#[test]
fn what_came_down_does_not_go_up_again() {
    let mut rig = Rig::agg();
    for (arrives_by, dst) in [(2, "10.7.1.2"), (3, "fd00:0:7:1::2")] {
        let dst: IpAddr = dst.parse().expect("an address");
        let (sent, dropped) = rig.refuse(arrives_by, &udp(FAR.by_fabric(arrives_by, dst), 9, (1, 2), b"valley"));
        assert_eq!(dropped, [DropReason::NoRoute]);
        // The source is below port 1: the error goes there, by its own way.
        let (port, error) = one(sent);
        assert_eq!((port, icmp(&error).expect("an ICMP message").ends.dst), (1, FAR.ip(dst.is_ipv6())));
    }
}

#[test]
fn two_aggs_with_different_seeds_choose_independently_of_the_tor_below() {
    // Flows that a ToR sent to one agg must still spread over that agg's uplinks (no polarisation).
    let mut tor = Rig::tor();
    let mut agg = Rig::new(FabricConfig { seed: 2, ..agg_config() }, PortLimits::default(), 64);
    let mut cores = BTreeMap::<u8, u32>::new();
    for port in 0..4000 {
        let abroad: IpAddr = [10, 7, 1, 2].into();
        let (uplink, frame) = one(tor.send(0, &udp(H0.to_gateway(abroad), 64, (port, 80), b"x")));
        if uplink == UPLINKS[0] {
            let mut frame = frame;
            frame[..6].copy_from_slice(&SWITCH.0);
            *cores.entry(one(agg.send(0, &frame)).0).or_default() += 1;
        }
    }
    let flows: u32 = cores.values().sum();
    assert!(flows > 1800, "{flows} flows of 4000");
    // Six standard deviations of about 2,000 fair coins.
    assert!(cores.values().all(|n| n.abs_diff(flows / 2) < 140), "{cores:?}");
}

#[test]
fn a_packet_leaves_by_the_port_it_came_in_by_if_that_is_its_route() {
    // The bridge's rule is not a router's.
    let mut rig = Rig::agg();
    let packet = udp(FAR.by_fabric(1, FAR.v4.into()), 9, (1, 2), b"back");
    assert_eq!(rig.send(1, &packet), [(1, routed(&packet, SWITCH, peer(1)))]);
}

#[test]
fn a_switch_with_neither_segment_nor_router_address_drops_in_silence() {
    let mut config = agg_config();
    (config.forwarding.router_v4, config.forwarding.router_v6) = (None, None);
    config.ports.push(FabricPort { peer: FABRIC, ..config.ports[0] });
    config.forwarding.routes.push(("10.3.0.0/16".parse().expect("a prefix"), PortMask::only(PortId(4))));
    let mut rig = Rig::new(config, PortLimits::default(), 64);
    let (sent, dropped) = rig.refuse(0, &udp(FAR.by_fabric(0, FAR.v4.into()), 1, (1, 2), b"?"));
    assert_eq!((sent, dropped), (vec![], vec![DropReason::TtlExpired]));
    // What was its own address is now one like any other.
    let (sent, _) = rig.refuse(0, &udp(FAR.by_fabric(0, ROUTER4.into()), 9, (1, 2), b"?"));
    assert!([2, 3].contains(&one(sent).0));
    // A new port works without anybody having told its peer's address.
    let packet = udp(FAR.by_fabric(0, [10, 3, 0, 1].into()), 9, (1, 2), b"new");
    assert_eq!(rig.send(0, &packet), [(4, routed(&packet, SWITCH, FABRIC))]);
}
