use crate::pisa::FlowHash;
use crate::wire::{Headers, L3, ipv4, ipv6, tcp};

/// Which way a segment goes, seen from the flow it is looked at for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Direction {
    /// From the flow's sender: data.
    Forward,
    /// From the flow's receiver: acknowledgments.
    Reverse,
}

#[inline]
fn be64(frame: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(frame[at..at + 8].try_into().expect("eight bytes"))
}

/// The key of the flow that a segment belongs to: a hash of addresses and ports as they stand in the
/// flow's data. A [`Direction::Reverse`] segment has them the other way round and gets the same key. VLAN
/// tags do not count.
///
/// `None` if it is not a whole TCP segment, or IPv6 extension headers come before TCP: by a routing
/// header or a home address the ends are others than the header shows.
#[inline]
pub fn flow_key(hash: &FlowHash, frame: &[u8], headers: &Headers, direction: Direction) -> Option<u64> {
    if !tcp::is_whole(frame, headers) {
        return None;
    }
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    let ports = u32::from_be_bytes(frame[l4..l4 + 4].try_into().expect("four bytes"));
    let ordered = |src: u64, dst: u64| match direction {
        Direction::Forward => (src, dst, u64::from(ports)),
        Direction::Reverse => (dst, src, u64::from(ports.rotate_left(16))),
    };
    match headers.kind {
        L3::Ipv4 => {
            let address = |address: std::net::Ipv4Addr| u64::from(address.to_bits());
            let (src, dst, ports) = ordered(address(ipv4::src(frame, l3)), address(ipv4::dst(frame, l3)));
            Some(hash.words(src << 32 | dst, 4 << 32 | ports))
        }
        L3::Ipv6 if l4 == l3 + ipv6::HEADER => {
            let address = |at| hash.words(be64(frame, at), be64(frame, at + 8));
            let (src, dst, ports) = ordered(address(l3 + 8), address(l3 + 24));
            Some(hash.words(hash.words(src, dst), 6 << 32 | ports))
        }
        _ => None,
    }
}
