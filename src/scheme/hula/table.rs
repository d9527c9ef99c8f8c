use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::id::{PortId, PortMask, SwitchId};
use crate::pisa::table::{ExactTable, Lpm};
use crate::time::Instant;
use crate::wire::hula::Probe;

/// What is known of a ToR.
#[derive(Clone, Copy, Debug)]
struct Slot {
    tor: SwitchId,
    ipv4: Option<Ipv4Net>,
    ipv6: Option<Ipv6Net>,
    /// Where the best way starts; `None` until a probe is taken, and when its port went down.
    best: Option<PortId>,
    /// Whether that way goes down.
    below: bool,
    /// Utilisation of that way, in 1/65535.
    utilisation: u16,
    /// When the last probe was taken.
    updated: Instant,
    /// When the last probe was passed on.
    passed_on: Option<Instant>,
}

impl Slot {
    fn is_fresh(&self, now: Instant, keepalive: u64) -> bool {
        self.best.is_some() && now.since(self.updated) <= keepalive
    }

    fn has_prefix_of(&self, probe: &Probe) -> bool {
        (self.ipv4.is_some() && self.ipv4 == probe.ipv4) || (self.ipv6.is_some() && self.ipv6 == probe.ipv6)
    }
}

/// Why a probe changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A better way is known, and was confirmed within the keep-alive.
    Worse,
    /// It came from above, and the ToR lies below: routes go down as soon as they can.
    Roundabout,
    /// The ToR is unknown, and the table is full of ToRs that were heard within the keep-alive.
    Full,
    /// Its prefix is that of another ToR, which was heard within the keep-alive.
    PrefixTaken,
}

/// What comes of a probe that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Utilisation of the best way to its ToR, in 1/65535.
    pub utilisation: u16,
    /// Whether it is to be passed on: nothing was within the last half period.
    pub pass_on: bool,
}

/// A ToR, for showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TorView {
    /// The ToR.
    pub tor: SwitchId,
    /// Its prefix.
    pub ipv4: Option<Ipv4Net>,
    /// Its prefix.
    pub ipv6: Option<Ipv6Net>,
    /// Where new flowlets go; `None`: the hash decides, because no way is known or its keep-alive is over.
    pub best: Option<PortId>,
    /// Utilisation of the busiest link on that way, in 1/65535.
    pub utilisation: u16,
    /// Nanoseconds since the last probe that was taken.
    pub age: u64,
}

/// The best way to each ToR, and which ToR an address is behind.
///
/// Holds so many ToRs and no more. A new one takes the place of the one that has not been heard for longest,
/// if that is longer than the keep-alive, and is ignored otherwise. Memory is taken when a ToR with a prefix
/// not known yet is heard (the prefix tables grow), never for a packet.
#[derive(Debug)]
pub struct TorTable {
    slots: Vec<Slot>,
    most: usize,
    by_tor: ExactTable<u32, u16>,
    v4: Lpm<u32, u16>,
    v6: Lpm<u128, u16>,
    keepalive: u64,
    /// Least time between two probes of a ToR that are passed on.
    spacing: u64,
}

impl TorTable {
    /// Room for `most` ToRs, up to 65,536. A way is believed for `keepalive` ns after its last probe; probes of
    /// a ToR are passed on no closer than `spacing` ns.
    pub fn new(most: usize, keepalive: u64, spacing: u64, seed: u64) -> Self {
        TorTable {
            slots: Vec::with_capacity(most),
            most,
            by_tor: ExactTable::new(most, seed),
            v4: Lpm::new(seed),
            v6: Lpm::new(seed),
            keepalive,
            spacing,
        }
    }

    /// A probe came in by `port`, which leads down if `below`; the way it stands for is in use by
    /// `utilisation`, that port's link included.
    ///
    /// It is taken if it is better than what is known, or comes by the best way (then it says how that one is
    /// now), or if that one was not heard within the keep-alive (Katta et al., SOSR 2016).
    ///
    /// # Errors
    /// Why it was not; then the way is what it was.
    pub fn heard(
        &mut self,
        now: Instant,
        probe: &Probe,
        port: PortId,
        below: bool,
        utilisation: u16,
    ) -> Result<Taken, Refusal> {
        let known = self.by_tor.get(&u32::from(probe.origin.0)).copied();
        let index = match known {
            Some(index) => {
                let slot = &self.slots[usize::from(index)];
                match (below, slot.below) {
                    _ if !slot.is_fresh(now, self.keepalive) => {}
                    (false, true) => return Err(Refusal::Roundabout),
                    (true, false) => {}
                    _ if utilisation < slot.utilisation || slot.best == Some(port) => {}
                    _ => return Err(Refusal::Worse),
                }
                self.moved(now, index, probe)?
            }
            None => self.admit(now, probe)?,
        };
        let spacing = self.spacing;
        let slot = &mut self.slots[usize::from(index)];
        (slot.best, slot.below, slot.utilisation, slot.updated) = (Some(port), below, utilisation, now);
        let pass_on = slot.passed_on.is_none_or(|last| now.since(last) >= spacing);
        if pass_on {
            slot.passed_on = Some(now);
        }
        Ok(Taken { utilisation, pass_on })
    }

    /// The slot of a ToR that is known, with the prefixes it has now.
    fn moved(&mut self, now: Instant, index: u16, probe: &Probe) -> Result<u16, Refusal> {
        let slot = &self.slots[usize::from(index)];
        if (slot.ipv4, slot.ipv6) == (probe.ipv4, probe.ipv6) {
            return Ok(index);
        }
        self.clear_prefixes(now, probe)?;
        self.forget_prefixes(index);
        self.remember_prefixes(index, probe);
        Ok(index)
    }

    /// A slot for a ToR that is not known.
    fn admit(&mut self, now: Instant, probe: &Probe) -> Result<u16, Refusal> {
        let index = if self.slots.len() < self.most {
            self.slots.len()
        } else {
            let stale = self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_fresh(now, self.keepalive));
            stale.min_by_key(|(_, slot)| slot.updated).map(|(index, _)| index).ok_or(Refusal::Full)?
        };
        self.clear_prefixes(now, probe)?;
        let slot = Slot {
            tor: probe.origin,
            ipv4: None,
            ipv6: None,
            best: None,
            below: false,
            utilisation: 0,
            updated: now,
            passed_on: None,
        };
        let number = index as u16;
        if index == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.forget_prefixes(number);
            self.by_tor.remove(&u32::from(self.slots[index].tor.0));
            self.slots[index] = slot;
        }
        self.by_tor.insert(u32::from(probe.origin.0), number).expect("as many as there are slots");
        self.remember_prefixes(number, probe);
        Ok(number)
    }

    /// Takes the probe's prefixes from ToRs that are not heard any more; a ToR that is keeps its own.
    fn clear_prefixes(&mut self, now: Instant, probe: &Probe) -> Result<(), Refusal> {
        let others = |slot: &Slot| slot.tor != probe.origin && slot.has_prefix_of(probe);
        if self.slots.iter().any(|slot| others(slot) && slot.is_fresh(now, self.keepalive)) {
            return Err(Refusal::PrefixTaken);
        }
        for index in 0..self.slots.len() {
            if others(&self.slots[index]) {
                self.forget_prefixes(index as u16);
            }
        }
        Ok(())
    }

    fn forget_prefixes(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        if let Some(net) = slot.ipv4.take() {
            self.v4.remove(net.addr().to_bits(), net.prefix_len());
        }
        if let Some(net) = slot.ipv6.take() {
            self.v6.remove(net.addr().to_bits(), net.prefix_len());
        }
    }

    fn remember_prefixes(&mut self, index: u16, probe: &Probe) {
        let slot = &mut self.slots[usize::from(index)];
        (slot.ipv4, slot.ipv6) = (probe.ipv4, probe.ipv6);
        if let Some(net) = probe.ipv4 {
            self.v4.insert(net.addr().to_bits(), net.prefix_len(), index);
        }
        if let Some(net) = probe.ipv6 {
            self.v6.insert(net.addr().to_bits(), net.prefix_len(), index);
        }
    }

    /// Where a new flowlet to an IPv4 address goes, if a way is known and its keep-alive not over.
    #[inline]
    pub fn best_v4(&self, now: Instant, address: Ipv4Addr) -> Option<PortId> {
        self.best(now, *self.v4.get(address.to_bits())?)
    }

    /// The same for an IPv6 address.
    #[inline]
    pub fn best_v6(&self, now: Instant, address: Ipv6Addr) -> Option<PortId> {
        self.best(now, *self.v6.get(address.to_bits())?)
    }

    #[inline]
    fn best(&self, now: Instant, index: u16) -> Option<PortId> {
        let slot = &self.slots[usize::from(index)];
        if slot.is_fresh(now, self.keepalive) { slot.best } else { None }
    }

    /// Forgets the ways by all but the `live` ports at once: the next probe is taken, whatever it says.
    pub fn set_live(&mut self, live: PortMask) {
        for slot in &mut self.slots {
            slot.best = slot.best.filter(|port| live.contains(*port));
        }
    }

    /// Every ToR that a probe was heard of, by number.
    pub fn views(&self, now: Instant) -> Vec<TorView> {
        let view = |slot: &Slot| TorView {
            tor: slot.tor,
            ipv4: slot.ipv4,
            ipv6: slot.ipv6,
            best: slot.best.filter(|_| slot.is_fresh(now, self.keepalive)),
            utilisation: slot.utilisation,
            age: now.since(slot.updated),
        };
        let mut views: Vec<TorView> = self.slots.iter().map(view).collect();
        views.sort_by_key(|view| view.tor);
        views
    }
}
