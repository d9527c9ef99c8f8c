//! A received frame that a scheme sends round again is still a received one: it is no packet of the
//! switch's own, which alone is exempt from what holds for the packets of others.

use weft::counters::DropReason;
use weft::fabric::{Fabric, FabricEgress, FabricIngress, Handled, Scheme, SchemeIngress};
use weft::frame::{Burst, Frame, Pool};
use weft::id::PortId;
use weft::pisa::table::Group;
use weft::pisa::{Context, Meta, PortLimits, Switch, Verdict};
use weft::scheme::ecmp::EcmpEgress;
use weft::time::Instant;

use crate::packets::{routed, udp};
use crate::rig::{FAR, H0, SWITCH, Sent, agg_config, peer};

/// A scheme whose messages are IPv4 packets under an EtherType of its own, and which counts arrivals.
#[derive(Debug, Default)]
struct Wrapped {
    arrived: usize,
}

const WRAPPED: [u8; 2] = [0x88, 0xb5];

impl SchemeIngress for Wrapped {
    type Feedback = ();
    type Command = ();

    fn choose(&mut self, _: Instant, group: &Group, _: &mut Frame, _: &mut Meta) -> Option<PortId> {
        group.members().first().copied()
    }

    fn arrived(&mut self, _: Instant, _: &mut Frame, _: &mut Meta) {
        self.arrived += 1;
    }

    fn message(&mut self, _: &mut Context<'_>, frame: &mut Frame, _: &mut Meta) -> Option<Handled> {
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        Some(Handled::Verdict(Verdict::Recirculate))
    }
}

impl Scheme for Wrapped {
    type Ingress = Wrapped;
    type Egress = EcmpEgress;
    type Control = ();
}

/// What an agg of that scheme makes of one frame: what it sends, and why it drops.
fn agg(port: u8, packet: &[u8]) -> (Vec<Sent>, Vec<DropReason>) {
    let config = agg_config();
    let limits = vec![PortLimits::default(); config.ports.len()];
    let ingress = FabricIngress::new(config, Wrapped::default());
    let mut switch = Switch::<Fabric<Wrapped>>::new(ingress, FabricEgress::new(EcmpEgress), &limits);
    let (mut pool, mut burst) = (Pool::heap(8, 2048), Burst::new());
    let mut wrapped = packet.to_vec();
    wrapped[12..14].copy_from_slice(&WRAPPED);
    burst.push(pool.alloc_with(&wrapped).expect("a free chunk"));
    switch.receive(Instant(1), PortId(port), &mut pool, &mut burst);
    assert_eq!(switch.ingress().scheme().arrived, 1, "it came off the wire once");
    let mut sent = vec![];
    for port in switch.backlog().iter() {
        switch.transmit(Instant(1), port, &mut pool, 8, &mut burst);
        for frame in burst.drain() {
            sent.push((port.0, frame.to_vec()));
            pool.free(frame);
        }
    }
    let ledger = switch.ledger();
    ledger.check().expect("the conservation law");
    assert_eq!(pool.free_count(), pool.chunks(), "frames were lost");
    (sent, ledger.ports.iter().flat_map(|(c, _)| c.drops().nonzero().map(|(r, _)| r).collect::<Vec<_>>()).collect())
}

#[test]
fn its_ttl_is_decremented_and_runs_out_and_its_sender_is_told() {
    let packet = |ttl| udp(H0.by_fabric(0, FAR.v4.into()), ttl, (1, 2), b"wrapped");
    assert_eq!(agg(0, &packet(9)), (vec![(1, routed(&packet(9), SWITCH, peer(1)))], vec![]));
    let (sent, dropped) = agg(0, &packet(1));
    assert_eq!((sent.len(), dropped), (1, vec![DropReason::TtlExpired]), "an ICMP error");
}

#[test]
fn it_does_not_go_up_again_when_it_came_from_above() {
    let packet = udp(FAR.by_fabric(2, [10, 7, 1, 2].into()), 9, (1, 2), b"wrapped");
    let (_, dropped) = agg(2, &packet);
    assert_eq!(dropped, [DropReason::NoRoute]);
}
