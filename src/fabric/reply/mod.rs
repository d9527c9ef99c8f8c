//! Slow-path messages: what a switch says in its own name.
//!
//! - `arp_read`, `arp_reply`, `arp_request`: RFC 826.
//! - `nd_read`, `neighbour_advertisement`, `neighbour_solicitation`: RFC 4861, section 7.
//! - `icmp_error` and the one place for its rules, `may_answer_with_error`: RFC 1812, section
//!   4.3.2, and RFC 4443, section 2.4; `RateLimit` bounds how many are sent.
//! - `echo_reply`: ping to the switch's own addresses.
//!
//! Headers and messages are read and written with smoltcp's `wire`; only the Ethernet header and
//! what is quoted verbatim is not. Everything is sans-IO: a function reads the frame that caused the
//! message and fills a frame that the caller took from its pool. Common to all of them:
//!
//! - The VLAN tags of the frame replied to are kept, priorities included (`tags`); the caller
//!   chooses the egress port and may rewrite the MAC addresses (`ethernet::set_addresses`).
//! - What is written is at least `ethernet::MIN_FRAME` bytes, padded with zeros, and its checksums
//!   are complete.
//! - A message that is not to be sent, or does not fit the frame's chunk, leaves the frame as it was.

mod arp;
mod echo;
mod error;
mod nd;
mod rate;

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr};

use crate::frame::Frame;
use crate::wire::{Headers, MacAddr, ethernet};

pub use arp::{Arp, ArpOp, arp_read, arp_reply, arp_request};
pub use echo::echo_reply;
pub use error::{IcmpError, icmp_error, may_answer_with_error};
pub use nd::{Neighbour, NeighbourOp, is_neighbour_message, nd_read, neighbour_advertisement, neighbour_solicitation};
pub use rate::RateLimit;

/// Hop limit and TTL of what the switch sends, except neighbour discovery.
const HOP_LIMIT: u8 = 64;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// The VLAN tags of a frame as they stand in it: 4 bytes each (TPID, TCI), outermost first; empty if
/// it has none. Behind a tag of another kind ([`crate::wire::parse_behind()`]) with that one before them.
#[inline]
pub fn tags<'a>(frame: &'a [u8], headers: &Headers) -> &'a [u8] {
    &frame[12..headers.l3 as usize - 2]
}

/// Starts a frame with addresses, tags (as [`tags`] gives them) and EtherType, and gives the
/// `len` zero bytes after them. `None` and `out` unchanged if that does not fit.
fn start<'a>(
    out: &'a mut Frame,
    (dst, src): (MacAddr, MacAddr),
    tags: &[u8],
    ethertype: u16,
    len: usize,
) -> Option<&'a mut [u8]> {
    let l3 = ethernet::HEADER_LEN + tags.len();
    let total = (l3 + len).max(ethernet::MIN_FRAME);
    if total > out.capacity() {
        return None;
    }
    out.set_len(total);
    // The chunk holds an earlier frame's bytes: padding and reserved fields must not show them.
    out[l3..].fill(0);
    ethernet::set_addresses(out, dst, src);
    out[12..l3 - 2].copy_from_slice(tags);
    out[l3 - 2..l3].copy_from_slice(&ethertype.to_be_bytes());
    Some(&mut out[l3..l3 + len])
}

/// Writes an IPv4 header without options, DF set and identification 0: an atomic datagram (RFC 6864,
/// section 4.1), with `tos` as its type-of-service octet. The payload is what follows in `packet`.
fn write_ipv4(packet: &mut [u8], src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, tos: u8) {
    let payload_len = packet.len() - IPV4_HEADER;
    let mut header = Ipv4Packet::new_unchecked(packet);
    Ipv4Repr { src_addr: src, dst_addr: dst, next_header: protocol, payload_len, hop_limit: HOP_LIMIT }
        .emit(&mut header, &ChecksumCapabilities::ignored());
    header.set_dscp(tos >> 2);
    header.set_ecn(tos & 3);
    header.fill_checksum();
}

/// Writes an IPv6 header with `traffic_class`. The payload is what follows in `packet`.
fn write_ipv6(packet: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, traffic_class: u8) {
    let payload_len = packet.len() - IPV6_HEADER;
    let mut header = Ipv6Packet::new_unchecked(packet);
    Ipv6Repr { src_addr: src, dst_addr: dst, next_header: IpProtocol::Icmpv6, payload_len, hop_limit }
        .emit(&mut header);
    header.set_traffic_class(traffic_class);
}

/// Whether an IPv4 source is one host's: not "this network", loopback, multicast, reserved or
/// broadcast (RFC 1812, section 5.3.7). A directed broadcast looks like a host from here.
fn is_host_ipv4(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// Whether an IPv6 source is one node's (RFC 4443, section 2.4, rule e.6) and may come off a wire.
fn is_host_ipv6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
}
