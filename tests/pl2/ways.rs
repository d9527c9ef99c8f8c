//! Every way that a frame with a shim can take: in each its slot is counted off once, and no shim gets out.

use std::net::Ipv4Addr;

use weft::counters::DropReason;
use weft::id::PortId;
use weft::wire::MacAddr;

use crate::packets::{self, Ends};
use crate::rig::{ALONE, FABRIC, HOSTS, Rig, SLOT, SWITCH, Setup, UPLINK, in_slot, ip, mac, rsv, udp};

/// One slot of connection 7 from host 0 to host 1 is reserved, and `frame` is sent in it.
fn sends(rig: &mut Rig, frame: &[u8]) {
    rig.send(0, &rsv(0, mac(1), 1, 7, 1));
    assert_eq!((rig.registers(0), rig.registers(1)), ([1, 0, 0, 1], [0, 1, 0, 0]));
    rig.arrive(0, &in_slot(frame, 7, true, true));
}

/// All that left is without a shim.
fn no_shim(rig: &Rig) {
    for (_, port, frame) in &rig.kept {
        assert_ne!(frame[12..14], [0x88, 0xb6], "a shim left by port {port}");
    }
}

/// Sends it and waits: which frames left by which ports, and why frames were dropped.
fn way(rig: &mut Rig, frame: &[u8]) -> (Vec<(u8, usize)>, Vec<DropReason>) {
    sends(rig, frame);
    rig.kept.clear();
    rig.wait(SLOT);
    rig.at_rest();
    no_shim(rig);
    assert_eq!((rig.counted(0, "used_slots"), rig.counted(1, "out_underflows")), (1, 0));
    // Beside it the switch may ask a host whether it still has its address.
    let asks = |frame: &[u8]| frame[12..14] == [0x08, 0x06] && frame[38..42] == ip(0).octets();
    let seen = rig.kept.iter().filter(|(.., frame)| !asks(frame));
    let mut left: Vec<_> = seen.map(|(_, port, frame)| (*port, frame.len())).collect();
    left.sort();
    (left, rig.drops().into_iter().map(|(reason, _)| reason).collect())
}

fn ends(dst_mac: MacAddr, dst: Ipv4Addr) -> Ends {
    Ends { src_mac: mac(0), dst_mac, src: ip(0).into(), dst: dst.into() }
}

#[test]
fn forwarded() {
    assert_eq!(way(&mut ALONE.rig(), &udp(0, 1, 1514)), (vec![(1, 1514)], vec![]));
    // Not where the reservation leads to: it is used all the same.
    assert_eq!(way(&mut ALONE.rig(), &udp(0, 2, 1514)), (vec![(2, 1514)], vec![]));
}

#[test]
fn a_full_frame_in_two_vlans_is_longer_by_its_shim_on_the_way_in_only() {
    let full = packets::tagged(&udp(0, 1, 1514 - 4), &[[0x88, 0xa8, 0, 1], [0x81, 0, 0, 2]]);
    assert_eq!(full.len(), 1518);
    assert_eq!(way(&mut ALONE.rig(), &full), (vec![(1, 1518)], vec![]));
    // What a port can't have received without it is too long with it.
    let giant = packets::tagged(&udp(0, 1, 1515), &[[0x88, 0xa8, 0, 1], [0x81, 0, 0, 2]]);
    assert_eq!(way(&mut ALONE.rig(), &giant), (vec![], vec![DropReason::Giant]));
}

#[test]
fn flooded_to_an_unknown_station_and_to_a_group() {
    let all: Vec<_> = (1..HOSTS).map(|port| (port, 100)).collect();
    for to in [MacAddr([2, 0x68, 0, 0, 1, 99]), MacAddr::BROADCAST] {
        let mut frame = udp(0, 1, 100);
        frame[..6].copy_from_slice(&to.0);
        assert_eq!(way(&mut ALONE.rig(), &frame), (all.clone(), vec![]), "{to}");
    }
}

#[test]
fn back_to_where_it_came_from() {
    assert_eq!(way(&mut ALONE.rig(), &udp(0, 0, 100)), (vec![], vec![DropReason::NoBridgePort]));
}

#[test]
fn routed_to_another_rack() {
    let frame = packets::udp(ends(SWITCH, Ipv4Addr::new(10, 0, 2, 2)), 64, (1, 2), &[0; 100]);
    let (left, drops) = way(&mut ALONE.rig(), &frame);
    assert!(left.len() == 1 && left[0].0 >= UPLINK && left[0].1 == frame.len(), "{left:?}");
    assert_eq!(drops, []);
}

#[test]
fn routed_and_refused_with_an_icmp_error() {
    let frame = packets::udp(ends(SWITCH, Ipv4Addr::new(10, 0, 2, 2)), 1, (1, 2), &[0; 100]);
    // Type 3 with the packet: 14 + 20 + 8 + 128 bytes.
    assert_eq!(way(&mut ALONE.rig(), &frame), (vec![(0, 170)], vec![DropReason::TtlExpired]));
}

#[test]
fn answered_by_the_switch() {
    let frame = packets::echo(ends(SWITCH, Ipv4Addr::new(10, 0, 1, 1)), 64, false, 1, &[0; 100]);
    assert_eq!(way(&mut ALONE.rig(), &frame), (vec![(0, frame.len())], vec![]));
}

#[test]
fn held_for_a_neighbour_that_never_answers() {
    let mut rig = ALONE.rig();
    let frame = packets::udp(ends(SWITCH, Ipv4Addr::new(10, 0, 1, 77)), 64, (1, 2), &[0; 100]);
    let (left, drops) = way(&mut rig, &frame);
    // Requests to all host ports; it is still held.
    assert_eq!((left, drops), ((0..HOSTS).map(|port| (port, 60)).collect(), vec![]));
    rig.wait(10_000_000_000);
    no_shim(&rig);
    rig.at_rest();
    assert_eq!(rig.drops(), [(DropReason::NeighbourUnresolved, 1)]);
}

#[test]
fn too_long_for_its_output() {
    let mut rig = ALONE.rig();
    rig.plane.set_port(rig.now, PortId(1), &rig.config.ports[1], &rig.config.queues, 1000);
    assert_eq!(way(&mut rig, &udp(0, 1, 1514)), (vec![], vec![DropReason::TooBig]));
}

#[test]
fn truncated_behind_its_shim() {
    let mut frame = udp(0, 1, 60);
    frame.truncate(16);
    frame[12..14].copy_from_slice(&[0x81, 0]);
    assert_eq!(way(&mut ALONE.rig(), &frame), (vec![], vec![DropReason::TruncatedTag]));
}

#[test]
fn from_a_group() {
    let mut rig = ALONE.rig();
    let mut frame = udp(0, 1, 60);
    frame[6] |= 1;
    assert_eq!(way(&mut rig, &frame), (vec![], vec![DropReason::MulticastSource]));
}

/// Fills the queue of port 1 with frames without a slot.
fn crowd(rig: &mut Rig) {
    for _ in 0..8 {
        rig.arrive(2, &udp(2, 1, 1514));
    }
    rig.pass();
}

/// Two frames in slots behind a crowd: of how many there is room for, and the rest is dropped for `reason`.
fn behind_a_crowd(tables: &'static str, free: Option<usize>, admitted: u64, reason: DropReason) {
    let mut rig = Setup { tables, ..ALONE }.rig();
    crowd(&mut rig);
    let mut taken = vec![];
    while free.is_some_and(|free| rig.pool.free_count() > free) {
        taken.push(rig.pool.alloc().expect("a free chunk"));
    }
    rig.send(0, &rsv(0, mac(1), 2, 7, 1));
    let dropped = |rig: &Rig| rig.drops().iter().find(|(r, _)| *r == reason).map_or(0, |(_, n)| *n);
    let before = dropped(&rig);
    rig.arrive(0, &in_slot(&udp(0, 1, 1514), 7, true, false));
    rig.arrive(0, &in_slot(&udp(0, 1, 1514), 7, true, true));
    rig.pass();
    assert_eq!(dropped(&rig), before + 2 - admitted, "{:?}", rig.drops());
    assert_eq!((rig.registers(0), rig.registers(1)), ([0; 4], [0, admitted, admitted, 0]));
    taken.drain(..).for_each(|frame| rig.pool.free(frame));
    rig.wait(20 * SLOT);
    rig.at_rest();
    assert_eq!(rig.counted(1, "out_underflows"), 0);
}

#[test]
fn dropped_where_its_queue_has_no_room() {
    // Three of the crowd wait, or two.
    let packets = "[pl2]\nagent = \"none\"\n[queues]\npackets = 4";
    behind_a_crowd(packets, None, 1, DropReason::QueuePackets);
    let bytes = "[pl2]\nagent = \"none\"\n[queues]\nbytes = \"6000\"";
    behind_a_crowd(bytes, None, 1, DropReason::QueueBytes);
    // Seven wait, and fewer chunks are free.
    behind_a_crowd(ALONE.tables, Some(4), 0, DropReason::SharedBuffer);
}

#[test]
fn queued_when_its_output_goes_down_or_away() {
    for remove in [false, true] {
        let mut rig = ALONE.rig();
        crowd(&mut rig);
        sends(&mut rig, &udp(0, 1, 1514));
        rig.pass();
        assert_eq!(rig.registers(1), [0, 1, 1, 0], "queued behind the others");
        match remove {
            false => rig.set_up(1, false),
            true => rig.plane.remove_port(rig.now, PortId(1), &mut rig.pool),
        }
        assert_eq!(rig.registers(0), [0; 4]);
        assert_eq!(rig.drops()[0].0, DropReason::PortDown);
        rig.sent();
        rig.wait(SLOT);
        rig.plane.ledger().check().expect("the conservation law");
        match remove {
            false => rig.at_rest(),
            true => {
                // Whoever gets the number begins with nothing.
                let port = rig.config.ports[1].clone();
                rig.plane.add_port(rig.now, PortId(1), &port, &rig.config.queues, 1500);
                rig.at_rest();
            }
        }
    }
}

#[test]
fn reserved_towards_a_port_that_goes_down() {
    let mut rig = ALONE.rig();
    rig.send(0, &rsv(0, mac(1), 1, 7, 1));
    rig.set_up(1, false);
    // Nobody knows where host 1 is: to the others.
    rig.arrive(0, &in_slot(&udp(0, 1, 100), 7, true, true));
    rig.wait(SLOT);
    rig.at_rest();
    no_shim(&rig);
}

#[test]
fn left_over_when_the_switch_stops() {
    let mut rig = ALONE.rig();
    crowd(&mut rig);
    sends(&mut rig, &udp(0, 1, 1514));
    rig.pass();
    assert_eq!(rig.registers(1), [0, 1, 1, 0]);
    rig.plane.drain(rig.now, &mut rig.pool);
    rig.at_rest();
}

#[test]
fn without_a_reservation() {
    let mut rig = ALONE.rig();
    rig.arrive(0, &in_slot(&udp(0, 1, 1514), 7, true, true));
    rig.wait(SLOT);
    rig.at_rest();
    assert_eq!((rig.kept.len(), rig.counted(0, "rogue"), rig.counted(0, "in_underflows")), (1, 1, 1));

    let mut rig = Setup { tables: "[pl2]\nagent = \"none\"\ndrop_rogue = true", ..ALONE }.rig();
    rig.arrive(0, &in_slot(&udp(0, 1, 1514), 7, true, true));
    rig.wait(SLOT);
    rig.at_rest();
    assert_eq!((rig.kept.len(), rig.drops()), (0, vec![(DropReason::Unreserved, 1)]));
}

#[test]
fn frames_without_a_shim_and_from_other_racks_change_no_register() {
    let mut rig = ALONE.rig();
    rig.send(0, &rsv(0, mac(1), 4, 7, 1));
    let before = [rig.registers(0), rig.registers(1)];
    rig.arrive(0, &udp(0, 1, 1514));
    let down = Ends { src_mac: FABRIC, dst_mac: SWITCH, src: Ipv4Addr::new(10, 0, 2, 2).into(), dst: ip(1).into() };
    rig.arrive(UPLINK, &packets::udp(down, 64, (1, 2), &[0; 100]));
    rig.wait(2 * SLOT);
    assert_eq!([rig.registers(0), rig.registers(1)], before);
    assert_eq!(rig.kept.iter().filter(|(.., frame)| frame[12..14] == [0x08, 0]).count(), 2);
}
