//! The hosts of a ToR are one segment: learning, flooding, and their bounds.

use weft::counters::DropReason;
use weft::pisa::PortLimits;
use weft::time::{Instant, SECONDS};
use weft::wire::MacAddr;

use crate::packets::{padded, tagged, udp};
use crate::rig::{FABRIC, H0, H1, H2, HOSTS, Rig, SWITCH, Station, tor_config};

const VLAN: [u8; 4] = [0x81, 0, 0x20, 10];
const QINQ: [[u8; 4]; 2] = [[0x88, 0xa8, 0, 100], VLAN];

fn frame(from: &Station, to: &Station) -> Vec<u8> {
    udp(from.to_station(to, false), 64, (1000, 2000), b"hello")
}

fn ethernet(dst: MacAddr, src: MacAddr, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    padded([&dst.0[..], &src.0, &ethertype.to_be_bytes(), payload].concat())
}

#[test]
fn a_frame_to_an_unknown_station_is_flooded_to_the_other_host_ports_and_no_uplink() {
    let mut rig = Rig::tor();
    let frame = frame(&H0, &H1);
    assert_eq!(rig.send(0, &frame), [(1, frame.clone()), (2, frame)]);
}

#[test]
fn a_station_that_has_spoken_gets_its_frames_alone_and_unchanged() {
    let mut rig = Rig::tor();
    rig.send(1, &frame(&H1, &H2));
    let frame = frame(&H0, &H1);
    assert_eq!(rig.send(0, &frame), [(1, frame)]);
}

#[test]
fn broadcast_and_multicast_are_flooded_and_never_learned() {
    let mut rig = Rig::tor();
    for destination in [MacAddr::BROADCAST, MacAddr([0x01, 0, 0x5e, 0, 0, 5]), MacAddr([0x33, 0x33, 0, 0, 0, 5])] {
        let frame = ethernet(destination, H0.mac, 0x88b5, b"to all");
        assert_eq!(rig.send(0, &frame), [(1, frame.clone()), (2, frame)]);
    }
    let (sent, dropped) = rig.refuse(1, &ethernet(H0.mac, MacAddr([3, 0, 0, 0, 0, 1]), 0x88b5, b"from a group"));
    assert_eq!((sent, dropped), (vec![], vec![DropReason::MulticastSource]));
}

#[test]
fn what_is_for_one_link_alone_is_neither_forwarded_nor_learned_from() {
    let mut rig = Rig::tor();
    for last in 0..=0x0f {
        // LLDP's EtherType; STP, LACP and PAUSE have others and the same fate.
        let lldp = ethernet(MacAddr([0x01, 0x80, 0xc2, 0, 0, last]), H0.mac, 0x88cc, b"neighbour");
        assert_eq!(rig.refuse(0, &lldp), (vec![], vec![DropReason::ReservedGroup]));
    }
    assert_eq!(rig.switch.ingress().station_views(rig.now), []);
    for last in [0x10, 0x20] {
        let beyond = ethernet(MacAddr([0x01, 0x80, 0xc2, 0, 0, last]), H0.mac, 0x88cc, b"a bridge's matter");
        assert_eq!(rig.send(0, &beyond).len(), 2);
    }
}

#[test]
fn any_ethertype_and_even_a_broken_packet_is_bridged() {
    let mut rig = Rig::tor();
    rig.send(1, &frame(&H1, &H2));
    let mut broken = frame(&H0, &H1);
    broken[24] ^= 1; // the IPv4 checksum
    for frame in [ethernet(H1.mac, H0.mac, 0x88b5, b"experimental"), ethernet(H1.mac, H0.mac, 46, b"802.3"), broken] {
        assert_eq!(rig.send(0, &frame), [(1, frame)]);
    }
}

#[test]
fn one_tag_does_not_count_against_the_mtu_and_each_further_one_does() {
    // A veth carries MTU + 18 bytes and drops what is longer unseen.
    let mut rig = Rig::tor();
    rig.send(1, &frame(&H1, &H2));
    let packet = |len: usize| udp(H0.to_station(&H1, false), 64, (1, 2), &vec![7; len - 28]);
    for (tags, most) in [(&[VLAN][..], 1500), (&QINQ, 1496)] {
        let fits = tagged(&packet(most), tags);
        assert_eq!(rig.send(0, &fits), [(1, fits)]);
        let over = tagged(&packet(most + 1), tags);
        assert_eq!(rig.refuse(0, &over), (vec![], vec![DropReason::TooBig]));
    }
}

#[test]
fn a_flooded_frame_goes_only_where_it_fits() {
    let mut config = tor_config();
    config.ports[1].mtu = 600;
    let mut rig = Rig::new(config, PortLimits::default(), 64);
    let large = ethernet(MacAddr::BROADCAST, H0.mac, 0x88b5, &[1; 601]);
    assert_eq!(rig.send(0, &large), [(2, large)]);
    let giant = ethernet(MacAddr::BROADCAST, H0.mac, 0x88b5, &[1; 1501]);
    assert_eq!(rig.refuse(0, &giant), (vec![], vec![DropReason::TooBig]));
}

#[test]
fn a_station_that_moved_gets_its_frames_at_its_new_port() {
    let mut rig = Rig::tor();
    rig.send(1, &frame(&H1, &H2));
    rig.send(2, &frame(&H1, &H0));
    let frame = frame(&H0, &H1);
    assert_eq!(rig.send(0, &frame), [(2, frame)]);
}

#[test]
fn a_frame_is_never_sent_back_to_the_port_it_came_from() {
    let mut rig = Rig::tor();
    rig.send(0, &frame(&H1, &H2)); // H1 is behind port 0 too
    assert_eq!(rig.refuse(0, &frame(&H0, &H1)), (vec![], vec![DropReason::NoBridgePort]));
}

#[test]
fn the_switch_does_not_take_a_frame_in_its_own_name() {
    let mut rig = Rig::tor();
    let forged = ethernet(H1.mac, SWITCH, 0x88b5, b"loop");
    assert_eq!(rig.refuse(0, &forged), (vec![], vec![DropReason::MartianSource]));
}

#[test]
fn a_silent_station_is_forgotten_after_three_hundred_seconds() {
    let mut rig = Rig::tor();
    rig.send(1, &frame(&H1, &H2));
    let frame = frame(&H0, &H1);
    rig.wait(300 * SECONDS - 1);
    assert_eq!(rig.send(0, &frame).len(), 1);
    rig.wait(1);
    assert_eq!(rig.send(0, &frame).len(), 2, "flooded again");
}

#[test]
fn a_storm_is_held_to_two_thousand_copies_and_twenty_thousand_a_second_for_each_port() {
    let mut rig = Rig::tor();
    let storm = ethernet(MacAddr::BROADCAST, H0.mac, 0x88b5, b"storm");
    let flooded = (0..3000).filter(|_| !rig.send(0, &storm).is_empty()).count();
    assert_eq!(flooded, 1000, "two copies of each");
    assert_eq!(rig.dropped(DropReason::StormLimited), 2000);
    // Another port has a bucket of its own; what is addressed to a known station needs none.
    assert_eq!(rig.send(1, &ethernet(MacAddr::BROADCAST, H1.mac, 0x88b5, b"x")).len(), 2);
    assert_eq!(rig.send(0, &frame(&H0, &H1)).len(), 1);
    // One token each 50 us, and two are needed.
    rig.now = rig.now + 50_000;
    assert_eq!(rig.refuse(0, &storm), (vec![], vec![DropReason::StormLimited]));
    rig.now = rig.now + 50_000;
    assert_eq!(rig.send(0, &storm).len(), 2);
    assert_eq!(rig.refuse(0, &storm), (vec![], vec![DropReason::StormLimited]));
}

#[test]
fn a_copy_for_which_no_chunk_is_free_is_a_counted_drop() {
    let mut rig = Rig::new(tor_config(), PortLimits::default(), 1);
    let frame = frame(&H0, &H1);
    let (sent, dropped) = rig.refuse(0, &frame);
    assert_eq!(sent, [(2, frame)], "the frame itself goes to the last port");
    assert_eq!(dropped, [DropReason::NoFrame]);
}

#[test]
fn a_frame_for_the_gateways_mac_that_is_no_ip_and_no_arp_ends_there() {
    let mut rig = Rig::tor();
    assert_eq!(rig.refuse(0, &ethernet(SWITCH, H0.mac, 0x88b5, b"?")), (vec![], vec![DropReason::NoListener]));
}

#[test]
fn the_bridge_is_not_the_fabrics_and_the_fabric_not_the_bridges() {
    let mut rig = Rig::tor();
    rig.send(1, &frame(&H1, &H2));
    // From an uplink, addressed to a station: not routed, not bridged.
    assert_eq!(rig.refuse(3, &frame(&H0, &H1)), (vec![], vec![DropReason::NotForUs]));
    // The fabric's address means nothing on the segment: an unknown station.
    let mut strange = frame(&H0, &H1);
    strange[..6].copy_from_slice(&FABRIC.0);
    assert_eq!(rig.send(0, &strange).iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn every_pair_of_hosts_talks_after_one_round_of_flooding() {
    let mut rig = Rig::tor();
    for (port, host) in (0..).zip(&HOSTS) {
        rig.send(port, &ethernet(MacAddr::BROADCAST, host.mac, 0x88b5, b"here"));
    }
    for (from, sender) in (0..).zip(&HOSTS) {
        for (to, receiver) in (0..).zip(&HOSTS).filter(|(to, _)| *to != from) {
            let frame = frame(sender, receiver);
            assert_eq!(rig.send(from, &frame), [(to, frame)]);
        }
    }
    let seen = rig.switch.ingress().station_views(rig.now);
    assert_eq!(seen.iter().map(|s| s.mac).collect::<Vec<_>>(), HOSTS.map(|h| h.mac));
    assert!(rig.now > Instant::ZERO && seen.iter().all(|s| s.age_ms == 0));
}
