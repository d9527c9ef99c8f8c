//! Neighbours: which MAC address and port an IP address of the segment is at (ARP and ND caches),
//! and the packets that wait for one to answer.
//!
//! States are those of RFC 4861 section 7.3, without timers of their own: an entry is looked at when
//! it is used. A fresh one is used as it is; one that was only claimed, or not confirmed for
//! [`REACHABLE`], is used and probed; one that [`MAX_PROBES`] probes did not confirm is forgotten and resolved anew.

use std::net::IpAddr;

use crate::frame::Frame;
use crate::id::{MAX_PORTS, PortId, PortMask};
use crate::pisa::Meta;
use crate::pisa::table::ExactTable;
use crate::pisa::table::exact::ExactKey;
use crate::time::{Instant, MILLIS, SECONDS};
use crate::wire::MacAddr;

/// How long a confirmation counts (Linux: base_reachable_time).
pub const REACHABLE: u64 = 30 * SECONDS;
/// Between two requests for one address (RFC 4861 section 10, RETRANS_TIMER).
pub const RETRANSMIT: u64 = SECONDS;
/// Requests before an address counts as unreachable (RFC 4861 section 10, MAX_MULTICAST_SOLICIT).
pub const MAX_PROBES: u8 = 3;
/// Neighbours known at once, in each family.
pub const CAPACITY: usize = 4096;
/// Neighbours of each family that one port may introduce unasked: a host that invents addresses
/// can't take the room of the others.
pub const PORT_QUOTA: usize = CAPACITY / 4;
/// Between two searches of a full cache for who was silent long.
pub const SWEEP: u64 = SECONDS;
/// How long an unanswered address keeps its place when others wait for one: hosts answer in well under
/// a millisecond, and this bounds the requests that a scan causes.
pub const PATIENCE: u64 = 100 * MILLIS;
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
    /// When it last confirmed this, or first said so.
    pub confirmed: Instant,
    /// Only claimed or called in question: to be asked when it is used (STALE).
    stale: bool,
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

/// What a message that tells an address is worth (RFC 4861, sections 7.2.3 and 7.2.5; ARP has the same
/// cases).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// It answers a request, which shows that the way there and back works.
    pub solicited: bool,
    /// It replaces another MAC that is known for the address.
    pub overrides: bool,
    /// It asks something of the switch, which will need the address to answer: it makes an entry.
    pub create: bool,
}

impl Claim {
    /// An answer that replaces: an ARP reply, a solicited advertisement with the override flag.
    pub const ANSWER: Claim = Claim { solicited: true, overrides: true, create: false };
    /// A request to the switch, which tells its sender's address.
    pub const REQUEST: Claim = Claim { solicited: false, overrides: true, create: true };
    /// Something said unasked, or to others.
    pub const ANNOUNCEMENT: Claim = Claim { solicited: false, overrides: true, create: false };
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
    /// Not known, and too many others are asked for: ask for it if [`Neighbours::evict`] makes room.
    Crowded,
    /// Not known, and too many packets wait for it already.
    Full,
}

#[derive(Debug)]
struct Pending {
    address: IpAddr,
    since: Instant,
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

/// The cache of one family.
///
/// Invariant: `known[p]` is the number of neighbours at port p.
#[derive(Debug)]
struct Cache<K> {
    table: ExactTable<K, Neighbour>,
    known: [usize; MAX_PORTS],
    /// When the table may be searched for who was silent long.
    next_sweep: Instant,
}

impl<K: ExactKey> Cache<K> {
    fn new(seed: u64) -> Self {
        Cache { table: ExactTable::new(CAPACITY, seed), known: [0; MAX_PORTS], next_sweep: Instant::ZERO }
    }

    fn remove(&mut self, key: &K) {
        if let Some(n) = self.table.remove(key) {
            self.known[n.port.index()] -= 1;
        }
    }

    /// Changes an entry, if there is one.
    fn update(&mut self, key: &K, change: impl FnOnce(&mut Neighbour)) -> bool {
        let Some(n) = self.table.get_mut(key) else { return false };
        let from = n.port;
        change(n);
        let to = n.port;
        self.known[from.index()] -= 1;
        self.known[to.index()] += 1;
        true
    }

    /// Takes up a neighbour that is not in the table, while its port has fewer than `quota`.
    fn add(&mut self, now: Instant, key: K, n: Neighbour, quota: usize) {
        let at = n.port.index();
        if (self.table.len() == CAPACITY || self.known[at] >= quota) && now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.retain(|_, n| now.since(n.confirmed) < 4 * REACHABLE);
        }
        if self.known[at] < quota && self.table.insert(key, n).is_ok() {
            self.known[at] += 1;
        }
    }

    fn retain(&mut self, keep: impl Fn(&K, &Neighbour) -> bool) {
        self.table.retain(|key, n| keep(key, n));
        self.known = [0; MAX_PORTS];
        for (_, n) in self.table.iter() {
            self.known[n.port.index()] += 1;
        }
    }
}

/// Both caches and the packets that wait.
#[derive(Debug)]
pub struct Neighbours {
    v4: Cache<u32>,
    v6: Cache<u128>,
    pending: Vec<Pending>,
}

impl Neighbours {
    /// Empty caches.
    pub fn new(seed: u64) -> Self {
        Neighbours { v4: Cache::new(seed), v6: Cache::new(seed), pending: Vec::with_capacity(MAX_PENDING) }
    }

    fn entry(&mut self, address: IpAddr) -> Option<&mut Neighbour> {
        match address {
            IpAddr::V4(a) => self.v4.table.get_mut(&a.to_bits()),
            IpAddr::V6(a) => self.v6.table.get_mut(&a.to_bits()),
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
            if !n.stale && now.since(n.confirmed) < REACHABLE {
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
            None => Lookup::Crowded,
            Some(_) => Lookup::Full,
        }
    }

    /// Gives up the address that was asked for most often, among equals longest ago, so that another
    /// may be asked for; but none that has not had [`PATIENCE`]. Returns the packets that waited.
    pub fn evict(&mut self, now: Instant) -> Option<Vec<(Frame, Meta)>> {
        let late = self.pending.iter().enumerate().filter(|(_, p)| now.since(p.since) >= PATIENCE);
        let (at, _) = late.max_by_key(|(_, p)| (p.probes, std::cmp::Reverse(p.since)))?;
        Some(self.pending.swap_remove(at).parked)
    }

    /// Holds a packet for `address`, for which [`Neighbours::lookup`] just said
    /// [`Lookup::Unknown`].
    pub fn park(&mut self, now: Instant, address: IpAddr, frame: Frame, meta: Meta) {
        match self.pending.iter_mut().find(|p| p.address == address) {
            Some(p) => p.parked.push((frame, meta)),
            None => {
                let mut parked = Vec::with_capacity(MAX_PARKED);
                parked.push((frame, meta));
                self.pending.push(Pending { address, since: now, probes: 1, next: now + RETRANSMIT, parked });
            }
        }
    }

    /// `address` is at `mac` behind `port`: a reply, or a message that it sent itself. Returns the
    /// packets that waited for it. Only an answer makes the entry count as confirmed; what is claimed
    /// otherwise is used, and asked for when it is. A claim that may create an entry does so within the
    /// port's quota.
    #[must_use]
    pub fn confirm(
        &mut self,
        now: Instant,
        address: IpAddr,
        mac: MacAddr,
        port: PortId,
        claim: Claim,
    ) -> Vec<(Frame, Meta)> {
        let told = Neighbour { mac, port, confirmed: now, stale: !claim.solicited, probed: now, probes: 0 };
        let waited = self.pending.iter().position(|p| p.address == address);
        // The switch itself asked for those: no host can make it ask for more than are pending.
        let quota = if waited.is_some() { CAPACITY } else { PORT_QUOTA };
        let known = self.update(address, |n| match n.mac == mac {
            // Another MAC that is not to replace this one: this one is to be asked.
            false if !claim.overrides => n.stale = true,
            true if !claim.solicited => n.port = port,
            _ => *n = told,
        });
        if !known && (claim.create || waited.is_some()) {
            match address {
                IpAddr::V4(a) => self.v4.add(now, a.to_bits(), told, quota),
                IpAddr::V6(a) => self.v6.add(now, a.to_bits(), told, quota),
            }
        }
        waited.map(|at| self.pending.swap_remove(at).parked).unwrap_or_default()
    }

    fn update(&mut self, address: IpAddr, change: impl FnOnce(&mut Neighbour)) -> bool {
        match address {
            IpAddr::V4(a) => self.v4.update(&a.to_bits(), change),
            IpAddr::V6(a) => self.v6.update(&a.to_bits(), change),
        }
    }

    /// The neighbour `address` was seen at another port; what is known of it otherwise stays.
    pub fn moved(&mut self, address: IpAddr, port: PortId) {
        self.update(address, |n| n.port = port);
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

    /// Every packet that waits and came in by one of `ports`. Nothing is asked any more for whose sake
    /// nothing waits.
    pub fn take_parked(&mut self, ports: PortMask) -> Vec<(Frame, Meta)> {
        let ours = |(_, meta): &mut (Frame, Meta)| ports.contains(meta.ingress_port);
        let taken = self.pending.iter_mut().flat_map(|p| p.parked.extract_if(.., ours)).collect();
        self.pending.retain(|p| !p.parked.is_empty());
        taken
    }

    /// Forgets neighbours whose address `is_on_segment` does not know any more.
    pub fn retain(&mut self, is_on_segment: impl Fn(IpAddr) -> bool) {
        self.v4.retain(|k, _| is_on_segment(IpAddr::V4((*k).into())));
        self.v6.retain(|k, _| is_on_segment(IpAddr::V6((*k).into())));
    }

    /// Forgets neighbours behind ports that are not in `live`.
    pub fn set_live(&mut self, live: PortMask) {
        self.v4.retain(|_, n| live.contains(n.port));
        self.v6.retain(|_, n| live.contains(n.port));
    }

    /// Every neighbour, by address.
    pub fn iter(&self) -> Vec<(IpAddr, Neighbour)> {
        let v4 = self.v4.table.iter().map(|(k, n)| (IpAddr::V4((*k).into()), *n));
        let v6 = self.v6.table.iter().map(|(k, n)| (IpAddr::V6((*k).into()), *n));
        let mut all: Vec<_> = v4.chain(v6).collect();
        all.sort_by_key(|(address, _)| *address);
        all
    }

    /// Addresses being resolved, with the requests sent and packets waiting.
    pub fn pending(&self) -> impl Iterator<Item = (IpAddr, u8, usize)> + '_ {
        self.pending.iter().map(|p| (p.address, p.probes, p.parked.len()))
    }
}
