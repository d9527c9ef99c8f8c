//! The path allocation table: which port a flow was given, and how (CAFT, arXiv 2010.00720; Expeditus, SoCC
//! 2016).

use crate::id::{PortId, PortMask};
use crate::pisa::epochs::Epochs;
use crate::pisa::table::Registers;
use crate::time::Instant;

/// Who chose a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The flow's hash.
    Ecmp,
    /// What a request on its way to the destination found.
    Request,
    /// What a response on its way back found.
    Response,
}

impl Origin {
    /// The origin's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Ecmp => "ecmp",
            Origin::Request => "request",
            Origin::Response => "response",
        }
    }
}

/// What the table keeps of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The port the flow takes.
    pub port: PortId,
    /// Whether it does; if not, the path is still being looked for, or was found broken.
    pub valid: bool,
    /// Who chose it.
    pub origin: Origin,
}

/// What the table has of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The flow's live entry.
    Own(Path),
    /// Nothing: the slot is to be had.
    Free,
    /// Nothing, and another flow's live entry holds the slot.
    Taken,
}

/// What a packet is to do: go on, or look for a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the flow's port.
    Kept(PortId),
    /// There is none, or it can't be used: one may be looked for.
    Wanted,
    /// There is none, and none can be kept ([`Lookup::Taken`]).
    Untracked,
}

/// A live entry, for showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its slot.
    pub slot: usize,
    /// The flow's fingerprint.
    pub flow: u32,
    /// What the table keeps.
    pub path: Path,
    /// Its age in nanoseconds, as a tick tells it: 0 in that of the last packet, the timeout in the next.
    pub age: u64,
}

/// Eight to a cache line.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    fingerprint: u32,
    /// Tick of the last packet.
    last: u16,
    port: u8,
    /// [`USED`], [`VALID`], [`ANSWERED`] and an origin; 0 if the slot was never used.
    flags: u8,
}

const _: () = assert!(size_of::<Slot>() == 8);

const USED: u8 = 1;
const VALID: u8 = 1 << 1;
const ANSWERED: u8 = 1 << 2;
const ORIGIN: u32 = 3;

impl Slot {
    fn new(fingerprint: u32, last: u16, path: Path) -> Self {
        let Path { port: PortId(port), valid, origin } = path;
        let flags = USED | if valid { VALID } else { 0 } | (origin as u8) << ORIGIN;
        Slot { fingerprint, last, port, flags }
    }

    #[inline]
    fn path(&self) -> Path {
        let origin = match self.flags >> ORIGIN {
            0 => Origin::Ecmp,
            1 => Origin::Request,
            _ => Origin::Response,
        };
        Path { port: PortId(self.port), valid: self.flags & VALID != 0, origin }
    }

    fn is_of(&self, hash: u64) -> bool {
        self.flags & USED != 0 && self.fingerprint == fingerprint(hash)
    }

    #[inline]
    fn is_live(&self, tick: u16) -> bool {
        self.flags & USED != 0 && tick.wrapping_sub(self.last) < LIFE
    }

    #[inline]
    fn lookup(&self, tick: u16, hash: u64) -> Lookup {
        match () {
            () if !self.is_live(tick) => Lookup::Free,
            () if self.fingerprint == fingerprint(hash) => Lookup::Own(self.path()),
            () => Lookup::Taken,
        }
    }
}

/// Ticks that an entry lives, its last packet's included.
const LIFE: u16 = 2;

#[inline]
fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The paths of flows, a direct-mapped table of fixed size: a slot for each value of a flow hash's low bits,
/// which says by the hash's high 32 bits whose it is.
///
/// Collisions: a live entry keeps its slot, and a flow that falls on it ([`Lookup::Taken`]) gets none until
/// it has died; it must do without, by ECMP. The table never grows, and nothing live is ever
/// displaced. Flows that agree in both parts of the hash are one to it and share a path: with 65,536
/// slots two flows do so once in 2^48.
///
/// Ageing: time is counted in ticks of the timeout T, and an entry lives through the tick of its last packet
/// and the next one. It thus dies between T (not included) and 2T after that packet, at the same
/// instant as by the age bits of CONGA (SIGCOMM 2014), which a timer every T sets, and
/// finds set; but without timer and sweep.
///
/// A slot has 16 bits for the tick. An entry that has been dead for long, and in whose slot no other flow came,
/// therefore looks live again for two ticks in every 65,536: with a T of 100 ms for 200 ms each 109
/// minutes. Its own flow would find the old path then, as if it had paused for less; another flow
/// would go by ECMP until it may have the slot.
///
/// A time that goes back belongs to the tick that was reached.
#[derive(Clone, Debug)]
pub struct PathTable {
    slots: Registers<Slot>,
    epochs: Epochs,
    tick: u16,
}

impl PathTable {
    /// An empty table of `slots` slots (rounded up to a power of two, 8 bytes each) with a timeout of
    /// `timeout` nanoseconds (0 counts as 1).
    pub fn new(slots: usize, timeout: u64) -> Self {
        PathTable { slots: Registers::new(slots), epochs: Epochs::new(timeout), tick: 0 }
    }

    #[inline]
    fn advance(&mut self, now: Instant) -> u16 {
        self.tick = self.tick.wrapping_add(self.epochs.advance(now) as u16);
        self.tick
    }

    #[inline]
    fn tick(&self, now: Instant) -> u16 {
        self.tick.wrapping_add(self.epochs.ahead(now) as u16)
    }

    /// Asks for the slot of the flow with `hash`, ahead of [`PathTable::lookup`].
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.slots.prefetch(hash);
    }

    /// What the table has of the flow with `hash`, of which a packet came at `now`: its entry lives on, valid
    /// or not.
    #[inline]
    pub fn lookup(&mut self, now: Instant, hash: u64) -> Lookup {
        let tick = self.advance(now);
        let slot = self.slots.at_mut(hash);
        let found = slot.lookup(tick, hash);
        if let Lookup::Own(_) = found {
            slot.last = tick;
        }
        found
    }

    /// The way of the flow with `hash`, of which a packet came at `now`, if it leads by one of `usable`.
    #[inline]
    pub fn way(&mut self, now: Instant, hash: u64, usable: PortMask) -> Way {
        match self.lookup(now, hash) {
            Lookup::Own(path) if path.valid && usable.contains(path.port) => Way::Kept(path.port),
            Lookup::Own(_) | Lookup::Free => Way::Wanted,
            Lookup::Taken => Way::Untracked,
        }
    }

    /// The port of the flow with `hash`, of which a packet came at `now`, if it has a valid path by one of `usable`. A
    /// path by any other port is no longer valid.
    #[inline]
    pub fn follow(&mut self, now: Instant, hash: u64, usable: PortMask) -> Option<PortId> {
        let Lookup::Own(path) = self.lookup(now, hash) else { return None };
        if path.valid && !usable.contains(path.port) {
            self.invalidate(now, hash);
        }
        (path.valid && usable.contains(path.port)).then_some(path.port)
    }

    /// [`PathTable::lookup`] that does not let the entry live on.
    #[inline]
    pub fn peek(&self, now: Instant, hash: u64) -> Lookup {
        self.slots.at(hash).lookup(self.tick(now), hash)
    }

    /// The flow with `hash` was answered by the path that it has, if it has an entry: until the next
    /// [`PathTable::insert`] it is not [`PathTable::unanswered`].
    pub fn answer(&mut self, hash: u64) {
        let slot = self.slots.at_mut(hash);
        if slot.is_of(hash) {
            slot.flags |= ANSWERED;
        }
    }

    /// The port that the flow with `hash` was given last, if it never was answered; its entry may have died, but no
    /// other flow has come into its slot since.
    pub fn unanswered(&self, hash: u64) -> Option<PortId> {
        let slot = self.slots.at(hash);
        (slot.is_of(hash) && slot.flags & ANSWERED == 0).then_some(PortId(slot.port))
    }

    /// Gives the flow with `hash` a path from `now` on, in place of its own or of a dead entry. False, and
    /// nothing is changed, if the slot is [`Lookup::Taken`].
    #[inline]
    pub fn insert(&mut self, now: Instant, hash: u64, path: Path) -> bool {
        let tick = self.advance(now);
        let slot = self.slots.at_mut(hash);
        let free = slot.lookup(tick, hash) != Lookup::Taken;
        if free {
            *slot = Slot::new(fingerprint(hash), tick, path);
        }
        free
    }

    /// The path of the flow with `hash`, if it has an entry, is no longer valid. The entry does not live
    /// longer by that.
    #[inline]
    pub fn invalidate(&mut self, now: Instant, hash: u64) {
        let tick = self.advance(now);
        let slot = self.slots.at_mut(hash);
        if let Lookup::Own(_) = slot.lookup(tick, hash) {
            slot.flags &= !VALID;
        }
    }

    /// The live entries at `now`, by slot. Reads the whole table: for showing.
    pub fn entries(&self, now: Instant) -> impl Iterator<Item = Entry> {
        let (tick, timeout) = (self.tick(now), self.timeout());
        let live = self.slots.cells().iter().enumerate().filter(move |(_, slot)| slot.is_live(tick));
        live.map(move |(i, slot)| Entry {
            slot: i,
            flow: slot.fingerprint,
            path: slot.path(),
            age: u64::from(tick.wrapping_sub(slot.last)) * timeout,
        })
    }

    /// How many entries live at `now`. Reads the whole table: for showing.
    pub fn occupancy(&self, now: Instant) -> usize {
        let tick = self.tick(now);
        self.slots.cells().iter().filter(|slot| slot.is_live(tick)).count()
    }

    /// Number of slots, a power of two.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// T, in nanoseconds: the least time without a packet that an entry outlives.
    pub fn timeout(&self) -> u64 {
        self.epochs.period()
    }
}
