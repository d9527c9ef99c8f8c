//! Options of the path-selection schemes, a table each, and the rules between them. A table of a scheme
//! that is not selected obeys them too, so that one file can be switched by its `selector` alone; what
//! depends on ports and workers is asked of the selected scheme only.

/// CAFT's and Expeditus's.
mod caft;
/// PL2's.
pub mod pl2;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::error::{Found, Table, label};
use super::file::out_of_range;
use super::{PortConfig, Selector, SwitchConfig, Tables};
use crate::id::PortKind;
use crate::pisa::meter::MAX_BURST;
pub use crate::scheme::p4te::RateAdaptation;
pub use crate::scheme::p4te::rate::AckRule;
use crate::scheme::p4te::rate::MAX_BYTES;
use crate::units::{BitRate, Bytes, Duration};
use crate::wire::ethernet::{HEADER_LEN, WIRE_OVERHEAD};
pub use caft::{CaftOptions, DRE_ALPHA, DRE_PERIOD, FAILURE_TIMEOUT, PAT_TIMEOUT};
pub(crate) use caft::{read_tpid, write_tpid};
pub(crate) use pl2::FilePl2;
pub use pl2::{Agent, Pl2Options, SlotMode};

/// Possible gaps between flowlets, in nanoseconds. Below: no clock of a software switch tells packets so
/// far apart. Above: every flow would keep its path for ever.
pub const FLOWLET_GAP: RangeInclusive<u64> = 1_000..=10_000_000_000;
/// Possible sizes of a table of flows, powers of two.
pub const FLOW_SLOTS: RangeInclusive<u32> = 1024..=1 << 22;
/// Possible steps of queue depth, in packets.
pub const DEPTH_STEP: RangeInclusive<u32> = 1..=65_535;
/// Possible shares of a port's rate. The least leaves 1 bit/s of the lowest possible rate.
pub const SHARE: RangeInclusive<Fraction> = Fraction(1_000)..=Fraction(MILLION);
/// Possible bursts, in nanoseconds of line rate. Above: a link could be too full for seconds and stay green.
pub const BURST: RangeInclusive<u64> = 1_000..=1_000_000_000;
/// Possible windows between two actions on a flow, in bytes. Below: less than a segment. Above: sequence
/// numbers of a flow could not be compared any more (RFC 9293 section 3.4).
pub const RATE_WINDOW: RangeInclusive<u64> = 1460..=MAX_BYTES as u64;
/// Possible periods of HULA's probes, in nanoseconds. Below: a software switch sends them no closer.
pub const PROBE_PERIOD: RangeInclusive<u64> = 100_000..=10_000_000_000;
/// Longest keep-alive of HULA's ways, in nanoseconds.
pub const MAX_KEEPALIVE: u64 = 100_000_000_000;
/// Possible numbers of ToRs that HULA keeps ways to; a switch's number has 16 bits.
pub const MAX_TORS: RangeInclusive<u32> = 1..=65_536;
/// Highest DSCP (RFC 2474 section 3: six bits).
pub const MAX_DSCP: u8 = 63;

/// Bytes of IP packet that a port which keeps its interface's MTU is taken to carry (RFC 894).
const ETHERNET_MTU: u16 = 1500;
const MILLION: u32 = 1_000_000;

/// A number from 0 to 1, in parts per million; prints as a decimal like `0.75`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fraction(u32);

/// Text that is no [`Fraction`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fraction: write a number from 0 to 1 with at most six decimals, like 0.75")]
pub struct FractionError(String);

impl Fraction {
    /// `ppm` parts per million; more than a million are a million.
    pub const fn from_ppm(ppm: u32) -> Fraction {
        Fraction(if ppm > MILLION { MILLION } else { ppm })
    }

    /// Parts per million, 0 to 1,000,000.
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// That share of `rate`, rounded down to whole bit/s.
    pub fn of(self, rate: BitRate) -> BitRate {
        rate.share(self.0)
    }
}

impl FromStr for Fraction {
    type Err = FractionError;

    fn from_str(text: &str) -> Result<Self, FractionError> {
        let read = || {
            let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
            let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if !is_number(whole) || !is_number(decimals) || decimals.len() > 6 {
                return None;
            }
            let millionths: u32 = format!("{decimals:0<6}").parse().ok()?;
            let ppm = whole.parse::<u32>().ok()?.checked_mul(MILLION)?.checked_add(millionths)?;
            (ppm <= MILLION).then_some(Fraction(ppm))
        };
        read().ok_or_else(|| FractionError(text.into()))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % MILLION);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}", self.0 / MILLION),
            decimals => write!(f, "{}.{decimals}", self.0 / MILLION),
        }
    }
}

/// A set of DSCPs (RFC 2474), each 0 to [`MAX_DSCP`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DscpSet(u64);

impl DscpSet {
    /// Adds one; `false` if it was there, or is no DSCP.
    pub fn insert(&mut self, dscp: u8) -> bool {
        let is_new = dscp <= MAX_DSCP && !self.contains(dscp);
        if is_new {
            self.0 |= 1 << dscp;
        }
        is_new
    }

    /// Whether it is in the set.
    #[inline]
    pub fn contains(self, dscp: u8) -> bool {
        dscp <= MAX_DSCP && self.0 >> dscp & 1 == 1
    }

    /// Those in the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..=MAX_DSCP).filter(move |dscp| self.contains(*dscp))
    }
}

/// `[flowlet]`: the flowlet table of flowlet-ECMP, LetFlow and HULA, which are to be compared like for
/// like. P4TE has the same number of slots and a gap of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowletOptions {
    /// A packet later than this after its flow's last begins a new flowlet ([`FLOWLET_GAP`]).
    /// Default 500 us: LetFlow, Vanini et al., NSDI 2017.
    pub gap: Duration,
    /// Slots of the table, a power of two ([`FLOW_SLOTS`]). Flows whose hashes fall on one slot share a
    /// flowlet. Default 65536.
    pub slots: u32,
}

impl Default for FlowletOptions {
    fn default() -> Self {
        FlowletOptions { gap: Duration(500_000), slots: 65_536 }
    }
}

/// `[p4te]`: P4TE (Computer Networks 215, 2022; arXiv 2207.09378). Defaults are the paper's where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct P4teOptions {
    /// Change of a queue's depth that is an event, in packets ([`DEPTH_STEP`]). Default 10: the example of
    /// algorithm 1.
    pub delta: u32,
    /// Depth that a priority group spans, in packets ([`DEPTH_STEP`]): the paper's D. In a file the
    /// default is `delta`, as in the paper.
    pub depth_step: u32,
    /// A packet later than this after its flow's last begins a new flowlet ([`FLOWLET_GAP`]). Default
    /// 40 ms: the paper's evaluation, whose emulated links had round trips of 240 ms and more.
    pub flowlet_gap: Duration,
    /// Committed rate of a port's meter as a share of the port's ([`SHARE`]): above it a link is yellow.
    /// Default 0.75.
    pub cir: Fraction,
    /// Peak rate of that meter, not below `cir` ([`SHARE`]): above it a link is red. Default 0.95.
    pub pir: Fraction,
    /// Both bursts of that meter, CBS and PBS, as time at line rate ([`BURST`]). Default 1 ms: the paper's
    /// "5% of bandwidth" names no unit.
    pub burst: Duration,
    /// Safe rate of short flows at a port they enter by, as a share of the port's ([`SHARE`]). Default 0.9
    /// (section 4.1.3).
    pub safe_short: Fraction,
    /// Safe rate of large flows ([`SHARE`]). Default 0.1.
    pub safe_large: Fraction,
    /// Burst of the two classes' meters, as time at line rate ([`BURST`]). Default 1 ms.
    pub class_burst: Duration,
    /// DSCPs that make a flow large. Default 5 and 6: the evaluation's two largest sizes.
    pub large_dscp: DscpSet,
    /// Bytes after which a flow is large whatever its DSCP; 0 = never, the default.
    pub large_after: Bytes,
    /// What is done about rates. Default: nothing.
    pub rate_adaptation: RateAdaptation,
    /// Which byte a FACK acknowledges. Default: none that the receiver has not.
    pub ack: AckRule,
    /// Bytes of a flow between two actions on it ([`RATE_WINDOW`]): B of section 4.3. Default 64 KB, a
    /// window without scaling; the paper's is rate times round trip, found by experiment.
    pub window: Bytes,
    /// Slots of the table of flows whose rate is adapted, a power of two ([`FLOW_SLOTS`]). Default 65536.
    pub rate_slots: u32,
}

impl Default for P4teOptions {
    fn default() -> Self {
        P4teOptions {
            delta: 10,
            depth_step: 10,
            flowlet_gap: Duration(40_000_000),
            cir: Fraction(750_000),
            pir: Fraction(950_000),
            burst: Duration(1_000_000),
            safe_short: Fraction(900_000),
            safe_large: Fraction(100_000),
            class_burst: Duration(1_000_000),
            large_dscp: DscpSet(1 << 5 | 1 << 6),
            large_after: Bytes(0),
            rate_adaptation: RateAdaptation::default(),
            ack: AckRule::default(),
            window: Bytes(64_000),
            rate_slots: 65_536,
        }
    }
}

/// `[hula]`: HULA (Katta et al., SOSR 2016). Its flowlets are those of [`FlowletOptions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HulaOptions {
    /// Time between the probes of a ToR ([`PROBE_PERIOD`]). Default 1 ms.
    pub period: Duration,
    /// How long a way is believed after its last probe: two periods at least, [`MAX_KEEPALIVE`] at most. In
    /// a file the default is ten periods.
    pub keepalive: Duration,
    /// ToRs that a switch keeps ways to ([`MAX_TORS`]). Default 256.
    pub max_tors: u32,
}

impl HulaOptions {
    /// The keep-alive of a file that names none: ten periods, so that a few lost probes end no way.
    pub fn default_keepalive(period: Duration) -> Duration {
        Duration(period.0.saturating_mul(10))
    }
}

impl Default for HulaOptions {
    fn default() -> Self {
        let period = Duration(1_000_000);
        HulaOptions { period, keepalive: HulaOptions::default_keepalive(period), max_tors: 256 }
    }
}

/// Nanoseconds in which a rate of 1 bit/s makes a byte.
const BIT_NANOSECONDS: u128 = 8_000_000_000;

/// Notes what is wrong with one table.
struct Notes<'a> {
    table: Table,
    found: &'a mut Found,
}

impl Notes<'_> {
    fn note(&mut self, key: &'static str, message: impl fmt::Display) {
        self.found.push((self.table.key(key), format!("{}{message}", label(self.table, None))));
    }

    fn time(&mut self, key: &'static str, value: Duration, range: RangeInclusive<u64>) {
        if !range.contains(&value.0) {
            let (from, to) = (Duration(*range.start()), Duration(*range.end()));
            self.note(key, format_args!("{key} {value} is out of range: write \"{from}\" to \"{to}\""));
        }
    }

    fn number<T: PartialOrd + fmt::Display + fmt::Debug>(
        &mut self,
        key: &'static str,
        value: T,
        range: RangeInclusive<T>,
    ) {
        if !range.contains(&value) {
            self.note(key, out_of_range(key, value, range));
        }
    }

    fn share(&mut self, key: &'static str, value: Fraction, range: RangeInclusive<Fraction>) {
        if !range.contains(&value) {
            let message = format!("{key} {value} is out of range: write {} to {}", range.start(), range.end());
            self.note(key, message);
        }
    }

    fn slots(&mut self, key: &'static str, value: u32) {
        if !FLOW_SLOTS.contains(&value) || !value.is_power_of_two() {
            let (least, most) = (*FLOW_SLOTS.start(), *FLOW_SLOTS.end());
            let near = value.clamp(least, most).next_power_of_two();
            self.note(key, format_args!("{key} {value} is no power of two from {least} to {most}: write {near}"));
        }
    }
}

/// What the rules have against the schemes' tables, whatever the ports.
pub(super) fn tables(tables: &Tables, found: &mut Found) {
    let Tables { flowlet, p4te, hula, caft, pl2, .. } = tables;
    let mut notes = Notes { table: Table::Flowlet, found };
    notes.time("gap", flowlet.gap, FLOWLET_GAP);
    notes.slots("slots", flowlet.slots);

    notes.table = Table::P4te;
    notes.number("delta", p4te.delta, DEPTH_STEP);
    // Else it is `delta` that is wrong, and was taken over.
    if p4te.depth_step != p4te.delta {
        notes.number("depth_step", p4te.depth_step, DEPTH_STEP);
    }
    notes.time("flowlet_gap", p4te.flowlet_gap, FLOWLET_GAP);
    for (key, share) in
        [("cir", p4te.cir), ("pir", p4te.pir), ("safe_short", p4te.safe_short), ("safe_large", p4te.safe_large)]
    {
        notes.share(key, share, SHARE);
    }
    let (cir, pir) = (p4te.cir, p4te.pir);
    if pir < cir {
        // The one that was changed is named.
        match pir == P4teOptions::default().pir {
            true => notes.note(
                "cir",
                format_args!(
                    "cir {cir} is above pir {pir}, no link would be yellow: write {pir} or less, or a higher pir"
                ),
            ),
            false => notes.note(
                "pir",
                format_args!(
                    "pir {pir} is below cir {cir}, no link would be yellow: write {cir} or more, or a lower cir"
                ),
            ),
        }
    }
    notes.time("burst", p4te.burst, BURST);
    notes.time("class_burst", p4te.class_burst, BURST);
    notes.number("window", p4te.window.0, RATE_WINDOW);
    notes.slots("rate_slots", p4te.rate_slots);

    notes.table = Table::Hula;
    notes.time("period", hula.period, PROBE_PERIOD);
    let least = Duration(hula.period.0.saturating_mul(2));
    if hula.keepalive < least {
        let (keepalive, period) = (hula.keepalive, hula.period);
        notes.note(
            "keepalive",
            format_args!(
                "keepalive {keepalive} is less than two periods of {period}, one late probe would end a way: \
                 write \"{least}\" or more"
            ),
        );
    } else {
        notes.time("keepalive", hula.keepalive, 0..=MAX_KEEPALIVE);
    }
    notes.number("max_tors", hula.max_tors, MAX_TORS);

    notes.table = Table::Caft;
    caft::table(caft, &mut notes);

    notes.table = Table::Pl2;
    pl2::table(pl2, &mut notes);
}

/// What the selected scheme has against the workers and ports it would run on.
pub(super) fn selected(config: &SwitchConfig, found: &mut Found) {
    pl2::selected(config, found);
    let (selector, workers) = (config.selector, config.runtime.workers);
    if !matches!(selector, Selector::Ecmp | Selector::Flowlet | Selector::LetFlow) && workers > 1 {
        let mut notes = Notes { table: Table::Runtime, found };
        notes.note(
            "workers",
            format_args!(
                "workers {workers}, but {selector} runs on one worker: its state of a port is not shared: \
                 write 1, or another selector"
            ),
        );
    }
    if selector == Selector::P4te {
        let mut notes = Notes { table: Table::P4te, found };
        let (own, default) = (&config.p4te, P4teOptions::default());
        for (key, time, default) in
            [("burst", own.burst, default.burst), ("class_burst", own.class_burst, default.class_burst)]
        {
            // What is out of range at every port is said once, by `tables`. The default is a frame at ports where it
            // would be less: nobody has asked for that.
            if BURST.contains(&time.0) && time != default {
                burst(key, time, &config.ports, &mut notes);
            }
        }
    }
}

/// What is allowed, but seldom meant.
pub fn cautions(config: &SwitchConfig) -> Vec<String> {
    let mut cautions = Vec::new();
    let unpaced = config.ports.iter().any(|p| p.kind == PortKind::Up && p.rate == BitRate(0));
    if unpaced && matches!(config.selector, Selector::Hula | Selector::P4te) {
        cautions.push(format!(
            "{} measures a port's load against its rate, and there are up ports without one: set `rate` (in a lab --rate)",
            config.selector
        ));
    }
    if unpaced && config.selector.goes_by_place() {
        cautions.push(format!(
            "{} measures a link's load against its port's rate, and an up port without one counts as 10 Gbit/s: \
             set `rate` (in a lab --rate)",
            config.selector
        ));
    }
    let p4te = &config.p4te;
    let facks = config.selector == Selector::P4te && p4te.rate_adaptation == RateAdaptation::Fack;
    if facks && p4te.ack == AckRule::Paper {
        cautions.push(
            "ack = \"paper\" acknowledges what the receiver may never get: TCP connections that lose a segment then stay \
             dead; for anything but reproducing the paper write \"safe\""
                .into(),
        );
    }
    cautions
}

/// A meter whose bucket does not hold a frame lets none conform. The slowest port is named, so that the
/// remedy holds for all.
fn burst(key: &'static str, time: Duration, ports: &[PortConfig], notes: &mut Notes<'_>) {
    let metered = || ports.iter().filter(|p| p.rate != BitRate(0));
    let least = |port: &PortConfig| {
        // Shares of a rate count all that a frame takes on the wire, as the pacer does.
        let frame = usize::from(port.mtu.unwrap_or(ETHERNET_MTU)) + HEADER_LEN + WIRE_OVERHEAD;
        let time = (frame as u128 * BIT_NANOSECONDS).div_ceil(port.rate.0.into()).div_ceil(1_000) * 1_000;
        (Duration(u64::try_from(time).unwrap_or(u64::MAX)), frame)
    };
    if let Some(port) = metered().max_by_key(|p| least(p).0) {
        let (bytes, (needed, frame)) = (port.rate.bytes_in(time.0), least(port));
        if bytes.0 < frame as u64 {
            notes.note(
                key,
                format_args!(
                    "{key} {time} comes to {} bytes at the {} of port \"{}\", one frame of its MTU takes {frame}: \
                     write \"{needed}\" or more",
                    bytes.0, port.rate, port.interface
                ),
            );
        }
    }
    if let Some(port) = metered().max_by_key(|p| p.rate)
        && port.rate.bytes_in(time.0) > MAX_BURST
    {
        let most = u128::from(MAX_BURST.0) * BIT_NANOSECONDS / u128::from(port.rate.0) / 1_000 * 1_000;
        notes.note(
            key,
            format_args!(
                "{key} {time} comes to {} bytes at the {} of port \"{}\", a meter counts {}: write \"{}\" or less",
                port.rate.bytes_in(time.0).0,
                port.rate,
                port.interface,
                MAX_BURST.0,
                Duration(u64::try_from(most).unwrap_or(u64::MAX))
            ),
        );
    }
}
