//! Algorithm 3: groups follow from what was reported last, whatever was lost and whatever ports come and go.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weft::config::P4teOptions;
use weft::id::PortMask;
use weft::pisa::meter::Color;

use crate::rig::{A, B, Rig};

/// Every change of depth is reported, D = 10.
fn fine(uplinks: usize) -> Rig {
    Rig::new(uplinks, P4teOptions { delta: 1, depth_step: 10, ..P4teOptions::default() }, |_| {})
}

/// The priority of a port among 4 by depth and among 3 by color; 0 for none.
fn priority(rig: &Rig, port: u8) -> (usize, usize) {
    let groups = rig.switch.control_plane().groups();
    let of = |masks: &[PortMask]| {
        let at = masks.iter().position(|m| m.contains(weft::id::PortId(port)));
        at.map_or(0, |at| masks.len() - at)
    };
    (of(&groups.depth), of(&groups.util))
}

/// Whether each port of `ports`, and no other, is in just one group of each table.
fn is_partition(rig: &Rig, ports: &[u8]) -> bool {
    let groups = rig.switch.control_plane().groups();
    let splits = |masks: &[PortMask]| {
        let mut all: Vec<u8> = masks.iter().flat_map(|m| m.iter().map(|p| p.0)).collect();
        all.sort_unstable();
        all == ports
    };
    splits(&groups.depth) && splits(&groups.util)
}

#[test]
fn a_depth_has_the_priority_of_its_range() {
    for (depth, expected) in [(0, 4), (1, 4), (10, 4), (11, 3), (20, 3), (21, 2), (30, 2), (31, 1), (100, 1)] {
        let mut rig = fine(2);
        // From elsewhere, so that 0 is reported, too.
        rig.leave(A, 55, 1);
        rig.control();
        assert_eq!(priority(&rig, A), (1, 3));
        rig.leave(A, depth, 1);
        rig.control();
        assert_eq!(priority(&rig, A), (expected, 3), "depth {depth}");
        assert_eq!(priority(&rig, B), (4, 3), "all start in the best groups");
    }
}

#[test]
fn a_color_has_its_group() {
    let mut rig = fine(2);
    for (color, expected) in [(Color::Red, 1), (Color::Green, 3), (Color::Yellow, 2), (Color::Green, 3)] {
        rig.color(B, color);
        rig.control();
        assert_eq!((priority(&rig, A), priority(&rig, B)), ((4, 3), (4, expected)), "{color}");
    }
}

#[test]
fn reports_that_are_lost_are_counted_and_made_good_by_the_next_packet() {
    let mut rig = fine(2);
    // 1,024 wait: 50, 0, 50, 0 and so on. Then each 50 is lost; 0 is what was reported last.
    for i in 0..3_000 {
        rig.leave(A, if i % 2 == 0 { 50 } else { 0 }, 1);
        rig.now = rig.now + 100_000;
    }
    let (digests, counts) = (rig.switch.digests(), rig.counts(A));
    assert_eq!((digests.sent, digests.lost), (1_024, 1_976 / 2));
    assert_eq!((counts.digests, counts.lost), (1_024, 988), "and by port");
    rig.leave(A, 35, 1);
    rig.color(A, Color::Red);
    assert_eq!(rig.busy(), [A], "what is recirculated is not lost");
    assert_eq!(rig.switch.digests().sent, 1_024);
    rig.control();
    assert_eq!(priority(&rig, A), (4, 3), "35 and red were lost");
    // Any packet, be it a hello.
    rig.leave(A, 35, 1);
    rig.control();
    assert_eq!(priority(&rig, A), (1, 1));
}

#[test]
fn a_color_that_came_and_went_while_reports_were_lost_is_over_for_ingress_too() {
    let mut rig = fine(2);
    (0..1_024).for_each(|i| rig.leave(B, if i % 2 == 0 { 50 } else { 0 }, 1));
    rig.now = rig.now + 100_000_000;
    rig.leave(B, 0, 1);
    rig.color(A, Color::Red);
    assert_eq!(rig.busy(), [A]);
    rig.color(A, Color::Green);
    assert_eq!(rig.busy(), [0u8; 0], "green again");
    rig.control();
    rig.leave(A, 0, 1);
    rig.control();
    assert_eq!(priority(&rig, A), (4, 3));
}

#[test]
fn a_report_of_a_port_that_was_removed_says_nothing_of_the_next_with_its_number() {
    let mut rig = fine(2);
    rig.leave(A, 50, 1);
    rig.color(A, Color::Red);
    rig.remove(A);
    rig.add(A);
    rig.control();
    assert_eq!((priority(&rig, A), rig.busy()), ((4, 3), vec![]));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Depth(u8, u32),
    Color(u8, bool),
    Up(u8, bool),
    Remove(u8),
    Add(u8),
    Control,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let port = || A..A + 4;
    let op = prop_oneof![
        6 => (port(), 0u32..60).prop_map(|(port, depth)| Op::Depth(port, depth)),
        3 => (port(), any::<bool>()).prop_map(|(port, red)| Op::Color(port, red)),
        1 => (port(), any::<bool>()).prop_map(|(port, up)| Op::Up(port, up)),
        1 => port().prop_map(Op::Remove),
        2 => port().prop_map(Op::Add),
        2 => Just(Op::Control),
    ];
    prop::collection::vec(op, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The ports that there are, and no others, are in one group of each table at any time; once the control plane
    /// has caught up it is the group of what the port's last packet saw.
    #[test]
    fn the_groups_split_the_ports_and_follow_what_was_seen(ops in ops()) {
        let mut rig = fine(4);
        // Depth seen last of each port, and whether it is up.
        let mut ports: BTreeMap<u8, (u32, bool)> = (A..A + 4).map(|port| (port, (0, true))).collect();
        for op in ops {
            match op {
                Op::Depth(port, depth) => {
                    if let Some((seen, true)) = ports.get_mut(&port) {
                        rig.leave(port, depth, 1);
                        *seen = depth;
                    }
                }
                Op::Color(port, red) => {
                    if let Some((_, true)) = ports.get(&port) {
                        rig.color(port, if red { Color::Red } else { Color::Green });
                    }
                }
                Op::Up(port, up) => {
                    if let Some((_, is_up)) = ports.get_mut(&port) {
                        rig.set_up(port, up);
                        *is_up = up;
                    }
                }
                Op::Remove(port) => {
                    if ports.remove(&port).is_some() {
                        rig.remove(port);
                    }
                }
                Op::Add(port) => {
                    ports.entry(port).or_insert_with(|| {
                        rig.add(port);
                        (0, true)
                    });
                }
                Op::Control => rig.control(),
            }
            let there: Vec<u8> = ports.keys().copied().collect();
            prop_assert!(is_partition(&rig, &there), "{:?} of {there:?}", rig.switch.control_plane().groups());
        }
        rig.control();
        for (port, (seen, _)) in ports {
            let expected = match seen {
                0..=10 => 4,
                11..=20 => 3,
                21..=30 => 2,
                _ => 1,
            };
            prop_assert_eq!(priority(&rig, port).0, expected, "port {} saw {}", port, seen);
        }
    }
}
