//! PL2's slot book takes no memory once it has held as much before.

mod counting;

use std::sync::atomic::Ordering;

use counting::ALLOCATIONS;
use weft::id::PortId;
use weft::scheme::pl2::{Arrival, BookConfig, SlotBook, SlotMode};
use weft::time::{Instant, MICROS};
use weft::wire::pl2::{Control, Flags, Kind, Shim};

const SENDERS: u8 = 4;
const CONNECTIONS: u32 = 50;
const RECEIVER: PortId = PortId(9);

/// One burst of each connection of each sender: most are used, some are taken back by the receiver, given back by
/// the sender, or left to their deadline.
fn round(book: &mut SlotBook, now: &mut Instant, seq: u32) {
    for (ingress, conn) in (0..SENDERS).flat_map(|port| (0..CONNECTIONS).map(move |conn| (PortId(port), conn))) {
        // New connections come all the time, and old ones are forgotten for them.
        let conn = conn + seq / 8 * CONNECTIONS;
        let rsv = Control {
            kind: Kind::Rsv,
            flags: Flags::default(),
            k: 4,
            epoch: 1,
            conn,
            seq,
            demand: 0,
            t_in: 0,
            t_out: 0,
            t_sw: 0,
            t_tx: 0,
            slot_ns: 0,
        };
        *now = *now + 10 * MICROS;
        book.sweep(*now);
        assert!(!book.reserve(*now, ingress, Some(RECEIVER), &rsv).grant.flags.nack);
        assert!(!book.reserve(*now, ingress, Some(RECEIVER), &rsv).grant.flags.nack, "sent again");
        let k_and = |kind| Control { kind, ..rsv };
        match (conn + seq) % 8 {
            0 => assert_eq!(book.reset(RECEIVER, Some(ingress), &k_and(Kind::Rst)), Some(4)),
            1 => assert_eq!(book.release(ingress, &k_and(Kind::Rel)), Some(4)),
            2 => {}
            _ => {
                for i in 1..=4 {
                    let shim = Shim::new(conn, true, i == 4);
                    // Late where the burst before was taken back and never came: these are taken for it.
                    let arrival = book.arrived(ingress, Some(RECEIVER), shim);
                    assert!(matches!(arrival, Arrival::Reserved | Arrival::Late), "{arrival:?}");
                    book.left(RECEIVER, 1);
                }
            }
        }
    }
}

#[test]
fn reserving_using_and_taking_back_allocates_nothing() {
    for mode in [SlotMode::Counter, SlotMode::Clock, SlotMode::Window] {
        let config =
            BookConfig { mode, max_pending: 128, max_reserved: 1_000, slot_ns: 1_000, ..BookConfig::default() };
        let (mut book, mut now) = (SlotBook::new(&config, 1).expect("a configuration in its ranges"), Instant::ZERO);
        (1..40).for_each(|seq| round(&mut book, &mut now, seq));
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (40..200).for_each(|seq| round(&mut book, &mut now, seq));
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{}", mode.name());
        let timeouts: u64 = (0..SENDERS).map(|port| book.port(PortId(port)).counters.timeouts).sum();
        assert!(timeouts > 1000, "{timeouts} taken back by their deadline");
    }
}
