use crate::pisa::FlowHash;
use crate::wire::{Headers, L3, ipv6, tcp};

/// Which way a segment goes, seen from the flow it is looked at for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Direction {
    /// From the flow's sender: data.
    Forward,
    /// From the flow's receiver: acknowledgments.
    Reverse,
}

/// Whether a segment belongs to a flow that has a key: it is a whole TCP segment, and no IPv6 extension header
/// comes before TCP: by a routing header or a home address the ends are others than the header shows.
#[inline]
pub(super) fn has_key(frame: &[u8], headers: &Headers) -> bool {
    let is_direct = headers.kind == L3::Ipv4 || headers.l4 as usize == headers.l3 as usize + ipv6::HEADER;
    is_direct && tcp::is_whole(frame, headers)
}

/// The key of the flow that a segment belongs to: the flow hash of its data. A [`Direction::Reverse`] segment gets
/// the same one. VLAN tags do not count.
///
/// `None` if it is not a whole TCP segment, or IPv6 extension headers come before TCP.
#[inline]
pub fn flow_key(hash: &FlowHash, frame: &[u8], headers: &Headers, direction: Direction) -> Option<u64> {
    has_key(frame, headers).then(|| match direction {
        Direction::Forward => hash.packet(frame, headers),
        Direction::Reverse => hash.answer(frame, headers),
    })
}
