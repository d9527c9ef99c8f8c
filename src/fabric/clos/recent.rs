use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::frame::Frame;
use crate::wire::{Headers, L3, ipv4, ipv6};

/// How many are remembered.
const KEPT: usize = 256;

/// The last decisions of a switch, for showing. All its memory is taken at once.
#[derive(Clone, Debug)]
pub struct Recent<T> {
    ring: Vec<T>,
    next: usize,
}

impl<T> Recent<T> {
    /// None yet.
    pub fn new() -> Self {
        Recent { ring: Vec::with_capacity(KEPT), next: 0 }
    }

    /// Remembers one, in the place of the oldest if there are many.
    pub fn record(&mut self, decision: T) {
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = decision,
            None => self.ring.push(decision),
        }
        self.next = (self.next + 1) % KEPT;
    }

    /// Those remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent::new()
    }
}

/// Source and destination of a flow.
pub type FlowEnds = [(IpAddr, u16); 2];

/// Source and destination of a packet.
pub fn ends(frame: &Frame, headers: &Headers) -> FlowEnds {
    let l3 = headers.l3.into();
    let (source, destination): (IpAddr, IpAddr) = match headers.kind {
        L3::Ipv4 => (ipv4::src(frame, l3).into(), ipv4::dst(frame, l3).into()),
        L3::Ipv6 => (ipv6::src(frame, l3).into(), ipv6::dst(frame, l3).into()),
        L3::Arp | L3::Other => (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()),
    };
    let ports = headers.ports(frame).unwrap_or(0);
    [(source, (ports >> 16) as u16), (destination, ports as u16)]
}

/// Source and destination of the flow that a message with swapped addresses is about.
pub fn ends_of_message(frame: &Frame, headers: &Headers) -> FlowEnds {
    let [(destination, from), (source, to)] = ends(frame, headers);
    [(source, from), (destination, to)]
}
