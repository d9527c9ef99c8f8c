use crate::id::PortId;
use crate::time::Instant;

/// What happened at one port, counted where the sender is unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotCounters {
    /// Requests that were granted.
    pub grants: u64,
    /// Of those: in place of a reservation that was still there.
    pub renewed: u64,
    /// Slots that were granted.
    pub granted_slots: u64,
    /// Requests that were refused, by reason; [`SlotCounters::nacks`] is their sum.
    pub no_route: u64,
    /// No room in a table or in the window.
    pub full: u64,
    /// The reservation of that number is over.
    pub stale: u64,
    /// No slots at all, or the number 0.
    pub invalid: u64,
    /// Slots that a frame has closed.
    pub used_slots: u64,
    /// Slots that were not used, as the last frame of their reservation has shown.
    pub unused_slots: u64,
    /// Reservations that were taken back when their time was over.
    pub timeouts: u64,
    /// Slots of those.
    pub timeout_slots: u64,
    /// RST that took slots back.
    pub resets: u64,
    /// REL that gave slots back.
    pub releases: u64,
    /// RST and REL without effect: of another start, from another port, of a reservation that is over, or the
    /// second of their kind.
    pub refused: u64,
    /// Frames whose reservation was taken back before they came.
    pub late: u64,
    /// Frames without a reservation.
    pub rogue: u64,
    /// Slots closed by late and rogue frames while nothing at all was reserved here: what would have taken the
    /// paper's register below 0.
    pub in_underflows: u64,
    /// Slots that left by this port, or were dropped on their way to it, and had not been announced.
    pub out_underflows: u64,
}

impl SlotCounters {
    /// Requests that were refused.
    pub fn nacks(&self) -> u64 {
        self.no_route + self.full + self.stale + self.invalid
    }
}

/// One port, for showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortSlots {
    /// `in[]`: slots that are reserved on the way in and not used yet.
    pub in_slots: u32,
    /// `out[]`: slots that are reserved on the way out and not used yet, and those whose last frame is queued.
    pub out_slots: u32,
    /// Of those: the queued.
    pub queued: u32,
    /// Reservations of senders at this port.
    pub pending: u32,
    /// What happened.
    pub counters: SlotCounters,
}

/// One reservation, for showing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pending {
    /// The sender's port.
    pub ingress: PortId,
    /// The sender's connection.
    pub conn: u32,
    /// The reservation's number in it.
    pub seq: u32,
    /// The receiver's port.
    pub output: PortId,
    /// Slots that are not used yet.
    pub k_left: u16,
    /// When they are taken back.
    pub deadline: Instant,
}
