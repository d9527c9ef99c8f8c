//! What the sender of a packet is told, and how often.

use std::net::IpAddr;

use weft::counters::DropReason;
use weft::id::PortKind;
use weft::pisa::PortLimits;

use crate::packets::{Ends, echo, icmp, ip_packet, mend_ipv4, tagged, udp};
use crate::rig::{
    FAR, GATEWAY4, GATEWAY6, H0, H1, HOSTS, ROUTER4, ROUTER6, Rig, SWITCH, Sent, UPLINKS, agg_config, peer, tor_config,
};

fn one(sent: Vec<Sent>) -> Sent {
    let [one] = <[Sent; 1]>::try_from(sent).unwrap_or_else(|sent| panic!("one frame: {sent:?}"));
    one
}

#[test]
fn a_packet_whose_hops_run_out_is_reported_from_the_gateway_to_its_host() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for (far, gateway, kind) in [(FAR.v4.into(), IpAddr::from(GATEWAY4), 11), (FAR.v6.into(), GATEWAY6.into(), 3)] {
        for ttl in [1, 0] {
            let packet = udp(H0.to_gateway(far), ttl, (40_000, 33_434), b"traceroute");
            let (sent, dropped) = rig.refuse(0, &packet);
            assert_eq!(dropped, [DropReason::TtlExpired]);
            let (port, error) = one(sent);
            let error = icmp(&error).expect("an ICMP message");
            let ends = Ends { src_mac: SWITCH, dst_mac: H0.mac, src: gateway, dst: H0.ip(far.is_ipv6()) };
            assert_eq!((port, error.ends, error.ttl), (0, ends, 64));
            assert_eq!((error.kind, error.code, error.word), (kind, 0, 0));
            assert_eq!(error.rest, ip_packet(&packet), "the packet as it came");
        }
    }
}

#[test]
fn every_hop_of_a_traceroute_answers_with_its_own_address() {
    let mut rig = Rig::agg();
    for (far, router) in [(FAR.v4.into(), IpAddr::from(ROUTER4)), (FAR.v6.into(), ROUTER6.into())] {
        let probe = udp(H0.by_fabric(0, far), 1, (40_000, 33_434), b"probe");
        let (port, error) = one(rig.send(0, &probe));
        let error = icmp(&error).expect("an ICMP message");
        let ends = Ends { src_mac: SWITCH, dst_mac: peer(0), src: router, dst: H0.ip(far.is_ipv6()) };
        assert_eq!((port, error.ends), (0, ends));
    }
}

#[test]
fn an_error_keeps_the_tags_of_its_cause() {
    let tags = [[0x88, 0xa8, 0, 100], [0x81, 0, 0x20, 10]];
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let (_, error) = one(rig.send(0, &tagged(&udp(H0.to_gateway(FAR.v4.into()), 1, (1, 2), b"x"), &tags)));
    assert_eq!(error[12..20], tags.concat());
    assert_eq!(icmp(&error).expect("an ICMP message").kind, 11);
}

#[test]
fn a_packet_over_the_next_mtu_is_reported_with_that_mtu() {
    let mut config = tor_config();
    for uplink in UPLINKS {
        config.ports[uplink as usize].mtu = 1400;
    }
    let mut rig = Rig::new(config, PortLimits::default(), 256);
    rig.meet_hosts();
    for (far, header, kind, code) in [(FAR.v4.into(), 28, 3, 4), (FAR.v6.into(), 48, 2, 0)] {
        let fits = udp(H0.to_gateway(far), 64, (1, 2), &vec![1; 1400 - header]);
        assert!(UPLINKS.contains(&one(rig.send(0, &fits)).0));
        let packet = udp(H0.to_gateway(far), 64, (1, 2), &vec![1; 1401 - header]);
        let (sent, dropped) = rig.refuse(0, &packet);
        assert_eq!(dropped, [DropReason::TooBig]);
        let (port, error) = one(sent);
        let error = icmp(&error).expect("an ICMP message");
        assert_eq!((port, error.kind, error.code, error.word), (0, kind, code, 1400));
        let quote = if far.is_ipv6() { 1280 - 48 } else { 576 - 28 };
        assert_eq!(error.rest, ip_packet(&packet)[..quote], "as much as fits the shortest MTU");
    }
}

#[test]
fn errors_are_twenty_at_once_and_two_hundred_a_second_for_each_port_and_fifty_at_once_in_all() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let told = |rig: &mut Rig, port: u8, packets: usize| {
        let packet = udp(HOSTS[port as usize].to_gateway(FAR.v4.into()), 1, (1, 2), b"x");
        (0..packets).filter(|_| !rig.send(port, &packet).is_empty()).count()
    };
    assert_eq!(told(&mut rig, 0, 80), 20);
    assert_eq!(told(&mut rig, 1, 80), 20, "one host does not silence another");
    assert_eq!(told(&mut rig, 2, 80), 10, "the switch as a whole has sent its fifty");
    assert_eq!(rig.dropped(DropReason::TtlExpired), 240, "each is counted all the same");
    // One token each 5 ms for a port, and five for the switch.
    rig.now = rig.now + 4_999_999;
    assert_eq!(told(&mut rig, 0, 5), 0);
    rig.now = rig.now + 1;
    assert_eq!([0, 1].map(|port| told(&mut rig, port, 5)), [1, 1]);
}

#[test]
fn no_error_is_sent_about_an_error_a_fragment_or_a_group() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    // An ICMP error whose own hops run out: take one that the switch made and send it on.
    let (_, mut error) = one(rig.send(0, &udp(H0.to_gateway(FAR.v4.into()), 1, (1, 2), b"x")));
    error[..6].copy_from_slice(&SWITCH.0);
    error[6..12].copy_from_slice(&H0.mac.0);
    error[14 + 8] = 1;
    error[14 + 12..14 + 16].copy_from_slice(&H0.v4.octets());
    error[14 + 16..14 + 20].copy_from_slice(&FAR.v4.octets());
    mend_ipv4(&mut error, 14);
    let mut fragment = udp(H0.to_gateway(FAR.v4.into()), 1, (1, 2), &[0; 64]);
    fragment[14 + 6..14 + 8].copy_from_slice(&[0, 9]);
    mend_ipv4(&mut fragment, 14);
    for packet in [error, fragment] {
        assert_eq!(rig.refuse(0, &packet), (vec![], vec![DropReason::TtlExpired]));
    }
    // A ping is no error: it is reported.
    assert_eq!(rig.send(0, &echo(H0.to_gateway(FAR.v4.into()), 1, false, 1, b"")).len(), 1);
}

#[test]
fn an_error_that_must_pass_the_fabric_is_routed_and_not_reported_itself() {
    // The agg's way back is gone: the error about the packet has no route, and that is the end of it.
    let mut config = agg_config();
    config.forwarding.routes.retain(|(prefix, _)| prefix.to_string() != "10.0.1.0/24");
    let mut rig = Rig::new(config, PortLimits::default(), 16);
    let (sent, dropped) = rig.refuse(0, &udp(H0.by_fabric(0, FAR.v4.into()), 1, (1, 2), b"x"));
    assert_eq!(sent, []);
    // In the order of the list of reasons: the packet and the error about it.
    assert_eq!(dropped, [DropReason::TtlExpired, DropReason::EmptyGroup]);
}

#[test]
fn without_a_free_chunk_the_packet_is_dropped_and_nobody_told() {
    let mut rig = Rig::new(agg_config(), PortLimits::default(), 1);
    let packet = udp(H0.by_fabric(0, FAR.v4.into()), 1, (1, 2), b"x");
    assert_eq!(rig.refuse(0, &packet), (vec![], vec![DropReason::TtlExpired]));
    let ping = echo(H1.by_fabric(0, ROUTER4.into()), 9, false, 1, b"");
    assert_eq!(rig.refuse(0, &ping), (vec![], vec![DropReason::NoFrame]));
}

#[test]
fn an_mtu_is_the_egress_ports_own() {
    let mut config = agg_config();
    assert_eq!(config.ports[1].kind, PortKind::Down);
    config.ports[1].mtu = 1300;
    let mut rig = Rig::new(config, PortLimits::default(), 16);
    let large = |dst| udp(H0.by_fabric(0, dst), 9, (1, 2), &[1; 1472]);
    let (sent, dropped) = rig.refuse(0, &large(FAR.v4.into()));
    assert_eq!((one(sent).0, dropped), (0, vec![DropReason::TooBig]));
    assert!([2, 3].contains(&one(rig.send(0, &large([10, 7, 1, 2].into()))).0));
}
