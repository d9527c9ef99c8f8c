//! Flowlets: bursts of a flow that are far enough apart to take different paths without overtaking each
//! other (Kandula et al., "Dynamic load balancing without packet reordering", CCR 37(2), 2007).

use crate::id::PortId;
use crate::pisa::table::Registers;
use crate::time::Instant;

/// One register array, a slot for each value of a flow hash's low bits: when a packet last came by, the
/// port its flowlet took, and how many flowlets there were.
///
/// Collisions: flows that fall on one slot share its state, as in P4TE, LetFlow and HULA; no slot
/// says whose it is. They then keep each other's flowlet alive and take one port.
///
/// Ageing is lazy. Times are whole nanoseconds in 64 bits, 584 years, so an old slot is never taken
/// for a fresh one. A time that goes back by no more than the timeout is a late reading and changes
/// nothing. Further back, the clock was set: the flowlet goes on and ages by the new time, so that no
/// slot freezes until the old time comes round.
#[derive(Clone, Debug)]
pub struct FlowletTable {
    slots: Registers<Slot>,
    timeout: u64,
}

/// Four to a cache line.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    last: Instant,
    number: u32,
    /// `None`: no flowlet is there, whatever `last` says.
    port: Option<PortId>,
}

const _: () = assert!(size_of::<Slot>() == 16);

impl Slot {
    #[inline]
    fn is_active(&self, now: Instant, timeout: u64) -> bool {
        self.port.is_some() && now.since(self.last) <= timeout
    }
}

/// The flowlet a packet belongs to.
#[derive(Debug)]
pub struct Flowlet<'a>(&'a mut Slot);

impl Flowlet<'_> {
    /// The port it takes; `None` if it has just begun, and must be given one by [`Flowlet::assign`]:
    /// without, the slot's next packet begins another.
    #[inline]
    pub fn port(&self) -> Option<PortId> {
        self.0.port
    }

    /// Its number among the flowlets of its slot, from 1; wraps after 2^32 - 1 to 0.
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// From now on it takes `port`.
    #[inline]
    pub fn assign(&mut self, port: PortId) {
        self.0.port = Some(port);
    }
}

impl FlowletTable {
    /// A table of at least `slots` slots (rounded up to a power of two, 16 bytes each). A flowlet ends
    /// when no packet has come for more than `timeout` nanoseconds.
    pub fn new(slots: usize, timeout: u64) -> Self {
        FlowletTable { slots: Registers::new(slots), timeout }
    }

    /// Asks for the slot of the flow with `hash`, ahead of [`FlowletTable::lookup`].
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.slots.prefetch(hash);
    }

    /// The flowlet of a packet of the flow with `hash` at `now`: a new one if more than the timeout has
    /// passed since the slot's last packet.
    #[inline]
    pub fn lookup(&mut self, now: Instant, hash: u64) -> Flowlet<'_> {
        let slot = self.slots.at_mut(hash);
        if !slot.is_active(now, self.timeout) {
            slot.number = slot.number.wrapping_add(1);
            slot.port = None;
        }
        if slot.last.since(now) > self.timeout {
            slot.last = now;
        }
        slot.last = slot.last.max(now);
        Flowlet(slot)
    }

    /// Nanoseconds without a packet after which a flowlet still goes on.
    pub fn timeout(&self) -> u64 {
        self.timeout
    }

    /// Changes the timeout; it holds for the gap that each slot is in.
    pub fn set_timeout(&mut self, timeout: u64) {
        self.timeout = timeout;
    }

    /// Number of slots, a power of two.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Slots whose flowlet would go on at `now`. Reads the whole table: for showing.
    pub fn occupancy(&self, now: Instant) -> usize {
        self.slots.cells().iter().filter(|slot| slot.is_active(now, self.timeout)).count()
    }
}
