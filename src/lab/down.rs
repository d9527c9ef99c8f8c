//! `weft lab down`: from any state to nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::lock::LockFile;
use super::net::Namespace;
use super::{LabError, LabName};

/// How long the switches may take to drain and detach before they are killed.
const TERM_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the kernel may take to end a killed process.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// What [`down`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DownReport {
    /// Whether there was anything of the lab.
    pub was_up: bool,
    /// Namespaces deleted.
    pub namespaces: usize,
    /// Whether the background process had to be killed.
    pub killed: bool,
    /// Processes that still run inside the deleted namespaces, which live until they end.
    pub left: Vec<LeftOver>,
}

/// A process that [`down`] left alone: it was started by `exec`, not by the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOver {
    /// Its process number.
    pub pid: i32,
    /// Its name.
    pub command: String,
    /// The namespace it runs in.
    pub namespace: String,
}

/// Ends the lab's switches (SIGTERM, SIGKILL after 20 s), deletes its namespaces and its files.
///
/// Idempotent: a lab that isn't up is a report that says so. Works on what a crash left too.
///
/// # Errors
/// Without privileges, or if some process holds the lab and does not end.
pub fn down(name: &LabName) -> Result<DownReport, LabError> {
    let dir = name.state_dir();
    let mut report = DownReport::default();
    // Held until all is gone, so that neither `up` nor another `down` comes between.
    let lock = loop {
        let path = dir.join("lock");
        let lock = match LockFile::open(&path) {
            Ok(lock) => lock,
            Err(e) if e.kind() == io::ErrorKind::NotFound => break None,
            Err(cause) => return Err(LabError::File { what: "cannot open", path, cause }),
        };
        report.was_up = true;
        report.killed |= take_over(name, &lock)?;
        // Whoever held it may have removed the lab, and someone else made it anew.
        if lock.is_at(&path) {
            break Some(lock);
        }
    };

    let namespaces = name.namespaces()?;
    report.left = processes_in(&namespaces);
    for namespace in &namespaces {
        report.namespaces += usize::from(Namespace::delete(namespace)?);
    }
    match fs::remove_dir_all(&dir) {
        Ok(()) => report.was_up = true,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(LabError::File { what: "cannot remove", path: dir, cause }),
    }
    report.was_up |= report.namespaces > 0;
    drop(lock);
    Ok(report)
}

/// Takes the lock, ending its holder if need be; whether that had to be killed.
fn take_over(name: &LabName, lock: &LockFile) -> Result<bool, LabError> {
    let take = || lock.try_lock().map_err(LabError::file("cannot lock", name.state_dir().join("lock")));
    if take()? {
        return Ok(false);
    }
    let holder = lock.pid();
    for (signal, timeout) in [(Signal::SIGTERM, TERM_TIMEOUT), (Signal::SIGKILL, KILL_TIMEOUT)] {
        // Asked again each time: the number is believed only while that process has the file open.
        if let Some(pid) = lock.pid() {
            send(pid, signal).map_err(LabError::file("cannot signal the holder of", name.state_dir()))?;
        }
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if take()? {
                return Ok(signal == Signal::SIGKILL && holder.is_some());
            }
            thread::sleep(POLL);
        }
    }
    let holder = lock.pid().map_or_else(|| "another weft command".into(), |pid| format!("process {pid}"));
    Err(LabError::Held { lab: name.clone(), holder })
}

fn send(pid: Pid, signal: Signal) -> io::Result<()> {
    match kill(pid, signal) {
        // It ended meanwhile.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Which namespace a file stands for.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The processes whose network namespace is one of `namespaces`.
fn processes_in(namespaces: &[String]) -> Vec<LeftOver> {
    let by_identity: BTreeMap<_, _> =
        namespaces.iter().filter_map(|name| Some((identity(&Namespace::path(name))?, name))).collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(namespace) = identity(&entry.path().join("ns/net")).and_then(|id| by_identity.get(&id)) {
            let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim_end().into();
            found.push(LeftOver { pid, command, namespace: (*namespace).clone() });
        }
    }
    found
}
