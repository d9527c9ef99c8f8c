//! Golden tests of the forwarding, to be read as its specification: frames in, frames out, drops
//! counted, on one switch over memory ports in virtual time.
//!
//! ```text
//!   H0 --0\          /3-- spine A              ToR 1 --0\       /2-- core A
//!   H1 --1-- the ToR                           ToR 2 --1-- the agg
//!   H2 --2/          \4-- spine B                               \3-- core B
//! ```
//!
//! The ToR is the gateway 10.0.1.1 and fd00:0:0:1::1 of its hosts .2, .3 and .4; the agg has ToRs
//! 10.0.1.0/24 and 10.0.2.0/24 below it. Every test ends by checking that no frame was lost: the
//! conservation law holds, also after the switch was drained, and every chunk is back in the pool.

mod bridging;
mod bytes;
mod errors;
mod gateway;
mod links;
mod neighbours;
#[path = "../packets/mod.rs"]
mod packets;
mod ports;
mod recirculated;
mod refused;
mod rig;
mod routing;
