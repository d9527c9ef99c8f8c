//! Each kind of frame, byte by byte, and what is none.

use proptest::prelude::*;
use weft::counters::DropReason;
use weft::fabric::view::{Cell, Topic};
use weft::wire::MacAddr;
use weft::wire::pl2::{Control, Shim};

use crate::packets;
use crate::rig::{ALONE, Rig, SLOT, SWITCH, Setup, UPLINK, in_slot, mac, rsv, udp};

/// The bytes of `hex`, with spaces anywhere.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex")).collect()
}

/// From host 0 to host 1, at 1 s (0x3b9aca00 ns): 4 slots, epoch unknown, connection 7, number 1, 0x1000 bytes more.
const RSV: &str = "02 68 00 00 01 01  02 68 00 00 01 00  88b6 11 00 0004 0000 00000007 00000001 00001000
                   00000000 00000000 0000000000000000 0000000000000005 00000000";
/// Its answer: addresses swapped, granted at once by the first start of the switch, slots of 12,304 ns (0x3010).
const GRT: &str = "02 68 00 00 01 00  02 68 00 00 01 01  88b6 21 00 0004 0001 00000007 00000001 00001000
                   00000000 00000000 000000003b9aca00 0000000000000005 00003010";

/// Every selector: PL2 goes with all of them.
const SELECTORS: [&str; 7] = ["ecmp", "flowlet", "letflow", "hula", "p4te", "caft", "expeditus"];

#[test]
fn an_rsv_is_answered_by_a_grt_in_its_own_frame_under_every_selector() {
    for selector in SELECTORS {
        let top = format!("selector = \"{selector}\"").leak();
        let mut rig = Setup { top, ..ALONE }.rig();
        let mut sent = rig.send(0, &bytes(RSV));
        // Probes go to other switches.
        sent.retain(|(port, _)| *port < UPLINK);
        assert_eq!(sent, [(0, bytes(GRT))], "{selector}");
        assert_eq!((rig.registers(0), rig.registers(1)), ([4, 0, 0, 1], [0, 4, 0, 0]));
        // The four slots: three frames by themselves, then two that share the last.
        for (len, closes, last) in
            [(1514, true, false), (60, true, false), (100, true, false), (60, false, false), (60, true, true)]
        {
            let frame = udp(0, 1, len);
            rig.arrive(0, &in_slot(&frame, 7, closes, last));
            rig.wait(SLOT);
            let sent: Vec<_> = rig.kept.drain(..).filter(|(_, port, _)| *port < UPLINK).collect();
            assert!(sent.len() == 1 && sent[0].1 == 1 && sent[0].2 == frame, "{selector}: {sent:?}");
        }
        rig.at_rest();
        assert_eq!(rig.drops(), [], "{selector}");
        assert_eq!(rig.counted(0, "used_slots"), 4);
    }
}

#[test]
fn slots_of_the_input_and_of_the_output_are_counted_apart() {
    let mut rig = ALONE.rig();
    let mut times = |from: u8, to: u8, k| {
        let sent = rig.send(from, &rsv(from, mac(to), k, to, 1));
        assert_eq!((sent.len(), sent[0].0), (1, from));
        let word = |at: usize| u32::from_be_bytes(sent[0].1[at..at + 4].try_into().unwrap());
        // k granted, t_in, t_out
        (sent[0].1[17], word(32), word(36))
    };
    assert_eq!(times(0, 3, 4), (4, 0, 0));
    // The output is taken by the one before, the input is not.
    assert_eq!(times(1, 3, 2), (2, 0, 4));
    assert_eq!(times(2, 3, 9), (4, 0, 6));
    // The input is taken by its own, the output is not.
    assert_eq!(times(1, 2, 3), (3, 2, 0));
    assert_eq!(times(0, 2, 1), (1, 4, 3));
}

#[test]
fn a_receiver_is_told_of_grants_and_takes_back_what_does_not_come() {
    let mut rig = Setup { tables: "[pl2]\nagent = \"none\"\nnotify = true", ..ALONE }.rig();
    let mut ntf = bytes(GRT);
    // A copy of the GRT, from the sender to the receiver, of type 3.
    ntf[..12].copy_from_slice(&bytes("02 68 00 00 01 01  02 68 00 00 01 00"));
    ntf[14] = 0x31;
    assert_eq!(rig.send(0, &bytes(RSV)), [(0, bytes(GRT)), (1, ntf)]);

    let rst = "02 68 00 00 01 00  02 68 00 00 01 01  88b6 41 00 0003 0001 00000007 00000001 00000000
               00000000 00000000 0000000000000000 0000000000000000 00000000";
    // Only the receiver may, and only once.
    for (from, left) in [(2, 4), (1, 1), (1, 1)] {
        let mut rst = bytes(rst);
        rst[11] = from;
        assert_eq!(rig.send(from, &rst), []);
        assert_eq!((rig.registers(0), rig.registers(1)), ([left, 0, 0, 1], [0, left, 0, 0]));
    }
    assert_eq!((rig.counted(0, "resets"), rig.counted(0, "refused")), (1, 2));

    let rel = "02 68 00 00 01 01  02 68 00 00 01 00  88b6 51 00 0001 0001 00000007 00000001 00000000
               00000000 00000000 0000000000000000 0000000000000000 00000000";
    assert_eq!(rig.send(0, &bytes(rel)), []);
    rig.at_rest();
}

/// 512 at once, and one a slot: 81 in a millisecond of 81.3 slots. Requests that are sent again need no slots of the
/// receiver's, so they are not what bounds these.
#[test]
fn who_asks_again_and_again_does_not_fill_its_receivers_link_with_announcements() {
    let mut rig = Setup { tables: "[pl2]\nagent = \"none\"\nnotify = true", ..ALONE }.rig();
    let announced = |rig: &Rig| {
        let tables = rig.plane.show(rig.now, Topic::Slots);
        let book = tables.iter().find(|table| table.name == "book").expect("one pipe");
        ["announced", "unannounced"].map(|field| match book.get(field) {
            Some(Cell::Int(n)) => *n,
            other => panic!("{field}: {other:?}"),
        })
    };
    let ask = |rig: &mut Rig, times| {
        (0..times).for_each(|_| rig.arrive(0, &bytes(RSV)));
        rig.pass();
    };
    ask(&mut rig, 600);
    assert_eq!(announced(&rig), [512, 88]);
    rig.wait(1_000_000);
    ask(&mut rig, 100);
    assert_eq!(announced(&rig), [512 + 81, 88 + 19]);
    assert_eq!(rig.counted(0, "grants"), 700, "each is answered");
    // The switch takes back by itself what nobody was told of.
    rig.wait(100_000_000);
    rig.at_rest();
}

#[test]
fn what_has_no_one_port_to_go_to_is_refused_and_reserves_nothing() {
    let mut rig = ALONE.rig();
    let unknown = MacAddr([2, 0x68, 0, 0, 1, 99]);
    for to in [unknown, MacAddr::BROADCAST, MacAddr([0x33, 0x33, 0, 0, 0, 1]), mac(0), SWITCH] {
        let sent = rig.send(0, &rsv(0, to, 4, 1, 1));
        assert_eq!((sent.len(), sent[0].0), (1, 0), "{to}");
        let grt = &sent[0].1;
        // GRT with NACK, nothing granted.
        assert_eq!(grt[14..18], [0x21, 0x02, 0, 0], "{to}");
        rig.at_rest();
    }
    assert_eq!(rig.counted(0, "no_route"), 5);
}

#[test]
fn a_receiver_whose_link_is_down_is_nowhere() {
    let mut rig = ALONE.rig();
    rig.set_up(1, false);
    let sent = rig.send(0, &bytes(RSV));
    assert_eq!(sent[0].1[14..18], [0x21, 0x02, 0, 0]);
    rig.at_rest();
}

#[test]
fn a_sender_whose_link_goes_down_leaves_nothing_reserved() {
    let mut rig = ALONE.rig();
    rig.send(0, &bytes(RSV));
    rig.send(2, &rsv(2, mac(1), 2, 1, 1));
    rig.set_up(0, false);
    assert_eq!((rig.registers(0), rig.registers(1), rig.registers(2)), ([0; 4], [0, 2, 0, 0], [2, 0, 0, 1]));
}

#[test]
fn what_is_not_used_is_taken_back_2_ms_after_its_window() {
    let mut rig = ALONE.rig();
    let start = rig.now;
    rig.send(0, &bytes(RSV));
    rig.wait(2_000_000 + 4 * SLOT - 1 - rig.now.since(start));
    assert_eq!(rig.registers(0), [4, 0, 0, 1]);
    rig.wait(1);
    rig.at_rest();
    assert_eq!((rig.counted(0, "timeouts"), rig.counted(0, "timeout_slots")), (1, 4));
    // What comes now is late, and takes the receiver's time all the same.
    rig.arrive(0, &in_slot(&udp(0, 1, 1514), 7, true, true));
    rig.wait(SLOT);
    rig.at_rest();
    assert_eq!((rig.counted(0, "late"), rig.counted(0, "rogue")), (1, 0));
}

#[test]
fn a_start_has_its_number() {
    for (number, told) in [(0x1234, [0x12, 0x34]), (0, [0, 1])] {
        let mut rig = ALONE.rig();
        rig.plane.set_start(number);
        assert_eq!(rig.send(0, &bytes(RSV))[0].1[18..20], told);
    }
}

/// `frame` by `port` is dropped for `reason`, and no register changes.
fn refused(rig: &mut Rig, port: u8, frame: &[u8], reason: DropReason, what: &str) {
    let count = |rig: &Rig| rig.drops().iter().find(|(r, _)| *r == reason).map_or(0, |(_, n)| *n);
    let (before, drops) = ((0..4).map(|port| rig.registers(port)).collect::<Vec<_>>(), count(rig));
    assert_eq!(rig.send(port, frame), [], "{what}");
    assert_eq!(count(rig), drops + 1, "{what}: {:?}", rig.drops());
    assert_eq!((0..4).map(|port| rig.registers(port)).collect::<Vec<_>>(), before, "{what}");
}

#[test]
fn what_is_no_message_is_dropped_and_counted_and_changes_nothing() {
    let mut rig = ALONE.rig();
    rig.send(0, &rsv(0, mac(1), 4, 9, 1));
    let whole = bytes(RSV);
    let with = |at: usize, byte: u8| {
        let mut frame = whole.clone();
        frame[at] = byte;
        frame
    };
    let bad = DropReason::BadSlotMessage;
    for len in 14..60 {
        refused(&mut rig, 0, &whole[..len], bad, &format!("the first {len} bytes"));
    }
    refused(&mut rig, 0, &[&whole[..], &[0]].concat(), bad, "61 bytes");
    for version in (0..16).filter(|v| *v != 1) {
        refused(&mut rig, 0, &with(14, 0x10 | version), bad, "another version");
    }
    for kind in 6..16 {
        refused(&mut rig, 0, &with(14, kind << 4 | 1), bad, "another type");
    }
    refused(&mut rig, 0, &with(14, 0x21), bad, "a GRT from a host");
    refused(&mut rig, 0, &with(14, 0x31), bad, "an NTF from a host");
    refused(&mut rig, 0, &with(6, 0x03), DropReason::MulticastSource, "from a group");
    let mut forged = whole.clone();
    forged[6..12].copy_from_slice(&SWITCH.0);
    refused(&mut rig, 0, &forged, DropReason::MartianSource, "from the switch");
    // A shim, and nothing behind it.
    let shim = in_slot(&udp(0, 1, 60), 9, false, false);
    for len in 14..18 {
        refused(&mut rig, 0, &shim[..len], bad, "half a shim");
    }
    refused(&mut rig, 0, &in_slot(&bytes(GRT), 9, false, false), bad, "a GRT in disguise");
    for frame in [&whole, &shim] {
        let mut from_switch = frame.clone();
        from_switch[..6].copy_from_slice(&SWITCH.0);
        refused(&mut rig, UPLINK, &from_switch, DropReason::UnknownEthertype, "from another switch");
    }
    // In a VLAN the EtherType is not PL2's, and the frame is as any other.
    let tagged = packets::tagged(&whole, &[[0x81, 0, 0, 1]]);
    assert_eq!(rig.send(0, &tagged), [(1, tagged.clone())]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_behind_the_ethertype_change_a_register_unless_they_are_a_message(
        rest in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut rig = ALONE.rig();
        let frame = [&mac(1).0[..], &mac(0).0, &[0x88, 0xb6], &rest].concat();
        let headers = weft::wire::parse(&frame).expect("14 bytes at least");
        prop_assume!(Control::read(&frame, &headers).is_err());
        rig.send(0, &frame);
        let is_data = Shim::read(&frame).is_ok();
        rig.wait(SLOT);
        rig.at_rest();
        prop_assert_eq!(rig.counted(0, "rogue"), u64::from(is_data));
    }

    #[test]
    fn a_shim_that_was_put_on_is_taken_off_byte_for_byte(
        payload in prop::collection::vec(any::<u8>(), 0..1400),
        ethertype in prop_oneof![Just(0x0800u16), Just(0x8100), 0x0600u16..=0xffff],
        (conn, closes, last) in (0u16..1024, any::<bool>(), any::<bool>()),
    ) {
        prop_assume!(ethertype != 0x88b6 && ethertype != 0x0806 && !(ethertype == 0x8100 && payload.len() < 4));
        prop_assume!(!matches!(ethertype, 0x88a8 | 0x9100));
        let mut rig = ALONE.rig();
        let frame = [&mac(1).0[..], &mac(0).0, &ethertype.to_be_bytes(), &payload].concat();
        // What stands behind tags may be a tag cut short.
        prop_assume!(weft::wire::parse(&frame).is_ok_and(|h| h.kind != weft::wire::L3::Arp));
        let sent = rig.send(0, &in_slot(&frame, conn, closes, last));
        prop_assert_eq!(sent, [(1, frame)]);
        rig.at_rest();
    }
}

#[test]
fn a_message_teaches_the_bridge_where_its_sender_is() {
    let mut rig = ALONE.rig();
    let moved = MacAddr([2, 0x68, 0, 0, 1, 77]);
    let mut frame = rsv(2, mac(1), 1, 1, 1);
    frame[6..12].copy_from_slice(&moved.0);
    rig.send(2, &frame);
    let sent = rig.send(0, &rsv(0, moved, 1, 1, 1));
    assert_eq!(sent[0].1[14..18], [0x21, 0, 0, 1], "granted");
    assert_eq!(rig.registers(2), [1, 1, 0, 1]);
}
