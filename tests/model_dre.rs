//! Discounting rate estimators against arithmetic by hand, and against one that a timer decays.

use proptest::prelude::*;
use weft::pisa::dre::{Decay, Dre, UNPACED, period};
use weft::time::{Instant, MICROS, MILLIS, SECONDS};
use weft::units::BitRate;

const GBIT: BitRate = BitRate(1_000_000_000);
/// CAFT's: T = 20 us and alpha = 0.1, so tau = 200 us.
const T: u64 = 20 * MICROS;
const ALPHA: u32 = 100_000;

fn dre(rate: BitRate, period: u64) -> Dre {
    Dre::new(rate, period, &Decay::new(ALPHA))
}

fn ten_gbit() -> Dre {
    dre(UNPACED, T)
}

#[test]
fn powers_are_rounded_to_32_bits_and_end_where_they_are_nothing() {
    let decay = Decay::new(ALPHA);
    // 0.9^n * 2^32 for n = 0 to 3.
    assert_eq!([0, 1, 2, 3].map(|n| decay.power(n)), [1 << 32, 3_865_470_566, 3_478_923_510, 3_131_031_159]);
    // Half of 2^-32 is reached after 33 ln 2 / -ln(1 - alpha) periods: 217.1, 22,862.4 and 33.0.
    for (alpha, last) in [(ALPHA, 217), (1_000, 22_862), (500_000, 33)] {
        let decay = Decay::new(alpha);
        assert_eq!([last, last + 1, u64::MAX].map(|n| decay.power(n)), [1, 0, 0], "{alpha}");
    }
}

#[test]
fn ten_packets_fade_by_a_tenth_each_period() {
    let mut dre = ten_gbit();
    (0..10).for_each(|_| dre.count(Instant::ZERO, 1500));
    let after = [
        (0, 15_000.0),
        (1, 13_500.0),
        (2, 12_150.0),
        (5, 8857.35),
        (7, 7174.5),
        (10, 5230.2),
        (22, 1477.2),
        (50, 77.3),
    ];
    for (n, expected) in after {
        for now in [n * T, n * T + T - 1] {
            // The figures have one decimal, X has steps of 1/256.
            let (found, error) = (dre.bytes(Instant(now)), 0.05 + 1.0 / 256.0);
            assert!((found - expected).abs() <= error, "{found} after {n} periods, not {expected}");
        }
    }
}

#[test]
fn the_metric_is_the_load_in_eighths_and_never_more_than_seven() {
    let thresholds = [31_250, 62_500, 93_750, 125_000, 156_250, 187_500, 218_750];
    assert_eq!(ten_gbit().thresholds(), thresholds);
    for (level, threshold) in (1..).zip(thresholds) {
        let mut dre = ten_gbit();
        dre.count(Instant::ZERO, threshold as u32 - 1);
        assert_eq!(dre.metric(Instant::ZERO), level - 1);
        dre.count(Instant::ZERO, 1);
        assert_eq!((dre.metric(Instant::ZERO), dre.load(Instant::ZERO)), (level, f64::from(level) / 8.0));
    }
    let mut dre = ten_gbit();
    dre.count(Instant::ZERO, 2_500_000);
    assert_eq!((dre.metric(Instant::ZERO), dre.load(Instant::ZERO)), (7, 10.0));
    // Thresholds between two steps of 1/256: 32.032 Mbit/s for 1 us / 0.5 are 8.008 bytes, an eighth is 1.001.
    let mut dre = Dre::new(BitRate(32_032_000), MICROS, &Decay::new(500_000));
    assert_eq!(dre.thresholds(), [2, 3, 4, 5, 6, 7, 8]);
    let metrics = [(); 9].map(|()| {
        dre.count(Instant::ZERO, 1);
        dre.metric(Instant::ZERO)
    });
    assert_eq!(metrics, [0, 1, 2, 3, 4, 5, 6, 7, 7]);
}

#[test]
fn a_constant_load_is_read_as_what_it_is() {
    // X swings between R tau (1 - alpha) and R tau, half a packet about: a load of 0.9 R/C to R/C.
    for (rate, metrics) in [(1, 0..=0), (5, 3..=4), (9, 6..=7), (10, 7..=7)] {
        let mut dre = ten_gbit();
        let gap = 1500 * 8 / rate;
        let mut now = 0;
        while now < 20 * MILLIS {
            dre.count(Instant(now), 1500);
            let metric = dre.metric(Instant(now));
            assert!(now < 10 * MILLIS || metrics.contains(&metric), "{metric} at {rate} Gbit/s");
            now += gap;
        }
    }
}

#[test]
fn ports_have_their_own_rates_and_registers_their_own_bytes() {
    let decay = Decay::new(ALPHA);
    for (rate, period, metric) in [
        (BitRate(100_000_000), 800 * MICROS, 5), // 100 kB
        (GBIT, 100 * MICROS, 4),                 // 125 kB
        (UNPACED, T, 2),                         // 250 kB
        (BitRate(0), T, 2),
        (BitRate(40_000_000_000), T, 0), // 1 MB
    ] {
        let (mut ingress, egress) = (Dre::new(rate, period, &decay), Dre::new(rate, period, &decay));
        ingress.count(Instant::ZERO, 62_500);
        assert_eq!((ingress.metric(Instant::ZERO), egress.metric(Instant::ZERO)), (metric, 0), "{rate}");
        assert_eq!((ingress.bytes(Instant::ZERO), egress.bytes(Instant::ZERO)), (62_500.0, 0.0));
    }
}

#[test]
fn a_period_is_stretched_until_tau_holds_100_kb() {
    for (rate, expected) in [
        (BitRate(10_000_000), 8 * MILLIS),
        (BitRate(100_000_000), 800 * MICROS),
        (GBIT, 80 * MICROS),
        (BitRate(4_000_000_000), T),
        (BitRate(10_000_000_000), T),
        (BitRate(0), T),
    ] {
        assert_eq!(period(rate, T, ALPHA), expected, "{rate}");
    }
    // Half the alpha is twice the tau.
    assert_eq!(period(GBIT, T, ALPHA / 2), 40 * MICROS);
}

#[test]
fn a_silent_port_falls_to_nothing_touched_or_not() {
    for alpha in [1_000, ALPHA, 500_000] {
        let mut dre = Dre::new(UNPACED, T, &Decay::new(alpha));
        dre.count(Instant::ZERO, 1_000_000);
        let mut touched = dre.clone();
        let periods = 30_000_000 / u64::from(alpha);
        (1..=periods).for_each(|n| touched.count(Instant(n * T), 0));
        for silent in [dre, touched] {
            let now = Instant(periods * T);
            assert_eq!((silent.bytes(now), silent.metric(now)), (0.0, 0), "{alpha}");
        }
    }
}

#[test]
fn periods_are_those_of_the_clock_and_a_time_that_goes_back_changes_nothing() {
    let start = 1_000 * SECONDS;
    let mut dre = ten_gbit();
    let mut x = |at: u64, bytes| {
        dre.count(Instant(start + at), bytes);
        // 0.9 rounded to 32 bits and X rounded down may cost 1/256 byte each period.
        dre.bytes(Instant(start + at)).round()
    };
    // A nanosecond before a period ends is not a period before a nanosecond after.
    assert_eq!([x(T - 1, 1000), x(T, 0), x(2 * T - 1, 0), x(2 * T, 0)], [1000.0, 900.0, 900.0, 810.0]);
    assert_eq!([x(5, 190), x(0, 0), x(2 * T, 0), x(3 * T - 1, 0)], [1000.0; 4]);
    assert_eq!(x(3 * T, 0), 900.0);
}

#[test]
fn another_rate_leaves_the_bytes_and_takes_its_own_periods() {
    let mut dre = ten_gbit();
    dre.count(Instant(3 * T), 62_500);
    dre.set_rate(BitRate(100_000_000), 800 * MICROS);
    let end = 800 * MICROS;
    assert_eq!([3 * T, end - 1, end].map(|t| dre.bytes(Instant(t)).round()), [62_500.0, 62_500.0, 56_250.0]);
    assert_eq!((dre.metric(Instant(3 * T)), dre.period(), dre.rate()), (5, end, BitRate(100_000_000)));
    dre.set_rate(UNPACED, T);
    assert_eq!([end - 1, end].map(|t| dre.bytes(Instant(t)).round()), [62_500.0, 56_250.0]);
}

#[test]
fn a_register_saturates() {
    let mut dre = ten_gbit();
    // 2^24 times 2^32 bytes is as much as 2^64 / 256.
    (0..(1 << 24) + 1).for_each(|_| dre.count(Instant::ZERO, u32::MAX));
    assert_eq!(dre.bytes(Instant::ZERO), 2f64.powi(56));
}

/// A register that a timer decays at each multiple of its period.
struct Periodic {
    x: f64,
    next: u64,
    period: u64,
    keep: f64,
}

impl Periodic {
    fn run_to(&mut self, now: u64) {
        while self.next <= now {
            self.x *= self.keep;
            self.next += self.period;
        }
    }
}

fn arrivals(period: u64) -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gap = prop_oneof![
        6 => 0..=period / 4,
        3 => 0..=3 * period,
        1 => Just(period),
        1 => 0..=400 * period,
    ];
    // A frame, none (a reading), or a burst.
    let bytes = prop_oneof![6 => 60u32..9_000, 2 => Just(0), 1 => 0u32..400_000];
    prop::collection::vec((gap, bytes), 1..600)
}

proptest! {
    #[test]
    fn lazy_decay_is_that_of_a_timer(
        (period, arrivals) in prop::sample::select(vec![T, 800 * MICROS, 12_345, 7]).prop_flat_map(|p| (Just(p), arrivals(p))),
        alpha in prop::sample::select(vec![1_000u32, 30_000, ALPHA, 125_000, 200_000, 500_000]),
        start in prop_oneof![Just(0), 0u64..1 << 40],
    ) {
        let capacity = 250_000.0;
        // bit/s whose C * tau is that.
        let rate = capacity * 8e9 / (period as f64 * 1e6 / f64::from(alpha));
        let mut dre = Dre::new(BitRate(rate.round() as u64), period, &Decay::new(alpha));
        let next = (start / period + 1) * period;
        let mut model = Periodic { x: 0.0, next, period, keep: 1.0 - f64::from(alpha) / 1e6 };
        // A step of 1/256 byte is lost in each period, and fades with the rest: a geometric sum.
        let error = if alpha < ALPHA { 1e6 / (256.0 * f64::from(alpha)) + 0.01 } else { 0.05 };
        let mut now = start;
        for (gap, bytes) in arrivals {
            now += gap;
            model.run_to(now);
            prop_assert!((dre.bytes(Instant(now)) - model.x).abs() <= error, "{} is not {}", dre.bytes(Instant(now)), model.x);
            dre.count(Instant(now), bytes);
            model.x += f64::from(bytes);
            prop_assert!((dre.bytes(Instant(now)) - model.x).abs() <= error);
            // The rate is rounded to whole bit/s.
            let level = |x: f64| (8.0 * x / capacity).floor().clamp(0.0, 7.0) as u8;
            let (least, most) = (level(model.x - error - 1.0), level(model.x + 1.0));
            prop_assert!((least..=most).contains(&dre.metric(Instant(now))));
        }
    }
}
