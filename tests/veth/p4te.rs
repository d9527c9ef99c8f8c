use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{Host, Lab, ping_all_pairs, turn};
use crate::flow::{Ending, Flow, socket};
use crate::shown::{checksum_errors, number, rows, show, wait_for, words};
use crate::traffic::tcp;

/// The up ports of a leaf that are not in the best group of either table; in each table every up port
/// stands just once.
fn demoted(lab: &Lab, leaf: &str, up: &BTreeSet<&str>) -> BTreeSet<String> {
    let shown = show(lab, leaf, "groups");
    let mut demoted = BTreeSet::new();
    for (table, best) in [("queue_depth", 4), ("utilization", 3)] {
        let groups: Vec<_> = rows(&shown, "groups").iter().filter(|row| row["table"] == table).collect();
        assert_eq!(groups.len(), best, "{shown}");
        let mut ports: Vec<_> = groups.iter().flat_map(|row| words(row, "ports")).collect();
        ports.sort_unstable();
        assert!(ports.iter().map(String::as_str).eq(up.iter().copied()), "{table}: {shown}");
        demoted.extend(
            groups.iter().filter(|row| number(row, "priority") < best as u64).flat_map(|row| words(row, "ports")),
        );
    }
    demoted
}

/// Datagrams of the class of short flows from `from` to `to`, `rate` bit/s on the wire, for `time`.
fn background(from: &Host, to: &Host, rate: f64, time: Duration) {
    let sink = to.netns.run_in(|| UdpSocket::bind((to.ipv4, 0)).unwrap()).unwrap();
    let sender = from.netns.run_in(|| UdpSocket::bind((from.ipv4, 0)).unwrap()).unwrap();
    sender.connect(sink.local_addr().unwrap()).unwrap();
    let (payload, start, mut sent) = ([0; 1400], Instant::now(), 0u64);
    let wire = (payload.len() + 28 + 14 + 24) as f64 * 8.0;
    while start.elapsed() < time {
        while (sent as f64) * wire < rate * start.elapsed().as_secs_f64() {
            sender.send(&payload).unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Times that a switch's ingress did `outcome`, over both actions or for one.
fn acts(lab: &Lab, switch: &str, action: &str, outcome: &str) -> u64 {
    let shown = show(lab, switch, "flows");
    let of = rows(&shown, "rate_control").iter().filter(|row| row["action"] == action && row["outcome"] == outcome);
    of.map(|row| number(row, "count")).sum()
}

#[test]
fn tcp_crosses_the_fabric_and_the_groups_change_under_load_and_come_back_at_rest() {
    let Some(_turn) = turn("p4te-groups") else { return };
    let set = ["--set", "p4te.flowlet_gap=500us", "--set", "queues.packets=200"];
    let fabric = ["--leaf-spine", "2x2", "--selector", "p4te", "--rate", "100Mbit"];
    let lab = Lab::up_talking("groups", &[&fabric[..], &set].concat());
    let (near, far) = (["h0-0-2", "h0-0-3"].map(|n| lab.host(n)), ["h0-1-2", "h0-1-3"].map(|n| lab.host(n)));
    ping_all_pairs(&lab.hosts);
    thread::scope(|scope| {
        for address in far[0].addresses() {
            scope.spawn(move || tcp(near[0], far[0], address, 512 << 10));
        }
        for address in near[1].addresses() {
            scope.spawn(move || tcp(far[1], near[1], address, 512 << 10));
        }
    });
    let up = BTreeSet::from(["spine0", "spine1"]);
    wait_for("all ports back in the best groups", || demoted(&lab, "leaf0", &up).is_empty());

    thread::scope(|scope| {
        let flows = [0, 1].map(|i| Flow::start(scope, (near[i], far[i]), far[i].ipv4.into(), None));
        let _ends = flows.map(Ending);
        // More than either link takes alone: both are found out.
        let mut seen = BTreeSet::new();
        wait_for("both up ports demoted at some time", || {
            seen.extend(demoted(&lab, "leaf0", &up));
            seen.len() == up.len()
        });
    });
    wait_for("all ports back in the best groups", || demoted(&lab, "leaf0", &up).is_empty());

    let meters = show(&lab, "leaf0", "meters");
    let ports: BTreeSet<_> = rows(&meters, "meters").iter().map(|row| row["port"].as_str().unwrap()).collect();
    assert_eq!(ports, BTreeSet::from(["h0-0-2", "h0-0-3", "spine0", "spine1"]), "{meters}");
    for port in rows(&meters, "meters") {
        assert_eq!((&port["color"], number(port, "depth")), (&Value::from("green"), 0), "{port}");
        // CBS and PBS are 1 ms of 100 Mbit/s; a hello may just have taken some of it.
        for bucket in ["committed_bytes", "peak_bytes"] {
            assert!((12_000..=12_500).contains(&number(port, bucket)), "{port}");
        }
        if up.contains(port["port"].as_str().unwrap()) {
            assert!(number(port, "depth_increases") > 0 && number(port, "color_changes") > 1, "{port}");
            let events = ["depth_increases", "depth_decreases", "color_changes"].map(|key| number(port, key));
            let digests = ["digests_sent", "digests_lost"].map(|key| number(port, key));
            assert_eq!(events.iter().sum::<u64>(), digests.iter().sum::<u64>(), "{port}");
        }
    }
    let classes = rows(&meters, "class_meters");
    let large = |port: &str| classes.iter().find(|row| row["port"] == port && row["class"] == "large").unwrap();
    assert_eq!(number(large("h0-0-2"), "safe_rate_bps"), 10_000_000);
    assert!(number(large("h0-0-2"), "above_safe_rate") > 0, "{meters}");
    let flows = show(&lab, "leaf0", "flows");
    assert_eq!(number(&rows(&flows, "flows")[0], "gap_us"), 500);
    let begun = |class: &str| {
        let row = rows(&flows, "flowlets").iter().find(|row| row["class"] == class).unwrap();
        number(row, "on_preferred_port") + number(row, "on_other_port")
    };
    assert!(begun("large") >= 2 && begun("short") >= 8, "{flows}");
    assert!(flows.get("rate_control").is_none(), "it is off: {flows}");
}

/// What a flow was on a fabric with rate adaptation.
struct Observed {
    lab: Lab,
    /// Goodput in bit/s and windows in bytes: alone, beside other traffic, alone again.
    phases: [(f64, Vec<u64>); 3],
    /// Segments that the sender's kernel took and the receiver's never sent.
    foreign: u64,
    checksum_errors: u64,
}

/// One path over which a large flow runs whose receiver's window allows some 30 % of the link: above its
/// class's safe rate, below all that colors the link. For a while, other traffic of 50 % joins it, so that the
/// link is red, but by far not full.
fn observe(tag: &str, address: fn(&Host) -> IpAddr, set: &[&str]) -> Observed {
    let fabric = ["--leaf-spine", "2x1", "--selector", "p4te", "--rate", "40Mbit", "--fault", "delay=8ms"];
    let mut arguments = fabric.to_vec();
    for setting in ["p4te.cir=0.5", "p4te.pir=0.55", "p4te.burst=20ms"].iter().chain(set) {
        arguments.extend(["--set", setting]);
    }
    let lab = Lab::up_talking(tag, &arguments);
    let (from, to) = (lab.host("h0-0-2"), lab.host("h0-1-2"));
    ping_all_pairs(&lab.hosts);
    let before = checksum_errors(from);
    let time = Duration::from_millis(1500);
    let (phases, foreign) = thread::scope(|scope| {
        let flow = Flow::start(scope, (from, to), address(to), Some(40_000));
        let ending = Ending(Arc::clone(&flow));
        flow.watch(from, Duration::from_millis(500));
        let alone = flow.watch(from, time);
        let beside = thread::scope(|scope| {
            let (other, sink) = (lab.host("h0-0-3"), lab.host("h0-1-3"));
            scope.spawn(move || background(other, sink, 20e6, time + Duration::from_millis(400)));
            thread::sleep(Duration::from_millis(200));
            flow.watch(from, time)
        });
        thread::sleep(Duration::from_millis(300));
        let again = flow.watch(from, time);
        drop(ending);
        wait_for("the end of the stream", || flow.ended.load(Ordering::Relaxed));
        // Its last acknowledgement.
        thread::sleep(Duration::from_millis(200));
        let taken = socket(from, &format!("dport = :{}", flow.port()), "segs_in");
        let sent = socket(to, &format!("sport = :{}", flow.port()), "segs_out");
        // The receiver's kernel does not count its SYN-ACK.
        ([alone, beside, again], taken - sent - 1)
    });
    for (name, (goodput, windows)) in ["alone", "beside", "again"].iter().zip(&phases) {
        let (least, middle) = (windows[0], windows[windows.len() / 2]);
        println!("{tag} {name}: {goodput:.0} bit/s, window {least} to {middle} of {}", windows[windows.len() - 1]);
    }
    let checksum_errors = checksum_errors(from) - before;
    Observed { lab, phases, foreign, checksum_errors }
}

fn ipv4(host: &Host) -> IpAddr {
    host.ipv4.into()
}

fn ipv6(host: &Host) -> IpAddr {
    host.ipv6.into()
}

/// The kernel takes every FACK for a segment of the connection, and the stream stays what it was.
fn facks_are_accepted(ack: &str, address: fn(&Host) -> IpAddr) -> Observed {
    let observed = observe(ack, address, &["p4te.rate_adaptation=fack", &format!("p4te.ack={ack}")]);
    let facks = |action| {
        let outcomes = ["fack_made", "fack_completed"];
        outcomes.map(|outcome| acts(&observed.lab, "leaf0", action, outcome)).iter().sum::<u64>()
    };
    let made = ["decrease", "increase"].map(facks);
    println!("{ack}: FACKs {made:?}, {} foreign segments", observed.foreign);
    assert!(made.iter().all(|n| *n > 5), "decreases and increases: {made:?}");
    assert_eq!(observed.checksum_errors, 0);
    assert_eq!(observed.foreign, made.iter().sum::<u64>(), "each FACK came in, once");
    assert_eq!(acts(&observed.lab, "leaf0", "decrease", "clamp"), 0);
    observed
}

#[test]
fn safe_facks_are_accepted_by_the_senders_kernel() {
    let Some(_turn) = turn("p4te-safe") else { return };
    facks_are_accepted("safe", ipv6).lab.down();
}

#[test]
fn facks_of_the_paper_are_accepted_and_shrink_the_window_while_the_link_is_red() {
    let Some(_turn) = turn("p4te-paper") else { return };
    let observed = facks_are_accepted("paper", ipv4);
    let [alone, beside, again] = observed.phases.map(|(_, windows)| windows[windows.len() / 2]);
    // A FACK of bytes that are still on their way to the receiver outdoes its ACKs until they are beyond it.
    assert!(beside * 10 < alone * 7 && again * 10 > alone * 9, "windows {alone}, {beside}, {again}");
    observed.lab.down();
}

#[test]
fn a_clamp_slows_the_sender_down_while_the_link_is_red_and_lets_it_go_afterwards() {
    let Some(_turn) = turn("p4te-clamp") else { return };
    let observed = observe("clamp", ipv4, &["p4te.rate_adaptation=clamp"]);
    let [alone, beside, again] = &observed.phases;
    let clamps = acts(&observed.lab, "leaf0", "decrease", "clamp");
    let shown = show(&observed.lab, "leaf0", "flows");
    let clamped = number(&shown["acks"], "clamped");
    assert!(clamps > 5 && clamped > clamps, "{shown}");
    assert_eq!((observed.checksum_errors, observed.foreign), (0, 0));
    let middle = |windows: &[u64]| windows[windows.len() / 2];
    let genuine = middle(&alone.1);
    // Half of it, and what was in flight already.
    assert!(middle(&beside.1) * 10 < genuine * 7, "{} of {genuine}", middle(&beside.1));
    assert!(beside.0 < 0.75 * alone.0, "{} and {} bit/s", beside.0, alone.0);
    assert!((9 * genuine..=11 * genuine).contains(&(10 * middle(&again.1))), "{} of {genuine}", middle(&again.1));
    assert!(again.0 > 0.9 * alone.0, "{} and {} bit/s", again.0, alone.0);
    observed.lab.down();
}

#[test]
fn with_safe_facks_tcp_is_byte_exact_over_links_that_lose_frames() {
    let Some(_turn) = turn("p4te-loss") else { return };
    let fabric = ["--leaf-spine", "2x2", "--selector", "p4te", "--rate", "100Mbit", "--fault", "loss=0.01,seed=7"];
    let set = ["--set", "p4te.rate_adaptation=fack", "--set", "p4te.flowlet_gap=500us"];
    let lab = Lab::up_talking("loss", &[&fabric[..], &set].concat());
    let (near, far) = (["h0-0-2", "h0-0-3"].map(|n| lab.host(n)), ["h0-1-2", "h0-1-3"].map(|n| lab.host(n)));
    let before = lab.hosts.iter().map(checksum_errors).sum::<u64>();
    let received = thread::scope(|scope| {
        let flows = [
            Flow::start(scope, (near[0], far[0]), far[0].ipv4.into(), None),
            Flow::start(scope, (near[1], far[1]), far[1].ipv6.into(), None),
            Flow::start(scope, (far[1], near[0]), near[0].ipv4.into(), None),
        ];
        let ends = flows.clone().map(Ending);
        wait_for("a megabyte of each flow, FACKs of both kinds", || {
            let made =
                |action: &str| acts(&lab, "leaf0", action, "fack_made") + acts(&lab, "leaf1", action, "fack_made");
            flows.iter().all(|flow| flow.received.load(Ordering::Relaxed) > 1 << 20)
                && made("increase") > 20
                && made("decrease") > 0
        });
        drop(ends);
        flows
    });
    assert!(received.iter().all(|flow| flow.received.load(Ordering::Relaxed) > 1 << 20));
    assert_eq!(lab.hosts.iter().map(checksum_errors).sum::<u64>(), before);
    let lost: u64 = ["leaf0", "leaf1"].map(|leaf| faults_lost(&lab, leaf)).iter().sum();
    assert!(lost > 20, "{lost} frames were lost on purpose");
    lab.down();
}

/// Frames that a switch lost because it was told to.
fn faults_lost(lab: &Lab, switch: &str) -> u64 {
    let shown = show(lab, switch, "ports");
    rows(&shown, "ports").iter().filter_map(|port| port["faults"]["lost"].as_u64()).sum()
}
