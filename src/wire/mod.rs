//! Headers on the wire.
//!
//! The packet path has its own small parser (`parse`): one pass, no allocation, and after it no
//! accessor can panic, because `Headers` only holds offsets that were checked against the frame.
//! Slow-path messages (ARP, ND, ICMP) are read and written with smoltcp's `wire` in `fabric::reply`.
//!
//! Contract of every accessor here: offsets come from a `Headers` that `parse` returned for the
//! same frame, and the fields it needs lie before `headers.end`.

pub mod caft;
/// Internet checksums: full, incremental, and completion of partial ones.
pub mod checksum;
/// MAC addresses and the Ethernet header's fields.
pub mod ethernet;
pub mod hello;
pub mod hula;
/// IPv4 header fields and rewriting.
pub mod ipv4;
/// IPv6 header fields and rewriting.
pub mod ipv6;
/// The packet-path parser.
pub mod parse;
pub mod pl2;
/// TCP header fields, options and rewriting.
pub mod tcp;

pub use ethernet::MacAddr;
pub use parse::{Headers, L3, parse, parse_behind, parse_into};
