//! CAFT's data path against its paper, in the lab's fat tree of k = 4: what each switch does with each kind of frame,
//! the paper's worked example from switch to switch, and what failures change. Expected tags are worked out by hand.
//!
//! Numbers count from 0: the paper's t(1,2) is `tor0-1` here, its a(2,1) `agg1-0`, its c(1,2) `core1`.

mod agg;
mod chain;
mod failure;
mod net;
mod odd;
#[path = "../packets/mod.rs"]
mod packets;
mod pauses;
mod pods;
mod prop;
mod rig;
mod room;
mod segment;
mod show;
mod tor;
