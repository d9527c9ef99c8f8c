//! The real `weft` binary on real veths: hosts are network namespaces with the kernel's own stack and
//! default offloads, switches run on AF_XDP. Each test builds a network of its own, holds the
//! switches to the conservation laws at its end, and removes all it made, by a panic too.
//!
//! Needs root, `ping` and `ip`. Without privileges each test says SKIPPED and passes, unless CI=true,
//! where a skipped test is a failure.

/// `weft host`: PL2 for unmodified applications, by a process beside them.
mod agent;
mod bed;
/// The conservation laws, recomputed from what a switch shows.
mod books;
/// TCP flows that run until they are told to end.
mod flow;
/// Frames sent and received as they are, by packet sockets.
mod packet;
/// Networks to test on: labs, and single switches wired by hand.
#[path = "../privilege/mod.rs"]
mod privilege;
/// What `weft show` tells as JSON, and what a host's kernel counts.
mod shown;
/// TCP and UDP exchanges whose every byte is checked, and ICMP errors as a socket sees them.
mod traffic;

/// Malformed and random frames on every port.
mod bad_frames;
/// CAFT with TCP of the kernel: a fat tree, tags on a link, MTUs.
mod caft;
/// CAFT while a link under load fails and comes back.
mod caft_failures;
mod caft_pauses;
/// Interfaces that go and come back, processes that die, changes while it runs.
mod congestion;
mod faults;
/// Hosts talk: ping, TCP, UDP, fragments.
mod hosts;
/// Several labs, and labs that come and go.
mod labs;
/// Links that are deaf, lossy or late, and a worker that panics.
mod links;
/// Interfaces that change their names.
mod names;
/// P4TE with TCP of the kernel: groups under load, FACKs, clamps.
mod p4te;
/// What a router says: time exceeded, unreachable, too big.
mod path;
/// PL2 with TCP of the kernel, scheduled by agents in the switch.
mod pl2;
/// PL2 under the load patterns of its evaluation, and the same load without it.
mod pl2_patterns;
/// Capabilities, default routes, control sockets, and frames that are left to the kernel.
mod privileges;
/// Several workers on one switch.
mod queues;
/// Paced links: goodput, queues, tail drops.
mod rate;
/// `weft run` from start to stop, and all that keeps it from starting.
mod run;
/// Frames of every size and in bursts of every length: jumbo frames, MTU edges, VLAN stacks.
mod shapes;
/// `weft show` in both forms.
mod show;
/// VLAN and QinQ tags pass intact.
mod vlan;
