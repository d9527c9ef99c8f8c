//! The receiver's side: what was announced and does not come is taken back (design, section 3).

use weft::scheme::pl2::host::HostConfig;
use weft::time::{Instant, MILLIS};
use weft::wire::pl2::{Control, Kind, Shim};

use super::{Rig, SLOT, mac, message};

/// What the switch tells of a grant of `k` slots, which are from slot 5 on.
fn ntf(conn: u32, seq: u32, k: u16, t_sw: u64) -> Control {
    Control { epoch: 1, t_in: 2, t_out: 5, t_sw, slot_ns: SLOT as u32, ..message(Kind::Ntf, conn, seq, k) }
}

/// Slot 5, 4 slots of a burst, and the 1 ms that a host without a measured round trip is patient for.
const DEADLINE: u64 = 9 * SLOT + MILLIS;

fn announced(ntfs: &[(u8, Control)]) -> Rig {
    let mut rig = Rig::new(HostConfig::default());
    for (sender, ntf) in ntfs {
        rig.host.control(Instant(0), mac(*sender), ntf);
    }
    rig
}

/// What is reset by `end`: when, of whom, and what.
fn resets(rig: &mut Rig, end: u64) -> Vec<(u64, u32, u32, u16)> {
    let sent = rig.run(end);
    assert!(sent.iter().all(|(_, rst)| rst.kind == Kind::Rst && rst.epoch == 1), "{sent:?}");
    sent.iter().map(|(at, rst)| (*at, rst.conn, rst.seq, rst.k)).collect()
}

#[test]
fn what_is_missing_at_the_deadline_is_taken_back_from_its_sender_once() {
    let mut rig = announced(&[(1, ntf(3, 7, 4, 1))]);
    let shim = |closes| Shim::new(3, closes, false);
    rig.host.arrived(mac(1), shim(false));
    rig.host.arrived(mac(1), shim(true));
    rig.host.arrived(mac(2), shim(true));
    assert_eq!(rig.next(), Some(DEADLINE));
    assert!(rig.poll(DEADLINE - 1).is_empty());
    let (dst, rst) = rig.poll(DEADLINE)[0];
    assert_eq!((dst, rst), (mac(1), Control { epoch: 1, t_tx: DEADLINE, ..message(Kind::Rst, 3, 7, 3) }));
    assert_eq!((rig.next(), rig.host.expected(), rig.host.stats().counters.resets), (None, 0, 1));
}

#[test]
fn a_burst_that_came_is_not_missed_whether_by_its_slots_or_by_its_last_frame() {
    let mut rig = announced(&[(1, ntf(0, 1, 4, 1)), (1, ntf(1, 1, 4, 1))]);
    (0..4).for_each(|_| rig.host.arrived(mac(1), Shim::new(0, true, false)));
    rig.host.arrived(mac(1), Shim::new(1, true, true));
    assert_eq!((rig.host.expected(), rig.next()), (0, None));
}

/// The reservations of one connection are used by their numbers, in whatever order they were announced.
#[test]
fn frames_count_for_the_first_reservation_of_their_connection() {
    let mut rig = announced(&[(1, ntf(0, 2, 4, 2)), (1, ntf(0, 1, 4, 1))]);
    rig.host.arrived(mac(1), Shim::new(0, true, true));
    assert_eq!(resets(&mut rig, DEADLINE), [(DEADLINE, 0, 2, 4)]);
}

#[test]
fn a_later_announcement_of_a_number_takes_the_place_of_the_earlier_and_a_copy_does_not() {
    let mut rig = announced(&[(1, ntf(0, 1, 4, 5))]);
    rig.host.arrived(mac(1), Shim::new(0, true, false));
    rig.host.control(Instant(SLOT), mac(1), &ntf(0, 1, 4, 5));
    assert_eq!(rig.next(), Some(DEADLINE));
    rig.host.control(Instant(2 * SLOT), mac(1), &ntf(0, 1, 4, 6));
    assert_eq!(resets(&mut rig, 2 * DEADLINE), [(DEADLINE + 2 * SLOT, 0, 1, 4)]);
}

#[test]
fn what_there_is_no_room_to_watch_is_left_to_the_switch() {
    let mut rig = Rig::new(HostConfig { max_expected: 2, ..HostConfig::default() });
    for conn in 0..3 {
        rig.host.control(Instant(0), mac(1), &ntf(conn, 1, 4, 1));
    }
    let counters = rig.host.stats().counters;
    assert_eq!((rig.host.expected(), counters.announced, counters.announced_dropped), (2, 3, 1));
    assert_eq!(resets(&mut rig, DEADLINE).len(), 2);
}

/// Design, 3g: after a restart nothing of before is reserved; a grant of the new start tells the host.
#[test]
fn another_start_of_the_switch_ends_all_expectations_of_the_earlier() {
    let mut rig = announced(&[(1, ntf(0, 1, 4, 1)), (2, ntf(0, 1, 4, 1))]);
    rig.host.control(Instant(0), mac(3), &Control { epoch: 2, ..ntf(0, 1, 4, 1) });
    let grt = Control { kind: Kind::Grt, ..ntf(0, 1, 4, 1) };
    rig.control(0, &grt);
    rig.control(SLOT, &Control { epoch: 2, t_tx: SLOT, ..grt });
    assert_eq!((rig.host.expected(), rig.host.epoch()), (1, 2));
}
