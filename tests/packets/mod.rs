//! Packets as tests write and read them, made and checked by another implementation (etherparse).
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, Ethernet2Header, NetSlice, PacketBuilder, PacketBuilderStep, SlicedPacket,
    TransportSlice,
};
use weft::wire::MacAddr;
use weft::wire::ethernet::{self, MIN_FRAME};

/// The four addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub src_mac: MacAddr,
    pub dst_mac: MacAddr,
    pub src: IpAddr,
    pub dst: IpAddr,
}

/// Source, destination and TTL or hop limit, as etherparse starts a packet with them.
fn start(ends: Ends, ttl: u8) -> PacketBuilderStep<etherparse::IpHeaders> {
    let link: PacketBuilderStep<Ethernet2Header> = PacketBuilder::ethernet2(ends.src_mac.0, ends.dst_mac.0);
    match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => link.ipv4(src.octets(), dst.octets(), ttl),
        (IpAddr::V6(src), IpAddr::V6(dst)) => link.ipv6(src.octets(), dst.octets(), ttl),
        mixed => panic!("one IP version a packet: {mixed:?}"),
    }
}

/// A UDP packet, padded to the shortest frame.
pub fn udp(ends: Ends, ttl: u8, (from, to): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let builder = start(ends, ttl).udp(from, to);
    let mut frame = Vec::with_capacity(builder.size(payload.len()).max(MIN_FRAME));
    builder.write(&mut frame, payload).expect("written to memory");
    padded(frame)
}

/// A ping, or its answer.
pub fn echo(ends: Ends, ttl: u8, reply: bool, sequence: u16, payload: &[u8]) -> Vec<u8> {
    const ID: u16 = 0x77;
    let ip = start(ends, ttl);
    let builder = match (ends.src, reply) {
        (IpAddr::V4(_), false) => return finish(ip.icmpv4_echo_request(ID, sequence), payload),
        (IpAddr::V4(_), true) => return finish(ip.icmpv4_echo_reply(ID, sequence), payload),
        (IpAddr::V6(_), false) => ip.icmpv6_echo_request(ID, sequence),
        (IpAddr::V6(_), true) => ip.icmpv6_echo_reply(ID, sequence),
    };
    let mut frame = vec![];
    builder.write(&mut frame, payload).expect("written to memory");
    padded(frame)
}

fn finish(builder: PacketBuilderStep<etherparse::Icmpv4Header>, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![];
    builder.write(&mut frame, payload).expect("written to memory");
    padded(frame)
}

/// An ARP packet: from station to station, `dst_mac` on the wire.
pub fn arp(
    reply: bool,
    sender: (MacAddr, Ipv4Addr),
    target: (MacAddr, Ipv4Addr),
    dst_mac: MacAddr,
    tags: &[[u8; 4]],
) -> Vec<u8> {
    let packet = ArpEthIpv4Packet {
        operation: if reply { ArpOperation::REPLY } else { ArpOperation::REQUEST },
        sender_mac: sender.0.0,
        sender_ipv4: sender.1.octets(),
        target_mac: target.0.0,
        target_ipv4: target.1.octets(),
    };
    let mut frame = vec![];
    let builder = PacketBuilder::ethernet2(sender.0.0, dst_mac.0).arp(packet.into());
    builder.write(&mut frame).expect("written to memory");
    padded(tagged(&frame, tags))
}

/// What a neighbour discovery message is about.
pub struct Nd {
    pub ends: Ends,
    pub target: Ipv6Addr,
    /// The link-layer address option.
    pub mac: Option<MacAddr>,
    /// An advertisement's R, S and O bits; none makes it a solicitation.
    pub flags: Option<u8>,
}

/// R, S and O of an advertisement.
pub const ROUTER: u8 = 0x80;
/// See [`ROUTER`].
pub const SOLICITED: u8 = 0x40;
/// See [`ROUTER`].
pub const OVERRIDE: u8 = 0x20;

/// A neighbour solicitation or advertisement (RFC 4861, sections 4.3 and 4.4).
pub fn nd(message: &Nd) -> Vec<u8> {
    let (kind, option) = if message.flags.is_none() { (135, 1) } else { (136, 2) };
    let mut payload = message.target.octets().to_vec();
    if let Some(mac) = message.mac {
        payload.extend([option, 1]);
        payload.extend(mac.0);
    }
    let builder = start(message.ends, 255).icmpv6_raw(kind, 0, [message.flags.unwrap_or(0), 0, 0, 0]);
    let mut frame = vec![];
    builder.write(&mut frame, &payload).expect("written to memory");
    frame
}

/// The group that a solicitation for `address` goes to, with its MAC (RFC 4291 2.7.1, RFC 2464 7).
pub fn solicited_node(address: Ipv6Addr) -> (Ipv6Addr, MacAddr) {
    let [.., a, b, c] = address.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    (group, MacAddr([0x33, 0x33, 0xff, a, b, c]))
}

/// A solicitation as its sender multicasts it.
pub fn solicitation(from: (MacAddr, Ipv6Addr), target: Ipv6Addr) -> Vec<u8> {
    let (dst, dst_mac) = solicited_node(target);
    let ends = Ends { src_mac: from.0, dst_mac, src: from.1.into(), dst: dst.into() };
    nd(&Nd { ends, target, mac: Some(from.0), flags: None })
}

/// The answer to a solicitation, from a node that is (`router`) or is not a router.
pub fn advertisement(from: (MacAddr, Ipv6Addr), to: (MacAddr, Ipv6Addr), router: bool) -> Vec<u8> {
    let ends = Ends { src_mac: from.0, dst_mac: to.0, src: from.1.into(), dst: to.1.into() };
    let flags = SOLICITED | OVERRIDE | if router { ROUTER } else { 0 };
    nd(&Nd { ends, target: from.1, mac: Some(from.0), flags: Some(flags) })
}

/// `frame` with `tags` (TPID, TCI) put in front of its EtherType.
pub fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

/// `frame` at its shortest length on a wire.
pub fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(MIN_FRAME), 0);
    frame
}

/// Where the network header starts.
pub fn l3(frame: &[u8]) -> usize {
    let mut at = 12;
    while ethernet::is_tag(u16::from_be_bytes([frame[at], frame[at + 1]])) {
        at += 4;
    }
    at + 2
}

/// Sets the header checksum of the IPv4 packet at `l3` anew.
pub fn mend_ipv4(frame: &mut [u8], l3: usize) {
    let header = usize::from(frame[l3] & 0xf) * 4;
    frame[l3 + 10..l3 + 12].fill(0);
    let sum = Sum16BitWords::new().add_slice(&frame[l3..l3 + header]).ones_complement();
    frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_ne_bytes());
}

/// What one router makes of `frame`: new addresses, one hop less, a valid checksum, all else as it was.
pub fn routed(frame: &[u8], src_mac: MacAddr, dst_mac: MacAddr) -> Vec<u8> {
    let mut out = frame.to_vec();
    out[..6].copy_from_slice(&dst_mac.0);
    out[6..12].copy_from_slice(&src_mac.0);
    let l3 = l3(&out);
    if out[l3] >> 4 == 4 {
        out[l3 + 8] -= 1;
        mend_ipv4(&mut out, l3);
    } else {
        out[l3 + 7] -= 1;
    }
    out
}

/// An ICMP or ICMPv6 message as its receiver sees it, checksums verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icmp {
    pub ends: Ends,
    pub ttl: u8,
    pub kind: u8,
    pub code: u8,
    /// Bytes 4 to 7: what they mean depends on the type.
    pub word: u32,
    /// What follows: payload or quoted packet.
    pub rest: Vec<u8>,
}

/// Reads an ICMP or ICMPv6 message; `None` if `frame` is something else.
///
/// # Panics
/// If the packet is malformed or a checksum is wrong.
pub fn icmp(frame: &[u8]) -> Option<Icmp> {
    let packet = SlicedPacket::from_ethernet(frame).expect("a well-formed frame");
    let (src, dst, ttl, message): (IpAddr, IpAddr, u8, &[u8]) = match (&packet.net, &packet.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "IPv4 checksum");
            assert_eq!(Sum16BitWords::new().add_slice(icmp.slice()).ones_complement(), 0, "ICMP checksum");
            (header.source.into(), header.destination.into(), header.time_to_live, icmp.slice())
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
            let header = ip.header();
            assert!(icmp.is_checksum_valid(header.source(), header.destination()), "ICMPv6 checksum");
            (header.source().into(), header.destination().into(), header.hop_limit(), icmp.slice())
        }
        _ => return None,
    };
    Some(Icmp {
        ends: Ends { src_mac: ethernet::src(frame), dst_mac: ethernet::dst(frame), src, dst },
        ttl,
        kind: message[0],
        code: message[1],
        word: u32::from_be_bytes([message[4], message[5], message[6], message[7]]),
        rest: message[8..].to_vec(),
    })
}

/// The IP packet in `frame`, without padding.
pub fn ip_packet(frame: &[u8]) -> &[u8] {
    let packet = &frame[l3(frame)..];
    let length = u16::from_be_bytes([packet[2], packet[3]]).into();
    let length_v6 = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    if packet[0] >> 4 == 4 { &packet[..length] } else { &packet[..length_v6] }
}
