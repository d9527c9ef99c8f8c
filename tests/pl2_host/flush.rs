//! What waits is given up: a destination that is gone, a link that was down.

use weft::scheme::pl2::host::HostConfig;
use weft::time::Instant;
use weft::wire::pl2::Kind;

use super::{Rig, SLOT, grant, key, mac, message};

#[test]
fn a_destination_that_is_gone_takes_its_frames_and_gives_its_reservations_back() {
    let mut rig = Rig::new(HostConfig { depth: 2, ..HostConfig::default() });
    // Flow 1 fills two reservations of four, flow 2 goes elsewhere, flow 3 waits for the answer of one.
    rig.enqueue(0, key(9, 1), 0..8);
    rig.enqueue(0, key(8, 2), 100..102);
    rig.enqueue(0, key(9, 3), 200..201);
    let asked: Vec<_> = rig.poll(0).iter().map(|(_, control)| *control).collect();
    assert_eq!(
        asked.iter().map(|c| (c.conn, c.seq, c.k)).collect::<Vec<_>>(),
        [(0, 1, 4), (1, 1, 2), (2, 1, 1), (0, 2, 4)]
    );
    // The first burst is sent, the second would be later.
    rig.control(0, &grant(&asked[0], (0, 0), 1));
    rig.control(0, &grant(&asked[1], (50, 0), 1));
    rig.control(0, &grant(&asked[3], (90, 0), 1));
    rig.poll(0);
    assert_eq!((rig.released.len(), rig.host.parked(), rig.host.outstanding()), (4, 7, 11));

    let mut given_up = vec![];
    rig.host.withdraw(Instant(SLOT), |key| key.dst == mac(9), |frame| given_up.push(frame));
    assert_eq!(given_up, [4, 5, 6, 7, 200]);
    // What is granted or asked for is given back; 4 slots are leaving and 2 are of flow 2.
    let sent: Vec<_> = rig.poll(SLOT).iter().map(|(_, c)| (c.kind, c.conn, c.seq, c.k, c.epoch)).collect();
    assert_eq!(sent, [(Kind::Rel, 0, 2, 4, 1), (Kind::Rel, 2, 1, 1, 1)]);
    assert_eq!((rig.host.parked(), rig.host.outstanding()), (2, 6));
    // Once, if it is granted nevertheless.
    rig.control(2 * SLOT, &grant(&asked[2], (0, 0), 2));
    assert_eq!(rig.poll(2 * SLOT), []);
    rig.run(1000 * SLOT);
    assert_eq!(
        rig.frames()[4..].iter().map(|(at, frame, _)| (*at, *frame)).collect::<Vec<_>>(),
        [(50 * SLOT, 100), (50 * SLOT, 101)]
    );
    assert_eq!((rig.host.outstanding(), rig.host.connections(), rig.next()), (0, 0, None));
    // The way is there again: the numbers go on.
    rig.enqueue(2000 * SLOT, key(9, 1), 300..301);
    let rsv = rig.only(2000 * SLOT);
    assert!(rsv.kind == Kind::Rsv && rsv.seq > 1, "{rsv:?}");
}

/// Rule 8: without the switch's number a REL has no effect.
#[test]
fn what_was_asked_of_a_switch_not_heard_of_is_given_back_when_it_is_granted() {
    let mut rig = Rig::new(HostConfig::default());
    rig.enqueue(0, key(9, 1), 0..3);
    let rsv = rig.only(0);
    let mut given_up = vec![];
    rig.host.withdraw(Instant(SLOT), |_| true, |frame| given_up.push(frame));
    assert_eq!((given_up, rig.host.outstanding()), (vec![0, 1, 2], 0));
    assert_eq!(rig.poll(SLOT), []);
    for _ in 0..2 {
        rig.control(2 * SLOT, &grant(&rsv, (0, 0), 7));
    }
    let sent = rig.only(2 * SLOT);
    assert_eq!((sent.kind, sent.conn, sent.seq, sent.k, sent.epoch), (Kind::Rel, rsv.conn, 1, 3, 1));
    assert_eq!(rig.next(), None);
}

#[test]
fn a_link_that_was_down_leaves_a_host_that_has_heard_of_nothing() {
    let mut rig = Rig::new(HostConfig::default());
    rig.enqueue(0, key(9, 1), 0..6);
    rig.enqueue(0, key(9, 2), 10..12);
    let asked = rig.poll(0)[0].1;
    rig.control(0, &grant(&asked, (0, 0), 1));
    rig.poll(0);
    assert_eq!((rig.released.len(), rig.host.epoch()), (4, 1));
    let mut given_up = vec![];
    rig.host.reset(|frame| given_up.push(frame));
    assert_eq!(given_up, [4, 5, 10, 11]);
    assert_eq!((rig.host.parked(), rig.host.outstanding(), rig.host.connections()), (0, 0, 0));
    assert_eq!((rig.host.epoch(), rig.host.srtt(), rig.next()), (0, None, None));
    assert_eq!(rig.poll(SLOT), []);
    // A grant of before is of nobody.
    rig.control(SLOT, &grant(&message(Kind::Rsv, 1, 1, 2), (0, 0), 2));
    assert_eq!(rig.poll(SLOT), []);
    rig.enqueue(2 * SLOT, key(9, 5), 20..21);
    let rsv = rig.only(2 * SLOT);
    assert_eq!((rsv.conn, rsv.seq, rsv.epoch), (0, 1, 0), "as a new host asks");
}
