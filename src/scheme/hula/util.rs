use crate::time::Instant;
use crate::units::BitRate;
use crate::wire::hula::FULL;

/// What a port without a rate is measured against, so that the busier of two such is still told apart.
pub const UNPACED: BitRate = BitRate(10_000_000_000);

/// Bits behind the binary point of the estimate's bytes. Frames may be a few nanoseconds apart: what decays
/// between two is then a small part of a byte, and must not be lost.
const FRACTION: u32 = 16;

/// How busy one direction of a link is (Katta et al., SOSR 2016): with each frame of `size` bytes that leaves `dt`
/// after the last one,
///
/// ```text
/// U = size + U * (1 - dt / tau)        tau = 2 probe periods;  U = size if dt >= tau
/// ```
/// At a steady rate U settles at what passes in tau, so U / (rate * tau) is the share of the link in use.
///
/// Evaluated when a frame leaves; what is read between two frames is `U * (1 - dt / tau)` and changes
/// nothing, for two steps of this decay are not one of both together, and the estimate must not depend on
/// how often it is looked at. Fixed point of 2^-16 byte, saturating; the decay is short of the exact one by
/// less than U * dt / 2^64 and a unit, so U is never below its exact value.
#[derive(Clone, Copy, Debug)]
pub struct Estimator {
    /// U, bytes in 48.16.
    level: u64,
    last: Instant,
    tau: u64,
    /// 2^64 / tau, so that no frame costs a division.
    per_tau: u64,
    /// Bytes that pass at the whole rate in tau, in 48.16; at least 1.
    whole: u64,
}

impl Estimator {
    /// Nothing sent yet, on a link of `rate` (0 counts as [`UNPACED`]), with time constant `tau`: 2 ns to 2^40.
    pub fn new(rate: BitRate, tau: u64) -> Self {
        let mut estimator = Estimator { level: 0, last: Instant::ZERO, tau, per_tau: u64::MAX / tau, whole: 1 };
        estimator.set_rate(rate);
        estimator
    }

    /// Another rate; what was sent stays.
    pub fn set_rate(&mut self, rate: BitRate) {
        let rate = if rate.0 == 0 { UNPACED } else { rate };
        // rate * tau / (8 bits * 1e9 ns), shifted; below 2^64 * 2^40 / 2^12 * 2^16.
        let bytes = u128::from(rate.0) * u128::from(self.tau) / 8_000 * (1 << FRACTION) / 1_000_000;
        self.whole = u64::try_from(bytes).unwrap_or(u64::MAX).max(1);
    }

    /// U at `now`, in 48.16.
    #[inline]
    fn level(&self, now: Instant) -> u64 {
        let dt = now.since(self.last);
        if dt >= self.tau {
            return 0;
        }
        // dt < tau, so dt / tau as a fraction of 2^64 fits.
        let share = dt * self.per_tau;
        self.level - ((u128::from(self.level) * u128::from(share)) >> 64) as u64
    }

    /// A frame leaves that takes `bytes` of the wire.
    #[inline]
    pub fn sent(&mut self, now: Instant, bytes: u32) {
        self.level = self.level(now).saturating_add(u64::from(bytes) << FRACTION);
        self.last = self.last.max(now);
    }

    /// The share of the rate that is in use at `now`, in 1/65535, rounded down; [`FULL`] for all of it or
    /// more.
    #[inline]
    pub fn utilisation(&self, now: Instant) -> u16 {
        let level = self.level(now);
        if level >= self.whole {
            return FULL;
        }
        (u128::from(level) * u128::from(FULL) / u128::from(self.whole)) as u16
    }
}
