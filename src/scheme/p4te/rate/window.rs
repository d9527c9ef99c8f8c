use super::flow::{Flow, MAX_BYTES, Slot};
use super::{AckRule, Direction, Fack, RateAction, flow_key, has_key};
use crate::pisa::FlowHash;
use crate::pisa::table::Registers;
use crate::time::{Instant, MILLIS, SECONDS};
use crate::wire::{Headers, tcp};

/// How rate adaptation is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// B: at most one action in as many bytes of a flow. Paper, section 6.1.5: the largest rate of a flow times
    /// the mean round trip. 1 to 2^28.
    pub bytes: u32,
    /// A flow of which nothing was heard for longer, in ns, loses its slot to the next that wants it.
    pub idle: u64,
    /// A clamp ends after so many ns if B bytes were not acknowledged by then.
    pub clamp_time: u64,
}

impl Default for Params {
    /// 125,000 bytes (10 Gbit/s times 100 us), 60 s, 100 ms.
    fn default() -> Self {
        Params { bytes: 125_000, idle: 60 * SECONDS, clamp_time: 100 * MILLIS }
    }
}

/// Segments in B bytes that rate control is offered.
const OFFERS: u32 = 16;

/// The flows of the senders next to a leaf: a register a flow, addressed by [`flow_key`].
///
/// Each TCP segment that a host at this leaf sends is shown to [`Flows::sent`], each that goes to one to
/// [`Flows::received`], before anything else is decided about it.
///
/// Collisions: a slot is one flow's, from its SYN until its sender's FIN, an RST, or until nothing was
/// heard of it for [`Params::idle`]. A flow whose slot is another's when it starts is left alone for
/// good; so is one whose handshake was not seen, or can be read in two ways. Slots carry the 64-bit key:
/// two flows get mixed up only if that is equal, one pair in 2^64.
#[derive(Clone, Debug)]
pub struct Flows {
    slots: Registers<Slot>,
    hash: FlowHash,
    params: Params,
}

impl Flows {
    /// At least `slots` slots; `seed` is that of the switch's flow hash.
    ///
    /// # Panics
    /// If [`Params::bytes`] is 0 or over 2^28.
    pub fn new(slots: usize, seed: u64, params: Params) -> Flows {
        assert!((1..=MAX_BYTES).contains(&params.bytes), "a rate-control window of {} bytes", params.bytes);
        Flows { slots: Registers::new(slots), hash: FlowHash::new(seed), params }
    }

    /// Asks for the slot of data with `flow_hash`, ahead of [`Flows::sent`].
    #[inline]
    pub fn prefetch(&self, flow_hash: u64) {
        self.slots.prefetch(flow_hash);
    }

    /// A segment that its sender, next to this leaf, has sent: whether rate control may act on it, here
    /// or at a later switch (paper, section 4.3). Until one has acted, every segment that is B / 16 bytes after
    /// the last for which the answer was `true`, so that a queue of a flow's segments does not call for
    /// an action each; [`Flows::fack`] and [`Flows::clamp`] ask again.
    ///
    /// `true` only for data of a known flow, more than B bytes after that of the last action. A SYN sets
    /// that to its own sequence number; sent again, it does not set it back.
    ///
    /// `flow_hash` is the packet's ([`FlowHash::packet`]), by the seed of [`Flows::new`].
    #[inline]
    pub fn sent(&mut self, now: Instant, frame: &[u8], headers: &Headers, flow_hash: u64) -> bool {
        debug_assert_eq!(flow_hash, self.hash.packet(frame, headers));
        if !has_key(frame, headers) {
            return false;
        }
        let key = flow_hash;
        let Params { bytes, idle, .. } = self.params;
        let l4 = headers.l4 as usize;
        let (flags, seq) = (tcp::flags(frame, l4), tcp::seq_number(frame, l4));
        let slot = self.slots.at_mut(key);
        if flags & (tcp::FIN | tcp::RST) != 0 {
            slot.end(key);
            return false;
        }
        if flags & tcp::SYN != 0 {
            slot.syn((now, idle), key, Direction::Forward, frame, headers);
            return false;
        }
        let Some(flow) = slot.flow(key, now) else { return false };
        let end = seq.wrapping_add(tcp::payload_len(frame, headers) as u32);
        flow.sent(seq, end, bytes)
            && is_data(frame, headers)
            && flow.admits(seq, bytes)
            && flow.offers(seq, bytes / OFFERS)
    }

    /// A genuine segment for a sender next to this leaf: not a FACK. Learns from it, and if its flow is
    /// clamped, rewrites its window; `true` if it did.
    ///
    /// A receiver's FIN does not end the flow, which it may go on receiving, but is not rewritten.
    pub fn received(&mut self, now: Instant, frame: &mut [u8], headers: &Headers) -> bool {
        let Some(key) = flow_key(&self.hash, frame, headers, Direction::Reverse) else { return false };
        let l4 = headers.l4 as usize;
        let flags = tcp::flags(frame, l4);
        let slot = self.slots.at_mut(key);
        if flags & tcp::RST != 0 {
            slot.end(key);
            return false;
        }
        if flags & tcp::SYN != 0 {
            slot.syn((now, self.params.idle), key, Direction::Reverse, frame, headers);
            return false;
        }
        let Some(flow) = slot.flow(key, now) else { return false };
        if !flow.acknowledged(frame, headers) || flags & tcp::FIN != 0 {
            return false;
        }
        let Some(window) = flow.shown(now) else { return false };
        tcp::set_window(frame, l4, window);
        true
    }

    /// Applies `action` to the flow of the data segment in `frame`, which [`Flows::sent`] has seen, by a
    /// FACK: what it is to say, for [`super::fack::build`]. `None` if rate control may not act on the segment
    /// (any more), lacks a timestamp that its flow has, or the window would stay as it is.
    pub fn fack(
        &mut self,
        now: Instant,
        frame: &[u8],
        headers: &Headers,
        action: RateAction,
        rule: AckRule,
    ) -> Option<Fack> {
        let (has_echo, bytes) = (tcp::timestamps(frame, headers).is_some(), self.params.bytes);
        let (flow, seq) = self.admitted(now, frame, headers)?;
        flow.fack(seq, action, rule, has_echo, bytes)
    }

    /// The same for data at `seq` of the flow that the [`super::notice`] in `frame` is about.
    pub fn fack_noticed(
        &mut self,
        now: Instant,
        frame: &[u8],
        headers: &Headers,
        (action, seq): (RateAction, u32),
        rule: AckRule,
    ) -> Option<Fack> {
        let (has_echo, bytes) = (tcp::timestamps(frame, headers).is_some(), self.params.bytes);
        self.noticed(now, frame, headers, seq)?.fack(seq, action, rule, has_echo, bytes)
    }

    /// Applies `action` to the flow of the data segment in `frame`, which [`Flows::sent`] has seen, by the
    /// windows of its next ACKs: a decrease clamps them, an increase lifts the clamp. `false` if rate
    /// control may not act on the segment (any more), or the windows would stay as they are.
    pub fn clamp(&mut self, now: Instant, frame: &[u8], headers: &Headers, action: RateAction) -> bool {
        let Params { bytes, clamp_time, .. } = self.params;
        let Some((flow, seq)) = self.admitted(now, frame, headers) else { return false };
        flow.clamp_at(seq, action, (now, now + clamp_time), bytes)
    }

    /// The same for data at `seq` of the flow that the [`super::notice`] in `frame` is about.
    pub fn clamp_noticed(
        &mut self,
        now: Instant,
        frame: &[u8],
        headers: &Headers,
        (action, seq): (RateAction, u32),
    ) -> bool {
        let Params { bytes, clamp_time, .. } = self.params;
        let Some(flow) = self.noticed(now, frame, headers, seq) else { return false };
        flow.clamp_at(seq, action, (now, now + clamp_time), bytes)
    }

    /// The flow of a data segment and its sequence number, if rate control may act on it.
    fn admitted(&mut self, now: Instant, frame: &[u8], headers: &Headers) -> Option<(&mut Flow, u32)> {
        let key = flow_key(&self.hash, frame, headers, Direction::Forward)?;
        let seq = tcp::seq_number(frame, headers.l4 as usize);
        let flow = self.slots.at_mut(key).flow(key, now)?;
        (is_data(frame, headers) && flow.admits(seq, self.params.bytes)).then_some((flow, seq))
    }

    /// The flow that a notice is about, if rate control may act on its data at `seq`.
    fn noticed(&mut self, now: Instant, frame: &[u8], headers: &Headers, seq: u32) -> Option<&mut Flow> {
        let key = flow_key(&self.hash, frame, headers, Direction::Reverse)?;
        self.slots.at_mut(key).flow(key, now).filter(|flow| flow.admits(seq, self.params.bytes) && flow.has_sent(seq))
    }
}

/// Whether a whole segment carries data and an acknowledgment, and neither opens nor ends anything.
#[inline]
pub fn is_data(frame: &[u8], headers: &Headers) -> bool {
    let flags = tcp::flags(frame, headers.l4 as usize) & (tcp::ACK | tcp::SYN | tcp::FIN | tcp::RST);
    flags == tcp::ACK && tcp::payload_len(frame, headers) > 0
}
