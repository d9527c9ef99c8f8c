//! Golden vectors of PL2's frames. The bytes were laid out by hand from the table in `src/wire/pl2.rs`, which is
//! weft's own: there is no other implementation to take them from.

mod golden;

use golden::{dump, hex};
use proptest::prelude::*;
use weft::frame::Pool;
use weft::wire::pl2::{self, Control, ControlError, FRAME_LEN, Flags, Kind, SHIM_LEN, SHIM_START, Shim, ShimError};
use weft::wire::{Headers, MacAddr, parse, parse_behind};

const SENDER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
const RECEIVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);

const PLAIN: Flags = Flags { retry: false, nack: false, clock: false, window: false };

/// The first reservation of connection 0x01020304 as the sender asks for it: 4 slots and 9,000 bytes to follow.
const RSV: Control = Control {
    kind: Kind::Rsv,
    flags: PLAIN,
    k: 4,
    epoch: 0,
    conn: 0x0102_0304,
    seq: 1,
    demand: 9000,
    t_in: 0,
    t_out: 0,
    t_sw: 0,
    t_tx: 0x1122_3344_5566_7788,
    slot_ns: 0,
};

/// Its answer: 3 slots on the input before it and 260 on the output, at 1 Gbit/s.
const GRT: Control =
    Control { kind: Kind::Grt, epoch: 7, t_in: 3, t_out: 260, t_sw: 0x0000_0102_0304_0506, slot_ns: 12_304, ..RSV };

/// What it is, from whom to whom, and the bytes: addresses, EtherType | type and version, flags, k, epoch | conn,
/// seq, demand | t_in, t_out | t_sw | t_tx | slot_ns.
fn vectors() -> [(&'static str, Control, (MacAddr, MacAddr), &'static str); 9] {
    let named = Control { demand: 0, t_in: 0, t_out: 0, t_sw: 0, t_tx: 0, slot_ns: 0, ..GRT };
    [
        (
            "RSV",
            RSV,
            (RECEIVER, SENDER),
            "02000000000b 02000000000a 88b6 1100 0004 0000 01020304 00000001 00002328
             00000000 00000000 0000000000000000 1122334455667788 00000000",
        ),
        (
            "RSV once more, and another switch was seen",
            Control { flags: Flags { retry: true, ..PLAIN }, epoch: 6, ..RSV },
            (RECEIVER, SENDER),
            "02000000000b 02000000000a 88b6 1101 0004 0006 01020304 00000001 00002328
             00000000 00000000 0000000000000000 1122334455667788 00000000",
        ),
        (
            "GRT",
            GRT,
            (SENDER, RECEIVER),
            "02000000000a 02000000000b 88b6 2100 0004 0007 01020304 00000001 00002328
             00000003 00000104 0000010203040506 1122334455667788 00003010",
        ),
        (
            "GRT that refuses",
            Control { flags: Flags { nack: true, ..PLAIN }, k: 0, t_in: 0, t_out: 0, ..GRT },
            (SENDER, RECEIVER),
            "02000000000a 02000000000b 88b6 2102 0000 0007 01020304 00000001 00002328
             00000000 00000000 0000010203040506 1122334455667788 00003010",
        ),
        (
            "GRT by the clock",
            Control { flags: Flags { clock: true, ..PLAIN }, ..GRT },
            (SENDER, RECEIVER),
            "02000000000a 02000000000b 88b6 2104 0004 0007 01020304 00000001 00002328
             00000003 00000104 0000010203040506 1122334455667788 00003010",
        ),
        (
            "GRT in a window, all that the fields hold",
            Control {
                flags: Flags { window: true, ..PLAIN },
                k: u16::MAX,
                epoch: 0xfffe,
                conn: 0xffff_fffd,
                seq: 0xffff_fffc,
                demand: 0xffff_fffb,
                t_in: 0xffff_fffa,
                t_out: 0xffff_fff9,
                t_sw: u64::MAX - 7,
                t_tx: u64::MAX - 8,
                slot_ns: 0xffff_fff6,
                ..GRT
            },
            (SENDER, RECEIVER),
            "02000000000a 02000000000b 88b6 2108 ffff fffe fffffffd fffffffc fffffffb
             fffffffa fffffff9 fffffffffffffff8 fffffffffffffff7 fffffff6",
        ),
        (
            "NTF",
            Control { kind: Kind::Ntf, ..GRT },
            (RECEIVER, SENDER),
            "02000000000b 02000000000a 88b6 3100 0004 0007 01020304 00000001 00002328
             00000003 00000104 0000010203040506 1122334455667788 00003010",
        ),
        (
            "RST: two of them did not come",
            Control { kind: Kind::Rst, k: 2, ..named },
            (SENDER, RECEIVER),
            "02000000000a 02000000000b 88b6 4100 0002 0007 01020304 00000001 00000000
             00000000 00000000 0000000000000000 0000000000000000 00000000",
        ),
        (
            "REL: one of them is not needed",
            Control { kind: Kind::Rel, k: 1, ..named },
            (RECEIVER, SENDER),
            "02000000000b 02000000000a 88b6 5100 0001 0007 01020304 00000001 00000000
             00000000 00000000 0000000000000000 0000000000000000 00000000",
        ),
    ]
}

/// What the switch does with a frame: parse it, then read it.
fn read(frame: &[u8]) -> Option<Result<Control, ControlError>> {
    let headers = parse(frame).ok()?;
    Some(Control::read(frame, &headers))
}

#[test]
fn every_message_is_written_as_the_vectors_say_and_read_back() {
    for (what, control, (dst, src), bytes) in vectors() {
        let expected = hex(bytes);
        let mut frame = [0xee; FRAME_LEN];
        control.emit(dst, src, &mut frame);
        assert_eq!(dump(&frame), dump(&expected), "{what}");
        assert_eq!(read(&frame), Some(Ok(control)), "{what}");
    }
}

#[test]
fn a_message_that_is_cut_off_or_too_long_is_refused() {
    for (what, _, _, bytes) in vectors() {
        let mut frame = hex(bytes);
        for end in 0..FRAME_LEN {
            let expected = (end >= 14).then_some(Err(ControlError::Truncated));
            assert_eq!(read(&frame[..end]), expected, "{what}: {end} bytes");
        }
        frame.push(0);
        assert_eq!(read(&frame), Some(Err(ControlError::TooLong)), "{what}");
    }
}

#[test]
fn of_all_types_and_versions_five_are_read() {
    let (_, _, _, bytes) = vectors()[0];
    let mut frame = hex(bytes);
    for byte in 0..=u8::MAX {
        frame[14] = byte;
        let expected = match byte {
            0x11 => Ok(Kind::Rsv),
            0x21 => Ok(Kind::Grt),
            0x31 => Ok(Kind::Ntf),
            0x41 => Ok(Kind::Rst),
            0x51 => Ok(Kind::Rel),
            // Whatever follows type 0 is part of a shim.
            0x00..=0x0f => Err(ControlError::BadKind),
            _ if byte & 0xf == 1 => Err(ControlError::BadKind),
            _ => Err(ControlError::BadVersion),
        };
        assert_eq!(read(&frame).map(|read| read.map(|control| control.kind)), Some(expected), "{byte:#04x}");
    }
}

#[test]
fn flags_without_a_meaning_are_not_looked_at() {
    let (_, control, _, bytes) = vectors()[2];
    let mut frame = hex(bytes);
    frame[15] = 0xf0;
    assert_eq!(read(&frame), Some(Ok(control)));
}

#[test]
fn what_does_not_stand_right_behind_the_addresses_is_not_of_pl2() {
    let (_, _, _, bytes) = vectors()[0];
    let frame = hex(bytes);
    let headers = parse(&frame).expect("an Ethernet frame");
    assert!(pl2::is_pl2(&headers));
    let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    let other = [&frame[..12], &[0x88, 0xb5], &frame[14..]].concat();
    for (what, frame) in [("in a VLAN", tagged), ("another experimental type", other)] {
        assert!(!pl2::is_pl2(&parse(&frame).expect("an Ethernet frame")), "{what}");
        assert_eq!(read(&frame), Some(Err(ControlError::NotPl2)), "{what}");
        assert_eq!(Shim::read(&frame), Err(ShimError::NoShim), "{what}");
    }
}

/// E is bit 11 of the two bytes behind the EtherType, L bit 10, the connection bits 9 to 0.
#[test]
fn a_shim_is_these_four_bytes() {
    for (what, shim, bytes) in [
        ("inside a slot", Shim { closes: false, last: false, conn: 0 }, "88b6 0000"),
        ("the last of a slot", Shim { closes: true, last: false, conn: 1 }, "88b6 0801"),
        ("the last of a reservation", Shim { closes: true, last: true, conn: 0x2a5 }, "88b6 0ea5"),
        ("the last of one that closes no slot", Shim { closes: false, last: true, conn: 0x3ff }, "88b6 07ff"),
        ("the low bits of a connection", Shim::new(0xdead_bd02, true, false), "88b6 0902"),
    ] {
        let bytes = hex(bytes);
        let mut out = [0xee; SHIM_LEN];
        shim.emit(&mut out);
        assert_eq!(dump(&out), dump(&bytes), "{what}");
        let frame = [&[2; 12][..], &bytes, &[0x08, 0x00]].concat();
        assert_eq!(Shim::read(&frame), Ok(shim), "{what}");
        for end in 0..frame.len() {
            let expected = if end < 14 { ShimError::NoShim } else { ShimError::Truncated };
            assert_eq!(Shim::read(&frame[..end]), Err(expected), "{what}: {end} bytes");
        }
        assert_eq!(read(&[&frame[..], &[0; 60]].concat()), Some(Err(ControlError::BadKind)), "{what}");
    }
}

#[test]
fn a_message_is_no_shim() {
    for (what, _, _, bytes) in vectors() {
        assert_eq!(Shim::read(&hex(bytes)), Err(ShimError::NoShim), "{what}");
    }
}

prop_compose! {
    fn controls()(
        kind in prop::sample::select(vec![Kind::Rsv, Kind::Grt, Kind::Ntf, Kind::Rst, Kind::Rel]),
        flags in any::<[bool; 4]>(),
        (k, epoch) in any::<(u16, u16)>(),
        words in any::<[u32; 6]>(),
        (t_sw, t_tx) in any::<(u64, u64)>(),
    ) -> Control {
        let ([retry, nack, clock, window], [conn, seq, demand, t_in, t_out, slot_ns]) = (flags, words);
        let flags = Flags { retry, nack, clock, window };
        Control { kind, flags, k, epoch, conn, seq, demand, t_in, t_out, t_sw, t_tx, slot_ns }
    }
}

proptest! {
    #[test]
    fn any_message_comes_back(control in controls(), dst: [u8; 6], src: [u8; 6]) {
        let mut frame = [0xee; FRAME_LEN];
        control.emit(MacAddr(dst), MacAddr(src), &mut frame);
        prop_assert_eq!((&frame[..6], &frame[6..12]), (&dst[..], &src[..]));
        prop_assert_eq!(read(&frame), Some(Ok(control)));
    }

    /// Behind the shim the headers are those of the frame without it, four bytes further in.
    #[test]
    fn a_shim_put_in_and_taken_out_leaves_the_frame_as_it_was(
        bytes in prop::collection::vec(any::<u8>(), 14..1515),
        ethertype in prop::option::of(prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x0806, pl2::ETHERTYPE])),
        (conn, closes, last) in any::<(u32, bool, bool)>(),
    ) {
        let mut bytes = bytes;
        if let Some(ethertype) = ethertype {
            bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        }
        let mut pool = Pool::heap(1, 2048);
        let mut frame = pool.alloc().expect("a free frame");
        prop_assert!(frame.fill(&bytes) && frame.insert(SHIM_START, SHIM_LEN));
        let shim = Shim::new(conn, closes, last);
        let room: &mut [u8; SHIM_LEN] = frame[SHIM_START..].first_chunk_mut().expect("four bytes");
        shim.emit(room);
        prop_assert_eq!(Shim::read(&frame), Ok(Shim { closes, last, conn: (conn % 1024) as u16 }));
        let (mut behind, plain) = (Headers::default(), parse(&bytes));
        prop_assert_eq!(parse_behind(&frame, SHIM_LEN, &mut behind).is_ok(), plain.is_ok());
        if let Ok(plain) = plain {
            prop_assert_eq!((behind.l3, behind.end), (plain.l3 + 4, plain.end + 4));
            prop_assert_eq!((behind.ethertype, behind.kind, behind.fault), (plain.ethertype, plain.kind, plain.fault));
        }
        prop_assert!(frame.remove(SHIM_START, SHIM_LEN));
        prop_assert_eq!(&frame[..], &bytes[..]);
        pool.free(frame);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), start in 0usize..3) {
        let mut bytes = bytes;
        if let Some(ethertype) = bytes.get_mut(12..14).filter(|_| start > 0) {
            ethertype.copy_from_slice(&pl2::ETHERTYPE.to_be_bytes());
        }
        let control = read(&bytes);
        let shim = Shim::read(&bytes);
        prop_assert!(!(matches!(control, Some(Ok(_))) && shim.is_ok()), "both a message and data");
    }
}
