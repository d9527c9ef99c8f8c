use std::net::IpAddr;

use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4TimeExceeded, Icmpv6DstUnreachable, Icmpv6Message,
    Icmpv6Packet, Icmpv6TimeExceeded, IpProtocol,
};

use super::{HOP_LIMIT, IPV4_HEADER, IPV6_HEADER, is_host_ipv4, is_host_ipv6, start, tags, write_ipv4, write_ipv6};
use crate::frame::Frame;
use crate::wire::parse::{PROTO_ICMP, PROTO_ICMPV6};
use crate::wire::{Headers, L3, ethernet, ipv4, ipv6};

/// Bytes of an ICMP or ICMPv6 error before what it quotes.
const ICMP_HEADER: usize = 8;
/// Longest ICMPv4 error (RFC 1812, section 4.3.2.3).
const MAX_IPV4: usize = 576;
/// Longest ICMPv6 error: the minimum MTU (RFC 4443, section 2.4, rule c).
const MAX_IPV6: usize = 1280;
/// Type of service of an ICMPv4 error: precedence 6, internetwork control (RFC 1812, section 4.3.2.5).
const ERROR_TOS: u8 = 0xc0;

/// Why a packet could not be forwarded, as its source is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    /// Its TTL or hop limit ran out: time exceeded in transit.
    HopLimitExceeded,
    /// No route: network unreachable (code 0), ICMPv6 no route to destination (code 0).
    NoRoute,
    /// No such neighbour: host unreachable (code 1), ICMPv6 address unreachable (code 3).
    HostUnreachable,
    /// UDP to an address of the switch itself, where nothing listens: port unreachable (codes 3 and 4).
    PortUnreachable,
    /// Over the next hop's MTU: fragmentation needed and DF set (code 4, RFC 1191), ICMPv6 packet too
    /// big.
    TooBig {
        /// The next hop's MTU in bytes of IP packet.
        mtu: u16,
    },
}

/// Whether the sender of a packet may be told by an ICMP error that it failed: the one place for the
/// rules of RFC 1812, section 4.3.2.7, and RFC 4443, section 2.4 (e). Never about
///
/// - what is not IP, or has a bad IP header;
/// - an ICMP or ICMPv6 error or redirect, and an ICMP message of which that can't be told (its type
///   is cut off or unknown for IPv4; the extension headers could not be followed for IPv6);
/// - a fragment that does not start its datagram (IPv4: the rule; IPv6: none forbids it, but the
///   first fragment fares alike and shows the ports);
/// - a packet to a multicast or broadcast address of either layer. RFC 4443 excepts packet too big,
///   which can't arise here because multicast is not routed;
/// - a packet whose source is not one host: unspecified, loopback, multicast, reserved.
///
/// Broadcast addresses of subnets and martian sources by configuration are the caller's to know.
pub fn may_answer_with_error(frame: &[u8], headers: &Headers) -> bool {
    if headers.fault.is_some()
        || headers.is_later_fragment()
        || ethernet::dst(frame).is_multicast()
        || ethernet::src(frame).is_multicast()
    {
        return false;
    }
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    let icmp_type = (l4 != 0 && l4 < headers.end as usize).then(|| frame[l4]);
    match headers.kind {
        L3::Ipv4 => {
            let dst = ipv4::dst(frame, l3);
            is_host_ipv4(ipv4::src(frame, l3))
                && !dst.is_multicast()
                && !dst.is_broadcast()
                && (headers.proto != PROTO_ICMP || icmp_type.is_some_and(is_icmpv4_query))
        }
        L3::Ipv6 => {
            is_host_ipv6(ipv6::src(frame, l3))
                && !ipv6::dst(frame, l3).is_multicast()
                && !ipv6::is_extension(headers.proto)
                && (headers.proto != PROTO_ICMPV6 || icmp_type.is_some_and(is_icmpv6_information))
        }
        L3::Arp | L3::Other => false,
    }
}

/// Echo, timestamp, information, address mask, router discovery (RFC 1812, section 4.3.1), extended
/// echo (RFC 8335). Types not listed may be errors of a later standard.
fn is_icmpv4_query(icmp_type: u8) -> bool {
    matches!(icmp_type, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43)
}

/// Types from 128 are informational (RFC 4443, section 2.1), less redirect, which rule e.2 excludes.
fn is_icmpv6_information(icmp_type: u8) -> bool {
    icmp_type >= 128 && Icmpv6Message::from(icmp_type) != Icmpv6Message::Redirect
}

/// Writes the ICMP or ICMPv6 error `kind` about `frame` from `our_ip` to the packet's source, TTL 64,
/// quoting as much of the packet as fits 576 bytes (RFC 1812, section 4.3.2.3) or 1,280 bytes (RFC
/// 4443, section 2.4), Ethernet padding left out. The frame goes back to the MAC it came from, in the
/// name of the MAC it was sent to, with its tags.
///
/// `false` and `out` unchanged if [`may_answer_with_error`] forbids it, `our_ip` is of the other IP
/// version, or `out` is too small. The caller asks its [`RateLimit`](super::RateLimit) first.
#[must_use]
pub fn icmp_error(kind: IcmpError, frame: &[u8], headers: &Headers, our_ip: IpAddr, out: &mut Frame) -> bool {
    if !may_answer_with_error(frame, headers) {
        return false;
    }
    let l3 = headers.l3 as usize;
    let cause = &frame[l3..headers.end as usize];
    let addresses = (ethernet::src(frame), ethernet::dst(frame));
    let tags = tags(frame, headers);
    match (headers.kind, our_ip) {
        (L3::Ipv4, IpAddr::V4(our_ip)) => {
            let quote = &cause[..cause.len().min(MAX_IPV4 - IPV4_HEADER - ICMP_HEADER)];
            let len = IPV4_HEADER + ICMP_HEADER + quote.len();
            let Some(packet) = start(out, addresses, tags, ethernet::ETHERTYPE_IPV4, len) else {
                return false;
            };
            write_ipv4(packet, our_ip, ipv4::src(frame, l3), IpProtocol::Icmp, ERROR_TOS);
            write_icmpv4(kind, quote, &mut packet[IPV4_HEADER..]);
            true
        }
        (L3::Ipv6, IpAddr::V6(our_ip)) => {
            let quote = &cause[..cause.len().min(MAX_IPV6 - IPV6_HEADER - ICMP_HEADER)];
            let len = IPV6_HEADER + ICMP_HEADER + quote.len();
            let Some(packet) = start(out, addresses, tags, ethernet::ETHERTYPE_IPV6, len) else {
                return false;
            };
            let dst = ipv6::src(frame, l3);
            write_ipv6(packet, our_ip, dst, HOP_LIMIT, 0);
            let message = write_icmpv6(kind, quote, &mut packet[IPV6_HEADER..]);
            Icmpv6Packet::new_unchecked(message).fill_checksum(&our_ip, &dst);
            true
        }
        _ => false,
    }
}

fn write_icmpv4(kind: IcmpError, quote: &[u8], message: &mut [u8]) {
    let (message_type, code) = match kind {
        IcmpError::HopLimitExceeded => (Icmpv4Message::TimeExceeded, Icmpv4TimeExceeded::TtlExpired.into()),
        IcmpError::NoRoute => (Icmpv4Message::DstUnreachable, Icmpv4DstUnreachable::NetUnreachable.into()),
        IcmpError::HostUnreachable => (Icmpv4Message::DstUnreachable, Icmpv4DstUnreachable::HostUnreachable.into()),
        IcmpError::PortUnreachable => (Icmpv4Message::DstUnreachable, Icmpv4DstUnreachable::PortUnreachable.into()),
        IcmpError::TooBig { .. } => (Icmpv4Message::DstUnreachable, Icmpv4DstUnreachable::FragRequired.into()),
    };
    if let IcmpError::TooBig { mtu } = kind {
        message[6..8].copy_from_slice(&mtu.to_be_bytes()); // RFC 1191, section 4
    }
    // smoltcp's Repr would write the quoted header anew, without options and identification.
    message[ICMP_HEADER..].copy_from_slice(quote);
    let mut packet = Icmpv4Packet::new_unchecked(message);
    packet.set_msg_type(message_type);
    packet.set_msg_code(code);
    packet.fill_checksum();
}

/// Writes all but the checksum and gives `message` back.
fn write_icmpv6<'a>(kind: IcmpError, quote: &[u8], message: &'a mut [u8]) -> &'a mut [u8] {
    message[ICMP_HEADER..].copy_from_slice(quote);
    let mut packet = Icmpv6Packet::new_unchecked(message);
    let (message_type, code) = match kind {
        IcmpError::HopLimitExceeded => (Icmpv6Message::TimeExceeded, Icmpv6TimeExceeded::HopLimitExceeded.into()),
        IcmpError::NoRoute => (Icmpv6Message::DstUnreachable, Icmpv6DstUnreachable::NoRoute.into()),
        IcmpError::HostUnreachable => (Icmpv6Message::DstUnreachable, Icmpv6DstUnreachable::AddrUnreachable.into()),
        IcmpError::PortUnreachable => (Icmpv6Message::DstUnreachable, Icmpv6DstUnreachable::PortUnreachable.into()),
        IcmpError::TooBig { .. } => (Icmpv6Message::PktTooBig, 0),
    };
    packet.set_msg_type(message_type);
    packet.set_msg_code(code);
    if let IcmpError::TooBig { mtu } = kind {
        packet.set_pkt_too_big_mtu(mtu.into());
    }
    packet.into_inner()
}
