use crate::time::{Instant, MILLIS, SECONDS};

/// From a failure to the next attempt, at first and at most.
const FIRST: u64 = 250 * MILLIS;
const LONGEST: u64 = 4 * SECONDS;

/// When to try again what has failed: after a time that doubles with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    wait: u64,
    next: Instant,
}

impl Default for Backoff {
    /// Nothing has failed yet.
    fn default() -> Backoff {
        Backoff { wait: FIRST, next: Instant::ZERO }
    }
}

impl Backoff {
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// An attempt has failed just now.
    pub fn failed(&mut self, now: Instant) {
        self.next = now + self.wait;
        self.wait = (2 * self.wait).min(LONGEST);
    }

    /// Something may be different: as if only the last attempt had failed, just now. So a storm of words
    /// costs no more than one attempt in each [`FIRST`].
    pub fn prod(&mut self, now: Instant) {
        self.wait = FIRST;
        self.next = self.next.min(now + FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long after each of `failures` failures the next attempt is due, tried at once when it is.
    fn waits(backoff: &mut Backoff, mut now: Instant, failures: usize) -> Vec<u64> {
        let wait = |_| {
            backoff.failed(now);
            let due = (0..).map(|n| n * FIRST).find(|wait| backoff.is_due(now + *wait)).expect("it is due some time");
            now = now + due;
            due / MILLIS
        };
        (0..failures).map(wait).collect()
    }

    #[test]
    fn attempts_are_at_twice_the_time_after_each_failure_up_to_four_seconds() {
        let mut backoff = Backoff::default();
        assert!(backoff.is_due(Instant::ZERO), "the first is at once");
        assert_eq!(waits(&mut backoff, Instant(SECONDS), 7), [250, 500, 1000, 2000, 4000, 4000, 4000]);
    }

    #[test]
    fn a_word_brings_the_next_attempt_near_and_many_words_do_not_put_it_off() {
        let mut backoff = Backoff::default();
        waits(&mut backoff, Instant(SECONDS), 7);
        let now = Instant(100 * SECONDS);
        backoff.failed(now);
        for word in 0..5 {
            backoff.prod(now + word * 50 * MILLIS);
        }
        assert!(!backoff.is_due(now + FIRST - 1));
        assert!(backoff.is_due(now + FIRST));
        assert_eq!(waits(&mut backoff, now + FIRST, 3), [250, 500, 1000]);
    }
}
