use super::ethernet::{self, HEADER_LEN, TAG_LEN};
use super::{checksum, ipv4, ipv6};
use crate::counters::DropReason;

/// IP protocol number of ICMP.
pub const PROTO_ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const PROTO_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const PROTO_UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const PROTO_ICMPV6: u8 = 58;
const PROTO_DCCP: u8 = 33;
const PROTO_SCTP: u8 = 132;
const PROTO_UDPLITE: u8 = 136;

/// What the innermost EtherType announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum L3 {
    /// Neither IP nor ARP.
    #[default]
    Other,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Where the headers of a frame are. All offsets are in bytes from the start of the frame and lie
/// within it.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Start of the network header: after the addresses, all tags and the EtherType.
    pub l3: u16,
    /// Start of the transport header, at most `end`; 0 if there is none (not IP, later fragment, no
    /// next header) or it was not found (an extension header chain that is cut short or too long).
    pub l4: u16,
    /// End of the IP datagram; what follows is Ethernet padding. The frame's length if not IP.
    pub end: u16,
    /// The innermost EtherType (or 802.3 length).
    pub ethertype: u16,
    /// What that EtherType announces.
    pub kind: L3,
    /// Transport protocol, after all extension headers that were followed; 0 if not IP. The
    /// fragments of one IPv6 datagram may differ in it: the first shows what comes after the
    /// destination options, the later ones only the number of that header.
    pub proto: u8,
    /// What is wrong with the network header, if anything: such a frame may be bridged, not routed.
    pub fault: Option<DropReason>,
    flags: u8,
}

const FRAGMENT: u8 = 1;
const LATER_FRAGMENT: u8 = 2;
const IN_SLOT: u8 = 4;
const CLOSES_SLOT: u8 = 8;

impl Headers {
    /// Whether the packet is a fragment, first or later.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags & FRAGMENT != 0
    }

    /// Whether the packet is a fragment that does not start its datagram.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.flags & LATER_FRAGMENT != 0
    }

    /// Whether the frame came in a slot of PL2, with a shim that these headers leave out of account. [`parse`] never
    /// says so, nor [`Headers::closes_slot`], only who has found the shim.
    #[inline]
    pub fn is_in_slot(&self) -> bool {
        self.flags & IN_SLOT != 0
    }

    /// Whether it is the last frame of its slot ([`super::pl2::Shim::closes`]), which ends when it leaves.
    #[inline]
    pub fn closes_slot(&self) -> bool {
        self.flags & CLOSES_SLOT != 0
    }

    /// Notes that the frame came in a slot, as its last one or not.
    #[inline]
    pub fn put_in_slot(&mut self, closes: bool) {
        self.flags |= if closes { IN_SLOT | CLOSES_SLOT } else { IN_SLOT };
    }

    /// Notes that no slot ends when the frame leaves.
    #[inline]
    pub fn leave_slot(&mut self) {
        self.flags &= !CLOSES_SLOT;
    }

    /// What they are when the `old` bytes of a tag before them ([`parse_behind`]) have become `new` ones.
    #[inline]
    pub fn shift(&mut self, old: u16, new: u16) {
        let moved = |at: u16| at - old + new;
        self.l3 = moved(self.l3);
        self.end = moved(self.end);
        if self.l4 != 0 {
            self.l4 = moved(self.l4);
        }
    }

    /// Source and destination port as one big-endian word; `None` if the protocol has none, the
    /// packet is a fragment, or it ends before them.
    #[inline]
    pub fn ports(&self, frame: &[u8]) -> Option<u32> {
        let l4 = self.l4 as usize;
        let has_ports = matches!(self.proto, PROTO_TCP | PROTO_UDP | PROTO_SCTP | PROTO_DCCP | PROTO_UDPLITE);
        if !has_ports || l4 == 0 || self.is_fragment() || l4 + 4 > self.end as usize {
            return None;
        }
        Some(u32::from_be_bytes(frame[l4..l4 + 4].try_into().expect("four bytes")))
    }
}

/// Finds the headers of `frame` (without FCS, at most 65,535 bytes).
///
/// # Errors
/// [`DropReason::Runt`], [`DropReason::Giant`] or [`DropReason::TruncatedTag`]: not an Ethernet frame. A
/// bad network header is no error but a [`Headers::fault`].
#[inline]
pub fn parse(frame: &[u8]) -> Result<Headers, DropReason> {
    let mut headers = Headers::default();
    parse_into(frame, &mut headers).map(|()| headers)
}

/// As [`parse`], written into `headers` field by field: for the packet path, where copying what was
/// just written in parts costs more than parsing.
///
/// # Errors
/// As [`parse`]; then `headers` are unchanged.
#[inline(always)]
pub fn parse_into(frame: &[u8], headers: &mut Headers) -> Result<(), DropReason> {
    if parse_plain_ipv4(frame, 0, headers) {
        return Ok(());
    }
    parse_any(frame, 0, headers)
}

/// As [`parse_into`], of a frame with `tag` bytes between its addresses and its VLAN tags or EtherType. All
/// offsets still count from the start of the frame, and may be odd.
///
/// # Errors
/// As [`parse_into`]; [`DropReason::Runt`] if the frame ends before its EtherType.
#[inline]
pub fn parse_behind(frame: &[u8], tag: usize, headers: &mut Headers) -> Result<(), DropReason> {
    if parse_plain_ipv4(frame, tag, headers) {
        return Ok(());
    }
    parse_any(frame, tag, headers)
}

/// What most frames are, without a branch on anything else: an untagged, whole and sound IPv4 packet
/// without options, `skip` bytes further in. [`parse_any`] finds the same. `false` and `headers` unchanged if it is
/// not.
#[inline(always)]
fn parse_plain_ipv4(frame: &[u8], skip: usize, headers: &mut Headers) -> bool {
    const L4: usize = HEADER_LEN + ipv4::MIN_HEADER;
    let Some(header) = frame.get(skip..).and_then(|rest| rest.first_chunk::<L4>()) else { return false };
    let total_len = usize::from(be16(header, HEADER_LEN + 2));
    let plain = header[12..15] == [0x08, 0x00, 0x45]
        && be16(header, HEADER_LEN + 6) & 0x3fff == 0
        && (ipv4::MIN_HEADER..=frame.len() - skip - HEADER_LEN).contains(&total_len)
        && frame.len() <= u16::MAX as usize
        && checksum::fold(checksum::sum(&header[HEADER_LEN..], 0)) == 0xffff;
    if plain {
        headers.l3 = (skip + HEADER_LEN) as u16;
        headers.l4 = (skip + L4) as u16;
        headers.end = (skip + HEADER_LEN + total_len) as u16;
        headers.ethertype = ethernet::ETHERTYPE_IPV4;
        headers.kind = L3::Ipv4;
        headers.proto = header[HEADER_LEN + 9];
        headers.fault = None;
        headers.flags = 0;
    }
    plain
}

/// The long way, `skip` bytes further in.
fn parse_any(frame: &[u8], skip: usize, headers: &mut Headers) -> Result<(), DropReason> {
    if frame.len() > u16::MAX as usize {
        return Err(DropReason::Giant);
    }
    if frame.len() < HEADER_LEN || frame.len() - HEADER_LEN < skip {
        return Err(DropReason::Runt);
    }
    let mut l3 = HEADER_LEN + skip;
    let mut ethertype = be16(frame, l3 - 2);
    while ethernet::is_tag(ethertype) {
        if l3 + TAG_LEN > frame.len() {
            return Err(DropReason::TruncatedTag);
        }
        ethertype = be16(frame, l3 + 2);
        l3 += TAG_LEN;
    }
    *headers = Headers { l3: l3 as u16, end: frame.len() as u16, ethertype, ..Headers::default() };
    match ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            headers.kind = L3::Ipv4;
            headers.fault = parse_ipv4(frame, l3, headers).err();
        }
        ethernet::ETHERTYPE_IPV6 => {
            headers.kind = L3::Ipv6;
            headers.fault = parse_ipv6(frame, l3, headers).err();
        }
        ethernet::ETHERTYPE_ARP => headers.kind = L3::Arp,
        _ => {}
    }
    Ok(())
}

#[inline]
fn be16(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

#[inline]
fn parse_ipv4(frame: &[u8], l3: usize, headers: &mut Headers) -> Result<(), DropReason> {
    let Some(header) = frame.get(l3..l3 + ipv4::MIN_HEADER) else {
        return Err(DropReason::TruncatedL3);
    };
    if header[0] >> 4 != 4 {
        return Err(DropReason::BadIpVersion);
    }
    let header_len = usize::from(header[0] & 0xf) * 4;
    let total_len = usize::from(be16(header, 2));
    if header_len < ipv4::MIN_HEADER || total_len < header_len {
        return Err(DropReason::BadIpLength);
    }
    if l3 + total_len > frame.len() {
        return Err(DropReason::TruncatedL3);
    }
    if checksum::fold(checksum::sum(&frame[l3..l3 + header_len], 0)) != 0xffff {
        return Err(DropReason::BadIpChecksum);
    }
    headers.end = (l3 + total_len) as u16;
    headers.proto = header[9];
    let fragment = be16(header, 6) & 0x3fff; // more-fragments bit and offset
    if fragment != 0 {
        headers.flags = FRAGMENT;
        if fragment & 0x1fff != 0 {
            headers.flags |= LATER_FRAGMENT;
            return Ok(());
        }
    }
    headers.l4 = (l3 + header_len) as u16;
    Ok(())
}

#[inline]
fn parse_ipv6(frame: &[u8], l3: usize, headers: &mut Headers) -> Result<(), DropReason> {
    let Some(header) = frame.get(l3..l3 + ipv6::HEADER) else {
        return Err(DropReason::TruncatedL3);
    };
    if header[0] >> 4 != 6 {
        return Err(DropReason::BadIpVersion);
    }
    let end = l3 + ipv6::HEADER + usize::from(be16(header, 4));
    if end > frame.len() {
        return Err(DropReason::TruncatedL3);
    }
    headers.proto = header[6];
    if end == l3 + ipv6::HEADER && headers.proto == ipv6::HOP_BY_HOP {
        // Length 0 before a hop-by-hop header announces a jumbogram (RFC 2675, section 2), whose
        // payload is over 65,535 bytes and so in no frame that gets here; without the jumbo option
        // it is an error by section 3.
        headers.proto = 0;
        return Err(DropReason::BadIpLength);
    }
    headers.end = end as u16;
    let mut at = l3 + ipv6::HEADER;
    let mut followed = 0;
    loop {
        let kind = headers.proto;
        if !ipv6::is_extension(kind) {
            if kind != ipv6::NO_NEXT_HEADER {
                headers.l4 = at as u16;
            }
            return Ok(());
        }
        // A chain that is too long, or ends inside a header, leaves `l4` 0: forwarded, not looked into.
        if followed == ipv6::MAX_EXTENSIONS || at + ipv6::MIN_EXTENSION > end {
            return Ok(());
        }
        followed += 1;
        let next = at + ipv6::extension_len(kind, frame[at + 1]);
        headers.proto = frame[at];
        if kind == ipv6::FRAGMENT {
            // An atomic fragment (offset 0, no more) is a whole packet (RFC 6946).
            let fragment = be16(frame, at + 2) & 0xfff9;
            if fragment != 0 {
                headers.flags |= FRAGMENT;
            }
            if fragment & 0xfff8 != 0 {
                headers.flags |= LATER_FRAGMENT;
                return Ok(());
            }
        }
        at = next;
        if at > end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        #[test]
        fn the_short_way_finds_what_the_long_way_finds(
            change in proptest::option::of((0usize..40, any::<u8>())),
            mend: bool,
            length in 0usize..=64,
            total_len in 0u16..80,
            rest: [u8; 30],
            tag in 0usize..20,
        ) {
            let mut frame = vec![0x02; 12];
            frame.extend([0x08, 0, 0x45, 0]);
            frame.extend(total_len.to_be_bytes());
            frame.extend([0x12, 0x34, 0x40, 0, 64, PROTO_UDP, 0, 0, 10, 0, 0, 2, 10, 0, 1, 2]);
            frame.extend(rest);
            if let Some((at, byte)) = change {
                frame[at] = byte;
            }
            if mend {
                frame[24..26].fill(0);
                let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            frame.truncate(length);
            let mut headers = Headers::default();
            let short = parse_plain_ipv4(&frame, 0, &mut headers);
            if short {
                let mut long = Headers::default();
                prop_assert_eq!(parse_any(&frame, 0, &mut long), Ok(()));
                prop_assert_eq!(headers, long);
            }
            let mut behind = Headers::default();
            let tagged = [&frame[..frame.len().min(12)], &vec![0x99; tag], &frame[frame.len().min(12)..]].concat();
            prop_assert_eq!(parse_plain_ipv4(&tagged, tag, &mut behind), short);
            if short {
                behind.shift(tag as u16, 0);
                prop_assert_eq!(behind, headers);
            }
            let whole = frame.len() >= 34 && (20..=frame.len() - 14).contains(&total_len.into());
            let plain = change.is_none() && mend && whole;
            prop_assert!(short || !plain);
        }
    }
}
