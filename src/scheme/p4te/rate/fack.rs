//! The FACK ("fake acknowledgment", paper, section 4.3): an ACK that a switch forges in the name of a
//! flow's receiver, so that the sender hears of a new window after less than a round trip.
//!
//! What a Linux sender makes of it: it takes a window from a segment that acknowledges new bytes, or
//! whose sequence number is past that of the last one it took a window from (`snd_wl1`), or equals that
//! with a larger window. The sequence number of a FACK is the sender's own RCV.NXT. Therefore:
//!
//! - [`AckRule::Safe`], increase: taken. Decrease: taken only while the last thing the receiver sent was
//!   data, because RCV.NXT is then past `snd_wl1`; in a one-way flow a decrease is *ignored*.
//! - [`AckRule::Paper`]: both are taken, because it acknowledges a byte more; so is a round-trip sample
//!   that is too short, and a byte that the receiver may never get is gone from the sender's queue.
//!
//! A decrease that is ignored counts as a duplicate ACK there (RFC 5681, section 2), which a sender without SACK may
//! take for a sign of loss at the third.
//!
//! Either way the next genuine ACK brings the receiver's own window back, and an increase lets the
//! sender send what the receiver may have no room for, which is then lost. For a decrease that lasts and
//! harms nobody, see [`super::clamp`].

use serde::{Deserialize, Serialize};

use crate::frame::Frame;
use crate::wire::parse::PROTO_TCP;
use crate::wire::{Headers, L3, MacAddr, checksum, ethernet, ipv4, ipv6, tcp};

/// What a FACK acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckRule {
    /// The highest acknowledgment number that the receiver has sent itself: nothing new, ever.
    #[default]
    Safe,
    /// The data's sequence number + 1, as in the paper: also what the receiver has not got, so that a loss
    /// afterwards can't be repaired and the connection stalls.
    Paper,
}

/// What a FACK says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fack {
    /// Acknowledgment number.
    pub ack: u32,
    /// Window field.
    pub window: u16,
    /// TSval if the flow has timestamps: the latest of the receiver's, which the sender accepts because it
    /// is not older than the last it saw (PAWS: RFC 7323, section 5.3).
    pub tsval: Option<u32>,
}

/// Bytes of a timestamps option behind two NOPs (RFC 7323, appendix A).
const TIMESTAMPS: usize = 12;

/// Writes the FACK that answers the segment `data` into `out`; from and to `switch_mac`, to be sent
/// through ingress and routed.
///
/// As in `data`: VLAN tags, TTL or hop limit, DSCP, flow label. The other way round: addresses and
/// ports. Not taken over: IP options; ECN (a pure ACK is not ECN-capable: RFC 3168, section 6.1.4). IPv4
/// has DF set and identification 0 (RFC 6864, section 4.1). Its sequence number is the acknowledgment
/// number of `data`, its TSecr the TSval of `data`; the only flag is ACK. Checksums are complete, the
/// frame is padded with zeros.
///
/// `false` and `out` unchanged if `data` is not a whole TCP segment with ACK, directly in IP, the flow has
/// timestamps and `data` none, or `out` is too small.
#[must_use]
pub fn build(out: &mut Frame, data: &[u8], headers: &Headers, switch_mac: MacAddr, fack: &Fack) -> bool {
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    if !tcp::is_whole(data, headers) || tcp::flags(data, l4) & tcp::ACK == 0 {
        return false;
    }
    let ip_len = match headers.kind {
        L3::Ipv4 => ipv4::MIN_HEADER,
        L3::Ipv6 if l4 == l3 + ipv6::HEADER => ipv6::HEADER,
        _ => return false,
    };
    let timestamps = match (fack.tsval, tcp::timestamps(data, headers)) {
        (Some(value), Some((echo, _))) => Some((value, echo)),
        (Some(_), None) => return false,
        (None, _) => None,
    };
    let segment_len = tcp::MIN_HEADER + if timestamps.is_some() { TIMESTAMPS } else { 0 };
    let len = l3 + ip_len + segment_len;
    if len.max(ethernet::MIN_FRAME) > out.capacity() {
        return false;
    }
    out.set_len(len.max(ethernet::MIN_FRAME));
    // The chunk holds an earlier frame's bytes.
    out[..].fill(0);
    ethernet::set_addresses(out, switch_mac, switch_mac);
    out[12..l3].copy_from_slice(&data[12..l3]);
    let (ip, segment) = out[l3..len].split_at_mut(ip_len);
    write_segment(segment, &data[l4..], fack, timestamps);
    let addresses = match headers.kind {
        L3::Ipv4 => write_ipv4(ip, &data[l3..], segment_len),
        _ => write_ipv6(ip, &data[l3..], segment_len),
    };
    let sum = tcp::checksum(addresses, segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Everything but the checksum. `segment` is zeros.
fn write_segment(segment: &mut [u8], data: &[u8], fack: &Fack, timestamps: Option<(u32, u32)>) {
    segment[..2].copy_from_slice(&data[2..4]);
    segment[2..4].copy_from_slice(&data[..2]);
    segment[4..8].copy_from_slice(&data[8..12]);
    segment[8..12].copy_from_slice(&fack.ack.to_be_bytes());
    segment[12] = (segment.len() as u8 / 4) << 4;
    segment[13] = tcp::ACK;
    segment[14..16].copy_from_slice(&fack.window.to_be_bytes());
    if let Some((value, echo)) = timestamps {
        segment[20..24].copy_from_slice(&[1, 1, 8, 10]);
        segment[24..28].copy_from_slice(&value.to_be_bytes());
        segment[28..32].copy_from_slice(&echo.to_be_bytes());
    }
}

/// Gives the addresses. `ip` is zeros.
fn write_ipv4<'a>(ip: &'a mut [u8], data: &[u8], segment_len: usize) -> &'a [u8] {
    const DONT_FRAGMENT: u8 = 0x40;
    let total_len = (ipv4::MIN_HEADER + segment_len) as u16;
    ip[0] = 0x45;
    ip[1] = data[1] & !3;
    ip[2..4].copy_from_slice(&total_len.to_be_bytes());
    ip[6] = DONT_FRAGMENT;
    ip[8] = data[8];
    ip[9] = PROTO_TCP;
    ip[12..16].copy_from_slice(&data[16..20]);
    ip[16..20].copy_from_slice(&data[12..16]);
    let sum = !checksum::fold(checksum::sum(ip, 0));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    &ip[12..20]
}

/// Gives the addresses. `ip` is zeros.
fn write_ipv6<'a>(ip: &'a mut [u8], data: &[u8], segment_len: usize) -> &'a [u8] {
    // Version, traffic class and flow label, less the ECN bits, which are the second octet's 0x30.
    ip[..4].copy_from_slice(&data[..4]);
    ip[1] &= !0x30;
    ip[4..6].copy_from_slice(&(segment_len as u16).to_be_bytes());
    ip[6] = PROTO_TCP;
    ip[7] = data[7];
    ip[8..24].copy_from_slice(&data[24..40]);
    ip[24..40].copy_from_slice(&data[8..24]);
    &ip[8..40]
}
