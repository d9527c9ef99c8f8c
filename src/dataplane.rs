//! The assembly: which hooks make the program of a configured switch. The one `match` over schemes
//! is here; behind it everything is monomorphised, and the only dynamic calls are per burst.

use crate::config::{Selector, SwitchConfig};
use crate::counters::{Ledger, PortCounters};
use crate::fabric::link::LinkView;
use crate::fabric::view::{NeighbourView, PathView, StationView};
use crate::fabric::{Fabric, FabricConfig, FabricEgress, FabricIngress, FabricPort, HelloConfig, Scheme};
use crate::frame::{Burst, Pool};
use crate::id::{PortId, PortMask};
use crate::pisa::tm::QueueLimits;
use crate::pisa::{PortLimits, Switch, TrafficManager};
use crate::scheme::ecmp::{Ecmp, EcmpEgress, EcmpIngress};
use crate::time::Instant;

/// A switch whose scheme the caller need not know. The methods are those of [`Switch`], a burst a
/// call.
pub trait Dataplane: Send {
    /// [`Switch::receive`].
    fn receive(&mut self, now: Instant, port: PortId, pool: &mut Pool, burst: &mut Burst);
    /// [`Switch::transmit`].
    fn transmit(&mut self, now: Instant, port: PortId, pool: &mut Pool, room: usize, out: &mut Burst);
    /// [`Switch::tick`].
    fn tick(&mut self, now: Instant, pool: &mut Pool);
    /// [`Switch::tick_deadline`].
    fn tick_deadline(&self) -> Option<Instant>;
    /// [`Switch::next_deadline`].
    fn next_deadline(&self) -> Option<Instant>;
    /// [`Switch::backlog`].
    fn backlog(&self) -> PortMask;
    /// [`Switch::set_port_up`]; the forwarding leaves a dead port out at once.
    fn set_port_up(&mut self, port: PortId, up: bool, pool: &mut Pool);
    /// [`Switch::is_port_up`].
    fn is_port_up(&self, port: PortId) -> bool;
    /// [`Switch::drain`].
    fn drain(&mut self, now: Instant, pool: &mut Pool);
    /// [`Switch::counters`].
    fn counters(&self, port: PortId) -> PortCounters;
    /// [`Switch::ledger`].
    fn ledger(&self) -> Ledger;
    /// [`Switch::queues`].
    fn queues(&self) -> &TrafficManager;
    /// Neighbours of the segment.
    fn neighbours(&self, now: Instant) -> Vec<NeighbourView>;
    /// Stations of the segment.
    fn stations(&self, now: Instant) -> Vec<StationView>;
    /// Routes.
    fn paths(&self) -> Vec<PathView>;
    /// The state of a port's link.
    fn link(&self, port: PortId) -> LinkView;
    /// What is at the other end of `port` was exchanged: see [`crate::fabric::link::Links::reset`].
    fn reset_link(&mut self, port: PortId);
}

impl<S: Scheme> Dataplane for Switch<Fabric<S>>
where
    S::Ingress: Send,
    S::Egress: Send,
{
    fn receive(&mut self, now: Instant, port: PortId, pool: &mut Pool, burst: &mut Burst) {
        Switch::receive(self, now, port, pool, burst);
    }
    fn transmit(&mut self, now: Instant, port: PortId, pool: &mut Pool, room: usize, out: &mut Burst) {
        Switch::transmit(self, now, port, pool, room, out);
    }
    fn tick(&mut self, now: Instant, pool: &mut Pool) {
        Switch::tick(self, now, pool);
    }
    fn tick_deadline(&self) -> Option<Instant> {
        Switch::tick_deadline(self)
    }
    fn next_deadline(&self) -> Option<Instant> {
        Switch::next_deadline(self)
    }
    fn backlog(&self) -> PortMask {
        Switch::backlog(self)
    }
    fn set_port_up(&mut self, port: PortId, up: bool, pool: &mut Pool) {
        Switch::set_port_up(self, port, up, pool);
        let up = (0..self.ports()).map(|i| PortId(i as u8)).filter(|p| self.is_port_up(*p)).collect();
        self.ingress_mut().set_up(up);
    }
    fn is_port_up(&self, port: PortId) -> bool {
        Switch::is_port_up(self, port)
    }
    fn drain(&mut self, now: Instant, pool: &mut Pool) {
        Switch::drain(self, now, pool);
    }
    fn counters(&self, port: PortId) -> PortCounters {
        Switch::counters(self, port)
    }
    fn ledger(&self) -> Ledger {
        Switch::ledger(self)
    }
    fn queues(&self) -> &TrafficManager {
        Switch::queues(self)
    }
    fn neighbours(&self, now: Instant) -> Vec<NeighbourView> {
        self.ingress().neighbour_views(now)
    }
    fn stations(&self, now: Instant) -> Vec<StationView> {
        self.ingress().station_views(now)
    }
    fn paths(&self) -> Vec<PathView> {
        self.ingress().path_views()
    }
    fn link(&self, port: PortId) -> LinkView {
        self.ingress().links().view(port)
    }
    fn reset_link(&mut self, port: PortId) {
        self.ingress_mut().reset_link(port);
    }
}

/// The forwarding part of a configuration. `mtus` are the ports' MTUs in bytes of IP packet, by
/// [`PortId`]: those of the interfaces. They bound what may arrive, and what may leave where the
/// configuration gives no bound of its own.
pub fn fabric_config(config: &SwitchConfig, mtus: &[u16]) -> FabricConfig {
    let port = |(p, mtu): (&crate::config::PortConfig, &u16)| FabricPort {
        kind: p.kind,
        peer: p.peer_mac.unwrap_or(crate::config::FABRIC_MAC),
        mtu: p.mtu.unwrap_or(*mtu),
        rx_mtu: *mtu,
        hello: p.hello,
    };
    FabricConfig {
        id: config.id,
        mac: config.mac,
        fabric_mac: crate::config::FABRIC_MAC,
        ports: config.ports.iter().zip(mtus).map(port).collect(),
        segment_v4: config.segment.as_ref().and_then(|s| s.ipv4),
        segment_v6: config.segment.as_ref().and_then(|s| s.ipv6),
        router_v4: config.router_ipv4,
        router_v6: config.router_ipv6,
        routes: config.routes.iter().map(|r| (r.prefix, r.ports.iter().copied().collect())).collect(),
        seed: config.seed,
        hello: HelloConfig { interval: config.hello.interval.0, multiplier: config.hello.multiplier },
    }
}

/// Rates and queue limits of the configured ports.
pub fn port_limits(config: &SwitchConfig) -> Vec<PortLimits> {
    let q = &config.queues;
    let limits = |p: &crate::config::PortConfig| PortLimits {
        rate: p.rate,
        control: QueueLimits { packets: q.control_packets, bytes: q.bytes.0 },
        data: QueueLimits { packets: q.packets, bytes: q.bytes.0 },
        ecn_mark_bytes: q.ecn_mark.0,
    };
    config.ports.iter().map(limits).collect()
}

/// The switch of a configuration, with one MTU a port as for [`fabric_config`].
///
/// # Panics
/// If there are fewer MTUs than ports.
pub fn build(config: &SwitchConfig, mtus: &[u16]) -> Box<dyn Dataplane> {
    assert_eq!(mtus.len(), config.ports.len(), "one MTU a port");
    match config.selector {
        Selector::Ecmp => Box::new(assemble::<Ecmp>(config, mtus, EcmpIngress, EcmpEgress)),
    }
}

fn assemble<S: Scheme>(
    config: &SwitchConfig,
    mtus: &[u16],
    ingress: S::Ingress,
    egress: S::Egress,
) -> Switch<Fabric<S>> {
    let ingress = FabricIngress::new(fabric_config(config, mtus), ingress);
    Switch::new(ingress, FabricEgress::new(egress), &port_limits(config))
}
