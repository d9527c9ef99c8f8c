//! HULA: each switch knows the least used way to each ToR, by probes, and sends new flowlets that way
//! (Katta, Hira, Kim, Sivaraman, Rexford: "HULA: Scalable Load Balancing Using Programmable Data Planes",
//! SOSR 2016).
//!
//! ```text
//!   ToR t: a probe (t, its prefixes, utilisation 0) up every live uplink, each period
//!   switch, on a probe (t, u) by port p:  u' = max(u, utilisation of p towards t)
//!       taken if  u' < best[t].utilisation,  or p = best[t].port,  or best[t] not heard for the keep-alive
//!       then      best[t] = (p, u', now), and passed on as (t, u')
//!                 from below: to all upper and all other lower ports; from above: to lower ports; by ToRs: not
//!   packet to t:  a flowlet keeps its port; a new one takes best[t].port
//! ```
//! A probe travels against the traffic that will follow it: the load that counts is that of the port it comes
//! in by, transmit side ([`util`]).
//!
//! Where this differs from the paper, or the paper leaves it open:
//!
//! - **What is passed on.** A probe that is taken, at most one a ToR in half a period. In a network at rest the
//!   probes of a ToR come by all ways within much less than that, each period: so one is passed on a period,
//!   which is the paper's cost (one probe a ToR, link and period). A probe that is refused is not passed on
//!   with the stored utilisation: that would make a way look alive that has fallen silent.
//!   What a probe says of a way that became the best half a period before is told the next time.
//! - **Below before above.** A ToR that is below is reached by going down, however busy; a probe of it that
//!   comes round from above is refused while the way down is heard.
//! - **A hop count** ends probes where links are wired in a circle ([`crate::wire::hula::MAX_LINKS`]). A ToR's
//!   own probe that comes back is refused.
//! - **Prefixes** come with the probes. A destination that no probe told of, one whose way has not been heard
//!   for the keep-alive, and one whose best port is not of the route's group, is spread by the flow's hash.
//! - **A port that goes down** is no best way from then on, and no flowlet's port.
//! - **Probes are not authenticated.** They are taken from fabric ports alone: at a host's port their
//!   destination address is refused.

mod config;
/// What is shown.
mod show;
/// Ways to ToRs.
mod table;
/// How busy a link is.
pub mod util;

pub use config::{HulaConfig, HulaConfigError};
pub use table::{Refusal, TorView};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::counters::DropReason;
use crate::fabric::view::{SchemeTable, Topic, flowlet_table};
use crate::fabric::{FabricConfig, Handled, Scheme, SchemeEgress, SchemeIngress, SchemePort};
use crate::frame::Frame;
use crate::id::{MAX_PORTS, PortId, PortKind, PortMask, SwitchId};
use crate::pisa::flowlet::FlowletTable;
use crate::pisa::table::Group;
use crate::pisa::{Action, Context, EgressContext, EgressVerdict, Meta, Queue, Verdict};
use crate::time::Instant;
use crate::units::BitRate;
use crate::wire::ethernet::on_wire;
use crate::wire::hula::{self, FRAME_LEN, MAX_LINKS, Probe};
use crate::wire::{Headers, L3, MacAddr, ipv4, ipv6};

use table::{Taken, TorTable};
use util::Estimator;

/// The scheme.
#[derive(Debug)]
pub struct Hula;

impl Scheme for Hula {
    type Ingress = HulaIngress;
    type Egress = HulaEgress;
    type Control = ();
}

/// A frame has left: what egress tells ingress.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    port: PortId,
    /// As of [`on_wire`].
    bytes: u32,
}

/// Egress part: tells what leaves.
#[derive(Debug, Default)]
pub struct HulaEgress;

impl SchemeEgress for HulaEgress {
    type Feedback = Sent;
    type Digest = ();

    #[inline]
    fn leaving(
        &mut self,
        cx: &mut EgressContext<'_, Sent, ()>,
        port: PortId,
        frame: &mut Frame,
        _: &mut Meta,
    ) -> EgressVerdict {
        cx.recirculate(Sent { port, bytes: on_wire(frame.len()) as u32 });
        EgressVerdict::Send
    }
}

/// What became of probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HulaCounters {
    /// Made by this ToR.
    pub originated: u64,
    /// Received, well-formed or not.
    pub received: u64,
    /// Of those: taken, so that they say what the best way is.
    pub taken: u64,
    /// Copies of taken ones that were passed on.
    pub replicated: u64,
    /// Taken, but not passed on: another one of the same ToR was half a period ago or less.
    pub spaced: u64,
    /// Taken, but not passed on: no links left.
    pub expired: u64,
    /// Probes that could not be made, own ones and copies, for want of a frame or of room in the outbox.
    pub unmade: u64,
    /// Received and malformed; the drop reason is `bad_probe`.
    pub malformed: u64,
    /// Received by a port whose link is not live.
    pub dead_link: u64,
    /// This ToR's own, come back.
    pub own: u64,
    /// [`Refusal::Worse`].
    pub worse: u64,
    /// [`Refusal::Roundabout`].
    pub roundabout: u64,
    /// [`Refusal::Full`].
    pub full: u64,
    /// [`Refusal::PrefixTaken`].
    pub prefix_taken: u64,
}

impl HulaCounters {
    fn refused(&mut self, why: Refusal) {
        match why {
            Refusal::Worse => self.worse += 1,
            Refusal::Roundabout => self.roundabout += 1,
            Refusal::Full => self.full += 1,
            Refusal::PrefixTaken => self.prefix_taken += 1,
        }
    }
}

/// Ingress part.
#[derive(Debug)]
pub struct HulaIngress {
    id: SwitchId,
    mac: MacAddr,
    /// Prefixes of the own segment: a switch that has any is a ToR.
    ipv4: Option<Ipv4Net>,
    ipv6: Option<Ipv6Net>,
    /// Whether probes are made here; one of a switch's pipes does it for all.
    speaks: bool,
    period: u64,
    /// By port; those of hosts, and of numbers that are no port's, are not used.
    links: Vec<Estimator>,
    up: PortMask,
    down: PortMask,
    live: PortMask,
    tors: TorTable,
    flowlets: FlowletTable,
    counters: HulaCounters,
    /// When the next own probes are due.
    next: Instant,
    /// Ports that the last round is yet to go to, and when that one was due.
    waiting: PortMask,
    round: Instant,
}

impl HulaIngress {
    /// The scheme of the switch of `fabric`, whose ports have these `rates` (0: unlimited).
    ///
    /// # Errors
    /// See [`HulaConfig::validate`].
    pub fn new(fabric: &FabricConfig, rates: &[BitRate], config: &HulaConfig) -> Result<Self, HulaConfigError> {
        config.validate()?;
        let HulaConfig { period, keepalive, flowlet_gap, flowlet_slots, max_tors } = *config;
        let mut ingress = HulaIngress {
            id: fabric.id,
            mac: fabric.mac,
            ipv4: None,
            ipv6: None,
            speaks: fabric.pipe.index == 0,
            period,
            links: vec![Estimator::new(BitRate(0), 2 * period); MAX_PORTS],
            up: PortMask::EMPTY,
            down: PortMask::EMPTY,
            live: PortMask(u64::MAX),
            tors: TorTable::new(max_tors, keepalive, period / 2, fabric.seed),
            flowlets: FlowletTable::new(flowlet_slots, flowlet_gap),
            counters: HulaCounters::default(),
            next: Instant::ZERO,
            waiting: PortMask::EMPTY,
            round: Instant::ZERO,
        };
        ingress.set_segment(fabric.forwarding.segment_v4, fabric.forwarding.segment_v6);
        for ((id, port), rate) in (0..).map(PortId).zip(&fabric.ports).zip(rates) {
            ingress.set_link(id, port.kind, *rate);
        }
        Ok(ingress)
    }

    fn set_link(&mut self, port: PortId, kind: PortKind, rate: BitRate) {
        self.remove_link(port);
        match kind {
            PortKind::Up => self.up = self.up.with(port),
            PortKind::Down => self.down = self.down.with(port),
            PortKind::Host => {}
        }
        self.links[port.index()].set_rate(rate);
    }

    /// What was learned by it goes when it is not live any more.
    fn remove_link(&mut self, port: PortId) {
        (self.up, self.down) = (self.up.without(port), self.down.without(port));
        self.waiting = self.waiting.without(port);
    }

    /// A frame that takes `bytes` of the wire ([`on_wire`]) has left by `port`.
    #[inline]
    pub fn sent(&mut self, now: Instant, port: PortId, bytes: u32) {
        self.links[port.index()].sent(now, bytes);
    }

    /// How busy `port` is in transmit direction, in 1/65535 of its rate.
    pub fn utilisation(&self, now: Instant, port: PortId) -> u16 {
        self.links[port.index()].utilisation(now)
    }

    /// What became of probes.
    pub fn counters(&self) -> HulaCounters {
        self.counters
    }

    /// The ToRs that are known, by number.
    pub fn tors(&self, now: Instant) -> Vec<TorView> {
        self.tors.views(now)
    }

    fn is_tor(&self) -> bool {
        self.ipv4.is_some() || self.ipv6.is_some()
    }

    /// A probe off a fabric port.
    fn heard(&mut self, cx: &mut Context<'_>, probe: &Probe, port: PortId) {
        if !self.live.contains(port) {
            self.counters.dead_link += 1;
            return;
        }
        if probe.origin == self.id {
            self.counters.own += 1;
            return;
        }
        let below = self.down.contains(port);
        let utilisation = probe.utilisation.max(self.utilisation(cx.now, port));
        let Taken { utilisation, pass_on } = match self.tors.heard(cx.now, probe, port, below, utilisation) {
            Ok(taken) => taken,
            Err(why) => return self.counters.refused(why),
        };
        self.counters.taken += 1;
        if self.is_tor() {
            return;
        }
        let to = if below { self.up.or(self.down) } else { self.down };
        let to = to.and(self.live).without(port);
        match () {
            () if !pass_on => self.counters.spaced += 1,
            () if probe.links == 1 => self.counters.expired += 1,
            () => {
                let copy = Probe { links: probe.links - 1, utilisation, ..*probe };
                for egress in to.iter() {
                    self.counters.replicated += u64::from(self.say(cx, &copy, port, egress));
                }
            }
        }
    }

    /// Sends a probe out of `egress` ahead of data; whether it could be made. One that can't is like one lost:
    /// the next makes up for it.
    fn say(&mut self, cx: &mut Context<'_>, probe: &Probe, ingress: PortId, egress: PortId) -> bool {
        let frame = if cx.outbox.has_room() { cx.pool.alloc() } else { None };
        let Some(mut frame) = frame else {
            self.counters.unmade += 1;
            return false;
        };
        frame.set_len(FRAME_LEN);
        probe.emit(self.mac, frame.first_chunk_mut().expect("as long as was set"));
        cx.outbox.generate(frame, Meta::new(Headers::default(), ingress), Action::Forward(egress, Queue::Control));
        true
    }
}

impl SchemeIngress for HulaIngress {
    type Feedback = Sent;
    type Command = ();

    #[inline]
    fn prepare(&self, meta: &Meta) {
        self.flowlets.prefetch(meta.flow_hash);
    }

    #[inline(always)]
    fn choose(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        if let [only] = group.members() {
            return Some(*only);
        }
        let live = group.serving();
        let mut flowlet = self.flowlets.lookup(now, meta.flow_hash);
        if let Some(port) = flowlet.port().filter(|port| live.contains(*port)) {
            return Some(port);
        }
        let l3 = meta.headers.l3.into();
        let best = match meta.headers.kind {
            L3::Ipv4 => self.tors.best_v4(now, ipv4::dst(frame, l3)),
            L3::Ipv6 => self.tors.best_v6(now, ipv6::dst(frame, l3)),
            L3::Arp | L3::Other => None,
        };
        let port = best.filter(|port| live.contains(*port)).or_else(|| group.pick(meta.flow_hash))?;
        flowlet.assign(port);
        Some(port)
    }

    fn message(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Handled> {
        if !hula::is_probe(frame, &meta.headers) {
            return None;
        }
        self.counters.received += 1;
        let Ok(probe) = hula::read(frame, &meta.headers) else {
            self.counters.malformed += 1;
            return Some(Handled::Verdict(Verdict::Drop(DropReason::BadProbe)));
        };
        self.heard(cx, &probe, meta.ingress_port);
        Some(Handled::Verdict(Verdict::Consume))
    }

    #[inline]
    fn feedback(&mut self, now: Instant, sent: Sent) {
        self.sent(now, sent.port, sent.bytes);
    }

    fn set_port(&mut self, _: Instant, port: PortId, description: Option<SchemePort>) {
        match description {
            Some(SchemePort { kind, rate, .. }) => self.set_link(port, kind, rate),
            None => self.remove_link(port),
        }
    }

    /// What own probes say.
    fn set_segment(&mut self, ipv4: Option<Ipv4Net>, ipv6: Option<Ipv6Net>) {
        // A prefix of length 0 would take every other ToR's packets, and is refused by whoever reads it.
        self.ipv4 = ipv4.map(|net| net.trunc()).filter(|net| net.prefix_len() > 0);
        self.ipv6 = ipv6.map(|net| net.trunc()).filter(|net| net.prefix_len() > 0);
    }

    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match topic {
            Topic::Meters => vec![self.show_links(now)],
            Topic::Groups => vec![self.show_tors(now), self.show_probes()],
            Topic::Flows => vec![flowlet_table(&self.flowlets, now)],
            _ => Vec::new(),
        }
    }

    fn set_live(&mut self, live: PortMask) {
        self.live = live;
        self.waiting = self.waiting.and(live);
        self.tors.set_live(live);
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let due = self.next_deadline().is_some_and(|due| due <= cx.now);
        if due && self.waiting.is_empty() {
            self.round = self.next;
            self.waiting = self.up.and(self.live);
            // What is late by a period or more is left out, not made up for.
            let late = cx.now.since(self.next) >= self.period;
            self.next = if late { cx.now } else { self.next } + self.period;
        }
        let own = Probe { origin: self.id, links: MAX_LINKS, utilisation: 0, ipv4: self.ipv4, ipv6: self.ipv6 };
        while let Some(port) = self.waiting.iter().next().filter(|_| cx.outbox.has_room()) {
            self.waiting = self.waiting.without(port);
            self.counters.originated += u64::from(self.say(cx, &own, port, port));
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let due = if self.waiting.is_empty() { self.next } else { self.round };
        (self.speaks && self.is_tor()).then_some(due)
    }
}
