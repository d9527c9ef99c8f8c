//! Neighbours: which MAC address and port an IP address of the segment is at (ARP and ND caches),
//! and the packets that wait for one to answer.
//!
//! States are those of RFC 4861 section 7.3, without timers of their own: an entry is looked at when
//! it is used. A fresh one is used as it is; one not confirmed for [`REACHABLE`] is used and probed;
//! one that [`MAX_PROBES`] probes did not confirm is forgotten and resolved anew.

use std::net::IpAddr;

use crate::frame::Frame;
use crate::id::{PortId, PortMask};
use crate::pisa::Meta;
use crate::pisa::table::ExactTable;
use crate::time::{Instant, SECONDS};
use crate::wire::MacAddr;

/// How long a confirmation counts (Linux: base_reachable_time).
pub const REACHABLE: u64 = 30 * SECONDS;
/// Between two requests for one address (RFC 4861 section 10, RETRANS_TIMER).
pub const RETRANSMIT: u64 = SECONDS;
/// Requests before an address counts as unreachable (RFC 4861 section 10, MAX_MULTICAST_SOLICIT).
pub const MAX_PROBES: u8 = 3;
/// Neighbours known at once, in each family.
pub const CAPACITY: usize = 4096;
/// Addresses resolved at once: a scan of an empty subnet can't take all memory.
pub const MAX_PENDING: usize = 64;
/// Packets that wait for one address.
pub const MAX_PARKED: usize = 16;

/// A resolved neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address on the segment.
    pub mac: MacAddr,
    /// The host port it is behind.
    pub port: PortId,
    /// When it last confirmed this.
    pub confirmed: Instant,
    /// When it was last asked since.
    probed: Instant,
    /// How often it was asked since.
    probes: u8,
}

impl Neighbour {
    /// Requests sent since it last confirmed.
    pub fn probes(&self) -> u8 {
        self.probes
    }
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Use it.
    Reachable(Neighbour),
    /// Use it, and send it a request.
    Probe(Neighbour),
    /// Not known: hold the packet. `true`: and send a request.
    Unknown(bool),
    /// Not known, and no room to hold another packet.
    Full,
}

#[derive(Debug)]
struct Pending {
    address: IpAddr,
    /// Requests sent.
    probes: u8,
    /// When to send the next one, or to give up.
    next: Instant,
    parked: Vec<(Frame, Meta)>,
}

/// What [`Neighbours::poll`] wants done.
#[derive(Debug)]
pub enum Due {
    /// Send a request for this address to every host port.
    Request(IpAddr),
    /// Nobody has the address: these packets can't be delivered.
    Failed(Vec<(Frame, Meta)>),
}

/// Both caches and the packets that wait.
#[derive(Debug)]
pub struct Neighbours {
    v4: ExactTable<u32, Neighbour>,
    v6: ExactTable<u128, Neighbour>,
    pending: Vec<Pending>,
    /// When a full cache was last searched for who is silent.
    swept: Option<Instant>,
}

impl Neighbours {
    /// Empty caches.
    pub fn new(seed: u64) -> Self {
        Neighbours {
            v4: ExactTable::new(CAPACITY, seed),
            v6: ExactTable::new(CAPACITY, seed),
            pending: Vec::with_capacity(MAX_PENDING),
            swept: None,
        }
    }

    fn entry(&mut self, address: IpAddr) -> Option<&mut Neighbour> {
        match address {
            IpAddr::V4(a) => self.v4.get_mut(&a.to_bits()),
            IpAddr::V6(a) => self.v6.get_mut(&a.to_bits()),
        }
    }

    fn remove(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(a) => self.v4.remove(&a.to_bits()),
            IpAddr::V6(a) => self.v6.remove(&a.to_bits()),
        };
    }

    /// How to reach `address` at `now`.
    #[inline]
    pub fn lookup(&mut self, now: Instant, address: IpAddr) -> Lookup {
        if let Some(n) = self.entry(address) {
            if now.since(n.confirmed) < REACHABLE {
                return Lookup::Reachable(*n);
            }
            if n.probes > 0 && now.since(n.probed) < RETRANSMIT {
                return Lookup::Reachable(*n);
            }
            if n.probes < MAX_PROBES {
                n.probes += 1;
                n.probed = now;
                return Lookup::Probe(*n);
            }
            self.remove(address);
        }
        match self.pending.iter().find(|p| p.address == address) {
            Some(p) if p.parked.len() < MAX_PARKED => Lookup::Unknown(false),
            None if self.pending.len() < MAX_PENDING => Lookup::Unknown(true),
            _ => Lookup::Full,
        }
    }

    /// Holds a packet for `address`, for which [`Neighbours::lookup`] just said
    /// [`Lookup::Unknown`].
    pub fn park(&mut self, now: Instant, address: IpAddr, frame: Frame, meta: Meta) {
        match self.pending.iter_mut().find(|p| p.address == address) {
            Some(p) => p.parked.push((frame, meta)),
            None => {
                let mut parked = Vec::with_capacity(MAX_PARKED);
                parked.push((frame, meta));
                self.pending.push(Pending { address, probes: 1, next: now + RETRANSMIT, parked });
            }
        }
    }

    /// `address` is at `mac` behind `port`: a reply, or a message that it sent itself. Returns the
    /// packets that waited for it. A message that asks for nothing (`create` false) only updates.
    #[must_use]
    pub fn confirm(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: MacAddr,
        port: PortId,
        create: bool,
    ) -> Vec<(Frame, Meta)> {
        let fresh = Neighbour { mac, port, confirmed: now, probed: now, probes: 0 };
        let waited = self.pending.iter().position(|p| p.address == address);
        if let Some(n) = self.entry(address) {
            *n = fresh;
        } else if create || waited.is_some() {
            let inserted = match address {
                IpAddr::V4(a) => self.v4.insert(a.to_bits(), fresh).is_ok(),
                IpAddr::V6(a) => self.v6.insert(a.to_bits(), fresh).is_ok(),
            };
            if !inserted && self.swept.is_none_or(|swept| now.since(swept) >= RETRANSMIT) {
                // Full: forget who has been silent long past its time, if anyone has. Not more than once
                // a second: a flood of made-up addresses must not cost a search each.
                self.swept = Some(now);
                self.v4.retain(|_, n| now.since(n.confirmed) < 4 * REACHABLE);
                self.v6.retain(|_, n| now.since(n.confirmed) < 4 * REACHABLE);
                let _ = match address {
                    IpAddr::V4(a) => self.v4.insert(a.to_bits(), fresh),
                    IpAddr::V6(a) => self.v6.insert(a.to_bits(), fresh),
                };
            }
        }
        waited.map(|at| self.pending.swap_remove(at).parked).unwrap_or_default()
    }

    /// What is due at `now`, one thing a call; `None` when nothing more is.
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        let at = self.pending.iter().position(|p| p.next <= now)?;
        let p = &mut self.pending[at];
        if p.probes < MAX_PROBES {
            p.probes += 1;
            p.next = now + RETRANSMIT;
            return Some(Due::Request(p.address));
        }
        Some(Due::Failed(self.pending.swap_remove(at).parked))
    }

    /// The packet that has waited for `address` longest.
    pub fn first_parked(&self, address: IpAddr) -> Option<(&Frame, &Meta)> {
        let pending = self.pending.iter().find(|p| p.address == address)?;
        pending.parked.first().map(|(frame, meta)| (frame, meta))
    }

    /// When [`Neighbours::poll`] has something next.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|p| p.next).min()
    }

    /// Packets that wait and came in by `port`.
    pub fn parked(&self, port: PortId) -> usize {
        self.pending.iter().flat_map(|p| &p.parked).filter(|(_, m)| m.ingress_port == port).count()
    }

    /// Every packet that waits; nothing is pending after it.
    pub fn take_parked(&mut self) -> Vec<(Frame, Meta)> {
        self.pending.drain(..).flat_map(|p| p.parked).collect()
    }

    /// Forgets neighbours behind ports that are not in `live`.
    pub fn set_live(&mut self, live: PortMask) {
        self.v4.retain(|_, n| live.contains(n.port));
        self.v6.retain(|_, n| live.contains(n.port));
    }

    /// Every neighbour, by address.
    pub fn iter(&self) -> Vec<(IpAddr, Neighbour)> {
        let v4 = self.v4.iter().map(|(k, n)| (IpAddr::V4((*k).into()), *n));
        let v6 = self.v6.iter().map(|(k, n)| (IpAddr::V6((*k).into()), *n));
        let mut all: Vec<_> = v4.chain(v6).collect();
        all.sort_by_key(|(address, _)| *address);
        all
    }

    /// Addresses being resolved, with the requests sent and packets waiting.
    pub fn pending(&self) -> impl Iterator<Item = (IpAddr, u8, usize)> + '_ {
        self.pending.iter().map(|p| (p.address, p.probes, p.parked.len()))
    }
}
