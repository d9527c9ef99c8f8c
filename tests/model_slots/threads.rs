//! One book in the hands of several threads, as the pipes of a switch on several workers have it.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::thread;

use crossbeam::queue::SegQueue;
use weft::id::PortId;
use weft::rng::Rng;
use weft::scheme::pl2::switch::SharedBook;
use weft::scheme::pl2::{BookConfig, SlotBook, SlotMode};
use weft::time::{Instant, SECONDS};
use weft::wire::pl2::{Kind, Shim};

use crate::{CONFIG, MODES, SLOT, control, granted, rsv};

const PORTS: u8 = 6;

/// The same time for all: what the clock does to slots then is nothing.
const NOW: Instant = Instant(1_000 * SLOT);

fn shared(mode: SlotMode) -> SharedBook {
    // Nothing is taken back meanwhile.
    SharedBook::new(&BookConfig { mode, grace: SECONDS, ..CONFIG }).expect("a configuration in its ranges")
}

/// A port, and another one.
fn way(rng: &mut Rng) -> (PortId, PortId) {
    let ingress = rng.below(PORTS.into()) as u8;
    (PortId(ingress), PortId((ingress + 1 + rng.below(u64::from(PORTS) - 1) as u8) % PORTS))
}

/// Runs `work` on so many threads, which begin at once; what each made of it.
fn on_threads<R: Send>(threads: usize, work: impl Fn(usize, &mut Rng) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let run = |id: usize| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                let mut rng = Rng::new(0x13 + id as u64);
                start.wait();
                work(id, &mut rng)
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|t| t.join().expect("a thread that found nothing wrong")).collect()
    })
}

/// I13: while nothing is sent, the grants of a port are those of some order of the requests: one behind the other,
/// from 0. In a window there are gaps, but no slot is two reservations'.
#[test]
fn requests_on_several_threads_at_once_get_the_slots_of_requests_one_by_one() {
    for (threads, mode) in [2, 4].into_iter().flat_map(|n| MODES.map(|mode| (n, mode))) {
        // A window is of 1,024 slots, and by the clock nothing reaches further than 4,080, so that fewer fit.
        let total = match mode {
            SlotMode::Window => 600,
            SlotMode::Clock => 4_000,
            SlotMode::Counter => 12_000,
        };
        let requests = total / threads as u32;
        let book = shared(mode);
        let grants = on_threads(threads, |id, rng| {
            let ask = |n| {
                let (ingress, output) = way(rng);
                let rsv = rsv(id as u32 * requests + n, 1, 1 + rng.below(4) as u16);
                let answer = book.with(|book| book.reserve(NOW, ingress, Some(output), &rsv));
                granted(&answer.grant).map(|grant| (ingress, output, grant))
            };
            (0..requests).filter_map(ask).collect::<Vec<_>>()
        });
        let grants: Vec<_> = grants.into_iter().flatten().collect();
        assert!(mode == SlotMode::Window || grants.len() == total as usize, "{mode:?}: {} granted", grants.len());
        for port in (0..PORTS).map(PortId) {
            let of_input = grants.iter().filter(|(i, ..)| *i == port).map(|(.., (k, t_in, _))| (*t_in, *k));
            let of_output = grants.iter().filter(|(_, o, _)| *o == port).map(|(.., (k, _, t_out))| (*t_out, *k));
            for mut slots in [of_input.collect::<Vec<_>>(), of_output.collect()] {
                assert!(slots.len() > 50, "{mode:?}: {} grants", slots.len());
                slots.sort_unstable();
                let mut end = 0;
                for (start, k) in slots {
                    let follows = if mode == SlotMode::Window { start >= end } else { start == end };
                    assert!(follows, "{threads} threads, {mode:?}, port {port}: {k} slots at {start}, free at {end}");
                    end = start + u32::from(k);
                }
            }
        }
    }
}

/// I1, at one moment.
fn check(book: &SlotBook) {
    for port in (0..PORTS).map(PortId) {
        let slots = book.port(port);
        let reserved = |of: fn(&weft::scheme::pl2::Pending) -> PortId| {
            book.pending().filter(|p| of(p) == port).map(|p| u32::from(p.k_left)).sum::<u32>()
        };
        assert_eq!(slots.in_slots, reserved(|p| p.ingress), "in[{port}]");
        assert_eq!(slots.out_slots, reserved(|p| p.output) + slots.queued, "out[{port}]");
    }
}

/// A burst that was granted, as far as it is not sent.
struct Burst {
    ingress: PortId,
    output: PortId,
    conn: u32,
    seq: u32,
    left: u16,
}

/// What one thread has done.
#[derive(Default)]
struct Done {
    grants: u64,
    slots: u64,
    used: u64,
}

/// One pipe and the connections that it receives.
struct Worker<'a> {
    book: &'a SharedBook,
    /// By pipe, the ports of the frames that wait in its queues.
    queues: &'a [SegQueue<PortId>],
    first_conn: u32,
    next_seq: u32,
    bursts: VecDeque<Burst>,
    done: Done,
}

impl Worker<'_> {
    fn ask(&mut self, rng: &mut Rng) {
        let (ingress, output) = way(rng);
        let (conn, seq) = (self.first_conn + self.next_seq % 8, self.next_seq);
        self.next_seq += 1;
        let mut rsv = rsv(conn, seq, 1 + rng.below(4) as u16);
        let mut granted_k = None;
        // One grant in eight is lost, and the request sent again.
        for _ in 0..=u8::from(rng.below(8) == 0) {
            let answer = self.book.with(|book| book.reserve(NOW, ingress, Some(output), &rsv));
            granted_k = granted(&answer.grant).map(|(k, ..)| k);
            self.done.grants += u64::from(granted_k.is_some());
            self.done.slots += granted_k.map_or(0, u64::from);
            rsv.flags.retry = true;
        }
        if let Some(left) = granted_k {
            self.bursts.push_back(Burst { ingress, output, conn, seq, left });
        }
    }

    /// The next frame of the oldest burst comes in, or what is left of it is given back.
    fn send(&mut self, rng: &mut Rng) {
        let Some(burst) = self.bursts.front_mut() else { return };
        let Burst { ingress, output, conn, seq, left } = *burst;
        if rng.below(16) == 0 {
            let rel = control(Kind::Rel, conn, seq, left);
            assert_eq!(self.book.with(|book| book.release(ingress, &rel)), Some(left));
            self.bursts.pop_front();
            return;
        }
        let closes = rng.below(3) > 0;
        self.book.with(|book| book.arrived(ingress, Some(output), Shim::new(conn, closes, false)));
        if !closes {
            return;
        }
        self.done.used += 1;
        burst.left -= 1;
        if burst.left == 0 {
            self.bursts.pop_front();
        }
        self.queues[output.index() % self.queues.len()].push(output);
    }
}

/// I1, I13: whatever several threads do at once, a register is the sum of what is reserved and queued, and 0 in the
/// end.
#[test]
fn requests_data_and_departures_on_several_threads_leave_nothing_reserved() {
    const STEPS: usize = 30_000;
    for (threads, mode) in [2, 4].into_iter().flat_map(|n| MODES.map(|mode| (n, mode))) {
        let book = shared(mode);
        let queues: Vec<_> = (0..threads).map(|_| SegQueue::new()).collect();
        let depart = |id: usize| queues[id].pop().map(|output| book.with(|book| book.left(output, 1)));
        let done = on_threads(threads, |id, rng| {
            let mut worker = Worker {
                book: &book,
                queues: &queues,
                first_conn: 8 * id as u32,
                next_seq: 1,
                bursts: VecDeque::new(),
                done: Done::default(),
            };
            for step in 0..STEPS / threads {
                match rng.below(8) {
                    0 if worker.bursts.len() < 32 => worker.ask(rng),
                    0..4 => worker.send(rng),
                    4..7 => _ = depart(id),
                    _ if step % 64 == 0 => book.with(|book| check(book)),
                    _ => book.with(|book| book.sweep(NOW)),
                }
            }
            while !worker.bursts.is_empty() {
                worker.send(rng);
            }
            worker.done
        });
        (0..threads).for_each(|id| while depart(id).is_some() {});
        let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
        book.with(|book| {
            check(book);
            let mut counted = [0; 3];
            for port in (0..PORTS).map(PortId) {
                let slots = book.port(port);
                let registers = (slots.in_slots, slots.out_slots, slots.queued, slots.pending);
                assert_eq!(registers, (0, 0, 0, 0), "{threads} threads, {mode:?}, port {port}");
                let c = slots.counters;
                let never = [c.in_underflows, c.out_underflows, c.late, c.rogue, c.refused, c.timeouts];
                assert_eq!(never, [0; 6], "{threads} threads, {mode:?}, port {port}: {c:?}");
                let counts = [c.grants, c.granted_slots, c.used_slots];
                counted.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            }
            assert_eq!(counted, [sum(|d| d.grants), sum(|d| d.slots), sum(|d| d.used)]);
            assert!(counted[0] > 1_000, "{mode:?}: {} grants", counted[0]);
        });
        assert_eq!(book.next_deadline(), None);
    }
}

/// A port is told of 512 grants at once, whichever pipes tell it, and then of one a slot.
#[test]
fn pipes_together_announce_no_more_than_one() {
    let book = shared(SlotMode::Counter);
    let announced = |now| {
        let announce = || book.with(|book| book.may_announce(now, PortId(1)));
        on_threads(4, |_, _| (0..400).filter(|_| announce()).count()).into_iter().sum::<usize>()
    };
    assert_eq!([announced(NOW), announced(NOW), announced(NOW + 100 * SLOT + SLOT / 2)], [512, 0, 100]);
    assert!(book.with(|book| book.may_announce(NOW, PortId(2))), "another port has its own");
}
