//! The control sockets: one unix socket a switch, one line of JSON in, one out.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Sender, bounded};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{Mode, fchmod};

use crate::control::{Change, MAX_REQUEST, Refusal, Request, Show, read_request};

use super::keeper::Notice;
use super::report::Report;
use super::wait::Waker;
use super::worker::ToKeeper;

/// All that one client may take, from its connection to the last byte of its answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a worker may take to answer: far more than a burst.
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a change may take: sockets are opened, and others may be before it.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections served at once; more wait in the listen queue.
const MAX_CLIENTS: usize = 16;
const STOP_CHECK: u16 = 100;
/// Until the next look for a place among [`MAX_CLIENTS`].
const FULL_PAUSE: Duration = Duration::from_millis(20);
/// After an error that stays for a while, as being out of file descriptors does.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// A request on its way to the worker that owns the switch.
#[derive(Debug)]
pub(super) struct Ask {
    /// Index of the switch at its worker.
    pub switch: usize,
    pub show: Show,
    pub answer: Sender<Report>,
}

/// How to reach the workers of one switch, and the keeper of its ports.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The switch's number among all of the runtime.
    pub number: usize,
    /// By pipe.
    pub pipes: Vec<PipeTarget>,
    pub keeper: ToKeeper,
}

/// How to reach the worker of one pipe of a switch.
#[derive(Clone, Debug)]
pub(super) struct PipeTarget {
    /// The worker's number of the switch.
    pub switch: usize,
    pub asks: Sender<Ask>,
    pub waker: Waker,
}

/// The sockets of all switches of the process, served by one thread and short-lived ones for clients.
#[derive(Debug)]
pub(super) struct ControlServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Until the thread has them.
    listeners: Vec<(UnixListener, Target)>,
    /// Dropped after the thread has ended.
    sockets: Vec<SocketFile>,
}

impl ControlServer {
    /// Listens at each path, mode 0600; nobody is answered before [`ControlServer::start`]. A stale
    /// socket file, which nobody answers at, is replaced. `<path>.lock` is held as long as the server
    /// lives, so that of several processes one has the path.
    ///
    /// # Errors
    /// The path and the system's error; a live socket is `AddrInUse`.
    pub fn listen(targets: Vec<(PathBuf, Target)>) -> Result<ControlServer, (PathBuf, io::Error)> {
        let (stop, sockets, listeners) = Default::default();
        let mut server = ControlServer { stop, thread: None, listeners, sockets };
        for (path, target) in targets {
            match listen(&path) {
                Ok((listener, socket)) => {
                    server.sockets.push(socket);
                    server.listeners.push((listener, target));
                }
                Err(e) => return Err((path, e)), // dropping `server` removes those made so far
            }
        }
        Ok(server)
    }

    /// Answers, in a thread of its own, until it is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(&mut self) -> io::Result<()> {
        let (listeners, stop) = (std::mem::take(&mut self.listeners), self.stop.clone());
        let thread = thread::Builder::new().name("weft-control".into()).spawn(move || serve(&listeners, &stop));
        self.thread = Some(thread?);
        Ok(())
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket file that is ours; removed when it is dropped, unless it was replaced meanwhile.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    lock: PathLock,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Under the lock, so no other switch replaces it between the look and the removal.
        if identity(&self.path).is_ok_and(|there| there == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
        // The file first, then the lock: whoever gets the lock of a removed file starts over.
        let _ = fs::remove_file(&self.lock.path);
    }
}

/// An exclusive flock(2) on `<path>.lock`; it ends with the process, however that ends.
#[derive(Debug)]
struct PathLock {
    path: PathBuf,
    _file: Flock<File>,
}

impl PathLock {
    /// Locks `path`, or says `AddrInUse` if another process has it.
    fn take(path: &Path) -> io::Result<PathLock> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        loop {
            let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, Errno::EWOULDBLOCK)) => return Err(Errno::EADDRINUSE.into()),
                Err((_, errno)) => return Err(errno.into()),
            };
            // Its last holder may have removed it between our open and our lock.
            let own = file.metadata()?;
            if identity(&path).is_ok_and(|there| there == (own.dev(), own.ino())) {
                return Ok(PathLock { path, _file: file });
            }
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    if let Some(dir) = path.parent() {
        // Anybody may see which switches there are; the sockets are for their owners. But who could write
        // here could put another socket in a socket's place, whatever the umask says.
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    }
    let lock = PathLock::take(path)?;
    let listener = match bind_private(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            let stale = fs::symlink_metadata(path)?.file_type().is_socket()
                && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            if !stale {
                return Err(e);
            }
            fs::remove_file(path)?;
            bind_private(path)?
        }
        other => other?,
    };
    let socket = SocketFile { path: path.to_owned(), identity: identity(path)?, lock };
    listener.set_nonblocking(true)?;
    Ok((listener, socket))
}

/// A socket that listens at `path`, mode 0600 from the first moment on: a socket file gets the mode of
/// the socket, less the umask (unix_bind in net/unix/af_unix.c), so there is none in which others may
/// connect.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let address = UnixAddr::new(path)?;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(socket.as_raw_fd(), &address)?;
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    Ok(socket.into())
}

fn serve(listeners: &[(UnixListener, Target)], stop: &AtomicBool) {
    let clients = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        // A listener that has somebody waiting would end every poll at once.
        if clients.load(Ordering::Relaxed) >= MAX_CLIENTS {
            thread::sleep(FULL_PAUSE);
            continue;
        }
        let mut fds: Vec<_> = listeners.iter().map(|(l, _)| PollFd::new(l.as_fd(), PollFlags::POLLIN)).collect();
        let mut failed = match poll(&mut fds, PollTimeout::from(STOP_CHECK)) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => false,
            Err(_) => true,
        };
        for (fd, (listener, target)) in fds.iter().zip(listeners) {
            if !fd.any().unwrap_or(false) || clients.load(Ordering::Relaxed) >= MAX_CLIENTS {
                continue;
            }
            failed |= accept(listener, target, &clients).is_err_and(|e| !is_passing(&e));
        }
        if failed {
            thread::sleep(ERROR_PAUSE);
        }
    }
}

/// Whether an error of accept(2) is that client's alone: it went away, or was no client.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
}

/// Hands the next client to a thread of its own.
fn accept(listener: &UnixListener, target: &Target, clients: &Arc<AtomicUsize>) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let (place, target) = (Place::take(clients), target.clone());
    thread::Builder::new().name("weft-client".into()).spawn(move || {
        let _place = place;
        // A client that goes away is its own affair.
        let _ = client(stream, &target);
    })?;
    Ok(())
}

/// One of [`MAX_CLIENTS`], given back when it is dropped: with its thread, or if that can't start.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(clients: &Arc<AtomicUsize>) -> Place {
        clients.fetch_add(1, Ordering::Relaxed);
        Place(clients.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that ends with `TimedOut` at a moment, however slowly its bytes trickle.
struct Bounded<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Bounded<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would be none at all.
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn client(stream: UnixStream, target: &Target) -> io::Result<()> {
    let mut stream = Bounded { stream: &stream, deadline: Instant::now() + CLIENT_TIMEOUT };
    stream.stream.set_nonblocking(false)?;
    let mut line = Vec::new();
    BufReader::new((&mut stream).take(MAX_REQUEST as u64 + 1)).read_until(b'\n', &mut line)?;
    let answered = read_request(&line).and_then(|request| match request {
        Request::Show(show) => ask(target, show),
        Request::Change(wanted) => {
            let changed = change(target, wanted);
            stream.deadline = Instant::now() + CLIENT_TIMEOUT;
            changed
        }
    });
    let mut answer = match answered {
        Ok(report) => serde_json::to_vec(&report)?,
        Err(error) => serde_json::to_vec(&Refusal { error })?,
    };
    answer.push(b'\n');
    stream.write_all(&answer)
}

/// Has the keeper change the switch; the answer says what it did.
fn change(target: &Target, change: Change) -> Result<Report, String> {
    let (answer, answers) = bounded(1);
    target.keeper.tell(Notice::Change { switch: target.number, change, answer });
    // Whole as the keeper gives it: to ask a worker for anything more could fail, after the change was done.
    answers
        .recv_timeout(CHANGE_TIMEOUT)
        .map_err(|_| "the switch did not answer in time: `weft show ports` tells whether it changed".to_string())?
}

/// Asks every pipe of the switch; their answers are put together.
fn ask(target: &Target, show: Show) -> Result<Report, String> {
    let mut asked = Vec::new();
    for pipe in &target.pipes {
        let (answer, answers) = bounded(1);
        let ask = Ask { switch: pipe.switch, show, answer };
        pipe.asks.try_send(ask).map_err(|_| "the switch is busy or stopping: try again".to_string())?;
        pipe.waker.wake();
        asked.push(answers);
    }
    let answers = asked.iter().map(|answers| {
        answers.recv_timeout(WORKER_TIMEOUT).map_err(|_| "the switch did not answer in time: try again".to_string())
    });
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    Ok(answers.into_iter().reduce(Report::merge).expect("a switch has a pipe"))
}

/// Asks the switch whose control socket is at `path`, and returns its line of JSON.
///
/// # Errors
/// Nobody listens there, or the switch refused: its words.
pub fn query(path: &Path, request: &Request) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    // Others may be before us, and silent.
    let patience = match request {
        Request::Show(_) => 2 * CLIENT_TIMEOUT,
        Request::Change(_) => 2 * CLIENT_TIMEOUT + CHANGE_TIMEOUT,
    };
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if !answer.ends_with('\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the switch ended before it had answered"));
    }
    if let Ok(refusal) = serde_json::from_str::<Refusal>(&answer) {
        return Err(io::Error::other(refusal.error));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Role;
    use crate::runtime::report::Body;
    use crate::runtime::wait::Waiter;
    use nix::sys::stat::umask;
    use nix::time::{ClockId, clock_gettime};
    use std::sync::Barrier;

    /// A switch whose worker never answers.
    fn target() -> Target {
        let waker = Waiter::new().unwrap().waker();
        let keeper = ToKeeper { notices: bounded(1).0, waker: waker.clone() };
        let pipes = vec![PipeTarget { switch: 0, asks: bounded(1).0, waker }];
        Target { number: 0, pipes, keeper }
    }

    fn start(path: &Path) -> Result<ControlServer, io::Error> {
        let mut server = ControlServer::listen(vec![(path.to_owned(), target())]).map_err(|(_, e)| e)?;
        server.start()?;
        Ok(server)
    }

    /// Sends what is no request; the refusal shows that somebody serves.
    fn is_answered(path: &Path) -> bool {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"hello\n").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer.contains("not a request")
    }

    #[test]
    fn a_change_that_was_done_is_answered_so_though_no_worker_answers() {
        let (notices, noticed) = bounded(1);
        let mut target = target();
        target.keeper.notices = notices;
        let done = Report {
            time_ms: 7,
            switch: "s".into(),
            role: Role::Tor,
            selector: "ecmp".into(),
            body: Body::Changed { changed: vec!["port `p2` removed".into()] },
        };
        let answered = done.clone();
        let keeper = thread::spawn(move || match noticed.recv().unwrap() {
            Notice::Change { answer, .. } => answer.send(Ok(answered)).unwrap(),
            _ => panic!("another notice"),
        });
        assert_eq!(change(&target, Change::Del("p2".into())), Ok(done));
        keeper.join().unwrap();
    }

    #[test]
    fn socket_lock_and_directory_are_never_others_whatever_the_umask() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        let path = dir.path().join("run/weft/s.sock");
        // The process's: no other test here looks at what it gives.
        let before = umask(Mode::empty());
        let listening = listen(&path);
        let early = dir.path().join("early.sock");
        let bound = bind_private(&early);
        umask(before);
        let (listening, _bound) = (listening.unwrap(), bound.unwrap());
        assert_eq!(mode(&early), 0o600, "nothing was done to it after it was bound");
        assert_eq!((mode(&path), mode(&dir.path().join("run/weft/s.sock.lock"))), (0o600, 0o600));
        assert_eq!((mode(path.parent().unwrap()), mode(&dir.path().join("run"))), (0o755, 0o755));
        drop(listening);
    }

    #[test]
    fn of_many_that_find_a_stale_socket_one_gets_it_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let path = dir.path().join(format!("{round}.sock"));
            drop(UnixListener::bind(&path).unwrap());
            let barrier = Barrier::new(4);
            let started: Vec<_> = thread::scope(|scope| {
                let racer = || {
                    barrier.wait();
                    start(&path)
                };
                let racers: Vec<_> = (0..4).map(|_| scope.spawn(racer)).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).collect()
            });
            let (won, lost): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
            assert_eq!(won.len(), 1);
            assert!(lost.iter().all(|lost| lost.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse)));
            assert!(is_answered(&path));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "each removed its socket and its lock");
    }

    #[test]
    fn what_is_at_the_path_and_not_a_stale_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        fs::write(&path, "precious").unwrap();
        assert_eq!(start(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();

        // Somebody who knows nothing of the lock listens.
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(start(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        drop(listener);

        // Replaced while it was ours.
        let server = start(&path).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(server);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }

    #[test]
    fn silent_clients_in_every_place_cost_no_time_and_the_next_is_served_when_they_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let (listener, _socket) = listen(&path).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let server = thread::spawn(move || {
            serve(&[(listener, target())], &stopped);
            Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
        });
        let silent: Vec<_> = (0..=MAX_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        thread::sleep(Duration::from_millis(1500));
        drop(silent);
        assert!(is_answered(&path));
        stop.store(true, Ordering::Relaxed);
        let cpu = server.join().unwrap();
        // Spinning, it would take most of the 1.5 s, or what the other tests leave of it.
        assert!(cpu < Duration::from_millis(150), "{cpu:?}");
    }

    #[test]
    fn a_client_that_trickles_is_cut_off_at_its_deadline() {
        let (near, far) = UnixStream::pair().unwrap();
        let trickle = thread::spawn(move || {
            // Ends when the other side is closed.
            while (&far).write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let start = Instant::now();
        let mut bounded = Bounded { stream: &near, deadline: start + Duration::from_millis(200) };
        let error = BufReader::new(&mut bounded).read_until(b'\n', &mut Vec::new()).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        assert!(start.elapsed() >= Duration::from_millis(190));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        drop(near);
        trickle.join().unwrap();
    }
}
