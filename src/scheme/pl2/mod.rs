//! PL2: hosts reserve slots at the switch before they send, so that its queues stay short and nothing is dropped
//! ("PL2: Towards Predictable Low Latency in Rack-Scale Networks", arXiv 2101.06537).
//!
//! ```text
//!   RSV(k) of a sender at i for a receiver at o:  t_in = in[i], in[i] += k;  t_out = out[o], out[o] += k
//!   GRT(t_in, t_out):     the sender waits for max(t_in, t_out) slots, then sends k slots back to back
//!   data, last of a slot: in[i] -= 1 when it comes in;  out[o] -= 1 when it leaves, or is dropped on its way
//! ```
//! This is the switch's side, the slot book ([`SlotBook`]); the messages are in [`crate::wire::pl2`].
//!
//! The paper's text gives the scheme, not its details. What is decided here:
//!
//! - **The port counts**, not a field: i is the port a request came in by, o the one its destination is at. A
//!   request for nowhere, for several ports, or for its own port is refused (NACK).
//! - **Departure.** out[o] goes down when a frame leaves, not when it comes in: else grants would overlap with what
//!   is queued.
//! - **A slot ends with a frame that says so** (E), so that small frames can share one. The last frame of a
//!   reservation (L) gives back what is left of it: on the way to the switch frames don't overtake each other.
//! - **Each request once.** A request whose number has a reservation, sent again by the sender (RETRY) or copied by
//!   the network, replaces it: what is left of the old one is given back first. A number that is not after
//!   the last one that is over is refused: its first grant was only late. A sender that says it has seen no
//!   start of the switch (epoch 0) is a new one, and starts over. Numbers may go round.
//! - **More than K** slots are not granted, K are.
//! - **Several reservations** of a connection (up to 16) are used in the order of their numbers.
//! - **What is not used** is taken back by the receiver (RST, accepted only from the port that the
//!   reservation leads to, and once), given back by the sender (REL, once), or taken back by the switch at the
//!   reservation's deadline: the end of the chosen window, and a grace time. Frames that come after that are
//!   late; frames of those who never reserved are rogue. Neither touches in[]; both are in out[] while they
//!   are queued, since they do take the receiver's time.
//! - **One owner.** Both registers, and the reservation, are changed in one step by one owner: a switch on several
//!   workers has one book, on one of them, to which the others hand requests and what they saw of data. Atomic
//!   registers would do for the grants alone, but not for replacing and taking back exactly once; with one owner
//!   every order in which things are handed over is a sequence of whole steps, and no slot is given out twice.

mod book;
mod config;
/// What is due next.
mod deadlines;
mod mode;
mod stats;
mod table;
mod window;

pub use book::{Answer, Arrival, SlotBook};
pub use config::{BookConfig, BookConfigError, MAX_BURST, slot_ns};
pub use mode::SlotMode;
pub use stats::{Pending, PortSlots, SlotCounters};
