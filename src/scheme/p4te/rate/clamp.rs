//! The clamp: for the next B acknowledged bytes the leaf shows the sender a smaller window than its
//! receiver advertises. Not in the paper: its FACK is undone by the next genuine ACK, this is not.
//!
//! What the sender sees (RFC 9293, section 3.8.6):
//!
//! - never more than the receiver's own window, so that nothing is sent that it would not take;
//! - never less than one segment, or silly-window avoidance would stop the flow; and 0 if and only if the
//!   receiver says 0, so that probing and window updates work as ever;
//! - a right edge (ack + window) that never lies left of what the sender has sent already, unless the
//!   receiver shrinks its window itself. What was advertised and *not yet used* is withdrawn: a receiver
//!   SHOULD NOT do that, but a sender MUST bear it, and without it a flow that its congestion window
//!   limits would feel nothing before the clamp is over. The leaf can't know of bytes that are still on
//!   their way to it; by those the usable window may be negative for a round trip between host and leaf;
//! - the same window in duplicate ACKs of the same genuine window, or they would not be duplicates (RFC
//!   5681, section 2): bytes sent meanwhile move the edge at the next newly acknowledged byte.

use crate::time::Instant;
use crate::wire::tcp::seq;

/// Smallest window shown, in bytes, if the receiver's own is not smaller: one segment of Ethernet. Flows
/// that announced larger segments have theirs.
pub const MIN_WINDOW: u16 = 1460;

/// A clamp on one flow; the default clamps nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clamp {
    /// When it ends at the latest.
    until: Instant,
    /// The acknowledgment number it ends at.
    end: u32,
    /// The right edge is not moved left of this.
    floor: u32,
    /// Window field; 0 for no clamp.
    window: u16,
}

impl Clamp {
    /// A clamp to the window field `window`, but at least a segment of `mss` bytes by a window scale of
    /// `shift`, until the sender was acknowledged `end` or it is `until`. `sent` is the sequence number
    /// after the last byte sent.
    pub fn new(window: u16, shift: u8, mss: u16, (end, until): (u32, Instant), sent: u32) -> Clamp {
        let least = u32::from(mss.max(MIN_WINDOW)).div_ceil(1 << shift) as u16;
        Clamp { until, end, floor: sent, window: window.max(least) }
    }

    /// The window field it clamps to; 0 for no clamp.
    #[inline]
    pub fn window(&self) -> u16 {
        self.window
    }

    /// Whether there is a clamp, not over at `now` for a segment that acknowledges `ack`.
    #[inline]
    pub fn holds(&self, now: Instant, ack: u32) -> bool {
        self.window != 0 && now < self.until && !seq::ge(ack, self.end)
    }

    /// Bytes were newly acknowledged, after `sent` had been sent.
    #[inline]
    pub fn advance(&mut self, sent: u32) {
        self.floor = seq::max(self.floor, sent);
    }

    /// The window field that a segment shows instead of `genuine`, by a window scale of `shift`; `ack` is
    /// its acknowledgment number. At most `genuine`, and 0 only if that is.
    #[inline]
    pub fn shown(&self, genuine: u16, shift: u8, ack: u32) -> u16 {
        let used = if seq::gt(self.floor, ack) { self.floor.wrapping_sub(ack) } else { 0 };
        let used = used.div_ceil(1 << shift).min(u32::from(u16::MAX)) as u16;
        genuine.min(self.window.max(used))
    }
}
