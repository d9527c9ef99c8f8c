use std::net::Ipv4Addr;

use super::checksum;

/// Bytes of a header without options.
pub const MIN_HEADER: usize = 20;

/// Source address of the header at `l3`.
#[inline]
pub fn src(frame: &[u8], l3: usize) -> Ipv4Addr {
    Ipv4Addr::from(be32(frame, l3 + 12))
}

/// Destination address of the header at `l3`.
#[inline]
pub fn dst(frame: &[u8], l3: usize) -> Ipv4Addr {
    Ipv4Addr::from(be32(frame, l3 + 16))
}

#[inline]
fn be32(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

/// Differentiated services code point, 6 bits (RFC 2474, section 3).
#[inline]
pub fn dscp(frame: &[u8], l3: usize) -> u8 {
    frame[l3 + 1] >> 2
}

/// Time to live.
#[inline]
pub fn ttl(frame: &[u8], l3: usize) -> u8 {
    frame[l3 + 8]
}

/// Takes one off the TTL and mends the checksum (RFC 1624, equation 3). The TTL is at least 1.
#[inline]
pub fn decrement_ttl(frame: &mut [u8], l3: usize) {
    let [ttl, _, high, low] = &mut frame[l3 + 8..l3 + 12] else { unreachable!("four bytes") };
    *ttl -= 1;
    // The word of the TTL lost 0x0100, so the checksum gains it; 0xffff is the other form of 0, which
    // a full sum would give here.
    let sum = u32::from(u16::from_be_bytes([*high, *low])) + 0x0100;
    [*high, *low] = ((sum + u32::from(sum >= 0xffff)) as u16).to_be_bytes();
}

/// Sets "congestion experienced" on an ECN-capable packet (RFC 3168, section 5); `false` if it is
/// not ECN-capable and was left alone.
#[inline]
pub fn mark_ce(frame: &mut [u8], l3: usize) -> bool {
    let old = u16::from_be_bytes([frame[l3], frame[l3 + 1]]);
    if old & 3 == 0 {
        return false;
    }
    let new = old | 3;
    frame[l3 + 1] = new as u8;
    update(frame, l3, old, new);
    true
}

#[inline]
fn update(frame: &mut [u8], l3: usize, old: u16, new: u16) {
    let sum = u16::from_be_bytes([frame[l3 + 10], frame[l3 + 11]]);
    frame[l3 + 10..l3 + 12].copy_from_slice(&checksum::update(sum, old, new).to_be_bytes());
}
