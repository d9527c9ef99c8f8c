use super::clamp::Clamp;
use super::{AckRule, Direction, Fack, RateAction};
use crate::time::{Instant, SECONDS};
use crate::wire::Headers;
use crate::wire::tcp::{self, TcpOption, seq};

/// A window is at most 65,535 << 14 bytes (RFC 7323, section 2.3): data farther ahead of the last
/// acknowledged byte is not the flow's. With the two below, no two sequence numbers of a flow that are
/// compared lie 2^31 apart.
const AHEAD: u32 = 1 << 30;
/// Data farther behind the last acknowledged byte is a duplicate of no interest.
const BEHIND: u32 = 1 << 29;
/// A handshake that stands still for so long, in ns, loses its slot to the next: or SYNs that nobody answers would
/// hold the table. Linux sends a SYN again after 1 and after 3 s.
const HALF_OPEN: u64 = 4 * SECONDS;
/// Largest B, in bytes.
pub const MAX_BYTES: u32 = 1 << 28;

/// One slot of the flow table: two cache lines, of which a data segment needs the first alone.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Slot {
    key: u64,
    touched: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Free,
    /// One SYN was seen, sent in this direction.
    Opening(Direction, Syn),
    /// Both were.
    Open(Flow),
    /// A handshake that can be read in two ways.
    Unclear,
}

/// What a SYN or SYN-ACK says of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Syn {
    seq: u32,
    shift: Option<u8>,
    timestamps: bool,
    mss: u16,
}

impl Syn {
    /// `None` if its flow must be left alone: its options can be read in two ways (two window scales, or bytes that
    /// are no option), or forbid it.
    fn read(frame: &[u8], headers: &Headers) -> Option<Syn> {
        let seq = tcp::seq_number(frame, headers.l4 as usize);
        let mut syn = Syn { seq, shift: None, timestamps: false, mss: 0 };
        for option in tcp::options(frame, headers) {
            match option {
                TcpOption::MaxSegmentSize(mss) => syn.mss = mss,
                // Over 14 counts as 14 (RFC 7323, section 2.3).
                TcpOption::WindowScale(shift) => match syn.shift.replace(shift.min(tcp::MAX_SHIFT)) {
                    None => {}
                    Some(_) => return None,
                },
                TcpOption::Timestamps { .. } => syn.timestamps = true,
                // Their windows are signed, or not the subflow's alone: nothing of theirs may be changed.
                TcpOption::Malformed | TcpOption::Other(tcp::MD5 | tcp::AUTHENTICATION | tcp::MULTIPATH) => {
                    return None;
                }
                TcpOption::Other(_) => {}
            }
        }
        Some(syn)
    }
}

impl Slot {
    fn is_of(&self, key: u64) -> bool {
        self.key == key && !matches!(self.state, State::Free)
    }

    /// The flow of `key`, if its handshake is known; it was heard of `now`.
    #[inline]
    pub(super) fn flow(&mut self, key: u64, now: Instant) -> Option<&mut Flow> {
        if !self.is_of(key) {
            return None;
        }
        self.touched = now;
        match &mut self.state {
            State::Open(flow) => Some(flow),
            _ => None,
        }
    }

    /// The flow of `key` is over.
    pub(super) fn end(&mut self, key: u64) {
        if self.is_of(key) {
            self.state = State::Free;
        }
    }

    /// A SYN or SYN-ACK of the flow of `key`, sent in `direction`. The slot of another flow is taken over
    /// if nothing was heard of that for `idle` ns.
    pub(super) fn syn(
        &mut self,
        (now, idle): (Instant, u64),
        key: u64,
        direction: Direction,
        frame: &[u8],
        headers: &Headers,
    ) {
        let l4 = headers.l4 as usize;
        let answers = (tcp::flags(frame, l4) & tcp::ACK != 0).then(|| tcp::ack_number(frame, l4));
        let syn = Syn::read(frame, headers);
        let state = match (self.state, syn) {
            _ if !self.is_of(key) => {
                let idle = if matches!(self.state, State::Open(_)) { idle } else { idle.min(HALF_OPEN) };
                let taken = !matches!(self.state, State::Free) && now.since(self.touched) <= idle;
                if taken || answers.is_some() {
                    return;
                }
                self.key = key;
                syn.map_or(State::Unclear, |syn| State::Opening(direction, syn))
            }
            (_, None) => State::Unclear,
            (State::Opening(by, first), Some(syn)) if by != direction => match answers {
                Some(ack) if ack == first.seq.wrapping_add(1) => State::Open(Flow::new(by, first, syn)),
                Some(_) => return,
                // Both sides open: which SYN is answered by which, only they know.
                None => State::Unclear,
            },
            (state @ State::Opening(_, known), Some(syn)) => state.again(direction, known, syn, answers.is_some()),
            (state @ State::Open(flow), Some(syn)) => {
                let known = if direction == Direction::Forward { flow.forward } else { flow.reverse };
                state.again(direction, known, syn, answers.is_some())
            }
            (state @ (State::Unclear | State::Free), Some(_)) => state,
        };
        self.touched = now;
        self.state = state;
    }
}

impl State {
    /// What follows from `syn` where `known` was seen in its direction.
    fn again(self, direction: Direction, known: Syn, syn: Syn, answers: bool) -> State {
        if syn == known {
            self
        } else if syn.seq == known.seq {
            // Sent again with other options: which of the two was answered, only their ends know.
            State::Unclear
        } else if answers {
            self
        } else {
            // A new connection of the same ends. If it is an old duplicate, the flow is left alone from now
            // on, because no SYN-ACK will answer it.
            State::Opening(direction, syn)
        }
    }
}

const _: () = {
    let (state, segment) = (std::mem::offset_of!(Slot, state), std::mem::offset_of!(Flow, forward));
    // The enum's tag and padding take at most 8 bytes before a flow.
    assert!(size_of::<Slot>() == 128 && state + 8 + segment <= 64);
};

/// A flow whose handshake was seen. First what a data segment needs.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Flow {
    /// Sequence number at which rate control was applied last: `last_rc_seq`. Never more than B +
    /// [`BEHIND`] behind the data: it follows, so that it compares however long nothing is applied.
    last_control: u32,
    /// Sequence number of the data that rate control was offered last. Follows the data as `last_control` does.
    offered: u32,
    /// Sequence number after the last byte seen from the sender.
    sent: u32,
    /// Highest acknowledgment number of the receiver.
    ack: u32,
    /// Window field of the receiver; `None` before its first one that is scaled.
    window: Option<u16>,
    forward: Syn,
    reverse: Syn,
    /// Sequence number of the segment that `window` is from.
    ack_seq: u32,
    /// Latest TSval of the receiver.
    tsval: u32,
    clamp: Clamp,
}

impl Flow {
    fn new(opener: Direction, first: Syn, second: Syn) -> Flow {
        let (forward, reverse) = match opener {
            Direction::Forward => (first, second),
            Direction::Reverse => (second, first),
        };
        let start = forward.seq.wrapping_add(1);
        Flow {
            forward,
            reverse,
            last_control: forward.seq,
            offered: forward.seq,
            sent: start,
            ack: if opener == Direction::Forward { start } else { forward.seq },
            ack_seq: reverse.seq,
            tsval: 0,
            window: None,
            clamp: Clamp::default(),
        }
    }

    /// Shift of the receiver's windows: in force only if both sides announced one (RFC 7323, section 2.2).
    #[inline]
    fn shift(&self) -> u8 {
        match (self.forward.shift, self.reverse.shift) {
            (Some(_), Some(shift)) => shift,
            _ => 0,
        }
    }

    /// Whether segments carry timestamps: only if both SYNs did (RFC 7323, section 3.2).
    #[inline]
    fn has_timestamps(&self) -> bool {
        self.forward.timestamps && self.reverse.timestamps
    }

    /// The sender's segment covers sequence numbers from `seq` up to `end`. `false` if they can't be the
    /// flow's.
    #[inline]
    pub(super) fn sent(&mut self, seq: u32, end: u32, bytes: u32) -> bool {
        if !self.is_near(seq) {
            return false;
        }
        self.sent = seq::max(self.sent, end);
        if seq::gt(seq.wrapping_sub(BEHIND), self.last_control.wrapping_add(bytes)) {
            self.last_control = seq.wrapping_sub(bytes).wrapping_sub(1);
        }
        if seq::gt(seq.wrapping_sub(BEHIND), self.offered.wrapping_add(bytes)) {
            self.offered = seq.wrapping_sub(bytes);
        }
        true
    }

    /// Whether the sender has sent what is before `seq`.
    pub(super) fn has_sent(&self, seq: u32) -> bool {
        !seq::gt(seq, self.sent)
    }

    #[inline]
    fn is_near(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.ack).wrapping_add(BEHIND) <= BEHIND + AHEAD
    }

    /// Whether rate control may act on data at `seq`: more than `bytes` after the last time, and the
    /// receiver's window is known and not shut.
    #[inline]
    pub(super) fn admits(&self, seq: u32, bytes: u32) -> bool {
        self.window.is_some_and(|window| window > 0)
            && seq::gt(seq, self.last_control.wrapping_add(bytes))
            && self.is_near(seq)
    }

    /// Learns from the receiver's segment if the sender will take its window: it acknowledges what was
    /// sent and is the newest so far (RFC 9293, section 3.10.7.4), has a timestamp that is not old if the flow has
    /// any (RFC 7323, section 5.3), and a right checksum. `false`, and nothing learned, if not.
    #[inline]
    pub(super) fn acknowledged(&mut self, frame: &[u8], headers: &Headers) -> bool {
        let l4 = headers.l4 as usize;
        let (seq, ack) = (tcp::seq_number(frame, l4), tcp::ack_number(frame, l4));
        let advances = seq::gt(ack, self.ack);
        let newest = advances || (ack == self.ack && seq::ge(seq, self.ack_seq));
        if tcp::flags(frame, l4) & tcp::ACK == 0 || !newest || seq::gt(ack, self.sent) {
            return false;
        }
        let timestamps = if self.has_timestamps() { tcp::timestamps(frame, headers) } else { Some((0, 0)) };
        let Some((tsval, _)) = timestamps else { return false };
        let is_old = self.window.is_some() && seq::gt(self.tsval, tsval);
        if is_old || !tcp::has_right_checksum(frame, headers) {
            return false;
        }
        self.tsval = tsval;
        self.ack = ack;
        self.ack_seq = seq;
        self.window = Some(tcp::window(frame, l4));
        if advances {
            self.clamp.advance(self.sent);
        }
        true
    }

    /// Acknowledgment number, TSval if the flow has timestamps, and window of the receiver; `None` before
    /// it sent any.
    pub(super) fn heard(&self) -> Option<(u32, Option<u32>, u16)> {
        Some((self.ack, self.has_timestamps().then_some(self.tsval), self.window?))
    }

    /// Rate control was applied at `seq`, here or elsewhere.
    pub(super) fn control(&mut self, seq: u32) {
        if !seq::gt(seq, self.sent) {
            self.last_control = seq::max(self.last_control, seq);
        }
    }

    /// Whether rate control is offered the data at `seq`, at least `apart` bytes after the last time.
    #[inline]
    pub(super) fn offers(&mut self, seq: u32, apart: u32) -> bool {
        let offer = seq::ge(seq, self.offered.wrapping_add(apart));
        if offer {
            self.offered = seq;
        }
        offer
    }

    /// The data at `seq` called for something that would change nothing: `bytes` later is early enough to be asked
    /// again.
    fn put_off(&mut self, seq: u32, bytes: u32) {
        self.offered = seq::max(self.offered, seq.wrapping_add(bytes));
    }

    /// A FACK for the data at `seq`, which rate control may act on; `has_echo`: its timestamp is known. `None` if
    /// the window would stay as it is, or it would lack a timestamp that the flow has.
    pub(super) fn fack(
        &mut self,
        seq: u32,
        action: RateAction,
        rule: AckRule,
        has_echo: bool,
        bytes: u32,
    ) -> Option<Fack> {
        let (ack, tsval, genuine) = self.heard()?;
        let window = action.apply(genuine);
        if window == genuine || (tsval.is_some() && !has_echo) {
            self.put_off(seq, bytes);
            return None;
        }
        self.control(seq);
        let ack = match rule {
            AckRule::Paper => seq.wrapping_add(1),
            AckRule::Safe => ack,
        };
        Some(Fack { ack, window, tsval })
    }

    /// [`Flow::clamp`] for the data at `seq`, which rate control may act on.
    pub(super) fn clamp_at(
        &mut self,
        seq: u32,
        action: RateAction,
        (now, until): (Instant, Instant),
        bytes: u32,
    ) -> bool {
        let acted = self.clamp(action, now, until, bytes);
        match acted {
            true => self.control(seq),
            false => self.put_off(seq, bytes),
        }
        acted
    }

    /// Puts a clamp on the receiver's window, or lifts it by an increase: more than the genuine window
    /// must not be shown. It lasts `bytes` newly acknowledged bytes, until `until` at most. `false` and
    /// nothing changed if the sender would see no other window.
    pub(super) fn clamp(&mut self, action: RateAction, now: Instant, until: Instant, bytes: u32) -> bool {
        let Some(window) = self.window else { return false };
        match action {
            RateAction::Increase => {
                let held = self.clamp.holds(now, self.ack);
                self.clamp = Clamp::default();
                held
            }
            RateAction::Decrease => {
                let end = (self.ack.wrapping_add(bytes), until);
                let clamp = Clamp::new(action.apply(window), self.shift(), self.reverse.mss, end, self.sent);
                let smaller = clamp.window() < window;
                if smaller {
                    self.clamp = clamp;
                }
                smaller
            }
        }
    }

    /// The window field to show instead of the genuine one in a segment that [`Flow::acknowledged`] took;
    /// `None` to leave it.
    #[inline]
    pub(super) fn shown(&mut self, now: Instant) -> Option<u16> {
        let genuine = self.window?;
        if !self.clamp.holds(now, self.ack) {
            self.clamp = Clamp::default();
            return None;
        }
        let shown = self.clamp.shown(genuine, self.shift(), self.ack);
        (shown < genuine).then_some(shown)
    }
}
