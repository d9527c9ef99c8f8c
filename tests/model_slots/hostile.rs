//! Whatever hosts say, and whenever: the registers are what is reserved and what is queued, and all comes to rest.

use proptest::prelude::*;
use weft::id::PortId;
use weft::scheme::pl2::{Arrival, BookConfig, Pending, SlotBook};
use weft::time::Instant;
use weft::wire::pl2::{Control, Kind, Shim};

use super::said::{controls, number};
use super::{CONFIG, MODES, book};

const PORTS: u8 = 4;

#[derive(Clone, Debug)]
enum Step {
    Reserve(u8, Option<u8>, Control),
    Release(u8, Control),
    Reset(u8, Option<u8>, Control),
    Arrive(u8, Option<u8>, Shim),
    /// Frames that nobody has announced, too.
    Left(u8, u32),
    Sweep,
    /// Ahead, or back.
    Move(i64),
    LinkDown(u8),
    Restart(u16),
}

fn control(kind: Kind) -> impl Strategy<Value = Control> {
    // Some connections agree in what a shim has of their numbers.
    controls(Just(kind), prop_oneof![4 => 0u32..3, 2 => (0u32..80).prop_map(|i| i << 10), 1 => any::<u32>()])
}

fn step() -> impl Strategy<Value = Step> {
    let port = || 0u8..PORTS;
    let to = || prop::option::weighted(0.9, 0u8..PORTS);
    let shim = (any::<bool>(), any::<bool>(), 0u16..3);
    prop_oneof![
        8 => (port(), to(), control(Kind::Rsv)).prop_map(|(from, to, rsv)| Step::Reserve(from, to, rsv)),
        2 => (port(), control(Kind::Rel)).prop_map(|(from, rel)| Step::Release(from, rel)),
        2 => (port(), to(), control(Kind::Rst)).prop_map(|(from, to, rst)| Step::Reset(from, to, rst)),
        8 => (port(), to(), shim).prop_map(|(from, to, (closes, last, conn))| {
            Step::Arrive(from, to, Shim { closes, last, conn })
        }),
        4 => (port(), number!(u32)).prop_map(|(port, slots)| Step::Left(port, slots)),
        4 => Just(Step::Sweep),
        4 => prop_oneof![0i64..3_000_000, -1_000i64..0, Just(i64::MAX / 4)].prop_map(Step::Move),
        1 => port().prop_map(Step::LinkDown),
        1 => number!(u16).prop_map(Step::Restart),
    ]
}

/// I1, with what this test knows to be queued.
fn check(book: &SlotBook, queued: &[u32; PORTS as usize]) -> Result<(), TestCaseError> {
    for port in (0..PORTS).map(PortId) {
        let slots = book.port(port);
        let reserved = |of: fn(&Pending) -> PortId| {
            book.pending().filter(|p| of(p) == port).map(|p| u32::from(p.k_left)).sum::<u32>()
        };
        prop_assert_eq!(slots.in_slots, reserved(|p| p.ingress));
        prop_assert_eq!(slots.out_slots, reserved(|p| p.output) + slots.queued);
        prop_assert_eq!(slots.queued, queued[port.index()]);
        prop_assert_eq!(slots.pending as usize, book.pending().filter(|p| p.ingress == port).count());
    }
    prop_assert!(book.pending().all(|p| p.k_left > 0));
    prop_assert_eq!(book.next_deadline().is_some(), book.pending().next().is_some());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_is_said_registers_are_what_is_reserved_and_queued(
        steps in prop::collection::vec(step(), 1..200),
        mode in prop::sample::select(&MODES[..]),
        (max_burst, max_pending, more) in (1u16..9, 1u16..70, 0u32..40),
        (notify, drop_rogues) in any::<(bool, bool)>(),
        start in number!(u64),
    ) {
        let max_reserved = u32::from(max_burst) + more;
        let config = BookConfig { mode, max_burst, max_pending, max_reserved, notify, drop_rogues, ..CONFIG };
        let mut book = book(config);
        let mut now = start.min(u64::MAX / 2);
        let mut queued = [0u32; PORTS as usize];
        for step in steps {
            match step {
                Step::Reserve(from, to, rsv) => {
                    let answer = book.reserve(Instant(now), PortId(from), to.map(PortId), &rsv);
                    let grant = answer.grant;
                    prop_assert!(grant.k <= max_burst && grant.flags.nack == (grant.k == 0));
                    prop_assert_eq!((grant.conn, grant.seq, grant.t_tx), (rsv.conn, rsv.seq, rsv.t_tx));
                    prop_assert_eq!(answer.notify.is_some(), notify && grant.k > 0);
                }
                Step::Release(from, rel) => _ = book.release(PortId(from), &rel),
                Step::Reset(from, to, rst) => _ = book.reset(PortId(from), to.map(PortId), &rst),
                Step::Arrive(from, to, shim) => {
                    let arrival = book.arrived(PortId(from), to.map(PortId), shim);
                    if let Some(to) = to
                        && shim.closes
                        && arrival != Arrival::Refused
                    {
                        queued[usize::from(to)] += 1;
                    }
                }
                Step::Left(port, slots) => {
                    book.left(PortId(port), slots);
                    queued[usize::from(port)] = queued[usize::from(port)].saturating_sub(slots);
                }
                Step::Sweep => book.sweep(Instant(now)),
                Step::Move(by) => now = now.saturating_add_signed(by).min(u64::MAX / 2),
                Step::LinkDown(port) => book.link_down(PortId(port)),
                Step::Restart(epoch) => book.restart(epoch),
            }
            check(&book, &queued)?;
        }
        book.sweep(Instant(u64::MAX));
        (0..PORTS).for_each(|port| book.left(PortId(port), u32::MAX));
        check(&book, &[0; PORTS as usize])?;
        prop_assert_eq!((book.pending().count(), book.next_deadline()), (0, None));
    }
}
