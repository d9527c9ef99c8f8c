//! Segments of a few connections, made and checked by another implementation (etherparse).

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use weft::scheme::p4te::rate::Direction;
use weft::wire::{Headers, parse};

pub const SYN: u8 = 2;
pub const FIN: u8 = 1;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
/// Where the TCP header is, in IPv4.
pub const L4: usize = 34;

/// A segment of connection `flow`; odd ones are IPv6.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub flow: u16,
    /// From the receiver of the flow's data.
    pub reverse: bool,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub len: usize,
}

impl Segment {
    pub fn bytes(&self) -> Vec<u8> {
        let (host, peer) = (self.flow as u8, 0x80 | self.flow as u8);
        let (src, dst) = if self.reverse { (peer, host) } else { (host, peer) };
        let (from, to) = (40000 + self.flow, 5201);
        let (from, to) = if self.reverse { (to, from) } else { (from, to) };
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, src], [2, 0, 0, 0, 0, 0x70]);
        let v6 = |id| [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, id];
        let ip = if self.flow % 2 == 1 {
            link.ipv6(v6(src), v6(dst), 64)
        } else {
            link.ipv4([10, 0, 0, src], [10, 0, 0, dst], 64)
        };
        let mut tcp = ip.tcp(from, to, self.seq, self.window).options_raw(&self.options).expect("options");
        for (flag, set) in [(SYN, "syn"), (FIN, "fin"), (RST, "rst")] {
            tcp = match set {
                _ if self.flags & flag == 0 => tcp,
                "syn" => tcp.syn(),
                "fin" => tcp.fin(),
                _ => tcp.rst(),
            };
        }
        if self.flags & ACK != 0 {
            tcp = tcp.ack(self.ack);
        }
        let mut frame = vec![];
        tcp.write(&mut frame, &vec![0x5a; self.len]).expect("written to memory");
        // Padding is no payload.
        frame.resize(frame.len().max(60), 0xaa);
        frame
    }

    pub fn direction(&self) -> Direction {
        if self.reverse { Direction::Reverse } else { Direction::Forward }
    }
}

pub fn headers(frame: &[u8]) -> Headers {
    parse(frame).expect("an Ethernet frame")
}

/// The window of a segment, its checksum verified.
pub fn window(frame: &[u8]) -> u16 {
    let packet = SlicedPacket::from_ethernet(frame).expect("a well-formed frame");
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("no TCP") };
    let (sum, payload) = match packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let payload = &ip.payload().payload[tcp.header_slice().len()..];
            (tcp.to_header().calc_checksum_ipv4(&ip.header().to_header(), payload), payload)
        }
        Some(NetSlice::Ipv6(ip)) => {
            let payload = &ip.payload().payload[tcp.header_slice().len()..];
            (tcp.to_header().calc_checksum_ipv6(&ip.header().to_header(), payload), payload)
        }
        other => panic!("no IP: {other:?}"),
    };
    assert_eq!(Ok(tcp.checksum()), sum, "TCP checksum over {} bytes of data", payload.len());
    tcp.window_size()
}

/// Window scale option.
pub fn scale(shift: u8) -> Vec<u8> {
    vec![1, 3, 3, shift]
}

/// Timestamps option.
pub fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}
