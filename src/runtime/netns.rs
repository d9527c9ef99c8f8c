use std::fs::File;
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

    /// Moves this thread into the namespace at `path`, or back home.
    pub fn enter(&self, path: Option<&Path>) -> Result<(), RuntimeError> {
        let error = |cause| RuntimeError::Namespace {
            path: path.unwrap_or(Path::new("/proc/thread-self/ns/net")).to_owned(),
            cause,
        };
        match path {
            Some(p) => setns(File::open(p).map_err(error)?, CloneFlags::CLONE_NEWNET),
            None => setns(&self.0, CloneFlags::CLONE_NEWNET),
        }
        .map_err(|e| error(e.into()))
    }
}
