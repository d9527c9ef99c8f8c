//! Meters: the tables of RFC 2697 and RFC 2698 row by row, exact refill, and what constant loads look like.

use proptest::prelude::*;
use weft::pisa::meter::{
    Color, MAX_BURST, MeterError, OneRate, OneRateConfig, SrTcm, SrTcmConfig, TrTcm, TrTcmConfig, UtilizationMeter,
};
use weft::time::{Instant, MICROS, MILLIS, SECONDS};
use weft::units::{BitRate, Bytes};

use Color::{Green, Red, Yellow};

const LARGEST: Bytes = Bytes(1_000);
/// One byte a microsecond.
const BYTE_A_MICRO: u64 = 8_000_000;

/// CIR 1 B/us, PIR 2 B/us.
fn tr_tcm(cbs: u64, pbs: u64) -> TrTcm {
    let (cir, pir) = (BitRate(BYTE_A_MICRO), BitRate(2 * BYTE_A_MICRO));
    TrTcm::new(TrTcmConfig::new(cir, pir, Bytes(cbs), Bytes(pbs), LARGEST).expect("valid"))
}

/// CIR 1 B/us.
fn sr_tcm(cbs: u64, ebs: u64) -> SrTcm {
    SrTcm::new(SrTcmConfig::new(BitRate(BYTE_A_MICRO), Bytes(cbs), Bytes(ebs), LARGEST).expect("valid"))
}

fn one_rate(rate: u64, cbs: u64) -> OneRate {
    OneRate::new(OneRateConfig::new(BitRate(rate), Bytes(cbs), LARGEST).expect("valid"))
}

/// Tokens of both buckets, in bytes.
fn tr_tokens(meter: &TrTcm, now: Instant) -> (u64, u64) {
    (meter.committed(now).0, meter.peak(now).0)
}

fn sr_tokens(meter: &SrTcm, now: Instant) -> (u64, u64) {
    (meter.committed(now).0, meter.excess(now).0)
}

#[test]
fn color_blind_two_rate_meter_follows_rfc_2698() {
    let mut meter = tr_tcm(2_000, 3_000);
    // At (us), bytes: color, then Tc and Tp.
    for (at, len, color, tokens) in [
        (0, 1_000, Green, (1_000, 2_000)),
        (0, 1_000, Green, (0, 1_000)), // just enough in C
        (0, 1, Yellow, (0, 999)),      // only P pays
        (0, 1_000, Red, (0, 999)),     // nobody pays, though one byte is missing
        (0, 999, Yellow, (0, 0)),      // just enough in P
        (0, 0, Green, (0, 0)),
        (100, 100, Green, (0, 100)), // earned: 100 and 200
        (100, 101, Red, (0, 100)),
        (600, 1_000, Yellow, (500, 100)),      // earned: 500 and 1000
        (5_000, 1_000, Green, (1_000, 2_000)), // full again, at 2000 and 3000
    ] {
        let now = Instant(at * MICROS);
        assert_eq!(meter.mark(now, len), color, "{len} B at {at} us");
        assert_eq!(tr_tokens(&meter, now), tokens, "after {len} B at {at} us");
    }
}

#[test]
fn color_aware_two_rate_meter_follows_rfc_2698() {
    // 800 bytes meet Tc and Tp after a first green 600: the four states, by bursts of 1,000 (short) or
    // 2,000 (enough), times the three colors.
    for (cbs, pbs, incoming, color, tc, tp) in [
        (2_000, 2_000, Green, Green, 600, 600),
        (2_000, 2_000, Yellow, Yellow, 1_400, 600),
        (2_000, 2_000, Red, Red, 1_400, 1_400),
        (1_000, 2_000, Green, Yellow, 400, 600),
        (1_000, 2_000, Yellow, Yellow, 400, 600),
        (1_000, 2_000, Red, Red, 400, 1_400),
        (2_000, 1_000, Green, Red, 1_400, 400),
        (2_000, 1_000, Yellow, Red, 1_400, 400),
        (2_000, 1_000, Red, Red, 1_400, 400),
        (1_000, 1_000, Green, Red, 400, 400),
        (1_000, 1_000, Yellow, Red, 400, 400),
        (1_000, 1_000, Red, Red, 400, 400),
    ] {
        let mut meter = tr_tcm(cbs, pbs);
        assert_eq!(meter.mark_aware(Instant::ZERO, 600, Green), Green);
        assert_eq!(meter.mark_aware(Instant::ZERO, 800, incoming), color, "{incoming} at {cbs}, {pbs}");
        assert_eq!(tr_tokens(&meter, Instant::ZERO), (tc, tp), "{incoming} at {cbs}, {pbs}");
    }
}

#[test]
fn color_blind_single_rate_meter_follows_rfc_2697() {
    let mut meter = sr_tcm(2_000, 1_000);
    for (at, len, color, tokens) in [
        (0, 1_500, Green, (500, 1_000)),
        (0, 600, Yellow, (500, 400)), // only E pays
        (0, 500, Green, (0, 400)),    // just enough in C
        (0, 401, Red, (0, 400)),      // nobody pays
        (0, 400, Yellow, (0, 0)),     // just enough in E
        (1_500, 0, Green, (1_500, 0)),
        (2_300, 0, Green, (2_000, 300)), // C is full after 500 of the 800; E gets the rest
        (2_300, 1_000, Green, (1_000, 300)),
        (3_000, 0, Green, (1_700, 300)), // E earns nothing while C has room
        (9_000, 0, Green, (2_000, 1_000)),
    ] {
        let now = Instant(at * MICROS);
        assert_eq!(meter.mark(now, len), color, "{len} B at {at} us");
        assert_eq!(sr_tokens(&meter, now), tokens, "after {len} B at {at} us");
    }
}

#[test]
fn color_aware_single_rate_meter_follows_rfc_2697() {
    // 800 bytes meet Tc and Te after a first green 600 and yellow 600: the four states by bursts of 1,000
    // (short) or 2,000 (enough), times the three colors.
    for (cbs, ebs, incoming, color, tc, te) in [
        (2_000, 2_000, Green, Green, 600, 1_400),
        (2_000, 2_000, Yellow, Yellow, 1_400, 600),
        (2_000, 2_000, Red, Red, 1_400, 1_400),
        (1_000, 2_000, Green, Yellow, 400, 600),
        (1_000, 2_000, Yellow, Yellow, 400, 600),
        (1_000, 2_000, Red, Red, 400, 1_400),
        (2_000, 1_000, Green, Green, 600, 400),
        (2_000, 1_000, Yellow, Red, 1_400, 400), // what C holds is not for yellow
        (2_000, 1_000, Red, Red, 1_400, 400),
        (1_000, 1_000, Green, Red, 400, 400),
        (1_000, 1_000, Yellow, Red, 400, 400),
        (1_000, 1_000, Red, Red, 400, 400),
    ] {
        let mut meter = sr_tcm(cbs, ebs);
        assert_eq!(meter.mark_aware(Instant::ZERO, 600, Green), Green);
        assert_eq!(meter.mark_aware(Instant::ZERO, 600, Yellow), Yellow);
        assert_eq!(meter.mark_aware(Instant::ZERO, 800, incoming), color, "{incoming} at {cbs}, {ebs}");
        assert_eq!(sr_tokens(&meter, Instant::ZERO), (tc, te), "{incoming} at {cbs}, {ebs}");
    }
    // A burst of 0: nothing green, or nothing yellow.
    assert_eq!(sr_tcm(0, 1_000).mark(Instant::ZERO, 1_000), Yellow);
    let mut no_excess = sr_tcm(1_000, 0);
    assert_eq!([1_000, 1].map(|len| no_excess.mark(Instant::ZERO, len)), [Green, Red]);
}

#[test]
fn a_class_above_its_rate_is_yellow_for_what_is_above() {
    let mut meter = one_rate(BYTE_A_MICRO, 1_000);
    for (at, len, color, left) in
        [(0, 700, Green, 300), (0, 301, Yellow, 300), (0, 300, Green, 0), (250, 251, Yellow, 250), (251, 251, Green, 0)]
    {
        let now = Instant(at * MICROS);
        assert_eq!((meter.mark(now, len), meter.committed(now)), (color, Bytes(left)), "{len} B at {at} us");
    }
}

#[test]
fn a_million_steps_of_seven_nanoseconds_earn_exactly_what_one_of_seven_milliseconds_does() {
    // A third of 1 Gbit/s, rounded down to whole bit/s: 0.29 bytes a step.
    const RATE: u64 = 333_333_333;
    let (cir, burst) = (BitRate(RATE), Bytes(1_000_000));
    let mut one = one_rate(RATE, burst.0);
    let mut two = TrTcm::new(TrTcmConfig::new(cir, BitRate(3 * RATE + 1), burst, burst, LARGEST).expect("valid"));
    let mut single = SrTcm::new(SrTcmConfig::new(cir, Bytes(100_000), burst, LARGEST).expect("valid"));
    one.mark(Instant::ZERO, 1_000_000);
    two.mark(Instant::ZERO, 1_000_000);
    single.mark(Instant::ZERO, 100_000);
    single.mark(Instant::ZERO, 1_000_000);
    for step in 1..=1_000_000u64 {
        let now = Instant(step * 7);
        // Empty packets touch the meters and take nothing.
        one.mark(now, 0);
        two.mark(now, 0);
        single.mark(now, 0);
        let earned = |rate: u64| (u128::from(rate) * u128::from(step * 7) / 8_000_000_000) as u64;
        assert_eq!(one.committed(now), Bytes(earned(RATE)), "step {step}");
        assert_eq!(tr_tokens(&two, now), (earned(RATE), earned(3 * RATE + 1)), "step {step}");
        // Bucket C is full at 2.4 ms.
        let all = earned(RATE);
        assert_eq!(sr_tokens(&single, now), (all.min(100_000), all.saturating_sub(100_000)), "step {step}");
    }
    assert_eq!(one.committed(Instant(7 * MILLIS)), Bytes(291_666)); // 0.333333333 x 7e6 / 8 = 291,666.67
}

#[test]
fn a_jump_of_seconds_or_years_fills_the_buckets_and_a_step_back_changes_nothing() {
    let fast = BitRate(100_000_000_000);
    let mut two = TrTcm::new(TrTcmConfig::new(fast, fast, MAX_BURST, MAX_BURST, LARGEST).expect("valid"));
    let mut single = SrTcm::new(SrTcmConfig::new(fast, MAX_BURST, MAX_BURST, LARGEST).expect("valid"));
    let mut one = OneRate::new(OneRateConfig::new(fast, MAX_BURST, LARGEST).expect("valid"));
    let whole = MAX_BURST.0 as usize;
    let full = (MAX_BURST.0, MAX_BURST.0);
    for jump in [2 * SECONDS, 3_600 * SECONDS, 10 * 365 * 86_400 * SECONDS, u64::MAX] {
        let now = Instant(jump);
        assert_eq!((tr_tokens(&two, now), sr_tokens(&single, now), one.committed(now)), (full, full, MAX_BURST));
        assert_eq!((two.mark(now, whole), one.mark(now, whole)), (Green, Green));
        assert_eq!([single.mark(now, whole), single.mark(now, whole)], [Green, Yellow]);
        // All are empty, and stay so at times before and at that time itself.
        for then in [Instant::ZERO, Instant(jump / 2), now] {
            assert_eq!((two.mark(then, 1), single.mark(then, 1), one.mark(then, 1)), (Red, Red, Yellow));
            assert_eq!((tr_tokens(&two, then), sr_tokens(&single, then)), ((0, 0), (0, 0)));
        }
    }
    // Too long for any bucket, by more than a u64 of units: refused, not wrapped.
    assert_eq!(tr_tcm(1_000, 1_000).mark(Instant::ZERO, usize::MAX), Red);
    // A step back keeps what was earned before it.
    let mut meter = one_rate(BYTE_A_MICRO, 1_000);
    assert_eq!(meter.mark(Instant(5_000 * MICROS), 1_000), Green);
    assert_eq!(meter.mark(Instant(5_100 * MICROS), 0), Green);
    assert_eq!(meter.mark(Instant(5_050 * MICROS), 101), Yellow);
    assert_eq!(meter.mark(Instant(5_050 * MICROS), 100), Green);
}

#[test]
fn new_parameters_hold_from_then_on_and_tokens_stay_within_the_new_bursts() {
    let config = |cir: u64, pir: u64, cbs, pbs| {
        TrTcmConfig::new(BitRate(cir * BYTE_A_MICRO), BitRate(pir * BYTE_A_MICRO), Bytes(cbs), Bytes(pbs), LARGEST)
            .expect("valid")
    };
    let at = |micros| Instant(micros * MICROS);
    let mut meter = TrTcm::new(config(1, 2, 4_000, 4_000));
    meter.mark(at(0), 4_000);
    let smaller = config(3, 4, 1_000, 2_000);
    // 1500 and 3000 earned at the old rates.
    meter.reconfigure(at(1_500), smaller);
    assert_eq!((meter.config(), tr_tokens(&meter, at(1_500))), (smaller, (1_000, 2_000)));
    meter.mark(at(1_500), 1_000);
    assert_eq!(tr_tokens(&meter, at(1_600)), (300, 1_400));
    // A larger burst is not a gift.
    meter.reconfigure(at(1_600), config(1, 1, 9_000, 9_000));
    assert_eq!(tr_tokens(&meter, at(1_601)), (301, 1_401));

    let mut single = sr_tcm(2_000, 3_000);
    let smaller = SrTcmConfig::new(BitRate(2 * BYTE_A_MICRO), Bytes(1_000), Bytes(0), LARGEST).expect("valid");
    single.reconfigure(at(10), smaller);
    assert_eq!((single.config(), sr_tokens(&single, at(10))), (smaller, (1_000, 0)));
    let mut one = one_rate(BYTE_A_MICRO, 2_000);
    let faster = OneRateConfig::new(BitRate(2 * BYTE_A_MICRO), Bytes(1_000), LARGEST).expect("valid");
    one.reconfigure(at(10), faster);
    assert_eq!((one.config(), one.mark(at(10), 1_000)), (faster, Green));
    assert_eq!(one.committed(at(20)), Bytes(20));
}

#[test]
fn impossible_parameters_are_refused_with_a_remedy() {
    let tr = |cir, pir, cbs, pbs| {
        TrTcmConfig::new(BitRate(cir), BitRate(pir), Bytes(cbs), Bytes(pbs), Bytes(1_518)).map(|_| ())
    };
    let sr = |cir, cbs, ebs| SrTcmConfig::new(BitRate(cir), Bytes(cbs), Bytes(ebs), Bytes(1_518)).map(|_| ());
    let one = |cir, cbs| OneRateConfig::new(BitRate(cir), Bytes(cbs), Bytes(1_518)).map(|_| ());
    assert_eq!(tr(1, 1, 1_518, MAX_BURST.0), Ok(()));
    assert_eq!(sr(1, 0, 1_518), Ok(()));
    assert_eq!(one(u64::MAX, 1_518), Ok(()));
    let text = |result: Result<(), MeterError>| result.expect_err("refused").to_string();
    for (error, words) in [
        (text(tr(0, 5, 2_000, 2_000)), ["CIR is 0", "give a rate"]),
        (text(tr(0, 0, 2_000, 2_000)), ["CIR is 0", "give a rate"]),
        (text(tr(2_000, 1_000, 2_000, 2_000)), ["PIR 1kbit is below CIR 2kbit", "make the PIR at least 2kbit"]),
        (text(tr(1, 2, 1_517, 2_000)), ["CBS 1517B", "make it at least 1518B"]),
        (text(tr(1, 2, 2_000, 1_517)), ["PBS 1517B", "make it at least 1518B"]),
        (text(tr(1, 2, 2_000, MAX_BURST.0 + 1)), ["PBS 1073741825B", "make it at most 1073741824B"]),
        (text(sr(0, 2_000, 0)), ["CIR is 0", "give a rate"]),
        (text(sr(1, 0, 0)), ["CBS and EBS are both 0", "at least 1518B"]),
        (text(sr(1, 2_000, 1)), ["EBS 1B", "make it at least 1518B"]),
        (text(one(0, 2_000)), ["CIR is 0", "give a rate"]),
        (text(one(1, u64::MAX)), ["CBS", "make it at most 1073741824B"]),
    ] {
        assert!(words.iter().all(|w| error.contains(w)), "{error:?} should say {words:?}");
    }
    assert_eq!(serde_json::to_string(&[Green, Yellow, Red]).expect("JSON"), r#"["green","yellow","red"]"#);
    assert!(Green < Yellow && Yellow < Red);
}

/// C = 10 Gbit/s, CIR 75 %, PIR 95 %, bursts of 1 ms of C; frames of 1,250 B, 1 us each.
const FRAME: usize = 1_250;
const MS_OF_C: u64 = 1_250_000;

fn link() -> TrTcmConfig {
    let (cir, pir) = (BitRate(7_500_000_000), BitRate(9_500_000_000));
    TrTcmConfig::new(cir, pir, Bytes(MS_OF_C), Bytes(MS_OF_C), Bytes(FRAME as u64)).expect("valid")
}

/// Times of frames from `start` for `ms` milliseconds: trains of `train` frames at C, of which the gaps
/// make `percent` of C.
fn load(start: Instant, ms: u64, percent: u64, train: u64) -> impl Iterator<Item = Instant> {
    let frames = ms * 10 * percent;
    (0..frames).map(move |i| start + (i / train * train * 100_000 / percent + i % train * 1_000))
}

/// Runs of equal colors: each color and the time in microseconds at which it was first seen.
fn runs(colors: impl Iterator<Item = (Instant, Color)>) -> Vec<(Color, u64)> {
    let mut runs: Vec<(Color, u64)> = vec![];
    for (now, color) in colors {
        if runs.last().is_none_or(|(last, _)| *last != color) {
            runs.push((color, now.0 / MICROS));
        }
    }
    runs
}

/// The same colors in the same order, first seen within `slack` microseconds of the times expected.
fn assert_runs(found: &[(Color, u64)], expected: &[(Color, u64)], slack: u64) {
    let close = found.len() == expected.len()
        && found.iter().zip(expected).all(|(f, e)| f.0 == e.0 && f.1.abs_diff(e.1) <= slack);
    assert!(close, "found {found:?}, expected {expected:?}");
}

#[test]
fn a_constant_load_has_one_color_once_the_bursts_are_spent() {
    // A bucket holds 1,000 frames and is spent when less than one is left. If the load takes more than its
    // rate by x % of C, that is when 999 us of C have gone, after 999 * 100/x us.
    for (percent, expected) in [
        (50, vec![(Green, 0)]),
        (74, vec![(Green, 0)]),
        (85, vec![(Green, 0), (Yellow, 9_990)]),
        (100, vec![(Green, 0), (Yellow, 3_996), (Red, 19_980)]),
    ] {
        let mut meter = UtilizationMeter::new(link());
        let found = runs(load(Instant::ZERO, 200, percent, 1).map(|now| (now, meter.mark(now, FRAME))));
        assert_runs(&found, &expected, 2);
    }
}

#[test]
fn a_policing_meter_lets_the_committed_rate_through_green_whatever_else_comes() {
    // In the long run, of a load of 85 % of C, 75 are green and 10 yellow; of 100 %, 75, 20 and 5.
    for (percent, shares) in [(50, [50, 0, 0]), (85, [75, 10, 0]), (100, [75, 20, 5])] {
        let mut meter = TrTcm::new(link());
        load(Instant::ZERO, 100, percent, 1).for_each(|now| {
            meter.mark(now, FRAME);
        });
        let mut counts = [0u64; 3];
        load(Instant(100 * MILLIS), 100, percent, 1).for_each(|now| counts[meter.mark(now, FRAME) as usize] += 1);
        // 1,000 frames a percent in 100 ms.
        for (count, share) in counts.iter().zip(shares) {
            assert!(count.abs_diff(share * 1_000) <= 2, "{counts:?} at {percent} %");
        }
    }
}

#[test]
fn each_change_of_load_is_one_change_of_color_at_a_time_though_frames_come_in_trains() {
    // Trains of 64 frames at line rate are 80 kB, well within the bursts of 1.25 MB.
    let mut meter = UtilizationMeter::new(link());
    let phases = [(0, 60, 100), (60, 40, 50), (100, 60, 80), (160, 60, 70), (220, 60, 76), (280, 60, 74)];
    let times = phases.iter().flat_map(|&(start, ms, percent)| load(Instant(start * MILLIS), ms, percent, 64));
    let found = runs(times.map(|now| (now, meter.mark(now, FRAME))));
    let expected = [
        (Green, 0),
        // 100 %: C lasts 4 ms, P 20 ms.
        (Yellow, 4_000),
        (Red, 20_000),
        // 50 %: P is full after 1/0.45 ms, C after 4 ms.
        (Yellow, 62_222),
        (Green, 64_000),
        // 80 %: C lasts 20 ms. 70 %: full after 20 ms. 76 % for 60 ms spends only 60 % of it, 74 % earns it back.
        (Yellow, 120_000),
        (Green, 180_000),
    ];
    // To within a few trains of 64 us and the gaps between them, at a net rate of 5 % of C: each train
    // moves the bucket by up to 16 us of C, which that rate makes good in 320 us.
    assert_runs(&found, &expected, 500);
}

#[test]
fn an_idle_link_turns_green_without_a_packet() {
    let mut meter = UtilizationMeter::new(link());
    load(Instant::ZERO, 30, 100, 1).for_each(|now| {
        meter.mark(now, FRAME);
    });
    let end = Instant(30 * MILLIS);
    // P earns 1 ms of C in 1/0.95 ms, C in 1/0.75.
    let colors = [0, 1_040, 1_060, 1_320, 1_340].map(|micros| meter.color(end + micros * MICROS));
    assert_eq!(colors, [Red, Red, Yellow, Yellow, Green]);
    assert_eq!(meter.mark(end, FRAME), Red, "asking changes nothing");
}

/// The RFCs' words in 128 bits, tokens in bit·ns, no saturation but at the burst.
struct Model {
    rates: [u128; 2],
    bursts: [u128; 2],
    tokens: [u128; 2],
    latest: u64,
}

const UNIT: u128 = 8_000_000_000;

impl Model {
    fn new(rates: [u64; 2], bursts: [u64; 2]) -> Self {
        let bursts = bursts.map(|b| u128::from(b) * UNIT);
        Model { rates: rates.map(u128::from), bursts, tokens: bursts, latest: 0 }
    }

    fn elapsed(&mut self, now: u64) -> u128 {
        let ns = now.saturating_sub(self.latest);
        self.latest = self.latest.max(now);
        ns.into()
    }

    fn two_rates(&mut self, now: u64, len: usize, incoming: Color) -> Color {
        let (ns, b) = (self.elapsed(now), len as u128 * UNIT);
        for i in 0..2 {
            self.tokens[i] = self.bursts[i].min(self.tokens[i] + ns * self.rates[i]);
        }
        if incoming == Red || self.tokens[1] < b {
            Red
        } else if incoming == Yellow || self.tokens[0] < b {
            self.tokens[1] -= b;
            Yellow
        } else {
            self.tokens = self.tokens.map(|t| t - b);
            Green
        }
    }

    fn single_rate(&mut self, now: u64, len: usize, incoming: Color) -> Color {
        let (ns, b) = (self.elapsed(now), len as u128 * UNIT);
        let all = self.tokens[0] + ns * self.rates[0];
        let spilt = all.saturating_sub(self.bursts[0]);
        self.tokens = [all - spilt, self.bursts[1].min(self.tokens[1] + spilt)];
        if incoming == Green && self.tokens[0] >= b {
            self.tokens[0] -= b;
            Green
        } else if incoming != Red && self.tokens[1] >= b {
            self.tokens[1] -= b;
            Yellow
        } else {
            Red
        }
    }

    fn bytes(&self) -> (u64, u64) {
        let [a, b] = self.tokens.map(|t| (t / UNIT) as u64);
        (a, b)
    }
}

proptest! {
    #[test]
    fn marks_and_tokens_are_those_of_an_exact_model(
        cir in prop_oneof![1u64..100, 1_000_000u64..20_000_000_000, Just(333_333_333)],
        above in prop_oneof![Just(0u64), 0u64..1_000_000_000],
        bursts in [1_000u64..10_000, 1_000u64..10_000],
        packets in prop::collection::vec((
            prop_oneof![
                5 => (0i64..2_000).boxed(),
                2 => (0i64..2_000_000).boxed(),
                1 => (-1_000_000i64..0).boxed(),
                1 => Just(2_000_000_000i64).boxed(),
            ],
            0usize..1_600,
            prop_oneof![3 => Just(Green), 1 => Just(Yellow), 1 => Just(Red)],
        ), 1..300),
    ) {
        let burst = bursts.map(Bytes);
        let pir = cir + above;
        let config = TrTcmConfig::new(BitRate(cir), BitRate(pir), burst[0], burst[1], LARGEST).expect("valid");
        let (mut two, mut two_model) = (TrTcm::new(config), Model::new([cir, pir], bursts));
        let config = SrTcmConfig::new(BitRate(cir), burst[0], burst[1], LARGEST).expect("valid");
        let (mut single, mut single_model) = (SrTcm::new(config), Model::new([cir, 0], bursts));
        // A two-color meter is the single-rate one without excess burst, its red called yellow.
        let (mut one, mut one_model) = (one_rate(cir, bursts[0]), Model::new([cir, 0], [bursts[0], 0]));
        let mut now = 0i64;
        for (gap, len, incoming) in packets {
            now = (now + gap).max(0);
            let at = Instant(now as u64);
            prop_assert_eq!(two.mark_aware(at, len, incoming), two_model.two_rates(at.0, len, incoming));
            prop_assert_eq!(tr_tokens(&two, at), two_model.bytes());
            prop_assert_eq!(single.mark_aware(at, len, incoming), single_model.single_rate(at.0, len, incoming));
            prop_assert_eq!(sr_tokens(&single, at), single_model.bytes());
            let expected = one_model.single_rate(at.0, len, Green).min(Yellow);
            prop_assert_eq!(one.mark(at, len), expected);
        }
    }
}
