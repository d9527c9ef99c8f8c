use crate::time::Instant;

/// Whole periods of absolute time, `now / period`, counted without a division as long as one lasts.
///
/// A time that goes back belongs to the period that was reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epochs {
    /// Nanoseconds; a multiple of `period`, above 0.
    end: u64,
    period: u64,
}

impl Epochs {
    /// At time 0, with periods of `period` nanoseconds (0 counts as 1).
    pub(super) fn new(period: u64) -> Self {
        let period = period.max(1);
        Epochs { end: period, period }
    }

    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// Periods that have ended by `now` since the one that was reached.
    #[inline]
    pub(super) fn ahead(&self, now: Instant) -> u64 {
        if now.0 < self.end { 0 } else { (now.0 - self.end) / self.period + 1 }
    }

    /// [`Epochs::ahead`], and the period of `now` is reached.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) -> u64 {
        let ahead = self.ahead(now);
        if ahead > 0 {
            self.end = self.end.saturating_add(ahead.saturating_mul(self.period));
        }
        ahead
    }

    /// From now on periods have another length. What is reached is the new period that holds the last
    /// nanosecond of the old.
    pub(super) fn set_period(&mut self, period: u64) {
        self.period = period.max(1);
        self.end = ((self.end - 1) / self.period + 1).saturating_mul(self.period);
    }
}
