//! Messages that a CAFT switch makes itself: the packet of a flow turned round, without what it carries. The
//! one that names a core to the flow's aggregation switch (outbound, no metrics) and the one that takes
//! metrics back to the flow's ToR (inbound) differ in their tag alone.
//!
//! Only the addresses are exchanged, not the ports: exchanged once more they give the flow, which no packet
//! of the other direction does.

use super::{START, Tag, len};
use crate::wire::ethernet::{self, HEADER_LEN, MIN_FRAME};
use crate::wire::parse::{Headers, L3, PROTO_TCP};
use crate::wire::{MacAddr, checksum, ipv4, ipv6, tcp};

/// Bytes of the largest message (IPv6) without its tag.
pub const MAX_UNTAGGED_MESSAGE: usize = HEADER_LEN + ipv6::HEADER + tcp::MIN_HEADER;
/// Bytes of the largest message.
pub const MAX_MESSAGE: usize = MAX_UNTAGGED_MESSAGE + super::MAX_LEN;

/// TTL or hop limit of a message. What the packet has left says how far it has come, not how far back it is.
const HOP_LIMIT: u8 = 64;

/// Exchanges source and destination of an IP packet without fault; leaves any other frame as it is. Checksums
/// that were right stay so: a sum has no order.
#[inline]
pub fn swap_addresses(frame: &mut [u8], headers: &Headers) {
    let l3 = headers.l3 as usize;
    match (headers.kind, headers.fault) {
        (L3::Ipv4, None) => exchange(&mut frame[l3 + 12..l3 + 20]),
        (L3::Ipv6, None) => exchange(&mut frame[l3 + 8..l3 + 40]),
        _ => {}
    }
}

/// Exchanges the halves.
#[inline]
fn exchange(addresses: &mut [u8]) {
    let (source, destination) = addresses.split_at_mut(addresses.len() / 2);
    source.swap_with_slice(destination);
}

/// Writes a message about the flow of `packet` to the start of `out` and gives its length, 60 to
/// [`MAX_MESSAGE`] bytes.
///
/// `macs` are its destination and source. `headers` are those of `packet`, a TCP segment, which may stand
/// behind a tag. Of its headers all stays but for the exchanged addresses, TTL or hop limit (64), lengths and
/// checksums, which are right whether or not they were; VLAN tags, IPv4 options, IPv6 extension headers, TCP
/// options and data are left out. `None`, and nothing written, if `packet` is no TCP segment with its whole
/// header ([`tcp::is_whole`]) or `out` is too small.
#[inline]
pub fn emit_message(
    out: &mut [u8],
    (dst, src): (MacAddr, MacAddr),
    tpid: u16,
    tag: &Tag,
    packet: &[u8],
    headers: &Headers,
) -> Option<usize> {
    if !tcp::is_whole(packet, headers) {
        return None;
    }
    let (ethertype, ip_len) = match headers.kind {
        L3::Ipv4 => (ethernet::ETHERTYPE_IPV4, ipv4::MIN_HEADER),
        _ => (ethernet::ETHERTYPE_IPV6, ipv6::HEADER),
    };
    let l3 = HEADER_LEN + len(tag.metrics.len());
    let end = l3 + ip_len + tcp::MIN_HEADER;
    let frame = out.get_mut(..end.max(MIN_FRAME))?;

    ethernet::set_addresses(frame, dst, src);
    tag.emit(tpid, &mut frame[START..l3 - 2]);
    frame[l3 - 2..l3].copy_from_slice(&ethertype.to_be_bytes());
    frame[end..].fill(0);
    let (ip, segment) = frame[l3..end].split_at_mut(ip_len);
    let (old_l3, old_l4) = (headers.l3 as usize, headers.l4 as usize);
    ip.copy_from_slice(&packet[old_l3..old_l3 + ip_len]);
    segment.copy_from_slice(&packet[old_l4..old_l4 + tcp::MIN_HEADER]);
    let addresses = if headers.kind == L3::Ipv4 { finish_ipv4(ip) } else { finish_ipv6(ip) };
    exchange(addresses);
    finish_tcp(segment, addresses);
    Some(frame.len())
}

/// Makes the header one of a message, but for its addresses, which it gives.
fn finish_ipv4(ip: &mut [u8]) -> &mut [u8] {
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((ipv4::MIN_HEADER + tcp::MIN_HEADER) as u16).to_be_bytes());
    ip[8] = HOP_LIMIT;
    ip[10..12].fill(0);
    let sum = !checksum::fold(checksum::sum(ip, 0));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    &mut ip[12..20]
}

/// As [`finish_ipv4`]; the next header may have been an extension header.
fn finish_ipv6(ip: &mut [u8]) -> &mut [u8] {
    ip[4..6].copy_from_slice(&(tcp::MIN_HEADER as u16).to_be_bytes());
    ip[6] = PROTO_TCP;
    ip[7] = HOP_LIMIT;
    &mut ip[8..40]
}

fn finish_tcp(segment: &mut [u8], addresses: &[u8]) {
    // Beside the data offset stand reserved bits and a flag (NS of RFC 3540, now AE).
    segment[12] = (tcp::MIN_HEADER as u8 / 4) << 4 | segment[12] & 0xf;
    segment[16..18].fill(0);
    let sum = tcp::checksum(addresses, segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
}
