use crate::id::{PortId, PortMask};
use crate::pisa::table::ExactTable;
use crate::time::{Instant, SECONDS};
use crate::wire::MacAddr;

/// How long a learned address is believed without being seen again (IEEE 802.1D, table 7-5).
pub const AGEING: u64 = 300 * SECONDS;
/// A known address is written again at most this often, so that learning costs a read, not a write.
const REFRESH: u64 = SECONDS;
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
    ports: PortMask,
    live: PortMask,
}

impl Bridge {
    /// A bridge over `ports` that knows no station.
    pub fn new(ports: PortMask, seed: u64) -> Self {
        Bridge { stations: ExactTable::new(CAPACITY, seed), ports, live: PortMask(u64::MAX) }
    }

    /// Notes that `source` sent from `port`. A station that moved is believed at once; a full table
    /// first forgets who has aged, then learns no more (such a station's frames are flooded).
    #[inline]
    pub fn learn(&mut self, now: Instant, source: MacAddr, port: PortId) {
        let key = source.to_u64();
        if let Some(station) = self.stations.get_mut(&key) {
            if station.port != port || now.since(station.seen) >= REFRESH {
                *station = Station { port, seen: now };
            }
            return;
        }
        let station = Station { port, seen: now };
        if self.stations.insert(key, station).is_err() {
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
        self.stations.retain(|_, s| live.contains(s.port));
    }

    /// Every station, by address.
    pub fn stations(&self) -> Vec<(MacAddr, Station)> {
        let mut stations: Vec<_> = self.stations.iter().map(|(k, s)| (MacAddr::from_u64(*k), *s)).collect();
        stations.sort_by_key(|(mac, _)| *mac);
        stations
    }
}
