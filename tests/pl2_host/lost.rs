//! Bursts that did not come to the switch, as its grants tell (design, 3e).

use weft::scheme::pl2::host::HostConfig;
use weft::wire::pl2::{Control, Kind};

use super::faults::CLOCK;
use super::{Rig, SLOT, grant, key, message};

/// A host that has sent a burst of two slots, which has left, and asks for another one.
fn sent_one() -> (Rig, Control) {
    let mut rig = Rig::new(HostConfig::default());
    rig.enqueue(0, key(9, 1), 0..2);
    let rsv = rig.only(0);
    rig.control(0, &grant(&rsv, (0, 0), 1));
    assert_eq!(rig.run(10 * SLOT), []);
    rig.enqueue(10 * SLOT, key(9, 1), 2..3);
    let rsv = rig.only(10 * SLOT);
    (rig, rsv)
}

/// The messages that a grant of the second burst leads to.
fn after(grant: &Control, rig: &mut Rig) -> Vec<Control> {
    rig.control(11 * SLOT, grant);
    rig.poll(11 * SLOT).iter().map(|(_, control)| *control).collect()
}

#[test]
fn what_the_switch_has_of_a_burst_that_has_left_is_given_back_once() {
    let (mut rig, rsv) = sent_one();
    let rel = Control { epoch: 1, t_tx: 11 * SLOT, ..message(Kind::Rel, 0, 1, 2) };
    assert_eq!(after(&grant(&rsv, (2, 0), 2), &mut rig), [rel]);
    assert_eq!(rig.host.stats().counters.reclaims, 1);

    // The next burst comes, and what it says of the switch is nothing new.
    assert_eq!(rig.run(20 * SLOT), []);
    rig.enqueue(20 * SLOT, key(9, 1), 3..4);
    let rsv = rig.only(20 * SLOT);
    rig.control(20 * SLOT, &grant(&rsv, (0, 0), 3));
    assert_eq!(rig.run(30 * SLOT), []);
    assert_eq!((rig.frames().len(), rig.host.stats().counters.reclaims), (4, 1));
}

#[test]
fn nothing_is_given_back_that_may_be_under_way_or_another_ones() {
    // Nothing that the host did not know of; and by a clock slots say nothing of frames.
    for (t_in, flags) in [(0, Default::default()), (4, CLOCK)] {
        let (mut rig, rsv) = sent_one();
        assert_eq!(after(&Control { flags, ..grant(&rsv, (t_in, 9), 2) }, &mut rig), []);
    }
    // Three slots of other connections were asked for before; what is beyond them is not this one's either, which has
    // sent nothing yet.
    let mut rig = Rig::new(HostConfig::default());
    (0..3).for_each(|flow| rig.enqueue(0, key(9, flow), flow..flow + 1));
    let asked: Vec<Control> = rig.poll(0).iter().map(|(_, rsv)| *rsv).collect();
    for (i, rsv) in (0..).zip(&asked) {
        rig.control(0, &grant(rsv, (i, 0), 1));
    }
    assert_eq!(rig.run(0), []);
    rig.run(9 * SLOT);
    // The same again: each has a burst that left, and none was lost.
    (0..3).for_each(|flow| rig.enqueue(10 * SLOT, key(9, flow), 3 + flow..4 + flow));
    let asked: Vec<Control> = rig.poll(10 * SLOT).iter().map(|(_, rsv)| *rsv).collect();
    assert_eq!(asked.len(), 3);
    for (i, rsv) in (0..).zip(&asked) {
        rig.control(11 * SLOT, &grant(rsv, (i, 0), 2));
        assert!(rig.host.stats().counters.reclaims == 0 && rig.poll(11 * SLOT).is_empty(), "{i} slots ahead");
    }
}

/// Another connection's, which the host may have forgotten: they say nothing of the bursts that were sent since.
#[test]
fn slots_that_were_too_many_before_a_burst_are_not_its_own() {
    let (mut rig, mut rsv) = sent_one();
    // Two of its own are lost, and given back; then three of others show, and stay for a while.
    for (round, (t_in, sent)) in (1..).zip([(2, 1), (0, 0), (3, 1), (3, 0), (3, 0), (0, 0), (4, 1)]) {
        let now = (11 + 10 * round) * SLOT;
        rig.control(now, &grant(&rsv, (t_in, 0), round + 1));
        assert_eq!(rig.poll(now).len(), sent, "round {round}");
        assert_eq!(rig.run(now + 5 * SLOT), []);
        rig.enqueue(now + 5 * SLOT, key(9, 1), round + 2..round + 3);
        rsv = rig.only(now + 5 * SLOT);
    }
}

/// Slots that a burst did not need are the switch's until its last frame is there: until then no more is known.
#[test]
fn slots_that_a_burst_under_way_does_not_need_are_no_sign_of_a_loss() {
    let mut rig = Rig::new(HostConfig { fixed_k: true, ..HostConfig::default() });
    rig.enqueue(0, key(9, 1), 0..1);
    let rsv = rig.only(0);
    rig.control(0, &grant(&rsv, (0, 0), 1));
    rig.run(10 * SLOT);
    // The first one sends again, and when that has just been released, so does another one that has sent before.
    rig.enqueue(10 * SLOT, key(9, 2), 1..2);
    let other = rig.only(10 * SLOT);
    rig.control(10 * SLOT, &grant(&other, (0, 0), 2));
    rig.run(20 * SLOT);
    rig.enqueue(20 * SLOT, key(9, 1), 2..3);
    let rsv = rig.only(20 * SLOT);
    rig.control(20 * SLOT, &grant(&rsv, (0, 0), 3));
    rig.poll(20 * SLOT);
    rig.enqueue(20 * SLOT, key(9, 2), 3..4);
    let other = rig.only(20 * SLOT);
    rig.control(20 * SLOT, &grant(&other, (4, 0), 4));
    assert!(rig.poll(20 * SLOT).is_empty() && rig.host.stats().counters.reclaims == 0);
}
