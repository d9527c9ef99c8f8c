//! What the forwarding shows to users.

use std::net::IpAddr;

use crate::id::{PortId, PortMask};
use crate::pisa::flowlet::FlowletTable;
use crate::time::{Instant, MICROS};
use crate::wire::MacAddr;
use ipnet::IpNet;

use super::fib::NextHop;
use super::hooks::SchemeIngress;
use super::ingress::FabricIngress;

/// A neighbour of the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourView {
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address; none while it is being resolved.
    pub mac: Option<MacAddr>,
    /// The port it is behind.
    pub port: Option<PortId>,
    /// Milliseconds since it last confirmed that.
    pub age_ms: Option<u64>,
    /// Requests sent without an answer.
    pub probes: u8,
    /// Packets that wait for it.
    pub waiting: usize,
}

/// A station that the bridge has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationView {
    /// Its MAC address.
    pub mac: MacAddr,
    /// The port it was seen on.
    pub port: PortId,
    /// Milliseconds since then, to within a second.
    pub age_ms: u64,
}

/// A route and the ports it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathView {
    /// The prefix.
    pub prefix: IpNet,
    /// Whether it is the switch's own segment: delivered by neighbour, not by group.
    pub connected: bool,
    /// The group's priorities, best first.
    pub priorities: Vec<Vec<PortId>>,
    /// The ports that are chosen from now.
    pub serving: Vec<PortId>,
}

/// What a scheme can be asked to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// What is measured at each port.
    Meters,
    /// Sets of ports that are chosen from.
    Groups,
    /// State of flows.
    Flows,
    /// Estimated load of each link and direction (discounting rate estimator).
    Dre,
    /// The path allocation table.
    Pat,
    /// What is known of other switches' failed links.
    Failures,
    /// What hosts of the rack have reserved.
    Slots,
    /// The ways that were compared for flows. Shown with the routes, so no table of it is named `paths`.
    Paths,
}

/// One value of a [`SchemeTable`].
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing to tell.
    None,
    /// A count.
    Int(u64),
    /// A measure.
    Float(f64),
    /// Whether something is so.
    Bool(bool),
    /// A word.
    Text(String),
    /// A port.
    Port(PortId),
    /// Ports.
    Ports(PortMask),
    /// Several values in an order that means something.
    List(Vec<Cell>),
}

impl From<u64> for Cell {
    fn from(n: u64) -> Cell {
        Cell::Int(n)
    }
}

impl From<&str> for Cell {
    fn from(word: &str) -> Cell {
        Cell::Text(word.into())
    }
}

/// Something that a scheme shows: rows of named columns, or one record.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemeTable {
    /// What the rows are: the key of the JSON array, or of a record's object. The main table of a topic has its name,
    /// save that of [`Topic::Paths`].
    pub name: &'static str,
    /// The columns' names: the keys of each row's JSON object.
    pub columns: Vec<&'static str>,
    /// As many cells a row as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// Whether it is a record: there can be one row only, of the switch as a whole. Of several
    /// workers one shows it, or each has a row of its own in a table.
    pub record: bool,
}

impl SchemeTable {
    /// As many rows as there are things of a kind.
    pub fn table(name: &'static str, columns: &[&'static str], rows: Vec<Vec<Cell>>) -> SchemeTable {
        SchemeTable { name, columns: columns.to_vec(), rows, record: false }
    }

    /// What there is once in a switch.
    pub fn record<const N: usize>(name: &'static str, fields: [(&'static str, Cell); N]) -> SchemeTable {
        let (columns, row) = fields.into_iter().unzip();
        SchemeTable { name, columns, rows: vec![row], record: true }
    }

    /// A record of counters.
    pub fn counts<const N: usize>(name: &'static str, counts: [(&'static str, u64); N]) -> SchemeTable {
        SchemeTable::record(name, counts.map(|(what, n)| (what, n.into())))
    }

    /// A record's value.
    pub fn get(&self, key: &str) -> Option<&Cell> {
        let at = self.columns.iter().position(|column| *column == key)?;
        self.rows.first().filter(|_| self.record)?.get(at)
    }
}

/// What every scheme with flowlets shows of flows: a row a worker.
pub fn flowlet_table(flowlets: &FlowletTable, now: Instant) -> SchemeTable {
    let row = vec![
        (flowlets.slots() as u64).into(),
        (flowlets.occupancy(now) as u64).into(),
        (flowlets.timeout() / MICROS).into(),
    ];
    SchemeTable::table("flows", &["slots", "active", "gap_us"], vec![row])
}

impl<S: SchemeIngress> FabricIngress<S> {
    /// Resolved neighbours, then those being resolved.
    pub fn neighbour_views(&self, now: Instant) -> Vec<NeighbourView> {
        let known = self.neighbours().iter().into_iter().map(|(address, n)| NeighbourView {
            address,
            mac: Some(n.mac),
            port: Some(n.port),
            age_ms: Some(now.since(n.confirmed) / 1_000_000),
            probes: n.probes(),
            waiting: 0,
        });
        let pending = self.neighbours().pending().map(|(address, probes, waiting)| NeighbourView {
            address,
            mac: None,
            port: None,
            age_ms: None,
            probes,
            waiting,
        });
        known.chain(pending).collect()
    }

    /// The bridge's stations, by address.
    pub fn station_views(&self, now: Instant) -> Vec<StationView> {
        let view = |(mac, s): (MacAddr, super::bridge::Station)| StationView {
            mac,
            port: s.port,
            age_ms: now.since(s.seen) / 1_000_000,
        };
        self.bridge().stations().into_iter().map(view).collect()
    }

    /// The routes, by prefix.
    pub fn path_views(&self) -> Vec<PathView> {
        let view = |(prefix, hop): (IpNet, NextHop)| match hop {
            NextHop::Connected => PathView { prefix, connected: true, priorities: Vec::new(), serving: Vec::new() },
            NextHop::Group(id) => {
                let group = self.fib().group(id);
                PathView {
                    prefix,
                    connected: false,
                    priorities: group.priorities().iter().map(|p| p.iter().collect()).collect(),
                    serving: group.members().to_vec(),
                }
            }
        };
        self.fib().routes().into_iter().map(view).collect()
    }
}
