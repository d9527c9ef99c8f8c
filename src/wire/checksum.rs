use super::ipv6;
use super::parse::{Headers, L3, PROTO_TCP, PROTO_UDP};

/// Adds `bytes` to a ones-complement sum (RFC 1071), big endian, an odd last byte padded with zero.
#[inline]
pub fn sum(bytes: &[u8], mut acc: u64) -> u64 {
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        acc += u64::from(u32::from_be_bytes(word.try_into().expect("four bytes")));
    }
    let rest = words.remainder();
    let mut last = [0u8; 4];
    last[..rest.len()].copy_from_slice(rest);
    acc + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum into 16 bits.
#[inline]
pub fn fold(mut acc: u64) -> u16 {
    acc = (acc >> 32) + (acc & 0xffff_ffff);
    acc = (acc >> 16) + (acc & 0xffff);
    acc = (acc >> 16) + (acc & 0xffff);
    acc = (acc >> 16) + (acc & 0xffff);
    acc as u16
}

/// The checksum after a 16-bit field changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// The folded pseudo-header sum of the TCP or UDP segment of `len` bytes that `headers` found, not
/// complemented: addresses, protocol, length (RFC 9293 section 3.1, RFC 8200 section 8.1). `None` if
/// a routing header hides where the packet ends up.
#[inline]
fn pseudo_header(frame: &[u8], headers: &Headers, len: usize) -> Option<u16> {
    let l3 = headers.l3 as usize;
    let rest = u64::from(headers.proto) + len as u64;
    if headers.kind == L3::Ipv4 {
        return Some(fold(sum(&frame[l3 + 12..l3 + 20], rest)));
    }
    if headers.l4 as usize == l3 + ipv6::HEADER {
        return Some(fold(sum(&frame[l3 + 8..l3 + 40], rest)));
    }
    let dst = final_destination(frame, headers)?;
    Some(fold(sum(dst, sum(&frame[l3 + 8..l3 + 24], rest))))
}

/// The address an IPv6 packet ends up at, 16 bytes: the header's destination, unless a routing header
/// still has segments to visit. Type 2 (RFC 6275, section 6.4) and the segment routing header (type
/// 4, RFC 8754, section 2) both keep the final destination first in their list; other types are
/// deprecated or compressed, and give `None`.
#[cold]
fn final_destination<'a>(frame: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    let l3 = headers.l3 as usize;
    match ipv6::extensions(frame, headers).find(|(kind, bytes)| *kind == ipv6::ROUTING && bytes[3] > 0) {
        None => Some(&frame[l3 + 24..l3 + 40]),
        Some((_, routing)) if matches!(routing[2], 2 | 4) => routing.get(8..24),
        Some(_) => None,
    }
}

/// Completes a partial TCP or UDP checksum, as a NIC would; `true` if it wrote one.
///
/// A veth hands over frames whose sender left the checksum to the hardware: the field then holds
/// exactly the folded pseudo-header sum. A finished checksum equals it once in 65,536 frames, and
/// then computing it again gives the same value, so no state about offloads is needed.
///
/// Left alone: fragments (finished by their sender), UDP whose length field cannot be, and packets
/// whose sender summed another address than the headers show (IPv4 source routing, a home address
/// option, a routing header of a type that `final_destination` does not read): their field never
/// equals the sum but by chance. With a routing header the final destination is summed, as RFC 8200,
/// section 8.1, asks of the originating node.
#[inline]
pub fn complete_partial(frame: &mut [u8], headers: &Headers) -> bool {
    if headers.fault.is_some() || headers.is_fragment() || headers.l4 == 0 {
        return false;
    }
    let l4 = headers.l4 as usize;
    let available = headers.end as usize - l4;
    let (field, len) = match headers.proto {
        PROTO_TCP if available >= 20 => (l4 + 16, available),
        // UDP covers what its own length says (RFC 768), which may be less than IP carries.
        PROTO_UDP if available >= 8 => (l4 + 6, usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]))),
        _ => return false,
    };
    if len > available || len < 8 {
        return false;
    }
    let Some(pseudo) = pseudo_header(frame, headers, len) else {
        return false;
    };
    if frame[field..field + 2] != pseudo.to_be_bytes() {
        return false;
    }
    // The field still holds the pseudo-header sum, so summing the segment counts it in.
    let mut complete = !fold(sum(&frame[l4..l4 + len], 0));
    if complete == 0 && headers.proto == PROTO_UDP {
        complete = 0xffff; // 0 means "no checksum" (RFC 768)
    }
    frame[field..field + 2].copy_from_slice(&complete.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incremental_update_equals_a_full_sum() {
        for (old, new) in [(0x4011, 0x3f11), (0x0001, 0x0000), (0x0100, 0xffff), (0xffff, 0x0000)] {
            let mut header = [0x45, 0, 0, 0x54, 0x12, 0x34, 0x40, 0, 0, 0, 0, 0, 10, 0, 0, 2, 10, 0, 1, 2];
            header[8..10].copy_from_slice(&u16::to_be_bytes(old));
            let before = !fold(sum(&header, 0));
            header[8..10].copy_from_slice(&u16::to_be_bytes(new));
            let after = !fold(sum(&header, 0));
            assert_eq!(update(before, old, new), after, "{old:04x} -> {new:04x}");
        }
    }

    #[test]
    fn an_odd_length_is_padded_with_zero() {
        assert_eq!(fold(sum(&[1, 2, 3], 0)), fold(sum(&[1, 2, 3, 0], 0)));
        assert_eq!(fold(sum(&[1, 2, 3, 4, 5], 0)), 0x0102 + 0x0304 + 0x0500);
    }
}
