use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of destination, source and EtherType.
pub const HEADER_LEN: usize = 14;
/// Bytes of destination and source.
pub const ADDRESSES_LEN: usize = 12;
/// Bytes of one 802.1Q or 802.1ad tag.
pub const TAG_LEN: usize = 4;
/// Shortest frame without FCS (IEEE 802.3); shorter ones are padded on a real wire.
pub const MIN_FRAME: usize = 60;
/// Bytes a frame takes on the wire beside its own: FCS 4, preamble and SFD 8, inter-frame gap 12.
pub const WIRE_OVERHEAD: usize = 24;

/// Bytes of the wire that a frame of `len` bytes takes: padding, FCS, preamble and gap included.
#[inline]
pub const fn on_wire(len: usize) -> usize {
    (if len < MIN_FRAME { MIN_FRAME } else { len }) + WIRE_OVERHEAD
}

/// IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q customer tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// 802.1ad service tag.
pub const ETHERTYPE_QINQ: u16 = 0x88a8;
/// The pre-standard service tag that some devices still send.
pub const ETHERTYPE_QINQ_OLD: u16 = 0x9100;

/// A 48-bit MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Whether the group bit is set (broadcast included).
    #[inline]
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The address as a number, for use as a table key.
    #[inline]
    pub fn to_u64(self) -> u64 {
        // As two words, which is half the instructions of six bytes.
        let [a, b, c, d, e, f] = self.0;
        u64::from(u32::from_be_bytes([a, b, c, d])) << 16 | u64::from(u16::from_be_bytes([e, f]))
    }

    /// The address of a number's low 48 bits.
    #[inline]
    pub fn from_u64(value: u64) -> MacAddr {
        let b = value.to_be_bytes();
        MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4], b[5])
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not six hexadecimal octets with colons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a MAC address: write six octets, like \"02:00:00:00:00:01\"")]
pub struct MacError(String);

impl FromStr for MacAddr {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|p| (1..=2).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = part.and_then(|p| u8::from_str_radix(p, 16).ok()).ok_or_else(|| MacError(text.into()))?;
        }
        if parts.next().is_some() {
            return Err(MacError(text.into()));
        }
        Ok(MacAddr(octets))
    }
}

impl Serialize for MacAddr {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddr {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[inline]
fn mac_at(frame: &[u8], at: usize) -> MacAddr {
    MacAddr(frame[at..at + 6].try_into().expect("six bytes"))
}

/// Destination address. The frame has at least [`HEADER_LEN`] bytes.
#[inline]
pub fn dst(frame: &[u8]) -> MacAddr {
    mac_at(frame, 0)
}

/// Source address. The frame has at least [`HEADER_LEN`] bytes.
#[inline]
pub fn src(frame: &[u8]) -> MacAddr {
    mac_at(frame, 6)
}

/// Writes both addresses. The frame has at least [`HEADER_LEN`] bytes.
#[inline]
pub fn set_addresses(frame: &mut [u8], dst: MacAddr, src: MacAddr) {
    let addresses = &mut frame[..12];
    addresses[..6].copy_from_slice(&dst.0);
    addresses[6..].copy_from_slice(&src.0);
}

/// Whether `ethertype` announces another tag.
#[inline]
pub fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ | ETHERTYPE_QINQ_OLD)
}
