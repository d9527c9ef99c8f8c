//! The ToR as its hosts' gateway: ARP, neighbour discovery and ping to its own addresses.

use weft::counters::DropReason;
use weft::wire::MacAddr;

use crate::packets::{
    Ends, Nd, OVERRIDE, ROUTER, SOLICITED, advertisement, arp, echo, icmp, ip_packet, nd, padded, solicitation, tagged,
    udp,
};
use crate::rig::{FABRIC, FAR, GATEWAY4, GATEWAY6, H0, H1, H2, ROUTER4, ROUTER6, Rig, SWITCH, UPLINKS, peer};

const NOBODY: MacAddr = MacAddr([0; 6]);
const TAGS: [[u8; 4]; 2] = [[0x88, 0xa8, 0x20, 100], [0x81, 0, 0xa0, 10]];

#[test]
fn an_arp_request_for_the_gateway_is_answered_to_its_asker_alone_with_its_tags() {
    for tags in [&[][..], &TAGS] {
        let mut rig = Rig::tor();
        let request = arp(false, (H0.mac, H0.v4), (NOBODY, GATEWAY4), MacAddr::BROADCAST, tags);
        let reply = arp(true, (SWITCH, GATEWAY4), (H0.mac, H0.v4), H0.mac, tags);
        assert_eq!(rig.send(0, &request), [(0, reply)]);
    }
}

#[test]
fn an_arp_request_for_another_host_is_bridged_and_the_switch_is_silent() {
    let mut rig = Rig::tor();
    let request = arp(false, (H0.mac, H0.v4), (NOBODY, H1.v4), MacAddr::BROADCAST, &[]);
    assert_eq!(rig.send(0, &request), [(1, request.clone()), (2, request)]);
    let reply = arp(true, (H1.mac, H1.v4), (H0.mac, H0.v4), H0.mac, &[]);
    assert_eq!(rig.send(1, &reply), [(0, reply)]);
}

#[test]
fn a_malformed_arp_packet_is_dropped_and_counted() {
    let mut rig = Rig::tor();
    let mut request = arp(false, (H0.mac, H0.v4), (NOBODY, GATEWAY4), MacAddr::BROADCAST, &[]);
    request[14 + 4] = 8; // hardware address length
    assert_eq!(rig.refuse(0, &request), (vec![], vec![DropReason::BadNeighbourMessage]));
}

#[test]
fn a_solicitation_for_the_gateway_is_answered_as_a_router_answers() {
    let mut rig = Rig::tor();
    let expected = advertisement((SWITCH, GATEWAY6), (H0.mac, H0.v6), true);
    assert_eq!(rig.send(0, &solicitation((H0.mac, H0.v6), GATEWAY6)), [(0, expected)]);
}

#[test]
fn a_host_that_claims_the_gateways_address_is_told_by_all_nodes_that_it_is_taken() {
    let mut rig = Rig::tor();
    let mut ends = H0.to_gateway(GATEWAY6.into());
    ends.src = std::net::Ipv6Addr::UNSPECIFIED.into();
    let (group, mac) = crate::packets::solicited_node(GATEWAY6);
    (ends.dst, ends.dst_mac) = (group.into(), mac);
    let probe = nd(&Nd { ends, target: GATEWAY6, mac: None, flags: None });
    let all_nodes = Ends {
        src_mac: SWITCH,
        dst_mac: MacAddr([0x33, 0x33, 0, 0, 0, 1]),
        src: GATEWAY6.into(),
        dst: "ff02::1".parse().expect("an address"),
    };
    let flags = Some(ROUTER | OVERRIDE);
    let expected = nd(&Nd { ends: all_nodes, target: GATEWAY6, mac: Some(SWITCH), flags });
    assert_eq!(rig.send(0, &probe), [(0, expected)]);
}

#[test]
fn neighbour_discovery_between_hosts_is_bridged() {
    let mut rig = Rig::tor();
    let ask = solicitation((H0.mac, H0.v6), H1.v6);
    assert_eq!(rig.send(0, &ask), [(1, ask.clone()), (2, ask)]);
    let tell = advertisement((H1.mac, H1.v6), (H0.mac, H0.v6), false);
    assert_eq!(rig.send(1, &tell), [(0, tell)]);
}

#[test]
fn a_routed_or_forged_neighbour_message_is_dropped_and_counted() {
    let mut rig = Rig::tor();
    let mut routed = solicitation((H0.mac, H0.v6), GATEWAY6);
    routed[14 + 7] = 254;
    assert_eq!(rig.refuse(0, &routed), (vec![], vec![DropReason::BadNeighbourMessage]));
    let ends = H0.to_gateway(GATEWAY6.into());
    let mut damaged = nd(&Nd { ends, target: H0.v6, mac: Some(H0.mac), flags: Some(SOLICITED) });
    damaged[60] ^= 1;
    assert_eq!(rig.refuse(0, &damaged), (vec![], vec![DropReason::BadNeighbourMessage]));
}

#[test]
fn the_gateway_answers_ping_with_what_it_was_sent() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for (gateway, tags) in [(GATEWAY4.into(), &[][..]), (GATEWAY6.into(), &[]), (GATEWAY4.into(), &TAGS)] {
        for payload in [&b""[..], &[0x5a; 1400]] {
            let ends = H0.to_gateway(gateway);
            let back = Ends { src_mac: SWITCH, dst_mac: H0.mac, src: gateway, dst: ends.src };
            let mut expected = tagged(&echo(back, 64, true, 3, payload), tags);
            if gateway.is_ipv4() {
                // etherparse writes DF and identification 0 too, so all bytes can be compared.
                assert_eq!(expected[crate::packets::l3(&expected) + 6] & 0x40, 0x40);
            }
            expected.truncate((crate::packets::l3(&expected) + ip_packet(&expected).len()).max(60));
            // A TTL of 1 is enough to get to the first router.
            assert_eq!(rig.send(0, &tagged(&echo(ends, 1, false, 3, payload), tags)), [(0, expected)]);
        }
    }
}

#[test]
fn a_ping_from_a_stranger_is_answered_once_the_switch_has_asked_who_it_is() {
    let mut rig = Rig::tor();
    let sent = rig.send(0, &echo(H0.to_gateway(GATEWAY4.into()), 64, false, 1, b"ping"));
    let ask = arp(false, (SWITCH, GATEWAY4), (NOBODY, H0.v4), MacAddr::BROADCAST, &[]);
    assert_eq!(sent, [(0, ask.clone()), (1, ask.clone()), (2, ask)]);
    let sent = rig.send(0, &arp(true, (H0.mac, H0.v4), (SWITCH, GATEWAY4), SWITCH, &[]));
    let [(0, reply)] = &sent[..] else { panic!("one frame to port 0: {sent:?}") };
    let reply = icmp(reply).expect("an ICMP message");
    assert_eq!((reply.kind, reply.ends.dst, &reply.rest[..4]), (0, H0.v4.into(), &b"ping"[..]));
}

#[test]
fn a_ping_from_far_away_is_answered_over_the_fabric() {
    for (mut rig, address4, address6, ports) in
        [(Rig::tor(), GATEWAY4, GATEWAY6, UPLINKS.to_vec()), (Rig::agg(), ROUTER4, ROUTER6, vec![1])]
    {
        for address in [address4.into(), address6.into()] {
            let arrives_by = if ports == [1] { 2 } else { 3 };
            let sent = rig.send(arrives_by, &echo(FAR.by_fabric(arrives_by, address), 9, false, 1, b"far"));
            let [(port, reply)] = &sent[..] else { panic!("one frame: {sent:?}") };
            assert!(ports.contains(port), "by port {port}");
            let reply = icmp(reply).expect("an ICMP message");
            let ends = Ends { src_mac: SWITCH, dst_mac: peer(*port), src: address, dst: FAR.ip(address.is_ipv6()) };
            assert_eq!((reply.ends, reply.ttl), (ends, 64));
        }
    }
}

#[test]
fn a_damaged_ping_is_dropped_and_counted() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let mut ping = echo(H0.to_gateway(GATEWAY4.into()), 64, false, 1, b"ping");
    ping[14 + 20 + 8] ^= 1;
    assert_eq!(rig.refuse(0, &ping), (vec![], vec![DropReason::BadIcmpChecksum]));
}

#[test]
fn a_port_nobody_listens_on_is_reported_unreachable() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for (gateway, kind, code) in [(GATEWAY4.into(), 3, 3), (GATEWAY6.into(), 1, 4)] {
        let packet = udp(H0.to_gateway(gateway), 64, (4000, 53), b"dns?");
        let (sent, dropped) = rig.refuse(0, &packet);
        let [(0, error)] = &sent[..] else { panic!("one frame to port 0: {sent:?}") };
        let error = icmp(error).expect("an ICMP message");
        assert_eq!((error.kind, error.code, &error.rest[..]), (kind, code, ip_packet(&packet)));
        assert_eq!(dropped, [DropReason::NoListener]);
    }
}

#[test]
fn a_fabric_port_answers_to_the_fabrics_address_until_it_knows_better() {
    let mut rig = Rig::agg();
    let mut ping = echo(FAR.by_fabric(2, ROUTER4.into()), 9, false, 1, b"far");
    ping[..6].copy_from_slice(&FABRIC.0);
    assert_eq!(rig.send(2, &padded(ping)).len(), 1);
}

#[test]
fn a_third_hosts_addresses_are_not_taken_from_what_two_others_say() {
    let mut rig = Rig::tor();
    // H1 asks for H2 with H0's address in the sender field, to H2 alone: an update would need an entry,
    // and a message between others makes none.
    rig.send(1, &arp(false, (H1.mac, H0.v4), (NOBODY, H2.v4), MacAddr::BROADCAST, &[]));
    assert_eq!(rig.switch.ingress().neighbour_views(rig.now), []);
}
