use weft::scheme::p4te::rate::RateAction::{Decrease, Increase};

use super::segment::{ACK, FIN, RST, Segment, scale};
use super::{B, Leaf, MILLIS, ack, data};

/// A leaf that decreases the window of flow 0 when bytes 101 to 11,100 are sent and 9,101 is acknowledged, with
/// a window of `window` by a scale of 4.
fn clamped(window: u16) -> Leaf {
    let mut leaf = Leaf::new(16);
    leaf.open(0, 100, 10_000);
    leaf.pass(&ack(0, 9101, window));
    let at = data(0, 101 + B, 1000);
    assert!(leaf.pass(&at));
    assert!(leaf.clamp(&at, Decrease));
    leaf
}

#[test]
fn a_clamp_halves_the_window_for_the_next_b_acknowledged_bytes() {
    let mut leaf = clamped(1000);
    assert_eq!(leaf.shown(&ack(0, 10_101, 1000)), 500);
    leaf.send(0, 11_101, 9000);
    assert_eq!(leaf.shown(&ack(0, 19_100, 1000)), 500);
    assert_eq!(leaf.shown(&ack(0, 19_101, 1000)), 1000, "B bytes after 9101");
    assert_eq!(leaf.shown(&ack(0, 19_101, 1000)), 1000);
}

#[test]
fn a_clamp_ends_after_its_time() {
    let mut leaf = clamped(1000);
    leaf.now = leaf.now + (100 * MILLIS - 1);
    assert_eq!(leaf.shown(&ack(0, 10_101, 1000)), 500);
    leaf.now = leaf.now + 1;
    assert_eq!(leaf.shown(&ack(0, 10_201, 1000)), 1000);
}

#[test]
fn an_increase_lifts_a_clamp_and_without_one_is_no_action() {
    let mut leaf = clamped(1000);
    let (next, after) = (data(0, 102 + 2 * B, 1000), data(0, 103 + 3 * B, 1000));
    leaf.pass(&next);
    assert_eq!(leaf.shown(&ack(0, 18_101, 1000)), 500, "its 3,000 bytes on their way fit 500 times 16");
    assert!(leaf.clamp(&next, Increase));
    assert_eq!(leaf.shown(&ack(0, 18_201, 1000)), 1000);
    leaf.pass(&after);
    assert!(!leaf.clamp(&after, Increase));
    assert!(leaf.clamp(&after, Decrease), "the B bytes were not used up");
}

#[test]
fn a_clamped_window_is_never_more_than_the_genuine_one_and_0_only_if_that_is() {
    let mut leaf = clamped(1000);
    for (window, shown) in [(500, 500), (499, 499), (1, 1), (0, 0), (30, 30), (65_535, 500), (0, 0), (501, 500)] {
        assert_eq!(leaf.shown(&ack(0, 10_101, window)), shown, "{window}");
    }
}

#[test]
fn a_clamped_window_is_never_less_than_a_segment() {
    // By a scale of 4, 1460 bytes are 91.25 and 8960 are 560.
    let sent = |window, options: Vec<u8>| {
        let mut leaf = Leaf::new(16);
        leaf.handshake(0, 100, scale(4), options);
        leaf.pass(&ack(0, 101, window));
        let at = data(0, 101 + B, 1000);
        leaf.pass(&at);
        leaf.pass(&ack(0, 101 + B + 1000, window));
        leaf.clamp(&at, Decrease).then(|| leaf.shown(&ack(0, 101 + B + 1000, window)))
    };
    assert_eq!(sent(100, scale(4)), Some(92));
    assert_eq!(sent(92, scale(4)), None, "then there is nothing to take away");
    assert_eq!(sent(1000, [vec![2, 4, 0x23, 0], scale(4)].concat()), Some(560));
    assert_eq!(sent(4000, vec![]), Some(2000), "without a scale");
    assert_eq!(sent(2000, vec![]), Some(1460));
}

#[test]
fn a_window_scale_over_14_counts_as_14() {
    let mut leaf = Leaf::new(16);
    leaf.handshake(0, 100, scale(4), scale(15));
    leaf.pass(&ack(0, 101, 4));
    leaf.send(0, 101, 40_000);
    assert!(leaf.clamp(&data(0, 101 + B, 1000), Decrease));
    assert_eq!(leaf.shown(&ack(0, 101, 4)), 3, "40,000 bytes are 2.4 times 2^14 and 1.2 times 2^15");
}

#[test]
fn the_right_edge_is_never_left_of_what_was_sent() {
    // 11,100 is the last byte sent: at 101 that is 11,000 bytes of window, 687.5 fields.
    let mut leaf = Leaf::new(16);
    leaf.open(0, 100, 10_000);
    let at = data(0, 101 + B, 1000);
    leaf.pass(&at);
    assert!(leaf.clamp(&at, Decrease));
    assert_eq!(leaf.shown(&ack(0, 101, 1000)), 688);
    assert_eq!(leaf.shown(&ack(0, 101, 600)), 600, "the receiver's own shrinking is shown");
    // Sent meanwhile; the ACK stays a duplicate of the one before.
    leaf.send(0, 11_101, 1000);
    assert_eq!(leaf.shown(&ack(0, 101, 1000)), 688);
    assert_eq!(leaf.shown(&ack(0, 1101, 1000)), 688, "11,000 bytes again");
    assert_eq!(leaf.shown(&ack(0, 3101, 1000)), 563, "9,000 bytes");
    assert_eq!(leaf.shown(&ack(0, 5101, 1000)), 500, "7,000 bytes fit");
}

#[test]
fn only_the_newest_segments_between_handshake_and_end_are_clamped() {
    let mut leaf = clamped(1000);
    let newest = ack(0, 10_101, 1000);
    assert_eq!(leaf.shown(&Segment { len: 700, ..newest.clone() }), 500, "data counts as well");
    for (what, segment) in [
        ("an older one", ack(0, 10_100, 1000)),
        ("an older one's data sent again", Segment { seq: 4000, ..newest.clone() }),
        ("of bytes that were not sent", ack(0, 11_102, 1000)),
        ("another flow's", ack(2, 10_101, 1000)),
        ("the FIN", Segment { flags: FIN | ACK, ..newest.clone() }),
        ("an RST", Segment { flags: RST | ACK, ..newest.clone() }),
        ("after the RST", newest.clone()),
    ] {
        assert_eq!(leaf.shown(&segment), 1000, "{what}");
    }
}
