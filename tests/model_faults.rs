//! `FaultPort` in virtual time: what it does to frames, and that it loses none unseen.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use weft::fault::Faults;
use weft::frame::{BURST, Burst, Pool};
use weft::port::Port;
use weft::port::fault::{FaultCounts, FaultPort};
use weft::port::mem::MemPort;
use weft::time::{Instant, MICROS, MILLIS, SECONDS};

/// Bytes of a test frame: its number, eight bytes big endian, and zeros.
const LEN: usize = 60;

struct Bench {
    pool: Pool,
    port: FaultPort<MemPort>,
    now: Instant,
    next: u64,
    /// Every frame passed on: when, its number (if undamaged) and its bytes.
    got: Vec<(Instant, u64, Vec<u8>)>,
}

fn numbered(number: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

impl Bench {
    fn new(faults: &str, chunks: usize) -> Bench {
        let faults = faults.parse().expect("a specification");
        Bench {
            pool: Pool::heap(chunks, 64),
            port: FaultPort::new(MemPort::new(chunks), faults),
            now: Instant::ZERO,
            next: 0,
            got: vec![],
        }
    }

    /// Lets `count` frames arrive at the port beneath, or as many as there are chunks for.
    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.pool.alloc_with(&numbered(self.next)) else { break };
            self.next += 1;
            self.port.inner_mut().inject(frame).expect("room for every chunk");
        }
    }

    /// One `rx_burst` into a burst with `room`; how many came.
    fn receive(&mut self, room: usize) -> usize {
        let mut burst = Burst::new();
        while burst.room() > room {
            burst.push(self.pool.alloc_with(&[0xff; LEN]).expect("a chunk to fill the burst with"));
        }
        let filler = burst.len();
        self.port.at(self.now);
        self.port.rx_burst(&mut self.pool, &mut burst);
        let came = burst.len() - filler;
        for (i, frame) in burst.drain().enumerate() {
            if i >= filler {
                let number = u64::from_be_bytes(frame[..8].try_into().expect("eight bytes"));
                self.got.push((self.now, number, frame.to_vec()));
            }
            self.pool.free(frame);
        }
        came
    }

    /// All that comes at the present time.
    fn receive_all(&mut self) {
        while self.receive(BURST) > 0 {}
    }

    /// Wakes at every deadline until nothing is held.
    fn settle(&mut self) {
        self.receive_all();
        while let Some(due) = self.port.next_deadline() {
            self.now = self.now.max(due);
            self.receive_all();
        }
    }

    fn numbers(&self) -> Vec<u64> {
        self.got.iter().map(|(_, number, _)| *number).collect()
    }

    fn check(&self) {
        let counts = self.port.faults();
        assert!(counts.balances(), "{counts:?}");
        assert_eq!(counts.passed, self.got.len() as u64);
        assert_eq!(self.pool.out_count(), self.port.held(), "chunks lost or doubled: {counts:?}");
        assert_eq!(self.port.held() as u64, counts.held + self.port.inner().held() as u64);
    }

    /// Closes the port; every chunk is back after it.
    fn close(mut self) -> (FaultCounts, Vec<u64>) {
        self.check();
        let (counts, numbers) = (self.port.faults(), self.numbers());
        self.port.close(&mut self.pool).clear(&mut self.pool);
        assert_eq!(self.pool.out_count(), 0);
        (counts, numbers)
    }
}

/// `count` frames, a microsecond apart, through `faults`.
fn run(faults: &str, count: usize) -> Bench {
    let mut bench = Bench::new(faults, 4096);
    for _ in 0..count {
        bench.arrive(1);
        bench.receive_all();
        bench.now = bench.now + MICROS;
    }
    bench.settle();
    bench.check();
    bench
}

#[test]
fn without_faults_every_frame_passes_at_once_and_as_it_was() {
    let mut bench = Bench::new("seed=5", 256);
    bench.arrive(200);
    bench.receive_all();
    assert_eq!(bench.numbers(), (0..200).collect::<Vec<_>>());
    assert!(bench.got.iter().all(|(_, number, bytes)| bytes[..] == numbered(*number)));
    assert_eq!(bench.port.next_deadline(), None);
    let (counts, _) = bench.close();
    assert_eq!(counts, FaultCounts { received: 200, passed: 200, ..FaultCounts::default() });
}

#[test]
fn each_fault_comes_as_often_as_it_was_asked_for() {
    const FRAMES: usize = 100_000;
    let counts = run("loss=0.01,duplicate=0.02,reorder=0.03,corrupt=0.04,seed=7", FRAMES).close().0;
    // Five standard deviations of a binomial distribution on either side.
    let close = |count: u64, p: f64, of: f64| {
        let (mean, spread) = (of * p, 5.0 * (of * p * (1.0 - p)).sqrt());
        assert!((count as f64 - mean).abs() < spread, "{count} of {of} at {p}: {counts:?}");
    };
    assert_eq!(counts.received, FRAMES as u64);
    close(counts.lost, 0.01, FRAMES as f64);
    let kept = (counts.received - counts.lost) as f64;
    close(counts.duplicated, 0.02, kept);
    close(counts.reordered, 0.03, kept);
    close(counts.corrupted, 0.04, kept);
    assert_eq!((counts.overflowed, counts.held), (0, 0));
}

#[test]
fn a_seed_reproduces_every_fate_and_another_one_does_not() {
    let trace = |faults: &str| run(faults, 3000).got;
    const FAULTS: &str = "loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.05,delay=30us,jitter=50us";
    assert_eq!(trace(&format!("{FAULTS},seed=1")), trace(&format!("{FAULTS},seed=1")));
    assert_ne!(trace(&format!("{FAULTS},seed=1")), trace(&format!("{FAULTS},seed=2")));
}

#[test]
fn a_delay_is_exact() {
    let mut bench = Bench::new("delay=1ms", 256);
    bench.now = Instant(5 * MILLIS);
    bench.arrive(2);
    bench.receive_all();
    bench.now = bench.now + 300_001;
    bench.arrive(1);
    bench.receive_all();
    assert_eq!(bench.port.next_deadline(), Some(Instant(6 * MILLIS)));
    bench.now = Instant(6 * MILLIS - 1);
    bench.receive_all();
    assert!(bench.got.is_empty() && bench.port.faults().held == 3);
    bench.settle();
    let times: Vec<u64> = bench.got.iter().map(|(at, ..)| at.0).collect();
    assert_eq!(times, [6 * MILLIS, 6 * MILLIS, 6 * MILLIS + 300_001]);
    assert_eq!(bench.port.next_deadline(), None);
    bench.close();
}

#[test]
fn jitter_stays_within_its_bounds_and_keeps_the_order() {
    let bench = run("delay=100us,jitter=40us,seed=3", 2000);
    assert_eq!(bench.numbers(), (0..2000).collect::<Vec<_>>());
    let late: Vec<u64> = bench.got.iter().map(|(at, number, _)| at.0 - number * MICROS).collect();
    let (least, most) = (late.iter().min().unwrap(), late.iter().max().unwrap());
    assert!(*least >= 100 * MICROS && *most <= 140 * MICROS, "{least} to {most} ns");
    assert!(most - least > 20 * MICROS, "hardly any jitter: {least} to {most} ns");
    bench.close();
}

#[test]
fn a_reordered_frame_falls_behind_as_many_as_it_may_and_no_more() {
    let bench = run("reorder=0.01,reorder_by=4,reorder_within=1s,seed=9", 5000);
    let numbers = bench.numbers();
    let mut behind = BTreeMap::new();
    for (place, number) in numbers.iter().enumerate() {
        let overtaken_by = numbers[..place].iter().filter(|n| *n > number).count();
        *behind.entry(overtaken_by).or_insert(0) += 1;
    }
    // Two that wait at once may come out in turns, so a frame can fall one or two further behind.
    assert!(behind.keys().all(|n| *n <= 6), "{behind:?}");
    assert!((1..=4).all(|n| behind.get(&n).is_some_and(|times| *times >= 3)), "{behind:?}");
    let (counts, mut numbers) = bench.close();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..5000).collect::<Vec<_>>());
    assert!(counts.reordered > 20, "{counts:?}");
}

#[test]
fn a_reordered_frame_waits_no_longer_than_its_bound_for_frames_that_do_not_come() {
    let mut bench = Bench::new("reorder=1,reorder_within=2ms,delay=1ms", 16);
    bench.arrive(1);
    bench.settle();
    assert_eq!(bench.got[0].0, Instant(3 * MILLIS));
    let (counts, _) = bench.close();
    assert_eq!(counts.reordered, 0, "nothing overtook it");
}

#[test]
fn a_corrupted_frame_has_one_bit_flipped() {
    let bench = run("corrupt=1,seed=2", 500);
    let mut places = [0; LEN];
    for (i, (_, _, bytes)) in bench.got.iter().enumerate() {
        let flipped = bytes.iter().zip(numbered(i as u64)).map(|(a, b)| a ^ b);
        flipped.clone().enumerate().for_each(|(at, bits)| places[at] += bits.count_ones());
        assert_eq!(flipped.map(u8::count_ones).sum::<u32>(), 1, "frame {i}");
    }
    assert!(places.iter().filter(|n| **n > 0).count() > LEN * 9 / 10, "{places:?}");
    bench.close();
}

#[test]
fn a_copy_comes_right_behind_its_original_even_where_bursts_are_full() {
    let mut bench = Bench::new("duplicate=1", 512);
    bench.arrive(150);
    bench.receive_all();
    assert_eq!(bench.numbers(), (0..300).map(|n| n / 2).collect::<Vec<_>>());
    bench.close();
}

#[test]
fn a_delay_holds_at_most_half_of_the_pool_and_the_rest_is_a_counted_loss() {
    let mut bench = Bench::new("delay=1s", 64);
    for _ in 0..5 {
        bench.arrive(20);
        bench.receive_all();
        bench.check();
    }
    let counts = bench.port.faults();
    assert_eq!((counts.held, counts.lost, counts.overflowed), (32, 68, 68));
    bench.close();
}

#[test]
fn new_faults_take_effect_at_once_and_nothing_overtakes_what_was_delayed_before() {
    let mut bench = Bench::new("delay=1ms", 64);
    bench.arrive(3);
    bench.receive_all();
    bench.port.set(Faults::default());
    bench.arrive(2);
    bench.receive_all();
    assert!(bench.got.is_empty());
    bench.settle();
    assert_eq!(bench.numbers(), [0, 1, 2, 3, 4]);
    bench.port.set("loss=1".parse().expect("a specification"));
    bench.arrive(4);
    bench.receive_all();
    let (counts, _) = bench.close();
    assert_eq!((counts.received, counts.passed, counts.lost), (9, 5, 4));
}

#[test]
fn a_frame_behind_a_delayed_one_is_set_aside_when_that_one_has_left() {
    let mut bench = Bench::new("delay=1ms", 64);
    bench.arrive(1);
    bench.receive_all();
    bench.port.set("reorder=1,reorder_within=100us".parse().expect("a specification"));
    bench.now = Instant(MILLIS / 2);
    bench.arrive(1);
    bench.settle();
    assert_eq!((bench.got[0].0, bench.got[1].0), (Instant(MILLIS), Instant(MILLIS + 100 * MICROS)));
    bench.close();
}

#[test]
fn the_port_panics_when_the_frame_that_was_named_arrives_and_still_has_its_chunks() {
    let mut bench = Bench::new("panic=70", 256);
    bench.arrive(69);
    bench.receive_all();
    bench.arrive(3);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.receive_all()));
    let message = panic.expect_err("the 70th frame");
    assert!(message.downcast_ref::<String>().is_some_and(|m| m.contains("frame 70")));
    let (counts, numbers) = bench.close();
    assert_eq!((counts.received, counts.held, numbers.len()), (72, 3, 69));
}

#[derive(Clone, Debug)]
enum Op {
    Arrive(usize),
    Receive(usize),
    Wait(u64),
    Set(Faults),
    Flush,
}

fn faults() -> impl Strategy<Value = Faults> {
    let p = || prop_oneof![2 => Just(0.0), 2 => 0.0..0.5, 1 => Just(1.0)];
    let time = || prop_oneof![2 => Just(0), 2 => 0..3 * MILLIS];
    (p(), p(), p(), 1u32..9, time(), p(), time(), time(), any::<u64>()).prop_map(
        |(loss, duplicate, reorder, reorder_by, reorder_within, corrupt, delay, jitter, seed)| Faults {
            loss,
            duplicate,
            reorder,
            reorder_by,
            reorder_within,
            corrupt,
            delay,
            jitter,
            seed,
            panic: None,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0usize..100).prop_map(Op::Arrive),
        6 => (0usize..=BURST).prop_map(Op::Receive),
        4 => (0..MILLIS).prop_map(Op::Wait),
        1 => faults().prop_map(Op::Set),
        1 => Just(Op::Flush),
    ]
}

proptest! {
    #[test]
    fn no_chunk_is_lost_and_the_books_balance_after_any_sequence(start in faults(), ops in vec(op(), 0..80)) {
        let mut bench = Bench::new("", 300);
        bench.port.set(start);
        for op in ops {
            match op {
                Op::Arrive(count) => bench.arrive(count.min(bench.pool.free_count().saturating_sub(BURST))),
                Op::Receive(room) => {
                    if bench.pool.free_count() >= BURST - room {
                        prop_assert!(bench.receive(room) <= room);
                    }
                }
                Op::Wait(ns) => bench.now = bench.now + ns,
                Op::Set(faults) => bench.port.set(faults),
                Op::Flush => bench.port.flush(&mut bench.pool),
            }
            bench.check();
        }
        let end = bench.now + SECONDS;
        bench.settle();
        prop_assert!(bench.now < end, "held for longer than any delay");
        prop_assert_eq!(bench.port.faults().held, 0);
        let counts = bench.close().0;
        prop_assert_eq!(counts.received + counts.duplicated, counts.passed + counts.lost);
    }

    #[test]
    fn without_reordering_the_order_stays_and_each_frame_comes_once_lost_or_doubled(
        spec in faults(),
        gaps in vec(0u64..200_000, 1..300),
    ) {
        let mut bench = Bench::new("", 2048);
        bench.port.set(Faults { reorder: 0.0, corrupt: 0.0, ..spec });
        for gap in &gaps {
            bench.arrive(1);
            bench.receive_all();
            bench.now = bench.now + *gap;
        }
        bench.settle();
        let numbers = bench.numbers();
        prop_assert!(numbers.is_sorted());
        let distinct = numbers.iter().collect::<std::collections::BTreeSet<_>>().len() as u64;
        let counts = bench.close().0;
        prop_assert_eq!(distinct + counts.lost, gaps.len() as u64);
        prop_assert_eq!(distinct + counts.duplicated, numbers.len() as u64);
    }
}
