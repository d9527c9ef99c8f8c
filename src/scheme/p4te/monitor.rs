//! Algorithm 1 of P4TE: what the egress stage measures at each port, and when it reports.
//!
//! Only changes are reported: of the data queue's depth, one of at least delta packets since the last report; of
//! the utilisation's color, each. A report that the control plane has no room for is not remembered as made, so
//! that the next packet makes it again: a switch whose hellos go on comes to the true state even if what was
//! lost was the last word of a burst. Without hellos a port that nothing leaves by stays as last reported.
//!
//! The meter is [`UtilizationMeter`], which has one color for a constant load; RFC 2698's own would color single
//! packets, and each change would be an event.

use crate::fabric::view::{Cell, SchemeTable};
use crate::id::{PortId, PortMask};
use crate::pisa::EgressContext;
use crate::pisa::meter::{Color, TrTcmConfig, UtilizationMeter};
use crate::time::Instant;

use super::{ColorEvent, by_port};

/// What the control plane is told of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The egress port.
    pub port: PortId,
    /// When.
    pub at: Instant,
    /// What changed.
    pub event: Event,
}

/// A change that is worth a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The data queue's depth in packets, as the packet saw it that made the report.
    Depth(u32),
    /// The utilisation's color.
    Color(Color),
}

/// How a depth changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It grew.
    Increase,
    /// It shrank.
    Decrease,
}

/// Whether a depth of `now` packets is to be reported after `last` was (algorithm 1, lines 1-10): a change of
/// delta counts, both ways.
#[inline]
pub fn depth_change(last: u32, now: u32, delta: u32) -> Option<Change> {
    if now >= last.saturating_add(delta) {
        Some(Change::Increase)
    } else if now.saturating_add(delta) <= last {
        Some(Change::Decrease)
    } else {
        None
    }
}

/// How often a port had something to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets seen.
    pub packets: u64,
    /// Depth grew by delta.
    pub increases: u64,
    /// Depth shrank by delta.
    pub decreases: u64,
    /// The color changed.
    pub colors: u64,
    /// Reports that the control plane has got.
    pub digests: u64,
    /// Reports lost.
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PortState {
    present: bool,
    /// As last reported.
    old_depth: u32,
    /// As last seen.
    depth: u32,
    /// As last reported to the control plane.
    old_color: Color,
    /// As last told to ingress. Not the same: of the two, only a report can be lost.
    told_color: Color,
    /// None at a port without a rate: always green.
    meter: Option<UtilizationMeter>,
    counts: Counts,
}

/// The monitoring state of all ports.
#[derive(Debug)]
pub struct Monitor {
    delta: u32,
    ports: Vec<PortState>,
}

impl Monitor {
    /// No port yet; `delta` in packets.
    pub fn new(delta: u32) -> Self {
        Monitor { delta, ports: Vec::new() }
    }

    /// A port comes, changes, or goes, and what was measured of it with it.
    pub fn set_port(&mut self, now: Instant, port: PortId, present: bool, meter: Option<TrTcmConfig>) {
        let at = port.index();
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, PortState::default);
        }
        let state = &mut self.ports[at];
        match (&mut state.meter, meter) {
            (Some(old), Some(new)) if state.present && present => old.reconfigure(now, new),
            (old, new) => *old = new.map(UtilizationMeter::new),
        }
        if !present {
            *state = PortState::default();
        }
        state.present = present;
    }

    /// A packet of `len` bytes on the wire leaves by `port` and leaves `depth` packets behind. The port's color.
    #[inline]
    pub fn packet(
        &mut self,
        cx: &mut EgressContext<'_, ColorEvent, Digest>,
        port: PortId,
        depth: u32,
        len: usize,
    ) -> Color {
        let state = &mut self.ports[port.index()];
        state.depth = depth;
        state.counts.packets += 1;
        if let Some(change) = depth_change(state.old_depth, depth, self.delta)
            && report(cx, &mut state.counts, port, Event::Depth(depth))
        {
            state.old_depth = depth;
            match change {
                Change::Increase => state.counts.increases += 1,
                Change::Decrease => state.counts.decreases += 1,
            }
        }
        let color = state.meter.as_mut().map_or(Color::Green, |meter| meter.mark(cx.now, len));
        if color != state.told_color {
            state.counts.colors += 1;
            state.told_color = color;
            cx.recirculate(ColorEvent { port, color });
        }
        if color != state.old_color && report(cx, &mut state.counts, port, Event::Color(color)) {
            state.old_color = color;
        }
        color
    }

    /// What `port` had to report so far.
    pub fn counts(&self, port: PortId) -> Counts {
        self.ports.get(port.index()).map(|p| p.counts).unwrap_or_default()
    }

    /// A row for each port.
    pub fn show(&self, now: Instant) -> SchemeTable {
        let present = |i: &usize| self.ports[*i].present;
        let ports: PortMask = (0..self.ports.len()).filter(present).map(|i| PortId(i as u8)).collect();
        let row = |port: PortId| {
            let p = &self.ports[port.index()];
            let tokens = |of: fn(&UtilizationMeter, Instant) -> crate::units::Bytes| {
                p.meter.as_ref().map_or(Cell::None, |m| of(m, now).0.into())
            };
            vec![
                p.old_color.name().into(),
                u64::from(p.old_depth).into(),
                u64::from(p.depth).into(),
                tokens(UtilizationMeter::committed),
                tokens(UtilizationMeter::peak),
                p.counts.packets.into(),
                p.counts.increases.into(),
                p.counts.decreases.into(),
                p.counts.colors.into(),
                p.counts.digests.into(),
                p.counts.lost.into(),
            ]
        };
        let columns = &[
            "port",
            "color",
            "reported_depth",
            "depth",
            "committed_bytes",
            "peak_bytes",
            "packets",
            "depth_increases",
            "depth_decreases",
            "color_changes",
            "digests_sent",
            "digests_lost",
        ];
        SchemeTable::table("meters", columns, by_port(ports, row))
    }
}

/// Whether the control plane gets it.
fn report(cx: &mut EgressContext<'_, ColorEvent, Digest>, counts: &mut Counts, port: PortId, event: Event) -> bool {
    let sent = cx.digest(Digest { port, at: cx.now, event });
    counts.digests += u64::from(sent);
    counts.lost += u64::from(!sent);
    sent
}
