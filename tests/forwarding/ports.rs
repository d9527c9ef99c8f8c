//! Queues, pacing and the state of ports, as frames see them.

use weft::config::{HelloMode, PortConfig, QueueOptions, XdpMode};
use weft::counters::DropReason;
use weft::dataplane::Dataplane;
use weft::fault::Faults;
use weft::frame::Pool;
use weft::id::{PortId, PortKind};
use weft::pisa::tm::QueueLimits;
use weft::pisa::{PortLimits, Queue};
use weft::time::{Instant, MILLIS, SECONDS};
use weft::units::BitRate;
use weft::wire::MacAddr;

use crate::packets::{arp, echo, mend_ipv4, udp};
use crate::rig::{FAR, GATEWAY4, H0, H1, Rig, UPLINKS, tor_config};

/// 1,000 bits a microsecond: 125 bytes.
const GIGABIT: BitRate = BitRate(1_000_000_000);

fn slow(rate: BitRate) -> Rig {
    let mut rig = Rig::new(tor_config(), PortLimits { rate, ..PortLimits::default() }, 4096);
    rig.meet_hosts();
    rig.wait(SECONDS);
    rig.sent();
    rig
}

/// A frame of `length` bytes from the fabric down to `H1`.
fn down(length: usize) -> Vec<u8> {
    udp(FAR.by_fabric(3, H1.v4.into()), 60, (1, 2), &vec![1; length - 42])
}

fn arrive(rig: &mut Rig, frames: usize, length: usize) {
    for _ in 0..frames {
        rig.arrive(3, &down(length));
    }
}

#[test]
fn frames_leave_at_the_ports_rate_to_the_nanosecond() {
    let mut rig = slow(GIGABIT);
    // 226 bytes and 24 of FCS, preamble and gap: 2 us each.
    arrive(&mut rig, 10, 226);
    let mut left = 0;
    for step in 0..200 {
        rig.pass();
        left += rig.sent().len();
        assert_eq!(left, (step / 20 + 1).min(10), "after {step}00 ns");
        rig.now = rig.now + 100;
    }
}

#[test]
fn a_late_worker_sends_what_was_due_and_the_rate_holds() {
    let mut rig = slow(GIGABIT);
    arrive(&mut rig, 100, 226);
    rig.pass();
    rig.now = rig.now + 99_000;
    rig.pass();
    assert_eq!(rig.sent().len(), 50, "one at once and 49 in 99 us");
    rig.wait(MILLIS);
    assert_eq!(rig.sent().len(), 50);
}

#[test]
fn control_goes_ahead_of_the_data_that_waits() {
    let mut rig = slow(GIGABIT);
    arrive(&mut rig, 5, 1000);
    rig.pass();
    assert_eq!(rig.sent().len(), 1);
    rig.arrive(1, &arp(false, (H1.mac, H1.v4), (MacAddr([0; 6]), GATEWAY4), MacAddr::BROADCAST, &[]));
    rig.wait(100_000);
    let lengths: Vec<usize> = rig.sent().iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lengths, [60, 1000, 1000, 1000, 1000]);
}

#[test]
fn a_full_queue_drops_its_tail_and_counts_why() {
    let data = QueueLimits { packets: 10, bytes: 5_000 };
    let mut rig = Rig::new(tor_config(), PortLimits { rate: GIGABIT, data, ..PortLimits::default() }, 4096);
    rig.meet_hosts();
    rig.wait(SECONDS);
    rig.sent();
    arrive(&mut rig, 13, 100);
    rig.pass();
    // Nothing leaves before all of a burst is queued.
    assert_eq!(rig.dropped(DropReason::QueuePackets), 3);
    rig.wait(MILLIS);
    arrive(&mut rig, 6, 1000);
    rig.pass();
    assert_eq!(rig.dropped(DropReason::QueueBytes), 1);
    let depth = rig.switch.queues().depth(PortId(1), Queue::Data);
    assert_eq!((depth.peak_packets, depth.peak_bytes, depth.dropped), (10, 5_000, 4));
    let counters = rig.switch.counters(PortId(1));
    assert_eq!(counters.egress_drops.total(), 4, "at the port that was full");
    assert_eq!(rig.switch.counters(PortId(3)).ingress_drops.total(), 0);
}

#[test]
fn an_ecn_capable_packet_that_joins_a_long_queue_is_marked_and_its_checksum_mended() {
    let limits = PortLimits { rate: GIGABIT, ecn_mark_bytes: 2_500, ..PortLimits::default() };
    let mut rig = Rig::new(tor_config(), limits, 256);
    rig.meet_hosts();
    rig.wait(SECONDS);
    rig.sent();
    let mut capable = down(1000);
    capable[15] |= 2;
    mend_ipv4(&mut capable, 14);
    for frame in [&capable, &down(1000), &capable, &capable, &down(1000), &capable] {
        rig.arrive(3, frame);
    }
    rig.wait(MILLIS);
    let sent = rig.sent();
    // Marked when more than 2,500 bytes wait ahead: from the fourth on, if it is ECN-capable.
    assert_eq!(sent.iter().map(|(_, f)| f[15] & 3).collect::<Vec<_>>(), [2, 0, 2, 3, 0, 3]);
    for (_, frame) in sent {
        let mut mended = frame.clone();
        mend_ipv4(&mut mended, 14);
        assert_eq!(frame, mended);
    }
    assert_eq!(rig.switch.queues().ecn_marked(PortId(1)), 2);
}

#[test]
fn a_port_that_goes_down_drops_its_queue_and_takes_no_more() {
    let mut rig = slow(GIGABIT);
    arrive(&mut rig, 5, 1000);
    rig.pass();
    rig.set_up(1, false);
    assert_eq!(rig.dropped(DropReason::PortDown), 4);
    assert_eq!(rig.sent().len(), 1);
    // Who was behind it has to be found again; meanwhile packets wait, and nothing goes to it.
    rig.arrive(3, &down(1000));
    rig.wait(100_000);
    assert!(rig.sent().iter().all(|(port, _)| *port != 1));
    assert_eq!(rig.refuse(0, &udp(H0.to_station(&H1, false), 64, (1, 2), b"x")).0.len(), 1, "flooded to port 2");
    rig.set_up(1, true);
    rig.arrive(1, &arp(true, (H1.mac, H1.v4), (MacAddr([0; 6]), GATEWAY4), crate::rig::SWITCH, &[]));
    rig.wait(100_000);
    assert_eq!(rig.sent().iter().filter(|(port, _)| *port == 1).count(), 1, "the one that waited");
}

#[test]
fn a_port_that_is_down_is_not_sent_to_even_if_a_packet_was_made_for_it() {
    let mut rig = Rig::tor();
    rig.set_up(0, false);
    // An ARP request that was still in the ring when the port went down: the answer has nowhere to go.
    let request = arp(false, (H0.mac, H0.v4), (MacAddr([0; 6]), GATEWAY4), MacAddr::BROADCAST, &[]);
    assert_eq!(rig.refuse(0, &request), (vec![], vec![DropReason::PortDown]));
}

#[test]
fn what_is_queued_is_dropped_and_counted_when_the_switch_is_drained() {
    let mut rig = slow(GIGABIT);
    arrive(&mut rig, 5, 1000);
    rig.pass();
    rig.drain();
    assert_eq!(rig.dropped(DropReason::Shutdown), 4);
    rig.wait(MILLIS);
    assert_eq!(rig.sent().len(), 1);
}

#[test]
fn the_counters_of_a_port_say_what_passed_it_in_frames_and_bytes() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let before = rig.switch.counters(PortId(1));
    for length in [60, 61, 1000] {
        rig.send(3, &down(length));
    }
    let (rx, tx) = (rig.switch.counters(PortId(3)), rig.switch.counters(PortId(1)));
    assert_eq!((rx.rx, rx.rx_bytes, rx.forwarded), (3, 1121, 3));
    assert_eq!((tx.tx - before.tx, tx.tx_bytes - before.tx_bytes), (3, 1121));
    assert!(UPLINKS.iter().all(|p| rig.switch.counters(PortId(*p)).tx == 0));
}

#[test]
fn a_flooded_queue_takes_at_most_half_of_the_free_frames_and_other_ports_go_on() {
    // 100 chunks, and queues that could hold 1,024 packets.
    let mut rig = Rig::new(tor_config(), PortLimits { rate: GIGABIT, ..PortLimits::default() }, 100);
    rig.meet_hosts();
    rig.wait(SECONDS);
    rig.sent();
    for _ in 0..200 {
        if rig.has_free_chunk() {
            rig.arrive(3, &down(226));
            rig.pass();
        }
    }
    let dropped = rig.dropped(DropReason::SharedBuffer);
    assert!(dropped >= 140, "{dropped}");
    assert!(rig.has_free_chunk());
    // H0's port is not the flooded one.
    rig.arrive(3, &udp(FAR.by_fabric(3, H0.v4.into()), 60, (1, 2), &[1; 100]));
    rig.pass();
    assert!(rig.sent().iter().any(|(port, _)| *port == 0), "the other host still gets its packet");
}

/// Ports of MTU 9000 and 64 large buffers.
fn jumbo(rate: BitRate) -> Rig {
    let mut config = tor_config();
    config.ports.iter_mut().for_each(|port| (port.mtu, port.rx_mtu) = (9000, 9000));
    let data = QueueLimits { packets: 1024, bytes: 100_000_000 };
    let mut rig = Rig::new(config, PortLimits { rate, data, ..PortLimits::default() }, 4096);
    rig.pool = Pool::heap_with_large(4096, 2048, 64, 9472);
    rig.meet_hosts();
    rig.wait(SECONDS);
    rig.sent();
    rig
}

#[test]
fn a_queue_takes_at_most_half_of_the_free_large_buffers_and_small_frames_go_on() {
    let mut rig = jumbo(GIGABIT);
    for _ in 0..60 {
        arrive(&mut rig, 1, 9000);
        rig.pass();
    }
    // One has left. Of 64, as many are queued as are free.
    assert_eq!((rig.pool.large_free_count(), rig.dropped(DropReason::SharedBuffer)), (31, 27));
    arrive(&mut rig, 100, 1000);
    rig.pass();
    assert_eq!(rig.dropped(DropReason::SharedBuffer), 27, "chunks are not scarce");
    rig.arrive(3, &udp(FAR.by_fabric(3, H0.v4.into()), 60, (1, 2), &[1; 8000]));
    rig.pass();
    assert!(rig.sent().iter().any(|(port, frame)| *port == 0 && frame.len() == 8042));
    rig.wait(10 * MILLIS);
    rig.sent();
    assert_eq!(rig.pool.large_free_count(), 64);
}

#[test]
fn packets_in_large_buffers_that_wait_for_neighbours_leave_half_of_the_buffers() {
    let mut rig = jumbo(BitRate(0));
    for host in 0..4 {
        for _ in 0..16 {
            if rig.pool.large_free_count() > 0 {
                let nobody = std::net::Ipv4Addr::new(10, 0, 1, 100 + host);
                rig.arrive(3, &udp(FAR.by_fabric(3, nobody.into()), 60, (1, 2), &[1; 8000]));
                rig.pass();
            }
        }
    }
    assert_eq!(rig.pool.large_free_count(), 32);
    assert_eq!(rig.dropped(DropReason::SharedBuffer), 32);
}

#[test]
fn a_ping_as_long_as_the_mtu_is_answered_in_full_also_in_a_large_buffer() {
    let mut rig = jumbo(BitRate(0));
    let request = echo(H0.to_gateway(GATEWAY4.into()), 64, false, 1, &vec![7; 9000 - 28]);
    let sent = rig.send(0, &request);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0, sent[0].1.len(), &sent[0].1[42..]), (0, 9014, &request[42..]));
}

#[test]
fn a_port_with_the_number_of_one_that_was_removed_starts_with_limits_of_its_own() {
    let mut rig = Rig::tor();
    rig.meet_hosts();
    let refused = udp(H0.to_gateway(GATEWAY4.into()), 64, (1, 2), b"nobody listens");
    let errors = |rig: &mut Rig| (0..40).map(|_| rig.send(0, &refused).len()).sum::<usize>();
    let burst = errors(&mut rig);
    assert!(burst > 0 && burst < 40 && errors(&mut rig) == 0, "{burst} ICMP errors");
    Dataplane::remove_port(&mut rig.switch, rig.now, PortId(0), &mut rig.pool);
    let port = PortConfig {
        interface: "another".into(),
        kind: PortKind::Host,
        rate: BitRate(0),
        mtu: None,
        mode: XdpMode::Native,
        pass_to_kernel: false,
        enabled: true,
        peer_mac: None,
        hello: HelloMode::Off,
        fault: Faults::default(),
        uplink: None,
    };
    Dataplane::add_port(&mut rig.switch, Instant(1), PortId(0), &port, &QueueOptions::default(), 1500);
    rig.meet_hosts();
    assert_eq!(errors(&mut rig), burst);
}
