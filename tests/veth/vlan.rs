use std::time::Duration;

use crate::bed::Kind::{Host, Up};
use crate::bed::{self, Bed, Lab, turn};
use crate::books;
use crate::packet::{PacketSocket, ethernet, udp_v4};

const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
/// Local experimental (IEEE 802), which no stack answers.
const EXPERIMENTAL: u16 = 0x88b5;
const WAIT: Duration = Duration::from_secs(5);

/// Tag stacks with priority and drop-eligible bits set, which have to pass as they are.
const STACKS: [&[(u16, u16)]; 6] = [
    &[(VLAN, 0x0064)],
    &[(VLAN, 0xf064)],
    &[(VLAN, 0x2000)],
    &[(QINQ, 0x30c8), (VLAN, 0x6064)],
    &[(VLAN, 0x00c8), (VLAN, 0x0065)],
    &[(QINQ, 0x0001), (QINQ, 0x0002), (VLAN, 0xefff)],
];

#[test]
fn tagged_frames_pass_the_bridge_untouched() {
    let Some(_turn) = turn("vlan-bridge") else { return };
    let bed = Bed::new("vlan", &[Host, Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    bed::ping_all_pairs(&bed.hosts);
    let (a, b, c) = (&bed.hosts[0], &bed.hosts[1], &bed.hosts[2]);
    let (from, to, other) = (PacketSocket::open(a), PacketSocket::open(b), PacketSocket::open(c));
    for stack in STACKS {
        for (ethertype, len) in [(IPV4, 60), (EXPERIMENTAL, 60), (EXPERIMENTAL, 1500)] {
            let mut frame = ethernet(b.mac(), a.mac(), stack, ethertype);
            let room = 1514 + if stack[0].0 == VLAN { 4 } else { 0 } - frame.len();
            match ethertype {
                IPV4 => frame.extend(udp_v4(a.ipv4, b.ipv4, 64, b"tagged and bridged")),
                _ => frame.extend((0..len.min(room)).map(|i| i as u8)),
            }
            from.send(&frame);
            let got = to.receive(WAIT, |f| f == frame);
            assert!(got.is_some(), "{stack:04x?} {ethertype:04x} of {} bytes", frame.len());
        }
        // To all: a copy for everyone else, its tags intact too.
        let mut frame = ethernet([0xff; 6], a.mac(), stack, EXPERIMENTAL);
        frame.extend([0x5a; 46]);
        from.send(&frame);
        assert!(
            to.receive(WAIT, |f| f == frame).is_some() && other.receive(WAIT, |f| f == frame).is_some(),
            "{stack:04x?}"
        );
    }
    // Known stations: what went to `b` alone was never seen by `c`.
    assert!(other.receive(Duration::from_millis(50), |f| f[..6] == b.mac()).is_none());
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn tagged_packets_are_routed_with_their_tags() {
    let Some(_turn) = turn("vlan-route") else { return };
    let lab = Lab::up("vlan", &["--leaf-spine", "2x2"]);
    let (a, b) = (lab.host("h0-0-2"), lab.host("h0-1-2"));
    // Leaves know both hosts now: they could not ask a host without VLANs through a tagged request.
    bed::ping_all_pairs(&lab.hosts);
    let gateway = a.neighbour("10.0.0.1");
    let far_gateway = b.neighbour("10.0.1.1");
    let (from, to) = (PacketSocket::open(a), PacketSocket::open(b));
    for (i, stack) in STACKS.iter().enumerate() {
        let payload = format!("tagged and routed {i}");
        let mut frame = ethernet(gateway, a.mac(), stack, IPV4);
        frame.extend(udp_v4(a.ipv4, b.ipv4, 64, payload.as_bytes()));
        from.send(&frame);
        // Addresses of the last hop, the same tags, a TTL three routers lower with its checksum right.
        let mut expected = ethernet(b.mac(), far_gateway, stack, IPV4);
        expected.extend(udp_v4(a.ipv4, b.ipv4, 61, payload.as_bytes()));
        let got = to.receive(WAIT, |f| f.ends_with(payload.as_bytes()));
        assert_eq!(got.as_deref(), Some(&expected[..]), "{stack:04x?}");
    }
    lab.check_books();
}

#[test]
fn what_is_neither_for_the_router_nor_a_packet_does_not_leave_by_an_uplink() {
    let Some(_turn) = turn("vlan-up") else { return };
    let bed = Bed::new("uplink", &[Host, Up]);
    let switch = bed.start(&bed.toml(""), &[]);
    let (a, up) = (&bed.hosts[0], &bed.hosts[1]);
    a.ping(Bed::GATEWAYS[0], &[]).answered();
    let gateway = a.neighbour("10.77.0.1");
    let (from, fabric) = (PacketSocket::open(a), PacketSocket::open(up));
    let mut flooded = ethernet([0xff; 6], a.mac(), &[(VLAN, 5)], EXPERIMENTAL);
    flooded.extend([7; 46]);
    from.send(&flooded);
    let mut routed = ethernet(gateway, a.mac(), &[(QINQ, 5), (VLAN, 6)], IPV4);
    routed.extend(udp_v4(a.ipv4, "10.78.1.2".parse().unwrap(), 9, b"up"));
    from.send(&routed);
    // Frames of one port keep their order: had the first been sent up, it would be here already.
    let got = fabric.receive(WAIT, |_| true).expect("the routed packet");
    assert_eq!(got[12..], [&routed[12..22], &udp_v4(a.ipv4, "10.78.1.2".parse().unwrap(), 8, b"up")].concat()[..]);
    let ports = books::at_rest(&switch.socket);
    assert_eq!((ports[1].tx, ports[0].ingress_drops.contains_key("no_bridge_port")), (1, true), "{ports:?}");
    switch.stop();
}
