//! The path allocation table against one with an age bit in each entry and a timer that never sleeps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weft::id::PortId;
use weft::pisa::pat::{Entry, Lookup, Origin, Path, PathTable};
use weft::time::{Instant, MILLIS};

/// CAFT's timeout.
const T: u64 = 100 * MILLIS;

fn path(port: u8) -> Path {
    Path { port: PortId(port), valid: true, origin: Origin::Request }
}

fn hash(slot: u64, fingerprint: u32) -> u64 {
    u64::from(fingerprint) << 32 | slot
}

#[derive(Clone, Debug)]
enum Op {
    /// Time moves by that much.
    Move(i64),
    Lookup(u64),
    Peek(u64),
    Insert(u64, Path),
    Invalidate(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Few slots and fingerprints, so that flows meet; the bits between the two are nobody's.
    let hash = (0u64..3, prop::sample::select(vec![0, 1, u32::MAX]), prop::sample::select(vec![0u64, 1 << 20]))
        .prop_map(|(slot, fingerprint, between)| hash(slot, fingerprint) | between);
    let origin = prop::sample::select(vec![Origin::Ecmp, Origin::Request, Origin::Response]);
    let path =
        (0u8..64, any::<bool>(), origin).prop_map(|(port, valid, origin)| Path { port: PortId(port), valid, origin });
    let moves = prop_oneof![
        5 => 0..T as i64,
        2 => Just(T as i64),
        2 => Just(2 * T as i64),
        1 => 0..200 * T as i64,
        1 => -3 * T as i64..0,
    ];
    let op = prop_oneof![
        4 => moves.prop_map(Op::Move),
        4 => hash.clone().prop_map(Op::Lookup),
        2 => hash.clone().prop_map(Op::Peek),
        4 => (hash.clone(), path).prop_map(|(hash, path)| Op::Insert(hash, path)),
        1 => hash.prop_map(Op::Invalidate),
    ];
    prop::collection::vec(op, 1..300)
}

/// By slot: whose entry it is, its path, and the age bit.
struct Model {
    entries: BTreeMap<usize, (u32, Path, bool)>,
    timer: u64,
    slots: u64,
}

impl Model {
    fn run_to(&mut self, now: u64) {
        while self.timer <= now {
            self.entries.retain(|_, (_, _, age)| !std::mem::replace(age, true));
            self.timer += T;
        }
    }

    fn at(&mut self, hash: u64) -> (usize, u32, Option<&mut (u32, Path, bool)>) {
        let slot = (hash % self.slots) as usize;
        (slot, (hash >> 32) as u32, self.entries.get_mut(&slot))
    }

    fn lookup(&mut self, hash: u64, refresh: bool) -> Lookup {
        match self.at(hash) {
            (_, _, None) => Lookup::Free,
            (_, flow, Some((owner, path, age))) if *owner == flow => {
                *age &= !refresh;
                Lookup::Own(*path)
            }
            _ => Lookup::Taken,
        }
    }

    fn insert(&mut self, hash: u64, path: Path) -> bool {
        let free = self.lookup(hash, false) != Lookup::Taken;
        let (slot, flow, _) = self.at(hash);
        if free {
            self.entries.insert(slot, (flow, path, false));
        }
        free
    }

    fn invalidate(&mut self, hash: u64) {
        if let (_, flow, Some((owner, path, _))) = self.at(hash)
            && *owner == flow
        {
            path.valid = false;
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |(slot, (flow, path, age)): (&usize, &(u32, Path, bool))| Entry {
            slot: *slot,
            flow: *flow,
            path: *path,
            age: if *age { T } else { 0 },
        };
        self.entries.iter().map(entry).collect()
    }
}

proptest! {
    #[test]
    fn answers_are_those_of_age_bits_and_a_timer(
        slots in 1usize..5,
        // 16 bits of tick wrap in the second and third, at once and later.
        start in prop::sample::select(vec![0, 65_535, 65_500, 1 << 30]).prop_flat_map(|tick| tick * T..(tick + 1) * T),
        ops in ops(),
    ) {
        let mut table = PathTable::new(slots, T);
        let slots = slots.next_power_of_two();
        let mut model = Model { entries: BTreeMap::new(), timer: (start / T + 1) * T, slots: slots as u64 };
        let mut now = start;
        for op in ops {
            let at = Instant(now);
            match op {
                Op::Move(by) => now = now.saturating_add_signed(by),
                Op::Lookup(hash) => prop_assert_eq!(table.lookup(at, hash), model.lookup(hash, true)),
                Op::Peek(hash) => prop_assert_eq!(table.peek(at, hash), model.lookup(hash, false)),
                Op::Insert(hash, path) => prop_assert_eq!(table.insert(at, hash, path), model.insert(hash, path)),
                Op::Invalidate(hash) => {
                    table.invalidate(at, hash);
                    model.invalidate(hash);
                }
            }
            model.run_to(now);
            let reached = Instant(model.timer - T);
            prop_assert_eq!(table.entries(reached).collect::<Vec<_>>(), model.entries());
            prop_assert_eq!((table.occupancy(reached), table.slots()), (model.entries.len(), slots));
            // A time that goes back changes nothing, once the table was told of it: here for nobody's flow.
            table.invalidate(reached, hash(0, 2));
        }
    }
}

#[test]
fn an_entry_dies_between_one_timeout_and_two_after_its_last_packet() {
    let flow = hash(5, 77);
    // From the last packet's time, by where in its tick it came: when the entry is seen last.
    for (offset, last) in [(0, 2 * T - 1), (T / 2, 3 * T / 2 - 1), (T - 1, T)] {
        let begin = 1_000 * T + offset;
        let mut table = PathTable::new(16, T);
        assert!(table.insert(Instant(begin), flow, path(3)));
        assert_eq!(table.peek(Instant(begin + last), flow), Lookup::Own(path(3)), "{offset}");
        assert_eq!(table.peek(Instant(begin + last + 1), flow), Lookup::Free, "{offset}");
        // To look is not to be sent: only lookup lets it live on.
        assert_eq!(table.lookup(Instant(begin + last), flow), Lookup::Own(path(3)));
        let next = begin + last;
        let ends = (next / T + 2) * T;
        assert_eq!(table.peek(Instant(ends - 1), flow), Lookup::Own(path(3)), "{offset}");
        assert_eq!(table.lookup(Instant(ends), flow), Lookup::Free, "{offset}");
    }
}

#[test]
fn a_live_entry_keeps_its_slot_from_other_flows_and_a_dead_one_does_not() {
    let mut table = PathTable::new(65_536, T);
    let (first, other) = (hash(9, 1), hash(9, 2));
    assert_eq!(table.lookup(Instant(0), first), Lookup::Free, "an unused slot is no entry of flow 0 at tick 0");
    assert_eq!(table.lookup(Instant(0), 0), Lookup::Free);
    assert!(table.insert(Instant(0), first, path(1)));
    assert_eq!(table.lookup(Instant(0), other), Lookup::Taken);
    assert!(!table.insert(Instant(T), other, path(2)));
    table.invalidate(Instant(T), other);
    // Being asked for by another flow does not let it live on either.
    assert_eq!(table.peek(Instant(2 * T - 1), first), Lookup::Own(path(1)));
    assert!(table.insert(Instant(2 * T), other, path(2)));
    assert_eq!(table.lookup(Instant(2 * T), first), Lookup::Taken);
    assert_eq!(table.lookup(Instant(2 * T), other), Lookup::Own(path(2)));
    // The low 16 bits and the high 32 are all that tells flows apart.
    assert_eq!(table.lookup(Instant(2 * T), other | 0xffff << 16), Lookup::Own(path(2)));
    assert_eq!(table.occupancy(Instant(2 * T)), 1);
}

#[test]
fn a_path_that_is_not_valid_is_kept_and_can_be_replaced() {
    let mut table = PathTable::new(16, T);
    let flow = hash(1, 1);
    let pending = Path { valid: false, origin: Origin::Ecmp, ..path(4) };
    assert!(table.insert(Instant(0), flow, pending));
    for tick in 0..10 {
        assert_eq!(table.lookup(Instant(tick * T), flow), Lookup::Own(pending), "lookup lets it live on");
    }
    let chosen = Path { origin: Origin::Response, ..path(5) };
    assert!(table.insert(Instant(9 * T), flow, chosen));
    assert_eq!(table.peek(Instant(9 * T), flow), Lookup::Own(chosen));
    table.invalidate(Instant(10 * T), flow);
    let entry = Entry { slot: 1, flow: 1, path: Path { valid: false, ..chosen }, age: T };
    assert_eq!(table.entries(Instant(10 * T)).collect::<Vec<_>>(), [entry]);
    assert_eq!(table.peek(Instant(11 * T), flow), Lookup::Free, "invalidating is no packet");
}

#[test]
fn more_flows_than_slots_fill_the_table_and_no_more() {
    let mut table = PathTable::new(64, T);
    let kept =
        (0..1_000u32).filter(|flow| table.insert(Instant(0), hash(u64::from(flow % 64), *flow), path(1))).count();
    assert_eq!((kept, table.occupancy(Instant(0)), table.slots()), (64, 64, 64));
    // The first to come have it.
    assert!(table.entries(Instant(0)).all(|entry| entry.flow == entry.slot as u32));
}

#[test]
fn the_tick_wraps_after_65536_timeouts() {
    let mut table = PathTable::new(16, T);
    let flow = hash(2, 2);
    let begin = 65_535 * T;
    assert!(table.insert(Instant(begin), flow, path(1)));
    assert_eq!(table.peek(Instant(begin + 2 * T - 1), flow), Lookup::Own(path(1)), "across the wrap");
    assert_eq!(table.peek(Instant(begin + 2 * T), flow), Lookup::Free);
    // What the documentation owns up to: for two ticks the entry seems to be back.
    let round = begin + 65_536 * T;
    let seen = [round - 1, round, round + 2 * T - 1, round + 2 * T].map(|t| table.peek(Instant(t), flow));
    assert_eq!(seen, [Lookup::Free, Lookup::Own(path(1)), Lookup::Own(path(1)), Lookup::Free]);
    assert_eq!(table.peek(Instant(round), hash(2, 3)), Lookup::Taken);
    // Any packet of another flow in its slot ends that.
    assert!(table.insert(Instant(round - 1), hash(2, 3), path(2)));
    assert_eq!(table.peek(Instant(round), flow), Lookup::Taken);
}
