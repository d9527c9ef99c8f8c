use super::checksum;
use super::parse::{Headers, L3, PROTO_TCP};

/// Bytes of a header without options.
pub const MIN_HEADER: usize = 20;

/// The sender has no more data.
pub const FIN: u8 = 0x01;
/// Sequence numbers are synchronised.
pub const SYN: u8 = 0x02;
/// The connection is reset.
pub const RST: u8 = 0x04;
/// The data is to be pushed to the application.
pub const PSH: u8 = 0x08;
/// The acknowledgment number counts.
pub const ACK: u8 = 0x10;

/// Largest shift of the window scale option (RFC 7323, section 2.3).
pub const MAX_SHIFT: u8 = 14;

/// Order of sequence numbers, which wrap (RFC 9293, section 3.4). Two that lie exactly 2^31 apart have
/// none: neither is greater (RFC 1982, section 3.2).
pub mod seq {
    /// Whether `a` comes after `b`.
    #[inline]
    pub fn gt(a: u32, b: u32) -> bool {
        (a.wrapping_sub(b) as i32) > 0
    }

    /// Whether `a` is `b` or comes after it.
    #[inline]
    pub fn ge(a: u32, b: u32) -> bool {
        a == b || gt(a, b)
    }

    /// The later of the two; `a` if they have no order.
    #[inline]
    pub fn max(a: u32, b: u32) -> u32 {
        if gt(b, a) { b } else { a }
    }
}

/// Whether the packet is a TCP segment whose header is all there, options included: no fault, no
/// fragment, a data offset of at least 5 words that does not reach past the packet. All other functions
/// here ask this of their caller, and take `l4` from `headers`.
#[inline]
pub fn is_whole(frame: &[u8], headers: &Headers) -> bool {
    let (l4, end) = (headers.l4 as usize, headers.end as usize);
    headers.fault.is_none()
        && headers.proto == PROTO_TCP
        && !headers.is_fragment()
        && l4 != 0
        && l4 + MIN_HEADER <= end
        && (MIN_HEADER..=end - l4).contains(&header_len(frame, l4))
}

#[inline]
fn be16(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

#[inline]
fn be32(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

/// Sequence number of the first byte, or of the SYN.
#[inline]
pub fn seq_number(frame: &[u8], l4: usize) -> u32 {
    be32(frame, l4 + 4)
}

/// Acknowledgment number; counts if [`ACK`] is set.
#[inline]
pub fn ack_number(frame: &[u8], l4: usize) -> u32 {
    be32(frame, l4 + 8)
}

/// Bytes of the header by its data offset, at least 20 if the segment [`is_whole`], at most 60.
#[inline]
pub fn header_len(frame: &[u8], l4: usize) -> usize {
    usize::from(frame[l4 + 12] >> 4) * 4
}

/// The flags' octet, CWR first.
#[inline]
pub fn flags(frame: &[u8], l4: usize) -> u8 {
    frame[l4 + 13]
}

/// The window field as it stands: not shifted.
#[inline]
pub fn window(frame: &[u8], l4: usize) -> u16 {
    be16(frame, l4 + 14)
}

/// The checksum field.
#[inline]
pub fn checksum_field(frame: &[u8], l4: usize) -> u16 {
    be16(frame, l4 + 16)
}

/// Bytes of data: up to the end of the IP datagram, so that Ethernet padding is none.
#[inline]
pub fn payload_len(frame: &[u8], headers: &Headers) -> usize {
    let l4 = headers.l4 as usize;
    headers.end as usize - l4 - header_len(frame, l4)
}

/// Writes the window field and mends the checksum (RFC 1624, equation 3). A checksum that was wrong
/// stays wrong.
#[inline]
pub fn set_window(frame: &mut [u8], l4: usize, window: u16) {
    let sum = checksum::update(checksum_field(frame, l4), self::window(frame, l4), window);
    frame[l4 + 14..l4 + 16].copy_from_slice(&window.to_be_bytes());
    frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
}

/// The folded sum of pseudo header and `segment` (RFC 9293, section 3.1; RFC 8200, section 8.1).
#[inline]
fn sum(addresses: &[u8], segment: &[u8]) -> u16 {
    let pseudo = checksum::sum(addresses, u64::from(PROTO_TCP) + segment.len() as u64);
    checksum::fold(checksum::sum(segment, pseudo))
}

/// Checksum of `segment`, whose own field is zero. `addresses` are source and destination, 8 or 32 bytes.
#[inline]
pub fn checksum(addresses: &[u8], segment: &[u8]) -> u16 {
    !sum(addresses, segment)
}

/// Whether the checksum is right for the addresses in the IP header. It is not with a routing header or
/// source route that has hops to visit: its sender summed the last address.
#[inline]
pub fn has_right_checksum(frame: &[u8], headers: &Headers) -> bool {
    let l3 = headers.l3 as usize;
    let addresses = if headers.kind == L3::Ipv4 { &frame[l3 + 12..l3 + 20] } else { &frame[l3 + 8..l3 + 40] };
    sum(addresses, &frame[headers.l4 as usize..headers.end as usize]) == 0xffff
}

/// Kind of the MD5 signature option (RFC 2385).
pub const MD5: u8 = 19;
/// Kind of the authentication option (RFC 5925).
pub const AUTHENTICATION: u8 = 29;
/// Kind of the Multipath TCP option (RFC 8684).
pub const MULTIPATH: u8 = 30;

/// One option of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// Largest segment that the sender of a SYN takes, in bytes (RFC 9293, section 3.7.1).
    MaxSegmentSize(u16),
    /// Shift of the windows that the sender of a SYN will advertise, as it stands: may be over
    /// [`MAX_SHIFT`] (RFC 7323, section 2).
    WindowScale(u8),
    /// RFC 7323, section 3.
    Timestamps {
        /// TSval, the sender's clock.
        value: u32,
        /// TSecr, the clock of the other side as the sender saw it last.
        echo: u32,
    },
    /// Another kind, or one of these with a length that is not its own.
    Other(u8),
    /// A length below 2 or past the header: what follows cannot be read, so this is the last.
    Malformed,
}

/// The options of a header, in order, without padding.
pub fn options<'a>(frame: &'a [u8], headers: &Headers) -> impl Iterator<Item = TcpOption> + 'a {
    let l4 = headers.l4 as usize;
    let mut rest = &frame[l4 + MIN_HEADER..l4 + header_len(frame, l4)];
    std::iter::from_fn(move || {
        while let [1, after @ ..] = rest {
            rest = after;
        }
        let (kind, length) = match rest {
            [] | [0, ..] => return None,
            [kind] => (*kind, 0),
            [kind, length, ..] => (*kind, usize::from(*length)),
        };
        if length < 2 || length > rest.len() {
            rest = &[];
            return Some(TcpOption::Malformed);
        }
        let (option, after) = rest.split_at(length);
        rest = after;
        Some(match (kind, length) {
            (2, 4) => TcpOption::MaxSegmentSize(be16(option, 2)),
            (3, 3) => TcpOption::WindowScale(option[2]),
            (8, 10) => TcpOption::Timestamps { value: be32(option, 2), echo: be32(option, 6) },
            _ => TcpOption::Other(kind),
        })
    })
}

/// TSval and TSecr; `None` without the option.
#[inline]
pub fn timestamps(frame: &[u8], headers: &Headers) -> Option<(u32, u32)> {
    options(frame, headers).find_map(|option| match option {
        TcpOption::Timestamps { value, echo } => Some((value, echo)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parse;
    use super::*;

    /// An IPv4 frame with a TCP header of 20 bytes and `options`, 4 bytes of data and 7 of padding.
    fn segment(options: &[u8], offset: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let len = 20 + 20 + options.len() as u16 + 4;
        frame.extend([0x08, 0, 0x45, 0, (len >> 8) as u8, len as u8, 0, 1, 0x40, 0, 64, PROTO_TCP, 0, 0]);
        frame.extend([10, 0, 1, 2, 10, 0, 1, 3]);
        let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend([0x04, 0xd2, 0, 80, 0xff, 0xff, 0xff, 0xfe, 1, 2, 3, 4, offset << 4, ACK | PSH, 0x10, 0x20]);
        frame.extend([0; 4]);
        frame.extend(options);
        frame.extend([1, 2, 3, 4]);
        let checksum = checksum(&frame[26..34], &frame[34..]);
        frame[50..52].copy_from_slice(&checksum.to_be_bytes());
        frame.extend([0xaa; 7]);
        frame
    }

    fn read(bytes: &[u8]) -> Vec<TcpOption> {
        let frame = segment(bytes, 5 + bytes.len() as u8 / 4);
        let headers = parse(&frame).expect("an Ethernet frame");
        assert!(is_whole(&frame, &headers));
        options(&frame, &headers).collect()
    }

    #[test]
    fn fields_are_where_rfc_9293_puts_them_and_padding_is_no_payload() {
        let frame = segment(&[], 5);
        let headers = parse(&frame).expect("an Ethernet frame");
        assert!(is_whole(&frame, &headers));
        assert_eq!((seq_number(&frame, 34), ack_number(&frame, 34)), (0xffff_fffe, 0x0102_0304));
        assert_eq!((flags(&frame, 34), window(&frame, 34), payload_len(&frame, &headers)), (ACK | PSH, 0x1020, 4));
        assert!(has_right_checksum(&frame, &headers));
    }

    #[test]
    fn a_header_that_is_not_all_there_is_not_whole() {
        // 24 bytes behind the IP header: 6 words fit, 7 do not, and below 5 is no header.
        for (offset, whole) in [(0, false), (4, false), (5, true), (6, true), (7, false), (15, false)] {
            let frame = segment(&[], offset);
            assert_eq!(is_whole(&frame, &parse(&frame).expect("a frame")), whole, "{offset} words");
        }
    }

    #[test]
    fn options_are_read_until_one_cannot_be() {
        use TcpOption::*;
        for (what, bytes, expected) in [
            ("none", &[][..], vec![]),
            (
                "a SYN of Linux",
                &[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8, 1, 3, 3, 7][..],
                vec![MaxSegmentSize(1460), Other(4), Timestamps { value: 9, echo: 8 }, WindowScale(7)],
            ),
            ("the end of the list hides what follows", &[0, 3, 3, 7], vec![]),
            ("length 0", &[1, 8, 0, 1], vec![Malformed]),
            ("length 1", &[3, 1, 7, 0], vec![Malformed]),
            ("no length", &[3, 3, 7, 8], vec![WindowScale(7), Malformed]),
            ("a kind with another's length", &[3, 4, 7, 0], vec![Other(3)]),
            ("a length past the header", &[1, 1, 8, 10], vec![Malformed]),
        ] {
            assert_eq!(read(bytes), expected, "{what}");
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        for (a, b, greater) in [
            (1, 0, true),
            (0, u32::MAX, true),
            (0x10, 0xffff_fff0, true),
            (0, 0, false),
            (0, 1, false),
            (0x7fff_ffff, 0, true),
            (0x8000_0000, 0, false),
            (0, 0x8000_0000, false),
        ] {
            assert_eq!(seq::gt(a, b), greater, "{a:x} > {b:x}");
        }
        assert_eq!((seq::max(3, u32::MAX), seq::max(u32::MAX, 3)), (3, 3));
    }

    proptest! {
        #[test]
        fn whatever_the_options_are_reading_them_ends(words in proptest::collection::vec(any::<[u8; 4]>(), 0..=10)) {
            let found = read(&words.concat());
            prop_assert!(found.len() <= 20);
            let malformed = found.iter().position(|option| *option == TcpOption::Malformed);
            prop_assert!(malformed.is_none_or(|at| at + 1 == found.len()));
        }

        #[test]
        fn a_new_window_has_the_checksum_of_a_full_sum(window: u16) {
            let mut frame = segment(&[], 5);
            let headers = parse(&frame).expect("an Ethernet frame");
            set_window(&mut frame, 34, window);
            let mended = checksum_field(&frame, 34);
            frame[50..52].fill(0);
            prop_assert_eq!(mended, checksum(&frame[26..34], &frame[34..headers.end as usize]));
        }
    }
}
