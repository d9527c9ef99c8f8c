use std::net::IpAddr;

use smoltcp::wire::{Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, IpProtocol};

use super::{HOP_LIMIT, IPV4_HEADER, IPV6_HEADER, is_host_ipv4, is_host_ipv6, start, tags, write_ipv4, write_ipv6};
use crate::counters::DropReason;
use crate::frame::Frame;
use crate::wire::parse::{PROTO_ICMP, PROTO_ICMPV6};
use crate::wire::{Headers, L3, MacAddr, ethernet, ipv4, ipv6};

/// Answers a ping to the switch itself from `our_ip` (the request's destination, unless that is a
/// multicast group: RFC 4443, section 4.2) with identifier, sequence number and payload as they came
/// (RFC 792; RFC 1122, section 3.2.2.6), DSCP reflected, TTL 64, without IPv4 options or extension
/// headers. The frame goes back to the MAC it came from, with its tags. The caller has checked that
/// the destination is ours.
///
/// # Errors
/// - [`DropReason::NoListener`]: not an echo request, of the other IP version than `our_ip`, or a
///   fragment (the switch does not reassemble).
/// - [`DropReason::MartianSource`]: no host to answer to.
/// - [`DropReason::BadIcmpChecksum`]: also if a routing header still has hops to visit, because the
///   checksum is then over another destination.
/// - [`DropReason::NoFrame`]: `out` is too small.
///
/// On error `out` is unchanged.
pub fn echo_reply(
    frame: &[u8],
    headers: &Headers,
    our_mac: MacAddr,
    our_ip: IpAddr,
    out: &mut Frame,
) -> Result<(), DropReason> {
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    if headers.fault.is_some() || headers.is_fragment() || l4 == 0 {
        return Err(DropReason::NoListener);
    }
    let request = &frame[l4..headers.end as usize];
    let addresses = (ethernet::src(frame), our_mac);
    let tags = tags(frame, headers);
    match (headers.kind, headers.proto, our_ip) {
        (L3::Ipv4, PROTO_ICMP, IpAddr::V4(our_ip)) => {
            let packet = Icmpv4Packet::new_checked(request).map_err(|_| DropReason::NoListener)?;
            if packet.msg_type() != Icmpv4Message::EchoRequest || packet.msg_code() != 0 {
                return Err(DropReason::NoListener);
            }
            let dst = ipv4::src(frame, l3);
            if !is_host_ipv4(dst) {
                return Err(DropReason::MartianSource);
            }
            if !packet.verify_checksum() {
                return Err(DropReason::BadIcmpChecksum);
            }
            let len = IPV4_HEADER + request.len();
            let reply = start(out, addresses, tags, ethernet::ETHERTYPE_IPV4, len).ok_or(DropReason::NoFrame)?;
            // The ECN bits are the network's, not the sender's (RFC 3168): only the DSCP is reflected.
            write_ipv4(reply, our_ip, dst, IpProtocol::Icmp, frame[l3 + 1] & !3);
            let message = &mut reply[IPV4_HEADER..];
            message.copy_from_slice(request);
            let mut message = Icmpv4Packet::new_unchecked(message);
            message.set_msg_type(Icmpv4Message::EchoReply);
            message.fill_checksum();
        }
        (L3::Ipv6, PROTO_ICMPV6, IpAddr::V6(our_ip)) => {
            let packet = Icmpv6Packet::new_checked(request).map_err(|_| DropReason::NoListener)?;
            if packet.msg_type() != Icmpv6Message::EchoRequest || packet.msg_code() != 0 {
                return Err(DropReason::NoListener);
            }
            let dst = ipv6::src(frame, l3);
            if !is_host_ipv6(dst) {
                return Err(DropReason::MartianSource);
            }
            if !packet.verify_checksum(&dst, &ipv6::dst(frame, l3)) {
                return Err(DropReason::BadIcmpChecksum);
            }
            let len = IPV6_HEADER + request.len();
            let reply = start(out, addresses, tags, ethernet::ETHERTYPE_IPV6, len).ok_or(DropReason::NoFrame)?;
            let traffic_class = (frame[l3] << 4 | frame[l3 + 1] >> 4) & !3;
            write_ipv6(reply, our_ip, dst, HOP_LIMIT, traffic_class);
            let message = &mut reply[IPV6_HEADER..];
            message.copy_from_slice(request);
            let mut message = Icmpv6Packet::new_unchecked(message);
            message.set_msg_type(Icmpv6Message::EchoReply);
            message.fill_checksum(&our_ip, &dst);
        }
        _ => return Err(DropReason::NoListener),
    }
    Ok(())
}
