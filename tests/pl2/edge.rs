//! The switch's agents: what they schedule and what not, what they may hold, and what becomes of it when links go.

use std::net::Ipv4Addr;

use weft::config::PortConfig;
use weft::counters::DropReason;
use weft::fabric::view::Cell;
use weft::id::PortId;
use weft::wire::MacAddr;

use crate::packets::{self, Ends};
use crate::rig::{FABRIC, HOSTS, Rig, SLOT, SWITCH, Setup, UPLINK, in_slot, ip, mac, numbered, rsv, udp};

const EDGE: Setup = Setup { top: "pl2 = true", tables: "", rate: "1Gbit" };

fn with(tables: &'static str) -> Rig {
    Setup { top: "", tables, rate: "1Gbit" }.rig()
}

/// Requests of all agents.
fn requests(rig: &Rig) -> u64 {
    (0..HOSTS).map(|port| rig.agent(port, "requests")).sum()
}

#[test]
fn a_frame_that_has_the_rack_for_itself_leaves_at_once() {
    let mut rig = EDGE.rig();
    let frame = udp(0, 1, 1514);
    assert_eq!(rig.send(0, &frame), [(1, frame)]);
    rig.at_rest();
    assert_eq!((rig.agent(0, "requests"), rig.agent(0, "sent"), rig.counted(0, "grants")), (1, 1, 1));
}

#[test]
fn an_emulated_round_trip_is_waited_for_and_measured() {
    let mut rig = with("[pl2]\nrsv_delay = \"25us\"");
    let start = rig.now;
    rig.arrive(0, &udp(0, 1, 100));
    rig.wait(100_000);
    let left: Vec<_> = rig.kept.iter().map(|(at, port, _)| (at.since(start), *port)).collect();
    assert_eq!(left, [(25_000, 1)]);
    let Cell::Float(p50) = rig.cell("agents", 0, "rtt_p50_us") else { panic!("no round trip") };
    assert!((24.9..=25.1).contains(&p50), "{p50}");
    rig.at_rest();
}

#[test]
fn small_frames_share_a_slot() {
    let mut rig = EDGE.rig();
    // The first has a slot at once, and its link for 12.3 us: seven wait meanwhile.
    rig.arrive(0, &udp(0, 1, 1514));
    (0..7).for_each(|_| rig.arrive(0, &udp(0, 1, 176)));
    rig.wait(4 * SLOT);
    rig.at_rest();
    assert_eq!(rig.kept_by(1).len(), 8);
    // 200 bytes each on the wire, gaps included, and 1,538 in a slot.
    assert_eq!((rig.counted(0, "used_slots"), rig.counted(0, "unused_slots")), (2, 0));
}

#[test]
fn what_does_not_go_from_one_host_to_one_other_is_not_scheduled() {
    let mut rig = EDGE.rig();
    let ends = |dst_mac, dst: Ipv4Addr| Ends { src_mac: mac(0), dst_mac, src: ip(0).into(), dst: dst.into() };
    let far = Ipv4Addr::new(10, 0, 2, 2);
    let from_far = Ends { src_mac: FABRIC, dst_mac: SWITCH, src: far.into(), dst: ip(1).into() };
    let unknown = MacAddr([2, 0x68, 0, 0, 1, 99]);
    let v6 = |port: u8| std::net::Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, port.into());
    let solicitation = packets::nd(&packets::Nd {
        ends: Ends { src_mac: mac(0), dst_mac: mac(1), src: v6(0).into(), dst: v6(1).into() },
        target: v6(1),
        mac: Some(mac(0)),
        flags: None,
    });
    let frames = [
        (0, packets::arp(true, (mac(0), ip(0)), (mac(1), ip(1)), mac(1), &[]), 1, "ARP from host to host"),
        (0, solicitation, 1, "a neighbour solicitation from host to host"),
        (0, packets::udp(ends(MacAddr::BROADCAST, ip(1)), 64, (1, 2), &[]), 4, "broadcast"),
        (0, packets::udp(ends(unknown, ip(1)), 64, (1, 2), &[]), 4, "to nobody known"),
        (0, packets::udp(ends(SWITCH, far), 64, (1, 2), &[]), 1, "to another rack"),
        (0, packets::udp(ends(SWITCH, ip(1)), 64, (1, 2), &[]), 1, "by the gateway to a host of the rack"),
        (UPLINK, packets::udp(from_far, 64, (1, 2), &[]), 1, "from another rack"),
    ];
    for (port, frame, copies, what) in frames {
        let sent = rig.send(port, &frame);
        let sent = sent.iter().filter(|(_, f)| f[12..14] != [8, 6] || frame[12..14] == [8, 6]).count();
        assert_eq!((sent, requests(&rig)), (copies, 0), "{what}");
    }
    rig.at_rest();
}

#[test]
fn frames_without_ip_are_scheduled_too() {
    let mut rig = EDGE.rig();
    let raw = [&mac(1).0[..], &mac(0).0, &[0x12, 0x34], &[7; 86]].concat();
    assert_eq!(rig.send(0, &raw), [(1, raw)]);
    assert_eq!(requests(&rig), 1);
}

#[test]
fn a_frame_longer_than_a_slot_is_not_scheduled_nor_lost() {
    let mut rig = EDGE.rig();
    let tagged = packets::tagged(&udp(0, 1, 1514), &[[0x81, 0, 0, 1]]);
    assert_eq!(rig.send(0, &tagged), [(1, tagged)]);
    assert_eq!(requests(&rig), 0);
    let tagged = packets::tagged(&udp(0, 1, 1510), &[[0x81, 0, 0, 1]]);
    rig.wait(SLOT);
    assert_eq!(rig.send(0, &tagged), [(1, tagged)]);
    assert_eq!(requests(&rig), 1);
}

#[test]
fn short_frames_go_unscheduled_where_they_are_to_unless_their_flow_waits() {
    let mut rig = with("[pl2]\nbypass_bytes = 128");
    rig.send(0, &udp(0, 1, 128));
    assert_eq!((requests(&rig), rig.agent(0, "bypassed")), (0, 1));
    rig.send(0, &udp(0, 1, 129));
    rig.send(0, &udp(0, 1, 1514));
    // Its reservation is not over before it has left the host's link.
    rig.send(0, &udp(0, 1, 60));
    rig.wait(SLOT);
    assert_eq!((rig.agent(0, "bypassed"), rig.agent(0, "sent")), (1, 3));
    rig.at_rest();
}

#[test]
fn a_host_that_reserves_by_itself_is_left_alone_until_its_link_goes_down() {
    let mut rig = EDGE.rig();
    let by = |rig: &Rig| rig.cell("agents", 0, "by");
    assert_eq!(by(&rig), Cell::from("edge"));
    rig.send(0, &rsv(0, mac(1), 1, 7, 1));
    assert_eq!(by(&rig), Cell::from("host"));
    let frame = udp(0, 1, 100);
    assert_eq!(rig.send(0, &in_slot(&frame, 7, true, true)), [(1, frame.clone())]);
    assert_eq!(rig.send(0, &frame), [(1, frame.clone())]);
    assert_eq!((requests(&rig), rig.counted(0, "used_slots")), (0, 1));
    rig.set_up(0, false);
    rig.set_up(0, true);
    rig.send(1, &udp(1, 0, 60));
    assert_eq!(by(&rig), Cell::from("edge"));
    let before = requests(&rig);
    assert_eq!(rig.send(0, &frame), [(1, frame)]);
    assert_eq!(requests(&rig), before + 1);
}

#[test]
fn an_agent_takes_back_what_a_host_with_its_own_has_reserved_and_does_not_send() {
    let mut rig = with("[pl2]\nnotify = true");
    let start = rig.now;
    rig.send(0, &rsv(0, mac(1), 4, 7, 1));
    assert_eq!((rig.registers(0), rig.agent(1, "expected")), ([4, 0, 0, 1], 1));
    // One comes: three are missing at the end of the window and 1 ms.
    rig.send(0, &in_slot(&udp(0, 1, 1514), 7, true, false));
    rig.wait(1_000_000 + 4 * SLOT - 1 - rig.now.since(start));
    assert_eq!(rig.registers(0), [3, 0, 0, 1]);
    rig.wait(1);
    rig.at_rest();
    assert_eq!((rig.counted(0, "resets"), rig.counted(0, "timeouts")), (1, 0));
    // Nothing is to be sent to anybody: the agent is where the book is.
    assert!(rig.kept.iter().all(|(.., frame)| frame[12..14] != [0x88, 0xb6]));
}

#[test]
fn a_receiver_with_its_own_agent_is_told_what_a_hosts_agent_in_the_switch_was_granted() {
    let mut rig = with("[pl2]\nnotify = true");
    rig.send(1, &rsv(1, mac(2), 1, 3, 1));
    let sent = rig.send(0, &udp(0, 1, 100));
    let ntf = &sent.iter().find(|(port, f)| *port == 1 && f[12..14] == [0x88, 0xb6]).expect("an NTF").1;
    assert_eq!((&ntf[..12], ntf[14]), ([mac(1).0, mac(0).0].concat().as_slice(), 0x31));
}

#[test]
fn a_host_that_reserved_by_itself_and_stopped_is_scheduled_again_after_a_second_or_two() {
    let mut rig = with("[pl2]");
    let counted = |rig: &Rig| (rig.number("slots", 0, "unscheduled"), rig.agent(0, "requests"));
    rig.send(0, &rsv(0, mac(1), 1, 1, 1));
    rig.send(0, &udp(0, 1, 100));
    assert_eq!(counted(&rig), (1, 0), "its own unscheduled traffic");
    rig.wait(900_000_000);
    rig.send(0, &udp(0, 1, 100));
    assert_eq!(counted(&rig), (2, 0));
    rig.wait(1_200_000_000);
    rig.send(0, &udp(0, 1, 100));
    assert_eq!(counted(&rig), (2, 1), "an agent's");
}

#[test]
fn what_may_wait_is_bounded_and_the_newest_is_dropped() {
    let mut rig = with("[pl2]\nmax_queue = 4\nmax_parked = 6\nrsv_delay = \"1ms\"");
    (0..5).for_each(|_| rig.arrive(0, &numbered(0, 1, 1000, 1)));
    (0..5).for_each(|_| rig.arrive(0, &numbered(0, 1, 1000, 2)));
    rig.pass();
    assert_eq!(rig.drops(), [(DropReason::SlotQueueFull, 4)]);
    assert_eq!((rig.number("slots", 0, "parked"), rig.agent(0, "dropped")), (6, 4));
    assert_eq!(rig.plane.counters(PortId(0)).held, 6);
    rig.wait(10_000_000);
    assert_eq!(rig.kept_by(1).len(), 6);
    rig.at_rest();
}

#[test]
fn an_agent_holds_no_more_frames_than_are_free() {
    let mut rig = with("[pl2]\nrsv_delay = \"1ms\"");
    let mut taken = vec![];
    while rig.pool.free_count() > 600 {
        taken.push(rig.pool.alloc().expect("a free chunk"));
    }
    for i in 0..400 {
        rig.arrive(0, &numbered(0, 1, 1000, i));
        rig.pass();
    }
    // 300 and 300, one more since it was let in when as many were free.
    assert!((299..=301).contains(&rig.number("slots", 0, "parked")), "{}", rig.number("slots", 0, "parked"));
    assert_eq!(rig.drops().iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), [DropReason::SharedBuffer]);
    taken.drain(..).for_each(|frame| rig.pool.free(frame));
    rig.wait(100_000_000);
    rig.at_rest();
}

/// Four senders at once to host 4, in the midst of their bursts; how many frames in all.
fn midst(rig: &mut Rig) -> u64 {
    let frames = (0..20u64).flat_map(|i| (0..4).map(move |from| (i * SLOT / 4, from, numbered(from, 4, 1514, 1))));
    rig.feed(frames);
    let held = |port| rig.number("slots", port, "parked");
    assert!((0..4).all(|port| held(port) > 5), "the bursts are over");
    80
}

#[test]
fn a_switch_that_is_held_up_takes_nothing_back_from_its_own_agents() {
    for notify in ["", "notify = true"] {
        let tables = format!("[pl2]\n{notify}").leak();
        let mut rig = with(tables);
        let all = midst(&mut rig);
        for _ in 0..10 {
            // No pass for 30 ms, and all that was reserved is overdue.
            rig.now = rig.now + 30_000_000;
            rig.wait(3 * SLOT);
        }
        rig.settle(100_000_000);
        assert_eq!((rig.kept_by(4).len() as u64, rig.drops()), (all, vec![]));
        let sum = |column: &str| (0..4).map(|port| rig.counted(port, column)).sum::<u64>();
        assert_eq!(["timeouts", "resets", "late", "rogue", "in_underflows"].map(sum), [0; 5]);
        assert!((0..4).any(|port| rig.agent(port, "late_sends") > 0), "nothing was late");
    }
}

fn lost(rig: &Rig) -> u64 {
    rig.drops().iter().map(|(_, n)| n).sum()
}

#[test]
fn a_senders_link_that_goes_down_in_a_burst_takes_its_frames_alone_and_begins_anew() {
    let mut rig = EDGE.rig();
    let all = midst(&mut rig);
    let parked = rig.number("slots", 0, "parked");
    rig.set_up(0, false);
    rig.settle(100_000_000);
    assert_eq!(rig.drops(), [(DropReason::PortDown, parked)]);
    assert_eq!(rig.kept_by(4).len() as u64, all - parked);
    let in_time = (0..4).map(|port| rig.counted(port, "timeouts") + rig.counted(port, "rogue")).sum::<u64>();
    assert_eq!(in_time, 0, "what the dead sender held was given back at once");
    rig.set_up(0, true);
    let frame = udp(0, 4, 1514);
    assert_eq!(rig.send(0, &frame), [(4, frame)]);
    rig.at_rest();
}

#[test]
fn a_receivers_link_that_goes_down_in_a_burst_drops_what_was_for_it_and_nothing_else() {
    let mut rig = EDGE.rig();
    let all = midst(&mut rig);
    (0..4).for_each(|from| rig.arrive(from, &numbered(from, (from + 1) % 4, 1514, 9)));
    rig.set_up(4, false);
    rig.kept.retain(|(_, port, _)| *port == 4);
    let left = rig.kept.len() as u64;
    rig.settle(100_000_000);
    let reasons: Vec<_> = rig.drops().into_iter().map(|(reason, _)| reason).collect();
    assert!(reasons.iter().all(|r| matches!(r, DropReason::NoBridgePort | DropReason::PortDown)), "{reasons:?}");
    assert_eq!((left + lost(&rig), (0..4).map(|port| rig.kept_by(port).len()).sum::<usize>()), (all, 4));
}

#[test]
fn a_port_that_is_removed_and_a_switch_that_stops_give_up_what_they_hold() {
    let mut rig = EDGE.rig();
    let all = midst(&mut rig);
    rig.plane.remove_port(rig.now, PortId(0), &mut rig.pool);
    rig.plane.remove_port(rig.now, PortId(4), &mut rig.pool);
    let (now, config) = (rig.now, rig.config.clone());
    for port in [0, 4] {
        rig.plane.add_port(now, PortId(port), &config.ports[usize::from(port)], &config.queues, 1500);
    }
    rig.settle(100_000_000);
    assert_eq!(rig.kept_by(4).len() as u64 + lost(&rig), all);
    // Host 0 is known again as soon as it says something, and scheduled.
    rig.send(4, &udp(4, 0, 60));
    let frame = udp(0, 4, 1514);
    assert_eq!(rig.send(0, &frame), [(4, frame)]);

    let mut rig = EDGE.rig();
    midst(&mut rig);
    rig.plane.drain(rig.now, &mut rig.pool);
    assert!((0..HOSTS).all(|port| rig.plane.counters(PortId(port)).held == 0));
    rig.plane.ledger().check().expect("the conservation law");
}

#[test]
fn a_receiver_that_moves_to_another_port_in_a_burst_gets_the_rest_there() {
    let mut rig = EDGE.rig();
    let all = midst(&mut rig);
    // Host 4 is behind port 3 now, where one of its senders is.
    let mut moved = udp(4, 1, 60);
    moved[6..12].copy_from_slice(&mac(4).0);
    rig.arrive(3, &moved);
    rig.settle(100_000_000);
    let came = rig.kept.iter().filter(|(.., frame)| frame[..6] == mac(4).0).count() as u64;
    assert_eq!(came + lost(&rig), all);
    assert!(rig.kept_by(3).len() > 20 && rig.drops().iter().all(|(r, _)| *r == DropReason::NoBridgePort));
}

#[test]
fn what_waits_for_a_receiver_that_moves_behind_a_smaller_mtu_is_dropped_as_too_big() {
    let mut rig = EDGE.rig();
    let port = PortConfig { mtu: Some(600), ..rig.config.ports[3].clone() };
    rig.plane.set_port(rig.now, PortId(3), &port, &rig.config.queues, 1500);
    for len in [1514, 614, 615, 60] {
        rig.arrive(0, &numbered(0, 4, len, len as u16));
    }
    // Four flows, a slot each: the first is out already.
    rig.pass();
    let mut moved = udp(4, 1, 60);
    moved[6..12].copy_from_slice(&mac(4).0);
    rig.arrive(3, &moved);
    rig.settle(100_000_000);
    assert_eq!(rig.drops(), [(DropReason::TooBig, 1)]);
    let lengths = |port| rig.kept_by(port).iter().map(|frame| frame.len()).filter(|len| *len > 64).collect::<Vec<_>>();
    assert_eq!((lengths(4), lengths(3)), (vec![1514], vec![614]));
    assert_eq!(rig.kept_by(3).len(), 2);
}
