//! Reports of an agent, written beside its packet loop.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::agent::AgentReport;
use crate::cli::Failure;

/// How long the last report may take to be written.
const LAST: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// Where reports go.
#[derive(Debug, Clone)]
pub(super) struct Sinks {
    /// Keeps the last one.
    pub file: Option<PathBuf>,
    /// Whether each is printed; the last one always is.
    pub print: bool,
    /// How one is shown.
    pub shown: fn(&AgentReport) -> String,
    /// How one is kept.
    pub kept: fn(&AgentReport) -> String,
}

impl Sinks {
    /// Whether a report can be kept: before anything is done.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Failure> {
        let Some(path) = &self.file else { return Ok(()) };
        let new = beside(path);
        let remedy = "make its directory, or choose another file";
        let failed = |cause: io::Error| Failure::misuse(format!("report `{}`: {cause}; {remedy}", path.display()));
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        fs::write(&new, "").and_then(|()| fs::remove_file(new)).map_err(failed)
    }

    /// Keeps `report` in the file, and says so if it can't, but not `again`; whether it can't.
    pub fn keep(&self, report: &AgentReport, again: bool) -> bool {
        let Some(path) = &self.file else { return false };
        let kept = replace(path, &(self.kept)(report));
        if let Err(error) = &kept
            && !again
        {
            warn!(path = %path.display(), %error, "the report is not kept");
        }
        kept.is_err()
    }

    fn show(&self, report: &AgentReport, is_last: bool) -> io::Result<()> {
        match self.print || is_last {
            true => writeln!(io::stdout(), "{}", (self.shown)(report)),
            false => Ok(()),
        }
    }
}

/// A thread that writes reports: a pipe that nobody reads, or a slow disk, must not stop the packet loop. A report that
/// comes while it is stuck is dropped; the next one says all that it said.
#[derive(Debug)]
pub(super) struct Writer {
    reports: SyncSender<(AgentReport, bool)>,
    written: Receiver<io::Result<()>>,
}

impl Writer {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(sinks: Sinks) -> io::Result<Writer> {
        let (reports, queue) = mpsc::sync_channel(1);
        let (done, written) = mpsc::sync_channel(1);
        thread::Builder::new().name("weft-reports".into()).spawn(move || {
            let mut is_lost = false;
            for (report, is_last) in queue {
                is_lost = sinks.keep(&report, is_lost);
                let outcome = sinks.show(&report, is_last);
                if is_last {
                    let _ = done.send(outcome);
                }
            }
        })?;
        Ok(Writer { reports, written })
    }

    /// Has `report` written, unless the one before is not yet.
    pub fn write(&self, report: &AgentReport) {
        let _ = self.reports.try_send((report.clone(), false));
    }

    /// Has the last report written, within a second.
    ///
    /// # Errors
    /// `TimedOut`: nobody takes it; or that of standard output.
    pub fn finish(self, last: AgentReport) -> io::Result<()> {
        let deadline = Instant::now() + LAST;
        let mut last = (last, true);
        while let Err(TrySendError::Full(again)) = self.reports.try_send(last) {
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            last = again;
            thread::sleep(POLL);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.written.recv_timeout(left).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// What is written before it takes the place of the file.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Whole or not at all, for who reads it meanwhile.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path);
    fs::write(&new, format!("{text}\n"))?;
    fs::rename(new, path)
}
