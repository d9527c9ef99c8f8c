use crate::time::{Instant, SECONDS};

/// A token bucket for messages the switch makes (RFC 1812, section 4.3.2.8; RFC 4443, section 2.4,
/// rule f): up to `burst` at once, `rate` a second in the long run.
///
/// Exact: one token is 10^9 units and a nanosecond earns `rate` of them, so a fraction of a token is
/// kept whatever the rate and however often it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Tokens a second, which is units a nanosecond.
    rate: u64,
    /// Most units held.
    capacity: u64,
    /// Units held at `touched`.
    units: u64,
    touched: Instant,
}

impl RateLimit {
    /// A full bucket of `burst` tokens that gains `rate` tokens a second; rate 0 never refills it.
    pub fn new(rate: u32, burst: u32) -> Self {
        let capacity = u64::from(burst) * SECONDS;
        RateLimit { rate: rate.into(), capacity, units: capacity, touched: Instant::ZERO }
    }

    /// Takes a token if there is one at `now`. A `now` before an earlier one earns nothing.
    #[must_use]
    pub fn allow(&mut self, now: Instant) -> bool {
        self.take(now, 1)
    }

    /// Takes `n` tokens if there are as many at `now`, otherwise none.
    #[must_use]
    pub fn take(&mut self, now: Instant, n: u32) -> bool {
        let cost = u64::from(n) * SECONDS;
        let earned = now.since(self.touched).saturating_mul(self.rate);
        self.units = self.units.saturating_add(earned).min(self.capacity);
        self.touched = self.touched.max(now);
        let allowed = self.units >= cost;
        if allowed {
            self.units -= cost;
        }
        allowed
    }
}

impl Default for RateLimit {
    /// 1,000 a second, burst 50.
    fn default() -> Self {
        RateLimit::new(1_000, 50)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The generic cell rate algorithm (ITU-T I.371, virtual scheduling), which admits exactly what a
    /// token bucket does: it keeps the time at which the bucket would be full again, in 1/rate ns.
    struct Gcra {
        rate: u128,
        burst: u128,
        full_at: u128,
    }

    impl Gcra {
        fn take(&mut self, now: u64, n: u32) -> bool {
            let now = u128::from(now) * self.rate;
            let token = u128::from(SECONDS);
            let full_at = self.full_at.max(now) + u128::from(n) * token;
            let allowed = full_at - now <= self.burst * token;
            if allowed {
                self.full_at = full_at;
            }
            allowed
        }
    }

    proptest! {
        #[test]
        fn it_admits_exactly_what_the_generic_cell_rate_algorithm_admits(
            rate in prop_oneof![1u32..10, 1u32..5_000, Just(999_999_937)],
            burst in 0u32..80,
            gaps in prop::collection::vec(
                (prop_oneof![Just(0), 0u64..1_000, 0u64..3_000_000, 0u64..4 * SECONDS], prop_oneof![Just(1u32), 0u32..90]),
                1..600,
            ),
        ) {
            let mut limit = RateLimit::new(rate, burst);
            let mut oracle = Gcra { rate: rate.into(), burst: burst.into(), full_at: 0 };
            let mut now = 0;
            for (gap, n) in gaps {
                now += gap;
                prop_assert_eq!(limit.take(Instant(now), n), oracle.take(now, n), "{} at {}", n, now);
            }
        }
    }

    #[test]
    fn asked_every_seven_nanoseconds_it_loses_no_rate() {
        // 0.210000049 tokens a step: never a whole one, nor a whole number of steps to one. Burst 2, because
        // a bucket of one token would be full, and so lose what it earns, before each taking.
        let mut limit = RateLimit::new(30_000_007, 2);
        let admitted = (0..1_000_000u64).filter(|i| limit.allow(Instant(i * 7))).count();
        // The burst, and floor(6,999,993 ns x 0.030000007 tokens/ns).
        assert_eq!(admitted, 2 + 209_999);
    }

    #[test]
    fn a_clock_handed_in_late_earns_nothing_twice() {
        let mut limit = RateLimit::new(1_000, 1);
        assert!(limit.allow(Instant(5 * SECONDS)));
        assert!(!limit.allow(Instant(4 * SECONDS)));
        assert!(!limit.allow(Instant(5 * SECONDS + 999_999)));
        assert!(limit.allow(Instant(5 * SECONDS + 1_000_000)));
    }

    #[test]
    fn the_default_is_fifty_at_once_and_a_thousand_a_second() {
        let mut limit = RateLimit::default();
        assert_eq!((0..1_000).filter(|_| limit.allow(Instant::ZERO)).count(), 50);
        assert_eq!((1..=10_000).filter(|i| limit.allow(Instant(i * 100_000))).count(), 1_000);
    }
}
