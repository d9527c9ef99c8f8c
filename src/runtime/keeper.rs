//! The keeper of ports: one thread that watches the interfaces of all switches, opens and closes
//! their sockets, and carries out changes.
//!
//! Opening and closing take the kernel milliseconds, in which a worker would lose frames of other
//! ports; so workers only ever get sockets that are open and give away sockets to be closed.
//!
//! A port is attached, being detached (its worker was told to give up the socket, or did so by
//! itself, and has not sent it yet) or absent. What is absent is opened as soon as its interface is
//! there: the kernel says so ([`LinkMonitor`]), and if it can't, because the namespace itself was made
//! anew, a look every [`LOOK`] finds it. Opening that fails is tried again at growing intervals
//! ([`Backoff`]): it keeps this thread from the other ports.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use crossbeam::channel::{Receiver, Sender, bounded};
use tracing::{debug, error, info, warn};

use crate::config::diff::{self, Command};
use crate::config::{PortConfig, SwitchConfig};
use crate::control::{Change, PortFault};
use crate::dataplane;
use crate::fabric::Forwarding;
use crate::id::PortId;
use crate::port::xdp::{Device, Lent, LocalAddresses, QUARANTINE, XdpPort};
use crate::time::{Instant, MILLIS};
use crate::wire::MacAddr;

use super::RuntimeError;
use super::address::{local_addresses, of_interface};
use super::backoff::Backoff;
use super::clock::now;
use super::default_route::check_default_route;
use super::inbox::Inbox;
use super::netns::{Home, Identity};
use super::new_port;
use super::open::{Site, check_frames, check_mtu, look, open_port};
use super::report::{Body, Report};
use super::told::Told;
use super::wait::{Waiter, Waker};

/// Between two looks at ports that are absent, and at namespaces that may be new.
const LOOK: u64 = 250 * MILLIS;

/// What the keeper tells a worker. `switch` is the worker's own number of it.
pub(super) enum Order {
    /// The port has a socket.
    Attach { switch: usize, port: PortId, device: Device, socket: Box<XdpPort> },
    /// The port loses its socket: [`Notice::Detached`] shall bring it.
    Detach { switch: usize, port: PortId, why: String },
    /// The port can't have a socket now.
    Absent { switch: usize, port: PortId, why: String },
    /// The port's interface is as `device` says now.
    Device { switch: usize, port: PortId, device: Device },
    /// A closed socket's chunks.
    Restore { switch: usize, lent: Lent },
    /// A new configuration.
    Apply { switch: usize, apply: Box<Apply>, done: Sender<()> },
}

/// The steps to a new configuration, and the sockets that they take.
pub(super) struct Apply {
    pub config: SwitchConfig,
    pub commands: Vec<Command>,
    pub forwarding: Forwarding,
    pub opened: Vec<(PortId, Device, XdpPort)>,
}

/// What the keeper is told. `switch` is its number among all of the runtime.
pub(super) enum Notice {
    /// A port has lost its socket in one pipe; this is it.
    Detached { switch: usize, pipe: usize, port: PortId, socket: Box<XdpPort>, why: String },
    /// Somebody wants a change.
    Change { switch: usize, change: Change, answer: Sender<Result<Report, String>> },
    /// Every switch is to become what its file says.
    Reload,
    /// The end.
    Stop,
}

/// How to reach the worker of a switch.
#[derive(Clone)]
pub(super) struct ToWorker {
    pub pipe: usize,
    /// The worker's number of the switch.
    pub switch: usize,
    pub orders: Sender<Order>,
    pub waker: Waker,
}

impl ToWorker {
    /// A worker that has ended takes no orders, and needs none.
    fn order(&self, order: impl FnOnce(usize) -> Order) {
        let _ = self.orders.send(order(self.switch));
        self.waker.wake();
    }
}

enum State {
    Attached(Device),
    /// So many pipes have not sent their sockets yet.
    Detaching(usize),
    Absent(Absent),
}

/// A port that has no socket.
#[derive(Default)]
struct Absent {
    /// Why, as everybody was told.
    why: String,
    /// The same without who holds what it needs, which takes long to find out.
    cause: String,
    /// The interface when it was last tried to open it; none if there was none.
    seen: Option<Device>,
    /// Whether that does not carry the default route.
    is_free: bool,
    backoff: Backoff,
}

struct KeptPort {
    config: PortConfig,
    state: State,
    /// What its socket's program leaves to the kernel, if it has such a one, and what was told it last.
    local: Option<Local>,
}

struct Local {
    program: Arc<LocalAddresses>,
    told: Told<(MacAddr, Vec<IpAddr>)>,
}

impl Local {
    /// That of a port's sockets, which share one program.
    fn of(sockets: &[XdpPort]) -> Option<Local> {
        Some(Local { program: sockets.first()?.local()?, told: Told::default() })
    }
}

/// A switch and its interfaces.
pub(super) struct Kept {
    config: SwitchConfig,
    /// What it was started with, or reloaded from last: without the changes of `weft port`.
    configured: SwitchConfig,
    site: Site,
    /// By pipe.
    workers: Vec<ToWorker>,
    ports: Vec<Option<KeptPort>>,
}

impl Kept {
    /// A switch that was just opened, on these interfaces.
    pub fn new(config: SwitchConfig, site: Site, workers: Vec<ToWorker>, opened: &[(Device, Vec<XdpPort>)]) -> Kept {
        let port = |(config, (device, sockets)): (&PortConfig, &(Device, Vec<XdpPort>))| {
            let state = State::Attached(device.clone());
            Some(KeptPort { config: config.clone(), state, local: Local::of(sockets) })
        };
        let ports = config.ports.iter().zip(opened).map(port).collect();
        Kept { configured: config.clone(), config, site, workers, ports }
    }

    /// Tells every pipe.
    fn order(&self, order: impl Fn(usize) -> Order) {
        self.workers.iter().for_each(|worker| worker.order(&order));
    }

    /// Has every pipe but `but` give up its socket of a port.
    fn detach(&mut self, id: PortId, why: &str, but: Option<usize>) {
        let others = self.workers.iter().enumerate().filter(|(pipe, _)| Some(*pipe) != but);
        let mut left = 0;
        for (_, worker) in others {
            worker.order(|switch| Order::Detach { switch, port: id, why: why.into() });
            left += 1;
        }
        if let Some(port) = &mut self.ports[id.index()] {
            port.state = State::Detaching(left);
        }
    }

    /// Brings the state of every port up to date with its interface; `said` that some may have changed.
    fn look(&mut self, home: &Home, said: bool) {
        self.look_for_namespace(home);
        for i in 0..self.ports.len() {
            self.look_at(home, PortId(i as u8), said);
        }
        self.tell_addresses(home);
    }

    /// Tells the programs that leave frames to the kernel which these are.
    fn tell_addresses(&mut self, home: &Home) {
        if self.ports.iter().flatten().all(|p| p.local.is_none()) {
            return;
        }
        let all = match inside(home, &self.site, || local_addresses().map_err(|e| e.to_string())) {
            Ok(all) => all,
            Err(error) => return warn!(switch = self.config.name, error, "the interfaces' addresses"),
        };
        for port in self.ports.iter_mut().flatten() {
            let (State::Attached(device), Some(local)) = (&port.state, &mut port.local) else { continue };
            let now = (device.mac, of_interface(&all, &device.name));
            let Local { program, told } = local;
            match told.bring(now, |(mac, addresses)| program.set(*mac, addresses)) {
                Some(Ok((_, addresses))) => debug!(port = device.name, ?addresses, "left to the kernel"),
                Some(Err(error)) => warn!(switch = self.config.name, error, "some frames don't reach the kernel"),
                None => {}
            }
        }
    }

    /// A namespace that was deleted lives on while sockets are in it, but another one may have its name
    /// now: then that is where the ports belong.
    fn look_for_namespace(&mut self, home: &Home) {
        let identity = Identity::of(self.site.netns.as_deref());
        if identity == self.site.identity || !identity.is_there() {
            return;
        }
        let netns = self.site.netns.as_deref();
        let found = home.enter(netns).and_then(|()| look(netns));
        let back = home.enter(None);
        match found.and_then(|found| back.map(|()| found)) {
            Ok((devices, monitor)) => {
                self.site.identity = identity;
                self.site.devices = devices;
                self.site.monitor = monitor;
            }
            Err(e) => return warn!(switch = self.config.name, error = %e, "its namespace was made anew"),
        }
        for id in (0..self.ports.len()).map(|i| PortId(i as u8)) {
            match self.ports[id.index()].as_mut().map(|p| &mut p.state) {
                Some(State::Attached(_)) => self.detach(id, "its network namespace was made anew", None),
                Some(State::Absent(absent)) => absent.seen = None,
                Some(State::Detaching(_)) | None => {}
            }
        }
    }

    fn look_at(&mut self, home: &Home, id: PortId, said: bool) {
        let Some(port) = &mut self.ports[id.index()] else { return };
        let found = self.site.devices.query(&port.config.interface);
        match (&mut port.state, found) {
            (State::Attached(device), Ok(found)) if found.index == device.index => {
                if found != *device {
                    port.state = State::Attached(found.clone());
                    self.order(|switch| Order::Device { switch, port: id, device: found.clone() });
                }
            }
            (State::Attached(_), Ok(_)) => self.detach(id, "interface was made anew", None),
            (State::Attached(_), Err(e)) => self.detach(id, &gone(&e), None),
            (State::Detaching(_), _) => {}
            (State::Absent(absent), Ok(device)) => {
                let time = now();
                if said {
                    absent.backoff.prod(time);
                }
                // What is new is tried at once.
                if absent.seen.as_ref() != Some(&device) || absent.backoff.is_due(time) {
                    self.attach(home, id, device);
                }
            }
            (State::Absent(absent), Err(e)) => {
                absent.seen = None;
                self.absent(id, gone(&e));
            }
        }
    }

    /// The port has no socket, and no interface to open one on.
    fn absent(&mut self, id: PortId, why: String) {
        let Some(port) = &mut self.ports[id.index()] else { return };
        let mut absent = match &mut port.state {
            State::Absent(before) if before.why == why => return,
            State::Absent(before) => std::mem::take(before),
            _ => Absent::default(),
        };
        warn!(switch = self.config.name, port = port.config.interface, reason = why, "port is out of service");
        absent.why.clone_from(&why);
        absent.cause.clone_from(&why);
        port.state = State::Absent(absent);
        port.local = None;
        self.order(|switch| Order::Absent { switch, port: id, why: why.clone() });
    }

    fn attach(&mut self, home: &Home, id: PortId, device: Device) {
        let Some(KeptPort { config, state: State::Absent(before), .. }) = &self.ports[id.index()] else { return };
        let mut is_free = before.is_free && before.seen.as_ref() == Some(&device);
        let mut cause = None;
        let opened = check_mtu(config, &device).and_then(|()| {
            inside(home, &self.site, || {
                if !is_free {
                    check_default_route(&device, self.site.force)?;
                    is_free = true;
                }
                open_port(&self.site.memory, &self.config, config, device.clone()).map_err(|e| {
                    let bare = cause.insert(e.to_string());
                    if *bare == before.cause { before.why.clone() } else { e.name_holder().to_string() }
                })
            })
        });
        match opened {
            Ok(sockets) => {
                info!(switch = self.config.name, port = config.interface, "port is attached again");
                self.attached(id, device.clone(), Local::of(&sockets));
                self.tell_addresses(home);
                for (worker, socket) in self.workers.iter().zip(sockets) {
                    let (device, socket) = (device.clone(), Box::new(socket));
                    worker.order(|switch| Order::Attach { switch, port: id, device, socket });
                }
            }
            Err(why) => {
                self.absent(id, why);
                let Some(KeptPort { state: State::Absent(absent), .. }) = &mut self.ports[id.index()] else { return };
                if let Some(cause) = cause {
                    absent.cause = cause;
                }
                (absent.seen, absent.is_free) = (Some(device), is_free);
                absent.backoff.failed(now());
            }
        }
    }

    fn attached(&mut self, id: PortId, device: Device, local: Option<Local>) {
        if let Some(port) = &mut self.ports[id.index()] {
            port.state = State::Attached(device);
            port.local = local;
        }
    }

    /// Becomes `new`, whole or not at all. Returns what changed.
    fn become_config(&mut self, home: &Home, new: SwitchConfig) -> Result<Vec<String>, String> {
        let plan = diff::diff(&self.config, &self.site.layout, &new).map_err(|e| e.to_string())?;
        check_frames(&new).map_err(|e| e.to_string())?;
        let mut opened = Vec::new();
        // Each socket that is opened is closed again if a later step fails.
        for command in &plan.commands {
            let (Command::AddPort(id, port) | Command::SetPort(id, port)) = command else { continue };
            let device = self.site.devices.query(&port.interface).map_err(|e| Device::unknown(&port.interface, e));
            match (command, device) {
                (Command::AddPort(..), device) => {
                    let device = device.map_err(|e| e.to_string())?;
                    check_mtu(port, &device)?;
                    let sockets = inside(home, &self.site, || {
                        check_default_route(&device, self.site.force)?;
                        open_port(&self.site.memory, &new, port, device.clone())
                            .map_err(|e| e.name_holder().to_string())
                    })?;
                    opened.push((*id, device, sockets));
                }
                (_, Ok(device)) => check_mtu(port, &device)?,
                // Absent now; checked when it is there.
                (_, Err(_)) => {}
            }
        }
        let forwarding = dataplane::forwarding(&new, plan.layout.routes(&new));
        for command in &plan.commands {
            match command {
                Command::RemovePort(id) => self.ports[id.index()] = None,
                Command::AddPort(id, config) => {
                    let opened = opened.iter().find(|(opened, ..)| opened == id);
                    let state = opened.map_or(State::Absent(Absent::default()), |(_, d, _)| State::Attached(d.clone()));
                    let local = opened.and_then(|(.., sockets)| Local::of(sockets));
                    let kept = Some(KeptPort { config: config.clone(), state, local });
                    match self.ports.get_mut(id.index()) {
                        Some(slot) => *slot = kept,
                        None => self.ports.push(kept),
                    }
                }
                Command::SetPort(id, config) => {
                    if let Some(port) = &mut self.ports[id.index()] {
                        port.config = config.clone();
                        // What was in the way may have been the configuration.
                        if let State::Absent(absent) = &mut port.state {
                            absent.backoff = Backoff::default();
                        }
                    }
                }
                Command::SetQueues(_) | Command::SetHello(_) | Command::SetForwarding => {}
            }
        }
        self.config = new.clone();
        self.site.layout = plan.layout;
        self.tell_addresses(home);
        let (done, is_done) = bounded(self.workers.len());
        let mut sockets: Vec<_> = opened.into_iter().map(|(id, device, s)| (id, device, s.into_iter())).collect();
        for worker in &self.workers {
            let own = |(id, device, sockets): &mut (PortId, Device, std::vec::IntoIter<XdpPort>)| {
                Some((*id, device.clone(), sockets.next()?))
            };
            let apply = Box::new(Apply {
                config: new.clone(),
                commands: plan.commands.clone(),
                forwarding: forwarding.clone(),
                opened: sockets.iter_mut().filter_map(own).collect(),
            });
            let done = done.clone();
            worker.order(|switch| Order::Apply { switch, apply, done });
        }
        drop(done);
        for _ in &self.workers {
            // Ends with an error when a worker has.
            is_done.recv().map_err(|_| "the switch is stopping".to_string())?;
        }
        info!(switch = self.config.name, changes = ?plan.summary, "changed");
        Ok(plan.summary)
    }

    fn change(&mut self, home: &Home, change: Change) -> Result<Vec<String>, String> {
        let reloaded = change == Change::Reload;
        let new = match change {
            Change::Reload => match &self.site.source {
                Some(source) => source.load().map_err(|e| e.to_string())?,
                None => return Err("this switch was not started from a file: change its ports with `weft port`".into()),
            },
            Change::Add(port) => {
                let (port, routes) = new_port::resolve(&port, &self.config, &self.configured);
                if let Some(reason) = new_port::no_uplink_for(&port, &self.config, &self.configured) {
                    return Err(reason);
                }
                self.config.with_port(port, &routes)
            }
            Change::Del(interface) => self.config.without_port(&interface)?,
            Change::Up(interface) => self.config.with_enabled(&interface, true)?,
            Change::Down(interface) => self.config.with_enabled(&interface, false)?,
            Change::Fault(PortFault { interface, fault }) => self.config.with_fault(&interface, fault)?,
        };
        new.validate().map_err(|e| e.to_string())?;
        let changed = self.become_config(home, new)?;
        if reloaded {
            self.configured = self.config.clone();
        }
        Ok(changed)
    }
}

fn gone(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(nix::libc::ENODEV) => "interface is gone".into(),
        _ => error.to_string(),
    }
}

/// Does something in the namespace of a switch.
fn inside<T>(home: &Home, site: &Site, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    home.enter(site.netns.as_deref()).map_err(|e| e.to_string())?;
    let done = work();
    home.enter(None).map_err(|e| e.to_string())?;
    done
}

/// The thread's state.
pub(super) struct Keeper {
    home: Home,
    switches: Vec<Kept>,
    waiter: Waiter,
    notices: Inbox<Notice>,
    /// Chunks of closed sockets, and from when on they may be used.
    quarantine: VecDeque<(Instant, ToWorker, Lent)>,
}

impl Keeper {
    /// A keeper of `switches`. Call in the thread that will run it.
    pub fn new(mut switches: Vec<Kept>, waiter: Waiter, notices: Receiver<Notice>) -> Result<Keeper, RuntimeError> {
        for kept in &switches {
            waiter.watch(kept.site.monitor.as_fd()).map_err(|e| RuntimeError::system("epoll", e))?;
        }
        let home = Home::here()?;
        switches.iter_mut().for_each(|kept| kept.tell_addresses(&home));
        Ok(Keeper { home, switches, waiter, notices: Inbox::new(notices), quarantine: VecDeque::new() })
    }

    /// Works until [`Notice::Stop`].
    pub fn run(&mut self) -> Result<(), RuntimeError> {
        let mut next_look = now() + LOOK;
        loop {
            while let Some(notice) = self.notices.next() {
                match notice {
                    Notice::Stop => return Ok(()),
                    Notice::Detached { switch, pipe, port, socket, why } => {
                        self.detached(switch, pipe, port, *socket, why);
                    }
                    Notice::Change { switch, change, answer } => {
                        let changed = self.change(switch, change);
                        let config = &self.switches[switch].config;
                        let report = changed.map(|changed| Report::of(config, Body::Changed { changed }));
                        // Whoever asked may have gone.
                        let _ = answer.send(report);
                    }
                    Notice::Reload => self.reload(),
                }
            }
            let time = now();
            let regular = time >= next_look;
            for kept in &mut self.switches {
                let waits = regular && (kept.site.netns.is_some() || kept.is_waiting());
                let said = kept.site.monitor.drain();
                if said || waits {
                    let before = kept.site.identity;
                    kept.look(&self.home, said);
                    if kept.site.identity != before {
                        self.waiter.watch(kept.site.monitor.as_fd()).map_err(|e| RuntimeError::system("epoll", e))?;
                    }
                }
            }
            if regular {
                next_look = time + LOOK;
            }
            while self.quarantine.front().is_some_and(|(until, ..)| *until <= time) {
                let Some((_, worker, lent)) = self.quarantine.pop_front() else { break };
                worker.order(|switch| Order::Restore { switch, lent });
            }
            let until = self.quarantine.front().map_or(next_look, |(until, ..)| next_look.min(*until));
            self.waiter.wait(time, Some(until)).map_err(|e| RuntimeError::system("epoll_wait", e))?;
        }
    }

    fn detached(&mut self, switch: usize, pipe: usize, id: PortId, socket: XdpPort, why: String) {
        let interface = socket.device().name.clone();
        let lent = socket.close();
        let kept = &mut self.switches[switch];
        self.quarantine.push_back((now() + QUARANTINE.as_nanos() as u64, kept.workers[pipe].clone(), lent));
        let Some(port) = kept.ports.get_mut(id.index()).and_then(Option::as_mut) else { return };
        // It may have been removed, or be another by now.
        if port.config.interface != interface {
            return;
        }
        match &mut port.state {
            // The pipe saw by itself that the interface is gone; the others have to follow.
            State::Attached(_) => kept.detach(id, &why, Some(pipe)),
            State::Detaching(left) => *left -= 1,
            State::Absent(_) => return,
        }
        if kept.ports[id.index()].as_ref().is_some_and(|p| matches!(p.state, State::Detaching(0))) {
            kept.absent(id, why);
            kept.look_at(&self.home, id, false);
        }
    }

    fn change(&mut self, switch: usize, change: Change) -> Result<Vec<String>, String> {
        // Sockets of ports that a change before this one removed: what this one adds may be on the same
        // queues, which are busy as long as these are open.
        for notice in self.notices.take(|notice| matches!(notice, Notice::Detached { .. })) {
            if let Notice::Detached { switch, pipe, port, socket, why } = notice {
                self.detached(switch, pipe, port, *socket, why);
            }
        }
        self.switches[switch].change(&self.home, change)
    }

    fn reload(&mut self) {
        for switch in 0..self.switches.len() {
            if self.switches[switch].site.source.is_none() {
                continue;
            }
            if let Err(e) = self.change(switch, Change::Reload) {
                error!(switch = self.switches[switch].config.name, "not reloaded, nothing was changed: {e}");
            }
        }
    }
}

impl Kept {
    /// Whether some port waits for its interface, or its program for the interface's addresses.
    fn is_waiting(&self) -> bool {
        let is_untold = |p: &KeptPort| p.local.as_ref().is_some_and(|local| local.told.has_failed());
        self.ports.iter().flatten().any(|p| matches!(p.state, State::Absent(_)) || is_untold(p))
    }
}
