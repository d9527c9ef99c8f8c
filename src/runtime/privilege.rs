//! What the process is allowed to do: asked for before anything is opened, and given up once all is.
//!
//! A running switch needs its capabilities for one thing only: to open a port again whose interface was
//! made anew, or one that was added. What they are for was found out by leaving each of them out
//! (tests/veth/privileges.rs, docs/operations.md).

use std::io;

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use tracing::debug;

use super::RuntimeError;

/// What opening a port takes, and what for.
const PORT: [(Capability, &str); 3] = [
    (Capability::CAP_NET_RAW, "to open AF_XDP sockets"),
    (Capability::CAP_NET_ADMIN, "to attach XDP programs"),
    (Capability::CAP_BPF, "to load XDP programs"),
];
/// What ports in other network namespaces take as well.
const NAMESPACE: (Capability, &str) = (Capability::CAP_SYS_ADMIN, "to enter the namespaces of its switches");

/// The capabilities that a process keeps, whose switches are in network namespaces of their own or not.
fn needed(namespaces: bool) -> impl Iterator<Item = (Capability, &'static str)> {
    PORT.into_iter().chain(namespaces.then_some(NAMESPACE))
}

/// Refuses to start without what is needed.
///
/// # Errors
/// The capabilities that are missing, and what for.
pub(crate) fn check(namespaces: bool) -> Result<(), RuntimeError> {
    let effective = caps::read(None, CapSet::Effective).map_err(failed)?;
    let missing: Vec<_> = needed(namespaces).filter(|(cap, _)| !effective.contains(cap)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<_> = missing.iter().map(|(cap, what)| format!("{cap} {what}")).collect();
    let all: Vec<_> = needed(namespaces).map(|(cap, _)| cap.to_string()).collect();
    Err(RuntimeError::Impossible(format!(
        "weft lacks {}: run it as root, or with {}",
        missing.join(", and "),
        all.join(", ")
    )))
}

/// Gives up for good all but what a running switch needs, and the way to more: no program that this
/// process might execute gains anything. For this thread and those that it will start, so there may be
/// no other yet.
///
/// # Errors
/// The kernel refuses, which it has no reason for.
pub(crate) fn drop_all_but_needed(namespaces: bool) -> Result<(), RuntimeError> {
    let keep: CapsHashSet = needed(namespaces).map(|(cap, _)| cap).collect();
    // Taking a capability out of the bounding set takes CAP_SETPCAP, which goes with all others. Who
    // starts without has a bounding set that somebody else chose.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(failed)? {
        for cap in caps::read(None, CapSet::Bounding).map_err(failed)?.difference(&keep) {
            caps::drop(None, CapSet::Bounding, *cap).map_err(failed)?;
        }
    }
    if caps::runtime::ambient_set_supported().is_ok() {
        caps::clear(None, CapSet::Ambient).map_err(failed)?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    // Effective before permitted, whose subset it has to be.
    caps::set(None, CapSet::Effective, &keep).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed)?;
    prctl::set_no_new_privs().map_err(|e| RuntimeError::system("PR_SET_NO_NEW_PRIVS", e.into()))?;
    debug!(kept = ?keep, "capabilities");
    Ok(())
}

fn failed(error: CapsError) -> RuntimeError {
    RuntimeError::system("capabilities", io::Error::other(error.to_string()))
}
