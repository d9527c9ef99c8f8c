//! The traffic manager and the pacer against oracles: plain lists, and exact rational time.

#[path = "packets/mod.rs"]
mod packets;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use packets::Ends;
use proptest::collection::vec;
use proptest::prelude::*;
use weft::counters::DropReason;
use weft::frame::Pool;
use weft::id::{PortId, PortMask};
use weft::pisa::tm::{Pacer, QueueDepth, QueueLimits};
use weft::pisa::{Meta, PortLimits, Queue, TrafficManager};
use weft::time::{Instant, SECONDS};
use weft::units::BitRate;
use weft::wire::{self, MacAddr};

/// A pacer whose next departure is an exact fraction: nanoseconds times the rate.
struct ExactPacer {
    rate: u128,
    next: u128,
}

impl ExactPacer {
    fn new(rate: u64) -> Self {
        ExactPacer { rate: rate.into(), next: 0 }
    }

    /// The nanosecond in which the next frame's time falls.
    fn next(&self) -> u64 {
        self.next.checked_div(self.rate).unwrap_or(0) as u64
    }

    fn start(&mut self, now: u64) {
        if self.next() < now {
            self.next = u128::from(now) * self.rate;
        }
    }

    fn sent(&mut self, wire_len: usize) {
        self.next += wire_len as u128 * 8 * u128::from(SECONDS);
    }
}

fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![1_000u64..1_000_000, 1_000_000u64..400_000_000_000, Just(10_000_000_000), Just(999_999_937)]
}

proptest! {
    #[test]
    fn a_pacer_keeps_exact_time_through_late_polls_and_idle_gaps(
        rate in prop_oneof![9 => rates(), 1 => Just(0)],
        // Frames of a busy period, each polled late by some time, and the idle gap before it.
        periods in vec((0u64..1_000_000, vec((1usize..65_600, 0u64..3_000), 1..40)), 1..12),
    ) {
        let (mut pacer, mut exact) = (Pacer::new(BitRate(rate)), ExactPacer::new(rate));
        let mut now = 0;
        for (gap, frames) in periods {
            now += gap;
            pacer.start(Instant(now));
            exact.start(now);
            let (began, mut bits) = (exact.next().max(now), 0u128);
            for (wire_len, late) in frames {
                prop_assert_eq!(pacer.next(), Instant(exact.next()));
                if let Some(before) = exact.next().checked_sub(1) {
                    prop_assert_eq!(pacer.ready(Instant(before)), rate == 0);
                }
                now = now.max(exact.next()) + late;
                prop_assert!(pacer.ready(Instant(now)));
                // What went before this frame in the busy period fits the time since it began, but for
                // the nanosecond that the departure was rounded down by.
                prop_assert!(bits * u128::from(SECONDS) < u128::from(now - began + 1) * u128::from(rate.max(1)) || rate == 0);
                pacer.sent(wire_len);
                exact.sent(wire_len);
                bits += wire_len as u128 * 8;
            }
        }
    }
}

const PORTS: u8 = 3;

/// Numbers of bytes: any, and those that a few packets of [`packet`] make exactly.
fn boundaries() -> impl Strategy<Value = u64> {
    prop_oneof![60u64..6_000, vec(0..KINDS, 1..4).prop_map(|kinds| kinds.iter().map(|k| packet(*k).len() as u64).sum())]
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue { port: u8, queue: Queue, kind: usize },
    Dequeue(u8),
    Purge(u8),
    Advance(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let queue = prop::sample::select(Queue::ALL.to_vec());
    let op = prop_oneof![
        10 => (0..PORTS, queue, 0..KINDS).prop_map(|(port, queue, kind)| Op::Enqueue { port, queue, kind }),
        8 => (0..PORTS).prop_map(Op::Dequeue),
        1 => (0..PORTS).prop_map(Op::Purge),
        4 => prop_oneof![Just(0), 1u64..200, 0u64..20_000].prop_map(Op::Advance),
    ];
    vec(op, 0..300)
}

const KINDS: usize = 12;

/// A packet of each length, IP version and ECN field; the last ones are no IP.
fn packet(kind: usize) -> Vec<u8> {
    let length = [0, 100, 1400][kind % 3];
    let (src_mac, dst_mac) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let v4 = Ends { src_mac, dst_mac, src: Ipv4Addr::new(10, 0, 0, 1).into(), dst: Ipv4Addr::new(10, 0, 0, 2).into() };
    let v6 = Ends { src: Ipv6Addr::LOCALHOST.into(), dst: Ipv6Addr::LOCALHOST.into(), ..v4 };
    let ecn = (kind % 4) as u8;
    let mut frame = packets::udp(if kind < 6 { v4 } else { v6 }, 64, (1, 2), &vec![0; length]);
    match kind {
        0..6 => {
            frame[15] |= ecn;
            packets::mend_ipv4(&mut frame, 14);
        }
        6..10 => frame[15] |= ecn << 4,
        _ => frame[12..14].copy_from_slice(&[0x88, 0xb5]),
    }
    frame
}

/// The ECN field of an IP packet, if it is one.
fn ecn(frame: &[u8]) -> Option<u8> {
    match frame[12..14] {
        [0x08, 0] => Some(frame[15] & 3),
        [0x86, 0xdd] => Some(frame[15] >> 4 & 3),
        _ => None,
    }
}

struct Waiting {
    index: u32,
    len: usize,
    joined: u64,
    found: usize,
}

struct PortModel {
    queues: [VecDeque<Waiting>; 2],
    seen: [QueueDepth; 2],
    pacer: ExactPacer,
    marked: u64,
}

impl PortModel {
    fn bytes(&self, queue: usize) -> u64 {
        self.queues[queue].iter().map(|w| w.len as u64).sum()
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    fn depth(&self, queue: usize) -> QueueDepth {
        QueueDepth { packets: self.queues[queue].len() as u64, bytes: self.bytes(queue), ..self.seen[queue] }
    }
}

fn limits() -> impl Strategy<Value = PortLimits> {
    let queue = || {
        (1u32..8, prop_oneof![boundaries(), Just(1 << 20)]).prop_map(|(packets, bytes)| QueueLimits { packets, bytes })
    };
    (prop_oneof![Just(0), rates()], queue(), queue(), prop_oneof![Just(0), boundaries()]).prop_map(
        |(rate, control, data, ecn_mark_bytes)| PortLimits { rate: BitRate(rate), control, data, ecn_mark_bytes },
    )
}

proptest! {
    #[test]
    fn a_traffic_manager_is_two_lists_a_port_behind_an_exact_pacer(limits in vec(limits(), PORTS as usize), ops in ops()) {
        let mut pool = Pool::heap(64, 2048);
        let mut tm = TrafficManager::new(&limits);
        let mut model: Vec<PortModel> = limits.iter().map(|l| PortModel {
            queues: [VecDeque::new(), VecDeque::new()],
            seen: [QueueDepth::default(); 2],
            pacer: ExactPacer::new(l.rate.0),
            marked: 0,
        }).collect();
        let mut now = 0;
        for op in ops {
            match op {
                Op::Advance(ns) => now += ns,
                Op::Enqueue { port, queue, kind } => {
                    let frame = pool.alloc_with(&packet(kind)).expect("queues are shorter than the pool");
                    let (index, len, before) = (frame.index(), frame.len(), frame.to_vec());
                    let meta = Meta::new(wire::parse(&frame).expect("an Ethernet frame"), PortId(port));
                    let (l, m, q) = (&limits[port as usize], &mut model[port as usize], queue as usize);
                    let limit = if queue == Queue::Control { l.control } else { l.data };
                    let expected = if m.queues[q].len() as u32 == limit.packets {
                        Some(DropReason::QueuePackets)
                    } else if m.bytes(q) + len as u64 > limit.bytes {
                        Some(DropReason::QueueBytes)
                    } else {
                        None
                    };
                    let mark = queue == Queue::Data
                        && l.ecn_mark_bytes != 0
                        && m.bytes(q) > l.ecn_mark_bytes
                        && ecn(&before).is_some_and(|e| e != 0);
                    match (tm.enqueue(Instant(now), PortId(port), queue, frame, meta), expected) {
                        (Err((frame, reason)), Some(expected)) => {
                            prop_assert_eq!((reason, frame.index(), &frame[..]), (expected, index, &before[..]));
                            m.seen[q].dropped += 1;
                            pool.free(frame);
                        }
                        (Ok(()), None) => {
                            if m.is_empty() {
                                m.pacer.start(now);
                            }
                            m.marked += u64::from(mark);
                            let found = m.queues[q].len();
                            m.queues[q].push_back(Waiting { index, len, joined: now, found });
                            m.seen[q].enqueued += 1;
                            m.seen[q].peak_packets = m.seen[q].peak_packets.max(m.queues[q].len() as u64);
                            m.seen[q].peak_bytes = m.seen[q].peak_bytes.max(m.bytes(q));
                        }
                        (result, expected) => {
                            let refused = result.map_err(|(frame, reason)| { pool.free(frame); reason });
                            return Err(TestCaseError::fail(format!("{refused:?}, expected {expected:?}")));
                        }
                    }
                }
                Op::Dequeue(port) => {
                    let m = &mut model[port as usize];
                    let due = m.pacer.rate == 0 || m.pacer.next() <= now;
                    let serving = m.queues.iter_mut().find(|q| due && !q.is_empty());
                    let served = serving.and_then(|q| q.pop_front());
                    let expected = served.map(|w| (w, m.queues[Queue::Data as usize].len()));
                    let got = tm.dequeue(Instant(now), PortId(port));
                    prop_assert_eq!(got.as_ref().map(|(f, _)| f.index()), expected.as_ref().map(|(w, _)| w.index));
                    if let (Some((frame, meta)), Some((w, left))) = (got, expected) {
                        m.pacer.sent(frame.len().max(60) + 24);
                        prop_assert_eq!(meta.enq_timestamp, Instant(w.joined));
                        prop_assert_eq!(meta.enq_qdepth as usize, w.found);
                        prop_assert_eq!(meta.deq_qdepth as usize, left);
                        let headers = wire::parse(&frame).expect("still an Ethernet frame");
                        prop_assert_eq!(headers.fault, None, "a mark mends the checksum");
                        pool.free(frame);
                    }
                }
                Op::Purge(port) => {
                    let m = &mut model[port as usize];
                    let expected = m.queues.iter_mut().find_map(VecDeque::pop_front);
                    let got = tm.purge(PortId(port));
                    prop_assert_eq!(got.as_ref().map(|(f, _)| f.index()), expected.map(|w| w.index));
                    got.into_iter().for_each(|(frame, _)| pool.free(frame));
                }
            }
            let backlog: PortMask = (0..PORTS).map(PortId).filter(|p| !model[p.index()].is_empty()).collect();
            prop_assert_eq!(tm.backlog(), backlog);
            prop_assert_eq!(tm.next_deadline(), backlog.iter().map(|p| Instant(model[p.index()].pacer.next())).min());
            for (i, m) in model.iter().enumerate() {
                let port = PortId(i as u8);
                prop_assert_eq!(tm.queued(port), m.queues.iter().map(|q| q.len() as u64).sum::<u64>());
                prop_assert_eq!(tm.ecn_marked(port), m.marked);
                prop_assert_eq!(tm.port_deadline(port), (!m.is_empty()).then(|| Instant(m.pacer.next())));
                for queue in Queue::ALL {
                    prop_assert_eq!(tm.depth(port, queue), m.depth(queue as usize));
                }
            }
        }
        for port in (0..PORTS).map(PortId) {
            while let Some((frame, _)) = tm.purge(port) {
                pool.free(frame);
            }
        }
        prop_assert_eq!(pool.free_count(), pool.chunks());
    }

    #[test]
    fn a_packet_is_marked_if_it_can_be_and_more_than_the_threshold_waits(threshold in boundaries(), kinds in vec(0..KINDS, 1..20)) {
        let mut pool = Pool::heap(32, 2048);
        let mut tm = TrafficManager::new(&[PortLimits { ecn_mark_bytes: threshold, ..PortLimits::default() }]);
        let mut waiting = 0;
        let mut expected = vec![];
        for kind in kinds {
            let frame = packet(kind);
            let before = ecn(&frame);
            expected.push(if waiting > threshold && before.is_some_and(|e| e != 0) { Some(3) } else { before });
            waiting += frame.len() as u64;
            let frame = pool.alloc_with(&frame).expect("a free chunk");
            let meta = Meta::new(wire::parse(&frame).expect("an Ethernet frame"), PortId(0));
            prop_assert!(tm.enqueue(Instant(0), PortId(0), Queue::Data, frame, meta).is_ok());
        }
        for expected in expected {
            let (frame, _) = tm.dequeue(Instant(0), PortId(0)).expect("as many as went in");
            prop_assert_eq!(ecn(&frame), expected);
            pool.free(frame);
        }
    }
}
