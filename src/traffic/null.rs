//! The null forwarder: what weft's ports cost without weft's pipeline.
//!
//! The same sockets, memory, bursts, kicks and sleeps as a runtime worker with two ports, so that
//! the ratio of the two is the pipeline's share and nothing else's.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::frame::{BURST, Burst, Frame, Pool};
use crate::id::XdpMode;
use crate::port::Port;
use crate::port::xdp::{Device, Memory, XdpOptions, XdpPort, chunk_size};
use crate::runtime::{BURSTS, MAX_SLEEP, RETRY, SPIN, Waiter, now};
use crate::time::Instant;

use super::TrafficError;
use super::endpoint::MAX_NAP;

/// Chunks in all, a third to each port to receive into: a worker's defaults.
const CHUNKS: u32 = 16_384;
/// Frames that may wait for a port, as many as in a switch's data queue by default.
const QUEUE: usize = 1024;

/// What to forward between.
#[derive(Clone, Debug)]
pub struct NullOptions {
    /// The two interfaces, in this thread's namespace.
    pub interfaces: [String; 2],
    /// Where their XDP programs hook in.
    pub mode: XdpMode,
    /// Longest time; `None`: until stopped.
    pub duration: Option<Duration>,
    /// Spins instead of sleeping when idle.
    pub busy: bool,
}

/// What a null forwarder did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NullReport {
    /// Frames from each interface to the other.
    pub forwarded: [u64; 2],
    /// Frames of each interface that the other had no room for.
    pub dropped: [u64; 2],
    /// System calls made to send, by both.
    pub kicks: u64,
}

/// Sends what arrives at each interface out of the other until the time is over or `stop` is set;
/// calls `ready` once it forwards.
///
/// # Errors
/// A port can't be opened, or goes away.
pub fn null(options: &NullOptions, stop: &AtomicBool, ready: impl FnOnce()) -> Result<NullReport, TrafficError> {
    let [a, b] = &options.interfaces;
    let devices = [Device::query(a)?, Device::query(b)?];
    devices.iter().try_for_each(Device::check_up)?;
    let mtu = devices[0].mtu.max(devices[1].mtu);
    let (memory, mut pool) = Memory::new(CHUNKS, chunk_size(mtu))?;
    let xdp =
        XdpOptions { mode: options.mode, fill: CHUNKS as usize / 3, complete_checksums: false, pass_to_kernel: false };
    let [a, b] = devices;
    let mut ports = [XdpPort::open(&memory, a, &xdp)?, XdpPort::open(&memory, b, &xdp)?];
    ports.iter_mut().for_each(|port| port.start(&mut pool));
    let mut waiter = Waiter::new().map_err(|e| TrafficError::system("epoll", e))?;
    for port in &ports {
        waiter.watch(port.as_fd()).map_err(|e| TrafficError::system("epoll", e))?;
    }
    ready();

    let report = NullReport { forwarded: [0; 2], dropped: [0; 2], kicks: 0 };
    let mut forwarder = Forwarder { ports, pool, queues: Default::default(), burst: Burst::new(), report };
    let outcome = forwarder.run(options, stop, &mut waiter);
    // Also after a failure: frames go back to their pool.
    let report = forwarder.finish();
    outcome.map(|()| report)
}

struct Forwarder {
    // Before the pool: the ports give up the kernel's hold on its memory first.
    ports: [XdpPort; 2],
    pool: Pool,
    /// What waits to leave by each port.
    queues: [VecDeque<Frame>; 2],
    burst: Burst,
    report: NullReport,
}

impl Forwarder {
    fn run(&mut self, options: &NullOptions, stop: &AtomicBool, waiter: &mut Waiter) -> Result<(), TrafficError> {
        let end = options.duration.map(|d| now() + d.as_nanos().min(u128::from(u64::MAX)) as u64);
        let mut last_work = now();
        while !stop.load(Ordering::Relaxed) {
            let moved = self.pass()?;
            let now = now();
            if end.is_some_and(|end| end <= now) {
                break;
            }
            if moved > 0 {
                last_work = now;
            } else if options.busy || now.since(last_work) < SPIN {
                std::hint::spin_loop();
            } else {
                let until = self.next_look(now).min(end.unwrap_or(now + MAX_SLEEP)).min(now + MAX_NAP);
                waiter.wait(now, Some(until)).map_err(|e| TrafficError::system("epoll_wait", e))?;
            }
        }
        Ok(())
    }

    /// A worker's pass: some bursts from each port, then what waits for each and one kick. How many
    /// frames it moved.
    fn pass(&mut self) -> Result<usize, TrafficError> {
        let mut moved = 0;
        for from in 0..2 {
            let to = 1 - from;
            for _ in 0..BURSTS {
                self.ports[from].rx_burst(&mut self.pool, &mut self.burst);
                let n = self.burst.len();
                for frame in self.burst.drain() {
                    if self.queues[to].len() < QUEUE {
                        self.queues[to].push_back(frame);
                    } else {
                        self.report.dropped[from] += 1;
                        self.pool.free(frame);
                    }
                }
                moved += n;
                if n < BURST {
                    break;
                }
            }
        }
        for to in 0..2 {
            if !self.queues[to].is_empty() || self.ports[to].tx_pending() > 0 {
                moved += self.transmit(to)?;
            }
        }
        Ok(moved)
    }

    /// Sends what waits for port `to` and the ring has room for.
    fn transmit(&mut self, to: usize) -> Result<usize, TrafficError> {
        let (port, queue) = (&mut self.ports[to], &mut self.queues[to]);
        let mut sent = 0;
        loop {
            let n = queue.len().min(port.tx_room(&mut self.pool)).min(BURST);
            if n == 0 {
                break;
            }
            queue.drain(..n).for_each(|frame| self.burst.push(frame));
            port.tx_burst(&mut self.pool, &mut self.burst);
            sent += n;
        }
        self.report.forwarded[1 - to] += sent as u64;
        match port.kick() {
            Ok(()) => Ok(sent),
            Err(cause) => Err(TrafficError::Dead { interface: port.device().name.clone(), cause }),
        }
    }

    /// When to look again although no frame comes: soon if some are left in a ring or waiting.
    fn next_look(&mut self, now: Instant) -> Instant {
        let mut next = now + MAX_SLEEP;
        for (port, queue) in self.ports.iter_mut().zip(&self.queues) {
            if port.tx_pending() > 0 {
                // The next pass tells whether the port is dead.
                let _ = port.kick();
            }
            if port.tx_pending() > 0 || !queue.is_empty() {
                next = now + RETRY;
            }
        }
        next
    }

    fn finish(mut self) -> NullReport {
        for queue in &mut self.queues {
            queue.drain(..).for_each(|frame| self.pool.free(frame));
        }
        NullReport { kicks: self.ports.iter().map(|p| p.stats().tx_kicks).sum(), ..self.report }
    }
}
