//! P4TE's data path against its paper: what egress reports, the groups that follow from it, where flowlets go, and
//! what becomes of rates; at one switch with depths and times given, and in fabrics in virtual time. Expected
//! values are worked out by hand from the paper's algorithms.

mod chain;
mod collide;
mod control;
mod meters;
mod monitor;
#[path = "../net/mod.rs"]
mod net;
#[path = "../packets/mod.rs"]
mod packets;
mod paths;
mod refused;
mod rig;
mod sim;
mod tcp;
