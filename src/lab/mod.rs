//! A whole fabric on this machine: every host and every switch in a network namespace of its own,
//! veths for links, one background process for all switches.

pub mod net;
