//! PL2 as a whole, slot by slot: hosts and the slot book over links of constant delay, with jitter, loss and crashes.
//!
//! - I3: in an incast and an outcast two frames are queued at most.
//! - I4: a queue is bounded by how far the two slots of grants are apart.
//! - I5: nothing is dropped in such a buffer; the same load unscheduled is.
//! - I7 and I8: whatever links lose, everything that is not lost arrives, and all registers return to 0.
//! - I9: a dead sender is out of the way in time.
//! - I11: equal senders have equal shares; the incast's use is what Little's law says.

mod faults;
mod lengths;
mod queues;
mod setup;
mod shares;
mod sim;
mod table;

use setup::{Feed, SLOT, Setup};
use sim::Sim;
use weft::scheme::pl2::SlotMode;

const MODES: [SlotMode; 3] = [SlotMode::Counter, SlotMode::Clock, SlotMode::Window];

/// Everybody sends to the first host.
const INCAST: Feed = Feed::Saturated(|_, _| 0);
/// The first host sends to everybody, by flows in turn.
const OUTCAST: Feed = Feed::Saturated(|host, flow| if host == 0 { 1 + (flow % 5) as u8 } else { host });
/// Each of 6 hosts sends to each other one.
const SHUFFLE: Feed = Feed::Saturated(|host, flow| (host + 1 + (flow % 5) as u8) % 6);

/// Runs for `slots`, and counts shares and use from `warm` on.
fn run(setup: Setup, warm: u64, slots: u64) -> Sim {
    let mut sim = Sim::new(setup);
    sim.warm = warm * SLOT;
    sim.run(slots * SLOT);
    sim
}
