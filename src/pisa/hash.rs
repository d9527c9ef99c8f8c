use crate::wire::{Headers, L3};

/// Seeded 64-bit hash of a packet's flow, by multiplying and folding 128-bit products.
///
/// Hashed are source and destination address, protocol, and source and destination port where the
/// protocol has them. Fragments (first ones too) are hashed by their addresses alone, so that all
/// fragments of a datagram take one path: only the first has ports, and in IPv6 it may also be the
/// only one that shows the transport protocol ([`Headers::proto`]). Not hashed: VLAN tags, IPv6 flow label, DSCP. Different seeds give
/// independent hashes, so tiers with their own seeds do not polarise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHash {
    seed: u64,
}

// Odd constants with about half their bits set: the first digits of the golden ratio, e and pi.
const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xb7e1_5162_8aed_2a6b;
const K2: u64 = 0x2438_6a88_85a3_08d3;

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[inline]
fn be64(frame: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(frame[at..at + 8].try_into().expect("eight bytes"))
}

/// Ports and protocol; nothing of a fragment, first ones too.
#[inline]
fn transport(headers: &Headers, ports: u32) -> u64 {
    if headers.is_fragment() { 0 } else { u64::from(ports) << 8 | u64::from(headers.proto) }
}

impl FlowHash {
    /// A hash with its own seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds (switch numbers) must not give neighbouring keys.
        FlowHash { seed: mix(seed ^ K1, K0).wrapping_add(seed) }
    }

    /// Hash of the flow of an IP packet whose headers have no fault; of the Ethernet addresses
    /// otherwise.
    #[inline(always)]
    pub fn packet(&self, frame: &[u8], headers: &Headers) -> u64 {
        let l3 = headers.l3 as usize;
        let addresses = match (headers.kind, headers.fault) {
            (L3::Ipv4, None) => be64(frame, l3 + 12),
            (L3::Ipv6, None) => {
                self.ends([be64(frame, l3 + 8), be64(frame, l3 + 16)], [be64(frame, l3 + 24), be64(frame, l3 + 32)])
            }
            _ => mix(be64(frame, 0) ^ K0, be64(frame, 4) ^ self.seed),
        };
        self.words(addresses, transport(headers, headers.ports(frame).unwrap_or(0)))
    }

    /// Hash of the flow of an IP packet that answers this one: [`FlowHash::packet`] with addresses and ports the other
    /// way round. Headers as there.
    #[inline]
    pub fn answer(&self, frame: &[u8], headers: &Headers) -> u64 {
        let l3 = headers.l3 as usize;
        let addresses = match (headers.kind, headers.fault) {
            (L3::Ipv4, None) => be64(frame, l3 + 12).rotate_left(32),
            (L3::Ipv6, None) => {
                self.ends([be64(frame, l3 + 24), be64(frame, l3 + 32)], [be64(frame, l3 + 8), be64(frame, l3 + 16)])
            }
            _ => return self.packet(frame, headers),
        };
        self.words(addresses, transport(headers, headers.ports(frame).unwrap_or(0).rotate_left(16)))
    }

    /// One word for two IPv6 addresses.
    #[inline]
    fn ends(&self, source: [u64; 2], destination: [u64; 2]) -> u64 {
        let source = mix(source[0] ^ K0, source[1] ^ self.seed);
        source ^ mix(destination[0] ^ K2, destination[1] ^ self.seed.rotate_left(32))
    }

    /// Hash of one word, for tables: half the work of [`FlowHash::words`], and its low bits are even.
    #[inline]
    pub fn word(&self, a: u64) -> u64 {
        mix(a ^ self.seed, K0)
    }

    /// Hash of two words.
    #[inline]
    pub fn words(&self, a: u64, b: u64) -> u64 {
        let h = mix(a ^ self.seed, b ^ K2);
        mix(h ^ K0, self.seed ^ K1)
    }
}

/// Maps a hash evenly to `0..n` without division (Lemire's multiply-shift); 0 for `n` = 0.
#[inline]
pub fn bucket(hash: u64, n: usize) -> usize {
    ((u128::from(hash) * n as u128) >> 64) as usize
}
