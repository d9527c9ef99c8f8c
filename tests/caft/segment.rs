//! The packets of the tests: TCP segments of a flow between two hosts of the fat tree, and what may stand around them.

use std::net::IpAddr;

use weft::topo::address;
use weft::wire::MacAddr;

use crate::packets::{self, Ends};

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;

/// Pod, ToR and last octet of a host.
pub type Place = (u8, u8, u8);

/// A TCP connection, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub from: Place,
    pub to: Place,
    pub ports: (u16, u16),
    pub v6: bool,
}

/// Both IP versions of a flow.
pub fn both(from: Place, to: Place) -> [Flow; 2] {
    [false, true].map(|v6| Flow { from, to, ports: (40_000, 80), v6 })
}

impl Flow {
    fn address(self, (pod, tor, octet): Place) -> IpAddr {
        match self.v6 {
            false => address::segment_v4(pod, tor, octet).addr().into(),
            true => address::segment_v6(pod, tor, octet).addr().into(),
        }
    }

    /// The same between other ports.
    pub fn port(self, port: u16) -> Flow {
        Flow { ports: (port, 80), ..self }
    }

    /// What the other end sends.
    pub fn back(self) -> Flow {
        Flow { from: self.to, to: self.from, ports: (self.ports.1, self.ports.0), ..self }
    }

    /// Of its packets, without link addresses.
    pub fn ends(self) -> Ends {
        let none = MacAddr([0; 6]);
        Ends { src_mac: none, dst_mac: none, src: self.address(self.from), dst: self.address(self.to) }
    }

    /// A SYN without options, TTL 64.
    pub fn syn(self) -> Vec<u8> {
        self.segment(SYN, &[], 0, 64)
    }

    /// A segment with data.
    pub fn data(self, len: usize) -> Vec<u8> {
        self.segment(ACK, &[], len, 64)
    }

    pub fn segment(self, flags: u8, options: &[u8], len: usize, ttl: u8) -> Vec<u8> {
        segment(self.ends(), self.ports, flags, options, len, ttl)
    }

    /// M1 and M2 without tag and link addresses: addresses the other way round, ports not, nothing behind the header.
    pub fn message(self, flags: u8) -> Vec<u8> {
        let there = self.ends();
        segment(Ends { src: there.dst, dst: there.src, ..there }, self.ports, flags, &[], 0, 64)
    }
}

/// A TCP segment.
pub fn segment(ends: Ends, (from, to): (u16, u16), flags: u8, options: &[u8], len: usize, ttl: u8) -> Vec<u8> {
    let link = etherparse::PacketBuilder::ethernet2(ends.src_mac.0, ends.dst_mac.0);
    let ip = match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => link.ipv4(src.octets(), dst.octets(), ttl),
        (IpAddr::V6(src), IpAddr::V6(dst)) => link.ipv6(src.octets(), dst.octets(), ttl),
        mixed => panic!("one IP version a packet: {mixed:?}"),
    };
    let tcp = ip.tcp(from, to, 0x1234_5678, 60_000).options_raw(options).expect("options");
    let tcp = if flags & SYN != 0 { tcp.syn() } else { tcp };
    let tcp = if flags & ACK != 0 { tcp.ack(1) } else { tcp };
    let mut frame = vec![];
    tcp.write(&mut frame, &vec![0x5a; len]).expect("written to memory");
    packets::padded(frame)
}

/// `frame` with other link addresses.
pub fn with_macs(frame: &[u8], dst: MacAddr, src: MacAddr) -> Vec<u8> {
    [&dst.0, &src.0, &frame[12..]].concat()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("a byte");
    digits.chunks(2).map(byte).collect()
}

/// `frame` with a tag, in hexadecimal digits, behind its addresses.
pub fn with_tag(frame: &[u8], tag: &str) -> Vec<u8> {
    [&frame[..12], &bytes(tag), &frame[12..]].concat()
}

/// Takes a frame apart: its tag in hexadecimal digits (empty without one), and the frame without it and without
/// padding.
///
/// # Panics
/// If it is shorter than Ethernet allows.
pub fn apart(frame: &[u8]) -> (String, Vec<u8>) {
    assert!(frame.len() >= 60, "{} bytes", frame.len());
    let len = if frame[12..14] == [0x88, 0xb5] { 3 + usize::from(frame[14] & 0x7f).div_ceil(2) } else { 0 };
    let plain = [&frame[..12], &frame[12 + len..]].concat();
    (write(&frame[12..12 + len]), trimmed(&plain))
}

/// As the paper's example writes it: TPID, TF and NoC, then a byte for each two metrics.
fn write(tag: &[u8]) -> String {
    let Some((tpid, rest)) = tag.split_at_checked(2) else { return String::new() };
    let rest: String = rest.iter().map(|byte| format!(" {byte:02x}")).collect();
    format!("{:02x}{:02x}{rest}", tpid[0], tpid[1])
}

/// `frame` without padding.
pub fn trimmed(frame: &[u8]) -> Vec<u8> {
    let ip = matches!(frame.get(packets::l3(frame)).map(|b| b >> 4), Some(4 | 6));
    let end = if ip { packets::l3(frame) + packets::ip_packet(frame).len() } else { frame.len() };
    frame[..end].to_vec()
}

/// IPv4 with options, IPv6 with a destination options header: four and eight bytes of padding.
pub fn with_options(frame: &[u8], v6: bool) -> Vec<u8> {
    let frame = trimmed(frame);
    let mut out = match v6 {
        false => [&frame[..34], &[1, 1, 1, 0], &frame[34..]].concat(),
        true => [&frame[..54], &[6, 0, 1, 4, 0, 0, 0, 0], &frame[54..]].concat(),
    };
    if v6 {
        out[20] = 60;
        let len = (out.len() - 54) as u16;
        out[18..20].copy_from_slice(&len.to_be_bytes());
    } else {
        out[14] = 0x46;
        let len = (out.len() - 14) as u16;
        out[16..18].copy_from_slice(&len.to_be_bytes());
        packets::mend_ipv4(&mut out, 14);
    }
    packets::padded(out)
}

/// A fragment: the first of more, or a later one, as its offset (in 8 bytes) says. `more` of IPv6 with offset 0 false
/// makes an atomic one.
pub fn with_fragment(frame: &[u8], v6: bool, offset: u16, more: bool) -> Vec<u8> {
    let mut out = trimmed(frame);
    if v6 {
        let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
        out.splice(54..54, [6, 0, high, low, 0, 0, 0, 9]);
        out[20] = 44;
        let len = (out.len() - 54) as u16;
        out[18..20].copy_from_slice(&len.to_be_bytes());
    } else {
        out[20..22].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
        packets::mend_ipv4(&mut out, 14);
    }
    packets::padded(out)
}
