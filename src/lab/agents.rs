//! The agents of a lab's hosts: a `weft host` in the namespace of each, started, watched and ended by the lab's process.
//!
//! An agent ends with the process that started it, however that ends: its standard input is a pipe from there. Its
//! TAP ends with it; so what `status` says of it is what the kernel says of the TAP.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::config::Pl2Options;

use super::net::Namespace;
use super::plan::{AgentPlan, HostPlan, Plan};
use super::up::tail;
use super::{LabError, LabName};

/// The device that applications of a host with an agent send by.
pub(super) const TAP: &str = "pl2";
/// How long agents may take to be ready: this, and so much more for each.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const READY_PER_AGENT: Duration = Duration::from_millis(500);
/// How long they may take to end by themselves.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);
const WATCH: Duration = Duration::from_millis(200);
/// Lines of a log that are told.
const LOG_LINES: usize = 5;

/// What an agent says of itself, anew each second.
pub(super) fn report_path(state_dir: &Path, host: &str) -> PathBuf {
    state_dir.join(format!("{host}.agent.json"))
}

/// The number of its process.
pub(super) fn pid_path(state_dir: &Path, host: &str) -> PathBuf {
    state_dir.join(format!("{host}.agent.pid"))
}

fn log_path(state_dir: &Path, host: &str) -> PathBuf {
    state_dir.join(format!("{host}.agent.log"))
}

/// What `[pl2]` says of agents, as options of `weft host`: the switch's own agents would do the same.
pub(super) fn options(pl2: &Pl2Options) -> Vec<String> {
    let Pl2Options { k, depth, max_outstanding, rtt_comp, bypass_bytes, late_max, max_queue, max_parked, .. } = *pl2;
    let mut options: Vec<String> = [
        ("--k", k.to_string()),
        ("--depth", depth.to_string()),
        ("--max-outstanding", max_outstanding.to_string()),
        ("--rtt-comp", format!("{}ns", rtt_comp.0)),
        ("--bypass", bypass_bytes.0.to_string()),
        ("--late-max", late_max.to_string()),
        ("--max-queue", max_queue.to_string()),
        ("--max-parked", max_parked.to_string()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.into(), value])
    .collect();
    if pl2.fixed_k {
        options.push("--fixed-k".into());
    }
    options
}

#[derive(Debug)]
struct Agent {
    host: String,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Agent {
    fn start(name: &LabName, dir: &Path, host: &HostPlan, plan: &AgentPlan) -> Result<Agent, LabError> {
        let path = log_path(dir, &host.name);
        let log = File::create(&path).map_err(LabError::file("cannot write", &path))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weft").args(["host", "--until-eof", "--tap", TAP, "--uplink", &host.interface]);
        host.addresses.iter().for_each(|address| _ = command.args(["--address", &address.to_string()]));
        host.gateways.iter().for_each(|gateway| _ = command.args(["--via", &gateway.to_string()]));
        plan.unscheduled.iter().for_each(|mac| _ = command.args(["--unscheduled", &mac.to_string()]));
        command.args(&plan.options);
        command.arg("--report").arg(report_path(dir, &host.name));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let child = Namespace::open(&name.namespace(&host.name))?.spawn(&mut command)?;
        let agent = Agent { host: host.name.clone(), child, ended: None };
        let path = pid_path(dir, &host.name);
        fs::write(&path, agent.child.id().to_string()).map_err(LabError::file("cannot write", path))?;
        Ok(agent)
    }

    /// Whether it has ended, by now.
    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Not reaped yet, so its number is still its own.
        if !self.has_ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// All agents of a lab; they are ended when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Agents {
    agents: Arc<Mutex<Vec<Agent>>>,
    watcher: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Agents {
    /// Starts those that `plan` has.
    ///
    /// # Errors
    /// One can't be started; the others are ended.
    pub fn start(name: &LabName, dir: &Path, plan: &Plan) -> Result<Agents, LabError> {
        let agents = Agents::default();
        for host in plan.hosts.iter() {
            if let Some(agent) = &host.agent {
                lock(&agents.agents).push(Agent::start(name, dir, host, agent)?);
            }
        }
        Ok(agents)
    }

    /// Waits until each has said that frames pass.
    ///
    /// # Errors
    /// One has ended, or takes too long.
    pub fn wait_ready(&self, dir: &Path) -> Result<(), LabError> {
        let mut agents = lock(&self.agents);
        let deadline = Instant::now() + READY_TIMEOUT + READY_PER_AGENT * agents.len() as u32;
        for agent in agents.iter_mut() {
            while !report_path(dir, &agent.host).exists() {
                let reason = match (agent.has_ended(), Instant::now() < deadline) {
                    (true, _) => format!("it ended ({})", agent.ended.expect("it has")),
                    (false, false) => "it is not ready in time".into(),
                    (false, true) => {
                        thread::sleep(POLL);
                        continue;
                    }
                };
                let log = tail(&log_path(dir, &agent.host), LOG_LINES);
                return Err(LabError::Agent { host: agent.host.clone(), reason, log });
            }
        }
        Ok(())
    }

    /// Says in the log when one ends. Takes a thread, so it comes after privileges are given up.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(&mut self) -> io::Result<()> {
        let (agents, over) = (self.agents.clone(), self.over.clone());
        let watch = move || {
            while !over.load(Ordering::Relaxed) {
                for agent in lock(&agents).iter_mut().filter(|agent| agent.ended.is_none()) {
                    if agent.has_ended() {
                        let status = agent.ended.expect("it has");
                        tracing::warn!(host = agent.host, %status, "its agent has ended");
                    }
                }
                thread::sleep(WATCH);
            }
        };
        self.watcher = Some(thread::Builder::new().name("weft-agents".into()).spawn(watch)?);
        Ok(())
    }
}

impl Drop for Agents {
    /// Asks all to end, and kills what does not.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        let mut agents = lock(&self.agents);
        for agent in agents.iter_mut().filter(|agent| agent.ended.is_none()) {
            if !agent.has_ended() {
                let _ = kill(Pid::from_raw(agent.child.id() as i32), Signal::SIGTERM);
            }
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while agents.iter_mut().any(|agent| !agent.has_ended()) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        agents.clear();
    }
}

fn lock(agents: &Mutex<Vec<Agent>>) -> std::sync::MutexGuard<'_, Vec<Agent>> {
    agents.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Duration as Time};

    #[test]
    fn an_agent_reserves_as_its_switch_is_configured() {
        let pl2 = Pl2Options {
            k: 8,
            depth: 2,
            max_outstanding: 64,
            rtt_comp: Time(20_000),
            bypass_bytes: Bytes(128),
            late_max: 5,
            max_queue: 100,
            max_parked: 1000,
            fixed_k: true,
            ..Pl2Options::default()
        };
        assert_eq!(
            options(&pl2).join(" "),
            "--k 8 --depth 2 --max-outstanding 64 --rtt-comp 20000ns --bypass 128 --late-max 5 --max-queue 100 \
             --max-parked 1000 --fixed-k"
        );
    }
}
