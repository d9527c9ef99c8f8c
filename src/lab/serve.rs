//! The background process of a lab: all its switches in one process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, raise};
use nix::unistd::setsid;

use super::agents::Agents;
use super::lock::LockFile;
use super::net::Namespace;
use super::plan::Plan;
use super::up::config_path;
use super::{LabError, LabName};
use crate::config::{PollMode, SwitchConfig};

/// What the runtime is to run.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeJob {
    /// Every switch with the path of the network namespace its interfaces are in, and of the file that
    /// its configuration is from.
    pub switches: Vec<(SwitchConfig, PathBuf, PathBuf)>,
    /// Worker threads, 0 = as the runtime chooses.
    pub workers: usize,
    /// How idle workers wait; `None` leaves it to each switch.
    pub poll: Option<PollMode>,
}

/// Runs the lab whose state is in `state_dir` until `run` returns: what the hidden `lab-serve`
/// does, started by [`super::up`] with the lab's lock as standard input.
///
/// `run` gets the job and a function to call once all switches forward; it blocks until SIGTERM or
/// SIGINT.
///
/// # Errors
/// A state directory that no lab wrote, an unreadable configuration, or `run`'s own error.
pub fn serve<E: std::error::Error>(
    state_dir: &Path,
    run: impl FnOnce(ServeJob, Box<dyn FnOnce()>) -> Result<(), E>,
) -> Result<(), LabError> {
    let name: LabName = state_dir.file_name().and_then(|name| name.to_str()).unwrap_or_default().parse()?;
    // Away from the terminal of `up`: its Ctrl-C and its hang-up are not ours. EPERM: a leader already.
    let _ = setsid();
    // Started by `up`, standard input holds the lock already; started by hand, this does.
    let lock_path = state_dir.join("lock");
    let _lock = LockFile::open(&lock_path)
        .and_then(|lock| {
            lock.try_lock()?;
            lock.set_pid(std::process::id())?;
            Ok(lock)
        })
        .map_err(LabError::file("cannot lock", lock_path))?;

    let plan = Plan::read(state_dir)?;
    let mut switches = Vec::with_capacity(plan.switches.len());
    for switch in &plan.switches {
        let path = config_path(state_dir, &switch.name);
        let config = SwitchConfig::load(&path)?;
        switches.push((config, Namespace::path(&name.namespace(&switch.name)), path));
    }
    let job = ServeJob { switches, workers: plan.workers, poll: plan.poll };
    let ready = state_dir.join("ready");
    // Started while this process may still do all, and ended when it leaves here.
    let agents = Arc::new(Mutex::new((Agents::start(&name, state_dir, &plan)?, Ok(()))));
    let result = run(
        job,
        Box::new({
            let (ready, state_dir, agents) = (ready.clone(), state_dir.to_owned(), agents.clone());
            move || {
                let mut agents = agents.lock().unwrap_or_else(PoisonError::into_inner);
                let (agents, outcome) = &mut *agents;
                *outcome = agents.wait_ready(&state_dir);
                if outcome.is_err() {
                    // As somebody else would end it.
                    let _ = raise(Signal::SIGTERM);
                    return;
                }
                if let Err(error) = agents.watch() {
                    tracing::warn!(%error, "agents that end are not told of");
                }
                if let Err(error) = File::create(&ready) {
                    tracing::error!(path = %ready.display(), %error, "cannot say that the switches forward");
                }
            }
        }),
    );
    let mut agents = agents.lock().unwrap_or_else(PoisonError::into_inner);
    let (agents, started) = std::mem::replace(&mut *agents, (Agents::default(), Ok(())));
    drop(agents);
    match fs::remove_file(&ready) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => tracing::warn!(path = %ready.display(), error = %e),
        _ => {}
    }
    result.map_err(|e| LabError::Switches(e.to_string()))?;
    started
}
