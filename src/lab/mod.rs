//! A whole fabric on this machine: every host and every switch in a network namespace of its own,
//! veths for links, one background process that runs all switches.
//!
//! A lab is known by its name alone, so several stand side by side:
//!
//! | what | where |
//! |---|---|
//! | namespaces | `weft-<lab>.<node>`, as `ip netns` shows them |
//! | state | `/run/weft/<lab>/`: `lock`, `fabric.json`, `<switch>.toml`, `<switch>.sock`, `weft.log`, `ready`, `<host>.agent.{json,log,pid}` |
//!
//! **Who owns a lab** is decided by one lock on `lock`, never by a process number alone. [`up`] takes
//! it before the state directory is visible, and hands the open descriptor to the background process
//! as its standard input: the lock passes over without a gap, is held exactly as long as that process
//! lives, however it ends, and a number read from the file is believed only of a process that has
//! that very file open.
//!
//! **Nothing stays behind**: [`up`] removes what it made when it fails or is interrupted, and
//! [`down`] removes a lab whatever state it is in, after `kill -9` too.
//!
//! [`up`]: crate::lab::up
//! [`down`]: crate::lab::down

use std::io;
use std::path::PathBuf;

use crate::config::ConfigError;

pub mod net;

mod agents;
mod build;
mod congestion;
mod down;
mod exec;
mod lock;
mod names;
mod plan;
mod serve;
mod status;
mod up;

pub use congestion::{CongestionControl, CongestionReport};
pub use down::{DownReport, LeftOver, down};
pub use exec::exec;
pub use names::{DEFAULT_NAME, LabName};
pub use serve::{ServeJob, serve};
pub use status::{AgentStatus, HostStatus, LabStatus, LinkState, LinkStatus, SwitchStatus, status};
pub use up::{UpOptions, UpReport, up};

/// Why a lab command failed: what, the system's words, one remedy.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The lab's name can't be used.
    #[error("`{0}` is not a lab name: use 1 to 16 of a-z, 0-9 and `-`")]
    BadName(String),
    /// There is a lab of that name, running.
    #[error("lab `{0}` is already up: `weft lab down --name {0}`")]
    AlreadyUp(LabName),
    /// A lab of that name ended without `down`.
    #[error("lab `{0}` has ended but left its namespaces or files behind: `weft lab down --name {0}`")]
    LeftBehind(LabName),
    /// There is no lab of that name.
    #[error("lab `{0}` is not up: start it with `weft lab up --name {0}`")]
    NotUp(LabName),
    /// The lab has no node of that name.
    #[error("lab `{lab}` has no host or switch `{node}`: try {}", names::one_of(near))]
    UnknownNode {
        /// The lab.
        lab: LabName,
        /// What was asked for.
        node: String,
        /// Nodes with the most similar names, nearest first.
        near: Vec<String>,
    },
    /// The fabric has two nodes of one name, or a link to a node it does not have.
    #[error("the fabric can't be built: {0}; mend the topology")]
    BadFabric(String),
    /// The kernel has it for its first namespace alone.
    #[error(
        "the kernel does not let namespaces use TCP congestion control `{0}`: add it to `sysctl net.ipv4.tcp_allowed_congestion_control`"
    )]
    CongestionControlNotAllowed(String),
    /// The kernel does not know it.
    #[error(
        "this kernel has no TCP congestion control `{0}`: choose of those in `sysctl net.ipv4.tcp_available_congestion_control`, or `off`"
    )]
    CongestionControl(String),
    /// A namespace, a veth or an address.
    #[error(transparent)]
    Net(#[from] net::NetError),
    /// More open files than the process may have.
    #[error("{0}")]
    OpenFiles(String),
    /// A switch's configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file of the lab.
    #[error("{what} {}: {cause}; {}", path.display(), if is_permission(cause) { "run it as root" } else { "check the path and the space on /run" })]
    File {
        /// What was tried: "cannot write".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's words.
        #[source]
        cause: io::Error,
    },
    /// The background process did not come to forward.
    #[error("the switches of lab `{lab}` did not start: {reason}; its log ended with:\n{log}")]
    NotReady {
        /// The lab.
        lab: LabName,
        /// How it failed.
        reason: String,
        /// The last lines of the log.
        log: String,
    },
    /// The agent of a host did not come to be ready.
    #[error("the agent of host `{host}`: {reason}; its log ended with:\n{log}")]
    Agent {
        /// The host.
        host: String,
        /// How it failed.
        reason: String,
        /// The last lines of the log.
        log: String,
    },
    /// The switches ended with an error.
    #[error("{0}")]
    Switches(String),
    /// SIGINT or SIGTERM while the lab was being built; everything was removed again.
    #[error("interrupted: lab `{0}` was removed again")]
    Interrupted(LabName),
    /// Some process holds the lab and does not let go.
    #[error("lab `{lab}` is held by {holder}, which did not end: try again, or end it by hand")]
    Held {
        /// The lab.
        lab: LabName,
        /// `process 1234`, or `another weft command`.
        holder: String,
    },
    /// A command for `exec` could not be started.
    #[error("cannot run `{program}` in `{node}`: {cause}; check the command's name and path")]
    Command {
        /// The command.
        program: String,
        /// The node.
        node: String,
        /// The system's words.
        #[source]
        cause: io::Error,
    },
}

impl LabError {
    /// The exit code of the `weft` command: 2 for misuse and missing privileges, 127 and 126 as
    /// `env` and the shells give them for a command that is not there or can't be run, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::BadName(_)
            | LabError::AlreadyUp(_)
            | LabError::LeftBehind(_)
            | LabError::NotUp(_)
            | LabError::UnknownNode { .. }
            | LabError::BadFabric(_)
            | LabError::CongestionControl(_)
            | LabError::CongestionControlNotAllowed(_)
            | LabError::OpenFiles(_)
            | LabError::Config(_) => 2,
            LabError::Net(e) if e.is_permission() => 2,
            LabError::File { cause, .. } if is_permission(cause) => 2,
            LabError::Command { cause, .. } if cause.kind() == io::ErrorKind::NotFound => 127,
            LabError::Command { .. } => 126,
            LabError::Net(_)
            | LabError::File { .. }
            | LabError::NotReady { .. }
            | LabError::Agent { .. }
            | LabError::Switches(_)
            | LabError::Interrupted(_)
            | LabError::Held { .. } => 1,
        }
    }

    fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |cause| LabError::File { what, path, cause }
    }
}

fn is_permission(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::PermissionDenied
}
