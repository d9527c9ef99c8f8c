use std::net::Ipv4Addr;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

use super::start;
use crate::counters::DropReason;
use crate::frame::Frame;
use crate::wire::{Headers, L3, MacAddr, ethernet};

/// Bytes of an ARP packet for IPv4 over Ethernet.
const ARP_LEN: usize = 28;

/// What an ARP packet does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArpOp {
    /// Asks who has the target address.
    Request,
    /// Tells the sender's addresses.
    Reply,
}

/// An ARP packet for IPv4 over Ethernet (RFC 826).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// Request or reply.
    pub op: ArpOp,
    /// Who sent it: one station's address.
    pub sender_mac: MacAddr,
    /// The sender's address; 0.0.0.0 in a probe (RFC 5227, section 1.1).
    pub sender_ip: Ipv4Addr,
    /// Whom it is for; of no meaning in a request.
    pub target_mac: MacAddr,
    /// The address asked for, or that of the receiver.
    pub target_ip: Ipv4Addr,
}

/// Reads an ARP packet.
///
/// # Errors
/// [`DropReason::BadNeighbourMessage`] if the frame is not ARP or cut short; if it is not about IPv4
/// over Ethernet with addresses of 6 and 4 bytes, or is neither request nor reply (RFC 826); or if the
/// sender claims a group or all-zero MAC (RFC 1812, section 3.3.2) or a multicast, broadcast or
/// loopback address.
pub fn arp_read(frame: &[u8], headers: &Headers) -> Result<Arp, DropReason> {
    read(frame, headers).ok_or(DropReason::BadNeighbourMessage)
}

fn read(frame: &[u8], headers: &Headers) -> Option<Arp> {
    if headers.kind != L3::Arp {
        return None;
    }
    let packet = ArpPacket::new_checked(&frame[headers.l3 as usize..]).ok()?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr: sender_ip,
        target_hardware_addr,
        target_protocol_addr: target_ip,
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let op = match operation {
        ArpOperation::Request => ArpOp::Request,
        ArpOperation::Reply => ArpOp::Reply,
        ArpOperation::Unknown(_) => return None,
    };
    let sender_mac = MacAddr(source_hardware_addr.0);
    if sender_mac.is_multicast() || sender_mac == MacAddr::default() {
        return None;
    }
    if sender_ip.is_multicast() || sender_ip.is_broadcast() || sender_ip.is_loopback() {
        return None;
    }
    Some(Arp { op, sender_mac, sender_ip, target_mac: MacAddr(target_hardware_addr.0), target_ip })
}

/// Answers `request` with "`request.target_ip` is at `our_mac`", sent to the MAC that the request
/// names as its sender's (RFC 826), with `tags` as [`super::tags`] gives them. The caller has checked
/// that the target is an address of ours. `false` and `out` unchanged if `request` is no request or
/// `out` is too small.
#[must_use]
pub fn arp_reply(request: &Arp, our_mac: MacAddr, tags: &[u8], out: &mut Frame) -> bool {
    request.op == ArpOp::Request
        && write(
            &Arp {
                op: ArpOp::Reply,
                sender_mac: our_mac,
                sender_ip: request.target_ip,
                target_mac: request.sender_mac,
                target_ip: request.sender_ip,
            },
            request.sender_mac,
            tags,
            out,
        )
}

/// Asks all stations behind `tags` who has `target_ip`. `false` and `out` unchanged if it is too small.
#[must_use]
pub fn arp_request(our_mac: MacAddr, our_ip: Ipv4Addr, target_ip: Ipv4Addr, tags: &[u8], out: &mut Frame) -> bool {
    let request =
        Arp { op: ArpOp::Request, sender_mac: our_mac, sender_ip: our_ip, target_mac: MacAddr::default(), target_ip };
    write(&request, MacAddr::BROADCAST, tags, out)
}

fn write(arp: &Arp, dst: MacAddr, tags: &[u8], out: &mut Frame) -> bool {
    let Some(packet) = start(out, (dst, arp.sender_mac), tags, ethernet::ETHERTYPE_ARP, ARP_LEN) else {
        return false;
    };
    ArpRepr::EthernetIpv4 {
        operation: match arp.op {
            ArpOp::Request => ArpOperation::Request,
            ArpOp::Reply => ArpOperation::Reply,
        },
        source_hardware_addr: EthernetAddress(arp.sender_mac.0),
        source_protocol_addr: arp.sender_ip,
        target_hardware_addr: EthernetAddress(arp.target_mac.0),
        target_protocol_addr: arp.target_ip,
    }
    .emit(&mut ArpPacket::new_unchecked(packet));
    true
}
