//! P4TE: load-aware path selection from queue depths and utilisation measured in the data plane (Hasan et al.,
//! "P4TE: PISA switch based traffic engineering in fat-tree data center networks", Computer Networks 215,
//! 2022).
//!
//! ```text
//!            egress: monitor --digests--> control: groups of up ports by depth and by color
//!               |                                        |
//!        color events (recirculated)             one snapshot of groups
//!               v                                        v
//!            ingress: classes, port_util  ------>  paths: flowlets
//! ```
//! [`monitor`] is the paper's algorithm 1 (section 4.1), [`paths`] algorithm 2, [`control`] algorithm 3, [`class`]
//! the classes of traffic and their meters (section 4.1.3), [`rate`] and [`adapt`] rate adaptation (section 4.3). Where the paper and its released code differ, the paper
//! holds. Beyond the paper: ports that are down leave all groups at once, IPv4 beside IPv6, several routes.

pub mod adapt;
pub mod class;
pub mod control;
pub mod monitor;
pub mod paths;
pub mod rate;
mod tag;

use serde::{Deserialize, Serialize};

use crate::fabric::view::{Cell, SchemeTable, Topic};
use crate::fabric::{Scheme, SchemeEgress, SchemeIngress, SchemePort};
use crate::frame::Frame;
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::meter::{Color, MAX_BURST, OneRateConfig, TrTcmConfig};
use crate::pisa::table::Group;
use crate::pisa::{Context, EgressContext, EgressVerdict, Meta, Verdict};
use crate::time::Instant;
use crate::units::{BitRate, Bytes};
use crate::wire::MacAddr;
use crate::wire::ethernet::{self, on_wire};

use adapt::{Adapter, Asker};
use class::{Class, Classes};
use control::{ControlPlane, Groups};
use monitor::{Digest, Monitor};
use paths::Paths;
use rate::{AckRule, Params};
use tag::Tag;

/// What an operator chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct P4teConfig {
    /// Packets by which a queue's depth must have changed to be reported (delta), at least 1.
    pub delta: u32,
    /// Packets of depth to a group (D), at least 1.
    pub depth_step: u32,
    /// Nanoseconds without a packet that end a flowlet.
    pub flowlet_gap: u64,
    /// Slots for flowlets, and for flows whose bytes are counted.
    pub flow_slots: usize,
    /// Utilisation above which a port is yellow, in millionths of its rate.
    pub cir: u32,
    /// Utilisation above which a port is red, in millionths of its rate; at least `cir`.
    pub pir: u32,
    /// CBS and PBS, in nanoseconds at the port's rate.
    pub burst: u64,
    /// Safe rate of short flows at a port, in millionths of its rate.
    pub safe_short: u32,
    /// Safe rate of large flows.
    pub safe_large: u32,
    /// CBS of both, in nanoseconds at the port's rate.
    pub class_burst: u64,
    /// DSCPs of large flows, a bit each.
    pub large_dscp: u64,
    /// Bytes after which a flow counts as large whatever its DSCP; 0 = never.
    pub large_after: u64,
    /// Seed of the switch's flow hash: the one that packets come with, and that chooses within a group.
    pub seed: u64,
    /// The switch's own MAC address.
    pub mac: MacAddr,
    /// Rate adaptation.
    pub rate: RateConfig,
}

/// By what means flows are slowed down and sped up (section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateAdaptation {
    /// Not at all: path selection only.
    #[default]
    Off,
    /// By FACKs, as in the paper: acknowledgements with a changed window.
    Fack,
    /// By the windows of the receiver's own acknowledgements, changed at the first-hop ToR: an extension, for a
    /// lone FACK is undone by the next of those.
    Clamp,
}

/// What an operator chooses of rate adaptation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateConfig {
    /// By what means.
    pub mode: RateAdaptation,
    /// What a FACK acknowledges.
    pub rule: AckRule,
    /// B and the like.
    pub params: Params,
    /// Slots for flows.
    pub slots: usize,
}

impl P4teConfig {
    /// The utilisation meter of a port; none without a rate. A burst holds at least the largest frame.
    pub fn utilisation(&self, port: &SchemePort) -> Option<TrTcmConfig> {
        let largest = largest(port);
        let burst = burst(port.rate, self.burst, largest);
        TrTcmConfig::new(port.rate.share(self.cir), port.rate.share(self.pir), burst, burst, largest).ok()
    }

    /// The meter of what a class of traffic sends in by a port; none without a rate.
    pub fn safe_rate(&self, port: &SchemePort, class: Class) -> Option<OneRateConfig> {
        let safe = match class {
            Class::Short => self.safe_short,
            Class::Large => self.safe_large,
        };
        let largest = largest(port);
        OneRateConfig::new(port.rate.share(safe), burst(port.rate, self.class_burst, largest), largest).ok()
    }
}

/// Bytes that `rate` carries in `nanoseconds`, at least `largest` and at most what a bucket counts.
fn burst(rate: BitRate, nanoseconds: u64, largest: Bytes) -> Bytes {
    Bytes(rate.bytes_in(nanoseconds).0.min(MAX_BURST.0).max(largest.0))
}

/// The largest frame of a port on the wire.
fn largest(port: &SchemePort) -> Bytes {
    Bytes(on_wire(usize::from(port.mtu) + ethernet::HEADER_LEN + 2 * ethernet::TAG_LEN) as u64)
}

/// A port's utilisation changed its color: what the recirculated packet of section 4.1.2 carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColorEvent {
    /// The egress port.
    pub port: PortId,
    /// Its color from now on.
    pub color: Color,
}

/// The scheme.
#[derive(Debug)]
pub struct P4te;

impl Scheme for P4te {
    type Ingress = P4teIngress;
    type Egress = P4teEgress;
    type Control = ControlPlane;
}

/// Ingress part.
#[derive(Debug)]
pub struct P4teIngress {
    config: P4teConfig,
    classes: Classes,
    paths: Paths,
    adapter: Adapter,
    live: PortMask,
}

impl P4teIngress {
    /// No port yet.
    pub fn new(config: P4teConfig) -> Self {
        let (classes, paths, adapter) = (Classes::new(&config), Paths::new(&config), Adapter::new(&config));
        P4teIngress { config, classes, paths, adapter, live: PortMask::EMPTY }
    }

    /// The path selection, for tests and showing.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }
}

impl SchemeIngress for P4teIngress {
    type Feedback = ColorEvent;
    type Command = Groups;

    #[inline]
    fn prepare(&self, meta: &Meta) {
        self.paths.prefetch(meta.flow_hash);
        self.adapter.prefetch(meta);
    }

    #[inline(always)]
    fn arrived(&mut self, now: Instant, frame: &mut Frame, meta: &mut Meta) {
        let class = self.classes.of(now, frame, meta);
        let color = self.classes.meter(now, meta.ingress_port, class, on_wire(frame.len()));
        let mut tag = Tag::new(class, color);
        self.adapter.arrived(now, frame, meta, &mut tag);
        meta.scheme = tag.0;
    }

    #[inline]
    fn intercept(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Verdict> {
        self.adapter.intercept(cx, frame, meta)
    }

    #[inline(always)]
    fn choose(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        let to = self.paths.choose(now, group, meta.flow_hash, Tag(meta.scheme).class())?;
        self.adapter.leaves_rack(now, frame, meta);
        Some(to)
    }

    #[inline]
    fn feedback(&mut self, _: Instant, event: ColorEvent) {
        self.paths.set_color(event);
    }

    fn set_live(&mut self, live: PortMask) {
        self.live = live;
    }

    fn command(&mut self, _: Instant, groups: Groups) {
        self.paths.set_groups(groups);
    }

    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>) {
        self.classes.set_port(now, &self.config, port, description);
        self.paths.set_port(port, description.is_some_and(|d| d.kind == PortKind::Up));
        self.adapter.set_port(port, description);
    }

    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match topic {
            Topic::Meters => vec![self.classes.show(now)],
            Topic::Groups => vec![self.paths.show_ports(self.live)],
            Topic::Flows => self.paths.show(now).into_iter().chain(self.adapter.show()).collect(),
            _ => Vec::new(),
        }
    }
}

/// Egress part.
#[derive(Debug)]
pub struct P4teEgress {
    config: P4teConfig,
    monitor: Monitor,
    asker: Asker,
}

impl P4teEgress {
    /// No port yet.
    pub fn new(config: P4teConfig) -> Self {
        P4teEgress { config, monitor: Monitor::new(config.delta), asker: Asker::new(&config) }
    }

    /// What is measured, for tests.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }
}

impl SchemeEgress for P4teEgress {
    type Feedback = ColorEvent;
    type Digest = Digest;

    #[inline(always)]
    fn leaving(
        &mut self,
        cx: &mut EgressContext<'_, ColorEvent, Digest>,
        port: PortId,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> EgressVerdict {
        let color = self.monitor.packet(cx, port, meta.deq_qdepth, on_wire(frame.len()));
        self.asker.leaving(cx, port, frame, meta, color);
        EgressVerdict::Send
    }

    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>) {
        let meter = description.and_then(|d| self.config.utilisation(&d));
        self.monitor.set_port(now, port, description.is_some(), meter);
        self.asker.set_port(port, description);
    }

    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match topic {
            Topic::Meters => vec![self.monitor.show(now)],
            Topic::Flows => self.asker.show(),
            _ => Vec::new(),
        }
    }
}

/// A row for each port of `ports`, first its number.
fn by_port(ports: PortMask, mut row: impl FnMut(PortId) -> Vec<Cell>) -> Vec<Vec<Cell>> {
    ports.iter().map(|port| std::iter::once(Cell::Port(port)).chain(row(port)).collect()).collect()
}
