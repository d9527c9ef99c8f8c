//! The patterns of PL2's evaluation: many to one, one to many, all to all.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use weft::runtime::report::PortReport;

use crate::bed::{Host, Lab, measured, ping_all_pairs, turn};
use crate::books;
use crate::pl2::{at_rest, sum};
use crate::traffic::tcp;

/// Of each host's link, in bit/s, and how many full frames that is (1,538 bytes on the wire).
const RATE: u64 = 100_000_000;
const FRAMES: u64 = RATE / (1_538 * 8);
/// Full frames in the slots of one flow: K = 4, once.
const BURST: u64 = 4;

/// Frames that the switch has dropped on their way to a receiver: all but those that could not wait for a slot at the
/// port of a sender that offers more than its link carries.
fn lost_in_the_network(ports: &[PortReport]) -> u64 {
    let waiting = |p: &PortReport| {
        ["slot_queue_full", "shared_buffer"].iter().filter_map(|r| p.ingress_drops.get(*r)).sum::<u64>()
    };
    ports.iter().map(|p| p.drops - waiting(p)).sum()
}

/// Full UDP datagrams from `from` to `to` at a link's rate for `time`, whatever becomes of them.
fn flood(from: &Host, to: &Host, time: Duration) {
    let socket = from.netns.run_in(|| UdpSocket::bind((from.ipv4, 0))).unwrap().unwrap();
    let (start, mut sent, datagram) = (Instant::now(), 0, [0; 1472]);
    while start.elapsed() < time {
        let due = (start.elapsed().as_micros() as u64 * FRAMES) / 1_000_000;
        // A sender that was held up has lost its time, as a link's.
        sent = sent.max(due.saturating_sub(64));
        while sent < due {
            // A full socket buffer is a lost datagram.
            let _ = socket.send_to(&datagram, (to.ipv4, 9));
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Design, 8, I5: four senders at the rates of their links to one receiver, 400 % of its link. With PL2 nothing is
/// lost in the network, and the receiver's queue has what its senders had reserved at most; without, the same load
/// overflows the same queue.
#[test]
fn four_to_one_loses_nothing_in_the_network_and_without_pl2_most() {
    let Some(_turn) = turn("incast") else { return };
    let run = |tag: &str, pl2: &[&str]| {
        let lab = Lab::up(tag, &[&["--rack", "5", "--rate", "100Mbit", "--set", "queues.bytes=200kB"], pl2].concat());
        ping_all_pairs(&lab.hosts);
        let socket = lab.socket("tor0-0");
        let (receiver, senders) = lab.hosts.split_first().expect("five hosts");
        let name = receiver.name.as_str();
        thread::scope(|scope| {
            for sender in senders {
                scope.spawn(|| flood(sender, receiver, Duration::from_secs(2)));
            }
        });
        let ports = books::at_rest(socket);
        let port = books::port(socket, name);
        let queue = books::data_queue(socket, name);
        let shown = (!pl2.is_empty()).then(|| at_rest(socket));
        lab.check_books();
        lab.down();
        (lost_in_the_network(&ports), port.tx, queue.peak_packets, shown)
    };
    let (lost, sent, peak, shown) = run("incast", &["--pl2"]);
    let (control_lost, control_sent, control_peak, _) = run("incastc", &[]);
    measured(
        "PL2, 4 to 1 at 400 %, lost in the network / delivered / queue peak",
        &format!("PL2 {lost} / {sent} / {peak}, unscheduled {control_lost} / {control_sent} / {control_peak}"),
    );
    let shown = shown.expect("with PL2");
    assert_eq!(lost, 0, "{shown}");
    // Each sender has one flow. What waits when the machine takes the switch off its core for a while has had its time
    // on the link when it goes on, and so have the next bursts by then. Nobody schedules neighbour discovery.
    assert!(peak <= 2 * 4 * BURST + 8, "{peak} frames of 4 senders with {BURST} slots each: {shown}");
    let count = |column| sum(&shown, "requests", column);
    assert!(count("used_slots") > 100 * BURST, "{shown}");
    assert_eq!(["rogue", "in_underflows", "out_underflows"].map(count), [0; 3], "{shown}");
    // The control group: a 200 kB queue is 132 frames, and three frames of four have no time on the link.
    assert!(control_lost > FRAMES && control_peak > 100, "{control_lost} lost, peak {control_peak}");
}

/// TCP whose every byte is compared, from one host to all others at once, then between all at once.
#[test]
fn one_to_all_and_all_to_all_lose_nothing_in_the_network() {
    let Some(_turn) = turn("shuffle") else { return };
    let lab = Lab::up("shuffle", &["--rack", "4", "--pl2", "--rate", "100Mbit"]);
    ping_all_pairs(&lab.hosts);
    let socket = lab.socket("tor0-0");
    let transfer = |pairs: &[(&Host, &Host)]| {
        thread::scope(|scope| {
            for (from, to) in pairs {
                scope.spawn(|| tcp(from, to, to.ipv4.into(), 400_000));
            }
        });
        let (ports, shown) = (books::at_rest(socket), at_rest(socket));
        assert_eq!(lost_in_the_network(&ports), 0, "{shown}");
        let count = |column| sum(&shown, "requests", column);
        assert_eq!(["rogue", "in_underflows", "out_underflows"].map(count), [0; 3], "{shown}");
        count("used_slots")
    };
    let (first, others) = lab.hosts.split_first().expect("four hosts");
    let outcast: Vec<_> = others.iter().map(|to| (first, to)).collect();
    let used = transfer(&outcast);
    // As much each way, 1,448 bytes or less in a segment.
    assert!(used > 3 * 2 * 400_000 / 1_448, "{used} slots");
    let pairs = lab.hosts.iter().flat_map(|a| lab.hosts.iter().map(move |b| (a, b)));
    let shuffle: Vec<_> = pairs.filter(|(a, b)| a.name != b.name).collect();
    let more = transfer(&shuffle) - used;
    assert!(more > 12 * 2 * 400_000 / 1_448, "{more} slots");
    lab.check_books();
    lab.down();
}
