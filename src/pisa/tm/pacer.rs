use crate::time::{Instant, SECONDS};
use crate::units::BitRate;

/// Lets frames go at a configured rate, exactly: the fraction of a nanosecond that a frame's time on
/// the wire leaves over is carried to the next, so no rate is lost to rounding.
///
/// While frames wait, the next one's time follows from the last one's, not from when somebody
/// looked: a driver that polls late sends the frames that were due meanwhile, and the average rate
/// holds. An idle link saves up nothing ([`Pacer::start`]).
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: BitRate,
    next: Instant,
    /// Numerator of the fraction carried, over `rate`; below `rate`.
    carry: u64,
    last: Length,
}

/// What a frame of the last length takes: frames of one length follow one another, and each division would cost
/// as much as all else that is done here.
#[derive(Debug, Clone, Copy, Default)]
struct Length {
    bytes: usize,
    ns: u64,
    /// Numerator of the rest, over the rate.
    rest: u64,
}

impl Pacer {
    /// A pacer at `rate`; 0 lets everything go at once.
    pub fn new(rate: BitRate) -> Self {
        Pacer { rate, next: Instant::ZERO, carry: 0, last: Length::default() }
    }

    /// Paces to `rate` from `now` on: what is left of the last frame's time passes at the new rate.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        if rate == self.rate {
            return;
        }
        // Below 2^64 ns at any old rate, and a rate is below 2^64: it fits.
        let bits = u128::from(self.next.since(now)) * u128::from(self.rate.0);
        let left = bits.checked_div(rate.0.into()).unwrap_or(0);
        self.next = now + u64::try_from(left).unwrap_or(u64::MAX);
        // A fraction over the old rate.
        self.carry = 0;
        self.last = Length::default();
        self.rate = rate;
    }

    /// The rate.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// The first frame after an idle time arrived at `now`: it may go then, or when the last one has
    /// left the wire.
    #[inline]
    pub fn start(&mut self, now: Instant) {
        if self.next < now {
            self.next = now;
            self.carry = 0;
        }
    }

    /// Whether a frame may go at `now`.
    #[inline]
    pub fn ready(&self, now: Instant) -> bool {
        self.next <= now || self.rate.0 == 0
    }

    /// When the next frame may go.
    #[inline]
    pub fn next(&self) -> Instant {
        if self.rate.0 == 0 { Instant::ZERO } else { self.next }
    }

    /// A frame of `wire_len` bytes (all it takes on the wire) goes.
    #[inline]
    pub fn sent(&mut self, wire_len: usize) {
        if self.rate.0 == 0 {
            return;
        }
        let rate = self.rate.0;
        if wire_len != self.last.bytes {
            // At most 65,559 B * 8 * 1e9 = 5.2e14.
            let bits = wire_len as u64 * 8 * SECONDS;
            self.last = Length { bytes: wire_len, ns: bits / rate, rest: bits % rate };
        }
        let Length { ns, rest, .. } = self.last;
        let whole = self.carry >= rate - rest;
        self.next = self.next + ns + u64::from(whole);
        self.carry = if whole { self.carry - (rate - rest) } else { self.carry + rest };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_frames_at_ten_gigabit_take_exactly_their_time() {
        // 84 B at 10 Gbit/s is 67.2 ns: after 1,000 frames 67,200 ns, not 67,000.
        let mut pacer = Pacer::new(BitRate(10_000_000_000));
        pacer.start(Instant(0));
        for _ in 0..1000 {
            pacer.sent(84);
        }
        assert_eq!(pacer.next(), Instant(67_200));
    }

    #[test]
    fn a_frame_that_waits_for_a_slow_one_is_not_late_at_a_new_rate() {
        let mut pacer = Pacer::new(BitRate(1_000));
        pacer.start(Instant(0));
        pacer.sent(125); // 1 s
        // Half of it has passed: the rest takes half a microsecond at 1 Gbit/s.
        pacer.set_rate(Instant(SECONDS / 2), BitRate(1_000_000_000));
        assert_eq!(pacer.next(), Instant(SECONDS / 2 + 500));
        pacer.set_rate(Instant(SECONDS / 2), BitRate(1_000));
        assert_eq!(pacer.next(), Instant(SECONDS));
        // No rate, no wait, and none after it; no credit either for the time without.
        pacer.set_rate(Instant(SECONDS / 2), BitRate(0));
        pacer.sent(125);
        pacer.set_rate(Instant(2 * SECONDS), BitRate(1_000));
        assert_eq!(pacer.next(), Instant(2 * SECONDS));
    }

    #[test]
    fn an_idle_link_saves_no_credit_but_a_late_poll_loses_none() {
        let mut pacer = Pacer::new(BitRate(1_000_000_000));
        pacer.start(Instant(5_000));
        pacer.sent(125); // 1 us
        assert!(!pacer.ready(Instant(5_999)));
        assert!(pacer.ready(Instant(6_000)));
        // Polled 4 us late with frames waiting: the next follows at 7 us, not at 11 us.
        pacer.sent(125);
        assert_eq!(pacer.next(), Instant(7_000));
        // Idle until 50 us: starts afresh.
        pacer.start(Instant(50_000));
        assert_eq!(pacer.next(), Instant(50_000));
    }
}
