use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};

use super::RuntimeError;

/// The namespace that this thread started in, to come back to.
#[derive(Debug)]
pub(super) struct Home(File);

impl Home {
    pub fn here() -> Result<Home, RuntimeError> {
        let path = PathBuf::from("/proc/thread-self/ns/net");
        File::open(&path).map(Home).map_err(|cause| RuntimeError::Namespace { path, cause })
    }

    /// Moves this thread into the namespace at `path`, or back home. A process that has no namespaces
    /// but its own never needs the privilege to change them.
    pub fn enter(&self, path: Option<&Path>) -> Result<(), RuntimeError> {
        let own = Path::new("/proc/thread-self/ns/net");
        let error = |cause| RuntimeError::Namespace { path: path.unwrap_or(own).to_owned(), cause };
        match path {
            Some(p) => setns(File::open(p).map_err(error)?, CloneFlags::CLONE_NEWNET),
            None if Identity::of(Some(own)) == Identity::of_file(&self.0) => Ok(()),
            None => setns(&self.0, CloneFlags::CLONE_NEWNET),
        }
        .map_err(|e| error(e.into()))
    }
}

/// Which namespace a path leads to; none if it leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(Option<(u64, u64)>);

impl Identity {
    /// That of `path`; always the same for a process's own.
    pub fn of(path: Option<&Path>) -> Identity {
        Identity(path.and_then(|p| fs::metadata(p).ok()).map(|m| (m.dev(), m.ino())))
    }

    fn of_file(file: &File) -> Identity {
        Identity(file.metadata().ok().map(|m| (m.dev(), m.ino())))
    }

    /// Whether there is a namespace.
    pub fn is_there(self) -> bool {
        self.0.is_some()
    }
}
