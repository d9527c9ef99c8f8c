use nix::time::{ClockId, clock_gettime};

use crate::time::{Instant, SECONDS};

/// Now: CLOCK_MONOTONIC, the same in every process of the machine, unmoved by wall-clock steps.
/// A read costs about as much as half the work on a packet: once a burst, never a packet.
///
/// # Panics
/// Never on Linux: the clock always exists.
#[inline]
pub fn now() -> Instant {
    let t = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    Instant(t.tv_sec() as u64 * SECONDS + t.tv_nsec() as u64)
}
