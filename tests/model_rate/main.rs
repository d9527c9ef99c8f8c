//! P4TE's rate adaptation: the decision table, what a leaf knows of flows, FACKs and clamps, by scenarios
//! with values worked out by hand and by random scripts with invariants.

mod clamp;
mod flows;
mod script;
mod segment;

use weft::pisa::FlowHash;
use weft::pisa::meter::Color::{Green, Red, Yellow};
use weft::scheme::p4te::rate::RateAction::{Decrease, Increase};
use weft::scheme::p4te::rate::{AckRule, Fack, Flows, Params, RateAction, decide};
use weft::time::{Instant, MILLIS, SECONDS};

use segment::{ACK, SYN, Segment, headers, scale};

/// B of all tests.
const B: u32 = 10_000;
const PARAMS: Params = Params { bytes: B, idle: 60 * SECONDS, clamp_time: 100 * MILLIS };

const SEED: u64 = 7;

/// A leaf with its clock.
struct Leaf {
    flows: Flows,
    now: Instant,
}

impl Leaf {
    fn new(slots: usize) -> Leaf {
        Leaf { flows: Flows::new(slots, SEED, PARAMS), now: Instant(SECONDS) }
    }

    /// A segment passes; whether rate control may act on it, or whether it was rewritten.
    fn pass(&mut self, segment: &Segment) -> bool {
        let mut frame = segment.bytes();
        let headers = headers(&frame);
        if segment.reverse {
            self.flows.received(self.now, &mut frame, &headers)
        } else {
            let flow_hash = FlowHash::new(SEED).packet(&frame, &headers);
            self.flows.sent(self.now, &frame, &headers, flow_hash)
        }
    }

    /// A segment from the receiver passes; the window its sender sees.
    fn shown(&mut self, segment: &Segment) -> u16 {
        let mut frame = segment.bytes();
        let headers = headers(&frame);
        let before = frame.clone();
        let rewritten = self.flows.received(self.now, &mut frame, &headers);
        assert_eq!(rewritten, frame != before);
        segment::window(&frame)
    }

    fn fack(&mut self, data: &Segment, action: RateAction, rule: AckRule) -> Option<Fack> {
        let frame = data.bytes();
        self.flows.fack(self.now, &frame, &headers(&frame), action, rule)
    }

    fn clamp(&mut self, data: &Segment, action: RateAction) -> bool {
        let frame = data.bytes();
        self.flows.clamp(self.now, &frame, &headers(&frame), action)
    }

    /// SYN and SYN-ACK with these options; the sender's ISN is `isn`, the receiver's 5000.
    fn handshake(&mut self, flow: u16, isn: u32, forward: Vec<u8>, reverse: Vec<u8>) {
        self.pass(&Segment { flow, seq: isn, flags: SYN, options: forward, window: 64240, ..Segment::default() });
        let answer = Segment { flow, reverse: true, seq: 5000, ack: isn.wrapping_add(1), ..Segment::default() };
        self.pass(&Segment { flags: SYN | ACK, options: reverse, window: 65160, ..answer });
    }

    /// As [`Leaf::handshake`] with both window scales 4, and the receiver's first ACK after `sent` bytes: of
    /// none of them, with a window field of 1000.
    fn open(&mut self, flow: u16, isn: u32, sent: u32) {
        self.handshake(flow, isn, scale(4), scale(4));
        self.send(flow, isn.wrapping_add(1), sent);
        self.pass(&ack(flow, isn.wrapping_add(1), 1000));
    }

    /// The sender sends `bytes` bytes from `seq` on.
    fn send(&mut self, flow: u16, seq: u32, bytes: u32) {
        for at in (0..bytes).step_by(1000) {
            self.pass(&data(flow, seq.wrapping_add(at), 1000.min(bytes - at) as usize));
        }
    }
}

/// Data from the sender.
fn data(flow: u16, seq: u32, len: usize) -> Segment {
    Segment { flow, seq, ack: 5001, flags: ACK, window: 63, len, ..Segment::default() }
}

/// A pure ACK from the receiver.
fn ack(flow: u16, ack: u32, window: u16) -> Segment {
    Segment { flow, reverse: true, seq: 5001, ack, flags: ACK, window, ..Segment::default() }
}

#[test]
fn only_a_class_over_its_rate_is_acted_upon_and_only_at_a_red_or_green_link() {
    for (incoming, egress, action) in [
        (Green, Green, None),
        (Green, Yellow, None),
        (Green, Red, None),
        (Yellow, Green, Some(Increase)),
        (Yellow, Yellow, None),
        (Yellow, Red, Some(Decrease)),
        // The class meter has no red; over the rate is over the rate.
        (Red, Green, Some(Increase)),
        (Red, Yellow, None),
        (Red, Red, Some(Decrease)),
    ] {
        assert_eq!(decide(incoming, egress), action, "{incoming:?} to {egress:?}");
    }
}

#[test]
fn a_window_is_halved_or_grows_by_a_quarter_and_never_becomes_0() {
    for (window, decreased, increased) in [
        (0, 0, 0),
        (1, 1, 1),
        (2, 1, 2),
        (3, 2, 3),
        (4, 2, 5),
        (501, 251, 626),
        (52_428, 26_214, 65_535),
        (52_429, 26_215, 65_535),
        (65_535, 32_768, 65_535),
    ] {
        assert_eq!((Decrease.apply(window), Increase.apply(window)), (decreased, increased), "{window}");
    }
}
