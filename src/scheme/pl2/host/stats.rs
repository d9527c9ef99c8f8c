use hdrhistogram::Histogram;
use serde::Serialize;

use crate::time::SECONDS;

/// Longest time told apart from longer ones.
const MAX_TIME: u64 = 10 * SECONDS;

/// What a host has done, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HostCounters {
    /// Frames that were queued, and their bytes.
    pub taken: u64,
    /// Bytes of those.
    pub taken_bytes: u64,
    /// Frames that were sent unscheduled as they are small.
    pub bypassed: u64,
    /// Frames that were not taken, by reason: their connection has as many as it may.
    pub dropped_queue: u64,
    /// All connections together have as many frames as they may.
    pub dropped_host: u64,
    /// There are as many connections as there may be.
    pub dropped_connections: u64,
    /// Longer than a slot.
    pub dropped_too_long: u64,
    /// Requests (RSV), those sent again left out.
    pub requests: u64,
    /// Requests that were sent again (RETRY).
    pub retries: u64,
    /// Grants that were taken.
    pub grants: u64,
    /// Refusals that were taken.
    pub nacks: u64,
    /// Grants and refusals that were ignored: of a number that is over, older than what is known, or copies.
    pub stale: u64,
    /// Messages that no host gets, or that make no sense.
    pub unexpected: u64,
    /// Bursts that left more than `late_max` slots after their time.
    pub late: u64,
    /// Reservations that were given back as they were late.
    pub given_up: u64,
    /// REL that were sent.
    pub released: u64,
    /// REL that were due for bursts which had left and did not all come, and for others of which that could not be told.
    pub reclaims: u64,
    /// Grants that another start of the switch made void.
    pub voided: u64,
    /// Other starts of the switch that were seen.
    pub restarts: u64,
    /// Bursts that were sent.
    pub bursts: u64,
    /// Slots that were used.
    pub used_slots: u64,
    /// Slots that were granted and not needed.
    pub unused_slots: u64,
    /// Frames that were sent in slots.
    pub sent: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Frames that were taken back while they waited.
    pub withdrawn: u64,
    /// Bursts of others that were announced (NTF).
    pub announced: u64,
    /// Announcements that there was no room for.
    pub announced_dropped: u64,
    /// RST that were sent for announced bursts which did not come.
    pub resets: u64,
}

impl HostCounters {
    /// Frames that were not taken.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_host + self.dropped_connections + self.dropped_too_long
    }
}

/// What a host has done. Histograms are in nanoseconds to three digits, up to 10 s, and take no more memory.
#[derive(Clone, Debug)]
pub struct HostStats {
    /// Counters.
    pub counters: HostCounters,
    /// From sending a request to its answer.
    pub rtt: Histogram<u64>,
    /// From the time of a burst to when it was handed on: how exactly releases are timed.
    pub lateness: Histogram<u64>,
    /// Most frames that were parked at once.
    pub parked_peak: u32,
}

impl HostStats {
    pub(super) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, MAX_TIME, 3).expect("bounds and digits in their ranges");
        HostStats { counters: HostCounters::default(), rtt: histogram(), lateness: histogram(), parked_peak: 0 }
    }
}
