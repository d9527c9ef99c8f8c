//! The PISA engine: parser, ingress, traffic manager, egress. It knows no scheme.
//!
//! A [`Program`] is an [`Ingress`] and an [`Egress`] stage with separate state, as in hardware: code
//! of one can't name a register of the other, and what egress wants ingress to know must be
//! recirculated ([`EgressContext::recirculate`]) or sent as a digest to the control plane ([`Control`]). [`Switch`] runs a program over bursts of frames. It is
//! sans-IO: time comes in as an argument, frames leave by [`Switch::transmit`], and
//! [`Switch::next_deadline`] says when it wants to be called although no frame has come.
//!
//! Frames are handled in two passes over a burst: parse and [`Ingress::prepare`] for all, then
//! [`Ingress::process`] for all, so that the table lines of one frame are fetched while another is
//! parsed.

/// What egress tells the control plane.
pub mod digest;
pub mod dre;
mod epochs;
pub mod flowlet;
/// The seeded hash of flows.
pub mod hash;
/// Per-frame metadata.
pub mod meta;
pub mod meter;
/// What leaves the pipeline beside the frame itself.
pub mod outbox;
pub mod pat;
/// Switches on several workers.
pub mod pipe;
/// The two stages of a program.
pub mod program;
/// The engine.
pub mod switch;
/// Match tables.
pub mod table;
pub mod tm;
/// Where a frame goes next.
pub mod verdict;

pub use digest::DigestCounts;
pub use hash::FlowHash;
pub use meta::Meta;
pub use outbox::{Action, Outbox};
pub use pipe::{Handed, Pipe};
pub use program::{Context, Control, Egress, EgressContext, Ingress, Program};
pub use switch::Switch;
pub use tm::{PortLimits, TrafficManager};
pub use verdict::{EgressVerdict, Queue, Verdict};
