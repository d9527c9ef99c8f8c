//! Token-bucket meters that color packets: RFC 2698's two rates, RFC 2697's single rate, the one-rate
//! two-color meter of a traffic class, and a link's utilization in the same three colors.
//!
//! Exact and without division: a bit is 10^9 units, so a nanosecond earns as many units as the rate
//! has bit/s, and what is less than a byte stays in the bucket however often the meter is asked.
//! Refill is lazy, at the time of a packet. A `now` before an earlier one earns nothing and costs
//! nothing; one that is years ahead fills the buckets.
//!
//! What a length counts is the caller's: the RFCs mean bytes of IP packets, a share of a link's
//! capacity means all that a frame takes on the wire.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::{Instant, SECONDS};
use crate::units::{BitRate, Bytes};

/// The color a meter gives a packet; a later one is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Color {
    /// Within the committed rate.
    #[default]
    Green,
    /// Above the committed rate, within the peak rate or the excess burst.
    Yellow,
    /// Above both.
    Red,
}

impl Color {
    /// The color's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Color::Green => "green",
            Color::Yellow => "yellow",
            Color::Red => "red",
        }
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Largest burst of a bucket, 1 GiB: the units of two buckets fit 64 bits together.
pub const MAX_BURST: Bytes = Bytes(1 << 30);

/// Why a meter can't be configured so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeterError {
    /// A rate is 0.
    #[error(
        "{parameter} is 0, so that nothing would conform once the burst is spent: give a rate, or take the meter away"
    )]
    ZeroRate {
        /// `CIR` or `PIR`.
        parameter: &'static str,
    },
    /// The peak rate is below the committed rate (RFC 2698, section 2).
    #[error(
        "PIR {pir} is below CIR {cir}, but the peak rate counts what is committed too: make the PIR at least {cir}"
    )]
    PeakBelowCommitted {
        /// As given.
        cir: BitRate,
        /// As given.
        pir: BitRate,
    },
    /// A burst is smaller than the largest frame.
    #[error(
        "{parameter} {burst} can't hold a frame of {largest}, which would never conform: make it at least {largest}"
    )]
    SmallBurst {
        /// `CBS`, `PBS` or `EBS`.
        parameter: &'static str,
        /// As given.
        burst: Bytes,
        /// The largest frame.
        largest: Bytes,
    },
    /// A burst is above [`MAX_BURST`].
    #[error("{parameter} {burst} is more than a bucket can count: make it at most {MAX_BURST}")]
    LargeBurst {
        /// `CBS`, `PBS` or `EBS`.
        parameter: &'static str,
        /// As given.
        burst: Bytes,
    },
    /// Neither of the two bursts is above 0 (RFC 2697, section 2).
    #[error("CBS and EBS are both 0, so that all would be red: make one of them at least {largest}, the largest frame")]
    NoBurst {
        /// The largest frame.
        largest: Bytes,
    },
}

fn check_rate(parameter: &'static str, rate: BitRate) -> Result<(), MeterError> {
    if rate.0 == 0 { Err(MeterError::ZeroRate { parameter }) } else { Ok(()) }
}

fn check_burst(parameter: &'static str, burst: Bytes, largest: Bytes) -> Result<(), MeterError> {
    match () {
        () if burst > MAX_BURST => Err(MeterError::LargeBurst { parameter, burst }),
        () if burst < largest => Err(MeterError::SmallBurst { parameter, burst, largest }),
        () => Ok(()),
    }
}

/// Two rates with their bursts: the parameters of [`TrTcm`] and [`UtilizationMeter`], checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrTcmConfig {
    cir: BitRate,
    pir: BitRate,
    cbs: Bytes,
    pbs: Bytes,
}

impl TrTcmConfig {
    /// Committed and peak information rate, committed and peak burst size, for frames of up to
    /// `largest` bytes as the caller counts them.
    ///
    /// # Errors
    /// A rate of 0, a PIR below the CIR, a burst that does not hold `largest` or is above
    /// [`MAX_BURST`].
    pub fn new(cir: BitRate, pir: BitRate, cbs: Bytes, pbs: Bytes, largest: Bytes) -> Result<Self, MeterError> {
        check_rate("CIR", cir)?;
        check_rate("PIR", pir)?;
        if pir < cir {
            return Err(MeterError::PeakBelowCommitted { cir, pir });
        }
        check_burst("CBS", cbs, largest)?;
        check_burst("PBS", pbs, largest)?;
        Ok(TrTcmConfig { cir, pir, cbs, pbs })
    }

    /// Committed information rate.
    pub fn cir(&self) -> BitRate {
        self.cir
    }

    /// Peak information rate.
    pub fn pir(&self) -> BitRate {
        self.pir
    }

    /// Committed burst size.
    pub fn cbs(&self) -> Bytes {
        self.cbs
    }

    /// Peak burst size.
    pub fn pbs(&self) -> Bytes {
        self.pbs
    }
}

/// The parameters of [`SrTcm`], checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrTcmConfig {
    cir: BitRate,
    cbs: Bytes,
    ebs: Bytes,
}

impl SrTcmConfig {
    /// Committed information rate, committed and excess burst size, for frames of up to `largest`
    /// bytes. One of the bursts may be 0 (RFC 2697, section 2): then nothing is green, or nothing
    /// yellow.
    ///
    /// # Errors
    /// A rate of 0, no burst at all, a burst other than 0 that does not hold `largest` or is above
    /// [`MAX_BURST`].
    pub fn new(cir: BitRate, cbs: Bytes, ebs: Bytes, largest: Bytes) -> Result<Self, MeterError> {
        check_rate("CIR", cir)?;
        if (cbs, ebs) == (Bytes(0), Bytes(0)) {
            return Err(MeterError::NoBurst { largest });
        }
        for (parameter, burst) in [("CBS", cbs), ("EBS", ebs)] {
            if burst.0 > 0 {
                check_burst(parameter, burst, largest)?;
            }
        }
        Ok(SrTcmConfig { cir, cbs, ebs })
    }
}

/// The parameters of [`OneRate`], checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneRateConfig {
    cir: BitRate,
    cbs: Bytes,
}

impl OneRateConfig {
    /// Committed information rate and burst size, for frames of up to `largest` bytes.
    ///
    /// # Errors
    /// A rate of 0, a burst that does not hold `largest` or is above [`MAX_BURST`].
    pub fn new(cir: BitRate, cbs: Bytes, largest: Bytes) -> Result<Self, MeterError> {
        check_rate("CIR", cir)?;
        check_burst("CBS", cbs, largest)?;
        Ok(OneRateConfig { cir, cbs })
    }

    /// Committed information rate.
    pub fn cir(&self) -> BitRate {
        self.cir
    }
}

/// Units of a byte.
const BYTE: u64 = 8 * SECONDS;

/// Units that a packet of `len` bytes takes. Beyond 2 GiB the product is cut off, but no bucket holds
/// as much anyway.
#[inline]
fn cost(len: usize) -> u64 {
    (len as u64).saturating_mul(BYTE)
}

/// Invariant: `tokens <= capacity`, both in units.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u64,
    capacity: u64,
}

impl Bucket {
    fn full(burst: Bytes) -> Self {
        let capacity = burst.0 * BYTE;
        Bucket { tokens: capacity, capacity }
    }

    #[inline]
    fn earn(&mut self, units: u64) {
        self.tokens = self.tokens.saturating_add(units).min(self.capacity);
    }

    #[inline]
    fn holds(&self, cost: u64) -> bool {
        self.tokens >= cost
    }

    #[inline]
    fn take(&mut self, cost: u64) {
        self.tokens -= cost;
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.tokens == self.capacity
    }

    fn resize(&mut self, burst: Bytes) {
        self.capacity = burst.0 * BYTE;
        self.tokens = self.tokens.min(self.capacity);
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.tokens / BYTE)
    }

    fn burst(&self) -> Bytes {
        Bytes(self.capacity / BYTE)
    }
}

/// Nanoseconds from `touched` to `now`, and `touched` moves on: time that was paid for is not paid
/// again when the clock has gone back.
#[inline]
fn elapse(touched: &mut Instant, now: Instant) -> u64 {
    let ns = now.since(*touched);
    *touched = (*touched).max(now);
    ns
}

/// The buckets C and P with their rates, units a nanosecond.
#[derive(Clone, Copy, Debug)]
struct TwoRates {
    cir: u64,
    pir: u64,
    c: Bucket,
    p: Bucket,
    touched: Instant,
}

impl TwoRates {
    fn new(config: TrTcmConfig) -> Self {
        let TrTcmConfig { cir, pir, cbs, pbs } = config;
        TwoRates { cir: cir.0, pir: pir.0, c: Bucket::full(cbs), p: Bucket::full(pbs), touched: Instant::ZERO }
    }

    #[inline]
    fn refill(&mut self, now: Instant) {
        // All packets of a burst have one time.
        if now <= self.touched {
            return;
        }
        let ns = elapse(&mut self.touched, now);
        self.c.earn(ns.saturating_mul(self.cir));
        self.p.earn(ns.saturating_mul(self.pir));
    }

    fn at(mut self, now: Instant) -> Self {
        self.refill(now);
        self
    }

    fn reconfigure(&mut self, now: Instant, config: TrTcmConfig) {
        self.refill(now);
        (self.cir, self.pir) = (config.cir.0, config.pir.0);
        self.c.resize(config.cbs);
        self.p.resize(config.pbs);
    }

    fn config(&self) -> TrTcmConfig {
        let (cir, pir) = (BitRate(self.cir), BitRate(self.pir));
        TrTcmConfig { cir, pir, cbs: self.c.burst(), pbs: self.p.burst() }
    }
}

/// The two-rate three-color marker of RFC 2698. One cache line.
///
/// It polices: tokens that a packet of a worse color did not take are there for the next one. A
/// stream at twice the CIR is therefore every other packet green, not all yellow; to see how much
/// is on a link, take [`UtilizationMeter`].
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct TrTcm(TwoRates);

impl TrTcm {
    /// A meter whose buckets are full.
    pub fn new(config: TrTcmConfig) -> Self {
        TrTcm(TwoRates::new(config))
    }

    /// The color of a packet of `len` bytes in color-blind mode (RFC 2698, section 3).
    #[inline]
    pub fn mark(&mut self, now: Instant, len: usize) -> Color {
        // The rules of color-aware mode for green are those of color-blind mode.
        self.mark_aware(now, len, Color::Green)
    }

    /// The color of a packet of `len` bytes that came as `incoming`, in color-aware mode (RFC 2698,
    /// section 3): never a better one.
    #[inline]
    pub fn mark_aware(&mut self, now: Instant, len: usize, incoming: Color) -> Color {
        let cost = cost(len);
        let TrTcm(two) = self;
        two.refill(now);
        if incoming == Color::Red || !two.p.holds(cost) {
            return Color::Red;
        }
        two.p.take(cost);
        if incoming == Color::Yellow || !two.c.holds(cost) {
            return Color::Yellow;
        }
        two.c.take(cost);
        Color::Green
    }

    /// Takes new parameters at `now`. Tokens earned until then stay, as far as the new bursts hold them.
    pub fn reconfigure(&mut self, now: Instant, config: TrTcmConfig) {
        self.0.reconfigure(now, config);
    }

    /// The parameters.
    pub fn config(&self) -> TrTcmConfig {
        self.0.config()
    }

    /// Tokens of bucket C at `now`, in whole bytes.
    pub fn committed(&self, now: Instant) -> Bytes {
        self.0.at(now).c.bytes()
    }

    /// Tokens of bucket P at `now`, in whole bytes.
    pub fn peak(&self, now: Instant) -> Bytes {
        self.0.at(now).p.bytes()
    }
}

/// A link's utilization in the colors of a two-rate meter: green below the CIR, yellow between, red
/// above the PIR. One cache line.
///
/// It measures where [`TrTcm`] polices: every packet takes its tokens from both buckets, as far as
/// they go, so a load above a rate empties that rate's bucket and keeps it empty (the phantom queue
/// of HULL, NSDI 2012, counted downwards). A rate counts as exceeded from the packet that
/// its bucket does not hold until the first that finds it full again. A constant load thus has one
/// color, and between two changes at one rate lies a whole burst of tokens: CBS and PBS are to
/// utilization what delta is to queue depth (P4TE, section 4.1).
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct UtilizationMeter {
    two: TwoRates,
    above_cir: bool,
    above_pir: bool,
}

impl UtilizationMeter {
    /// A meter of a link that was idle.
    pub fn new(config: TrTcmConfig) -> Self {
        UtilizationMeter { two: TwoRates::new(config), above_cir: false, above_pir: false }
    }

    /// The link's color when a packet of `len` bytes leaves by it.
    #[inline]
    pub fn mark(&mut self, now: Instant, len: usize) -> Color {
        let cost = cost(len);
        self.two.refill(now);
        let spend = |bucket: &mut Bucket, above: &mut bool| {
            *above = !bucket.holds(cost) || (*above && !bucket.is_full());
            bucket.tokens = bucket.tokens.saturating_sub(cost);
        };
        spend(&mut self.two.c, &mut self.above_cir);
        spend(&mut self.two.p, &mut self.above_pir);
        self.level()
    }

    #[inline]
    fn level(&self) -> Color {
        match (self.above_pir, self.above_cir) {
            (true, _) => Color::Red,
            (false, true) => Color::Yellow,
            (false, false) => Color::Green,
        }
    }

    /// The link's color at `now` if nothing leaves: an idle link turns green although no packet says so.
    pub fn color(&self, now: Instant) -> Color {
        let mut idle = *self;
        idle.mark(now, 0)
    }

    /// Takes new parameters at `now`. Tokens earned until then stay, as far as the new bursts hold them.
    pub fn reconfigure(&mut self, now: Instant, config: TrTcmConfig) {
        self.two.reconfigure(now, config);
    }

    /// The parameters.
    pub fn config(&self) -> TrTcmConfig {
        self.two.config()
    }

    /// Tokens of bucket C at `now`, in whole bytes.
    pub fn committed(&self, now: Instant) -> Bytes {
        self.two.at(now).c.bytes()
    }

    /// Tokens of bucket P at `now`, in whole bytes.
    pub fn peak(&self, now: Instant) -> Bytes {
        self.two.at(now).p.bytes()
    }
}

/// The single-rate three-color marker of RFC 2697: what bucket C has no room for goes to bucket E.
#[derive(Clone, Copy, Debug)]
pub struct SrTcm {
    /// Units a nanosecond.
    cir: u64,
    c: Bucket,
    e: Bucket,
    touched: Instant,
}

impl SrTcm {
    /// A meter whose buckets are full.
    pub fn new(config: SrTcmConfig) -> Self {
        let SrTcmConfig { cir, cbs, ebs } = config;
        SrTcm { cir: cir.0, c: Bucket::full(cbs), e: Bucket::full(ebs), touched: Instant::ZERO }
    }

    #[inline]
    fn refill(&mut self, now: Instant) {
        // Cut off, the product still fills both: MAX_BURST sees to it.
        let earned = elapse(&mut self.touched, now).saturating_mul(self.cir);
        let room = self.c.capacity - self.c.tokens;
        self.c.earn(earned);
        self.e.earn(earned.saturating_sub(room));
    }

    /// The color of a packet of `len` bytes in color-blind mode (RFC 2697, section 3).
    #[inline]
    pub fn mark(&mut self, now: Instant, len: usize) -> Color {
        // The rules of color-aware mode for green are those of color-blind mode.
        self.mark_aware(now, len, Color::Green)
    }

    /// The color of a packet of `len` bytes that came as `incoming`, in color-aware mode (RFC 2697,
    /// section 3): never a better one.
    #[inline]
    pub fn mark_aware(&mut self, now: Instant, len: usize, incoming: Color) -> Color {
        let cost = cost(len);
        self.refill(now);
        if incoming == Color::Green && self.c.holds(cost) {
            self.c.take(cost);
            return Color::Green;
        }
        if incoming <= Color::Yellow && self.e.holds(cost) {
            self.e.take(cost);
            return Color::Yellow;
        }
        Color::Red
    }

    /// Takes new parameters at `now`. Tokens earned until then stay, as far as the new bursts hold them.
    pub fn reconfigure(&mut self, now: Instant, config: SrTcmConfig) {
        self.refill(now);
        self.cir = config.cir.0;
        self.c.resize(config.cbs);
        self.e.resize(config.ebs);
    }

    /// The parameters.
    pub fn config(&self) -> SrTcmConfig {
        SrTcmConfig { cir: BitRate(self.cir), cbs: self.c.burst(), ebs: self.e.burst() }
    }

    fn at(mut self, now: Instant) -> Self {
        self.refill(now);
        self
    }

    /// Tokens of bucket C at `now`, in whole bytes.
    pub fn committed(&self, now: Instant) -> Bytes {
        self.at(now).c.bytes()
    }

    /// Tokens of bucket E at `now`, in whole bytes.
    pub fn excess(&self, now: Instant) -> Bytes {
        self.at(now).e.bytes()
    }
}

/// One rate, two colors: green within the CIR, yellow above it. The meter of a traffic class at an
/// ingress port (P4TE, section 4.1.3): an [`SrTcm`] with no excess burst, whose red is called yellow.
/// Two share a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct OneRate {
    /// Units a nanosecond.
    cir: u64,
    c: Bucket,
    touched: Instant,
}

const _: () = assert!(size_of::<TrTcm>() == 64 && size_of::<UtilizationMeter>() == 64 && size_of::<OneRate>() == 32);

impl OneRate {
    /// A meter whose bucket is full.
    pub fn new(config: OneRateConfig) -> Self {
        OneRate { cir: config.cir.0, c: Bucket::full(config.cbs), touched: Instant::ZERO }
    }

    #[inline]
    fn refill(&mut self, now: Instant) {
        if now <= self.touched {
            return;
        }
        let earned = elapse(&mut self.touched, now).saturating_mul(self.cir);
        self.c.earn(earned);
    }

    /// The color of a packet of `len` bytes.
    #[inline]
    pub fn mark(&mut self, now: Instant, len: usize) -> Color {
        let cost = cost(len);
        self.refill(now);
        if !self.c.holds(cost) {
            return Color::Yellow;
        }
        self.c.take(cost);
        Color::Green
    }

    /// Takes new parameters at `now`. Tokens earned until then stay, as far as the new burst holds them.
    pub fn reconfigure(&mut self, now: Instant, config: OneRateConfig) {
        self.refill(now);
        self.cir = config.cir.0;
        self.c.resize(config.cbs);
    }

    /// The parameters.
    pub fn config(&self) -> OneRateConfig {
        OneRateConfig { cir: BitRate(self.cir), cbs: self.c.burst() }
    }

    /// Tokens at `now`, in whole bytes.
    pub fn committed(&self, now: Instant) -> Bytes {
        let mut later = *self;
        later.refill(now);
        later.c.bytes()
    }
}
