use std::net::Ipv6Addr;

/// Bytes of the fixed header.
pub const HEADER: usize = 40;

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
