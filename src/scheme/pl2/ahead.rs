//! How far one sender's reservations reach into the time that others could have.

/// Slots that are counted together: they count until the last of them has passed.
const SPAN: u64 = 16;
const SPANS: usize = 256;

/// Slots from now that a reservation by the clock may reach: 50 ms at 1 Gbit/s.
pub(super) const HORIZON: u64 = SPAN * (SPANS as u64 - 1);

/// The slots of outputs that senders at one port have taken and that have not passed, whether they are still
/// reserved, were used early, or were given back when others had been put behind them.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    /// By span modulo [`SPANS`], of the spans from `from` on.
    slots: [u16; SPANS],
    from: u64,
    total: u32,
}

impl Ahead {
    pub fn new() -> Ahead {
        Ahead { slots: [0; SPANS], from: 0, total: 0 }
    }

    /// Forgets what has passed by the slot `now`, and gives what is left.
    pub fn at(&mut self, now: u64) -> u32 {
        let now = now / SPAN;
        if now.saturating_sub(self.from) >= SPANS as u64 {
            (self.slots, self.from, self.total) = ([0; SPANS], now, 0);
        }
        while self.from < now {
            self.total -= u32::from(std::mem::take(&mut self.slots[self.from as usize % SPANS]));
            self.from += 1;
        }
        self.total
    }

    /// Counts the slots `start..end`, no more than [`HORIZON`] from the latest time that was told.
    pub fn add(&mut self, start: u64, end: u64) {
        self.each(start, end, |slots, total, n| {
            *slots += n;
            *total += u32::from(n);
        });
    }

    /// They are free again. Those that have passed are not counted any more.
    pub fn remove(&mut self, start: u64, end: u64) {
        self.each(start, end, |slots, total, n| {
            *slots -= n;
            *total -= u32::from(n);
        });
    }

    fn each(&mut self, start: u64, end: u64, change: impl Fn(&mut u16, &mut u32, u16)) {
        let mut at = start.max(self.from * SPAN);
        while at < end {
            let n = (SPAN - at % SPAN).min(end - at);
            change(&mut self.slots[(at / SPAN) as usize % SPANS], &mut self.total, n as u16);
            at += n;
        }
    }
}
