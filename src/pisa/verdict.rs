use crate::counters::DropReason;
use crate::id::{PortId, PortMask};

/// A port's queues, served in strict priority: the first in the list first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Queue {
    /// What the fabric needs to work: ARP, ND, hellos, a scheme's messages.
    Control = 0,
    /// Everything else.
    Data = 1,
}

impl Queue {
    /// Every queue, highest priority first.
    pub const ALL: [Queue; 2] = [Queue::Control, Queue::Data];

    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Queue::Control => "control",
            Queue::Data => "data",
        }
    }
}

/// What ingress decides about a frame. The list is closed: each variant is counted in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// To a queue of an egress port.
    Forward(PortId, Queue),
    /// A copy to the data queue of each port of the set.
    Flood(PortMask),
    /// Ends here, for this reason.
    Drop(DropReason),
    /// Ends here on purpose: the switch itself was the addressee.
    Consume,
    /// The program keeps it ([`super::Ingress::hold`] is called next) and gives it back later
    /// through the [`super::Outbox`].
    Hold,
    /// To the control plane's punt queue.
    Punt,
    /// Through ingress once more.
    Recirculate,
}

/// What egress decides about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EgressVerdict {
    /// Out of the port.
    Send,
    /// Ends here, for this reason.
    Drop(DropReason),
}
