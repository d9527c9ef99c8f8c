use weft::scheme::pl2::host::HostConfig;
use weft::time::MILLIS;
use weft::wire::MacAddr;
use weft::wire::pl2::{Control, Flags, Kind};

use super::{OWN, Rig, busy, grant, mac, messages, only, packet, refusal};

#[test]
fn neighbours_are_asked_for_at_once_and_without_a_slot() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    let arp = [&MacAddr::BROADCAST.0[..], &OWN.0[..], &[0x08, 0x06], &[0; 46]].concat();
    let answer = [&mac(2).0[..], &OWN.0[..], &[0x08, 0x06], &[0; 46]].concat();
    rig.send(&arp);
    rig.send(&answer);
    assert_eq!(rig.pass(0), [arp, answer]);
    assert_eq!((rig.agent.counters().unscheduled, rig.agent.counters().bypass_sent, rig.next()), (2, 2, None));
    rig.close();
}

/// Design, 7: the uplink of the rack is no host port. The frames that waited leave in their order, those that follow
/// don't wait, and after 20 ms the switch is asked again, or as soon as the destination has spoken.
#[test]
fn frames_for_a_destination_that_the_switch_refuses_go_unscheduled_for_a_while() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    let frames: Vec<_> = (0..8).map(|number| packet(99, 0, number, 200)).collect();
    frames[..6].iter().for_each(|frame| rig.send(frame));
    rig.send(&packet(2, 0, 50, 200));
    let asked = messages(&rig.pass(0));
    let [(gateway, rsv), (other, _)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!((gateway, other), (mac(99), mac(2)));
    rig.answer(mac(99), &refusal(&rsv, 1));
    rig.send(&frames[6]);
    assert_eq!(rig.pass(1_000), frames[..7], "none of them with a shim, and nothing else");
    assert_eq!((rig.agent.host().parked(), rig.agent.counters().learned), (1, 1), "the other destination's waits on");

    // Learned at 1,000.
    rig.send(&frames[7]);
    let left: Vec<_> = rig
        .pass(1_000 + 20 * MILLIS - 1)
        .into_iter()
        .filter(|f| messages(std::slice::from_ref(f)).is_empty())
        .collect();
    assert_eq!(left, frames[7..]);
    rig.send(&packet(99, 0, 60, 200));
    let asked = messages(&rig.pass(1_000 + 20 * MILLIS));
    let is_asked = |(dst, c): &&(MacAddr, Control)| (*dst, c.kind) == (mac(99), Kind::Rsv);
    let (_, rsv) = *asked.iter().find(is_asked).unwrap_or_else(|| panic!("{asked:?}"));

    // Refused again, for 40 ms; but it speaks.
    let again = 1_000 + 21 * MILLIS;
    rig.answer(mac(99), &refusal(&rsv, 2));
    rig.pass(again);
    let mut spoken = packet(1, 0, 0, 200);
    spoken[6..12].copy_from_slice(&mac(99).0);
    rig.arrive(&spoken);
    rig.send(&packet(99, 0, 61, 200));
    let asked = messages(&rig.pass(again + MILLIS));
    assert!(asked.iter().any(|asked| is_asked(&asked)), "{asked:?}");
    rig.close();
}

/// Design, 1.4: a window may be full, and is free again after 1,024 slots; and so may be the table of reservations.
#[test]
fn what_is_refused_for_now_is_no_reason_to_do_without_slots() {
    for window in [true, false] {
        let mut rig = Rig::new(HostConfig::default(), 64);
        let frame = packet(2, 0, 1, 200);
        rig.send(&frame);
        let mut rsv = only(&rig.pass(0));
        let mut at = 0;
        // Pauses of 1, 2, 4, 8 and 16 ms, and no longer ones.
        for pause in [1, 2, 4, 8, 16, 16, 16, 16] {
            let flags = Flags { nack: true, window, ..Flags::default() };
            rig.answer(mac(2), &Control { flags, ..busy(&rsv, at) });
            assert!(rig.pass(at).is_empty(), "it waits");
            at += pause * MILLIS;
            assert!(rig.pass(at - 1).is_empty(), "it waits for {pause} ms");
            assert_eq!(rig.next(), Some(at));
            rsv = only(&rig.pass(at));
        }
        rig.answer(mac(2), &grant(&rsv, (0, 0), at));
        assert_eq!(rig.pass(at).len(), 1);
        assert_eq!((rig.agent.counters().learned, rig.agent.counters().data_sent), (0, 1));
        rig.close();
    }
}

/// Design, 2.7: small frames may go unscheduled, if it is asked for, and go before data.
#[test]
fn small_frames_bypass_if_told_so() {
    let mut rig = Rig::new(HostConfig { bypass_bytes: 128, ..HostConfig::default() }, 64);
    let small = packet(2, 0, 1, 100);
    rig.send(&small);
    rig.send(&packet(2, 1, 2, 1000));
    let left = rig.pass(0);
    assert_eq!(messages(&left).len(), 1);
    assert_eq!(left[1..], [small]);
    let rsv = messages(&left)[0].1;
    rig.answer(mac(2), &grant(&rsv, (0, 0), 1));
    assert_eq!(rig.pass(1).len(), 1);
    let host = rig.agent.host().stats().counters;
    assert_eq!((host.bypassed, host.taken, rig.agent.counters().bypass_sent), (1, 1, 1));
    rig.close();
}
