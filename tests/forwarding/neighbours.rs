//! Packets for a host whose MAC address is not known yet, or no longer.

use std::net::{IpAddr, Ipv4Addr};

use weft::counters::DropReason;
use weft::fabric::bridge::AGEING;
use weft::fabric::neighbour::{MAX_PARKED, MAX_PENDING, PATIENCE, REACHABLE, RETRANSMIT};
use weft::id::PortId;
use weft::pisa::PortLimits;
use weft::time::SECONDS;
use weft::wire::MacAddr;

use crate::packets::{
    Ends, Nd, OVERRIDE, SOLICITED, advertisement, arp, icmp, ip_packet, nd, routed, solicitation, tagged, udp,
};
use crate::rig::{FAR, GATEWAY4, GATEWAY6, H0, H1, Rig, SWITCH, Sent, UPLINKS, peer, tor_config};

const NOBODY: MacAddr = MacAddr([0; 6]);
const TAGS: [[u8; 4]; 1] = [[0x81, 0, 0x20, 10]];

/// What the switch asks on every host port to find `H1`.
fn asked(v6: bool) -> Vec<Sent> {
    let ask = match v6 {
        false => arp(false, (SWITCH, GATEWAY4), (NOBODY, H1.v4), MacAddr::BROADCAST, &[]),
        true => solicitation((SWITCH, GATEWAY6), H1.v6),
    };
    (0..3).map(|port| (port, ask.clone())).collect()
}

/// What `H1` answers.
fn told(v6: bool) -> Vec<u8> {
    match v6 {
        false => arp(true, (H1.mac, H1.v4), (SWITCH, GATEWAY4), SWITCH, &[]),
        true => advertisement((H1.mac, H1.v6), (SWITCH, GATEWAY6), false),
    }
}

fn down(v6: bool, number: u16) -> Vec<u8> {
    udp(FAR.by_fabric(UPLINKS[0], H1.ip(v6)), 60, (number, 80), b"down")
}

fn ports(sent: &[Sent]) -> Vec<u8> {
    sent.iter().map(|(port, _)| *port).collect()
}

#[test]
fn the_first_packet_waits_while_every_host_port_is_asked_and_goes_when_one_answers() {
    for v6 in [false, true] {
        let mut rig = Rig::tor();
        assert_eq!(rig.send(UPLINKS[0], &down(v6, 1)), asked(v6));
        // More packets wait without asking again, in order, whatever uplink they came by.
        for number in 2..=5 {
            assert_eq!(rig.send(UPLINKS[(number % 2) as usize], &down(v6, number)), []);
        }
        let held: u64 = rig.switch.ledger().ports.iter().map(|(c, _)| c.held).sum();
        assert_eq!(held, 5);
        let expected: Vec<Sent> = (1..=5).map(|n| (1, routed(&down(v6, n), SWITCH, H1.mac))).collect();
        assert_eq!(rig.send(1, &told(v6)), expected);
        // From now on nothing waits.
        assert_eq!(rig.send(UPLINKS[0], &down(v6, 6)), [(1, routed(&down(v6, 6), SWITCH, H1.mac))]);
    }
}

#[test]
fn the_request_has_the_tags_of_the_packet_that_caused_it() {
    let mut rig = Rig::tor();
    let sent = rig.send(UPLINKS[0], &tagged(&down(false, 1), &TAGS));
    let ask = arp(false, (SWITCH, GATEWAY4), (NOBODY, H1.v4), MacAddr::BROADCAST, &TAGS);
    assert_eq!(sent, [(0, ask.clone()), (1, ask.clone()), (2, ask)]);
    let tell = arp(true, (H1.mac, H1.v4), (SWITCH, GATEWAY4), SWITCH, &TAGS);
    let expected = routed(&tagged(&down(false, 1), &TAGS), SWITCH, H1.mac);
    assert_eq!(rig.send(1, &tell), [(1, expected)]);
}

#[test]
fn after_three_requests_a_second_apart_the_source_is_told_that_the_host_is_unreachable() {
    for (v6, kind, code) in [(false, 3, 1), (true, 1, 3)] {
        let mut rig = Rig::tor();
        assert_eq!(rig.send(UPLINKS[0], &down(v6, 1)), asked(v6));
        rig.send(UPLINKS[0], &down(v6, 2));
        for _ in 0..2 {
            rig.wait(RETRANSMIT - 1);
            assert_eq!(rig.sent(), []);
            rig.wait(1);
            assert_eq!(rig.sent(), asked(v6));
        }
        rig.wait(RETRANSMIT - 1);
        assert_eq!(rig.sent(), []);
        rig.wait(1);
        let sent = rig.sent();
        assert_eq!(sent.len(), 2, "one error a packet: {sent:?}");
        for (number, (port, error)) in (1..).zip(&sent) {
            let error = icmp(error).expect("an ICMP message");
            assert!(UPLINKS.contains(port));
            assert_eq!((error.ends.src_mac, error.ends.dst_mac), (SWITCH, peer(*port)));
            assert_eq!((error.ends.dst, error.kind, error.code), (FAR.ip(v6), kind, code));
            // Errors may take different uplinks; what they quote says which packet it was.
            assert!(error.rest == ip_packet(&down(v6, 1)) || error.rest == ip_packet(&down(v6, 2)), "{number}");
        }
        assert_eq!(rig.dropped(DropReason::NeighbourUnresolved), 2);
        assert_eq!(rig.switch.next_deadline(), None, "nothing is left to do");
        // The next packet starts anew.
        assert_eq!(rig.send(UPLINKS[0], &down(v6, 3)), asked(v6));
    }
}

#[test]
fn sixteen_packets_wait_for_a_host_and_the_seventeenth_is_a_counted_drop() {
    let mut rig = Rig::tor();
    for number in 0..MAX_PARKED as u16 {
        rig.send(UPLINKS[0], &down(false, number));
    }
    assert_eq!(rig.refuse(UPLINKS[0], &down(false, 99)), (vec![], vec![DropReason::NeighbourQueueFull]));
    let sent = rig.send(1, &told(false));
    assert_eq!(sent.len(), MAX_PARKED);
}

#[test]
fn a_scan_of_the_subnet_holds_sixty_four_addresses_and_no_more() {
    let mut rig = Rig::tor();
    let packet = |host| udp(FAR.by_fabric(UPLINKS[0], Ipv4Addr::new(10, 0, 1, host).into()), 60, (1, 80), b"scan");
    for host in 0..MAX_PENDING as u8 {
        assert_eq!(ports(&rig.send(UPLINKS[0], &packet(100 + host))), [0, 1, 2]);
    }
    assert_eq!(rig.refuse(UPLINKS[0], &packet(200)), (vec![], vec![DropReason::NeighbourQueueFull]));
    // Every one of them is asked for again on every port.
    rig.wait(RETRANSMIT);
    assert_eq!(rig.sent().len(), 3 * MAX_PENDING);
    // When the dead addresses have been given up there is room again. Errors are rate-limited: 20 at once for a port.
    rig.wait(2 * RETRANSMIT);
    let errors = rig.sent().iter().filter(|(port, _)| UPLINKS.contains(port)).count();
    assert_eq!(errors, 20);
    assert_eq!(rig.dropped(DropReason::NeighbourUnresolved), MAX_PENDING as u64);
    assert_eq!(ports(&rig.send(UPLINKS[0], &packet(200))), [0, 1, 2]);
}

#[test]
fn a_scan_of_the_subnet_does_not_keep_a_living_host_from_being_found() {
    let mut rig = Rig::tor();
    let packet = |host| udp(FAR.by_fabric(UPLINKS[0], Ipv4Addr::new(10, 0, 1, host).into()), 60, (1, 80), b"scan");
    for host in 0..MAX_PENDING as u8 {
        rig.send(UPLINKS[0], &packet(100 + host));
    }
    rig.wait(PATIENCE);
    rig.sent();
    // The oldest of the dead makes room, and its packet is counted as undeliverable.
    let (sent, dropped) = rig.refuse(UPLINKS[0], &down(false, 1));
    assert_eq!((sent, dropped), (asked(false), vec![DropReason::NeighbourUnresolved]));
    assert_eq!(rig.send(1, &told(false)), [(1, routed(&down(false, 1), SWITCH, H1.mac))]);
}

#[test]
fn a_neighbour_unconfirmed_for_thirty_seconds_is_used_and_asked_where_it_was() {
    for v6 in [false, true] {
        let mut rig = Rig::tor();
        rig.meet_hosts();
        rig.wait(REACHABLE - 1);
        assert_eq!(rig.sent(), []);
        assert_eq!(ports(&rig.send(3, &down(v6, 1))), [1]);
        rig.wait(1);
        // Stale: the packet goes, and a request with it (ahead of it: control before data) to that port only.
        let sent = rig.send(3, &down(v6, 2));
        assert_eq!(sent, [(1, asked(v6).remove(1).1), (1, routed(&down(v6, 2), SWITCH, H1.mac))]);
        // Not more than one request a second.
        assert_eq!(rig.send(3, &down(v6, 3)).len(), 1);
        rig.send(1, &told(v6));
        rig.wait(RETRANSMIT);
        assert_eq!(rig.send(3, &down(v6, 4)).len(), 1, "confirmed: no request");
    }
}

#[test]
fn a_neighbour_that_three_requests_did_not_confirm_is_looked_for_everywhere() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    rig.wait(REACHABLE);
    for number in 0..3 {
        assert_eq!(ports(&rig.send(3, &down(false, number))), [1, 1]);
        rig.wait(RETRANSMIT);
    }
    assert_eq!(rig.send(3, &down(false, 3)), asked(false));
    // It has moved to port 2.
    assert_eq!(rig.send(2, &told(false)), [(2, routed(&down(false, 3), SWITCH, H1.mac))]);
}

#[test]
fn a_host_that_moves_and_announces_it_is_reached_at_its_new_port_and_mac() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let new = MacAddr([2, 9, 9, 9, 9, 9]);
    rig.send(2, &arp(false, (new, H1.v4), (NOBODY, H1.v4), MacAddr::BROADCAST, &[]));
    // Nobody asked for this: it is used, and asked for.
    let ask = asked(false).remove(2);
    assert_eq!(rig.send(3, &down(false, 1)), [ask, (2, routed(&down(false, 1), SWITCH, new))]);
}

#[test]
fn who_only_asked_is_used_and_asked_in_turn_until_it_answers() {
    for v6 in [false, true] {
        let mut rig = Rig::tor();
        let request = match v6 {
            false => arp(false, (H1.mac, H1.v4), (NOBODY, GATEWAY4), MacAddr::BROADCAST, &[]),
            true => solicitation((H1.mac, H1.v6), GATEWAY6),
        };
        rig.send(1, &request);
        let packet = |number| (1, routed(&down(v6, number), SWITCH, H1.mac));
        assert_eq!(rig.send(3, &down(v6, 1)), [asked(v6).remove(1), packet(1)]);
        // Asking again proves nothing new; an answer does.
        rig.wait(RETRANSMIT);
        rig.send(1, &request);
        assert_eq!(rig.send(3, &down(v6, 2)), [asked(v6).remove(1), packet(2)]);
        rig.send(1, &told(v6));
        rig.wait(RETRANSMIT);
        assert_eq!(rig.send(3, &down(v6, 3)), [packet(3)]);
    }
}

#[test]
fn an_advertisement_without_override_does_not_replace_a_mac_but_has_it_asked_for() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let ends = Ends { src_mac: H0.mac, dst_mac: SWITCH, src: H1.v6.into(), dst: GATEWAY6.into() };
    let claim = |flags| nd(&Nd { ends, target: H1.v6, mac: Some(H0.mac), flags: Some(flags) });
    rig.send(0, &claim(SOLICITED));
    let (ask, packet) = (asked(true).remove(1), routed(&down(true, 1), SWITCH, H1.mac));
    assert_eq!(rig.send(3, &down(true, 1)), [ask, (1, packet)]);
    // With it, it does; and what was said unasked is asked for in turn.
    rig.send(0, &claim(OVERRIDE));
    let (ask, packet) = (asked(true).remove(0), routed(&down(true, 1), SWITCH, H0.mac));
    assert_eq!(rig.send(3, &down(true, 1)), [ask, (0, packet)]);
}

#[test]
fn a_host_that_moves_without_a_word_is_reached_where_the_bridge_last_heard_it() {
    for v6 in [false, true] {
        let mut rig = Rig::tor();
        rig.meet_hosts();
        rig.send(2, &udp(H1.to_station(&H0, v6), 64, (1, 2), b"from its new port"));
        assert_eq!(rig.send(3, &down(v6, 1)), [(2, routed(&down(v6, 1), SWITCH, H1.mac))]);
        let views = rig.switch.ingress().neighbour_views(rig.now);
        let moved = views.iter().find(|n| n.address == H1.ip(v6)).expect("still known");
        assert_eq!(moved.port, Some(PortId(2)));
        // When it is due to be asked, it is asked there.
        rig.wait(REACHABLE);
        assert_eq!(ports(&rig.send(3, &down(v6, 2))), [2, 2]);
    }
}

#[test]
fn a_neighbour_whose_station_the_bridge_has_forgotten_is_asked_on_every_host_port() {
    for v6 in [false, true] {
        let mut rig = Rig::tor();
        rig.meet_hosts();
        rig.wait(AGEING);
        let mut expected = asked(v6);
        expected.insert(2, (1, routed(&down(v6, 1), SWITCH, H1.mac)));
        assert_eq!(rig.send(3, &down(v6, 1)), expected);
    }
}

#[test]
fn a_host_behind_a_port_that_went_down_is_looked_for_anew() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    rig.set_up(1, false);
    assert_eq!(ports(&rig.send(3, &down(false, 1))), [0, 2], "only ports that are up are asked");
}

#[test]
fn a_waiting_packet_that_turns_out_too_big_for_the_host_is_reported() {
    let mut config = tor_config();
    config.ports[1].mtu = 1280;
    for (v6, kind, code) in [(false, 3, 4), (true, 2, 0)] {
        let mut rig = Rig::new(config.clone(), PortLimits::default(), 64);
        let header = if v6 { 48 } else { 28 };
        let packet = udp(FAR.by_fabric(3, H1.ip(v6)), 60, (1, 80), &vec![1; 1281 - header]);
        rig.send(3, &packet);
        let (sent, dropped) = rig.refuse(1, &told(v6));
        assert_eq!(dropped, [DropReason::TooBig]);
        let [(port, error)] = &sent[..] else { panic!("one frame: {sent:?}") };
        let error = icmp(error).expect("an ICMP message");
        assert!(UPLINKS.contains(port));
        assert_eq!((error.kind, error.code, error.word), (kind, code, 1280));
    }
}

#[test]
fn an_address_outside_the_segment_is_not_believed() {
    let mut rig = Rig::tor();
    let abroad: IpAddr = FAR.v4.into();
    rig.send(0, &arp(false, (H0.mac, FAR.v4), (NOBODY, GATEWAY4), MacAddr::BROADCAST, &[]));
    assert!(rig.switch.ingress().neighbour_views(rig.now).is_empty());
    // Nor can a host take the gateway's own.
    rig.send(0, &arp(false, (H0.mac, GATEWAY4), (NOBODY, GATEWAY4), MacAddr::BROADCAST, &[]));
    assert!(rig.switch.ingress().neighbour_views(rig.now).is_empty());
    assert!(UPLINKS.contains(&ports(&rig.send(0, &udp(H0.to_gateway(abroad), 64, (1, 2), b"up")))[0]));
}

#[test]
fn what_waits_is_dropped_and_counted_when_the_switch_is_drained() {
    let mut rig = Rig::tor();
    for number in 0..3 {
        rig.send(3, &down(false, number));
        rig.send(4, &down(true, number));
    }
    rig.drain();
    assert_eq!(rig.dropped(DropReason::Shutdown), 6);
    rig.wait(10 * SECONDS);
    assert_eq!(rig.sent(), []);
}
