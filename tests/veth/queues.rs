use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::Duration;

use weft::lab::net::Namespace;
use weft::runtime::report::Body;

use crate::bed::Kind::Host;
use crate::bed::{Bed, Switch, measured, ping_all_pairs, text, turn, weft_ok};
use crate::books;
use crate::faults::{ip, wait_down, wait_up};
use crate::traffic::tcp;

/// A bed whose links have two queues at both ends.
pub fn two_queues(tag: &str, hosts: usize) -> Bed {
    let bed = Bed::new(tag, &vec![Host; hosts]);
    for (i, host) in bed.hosts.iter().enumerate() {
        ip(&bed.switch, &format!("link del p{i}"));
        let queues = "numrxqueues 2 numtxqueues 2";
        let far = host.netns.name();
        ip(&bed.switch, &format!("link add p{i} {queues} type veth peer name eth0 {queues} netns {far}"));
        ip(&bed.switch, &format!("link set p{i} up"));
        ip(&host.netns, "link set eth0 up");
        ip(&host.netns, &format!("addr add {}/24 dev eth0", host.ipv4));
        ip(&host.netns, &format!("addr add {}/64 dev eth0 nodad", host.ipv6));
    }
    bed
}

pub fn toml(bed: &Bed, extra: &str) -> String {
    bed.toml(extra).replace("[runtime]\n", "[runtime]\nworkers = 2\n")
}

/// Frames that each worker has moved.
pub fn moved(switch: &Switch) -> Vec<u64> {
    match books::show(&switch.socket, "workers") {
        Body::Workers { workers } => workers.iter().map(|w| w.frames).collect(),
        other => panic!("{other:?}"),
    }
}

/// Sends `count` numbered datagrams on each of `flows` flows from the first host to the second: all have to
/// come, those of a flow in order. How many came.
fn ordered(bed: &Bed, flows: usize, count: u32) -> u32 {
    let (from, to) = (&bed.hosts[0], &bed.hosts[1]);
    let receiver = to.netns.run_in(|| UdpSocket::bind((to.ipv4, 0)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let target = receiver.local_addr().unwrap();
    let senders: Vec<_> =
        (0..flows).map(|_| from.netns.run_in(|| UdpSocket::bind((from.ipv4, 0)).unwrap()).unwrap()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count {
                for sender in &senders {
                    sender.send_to(&number.to_be_bytes(), target).unwrap();
                }
                // Some 20,000 a second: what a receiver on a loaded machine keeps up with.
                thread::sleep(Duration::from_micros(50 * flows as u64));
            }
        });
        let mut next: BTreeMap<_, u32> = BTreeMap::new();
        let mut buffer = [0; 4];
        for got in 0..count * flows as u32 {
            let (_, sender) = receiver.recv_from(&mut buffer).unwrap_or_else(|e| panic!("after {got}: {e}"));
            let expected = next.entry(sender).or_default();
            assert_eq!(u32::from_be_bytes(buffer), *expected, "of {sender}");
            *expected += 1;
        }
        next.values().sum()
    })
}

#[test]
fn two_workers_share_the_flows_of_every_port_and_know_what_the_other_has_learned() {
    let Some(_turn) = turn("workers") else { return };
    let bed = two_queues("workers", 3);
    let switch = bed.start(&toml(&bed, ""), &[]);
    ping_all_pairs(&bed.hosts);
    for address in bed.hosts[1].addresses() {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| tcp(&bed.hosts[0], &bed.hosts[1], address, 256 << 10));
            }
        });
    }
    ordered(&bed, 8, 500);
    let by_worker = moved(&switch);
    assert!(by_worker.len() == 2 && by_worker.iter().all(|n| *n > 200), "{by_worker:?}");
    for gateway in Bed::GATEWAYS {
        for host in &bed.hosts {
            host.ping(gateway, &[]).answered();
        }
    }
    books::at_rest(&switch.socket);
    let (_, _, total) = books::ports(&switch.socket);
    assert_eq!(total.handed, 0, "no port is paced: {total:?}");
    switch.stop();
    bed.assert_detached();
}

#[test]
fn frames_for_a_paced_port_are_handed_to_the_worker_that_has_its_queue_and_keep_their_order() {
    let Some(_turn) = turn("handed") else { return };
    let bed = two_queues("handed", 2);
    let switch = bed.start(&toml(&bed, "rate = \"200Mbit\""), &[]);
    ping_all_pairs(&bed.hosts);
    ordered(&bed, 8, 500);
    for address in bed.hosts[1].addresses() {
        tcp(&bed.hosts[0], &bed.hosts[1], address, 1 << 20);
    }
    books::at_rest(&switch.socket);
    let (_, _, total) = books::ports(&switch.socket);
    assert!(total.handed > 500 && total.handed == total.accepted, "{total:?}");
    // A port that comes and goes does so in both.
    let socket = switch.socket.to_str().unwrap();
    weft_ok(&["port", "down", "p1", "--socket", socket]);
    weft_ok(&["port", "up", "p1", "--socket", socket]);
    weft_ok(&["port", "del", "p1", "--socket", socket]);
    weft_ok(&["port", "add", "p1", "--kind", "host", "--rate", "300Mbit", "--socket", socket]);
    ping_all_pairs(&bed.hosts);
    ordered(&bed, 8, 100);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

/// IPv4 packets that the stack of the switch's own namespace has got.
fn received_by_the_stack(bed: &Bed) -> u64 {
    let mut command = Command::new("cat");
    command.arg("/proc/net/snmp").stdout(std::process::Stdio::piped());
    let output = bed.switch.spawn(&mut command).unwrap().wait_with_output().unwrap();
    let said = text(&output);
    let ip: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("Ip: ")).collect();
    let [names, values] = ip[..] else { panic!("{said}") };
    let mut both = names.split(' ').zip(values.split(' '));
    both.find(|(name, _)| *name == "InReceives").expect(&said).1.parse().unwrap()
}

#[test]
fn a_queue_more_than_workers_takes_the_port_out_of_service_and_its_frames_never_reach_the_stack() {
    let Some(_turn) = turn("more") else { return };
    let bed = two_queues("more", 2);
    let ethtool = |namespace: &Namespace, arguments: &str| {
        let mut command = Command::new("ethtool");
        command.args(arguments.split(' '));
        assert!(namespace.spawn(&mut command).unwrap().wait().unwrap().success(), "ethtool {arguments}");
    };
    for (i, host) in bed.hosts.iter().enumerate() {
        ethtool(&host.netns, "-L eth0 rx 1 tx 1");
        ethtool(&bed.switch, &format!("-L p{i} rx 1 tx 1"));
    }
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let from = &bed.hosts[0];
    ethtool(&bed.switch, "-L p0 rx 2 tx 1");
    ethtool(&from.netns, "-L eth0 rx 1 tx 2");
    // A veth runs its program on a queue more only when it is opened again (veth_set_channels).
    ip(&bed.switch, "link set p0 down");
    ip(&bed.switch, "link set p0 up");
    wait_down(&switch, "p0", "has 2 RX queues, the switch 1 workers");
    let before = received_by_the_stack(&bed);
    // Each from a port of its own: they spread over both queues.
    for _ in 0..64 {
        let sender = from.netns.run_in(|| UdpSocket::bind((from.ipv4, 0)).unwrap()).unwrap();
        sender.set_broadcast(true).unwrap();
        sender.send_to(b"all", "10.77.0.255:9").unwrap();
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(received_by_the_stack(&bed), before);
    ethtool(&from.netns, "-L eth0 rx 1 tx 1");
    ethtool(&bed.switch, "-L p0 rx 1 tx 1");
    wait_up(&switch, "p0");
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

#[test]
fn ports_that_come_and_go_under_load_disturb_neither_of_two_workers() {
    let Some(_turn) = turn("two-change") else { return };
    let bed = two_queues("change", 3);
    let switch = bed.start(&toml(&bed, "rate = \"500Mbit\""), &[]);
    ping_all_pairs(&bed.hosts);
    let socket = switch.socket.to_str().unwrap();
    let came = thread::scope(|scope| {
        let stream = scope.spawn(|| ordered(&bed, 8, 1500));
        // Frames for the port that is changed come by both workers all the while: those of a host that asks
        // for it, and what is flooded.
        let asking = bed.hosts[0].ping(bed.hosts[2].ipv4.into(), &["-c", "300", "-i", "0.01", "-w", "8"]);
        for round in 0..10 {
            weft_ok(&["port", "del", "p2", "--socket", socket]);
            let rate = ["0", "100Mbit"][round % 2];
            weft_ok(&["port", "add", "p2", "--kind", "host", "--rate", rate, "--socket", socket]);
        }
        drop(asking);
        stream.join().unwrap()
    });
    let lost = 8 * 1500 - came;
    measured("ports that come and go on two workers", &format!("lost {lost} of 12000 on other ports"));
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

#[test]
fn a_queue_count_that_the_interface_lacks_is_refused_with_the_command_that_mends_it() {
    let Some(_turn) = turn("lacks") else { return };
    let bed = Bed::new("lacks", &[Host, Host]);
    let output = bed.fail(&toml(&bed, ""), &[]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for part in ["`p0`", "1 RX queues", "2 workers", "ethtool -L p0 rx 2 tx 2", "`workers` to 1"] {
        assert!(said.contains(part), "it lacks `{part}`: {said}");
    }
    bed.assert_detached();
}
