//! A worker: one thread that owns switches with their ports and pools, and runs them to completion.
//!
//! One pass: for each switch, each port: receive a burst, run it through the pipeline. Then for each
//! port with frames waiting: send what pacer and ring allow, one kick. The clock is read once a
//! burst. When a pass finds nothing the worker sleeps until a socket or a deadline wakes it; a burst
//! of any length is sent out whole before that, so no frame waits for the next.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::Receiver;
use tracing::{error, info, warn};

use crate::config::{PollMode, SwitchConfig};
use crate::dataplane::{self, Dataplane};
use crate::frame::{BURST, Burst, Pool};
use crate::id::{PortId, PortKind, PortMask, XdpMode};
use crate::port::Port;
use crate::port::xdp::{Device, Memory, XdpOptions, XdpPort, chunk_size};
use crate::time::{Instant, MICROS, MILLIS, SECONDS, earliest};

use super::clock::now;
use super::control::Ask;
use super::wait::Waiter;
use super::{RuntimeError, SwitchInstance, netns};

/// Bursts taken from a port before the next one gets its turn: together what one `sendto` sends.
pub(crate) const BURSTS: usize = 4;
/// How long an adaptive worker looks on after the last frame before it sleeps: about what a wake-up
/// costs.
pub(crate) const SPIN: u64 = 20 * MICROS;
/// A deadline nearer than this is waited for awake: sleeping would overshoot it.
const NEAR: u64 = 15 * MICROS;
/// How soon to look again at a ring that was full, or has frames the kernel did not take.
pub(crate) const RETRY: u64 = 100 * MICROS;
/// Longest time between two looks at such a ring.
const MAX_RETRY: u64 = 10 * MILLIS;
/// Longest sleep, so that a lost wake-up could only ever cost this much.
pub(crate) const MAX_SLEEP: u64 = SECONDS;
/// How long queued frames get to leave at shutdown.
const DRAIN: u64 = 200 * MILLIS;

/// One port of a running switch.
pub(super) struct PortSlot {
    pub port: XdpPort,
    /// Why it is dead: the system's words.
    pub dead: Option<String>,
    /// When to kick again for frames that the kernel left in the ring, and how long after that.
    pub next_kick: Instant,
    retry: u64,
}

impl PortSlot {
    fn new(port: XdpPort) -> PortSlot {
        PortSlot { port, dead: None, next_kick: Instant::ZERO, retry: RETRY }
    }

    /// Kicks if there is something in the ring: at once for `fresh` frames, else at growing intervals,
    /// for a link may be down for long.
    fn kick(&mut self, now: Instant, fresh: bool) -> io::Result<()> {
        if self.dead.is_some() || (!fresh && (now < self.next_kick || self.port.tx_pending() == 0)) {
            return Ok(());
        }
        self.port.kick()?;
        self.retry = if fresh || self.port.tx_pending() == 0 { RETRY } else { (2 * self.retry).min(MAX_RETRY) };
        self.next_kick = now + self.retry;
        Ok(())
    }
}

/// A running switch.
pub(super) struct Running {
    pub config: SwitchConfig,
    pub plane: Box<dyn Dataplane>,
    pub ports: Vec<PortSlot>,
    /// Ports that have chunks with the kernel for sending: to be kicked on, or taken back.
    unsettled: PortMask,
    // After the ports: they give up the kernel's hold on its memory first.
    pub pool: Pool,
}

#[derive(Default)]
pub(super) struct Stats {
    pub loops: u64,
    pub idle_loops: u64,
    pub sleeps: u64,
    pub frames: u64,
}

pub(super) struct Worker {
    pub id: usize,
    pub core: Option<usize>,
    pub poll: PollMode,
    pub switches: Vec<Running>,
    waiter: Waiter,
    asks: Receiver<Ask>,
    stop: Arc<AtomicBool>,
    burst: Burst,
    pub stats: Stats,
}

/// What a worker is started with.
pub(super) struct Setup {
    pub id: usize,
    pub core: Option<usize>,
    pub poll: PollMode,
    pub instances: Vec<SwitchInstance>,
    pub waiter: Waiter,
    pub asks: Receiver<Ask>,
    pub stop: Arc<AtomicBool>,
}

impl Worker {
    /// Opens every port of every switch. Call in the thread that will run it.
    pub fn open(setup: Setup) -> Result<Worker, RuntimeError> {
        let Setup { id, core, poll, instances, waiter, asks, stop } = setup;
        let home = netns::Home::here()?;
        instances.iter().try_for_each(|i| check_frames(&i.config))?;
        // All interfaces are looked at before anything is changed.
        let mut devices = Vec::new();
        for instance in &instances {
            home.enter(instance.netns.as_deref())?;
            let found: Result<Vec<Device>, _> =
                instance.config.ports.iter().map(|p| Device::query(&p.interface)).collect();
            devices.push(found.map_err(|e| RuntimeError::port(&instance.config.name, e))?);
        }
        for (port, device) in instances.iter().flat_map(|i| &i.config.ports).zip(devices.iter().flatten()) {
            if let Some(mtu) = port.mtu.filter(|mtu| u32::from(*mtu) > device.mtu) {
                return Err(RuntimeError::Impossible(format!(
                    "port `{0}`: mtu = {mtu} is over the interface's {1}: ip link set {0} mtu {mtu}, or lower it in the \
                     configuration",
                    device.name, device.mtu
                )));
            }
        }
        let mut switches = Vec::new();
        for (instance, devices) in instances.into_iter().zip(devices) {
            home.enter(instance.netns.as_deref())?;
            let config = instance.config;
            let mtus: Vec<u16> = devices.iter().map(|d| d.mtu.min(u32::from(u16::MAX)) as u16).collect();
            let plane = dataplane::build(&config, &mtus);
            // A UMEM a switch, not a worker: the kernel keeps an entry for every chunk at every socket,
            // and one switch's load must not take another's frames. The UMEM's own socket belongs to
            // the namespace it was made in, which is that of its ports.
            let mtu = devices.iter().map(|d| d.mtu).max().unwrap_or(0);
            let (memory, mut pool) =
                Memory::new(config.runtime.frames, chunk_size(mtu)).map_err(|e| RuntimeError::port(&config.name, e))?;
            if let Some(port) = config.ports.iter().find(|p| p.mode == XdpMode::Generic) {
                // The kernel hands over what it has merged or not yet cut, and a chunk takes one frame:
                // unlike native mode, generic mode does not switch that off at a veth's peer.
                warn!(
                    switch = config.name,
                    port = port.interface,
                    "generic mode loses segments in one piece, and TCP with them: `ethtool -K INTERFACE tso off gso off` \
                     at a veth's other end, `ethtool -K {} gro off lro off` here",
                    port.interface
                );
            }
            let mut ports = Vec::new();
            for (port, device) in config.ports.iter().zip(devices) {
                let fill = fill(&config, port.kind);
                let options = XdpOptions { mode: port.mode, fill, complete_checksums: port.kind == PortKind::Host };
                let opened = XdpPort::open(&memory, &mut pool, device, &options);
                let port = opened.map_err(|e| RuntimeError::port(&config.name, e))?;
                waiter.watch(port.as_fd()).map_err(|e| RuntimeError::system("epoll", e))?;
                ports.push(PortSlot::new(port));
            }
            info!(switch = config.name, role = %config.role, selector = %config.selector, ports = ports.len(), "attached");
            switches.push(Running { config, plane, ports, unsettled: PortMask::EMPTY, pool });
        }
        home.enter(None)?;
        Ok(Worker { id, core, poll, switches, waiter, asks, stop, burst: Burst::new(), stats: Stats::default() })
    }

    /// Forwards until told to stop, then lets the queues empty and accounts for every frame.
    pub fn run(&mut self) -> Result<(), RuntimeError> {
        let mut last_work = now();
        while !self.stop.load(Ordering::Relaxed) {
            let worked = self.pass(true);
            while let Ok(ask) = self.asks.try_recv() {
                let report = self.report(&ask);
                // The asker may have given up.
                let _ = ask.answer.send(report);
            }
            self.stats.loops += 1;
            let now = now();
            if worked > 0 {
                last_work = now;
                continue;
            }
            self.stats.idle_loops += 1;
            if self.poll == PollMode::Busy || now.since(last_work) < SPIN {
                std::hint::spin_loop();
                continue;
            }
            let until = self.next_deadline(now);
            if until.since(now) < NEAR {
                std::hint::spin_loop();
                continue;
            }
            self.stats.sleeps += 1;
            self.waiter.wait(now, Some(until)).map_err(|e| RuntimeError::system("epoll_wait", e))?;
        }
        self.drain()
    }

    /// One pass over all switches; how many frames it moved.
    fn pass(&mut self, receive: bool) -> usize {
        let mut moved = 0;
        for running in &mut self.switches {
            let Running { plane, ports, config, unsettled, pool } = running;
            if receive {
                for (i, slot) in ports.iter_mut().enumerate() {
                    for _ in 0..BURSTS {
                        slot.port.rx_burst(pool, &mut self.burst);
                        let n = self.burst.len();
                        if n > 0 {
                            moved += n;
                            plane.receive(now(), PortId(i as u8), pool, &mut self.burst);
                        }
                        if n < BURST {
                            break;
                        }
                    }
                }
            }
            let tick = plane.tick_deadline();
            if tick.is_none() && plane.backlog().is_empty() && unsettled.is_empty() {
                continue;
            }
            let now = now();
            if tick.is_some_and(|t| t <= now) {
                plane.tick(now, pool);
            }
            for id in plane.backlog().or(*unsettled).iter() {
                let slot = &mut ports[id.index()];
                let before = moved;
                loop {
                    let room = slot.port.tx_room(pool);
                    plane.transmit(now, id, pool, room, &mut self.burst);
                    if self.burst.is_empty() {
                        break;
                    }
                    moved += self.burst.len();
                    slot.port.tx_burst(pool, &mut self.burst);
                }
                if let Err(e) = slot.kick(now, moved > before) {
                    let interface = &config.ports[id.index()].interface;
                    warn!(switch = config.name, port = interface, error = %e, "port is dead: taken out of service");
                    slot.dead = Some(e.to_string());
                    plane.set_port_up(id, false, pool);
                }
                *unsettled = match slot.port.reclaim(pool) {
                    0 => unsettled.without(id),
                    _ if slot.dead.is_some() => unsettled.without(id),
                    _ => unsettled.with(id),
                };
            }
        }
        self.stats.frames += moved as u64;
        moved
    }

    /// When there is something to do although no frame comes.
    fn next_deadline(&self, now: Instant) -> Instant {
        let mut next = None;
        for running in &self.switches {
            next = earliest(next, running.plane.tick_deadline());
            for id in running.plane.backlog().or(running.unsettled).iter() {
                // Chunks to take back, or due already but the ring is full: nobody will say when.
                let mut look = now + RETRY;
                if running.unsettled.contains(id) {
                    look = look.max(running.ports[id.index()].next_kick);
                }
                let due = running.plane.queues().port_deadline(id).filter(|due| *due > now);
                next = earliest(next, Some(due.unwrap_or(look)));
            }
        }
        next.unwrap_or(now + MAX_SLEEP).min(now + MAX_SLEEP)
    }

    /// Sends what is queued for a while, drops the rest, and checks that every frame and every chunk
    /// is accounted for.
    fn drain(&mut self) -> Result<(), RuntimeError> {
        let end = now() + DRAIN;
        while now() < end && self.switches.iter().any(|r| !r.plane.backlog().or(r.unsettled).is_empty()) {
            self.pass(false);
        }
        for running in &mut self.switches {
            running.plane.drain(now(), &mut running.pool);
            if let Err(imbalance) = running.plane.ledger().check() {
                error!(switch = running.config.name, "frames unaccounted for at shutdown: {imbalance}");
                return Err(RuntimeError::Unbalanced { switch: running.config.name.clone(), imbalance });
            }
            let umem = running.umem();
            if !umem.balanced {
                let imbalance = format!("{umem:?}");
                return Err(RuntimeError::Unbalanced { switch: running.config.name.clone(), imbalance });
            }
        }
        Ok(())
    }
}

/// Chunks that every port gets to receive into, whatever the others' shares: a few bursts.
const MIN_FILL: usize = 4 * BURST;

/// Chunks for a port to receive into: its share of two thirds of the switch's frames. A host's TCP sends
/// a whole window at once; what comes from another switch was queued and paced there.
fn fill(config: &SwitchConfig, kind: PortKind) -> usize {
    let weight = |kind| match kind {
        PortKind::Host => 4,
        PortKind::Up | PortKind::Down => 1,
    };
    let weights: usize = config.ports.iter().map(|p| weight(p.kind)).sum();
    (config.runtime.frames as usize * 2 / 3 * weight(kind) / weights).max(MIN_FILL)
}

/// Refuses a switch whose frames do not give every port its chunks with a quarter left for queues.
fn check_frames(config: &SwitchConfig) -> Result<(), RuntimeError> {
    let fills: usize = config.ports.iter().map(|p| fill(config, p.kind)).sum();
    let frames = config.runtime.frames as usize;
    if fills <= frames / 4 * 3 {
        return Ok(());
    }
    let enough = config.ports.len() * 2 * MIN_FILL;
    Err(RuntimeError::Impossible(format!(
        "switch `{}`: frames = {frames} is too few for {} ports: set at least {enough}",
        config.name,
        config.ports.len()
    )))
}
