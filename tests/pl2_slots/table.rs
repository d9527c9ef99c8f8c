//! The figures of the design's own simulation (sections 1.4 and 8), which was another program: N = 6, K = 4, D = 1.

use super::setup::{Feed, Setup};
use super::{INCAST, MODES, SHUFFLE, run};

/// Expected use of the busiest output and its longest queue, in the order counter, clock, window.
type Row = (&'static str, Feed, u16, u64, u64, [Option<(f64, u64)>; 3]);

/// What the design gives. It has no figures for the window but in random traffic.
const ROWS: [Row; 5] = [
    ("shuffle", SHUFFLE, 20, 4, 0, [Some((0.91, 13)), Some((1.00, 14)), None]),
    ("random", Feed::Random, 20, 4, 0, [Some((0.83, 28)), Some((0.98, 66)), Some((0.97, 2))]),
    ("random", Feed::Random, 20, 40, 0, [Some((0.63, 24)), Some((0.97, 34)), Some((0.94, 2))]),
    ("incast", INCAST, 20, 40, 0, [Some((0.905, 2)), Some((1.00, 2)), None]),
    ("incast", INCAST, 5, 8, 16, [Some((0.76, 23)), Some((1.00, 39)), None]),
];

#[test]
fn use_and_queues_are_those_of_the_designs_simulation() {
    println!(
        "{:8} {:>2} {:>3} {:>6} {:8} {:>6} {:>8} {:>6} {:>8}",
        "pattern", "P", "R", "jitter", "mode", "use", "expected", "queue", "expected"
    );
    let mut wrong = vec![];
    for (name, feed, flows, rtt, jitter, expected) in ROWS {
        for (mode, expected) in MODES.into_iter().zip(expected) {
            let sim = run(Setup { jitter, ..Setup::new(mode, flows, rtt, feed) }, 2_000, 20_000);
            let (used, depth) = (sim.utilisation(), sim.depth());
            let (e_used, e_depth) =
                expected.map_or(("".into(), "".into()), |(u, d)| (format!("{u:.3}"), d.to_string()));
            let line = format!(
                "{name:8} {flows:2} {rtt:3} {jitter:6} {:8} {used:6.3} {e_used:>8} {depth:6} {e_depth:>8}",
                mode.name()
            );
            println!("{line}");
            sim.assert_bound();
            let Some((e_used, e_depth)) = expected else { continue };
            // Two frames are exact. Longer queues are the maximum of a random walk, here another one.
            let queue_fits = match e_depth {
                2 => depth <= 2,
                _ => (depth as f64 / e_depth as f64 - 1.0).abs() <= 0.35,
            };
            if (used - e_used).abs() > 0.03 || !queue_fits {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}
