//! The null forwarder: what weft's ports cost without weft's pipeline.
//!
//! The same sockets, memory, bursts, kicks and sleeps as a runtime worker with two ports, so that
//! the ratio of the two is the pipeline's share and nothing else's.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::frame::{Burst, Pool};
use crate::id::XdpMode;
use crate::port::Port;
use crate::port::xdp::{Device, Memory, XdpOptions, XdpPort};
use crate::runtime::{MAX_SLEEP, RETRY, SPIN, Waiter, now};
use crate::time::Instant;

use super::TrafficError;
use super::endpoint::{MAX_NAP, chunk_size};

/// Chunks in all; a quarter a port to receive into, as a worker does.
const CHUNKS: u32 = 16_384;

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
    let mtu = devices[0].mtu.max(devices[1].mtu);
    let (memory, mut pool) = Memory::new(CHUNKS, chunk_size(mtu))?;
    let xdp = XdpOptions { mode: options.mode, fill: CHUNKS as usize / 4, complete_checksums: false };
    let [a, b] = devices;
    let mut ports = [XdpPort::open(&memory, &mut pool, a, &xdp)?, XdpPort::open(&memory, &mut pool, b, &xdp)?];
    let mut waiter = Waiter::new().map_err(|e| TrafficError::system("epoll", e))?;
    for port in &ports {
        waiter.watch(port.as_fd()).map_err(|e| TrafficError::system("epoll", e))?;
    }
    ready();

    let mut report = NullReport { forwarded: [0; 2], dropped: [0; 2], kicks: 0 };
    let end = options.duration.map(|d| now() + d.as_nanos().min(u128::from(u64::MAX)) as u64);
    let mut bursts = [Burst::new(), Burst::new()];
    let mut last_work = now();
    while !stop.load(Ordering::Relaxed) {
        let moved = pass(&mut ports, &mut pool, &mut bursts, &mut report)?;
        let now = now();
        if end.is_some_and(|end| end <= now) {
            break;
        }
        if moved > 0 {
            last_work = now;
        } else if options.busy || now.since(last_work) < SPIN {
            std::hint::spin_loop();
        } else {
            let until = next_look(&mut ports, now).min(end.unwrap_or(now + MAX_SLEEP)).min(now + MAX_NAP);
            waiter.wait(now, Some(until)).map_err(|e| TrafficError::system("epoll_wait", e))?;
        }
    }
    report.kicks = ports.iter().map(|p| p.stats().tx_kicks).sum();
    // In this order: the ports' rings are of the pool's memory.
    drop(ports);
    drop(pool);
    Ok(report)
}

/// One burst from each port to the other, and one kick each; how many frames.
fn pass(
    [a, b]: &mut [XdpPort; 2],
    pool: &mut Pool,
    bursts: &mut [Burst; 2],
    report: &mut NullReport,
) -> Result<usize, TrafficError> {
    let there = forward(a, b, pool, bursts)?;
    let back = forward(b, a, pool, bursts)?;
    for (i, moved) in [there, back].into_iter().enumerate() {
        report.forwarded[i] += moved.sent;
        report.dropped[i] += moved.dropped;
    }
    Ok((there.sent + there.dropped + back.sent + back.dropped) as usize)
}

#[derive(Clone, Copy, Default)]
struct Moved {
    sent: u64,
    dropped: u64,
}

#[inline]
fn forward(
    from: &mut XdpPort,
    to: &mut XdpPort,
    pool: &mut Pool,
    [received, sending]: &mut [Burst; 2],
) -> Result<Moved, TrafficError> {
    from.rx_burst(pool, received);
    if received.is_empty() {
        return Ok(Moved::default());
    }
    let room = to.tx_room(pool);
    let mut moved = Moved::default();
    for frame in received.drain() {
        if sending.len() < room {
            sending.push(frame);
        } else {
            moved.dropped += 1;
            pool.free(frame);
        }
    }
    moved.sent = sending.len() as u64;
    to.tx_burst(pool, sending);
    to.kick().map_err(|cause| TrafficError::Dead { interface: to.device().name.clone(), cause })?;
    Ok(moved)
}

/// When to look again although no frame comes: soon if the kernel left some in a ring.
fn next_look(ports: &mut [XdpPort; 2], now: Instant) -> Instant {
    let mut next = now + MAX_SLEEP;
    for port in ports {
        if port.tx_pending() > 0 {
            // The next pass tells whether the port is dead.
            let _ = port.kick();
            next = now + RETRY;
        }
    }
    next
}
