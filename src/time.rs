use std::fmt;
use std::ops::{Add, Sub};

/// A point in time: nanoseconds since an origin that the driver chooses (boot for the runtime,
/// zero for virtual time). 64 bits last 584 years, so it never wraps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

/// One microsecond in nanoseconds.
pub const MICROS: u64 = 1_000;
/// One millisecond in nanoseconds.
pub const MILLIS: u64 = 1_000_000;
/// One second in nanoseconds.
pub const SECONDS: u64 = 1_000_000_000;

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);

    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later (clocks may be handed in late).
    #[inline]
    pub fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Instant {
    type Output = Instant;
    /// `self` + `ns` nanoseconds, saturating.
    #[inline]
    fn add(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Instant {
    type Output = Instant;
    #[inline]
    fn sub(self, ns: u64) -> Instant {
        Instant(self.0.saturating_sub(ns))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / SECONDS, self.0 % SECONDS)
    }
}

/// The earlier of two optional deadlines; `None` is "never".
#[inline]
pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
