//! Algorithm 1 on queue depths, and how many reports it can make.

use proptest::prelude::*;
use weft::config::P4teOptions;

use crate::rig::{A, B, Rig, SHORT, What};

fn rig() -> Rig {
    Rig::new(2, P4teOptions { delta: 10, ..P4teOptions::default() }, |_| {})
}

fn depths(rig: &Rig, port: u8) -> (u64, u64, u64) {
    (rig.counts(port).increases, rig.counts(port).decreases, rig.reported(port).1)
}

#[test]
fn figure_3_of_the_paper() {
    let mut rig = rig();
    rig.leave(A, 30, 1);
    rig.leave(B, 40, 1);
    assert_eq!((depths(&rig, A), depths(&rig, B)), ((1, 0, 30), (1, 0, 40)));
    rig.leave(A, 39, 1);
    assert_eq!(depths(&rig, A), (1, 0, 30), "P1 sees 39: silent");
    rig.leave(A, 40, 1);
    assert_eq!(depths(&rig, A), (2, 0, 40), "P2 sees 40: increase");
    rig.leave(B, 31, 1);
    assert_eq!(depths(&rig, B), (1, 0, 40), "31 is less than delta away");
    rig.leave(B, 30, 1);
    assert_eq!(depths(&rig, B), (1, 1, 30), "P3 sees 30: decrease");
}

#[test]
fn an_idle_port_reports_nothing_in_a_million_packets() {
    let mut rig = Rig::new(2, P4teOptions::default(), |c| (c.cir, c.pir) = (1_000_000, 1_000_000));
    for _ in 0..1_000 {
        // 12,000 B each 100 ms: the link is not busy.
        rig.now = rig.now + 100_000_000;
        rig.leave(A, 0, 1_000 / 8);
        rig.now = rig.now + 100_000_000;
        rig.leave(A, 0, 1_000 / 8);
    }
    // The rest at once, so that the link is busy: that has a report of its own, depth has none.
    rig.leave(A, 0, 750_000);
    let counts = rig.counts(A);
    assert_eq!((counts.packets, counts.increases, counts.decreases), (1_000_000, 0, 0));
    assert_eq!(counts.colors, 1, "of 750,000 packets at once");
}

#[test]
fn a_triangle_wave_of_four_deltas_makes_eight_reports_a_period() {
    let mut rig = rig();
    for period in 1..=25 {
        for depth in (0..=40).chain((0..40).rev()) {
            rig.leave(A, depth, 1);
        }
        // At 10, 20, 30, 40 and at 30, 20, 10, 0.
        assert_eq!(depths(&rig, A), (4 * period, 4 * period, 0));
    }
}

/// A queue: packets join it, then as many as it has or less leave.
fn queue() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let step = prop_oneof![
        (Just(0u32), 0u32..60),
        (0u32..60, Just(0u32)),
        (0u32..4, 0u32..4),
        // As fast as reports of an increase can come: delta packets for each that leaves.
        (Just(11u32), Just(1u32)),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Between two reports of depths that differ by delta, as many packets have joined (an increase) or left (a
    /// decrease), and no packet counts for two. So there is at most one report of an increase per delta packets
    /// that join and one of a decrease per delta that leave: "one per delta packets" holds each way. Together they
    /// can be two, of a queue that fills at once and then drains: the paper's micro-burst.
    #[test]
    fn reports_of_depth_are_at_most_one_per_delta_packets_each_way(delta in 1u32..20, steps in queue()) {
        let mut rig = Rig::new(2, P4teOptions { delta, ..P4teOptions::default() }, |_| {});
        let (mut depth, mut joined, mut left) = (0, 0u64, 0u64);
        for (join, leave) in steps {
            depth += join;
            joined += u64::from(join);
            for _ in 0..leave.min(depth) {
                depth -= 1;
                left += 1;
                rig.leave(A, depth, 1);
            }
            let (delta, counts) = (u64::from(delta), rig.counts(A));
            prop_assert!(counts.increases <= joined / delta, "{} of {joined}", counts.increases);
            prop_assert!(counts.decreases <= left / delta, "{} of {left}", counts.decreases);
            prop_assert_eq!(counts.digests, counts.increases + counts.decreases + counts.colors);
        }
    }

    /// A rate counts as exceeded once its bucket has been emptied, and no more once it is full again: each time
    /// takes a whole burst of bytes. Two changes a time, of two rates.
    #[test]
    fn reports_of_color_are_at_most_four_per_burst(
        steps in prop::collection::vec((30usize..1_400, prop_oneof![Just(0u64), 0u64..200_000, 0u64..3_000_000]), 1..300),
    ) {
        const BURST: u64 = 12_500;
        let mut rig = rig();
        let mut on_wire = 0;
        for (len, gap) in steps {
            rig.now = rig.now + gap;
            rig.send(What { len, ..What::new(SHORT, false, 1) }, Some(A), Some(0));
            on_wire += len as u64 + 42 + 24;
            prop_assert!(rig.counts(A).colors <= 4 * (on_wire / BURST), "{:?} of {on_wire} B", rig.counts(A));
        }
    }
}
