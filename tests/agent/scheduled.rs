use weft::frame::Burst;
use weft::port::Port;
use weft::scheme::pl2::host::HostConfig;
use weft::time::Instant;
use weft::wire::MacAddr;
use weft::wire::pl2::{Control, Flags, Kind, Shim};

use super::{OWN, Rig, SLOT, from_switch, grant, mac, messages, only, packet};

/// Design, 1.5 and 2.3: the request, the wait from the grant on, and the shim between addresses and EtherType.
#[test]
fn a_frame_is_reserved_for_and_leaves_with_a_shim_when_its_slot_has_come() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    let frame = packet(2, 0, 7, 1514);
    rig.send(&frame);
    let sent = rig.pass(100);
    let rsv = only(&sent);
    // Destination, source, EtherType, type 1 and version 1, no flags, k = 1, no start seen, connection 0, number 1.
    let expected = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb6, 0x11, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!((&sent[0][..28], sent[0].len()), (&expected[..], 60));
    assert_eq!((rsv.kind, rsv.t_tx), (Kind::Rsv, 100));

    rig.answer(mac(2), &grant(&rsv, (3, 5), 1));
    assert!(rig.pass(20_000).is_empty());
    let due = 20_000 + 5 * SLOT;
    assert_eq!(rig.next(), Some(due));
    assert!(rig.pass(due - 1).is_empty());
    let left = rig.pass(due);
    // E and L, connection 0.
    let shimmed = [&frame[..12], &[0x88, 0xb6, 0x0c, 0x00], &frame[12..]].concat();
    assert_eq!(left, [shimmed]);
    let counters = rig.agent.counters();
    assert_eq!((counters.tap_read, counters.messages_sent, counters.messages_received), (1, 1, 1));
    assert_eq!((counters.data_sent, rig.agent.host().stats().rtt.max()), (1, 19_903), "to three digits");
    rig.close();
}

/// Design, 1.3 and 2.4: K frames back to back at the link's rate, not at once, and late ones don't put off the rest.
#[test]
fn a_burst_leaves_one_frame_a_slot() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    (0..4).for_each(|number| rig.send(&packet(2, 0, number, 1514)));
    let rsv = only(&rig.pass(0));
    assert_eq!(rsv.k, 4);
    rig.answer(mac(2), &grant(&rsv, (0, 0), 1));
    let numbers = |left: Vec<Vec<u8>>| left.iter().map(|frame| frame[46]).collect::<Vec<_>>();
    assert_eq!(numbers(rig.pass(1_000)), [0]);
    assert_eq!(rig.next(), Some(1_000 + SLOT));
    assert_eq!(numbers(rig.pass(1_000 + SLOT - 1)), [0; 0]);
    // Half a slot late; the next is on time.
    assert_eq!(numbers(rig.pass(1_000 + SLOT + SLOT / 2)), [1]);
    assert_eq!(rig.next(), Some(1_000 + 2 * SLOT));
    assert_eq!(numbers(rig.pass(1_000 + 3 * SLOT)), [2, 3], "both are due by now");
    rig.close();
}

/// A ring that the kernel does not empty is looked at again in 100 us, however long its frames have been due.
#[test]
fn a_full_ring_is_no_reason_to_spin() {
    let mut rig = Rig::new(HostConfig::default(), 1);
    (0..2).for_each(|number| rig.send(&packet(2, 0, number, 1514)));
    let rsv = only(&rig.pass(0));
    rig.answer(mac(2), &grant(&rsv, (0, 0), 1));
    for now in [5 * SLOT, 10 * SLOT] {
        rig.agent.pass(|| Instant(now)).expect("both sides are there");
    }
    let now = Instant(10 * SLOT);
    assert_eq!(rig.agent.next_deadline(now), Some(now + 100_000));
    // With room, at once: it was due a slot after the first.
    assert_eq!((rig.left().len(), rig.agent.next_deadline(now)), (1, Some(Instant(6 * SLOT))));
    assert_eq!(rig.pass(11 * SLOT).len(), 1);
    rig.close();
}

/// Design, 2.9: messages strictly first, then what goes unscheduled, then data.
#[test]
fn where_room_is_short_messages_leave_first_and_data_last() {
    let mut rig = Rig::new(HostConfig::default(), 1);
    rig.send(&packet(2, 0, 1, 1514));
    let rsv = only(&rig.pass(0));
    // Something is in the only place of the port when data is released, a broadcast and a request are to leave.
    let (port, _, pool) = rig.agent.parts();
    let mut full = Burst::new();
    full.push(pool.alloc_with(&[0; 60]).expect("a chunk"));
    port.tx_burst(pool, &mut full);
    rig.answer(mac(2), &grant(&rsv, (0, 0), 1));
    rig.send(&[&MacAddr::BROADCAST.0[..], &packet(2, 0, 2, 100)[6..]].concat());
    rig.send(&packet(2, 1, 3, 1514));
    assert_eq!(rig.pass(SLOT), [[0; 60]], "what was there");
    assert_eq!((rig.agent.queued(), rig.next()), (2, Some(SLOT)), "more room would let them go");
    let what = |frame: Vec<u8>| match messages(std::slice::from_ref(&frame)).first() {
        Some((_, control)) => format!("{:?}", control.kind),
        None if frame[0] == 0xff => "unscheduled".into(),
        None => "data".into(),
    };
    let order: Vec<_> = (1..4).flat_map(|ns| rig.pass(SLOT + ns)).map(what).collect();
    assert_eq!(order, ["Rsv", "unscheduled", "data"]);
    rig.close();
}

/// What the switch still has of a burst is given back (design, 3e) behind the data that was released before, or that
/// might be what the switch waits for.
#[test]
fn slots_of_a_lost_burst_are_given_back_behind_the_data_that_was_released() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    (0..5).for_each(|number| rig.send(&packet(2, 0, number, 1514)));
    (0..4).for_each(|number| rig.send(&packet(2, 1, number, 1514)));
    let asked = messages(&rig.pass(0));
    let [(_, rsv), (_, other)] = asked[..] else { panic!("{asked:?}") };
    rig.answer(mac(2), &grant(&rsv, (0, 0), 1));
    rig.answer(mac(2), &grant(&other, (4, 0), 2));
    // The first burst has left, and is lost; the other one is on its way.
    let left: Vec<_> = (0..5).flat_map(|slot| rig.pass(slot * SLOT)).collect();
    let (again, data) = (messages(&left)[0].1, left.len() - 1);
    assert_eq!((again.conn, again.seq, data), (rsv.conn, 2, 5));
    // Four slots of the other one, and four that are of nothing any more.
    rig.answer(mac(2), &grant(&again, (8, 0), 3));
    let mut left = vec![];
    while let Some(at) = rig.next().filter(|at| *at <= 20 * SLOT) {
        left.extend(rig.pass(at));
    }
    let what = |frame: &Vec<u8>| messages(std::slice::from_ref(frame)).first().map(|(_, control)| *control);
    let left: Vec<_> = left.iter().map(what).collect();
    let [None, None, None, Some(rel), None] = left[..] else { panic!("{left:?}") };
    assert_eq!((rel.kind, rel.conn, rel.seq, rel.k, rel.epoch), (Kind::Rel, rsv.conn, 1, 4, 1));
    rig.close();
}

#[test]
fn what_comes_by_the_uplink_is_for_applications_unless_it_is_a_message() {
    let mut rig = Rig::new(HostConfig { max_expected: 0, ..HostConfig::default() }, 64);
    let data = packet(1, 0, 1, 300);
    let shimmed = [&data[..12], &[0x88, 0xb6, 0x0c, 0x05], &data[12..]].concat();
    let flags = Flags::default();
    let ntf = Control {
        kind: Kind::Ntf,
        flags,
        k: 4,
        epoch: 1,
        conn: 1,
        seq: 1,
        demand: 0,
        t_in: 0,
        t_out: 0,
        t_sw: 1,
        t_tx: 0,
        slot_ns: 1000,
    };
    rig.arrive(&from_switch(OWN, mac(2), &ntf));
    rig.arrive(&data);
    rig.arrive(&shimmed);
    rig.arrive(&from_switch(mac(9), mac(2), &ntf));
    // A message of a version that nobody knows.
    let mut odd = from_switch(OWN, mac(2), &ntf);
    odd[14] = 0x32;
    rig.arrive(&odd);
    assert!(rig.pass(0).is_empty());
    assert_eq!(rig.given(), [data.clone(), data]);
    let counters = rig.agent.counters();
    assert_eq!((counters.uplink_received, counters.messages_received, counters.malformed), (5, 1, 2));
    // Shims don't come this far, so nobody is watched.
    assert_eq!((rig.agent.host().stats().counters.announced, rig.agent.host().expected(), rig.next()), (1, 0, None));
    rig.close();
}

/// A TAP that is down, or a host that floods it, loses frames of its own and nothing else.
#[test]
fn a_tap_that_takes_nothing_loses_what_it_is_given() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    rig.agent.parts().1.down = true;
    rig.arrive(&packet(1, 0, 1, 300));
    rig.send(&packet(2, 0, 1, 300));
    let rsv = only(&rig.pass(0));
    rig.answer(mac(2), &grant(&rsv, (0, 0), 1));
    assert_eq!(rig.pass(1).len(), 1, "the way out is open");
    let counters = rig.agent.counters();
    assert_eq!((counters.tap_dropped, counters.tap_written, counters.data_sent), (1, 0, 1));
    rig.close();
}

/// The TAP's MTU and a shim are all that the uplink of the same MTU takes: 1,500 + 14 + 4 bytes.
#[test]
fn frames_that_are_none_or_too_long_are_refused() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    let tagged = |len: usize| {
        let plain = packet(255, 0, 1, len - 4);
        [&MacAddr::BROADCAST.0[..], &plain[6..12], &[0x81, 0x00, 0, 5], &plain[12..]].concat()
    };
    rig.send(&[2; 13]);
    rig.send(&[&mac(2).0[..], &OWN.0[..], &[0x88, 0xb6], &[0; 46]].concat());
    rig.send(&tagged(1519));
    rig.send(&tagged(1518));
    rig.send(&packet(2, 0, 1, 1515));
    rig.send(&packet(2, 0, 1, 1514));
    let left = rig.pass(0);
    assert_eq!(left.iter().map(Vec::len).collect::<Vec<_>>(), [60, 1518], "an RSV, and the longest unscheduled frame");
    let (counters, host) = (rig.agent.counters(), rig.agent.host().stats().counters);
    assert_eq!((counters.tap_read, counters.refused, counters.unscheduled), (6, 3, 1));
    assert_eq!((host.dropped_too_long, host.taken), (1, 1));
    rig.close();
}

/// Design, 3e: an agent that ends gives back what it has asked for and what it was granted, and sends what it released.
#[test]
fn an_agent_that_ends_gives_its_slots_back() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    for (flow, count) in [(0, 3), (1, 2), (2, 5)] {
        (0..count).for_each(|number| rig.send(&packet(2, flow, number, 1514)));
    }
    let asked = messages(&rig.pass(0));
    let [(_, first), (_, second), (_, third)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!((first.k, second.k, third.k), (3, 2, 4));
    rig.answer(mac(2), &grant(&first, (0, 0), 1));
    rig.answer(mac(2), &grant(&second, (0, 40), 2));
    assert_eq!(rig.pass(100).len(), 1, "the first of three");

    rig.agent.stop(Instant(200));
    assert!(rig.agent.flush(Instant(200)).expect("the port is there"));
    let left = rig.left();
    let given: Vec<_> = messages(&left).iter().map(|(dst, c)| (*dst, c.kind, c.conn, c.seq, c.k)).collect();
    let rel = |of: &Control| (mac(2), Kind::Rel, of.conn, of.seq, of.k);
    assert_eq!(given, [rel(&second), rel(&third)]);
    assert_eq!(left.iter().filter(|frame| Shim::read(frame).is_ok()).count(), 2, "those that were released");
    assert_eq!((rig.agent.host().parked(), rig.agent.host().outstanding()), (0, 3), "three are leaving");
    let counters = rig.close();
    assert_eq!((counters.tap_read, counters.data_sent, counters.left), (10, 3, 7));
}
