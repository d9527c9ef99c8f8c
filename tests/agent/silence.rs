use weft::scheme::pl2::host::HostConfig;
use weft::time::{MILLIS, SECONDS};
use weft::wire::pl2::{Control, Kind};

use super::{Rig, grant, mac, messages, only, packet};

/// Data among frames that left, by the number in its payload, and the kinds of the messages before it.
fn split(left: &[Vec<u8>]) -> (Vec<Kind>, Vec<u8>) {
    let kinds: Vec<_> = messages(left).into_iter().map(|(_, control)| control.kind).collect();
    (kinds.clone(), left[kinds.len()..].iter().map(|frame| frame[42]).collect())
}

/// Passes at the agent's deadlines, each a request sent again and nothing else, up to `end`.
fn ask_in_vain(rig: &mut Rig, end: u64) {
    while let Some(at) = rig.next()
        && at < end
    {
        let left = rig.pass(at);
        assert!(messages(&left).len() == left.len(), "no data before {end}");
    }
}

/// A switch that lost its `[pl2]`: after 2 s all goes unscheduled, with a request each second, until one is answered.
#[test]
fn where_nobody_answers_frames_go_unscheduled_until_somebody_does() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    rig.send(&packet(2, 0, 1, 200));
    let rsv = only(&rig.pass(0));
    rig.answer(mac(2), &grant(&rsv, (0, 0), 1));
    assert_eq!(rig.pass(1_000).len(), 1, "it is granted");

    let asked = SECONDS;
    (2..5).for_each(|number| rig.send(&packet(2, 0, number, 200)));
    only(&rig.pass(asked));
    // From the first pass that finds them waiting: when the request is sent again.
    let silent = asked + MILLIS + 2 * SECONDS;
    ask_in_vain(&mut rig, silent);
    assert!(!rig.agent.is_unanswered());
    let (_, data) = split(&rig.pass(silent));
    assert_eq!((data, rig.agent.host().parked()), (vec![2, 3, 4], 0));
    assert!(rig.agent.is_unanswered());
    rig.send(&packet(2, 0, 5, 200));
    assert_eq!(split(&rig.pass(silent + SECONDS - 1)), (vec![], vec![5]));
    assert_eq!((rig.agent.counters().unanswered, rig.agent.counters().unscheduled), (1, 1));

    // A question, given back, ahead of the frames, in their order.
    rig.send(&packet(2, 0, 6, 200));
    rig.send(&packet(2, 0, 7, 200));
    let left = rig.pass(silent + SECONDS);
    assert_eq!(split(&left), (vec![Kind::Rsv, Kind::Rel], vec![6, 7]));
    let probe: Control = messages(&left)[0].1;
    rig.send(&packet(2, 0, 8, 200));
    assert_eq!(split(&rig.pass(silent + SECONDS + MILLIS)), (vec![], vec![8]));

    rig.answer(mac(2), &grant(&probe, (0, 0), 2));
    rig.send(&packet(2, 0, 9, 200));
    assert_eq!(only(&rig.pass(silent + 2 * SECONDS - MILLIS)).kind, Kind::Rsv);
    assert!(!rig.agent.is_unanswered());
    assert_eq!(rig.agent.host().parked(), 1);
    rig.close();
}

/// A grant may lie far ahead: 200,000 slots of 12.3 us are 2.5 s.
#[test]
fn a_long_wait_is_no_silence() {
    let mut rig = Rig::new(HostConfig::default(), 64);
    rig.send(&packet(2, 0, 1, 200));
    let rsv = only(&rig.pass(0));
    rig.answer(mac(2), &grant(&rsv, (0, 200_000), 1));
    rig.pass(1_000);
    assert!(rig.pass(2 * SECONDS + MILLIS).is_empty());
    assert!(!rig.agent.is_unanswered());
    rig.close();
}
