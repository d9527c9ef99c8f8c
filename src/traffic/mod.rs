//! Traffic: a generator, a measuring sink, and the forwarders that weft is measured against.
//!
//! The generator ([`generate`]) sends UDP frames whose payload is a [`probe`]: run, flow, sequence
//! number and time. The sink ([`sink`]) reads them and tells what became of the run: [`account`]
//! holds what is lost, reordered and duplicated in each flow, in memory that does not grow. Both sit
//! on an [`XdpPort`](crate::port::xdp::XdpPort), so while one is attached to an interface the
//! kernel's stack sees no frame that arrives there; [`station`] therefore resolves neighbours and
//! answers for addresses itself.
//!
//! [`null`] and [`redirect`] forward between two interfaces with nothing in between: the one with the
//! ports, bursts and kicks of a runtime worker, the other in the kernel.
//!
//! Everything that counts or builds frames is sans-IO (`now` comes in); [`generate`], [`sink`],
//! [`null`] and [`redirect`] have the loops that read the clock and sleep.

/// What is lost, reordered and duplicated, flow by flow.
pub mod account;
mod endpoint;
/// The generator.
pub mod generate;
/// What the sink makes of the frames it gets.
pub mod meter;
/// A forwarder without a pipeline.
pub mod null;
/// When the next frame is due.
pub mod pace;
/// What the payload says.
pub mod probe;
/// Forwarding by the kernel.
pub mod redirect;
/// The measuring sink.
pub mod sink;
/// A station's addresses: asking for others', answering for its own.
pub mod station;
/// The frames of a run.
pub mod template;

use std::io;
use std::net::IpAddr;

use crate::port::xdp::XdpError;

/// Why traffic could not be made or measured.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A port could not be opened.
    #[error(transparent)]
    Port(#[from] XdpError),
    /// What was asked for can't be.
    #[error("{0}")]
    Impossible(String),
    /// Nobody answered for an address.
    #[error(
        "no answer from {target} on `{interface}` in {seconds} s; \
         give the next hop's MAC with --dst-mac, or its address with --gateway"
    )]
    Unresolved {
        /// Who was asked for.
        target: IpAddr,
        /// Where.
        interface: String,
        /// How long.
        seconds: u64,
    },
    /// The interface went away while it was in use.
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

impl TrafficError {
    fn system(what: &'static str, cause: io::Error) -> TrafficError {
        TrafficError::System { what, cause }
    }

    /// Whether it failed while running, as opposed to not having started (exit code 1, not 2).
    pub fn is_late(&self) -> bool {
        matches!(self, TrafficError::Dead { .. })
    }
}
