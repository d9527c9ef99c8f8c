//! The control sockets: one unix socket a switch, one line of JSON in, one out.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam::channel::{Sender, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::control::{MAX_REQUEST, Refusal, Request, read_request};

use super::report::Report;
use super::wait::Waker;

/// A client that says nothing, or takes nothing, is cut off after this.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a worker may take to answer: far more than a burst.
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections served at once; more wait in the listen queue.
const MAX_CLIENTS: usize = 16;
const STOP_CHECK: u16 = 100;

/// A request on its way to the worker that owns the switch.
#[derive(Debug)]
pub(super) struct Ask {
    /// Index of the switch at its worker.
    pub switch: usize,
    pub request: Request,
    pub answer: Sender<Report>,
}

/// How to reach the worker of one switch.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub switch: usize,
    pub asks: Sender<Ask>,
    pub waker: Waker,
}

/// The sockets of all switches of the process, served by one thread and short-lived ones for clients.
#[derive(Debug)]
pub(super) struct ControlServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    paths: Vec<PathBuf>,
}

impl ControlServer {
    /// Listens at each path, mode 0600. A stale socket file, which nobody answers at, is replaced.
    ///
    /// # Errors
    /// The path and the system's error; a live socket is `AddrInUse`.
    pub fn start(targets: Vec<(PathBuf, Target)>) -> Result<ControlServer, (PathBuf, io::Error)> {
        let mut server = ControlServer { stop: Arc::default(), thread: None, paths: Vec::new() };
        let mut listeners = Vec::new();
        for (path, target) in targets {
            match listen(&path) {
                Ok(listener) => {
                    server.paths.push(path);
                    listeners.push((listener, target));
                }
                Err(e) => return Err((path, e)), // dropping `server` removes those made so far
            }
        }
        let stop = server.stop.clone();
        let thread = thread::Builder::new().name("weft-control".into()).spawn(move || serve(&listeners, &stop));
        server.thread = Some(thread.map_err(|e| (PathBuf::from("weft-control thread"), e))?);
        Ok(server)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let listener = match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(e);
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn serve(listeners: &[(UnixListener, Target)], stop: &AtomicBool) {
    let clients = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<_> = listeners.iter().map(|(l, _)| PollFd::new(l.as_fd(), PollFlags::POLLIN)).collect();
        if poll(&mut fds, PollTimeout::from(STOP_CHECK)).unwrap_or(0) <= 0 {
            continue;
        }
        for (fd, (listener, target)) in fds.iter().zip(listeners) {
            if !fd.any().unwrap_or(false) || clients.load(Ordering::Relaxed) >= MAX_CLIENTS {
                continue;
            }
            let Ok((stream, _)) = listener.accept() else { continue };
            let (clients, target) = (clients.clone(), target.clone());
            clients.fetch_add(1, Ordering::Relaxed);
            let handle = clients.clone();
            let spawned = thread::Builder::new().name("weft-client".into()).spawn(move || {
                // A client that goes away is its own affair.
                let _ = client(stream, &target);
                handle.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn client(stream: UnixStream, target: &Target) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = Vec::new();
    let mut reader = BufReader::new((&stream).take(MAX_REQUEST as u64 + 1));
    reader.read_until(b'\n', &mut line)?;
    let mut answer = match read_request(&line).and_then(|request| ask(target, request)) {
        Ok(report) => serde_json::to_vec(&report)?,
        Err(error) => serde_json::to_vec(&Refusal { error })?,
    };
    answer.push(b'\n');
    (&stream).write_all(&answer)
}

fn ask(target: &Target, request: Request) -> Result<Report, String> {
    let (answer, answers) = bounded(1);
    let ask = Ask { switch: target.switch, request, answer };
    target.asks.try_send(ask).map_err(|_| "the switch is busy or stopping: try again".to_string())?;
    target.waker.wake();
    answers.recv_timeout(WORKER_TIMEOUT).map_err(|_| "the switch did not answer in time: try again".to_string())
}

/// Asks the switch whose control socket is at `path`, and returns its line of JSON.
///
/// # Errors
/// Nobody listens there, or the switch refused: its words.
pub fn query(path: &Path, request: Request) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT + WORKER_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if let Ok(refusal) = serde_json::from_str::<Refusal>(&answer) {
        return Err(io::Error::other(refusal.error));
    }
    Ok(answer)
}
