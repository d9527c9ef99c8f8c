//! Flows of a size over a TCP small enough to see through: handshake, slow start and additive increase (RFC 5681),
//! NewReno (RFC 6582), retransmission timer (RFC 6298), receive window of 65,535 bytes. Without SACK and without FIN.
//! A receiver acknowledges every second segment, and at once a gap, what fills one, and a pushed segment: the last of
//! each burst. Sans-IO: segments in, segments out.

use std::collections::BTreeMap;

use weft::time::{Instant, MILLIS, SECONDS};

/// Data of a segment, bytes: what an MTU of 1,500 leaves.
pub const MSS: u64 = 1460;
const INITIAL_WINDOW: u64 = 10 * MSS;
const RECEIVE_WINDOW: u64 = 65_535;
/// RFC 6298 (2.1).
const INITIAL_RTO: u64 = SECONDS;
/// RFC 6298 has a second, for networks with round trips of a tenth of one.
const MIN_RTO: u64 = 10 * MILLIS;
const MAX_RTO: u64 = 60 * SECONDS;

/// A segment of a flow. Sequence numbers count from 0, which the SYN has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    pub seq: u32,
    pub ack: Option<u32>,
    pub syn: bool,
    pub push: bool,
    pub len: u64,
}

/// The end of a flow that sends its data.
#[derive(Debug)]
pub struct Sender {
    size: u64,
    established: bool,
    /// Bytes acknowledged, and the next to send.
    una: u64,
    next: u64,
    window: u64,
    threshold: u64,
    duplicates: u32,
    /// In fast recovery until what was sent before it is acknowledged.
    recovering: bool,
    recover: u64,
    rto: u64,
    /// Smoothed round trip and its variation, ns.
    rtt: Option<(u64, u64)>,
    /// The byte whose acknowledgement is timed, and when it was sent.
    timed: Option<(u64, Instant)>,
    /// When the retransmission timer runs out.
    pub deadline: Option<Instant>,
}

impl Sender {
    /// A flow of `size` bytes that has yet to begin.
    pub fn new(size: u64) -> Sender {
        Sender {
            size,
            established: false,
            una: 0,
            next: 0,
            window: INITIAL_WINDOW,
            threshold: RECEIVE_WINDOW,
            duplicates: 0,
            recovering: false,
            recover: 0,
            rto: INITIAL_RTO,
            rtt: None,
            timed: None,
            deadline: None,
        }
    }

    /// The first segment.
    pub fn open(&mut self, now: Instant, out: &mut Vec<Segment>) {
        out.push(Segment { syn: true, ..Segment::default() });
        self.timed = Some((0, now));
        self.deadline = Some(now + self.rto);
    }

    /// The timer has run out.
    pub fn timeout(&mut self, now: Instant, out: &mut Vec<Segment>) {
        self.rto = (2 * self.rto).min(MAX_RTO);
        self.timed = None;
        self.deadline = Some(now + self.rto);
        if !self.established {
            return out.push(Segment { syn: true, ..Segment::default() });
        }
        self.threshold = ((self.next - self.una) / 2).max(2 * MSS);
        self.window = MSS;
        self.duplicates = 0;
        self.recovering = false;
        self.recover = self.next;
        self.next = self.una;
        self.send(now, out);
    }

    /// An acknowledgement has come.
    pub fn receive(&mut self, now: Instant, segment: &Segment, out: &mut Vec<Segment>) {
        let Some(ack) = segment.ack else { return };
        if segment.syn {
            if !self.established {
                self.established = true;
                self.measure(now, 0);
                self.send(now, out);
            }
            return;
        }
        let ack = u64::from(ack) - 1;
        if ack > self.una {
            self.advance(now, ack, out);
        } else if ack == self.una && self.next > self.una {
            self.duplicate(out);
        }
        self.send(now, out);
    }

    fn advance(&mut self, now: Instant, ack: u64, out: &mut Vec<Segment>) {
        let acked = ack - self.una;
        self.una = ack;
        self.next = self.next.max(ack);
        self.duplicates = 0;
        self.measure(now, ack);
        if self.recovering && ack >= self.recover {
            self.recovering = false;
            self.window = self.threshold;
        } else if self.recovering {
            // RFC 6582, a partial acknowledgement.
            self.window = (self.window.saturating_sub(acked) + MSS).max(MSS);
            out.push(self.segment(self.una));
        } else if self.window < self.threshold {
            self.window += acked.min(2 * MSS);
        } else {
            self.window += (acked * MSS / self.window).max(1);
        }
        self.deadline = (self.una < self.size).then(|| now + self.rto);
    }

    fn duplicate(&mut self, out: &mut Vec<Segment>) {
        self.duplicates += 1;
        if self.recovering {
            self.window += MSS;
        } else if self.duplicates == 3 && self.una >= self.recover {
            self.threshold = ((self.next - self.una) / 2).max(2 * MSS);
            self.window = self.threshold + 3 * MSS;
            self.recovering = true;
            self.recover = self.next;
            self.timed = None;
            out.push(self.segment(self.una));
        }
    }

    /// What the window lets go.
    fn send(&mut self, now: Instant, out: &mut Vec<Segment>) {
        let burst = out.len();
        while self.next < self.size {
            let segment = self.segment(self.next);
            if self.next + segment.len > self.una + self.window.min(RECEIVE_WINDOW) {
                break;
            }
            self.next += segment.len;
            // What was sent before tells nothing (Karn): neither of the two may be meant.
            if self.timed.is_none() && self.next > self.recover {
                self.timed = Some((self.next, now));
            }
            out.push(segment);
        }
        if let Some(last) = out[burst..].last_mut() {
            last.push = true;
            self.deadline = self.deadline.or(Some(now + self.rto));
        }
    }

    fn segment(&self, at: u64) -> Segment {
        let len = MSS.min(self.size - at);
        let push = at + len == self.size || at == self.una;
        Segment { seq: 1 + at as u32, ack: Some(1), len, push, syn: false }
    }

    /// RFC 6298 (2.2) and (2.3).
    fn measure(&mut self, now: Instant, ack: u64) {
        let Some((_, sent)) = self.timed.take_if(|(byte, _)| *byte <= ack) else { return };
        let sample = now.since(sent);
        let (smooth, variation) = match self.rtt {
            None => (sample, sample / 2),
            Some((smooth, variation)) => ((7 * smooth + sample) / 8, (3 * variation + smooth.abs_diff(sample)) / 4),
        };
        self.rtt = Some((smooth, variation));
        self.rto = (smooth + 4 * variation).clamp(MIN_RTO, MAX_RTO);
    }
}

/// The end of a flow that gets its data.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Bytes got without a gap.
    pub got: u64,
    /// Behind gaps: beginning and length.
    behind: BTreeMap<u64, u64>,
    unacknowledged: u64,
}

impl Receiver {
    /// A segment has come; the answer to it.
    pub fn receive(&mut self, segment: &Segment) -> Option<Segment> {
        if segment.syn {
            return Some(Segment { syn: true, ack: Some(1), ..Segment::default() });
        }
        let at = u64::from(segment.seq) - 1;
        let in_order = at == self.got && self.behind.is_empty();
        if at <= self.got {
            self.got = self.got.max(at + segment.len);
        } else {
            self.behind.insert(at, segment.len);
        }
        while let Some(next) = self.behind.first_entry().filter(|next| *next.key() <= self.got) {
            let (at, len) = next.remove_entry();
            self.got = self.got.max(at + len);
        }
        self.unacknowledged += 1;
        if in_order && !segment.push && self.unacknowledged < 2 {
            return None;
        }
        self.unacknowledged = 0;
        Some(Segment { seq: 1, ack: Some(1 + self.got as u32), ..Segment::default() })
    }
}
