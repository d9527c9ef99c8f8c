//! weft: a userspace software switch for datacentre fabrics.
//!
//! Frames come in over AF_XDP, pass a software PISA pipeline and leave over AF_XDP. The pipeline
//! itself is sans-IO: time is an argument, the next deadline a result, so the same code runs on
//! real ports, in virtual time and in tests. ARCHITECTURE.md draws the layers; `tests/layering.rs`
//! holds each module to them.

pub mod agent;
pub mod cli;
pub mod config;
pub mod control;
/// Per-port counters and the conservation law they obey.
pub mod counters;
pub mod dataplane;
pub mod fabric;
pub mod fault;
/// Frame memory: one region, linear frames, bursts.
pub mod frame;
/// Names of ports, switches and roles.
pub mod id;
pub mod lab;
pub mod pisa;
pub mod port;
pub mod rng;
pub mod runtime;
pub mod scheme;
/// Monotonic time in nanoseconds; nothing here reads a clock.
pub mod time;
pub mod topo;
pub mod traffic;
/// Bit rates and byte sizes with their text forms.
pub mod units;
pub mod wire;
