//! Network namespaces and veths, by system calls and netlink; no `ip` command is run.
//!
//! [`Namespace`] is a *named* namespace, laid out as iproute2 does it, so that `ip netns exec NAME`
//! reaches what is made here and the other way round. [`Netlink`] is one rtnetlink socket opened
//! inside a namespace. Its asynchronous half stays in this module: each socket carries a
//! current-thread runtime, and every call returns when the kernel has answered.

use std::io;

use nix::errno::Errno;

mod config;
mod namespace;
mod netlink;

pub use config::InterfaceConfig;
pub use namespace::{ExecError, Namespace};
pub use netlink::{LinkStatus, Netlink, VethEnd};

/// A step of building or reading the network that the system refused.
///
/// Reads as "what failed: the system's words; one remedy".
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}; {}", remedy(cause))]
pub struct NetError {
    step: String,
    #[source]
    cause: io::Error,
}

impl NetError {
    pub(crate) fn new(step: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        NetError { step: step.into(), cause: cause.into() }
    }

    /// The system's error number, if the system gave one.
    pub fn errno(&self) -> Option<Errno> {
        self.cause.raw_os_error().map(Errno::from_raw)
    }

    /// Whether there is no such thing.
    pub fn is_not_found(&self) -> bool {
        self.cause.kind() == io::ErrorKind::NotFound
    }

    /// Whether the caller lacks a privilege (as opposed to the request being wrong).
    pub fn is_permission(&self) -> bool {
        self.cause.kind() == io::ErrorKind::PermissionDenied
    }
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => "run it as root (it needs CAP_NET_ADMIN and CAP_SYS_ADMIN)",
        Some(Errno::EEXIST) => "remove the one that is there, or choose another name",
        Some(Errno::ENOENT | Errno::ENODEV) => "check the name: `ip netns list` shows namespaces, `ip link` links",
        Some(Errno::EOPNOTSUPP) => "load the kernel's veth driver: `modprobe veth`",
        Some(Errno::ENOSPC) => "raise the limit of namespaces: `sysctl user.max_net_namespaces`",
        Some(Errno::EMFILE | Errno::ENFILE) => "raise the limit of open files: `ulimit -n`",
        Some(Errno::EROFS) => "make /run and /proc/sys writable (a container often mounts them read-only)",
        Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH) => "give the interface an address in the gateway's prefix first",
        _ => "the kernel log (`dmesg`) may say more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_step_the_cause_and_a_remedy() {
        let error = NetError::new("cannot create namespace `x`", Errno::EPERM);
        let text = error.to_string();
        assert!(text.starts_with("cannot create namespace `x`: Operation not permitted"), "{text}");
        assert!(text.contains("root") && text.contains("CAP_NET_ADMIN"), "{text}");
        assert!(error.is_permission());
        assert_eq!(error.errno(), Some(Errno::EPERM));
        assert!(!NetError::new("x", Errno::EEXIST).is_permission());
    }
}
