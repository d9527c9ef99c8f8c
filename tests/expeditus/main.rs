//! Expeditus: fabrics of its switches in one process, and one switch at a time.

#[path = "../packets/mod.rs"]
mod packets;

/// What becomes of a flow from host to host.
mod chain;
/// Any frame at any port.
mod prop;
/// The fabric.
mod rig;
/// What each switch does with each kind of packet.
mod rows;
