//! Random scripts of a few connections through one leaf, whose table is too small for all of them.

use std::cell::Cell;
use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weft::frame::Pool;
use weft::scheme::p4te::rate::{AckRule, RateAction, fack};
use weft::wire::MacAddr;

use super::segment::{ACK, FIN, RST, SYN, Segment, headers, scale, stamps, window};
use super::{B, Leaf, MILLIS};

const FLOWS: u16 = 3;
const ISN: u32 = 5000;

#[derive(Clone, Debug)]
enum Op {
    /// A handshake, each SYN sent `times` times.
    Open {
        isn: u32,
        scales: [Option<u8>; 2],
        stamped: bool,
        times: usize,
    },
    /// Data, starting `back` bytes before the last sent.
    Data {
        back: u32,
        len: usize,
    },
    /// The receiver acknowledges up to `behind` bytes before the last sent.
    Ack {
        behind: u32,
        window: u16,
        data: usize,
        flags: u8,
        damaged: bool,
    },
    /// An action on the last data.
    Act {
        action: RateAction,
        how: How,
    },
    /// A segment of the sender with these flags and so much data.
    Odd {
        flags: u8,
        len: usize,
    },
    /// As many RSTs from either side.
    Storm {
        reverse: bool,
        count: usize,
    },
    Wait {
        millis: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum How {
    Fack(AckRule),
    Clamp,
}

fn open() -> impl Strategy<Value = Op> {
    let shift = || prop_oneof![1 => Just(None), 4 => (0u8..15).prop_map(Some)];
    let isn = prop_oneof![Just(u32::MAX - 20_000), Just(0x7fff_c000), any::<u32>()];
    (isn, [shift(), shift()], any::<bool>(), 1usize..3).prop_map(|(isn, scales, stamped, times)| Op::Open {
        isn,
        scales,
        stamped,
        times,
    })
}

fn ops() -> impl Strategy<Value = Op> {
    let ack_flags = prop_oneof![12 => Just(ACK), 1 => Just(ACK | FIN), 1 => Just(0)];
    let windows = prop_oneof![1 => Just(0), 2 => 1u16..200, 6 => any::<u16>()];
    let behind = prop_oneof![4 => 0u32..2000, 1 => 0u32..20_000];
    let ack = (behind, windows, prop_oneof![2 => Just(0), 1 => Just(100usize)], ack_flags, prop::bool::weighted(0.1));
    let action = prop_oneof![2 => Just(RateAction::Decrease), 1 => Just(RateAction::Increase)];
    let how =
        prop_oneof![1 => Just(How::Fack(AckRule::Safe)), 1 => Just(How::Fack(AckRule::Paper)), 2 => Just(How::Clamp)];
    let odd = prop::sample::select(&[SYN, SYN | ACK, SYN | FIN, 0, 0, ACK, ACK, ACK][..]);
    prop_oneof![
        1 => open(),
        60 => (prop_oneof![4 => Just(0), 1 => 0u32..5000], 1usize..9000).prop_map(|(back, len)| Op::Data { back, len }),
        60 => ack.prop_map(|(behind, window, data, flags, damaged)| Op::Ack { behind, window, data, flags, damaged }),
        60 => (action, how).prop_map(|(action, how)| Op::Act { action, how }),
        3 => (odd, 0usize..100).prop_map(|(flags, len)| Op::Odd { flags, len: if flags == ACK { 0 } else { len } }),
        1 => (any::<bool>(), 1usize..20).prop_map(|(reverse, count)| Op::Storm { reverse, count }),
        2 => (1u64..200).prop_map(|millis| Op::Wait { millis }),
    ]
}

/// What the test knows of a connection since its last handshake.
#[derive(Default)]
struct Known {
    open: bool,
    stamped: bool,
    shift: u8,
    isn: u32,
    next: u32,
    last: Option<Segment>,
    acted: Option<u32>,
    /// Highest acknowledgment number in a right segment of the receiver, as an offset to `isn`.
    acked: u32,
    /// For each acknowledgment number the sequence number after the last byte sent before it first came.
    sent_at: HashMap<u32, u32>,
    clock: u32,
}

impl Known {
    fn options(&mut self) -> Vec<u8> {
        self.clock += 1;
        if self.stamped { stamps(self.clock, 1) } else { vec![] }
    }
}

/// How often something happened, so that the invariants are known to have had something to hold on.
#[derive(Default, Debug)]
struct Seen {
    facks: Cell<u32>,
    clamps: Cell<u32>,
    rewritten: Cell<u32>,
}

fn count(cell: &Cell<u32>) {
    cell.set(cell.get() + 1);
}

fn act(leaf: &mut Leaf, segment: &Segment, action: RateAction, how: How, known: &Known, seen: &Seen) -> bool {
    let How::Fack(rule) = how else {
        let acted = leaf.clamp(segment, action);
        acted.then(|| count(&seen.clamps));
        return acted;
    };
    let Some(said) = leaf.fack(segment, action, rule) else { return false };
    count(&seen.facks);
    match rule {
        AckRule::Safe => assert!(said.ack.wrapping_sub(known.isn) <= known.acked, "{said:?} acknowledges the unheard"),
        AckRule::Paper => assert_eq!(said.ack, segment.seq.wrapping_add(1)),
    }
    assert_ne!(said.window, 0);
    let (mut pool, frame) = (Pool::heap(1, 256), segment.bytes());
    let mut out = pool.alloc().expect("a free frame");
    assert!(fack::build(&mut out, &frame, &headers(&frame), MacAddr([2, 0, 0, 0, 0, 1]), &said));
    assert_eq!(window(&out), said.window);
    pool.free(out);
    true
}

/// One operation on connection `flow`.
fn step(leaf: &mut Leaf, flow: u16, op: Op, known: &mut Known, seen: &Seen) {
    match op {
        Op::Open { isn, scales: [forward, reverse], stamped, times } => {
            let options =
                |shift: Option<u8>| [shift.map_or(vec![], scale), if stamped { stamps(0, 0) } else { vec![] }].concat();
            let syn = Segment { flow, seq: isn, flags: SYN, options: options(forward), ..Segment::default() };
            let (seq, ack) = (ISN, isn.wrapping_add(1));
            let options = options(reverse);
            let answer = Segment { flow, reverse: true, seq, ack, flags: SYN | ACK, options, ..Segment::default() };
            for segment in vec![syn; times].iter().chain(&vec![answer; times]) {
                assert!(!leaf.pass(segment));
            }
            let shift = if forward.is_some() { reverse.unwrap_or(0) } else { 0 };
            let next = isn.wrapping_add(1);
            *known = Known { open: true, stamped, shift, isn, next, acked: 1, ..Known::default() };
            known.sent_at.insert(next, next);
        }
        Op::Data { back, len } => {
            let seq = known.next.wrapping_sub(back.min(known.next.wrapping_sub(known.isn).saturating_sub(1)));
            let options = known.options();
            let data = Segment { flow, seq, ack: ISN + 1, flags: ACK, window: 63, options, len, ..Segment::default() };
            let admitted = leaf.pass(&data);
            assert!(!admitted || known.open, "of an unknown flow");
            let end = seq.wrapping_add(len as u32);
            if end.wrapping_sub(known.isn) > known.next.wrapping_sub(known.isn) {
                known.next = end;
            }
            known.last = Some(data);
        }
        Op::Ack { behind, window: genuine, data: len, flags, damaged } => {
            let sent = known.next.wrapping_sub(known.isn);
            let offset = sent.saturating_sub(behind).max(1);
            let ack = known.isn.wrapping_add(offset);
            let options = known.options();
            let segment = Segment { flow, reverse: true, seq: ISN + 1, ack, flags, window: genuine, options, len };
            let mut frame = segment.bytes();
            if damaged {
                let end = headers(&frame).end as usize;
                frame[end - 1] ^= 0x10;
            }
            let before = frame.clone();
            let parsed = headers(&frame);
            let rewritten = leaf.flows.received(leaf.now, &mut frame, &parsed);
            assert_eq!(rewritten, frame != before);
            if damaged || flags & ACK == 0 {
                assert!(!rewritten);
                return;
            }
            let first = *known.sent_at.entry(ack).or_insert(known.next);
            known.acked = known.acked.max(offset);
            let shown = window(&frame);
            let field = parsed.l4 as usize + 14;
            assert_eq!((&frame[..field], &frame[field + 4..]), (&before[..field], &before[field + 4..]));
            if rewritten {
                count(&seen.rewritten);
                assert!(known.open && flags == ACK);
                assert!(0 < shown && shown < genuine, "{shown} of {genuine}");
                let edge = |window: u16| u64::from(offset) + (u64::from(window) << known.shift);
                assert!(edge(shown) >= edge(genuine).min(first.wrapping_sub(known.isn).into()), "right edge");
                assert!(u64::from(shown) << known.shift >= (u64::from(genuine) << known.shift).min(1460));
            }
        }
        Op::Act { action, how } => {
            let Some(data) = known.last.clone() else { return };
            if act(leaf, &data, action, how, known, seen) {
                assert!(known.open);
                if let Some(last) = known.acted.replace(data.seq) {
                    let distance = data.seq.wrapping_sub(last) as i32;
                    assert!(distance > B as i32, "acted upon again after {distance} bytes");
                }
            }
        }
        Op::Odd { flags, len } => {
            let segment = Segment { flow, seq: known.next, ack: ISN + 1, flags, len, ..Segment::default() };
            assert!(!leaf.pass(&segment));
            for how in [How::Fack(AckRule::Safe), How::Fack(AckRule::Paper), How::Clamp] {
                assert!(!act(leaf, &segment, RateAction::Decrease, how, known, seen));
            }
            // The leaf saw the data of a segment without ACK; a SYN of another connection or a FIN ends this.
            match flags {
                0 => known.next = known.next.wrapping_add(len as u32),
                ACK => {}
                _ => known.open = known.open && flags == SYN | ACK,
            }
        }
        Op::Storm { reverse, count } => {
            let rst = Segment { flow, reverse, seq: known.next, flags: RST, ..Segment::default() };
            (0..count).for_each(|_| assert!(!leaf.pass(&rst)));
            known.open = false;
        }
        Op::Wait { millis } => leaf.now = leaf.now + millis * MILLIS,
    }
}

#[test]
fn whatever_passes_the_invariants_hold() {
    let seen = Seen::default();
    let config = ProptestConfig { cases: 800, ..ProptestConfig::with_source_file(file!()) };
    let mut runner = TestRunner::new(config);
    let scripts =
        (prop_oneof![Just(2usize), Just(64)], vec(open(), usize::from(FLOWS)), vec((0..FLOWS, ops()), 1..200));
    let result = runner.run(&scripts, |(slots, opens, script)| {
        let mut leaf = Leaf::new(slots);
        let mut known: Vec<Known> = (0..FLOWS).map(|_| Known::default()).collect();
        for (flow, op) in (0..).zip(opens).chain(script) {
            step(&mut leaf, flow, op, &mut known[usize::from(flow)], &seen);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    for cell in [&seen.facks, &seen.clamps, &seen.rewritten] {
        assert!(cell.get() > 100, "too little happened: {seen:?}");
    }
}
