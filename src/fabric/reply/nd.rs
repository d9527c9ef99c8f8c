use std::net::Ipv6Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, NdiscNeighborFlags, NdiscOption, NdiscOptionType,
    NdiscRepr,
};

use super::{IPV6_HEADER, is_host_ipv6, start, tags, write_ipv6};
use crate::counters::DropReason;
use crate::frame::Frame;
use crate::wire::parse::PROTO_ICMPV6;
use crate::wire::{Headers, L3, MacAddr, ethernet, ipv6};

/// Bytes of a solicitation or advertisement without options.
const MESSAGE_LEN: usize = 24;
/// Hop limit that proves a message was not routed (RFC 4861, section 3.1).
const ND_HOP_LIMIT: u8 = 255;
/// ff02::1 (RFC 4291, section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Which neighbour discovery message it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourOp {
    /// Asks for the target's link-layer address.
    Solicitation,
    /// Tells the target's link-layer address.
    Advertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: in answer to a solicitation.
        solicited: bool,
        /// O: replaces what the cache holds.
        overrides: bool,
    },
}

/// A neighbour solicitation or advertisement (RFC 4861, sections 4.3 and 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Solicitation or advertisement.
    pub op: NeighbourOp,
    /// Who sent it; unspecified if it is still checking its address for duplicates (RFC 4862).
    pub source: Ipv6Addr,
    /// The address it is about.
    pub target: Ipv6Addr,
    /// The link-layer address option: the source's in a solicitation, the target's in an
    /// advertisement.
    pub mac: Option<MacAddr>,
}

/// Whether the frame carries a neighbour solicitation or advertisement, valid or not.
#[inline]
pub fn is_neighbour_message(frame: &[u8], headers: &Headers) -> bool {
    headers.kind == L3::Ipv6
        && headers.proto == PROTO_ICMPV6
        && headers.l4 != 0
        && headers.l4 < headers.end
        && matches!(
            Icmpv6Message::from(frame[headers.l4 as usize]),
            Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert
        )
}

/// Reads a neighbour solicitation or advertisement.
///
/// # Errors
/// [`DropReason::BadNeighbourMessage`] if it is neither, or not valid by RFC 4861, sections 7.1.1 and
/// 7.1.2: hop limit not 255, wrong checksum, code not 0, under 24 bytes, a multicast target, an
/// option of length 0 or cut short; a solicitation from the unspecified address that is not sent to a
/// solicited-node address or names a link-layer address; a solicited advertisement to a multicast
/// address. Also if it has a fragment header (RFC 6980, section 5), its source is no unicast address, or
/// the link-layer address option does not hold one station's MAC.
pub fn nd_read(frame: &[u8], headers: &Headers) -> Result<Neighbour, DropReason> {
    read(frame, headers).ok_or(DropReason::BadNeighbourMessage)
}

fn read(frame: &[u8], headers: &Headers) -> Option<Neighbour> {
    if headers.fault.is_some() || !is_neighbour_message(frame, headers) {
        return None;
    }
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    if ipv6::hop_limit(frame, l3) != ND_HOP_LIMIT
        || ipv6::extensions(frame, headers).any(|(kind, _)| kind == ipv6::FRAGMENT)
    {
        return None;
    }
    let (source, destination) = (ipv6::src(frame, l3), ipv6::dst(frame, l3));
    let packet = Icmpv6Packet::new_checked(&frame[l4..headers.end as usize]).ok()?;
    if packet.msg_code() != 0 || !packet.verify_checksum(&source, &destination) {
        return None;
    }
    let target = packet.target_addr();
    if target.is_multicast() {
        return None;
    }
    let (op, wanted) = if packet.msg_type() == Icmpv6Message::NeighborSolicit {
        (NeighbourOp::Solicitation, NdiscOptionType::SourceLinkLayerAddr)
    } else {
        let flags = packet.neighbor_flags();
        let op = NeighbourOp::Advertisement {
            router: flags.contains(NdiscNeighborFlags::ROUTER),
            solicited: flags.contains(NdiscNeighborFlags::SOLICITED),
            overrides: flags.contains(NdiscNeighborFlags::OVERRIDE),
        };
        (op, NdiscOptionType::TargetLinkLayerAddr)
    };
    let mac = link_layer_address(packet.payload(), wanted)?;
    let valid = match op {
        NeighbourOp::Solicitation if source.is_unspecified() => is_solicited_node(destination) && mac.is_none(),
        NeighbourOp::Solicitation => is_host_ipv6(source),
        NeighbourOp::Advertisement { solicited, .. } => {
            is_host_ipv6(source) && !(solicited && destination.is_multicast())
        }
    };
    valid.then_some(Neighbour { op, source, target, mac })
}

/// The first option of type `wanted` among `options`; `None` if any option is malformed. Options of
/// other types are skipped (RFC 4861, section 7.1.1), nonces of RFC 7527 among them.
fn link_layer_address(mut options: &[u8], wanted: NdiscOptionType) -> Option<Option<MacAddr>> {
    let mut found = None;
    while !options.is_empty() {
        let length = 8 * usize::from(*options.get(1)?);
        if length == 0 {
            return None;
        }
        let bytes = options.get(..length)?;
        if NdiscOptionType::from(bytes[0]) == wanted && found.is_none() {
            let option = NdiscOption::new_checked(bytes).ok()?;
            let mac = MacAddr(option.link_layer_addr().as_bytes().try_into().ok()?);
            if length != 8 || mac.is_multicast() || mac == MacAddr::default() {
                return None;
            }
            found = Some(mac);
        }
        options = &options[length..];
    }
    Some(found)
}

/// Answers a solicitation for one of our addresses (the caller has checked that) as a router: to its
/// source, flags R, S and O, or, if that is unspecified, to all nodes with R and O, so that whoever is
/// claiming our address finds the duplicate (RFC 4861, section 7.2.4). The frame goes to the MAC that
/// the solicitation names or else came from, with its tags. `false` and `out` unchanged if
/// `solicitation` is none or `out` is too small.
#[must_use]
pub fn neighbour_advertisement(
    frame: &[u8],
    headers: &Headers,
    solicitation: &Neighbour,
    our_mac: MacAddr,
    out: &mut Frame,
) -> bool {
    if solicitation.op != NeighbourOp::Solicitation {
        return false;
    }
    let mut flags = NdiscNeighborFlags::ROUTER | NdiscNeighborFlags::OVERRIDE;
    let (dst, dst_mac) = if solicitation.source.is_unspecified() {
        (ALL_NODES, multicast_mac(ALL_NODES))
    } else {
        flags |= NdiscNeighborFlags::SOLICITED;
        (solicitation.source, solicitation.mac.unwrap_or_else(|| ethernet::src(frame)))
    };
    let message = NdiscRepr::NeighborAdvert {
        flags,
        target_addr: solicitation.target,
        lladdr: Some(EthernetAddress(our_mac.0).into()),
    };
    write(message, (dst_mac, our_mac), solicitation.target, dst, tags(frame, headers), out)
}

/// Asks for the MAC of `target`, by multicast to its solicited-node address (RFC 4861, section 7.2.2).
/// `false` and `out` unchanged if it is too small.
#[must_use]
pub fn neighbour_solicitation(
    our_mac: MacAddr,
    our_ip: Ipv6Addr,
    target: Ipv6Addr,
    tags: &[u8],
    out: &mut Frame,
) -> bool {
    let dst = solicited_node(target);
    let message = NdiscRepr::NeighborSolicit { target_addr: target, lladdr: Some(EthernetAddress(our_mac.0).into()) };
    write(message, (multicast_mac(dst), our_mac), our_ip, dst, tags, out)
}

fn write(
    message: NdiscRepr<'_>,
    addresses: (MacAddr, MacAddr),
    src: Ipv6Addr,
    dst: Ipv6Addr,
    tags: &[u8],
    out: &mut Frame,
) -> bool {
    debug_assert_eq!(message.buffer_len(), MESSAGE_LEN + 8);
    let len = IPV6_HEADER + message.buffer_len();
    let Some(packet) = start(out, addresses, tags, ethernet::ETHERTYPE_IPV6, len) else {
        return false;
    };
    write_ipv6(packet, src, dst, ND_HOP_LIMIT, 0);
    Icmpv6Repr::Ndisc(message).emit(
        &src,
        &dst,
        &mut Icmpv6Packet::new_unchecked(&mut packet[IPV6_HEADER..]),
        &ChecksumCapabilities::default(),
    );
    true
}

/// ff02::1:ffXX:XXXX with the low 24 bits of `address` (RFC 4291, section 2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (low[6] & 0xff), low[7])
}

fn is_solicited_node(address: Ipv6Addr) -> bool {
    address == solicited_node(address)
}

/// 33:33 and the low 32 bits of a multicast address (RFC 2464, section 7).
fn multicast_mac(address: Ipv6Addr) -> MacAddr {
    let low = address.octets();
    MacAddr([0x33, 0x33, low[12], low[13], low[14], low[15]])
}
