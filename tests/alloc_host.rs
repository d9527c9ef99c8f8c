//! PL2's host takes no memory once it has held as much before.

mod counting;

use std::sync::atomic::Ordering;

use counting::ALLOCATIONS;
use weft::scheme::pl2::host::{Action, ConnKey, Enqueued, Host, HostConfig};
use weft::time::{Instant, MICROS};
use weft::wire::MacAddr;
use weft::wire::pl2::{Control, Flags, Kind, Shim};

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const CONNECTIONS: u64 = 40;

/// Frames of new connections, requests that are granted, refused, lost or granted twice, a few restarts, and bursts of
/// others that are announced and come or don't.
fn round(host: &mut Host<u64>, now: &mut Instant, round: u64, asked: &mut Vec<Control>) {
    for flow in round * CONNECTIONS..(round + 1) * CONNECTIONS {
        for frame in 0..6 {
            let taken = host.enqueue(*now, ConnKey { dst: PEER, flow }, 500 + 200 * frame as u32, frame);
            assert_eq!(taken, Enqueued::Parked);
        }
    }
    for tick in 0..6_000u64 {
        *now = *now + 5 * MICROS;
        host.poll(*now, |action| {
            if let Action::Send { control, .. } = action
                && control.kind == Kind::Rsv
            {
                asked.push(control);
            }
        });
        for (i, rsv) in asked.iter().enumerate() {
            let flags = Flags {
                nack: (tick + i as u64).is_multiple_of(9),
                clock: rsv.conn.is_multiple_of(2),
                ..Flags::default()
            };
            let epoch = 1 + (round / 8) as u16;
            let t_out = (tick % 30) as u32;
            let grant = Control { kind: Kind::Grt, flags, epoch, t_out, t_sw: now.0, slot_ns: 1000, ..*rsv };
            match tick % 7 {
                0 => {}
                1 => (0..2).for_each(|_| _ = host.control(*now, PEER, &grant)),
                _ => _ = host.control(*now, PEER, &grant),
            }
            let conn = rsv.conn + round as u32;
            host.control(*now, PEER, &Control { kind: Kind::Ntf, conn, ..grant });
            host.arrived(PEER, Shim::new(conn, true, tick.is_multiple_of(3)));
        }
        asked.clear();
    }
    assert_eq!((host.parked(), host.connections()), (0, 0), "6,000 ticks of 5 us are enough for all");
}

#[test]
fn queueing_reserving_and_sending_allocate_nothing() {
    let config = HostConfig { depth: 2, ..HostConfig::default() };
    let mut host = Host::new(&config).expect("a configuration in its ranges");
    let (mut now, mut asked) = (Instant::ZERO, Vec::with_capacity(1000));
    (0..8).for_each(|i| round(&mut host, &mut now, i, &mut asked));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (8..32).for_each(|i| round(&mut host, &mut now, i, &mut asked));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    let counters = host.stats().counters;
    assert_eq!((counters.restarts, counters.sent), (3, 32 * CONNECTIONS * 6));
    for (what, count) in [
        ("retries", counters.retries),
        ("refusals", counters.nacks),
        ("bursts given up", counters.given_up),
        ("stale grants", counters.stale),
        ("resets", counters.resets),
    ] {
        assert!(count > 0, "no {what}: {counters:?}");
    }
}
