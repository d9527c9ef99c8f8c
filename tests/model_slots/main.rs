//! PL2's slot book: against a reference model, against the invariants of the design, and rule by rule with figures
//! worked out by hand.
//!
//! - I1: a register is the sum of what is reserved and not used, and of what is queued. At rest it is 0.
//! - I2: grants of one port don't overlap; by counters, by a slot at most.
//! - I3: in an incast the output decides, in an outcast the input; two frames are there at once at most.
//! - I6: with no drain between, the times of a port rise by exactly k; a port at rest is at 0.
//! - I8: I1 holds whatever is lost, copied or out of order.
//! - I9: after its deadline a dead sender is in nobody's way.
//! - I13: requests on several threads get the slots of some order of them.

#[path = "../said/mod.rs"]
mod said;

mod hostile;
mod line;
mod random;
mod reference;
mod rules;
mod threads;

use weft::id::PortId;
use weft::scheme::pl2::{BookConfig, PortSlots, SlotBook, SlotMode};
use weft::time::{Instant, MILLIS};
use weft::wire::pl2::{Control, Flags, Kind, Shim};

/// Slots of a microsecond, K = 4, taken back 1 ms after the window.
const CONFIG: BookConfig = BookConfig {
    mode: SlotMode::Counter,
    slot_ns: SLOT as u32,
    max_burst: 4,
    max_pending: 4096,
    max_reserved: 1 << 20,
    grace: MILLIS,
    notify: false,
    drop_rogues: false,
};
const SLOT: u64 = 1_000;

const MODES: [SlotMode; 3] = [SlotMode::Counter, SlotMode::Clock, SlotMode::Window];

fn book(config: BookConfig) -> SlotBook {
    SlotBook::new(&config, 1).expect("a configuration in its ranges")
}

/// A message of a host that has heard of start 1.
fn control(kind: Kind, conn: u32, seq: u32, k: u16) -> Control {
    let flags = Flags::default();
    Control { kind, flags, k, epoch: 1, conn, seq, demand: 0, t_in: 0, t_out: 0, t_sw: 0, t_tx: 0, slot_ns: 0 }
}

fn rsv(conn: u32, seq: u32, k: u16) -> Control {
    control(Kind::Rsv, conn, seq, k)
}

/// k, t_in and t_out of a grant; `None` if it was refused.
fn granted(grant: &Control) -> Option<(u16, u32, u32)> {
    (!grant.flags.nack).then_some((grant.k, grant.t_in, grant.t_out))
}

/// Asks for `k` slots from port `ingress` to port `output`.
fn ask(book: &mut SlotBook, now: u64, (ingress, output): (u8, u8), rsv: &Control) -> Option<(u16, u32, u32)> {
    granted(&book.reserve(Instant(now), PortId(ingress), Some(PortId(output)), rsv).grant)
}

/// A frame that closes a slot.
fn closing(conn: u32) -> Shim {
    Shim::new(conn, true, false)
}

fn registers(book: &SlotBook, port: u8) -> (u32, u32) {
    let PortSlots { in_slots, out_slots, .. } = book.port(PortId(port));
    (in_slots, out_slots)
}
