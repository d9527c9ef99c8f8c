//! Addresses that a router does not forward for.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::counters::DropReason;

/// What the first octet says about an IPv4 address, one bit a property.
const NEVER_SOURCE: u8 = 1;
const NEVER_DESTINATION: u8 = 2;
const MULTICAST: u8 = 4;
const PERHAPS_LINK_LOCAL: u8 = 8;

/// Addresses a router never forwards for, by first octet (RFC 1812 section 5.3.7, RFC 6890).
const FIRST_OCTETS: [u8; 256] = {
    let mut octets = [0; 256];
    octets[0] = NEVER_SOURCE | NEVER_DESTINATION;
    octets[127] = NEVER_SOURCE | NEVER_DESTINATION;
    octets[169] = PERHAPS_LINK_LOCAL;
    let mut high = 224;
    while high < 256 {
        octets[high] = NEVER_SOURCE | if high < 240 { MULTICAST } else { NEVER_DESTINATION };
        high += 1;
    }
    octets
};

/// Why a router does not forward from `source` to `destination`, if so.
#[inline]
pub(super) fn martian_v4(source: Ipv4Addr, destination: Ipv4Addr) -> Option<DropReason> {
    let of = |a: Ipv4Addr| FIRST_OCTETS[usize::from(a.octets()[0])];
    let (s, d) = (of(source), of(destination));
    if s | d == 0 {
        return None;
    }
    match () {
        () if s & NEVER_SOURCE != 0 || source.is_link_local() => Some(DropReason::MartianSource),
        () if d & NEVER_DESTINATION != 0 || destination.is_link_local() => Some(DropReason::MartianDestination),
        () if d & MULTICAST != 0 => Some(DropReason::MulticastNotRouted),
        () => None,
    }
}

/// The same for IPv6 (RFC 4291 section 2.5, RFC 4007).
#[inline]
pub(super) fn martian_v6(source: Ipv6Addr, destination: Ipv6Addr) -> Option<DropReason> {
    let local = |a: Ipv6Addr| a.is_unspecified() || a.is_loopback() || a.is_unicast_link_local();
    if source.is_multicast() || local(source) {
        return Some(DropReason::MartianSource);
    }
    if destination.is_multicast() {
        return Some(DropReason::MulticastNotRouted);
    }
    local(destination).then_some(DropReason::MartianDestination)
}
