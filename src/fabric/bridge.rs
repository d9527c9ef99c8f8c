use crate::id::{PortId, PortMask};
use crate::pisa::table::ExactTable;
use crate::time::{Instant, SECONDS};
use crate::wire::MacAddr;

/// How long a learned address is believed without being seen again (IEEE 802.1D, table 7-5).
pub const AGEING: u64 = 300 * SECONDS;
/// A known address is written again at most this often, so that learning costs a read, not a write.
const REFRESH: u64 = SECONDS;
/// A full table is searched for aged stations at most this often: a flood of new addresses must not
/// cost a search each.
const SWEEP: u64 = SECONDS;
/// Addresses learned on one segment.
pub const CAPACITY: usize = 4096;

/// Where a station was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The port it sent from.
    pub port: PortId,
    /// When, to within a second.
    pub seen: Instant,
}

/// The learning bridge over the host ports of a ToR: one segment, VLAN tags carried but not looked
/// at. Entries age lazily: an old one counts as absent when it is looked up, and makes room when
/// the table is full.
#[derive(Debug)]
pub struct Bridge {
    stations: ExactTable<u64, Station>,
    /// Who was learned last, where and when: the frames of a burst mostly come from one station.
    last: (u64, Station),
    /// When a full table was last searched for who has aged.
    swept: Option<Instant>,
    ports: PortMask,
    live: PortMask,
}

impl Bridge {
    /// A bridge over `ports` that knows no station.
    pub fn new(ports: PortMask, seed: u64) -> Self {
        Bridge {
            stations: ExactTable::new(CAPACITY, seed),
            // No station has this address: it is a group's.
            last: (u64::MAX, Station { port: PortId(0), seen: Instant::ZERO }),
            swept: None,
            ports,
            live: PortMask(u64::MAX),
        }
    }

    /// Notes that `source` sent from `port`. A station that moved is believed at once; a full table
    /// first forgets who has aged, then learns no more (such a station's frames are flooded).
    #[inline]
    pub fn learn(&mut self, now: Instant, source: MacAddr, port: PortId) {
        let key = source.to_u64();
        let station = Station { port, seen: now };
        if self.last == (key, station) {
            return;
        }
        self.last = (key, station);
        if let Some(known) = self.stations.get_mut(&key) {
            if known.port != port || now.since(known.seen) >= REFRESH {
                *known = station;
            }
            return;
        }
        if self.stations.insert(key, station).is_err() && self.swept.is_none_or(|swept| now.since(swept) >= SWEEP) {
            self.swept = Some(now);
            self.stations.retain(|_, s| now.since(s.seen) < AGEING);
            // Still full: nobody has aged, and forgetting a live station would only flood its frames.
            let _ = self.stations.insert(key, station);
        }
    }

    /// The port behind which `address` was seen lately.
    #[inline]
    pub fn lookup(&self, now: Instant, address: MacAddr) -> Option<PortId> {
        let station = self.stations.get(&address.to_u64())?;
        (now.since(station.seen) < AGEING).then_some(station.port)
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
        self.last.0 = u64::MAX;
        self.stations.retain(|_, s| live.contains(s.port));
    }

    /// Every station, by address.
    pub fn stations(&self) -> Vec<(MacAddr, Station)> {
        let mut stations: Vec<_> = self.stations.iter().map(|(k, s)| (MacAddr::from_u64(*k), *s)).collect();
        stations.sort_by_key(|(mac, _)| *mac);
        stations
    }
}
