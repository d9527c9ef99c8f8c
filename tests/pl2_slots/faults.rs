//! I7, I8 and I9: links that lose and delay, hosts that die, a switch that starts anew.

use proptest::prelude::*;
use weft::id::PortId;
use weft::scheme::pl2::SlotMode;
use weft::scheme::pl2::host::HostConfig;

use super::lengths::workloads;
use super::setup::{Feed, SLOT, Setup};
use super::sim::Sim;
use super::{INCAST, MODES};

/// 1 ms in slots.
const MILLI: u64 = 1_000;

/// Host 1 of five senders dies at slot 1,000. Counts from `warm` on.
fn crash(notify: bool, sweep: bool, warm: u64) -> Sim {
    let plain = Setup::new(SlotMode::Counter, 5, 8, INCAST);
    // So that a receiver's patience is 1 ms: (16 + 2 * 100) slots are less.
    let config = HostConfig { late_max: 16, max_outstanding: 100, ..plain.config };
    let mut sim = Sim::new(Setup { notify, sweep, config, ..plain });
    sim.warm = warm * SLOT;
    sim.crash(1, 1_000 * SLOT);
    sim
}

/// A window ends at most 25 bursts of 4 after its grant, and a round trip: 120 slots. The switch takes back 2 ms later.
/// Windows that were granted before that are used within another 120 slots.
#[test]
fn a_dead_sender_is_out_of_the_way_within_its_deadline() {
    let settled = 1_000 + 2 * 120 + 2 * MILLI;
    let mut sim = crash(false, true, settled);
    sim.run(1_500 * SLOT);
    let (held, _) = sim.registers(1);
    assert!(held >= 4, "it had reserved");
    sim.run(2 * settled * SLOT);
    assert_eq!(sim.registers(1).0, 0);
    assert!(sim.book.port(PortId(1)).counters.timeouts > 0);

    // As if it had never been there.
    let four = Feed::Saturated(|host, _| if host == 1 { 1 } else { 0 });
    let mut reference = Sim::new(Setup { feed: four, ..sim.setup });
    reference.warm = settled * SLOT;
    reference.run(2 * settled * SLOT);
    assert_eq!(sim.seen[0].t_out, reference.seen[0].t_out, "least and most t_out of the others' grants");

    // The control group: what nobody takes back is in the way for ever.
    let mut left = crash(false, false, settled);
    left.run(2 * settled * SLOT);
    assert_eq!(left.registers(1).0, held);
    let least = |sim: &Sim| sim.seen[0].t_out.expect("grants").0;
    assert!(least(&left) >= least(&reference) + held, "{} with {held} held, {}", least(&left), least(&reference));
}

/// Section 3b and c: the receiver does so a millisecond earlier, and nobody who lives is reset.
#[test]
fn the_receiver_takes_back_what_a_dead_sender_holds_before_the_switch_does() {
    let mut sim = crash(true, true, 0);
    sim.run(1_300 * SLOT);
    let held = sim.book.pending().filter(|pending| pending.ingress == PortId(1)).count() as u64;
    assert!(held > 0);
    sim.run((1_000 + 120 + MILLI) * SLOT);
    assert_eq!(sim.registers(1).0, 0);
    sim.run(6 * MILLI * SLOT);
    let counters = sim.book.port(PortId(1)).counters;
    assert_eq!((counters.resets, counters.timeouts), (held, 0));
    assert_eq!(sim.host(0).stats().counters.resets, held, "the living are not reset");
}

/// Section 3g: frames that were under way are rogue, and arrive; the rest is reserved again.
#[test]
fn a_restart_of_the_switch_loses_nothing() {
    for mode in MODES {
        let to = |host: u8, _, rng: &mut weft::rng::Rng| (host + 1 + rng.below(5) as u8) % 6;
        let feed = Feed::Messages { load: 0.6, until: 3_000 * SLOT, to, lengths: workloads()[2] };
        let mut sim = Sim::new(spacious(Setup::new(mode, 6, 8, feed)));
        (1..4).for_each(|i| sim.restart(i * 700 * SLOT));
        sim.run(100 * MILLI * SLOT);
        sim.assert_at_rest();
        assert_eq!((sim.lost, sim.dropped()), (0, 0));
        let voided: u64 = (0..6).map(|host| sim.host(host).stats().counters.voided).sum();
        assert!(voided > 0 && (0..6).all(|host| sim.host(host).epoch() == 4), "{}: {voided} voided", mode.name());
    }
}

/// Room for whatever comes.
fn spacious(setup: Setup) -> Setup {
    let config = HostConfig { max_queue: 1 << 16, max_parked: 1 << 16, ..setup.config };
    Setup { config, ..setup }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// I7 and I8. Requests, grants, announcements, resets and frames are lost, bursts are late, the switch starts anew.
    #[test]
    fn what_is_not_lost_arrives_in_order_and_all_registers_return_to_zero(
        mode in prop::sample::select(&MODES[..]),
        (max_burst, depth, flows) in (1u16..9, 1u8..4, 1u16..8),
        (workload, loss, jitter) in (0usize..5, prop::sample::select(vec![0.001, 0.01, 0.1]), 0u64..10),
        (notify, restart, rtt, seed) in (any::<bool>(), any::<bool>(), 0u64..60, 1u64..1000),
        max_outstanding in 1u32..60,
    ) {
        let to = |host: u8, _, rng: &mut weft::rng::Rng| (host + 1 + rng.below(5) as u8) % 6;
        let feed = Feed::Messages { load: 0.3, until: 500 * SLOT, to, lengths: workloads()[workload] };
        let plain = spacious(Setup::new(mode, flows, rtt, feed));
        let config = HostConfig { max_burst, depth, max_outstanding, late_max: 16, ..plain.config };
        let mut sim = Sim::new(Setup { config, loss, jitter, notify, seed, ..plain });
        if restart {
            sim.restart(300 * SLOT);
        }
        sim.run(3_000 * MILLI * SLOT);
        sim.assert_at_rest();
        prop_assert_eq!(sim.dropped(), 0);
    }
}
