use crate::time::{Instant, SECONDS};

/// Without an answer for so long, the switch is taken for one that grants no slots. Its restart takes less.
const PATIENCE: u64 = 2 * SECONDS;
/// Time between two questions whether it does again.
const PROBE: u64 = SECONDS;

/// Whether anybody answers requests: a switch can lose its `[pl2]`, or be replaced by one that has none, and frames must
/// not wait for it for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Silence {
    /// Nothing waits.
    #[default]
    Idle,
    /// Frames wait for an answer.
    Waiting {
        /// Since when: the last answer, or the first frame after.
        since: Instant,
        /// How many requests had been sent again by then.
        retries: u64,
    },
    /// Nobody answers: nothing waits any more.
    Silent {
        /// When a request is sent, to see.
        probe_at: Instant,
    },
}

impl Silence {
    /// At `now`, `parked` frames wait, and `retries` requests have been sent again so far. Whether nobody is to be waited
    /// for from now on.
    ///
    /// A grant that lies far ahead is no silence: a request that is not answered is sent again within milliseconds.
    #[inline]
    pub fn begins(&mut self, now: Instant, parked: usize, retries: u64) -> bool {
        match *self {
            Silence::Idle if parked > 0 => *self = Silence::Waiting { since: now, retries },
            Silence::Waiting { .. } if parked == 0 => *self = Silence::Idle,
            Silence::Waiting { since, retries: before } if now.since(since) >= PATIENCE && retries > before => {
                *self = Silence::Silent { probe_at: now + PROBE };
                return true;
            }
            _ => {}
        }
        false
    }

    /// A switch has answered.
    #[inline]
    pub fn answered(&mut self) {
        *self = Silence::Idle;
    }

    /// Whether nobody answers.
    #[inline]
    pub fn is_silent(&self) -> bool {
        matches!(self, Silence::Silent { .. })
    }

    /// Whether a frame of `now` is to have a request sent, though nobody answers: once a second.
    #[inline]
    pub fn probes(&mut self, now: Instant) -> bool {
        match self {
            Silence::Silent { probe_at } if *probe_at <= now => {
                *probe_at = now + PROBE;
                true
            }
            _ => false,
        }
    }
}
