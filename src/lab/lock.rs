//! The lock that says who owns a lab: an open-file-description lock (fcntl(2), F_OFD_SETLK).
//!
//! Such a lock belongs to the open file, not to a process: a child that inherits the descriptor holds
//! it too, and it goes when the last descriptor closes, whatever ended the process. The file's text,
//! a process number, only says whom to signal.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::Pid;

/// Who holds a lab's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// Nobody, or a process that is past its end.
    Nobody,
    /// A process that noted no number: `up`, before it has started the switches.
    Unnamed,
    /// The switches' process.
    Process(Pid),
}

/// A lock file, open; whether it is held is up to [`LockFile::try_lock`].
#[derive(Debug)]
pub(super) struct LockFile(File);

impl LockFile {
    pub(super) fn create(path: &Path) -> io::Result<LockFile> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).map(LockFile)
    }

    pub(super) fn open(path: &Path) -> io::Result<LockFile> {
        OpenOptions::new().read(true).write(true).open(path).map(LockFile)
    }

    /// Takes the lock for as long as this file, or a copy of its descriptor, is open; `false` if
    /// someone else has it.
    pub(super) fn try_lock(&self) -> io::Result<bool> {
        match fcntl(&self.0, FcntlArg::F_OFD_SETLK(&whole_file())) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether someone else holds the lock; takes nothing.
    pub(super) fn is_locked(&self) -> io::Result<bool> {
        let mut lock = whole_file();
        fcntl(&self.0, FcntlArg::F_OFD_GETLK(&mut lock))?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }

    /// The lock for a child's standard input: the child holds it from its first moment on.
    pub(super) fn for_child(&self) -> io::Result<Stdio> {
        self.0.try_clone().map(Stdio::from)
    }

    /// Notes whom to signal. One write of one size: a reader never sees half a number.
    pub(super) fn set_pid(&self, pid: u32) -> io::Result<()> {
        self.0.write_all_at(format!("{pid:<10}\n").as_bytes(), 0)
    }

    /// The noted process, if it has this very file open: so it can't be a stranger that was given a
    /// dead process's number.
    pub(super) fn pid(&self) -> Option<Pid> {
        let pid = self.noted()?;
        self.is_open_in(pid).ok()?.then_some(pid)
    }

    /// Who holds the lock and lives.
    pub(super) fn holder(&self) -> io::Result<Holder> {
        if !self.is_locked()? {
            return Ok(Holder::Nobody);
        }
        let Some(pid) = self.noted() else { return Ok(Holder::Unnamed) };
        let has_it = match self.is_open_in(pid) {
            // Whose files we may not see is not for that a dead one.
            Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
            Ok(has_it) => has_it,
        };
        // One that was killed holds its lock until the kernel has taken its sockets apart, for a second and more.
        Ok(if has_it && !is_exiting(pid) { Holder::Process(pid) } else { Holder::Nobody })
    }

    fn noted(&self) -> Option<Pid> {
        let mut text = [0; 32];
        let len = self.0.read_at(&mut text, 0).ok()?;
        let pid: i32 = std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok().filter(|pid| *pid > 0)?;
        Some(Pid::from_raw(pid))
    }

    fn is_open_in(&self, pid: Pid) -> io::Result<bool> {
        let own = self.0.metadata()?;
        let same = |file: fs::Metadata| (file.dev(), file.ino()) == (own.dev(), own.ino());
        Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().any(|entry| fs::metadata(entry.path()).is_ok_and(same)))
    }

    /// Whether `path` still names this file: it may have been removed, or made anew, meanwhile.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        match (fs::metadata(path), self.0.metadata()) {
            (Ok(there), Ok(own)) => (there.dev(), there.ino()) == (own.dev(), own.ino()),
            _ => false,
        }
    }
}

/// Whether a process is past its end, as far as its first thread goes: what it has open, its locks too, may still be
/// there.
fn is_exiting(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => says_exiting(&stat),
        Err(e) => is_no_process(&e),
    }
}

/// Whether that is how the kernel says that a process is no more, before or after its file was opened. What may not
/// be read tells nothing.
fn is_no_process(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The same of a `/proc/PID/stat`.
fn says_exiting(stat: &str) -> bool {
    /// PF_EXITING of include/linux/sched.h.
    const EXITING: u64 = 1 << 2;
    // proc_pid_stat(5): the name in brackets may hold any byte; `flags` is the seventh word behind it.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn lock_file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        (dir, path)
    }

    #[test]
    fn a_lock_is_exclusive_and_seen_by_others() {
        let (_dir, path) = lock_file();
        let first = LockFile::create(&path).unwrap();
        let second = LockFile::open(&path).unwrap();
        assert!(!second.is_locked().unwrap());
        assert!(first.try_lock().unwrap());
        assert!(second.is_locked().unwrap() && !second.try_lock().unwrap());
        drop(first);
        assert!(second.try_lock().unwrap());
    }

    #[test]
    fn a_child_holds_the_lock_until_it_is_killed() {
        let (_dir, path) = lock_file();
        let lock = LockFile::create(&path).unwrap();
        assert!(lock.try_lock().unwrap());
        let mut child = Command::new("sleep").arg("60").stdin(lock.for_child().unwrap()).spawn().unwrap();
        lock.set_pid(child.id()).unwrap();
        drop(lock);

        let other = LockFile::open(&path).unwrap();
        assert!(!other.try_lock().unwrap(), "the child has it");
        assert_eq!(other.pid(), Some(Pid::from_raw(child.id() as i32)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.try_lock().unwrap(), "it died with the child");
    }

    #[test]
    fn a_process_that_was_killed_is_past_its_end_also_before_somebody_has_waited_for_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        assert!(!is_exiting(pid) && !is_exiting(nix::unistd::getpid()));
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !is_exiting(pid) {
            assert!(std::time::Instant::now() < deadline, "it never ends");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_exiting(pid), "it is no more");
        for (errno, gone) in
            [(Errno::ENOENT, true), (Errno::ESRCH, true), (Errno::EACCES, false), (Errno::EMFILE, false)]
        {
            assert_eq!(is_no_process(&errno.into()), gone, "{errno}");
        }
    }

    #[test]
    fn a_lock_has_a_holder_while_that_lives_though_a_dead_ones_lock_is_still_there() {
        let (_dir, path) = lock_file();
        let lock = LockFile::create(&path).unwrap();
        let other = LockFile::open(&path).unwrap();
        assert_eq!(other.holder().unwrap(), Holder::Nobody);
        assert!(lock.try_lock().unwrap());
        assert_eq!(other.holder().unwrap(), Holder::Unnamed);
        let mut child = Command::new("sleep").arg("60").stdin(lock.for_child().unwrap()).spawn().unwrap();
        lock.set_pid(child.id()).unwrap();
        assert_eq!(other.holder().unwrap(), Holder::Process(Pid::from_raw(child.id() as i32)));
        // Here `lock` stands for what the kernel has not taken apart yet.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.is_locked().unwrap());
        assert_eq!(other.holder().unwrap(), Holder::Nobody);
    }

    #[test]
    fn a_recycled_process_number_is_not_believed() {
        let (_dir, path) = lock_file();
        let lock = LockFile::create(&path).unwrap();
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        lock.set_pid(stranger.id()).unwrap();
        assert_eq!(LockFile::open(&path).unwrap().pid(), None);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        for text in ["", "-1\n", "0\n", "x\n", "99999999999\n"] {
            fs::write(&path, text).unwrap();
            assert_eq!(LockFile::open(&path).unwrap().pid(), None, "{text:?}");
        }
    }

    #[test]
    fn a_removed_or_replaced_lock_file_is_noticed() {
        let (_dir, path) = lock_file();
        let lock = LockFile::create(&path).unwrap();
        assert!(lock.is_at(&path));
        fs::remove_file(&path).unwrap();
        assert!(!lock.is_at(&path));
        let _newer = LockFile::create(&path).unwrap();
        assert!(!lock.is_at(&path));
    }
}
