//! Discounting rate estimators (Alizadeh et al., "CONGA: Distributed congestion-aware load balancing for
//! datacenters", SIGCOMM 2014): how much of a link is used, in one register.
//!
//! Each packet adds its bytes to X, and each period T takes the share alpha of X away. X is then about
//! rate * tau with tau = T / alpha, a low-pass of the first order, and X / (C * tau) the load of a link
//! of capacity C. At a constant rate R it swings between R * tau * (1 - alpha) and R * tau.
//!
//! No timer runs: the periods that have passed are made up for when a register is touched or read.
//! They are those of absolute time, at multiples of T, as a timer's would be; counted from the last
//! packet instead, their phase would drift with each.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::pisa::epochs::Epochs;
use crate::time::{Instant, SECONDS};
use crate::units::BitRate;

/// What an unlimited port counts as: the rate that a veth claims to have.
pub const UNPACED: BitRate = BitRate(10_000_000_000);

/// Shares of alpha that can be had, in millionths.
pub const ALPHA: RangeInclusive<u32> = 1_000..=500_000;

/// Levels of the metric: 3 bits (Q = 3 of CONGA; CAFT, arXiv 2010.00720).
const LEVELS: usize = 8;

/// Bytes that C * tau should have at least. A level is then eight packets of 1,500 bytes; with less, the
/// metric is the last packet's size.
const MIN_CAPACITY: u128 = 100_000;

const MILLION: u128 = 1_000_000;

/// One byte, in bits a second times nanoseconds.
const BYTE: u128 = 8 * SECONDS as u128;

/// Fractional bits of X.
const FRACTION: u32 = 8;

/// Fractional bits of a power of 1 - alpha.
const POWER_FRACTION: u32 = 32;

fn capacity_of(rate: BitRate) -> u128 {
    u128::from(if rate.0 == 0 { UNPACED.0 } else { rate.0 })
}

/// The period T, in nanoseconds, of the DRE of a link of `rate` (0 counts as [`UNPACED`]): `base`, or
/// longer if C * tau would be below 100 kB, so that it is 100 kB. Alpha in millionths.
pub fn period(rate: BitRate, base: u64, alpha: u32) -> u64 {
    let least = (MIN_CAPACITY * BYTE * u128::from(alpha)).div_ceil(capacity_of(rate) * MILLION);
    base.max(u64::try_from(least).unwrap_or(u64::MAX))
}

/// The powers of 1 - alpha for one alpha, which all DREs of a switch share.
///
/// As many as are not 0 in 32 fractional bits: 218 for an alpha of 0.1, 22,863 for the least, 0.001. The
/// first left out would leave less than 1/256 byte, the least that X tells apart, of 32 MiB.
#[derive(Clone, Debug)]
pub struct Decay {
    powers: Arc<[u64]>,
    alpha: u32,
}

impl Decay {
    /// The powers for `alpha`, in millionths.
    ///
    /// # Panics
    /// If `alpha` is not in [`ALPHA`].
    pub fn new(alpha: u32) -> Self {
        assert!(ALPHA.contains(&alpha), "alpha of {alpha} millionths");
        let keep = 1.0 - f64::from(alpha) / 1e6;
        let one = (1u64 << POWER_FRACTION) as f64;
        let powers = std::iter::successors(Some(one), |power| Some(power * keep))
            .map(|power| power.round() as u64)
            .take_while(|power| *power > 0)
            .collect();
        Decay { powers, alpha }
    }

    /// Alpha, in millionths.
    pub fn alpha(&self) -> u32 {
        self.alpha
    }

    /// (1 - alpha)^n, in 2^-32.
    #[inline]
    pub fn power(&self, n: u64) -> u64 {
        usize::try_from(n).ok().and_then(|n| self.powers.get(n)).copied().unwrap_or(0)
    }

    /// Rounds down, so that a register that is touched in every period falls to 0, too.
    #[inline]
    fn after(&self, value: u64, periods: u64) -> u64 {
        ((u128::from(value) * u128::from(self.power(periods))) >> POWER_FRACTION) as u64
    }
}

/// The register of one port and one direction.
///
/// X has 8 fractional bits and saturates. Each decay rounds it down, so that it is below the value of exact
/// arithmetic by less than 1 / (256 * alpha) bytes: 0.04 for an alpha of 0.1. A time that goes back
/// decays nothing; what is counted then is counted in the period that was reached.
///
/// Two cache lines, of which [`Dre::count`] needs the first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Dre {
    /// X, in 1/256 byte.
    value: u64,
    epochs: Epochs,
    decay: Decay,
    rate: BitRate,
    /// Eighths of C * tau, from one to all eight, rounded up; in 1/256 byte.
    eighths: [u64; LEVELS],
}

const _: () = assert!(size_of::<Dre>() == 128 && std::mem::offset_of!(Dre, rate) < 64);

impl Dre {
    /// An idle link of `rate` (0, unlimited, counts as [`UNPACED`]) with a period of `period` nanoseconds
    /// (0 counts as 1); [`period`] gives one that suits the rate.
    pub fn new(rate: BitRate, period: u64, decay: &Decay) -> Self {
        let mut dre = Dre { value: 0, epochs: Epochs::new(period), decay: decay.clone(), rate, eighths: [0; LEVELS] };
        dre.scale(rate);
        dre
    }

    fn scale(&mut self, rate: BitRate) {
        self.rate = rate;
        let bit_nanoseconds = capacity_of(rate) * u128::from(self.epochs.period());
        let whole = bit_nanoseconds.saturating_mul(MILLION << FRACTION);
        let parts = u128::from(self.decay.alpha) * BYTE * LEVELS as u128;
        self.eighths = std::array::from_fn(|i| {
            let eighth = whole.saturating_mul(i as u128 + 1).div_ceil(parts);
            u64::try_from(eighth).unwrap_or(u64::MAX)
        });
    }

    /// Counts a packet of so many bytes (of the Ethernet frame without FCS, where links are compared).
    #[inline]
    pub fn count(&mut self, now: Instant, bytes: u32) {
        let passed = self.epochs.advance(now);
        if passed > 0 {
            self.value = self.decay.after(self.value, passed);
        }
        self.value = self.value.saturating_add(u64::from(bytes) << FRACTION);
    }

    #[inline]
    fn at(&self, now: Instant) -> u64 {
        match self.epochs.ahead(now) {
            0 => self.value,
            passed => self.decay.after(self.value, passed),
        }
    }

    /// The link's load at `now` in eighths, rounded down, at most 7: what CAFT carries in 3 bits.
    #[inline]
    pub fn metric(&self, now: Instant) -> u8 {
        let value = self.at(now);
        self.eighths[..LEVELS - 1].iter().map(|eighth| u8::from(value >= *eighth)).sum()
    }

    /// X at `now`, in bytes. For showing.
    pub fn bytes(&self, now: Instant) -> f64 {
        self.at(now) as f64 / f64::from(1 << FRACTION)
    }

    /// The link's load at `now`, X / (C * tau); above 1 after a burst. For showing.
    pub fn load(&self, now: Instant) -> f64 {
        self.at(now) as f64 / self.eighths[LEVELS - 1] as f64
    }

    /// Bytes of X, rounded up, from which on the metric is 1, 2, ... 7.
    pub fn thresholds(&self) -> [u64; LEVELS - 1] {
        std::array::from_fn(|i| self.eighths[i].div_ceil(1 << FRACTION))
    }

    /// The rate as it was given; 0 is unlimited.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// The period T, in nanoseconds.
    pub fn period(&self) -> u64 {
        self.epochs.period()
    }

    /// Takes another rate and period, as [`Dre::new`]. X stays; what it has not decayed since the last
    /// packet it will decay in periods of the new length.
    pub fn set_rate(&mut self, rate: BitRate, period: u64) {
        self.epochs.set_period(period);
        self.scale(rate);
    }
}
