//! The keeper of ports: one thread that watches the interfaces of all switches, opens and closes
//! their sockets, and carries out changes.
//!
//! Opening and closing take the kernel milliseconds, in which a worker would lose frames of other
//! ports; so workers only ever get sockets that are open and give away sockets to be closed.
//!
//! A port is attached, being detached (its worker was told to give up the socket, or did so by
//! itself, and has not sent it yet) or absent. What is absent is opened as soon as its interface is
//! there: the kernel says so ([`LinkMonitor`]), and if it can't, because the namespace itself was made
//! anew, a look every [`LOOK`] finds it.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use crossbeam::channel::{Receiver, Sender, bounded};
use tracing::{error, info, warn};

use crate::config::diff::{self, Command};
use crate::config::{PortConfig, SwitchConfig, default_hello};
use crate::control::{Change, NewPort, PortFault};
use crate::dataplane;
use crate::fabric::Forwarding;
use crate::fault::Faults;
use crate::id::PortId;
use crate::port::xdp::{Device, Lent, QUARANTINE, XdpPort};
use crate::time::{Instant, MILLIS};

use super::RuntimeError;
use super::clock::now;
use super::netns::{Home, Identity};
use super::open::{Site, check_frames, check_mtu, look, open_port};
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
    /// A port without a socket; this was its.
    Detached { switch: usize, port: PortId, socket: Box<XdpPort>, why: String },
    /// Somebody wants a change.
    Change { switch: usize, change: Change, answer: Sender<Result<Vec<String>, String>> },
    /// Every switch is to become what its file says.
    Reload,
    /// The end.
    Stop,
}

/// How to reach the worker of a switch.
#[derive(Clone)]
pub(super) struct ToWorker {
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
    Detaching,
    Absent(String),
}

struct KeptPort {
    config: PortConfig,
    state: State,
}

/// A switch and its interfaces.
pub(super) struct Kept {
    config: SwitchConfig,
    site: Site,
    worker: ToWorker,
    ports: Vec<Option<KeptPort>>,
}

impl Kept {
    /// A switch that was just opened, on these interfaces.
    pub fn new(config: SwitchConfig, site: Site, worker: ToWorker, devices: Vec<Device>) -> Kept {
        let port = |(config, device): (&PortConfig, Device)| {
            Some(KeptPort { config: config.clone(), state: State::Attached(device) })
        };
        let ports = config.ports.iter().zip(devices).map(port).collect();
        Kept { config, site, worker, ports }
    }

    /// Brings the state of every port up to date with its interface.
    fn look(&mut self, home: &Home) {
        self.look_for_namespace(home);
        for i in 0..self.ports.len() {
            self.look_at(home, PortId(i as u8));
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
        for (i, port) in self.ports.iter_mut().enumerate() {
            if let Some(port) = port
                && let State::Attached(_) = port.state
            {
                port.state = State::Detaching;
                let (port, why) = (PortId(i as u8), "its network namespace was made anew".into());
                self.worker.order(|switch| Order::Detach { switch, port, why });
            }
        }
    }

    fn look_at(&mut self, home: &Home, id: PortId) {
        let Some(port) = &mut self.ports[id.index()] else { return };
        let found = self.site.devices.query(&port.config.interface);
        match (&port.state, found) {
            (State::Attached(device), Ok(found)) if found.index == device.index => {
                if found != *device {
                    port.state = State::Attached(found.clone());
                    self.worker.order(|switch| Order::Device { switch, port: id, device: found });
                }
            }
            (State::Attached(_), found) => {
                port.state = State::Detaching;
                let why = match found {
                    Ok(_) => "interface was made anew".into(),
                    Err(e) => gone(&e),
                };
                self.worker.order(|switch| Order::Detach { switch, port: id, why });
            }
            (State::Detaching, _) => {}
            (State::Absent(_), Ok(device)) => self.attach(home, id, device),
            (State::Absent(_), Err(e)) => self.absent(id, gone(&e)),
        }
    }

    /// The port has no socket, and no interface to open one on.
    fn absent(&mut self, id: PortId, why: String) {
        let Some(port) = &mut self.ports[id.index()] else { return };
        if matches!(&port.state, State::Absent(before) if *before == why) {
            return;
        }
        warn!(switch = self.config.name, port = port.config.interface, reason = why, "port is out of service");
        port.state = State::Absent(why.clone());
        self.worker.order(|switch| Order::Absent { switch, port: id, why });
    }

    fn attach(&mut self, home: &Home, id: PortId, device: Device) {
        let Some(port) = &self.ports[id.index()] else { return };
        let opened = match check_mtu(&port.config, &device) {
            Ok(()) => inside(home, &self.site, || {
                open_port(&self.site.memory, &self.config, &port.config, device.clone()).map_err(|e| e.to_string())
            }),
            Err(e) => Err(e),
        };
        match opened {
            Ok(socket) => {
                info!(switch = self.config.name, port = port.config.interface, "port is attached again");
                self.attached(id, device.clone());
                let socket = Box::new(socket);
                self.worker.order(|switch| Order::Attach { switch, port: id, device, socket });
            }
            Err(why) => self.absent(id, why),
        }
    }

    fn attached(&mut self, id: PortId, device: Device) {
        if let Some(port) = &mut self.ports[id.index()] {
            port.state = State::Attached(device);
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
                    let socket = inside(home, &self.site, || {
                        open_port(&self.site.memory, &new, port, device.clone()).map_err(|e| e.to_string())
                    })?;
                    opened.push((*id, device, socket));
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
                    let device = opened.iter().find(|(opened, ..)| opened == id).map(|(_, device, _)| device.clone());
                    let state = device.map_or(State::Absent(String::new()), State::Attached);
                    let kept = Some(KeptPort { config: config.clone(), state });
                    match self.ports.get_mut(id.index()) {
                        Some(slot) => *slot = kept,
                        None => self.ports.push(kept),
                    }
                }
                Command::SetPort(id, config) => {
                    if let Some(port) = &mut self.ports[id.index()] {
                        port.config = config.clone();
                    }
                }
                Command::SetQueues(_) | Command::SetHello(_) | Command::SetForwarding => {}
            }
        }
        self.config = new.clone();
        self.site.layout = plan.layout;
        let apply = Box::new(Apply { config: new, commands: plan.commands, forwarding, opened });
        let (done, is_done) = bounded(1);
        self.worker.order(|switch| Order::Apply { switch, apply, done });
        // Ends with an error when the worker has.
        is_done.recv().map_err(|_| "the switch is stopping".to_string())?;
        info!(switch = self.config.name, changes = ?plan.summary, "changed");
        Ok(plan.summary)
    }

    fn change(&mut self, home: &Home, change: Change) -> Result<Vec<String>, String> {
        let new = match change {
            Change::Reload => match &self.site.source {
                Some(source) => source.load().map_err(|e| e.to_string())?,
                None => return Err("this switch was not started from a file: change its ports with `weft port`".into()),
            },
            Change::Add(port) => self.config.with_port(port_config(&port), &port.routes),
            Change::Del(interface) => self.config.without_port(&interface)?,
            Change::Up(interface) => self.config.with_enabled(&interface, true)?,
            Change::Down(interface) => self.config.with_enabled(&interface, false)?,
            Change::Fault(PortFault { interface, fault }) => self.config.with_fault(&interface, fault)?,
        };
        new.validate().map_err(|e| e.to_string())?;
        self.become_config(home, new)
    }
}

fn gone(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(nix::libc::ENODEV) => "interface is gone".into(),
        _ => error.to_string(),
    }
}

fn port_config(port: &NewPort) -> PortConfig {
    PortConfig {
        interface: port.interface.clone(),
        kind: port.kind,
        rate: port.rate,
        mtu: port.mtu,
        mode: port.mode,
        enabled: true,
        peer_mac: port.peer_mac,
        hello: default_hello(port.kind),
        fault: Faults::default(),
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
    notices: Receiver<Notice>,
    /// Chunks of closed sockets, and from when on they may be used.
    quarantine: VecDeque<(Instant, usize, Lent)>,
}

impl Keeper {
    /// A keeper of `switches`. Call in the thread that will run it.
    pub fn new(switches: Vec<Kept>, waiter: Waiter, notices: Receiver<Notice>) -> Result<Keeper, RuntimeError> {
        for kept in &switches {
            waiter.watch(kept.site.monitor.as_fd()).map_err(|e| RuntimeError::system("epoll", e))?;
        }
        Ok(Keeper { home: Home::here()?, switches, waiter, notices, quarantine: VecDeque::new() })
    }

    /// Works until [`Notice::Stop`].
    pub fn run(&mut self) -> Result<(), RuntimeError> {
        let mut next_look = now() + LOOK;
        loop {
            while let Ok(notice) = self.notices.try_recv() {
                match notice {
                    Notice::Stop => return Ok(()),
                    Notice::Detached { switch, port, socket, why } => self.detached(switch, port, *socket, why),
                    Notice::Change { switch, change, answer } => {
                        let kept = &mut self.switches[switch];
                        // Whoever asked may have gone.
                        let _ = answer.send(kept.change(&self.home, change));
                    }
                    Notice::Reload => self.reload(),
                }
            }
            let time = now();
            let regular = time >= next_look;
            for kept in &mut self.switches {
                let waits = regular && (kept.site.netns.is_some() || kept.is_waiting());
                // Both: what has been said is to be taken in any case.
                if kept.site.monitor.drain() | waits {
                    let before = kept.site.identity;
                    kept.look(&self.home);
                    if kept.site.identity != before {
                        self.waiter.watch(kept.site.monitor.as_fd()).map_err(|e| RuntimeError::system("epoll", e))?;
                    }
                }
            }
            if regular {
                next_look = time + LOOK;
            }
            while self.quarantine.front().is_some_and(|(until, ..)| *until <= time) {
                let Some((_, switch, lent)) = self.quarantine.pop_front() else { break };
                self.switches[switch].worker.order(|switch| Order::Restore { switch, lent });
            }
            let until = self.quarantine.front().map_or(next_look, |(until, ..)| next_look.min(*until));
            self.waiter.wait(time, Some(until)).map_err(|e| RuntimeError::system("epoll_wait", e))?;
        }
    }

    fn detached(&mut self, switch: usize, port: PortId, socket: XdpPort, why: String) {
        let interface = socket.device().name.clone();
        let lent = socket.close();
        self.quarantine.push_back((now() + QUARANTINE.as_nanos() as u64, switch, lent));
        let kept = &mut self.switches[switch];
        // It may have been removed, or be another by now.
        if kept.ports.get(port.index()).is_some_and(|p| p.as_ref().is_some_and(|p| p.config.interface == interface)) {
            kept.absent(port, why);
            kept.look_at(&self.home, port);
        }
    }

    fn reload(&mut self) {
        for kept in self.switches.iter_mut().filter(|k| k.site.source.is_some()) {
            if let Err(e) = kept.change(&self.home, Change::Reload) {
                error!(switch = kept.config.name, "not reloaded, nothing was changed: {e}");
            }
        }
    }
}

impl Kept {
    /// Whether some port waits for its interface.
    fn is_waiting(&self) -> bool {
        self.ports.iter().flatten().any(|p| matches!(p.state, State::Absent(_)))
    }
}
