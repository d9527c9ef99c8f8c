//! The L2/L3 forwarding that all schemes share, as a [`Program`].
//!
//! A ToR bridges its host ports as one segment and is its gateway; everything else is routed, up and
//! down, by longest prefix. Fabric links are unnumbered. What a path-selection scheme adds (choosing
//! among equal ports, its own messages, a look at what comes and goes) it fills in as [`hooks`]; what
//! schedules the frames between hosts of the rack stands beside it ([`rack`]).
//!
//! VLAN tags are transparent: they are kept across bridging and routing, the segment is one for all
//! tags, and the gateway answers with the tags it was asked with.

/// The learning bridge of a ToR's host ports.
pub mod bridge;
pub mod change;
pub mod clos;
/// The egress stage.
pub mod egress;
/// Routes.
pub mod fib;
mod hello;
pub mod hooks;
/// The ingress stage.
pub mod ingress;
pub mod link;
mod martian;
pub mod neighbour;
pub mod note;
mod program;
pub mod rack;
pub mod reply;
mod slow_path;
pub mod view;

use std::marker::PhantomData;

use crate::pisa::Program;

pub use change::Forwarding;
pub use egress::FabricEgress;
pub use hooks::{Handled, Scheme, SchemeControl, SchemeEgress, SchemeIngress, SchemePort};
pub use ingress::{FabricConfig, FabricIngress, FabricPort};
pub use link::{HelloConfig, HelloMode};
pub use rack::{RackScheduler, Stations};

/// The program of a switch that runs scheme `S`.
#[derive(Debug)]
pub struct Fabric<S>(PhantomData<S>);

impl<S: Scheme> Program for Fabric<S> {
    type Ingress = FabricIngress<S::Ingress>;
    type Egress = FabricEgress<S::Egress>;
    type Control = S::Control;
}
