//! Algorithm 2: where a flowlet goes.

use weft::config::{DscpSet, P4teOptions};
use weft::id::PortId;
use weft::pisa::meter::Color::{self, Green, Red, Yellow};
use weft::scheme::p4te::P4teConfig;
use weft::time::SECONDS;

use crate::rig::{A, B, LARGE, Rig, SHORT, What};

const GAP: u64 = 100_000;

fn rig_with(change: impl FnOnce(&mut P4teConfig)) -> Rig {
    Rig::new(2, P4teOptions::default(), |config| {
        config.flowlet_gap = GAP;
        change(config);
    })
}

/// Depth prefers A, utilisation B: A is red and its queue empty, B is green and its queue long.
fn split(mut rig: Rig) -> Rig {
    rig.leave(B, 50, 1);
    rig.color(A, Red);
    rig.control();
    rig
}

/// The port that eight new flows take.
fn port_of(rig: &mut Rig, dscp: u8, v6: bool) -> u8 {
    let ports: Vec<_> = (100..108).map(|flow| rig.ask(What::new(dscp, v6, flow))).collect();
    assert!(ports.iter().all(|p| *p == ports[0]), "{ports:?}");
    ports[0].expect("forwarded")
}

#[test]
fn every_row_of_the_table_of_classes_and_colors() {
    for v6 in [false, true] {
        for (color, expected) in [(Green, B), (Yellow, A), (Red, A)] {
            for dscp in [5, 6] {
                let mut rig = split(rig_with(|_| {}));
                // The groups know nothing of it yet: what is preferred stays so.
                rig.color(B, color);
                assert_eq!(port_of(&mut rig, dscp, v6), expected, "large, B {color}");
            }
        }
        for (color, expected) in [(Green, A), (Yellow, B), (Red, B)] {
            for dscp in [0, 1, 4, 7, 46, 63] {
                let mut rig = split(rig_with(|_| {}));
                rig.color(A, color);
                assert_eq!(port_of(&mut rig, dscp, v6), expected, "DSCP {dscp}, A {color}");
            }
        }
    }
}

#[test]
fn which_tags_are_large_can_be_chosen() {
    let mut large_dscp = DscpSet::default();
    [10, 63].iter().for_each(|dscp| assert!(large_dscp.insert(*dscp)));
    for v6 in [false, true] {
        for (dscp, expected) in [(10, B), (63, B), (5, A), (6, A), (11, A)] {
            let mut rig = split(Rig::new(2, P4teOptions { large_dscp, ..P4teOptions::default() }, |_| {}));
            rig.color(A, Green);
            assert_eq!(port_of(&mut rig, dscp, v6), expected, "DSCP {dscp}");
        }
    }
}

#[test]
fn without_tags_a_flow_is_large_once_it_has_sent_enough() {
    let mut rig = split(rig_with(|c| c.large_after = 10_000));
    rig.color(A, Green);
    let what = What { len: 1_000 - 42, ..What::new(SHORT, false, 200) };
    for sent in 0..12 {
        // Later than the gap: each packet is a flowlet. A and B stay green.
        rig.now = rig.now + 10_000_000;
        // 10,000 B are short, the next packet is past them.
        let expected = if sent < 10 { A } else { B };
        assert_eq!(rig.ask(what), Some(expected), "packet {sent}");
    }
    rig.now = rig.now + 2 * SECONDS;
    assert_eq!(rig.ask(what), Some(A), "silent for more than a second: counted anew");
    assert_eq!(rig.ask(What::new(SHORT, false, 201)), Some(A), "another flow");
}

#[test]
fn a_color_event_holds_for_the_next_flowlet_not_for_those_under_way() {
    let mut rig = split(rig_with(|_| {}));
    let (old, new) = (What::new(LARGE, false, 300), What::new(LARGE, false, 301));
    assert_eq!(rig.ask(old), Some(B));
    rig.color(B, Red);
    assert_eq!(rig.busy(), [A, B], "at once, before the control plane knows");
    assert_eq!(rig.ask(old), Some(B), "under way");
    assert_eq!(rig.ask(new), Some(A), "begun since");
    rig.now = rig.now + GAP;
    assert_eq!(rig.ask(old), Some(B), "the gap itself does not end it");
    rig.now = rig.now + GAP + 1;
    assert_eq!(rig.ask(old), Some(A), "a flowlet of its own");
    assert_eq!(rig.ask(new), Some(A));
}

#[test]
fn with_all_ports_alike_flows_are_spread_as_by_ecmp() {
    const FLOWS: u16 = 4_000;
    for dscp in [SHORT, LARGE] {
        let mut rig = Rig::new(4, P4teOptions::default(), |_| {});
        // Flows that each port would get by the route's hash alone, as ECMP does.
        let mut spread = [0u32; 4];
        for flow in 0..FLOWS {
            // Slow enough that all stays green.
            rig.now = rig.now + 1_000_000;
            let port = rig.ask(What::new(dscp, flow % 2 == 1, flow)).expect("forwarded");
            spread[usize::from(port - A)] += 1;
        }
        assert_eq!(rig.busy(), [0u8; 0]);
        let even = f64::from(FLOWS) / 4.0;
        let chi2: f64 = spread.iter().map(|n| (f64::from(*n) - even).powi(2) / even).sum();
        // Three degrees of freedom: a sound hash is above this once in 10^4 runs.
        assert!(chi2 < 21.11, "{spread:?}: chi-square {chi2}");
    }
}

#[test]
fn a_port_that_is_down_leaves_all_groups_at_once() {
    for (dscp, preferred, left) in [(SHORT, A, B), (LARGE, B, A)] {
        let mut rig = split(rig_with(|_| {}));
        rig.color(A, Green);
        let flow = What::new(dscp, false, 400);
        assert_eq!(rig.ask(flow), Some(preferred));
        rig.set_up(preferred, false);
        assert_eq!(rig.ask(flow), Some(left), "even in its flowlet");
        assert_eq!(port_of(&mut rig, dscp, true), left, "the best group has nobody else");
        rig.set_up(left, false);
        let dropped = |rig: &Rig| {
            let ledger = rig.switch.ledger();
            ledger.ports.iter().map(|(c, _)| c.drops().get(weft::counters::DropReason::EmptyGroup)).sum::<u64>()
        };
        assert_eq!((rig.ask(flow), rig.ask(What::new(dscp, true, 401)), dropped(&rig)), (None, None, 2));
        rig.set_up(preferred, true);
        assert_eq!(port_of(&mut rig, dscp, false), preferred, "back where it was");
    }
}

#[test]
fn a_clock_that_jumps_ahead_ends_flowlets_and_fills_buckets_once() {
    let mut rig = split(rig_with(|_| {}));
    let flow = What::new(LARGE, false, 500);
    assert_eq!(rig.ask(flow), Some(B));
    let before = (rig.counts(A).colors, rig.counts(B).colors);
    rig.now = rig.now + 2 * SECONDS;
    // A is red until a packet leaves by it; so a large flow still takes B, a short one, too.
    assert_eq!((rig.ask(flow), port_of(&mut rig, SHORT, false)), (Some(B), B));
    rig.leave(A, 0, 1);
    rig.control();
    assert_eq!((rig.counts(A).colors, rig.counts(B).colors), (before.0 + 1, before.1), "one event of the red port");
    assert_eq!(rig.reported(A), ("green".into(), 0));
    // A burst is a burst however long the link was idle.
    rig.color(A, Red);
    assert_eq!(rig.reported(A).0, "red");
}

#[test]
fn flows_that_share_a_slot_share_its_flowlet() {
    let mut rig = split(rig_with(|c| c.flow_slots = 1));
    rig.color(A, Green);
    let (short, large) = (What::new(SHORT, false, 600), What::new(LARGE, false, 601));
    assert_eq!(rig.ask(short), Some(A));
    assert_eq!(rig.ask(large), Some(A), "the flowlet of the other, whose class it has not");
    rig.now = rig.now + GAP;
    assert_eq!(rig.ask(large), Some(A));
    rig.now = rig.now + GAP;
    assert_eq!(rig.ask(short), Some(A), "each keeps it alive");
    rig.now = rig.now + GAP + 1;
    assert_eq!(rig.ask(large), Some(B), "after a gap of both, its own");
}

#[test]
fn the_colors_are_what_they_are_called() {
    for color in [Green, Yellow, Red, Green] {
        let mut rig = rig_with(|_| {});
        rig.color(A, color);
        assert_eq!(rig.reported(A).0, color.name());
        assert_eq!(rig.busy().contains(&A), color != Color::Green);
        assert_eq!(rig.switch.ledger().ports[PortId(A).index()].1, 0, "nothing waits");
    }
}
