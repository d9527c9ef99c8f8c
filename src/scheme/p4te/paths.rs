//! Algorithm 2 of P4TE: which up port a flowlet takes.
//!
//! Both upward tables are asked: the best group by queue depth that has a live member of the route's group, and
//! the best one by utilisation. Large flows prefer the port that utilisation gives, short ones the one that
//! depth gives; if the preferred port is not green, the other is taken, whatever its color. With all ports in one
//! group of each table this is ECMP of flowlets.

use crate::fabric::view::{Cell, SchemeTable, flowlet_table};
use crate::id::{PortId, PortMask};
use crate::pisa::FlowHash;
use crate::pisa::flowlet::FlowletTable;
use crate::pisa::hash::bucket;
use crate::pisa::meter::Color;
use crate::pisa::table::Group;
use crate::time::Instant;

use super::class::Class;
use super::control::Groups;
use super::{ColorEvent, P4teConfig};

/// Flowlets that began, by what their port was chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The preferred port, which was green.
    pub preferred: u64,
    /// The other table's port, because the preferred one was yellow or red.
    pub other: u64,
}

/// The upward path selection.
#[derive(Debug)]
pub struct Paths {
    flowlets: FlowletTable,
    groups: Groups,
    /// Ports that lead up.
    up: PortMask,
    /// Ports that are yellow or red (port_util, section 4.2).
    busy: PortMask,
    hash: FlowHash,
    /// By class.
    chosen: [Chosen; 2],
}

/// The member of the best of `groups` that has any of `members`.
#[inline]
fn pick(groups: &[PortMask], members: PortMask, hash: u64) -> Option<PortId> {
    let serving = groups.iter().map(|group| group.and(members)).find(|m| !m.is_empty())?;
    serving.nth(bucket(hash, serving.len() as usize))
}

impl Paths {
    /// No port yet.
    pub fn new(config: &P4teConfig) -> Self {
        Paths {
            flowlets: FlowletTable::new(config.flow_slots, config.flowlet_gap),
            groups: Groups::default(),
            up: PortMask::EMPTY,
            busy: PortMask::EMPTY,
            hash: FlowHash::new(config.seed),
            chosen: [Chosen::default(); 2],
        }
    }

    /// Asks for the flowlet of the flow with `hash`, ahead of its use.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.flowlets.prefetch(hash);
    }

    /// The live port of `group` that a packet of the flow with `hash` takes; `None` if there is none. What leads
    /// down is a single match (section 4.2): no flowlet, no choice beyond the hash.
    #[inline(always)]
    pub fn choose(&mut self, now: Instant, group: &Group, hash: u64, class: Class) -> Option<PortId> {
        let members = group.serving();
        if members.len() < 2 || members.and(self.up) != members {
            return group.pick(hash);
        }
        let mut flowlet = self.flowlets.lookup(now, hash);
        if let Some(port) = flowlet.port().filter(|port| members.contains(*port)) {
            return Some(port);
        }
        let hash = self.hash.words(hash, flowlet.number().into());
        let by_depth = pick(&self.groups.depth, members, hash)?;
        let by_util = pick(&self.groups.util, members, hash)?;
        let (preferred, other) = match class {
            Class::Large => (by_util, by_depth),
            Class::Short => (by_depth, by_util),
        };
        let chosen = &mut self.chosen[class as usize];
        let to = if self.busy.contains(preferred) {
            chosen.other += 1;
            other
        } else {
            chosen.preferred += 1;
            preferred
        };
        flowlet.assign(to);
        Some(to)
    }

    /// A recirculated color event.
    #[inline]
    pub fn set_color(&mut self, event: ColorEvent) {
        self.busy = match event.color {
            Color::Green => self.busy.without(event.port),
            Color::Yellow | Color::Red => self.busy.with(event.port),
        };
    }

    /// The groups from now on.
    pub fn set_groups(&mut self, groups: Groups) {
        self.groups = groups;
    }

    /// Whether `port` leads up; nothing is known of its load.
    pub fn set_port(&mut self, port: PortId, leads_up: bool) {
        if leads_up != self.up.contains(port) {
            self.busy = self.busy.without(port);
        }
        self.up = if leads_up { self.up.with(port) } else { self.up.without(port) };
    }

    /// Flowlets of a class that began.
    pub fn chosen(&self, class: Class) -> Chosen {
        self.chosen[class as usize]
    }

    /// The flowlets, and what was chosen for them.
    pub fn show(&self, now: Instant) -> Vec<SchemeTable> {
        let row = |class: Class| {
            let Chosen { preferred, other } = self.chosen(class);
            vec![class.name().into(), preferred.into(), other.into()]
        };
        let columns = &["class", "on_preferred_port", "on_other_port"];
        let flowlets = SchemeTable::table("flowlets", columns, [Class::Short, Class::Large].map(row).to_vec());
        vec![flowlet_table(&self.flowlets, now), flowlets]
    }

    /// The ports that lead up, those of them that carry traffic, and those that ingress takes for yellow or red.
    pub fn show_ports(&self, live: PortMask) -> SchemeTable {
        let ports = [("all", self.up), ("live", self.up.and(live)), ("not_green", self.busy)];
        SchemeTable::record("up_ports", ports.map(|(which, ports)| (which, Cell::Ports(ports))))
    }
}
