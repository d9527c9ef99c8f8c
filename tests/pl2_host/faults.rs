//! Lost, copied, late and refused answers, restarts, and what comes too late. Each expectation is from the design.

use weft::scheme::pl2::host::{HostConfig, RTO_MAX, RTO_MIN};
use weft::time::{Instant, MILLIS};
use weft::wire::pl2::{Control, Flags, Kind};

use super::{Rig, SLOT, grant, key, message, refusal};

const RETRY: Flags = Flags { retry: true, nack: false, clock: false, window: false };
pub const CLOCK: Flags = Flags { retry: false, nack: false, clock: true, window: false };

/// A rig with one frame for flow 1, and its request at time 0.
fn asked(config: HostConfig) -> (Rig, Control) {
    let mut rig = Rig::new(config);
    rig.enqueue(0, key(9, 1), 0..1);
    let rsv = rig.only(0);
    (rig, rsv)
}

/// Design, 2.10: after 1 ms, then 2, 4, 8, 16, 16, with the same number, for as long as it takes.
#[test]
fn without_an_answer_the_request_is_sent_again_after_longer_and_longer() {
    let (mut rig, _) = asked(HostConfig::default());
    let sent = rig.run(80 * MILLIS);
    let times: Vec<u64> = sent.iter().map(|(at, _)| at / MILLIS).collect();
    assert_eq!(times, [1, 3, 7, 15, 31, 47, 63, 79]);
    for (at, rsv) in &sent {
        assert_eq!(*rsv, Control { flags: RETRY, t_tx: *at, ..message(Kind::Rsv, 0, 1, 1) });
    }
    rig.control(80 * MILLIS, &grant(&sent[7].1, (0, 0), 1));
    rig.run(80 * MILLIS);
    assert_eq!(rig.frames(), [(80 * MILLIS, 0, "EL")]);
    assert_eq!(rig.host.srtt(), Some(MILLIS), "from the last request, whose time is echoed");
    assert_eq!((RTO_MIN, RTO_MAX), (MILLIS, 16 * MILLIS));
}

/// Design, 2.10: four round trips if that is longer. They take 1 ms here.
#[test]
fn a_long_round_trip_makes_the_host_patient() {
    let (mut rig, rsv) = asked(HostConfig::default());
    rig.control(MILLIS, &grant(&rsv, (0, 0), 1));
    assert!(rig.run(2 * MILLIS).is_empty(), "the answer came just in time");
    rig.enqueue(10 * MILLIS, key(9, 1), 1..2);
    rig.poll(10 * MILLIS);
    let times: Vec<u64> = rig.run(50 * MILLIS).iter().map(|(at, _)| at / MILLIS).collect();
    assert_eq!(times, [14, 22, 38]);
}

/// Design, 2.10: of two grants of one number that which the switch gave last; a copy of an older one is nothing.
#[test]
fn of_two_grants_the_one_that_the_switch_gave_last_counts() {
    for order in [[0, 1], [1, 0]] {
        let (mut rig, rsv) = asked(HostConfig::default());
        let grants = [grant(&rsv, (2, 0), 100), grant(&rsv, (7, 0), 200)];
        order.into_iter().for_each(|i| rig.control(SLOT, &grants[i]));
        rig.run(20 * SLOT);
        assert_eq!(rig.frames(), [(8 * SLOT, 0, "EL")], "{order:?}");
        assert_eq!(rig.host.stats().counters.stale, u64::from(order == [1, 0]));
    }
}

#[test]
fn a_grant_is_used_once_however_often_it_comes() {
    let (mut rig, rsv) = asked(HostConfig::default());
    let first = grant(&rsv, (0, 0), 100);
    rig.control(SLOT, &first);
    rig.enqueue(SLOT, key(9, 1), 1..2);
    rig.control(SLOT, &first);
    rig.poll(SLOT);
    // While the frame leaves, when the next was asked for, and when all is over.
    rig.control(SLOT, &Control { t_sw: 300, ..first });
    let second = rig.only(2 * SLOT);
    rig.control(2 * SLOT, &first);
    rig.poll(3 * SLOT);
    assert_eq!(rig.frames(), [(SLOT, 0, "EL")]);
    rig.control(3 * SLOT, &grant(&second, (0, 0), 400));
    rig.run(9 * SLOT);
    rig.control(9 * SLOT, &grant(&second, (0, 0), 400));
    assert_eq!(rig.poll(9 * SLOT), [], "nothing is given back: it was used");
    assert_eq!((rig.frames().len(), rig.host.stats().counters.stale), (2, 4));
}

/// Rule 7: a refusal is waited out, longer each time; a grant ends that.
#[test]
fn what_is_refused_is_asked_for_later_under_a_new_number() {
    let (mut rig, mut rsv) = asked(HostConfig::default());
    let mut now = 0;
    for (seq, pause) in [(2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 16)] {
        rig.control(now, &refusal(&rsv, now));
        assert!(rig.poll(now).is_empty());
        now += pause * MILLIS;
        assert!(rig.poll(now - 1).is_empty());
        assert_eq!(rig.next(), Some(now));
        rsv = rig.only(now);
        assert_eq!(rsv, Control { epoch: 1, t_tx: now, ..message(Kind::Rsv, 0, seq, 1) });
    }
    rig.control(now, &grant(&rsv, (0, 0), now));
    rig.run(now);
    rig.enqueue(now, key(9, 1), 1..2);
    let rsv = rig.only(now + SLOT);
    rig.control(now + SLOT, &refusal(&rsv, now));
    assert_eq!(rig.next(), Some(now + SLOT + MILLIS), "from the start again");
}

/// Rule 7: the grant was lost, and the switch took the reservation back before it was asked again: refused as stale.
#[test]
fn a_refusal_of_a_request_sent_again_is_followed_by_a_new_number_at_once() {
    let (mut rig, _) = asked(HostConfig::default());
    let [(_, again)] = rig.run(MILLIS)[..] else { panic!("one request sent again") };
    rig.control(MILLIS + SLOT, &refusal(&again, 1));
    let new = rig.only(MILLIS + SLOT);
    assert_eq!((new.seq, new.flags.retry), (2, false));
    rig.control(MILLIS + 2 * SLOT, &refusal(&new, 2));
    assert!(rig.poll(MILLIS + 2 * SLOT).is_empty(), "the new one is not hurried");
}

/// Rule 8: the request was copied on the way; the copy was refused and the other granted.
#[test]
fn a_grant_of_a_number_that_was_given_up_is_given_back_once() {
    let (mut rig, rsv) = asked(HostConfig::default());
    rig.control(SLOT, &refusal(&rsv, 10));
    rig.control(2 * SLOT, &grant(&rsv, (0, 0), 20));
    let rel = rig.only(2 * SLOT);
    assert_eq!(rel, Control { epoch: 1, t_tx: 2 * SLOT, ..message(Kind::Rel, 0, 1, 1) });
    rig.control(3 * SLOT, &grant(&rsv, (0, 0), 20));
    assert!(rig.poll(3 * SLOT).is_empty());
    assert_eq!((rig.frames(), rig.host.stats().counters.released), (vec![], 1));
}

/// Design, 3g: the grant of start 1 is void; its frame leaves by one of start 2 only.
#[test]
fn another_start_of_the_switch_voids_grants_that_are_not_used() {
    let (mut rig, first) = asked(HostConfig::default());
    rig.enqueue(0, key(9, 2), 1..2);
    let second = rig.only(0);
    rig.control(SLOT, &grant(&first, (500, 0), 9_000));
    rig.poll(SLOT);
    rig.control(2 * SLOT, &Control { epoch: 2, ..grant(&second, (0, 0), 1) });
    let again = rig.only(2 * SLOT);
    assert_eq!(again, Control { epoch: 2, t_tx: 2 * SLOT, ..message(Kind::Rsv, 0, 2, 1) });
    assert_eq!(rig.frames(), [(2 * SLOT, 1, "EL")]);
    // A grant that start 1 still sent, for a request of before: as if it had not come.
    rig.control(3 * SLOT, &Control { t_tx: 0, ..grant(&again, (0, 0), 9_001) });
    rig.poll(3 * SLOT);
    assert_eq!((rig.frames().len(), rig.host.epoch()), (1, 2));
    rig.control(4 * SLOT, &Control { epoch: 2, ..grant(&again, (0, 0), 2) });
    rig.run(9 * SLOT);
    assert_eq!(rig.frames()[1..], [(4 * SLOT, 0, "EL")]);
    let counters = rig.host.stats().counters;
    assert_eq!((counters.restarts, counters.voided, counters.stale), (1, 1, 1));
}

/// Rule 9: a switch that forgot its number begins at 1 again. Its answer to a request of now is not an old one.
#[test]
fn a_switch_that_starts_with_a_lower_number_is_believed() {
    let (mut rig, rsv) = asked(HostConfig::default());
    rig.control(SLOT, &Control { epoch: 700, ..grant(&rsv, (0, 0), 1) });
    rig.run(SLOT);
    rig.enqueue(5 * SLOT, key(9, 1), 1..2);
    let rsv = rig.only(5 * SLOT);
    assert_eq!(rsv.epoch, 700);
    rig.control(6 * SLOT, &grant(&rsv, (0, 0), 1));
    rig.run(6 * SLOT);
    assert_eq!((rig.frames().len(), rig.host.epoch()), (2, 1));
}

/// Design, 2.5, with the 16 slots of Fastpass: 16 slots late is in time, a nanosecond more is not.
#[test]
fn late_bursts_are_sent_where_slots_are_counted_and_given_up_where_they_go_by_a_clock() {
    for (lateness, late) in [(16 * SLOT, false), (16 * SLOT + 1, true)] {
        let (mut rig, rsv) = asked(HostConfig::default());
        rig.control(0, &grant(&rsv, (1, 0), 1));
        assert!(rig.poll(SLOT + lateness).is_empty());
        assert_eq!((rig.frames().len(), rig.host.stats().counters.late), (1, u64::from(late)));

        let (mut rig, rsv) = asked(HostConfig::default());
        rig.control(0, &Control { flags: CLOCK, ..grant(&rsv, (1, 0), 1) });
        let now = SLOT + lateness;
        let sent: Vec<Control> = rig.poll(now).iter().map(|(_, control)| *control).collect();
        let [rel, rsv] = [(Kind::Rel, 1), (Kind::Rsv, 2)].map(|(kind, seq)| Control {
            epoch: 1,
            t_tx: now,
            ..message(kind, 0, seq, 1)
        });
        assert_eq!(sent, if late { vec![rel, rsv] } else { vec![] });
        assert_eq!((rig.frames().len(), rig.host.stats().counters.given_up), (usize::from(!late), u64::from(late)));
    }
}

/// A host of the real world is never exact. With no slot of patience it would ask for ever.
#[test]
fn by_a_clock_a_burst_may_start_within_its_slot_however_little_is_late() {
    for (lateness, sent) in [(1, 1), (SLOT, 1), (SLOT + 1, 0)] {
        let (mut rig, rsv) = asked(HostConfig { late_max: 0, ..HostConfig::default() });
        rig.control(0, &Control { flags: CLOCK, ..grant(&rsv, (1, 0), 1) });
        rig.poll(SLOT + lateness);
        assert_eq!((rig.frames().len(), rig.host.stats().counters.given_up), (sent, 1 - sent as u64), "{lateness} ns");
    }
}

/// Slots of four seconds, 4 billion of them ahead: the connection waits, and all else is as it was.
#[test]
fn a_grant_for_the_end_of_time_keeps_its_own_connection_waiting_alone() {
    const UPTIME: u64 = 100_000 * MILLIS;
    let mut rig = Rig::new(HostConfig::default());
    rig.enqueue(UPTIME, key(9, 1), 0..1);
    let rsv = rig.only(UPTIME);
    let absurd = Control { slot_ns: u32::MAX, ..grant(&rsv, (0, u32::MAX - 1), 1) };
    rig.control(UPTIME, &absurd);
    assert!(rig.poll(UPTIME).is_empty());
    for round in 1..4 {
        let now = UPTIME + round * MILLIS;
        rig.enqueue(now, key(9, 2), round..round + 1);
        let rsv = rig.only(now);
        rig.control(now, &grant(&rsv, (0, 0), 1 + round));
        rig.run(now + 10 * SLOT);
        assert_eq!(rig.frames().len() as u64, round);
    }
    rig.host.withdraw(Instant(UPTIME), |_| true, |frame| assert_eq!(frame, 0));
    rig.run(UPTIME + 10 * MILLIS);
    assert_eq!((rig.host.parked(), rig.host.connections(), rig.next()), (0, 0, None));
}

/// Design, 2.4: two windows of one host meet; the second burst waits for the link, which makes it late by 20 slots.
#[test]
fn a_burst_that_waits_for_the_link_is_as_late_as_it_starts() {
    let mut rig = Rig::new(HostConfig { max_burst: 20, ..HostConfig::default() });
    rig.enqueue(0, key(8, 1), 0..20);
    rig.enqueue(0, key(9, 1), 20..21);
    let asked = rig.poll(0).to_vec();
    for (_, rsv) in asked {
        rig.control(0, &Control { flags: CLOCK, ..grant(&rsv, (0, 0), 1) });
    }
    let sent = rig.run(0);
    assert_eq!((sent[0].1.kind, sent[0].1.conn, rig.frames().len()), (Kind::Rel, 1, 20));
    // The switch would grant the same slots again, now, for ever. They are asked for when they can be used.
    assert_eq!((sent.len(), rig.next()), (1, Some(20 * SLOT)));
    let again = rig.only(20 * SLOT);
    rig.control(20 * SLOT, &Control { flags: CLOCK, ..grant(&again, (0, 0), 2) });
    rig.run(20 * SLOT);
    assert_eq!((again.conn, again.seq, rig.frames().len()), (1, 2, 21));
}

/// A message of a host, one without a start or a slot's length, and one of a connection that never was.
#[test]
fn what_makes_no_sense_changes_nothing() {
    let (mut rig, rsv) = asked(HostConfig::default());
    let good = grant(&rsv, (0, 0), 1);
    for bad in [
        Control { slot_ns: 0, ..good },
        Control { epoch: 0, ..good },
        Control { conn: 77, ..good },
        Control { conn: u32::MAX, ..good },
        Control { seq: 0, ..good },
        Control { seq: 2, ..good },
        Control { kind: Kind::Rsv, ..good },
        Control { kind: Kind::Rst, ..good },
        Control { kind: Kind::Rel, ..good },
    ] {
        rig.control(SLOT, &bad);
        assert!(rig.poll(SLOT).is_empty(), "{bad:?}");
    }
    let counters = rig.host.stats().counters;
    assert_eq!((counters.unexpected, counters.stale, rig.frames()), (5, 4, vec![]));
    rig.control(SLOT, &Control { k: 9, ..good });
    rig.run(SLOT);
    assert_eq!((rig.frames().len(), rig.host.outstanding()), (1, 1), "more than was asked for is not used");
}
