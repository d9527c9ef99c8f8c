//! I11: who gets how much.

use weft::scheme::pl2::SlotMode;
use weft::scheme::pl2::host::HostConfig;

use super::setup::{Feed, Setup};
use super::{INCAST, MODES, run};

/// Design, 2.2, with N = D K slots outstanding: by the clock N / (R + K) of an idle path, at most all of it. Where slots
/// are counted they are as long in the register as on the way, which makes it N / (R + N), Little's law (2.3).
#[test]
fn one_flow_has_what_its_reservations_allow() {
    let feed = Feed::Saturated(|host, _| if host == 0 { 1 } else { host });
    for (depth, max_burst, rtt, by_counter, by_clock) in [
        (1, 4, 40, 4.0 / 44.0, 4.0 / 44.0),
        (5, 4, 40, 20.0 / 60.0, 20.0 / 44.0),
        (16, 4, 40, 64.0 / 104.0, 1.0),
        (1, 4, 2, 4.0 / 6.0, 4.0 / 6.0),
        (1, 20, 40, 20.0 / 60.0, 20.0 / 60.0),
    ] {
        for mode in MODES {
            let expected = if mode == SlotMode::Counter { by_counter } else { by_clock };
            let plain = Setup::new(mode, 1, rtt, feed);
            let config = HostConfig { depth, max_burst, ..plain.config };
            let used = run(Setup { config, ..plain }, 1_000, 11_000).utilisation();
            // A round more or less of the 10,000 slots.
            let what = format!("{} D {depth} K {max_burst} R {rtt}: {used:.4}", mode.name());
            assert!((used - expected).abs() < 0.005, "{what}, expected {expected:.4}");
        }
    }
}

#[test]
fn equal_senders_have_equal_shares_and_together_what_littles_law_says() {
    for mode in MODES {
        for (flows, rtt) in [(1, 10), (1, 80), (5, 40), (20, 40)] {
            let setup = Setup::new(mode, flows, rtt, INCAST);
            let k = u64::from(setup.config.max_burst);
            let sim = run(setup, 2_000, 12_000);
            let shares = || sim.delivered[1..].iter().flatten();
            let spread = shares().max().expect("senders") - shares().min().expect("senders");
            let used = sim.utilisation();
            // N slots outstanding of 5 senders.
            let n = (5 * u64::from(flows) * k) as f64;
            let least = match mode {
                SlotMode::Counter => 0.95 * n / (n + rtt as f64),
                SlotMode::Clock | SlotMode::Window => 0.98 * (n / (rtt + k) as f64).min(1.0),
            };
            let what = format!("{} P {flows} R {rtt}: use {used:.3}, least {least:.3}, spread {spread}", mode.name());
            assert!(used >= least && spread <= k, "{what}");
        }
    }
}
