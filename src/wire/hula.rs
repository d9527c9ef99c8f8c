//! HULA's probe, by which a ToR makes itself and the load on the ways to it known (Katta et al., "HULA:
//! Scalable Load Balancing Using Programmable Data Planes", SOSR 2016).
//!
//! ```text
//!  0  destination 01-80-C2-00-00-0E       19  version (1)            25  IPv4 prefix length, ff: none
//!  6  source: the last switch's MAC       20  links left             26  IPv4 prefix
//! 12  EtherType 0x88B7                    21  path utilisation       30  IPv6 prefix length, ff: none
//! 14  OUI 02-77-65                        23  origin: the ToR        31  IPv6 prefix
//! 17  protocol 0x0002                                                47  padding to 60
//! ```
//! All numbers are big-endian. EtherType, OUI and destination are those of the hello ([`super::hello`]): no
//! bridge forwards a probe, so each one heard was sent on this link, by a switch that looked at it.
//!
//! The paper's probe is an IP packet with a ToR's number and a utilisation of 8 bits. This one carries the
//! prefixes of the ToR's segment beside its number, so that no table of who is where has to be set up, and
//! 16 bits of utilisation.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::ethernet::{self, MIN_FRAME};
use super::hello::{ETHERTYPE_OUI_EXTENDED, NEAREST_BRIDGE, OUI};
use super::{Headers, MacAddr};
use crate::id::SwitchId;

/// The probe's number in weft's space ([`OUI`]).
pub const PROTOCOL: u16 = 2;
/// Bytes of a probe as sent: the shortest frame.
pub const FRAME_LEN: usize = MIN_FRAME;
/// Utilisation of a link that carries its whole rate, or more; utilisations are in parts of this.
pub const FULL: u16 = u16::MAX;
/// Links that a probe may cross in all. The longest way up and down three tiers has four; what is beyond
/// that is for links that are wired wrongly, where nothing else would end it.
pub const MAX_LINKS: u8 = 8;

const VERSION: u8 = 1;
/// Bytes of OUI and protocol.
const ID_LEN: usize = 5;
/// Bytes of what follows them.
const BODY_LEN: usize = 28;
/// Stands for the length of a prefix that is not there.
const NONE: u8 = 0xff;

/// What a probe says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The ToR that it comes from.
    pub origin: SwitchId,
    /// Links that it may still cross, the one it is on counted: 1 to [`MAX_LINKS`].
    pub links: u8,
    /// Utilisation of the busiest link of the best way to the ToR from where the probe was last sent, in
    /// 1/65535 of that link's rate ([`FULL`]).
    pub utilisation: u16,
    /// Prefix of the ToR's segment, without host bits.
    pub ipv4: Option<Ipv4Net>,
    /// The same for IPv6. One of the two is there.
    pub ipv6: Option<Ipv6Net>,
}

/// Why a frame that is a probe can't be taken as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeError {
    /// Not addressed to the nearest bridge: it may come from beyond this link.
    BadDestination,
    /// Ends before its last field.
    Truncated,
    /// A version that this one does not know.
    BadVersion,
    /// Links left: none, or more than [`MAX_LINKS`].
    BadLinks,
    /// A prefix that takes everything (length 0), is longer than an address, or has host bits.
    BadPrefix,
    /// No prefix at all: nothing can be sent to such a ToR.
    NoPrefix,
}

/// Whether the frame is a probe, well-formed or not.
#[inline]
pub fn is_probe(frame: &[u8], headers: &Headers) -> bool {
    headers.ethertype == ETHERTYPE_OUI_EXTENDED
        && frame[headers.l3.into()..].first_chunk::<ID_LEN>().is_some_and(|id| *id == identifier())
}

fn identifier() -> [u8; ID_LEN] {
    let ([a, b, c], [high, low]) = (OUI, PROTOCOL.to_be_bytes());
    [a, b, c, high, low]
}

/// Reads a frame that [`is_probe`]. What follows the last field is padding; VLAN tags are stepped over.
///
/// # Errors
/// See [`ProbeError`].
pub fn read(frame: &[u8], headers: &Headers) -> Result<Probe, ProbeError> {
    if ethernet::dst(frame) != NEAREST_BRIDGE {
        return Err(ProbeError::BadDestination);
    }
    let body = frame.get(usize::from(headers.l3) + ID_LEN..).and_then(|b| b.first_chunk::<BODY_LEN>());
    let [version, links, u0, u1, o0, o1, v4_len, a0, a1, a2, a3, v6_len, v6 @ ..] =
        *body.ok_or(ProbeError::Truncated)?;
    if version != VERSION {
        return Err(ProbeError::BadVersion);
    }
    if !(1..=MAX_LINKS).contains(&links) {
        return Err(ProbeError::BadLinks);
    }
    let ipv4 = match v4_len {
        NONE => None,
        len => Some(prefix_v4(Ipv4Addr::new(a0, a1, a2, a3), len).ok_or(ProbeError::BadPrefix)?),
    };
    let ipv6 = match v6_len {
        NONE => None,
        len => Some(prefix_v6(Ipv6Addr::from(v6), len).ok_or(ProbeError::BadPrefix)?),
    };
    if ipv4.is_none() && ipv6.is_none() {
        return Err(ProbeError::NoPrefix);
    }
    let (utilisation, origin) = (u16::from_be_bytes([u0, u1]), SwitchId(u16::from_be_bytes([o0, o1])));
    Ok(Probe { origin, links, utilisation, ipv4, ipv6 })
}

fn prefix_v4(address: Ipv4Addr, len: u8) -> Option<Ipv4Net> {
    let net = Ipv4Net::new(address, len).ok()?;
    (len > 0 && net.trunc() == net).then_some(net)
}

fn prefix_v6(address: Ipv6Addr, len: u8) -> Option<Ipv6Net> {
    let net = Ipv6Net::new(address, len).ok()?;
    (len > 0 && net.trunc() == net).then_some(net)
}

impl Probe {
    /// Writes the whole frame, untagged, as sent by the switch with MAC `src`.
    pub fn emit(&self, src: MacAddr, frame: &mut [u8; FRAME_LEN]) {
        const L3: usize = ethernet::HEADER_LEN;
        const BODY: usize = L3 + ID_LEN;
        frame.fill(0);
        ethernet::set_addresses(frame, NEAREST_BRIDGE, src);
        frame[L3 - 2..L3].copy_from_slice(&ETHERTYPE_OUI_EXTENDED.to_be_bytes());
        frame[L3..BODY].copy_from_slice(&identifier());
        let body = &mut frame[BODY..BODY + BODY_LEN];
        body[..2].copy_from_slice(&[VERSION, self.links]);
        body[2..4].copy_from_slice(&self.utilisation.to_be_bytes());
        body[4..6].copy_from_slice(&self.origin.0.to_be_bytes());
        body[6] = self.ipv4.map_or(NONE, |net| net.prefix_len());
        body[7..11].copy_from_slice(&self.ipv4.map_or([0; 4], |net| net.addr().octets()));
        body[11] = self.ipv6.map_or(NONE, |net| net.prefix_len());
        body[12..].copy_from_slice(&self.ipv6.map_or([0; 16], |net| net.addr().octets()));
    }
}
