use std::collections::VecDeque;

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::PortId;

use super::{Meta, Queue};

/// What shall become of a frame that a program puts into the [`Outbox`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// To a queue of an egress port.
    Forward(PortId, Queue),
    /// Through ingress, as if it had just come in by `meta.ingress_port`, but with `meta.own` set if
    /// it was generated: a packet of the switch's own that must find its way.
    Recirculate,
    /// Ends, for this reason (a held frame that nobody will take).
    Drop(DropReason),
}

/// Whether the frame is new to the switch or was held by the program before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Generated,
    Released,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub frame: Frame,
    pub meta: Meta,
    pub origin: Origin,
    pub action: Action,
}

/// Frames that leave a program beside the one it was given: replies it made, and frames it held and
/// now gives back. Bounded: [`Outbox::has_room`] must be asked before a reply is made.
#[derive(Debug)]
pub struct Outbox {
    entries: VecDeque<Entry>,
}

/// Generated frames an outbox takes between two drains; it is drained after each frame of a burst.
const GENERATED: usize = 64;
/// Room beyond that for released frames, of which a program may have many at once; past it the
/// outbox grows, which only a flood of resolved neighbours can cause.
const RELEASED: usize = 256;

impl Outbox {
    pub(super) fn new() -> Self {
        Outbox { entries: VecDeque::with_capacity(GENERATED + RELEASED) }
    }

    /// Whether one more generated frame fits.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.entries.len() < GENERATED
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A frame that the switch made on behalf of `meta.ingress_port`: from now on `meta.own`.
    pub fn generate(&mut self, frame: Frame, mut meta: Meta, action: Action) {
        meta.own = true;
        self.entries.push_back(Entry { frame, meta, origin: Origin::Generated, action });
    }

    /// A frame given to [`super::Ingress::hold`] earlier, with its metadata.
    pub fn release(&mut self, frame: Frame, meta: Meta, action: Action) {
        self.entries.push_back(Entry { frame, meta, origin: Origin::Released, action });
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }
}
