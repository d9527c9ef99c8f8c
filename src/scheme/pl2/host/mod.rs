//! PL2's hosts: frames wait for a slot that was reserved for them at the switch.
//!
//! ```text
//!   frames of a connection --> queue --> RSV(k) --> ... --> GRT(t_in, t_out)
//!                                |                             | wait max(t_in, t_out) slots
//!                                +--> k slots of frames, back to back, each with a shim
//! ```
//! [`Host`] is the sender's side of one link to a switch, [`Receiver`] in it what looks after senders that were
//! granted slots and went silent. Neither does I/O nor reads a clock, so that one core serves an agent behind a TAP,
//! an agent in the switch's own poll loop, and a simulation.
//!
//! The paper's text ("PL2: Towards Predictable Low Latency in Rack-Scale Networks", arXiv 2101.06537) says that a
//! host reserves before a burst, takes the later of the two slots, and turns it into a waiting time. What is
//! decided here beyond that, with the section of PL2's design in brackets:
//!
//! 1. **Connections** take turns in asking. Each has its queue, and up to D reservations at once (2.1, 2.2). One
//!    that has been used counts until its last frame has left, by the host's own account of its link.
//! 2. **The wait** starts when the grant comes in, and no round trip is taken off it (2.3, `rtt_comp`).
//! 3. **A slot** is filled with frames as far as a full frame would fill it on the wire, gaps included; the last
//!    of a slot says so (E), and so does the last of a reservation (L), which gives back what is left of it (2.6).
//! 4. **Order**: frames of a connection leave as they came, and its reservations are used by their numbers,
//!    also if a later one is due first (2.4, 7).
//! 5. **Late** is what would start more than `late_max` slots after its time. Where slots are counted it is sent
//!    nevertheless, since it is still counted; where they go by the clock, it is given back (REL) and asked for
//!    again (2.5), when the host's link is free.
//! 6. **No answer** after four round trips, at least 1 ms: the request is sent again (RETRY), then after twice as
//!    long, up to 16 ms, for as long as it takes (2.10).
//! 7. **Refused** (NACK): asked for again under a new number, at once if it was a request sent again, whose
//!    reservation may be over at the switch; else, and always if the destination is at no one port, after the time of
//!    6. [`Host::control`] tells which it was.
//! 8. **A second grant** of one number counts if the switch sent it later and nothing was sent yet. One of a number
//!    that is used is ignored; one of a number that was given up gives its slots back (2.10).
//! 9. **Another start** of the switch makes grants void which were not used yet (3g). A grant of an earlier start
//!    is told from it by the request's time, which it echoes.
//! 10. **Bounded**: frames of one connection and of all, connections, slots that are asked for and not used. Beyond,
//!     the newest frame is not taken, but the first of a connection is, so that none can keep others from asking
//!     (6, 7). From seven eighths of the connections on, new ones share queues with others to the same destination.
//! 11. **Lost on its way**: a grant whose `t_in` is more than the host can have reserved tells of frames that never came
//!     to the switch. If that is more than at the connection's grant before, what the switch still has of its last burst that
//!     has left is given back (REL), behind all that was sent: else the next bursts would be taken for it, and each wait
//!     for it, until its time is over. If another connection's was lost meanwhile, that costs a message (3e).
//! 12. **Withdrawn**: an agent that stops, or learns that a destination can't be reserved, takes the frames back, and
//!     what is asked for or granted is given back ([`Host::withdraw`]; 3e).

mod config;
mod connections;
mod flush;
mod grants;
mod parked;
mod receiver;
mod reservation;
mod rtt;
mod sender;
mod stats;

pub use config::{HostConfig, HostConfigError, MAX_CONNECTIONS, MAX_DEPTH};
pub use receiver::Receiver;
pub use rtt::{RTO_MAX, RTO_MIN};
pub use sender::{Action, Enqueued, Host};
pub use stats::{HostCounters, HostStats};

use crate::wire::MacAddr;

/// What tells connections apart. Frames of one are kept in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnKey {
    /// Destination of its frames, by which the switch finds the output port.
    pub dst: MacAddr,
    /// A hash of the five-tuple, or 0 for frames that have none.
    pub flow: u64,
}

/// A connection's request that was refused, and not for its number being over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Where its frames are to go.
    pub dst: MacAddr,
    /// That is at no one other host port of the switch: asking again is of no use until it is. If not, there is no
    /// room for now.
    pub no_route: bool,
    /// Refusals of the connection in a row, this one included; at most 255.
    pub times: u8,
}
