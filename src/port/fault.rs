//! A port with faults: it loses, doubles, reorders, damages and delays what another port receives.
//!
//! Only what is received suffers; what is sent passes untouched. One direction is enough, for each end of
//! a link can have its own faults. All that is drawn comes from one seeded generator, so that the same
//! frames at the same times meet the same fate. Time is told ([`FaultPort::at`]), never read.
//!
//! A frame's way, in this order: it may be lost; may get a copy right behind it; may have a bit flipped;
//! joins the delay line; and at its end may be set aside until others have passed. The line keeps the
//! order, so that only `reorder` ever changes it.
//!
//! Frames in the line are chunks of the pool, `rate x delay` of them. At most half of the pool is held, and
//! what comes beyond is lost and counted ([`FaultCounts::overflowed`]).

use std::collections::VecDeque;
use std::io;

use serde::{Deserialize, Serialize};

use super::{DeviceStats, Port};
use crate::fault::Faults;
use crate::frame::{Burst, Frame, Pool};
use crate::rng::Rng;
use crate::time::{Instant, earliest};

/// Frames set aside at the same time; a further one passes in its order.
const MAX_ASIDE: usize = 64;

/// What became of the frames that the wire brought. Whenever no call is under way,
/// `received + duplicated = passed + lost + held` ([`FaultCounts::balances`]).
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCounts {
    /// Frames that the port beneath received.
    pub received: u64,
    /// Copies made of them.
    pub duplicated: u64,
    /// Frames passed on to the switch.
    pub passed: u64,
    /// Frames lost: by chance, by [`FaultPort::flush`], or because too many were held.
    pub lost: u64,
    /// Those of them that were lost because half of the pool was held already.
    pub overflowed: u64,
    /// Frames passed on behind at least one that came later.
    pub reordered: u64,
    /// Frames with one bit flipped.
    pub corrupted: u64,
    /// Frames delayed or set aside now.
    pub held: u64,
}

impl FaultCounts {
    /// Whether every frame is accounted for.
    pub fn balances(&self) -> bool {
        self.received + self.duplicated == self.passed + self.lost + self.held
    }
}

impl FaultCounts {
    /// Adds what an earlier port counted.
    pub fn add(&mut self, earlier: &FaultCounts) {
        self.received += earlier.received;
        self.duplicated += earlier.duplicated;
        self.passed += earlier.passed;
        self.lost += earlier.lost;
        self.overflowed += earlier.overflowed;
        self.reordered += earlier.reordered;
        self.corrupted += earlier.corrupted;
        self.held += earlier.held;
    }
}

/// A frame on the delay line.
#[derive(Debug)]
struct Late {
    frame: Frame,
    due: Instant,
    /// How many later frames it falls behind; 0 for most.
    behind: u32,
}

/// A frame that waits for later ones to pass.
#[derive(Debug)]
struct Aside {
    frame: Frame,
    /// How many are still to pass.
    behind: u32,
    until: Instant,
    overtaken: bool,
}

/// Where frames are on their way. `line` is sorted by `due`.
#[derive(Debug)]
struct Path {
    faults: Faults,
    rng: Rng,
    now: Instant,
    line: VecDeque<Late>,
    aside: Vec<Aside>,
    /// When the newest frame of the line is due, or was.
    last_due: Instant,
    counts: FaultCounts,
}

impl Path {
    fn held(&self) -> usize {
        self.line.len() + self.aside.len()
    }

    /// Puts a frame that has just arrived on its way.
    fn arrive(&mut self, pool: &mut Pool, mut frame: Frame) {
        let Faults { loss, duplicate, reorder, reorder_by, corrupt, .. } = self.faults;
        // Each is asked of every frame, so that one probability does not change what another one meets.
        let rng = &mut self.rng;
        let [lost, doubled, damaged, displaced] = [loss, duplicate, corrupt, reorder].map(|p| rng.chance(p));
        let (free, all) = pool.share(&frame);
        let full = self.held() >= pool.chunks() / 2 || (frame.is_large() && free < all / 2);
        if lost || full {
            self.counts.lost += 1;
            self.counts.overflowed += u64::from(!lost);
            return pool.free(frame);
        }
        let copy = if doubled { pool.alloc_with(&frame) } else { None };
        if damaged && !frame.is_empty() {
            let bit = self.rng.below(frame.len() as u64 * 8);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        let behind = if displaced { 1 + self.rng.below(reorder_by.into()) as u32 } else { 0 };
        self.join(frame, behind);
        if let Some(copy) = copy {
            self.counts.duplicated += 1;
            self.join(copy, 0);
        }
    }

    fn join(&mut self, frame: Frame, behind: u32) {
        let Faults { delay, jitter, .. } = self.faults;
        let late = if jitter == 0 { delay } else { delay.saturating_add(self.rng.below(jitter.saturating_add(1))) };
        self.last_due = self.last_due.max(self.now + late);
        self.line.push_back(Late { frame, due: self.last_due, behind });
    }

    /// The frame set aside that is to leave next, and when: at once if all have passed that it fell behind.
    fn next_aside(&self) -> Option<(usize, Instant)> {
        let time = |aside: &Aside| if aside.behind == 0 { Instant::ZERO } else { aside.until };
        self.aside.iter().map(time).enumerate().min_by_key(|(i, time)| (*time, *i))
    }

    /// Moves what is due into `burst`, no more than fits.
    fn depart(&mut self, burst: &mut Burst) {
        while burst.room() > 0 {
            let first = self.line.front().map(|late| late.due);
            match self.next_aside() {
                Some((i, time)) if time <= self.now && first.is_none_or(|due| time <= due) => {
                    let Aside { frame, overtaken, .. } = self.aside.remove(i);
                    self.counts.reordered += u64::from(overtaken);
                    self.counts.passed += 1;
                    burst.push(frame);
                    continue;
                }
                _ => {}
            }
            if first.is_none_or(|due| due > self.now) {
                break;
            }
            let Some(Late { frame, due, behind }) = self.line.pop_front() else { break };
            if behind > 0 && self.aside.len() < MAX_ASIDE {
                let until = due + self.faults.reorder_within;
                self.aside.push(Aside { frame, behind, until, overtaken: false });
                continue;
            }
            for aside in &mut self.aside {
                aside.behind -= 1;
                aside.overtaken = true;
            }
            self.counts.passed += 1;
            burst.push(frame);
        }
    }
}

/// A port that has [`Faults`] in front of another one's receiving side.
#[derive(Debug)]
pub struct FaultPort<P> {
    inner: P,
    path: Path,
    /// What `inner` has just received; between calls, only after a panic that was asked for.
    arrivals: Burst,
    /// Frames received since the faults were set.
    since_set: u64,
    /// No faults and nothing held: frames need not go by the path.
    clear: bool,
}

impl<P: Port> FaultPort<P> {
    /// `faults` in front of `inner`.
    pub fn new(inner: P, faults: Faults) -> Self {
        let path = Path {
            rng: Rng::new(faults.seed),
            faults,
            now: Instant::ZERO,
            line: VecDeque::new(),
            aside: Vec::new(),
            last_due: Instant::ZERO,
            counts: FaultCounts::default(),
        };
        FaultPort { inner, clear: faults.is_none(), path, arrivals: Burst::new(), since_set: 0 }
    }

    /// Tells the time; an earlier one than before changes nothing.
    #[inline]
    pub fn at(&mut self, now: Instant) {
        self.path.now = self.path.now.max(now);
    }

    /// Whether frames pass as they are, at once: then no time needs to be told.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.clear
    }

    /// When a held frame is due, by what is known now; in the past if it found no room.
    pub fn next_deadline(&self) -> Option<Instant> {
        earliest(self.path.line.front().map(|late| late.due), self.path.next_aside().map(|(_, time)| time))
    }

    /// Replaces the faults and starts their generator anew. What is on its way keeps its time, and what
    /// comes later stays behind it.
    pub fn set(&mut self, faults: Faults) {
        self.path.rng = Rng::new(faults.seed);
        self.path.faults = faults;
        self.since_set = 0;
        self.clear = faults.is_none() && self.held_back() == 0;
    }

    /// The faults now in force.
    pub fn spec(&self) -> &Faults {
        &self.path.faults
    }

    /// What became of the frames so far.
    pub fn faults(&self) -> FaultCounts {
        FaultCounts { held: self.held_back() as u64, ..self.path.counts }
    }

    fn held_back(&self) -> usize {
        self.path.held() + self.arrivals.len()
    }

    /// Gives back every frame on its way; they count as lost.
    pub fn flush(&mut self, pool: &mut Pool) {
        self.path.counts.lost += self.held_back() as u64;
        let line = self.path.line.drain(..).map(|late| late.frame);
        let aside = self.path.aside.drain(..).map(|aside| aside.frame);
        line.chain(aside).chain(self.arrivals.drain()).for_each(|frame| pool.free(frame));
        self.clear = self.path.faults.is_none();
    }

    /// The port beneath, every frame on its way given back.
    pub fn close(mut self, pool: &mut Pool) -> P {
        self.flush(pool);
        self.inner
    }

    /// The port beneath.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The port beneath.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

impl<P: Port> Port for FaultPort<P> {
    /// # Panics
    /// When [`Faults::panic`] frames have arrived. The frames in hand are then still held.
    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) {
        if self.clear {
            let before = burst.len();
            self.inner.rx_burst(pool, burst);
            let received = (burst.len() - before) as u64;
            self.path.counts.received += received;
            self.path.counts.passed += received;
            return;
        }
        self.path.depart(burst);
        // A caller that takes less than comes in (copies!) gets what is due first: nothing piles up here.
        if burst.room() > 0 {
            let waiting = self.arrivals.len();
            self.inner.rx_burst(pool, &mut self.arrivals);
            let received = (self.arrivals.len() - waiting) as u64;
            self.path.counts.received += received;
            let before = self.since_set;
            self.since_set += received;
            if let Some(n) = self.path.faults.panic.filter(|n| (before + 1..=self.since_set).contains(n)) {
                panic!("a fault that was asked for: panic={n}, and frame {n} has arrived");
            }
            for frame in self.arrivals.drain() {
                self.path.arrive(pool, frame);
            }
            self.path.depart(burst);
        }
        self.clear = self.path.held() == 0 && self.path.faults.is_none();
    }

    fn tx_room(&mut self, pool: &mut Pool) -> usize {
        self.inner.tx_room(pool)
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) {
        self.inner.tx_burst(pool, burst);
    }

    fn kick(&mut self) -> io::Result<()> {
        self.inner.kick()
    }

    fn tx_pending(&mut self) -> usize {
        self.inner.tx_pending()
    }

    /// Those of the port beneath and those held back here.
    fn held(&self) -> usize {
        self.inner.held() + self.held_back()
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}
