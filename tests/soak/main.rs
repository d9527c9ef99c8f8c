//! A lab and a switch of its own under mixed traffic, while links, hosts, namespaces, files and processes
//! fail at random and are healed: at every moment the switches answer and their books add up, at the end
//! everything talks, nothing is lost without a count, and nothing is left behind.
//!
//! `scripts/soak MINUTES` runs it for long; without WEFT_SOAK_MINUTES it takes some twenty seconds.

#[path = "../veth/bed.rs"]
#[allow(dead_code, reason = "the tests on veths use the rest")]
mod bed;
/// The conservation laws, recomputed from what a switch shows.
#[path = "../veth/books.rs"]
#[allow(dead_code, reason = "the tests on veths use the rest")]
mod books;
/// Frames as they are, malformed ones too.
#[path = "../veth/packet.rs"]
#[allow(dead_code, reason = "the tests on veths use the rest")]
mod packet;
#[path = "../privilege/mod.rs"]
mod privilege;

/// What goes wrong, on purpose.
mod faults;
/// Traffic of all sorts.
mod load;
/// The network under test, and how to put it right again.
mod net;
/// Log, findings and the table at the end.
mod record;
/// A run from start to end.
mod soak;
