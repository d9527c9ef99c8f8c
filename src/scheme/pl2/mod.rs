//! PL2: hosts reserve slots at the switch before they send, so that its queues stay short and nothing is dropped
//! ("PL2: Towards Predictable Low Latency in Rack-Scale Networks", arXiv 2101.06537).
//!
//! ```text
//!   RSV(k) of a sender at i for a receiver at o:  t_in = in[i], in[i] += k;  t_out = out[o], out[o] += k
//!   GRT(t_in, t_out):     the sender waits for max(t_in, t_out) slots, then sends k slots back to back
//!   data, last of a slot: in[i] -= 1 when it comes in;  out[o] -= 1 when it leaves, or is dropped on its way
//! ```
//! This is the switch's side, the slot book ([`SlotBook`]), which is in the packet path by [`switch`]; the hosts' is
//! in [`host`], the messages are in [`crate::wire::pl2`].
//!
//! The paper's text gives the scheme, not its details. What is decided here, with the section of PL2's design in
//! brackets:
//!
//! 1. **The port counts**, not a field: i is the port a request came in by, o the one its destination is at. A
//!    request for nowhere, for several ports, or for its own port is refused, by a NACK that says so: no slots will
//!    ever be had there. Every other NACK is for now (1.3).
//! 2. **Both registers at once**, one transaction a request (1.3). They are independent: in counter mode neither
//!    is raised to the other, since that would cost half of the throughput (1.4). Three modes: [`SlotMode`]
//!    (1.2, 1.4).
//! 3. **Departure.** `out[o]` goes down when a frame leaves, not when it comes in: else grants would overlap with
//!    what is queued. What is dropped on its way counts as having left (1.3).
//! 4. **A slot ends with a frame that says so** (E), so that small frames can share one; no other frame, scheduled
//!    or not, changes a register (1.3, 1.5). The last frame of a reservation (L) gives back what is left of it: on
//!    the way to the switch frames don't overtake each other.
//! 5. **Each request once** (2.10). A request whose number has a reservation, sent again by the sender (RETRY) or
//!    copied by the network, replaces it: what is left of the old one is given back first. A number that is not
//!    after the last one that is over is refused: its first grant was only late. A sender that says it has
//!    seen no start of the switch (epoch 0) is a new one, and starts over; but what was sent before other requests of
//!    the connection (`t_tx`), and comes within 1 s of such a beginning, is a copy and is refused. Numbers may go round.
//! 6. **More than K** slots are not granted, K are (7).
//! 7. **Several reservations** of a connection, up to 16, are used in the order of their numbers (2.2).
//! 8. **What is not used** is taken back by the receiver (RST, accepted only from the port that the reservation
//!    leads to, and once), given back by the sender (REL, once), or taken back by the switch at the
//!    reservation's deadline: the end of the chosen window, and a grace time (3). That is
//!    as long as an honest host may be late, at least 2 ms: at 100 Mbit/s a host's own 80 slots last for 10 ms.
//! 9. **Late and rogue frames** (3): those that come after their reservation was taken back, and those of who never
//!    reserved. A connection's frames keep their order, so
//!    those of what was taken back are booked before those of what was reserved after it. Refused are only frames
//!    of connections that nobody knows of. Neither kind touches `in[]`; both are in `out[]` while they are queued, since they do take
//!    the receiver's time.
//! 10. **A link that goes down and a restart** (3): what senders behind the link have reserved is free, or all is,
//!     and the start number is the next.
//! 11. **Room** for 4,096 reservations of a port by default, and for 64 connections of one that agree in the 10 bits
//!     that a shim has of them; beyond is refused (7). Senders should number their connections one after the other.
//!     No port's senders may have more than `max_reserved` slots: of those that are reserved, and where slots go by a
//!     clock, of those that they have taken on any output and that have not passed. By the clock nothing reaches further
//!     than 4,080 slots, and what is given back is free again if nobody was put behind it. So one sender, whatever
//!     it does, moves an output's time by no more than `max_reserved` slots.
//! 12. **One owner.** Both registers, and the reservation, are changed in one step: a switch on several workers has one book
//!     behind a lock ([`switch::SharedBook`]), and each request, arrival and departure is a step. Atomic registers would
//!     do for the grants alone, but not for replacing and taking back exactly once; a book on one worker, to which the
//!     others hand what they saw, would count off later, and be one more way between workers. Whatever the order of
//!     the steps, no slot is given out twice (1.3).

/// How far senders have reserved ahead.
mod ahead;
mod book;
mod config;
/// What is due next.
mod deadlines;
pub mod host;
mod mode;
mod stats;
pub mod switch;
mod table;
mod window;

pub use book::{Answer, Arrival, SlotBook};
pub use config::{BookConfig, BookConfigError, MAX_BURST, MAX_GRACE, MAX_RESERVED, grace, slot_ns};
pub use mode::SlotMode;
pub use stats::{Pending, PortSlots, SlotCounters};
