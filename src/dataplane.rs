//! The assembly: which hooks make the program of a configured switch. The one `match` over schemes
//! is here; behind it everything is monomorphised, and the only dynamic calls are per burst.

use std::sync::{Arc, OnceLock};

use ipnet::IpNet;

use crate::config::scheme::Agent;
use crate::config::{FlowletOptions, HelloOptions, HulaOptions, PortConfig, QueueOptions, Selector, SwitchConfig};
use crate::counters::{Ledger, PortCounters};
use crate::fabric::clos::{ClosConfig, ClosEgress, DreConfig};
use crate::fabric::link::LinkView;
use crate::fabric::note::Note;
use crate::fabric::view::{NeighbourView, PathView, SchemeTable, StationView, Topic};
use crate::fabric::{
    Fabric, FabricConfig, FabricEgress, FabricIngress, FabricPort, Forwarding, HelloConfig, RackScheduler, Scheme,
    SchemeControl, SchemeEgress, SchemeIngress, SchemePort,
};
use crate::frame::{Burst, Pool};
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::tm::QueueLimits;
use crate::pisa::{DigestCounts, Handed, Pipe, PortLimits, Switch, TrafficManager};
use crate::scheme::caft::{Caft, CaftConfig, CaftIngress};
use crate::scheme::ecmp::{Ecmp, EcmpEgress, EcmpIngress};
use crate::scheme::expeditus::{Expeditus, ExpeditusConfig, ExpeditusIngress};
use crate::scheme::hula::{Hula, HulaConfig, HulaEgress, HulaIngress};
use crate::scheme::letflow::{Choice, LetFlow, LetFlowEgress, LetFlowIngress};
use crate::scheme::p4te::control::ControlPlane;
use crate::scheme::p4te::{P4te, P4teConfig, P4teEgress, P4teIngress, RateConfig, rate};
use crate::scheme::pl2::host::HostConfig;
use crate::scheme::pl2::switch::{Book, Rack, RackConfig, SharedBook};
use crate::scheme::pl2::{BookConfig, SlotBook, grace, slot_ns};
use crate::time::Instant;
use crate::wire::ethernet::TAG_LEN;

/// A switch whose scheme the caller need not know. The methods are those of [`Switch`], a burst a
/// call.
pub trait Dataplane: Send {
    /// [`Switch::receive`].
    fn receive(&mut self, now: Instant, port: PortId, pool: &mut Pool, burst: &mut Burst);
    /// [`Switch::transmit`].
    fn transmit(&mut self, now: Instant, port: PortId, pool: &mut Pool, room: usize, out: &mut Burst);
    /// [`Switch::tick`].
    fn tick(&mut self, now: Instant, pool: &mut Pool);
    /// [`Switch::control`].
    fn control(&mut self, now: Instant);
    /// [`Switch::digests`].
    fn digests(&self) -> DigestCounts;
    /// What the scheme has to show of `topic`; nothing if it has no such thing.
    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable>;
    /// [`Switch::tick_deadline`].
    fn tick_deadline(&self) -> Option<Instant>;
    /// [`Switch::next_deadline`].
    fn next_deadline(&self) -> Option<Instant>;
    /// [`Switch::backlog`].
    fn backlog(&self) -> PortMask;
    /// Which start of the switch this is, from 1: its hosts know it by that. Called before the first frame, if at all;
    /// of several pipes the first one says it.
    fn set_start(&mut self, number: u16);
    /// [`Switch::set_port_up`]; the forwarding leaves a dead port out at once.
    fn set_port_up(&mut self, port: PortId, up: bool, pool: &mut Pool);
    /// [`Switch::is_port_up`].
    fn is_port_up(&self, port: PortId) -> bool;
    /// Adds a port, the next after the last or one that was removed, on an interface with `mtu`.
    fn add_port(&mut self, now: Instant, id: PortId, port: &PortConfig, queues: &QueueOptions, mtu: u16);
    /// Changes a port that is there.
    fn set_port(&mut self, now: Instant, id: PortId, port: &PortConfig, queues: &QueueOptions, mtu: u16);
    /// [`Switch::remove_port`].
    fn remove_port(&mut self, now: Instant, id: PortId, pool: &mut Pool);
    /// [`FabricIngress::set_forwarding`].
    fn set_forwarding(&mut self, forwarding: &Forwarding);
    /// [`FabricIngress::set_hello`].
    fn set_hello(&mut self, options: &HelloOptions);
    /// [`Switch::handing`].
    fn handing(&mut self) -> &mut Vec<Handed>;
    /// [`Switch::accept`].
    fn accept(&mut self, now: Instant, pool: &mut Pool, handed: Handed);
    /// [`Switch::take_notes`].
    fn take_notes(&mut self, notes: &mut Vec<Note>);
    /// [`Switch::note`].
    fn note(&mut self, now: Instant, pool: &mut Pool, note: Note);
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
    /// Ports that carry traffic: up, and with a link that is live.
    fn live(&self) -> PortMask;
    /// The state of a port's link.
    fn link(&self, port: PortId) -> LinkView;
    /// What is at the other end of `port` was exchanged: see [`crate::fabric::link::Links::reset`].
    fn reset_link(&mut self, port: PortId);
}

impl<S: Scheme> Switch<Fabric<S>> {
    /// Tells the forwarding which ports are up.
    fn regroup(&mut self) {
        let up = (0..self.ports()).map(|i| PortId(i as u8)).filter(|p| self.is_port_up(*p)).collect();
        self.ingress_mut().set_up(up);
    }

    /// Tells all of the scheme's parts of a port.
    fn tell_scheme(&mut self, now: Instant, id: PortId, port: Option<SchemePort>) {
        self.ingress_mut().scheme_mut().set_port(now, id, port);
        if let Some(rack) = self.ingress_mut().rack_mut() {
            rack.set_port(now, id, port);
        }
        self.egress_mut().scheme_mut().set_port(now, id, port);
        if let Some(command) = self.control_plane_mut().set_port(now, id, port) {
            self.ingress_mut().scheme_mut().command(now, command);
        }
    }
}

impl<S: Scheme> Dataplane for Switch<Fabric<S>>
where
    S::Ingress: Send,
    S::Egress: Send,
    S::Control: Send,
    <S::Egress as SchemeEgress>::Digest: Send,
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
    fn control(&mut self, now: Instant) {
        Switch::control(self, now);
    }
    fn digests(&self) -> DigestCounts {
        Switch::digests(self)
    }
    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        let mut tables = self.ingress().scheme().show(now, topic);
        tables.extend(self.egress().scheme().show(now, topic));
        tables.extend(self.control_plane().show(now, topic));
        if let Some(rack) = self.ingress().rack().filter(|_| topic == Topic::Slots) {
            tables.extend(rack.show(now, self.queues()));
        }
        tables
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
    fn set_start(&mut self, number: u16) {
        if let Some(rack) = self.ingress_mut().rack_mut() {
            rack.start(number.max(1));
        }
    }
    fn set_port_up(&mut self, port: PortId, up: bool, pool: &mut Pool) {
        Switch::set_port_up(self, port, up, pool);
        self.regroup();
    }
    fn is_port_up(&self, port: PortId) -> bool {
        Switch::is_port_up(self, port)
    }
    fn add_port(&mut self, now: Instant, id: PortId, port: &PortConfig, queues: &QueueOptions, mtu: u16) {
        self.tell_scheme(now, id, Some(scheme_port(port, mtu)));
        self.ingress_mut().set_port(id, fabric_port(port, mtu));
        Switch::add_port(self, id, &limits(port, queues));
        self.regroup();
    }
    fn set_port(&mut self, now: Instant, id: PortId, port: &PortConfig, queues: &QueueOptions, mtu: u16) {
        self.tell_scheme(now, id, Some(scheme_port(port, mtu)));
        self.ingress_mut().set_port(id, fabric_port(port, mtu));
        self.set_limits(now, id, &limits(port, queues));
    }
    fn remove_port(&mut self, now: Instant, id: PortId, pool: &mut Pool) {
        Dataplane::set_port_up(self, id, false, pool);
        Switch::remove_port(self, now, id, pool);
        // What is said of it must not be taken to be about the next port with its number.
        Switch::control(self, now);
        self.ingress_mut().remove_port(id);
        self.tell_scheme(now, id, None);
    }
    fn set_forwarding(&mut self, forwarding: &Forwarding) {
        self.ingress_mut().set_forwarding(forwarding);
    }
    fn set_hello(&mut self, options: &HelloOptions) {
        self.ingress_mut().set_hello(hello(options));
    }
    fn handing(&mut self) -> &mut Vec<Handed> {
        Switch::handing(self)
    }
    fn accept(&mut self, now: Instant, pool: &mut Pool, handed: Handed) {
        Switch::accept(self, now, pool, handed);
    }
    fn take_notes(&mut self, notes: &mut Vec<Note>) {
        Switch::take_notes(self, notes);
    }
    fn note(&mut self, now: Instant, pool: &mut Pool, note: Note) {
        Switch::note(self, now, pool, note);
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
    fn live(&self) -> PortMask {
        self.ingress().carrying()
    }
    fn link(&self, port: PortId) -> LinkView {
        self.ingress().links().view(port)
    }
    fn reset_link(&mut self, port: PortId) {
        self.ingress_mut().reset_link(port);
    }
}

/// The forwarding part of a configuration. `mtus` are the ports' MTUs in bytes of IP packet, by
/// [`PortId`]: those of the interfaces. They bound what may arrive and what may leave; the
/// configuration can only lower the bound of what may leave.
pub fn fabric_config(config: &SwitchConfig, mtus: &[u16], pipe: Pipe) -> FabricConfig {
    let routes = config.routes.iter().map(|r| (r.prefix, r.ports.iter().copied().collect())).collect();
    FabricConfig {
        id: config.id,
        mac: config.mac,
        fabric_mac: crate::config::FABRIC_MAC,
        ports: config.ports.iter().zip(mtus).map(|(p, mtu)| fabric_port(p, *mtu)).collect(),
        forwarding: forwarding(config, routes),
        seed: config.seed,
        hello: hello(&config.hello),
        pipe,
    }
}

/// A port on an interface with `mtu`.
fn fabric_port(port: &PortConfig, mtu: u16) -> FabricPort {
    FabricPort {
        kind: port.kind,
        peer: port.peer_mac.unwrap_or(crate::config::FABRIC_MAC),
        mtu: port.mtu_on(mtu),
        rx_mtu: mtu,
        hello: port.hello,
    }
}

/// A port as a scheme sees it.
fn scheme_port(port: &PortConfig, mtu: u16) -> SchemePort {
    SchemePort {
        kind: port.kind,
        rate: port.rate,
        mtu,
        tx_mtu: port.mtu_on(mtu),
        peer: port.peer_mac.unwrap_or(crate::config::FABRIC_MAC),
        uplink: port.uplink,
    }
}

/// Addresses of a configuration, with `routes` to the ports of a running switch.
pub fn forwarding(config: &SwitchConfig, routes: Vec<(IpNet, PortMask)>) -> Forwarding {
    Forwarding {
        segment_v4: config.segment.as_ref().and_then(|s| s.ipv4),
        segment_v6: config.segment.as_ref().and_then(|s| s.ipv6),
        router_v4: config.router_ipv4,
        router_v6: config.router_ipv6,
        routes,
    }
}

/// When hellos are sent.
fn hello(options: &HelloOptions) -> HelloConfig {
    HelloConfig { interval: options.interval.0, multiplier: options.multiplier }
}

/// Rate and queue limits of a port.
pub fn limits(port: &PortConfig, queues: &QueueOptions) -> PortLimits {
    PortLimits {
        rate: port.rate,
        control: QueueLimits { packets: queues.control_packets, bytes: queues.bytes.0 },
        data: QueueLimits { packets: queues.packets, bytes: queues.bytes.0 },
        ecn_mark_bytes: queues.ecn_mark.0,
    }
}

/// Rates and queue limits of the configured ports.
pub fn port_limits(config: &SwitchConfig) -> Vec<PortLimits> {
    config.ports.iter().map(|p| limits(p, &config.queues)).collect()
}

/// The switch of a configuration, with one MTU a port as for [`fabric_config`].
///
/// # Panics
/// If there are fewer MTUs than ports.
pub fn build(config: &SwitchConfig, mtus: &[u16]) -> Box<dyn Dataplane> {
    build_pipe(config, mtus, Pipe::ONLY, &Common::default())
}

/// What the pipes of one switch have in common; a clone is the same. All else is each pipe's own.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Made with the first pipe, if the switch schedules its rack.
    slots: Arc<OnceLock<SharedBook>>,
}

/// One pipe of the switch of a configuration, with what it has in common with the others; otherwise as [`build`].
///
/// # Panics
/// If there are fewer MTUs than ports.
pub fn build_pipe(config: &SwitchConfig, mtus: &[u16], pipe: Pipe, common: &Common) -> Box<dyn Dataplane> {
    assert_eq!(mtus.len(), config.ports.len(), "one MTU a port");
    match config.selector {
        Selector::Caft => {
            let fabric = fabric_config(config, mtus, pipe);
            let caft = caft_config(config);
            let (ingress, egress) = (CaftIngress::new(&fabric, &caft), ClosEgress::new(caft.clos.tpid));
            Box::new(assemble::<Caft>(config, mtus, pipe, common, ingress, egress, ()))
        }
        Selector::Ecmp => Box::new(assemble::<Ecmp>(config, mtus, pipe, common, EcmpIngress, EcmpEgress, ())),
        Selector::Expeditus => {
            let fabric = fabric_config(config, mtus, pipe);
            let expeditus = expeditus_config(config);
            let ingress = ExpeditusIngress::new(&fabric, &expeditus);
            let egress = ClosEgress::new(expeditus.clos.tpid);
            Box::new(assemble::<Expeditus>(config, mtus, pipe, common, ingress, egress, ()))
        }
        Selector::Flowlet => Box::new(letflow(config, mtus, pipe, common, Choice::Hash)),
        Selector::LetFlow => Box::new(letflow(config, mtus, pipe, common, Choice::Random)),
        Selector::Hula => {
            let fabric = fabric_config(config, mtus, pipe);
            let rates: Vec<_> = config.ports.iter().map(|p| p.rate).collect();
            let ingress = HulaIngress::new(&fabric, &rates, &hula_config(config)).expect("a valid configuration");
            Box::new(assemble::<Hula>(config, mtus, pipe, common, ingress, HulaEgress, ()))
        }
        Selector::P4te => {
            let p4te = p4te_config(config);
            let (ingress, egress) = (P4teIngress::new(p4te), P4teEgress::new(p4te));
            Box::new(assemble::<P4te>(config, mtus, pipe, common, ingress, egress, ControlPlane::new(p4te.depth_step)))
        }
    }
}

/// Each pipe chooses by a seed of its own.
fn letflow(
    config: &SwitchConfig,
    mtus: &[u16],
    pipe: Pipe,
    common: &Common,
    choice: Choice,
) -> Switch<Fabric<LetFlow>> {
    let FlowletOptions { gap, slots } = config.flowlet;
    let seed = config.seed.wrapping_add(u64::from(pipe.index));
    let ingress = LetFlowIngress::new(choice, slots as usize, gap.0, seed);
    assemble::<LetFlow>(config, mtus, pipe, common, ingress, LetFlowEgress, ())
}

fn hula_config(config: &SwitchConfig) -> HulaConfig {
    let HulaOptions { period, keepalive, max_tors } = config.hula;
    HulaConfig {
        period: period.0,
        keepalive: keepalive.0,
        flowlet_gap: config.flowlet.gap.0,
        flowlet_slots: config.flowlet.slots as usize,
        max_tors: max_tors as usize,
    }
}

/// CAFT's part of a configuration.
pub fn caft_config(config: &SwitchConfig) -> CaftConfig {
    let o = &config.caft;
    CaftConfig {
        clos: clos_config(config),
        timeout: o.timeout.0,
        slots: o.slots as usize,
        failure_timeout: o.failure_timeout.0,
    }
}

/// Expeditus's part of a configuration: CAFT's table, but for what is known of failures.
pub fn expeditus_config(config: &SwitchConfig) -> ExpeditusConfig {
    let o = &config.caft;
    ExpeditusConfig { clos: clos_config(config), timeout: o.timeout.0, slots: o.slots as usize }
}

/// PL2's part of a configuration, for a ToR that has it: slots are as long as a full frame of its host ports takes.
///
/// # Panics
/// If the configuration is not valid, or there are fewer MTUs than ports.
pub fn rack_config(config: &SwitchConfig, mtus: &[u16]) -> Option<RackConfig> {
    let o = config.pl2.enabled.then_some(&config.pl2)?;
    let hosts = || config.ports.iter().zip(mtus).filter(|(port, _)| port.kind == PortKind::Host);
    let rate = hosts().map(|(port, _)| port.rate).next()?;
    let mtu = hosts().map(|(port, mtu)| port.mtu_on(*mtu)).max()? + u16::from(o.tags) * TAG_LEN as u16;
    let slot_ns = slot_ns(mtu, rate).expect("a rate that was checked");
    let book = BookConfig {
        mode: o.mode,
        slot_ns,
        grace: o.grace.map_or(grace(o.late_max, o.max_outstanding, slot_ns), |grace| grace.0),
        max_burst: o.k,
        // Room for a host whose messages are lost more than once.
        max_reserved: o.max_reserved.unwrap_or((4 * o.max_outstanding).max(o.k.into())),
        notify: o.notify,
        drop_rogues: o.drop_rogue,
        ..BookConfig::default()
    };
    let agent = HostConfig {
        mtu,
        max_burst: o.k,
        fixed_k: o.fixed_k,
        depth: o.depth,
        max_outstanding: o.max_outstanding,
        rtt_comp: o.rtt_comp.0,
        bypass_bytes: o.bypass_bytes.0 as u16,
        late_max: o.late_max,
        max_queue: o.max_queue,
        max_parked: o.max_parked,
        ..HostConfig::default()
    };
    Some(RackConfig { book, agent: (o.agent == Agent::Edge).then_some(agent), rsv_delay: o.rsv_delay.0 })
}

fn rack(config: &SwitchConfig, mtus: &[u16], pipe: Pipe, common: &Common) -> Option<Box<dyn RackScheduler>> {
    let rack = rack_config(config, mtus)?;
    let book = match pipe {
        Pipe::ONLY => Book::Own(Box::new(SlotBook::new(&rack.book, 1).expect("a valid configuration"))),
        _ => {
            let shared = || SharedBook::new(&rack.book).expect("a valid configuration");
            Book::Shared(common.slots.get_or_init(shared).clone())
        }
    };
    Some(Box::new(Rack::new(&rack, pipe, book).expect("a valid configuration")))
}

/// Where the switch of a configuration stands in its fabric, for all that go by it.
fn clos_config(config: &SwitchConfig) -> ClosConfig {
    let o = &config.caft;
    ClosConfig {
        role: config.role,
        pod_ipv4: config.pod.and_then(|pod| pod.ipv4),
        pod_ipv6: config.pod.and_then(|pod| pod.ipv6),
        uplinks: config.uplink_count().into(),
        tpid: o.tpid,
        dre: DreConfig { period: o.dre_period.0, alpha: o.dre_alpha.ppm(), scale: o.dre_scale },
        deterministic: o.deterministic,
    }
}

/// P4TE's part of a configuration.
pub fn p4te_config(config: &SwitchConfig) -> P4teConfig {
    let o = &config.p4te;
    let rate = RateConfig {
        mode: o.rate_adaptation,
        rule: o.ack,
        params: rate::Params { bytes: o.window.0 as u32, ..rate::Params::default() },
        slots: o.rate_slots as usize,
    };
    P4teConfig {
        delta: o.delta,
        depth_step: o.depth_step,
        flowlet_gap: o.flowlet_gap.0,
        flow_slots: config.flowlet.slots as usize,
        cir: o.cir.ppm(),
        pir: o.pir.ppm(),
        burst: o.burst.0,
        safe_short: o.safe_short.ppm(),
        safe_large: o.safe_large.ppm(),
        class_burst: o.class_burst.0,
        large_dscp: o.large_dscp.iter().fold(0, |bits, dscp| bits | 1 << dscp),
        large_after: o.large_after.0,
        seed: config.seed,
        mac: config.mac,
        rate,
    }
}

fn assemble<S: Scheme>(
    config: &SwitchConfig,
    mtus: &[u16],
    pipe: Pipe,
    common: &Common,
    ingress: S::Ingress,
    egress: S::Egress,
    control: S::Control,
) -> Switch<Fabric<S>> {
    let rack = rack(config, mtus, pipe, common);
    let ingress = FabricIngress::new(fabric_config(config, mtus, pipe), ingress).with_rack(rack);
    let mut switch =
        Switch::<Fabric<S>>::with_pipe(ingress, FabricEgress::new(egress), control, &port_limits(config), pipe);
    let ports = config.ports.iter().zip(config.uplink_numbers()).zip(mtus);
    for (id, ((port, uplink), mtu)) in (0..).map(PortId).zip(ports) {
        switch.tell_scheme(Instant::ZERO, id, Some(SchemePort { uplink, ..scheme_port(port, *mtu) }));
    }
    switch
}
