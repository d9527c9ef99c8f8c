use crate::time::{Instant, SECONDS};
use crate::units::BitRate;
use crate::wire::ethernet::WIRE_OVERHEAD;

/// How fast to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// As fast as the port takes frames.
    Flood,
    /// Frames per second.
    Frames(u64),
    /// Bits per second on the wire: FCS, preamble and gap count ([`WIRE_OVERHEAD`]).
    Bits(BitRate),
}

impl Load {
    /// Frames of `size` bytes without FCS per second, as a fraction; `None` for a flood, which a rate
    /// of 0 is too.
    pub fn frame_rate(self, size: usize) -> Option<(u64, u64)> {
        match self {
            Load::Frames(0) | Load::Bits(BitRate(0)) | Load::Flood => None,
            Load::Frames(n) => Some((n, 1)),
            Load::Bits(BitRate(bits)) => Some((bits, 8 * (size + WIRE_OVERHEAD) as u64)),
        }
    }
}

/// Says when frames are due: frame `n` at `start + n / rate`, computed anew for each from whole
/// numbers, so that no rounding adds up.
///
/// Who asks late gets at most `backlog` frames at once; the rest of what was due meanwhile is
/// skipped and counted, because a burst without bound would measure the receiver's ring and not what
/// is between. Frames go in groups of `group`, all when the first of them is due.
#[derive(Clone, Debug)]
pub struct TokenClock {
    start: Instant,
    /// Frames per second, as a fraction.
    rate: Option<(u64, u64)>,
    group: u64,
    backlog: u64,
    /// Slots used or skipped.
    taken: u64,
    skipped: u64,
}

impl TokenClock {
    /// A clock that starts at `start`, for frames of `size` bytes without FCS.
    ///
    /// `group` is at least 1, and `backlog` at least `group`.
    pub fn new(start: Instant, load: Load, size: usize, group: u64, backlog: u64) -> TokenClock {
        let rate = load.frame_rate(size);
        let group = group.max(1);
        TokenClock { start, rate, group, backlog: backlog.max(group), taken: 0, skipped: 0 }
    }

    /// Frames that may go at `now`, at most `max`; they count as gone.
    pub fn take(&mut self, now: Instant, max: u64) -> u64 {
        let Some((n, d)) = self.rate else { return max };
        if now < self.start {
            return 0;
        }
        // Slots whose time has come, slot 0 at once; whole groups of them.
        let elapsed = u128::from(now.since(self.start));
        let slots = (elapsed * u128::from(n) / (u128::from(d) * u128::from(SECONDS))) as u64 + 1;
        let due = slots.div_ceil(self.group) * self.group - self.taken;
        if due > self.backlog {
            self.skipped += due - self.backlog;
            self.taken += due - self.backlog;
        }
        let count = due.min(self.backlog).min(max);
        self.taken += count;
        count
    }

    /// When the next frame is due; `None` if any time will do.
    pub fn next(&self) -> Option<Instant> {
        let (n, d) = self.rate?;
        // The group of a slot goes with its first.
        let slot = u128::from(self.taken / self.group * self.group);
        let ns = (slot * u128::from(d) * u128::from(SECONDS)).div_ceil(u128::from(n));
        Some(self.start + ns.min(u128::from(u64::MAX)) as u64)
    }

    /// Frames that were not sent because the caller came too late.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rate_in_bits_counts_the_whole_frame_on_the_wire() {
        // 1 Gbit/s of 60-byte frames: 84 bytes on the wire, 1,488,095.238 a second.
        let mut clock = TokenClock::new(Instant(0), Load::Bits(BitRate(1_000_000_000)), 60, 1, u64::MAX);
        assert_eq!(clock.take(Instant(SECONDS), u64::MAX), 1_488_095 + 1);
    }

    #[test]
    fn a_flood_is_never_held_back() {
        for load in [Load::Flood, Load::Frames(0), Load::Bits(BitRate(0))] {
            let mut clock = TokenClock::new(Instant(5), load, 60, 1, 8);
            assert_eq!((clock.take(Instant(0), 1000), clock.next(), clock.skipped()), (1000, None, 0));
        }
    }

    #[test]
    fn who_comes_late_gets_a_bounded_burst_and_is_told_what_was_skipped() {
        let mut clock = TokenClock::new(Instant(0), Load::Frames(1_000_000), 60, 1, 100);
        assert_eq!(clock.take(Instant(0), 64), 1);
        assert_eq!(clock.take(Instant(1_000_000), 64), 64);
        assert_eq!(clock.take(Instant(1_000_000), 64), 36);
        assert_eq!(clock.skipped(), 900);
    }

    proptest! {
        /// Asked exactly when the clock says, it lets exactly one group go, and the total never
        /// strays from the rate.
        #[test]
        fn the_average_is_exact_however_the_rate_divides_a_second(
            rate in 1u64..50_000_000, group in 1u64..64, steps in 1u64..2000, start in 0u64..1 << 50,
        ) {
            let mut clock = TokenClock::new(Instant(start), Load::Frames(rate), 60, group, 64);
            let mut sent = 0;
            for _ in 0..steps {
                let due = clock.next().unwrap();
                if due.0 > start {
                    prop_assert_eq!(clock.take(due - 1, u64::MAX), 0, "a nanosecond early");
                }
                // Groups closer than a nanosecond fall due together.
                let n = clock.take(due, u64::MAX);
                prop_assert!(n >= group && n.is_multiple_of(group));
                sent += n;
            }
            let last = clock.next().unwrap().since(Instant(start));
            let exact = u128::from(sent) * u128::from(SECONDS) / u128::from(rate);
            prop_assert!(u128::from(last) - exact <= 1, "{last} ns for {sent} frames, not {exact}");
            prop_assert_eq!(clock.skipped(), 0);
        }
    }
}
