//! Flowlets against a map that forgets nothing, and the schemes that need no more than them.

use std::collections::HashMap;

use proptest::prelude::*;
use weft::fabric::SchemeIngress;
use weft::frame::Pool;
use weft::id::{PortId, PortMask};
use weft::pisa::Meta;
use weft::pisa::flowlet::FlowletTable;
use weft::pisa::table::Group;
use weft::scheme::letflow::{Choice, LetFlowIngress};
use weft::time::{Instant, MICROS, SECONDS};
use weft::wire::Headers;

/// 500 us.
const GAP: u64 = 500 * MICROS;

#[derive(Clone, Debug)]
enum Op {
    /// Time moves by that much.
    Move(i64),
    /// A packet of the flow with this hash; whether its flowlet, if new, is given this port.
    Packet(u64, Option<u8>),
    Timeout(u64),
}

fn moves() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0i64..2 * GAP as i64,
        2 => Just(GAP as i64),
        1 => Just(GAP as i64 + 1),
        // What compact clocks would wrap at: 2^32 ns, 2^32 us, 2^48 ns.
        1 => prop::sample::select(vec![1i64 << 32, (1 << 32) * MICROS as i64, 1 << 48]),
        2 => -2 * GAP as i64..0,
        1 => Just(-(1i64 << 48)),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => moves().prop_map(Op::Move),
        9 => (prop_oneof![0u64..6, any::<u64>()], prop::option::weighted(0.9, 0u8..64))
            .prop_map(|(hash, port)| Op::Packet(hash, port)),
        1 => prop::sample::select(vec![0, 1, GAP / 2, GAP, u64::MAX]).prop_map(Op::Timeout),
    ];
    prop::collection::vec(op, 1..300)
}

/// One slot as the rules have it, in signed arithmetic that has room for every time.
#[derive(Default)]
struct Expected {
    last: i128,
    number: u32,
    port: Option<PortId>,
}

impl Expected {
    fn packet(&mut self, now: i128, timeout: i128) {
        let gap = now - self.last;
        if gap > timeout || self.port.is_none() {
            self.number += 1;
            self.port = None;
        }
        // A late reading, by no more than the timeout, is no news.
        if gap >= 0 || -gap > timeout {
            self.last = now;
        }
    }
}

proptest! {
    #[test]
    fn flowlets_are_those_of_a_map_without_limits(slots in 1usize..9, ops in ops()) {
        let mut table = FlowletTable::new(slots, GAP);
        let mut model: HashMap<u64, Expected> = HashMap::new();
        let (mut now, mut timeout) = (1i128 << 50, i128::from(GAP));
        prop_assert_eq!(table.slots(), slots.next_power_of_two());
        for op in ops {
            match op {
                Op::Move(by) => now = (now + i128::from(by)).max(0),
                Op::Timeout(to) => {
                    timeout = to.into();
                    table.set_timeout(to);
                }
                Op::Packet(hash, port) => {
                    // Flows that agree in the low bits share a slot.
                    let expected = model.entry(hash % table.slots() as u64).or_default();
                    expected.packet(now, timeout);
                    let mut flowlet = table.lookup(Instant(now as u64), hash);
                    prop_assert_eq!((flowlet.port(), flowlet.number()), (expected.port, expected.number));
                    if flowlet.port().is_none() && let Some(port) = port {
                        flowlet.assign(PortId(port));
                        expected.port = Some(PortId(port));
                        prop_assert_eq!(flowlet.port(), expected.port);
                    }
                }
            }
            let active = model.values().filter(|e| e.port.is_some() && now - e.last <= timeout).count();
            prop_assert_eq!(table.occupancy(Instant(now as u64)), active);
        }
    }
}

/// The number of the flowlet of a packet at `now`, which is given port 1 if it is new.
fn number(table: &mut FlowletTable, now: u64) -> u32 {
    let mut flowlet = table.lookup(Instant(now), 7);
    if flowlet.port().is_none() {
        flowlet.assign(PortId(1));
    }
    flowlet.number()
}

#[test]
fn a_flowlet_ends_after_more_than_the_timeout_and_never_by_a_clock_that_steps_back() {
    let start = 1_000 * SECONDS;
    for (what, times, numbers) in [
        ("a gap of just the timeout", vec![0, GAP, 2 * GAP], vec![1, 1, 1]),
        ("a nanosecond more", vec![0, GAP + 1, 2 * GAP + 1], vec![1, 2, 2]),
        ("a late reading in between", vec![GAP, 0, 2 * GAP], vec![1, 1, 1]),
        ("a late reading does not make it younger", vec![GAP, 0, 2 * GAP + 1], vec![1, 1, 2]),
    ] {
        let mut table = FlowletTable::new(16, GAP);
        let found: Vec<u32> = times.iter().map(|t| number(&mut table, start + t)).collect();
        assert_eq!(found, numbers, "{what}");
    }
    // The clock is set back by an hour: the flowlet goes on, and ends by the new time.
    let mut table = FlowletTable::new(16, GAP);
    let hour = 3_600 * SECONDS;
    let times = [hour, 0, GAP, 2 * GAP + 1];
    assert_eq!(times.map(|t| number(&mut table, start + t)), [1, 1, 1, 2]);
    // The first packet at time 0 begins one, too.
    assert_eq!(FlowletTable::new(1, GAP).lookup(Instant::ZERO, 0).port(), None);
}

/// A LetFlow ingress and its group, which is at ports from 10 on.
struct Rig {
    ingress: LetFlowIngress,
    group: Group,
    pool: Pool,
}

impl Rig {
    fn new(choice: Choice, members: u8, seed: u64) -> Self {
        let group = Group::new(vec![ports(10..10 + members)]);
        Rig { ingress: LetFlowIngress::new(choice, 4096, GAP, seed), group, pool: Pool::heap(1, 64) }
    }

    fn choose(&mut self, now: u64, hash: u64) -> Option<u8> {
        let mut frame = self.pool.alloc().expect("a free chunk");
        let mut meta = Meta::new(Headers::default(), PortId(0));
        meta.flow_hash = hash;
        let port = self.ingress.choose(Instant(now), &self.group, &mut frame, &mut meta);
        self.pool.free(frame);
        port.map(|port| port.0)
    }

    /// The ports of `n` flowlets of the flow with `hash`, of one packet each, as close as can be.
    fn flowlets(&mut self, n: u64, hash: u64) -> Vec<u8> {
        (1..=n).map(|i| self.choose(i * (GAP + 1), hash).expect("a live member")).collect()
    }
}

fn ports(range: std::ops::Range<u8>) -> PortMask {
    range.map(PortId).collect()
}

const CHOICES: [Choice; 2] = [Choice::Random, Choice::Hash];

#[test]
fn equal_seeds_choose_equally_and_others_do_not() {
    for choice in CHOICES {
        let chosen = |seed, hash| Rig::new(choice, 4, seed).flowlets(64, hash);
        assert_eq!(chosen(1, 5), chosen(1, 5), "{choice:?}");
        assert_ne!(chosen(1, 5), chosen(2, 5), "{choice:?}: alike by chance once in 4^64");
    }
    // By hash a flowlet's port follows from flow and number alone, whatever other flows do.
    let mut rig = Rig::new(Choice::Hash, 4, 1);
    let alone = Rig::new(Choice::Hash, 4, 1).flowlets(64, 5);
    let among: Vec<u8> = (1..=64u64)
        .map(|i| {
            rig.choose(i * (GAP + 1), 6);
            rig.choose(i * (GAP + 1), 5).expect("a live member")
        })
        .collect();
    assert_eq!(among, alone);
}

#[test]
fn flowlets_are_spread_evenly_and_none_depends_on_the_one_before() {
    const N: usize = 40_000;
    for choice in CHOICES {
        let mut rig = Rig::new(choice, 4, 3);
        let one_flow = rig.flowlets(N as u64, 0x1234_5678_9abc_def0);
        // First flowlets of flows with neighbouring hashes, the worst there are.
        let mut rig = Rig::new(choice, 4, 3);
        let flows: Vec<u8> = (0..4_000).map(|hash| rig.choose(1, hash).expect("a live member")).collect();
        for (what, chosen) in [("one flow's", &one_flow), ("first", &flows)] {
            // A binomial count of n at 1/4 has the deviation sqrt(3n)/4; six of them.
            let (n, mut counts) = (chosen.len() as f64, [0u32; 4]);
            chosen.iter().for_each(|port| counts[usize::from(port - 10)] += 1);
            let off = counts.iter().map(|c| (f64::from(*c) - n / 4.0).abs()).fold(0.0, f64::max);
            assert!(off < 6.0 * (3.0 * n).sqrt() / 4.0, "{choice:?}, {what} flowlets: {counts:?}");
        }
        // Pairs of one flow's flowlets: chi-square over 16 cells, about 15 degrees of freedom, whose
        // deviation is sqrt(30); six of them above the mean.
        let mut pairs = [0u32; 16];
        one_flow.windows(2).for_each(|w| pairs[usize::from((w[0] - 10) * 4 + w[1] - 10)] += 1);
        let expected = (N - 1) as f64 / 16.0;
        let chi_square: f64 = pairs.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
        assert!(chi_square < 15.0 + 6.0 * 30f64.sqrt(), "{choice:?}: {chi_square} of {pairs:?}");
    }
}

#[test]
fn a_dead_port_is_left_at_once_and_no_flowlet_returns_to_it_midway() {
    for choice in CHOICES {
        let mut rig = Rig::new(choice, 4, 9);
        let before: Vec<u8> = (0..200).map(|hash| rig.choose(0, hash).expect("a live member")).collect();
        rig.group.set_live(ports(10..14).without(PortId(11)));
        let during: Vec<u8> = (0..200).map(|hash| rig.choose(GAP, hash).expect("a live member")).collect();
        rig.group.set_live(ports(10..14));
        let after: Vec<u8> = (0..200).map(|hash| rig.choose(2 * GAP, hash).expect("a live member")).collect();
        assert!(before.contains(&11), "{choice:?}: missed by 200 flowlets once in 10^24");
        for (b, d) in before.iter().zip(&during) {
            assert!(if *b == 11 { *d != 11 } else { d == b }, "{choice:?}: from {b} to {d}");
        }
        assert_eq!(after, during, "{choice:?}");
        rig.group.set_live(PortMask::EMPTY);
        assert_eq!(rig.choose(2 * GAP, 0), None);
    }
}

#[test]
fn a_group_of_one_live_port_needs_no_flowlets() {
    let mut rig = Rig::new(Choice::Random, 2, 1);
    rig.group.set_live(PortMask::only(PortId(11)));
    assert_eq!([1, 2, 3].map(|hash| rig.choose(1, hash)), [Some(11); 3]);
    assert_eq!(rig.ingress.flowlets().occupancy(Instant(1)), 0);
    rig.group.set_live(ports(10..12));
    assert!([1, 2, 3].iter().all(|hash| rig.choose(1, *hash).is_some()));
    assert_eq!(rig.ingress.flowlets().occupancy(Instant(1)), 3);
}

proptest! {
    #[test]
    fn a_flow_keeps_its_port_until_a_gap_or_the_ports_death(
        hashed: bool,
        seed: u64,
        packets in prop::collection::vec(
            (prop_oneof![0..GAP / 4, Just(GAP), Just(GAP + 1)], 0u64..5, prop::option::weighted(0.1, 1u64..16)),
            1..300,
        ),
    ) {
        let mut rig = Rig::new(if hashed { Choice::Hash } else { Choice::Random }, 4, seed);
        let (mut now, mut live) = (0, ports(10..14));
        let mut flows: HashMap<u64, (u64, u8)> = HashMap::new();
        for (gap, hash, change) in packets {
            now += gap;
            if let Some(mask) = change {
                live = PortMask(mask << 10);
                rig.group.set_live(live);
            }
            let port = rig.choose(now, hash).expect("one port lives");
            prop_assert!(live.contains(PortId(port)));
            // A lone port is taken past the table, which does not learn of the packet.
            if live.len() > 1
                && let Some((last, old)) = flows.insert(hash, (now, port))
                && now - last <= GAP
                && live.contains(PortId(old))
            {
                prop_assert_eq!(port, old);
            }
        }
    }
}
