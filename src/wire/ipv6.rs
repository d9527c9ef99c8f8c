use std::net::Ipv6Addr;

use super::parse::Headers;

/// Bytes of the fixed header.
pub const HEADER: usize = 40;

/// Next-header value of the hop-by-hop options header.
pub const HOP_BY_HOP: u8 = 0;
/// Next-header value of the routing header.
pub const ROUTING: u8 = 43;
/// Next-header value of the fragment header.
pub const FRAGMENT: u8 = 44;
/// Next-header value of the authentication header.
pub const AUTHENTICATION: u8 = 51;
/// Next-header value of "nothing follows".
pub const NO_NEXT_HEADER: u8 = 59;
/// Next-header value of the destination options header.
pub const DESTINATION_OPTIONS: u8 = 60;
/// Next-header value of the mobility header (RFC 6275).
pub const MOBILITY: u8 = 135;
/// Next-header value of the host identity protocol (RFC 7401).
pub const HIP: u8 = 139;
/// Next-header value of shim6 (RFC 5533).
pub const SHIM6: u8 = 140;

/// Extension headers followed before giving up on finding the transport header. A router need not
/// find it (RFC 7045): past the limit the packet is forwarded without its ports in the hash.
pub const MAX_EXTENSIONS: usize = 8;

/// Shortest extension header, in bytes; every extension header states its length within these.
pub const MIN_EXTENSION: usize = 8;

#[inline]
fn address(frame: &[u8], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = frame[at..at + 16].try_into().expect("sixteen bytes");
    Ipv6Addr::from(octets)
}

/// Source address of the header at `l3`.
#[inline]
pub fn src(frame: &[u8], l3: usize) -> Ipv6Addr {
    address(frame, l3 + 8)
}

/// Destination address of the header at `l3`.
#[inline]
pub fn dst(frame: &[u8], l3: usize) -> Ipv6Addr {
    address(frame, l3 + 24)
}

/// Differentiated services code point, 6 bits (RFC 2474, section 3).
#[inline]
pub fn dscp(frame: &[u8], l3: usize) -> u8 {
    (frame[l3] & 0xf) << 2 | frame[l3 + 1] >> 6
}

/// Hop limit.
#[inline]
pub fn hop_limit(frame: &[u8], l3: usize) -> u8 {
    frame[l3 + 7]
}

/// Takes one off the hop limit, which is at least 1.
#[inline]
pub fn decrement_hop_limit(frame: &mut [u8], l3: usize) {
    frame[l3 + 7] -= 1;
}

/// Sets "congestion experienced" on an ECN-capable packet; `false` if it is not and was left alone.
#[inline]
pub fn mark_ce(frame: &mut [u8], l3: usize) -> bool {
    // Traffic class straddles the first two bytes; ECN is bits 5 and 4 of the second.
    if frame[l3 + 1] & 0x30 == 0 {
        return false;
    }
    frame[l3 + 1] |= 0x30;
    true
}

/// Whether `kind` is an extension header whose length is known (IANA "IPv6 Extension Header Types",
/// less ESP, behind which all is encrypted, and the two experimental values).
#[inline]
pub fn is_extension(kind: u8) -> bool {
    matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6)
}

/// Bytes of an extension header of type `kind` whose second byte is `length`, 8 to 2,048.
#[inline]
pub fn extension_len(kind: u8, length: u8) -> usize {
    match kind {
        FRAGMENT => MIN_EXTENSION, // the second byte is reserved (RFC 8200, section 4.5)
        AUTHENTICATION => (usize::from(length) + 2) * 4, // RFC 4302, section 2.2
        _ => (usize::from(length) + 1) * 8,
    }
}

/// The extension headers of an IPv6 packet without fault, as (type, bytes), outermost first. It ends
/// where [`parse`](super::parse()) stops looking: after [`MAX_EXTENSIONS`], at a header that reaches
/// past the packet, and behind the fragment header of a later fragment.
pub fn extensions<'a>(frame: &'a [u8], headers: &Headers) -> impl Iterator<Item = (u8, &'a [u8])> {
    let l3 = headers.l3 as usize;
    let mut rest = &frame[l3 + HEADER..headers.end as usize];
    let mut kind = frame[l3 + 6];
    let mut later_fragment = false;
    std::iter::from_fn(move || {
        if later_fragment || !is_extension(kind) || rest.len() < MIN_EXTENSION {
            return None;
        }
        let this = (kind, rest.get(..extension_len(kind, rest[1]))?);
        later_fragment = kind == FRAGMENT && u16::from_be_bytes([rest[2], rest[3]]) & 0xfff8 != 0;
        kind = rest[0];
        rest = &rest[this.1.len()..];
        Some(this)
    })
    .take(MAX_EXTENSIONS)
}
