//! I1 and I8: whatever happens in whatever order, the book is the reference model, and at rest it is empty.

use proptest::prelude::*;
use weft::id::PortId;
use weft::scheme::pl2::{Arrival, BookConfig, SlotBook, SlotMode};
use weft::time::{Instant, MILLIS};
use weft::wire::pl2::{Control, Kind, Shim};

use crate::reference::{Reference, Refusal, Seen};
use crate::{CONFIG, MODES, SLOT, book, control, granted};

const PORTS: u8 = 4;

/// Connection, number, slots, start that was seen.
type Named = (u32, u32, u16, u16);

#[derive(Clone, Debug)]
enum Op {
    Reserve { ingress: u8, output: Option<u8>, named: Named },
    Data { ingress: u8, output: Option<u8>, conn: u32, closes: bool, last: bool },
    Left(u8),
    Reset { from: u8, sender: Option<u8>, named: Named },
    Release { ingress: u8, named: Named },
    Sweep,
    Move(u64),
    LinkDown(u8),
    Restart,
}

/// Few ports, connections and numbers, so that copies, late ones and strangers are common. Connections 1 and 1025
/// agree in what a data frame says of them.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let conn = || prop::sample::select(vec![1u32, 1025, 2, 3]);
    let port = || 0..PORTS;
    let maybe = || prop_oneof![9 => port().prop_map(Some), 1 => Just(None)];
    let epoch = prop_oneof![12 => Just(1u16), 2 => Just(2), 1 => Just(0)];
    let seq = prop_oneof![1 => Just(0u32), 20 => 1u32..5, 4 => 5u32..40];
    let named = (conn(), seq, prop_oneof![1 => Just(0u16), 12 => 1u16..5, 1 => Just(9)], epoch);
    let data = (port(), maybe(), conn(), prop::bool::weighted(0.8), prop::bool::weighted(0.2));
    let op = prop_oneof![
        12 => (port(), maybe(), named.clone())
            .prop_map(|(ingress, output, named)| Op::Reserve { ingress, output, named }),
        12 => data.prop_map(|(ingress, output, conn, closes, last)| Op::Data { ingress, output, conn, closes, last }),
        8 => port().prop_map(Op::Left),
        4 => (port(), maybe(), named.clone()).prop_map(|(from, sender, named)| Op::Reset { from, sender, named }),
        3 => (port(), named).prop_map(|(ingress, named)| Op::Release { ingress, named }),
        3 => Just(Op::Sweep),
        4 => (0..20u64).prop_map(|slots| Op::Move(slots * SLOT)),
        1 => (0..2 * MILLIS / SLOT).prop_map(|slots| Op::Move(slots * SLOT)),
        1 => (0..4u8, port()).prop_map(|(n, port)| if n == 0 { Op::LinkDown(port) } else { Op::Left(port) }),
        1 => (0..10u8).prop_map(|n| if n == 0 { Op::Restart } else { Op::Sweep }),
    ];
    prop::collection::vec(op, 1..300)
}

fn message(kind: Kind, (conn, seq, k, epoch): Named) -> Control {
    Control { epoch, ..control(kind, conn, seq, k) }
}

fn maybe(port: Option<u8>) -> Option<PortId> {
    port.map(PortId)
}

/// Does `op` to both and compares what they answer.
fn step(book: &mut SlotBook, model: &mut Reference, now: &mut u64, op: &Op) -> Result<(), TestCaseError> {
    match *op {
        Op::Reserve { ingress, output, named } => {
            // No two deadlines are the same: nothing says which of them would be first. There are fewer requests
            // than nanoseconds in a slot.
            *now += 1;
            let before = book.port(PortId(ingress)).counters;
            let answer = book.reserve(Instant(*now), PortId(ingress), maybe(output), &message(Kind::Rsv, named));
            let expected = model.reserve(*now, ingress, output, named);
            prop_assert_eq!(granted(&answer.grant), expected.ok());
            let after = book.port(PortId(ingress)).counters;
            let [no_route, full, stale, invalid] = [
                after.no_route - before.no_route,
                after.full - before.full,
                after.stale - before.stale,
                after.invalid - before.invalid,
            ];
            let counted = match expected {
                Ok(_) => [0; 4],
                Err(Refusal::NoRoute) => [1, 0, 0, 0],
                Err(Refusal::Full) => [0, 1, 0, 0],
                Err(Refusal::Stale) => [0, 0, 1, 0],
                Err(Refusal::Invalid) => [0, 0, 0, 1],
            };
            prop_assert_eq!([no_route, full, stale, invalid], counted);
            prop_assert_eq!(after.grants - before.grants, u64::from(expected.is_ok()));
        }
        Op::Data { ingress, output, conn, closes, last } => {
            let seen = book.arrived(PortId(ingress), maybe(output), Shim::new(conn, closes, last));
            let expected = match model.arrived(ingress, output, (conn % 1024, closes, last)) {
                Seen::Reserved => Arrival::Reserved,
                Seen::Late => Arrival::Late,
                Seen::Rogue => Arrival::Rogue,
            };
            prop_assert_eq!(if seen == Arrival::Refused { Arrival::Rogue } else { seen }, expected);
        }
        Op::Left(port) => {
            book.left(PortId(port), 1);
            model.left(port);
        }
        Op::Reset { from, sender, named } => {
            let taken = book.reset(PortId(from), maybe(sender), &message(Kind::Rst, named));
            prop_assert_eq!(taken, model.reset(from, sender, named));
        }
        Op::Release { ingress, named } => {
            let taken = book.release(PortId(ingress), &message(Kind::Rel, named));
            prop_assert_eq!(taken, model.release(ingress, named));
        }
        Op::Sweep => {
            book.sweep(Instant(*now));
            model.sweep(*now);
        }
        Op::Move(by) => *now += by,
        Op::LinkDown(port) => {
            book.link_down(PortId(port));
            model.link_down(port);
        }
        Op::Restart => {
            model.restart();
            book.restart(model.epoch);
        }
    }
    Ok(())
}

/// Registers, reservations and the next deadline of both.
fn compare(book: &SlotBook, model: &Reference) -> Result<(), TestCaseError> {
    for port in 0..PORTS {
        let view = book.port(PortId(port));
        let seen = (view.in_slots, view.out_slots, view.queued, view.pending as usize);
        let queued = model.queued.get(&port).copied().unwrap_or(0);
        prop_assert_eq!(
            seen,
            (model.in_slots(port), model.out_slots(port), queued, model.pending(port)),
            "port {}",
            port
        );
    }
    let mut pending: Vec<_> = book.pending().collect();
    pending.sort_unstable();
    let pending: Vec<_> =
        pending.iter().map(|p| ((p.ingress.0, p.conn, p.seq), p.k_left, p.output.0, p.deadline.0)).collect();
    let expected: Vec<_> = model.entries.iter().map(|(key, e)| (*key, e.k_left, e.output, e.deadline)).collect();
    prop_assert_eq!(pending, expected);
    // It may be too early, for what is over, and never too late.
    let (next, first) = (book.next_deadline().map(|at| at.0), model.next_deadline());
    prop_assert_eq!(next.is_some(), first.is_some());
    prop_assert!(next <= first, "{:?}, {:?}", next, first);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_book_is_the_reference_model_and_empty_at_rest(
        mode in prop::sample::select(MODES.to_vec()),
        max_pending in prop::sample::select(vec![2u16, 3, 4096]),
        max_burst in prop::sample::select(vec![1u16, 4]),
        max_reserved in prop::sample::select(vec![4u32, 7, 12, 1 << 20]),
        drop_rogues: bool,
        ops in ops(),
    ) {
        let config = BookConfig { mode, max_pending, max_burst, max_reserved, drop_rogues, ..CONFIG };
        let (mut book, mut model, mut now) = (book(config), Reference::new(config), 0);
        for op in &ops {
            step(&mut book, &mut model, &mut now, op)?;
            compare(&book, &model)?;
        }
        // Rest: what is queued leaves, and the last deadline passes.
        for port in 0..PORTS {
            for _ in 0..book.port(PortId(port)).queued {
                book.left(PortId(port), 1);
            }
        }
        while let Some(at) = book.next_deadline() {
            book.sweep(at - 1);
            prop_assert_eq!(book.next_deadline(), Some(at), "not before its time");
            book.sweep(at);
        }
        prop_assert_eq!(book.pending().count(), 0);
        let mut underflows = 0;
        for port in (0..PORTS).map(PortId) {
            let view = book.port(port);
            prop_assert_eq!((view.in_slots, view.out_slots, view.queued, view.pending), (0, 0, 0, 0), "port {}", port);
            underflows += view.counters.out_underflows;
        }
        prop_assert_eq!(underflows, model.underflows);
        // Nobody is granted anything but now.
        let asked = book.reserve(Instant(now + 10_000 * SLOT), PortId(0), Some(PortId(1)), &message(Kind::Rsv, (77, 1, 1, 1)));
        if mode != SlotMode::Clock {
            prop_assert_eq!(granted(&asked.grant), Some((1, 0, 0)));
        }
    }

    /// I2: by the clock and in a window no two grants of a port share a slot, and in a window both times are one.
    #[test]
    fn granted_windows_of_a_port_never_meet(
        window: bool,
        asked in prop::collection::vec((0u8..4, 4u8..8, 1u16..=16, 0u64..6 * SLOT), 1..200),
    ) {
        let mode = if window { SlotMode::Window } else { SlotMode::Clock };
        let mut book = book(BookConfig { mode, max_burst: 16, ..CONFIG });
        let (mut now, mut taken) = (0, std::collections::BTreeSet::new());
        for (seq, (ingress, output, k, pause)) in (1..).zip(asked) {
            now += pause;
            let rsv = message(Kind::Rsv, (seq, 1, k, 1));
            let grant = book.reserve(Instant(now), PortId(ingress), Some(PortId(output)), &rsv).grant;
            let Some((k, t_in, t_out)) = granted(&grant) else {
                prop_assert!(window, "only a window has an end");
                continue;
            };
            prop_assert_eq!((grant.flags.window, grant.flags.clock), (window, !window));
            prop_assert!(!window || t_in == t_out);
            for (port, t) in [(ingress, t_in), (output, t_out)] {
                for slot in 0..u64::from(k) {
                    let slot = now / SLOT + u64::from(t) + slot;
                    prop_assert!(taken.insert((port, slot)), "slot {} of port {} twice", slot, port);
                }
            }
        }
    }

    /// I8: however often a request is there, it holds what it holds once, and only the first RST and the first REL
    /// count.
    #[test]
    fn copies_of_a_message_change_nothing(
        mode in prop::sample::select(MODES.to_vec()),
        k in 1u16..=4,
        used in 0u16..4,
        copies in 2usize..6,
        missing in 1u16..6,
    ) {
        let used = used.min(k - 1);
        let mut book = book(BookConfig { mode, ..CONFIG });
        let others = message(Kind::Rsv, (9, 1, 3, 1));
        book.reserve(Instant(0), PortId(0), Some(PortId(1)), &others);
        for _ in 0..copies {
            book.reserve(Instant(0), PortId(0), Some(PortId(1)), &message(Kind::Rsv, (1, 1, k, 1)));
            prop_assert_eq!(crate::registers(&book, 0).0, u32::from(3 + k));
            prop_assert_eq!(crate::registers(&book, 1).1, u32::from(3 + k));
        }
        for _ in 0..used {
            book.arrived(PortId(0), Some(PortId(1)), crate::closing(1));
            book.left(PortId(1), 1);
        }
        let rst = message(Kind::Rst, (1, 1, missing, 1));
        let taken: Vec<_> = (0..copies).map(|_| book.reset(PortId(1), Some(PortId(0)), &rst)).collect();
        let expected = missing.min(k - used);
        prop_assert_eq!(taken[0], Some(expected));
        prop_assert!(taken[1..].iter().all(Option::is_none));
        let left = 3 + k - used - expected;
        prop_assert_eq!((crate::registers(&book, 0).0, crate::registers(&book, 1).1), (left.into(), left.into()));
    }
}
