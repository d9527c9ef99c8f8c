//! How time enters: three readings of "the earliest available slot".

use super::ahead::{Ahead, HORIZON};
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
    /// What is not used passes by itself, or is free again if it is the last that was reserved.
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
    /// First slots of the window by the clock, on the input and on the output; 0 where slots are counted.
    pub start: (u64, u64),
}

impl Offer {
    /// The ends of `k` slots from there, on the input and on the output.
    #[inline]
    pub fn ends(&self, k: u16) -> (u64, u64) {
        (self.start.0 + u64::from(k), self.start.1 + u64::from(k))
    }
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
    Clock(Both<u64>, Box<[Ahead]>),
    Window(Both<Ring>, Box<[Ahead]>),
}

impl Schedule {
    pub fn new(mode: SlotMode) -> Schedule {
        let ahead = || vec![Ahead::new(); MAX_PORTS].into_boxed_slice();
        match mode {
            SlotMode::Counter => Schedule::Counter,
            SlotMode::Clock => Schedule::Clock(Both::new(0), ahead()),
            SlotMode::Window => Schedule::Window(Both::new(Ring::new()), ahead()),
        }
    }

    /// Takes the earliest `k` slots on `way` in the slot `now`, where `counts` are reserved on its input and
    /// output. `None` if a window has no room, the clock would be too far ahead, or senders at the input would have
    /// more than `most`.
    #[inline]
    pub fn take(&mut self, now: u64, way: Way, counts: (u32, u32), k: u16, most: u32) -> Option<Offer> {
        let (is_too_much, k) = (|has: u32| has + u32::from(k) > most, u64::from(k));
        if is_too_much(counts.0) {
            return None;
        }
        match self {
            Schedule::Counter => Some(Offer { t_in: counts.0, t_out: counts.1, start: (0, 0) }),
            Schedule::Clock(free, ahead) => {
                let (input, output) = free.at(way);
                let start = (now.max(*input), now.max(*output));
                let ahead = &mut ahead[way.input.index()];
                if start.0.max(start.1) + k > now + HORIZON || is_too_much(ahead.at(now)) {
                    return None;
                }
                (*input, *output) = (start.0 + k, start.1 + k);
                ahead.add(start.1, start.1 + k);
                // Less than the horizon.
                let (t_in, t_out) = ((start.0 - now) as u32, (start.1 - now) as u32);
                Some(Offer { t_in, t_out, start })
            }
            Schedule::Window(rings, ahead) => {
                let (input, output) = rings.at(way);
                input.advance(now);
                output.advance(now);
                let ahead = &mut ahead[way.input.index()];
                if is_too_much(ahead.at(now)) {
                    return None;
                }
                let start = input.run(output, now, k)?;
                input.set(start, start + k, true);
                output.set(start, start + k, true);
                ahead.add(start, start + k);
                // At most twice the window ahead, if the time has gone back.
                let t = (start - now).min(2 * WINDOW) as u32;
                Some(Offer { t_in: t, t_out: t, start: (start, start) })
            }
        }
    }

    /// Gives the last `slots` before `ends` back, on the input and on the output. By the clock they are free if
    /// nothing was reserved behind them, and else pass unused; counts are the book's.
    #[inline]
    pub fn give_back(&mut self, way: Way, ends: (u64, u64), slots: u64) {
        let (end_in, end_out) = ends;
        match self {
            Schedule::Counter => {}
            Schedule::Clock(free, ahead) => {
                let (input, output) = free.at(way);
                if *input == end_in {
                    *input -= slots;
                }
                if *output == end_out {
                    *output -= slots;
                    ahead[way.input.index()].remove(end_out - slots, end_out);
                }
            }
            Schedule::Window(rings, ahead) => {
                let (input, output) = rings.at(way);
                input.set(end_in - slots, end_in, false);
                output.set(end_out - slots, end_out, false);
                ahead[way.input.index()].remove(end_out - slots, end_out);
            }
        }
    }

    /// Nothing is reserved on the input of `port` any more.
    pub fn clear_input(&mut self, port: PortId) {
        if let Schedule::Clock(free, _) = self {
            free.input[port.index()] = 0;
        }
    }
}
