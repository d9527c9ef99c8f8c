use std::net::IpAddr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr};

use crate::port::xdp::LiveLayout;
use crate::wire::ethernet::{self, HEADER_LEN, TAG_LEN};
use crate::wire::parse::PROTO_UDP;
use crate::wire::{MacAddr, checksum};

use super::TrafficError;
use super::probe::{PROBE_LEN, Probe};

/// Source ports that flows take in turn: 1024 to 65535. The next [`PORTS`] flows come from the next
/// source address.
pub const PORTS: u32 = 65_536 - PORT_MIN;
const PORT_MIN: u32 = 1024;
const UDP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;

/// What the frames of a run have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameSpec {
    /// Source MAC.
    pub src_mac: MacAddr,
    /// Destination MAC.
    pub dst_mac: MacAddr,
    /// VLAN ids, outermost first: the last is an 802.1Q tag, those before it are 802.1ad tags.
    pub vlans: Vec<u16>,
    /// Source address of the first [`PORTS`] flows; its last 32 bits count up beyond them.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// UDP destination port.
    pub dst_port: u16,
    /// Frame bytes without FCS.
    pub size: usize,
    /// Number of the run.
    pub run: u16,
    /// Picks the source port of flow 0 and the bytes behind the probe.
    pub seed: u64,
}

/// The tags of `vlans` as they stand in a frame, 4 bytes each.
pub fn tag_bytes(vlans: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(vlans.len() * TAG_LEN);
    for (i, vid) in vlans.iter().enumerate() {
        let last = i + 1 == vlans.len();
        let tpid = if last { ethernet::ETHERTYPE_VLAN } else { ethernet::ETHERTYPE_QINQ };
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(vid.to_be_bytes());
    }
    bytes
}

/// Word `n` of the sequence that `seed` makes (SplitMix64: Steele et al., OOPSLA 2014, section 5).
fn noise(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One frame, and how to make it any frame of the run: each differs only in source port, the last
/// 32 bits of the source address, the probe, and the checksums over them. Those are computed from
/// sums over everything else that are taken once.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    udp: usize,
    /// Where the last 32 bits of the source address are, and their value for flow 0.
    address: usize,
    first_address: u32,
    /// Where the IPv4 header is.
    ipv4: Option<usize>,
    first_port: u32,
    run: u16,
    /// Sum of what the UDP checksum covers, all that varies taken as zero.
    udp_base: u64,
    /// The same for the IPv4 header.
    ipv4_base: u64,
}

impl Template {
    /// The shortest frame that has room for a probe.
    pub fn min_size(vlans: usize, ipv6: bool) -> usize {
        let headers = HEADER_LEN + vlans * TAG_LEN + if ipv6 { 40 } else { 20 } + UDP_HEADER;
        (headers + PROBE_LEN).max(ethernet::MIN_FRAME)
    }

    /// The frames of `spec`.
    ///
    /// # Errors
    /// The size has no room for the headers, or the addresses are of two families.
    pub fn new(spec: &FrameSpec) -> Result<Template, TrafficError> {
        let ipv6 = spec.dst.is_ipv6();
        let min = Template::min_size(spec.vlans.len(), ipv6);
        if spec.size < min {
            return Err(TrafficError::Impossible(format!(
                "frames of {} bytes have no room for headers and probe: use --size {min} or more",
                spec.size
            )));
        }
        let l3 = HEADER_LEN + spec.vlans.len() * TAG_LEN;
        let mut bytes = vec![0; spec.size];
        ethernet::set_addresses(&mut bytes, spec.dst_mac, spec.src_mac);
        bytes[12..l3 - 2].copy_from_slice(&tag_bytes(&spec.vlans));
        let ethertype = if ipv6 { ethernet::ETHERTYPE_IPV6 } else { ethernet::ETHERTYPE_IPV4 };
        bytes[l3 - 2..l3].copy_from_slice(&ethertype.to_be_bytes());
        let (udp, address) = match (spec.src, spec.dst) {
            (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
                let payload_len = spec.size - l3 - 20;
                let header =
                    Ipv4Repr { src_addr, dst_addr, next_header: IpProtocol::Udp, payload_len, hop_limit: HOP_LIMIT };
                header.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[l3..]), &ChecksumCapabilities::ignored());
                (l3 + 20, l3 + 12)
            }
            (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
                let payload_len = spec.size - l3 - 40;
                let header =
                    Ipv6Repr { src_addr, dst_addr, next_header: IpProtocol::Udp, payload_len, hop_limit: HOP_LIMIT };
                header.emit(&mut Ipv6Packet::new_unchecked(&mut bytes[l3..]));
                (l3 + 40, l3 + 20)
            }
            (src, dst) => {
                return Err(TrafficError::Impossible(format!(
                    "{src} can't send to {dst}: give --src-ip and --dst-ip of one family"
                )));
            }
        };
        let len = (spec.size - udp) as u16;
        bytes[udp + 2..udp + 4].copy_from_slice(&spec.dst_port.to_be_bytes());
        bytes[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
        for (i, chunk) in bytes[udp + UDP_HEADER + PROBE_LEN..].chunks_mut(8).enumerate() {
            let noise = noise(spec.seed, i as u64 + 1).to_be_bytes();
            chunk.copy_from_slice(&noise[..chunk.len()]);
        }
        let first_address = u32::from_be_bytes(bytes[address..address + 4].try_into().expect("four bytes"));
        bytes[address..address + 4].fill(0);
        let addresses = if ipv6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
        let pseudo = checksum::sum(&bytes[addresses], u64::from(PROTO_UDP) + u64::from(len));
        let mut template = Template {
            udp,
            address,
            first_address,
            ipv4: (!ipv6).then_some(l3),
            first_port: (noise(spec.seed, 0) % u64::from(PORTS)) as u32,
            run: spec.run,
            udp_base: checksum::sum(&bytes[udp..], pseudo),
            ipv4_base: if ipv6 { 0 } else { checksum::sum(&bytes[l3..l3 + 20], 0) },
            bytes,
        };
        // Whole as it stands: a frame of flow 0, number 0.
        let mut first = std::mem::take(&mut template.bytes);
        template.stamp(&mut first, &Probe { run: spec.run, flow: 0, sequence: 0, time: 0 }, 0);
        template.bytes = first;
        Ok(template)
    }

    /// A whole frame; copies of it become frames of the run by [`Template::stamp`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of the run.
    pub fn run(&self) -> u16 {
        self.run
    }

    /// Writes `probe`, and addresses and checksums as frames of flow `flow` have them, into a copy of
    /// [`Template::bytes`] (or what an earlier stamp made of it).
    #[inline]
    pub fn stamp(&self, frame: &mut [u8], probe: &Probe, flow: u32) {
        let port = PORT_MIN + (self.first_port + flow % PORTS) % PORTS;
        let address = self.first_address.wrapping_add(flow / PORTS);
        frame[self.address..self.address + 4].copy_from_slice(&address.to_be_bytes());
        if let Some(l3) = self.ipv4 {
            let sum = !checksum::fold(self.ipv4_base + u64::from(address));
            frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let segment = &mut frame[self.udp..];
        segment[..2].copy_from_slice(&(port as u16).to_be_bytes());
        let payload = segment[UDP_HEADER..].first_chunk_mut().expect("the template has room for a probe");
        probe.write(payload);
        let varying = u64::from(address) + u64::from(port);
        let sum = match !checksum::fold(checksum::sum(payload, self.udp_base + varying)) {
            0 => 0xffff, // 0 means "none" (RFC 768)
            sum => sum,
        };
        segment[6..8].copy_from_slice(&sum.to_be_bytes());
    }

    /// What the kernel must know to stamp frames of `flows` flows, at most [`PORTS`], itself.
    pub fn live_layout(&self, flows: u32) -> LiveLayout {
        let mut probe = [0; PROBE_LEN];
        Probe { run: self.run, flow: 0, sequence: 0, time: 0 }.write(&mut probe);
        let fixed = self.udp_base + u64::from(self.first_address);
        let base = checksum::fold(checksum::sum(&probe, fixed));
        LiveLayout { udp: self.udp, base, flows, first_port: self.first_port }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;
    use crate::wire::{L3, parse};
    use proptest::prelude::*;

    fn spec(ipv6: bool, vlans: Vec<u16>, size: usize) -> FrameSpec {
        let (src, dst) = if ipv6 { ("fd00::ffff:ffff", "fd01::9") } else { ("10.0.0.255", "10.1.0.9") };
        FrameSpec {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            dst_port: 7,
            size,
            run: 0x1234,
            seed: 5,
        }
    }

    proptest! {
        /// etherparse is the oracle: it computes both checksums from the parsed frame.
        #[test]
        fn every_frame_of_a_run_is_whole_and_says_what_it_is(
            ipv6: bool, vlans in prop::collection::vec(1u16..4095, 0..3), extra in 0usize..1400,
            frames in prop::collection::vec((0u32..1_000_000, 0u64..1 << 40, any::<u64>()), 1..8),
        ) {
            let size = Template::min_size(vlans.len(), ipv6) + extra;
            let template = Template::new(&spec(ipv6, vlans.clone(), size)).unwrap();
            let mut frame = template.bytes().to_vec();
            for (flow, sequence, now) in frames {
                let probe = Probe::new(0x1234, flow, sequence, Instant(now));
                template.stamp(&mut frame, &probe, flow);
                let headers = parse(&frame).unwrap();
                prop_assert_eq!(headers.fault, None);
                prop_assert_eq!(headers.kind, if ipv6 { L3::Ipv6 } else { L3::Ipv4 });
                prop_assert_eq!(usize::from(headers.l3), ethernet::HEADER_LEN + vlans.len() * ethernet::TAG_LEN);
                prop_assert_eq!(headers.end as usize, size);
                let sliced = etherparse::PacketHeaders::from_ethernet_slice(&frame).unwrap();
                let udp = sliced.transport.clone().unwrap().udp().unwrap();
                let computed = match sliced.net.clone().unwrap() {
                    etherparse::NetHeaders::Ipv4(ip, _) => {
                        prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                        prop_assert_eq!(u32::from_be_bytes(ip.source), 0x0a00_00ff + flow / PORTS);
                        udp.calc_checksum_ipv4(&ip, sliced.payload.slice()).unwrap()
                    }
                    etherparse::NetHeaders::Ipv6(ip, _) => udp.calc_checksum_ipv6(&ip, sliced.payload.slice()).unwrap(),
                    other => panic!("{other:?}"),
                };
                prop_assert_eq!(udp.checksum, computed);
                prop_assert_eq!(Probe::read(sliced.payload.slice()), Some(probe));
            }
        }
    }

    #[test]
    fn no_two_flows_share_addresses_and_ports() {
        let template = Template::new(&spec(false, vec![], 60)).unwrap();
        let mut frame = template.bytes().to_vec();
        let mut seen = std::collections::HashSet::new();
        for flow in 0..3 * PORTS {
            template.stamp(&mut frame, &Probe::new(0, flow, 0, Instant(0)), flow);
            assert!(seen.insert([&frame[26..30], &frame[34..36]].concat()), "flow {flow}");
        }
    }

    #[test]
    fn a_size_without_room_names_the_least_that_has() {
        for (ipv6, vlans, min) in [(false, 0, 60), (false, 2, 68), (true, 0, 80), (true, 1, 84)] {
            let refused = Template::new(&spec(ipv6, vec![5; vlans], min - 1)).unwrap_err().to_string();
            assert!(refused.contains(&format!("--size {min} ")), "{refused}");
            assert!(Template::new(&spec(ipv6, vec![5; vlans], min)).is_ok());
        }
        let mixed = FrameSpec { src: "fd00::1".parse().unwrap(), ..spec(false, vec![], 60) };
        assert!(Template::new(&mixed).unwrap_err().to_string().contains("one family"));
    }
}
