//! I2 and I3 on a line: hosts that do as they are told, the delay of a link, and outputs that send a frame a slot.
//! Nothing is lost and nothing jitters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use weft::id::PortId;
use weft::scheme::pl2::{Arrival, BookConfig, SlotBook, SlotMode};
use weft::time::Instant;
use weft::wire::pl2::Shim;

use crate::{CONFIG, MODES, SLOT, book, granted, rsv};

/// What is next: time, order, and what it is.
type Event = Reverse<(u64, u64, What)>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    /// An output begins to send the first frame in its queue.
    Leave(u8),
    /// A host's frame comes in.
    Arrive { host: u8, output: u8, last: bool },
    /// A request comes in.
    Ask { host: u8, output: u8 },
}

#[derive(Default)]
struct Output {
    queued: u32,
    /// When the last frame is sent.
    free: u64,
    peak: u32,
}

/// One grant: its sender, its output, k, when it was given, t_in and t_out.
type Grant = (u8, u8, u32, u64, u32, u32);

struct Line {
    book: SlotBook,
    events: BinaryHeap<Event>,
    order: u64,
    outputs: Vec<Output>,
    /// When each host's NIC has sent all.
    nics: Vec<u64>,
    seqs: Vec<u32>,
    grants: Vec<Grant>,
    k: u16,
    round_trip: u64,
}

impl Line {
    fn new(mode: SlotMode, k: u16, round_trip: u64) -> Line {
        Line {
            book: book(BookConfig { mode, max_burst: k, ..CONFIG }),
            events: BinaryHeap::new(),
            order: 0,
            outputs: (0..64).map(|_| Output::default()).collect(),
            nics: vec![0; 64],
            seqs: vec![0; 1024],
            grants: Vec::new(),
            k,
            round_trip,
        }
    }

    fn at(&mut self, time: u64, what: What) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, what)));
    }

    /// Until `end`: a host asks as soon as its last burst has left (D = 1), for the same output again.
    fn run(&mut self, end: u64) {
        while let Some(Reverse((now, _, what))) = self.events.pop()
            && now < end
        {
            match what {
                What::Leave(port) => {
                    let output = &mut self.outputs[usize::from(port)];
                    output.queued -= 1;
                    output.free = now + SLOT;
                    self.book.left(PortId(port), 1);
                    if output.queued > 0 {
                        self.at(now + SLOT, What::Leave(port));
                    }
                }
                What::Arrive { host, output: port, last } => {
                    let shim = Shim::new(port.into(), true, last);
                    assert_eq!(self.book.arrived(PortId(host), Some(PortId(port)), shim), Arrival::Reserved);
                    let output = &mut self.outputs[usize::from(port)];
                    output.queued += 1;
                    // The frame that is being sent counts.
                    output.peak = output.peak.max(output.queued + u32::from(output.free > now));
                    let start = output.free.max(now);
                    if output.queued == 1 {
                        self.at(start, What::Leave(port));
                    }
                }
                What::Ask { host, output } => self.ask(now, host, output),
            }
        }
    }

    fn ask(&mut self, now: u64, host: u8, output: u8) {
        let seq = &mut self.seqs[usize::from(host)];
        *seq += 1;
        // A connection for each output, of the output's number.
        let request = rsv(output.into(), *seq, self.k);
        let grant = self.book.reserve(Instant(now), PortId(host), Some(PortId(output)), &request).grant;
        let (k, t_in, t_out) = granted(&grant).expect("room");
        self.grants.push((host, output, k.into(), now, t_in, t_out));
        // The wait is counted from when the grant is there, and the burst is a round trip late for it: half for the
        // grant, half for the data.
        let nic = &mut self.nics[usize::from(host)];
        let start = (now + u64::from(t_in.max(t_out)) * SLOT + self.round_trip).max(*nic);
        *nic = start + u64::from(k) * SLOT;
        let done = *nic;
        for i in 0..u64::from(k) {
            self.at(start + i * SLOT, What::Arrive { host, output, last: i + 1 == u64::from(k) });
        }
        self.at(done, What::Ask { host, output });
    }

    fn peak(&self) -> u32 {
        self.outputs.iter().map(|output| output.peak).max().unwrap_or(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// I2: with counters that go down by departure, the windows that one output grants, counted from the grant,
    /// overlap by one slot at most: a register falls by one a slot, so that now and the register together never
    /// go back by more.
    #[test]
    fn windows_of_counters_overlap_by_a_slot_at_most(
        k in prop::sample::select(vec![1u16, 4, 16]),
        round_trip in 0..60 * SLOT,
        pairs in prop::collection::vec((0u8..6, 6u8..10, 0..50 * SLOT), 2..12),
    ) {
        let mut line = Line::new(SlotMode::Counter, k, round_trip);
        let mut pairs = pairs;
        // A host has one connection at a time, so that its numbers are in order.
        pairs.sort_unstable();
        pairs.dedup_by_key(|(host, ..)| *host);
        for (host, output, start) in pairs {
            line.at(start, What::Ask { host, output });
        }
        line.run(3_000 * SLOT);
        prop_assert!(line.grants.len() >= 10);
        for output in 6..10 {
            let windows = line.grants.iter().filter(|(_, o, ..)| *o == output);
            let windows = windows.map(|(_, _, k, now, _, t_out)| (now + u64::from(*t_out) * SLOT, u64::from(*k) * SLOT));
            let mut end = 0;
            for (start, length) in windows {
                prop_assert!(start + SLOT >= end, "output {}: a window from {} before {}", output, start, end);
                end = end.max(start + length);
            }
        }
    }

    /// I3: where all send to one port, that port's time decides, and without jitter no more than two frames are
    /// there at once. Where one sends to all, its own time decides.
    #[test]
    fn in_an_incast_the_output_decides_and_two_frames_are_enough(
        mode in prop::sample::select(MODES.to_vec()),
        k in prop::sample::select(vec![1u16, 4, 16]),
        round_trip in 0..60 * SLOT,
        starts in prop::collection::vec(0..50 * SLOT, 2..12),
    ) {
        let mut line = Line::new(mode, k, round_trip);
        for (host, start) in (0..).zip(&starts) {
            line.at(*start, What::Ask { host, output: 63 });
        }
        line.run(3_000 * SLOT);
        prop_assert!(line.grants.len() >= 10);
        for (host, _, _, now, t_in, t_out) in &line.grants {
            prop_assert!(t_in <= t_out, "host {} at {}: {} {}", host, now, t_in, t_out);
        }
        prop_assert!(line.peak() <= 2, "{} frames at once", line.peak());
    }

    #[test]
    fn in_an_outcast_the_input_decides(
        mode in prop::sample::select(MODES.to_vec()),
        k in 1u16..=16,
        outputs in prop::collection::vec((1u8..6, 0..3 * SLOT), 1..60),
    ) {
        let mut book = book(BookConfig { mode, max_burst: k, ..CONFIG });
        let mut now = 0;
        for (seq, (output, pause)) in (1..).zip(outputs) {
            now += pause;
            let request = rsv(seq, 1, k);
            let grant = book.reserve(Instant(now), PortId(0), Some(PortId(output)), &request).grant;
            let (_, t_in, t_out) = granted(&grant).expect("room");
            prop_assert!(t_out <= t_in, "{} {}", t_in, t_out);
        }
    }
}
