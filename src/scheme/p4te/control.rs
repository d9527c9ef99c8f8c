//! Algorithm 3 of P4TE: the control plane keeps the up ports in priority groups, by what egress reports.
//!
//! It is a function of the last report of each port alone: a port's group follows from the reported value, not
//! from the group it was in, so that a lost report is made good by the next.

use crate::fabric::view::{Cell, SchemeTable, Topic};
use crate::fabric::{SchemeControl, SchemePort};
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::Control;
use crate::pisa::meter::Color;
use crate::time::Instant;

use super::monitor::{Digest, Event};

/// Groups by depth, and by color.
pub const DEPTH_GROUPS: usize = 4;
const COLORS: [Color; 3] = [Color::Green, Color::Yellow, Color::Red];

/// The up ports in the groups of both upward tables, best first: one snapshot, published whole. Each table has
/// every up port just once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// By queue depth.
    pub depth: [PortMask; DEPTH_GROUPS],
    /// By utilisation: green, yellow, red.
    pub util: [PortMask; COLORS.len()],
}

/// The group of a depth in packets, 0 the best: [0, D], [D + 1, 2 D], [2 D + 1, 3 D], and all beyond.
pub fn depth_group(depth: u32, step: u32) -> usize {
    (depth.saturating_sub(1) / step.max(1)).min(DEPTH_GROUPS as u32 - 1) as usize
}

/// Takes `port` out of all `groups` and puts it into number `to`.
fn place(groups: &mut [PortMask], port: PortId, to: Option<usize>) {
    for (i, group) in groups.iter_mut().enumerate() {
        *group = if Some(i) == to { group.with(port) } else { group.without(port) };
    }
}

/// The control plane.
#[derive(Debug)]
pub struct ControlPlane {
    step: u32,
    up: PortMask,
    groups: Groups,
    /// Reports that moved a port, that moved none, and those of ports that are in no group.
    moved: u64,
    kept: u64,
    ignored: u64,
}

impl ControlPlane {
    /// No port yet; `step` packets of depth to a group.
    pub fn new(step: u32) -> Self {
        ControlPlane { step, up: PortMask::EMPTY, groups: Groups::default(), moved: 0, kept: 0, ignored: 0 }
    }

    /// The groups as last published.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }
}

impl Control for ControlPlane {
    type Digest = Digest;
    type Command = Groups;

    fn digest(&mut self, _: Instant, digest: &Digest) -> Option<Groups> {
        if !self.up.contains(digest.port) {
            self.ignored += 1;
            return None;
        }
        let before = self.groups;
        match digest.event {
            Event::Depth(depth) => {
                place(&mut self.groups.depth, digest.port, Some(depth_group(depth, self.step)));
            }
            Event::Color(color) => place(&mut self.groups.util, digest.port, COLORS.iter().position(|c| *c == color)),
        }
        let changed = self.groups != before;
        *(if changed { &mut self.moved } else { &mut self.kept }) += 1;
        changed.then_some(self.groups)
    }
}

impl SchemeControl for ControlPlane {
    /// An up port starts, also anew, in the best groups: as all do at first.
    fn set_port(&mut self, _: Instant, port: PortId, description: Option<SchemePort>) -> Option<Groups> {
        let is_up = description.is_some_and(|d| d.kind == PortKind::Up);
        if is_up == self.up.contains(port) {
            return None;
        }
        self.up = if is_up { self.up.with(port) } else { self.up.without(port) };
        let best = is_up.then_some(0);
        place(&mut self.groups.depth, port, best);
        place(&mut self.groups.util, port, best);
        Some(self.groups)
    }

    fn show(&self, _: Instant, topic: Topic) -> Vec<SchemeTable> {
        if topic != Topic::Groups {
            return Vec::new();
        }
        let step = u64::from(self.step);
        let depth = self.groups.depth.iter().enumerate().map(|(i, ports)| {
            let (i, last) = (i as u64, i == DEPTH_GROUPS - 1);
            let from = if i == 0 { 0 } else { i * step + 1 };
            let range = if last { format!("{from}-") } else { format!("{from}-{}", (i + 1) * step) };
            vec!["queue_depth".into(), Cell::Text(range), Cell::Ports(*ports), (DEPTH_GROUPS as u64 - i).into()]
        });
        let util = self.groups.util.iter().zip(COLORS).enumerate().map(|(i, (ports, color))| {
            let priority = (COLORS.len() - i) as u64;
            vec!["utilization".into(), color.name().into(), Cell::Ports(*ports), priority.into()]
        });
        let groups =
            SchemeTable::table("groups", &["table", "range", "ports", "priority"], depth.chain(util).collect());
        let digests = [("moved_a_port", self.moved), ("moved_none", self.kept), ("of_other_ports", self.ignored)];
        vec![groups, SchemeTable::counts("digests_taken", digests)]
    }
}
