//! The runtime: poll loops on threads, the clock, the control sockets, start and stop.
//!
//! [`run`] opens everything or nothing: each worker opens its ports before any forwards, and if one
//! fails all are closed again. SIGINT and SIGTERM stop it; queues get a moment to empty, and the
//! books are checked.

mod address;
mod answer;
mod backoff;
mod clock;
mod control;
mod default_route;
pub mod exchange;
mod inbox;
mod keeper;
mod limit;
mod merge;
mod monitor;
mod netns;
mod new_port;
mod open;
mod privilege;
pub mod report;
mod slot;
mod told;
mod wait;
mod worker;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam::channel::{Sender, bounded, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{debug, info};

use crate::config::{ConfigError, PollMode, SwitchConfig};
use crate::id::XdpMode;
use crate::port::xdp::XdpError;

pub use clock::now;
pub use control::query;
pub(crate) use default_route::check_default_route;
pub use limit::allow_open_files;

use control::{ControlServer, PipeTarget, Target};
use exchange::{Exchange, Wake};
use keeper::{Keeper, Kept, Notice, ToWorker};
use open::Opened;
pub(crate) use privilege::{check as check_privileges, drop_all_but_needed as drop_privileges};
pub(crate) use slot::RETRY;
pub(crate) use wait::Waiter;
use wait::Waker;
pub(crate) use worker::{BURSTS, MAX_SLEEP, SPIN};
use worker::{Ready, Setup, ToKeeper, Worker};

/// Requests that may wait for a worker.
const ASKS: usize = 64;

/// A switch to run, and where.
#[derive(Clone, Debug)]
pub struct SwitchInstance {
    /// Its configuration.
    pub config: SwitchConfig,
    /// The network namespace its interfaces are in; none: the process's own.
    pub netns: Option<PathBuf>,
    /// The file that a reload reads.
    pub source: Option<Source>,
}

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// What the command line made of every port's mode.
    pub mode: Option<XdpMode>,
}

impl Source {
    /// The configuration that the file gives now.
    ///
    /// # Errors
    /// As for [`SwitchConfig::load`].
    pub fn load(&self) -> Result<SwitchConfig, ConfigError> {
        let mut config = SwitchConfig::load(&self.path)?;
        if let Some(mode) = self.mode {
            config.ports.iter_mut().for_each(|p| p.mode = mode);
        }
        Ok(config)
    }
}

/// Stands for the keeper where a worker's number does.
const KEEPER: usize = usize::MAX;

/// What to run.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The switches.
    pub switches: Vec<SwitchInstance>,
    /// Worker threads; 0 = one. Switches are dealt out to them in turn.
    pub workers: usize,
    /// Overrides what the configurations say.
    pub poll: Option<PollMode>,
    /// Whether ports may be on interfaces that carry the machine's default route.
    pub force: bool,
}

/// Why the runtime did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A port could not be opened.
    #[error("switch `{switch}`: {cause}")]
    Port {
        /// The switch.
        switch: String,
        /// What happened.
        cause: XdpError,
    },
    /// A namespace could not be entered.
    #[error("network namespace {}: {cause}; `ip netns list` shows those there are, and entering one needs root", path.display())]
    Namespace {
        /// The namespace's file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A control socket could not be made.
    #[error("switch `{switch}` on {interfaces}: control socket {}: {cause}; if a switch answers there, stop it, or set \
             another `control` path", path.display())]
    Control {
        /// The switch.
        switch: String,
        /// Its interfaces, which the switch that has the socket may hold as well.
        interfaces: String,
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A configuration that the runtime can't run on this machine.
    #[error("{0}")]
    Impossible(String),
    /// Any other system call.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// The conservation law did not hold at the end: a bug in weft.
    #[error("switch `{switch}` lost count of frames, which is a bug in weft: {imbalance}")]
    Unbalanced {
        /// The switch.
        switch: String,
        /// Both sides of the law.
        imbalance: String,
    },
    /// A thread panicked; its message is in the log.
    #[error("{0} panicked, which is a bug in weft; all switches of this process were stopped")]
    Panicked(String),
}

impl RuntimeError {
    fn port(switch: &str, cause: XdpError) -> RuntimeError {
        RuntimeError::Port { switch: switch.into(), cause }
    }

    fn system(what: &'static str, cause: io::Error) -> RuntimeError {
        RuntimeError::System { what, cause }
    }

    /// Whether it was weft that failed, not what it was asked to do.
    pub fn is_bug(&self) -> bool {
        matches!(self, RuntimeError::Unbalanced { .. } | RuntimeError::Panicked(_))
    }
}

/// What workers and the signal thread tell [`run`].
enum Event {
    Ready,
    Ended(usize, Result<(), RuntimeError>),
    Signal(i32),
}

/// Says that its worker has ended, also when it panics.
struct Ending {
    worker: usize,
    events: Sender<Event>,
    result: Option<Result<(), RuntimeError>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| {
            Err(RuntimeError::Panicked(match self.worker {
                KEEPER => "the keeper of ports".into(),
                worker => format!("worker {worker}"),
            }))
        });
        let _ = self.events.send(Event::Ended(self.worker, result));
    }
}

/// A worker's poll mode, core and switches, each by number and pipe.
type Plan = (PollMode, Option<usize>, Vec<(usize, usize)>);

/// The workers, or why that can't be. Pipe p of switch i is the (i + p)th worker's, so that no worker has
/// two pipes of one switch.
fn plan(config: &RuntimeConfig) -> Result<Vec<Plan>, RuntimeError> {
    let widest = config.switches.iter().map(|s| s.config.runtime.workers).max().unwrap_or(1);
    let workers = config.workers.max(1).min(config.switches.len()).max(widest);
    let mut plans: Vec<Plan> = (0..workers).map(|_| (PollMode::Adaptive, None, Vec::new())).collect();
    for (i, switch) in config.switches.iter().enumerate() {
        let runtime = &switch.config.runtime;
        for pipe in 0..runtime.workers {
            let (poll, core, switches) = &mut plans[(i + pipe) % workers];
            if config.poll.unwrap_or(runtime.poll) == PollMode::Busy {
                *poll = PollMode::Busy;
            }
            *core = core.or(runtime.core.map(|core| core + pipe));
            switches.push((i, pipe));
        }
    }
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    for (_, core, switches) in &plans {
        if let Some(core) = core
            && !cores.iter().any(|c| c.id == *core)
        {
            let ids: Vec<_> = cores.iter().map(|c| c.id).collect();
            let name = &config.switches[switches[0].0].config.name;
            return Err(RuntimeError::Impossible(format!(
                "switch `{name}`: there is no core {core} for it: set `core` to one of {ids:?}, or leave it out"
            )));
        }
    }
    let busy = plans.iter().filter(|(poll, ..)| *poll == PollMode::Busy).count();
    if busy > cores.len() {
        return Err(RuntimeError::Impossible(format!(
            "{busy} workers would spin on {} cores and starve each other: use poll = \"adaptive\", or fewer workers",
            cores.len()
        )));
    }
    Ok(plans)
}

/// Names the switch whose control socket could not be made.
fn control_failure(switches: &[SwitchInstance], path: PathBuf, cause: io::Error) -> RuntimeError {
    let config = switches.iter().map(|i| &i.config).find(|c| c.runtime.control == path);
    let (switch, interfaces) = config.map_or_else(Default::default, |c| {
        let interfaces: Vec<_> = c.ports.iter().map(|p| format!("`{}`", p.interface)).collect();
        (c.name.clone(), interfaces.join(", "))
    });
    RuntimeError::Control { switch, interfaces, path, cause }
}

/// Files that a process with so many switches, ports and workers keeps open: a port's AF_XDP socket
/// and the link of its program (its two maps, if it passes frames to the kernel, are as many again; one
/// port's more while a port is reopened), a switch's control socket,
/// lock, UMEM and two sockets that watch its interfaces, an epoll, a timer and an event of each worker
/// and of the keeper, which has its home namespace too.
pub fn open_files(switches: usize, ports: usize, workers: usize) -> usize {
    2 * (ports + 1) + 5 * switches + 3 * (workers + 1) + 1
}

/// Opens every port, calls `ready` once all switches forward, and blocks until SIGTERM or SIGINT;
/// then lets queues empty, detaches and checks the books.
///
/// # Errors
/// A switch can't be opened (then nothing is left changed), a worker fails, or frames are missing at
/// the end.
pub fn run(config: RuntimeConfig, ready: impl FnOnce()) -> Result<(), RuntimeError> {
    if config.switches.is_empty() {
        return Err(RuntimeError::Impossible("there is no switch to run".into()));
    }
    let plans = plan(&config)?;
    let workers = plans.len();
    // Sockets: one a queue.
    let ports: usize = config.switches.iter().map(|s| s.config.ports.len() * s.config.runtime.workers).sum();
    let passing = config.switches.iter().flat_map(|s| &s.config.ports).filter(|p| p.pass_to_kernel).count();
    let namespaces = config.switches.iter().any(|s| s.netns.is_some());
    privilege::check(namespaces)?;
    let what = format!("running {} switches with {ports} ports", config.switches.len());
    allow_open_files(&what, open_files(config.switches.len(), ports + passing, workers))
        .map_err(RuntimeError::Impossible)?;
    let (events, inbox) = unbounded();
    // Before anything is opened, so that a signal during set-up is not lost.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| RuntimeError::system("signal handler", e))?;
    let signal_handle = signals.handle();

    let stop = Arc::new(AtomicBool::new(false));
    let waiter = || Waiter::new().map_err(|e| RuntimeError::system("epoll", e));
    let keeper_waiter = waiter()?;
    let (notices, noticed) = unbounded();
    let keeper = ToKeeper { notices, waker: keeper_waiter.waker() };
    let mut wakers: Vec<Waker> = Vec::new();
    let mut setups = Vec::new();
    let mut to_workers: Vec<Vec<ToWorker>> = vec![Vec::new(); config.switches.len()];
    let mut targets: Vec<Vec<(usize, PipeTarget)>> = vec![Vec::new(); config.switches.len()];
    // By worker: which switches' pipes come to it, in the order of its own numbers.
    let mut places = Vec::new();
    for (id, (poll, core, pipes)) in plans.into_iter().enumerate() {
        let waiter = waiter()?;
        let waker = waiter.waker();
        let ((asks, asked), (orders, ordered)) = (bounded(ASKS), unbounded());
        for (switch, (number, pipe)) in pipes.iter().enumerate() {
            let (asks, orders, waker) = (asks.clone(), orders.clone(), waker.clone());
            targets[*number].push((*pipe, PipeTarget { switch, asks, waker: waker.clone() }));
            to_workers[*number].push(ToWorker { pipe: *pipe, switch, orders, waker });
        }
        places.push(pipes);
        wakers.push(waker);
        let (keeper, stop) = (keeper.clone(), stop.clone());
        setups.push(Setup { id, core, poll, switches: Vec::new(), waiter, asks: asked, orders: ordered, keeper, stop });
    }
    to_workers.iter_mut().for_each(|pipes| pipes.sort_by_key(|to| to.pipe));
    let targets = targets.into_iter().zip(&config.switches).enumerate().map(|(number, (mut pipes, instance))| {
        pipes.sort_by_key(|(pipe, _)| *pipe);
        let pipes = pipes.into_iter().map(|(_, target)| target).collect();
        (instance.config.runtime.control.clone(), Target { number, pipes, keeper: keeper.clone() })
    });
    // Before any interface is touched: a socket that is taken means that this switch runs already.
    let mut server = ControlServer::listen(targets.collect())
        .map_err(|(path, cause)| control_failure(&config.switches, path, cause))?;

    let mut kept = Vec::new();
    // By switch and pipe.
    let mut running: Vec<Vec<Option<Ready>>> = Vec::new();
    for (number, opened) in open::open_all(config.switches, config.force)?.into_iter().enumerate() {
        let Opened { config, pools, ports, site } = opened;
        let workers = std::mem::take(&mut to_workers[number]);
        let wake = |to: &ToWorker| {
            let waker = to.waker.clone();
            Arc::new(move || waker.wake_if_asleep()) as Wake
        };
        let wakes: Vec<_> = workers.iter().map(wake).collect();
        let devices: Vec<_> = ports.iter().map(|(device, _)| device.clone()).collect();
        kept.push(Kept::new(config.clone(), site, workers, &ports));
        let mut sockets: Vec<_> = ports.into_iter().map(|(_, sockets)| sockets.into_iter()).collect();
        let pipe = |(pool, exchange)| {
            let own = sockets.iter_mut().filter_map(Iterator::next);
            let ports = devices.iter().cloned().zip(own).collect();
            Some(Ready { number, config: config.clone(), pool, ports, exchange })
        };
        running.push(pools.into_iter().zip(Exchange::mesh(&wakes)).map(pipe).collect());
    }
    for (setup, places) in setups.iter_mut().zip(places) {
        setup.switches = places.iter().filter_map(|(number, pipe)| running[*number][*pipe].take()).collect();
    }

    // All threads that will be start here and have what this one has.
    privilege::drop_all_but_needed(namespaces)?;
    server.start().map_err(|e| RuntimeError::system("control thread", e))?;
    let signal_events = events.clone();
    let signal_thread = thread::spawn(move || {
        for signal in signals.forever() {
            let _ = signal_events.send(Event::Signal(signal));
        }
    });
    let mut threads = Vec::new();
    let (go, gate) = bounded::<()>(0);
    for setup in setups {
        let (id, failed) = (setup.id, events.clone());
        let (events, gate) = (events.clone(), gate.clone());
        let spawned = thread::Builder::new().name(format!("weft-worker{id}")).spawn(move || {
            let mut ending = Ending { worker: id, events: events.clone(), result: None };
            if let Some(core) = setup.core {
                core_affinity::set_for_current(core_affinity::CoreId { id: core });
            }
            let result = Worker::new(setup).and_then(|mut worker| {
                let _ = events.send(Event::Ready);
                // Opens when every worker is ready; closes with an error when one is not.
                let _ = gate.recv();
                worker.run()
            });
            ending.result = Some(result);
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(e) => {
                let _ = failed.send(Event::Ended(id, Err(RuntimeError::system("worker thread", e))));
            }
        }
    }
    let keeper_events = events.clone();
    let spawned = thread::Builder::new().name("weft-keeper".into()).spawn(move || {
        // A keeper that fails takes the switches with it: nobody would see their links.
        let mut ending = Ending { worker: KEEPER, events: keeper_events, result: None };
        ending.result = Some(Keeper::new(kept, keeper_waiter, noticed).and_then(|mut keeper| keeper.run()));
    });
    let keeper_thread = spawned.map_err(|e| {
        let _ = events.send(Event::Ended(KEEPER, Err(RuntimeError::system("keeper thread", e))));
    });

    let mut outcome = Ok(());
    let (mut waiting, mut running) = (workers, workers);
    let mut go = Some(go);
    let mut ready = Some(ready);
    let mut stopping = false;
    while running > 0 {
        match inbox.recv().expect("this function holds a sender") {
            Event::Ready => {
                waiting -= 1;
                if waiting == 0 && !stopping {
                    go = None;
                    if let Some(ready) = ready.take() {
                        ready();
                    }
                    info!(workers, "forwarding");
                }
            }
            Event::Signal(SIGHUP) => keeper.tell(Notice::Reload),
            Event::Signal(signal) => {
                info!(signal, "stopping");
                stopping = true;
            }
            Event::Ended(id, result) => {
                running -= usize::from(id != KEEPER);
                stopping = true;
                if let Err(e) = result {
                    debug!(worker = id, error = %e, "worker ended"); // told by the caller
                    if outcome.is_ok() {
                        outcome = Err(e);
                    }
                }
            }
        }
        if stopping {
            stop.store(true, Ordering::Relaxed);
            go = None;
            wakers.iter().for_each(Waker::wake);
        }
    }
    drop((go, server));
    keeper.tell(Notice::Stop);
    threads.extend(keeper_thread);
    for thread in threads {
        // A panic has been told as an event already.
        let _ = thread.join();
    }
    signal_handle.close();
    let _ = signal_thread.join();
    outcome
}
