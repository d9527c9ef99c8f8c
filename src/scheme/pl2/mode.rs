//! How time enters: three readings of "the earliest available slot".

use super::window::{Ring, WINDOW};
use crate::id::{MAX_PORTS, PortId};
use crate::wire::pl2::Flags;

/// What a slot's number is counted from. In all modes a grant says relative numbers, slots from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotMode {
    /// From the slots that are reserved and not used yet: a port's register goes up by k with a grant and down
    /// with each slot's last frame. The reading of PL2's text: the switch needs no clock, a port at rest is at 0
    /// by itself, and what a dead sender holds has to be taken back.
    #[default]
    Counter,
    /// From a clock: a port's register is the slot from which on it is free, and a grant starts there or now.
    /// What is not used passes by itself.
    Clock,
    /// From a clock, with each slot of the next 1,024 kept by itself: the first k in a row that are free on the
    /// input and on the output are taken on both, so that grants of one port never meet and gaps are filled. What
    /// hardware could not do (PL2, section 4.1.1); Fastpass (SIGCOMM 2014) does so in a server.
    Window,
}

impl SlotMode {
    /// The mode's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            SlotMode::Counter => "counter",
            SlotMode::Clock => "clock",
            SlotMode::Window => "window",
        }
    }

    /// The flags of a grant in this mode.
    #[inline]
    pub fn flags(self) -> Flags {
        Flags { clock: self == SlotMode::Clock, window: self == SlotMode::Window, ..Flags::default() }
    }
}

/// The ports a burst comes in and goes out by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    pub input: PortId,
    pub output: PortId,
}

/// What is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// Slots from now until the input and the output are free.
    pub t_in: u32,
    pub t_out: u32,
    /// First slot of the window by the clock; 0 in other modes.
    pub start: u64,
}

/// One direction of all ports, and the other.
#[derive(Clone, Debug)]
pub(super) struct Both<T> {
    input: Box<[T]>,
    output: Box<[T]>,
}

impl<T: Clone> Both<T> {
    fn new(value: T) -> Self {
        let ports = vec![value; MAX_PORTS].into_boxed_slice();
        Both { input: ports.clone(), output: ports }
    }

    #[inline]
    fn at(&mut self, way: Way) -> (&mut T, &mut T) {
        (&mut self.input[way.input.index()], &mut self.output[way.output.index()])
    }
}

/// The state of a mode, beside the counts of reserved slots that the book keeps in all of them.
#[derive(Clone, Debug)]
pub(super) enum Schedule {
    Counter,
    /// The slot from which on each direction of each port is free.
    Clock(Both<u64>),
    Window(Both<Ring>),
}

impl Schedule {
    pub fn new(mode: SlotMode) -> Schedule {
        match mode {
            SlotMode::Counter => Schedule::Counter,
            SlotMode::Clock => Schedule::Clock(Both::new(0)),
            SlotMode::Window => Schedule::Window(Both::new(Ring::new())),
        }
    }

    /// Takes the earliest `k` slots on `way` in the slot `now`, where `counts` are reserved on its input and
    /// output. `None` if a window has no room.
    #[inline]
    pub fn take(&mut self, now: u64, way: Way, counts: (u32, u32), k: u16) -> Option<Offer> {
        let k = u64::from(k);
        match self {
            Schedule::Counter => Some(Offer { t_in: counts.0, t_out: counts.1, start: 0 }),
            Schedule::Clock(free) => {
                let (input, output) = free.at(way);
                let (t_in, t_out) = (advance(input, now, k), advance(output, now, k));
                Some(Offer { t_in, t_out, start: 0 })
            }
            Schedule::Window(rings) => {
                let (input, output) = rings.at(way);
                input.advance(now);
                output.advance(now);
                let start = input.run(output, now, k)?;
                input.set(start, start + k, true);
                output.set(start, start + k, true);
                // At most twice the window ahead, if the time has gone back.
                let t = (start - now).min(2 * WINDOW) as u32;
                Some(Offer { t_in: t, t_out: t, start })
            }
        }
    }

    /// Gives the slots `start..end` of a window back. By the clock they pass unused; counts are the book's.
    #[inline]
    pub fn give_back(&mut self, way: Way, start: u64, end: u64) {
        if let Schedule::Window(rings) = self {
            let (input, output) = rings.at(way);
            input.set(start, end, false);
            output.set(start, end, false);
        }
    }

    /// Nothing is reserved on the input of `port` any more.
    pub fn clear_input(&mut self, port: PortId) {
        if let Schedule::Clock(free) = self {
            free.input[port.index()] = 0;
        }
    }
}

/// Reserves `k` slots behind those of a register, and gives how many slots after `now` they start.
#[inline]
fn advance(free_from: &mut u64, now: u64, k: u64) -> u32 {
    let start = now.max(*free_from);
    *free_from = start + k;
    u32::try_from(start - now).unwrap_or(u32::MAX)
}
