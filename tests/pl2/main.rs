//! PL2 on a ToR: messages and data through the whole switch, in virtual time.

#[path = "../packets/mod.rs"]
mod packets;
mod rig;

mod edge;
mod frames;
mod load;
mod pipes;
mod ways;
mod wire;
mod workers;
