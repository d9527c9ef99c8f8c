//! What a host does when, without faults. Times are in slots of 1,000 ns unless said otherwise.

use weft::scheme::pl2::host::{Enqueued, HostConfig};
use weft::time::Instant;
use weft::wire::pl2::{Control, Kind};

use super::{FULL, Rig, SLOT, grant, key, mac, message};

/// Design, 2.2 to 2.4: 6 frames, K = 4, D = 1. The wait is 5 slots from the grant at 2; 4 slots later the burst has
/// left, and the rest is asked for.
#[test]
fn a_burst_leaves_max_of_t_in_and_t_out_slots_after_its_grant_and_the_next_is_asked_for_when_it_has_left() {
    let mut rig = Rig::new(HostConfig::default());
    rig.enqueue(0, key(9, 1), 0..6);
    let rsv = rig.only(0);
    // Two frames are queued beyond the four that are asked for.
    assert_eq!(rsv, Control { demand: 2 * FULL, ..message(Kind::Rsv, 0, 1, 4) });
    assert_eq!(rig.sent[0].0, mac(9), "to the receiver of the data, which tells the switch the output port");

    rig.control(2 * SLOT, &grant(&rsv, (3, 5), 1));
    assert!(rig.poll(2 * SLOT).is_empty());
    assert_eq!(rig.next(), Some(7 * SLOT));
    assert!(rig.poll(7 * SLOT - 1).is_empty() && rig.released.is_empty(), "not a nanosecond early");
    assert!(rig.poll(7 * SLOT).is_empty());
    let at = 7 * SLOT;
    assert_eq!(rig.frames(), [(at, 0, "E"), (at, 1, "E"), (at, 2, "E"), (at, 3, "EL")]);

    assert_eq!(rig.next(), Some(11 * SLOT), "four full frames take four slots");
    let second = rig.only(11 * SLOT);
    assert_eq!(second, Control { epoch: 1, t_tx: 11 * SLOT, ..message(Kind::Rsv, 0, 2, 2) });
    rig.control(13 * SLOT, &grant(&second, (1, 0), 2));
    rig.run(20 * SLOT);
    assert_eq!(rig.frames()[4..], [(14 * SLOT, 4, "E"), (14 * SLOT, 5, "EL")]);
    assert_eq!((rig.host.parked(), rig.host.outstanding(), rig.host.connections(), rig.next()), (0, 0, 0, None));
    assert_eq!(rig.host.srtt(), Some(2 * SLOT), "both answers took two slots");
}

/// Design, 2.3: the knob takes time off the wait, which is never less than none.
#[test]
fn a_round_trip_is_taken_off_the_wait_only_if_told_so() {
    let mut rig = Rig::new(HostConfig { rtt_comp: 4 * SLOT, ..HostConfig::default() });
    rig.enqueue(0, key(9, 1), 0..1);
    let rsv = rig.only(0);
    rig.control(10 * SLOT, &grant(&rsv, (0, 6), 1));
    assert_eq!(rig.next(), Some(12 * SLOT));
    rig.run(13 * SLOT);
    rig.enqueue(20 * SLOT, key(9, 1), 1..2);
    let rsv = rig.only(20 * SLOT);
    rig.control(24 * SLOT, &grant(&rsv, (0, 3), 2));
    assert_eq!(rig.next(), Some(24 * SLOT));
}

/// Design, 2.2 and 7: with D = 2 the next request is not held up by the wait, but its burst is by the order.
#[test]
fn with_two_reservations_at_once_bursts_leave_by_their_numbers() {
    let mut rig = Rig::new(HostConfig { depth: 2, max_burst: 2, ..HostConfig::default() });
    rig.enqueue(0, key(9, 1), 0..6);
    let asked = rig.poll(0).to_vec();
    let [(_, first), (_, second)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!((first.seq, first.k, second.seq, second.k), (1, 2, 2, 2));

    // The second is due at 3, the first at 10: both leave at 10, 4 slots of frames.
    rig.control(2 * SLOT, &grant(&second, (0, 1), 1));
    rig.control(2 * SLOT, &grant(&first, (8, 0), 2));
    assert!(rig.poll(9 * SLOT).is_empty() && rig.released.is_empty());
    rig.poll(10 * SLOT);
    let at = 10 * SLOT;
    assert_eq!(rig.frames(), [(at, 0, "E"), (at, 1, "EL"), (at, 2, "E"), (at, 3, "EL")]);
    // The first has left at 12, and the third is asked for then.
    assert_eq!(rig.next(), Some(12 * SLOT));
    assert_eq!(rig.only(12 * SLOT).seq, 3);
}

/// Design, 2.1: requests take turns, whatever is queued.
#[test]
fn connections_ask_in_turn_up_to_what_the_host_may_have_outstanding() {
    let mut rig = Rig::new(HostConfig { max_outstanding: 6, max_burst: 2, depth: 2, ..HostConfig::default() });
    rig.enqueue(0, key(7, 1), 0..20);
    rig.enqueue(0, key(8, 1), 20..40);
    let asked: Vec<_> = rig.poll(0).iter().map(|(dst, rsv)| (*dst, rsv.conn, rsv.seq, rsv.k)).collect();
    assert_eq!(asked, [(mac(7), 0, 1, 2), (mac(8), 1, 1, 2), (mac(7), 0, 2, 2)]);
    assert_eq!(rig.host.outstanding(), 6);

    let first = Control { k: 2, ..message(Kind::Rsv, 0, 1, 2) };
    rig.control(SLOT, &grant(&first, (0, 0), 1));
    rig.poll(SLOT);
    assert_eq!(rig.sent, [], "two slots have not left yet");
    let next = rig.only(3 * SLOT);
    assert_eq!((next.conn, next.seq), (1, 2), "it is the second's turn");
}

/// 40 connections with 100 frames each, K = 4, 32 slots at once, and three others that have one frame now and then. Each
/// leaves room for one or three slots, which nobody takes who wants four.
#[test]
fn connections_with_much_to_send_ask_for_whole_bursts_whatever_room_others_leave() {
    let mut rig = Rig::new(HostConfig::default());
    (0..40).for_each(|flow| rig.enqueue(0, key(9, flow), 0..100));
    let (mut bursts, mut singles) = (0, 0);
    for step in 0..2_000 {
        let now = step * SLOT;
        if step % 200 < 3 {
            rig.enqueue(now, key(8, step % 200), [0]);
        }
        for (dst, rsv) in rig.poll(now).to_vec() {
            let is_single = dst == mac(8);
            assert_eq!(rsv.k, if is_single { 1 } else { 4 }, "slot {step}");
            *(if is_single { &mut singles } else { &mut bursts }) += 1;
            rig.control(now, &grant(&rsv, (0, 0), step + 1));
        }
    }
    // Of 2,000 slots all but the 30 of the others, and what is outstanding at the end.
    assert!((1_970 / 4..=(2_000 + 32) / 4).contains(&bursts) && (24..=30).contains(&singles), "{bursts}, {singles}");
}

/// Design, 2.6: frames share a slot as far as a full frame would fill it, 1538 bytes of wire. A frame of 488 takes
/// 512: three fit. One of 60 takes 84: 18 fit.
#[test]
fn small_frames_share_a_slot_and_count_as_one() {
    let mut rig = Rig::new(HostConfig::default());
    for frame in 0..4 {
        rig.host.enqueue(Instant(0), key(9, 1), 488, frame);
    }
    for frame in 4..23 {
        // The first 12 beside the fourth frame: 512 + 12 * 84 = 1520.
        rig.host.enqueue(Instant(0), key(9, 1), 40, frame);
    }
    let rsv = rig.only(0);
    assert_eq!(rsv.k, 3);
    rig.control(SLOT, &grant(&rsv, (0, 0), 1));
    rig.run(SLOT);
    let frames = rig.frames();
    let closing: Vec<_> = frames.iter().filter(|(.., marks)| !marks.is_empty()).map(|(_, f, m)| (*f, *m)).collect();
    assert_eq!((frames.len(), closing), (23, vec![(2, "E"), (15, "E"), (22, "EL")]));
    // 4 * 512 + 19 * 84 = 3644 bytes of wire, of 1538 in 1,000 ns: 2369.31 ns.
    assert_eq!(rig.next(), Some(SLOT + 2370));
}

/// Design, 2.7: a small frame goes unscheduled, but not past what its connection has queued.
#[test]
fn small_frames_bypass_only_if_nothing_of_their_connection_waits() {
    let mut rig = Rig::new(HostConfig { bypass_bytes: 128, ..HostConfig::default() });
    assert_eq!(rig.host.enqueue(Instant(0), key(9, 1), 128, 1), Enqueued::Bypass(1));
    assert!(rig.poll(0).is_empty());
    rig.enqueue(0, key(9, 1), 2..3);
    assert_eq!(rig.host.enqueue(Instant(0), key(9, 1), 128, 3), Enqueued::Parked);
    assert_eq!(rig.host.enqueue(Instant(0), key(9, 2), 128, 4), Enqueued::Bypass(4), "another connection");
    let mut strict = Rig::new(HostConfig::default());
    assert_eq!(strict.host.enqueue(Instant(0), key(9, 1), 40, 1), Enqueued::Parked, "by default all is scheduled");
}

/// Design, 7: K slots whatever is queued; the last frame says that it is the last, which gives the rest back.
#[test]
fn with_a_fixed_k_the_last_frame_ends_the_reservation() {
    let mut rig = Rig::new(HostConfig { fixed_k: true, ..HostConfig::default() });
    rig.enqueue(0, key(9, 1), 0..2);
    let rsv = rig.only(0);
    assert_eq!(rsv.k, 4);
    rig.control(SLOT, &grant(&rsv, (0, 0), 1));
    rig.run(2 * SLOT);
    assert_eq!(rig.frames(), [(SLOT, 0, "E"), (SLOT, 1, "EL")]);
    let counters = rig.host.stats().counters;
    assert_eq!((counters.used_slots, counters.unused_slots, rig.host.outstanding()), (2, 2, 2));
}

#[test]
fn the_first_frame_of_a_connection_is_taken_however_much_others_have_waiting() {
    let mut rig = Rig::new(HostConfig { max_parked: 3, ..HostConfig::default() });
    rig.enqueue(0, key(9, 1), 0..3);
    rig.enqueue(0, key(9, 2), 3..4);
    let mut offer = |flow, frame| rig.host.enqueue(Instant(0), key(9, flow), FULL, frame);
    assert_eq!([offer(1, 4), offer(2, 5)], [Enqueued::Dropped(4), Enqueued::Dropped(5)]);
    let asked: Vec<_> = rig.poll(0).iter().map(|(_, rsv)| (rsv.conn, rsv.k)).collect();
    assert_eq!(asked, [(0, 3), (1, 1)]);
}

/// Design, 6 and 7: what is beyond a bound is the newest frame, and it is counted by which bound it was.
#[test]
fn what_there_is_no_room_for_is_handed_back_and_counted() {
    let config = HostConfig { max_queue: 2, max_parked: 3, max_connections: 2, ..HostConfig::default() };
    let mut rig = Rig::new(config);
    rig.enqueue(0, key(9, 1), 0..2);
    let mut offer = |flow, len, frame| rig.host.enqueue(Instant(0), key(9, flow), len, frame);
    assert_eq!(offer(1, FULL, 2), Enqueued::Dropped(2), "two of a connection");
    assert_eq!(offer(2, FULL + 1, 3), Enqueued::Dropped(3), "longer than a slot");
    assert_eq!(offer(2, FULL, 4), Enqueued::Parked);
    assert_eq!(offer(2, FULL, 5), Enqueued::Dropped(5), "three in all");
    let rsv = rig.poll(0)[0].1;
    rig.control(0, &grant(&rsv, (0, 0), 1));
    rig.run(0);
    assert_eq!(rig.host.enqueue(Instant(0), key(9, 3), FULL, 6), Enqueued::Dropped(6), "two connections");
    let counters = rig.host.stats().counters;
    let dropped = (counters.dropped_queue, counters.dropped_too_long, counters.dropped_host);
    assert_eq!((dropped, counters.dropped_connections, counters.dropped()), ((1, 1, 1), 1, 4));
    assert_eq!((counters.taken, counters.sent, rig.host.stats().parked_peak), (3, 2, 3));
}

#[test]
fn a_configuration_out_of_its_ranges_is_refused_with_what_to_choose() {
    let refused = |config: HostConfig| config.validate().expect_err("out of its range").to_string();
    let config = HostConfig::default();
    assert!(config.validate().is_ok());
    assert_eq!(refused(HostConfig { max_burst: 0, ..config }), "bursts of 0 slots: choose 1 to 1024");
    assert_eq!(refused(HostConfig { depth: 17, ..config }), "17 reservations of a connection at once: choose 1 to 16");
    assert_eq!(refused(HostConfig { max_connections: 1025, ..config }), "1025 connections: choose 1 to 1024");
    assert_eq!(refused(HostConfig { max_parked: 0, ..config }), "max_parked is 0: choose at least 1");
}
