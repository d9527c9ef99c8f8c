//! How two workers of one switch scale, in memory: the pipeline of [`weft::pisa::Pipe`]s and the rings
//! between them, without any port.
//!
//! Each worker makes frames, runs them through its pipe and frees them when they leave; one worker's rate is
//! compared with that of two at once, in interleaved rounds. `apart`: two switches of one worker each, which
//! share nothing: what the machine itself allows. `own`: ports without a rate, where nothing is handed over.
//! `handed`: paced ports, so that every other frame crosses to the other worker and its chunk comes back.
//!
//! `cargo bench --bench workers`; with `--test` it only shows that it runs.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant as Clock;

use weft::config::SwitchConfig;
use weft::dataplane::{self, Dataplane};
use weft::frame::{BURST, Burst, Pool};
use weft::id::PortId;
use weft::runtime::exchange::{Exchange, Wake};
use weft::time::Instant;
use weft::wire::{MacAddr, checksum, ethernet};

const FLOWS: u32 = 8_192;
const CHUNKS: usize = 4_096;
/// Turns of ports in a pass, and bursts in a turn, as a worker's.
const TURNS: usize = 4;
const BURSTS: usize = 4;
/// So fast that the pacer lets every frame go when the next burst comes.
const FAST: &str = "rate = \"10000Gbit\"";

fn config(rate: &str) -> SwitchConfig {
    let port =
        |name: &str, kind: &str, rate: &str| format!("[[port]]\ninterface = \"{name}\"\nkind = \"{kind}\"\n{rate}\n");
    let ups: String = (0..4).map(|i| port(&format!("u{i}"), "up", rate)).collect();
    let text = format!(
        "name = \"t\"\nrole = \"tor\"\n[segment]\nipv4 = \"10.0.0.1/24\"\n[hello]\ninterval = 0\n{}{ups}[[route]]\nprefix = \
         \"0.0.0.0/0\"\nports = [\"u0\", \"u1\", \"u2\", \"u3\"]\n",
        port("h0", "host", "")
    );
    SwitchConfig::parse(&text, "bench").expect("a sound configuration")
}

/// A pipe with what drives it.
struct Worker {
    plane: Box<dyn Dataplane>,
    pool: Pool,
    exchange: Exchange,
    burst: Burst,
    now: Instant,
    made: u64,
    left: u64,
    mac: MacAddr,
}

impl Worker {
    fn new(config: &SwitchConfig, pool: Pool, exchange: Exchange) -> Worker {
        let plane = dataplane::build_pipe(config, &[1500, 1600, 1600, 1600, 1600], exchange.pipe(), exchange.common());
        Worker { plane, pool, exchange, burst: Burst::new(), now: Instant(1), made: 0, left: 0, mac: config.mac }
    }

    /// Makes a burst of packets of many flows, all for another rack.
    fn arrive(&mut self) {
        for _ in 0..BURST {
            let Some(mut frame) = self.pool.alloc() else { break };
            let flow = (self.made as u32).wrapping_mul(0x9e37_79b1) % FLOWS;
            self.made += 1;
            frame.set_len(ethernet::MIN_FRAME);
            frame[40..].fill(0);
            ethernet::set_addresses(&mut frame, self.mac, MacAddr([2, 0x68, 0, 0, 0, 2]));
            frame[12..14].copy_from_slice(&ethernet::ETHERTYPE_IPV4.to_be_bytes());
            frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 1 + (flow >> 8) as u8, 2]);
            frame[34..36].copy_from_slice(&(flow as u16).to_be_bytes());
            frame[36..40].copy_from_slice(&[0, 9, 0, 26]);
            let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            self.burst.push(frame);
        }
    }

    /// One pass: what comes, what another worker handed over, what leaves.
    fn pass(&mut self, receive: bool) {
        for turn in 0..TURNS * BURSTS {
            self.now = self.now + 2_000;
            // A worker that is behind with this one's parcels would lose more.
            if receive && self.plane.handing().len() < BURST {
                self.arrive();
                self.plane.receive(self.now, PortId(0), &mut self.pool, &mut self.burst);
            }
            let turn_ends = turn % BURSTS == BURSTS - 1;
            if turn_ends && self.exchange.is_used() && self.plane.handing().len() >= BURST {
                self.exchange.send(self.plane.as_mut(), &mut self.pool);
            }
            self.depart();
        }
        if self.exchange.is_used() {
            self.exchange.receive(self.now, self.plane.as_mut(), &mut self.pool);
        }
        self.depart();
        if self.exchange.is_used() {
            self.exchange.send(self.plane.as_mut(), &mut self.pool);
        }
    }

    fn depart(&mut self) {
        for port in self.plane.backlog().iter() {
            loop {
                self.plane.transmit(self.now, port, &mut self.pool, BURST, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                self.left += self.burst.len() as u64;
                self.burst.drain().for_each(|frame| self.pool.free(frame));
            }
        }
    }

    fn run(&mut self, frames: u64) {
        while self.made < frames {
            self.pass(true);
        }
        self.exchange.end();
        while !self.exchange.all_ended() {
            self.pass(false);
        }
        self.pass(false);
    }
}

/// Frames a second that `switches` switches of `workers` workers make together, each worker from `frames` of
/// its own.
fn rate(switches: usize, workers: usize, rate: &str, frames: u64) -> f64 {
    let config = config(rate);
    let no_wake: Wake = Arc::new(|| {});
    let pools: Vec<_> = (0..switches).flat_map(|_| Pool::split_heap(workers * CHUNKS, 2048, workers)).collect();
    let exchanges: Vec<_> = (0..switches).flat_map(|_| Exchange::mesh(&vec![no_wake.clone(); workers])).collect();
    let workers: Vec<_> =
        pools.into_iter().zip(exchanges).map(|(pool, e)| Mutex::new(Worker::new(&config, pool, e))).collect();
    let start = Barrier::new(workers.len());
    let start = &start;
    let slowest = std::thread::scope(|scope| {
        let thread = |worker: &Mutex<Worker>, start: &Barrier| {
            let mut worker = worker.lock().expect("nobody panicked");
            start.wait();
            let clock = Clock::now();
            worker.run(frames);
            clock.elapsed().as_secs_f64()
        };
        let threads: Vec<_> = workers.iter().map(|worker| scope.spawn(move || thread(worker, start))).collect();
        threads.into_iter().map(|t| t.join().expect("no worker panics")).fold(0.0, f64::max)
    });
    let (mut made, mut left) = (0, 0);
    for worker in &workers {
        let mut worker = worker.lock().expect("nobody panicked");
        let Worker { plane, pool, exchange, now, .. } = &mut *worker;
        exchange.collect(*now, plane.as_mut(), pool);
        plane.drain(*now, pool);
        plane.ledger().check().expect("the conservation law");
        (made, left) = (made + worker.made, left + worker.left);
    }
    assert!(left * 100 >= made * 99, "{left} of {made} frames left: that is not what is to be measured");
    left as f64 / slowest
}

fn main() {
    let quick = std::env::args().any(|a| a == "--test");
    let (rounds, frames) = if quick { (1, 10_000) } else { (21, 4_000_000) };
    println!(
        "{:>8}  {:>10}  {:>10}  {:>7}  {:>8}   million frames a second, medians of {rounds} interleaved rounds",
        "", "1 worker", "2 workers", "ratio", "of apart"
    );
    let mut apart = None;
    for (name, pace, switches, workers) in [("apart", "", 2, 1), ("own", "", 1, 2), ("handed", FAST, 1, 2)] {
        let (mut one, mut two, mut ratios) = (vec![], vec![], vec![]);
        for _ in 0..rounds {
            let (a, b) = (rate(1, 1, pace, frames), rate(switches, workers, pace, frames));
            one.push(a / 1e6);
            two.push(b / 1e6);
            ratios.push(b / a);
        }
        let [one, two, ratio] = [one, two, ratios].map(|mut v| {
            v.sort_by(f64::total_cmp);
            v[rounds / 2]
        });
        let of_apart = ratio / *apart.get_or_insert(ratio);
        println!("{name:>8}  {one:>10.2}  {two:>10.2}  {ratio:>7.2}  {of_apart:>8.2}");
    }
}
