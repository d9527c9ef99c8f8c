use crate::id::PortId;

use super::Queue;
use super::tm::Packet;

/// One of the pipes of a switch: as in a switching chip with several, each has its own ports' queues and
/// its own tables, and a packet may enter by one and leave by another.
///
/// Pipes run on different workers. A paced port's queues are all in one pipe, or nobody could tell its
/// depth; a port without a rate has queues in every pipe, and nothing is handed over for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// Its number, below `count`.
    pub index: u8,
    /// Pipes of the switch.
    pub count: u8,
}

impl Pipe {
    /// The only pipe of a switch.
    pub const ONLY: Pipe = Pipe { index: 0, count: 1 };

    /// Whether the queues of a paced `port` are in this pipe.
    pub fn owns(self, port: PortId) -> bool {
        self.owner(port) == self.index
    }

    /// The pipe that has the queues of a paced `port`.
    pub fn owner(self, port: PortId) -> u8 {
        port.0 % self.count
    }
}

/// A packet on its way to the pipe that has its egress port's queues.
#[derive(Debug)]
pub struct Handed {
    /// Its egress port.
    pub to: PortId,
    pub(super) queue: Queue,
    pub(super) packet: Packet,
}
