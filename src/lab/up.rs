//! `weft lab up`: claim the name, build, start the background process, wait until it forwards.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::build::build;
use super::lock::LockFile;
use super::net::Namespace;
use super::plan::Plan;
use super::{CongestionControl, CongestionReport, LabError, LabName, congestion};
use crate::config::PollMode;
use crate::runtime;
use crate::topo::Fabric;

/// How long the switches may take to forward: this, and so much more for each port. With one worker a
/// port of a large fabric takes about 0.3 s on two busy cores (docs/topology.md, Large fabrics).
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_PER_PORT: Duration = Duration::from_millis(500);
/// How long a background process that is given up may take to end by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
/// Lines of the log shown when the switches don't start.
const LOG_LINES: usize = 20;

/// What to bring up.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The fabric.
    pub fabric: Fabric,
    /// The lab's name.
    pub name: LabName,
    /// Whether hosts reserve slots by processes of their own (`weft host`), which the fabric's ToRs leave to them.
    pub agents: bool,
    /// Worker threads, 0 = as the runtime chooses.
    pub workers: usize,
    /// How idle workers wait; `None` leaves it to the runtime.
    pub poll: Option<PollMode>,
    /// What TCP of the hosts does about congestion; `None` leaves it to the kernel.
    pub congestion_control: Option<CongestionControl>,
    /// The command that runs the switches, to which `--state DIR` is added; it must call
    /// [`super::serve`]. Empty means this program's own `lab-serve`.
    pub server: Vec<OsString>,
}

/// A lab that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpReport {
    /// The background process.
    pub pid: u32,
    /// Where its files are.
    pub state_dir: PathBuf,
    /// What TCP of the hosts does about congestion, if that was asked for.
    pub congestion_control: Option<CongestionReport>,
    /// Time to namespaces, veths and addresses.
    pub built_in: Duration,
    /// Time to all switches forwarding, all in all.
    pub ready_in: Duration,
}

/// Brings a lab up and returns once every switch forwards.
///
/// # Errors
/// [`LabError::AlreadyUp`] or [`LabError::LeftBehind`] if the name is in use, with nothing touched.
/// On any other error, and on SIGINT, SIGTERM or SIGHUP meanwhile, all that was made is removed again.
pub fn up(options: &UpOptions) -> Result<UpReport, LabError> {
    let start = Instant::now();
    let name = &options.name;
    let mut plan = Plan::of(&options.fabric, options.workers, options.poll);
    if options.agents {
        plan.add_agents(&options.fabric);
    }
    plan.check()?;
    allow_open_files(&plan)?;

    let signals = Signals::catch().map_err(LabError::file("cannot catch signals in", "/proc/self"))?;
    let keep_going = || if signals.stopped() { Err(LabError::Interrupted(name.clone())) } else { Ok(()) };

    let mut lab = Claim::take(name)?;
    plan.write(&lab.dir)?;
    for switch in &options.fabric.switches {
        let mut config = switch.config.clone();
        config.runtime.control = name.socket(&config.name);
        config.validate()?;
        let path = config_path(&lab.dir, &config.name);
        fs::write(&path, config.to_toml()).map_err(LabError::file("cannot write", path))?;
    }
    build(name, &plan, keep_going)?;
    let hosts = plan.hosts.iter().map(|host| Namespace::open(&name.namespace(&host.name)));
    let control = options.congestion_control.as_ref();
    let congestion_control = control.map(|control| congestion::set(control, hosts)).transpose()?;
    let built_in = start.elapsed();

    let pid = lab.start(&options.server)?;
    lab.wait_ready(READY_TIMEOUT + READY_PER_PORT * (ports(&plan) + plan.agents()) as u32, keep_going)?;
    lab.keep();
    Ok(UpReport { pid, state_dir: name.state_dir(), congestion_control, built_in, ready_in: start.elapsed() })
}

/// Switch ports of all links: a host's link has one, any other two.
fn ports(plan: &Plan) -> usize {
    2 * plan.links.len() - plan.hosts.len()
}

/// Makes room for what [`build`] has open, one namespace a node, and finds out before anything is built
/// whether the switches' process, which gets the same limits, will have enough.
fn allow_open_files(plan: &Plan) -> Result<(), LabError> {
    let (switches, hosts) = (plan.switches.len(), plan.hosts.len());
    // Of an agent, its standard input.
    let serving = runtime::open_files(switches, ports(plan), plan.workers.max(1)) + plan.agents();
    let files = (hosts + switches).max(serving);
    let what = format!("a lab of {switches} switches and {hosts} hosts");
    runtime::allow_open_files(&what, files).map_err(LabError::OpenFiles)
}

/// The configuration of a switch, as `weft run` takes it too.
pub(super) fn config_path(state_dir: &Path, switch: &str) -> PathBuf {
    state_dir.join(format!("{switch}.toml"))
}

/// A lab that is being made; dropped before [`Claim::keep`], it is removed with all it holds.
struct Claim {
    name: LabName,
    dir: PathBuf,
    lock: LockFile,
    server: Option<Child>,
    keep: bool,
}

impl Claim {
    /// Makes the state directory, locked from the moment it is visible.
    fn take(name: &LabName) -> Result<Claim, LabError> {
        let dir = name.state_dir();
        let taken = || match name.is_running() {
            true => LabError::AlreadyUp(name.clone()),
            false => LabError::LeftBehind(name.clone()),
        };
        if dir.exists() {
            return Err(taken());
        }
        if !name.namespaces()?.is_empty() {
            return Err(LabError::LeftBehind(name.clone()));
        }

        let staging = name.staging_dir();
        let staged = stage(&staging).and_then(|lock| fs::rename(&staging, &dir).map(|()| lock));
        match staged {
            Ok(lock) => Ok(Claim { name: name.clone(), dir, lock, server: None, keep: false }),
            Err(cause) => {
                let _ = fs::remove_dir_all(&staging);
                match cause.kind() {
                    // Someone else was faster.
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => Err(taken()),
                    _ => Err(LabError::File { what: "cannot make", path: dir, cause }),
                }
            }
        }
    }

    fn start(&mut self, server: &[OsString]) -> Result<u32, LabError> {
        let own = [OsString::from("/proc/self/exe"), OsString::from("lab-serve")];
        let [program, arguments @ ..] = (if server.is_empty() { own.as_slice() } else { server }) else {
            unreachable!("one of two slices that are not empty")
        };
        let path = self.log();
        let log = File::create(&path).map_err(LabError::file("cannot write", path))?;
        let log_too = log.try_clone().map_err(LabError::file("cannot write", self.log()))?;
        let lock = self.lock.for_child().map_err(LabError::file("cannot hand over", self.dir.join("lock")))?;
        let mut command = Command::new(program);
        command.args(arguments).arg("--state").arg(&self.dir).current_dir("/");
        command.stdin(lock).stdout(log).stderr(log_too);
        if server.is_empty() {
            command.arg0("weft");
        }
        let child = command.spawn().map_err(LabError::file("cannot start", program))?;
        let pid = child.id();
        self.server = Some(child);
        self.lock.set_pid(pid).map_err(LabError::file("cannot write", self.dir.join("lock")))?;
        Ok(pid)
    }

    fn wait_ready(&mut self, timeout: Duration, keep_going: impl Fn() -> Result<(), LabError>) -> Result<(), LabError> {
        let deadline = Instant::now() + timeout;
        let ready = self.dir.join("ready");
        let reason = loop {
            keep_going()?;
            if let Some(status) = self.server.as_mut().and_then(|server| server.try_wait().transpose()) {
                match status {
                    Ok(status) => break format!("their process ended ({status})"),
                    Err(e) => break format!("their process is lost ({e})"),
                }
            }
            if ready.exists() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                break format!("they do not forward after {} s", timeout.as_secs());
            }
            thread::sleep(POLL);
        };
        Err(LabError::NotReady { lab: self.name.clone(), reason, log: tail(&self.log(), LOG_LINES) })
    }

    fn keep(&mut self) {
        self.keep = true;
    }

    fn log(&self) -> PathBuf {
        self.dir.join("weft.log")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Some(server) = &mut self.server {
            stop(server);
        }
        // By listing, not by the plan: a namespace that an error came between is removed as well.
        for namespace in self.name.namespaces().unwrap_or_default() {
            if let Err(error) = Namespace::delete(&namespace) {
                tracing::error!(%error, "left behind");
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::error!(dir = %self.dir.display(), %error, "left behind");
        }
    }
}

fn stage(staging: &Path) -> io::Result<LockFile> {
    // Left by a command of the same number that was killed here.
    let _ = fs::remove_dir_all(staging);
    DirBuilder::new().recursive(true).mode(0o755).create(staging)?;
    let lock = LockFile::create(&staging.join("lock"))?;
    if !lock.try_lock()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    lock.set_pid(std::process::id())?;
    Ok(lock)
}

/// Ends our own child: asked first, then killed.
fn stop(server: &mut Child) {
    // The child is not reaped yet, so its number is still its own.
    if !matches!(server.try_wait(), Ok(None)) {
        return;
    }
    let _ = kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM);
    let deadline = Instant::now() + STOP_TIMEOUT;
    while matches!(server.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let _ = server.kill();
            let _ = server.wait();
            return;
        }
        thread::sleep(POLL);
    }
}

pub(super) fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<_> = text.lines().collect();
    if all.is_empty() { "(nothing)".into() } else { all[all.len().saturating_sub(lines)..].join("\n") }
}

/// SIGINT, SIGTERM and SIGHUP as a flag while it lives; their defaults before and after.
struct Signals {
    stop: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        let signals = Signals { stop: Arc::default(), over: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&signals.over))?;
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        }
        Ok(signals)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
