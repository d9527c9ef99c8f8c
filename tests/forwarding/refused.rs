//! Frames that go nowhere: each has its reason, and nothing else happens.

use std::net::IpAddr;

use weft::counters::DropReason;
use weft::pisa::PortLimits;
use weft::wire::MacAddr;

use crate::packets::{Ends, mend_ipv4, padded, tagged, udp};
use crate::rig::{FABRIC, FAR, H0, H1, Rig, SWITCH, Station, UPLINKS, peer, tor_config};

#[test]
fn a_martian_source_is_never_routed() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for source in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "169.254.1.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::2",
        "ff02::1",
    ] {
        let src: IpAddr = source.parse().expect("an address");
        let ends = Ends { src, ..H0.to_gateway(FAR.ip(src.is_ipv6())) };
        assert_eq!(rig.refuse(0, &udp(ends, 64, (1, 2), b"x")), (vec![], vec![DropReason::MartianSource]), "{source}");
    }
}

#[test]
fn a_destination_that_is_no_host_is_never_routed() {
    use DropReason::{MartianDestination, MulticastNotRouted};
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for (destination, reason) in [
        ("0.0.0.0", MartianDestination),
        ("127.0.0.1", MartianDestination),
        ("169.254.1.1", MartianDestination),
        ("240.0.0.1", MartianDestination),
        ("255.255.255.255", MartianDestination),
        ("10.0.1.255", MartianDestination), // the segment's broadcast address (RFC 2644)
        ("224.0.0.5", MulticastNotRouted),
        ("239.255.255.255", MulticastNotRouted),
        ("::", MartianDestination),
        ("::1", MartianDestination),
        ("fe80::2", MartianDestination),
        ("ff0e::1", MulticastNotRouted),
    ] {
        let dst: IpAddr = destination.parse().expect("an address");
        for (port, ends) in [(0, H0.to_gateway(dst)), (3, FAR.by_fabric(3, dst))] {
            let packet = udp(ends, 64, (1, 2), b"x");
            assert_eq!(rig.refuse(port, &packet), (vec![], vec![reason]), "{destination} by port {port}");
        }
    }
}

#[test]
fn a_fabric_port_takes_only_ip_for_the_switchs_own_mac() {
    let mut rig = Rig::agg();
    let packet = udp(FAR.by_fabric(2, FAR.v4.into()), 9, (1, 2), b"x");
    for stranger in [peer(1), H0.mac, MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        let mut packet = packet.clone();
        packet[..6].copy_from_slice(&stranger.0);
        assert_eq!(rig.refuse(2, &packet), (vec![], vec![DropReason::NotForUs]), "{stranger}");
    }
    for own in [SWITCH, FABRIC] {
        for ethertype in [0x0806u16, 0x88cc, 0x88b5, 46, 0] {
            let frame = padded([&own.0[..], &peer(2).0, &ethertype.to_be_bytes(), b"message"].concat());
            let refused = rig.refuse(2, &frame);
            assert_eq!(refused, (vec![], vec![DropReason::UnknownEthertype]), "{ethertype:04x}");
        }
    }
}

#[test]
fn a_runt_of_any_length_is_a_counted_drop_at_any_port() {
    let mut rig = Rig::tor();
    let packet = udp(H0.to_gateway(FAR.v4.into()), 64, (1, 2), b"x");
    for port in 0..5 {
        for length in 0..14 {
            let refused = rig.refuse(port, &packet[..length]);
            assert_eq!(refused, (vec![], vec![DropReason::Runt]), "{length} bytes at port {port}");
        }
    }
}

#[test]
fn a_packet_cut_anywhere_in_its_header_or_payload_is_not_routed() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    for far in [IpAddr::from(FAR.v4), FAR.v6.into()] {
        let packet = udp(H0.to_gateway(far), 64, (1, 2), &[0x55; 60]);
        for length in 14..packet.len() {
            let refused = rig.refuse(0, &packet[..length]);
            assert_eq!(refused, (vec![], vec![DropReason::TruncatedL3]), "{length} bytes of {far}");
        }
        assert!(UPLINKS.contains(&rig.send(0, &packet)[0].0), "the whole packet is");
    }
}

#[test]
fn a_frame_cut_inside_its_tags_is_a_counted_drop() {
    let mut rig = Rig::tor();
    let tags = [[0x88, 0xa8, 0, 1], [0x81, 0, 0, 2], [0x91, 0, 0, 3]];
    let frame = tagged(&udp(H0.to_gateway(FAR.v4.into()), 64, (1, 2), b"x"), &tags);
    for length in 14..26 {
        assert_eq!(rig.refuse(0, &frame[..length]), (vec![], vec![DropReason::TruncatedTag]), "{length} bytes");
    }
    // Nothing but tags to the end.
    let endless = [&frame[..12], &[0x81, 0, 0, 1].repeat(300)].concat();
    assert_eq!(rig.refuse(0, &endless), (vec![], vec![DropReason::TruncatedTag]));
}

#[test]
fn a_header_that_lies_is_not_routed() {
    use DropReason::{BadIpChecksum, BadIpLength, BadIpVersion, TruncatedL3};
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let v4 = udp(H0.to_gateway(FAR.v4.into()), 64, (1, 2), &[0x55; 60]);
    let v6 = udp(H0.to_gateway(FAR.v6.into()), 64, (1, 2), &[0x55; 60]);
    let lie = |packet: &[u8], at: usize, value: &[u8], mend: bool| {
        let mut packet = packet.to_vec();
        packet[14 + at..14 + at + value.len()].copy_from_slice(value);
        if mend {
            mend_ipv4(&mut packet, 14);
        }
        packet
    };
    for (what, packet, reason) in [
        ("version 5", lie(&v4, 0, &[0x55], true), BadIpVersion),
        ("version 6 in an IPv4 frame", lie(&v4, 0, &[0x65], true), BadIpVersion),
        ("a header of 16 bytes", lie(&v4, 0, &[0x44], false), BadIpLength),
        ("a total length under the header's", lie(&v4, 2, &[0, 19], true), BadIpLength),
        ("a total length past the frame", lie(&v4, 2, &[0xff, 0xff], true), TruncatedL3),
        ("a wrong checksum", lie(&v4, 10, &[0, 0], false), BadIpChecksum),
        ("a hop less, checksum not mended", lie(&v4, 8, &[63], false), BadIpChecksum),
        ("version 4 in an IPv6 frame", lie(&v6, 0, &[0x45], false), BadIpVersion),
        ("a payload length past the frame", lie(&v6, 4, &[0xff, 0xff], false), TruncatedL3),
    ] {
        assert_eq!(rig.refuse(0, &packet), (vec![], vec![reason]), "{what}");
    }
}

#[test]
fn a_frame_over_the_mtu_and_two_tags_is_a_giant() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let frame = |len: usize| udp(H0.to_station(&H1, false), 64, (1, 2), &vec![1; len - 42]);
    assert_eq!(rig.refuse(0, &frame(1500 + 14 + 8)), (vec![], vec![DropReason::TooBig]));
    assert_eq!(rig.refuse(0, &frame(1500 + 14 + 9)), (vec![], vec![DropReason::Giant]));
}

#[test]
fn a_port_that_may_send_less_still_takes_what_its_interface_does() {
    let mut config = tor_config();
    config.ports[0].mtu = 1300;
    let mut rig = Rig::new(config, PortLimits::default(), 64);
    rig.meet_hosts();
    let long = |from: &Station, to: &Station| udp(from.to_station(to, false), 64, (1, 2), &[1; 1472]);
    assert_eq!(rig.send(0, &long(&H0, &H1)), [(1, long(&H0, &H1))]);
    assert_eq!(rig.refuse(1, &long(&H1, &H0)), (vec![], vec![DropReason::TooBig]));
}
