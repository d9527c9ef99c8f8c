//! A worker: one thread that owns switches with their ports and pools, and runs them to completion.
//!
//! One pass: for each switch, each port: receive a burst, run it through the pipeline. Then for each
//! port with frames waiting: send what pacer and ring allow, one kick. The clock is read once a
//! burst. When a pass finds nothing the worker sleeps until a socket or a deadline wakes it; a burst
//! of any length is sent out whole before that, so no frame waits for the next.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::{Receiver, Sender};
use tracing::{error, info, warn};

use crate::config::diff::Command;
use crate::config::{PollMode, SwitchConfig};
use crate::dataplane::{self, Dataplane};
use crate::frame::{BURST, Burst, Pool};
use crate::id::{PortId, PortKind, PortMask};
use crate::port::Port;
use crate::port::fault::FaultPort;
use crate::port::xdp::{Device, XdpPort};
use crate::time::{Instant, MICROS, MILLIS, SECONDS, earliest};

use super::RuntimeError;
use super::clock::now;
use super::control::Ask;
use super::exchange::Exchange;
use super::keeper::{Apply, Notice, Order};
use super::open::fill;
use super::slot::{PortSlot, RETRY};
use super::wait::{Waiter, Waker};

/// Bursts taken from a port before the next one gets its turn: together what one `sendto` sends.
pub(crate) const BURSTS: usize = 4;
/// How long an adaptive worker looks on after the last frame before it sleeps: about what a wake-up
/// costs.
pub(crate) const SPIN: u64 = 20 * MICROS;
/// A deadline nearer than this is waited for awake: sleeping would overshoot it.
const NEAR: u64 = 15 * MICROS;
/// Longest sleep, so that a lost wake-up could only ever cost this much.
pub(crate) const MAX_SLEEP: u64 = SECONDS;
/// Starts of a switch so many nanoseconds apart have numbers of their own, until those have gone round after 18
/// minutes: a process takes longer to be started again.
const START: u64 = 1 << 24;
/// How long queued frames get to leave at shutdown.
const DRAIN: u64 = 200 * MILLIS;

/// A running switch.
pub(super) struct Running {
    /// Its number among all of the runtime.
    number: usize,
    pub config: SwitchConfig,
    pub plane: Box<dyn Dataplane>,
    /// By [`PortId`]; none where a port was removed.
    pub ports: Vec<Option<PortSlot>>,
    /// Ports that have chunks with the kernel for sending: to be kicked on, or taken back.
    unsettled: PortMask,
    /// Ports that carried traffic when it was last looked, to tell of changes.
    live: PortMask,
    /// Chunks with sockets that are being closed.
    pub closing: usize,
    /// To the switch's other pipes.
    exchange: Exchange,
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
    orders: Receiver<Order>,
    keeper: ToKeeper,
    stop: Arc<AtomicBool>,
    burst: Burst,
    pub stats: Stats,
}

/// How to reach the keeper.
#[derive(Clone, Debug)]
pub(super) struct ToKeeper {
    pub notices: Sender<Notice>,
    pub waker: Waker,
}

impl ToKeeper {
    /// A keeper that has ended needs to know nothing.
    pub fn tell(&self, notice: Notice) {
        let _ = self.notices.send(notice);
        self.waker.wake();
    }
}

/// A switch that was opened, on its way to its worker.
pub(super) struct Ready {
    /// Its number among all of the runtime.
    pub number: usize,
    pub config: SwitchConfig,
    pub pool: Pool,
    /// By [`PortId`].
    pub ports: Vec<(Device, XdpPort)>,
    pub exchange: Exchange,
}

/// What a worker is started with.
pub(super) struct Setup {
    pub id: usize,
    pub core: Option<usize>,
    pub poll: PollMode,
    pub switches: Vec<Ready>,
    pub waiter: Waiter,
    pub asks: Receiver<Ask>,
    pub orders: Receiver<Order>,
    pub keeper: ToKeeper,
    pub stop: Arc<AtomicBool>,
}

impl Worker {
    /// A worker of opened switches. Call in the thread that will run it.
    pub fn new(setup: Setup) -> Result<Worker, RuntimeError> {
        let Setup { id, core, poll, switches, waiter, asks, orders, keeper, stop } = setup;
        let mut running = Vec::new();
        for Ready { number, config, pool, ports, exchange } in switches {
            let slots: Vec<_> = config
                .ports
                .iter()
                .zip(&ports)
                .map(|(p, (device, _))| PortSlot::new(p.clone(), device.clone(), config.runtime.workers))
                .collect();
            let mtus: Vec<u16> = slots.iter().map(PortSlot::mtu).collect();
            let mut plane = dataplane::build_pipe(&config, &mtus, exchange.pipe(), exchange.common());
            plane.set_start((now().0 / START) as u16);
            let slots = slots.into_iter().map(Some).collect();
            let mut r = Running {
                number,
                live: plane.live(),
                config,
                plane,
                ports: slots,
                unsettled: PortMask::EMPTY,
                closing: 0,
                exchange,
                pool,
            };
            for (i, (device, socket)) in ports.into_iter().enumerate() {
                r.attach(&waiter, PortId(i as u8), device, socket)?;
            }
            running.push(r);
        }
        let (burst, stats) = (Burst::new(), Stats::default());
        Ok(Worker { id, core, poll, switches: running, waiter, asks, orders, keeper, stop, burst, stats })
    }

    /// Forwards until told to stop, then lets the queues empty and accounts for every frame.
    pub fn run(&mut self) -> Result<(), RuntimeError> {
        let mut last_work = now();
        while !self.stop.load(Ordering::Relaxed) {
            let worked = self.pass(true);
            let mut obeyed = false;
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order)?;
                obeyed = true;
            }
            while let Ok(ask) = self.asks.try_recv() {
                let report = self.report(&ask);
                // The asker may have given up.
                let _ = ask.answer.send(report);
            }
            self.stats.loops += 1;
            let now = now();
            if worked > 0 || obeyed {
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
            self.waiter.about_to_sleep();
            if self.switches.iter().any(|r| r.exchange.has_mail()) {
                self.waiter.stay_awake();
                continue;
            }
            self.stats.sleeps += 1;
            self.waiter.wait(now, Some(until)).map_err(|e| RuntimeError::system("epoll_wait", e))?;
        }
        self.drain()
    }

    /// Does what the keeper says.
    fn obey(&mut self, order: Order) -> Result<(), RuntimeError> {
        let waiter = &self.waiter;
        match order {
            Order::Attach { switch, port, device, socket } => {
                self.switches[switch].attach(waiter, port, device, *socket)?;
            }
            Order::Detach { switch, port, why } => self.switches[switch].detach(waiter, &self.keeper, port, why),
            Order::Absent { switch, port, why } => {
                if let Some(slot) = &mut self.switches[switch].ports[port.index()] {
                    slot.absent = why;
                }
            }
            Order::Device { switch, port, device } => self.switches[switch].device(port, device),
            Order::Restore { switch, lent } => {
                let running = &mut self.switches[switch];
                running.closing -= lent.count();
                lent.restore(&mut running.pool);
            }
            Order::Apply { switch, apply, done } => {
                self.switches[switch].apply(waiter, &self.keeper, *apply)?;
                // The keeper waits for it.
                let _ = done.send(());
            }
        }
        Ok(())
    }

    /// One pass over all switches; how many frames it moved.
    fn pass(&mut self, receive: bool) -> usize {
        let mut moved = 0;
        for running in &mut self.switches {
            let Running { plane, ports, unsettled, pool, live, exchange, .. } = running;
            if receive {
                for (i, slot) in ports.iter_mut().enumerate() {
                    let Some(socket) = slot.as_mut().and_then(|s| s.socket.as_mut()) else { continue };
                    if !socket.is_clear() {
                        socket.at(now());
                    }
                    for _ in 0..BURSTS {
                        socket.rx_burst(pool, &mut self.burst);
                        let n = self.burst.len();
                        if n > 0 {
                            moved += n;
                            plane.receive(now(), PortId(i as u8), pool, &mut self.burst);
                        }
                        if n < BURST {
                            break;
                        }
                    }
                    if exchange.is_used() && plane.handing().len() >= BURST {
                        exchange.send(plane.as_mut(), pool);
                    }
                }
            }
            if exchange.is_used() {
                moved += exchange.receive(now(), plane.as_mut(), pool);
            }
            let changed = plane.live() != *live;
            let tick = plane.tick_deadline();
            if tick.is_none() && plane.backlog().is_empty() && unsettled.is_empty() && !changed && !exchange.is_used() {
                continue;
            }
            let now = now();
            if tick.is_some_and(|t| t <= now) {
                plane.tick(now, pool);
            }
            let mut dead = Vec::new();
            for id in plane.backlog().or(*unsettled).iter() {
                // A port without a socket is down, so nothing waits at it.
                let Some(slot) = &mut ports[id.index()] else { continue };
                let before = moved;
                let Some(socket) = &mut slot.socket else { continue };
                loop {
                    let room = socket.tx_room(pool);
                    plane.transmit(now, id, pool, room, &mut self.burst);
                    if self.burst.is_empty() {
                        break;
                    }
                    moved += self.burst.len();
                    socket.tx_burst(pool, &mut self.burst);
                }
                if let Err(e) = slot.kick(now, moved > before) {
                    dead.push((id, e));
                }
                // After the kick: what it sent is free for what the next pass receives.
                let Some(socket) = &mut slot.socket else { continue };
                *unsettled = match socket.inner_mut().reclaim(pool) {
                    0 => unsettled.without(id),
                    _ => unsettled.with(id),
                };
            }
            plane.control(now);
            if exchange.is_used() {
                exchange.send(plane.as_mut(), pool);
            }
            if changed {
                running.tell_links();
            }
            for (id, e) in dead {
                running.detach(&self.waiter, &self.keeper, id, e.to_string());
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
            if running.exchange.has_mail() {
                next = earliest(next, Some(now + RETRY));
            }
            let faulty = running.ports.iter().flatten().filter_map(|slot| slot.socket.as_ref());
            next = faulty.filter(|f| !f.is_clear()).map(FaultPort::next_deadline).fold(next, earliest);
            for id in running.plane.backlog().or(running.unsettled).iter() {
                // Chunks to take back, or due already but the ring is full: nobody will say when.
                let mut look = now + RETRY;
                if running.unsettled.contains(id)
                    && let Some(slot) = &running.ports[id.index()]
                {
                    look = look.max(slot.next_kick);
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
            running.exchange.end();
        }
        // Until all pipes have ended, one of them may still have something for this one. Each takes at most
        // as long as this one may have; one that panicked never ends.
        let end = now() + SECONDS;
        while now() < end && !self.switches.iter().all(|r| r.exchange.all_ended()) {
            std::thread::yield_now();
        }
        for running in &mut self.switches {
            running.exchange.collect(now(), running.plane.as_mut(), &mut running.pool);
            running.plane.drain(now(), &mut running.pool);
            if let Err(imbalance) = running.plane.ledger().check() {
                error!(switch = running.config.name, "frames unaccounted for at shutdown: {imbalance}");
                return Err(RuntimeError::Unbalanced { switch: running.config.name.clone(), imbalance });
            }
            // Each of several pipes has chunks of the others; in all none may be missing.
            let umem = running.umem();
            let found = umem.free + umem.large_free + umem.held + umem.in_queues + running.pool.strays().len();
            let (chunks, ledger) = ((umem.chunks + umem.large) as i64 - found as i64, running.plane.ledger());
            let frames = ledger.handed as i64 - ledger.accepted as i64;
            if let Some((chunks, frames)) = running.exchange.settle(chunks, frames)
                && (chunks, frames) != (0, 0)
            {
                let imbalance = format!("{chunks} chunks missing, {frames} frames between workers: {umem:?}");
                return Err(RuntimeError::Unbalanced { switch: running.config.name.clone(), imbalance });
            }
        }
        Ok(())
    }
}

impl Running {
    /// Gives a port its socket.
    fn attach(&mut self, waiter: &Waiter, id: PortId, device: Device, socket: XdpPort) -> Result<(), RuntimeError> {
        let Some(slot) = &mut self.ports[id.index()] else { return Ok(()) };
        waiter.watch(socket.as_fd()).map_err(|e| RuntimeError::system("epoll", e))?;
        let socket = slot.socket.insert(FaultPort::new(socket, slot.config.fault));
        socket.inner_mut().start(&mut self.pool);
        self.plane.reset_link(id);
        self.device(id, device);
        Ok(())
    }

    /// Takes a port's socket away and sends it to be closed.
    fn detach(&mut self, waiter: &Waiter, keeper: &ToKeeper, id: PortId, why: String) {
        let Some(slot) = &mut self.ports[id.index()] else { return };
        let Some(socket) = slot.detach(&mut self.pool, &why) else { return };
        waiter.unwatch(socket.as_fd());
        self.closing += socket.held();
        let (switch, pipe) = (self.number, self.exchange.pipe().index.into());
        keeper.tell(Notice::Detached { switch, pipe, port: id, socket: Box::new(socket), why });
        self.refresh(id);
    }

    /// Takes note of what a port's interface is like now.
    fn device(&mut self, id: PortId, device: Device) {
        let Some(slot) = &mut self.ports[id.index()] else { return };
        let before = slot.mtu();
        slot.device = device;
        if slot.mtu() != before {
            self.plane.set_port(now(), id, &slot.config, &self.config.queues, slot.mtu());
        }
        self.refresh(id);
    }

    /// Whether this pipe speaks for the switch in the log: one, so that nothing is told twice.
    fn tells(&self) -> bool {
        self.exchange.pipe().index == 0
    }

    /// Tells of links that hellos took out or brought back. That a device went or came has been told.
    fn tell_links(&mut self) {
        let before = std::mem::replace(&mut self.live, self.plane.live());
        if !self.tells() {
            return;
        }
        for (i, slot) in self.ports.iter().enumerate() {
            let id = PortId(i as u8);
            let is_link = |slot: &&PortSlot| slot.config.kind != PortKind::Host && self.plane.is_port_up(id);
            let Some(slot) = slot.as_ref().filter(is_link) else { continue };
            let (switch, port) = (&self.config.name, &slot.config.interface);
            let reason = self.plane.link(id).why.text();
            match (before.contains(id), self.live.contains(id)) {
                (true, false) => warn!(switch, port, reason, "link is down"),
                (false, true) => info!(switch, port, reason, "link is up"),
                _ => {}
            }
        }
    }

    /// Takes a port into service or out of it, as its slot says.
    fn refresh(&mut self, id: PortId) {
        let Some(slot) = &self.ports[id.index()] else { return };
        let reason = slot.out_of_service();
        let up = reason.is_none();
        if up != self.plane.is_port_up(id) {
            let (switch, port) = (&self.config.name, &slot.config.interface);
            match reason {
                _ if !self.tells() => {}
                Some(reason) => warn!(switch, port, %reason, "port is down"),
                None => info!(switch, port, "port is up"),
            }
            self.plane.set_port_up(id, up, &mut self.pool);
        }
        // What is left in the ring of a port that is down need not be kicked: nobody would take it.
        self.unsettled = match up && slot.held() > 0 {
            true => self.unsettled.with(id),
            false => self.unsettled.without(id),
        };
    }

    /// Becomes what a new configuration says. Nothing here can fail but the machine.
    fn apply(&mut self, waiter: &Waiter, keeper: &ToKeeper, apply: Apply) -> Result<(), RuntimeError> {
        let Apply { config, commands, forwarding, opened } = apply;
        self.config = config;
        let mut opened: Vec<_> = opened.into_iter().map(Some).collect();
        for command in commands {
            match command {
                Command::RemovePort(id) => {
                    self.detach(waiter, keeper, id, "removed".into());
                    self.ports[id.index()] = None;
                    self.plane.remove_port(now(), id, &mut self.pool);
                    self.unsettled = self.unsettled.without(id);
                }
                Command::AddPort(id, port) => {
                    let at = opened.iter_mut().find(|o| o.as_ref().is_some_and(|(opened, ..)| *opened == id));
                    let Some((_, device, socket)) = at.and_then(Option::take) else { continue };
                    let slot = PortSlot::new(port, device.clone(), self.config.runtime.workers);
                    self.plane.add_port(now(), id, &slot.config, &self.config.queues, slot.mtu());
                    match self.ports.get_mut(id.index()) {
                        Some(free) => *free = Some(slot),
                        None => self.ports.push(Some(slot)),
                    }
                    self.attach(waiter, id, device, socket)?;
                }
                Command::SetPort(id, port) => {
                    let Some(slot) = &mut self.ports[id.index()] else { continue };
                    if let Some(socket) = slot.socket.as_mut().filter(|socket| *socket.spec() != port.fault) {
                        socket.set(port.fault);
                    }
                    slot.config = port;
                    self.plane.set_port(now(), id, &slot.config, &self.config.queues, slot.mtu());
                    self.refresh(id);
                }
                Command::SetQueues(queues) => {
                    for (i, slot) in self.ports.iter().enumerate() {
                        if let Some(slot) = slot {
                            self.plane.set_port(now(), PortId(i as u8), &slot.config, &queues, slot.mtu());
                        }
                    }
                }
                Command::SetHello(hello) => self.plane.set_hello(&hello),
                Command::SetForwarding => self.plane.set_forwarding(&forwarding),
            }
        }
        for slot in self.ports.iter_mut().flatten() {
            let fill = fill(&self.config, slot.config.kind);
            if let Some(socket) = &mut slot.socket {
                socket.inner_mut().set_fill(fill);
            }
        }
        Ok(())
    }
}
