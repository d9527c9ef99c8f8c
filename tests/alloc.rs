//! The packet path takes no memory: after a warm-up, frames are received, forwarded and transmitted
//! without one allocation.

mod counting;
#[path = "packets/mod.rs"]
mod packets;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use counting::ALLOCATIONS;
use packets::{Ends, arp, solicitation, udp};
use weft::fabric::{Fabric, FabricConfig, FabricEgress, FabricIngress, FabricPort, Forwarding, HelloConfig, HelloMode};
use weft::frame::{BURST, Burst, Pool};
use weft::id::{PortId, PortKind, PortMask, SwitchId};
use weft::pisa::{Pipe, PortLimits, Switch};
use weft::scheme::ecmp::{Ecmp, EcmpEgress, EcmpIngress};
use weft::time::{Instant, MICROS, MILLIS};
use weft::units::BitRate;
use weft::wire::MacAddr;
use weft::wire::hello::{FRAME_LEN, Hello, LinkEnd, LinkState};

const SWITCH: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 1]);
const HOST: MacAddr = MacAddr([2, 0x68, 0, 0, 0, 2]);
const SPINE: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 9]);
const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const HOST6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2);
const FAR4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const FAR6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 2, 0, 0, 0, 2);

/// A ToR: host ports 0 and 1, uplinks 2 and 3, paced to 10 Gbit/s so that queues fill and drain.
fn tor() -> Switch<Fabric<Ecmp>> {
    let host = FabricPort { kind: PortKind::Host, peer: SPINE, mtu: 1500, rx_mtu: 1500, hello: HelloMode::Off };
    let up = FabricPort { kind: PortKind::Up, hello: HelloMode::Auto, ..host };
    let uplinks: PortMask = [PortId(2), PortId(3)].into_iter().collect();
    let config = FabricConfig {
        id: SwitchId(1),
        mac: SWITCH,
        fabric_mac: SPINE,
        ports: vec![host, host, up, up],
        forwarding: Forwarding {
            segment_v4: Some("10.0.1.1/24".parse().expect("a prefix")),
            segment_v6: Some("fd00:0:0:1::1/64".parse().expect("a prefix")),
            router_v4: None,
            router_v6: None,
            routes: ["0.0.0.0/0", "::/0"].map(|p| (p.parse().expect("a prefix"), uplinks)).to_vec(),
        },
        seed: 1,
        hello: HelloConfig { interval: MILLIS, multiplier: 3 },
        pipe: Pipe::ONLY,
    };
    let limits = PortLimits { rate: BitRate(10_000_000_000), ecn_mark_bytes: 10_000, ..PortLimits::default() };
    let ingress = FabricIngress::new(config, EcmpIngress);
    Switch::new(ingress, FabricEgress::new(EcmpEgress), &[limits; 4])
}

/// What the spine behind uplink 2 says: now that it hears us, now that it does not, so that the link comes
/// and goes.
fn spine_says(state: LinkState) -> (PortId, Vec<u8>) {
    let sender = LinkEnd { switch: SwitchId(9), port: PortId(0) };
    let heard = Some(LinkEnd { switch: SwitchId(1), port: PortId(2) });
    let mut frame = [0; FRAME_LEN];
    Hello { state, multiplier: 3, interval: 1_000, sender, heard }.emit(SPINE, &mut frame);
    (PortId(2), frame.to_vec())
}

/// A frame of each kind that the packet path forwards, with the port it comes in by: up, down, bridged,
/// flooded; some that it drops; and hellos.
fn mix() -> Vec<(PortId, Vec<u8>)> {
    let ends = |src_mac, dst_mac, src: IpAddr, dst: IpAddr| Ends { src_mac, dst_mac, src, dst };
    let neighbour = MacAddr([2, 0x68, 0, 0, 0, 3]);
    let mut mix = vec![
        (PortId(0), udp(ends(HOST, SWITCH, HOST4.into(), FAR4.into()), 64, (1, 2), b"up")),
        (PortId(0), udp(ends(HOST, SWITCH, HOST6.into(), FAR6.into()), 64, (1, 2), b"up")),
        (PortId(2), udp(ends(SPINE, SWITCH, FAR4.into(), HOST4.into()), 60, (1, 2), b"down")),
        (PortId(3), udp(ends(SPINE, SWITCH, FAR6.into(), HOST6.into()), 60, (1, 2), b"down")),
        (PortId(1), udp(ends(neighbour, HOST, HOST4.into(), HOST4.into()), 64, (1, 2), b"bridged")),
        (PortId(1), udp(ends(neighbour, MacAddr::BROADCAST, HOST4.into(), HOST4.into()), 64, (1, 2), b"flooded")),
        (PortId(0), udp(ends(HOST, SWITCH, HOST4.into(), FAR4.into()), 1, (1, 2), b"answered with an ICMP error")),
    ];
    let tagged = packets::tagged(&mix[0].1, &[[0x88, 0xa8, 0, 1], [0x81, 0, 0, 2]]);
    mix.push((PortId(0), tagged));
    mix.push((PortId(0), mix[0].1[..30].to_vec()));
    mix.push((PortId(2), mix[0].1[..13].to_vec()));
    mix.extend([LinkState::Init, LinkState::Up, LinkState::Down].map(spine_says));
    mix
}

#[test]
fn a_hundred_thousand_frames_are_forwarded_without_an_allocation() {
    let mut switch = tor();
    let mut pool = Pool::heap(4096, 2048);
    let (mut burst, mut out) = (Burst::new(), Burst::new());
    let mix = mix();
    let hello = [
        arp(false, (HOST, HOST4), (MacAddr([0; 6]), Ipv4Addr::new(10, 0, 1, 1)), MacAddr::BROADCAST, &[]),
        solicitation((HOST, HOST6), Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1)),
    ];
    for frame in hello {
        burst.push(pool.alloc_with(&frame).expect("a free chunk"));
    }
    let mut now = Instant(1);
    switch.receive(now, PortId(0), &mut pool, &mut burst);

    let mut run = |bursts: usize| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for i in 0..bursts {
            now = now + 10 * MICROS;
            let (port, bytes) = &mix[i % mix.len()];
            for _ in 0..BURST {
                burst.push(pool.alloc_with(bytes).expect("a free chunk"));
            }
            switch.receive(now, *port, &mut pool, &mut burst);
            switch.tick(now, &mut pool);
            for port in switch.backlog().iter() {
                switch.transmit(now, port, &mut pool, BURST, &mut out);
                out.drain().for_each(|frame| pool.free(frame));
            }
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    run(100);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 1, "the counter counts");
    assert_eq!(run(100_000 / BURST + 1), 0, "allocations");

    let ledger = switch.ledger();
    ledger.check().expect("the conservation law");
    let sum = |of: fn(&weft::counters::PortCounters) -> u64| ledger.ports.iter().map(|(c, _)| of(c)).sum::<u64>();
    assert!(sum(|c| c.rx) > 100_000 && sum(|c| c.tx) > 45_000, "too little was forwarded: {ledger:?}");
    switch.drain(now, &mut pool);
    assert_eq!(pool.free_count(), pool.chunks());
}
