use crate::time::{Instant, MILLIS};

/// Shortest time after which a request is sent again, in nanoseconds (design, 2.10).
pub const RTO_MIN: u64 = MILLIS;
/// Longest.
pub const RTO_MAX: u64 = 16 * MILLIS;

/// The round trip of a request and its answer. All connections of a host share it: the way is the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    /// Smoothed, in nanoseconds (RFC 6298, section 2: a new one counts for an eighth).
    smoothed: Option<u64>,
}

impl Rtt {
    #[inline]
    pub fn sample(&mut self, ns: u64) {
        self.smoothed = Some(match self.smoothed {
            Some(old) => old - old / 8 + ns / 8,
            None => ns,
        });
    }

    pub fn smoothed(&self) -> Option<u64> {
        self.smoothed
    }

    /// Four round trips, at least 1 ms.
    #[inline]
    pub fn patience(&self) -> u64 {
        self.smoothed.map_or(RTO_MIN, |ns| ns.saturating_mul(4).max(RTO_MIN))
    }

    /// When something of `now` is to be tried again after it was tried `times` times before: twice as long with each,
    /// up to 16 ms or, if that is longer, four round trips.
    #[inline]
    pub fn again(&self, now: Instant, times: u8) -> Instant {
        let first = self.patience();
        now + first.saturating_mul(1 << times.min(4)).min(RTO_MAX.max(first))
    }
}
