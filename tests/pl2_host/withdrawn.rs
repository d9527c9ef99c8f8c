//! Frames that are taken back, and refusals that are a reason to.

use weft::scheme::pl2::host::{HostConfig, Refused};
use weft::time::{Instant, MILLIS};
use weft::wire::pl2::{Control, Kind};

use super::{Rig, SLOT, SWITCH, grant, key, mac, refusal};

/// Design, 3e: what a host can't use it gives back, granted or only asked for, and other connections go on.
#[test]
fn withdrawn_frames_come_back_in_order_and_their_slots_are_given_back_once() {
    let mut rig = Rig::new(HostConfig { depth: 2, ..HostConfig::default() });
    rig.enqueue(0, key(9, 1), 0..6);
    rig.enqueue(0, key(8, 1), 6..7);
    let asked = rig.poll(0).to_vec();
    let by = |dst: u8, seq: u32| asked.iter().find(|(to, c)| *to == mac(dst) && c.seq == seq).expect("an RSV").1;
    let (first, second, other) = (by(9, 1), by(9, 2), by(8, 1));
    assert_eq!((first.k, second.k, other.k, rig.host.outstanding()), (4, 2, 1, 7));
    rig.control(SLOT, &grant(&first, (0, 5), 1));

    let mut back = vec![];
    rig.host.withdraw(Instant(2 * SLOT), |key| key.dst == mac(9), |frame| back.push(frame));
    assert_eq!((back, rig.host.parked(), rig.host.outstanding()), (vec![0, 1, 2, 3, 4, 5], 1, 1));
    let given: Vec<_> = rig.poll(2 * SLOT).iter().map(|(dst, c)| (*dst, c.kind, c.conn, c.seq, c.k)).collect();
    let rel = |seq, k| (mac(9), Kind::Rel, first.conn, seq, k);
    assert_eq!(given, [rel(1, 4), rel(2, 2)]);

    // The switch granted the second before it got the REL.
    rig.control(3 * SLOT, &grant(&second, (0, 0), 2));
    assert!(rig.poll(3 * SLOT).is_empty(), "it was given back already");
    rig.control(4 * SLOT, &grant(&other, (0, 0), 3));
    rig.run(5 * SLOT);
    assert_eq!(rig.frames(), [(4 * SLOT, 6, "EL")]);
    let counters = rig.host.stats().counters;
    assert_eq!((counters.taken, counters.withdrawn, counters.sent, counters.released), (7, 6, 1, 2));
    assert_eq!((rig.host.outstanding(), rig.host.connections()), (0, 0));

    // The number of what was withdrawn is not used again.
    rig.enqueue(6 * SLOT, key(9, 1), 7..8);
    let again = rig.only(6 * SLOT);
    assert!(again.conn != first.conn || again.seq == 3, "{again:?}");
}

/// Design, 1.3 and 2.10: a request sent again may be refused for its number's sake, which says nothing of where
/// its frames go.
#[test]
fn a_refusal_is_told_of_unless_the_request_was_sent_before() {
    let mut rig = Rig::new(HostConfig::default());
    rig.enqueue(0, key(9, 1), 0..1);
    let rsv = rig.only(0);
    let told = |rig: &mut Rig, at, answer: Control| rig.host.control(Instant(at), SWITCH, &answer);
    assert_eq!(told(&mut rig, SLOT, refusal(&rsv, 1)), Some(Refused { dst: mac(9), no_route: false, times: 1 }));
    assert_eq!(told(&mut rig, SLOT, refusal(&rsv, 1)), None, "a copy");
    // Asked for anew after 1 ms, which is lost, and sent again after 1 ms more.
    let asked = rig.run(3 * MILLIS);
    let [(at, new), (_, retry)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!((at, new.seq, retry.seq, retry.flags.retry), (SLOT + MILLIS, 2, 2, true));
    assert_eq!(told(&mut rig, 3 * MILLIS, refusal(&retry, 2)), None);
    let rsv = rig.only(3 * MILLIS);
    assert_eq!(told(&mut rig, 3 * MILLIS, refusal(&rsv, 3)), Some(Refused { dst: mac(9), no_route: false, times: 2 }));
}

/// A GRT whose flags are NACK and whose t_in and t_out are 0xffffffff: the destination is at no one port. Sent again or
/// not, its number has nothing to do with it, and the next request waits for 2 ms: twice the shortest time.
#[test]
fn a_refusal_for_want_of_a_route_is_told_apart_and_not_asked_again_at_once() {
    let mut rig = Rig::new(HostConfig::default());
    rig.enqueue(0, key(9, 1), 0..1);
    let rsv = rig.only(0);
    let no_route = |rsv: &Control, at| Control { t_in: 0xffff_ffff, t_out: 0xffff_ffff, ..refusal(rsv, at) };
    let told = rig.host.control(Instant(SLOT), SWITCH, &no_route(&rsv, 1));
    assert_eq!(told, Some(Refused { dst: mac(9), no_route: true, times: 1 }));
    let asked = rig.run(3 * MILLIS);
    let [_, (_, retry)] = asked[..] else { panic!("{asked:?}") };
    assert!(retry.flags.retry);
    let told = rig.host.control(Instant(3 * MILLIS), SWITCH, &no_route(&retry, 2));
    assert_eq!(told, Some(Refused { dst: mac(9), no_route: true, times: 2 }));
    assert!(rig.poll(3 * MILLIS).is_empty(), "it is to wait");
}
