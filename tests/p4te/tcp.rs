//! TCP segments: made by etherparse, read and their checksums verified by smoltcp.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::IpAddr;

use etherparse::PacketBuilder;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket};

use crate::packets::Ends;
use crate::rig::set_tos;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// A segment to make.
#[derive(Clone, Default)]
pub struct Segment {
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub len: usize,
    pub tos: u8,
}

impl Segment {
    pub fn bytes(&self, ends: Ends) -> Vec<u8> {
        let link = PacketBuilder::ethernet2(ends.src_mac.0, ends.dst_mac.0);
        let ip = match (ends.src, ends.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => link.ipv4(src.octets(), dst.octets(), 64),
            (IpAddr::V6(src), IpAddr::V6(dst)) => link.ipv6(src.octets(), dst.octets(), 64),
            mixed => panic!("one IP version a packet: {mixed:?}"),
        };
        let (from, to) = self.ports;
        let mut tcp = ip.tcp(from, to, self.seq, self.window).options_raw(&self.options).expect("options");
        tcp = if self.flags & SYN != 0 { tcp.syn() } else { tcp };
        tcp = if self.flags & FIN != 0 { tcp.fin() } else { tcp };
        tcp = if self.flags & RST != 0 { tcp.rst() } else { tcp };
        tcp = if self.flags & ACK != 0 { tcp.ack(self.ack) } else { tcp };
        let mut frame = vec![];
        tcp.write(&mut frame, &vec![0x5a; self.len]).expect("written to memory");
        frame.resize(frame.len().max(60), 0);
        set_tos(&mut frame, self.tos);
        frame
    }
}

/// A segment as its receiver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub len: usize,
    pub tos: u8,
    pub ttl: u8,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
}

/// What a host makes of a frame; `None` if it is no TCP.
///
/// # Panics
/// If a checksum is wrong.
pub fn read(frame: &[u8]) -> Option<Got> {
    let (got, is_right) = parse(frame)?;
    assert!(is_right, "TCP checksum of {got:?}");
    Some(got)
}

/// The same, and whether its TCP checksum is right.
pub fn parse(frame: &[u8]) -> Option<(Got, bool)> {
    let packet = &frame[14..];
    let (src, dst, segment, tos, ttl): (smoltcp::wire::IpAddress, smoltcp::wire::IpAddress, _, _, _) =
        match packet[0] >> 4 {
            4 => {
                let ip = Ipv4Packet::new_checked(packet).ok()?;
                assert!(ip.verify_checksum(), "IPv4 header checksum");
                if ip.next_header() != IpProtocol::Tcp || ip.more_frags() || ip.frag_offset() > 0 {
                    return None;
                }
                let end = usize::from(ip.total_len());
                (ip.src_addr().into(), ip.dst_addr().into(), packet[20..end].to_vec(), packet[1], ip.hop_limit())
            }
            _ => {
                let ip = Ipv6Packet::new_checked(packet).ok()?;
                if ip.next_header() != IpProtocol::Tcp {
                    return None;
                }
                let end = 40 + usize::from(ip.payload_len());
                let tos = ip.traffic_class();
                (ip.src_addr().into(), ip.dst_addr().into(), packet[40..end].to_vec(), tos, ip.hop_limit())
            }
        };
    let tcp = TcpPacket::new_checked(&segment[..]).expect("a TCP segment");
    let timestamps = (segment.len() >= 32 && segment[20..24] == [1, 1, 8, 10])
        .then(|| [24, 28].map(|at| u32::from_be_bytes(segment[at..at + 4].try_into().expect("four bytes"))));
    let got = Got {
        ports: (tcp.src_port(), tcp.dst_port()),
        seq: tcp.seq_number().0 as u32,
        ack: tcp.ack_number().0 as u32,
        flags: segment[13],
        window: tcp.window_len(),
        len: tcp.payload().len(),
        tos,
        ttl,
        timestamps: timestamps.map(|[value, echo]| (value, echo)),
    };
    Some((got, tcp.verify_checksum(&src, &dst)))
}
