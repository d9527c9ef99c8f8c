//! The slots of one direction of a port, one bit each, in a ring that moves with time.

/// Slots that a ring looks ahead.
pub(super) const WINDOW: u64 = 1024;

const BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / BITS) as usize;

/// Which of the slots from `from` on are taken, [`WINDOW`] of them. The bit of a slot is at its number modulo
/// that; bits of slots that have passed are cleared by [`Ring::advance`].
#[derive(Clone, Debug)]
pub(super) struct Ring {
    bits: [u64; WORDS],
    from: u64,
}

impl Ring {
    pub fn new() -> Ring {
        Ring { bits: [0; WORDS], from: 0 }
    }

    /// Forgets the slots before `slot`; a time that goes back changes nothing.
    pub fn advance(&mut self, slot: u64) {
        if slot.saturating_sub(self.from) >= WINDOW {
            self.bits = [0; WORDS];
        } else {
            self.set(self.from, slot, false);
        }
        self.from = self.from.max(slot);
    }

    /// Takes the slots `start..end`, or gives them back. What the ring does not cover is left out.
    pub fn set(&mut self, start: u64, end: u64, taken: bool) {
        let (mut at, end) = (start.max(self.from), end.min(self.from + WINDOW));
        while at < end {
            let (bit, count) = (at % BITS, (BITS - at % BITS).min(end - at));
            let mask = (u64::MAX >> (BITS - count)) << bit;
            let word = &mut self.bits[word(at)];
            *word = if taken { *word | mask } else { *word & !mask };
            at += count;
        }
    }

    /// The first of the earliest `k` slots in a row that are free in both rings, `slot` or later; `None` if
    /// there are none as far as both look ahead. Both were advanced to `slot`.
    pub fn run(&self, other: &Ring, slot: u64, k: u64) -> Option<u64> {
        let limit = self.from.min(other.from) + WINDOW;
        let mut start = slot.max(self.from).max(other.from);
        while start + k <= limit {
            let free = self.next(other, start, limit, false);
            let taken = self.next(other, free, limit, true);
            if taken - free >= k {
                return Some(free);
            }
            start = taken.max(free + 1);
        }
        None
    }

    /// The first slot of `at..limit` that is taken in one of the rings, or free in both; `limit` if none is.
    fn next(&self, other: &Ring, mut at: u64, limit: u64, taken: bool) -> u64 {
        while at < limit {
            let either = self.bits[word(at)] | other.bits[word(at)];
            let hits = (if taken { either } else { !either }) >> (at % BITS);
            if hits != 0 {
                return (at + u64::from(hits.trailing_zeros())).min(limit);
            }
            at += BITS - at % BITS;
        }
        limit
    }
}

#[inline]
fn word(slot: u64) -> usize {
    (slot / BITS) as usize % WORDS
}
