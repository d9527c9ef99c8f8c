//! Flows that pause for longer than their ways are kept, as a remote procedure call now and then, over fabrics with a
//! failure that lasts: what is lost while it is found out, and that nothing is from then on.

use weft::topo::{Fabric, FabricOptions};

use crate::net::{Hop, Net};
use crate::packets;
use crate::rig::{Node, options};
use crate::segment::{Flow, Place};

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

/// What is lost until a failure is known: one segment, and one more where both directions find out by themselves.
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
