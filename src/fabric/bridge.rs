use crate::id::{MAX_PORTS, PortId, PortMask};
use crate::pisa::table::ExactTable;
use crate::time::{Instant, SECONDS};
use crate::wire::MacAddr;

/// How long a learned address is believed without being seen again (IEEE 802.1D, table 7-5).
pub const AGEING: u64 = 300 * SECONDS;
/// A known address is written again at most this often, so that learning costs a read, not a write.
const REFRESH: u64 = SECONDS;
/// Addresses learned on one segment.
pub const CAPACITY: usize = 4096;
/// Addresses learned on one port: a host that invents sources can't push out what others need.
pub const PORT_QUOTA: usize = CAPACITY / 4;
/// Between two searches of the table for who has aged: a flood of new sources costs one look-up a
/// frame, not one table.
pub const SWEEP: u64 = SECONDS;

/// Whether `address` is one of the sixteen group addresses that are never forwarded, 01-80-C2-00-00-00
/// to -0F (IEEE 802.1Q, section 8.6.3, table 8-1).
#[inline]
pub fn is_reserved(address: MacAddr) -> bool {
    address.to_u64() & !0xf == 0x0180_c200_0000
}

/// Where a station was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The port it sent from.
    pub port: PortId,
    /// When, to within a second.
    pub seen: Instant,
}

/// No MAC address is this number.
const NOBODY: (u64, Station) = (u64::MAX, Station { port: PortId(0), seen: Instant::ZERO });

/// The learning bridge over the host ports of a ToR: one segment, VLAN tags carried but not looked
/// at. Entries age lazily: an old one counts as absent when it is looked up, and makes room when
/// the table or its port's quota is full.
///
/// Invariant: `learned[p]` is the number of stations at port p, at most [`PORT_QUOTA`].
#[derive(Debug)]
pub struct Bridge {
    stations: ExactTable<u64, Station>,
    learned: [usize; MAX_PORTS],
    /// Who was learned last, where and when: the frames of a burst mostly come from one station.
    last: (u64, Station),
    /// When the table may be searched for who has aged.
    next_sweep: Instant,
    ports: PortMask,
    live: PortMask,
}

impl Bridge {
    /// A bridge over `ports` that knows no station.
    pub fn new(ports: PortMask, seed: u64) -> Self {
        Bridge {
            stations: ExactTable::new(CAPACITY, seed),
            learned: [0; MAX_PORTS],
            last: NOBODY,
            next_sweep: Instant::ZERO,
            ports,
            live: PortMask(u64::MAX),
        }
    }

    /// Notes that `source` sent from `port`; whether that was news, or is worth saying again. A station
    /// that moved is believed at once. A full table or quota first forgets who has aged, at most once a
    /// [`SWEEP`], then learns no more: the frames of a station that is not known are flooded.
    #[inline(always)]
    pub fn learn(&mut self, now: Instant, source: MacAddr, port: PortId) -> bool {
        let key = source.to_u64();
        let last = (key, Station { port, seen: now });
        if self.last == last {
            return false;
        }
        self.last = last;
        match self.stations.get_mut(&key) {
            Some(station) if station.port == port => {
                let old = now.since(station.seen) >= REFRESH;
                if old {
                    station.seen = now;
                }
                old
            }
            Some(_) => {
                // Out first: a station that finds no room at its new port is not left at the old one.
                self.forget(key);
                self.add(now, key, port)
            }
            None => self.add(now, key, port),
        }
    }

    fn forget(&mut self, key: u64) {
        if let Some(station) = self.stations.remove(&key) {
            self.learned[station.port.index()] -= 1;
        }
    }

    fn has_room(&self, port: PortId) -> bool {
        self.stations.len() < CAPACITY && self.learned[port.index()] < PORT_QUOTA
    }

    /// Whether there was room.
    fn add(&mut self, now: Instant, key: u64, port: PortId) -> bool {
        if !self.has_room(port) && now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.retain(|s| now.since(s.seen) < AGEING);
        }
        let added = self.has_room(port) && self.stations.insert(key, Station { port, seen: now }).is_ok();
        self.learned[port.index()] += usize::from(added);
        added
    }

    fn retain(&mut self, keep: impl Fn(&Station) -> bool) {
        self.stations.retain(|_, s| keep(s));
        self.learned = [0; MAX_PORTS];
        for (_, s) in self.stations.iter() {
            self.learned[s.port.index()] += 1;
        }
    }

    /// The port behind which `address` was seen lately.
    #[inline]
    pub fn lookup(&self, now: Instant, address: MacAddr) -> Option<PortId> {
        let station = self.stations.get(&address.to_u64())?;
        (now.since(station.seen) < AGEING).then_some(station.port)
    }

    /// Replaces the host ports; stations behind others are forgotten.
    pub fn set_ports(&mut self, ports: PortMask) {
        self.ports = ports;
        self.last = NOBODY;
        self.retain(|s| ports.contains(s.port));
    }

    /// Live host ports.
    pub fn ports(&self) -> PortMask {
        self.ports.and(self.live)
    }

    /// Live host ports other than `from`.
    #[inline]
    pub fn flood_ports(&self, from: PortId) -> PortMask {
        self.ports().without(from)
    }

    /// Ports that may be flooded to; stations behind others are forgotten.
    pub fn set_live(&mut self, live: PortMask) {
        self.live = live;
        self.last = NOBODY;
        self.retain(|s| live.contains(s.port));
    }

    /// Every station, by address.
    pub fn stations(&self) -> Vec<(MacAddr, Station)> {
        let mut stations: Vec<_> = self.stations.iter().map(|(k, s)| (MacAddr::from_u64(*k), *s)).collect();
        stations.sort_by_key(|(mac, _)| *mac);
        stations
    }
}
