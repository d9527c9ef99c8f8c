//! I3, I4 and I5: how long queues get, and what is dropped.

use proptest::prelude::*;
use weft::rng::Rng;
use weft::scheme::pl2::SlotMode;
use weft::scheme::pl2::host::HostConfig;

use super::lengths::{Lengths, workloads};
use super::setup::{Feed, SLOT, Setup};
use super::sim::Sim;
use super::{INCAST, MODES, OUTCAST, SHUFFLE, run};

fn setup() -> impl Strategy<Value = Setup> {
    let patterns = [INCAST, OUTCAST, SHUFFLE, Feed::Random];
    let sizes = (1u16..17, 1u16..25, 0u64..81);
    (prop::sample::select(&MODES[..]), sizes, prop::sample::select(patterns.to_vec()), 1u64..1000).prop_map(
        |(mode, (max_burst, flows, rtt), feed, seed)| {
            let plain = Setup::new(mode, flows, rtt, feed);
            Setup { config: HostConfig { max_burst, ..plain.config }, seed, ..plain }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// I3. With jitter J, an incast's queue is at most 2 + J.
    #[test]
    fn incasts_and_outcasts_queue_two_frames(setup in setup(), jitter in prop::sample::select(vec![0u64, 0, 3])) {
        for feed in [INCAST, OUTCAST] {
            let is_incast = matches!(feed, Feed::Saturated(to) if to(1, 0) == 0);
            let jitter = if is_incast { jitter } else { 0 };
            let sim = run(Setup { feed, jitter, ..setup }, 0, 1_500);
            prop_assert!(sim.frames_out > 0);
            prop_assert!(sim.depth() <= 2 + sim.jitter, "{} frames, jitter {}", sim.depth(), sim.jitter);
        }
    }

    /// I4, in every pattern and mode.
    #[test]
    fn queues_are_bounded_by_how_far_apart_the_two_slots_of_grants_are(
        setup in setup(),
        jitter in prop::sample::select(vec![0u64, 0, 3, 10]),
    ) {
        run(Setup { jitter, ..setup }, 0, 1_500).assert_bound();
    }
}

/// I4's adversary: m = 5 senders first reserve L = 40 slots each at an output of their own, then all reserve r bursts of
/// K = 4 at output 0. Their inputs hold them all back until L is over: 1 + min((m - 1) K r, L) frames meet there, and the one that has just been sent, which counts here.
#[test]
fn the_bound_is_met_by_senders_that_load_their_inputs_elsewhere_first() {
    for (bursts, expected) in [(1, 18), (2, 34), (3, 42), (6, 42)] {
        let feed = Feed::Once(|host, flow| match (host, flow) {
            (1..=5, 0..10) => host + 5,
            (1..=5, _) => 0,
            _ => host,
        });
        for mode in [SlotMode::Counter, SlotMode::Clock] {
            let sim = run(Setup { hosts: 11, ..Setup::new(mode, 10 + bursts, 8, feed) }, 0, 1_000);
            assert_eq!(sim.frames_out, 5 * 4 * (10 + u64::from(bursts)));
            assert_eq!(sim.seen[0].depth, expected, "{} {bursts} bursts", mode.name());
            sim.assert_bound();
        }
    }
}

/// Four senders for each receiver, 200 kB of buffer (130 full frames), hosts as they are by default.
fn rack(lengths: Lengths, to: fn(u8, u16, &mut Rng) -> u8, load: f64, unscheduled: bool) -> Sim {
    let feed = Feed::Messages { load, until: 4_000 * SLOT, to, lengths };
    let plain = Setup::new(SlotMode::Counter, 8, 8, feed);
    let config = HostConfig { max_queue: 1 << 16, max_parked: 1 << 16, ..HostConfig::default() };
    let mut sim = Sim::new(Setup { hosts: 5, buffer: 130, config, unscheduled, ..plain });
    sim.run(60_000 * SLOT);
    sim
}

/// I5. By default a host has at most 32 slots outstanding: four have 128, which the buffer holds. In an outcast one link
/// feeds all others, and nothing can overflow.
#[test]
fn nothing_is_dropped_where_the_same_load_without_slots_overflows_the_buffer() {
    type Pattern = (&'static str, fn(u8, u16, &mut Rng) -> u8, f64);
    let patterns: [Pattern; 4] = [
        ("incast", |_, _, _| 0, 1.0),
        ("outcast", |host, flow, _| if host == 0 { 1 + (flow % 4) as u8 } else { host }, 1.0),
        ("shuffle", |host, flow, _| (host + 1 + (flow % 4) as u8) % 5, 0.95),
        ("random", |host, _, rng| (host + 1 + rng.below(4) as u8) % 5, 0.95),
    ];
    println!("messages pattern  frames  PL2 queue  drops: PL2  unscheduled");
    for lengths in workloads() {
        for (pattern, to, load) in patterns {
            let (with, without) = (rack(lengths, to, load, false), rack(lengths, to, load, true));
            assert_eq!(with.frames_in, without.frames_in, "the same load");
            assert!(with.frames_in > 1_000);
            let longest = with.seen.iter().map(|seen| seen.depth_full).fold(0.0, f64::max);
            let name = lengths.name;
            let (frames, drops, drops_without) = (with.frames_in, with.dropped(), without.dropped());
            println!("{name:8} {pattern:8} {frames:6} {longest:10.1} {drops:11} {drops_without:12}");
            assert_eq!(drops, 0, "{name} {pattern}");
            with.assert_at_rest();
            // Half of what comes beyond the link's rate, by a wide margin.
            let expected = match pattern {
                "incast" => frames / 4..frames,
                "outcast" => 0..1,
                _ => 0..frames / 4,
            };
            assert!(expected.contains(&drops_without), "{name} {pattern}: {drops_without} of {frames} unscheduled");
        }
    }
}
