//! weft: a userspace software switch for datacentre fabrics.
//!
//! Frames come in over AF_XDP, pass a software PISA pipeline and leave over AF_XDP. The pipeline
//! itself is sans-IO: time is an argument, the next deadline a result, so the same code runs on
//! real ports, in virtual time and in tests. ARCHITECTURE.md draws the layers; `tests/layering.rs`
//! holds each module to them.

/// Argument parsing and printing.
pub mod cli;
/// TOML to validated configuration.
pub mod config;
/// The closed request set of the control socket.
pub mod control;
/// Per-port counters and the conservation law they obey.
pub mod counters;
/// Which hooks make the program of a configured switch.
pub mod dataplane;
/// L2/L3 forwarding shared by all schemes, and the hooks a scheme fills.
pub mod fabric;
/// Frame memory: one region, linear frames, bursts.
pub mod frame;
/// Names of ports, switches and roles.
pub mod id;
/// Whole fabrics of network namespaces on this machine.
pub mod lab;
/// The PISA engine; knows no scheme.
pub mod pisa;
/// Ports: AF_XDP, memory.
pub mod port;
/// Poll loops, clock, affinity, control socket, shutdown.
pub mod runtime;
/// One module a path-selection scheme.
pub mod scheme;
/// Monotonic time in nanoseconds; nothing here reads a clock.
pub mod time;
/// Topologies: who is wired to whom, and every address.
pub mod topo;
/// Generator, measuring sink and the forwarders that weft is measured against.
pub mod traffic;
/// Bit rates and byte sizes with their text forms.
pub mod units;
/// Headers on the wire: parsing, rewriting and checksums.
pub mod wire;
