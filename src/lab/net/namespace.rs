//! Named network namespaces, laid out as iproute2's `ip netns` (ip-netns(8)): a file
//! `/run/netns/NAME` onto which `/proc/.../ns/net` is bind-mounted keeps the namespace alive.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use super::NetError;

/// Where iproute2 keeps named namespaces.
const NETNS_DIR: &str = "/run/netns";

const NONE: Option<&str> = None;

/// An open named network namespace.
///
/// Holds a file descriptor, which keeps the namespace itself (not its name) alive; dropping it
/// deletes nothing.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Where the namespace `name` is mounted, whether or not it exists.
    pub fn path(name: &str) -> PathBuf {
        Path::new(NETNS_DIR).join(name)
    }

    /// Creates the namespace `name`, loopback down, nothing else in it.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `EPERM` without CAP_SYS_ADMIN, `EINVAL` for a name that is no
    /// file name. Nothing is left behind on failure.
    pub fn create(name: &str) -> Result<Namespace, NetError> {
        let fail = |cause: io::Error| NetError::new(format!("cannot create network namespace `{name}`"), cause);
        check_name(name).map_err(fail)?;
        share_netns_dir().map_err(fail)?;
        let path = Namespace::path(name);
        OpenOptions::new().write(true).create_new(true).mode(0o000).open(&path).map_err(fail)?;
        // unshare moves the calling thread for good: a thread of its own, which ends here.
        let made = in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(Some("/proc/thread-self/ns/net"), &path, NONE, MsFlags::MS_BIND, NONE)?;
            Ok(())
        });
        made.and_then(|()| File::open(&path)).map(|file| Namespace { name: name.into(), file }).map_err(|cause| {
            let _ = Namespace::delete(name);
            fail(cause)
        })
    }

    /// Opens the existing namespace `name`.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EACCES` without the right to read it.
    pub fn open(name: &str) -> Result<Namespace, NetError> {
        File::open(Namespace::path(name))
            .map(|file| Namespace { name: name.into(), file })
            .map_err(|cause| NetError::new(format!("cannot open network namespace `{name}`"), cause))
    }

    /// Deletes the namespace `name`; `false` if there is none.
    ///
    /// The kernel tears its interfaces down once the last process in it and the last descriptor of
    /// it are gone, after this call returns. A file that was left behind without a mount is removed too.
    pub fn delete(name: &str) -> Result<bool, NetError> {
        let fail = |cause: io::Error| NetError::new(format!("cannot delete network namespace `{name}`"), cause);
        check_name(name).map_err(fail)?;
        let path = Namespace::path(name);
        match umount2(&path, MntFlags::MNT_DETACH) {
            // EINVAL: not a mount point.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(Errno::ENOENT) => return Ok(false),
            Err(errno) => return Err(fail(errno.into())),
        }
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(fail(e)),
        }
    }

    /// The names of all namespaces that start with `prefix`, sorted.
    pub fn list(prefix: &str) -> Result<Vec<String>, NetError> {
        let fail = |cause| NetError::new(format!("cannot list {NETNS_DIR}"), cause);
        let entries = match fs::read_dir(NETNS_DIR) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(fail(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry.map_err(fail)?.file_name().into_string()
                && name.starts_with(prefix)
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a thread of its own inside this namespace and waits for it. Sockets it opens
    /// stay in the namespace; the calling thread never leaves its own.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or if no thread can be started. A panic in `work` is passed on.
    pub fn run_in<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetError> {
        in_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
        .map_err(|cause| self.fail("cannot enter", cause))
    }

    /// Starts `command` inside this namespace. Unlike [`Namespace::exec`] the child sees the
    /// machine's `/sys`.
    ///
    /// # Errors
    /// If the namespace can't be entered or the command can't be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child, NetError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run_in(|| command.spawn())?.map_err(|cause| self.fail(&format!("cannot start `{program}` in"), cause))
    }

    /// Replaces this process with `command`, inside this namespace; returns only on failure, with
    /// the reason: [`ExecError::Enter`], or [`ExecError::Start`] in the system's words.
    ///
    /// As `ip netns exec` does, a fresh sysfs covers `/sys`, so that `/sys/class/net` shows the
    /// namespace's own interfaces; here what was mounted below `/sys` is covered, not detached, and a
    /// machine that refuses the mount keeps its own `/sys`, as ping and iperf3 need neither.
    pub fn exec(&self, command: &mut Command) -> ExecError {
        if let Err(errno) = setns(&self.file, CloneFlags::CLONE_NEWNET) {
            return ExecError::Enter(self.fail("cannot enter", errno.into()));
        }
        // A slave mount namespace: ours never leak out, and deleting a namespace still reaches us.
        let private = unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(Some("none"), "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE));
        match private {
            Ok(()) => {
                let _ = mount(Some(self.name.as_str()), "/sys", Some("sysfs"), MsFlags::empty(), NONE);
            }
            Err(errno) => tracing::debug!(%errno, "no mount namespace of its own: /sys stays the machine's"),
        }
        ExecError::Start(command.exec())
    }

    /// Writes sysctls of this namespace: `("net.ipv6.conf.all.disable_ipv6", "1")`, in order.
    /// `/proc/sys/net` belongs to the thread that opens it, so no mount is needed.
    ///
    /// # Errors
    /// Names the key. A kernel without IPv6 has no `net.ipv6` keys: those are left out silently.
    pub fn set_sysctls(&self, settings: &[(&str, &str)]) -> Result<(), NetError> {
        self.run_in(|| {
            for (key, value) in settings {
                let path = format!("/proc/sys/{}", key.replace('.', "/"));
                match fs::write(&path, value) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound && key.starts_with("net.ipv6.") => {}
                    Err(e) => return Err(self.fail(&format!("cannot set sysctl {key} = {value} in"), e)),
                    Ok(()) => {}
                }
            }
            Ok(())
        })?
    }

    pub(super) fn fail(&self, what: &str, cause: io::Error) -> NetError {
        NetError::new(format!("{what} network namespace `{}`", self.name), cause)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Why [`Namespace::exec`] came back.
#[derive(Debug)]
pub enum ExecError {
    /// The namespace could not be entered.
    Enter(NetError),
    /// The command could not be started; the process already stands in the namespace.
    Start(io::Error),
}

/// A name is one path component: nothing outside [`NETNS_DIR`] can be created, unmounted or removed.
fn check_name(name: &str) -> io::Result<()> {
    let bad = name.is_empty() || name.contains(['/', '\0']) || name == "." || name == "..";
    if bad { Err(Errno::EINVAL.into()) } else { Ok(()) }
}

/// Makes `/run/netns` a shared mount as iproute2 does, so that a namespace deleted here also goes
/// from the mount namespaces of running `ip netns exec` children.
fn share_netns_dir() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(NETNS_DIR)?;
    // Newer iproute2 takes the same lock: two first users must not both bind the directory.
    let lock = Flock::lock(File::open(NETNS_DIR)?, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    let shared = || mount(Some(""), NETNS_DIR, Some("none"), MsFlags::MS_SHARED | MsFlags::MS_REC, NONE);
    if let Err(errno) = shared() {
        // EINVAL: the directory is no mount point yet.
        if errno != Errno::EINVAL {
            return Err(errno.into());
        }
        mount(Some(NETNS_DIR), NETNS_DIR, Some("none"), MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
        shared()?;
    }
    drop(lock);
    Ok(())
}

/// Runs `work` on a fresh thread, whose namespaces die with it.
fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".into()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
