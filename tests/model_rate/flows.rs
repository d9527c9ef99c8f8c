use weft::pisa::FlowHash;
use weft::scheme::p4te::rate::AckRule::{Paper, Safe};
use weft::scheme::p4te::rate::RateAction::{Decrease, Increase};
use weft::scheme::p4te::rate::{Direction, Fack, flow_key};

use super::segment::{ACK, FIN, L4, RST, SYN, Segment, headers, scale, stamps};
use super::{B, Leaf, SECONDS, ack, data};

#[test]
fn both_directions_of_a_connection_have_one_key_and_its_two_flows_have_two() {
    let hash = FlowHash::new(1);
    let key = |segment: &Segment, direction| {
        let frame = segment.bytes();
        flow_key(&hash, &frame, &headers(&frame), direction)
    };
    for flow in [2, 3] {
        let (there, back) = (data(flow, 1, 1), ack(flow, 2, 1));
        assert!(key(&there, there.direction()).is_some());
        assert_eq!(key(&there, there.direction()), key(&back, back.direction()), "flow {flow}");
        assert_ne!(key(&there, Direction::Forward), key(&there, Direction::Reverse), "flow {flow}");
        assert_ne!(key(&there, Direction::Forward), key(&data(flow + 2, 1, 1), Direction::Forward), "flow {flow}");
    }
}

#[test]
fn what_is_not_whole_tcp_directly_in_ip_has_no_key() {
    let hash = FlowHash::new(1);
    let whole = data(2, 1, 1).bytes();
    let changed = |changes: &[(usize, u8)], fix: usize| {
        let mut frame = whole.clone();
        changes.iter().for_each(|(at, byte)| frame[*at] = *byte);
        // The header checksum, mended by what the change adds to its word.
        let sum = u16::from_be_bytes([frame[24], frame[25]]) as usize + fix;
        frame[24..26].copy_from_slice(&((sum % 0xffff) as u16).to_be_bytes());
        let headers = headers(&frame);
        assert_eq!(headers.fault, None);
        flow_key(&hash, &frame, &headers, Direction::Forward)
    };
    assert!(changed(&[], 0).is_some());
    assert_eq!(changed(&[(23, 17)], 0xffff - 11), None, "UDP");
    assert_eq!(changed(&[(20, 0x20)], 0x2000), None, "a first fragment");
    assert_eq!(changed(&[(L4 + 12, 0x40)], 0), None, "a header of 16 bytes");
    assert_eq!(changed(&[(L4 + 12, 0x60)], 0), None, "a header past the packet");
}

#[test]
fn a_flow_is_admitted_once_in_b_bytes_across_the_wrap_of_sequence_numbers() {
    // The SYN is at 2^32 - 5000, so B later is at 5000.
    let isn = 0u32.wrapping_sub(5000);
    let mut leaf = Leaf::new(16);
    leaf.open(0, isn, 1000);
    assert!(!leaf.pass(&data(0, isn.wrapping_add(B), 1000)), "exactly B");
    assert!(leaf.pass(&data(0, isn.wrapping_add(B + 1), 1000)), "a byte more");
    assert!(leaf.pass(&data(0, isn.wrapping_add(B + 1001), 1000)), "until one is acted upon");
    let acted = data(0, isn.wrapping_add(B + 1), 1000);
    assert!(leaf.fack(&acted, Decrease, Safe).is_some());
    assert_eq!(leaf.fack(&data(0, isn.wrapping_add(B + 1001), 1000), Decrease, Safe), None, "admitted before that");
    assert!(!leaf.pass(&acted), "sent again");
    assert!(!leaf.pass(&data(0, isn.wrapping_add(2 * B + 1), 1000)));
    assert!(leaf.pass(&data(0, isn.wrapping_add(2 * B + 2), 1000)));
}

#[test]
fn a_flow_stays_admitted_however_much_it_sends_without_an_action() {
    let mut leaf = Leaf::new(16);
    leaf.open(0, 77, 1);
    let mut seq = 78u32;
    for step in 0..40 {
        let admitted = leaf.pass(&data(0, seq, 1000));
        leaf.pass(&ack(0, seq.wrapping_add(1000), 1000));
        assert!(step == 0 || admitted, "after {step} times 256 MiB");
        seq = seq.wrapping_add(1 << 28);
    }
    assert!(leaf.fack(&data(0, seq, 1000), Increase, Safe).is_some());
}

#[test]
fn a_syn_that_is_sent_again_sets_nothing_back() {
    let mut leaf = Leaf::new(16);
    leaf.open(0, 100, 1000);
    let acted = data(0, 101 + B, 1000);
    assert!(leaf.pass(&acted) && leaf.fack(&acted, Decrease, Safe).is_some());
    let syn = Segment { seq: 100, flags: SYN, options: scale(4), ..Segment::default() };
    assert!(!leaf.pass(&syn));
    assert!(!leaf.pass(&data(0, 101 + 2 * B, 1000)), "B bytes after the SYN, but not after the action");
    assert!(leaf.pass(&data(0, 102 + 2 * B, 1000)), "the flow is known as before");
}

#[test]
fn only_data_is_admitted() {
    let mut leaf = Leaf::new(16);
    leaf.open(0, 100, 1000);
    let at = data(0, 101 + B, 1000);
    assert!(leaf.pass(&at));
    for (what, segment) in [
        ("a pure ACK; its padding is no data", Segment { len: 0, ..at.clone() }),
        ("no ACK", Segment { flags: 0, ..at.clone() }),
        ("another flow", Segment { flow: 2, ..at.clone() }),
        ("a SYN-ACK with data", Segment { flags: SYN | ACK, ..at.clone() }),
        ("a FIN with data, which ends the flow", Segment { flags: FIN | ACK, ..at.clone() }),
        ("data after the FIN", at.clone()),
    ] {
        assert!(!leaf.pass(&segment), "{what}");
        assert_eq!(leaf.fack(&segment, Decrease, Safe), None, "{what}");
        assert!(!leaf.clamp(&segment, Decrease), "{what}");
    }
}

#[test]
fn a_fack_scales_the_receivers_last_window_and_acknowledges_by_its_rule() {
    for (rule, action, expected) in [
        (Safe, Decrease, Fack { ack: 2101, window: 450, tsval: None }),
        (Safe, Increase, Fack { ack: 2101, window: 1125, tsval: None }),
        (Paper, Decrease, Fack { ack: 102 + B, window: 450, tsval: None }),
    ] {
        let mut leaf = Leaf::new(16);
        leaf.open(0, 100, 4000);
        leaf.pass(&ack(0, 2101, 900));
        // Older, damaged, of bytes never sent, without ACK: none is believed.
        leaf.pass(&ack(0, 1101, 7));
        let mut damaged = ack(0, 3101, 7).bytes();
        damaged[L4 + 15] ^= 1;
        let parsed = headers(&damaged);
        leaf.flows.received(leaf.now, &mut damaged, &parsed);
        leaf.pass(&ack(0, 200_000, 7));
        leaf.pass(&Segment { flags: 0, ..ack(0, 3101, 7) });
        let at = data(0, 101 + B, 1000);
        assert!(leaf.pass(&at));
        assert_eq!(leaf.fack(&at, action, rule), Some(expected), "{rule:?} {action:?}");
    }
}

#[test]
fn a_fack_has_the_latest_timestamp_that_its_sender_takes() {
    let mut leaf = Leaf::new(16);
    let syn = |value| [scale(4), stamps(value, 0)].concat();
    leaf.handshake(0, 100, syn(1), syn(2));
    leaf.send(0, 101, 3000);
    let stamped = |at, value| Segment { options: stamps(value, 1), ..ack(0, at, 900) };
    let at = data(0, 101 + B, 1000);
    assert!(!leaf.pass(&at), "no window is known yet: that of a SYN-ACK is not scaled");
    leaf.pass(&stamped(101, 0xffff_fff0));
    leaf.pass(&stamped(2101, 0x10));
    leaf.pass(&ack(0, 3101, 1)); // without its timestamp
    leaf.pass(&stamped(1101, 0x20)); // late
    leaf.pass(&stamped(3101, 0xf)); // PAWS: its sender would not take it
    assert_eq!(leaf.fack(&at, Decrease, Safe), None, "without a timestamp to echo");
    let at = Segment { options: stamps(9, 9), ..at };
    assert_eq!(leaf.fack(&at, Decrease, Safe), Some(Fack { ack: 2101, window: 450, tsval: Some(0x10) }));
}

#[test]
fn nothing_is_said_that_changes_nothing() {
    for (window, action) in [(0, Decrease), (0, Increase), (1, Decrease), (65_535, Increase), (3, Increase)] {
        let mut leaf = Leaf::new(16);
        leaf.open(0, 100, 1000);
        leaf.pass(&ack(0, 1101, window));
        let at = data(0, 101 + B, 1000);
        leaf.pass(&at);
        assert_eq!(leaf.fack(&at, action, Paper), None, "{action:?} of {window}");
        leaf.pass(&ack(0, 1101, 1000));
        assert!(leaf.fack(&at, action, Paper).is_some(), "the B bytes were not used up");
    }
}

#[test]
fn a_flow_whose_handshake_is_not_clear_is_left_alone() {
    let syn = |options: Vec<u8>| Segment { seq: 100, flags: SYN, options, ..Segment::default() };
    let answer =
        |ack, options| Segment { reverse: true, seq: 5000, ack, flags: SYN | ACK, options, ..Segment::default() };
    for (what, known, segments) in [
        ("both are seen", true, vec![syn(scale(4)), answer(101, scale(4))]),
        ("both, each twice", true, vec![syn(vec![]), syn(vec![]), answer(101, scale(4)), answer(101, scale(4))]),
        (
            "the SYN of an earlier try",
            true,
            vec![Segment { seq: 7, ..syn(scale(1)) }, syn(scale(4)), answer(101, scale(4))],
        ),
        ("none", false, vec![]),
        ("only the SYN", false, vec![syn(scale(4))]),
        ("only the answer", false, vec![answer(101, scale(4))]),
        ("the answer to another SYN", false, vec![syn(scale(4)), answer(102, scale(4))]),
        ("a SYN again with another scale", false, vec![syn(scale(4)), syn(scale(5)), answer(101, scale(4))]),
        ("a SYN again without one", false, vec![syn(scale(4)), syn(vec![]), answer(101, scale(4))]),
        ("answers with different scales", false, vec![syn(scale(4)), answer(101, scale(4)), answer(101, scale(5))]),
        ("two scales in one SYN", false, vec![syn([scale(4), scale(5)].concat()), answer(101, scale(4))]),
        ("options that can't be read", false, vec![syn(scale(4)), answer(101, vec![2, 0, 0, 0])]),
        (
            "both sides open",
            false,
            vec![syn(scale(4)), Segment { flags: SYN, ..answer(0, scale(4)) }, answer(101, scale(4))],
        ),
        (
            "a new SYN that nobody answers",
            false,
            vec![syn(scale(4)), answer(101, scale(4)), Segment { seq: 9, ..syn(scale(4)) }],
        ),
        (
            "reset by the receiver",
            false,
            vec![syn(scale(4)), answer(101, scale(4)), Segment { flags: RST, ..answer(0, vec![]) }],
        ),
        (
            "reset by the sender",
            false,
            vec![syn(scale(4)), answer(101, scale(4)), Segment { flags: RST, ..syn(vec![]) }],
        ),
        (
            "closed by the sender",
            false,
            vec![syn(scale(4)), answer(101, scale(4)), Segment { flags: FIN | ACK, ..syn(vec![]) }],
        ),
        (
            "closed by the receiver, which goes on reading",
            true,
            vec![syn(scale(4)), answer(101, scale(4)), Segment { seq: 5001, flags: FIN | ACK, ..answer(101, vec![]) }],
        ),
    ] {
        let mut leaf = Leaf::new(16);
        segments.iter().for_each(|segment| assert!(!leaf.pass(segment), "{what}"));
        leaf.send(0, 101, 1000);
        leaf.pass(&Segment { seq: 5002, ..ack(0, 1101, 1000) });
        assert_eq!(leaf.pass(&data(0, 101 + B, 1000)), known, "{what}");
    }
}

#[test]
fn a_sender_may_be_the_one_that_was_called() {
    let mut leaf = Leaf::new(16);
    leaf.pass(&Segment { reverse: true, seq: 4999, flags: SYN, options: scale(2), ..Segment::default() });
    leaf.pass(&Segment { seq: 100, ack: 5000, flags: SYN | ACK, options: scale(9), ..Segment::default() });
    leaf.pass(&Segment { seq: 5000, ..ack(0, 101, 4000) });
    let at = data(0, 101 + B, 1000);
    assert!(leaf.pass(&at));
    // Shift 2 is the receiver's, 9 would be the sender's own.
    assert!(leaf.clamp(&at, Decrease));
    assert_eq!(leaf.shown(&Segment { seq: 5000, ..ack(0, 101, 4000) }), 2750, "11,000 bytes are on their way");
    assert_eq!(leaf.shown(&Segment { seq: 5000, ..ack(0, 9101, 4000) }), 2000);
}

#[test]
fn a_flow_whose_slot_is_taken_is_left_alone_until_its_holder_ends_or_is_silent() {
    let mut leaf = Leaf::new(1);
    leaf.open(0, 100, 1000);
    let (first, second) = (data(0, 101 + B, 1000), data(1, 201 + B, 1000));
    leaf.open(1, 200, 1000);
    assert!(leaf.pass(&first) && !leaf.pass(&second));
    // What the other flow's receiver says is not taken for the first one's, nor does its end end it.
    leaf.pass(&Segment { flags: RST, ..ack(1, 201, 0) });
    leaf.pass(&Segment { flags: FIN | ACK, ..data(1, 202, 0) });
    assert_eq!(leaf.fack(&first, Decrease, Safe), Some(Fack { ack: 101, window: 500, tsval: None }));

    leaf.pass(&Segment { flags: FIN | ACK, ..data(0, 12_101, 0) });
    assert!(!leaf.pass(&second), "its handshake is past");
    leaf.open(1, 200, 1000);
    assert!(leaf.pass(&second));

    leaf.now = leaf.now + 60 * SECONDS;
    leaf.open(0, 100, 1000);
    assert!(!leaf.pass(&first), "60 s of silence are not more than 60 s");
    leaf.now = leaf.now + 60 * SECONDS + 1;
    leaf.open(0, 100, 1000);
    assert!(leaf.pass(&first) && !leaf.pass(&second));
}
