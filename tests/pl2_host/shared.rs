//! More connections than a host has places for.

use proptest::prelude::*;

use super::*;

/// 16 places, of which 2 are shared: connections to one destination by the value of their flow modulo 4.
fn sixteen() -> Rig {
    Rig::new(HostConfig { max_connections: 16, ..HostConfig::default() })
}

/// Grants all that is asked for, until nothing is.
fn serve(rig: &mut Rig, mut now: u64) -> u64 {
    for _ in 0..10_000 {
        let asked: Vec<Control> = rig.poll(now).iter().map(|(_, rsv)| *rsv).collect();
        for rsv in asked {
            rig.control(now, &grant(&rsv, (0, 0), now + 1));
        }
        match rig.next() {
            Some(next) => now = now.max(next),
            None => return now,
        }
    }
    panic!("it does not end");
}

#[test]
fn connections_beyond_seven_eighths_share_places_and_get_their_own_when_these_are_free() {
    let mut rig = sixteen();
    // 14 have their own; of the others, those of 4n + 2 and 4n + 3 share one each, and no more is left.
    for flow in 0..40u64 {
        let offered = rig.host.enqueue(Instant(0), key(9, flow), FULL, flow);
        let expected = if flow < 14 || flow % 4 > 1 { Enqueued::Parked } else { Enqueued::Dropped(flow) };
        assert_eq!(offered, expected, "flow {flow}");
    }
    assert_eq!(rig.host.connections(), 16);
    assert_eq!(rig.host.stats().counters.dropped_connections, 12);
    let now = serve(&mut rig, 0);
    assert_eq!(rig.released.len(), 28);
    assert_eq!((rig.host.connections(), rig.host.parked(), rig.host.outstanding()), (0, 0, 0));
    // They are asked for apart again.
    for flow in 14..18 {
        rig.enqueue(now, key(9, flow), [flow]);
    }
    assert_eq!(rig.host.connections(), 4);
}

proptest! {
    /// I10: whoever shares with whom, and whenever, a connection's frames leave in their order.
    #[test]
    fn order_is_kept_by_who_shares(offers in prop::collection::vec((0u8..3, 0u64..30, 0u64..4), 1..400)) {
        let mut rig = sixteen();
        let (mut now, mut taken) = (0, vec![]);
        for (number, (dst, flow, pause)) in offers.into_iter().enumerate() {
            if rig.host.enqueue(Instant(now), key(dst, flow), FULL, number as u64) == Enqueued::Parked {
                taken.push((dst, flow, number as u64));
            }
            if pause == 0 {
                // One round of grants, which empties some places and not others.
                let asked: Vec<Control> = rig.poll(now).iter().map(|(_, rsv)| *rsv).collect();
                for rsv in asked.iter().take(3) {
                    rig.control(now, &grant(rsv, (0, 0), now + 1));
                }
            }
            now += pause * SLOT;
            rig.run(now);
        }
        // Requests that were not answered are sent again.
        serve(&mut rig, now);
        let left: Vec<u64> = rig.released.iter().map(|(_, frame, _)| *frame).collect();
        prop_assert_eq!(left.len(), taken.len());
        for flow in taken.iter().map(|(dst, flow, _)| (*dst, *flow)) {
            let of_flow = |frame: &&u64| taken.iter().any(|t| t.2 == **frame && (t.0, t.1) == flow);
            let order: Vec<_> = left.iter().filter(of_flow).collect();
            prop_assert!(order.is_sorted(), "{:?}: {:?}", flow, order);
        }
        prop_assert_eq!((rig.host.connections(), rig.host.parked()), (0, 0));
    }
}
