use super::mode::SlotMode;
use crate::time::{MILLIS, SECONDS};
use crate::units::BitRate;
use crate::wire::ethernet::{HEADER_LEN, WIRE_OVERHEAD};

/// Most slots in one reservation: the window of [`SlotMode::Window`].
pub const MAX_BURST: u16 = super::window::WINDOW as u16;

/// Most slots that senders at one port may ever have reserved: 64 ports' are a sixteenth of what a register holds.
pub const MAX_RESERVED: u32 = 1 << 20;

/// Longest [`BookConfig::grace`], in nanoseconds.
pub const MAX_GRACE: u64 = 10 * SECONDS;

/// How a slot book runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BookConfig {
    /// What slots are counted from.
    pub mode: SlotMode,
    /// Length of a slot in nanoseconds, the same at all ports ([`slot_ns`]); 1 to 1 s.
    pub slot_ns: u32,
    /// K, the most slots in one reservation: 1 to [`MAX_BURST`]. Who asks for more is granted K.
    pub max_burst: u16,
    /// Most reservations of one ingress port at once, and most of its connections that are remembered: 1 to
    /// 32,768. Beyond that is refused.
    pub max_pending: u16,
    /// Most slots that the senders at one ingress port may have reserved, and by a clock may have ahead of them, used or
    /// not: `max_burst` to [`MAX_RESERVED`]. Beyond that is refused, for now. An honest host has no more than its
    /// `max_outstanding`, and what a lost message leaves at the switch.
    pub max_reserved: u32,
    /// How long after the end of its window a reservation that was not used is taken back, in nanoseconds, at
    /// most 10 s ([`grace`] for how slow hosts may be). A receiver waits for 1 ms or four round trips, or for
    /// as long as a host may be late, and the switch 1 ms longer.
    pub grace: u64,
    /// Whether the receiver gets a copy of each grant (NTF), so that it can take back what a dead sender holds.
    pub notify: bool,
    /// Whether frames sent without a reservation are to be dropped; if not, they are only counted.
    pub drop_rogues: bool,
}

impl Default for BookConfig {
    /// Counters, K = 4, slots of 1 Gbit/s, and what is taken back after 2 ms.
    fn default() -> Self {
        BookConfig {
            mode: SlotMode::Counter,
            slot_ns: slot_ns(1500, BitRate(1_000_000_000)).expect("a slot that is neither empty nor endless"),
            max_burst: 4,
            max_pending: 4096,
            max_reserved: 128,
            grace: 2 * MILLIS,
            notify: false,
            drop_rogues: false,
        }
    }
}

/// The time that a full frame takes on the wire, in nanoseconds and rounded up: `mtu` bytes behind an Ethernet
/// header, with FCS, preamble and gap. `None` if the rate is unlimited (0), or that is more than 32 bits hold.
pub fn slot_ns(mtu: u16, rate: BitRate) -> Option<u32> {
    const BIT_NANOSECONDS_PER_BYTE: u64 = 8_000_000_000;
    let bytes = u64::from(mtu) + (HEADER_LEN + WIRE_OVERHEAD) as u64;
    let BitRate(rate @ 1..) = rate else { return None };
    u32::try_from((bytes * BIT_NANOSECONDS_PER_BYTE).div_ceil(rate)).ok()
}

/// How long after the end of a window a host that does as it should may still send in it, in nanoseconds: it is late by
/// up to `late_max` slots, behind up to `max_outstanding` slots of its own in its link and as many in the time
/// that it has for them.
pub(super) fn lateness(late_max: u32, max_outstanding: u32, slot_ns: u32) -> u64 {
    (u64::from(late_max) + 2 * u64::from(max_outstanding)).saturating_mul(slot_ns.into())
}

/// [`BookConfig::grace`] for hosts that are late by up to `late_max` slots, with up to `max_outstanding` slots at once,
/// in nanoseconds: 1 ms longer than their receivers wait, and at least 2 ms.
pub fn grace(late_max: u32, max_outstanding: u32, slot_ns: u32) -> u64 {
    (lateness(late_max, max_outstanding, slot_ns).saturating_add(MILLIS)).clamp(2 * MILLIS, MAX_GRACE)
}

/// What a [`BookConfig`] can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BookConfigError {
    /// No time at all, or a frame in more than a second.
    #[error("slots of {0} ns: choose 1 ns to 1 s, the time of a full frame at the ports' rate")]
    Slot(u32),
    /// Nothing could be reserved, or more than a window holds.
    #[error("reservations of up to {0} slots: choose 1 to {MAX_BURST}")]
    MaxBurst(u16),
    /// Nobody could reserve, or registers could overflow.
    #[error("up to {0} reservations of a port: choose 1 to 32768")]
    MaxPending(u16),
    /// Not one full request could be granted, or registers could overflow.
    #[error("up to {0} slots reserved of a port: choose max_burst to {MAX_RESERVED}")]
    MaxReserved(u32),
    /// What a dead sender holds would be in the way of all others.
    #[error("unused reservations taken back after {0} ns: choose at most 10 s")]
    Grace(u64),
}

impl BookConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), BookConfigError> {
        let BookConfig { slot_ns, max_burst, max_pending, max_reserved, grace, .. } = *self;
        match () {
            () if !(1..=SECONDS).contains(&slot_ns.into()) => Err(BookConfigError::Slot(slot_ns)),
            () if !(1..=MAX_BURST).contains(&max_burst) => Err(BookConfigError::MaxBurst(max_burst)),
            () if !(1..=1 << 15).contains(&max_pending) => Err(BookConfigError::MaxPending(max_pending)),
            () if !(max_burst.into()..=MAX_RESERVED).contains(&max_reserved) => {
                Err(BookConfigError::MaxReserved(max_reserved))
            }
            () if grace > MAX_GRACE => Err(BookConfigError::Grace(grace)),
            () => Ok(()),
        }
    }
}
