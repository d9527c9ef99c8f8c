//! PL2's host side as a process of its own: unmodified applications send through a TAP device, and what they send
//! leaves by an AF_XDP port when the switch has granted it a slot.
//!
//! ```text
//!  applications -> kernel -> TAP --read--> [what goes unscheduled] --> Host: parked by connection, RSV / GRT
//!                             ^                  |                       | Release (shim)    | Send (messages)
//!                             |                  v                       v                   v
//!                             |       bypass ------------> Uplink: messages, then bypass, then data at the slots' rate
//!                             |                                                |
//!                             +--write-- data <-- AF_XDP port <----------------+--> AF_XDP port --> switch
//! ```
//! [`Agent`] is the loop's body over two traits, [`Port`](crate::port::Port) and [`Tap`], so that it runs over memory in
//! tests; [`run`] is the process. The reserving itself is [`crate::scheme::pl2::host`].
//!
//! What is decided here:
//!
//! 1. **The TAP has no `VNET_HDR`**, so the kernel finishes checksums and cuts segments before a frame is read. It
//!    has the uplink's MAC address, which is the one that the switch has learned, and which neighbours ask for.
//! 2. **The uplink carries the agent's frames only.** Its XDP program takes all that arrives; its addresses and routes
//!    are on the TAP meanwhile ([`Addresses`]).
//! 3. **Unscheduled** are ARP, neighbour discovery, group destinations, and destinations that are at no host
//!    port of the switch: those that were named, and those to which the switch has no route ([`Unscheduled`]). Else frames
//!    for a gateway would wait for ever. Any other refusal is temporary: the host asks again.
//! 4. **Order on the uplink**: messages first, then unscheduled frames, then data. Only data is paced: its slots are
//!    what the switch has granted, and a burst of K leaves at the slots' rate, not at once.
//! 5. **A receiver without shims.** The switch strips them, so the agent can't tell which bursts came: what a dead
//!    sender holds is taken back by the switch's own deadline.
//! 6. **Never stuck**: a full queue drops its newest frame, a TAP that is down loses what it is given, a
//!    message that finds no room is sent again by the host's own timer. All are counted ([`AgentCounters`]).
//! 7. **Nobody answers** for 2 s while frames wait: they go unscheduled, and so does all else until a grant comes. A
//!    request each second asks for one, and is given back at once, since its frame goes without.

mod address;
mod engine;
mod process;
mod report;
mod silence;
mod tap;
mod unscheduled;
mod uplink;

use std::io;

use crate::lab::net::NetError;
use crate::port::xdp::XdpError;
use crate::runtime::RuntimeError;
use crate::scheme::pl2::host::HostConfigError;

pub use address::{Addresses, Addressing};
pub use engine::{Agent, AgentConfig, AgentCounters, Gone};
pub use process::{AgentOptions, Wait, run};
pub use report::{AgentReport, Percentiles};
pub use tap::{MemTap, Tap, TapDevice};
pub use unscheduled::Unscheduled;
pub use uplink::Uplink;

/// Why an agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The uplink.
    #[error(transparent)]
    Port(#[from] XdpError),
    /// How it is to reserve.
    #[error(transparent)]
    Config(#[from] HostConfigError),
    /// Addresses and routes.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Privileges.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// What was asked for can't be.
    #[error("{0}")]
    Impossible(String),
    /// The TAP device can't be made.
    #[error("TAP device `{name}`: {cause}; {}", tap::remedy(cause))]
    Tap {
        /// Its name.
        name: String,
        /// The system's error.
        cause: io::Error,
    },
    /// An interface went away while it was in use.
    #[error("interface `{interface}`: {cause}; was it, or its peer, deleted?")]
    Dead {
        /// The interface.
        interface: String,
        /// The system's error.
        cause: io::Error,
    },
    /// Any other system call.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

impl AgentError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> AgentError {
        move |cause| AgentError::System { what, cause }
    }

    /// Whether it failed while running, as opposed to not having started (exit code 1, not 2).
    pub fn is_late(&self) -> bool {
        matches!(self, AgentError::Dead { .. })
    }
}
