use crate::time::Instant;

/// What has become of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Asked for, not answered.
    Asked {
        /// When to ask again.
        again: Instant,
        /// How often it was asked again.
        retries: u8,
        /// Most slots of this host that the switch may have had reserved when the request came, its own left out.
        ahead: u32,
    },
    /// Granted, not used.
    Granted {
        /// When to send.
        due: Instant,
        slot_ns: u32,
        /// When the switch granted it, by the switch's time.
        t_sw: u64,
        /// Slots go by the switch's clock: what is late is in others' slots.
        clocked: bool,
    },
    /// Used.
    Leaving {
        /// Its frames have all left by then.
        until: Instant,
        /// Slots that were granted and not needed.
        unused: u16,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation {
    pub seq: u32,
    /// Slots that were asked for, then those that were granted.
    pub k: u16,
    pub state: State,
}

impl Reservation {
    #[inline]
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving { .. })
    }

    #[inline]
    pub fn is_granted(&self) -> bool {
        matches!(self.state, State::Granted { .. })
    }
}

/// Which of a connection's last 64 reservations were used: bit i stands for the number i before the newest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    /// The newest number that was given out; 0 if none was.
    newest: u32,
    used: u64,
}

impl History {
    /// The next number. 0 is none, and left out.
    #[inline]
    pub fn next(&mut self) -> u32 {
        self.used <<= 1;
        self.newest = self.newest.wrapping_add(1);
        if self.newest == 0 {
            self.next();
        }
        self.newest
    }

    /// A number is used.
    #[inline]
    pub fn mark(&mut self, seq: u32) {
        if let Some(bit) = self.bit(seq) {
            self.used |= bit;
        }
    }

    /// Whether a number was given out lately, and never used.
    #[inline]
    pub fn was_given_up(&self, seq: u32) -> bool {
        self.bit(seq).is_some_and(|bit| self.used & bit == 0)
    }

    #[inline]
    fn bit(&self, seq: u32) -> Option<u64> {
        let age = self.newest.wrapping_sub(seq);
        (seq != 0 && age < u64::BITS && age < self.newest).then(|| 1 << age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_known_for_64_numbers() {
        let mut history = History::default();
        assert!(!history.was_given_up(0) && !history.was_given_up(1), "none was given out");
        assert_eq!([history.next(), history.next(), history.next()], [1, 2, 3]);
        history.mark(2);
        assert!(history.was_given_up(1) && !history.was_given_up(2) && history.was_given_up(3));
        assert!(!history.was_given_up(4), "not given out yet");
        (0..61).for_each(|_| _ = history.next());
        assert!(history.was_given_up(1), "64 numbers back");
        history.next();
        assert!(!history.was_given_up(1) && !history.was_given_up(2) && history.was_given_up(3));
    }
}
