//! AF_XDP ports.
//!
//! One UMEM a switch, shared by all its ports ([`Memory`]); one
//! socket, with fill and completion rings of its own, a port ([`XdpPort`]). The redirecting program
//! is ours (bpf/weft.bpf.c): libxdp's own is inhibited, because it wants a bpffs and a dispatcher
//! that a namespace lacks. It is attached by a `bpf_link`, in native and generic mode alike, so that
//! it goes away with the process however that ends.
//!
//! What the kernel makes us do (measured on 6.18, veth):
//! - Copy mode transmits inside `sendto`, at most the "TX budget" of frames a call. It is raised
//!   where the kernel knows how, and [`XdpPort`] kicks until the ring is empty, or frames would
//!   wait for the next packet.
//! - A socket that was just closed keeps its queue busy for some milliseconds: binding is retried.
//! - A veth hands over TCP and UDP frames without a finished checksum; a port to a host completes
//!   it (see [`crate::wire::checksum::complete_partial`]).
//! - When the peer is deleted, nothing says so but `ENXIO` from `sendto`.
//!
//! - A frame that is too long for a chunk comes and goes in several (multi-buffer XDP, kernel 6.6). It
//!   is copied into and out of a large buffer, so that the pipeline sees it in one piece.
//!
//! Ownership of chunks: a chunk is lent to the kernel by its index (fill ring, TX ring) and becomes
//! a [`crate::frame::Frame`] again when the kernel returns it. A port knows which chunks those are
//! ([`Lent`]), so that closing it gives every one of them back.
#![allow(unsafe_code)]

mod device;
mod gather;
mod holder;
mod lent;
mod live;
mod local;
mod memory;
mod program;
mod redirect;
mod socket;

pub use crate::id::XdpMode;
pub use device::{Device, Devices};
pub use lent::Lent;
pub use live::{LiveFrames, LiveLayout, LivePace, LiveState};
pub use local::LocalAddresses;
pub use memory::{CHUNK_HEADROOM, Memory, chunk_size};
pub use redirect::KernelRedirect;
pub use socket::{QUARANTINE, XdpOptions, XdpPort};

use holder::Wanted;
use std::io;

/// What went wrong with an AF_XDP port: what was tried, on what, the system's words, and a remedy.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}; {remedy}")]
pub struct XdpError {
    what: String,
    cause: io::Error,
    remedy: String,
    wanted: Option<Wanted>,
}

impl XdpError {
    fn new(what: impl Into<String>, cause: io::Error, remedy: impl Into<String>) -> Self {
        XdpError { what: what.into(), cause, remedy: remedy.into(), wanted: None }
    }

    fn wanting(self, wanted: Option<Wanted>) -> XdpError {
        XdpError { wanted, ..self }
    }

    /// The same with the process that holds the interface, if that is what went wrong and it can be found: it is
    /// looked for in the namespace of this thread and among the open files of all processes, which takes long.
    #[must_use]
    pub fn name_holder(mut self) -> XdpError {
        if let Some(holder) = self.wanted.take().and_then(Wanted::holder) {
            self.remedy = format!("held by {holder}: stop it, or use another interface");
        }
        self
    }

    /// The system's error.
    pub fn cause(&self) -> &io::Error {
        &self.cause
    }
}
