use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::frame::Frame;
use crate::pisa::Meta;
use crate::time::Instant;
use crate::wire::caft::Metric;
use crate::wire::{L3, ipv4, ipv6};

/// Decisions that are remembered.
const KEPT: usize = 256;

/// A way that was a candidate, with what its links carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Number of the uplink by which it leaves the ToR.
    pub uplink: usize,
    /// The metrics of its links, in the order in which packets take them: ToR up, aggregation up, core down,
    /// aggregation down; within a pod the first and the last.
    pub metrics: [Option<Metric>; 4],
}

impl Candidate {
    /// The worst of its links, by which it is judged.
    pub fn worst(&self) -> Metric {
        self.metrics.iter().flatten().copied().max().unwrap_or(Metric::FAILED)
    }
}

/// How a source ToR decided about a flow when its response came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// As shown of the path allocation table.
    pub flow: u32,
    /// Source and destination of the flow.
    pub ends: [(IpAddr, u16); 2],
    /// The way that the request took; `None` within a pod, where only the response's is weighed.
    pub first: Option<Candidate>,
    /// The way that the response found.
    pub second: Candidate,
    /// Whether the flow was moved to the second.
    pub moved: bool,
}

/// The last decisions of a ToR, for showing.
#[derive(Clone, Debug)]
pub struct Decisions {
    ring: Vec<Decision>,
    next: usize,
}

impl Decisions {
    /// None yet.
    pub fn new() -> Self {
        Decisions { ring: Vec::with_capacity(KEPT), next: 0 }
    }

    /// Remembers one, in the place of the oldest if there are many.
    pub fn record(&mut self, decision: Decision) {
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = decision,
            None => self.ring.push(decision),
        }
        self.next = (self.next + 1) % KEPT;
    }

    /// Those remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Decision> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }
}

impl Default for Decisions {
    fn default() -> Self {
        Decisions::new()
    }
}

/// Source and destination of the flow that a message with swapped addresses is about.
pub fn ends_of_message(frame: &Frame, meta: &Meta) -> [(IpAddr, u16); 2] {
    let l3 = meta.headers.l3.into();
    let (source, destination): (IpAddr, IpAddr) = match meta.headers.kind {
        L3::Ipv4 => (ipv4::dst(frame, l3).into(), ipv4::src(frame, l3).into()),
        L3::Ipv6 => (ipv6::dst(frame, l3).into(), ipv6::src(frame, l3).into()),
        L3::Arp | L3::Other => (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()),
    };
    let ports = meta.headers.ports(frame).unwrap_or(0);
    [(source, (ports >> 16) as u16), (destination, ports as u16)]
}
