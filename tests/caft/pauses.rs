//! Flows that pause for longer than their ways are kept, as a remote procedure call now and then, over fabrics with a
//! failure that lasts: what is lost while it is found out, and that nothing is from then on.

use std::collections::BTreeSet;

use weft::topo::{Fabric, FabricOptions};

use crate::net::{Hop, Net};
use crate::packets;
use crate::rig::{DOWN, Node, UP, options};
use crate::segment::{Flow, Place, SYN, with_tag};

/// Linux's least retransmission timeout and a round trip, ms.
const RTO: u64 = 206;
const PAUSE: u64 = 300;
const FLOWS: u16 = 12;

/// What a failure takes down.
#[derive(Clone, Debug)]
enum Failure {
    Link(String, String),
    /// An aggregation switch without links to cores.
    Cores(String),
}

struct Talk {
    net: Net,
    fabric: Fabric,
    /// Milliseconds since the beginning.
    now: u64,
}

fn name((pod, tor, octet): Place) -> String {
    format!("h{pod}-{tor}-{octet}")
}

impl Talk {
    fn over(k: usize, failure: &Failure) -> Talk {
        let mut options: FabricOptions = options();
        options.caft.deterministic = false;
        let fabric = Fabric::fat_tree(k, &options).expect("a fabric");
        let names: Vec<String> = fabric.switches.iter().map(|s| s.name().into()).collect();
        let net = Net::of(&fabric, &names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut talk = Talk { net, fabric, now: 0 };
        match failure {
            Failure::Link(a, b) => talk.cut(|x, y| (x, y) == (a.as_str(), b.as_str())),
            Failure::Cores(agg) => talk.cut(|x, y| x == agg.as_str() && y.starts_with("core")),
        }
        talk
    }

    fn cut(&mut self, which: impl Fn(&str, &str) -> bool) {
        let links: Vec<_> =
            self.fabric.links.iter().filter(|link| which(&link.a.node, &link.b.node)).cloned().collect();
        assert!(!links.is_empty());
        for end in links.iter().flat_map(|link| [&link.a, &link.b]) {
            let node: &mut Node = self.net.node(&end.node);
            let port = node.config.ports.iter().position(|p| p.interface == end.interface);
            node.set_up(port.expect("a port") as u8, false);
        }
    }

    fn wait(&mut self, millis: u64) {
        self.net.wait(millis);
        self.now += millis;
    }

    /// Sends a segment of `flow` again and again until it is there. How often it was lost.
    fn deliver(&mut self, flow: Flow) -> u64 {
        let (from, to) = (name(flow.from), name(flow.to));
        for lost in 0..8 {
            let hops = self.net.send(&from, &flow.data(100));
            let told = |hop: &&Hop| hop.to == from && packets::icmp(&hop.frame).is_some();
            assert!(!hops.iter().any(|hop| told(&hop)), "{flow:?}: told of it, which ends a connection that begins");
            if hops.iter().any(|hop| hop.to == to) {
                return lost;
            }
            self.wait(RTO << lost);
        }
        panic!("{flow:?}: lost for good at {} ms", self.now);
    }
}

/// Segments that are lost in each of `rounds` rounds, in which flows both old and new have one exchange each.
fn lost(k: usize, failure: &Failure, flow: Flow, rounds: u16) -> Vec<u64> {
    let mut talk = Talk::over(k, failure);
    let round = |round: u16| {
        // The rest are connections that begin.
        let ports = (1..=FLOWS / 2).chain(100 * round + FLOWS / 2..100 * round + FLOWS);
        let flows = ports.map(|port| flow.port(40_000 + port));
        // Request, reply, acknowledgement.
        let lost = flows.map(|flow| talk.deliver(flow) + talk.deliver(flow.back()) + talk.deliver(flow)).sum();
        talk.wait(PAUSE);
        lost
    };
    (1..=rounds).map(round).collect()
}

fn link(a: &str, b: &str) -> Failure {
    Failure::Link(a.into(), b.into())
}

fn between(from: Place, to: Place) -> [Flow; 2] {
    [false, true].map(|v6| Flow { from, to, ports: (0, 80), v6 })
}

/// What is lost until a failure is known: in each direction one segment, and one more while nothing has come by the
/// sound uplink since.
const UNTIL_KNOWN: u64 = 4;

fn judge(k: usize, failure: &Failure, flow: Flow) {
    let lost = lost(k, failure, flow, 12);
    let (known, unknown) = (lost[2..].iter().sum::<u64>(), lost.iter().sum::<u64>());
    assert!(known == 0 && unknown <= UNTIL_KNOWN, "{failure:?}, {flow:?}: lost in each round {lost:?}");
}

#[test]
fn between_two_pods_nothing_is_lost_once_a_failure_is_known() {
    let fabric = Fabric::fat_tree(4, &options()).expect("a fabric");
    let ends = ["tor0-1", "tor1-1", "agg0-0", "agg0-1", "agg1-0", "agg1-1"];
    let links = fabric.links.iter().map(|l| (&*l.a.node, &*l.b.node)).filter(|(a, _)| !a.starts_with('h'));
    let links = links.filter(|(a, b)| ends.contains(a) || ends.contains(b)).map(|(a, b)| link(a, b));
    let cores = ends[2..].iter().map(|agg| Failure::Cores(agg.to_string()));
    let failures: Vec<_> = links.chain(cores).collect();
    // Of four aggregation switches two links up and two down, and four times the cores.
    assert_eq!(failures.len(), 4 * 4 + 4, "{failures:?}");
    for failure in failures {
        between((0, 1, 2), (1, 1, 2)).into_iter().for_each(|flow| judge(4, &failure, flow));
    }
}

#[test]
fn one_end_that_pauses_while_the_other_streams_loses_nothing_once_a_failure_is_known() {
    // The stream keeps its way, so that nothing with a tag comes from its sender but answers.
    for failure in [link("tor0-1", "agg0-0"), Failure::Cores("agg0-0".into()), Failure::Cores("agg1-1".into())] {
        for flow in between((0, 1, 2), (1, 1, 2)) {
            let mut talk = Talk::over(4, &failure);
            let flows: Vec<_> = (1..=FLOWS).map(|port| flow.port(40_000 + port)).collect();
            let mut round = || {
                let mut lost: u64 = flows.iter().map(|flow| talk.deliver(*flow)).sum();
                for _ in 0..PAUSE / 50 {
                    lost += flows.iter().map(|flow| talk.deliver(flow.back())).sum::<u64>();
                    talk.wait(50);
                }
                lost
            };
            let lost: Vec<u64> = (0..12).map(|_| round()).collect();
            let (known, unknown) = (lost[2..].iter().sum::<u64>(), lost.iter().sum::<u64>());
            // Streams that began by the dead uplink find out one by one.
            assert!(known == 0 && unknown <= 2 * u64::from(FLOWS), "{failure:?}, {flow:?}: {lost:?}");
        }
    }
}

#[test]
fn within_a_pod_nothing_is_lost_once_a_failure_is_known() {
    for failure in [link("tor0-0", "agg0-0"), link("tor0-1", "agg0-1")] {
        between((0, 1, 2), (0, 0, 2)).into_iter().for_each(|flow| judge(4, &failure, flow));
    }
}

#[test]
fn with_four_planes_nothing_is_lost_once_a_failure_is_known() {
    let cores = |agg: &str| Failure::Cores(agg.into());
    for failure in [link("tor1-1", "agg1-1"), link("agg0-2", "core8"), cores("agg0-3"), cores("agg1-0")] {
        between((0, 1, 2), (1, 1, 2)).into_iter().for_each(|flow| judge(8, &failure, flow));
    }
}

/// A flow from another host, made up or not, behind the same far ToR.
fn from(octet: u8) -> Flow {
    Flow { from: (0, 1, octet), to: (1, 1, 2), ports: (40_000, 80), v6: false }
}

/// Ways of UDP packets of the flow's ends.
fn udp_ways(talk: &mut Talk, flow: Flow) -> BTreeSet<String> {
    let way = |port: u16| {
        let packet = packets::udp(flow.ends(), 64, (port, 2), &[0; 40]);
        talk.net.send(&name(flow.from), &packet)[0].to.clone()
    };
    (1..=40).map(way).collect()
}

#[test]
fn many_remote_hosts_lose_no_more_than_one_segment_each() {
    // So many that some fall on one row at the far ToR.
    let hosts: Vec<u8> = (2..=250).collect();
    let mut talk = Talk::over(4, &Failure::Cores("agg0-1".into()));
    let mut round = || {
        let lost = |octet: &u8| {
            let flow = from(*octet);
            // All by one host's port: the ToR goes by addresses.
            let hops = talk.net.send("h0-1-2", &flow.data(100));
            u64::from(!hops.iter().any(|hop| hop.to == "h1-1-2"))
        };
        let lost: u64 = hosts.iter().map(lost).sum();
        talk.wait(PAUSE);
        lost
    };
    let lost: Vec<u64> = (0..12).map(|_| round()).collect();
    // One host here, to one there.
    assert!(lost.iter().sum::<u64>() <= 2 * hosts.len() as u64 && lost[4..].iter().sum::<u64>() == 0, "{lost:?}");
}

#[test]
fn a_scan_by_another_host_does_not_make_the_rack_forget() {
    let mut talk = Talk::over(4, &Failure::Cores("agg0-0".into()));
    let flow = from(2);
    (1..=20).for_each(|port| _ = talk.deliver(flow.port(port)));
    for pod in 1..=100 {
        for octet in 2..=250 {
            let scan = Flow { from: (0, 1, 3), to: (pod, 77, octet), ..flow };
            talk.net.send("h0-1-3", &scan.syn());
        }
    }
    let lost: u64 = (101..=140).map(|port| talk.deliver(flow.port(port))).sum();
    assert_eq!(lost, 0);
}

#[test]
fn a_request_whose_tag_was_taken_off_on_its_way_speaks_against_no_uplink() {
    let options = FabricOptions { fabric_mtu: 1500, ..options() };
    let fabric = Fabric::fat_tree(4, &options).expect("a fabric");
    let names: Vec<&str> = fabric.switches.iter().map(|s| s.name()).collect();
    let mut talk = Talk { net: Net::of(&fabric, &names), fabric: fabric.clone(), now: 0 };
    let flow = from(2);
    let whole = udp_ways(&mut talk, flow);
    assert_eq!(whole.len(), 2);
    for _ in 0..4 {
        talk.net.send("h0-1-2", &flow.data(1460));
        talk.wait(PAUSE);
        assert_eq!(udp_ways(&mut talk, flow), whole);
    }
    assert_eq!(talk.net.node("tor0-1").counters().requests_in_vain, 0);
}

#[test]
fn an_own_link_that_was_down_for_a_moment_is_not_doubted() {
    let mut tor = Node::new("tor0-1");
    let flow = from(2);
    assert_eq!(tor.send(DOWN[0], &flow.syn())[0].0, UP[0]);
    tor.now = tor.now + 1000;
    tor.set_up(UP[0], false);
    assert_eq!(tor.send(DOWN[0], &flow.data(9))[0].0, UP[1]);
    tor.set_up(UP[0], true);
    tor.wait(1000);
    assert_eq!(tor.send(DOWN[0], &flow.port(9).syn())[0].0, UP[0]);
    assert_eq!(tor.scheme().reach().doubts(tor.now).count(), 0);
}

#[test]
fn what_is_doubted_is_tried_by_one_request_a_minute_whose_answer_ends_the_doubt() {
    let mut tor = Node::new("tor0-1");
    let flow = from(2);
    let opens = |tor: &mut Node, port: u16| tor.send(DOWN[0], &flow.port(port).syn())[0].0;
    assert_eq!(opens(&mut tor, 1), UP[0]);
    tor.wait(1000);
    assert_eq!(opens(&mut tor, 1), UP[1]);
    for minute in [1, 2] {
        let tried: Vec<u16> = (0..60)
            .filter(|second| {
                tor.wait(1000);
                opens(&mut tor, 1000 * minute + second) == UP[0]
            })
            .collect();
        assert_eq!(tried, [59], "minute {minute}");
    }
    let udp = |tor: &mut Node| -> BTreeSet<u8> {
        let by = |port: u16| tor.send(DOWN[0], &packets::udp(flow.ends(), 64, (port, 2), &[0; 40]))[0].0;
        (1..=40).map(by).collect()
    };
    assert_eq!(udp(&mut tor), [UP[1]].into());
    // The last one is answered by the other uplink.
    tor.send(UP[1], &with_tag(&flow.port(2059).message(SYN), "88b5 88 00 00 00 00"));
    assert_eq!((udp(&mut tor), opens(&mut tor, 9)), (UP.into(), UP[0]));
}
