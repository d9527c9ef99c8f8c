//! Whole fabrics in virtual time: the same switches as on real ports, simulated links, simple hosts.
//!
//! ```text
//!     spine0   spine1            core0 core1 core2 core3     four pods of
//!       | \   / |                  each to one agg a pod       agg  agg
//!       |  \ /  |                                                |\/|
//!       |  / \  |                                                |/\|
//!     leaf0   leaf1                                            tor  tor
//!     h h      h h                                             h h  h h
//! ```
//!
//! `results.txt` holds what each scenario gives, to the last nanosecond and byte. A change of behaviour
//! shows there; if it is meant, write the table anew with `WEFT_NETSIM_UPDATE=1 cargo test --test netsim`
//! and let the review see the difference.

mod host;
mod network;
#[path = "../packets/mod.rs"]
mod packets;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use host::Heard;
use network::{Network, PROPAGATION, serialization};
use weft::counters::DropReason;
use weft::id::Role;
use weft::pisa::Queue;
use weft::time::{MICROS, MILLIS, SECONDS};
use weft::topo::{Fabric, FabricOptions};
use weft::units::{BitRate, Duration};

const RATE: BitRate = BitRate(1_000_000_000);

/// Without hellos: what a scenario counts and times is then its own.
fn options(seed: u64) -> FabricOptions {
    FabricOptions { rate: RATE, seed, hello_interval: Duration(0), ..FabricOptions::default() }
}

fn leaf_spine(seed: u64) -> Fabric {
    Fabric::leaf_spine(2, 2, &options(seed)).expect("a fabric")
}

fn fat_tree(seed: u64) -> Fabric {
    Fabric::fat_tree(4, &options(seed)).expect("a fabric")
}

/// What a scenario gave, a line of the table of results.
struct Outcome {
    scenario: &'static str,
    arrivals: u64,
    /// What the scenario measures.
    measured: String,
    drops: Vec<(DropReason, u64)>,
    trace: u64,
}

impl Outcome {
    fn of(scenario: &'static str, network: Network, measured: String) -> Outcome {
        let outcome =
            Outcome { scenario, arrivals: network.arrivals, measured, drops: network.drops(), trace: network.trace };
        network.finish();
        outcome
    }
}

fn pongs(network: &Network, host: &str) -> BTreeMap<(IpAddr, u16), u64> {
    let pong = |(at, heard): &(weft::time::Instant, Heard)| match heard {
        Heard::Pong { from, sequence } => Some(((*from, *sequence), at.0)),
        _ => None,
    };
    network.host(host).heard.iter().filter_map(pong).collect()
}

/// Links between two hosts: up to the lowest switch above both, and down.
fn distance(fabric: &Fabric, a: &str, b: &str) -> u64 {
    let tor = |name: &str| &fabric.host(name).expect("a host").tor;
    let pod = |name: &str| fabric.switch(tor(name)).expect("a switch").pod;
    let has_aggs = fabric.switches.iter().any(|s| s.role() == Role::Agg);
    match () {
        () if tor(a) == tor(b) => 2,
        () if !has_aggs || pod(a) == pod(b) => 4,
        () => 6,
    }
}

/// Every host pings every other one over IPv4 and IPv6, twice: the second time all addresses are known,
/// and the round trip takes exactly what the links take.
fn all_pairs_ping(scenario: &'static str, fabric: &Fabric) -> Outcome {
    const PAYLOAD: usize = 200;
    let mut network = Network::new(fabric);
    let mut rtts = vec![];
    for v6 in [false, true] {
        for sequence in [1, 2] {
            for (from, to) in pairs(fabric) {
                let address = network.host(to).ip(v6);
                let start = network.now;
                network.ping(from, address, sequence, PAYLOAD);
                network.run_for(MILLIS);
                let pong = pongs(&network, from).get(&(address, sequence)).copied();
                let rtt = pong.unwrap_or_else(|| panic!("{from} got no answer from {address}")) - start.0;
                if sequence == 2 {
                    let frame = 14 + if v6 { 40 } else { 20 } + 8 + PAYLOAD;
                    let link = serialization(frame, RATE) + PROPAGATION;
                    assert_eq!(rtt, 2 * distance(fabric, from, to) * link, "{from} to {address}");
                    rtts.push(rtt);
                }
            }
        }
    }
    rtts.sort_unstable();
    let measured = format!(
        "{} pings, RTT {} to {} ns, median {}",
        rtts.len(),
        rtts[0],
        rtts[rtts.len() - 1],
        rtts[rtts.len() / 2]
    );
    Outcome::of(scenario, network, measured)
}

fn pairs(fabric: &Fabric) -> impl Iterator<Item = (&str, &str)> {
    let names = || fabric.hosts.iter().map(|h| h.name.as_str());
    names().flat_map(move |a| names().filter(move |b| *b != a).map(move |b| (a, b)))
}

/// Names of the switches whose own addresses these are.
fn names<'a>(fabric: &'a Fabric, addresses: &[IpAddr]) -> Vec<&'a str> {
    let own = |s: &weft::topo::Switch| -> Vec<IpAddr> {
        let segment = s.config.segment;
        [
            segment.and_then(|s| s.ipv4).map(|n| n.addr().into()),
            segment.and_then(|s| s.ipv6).map(|n| n.addr().into()),
            s.config.router_ipv4.map(Into::into),
            s.config.router_ipv6.map(Into::into),
        ]
        .into_iter()
        .flatten()
        .collect()
    };
    let name = |a| fabric.switches.iter().find(|s| own(s).contains(a)).expect("an address of a switch").name();
    addresses.iter().map(name).collect()
}

/// Traceroute over UDP with one five-tuple, as `traceroute -N 1` of a flow: the routers that answer, in
/// order of TTL, are the switches that a packet of the flow passes.
fn traceroute(scenario: &'static str, fabric: &Fabric, from: &str, to: &str) -> Outcome {
    let mut network = Network::new(fabric);
    let mut measured = String::new();
    for v6 in [false, true] {
        let to = network.host(to).ip(v6);
        let ports = (40_000, 33_434 + u16::from(v6));
        let mut routers = vec![];
        for ttl in 1..10 {
            let before = network.host(from).heard.len();
            network.udp(from, to, ttl, ports, 32);
            network.run_for(MILLIS);
            let answers: Vec<IpAddr> = network.host(from).heard[before..]
                .iter()
                .map(|(_, heard)| match heard {
                    Heard::Error { from, kind, code: 0, port } if *port == ports.1 => {
                        assert_eq!(*kind, if v6 { 3 } else { 11 }, "time exceeded");
                        *from
                    }
                    other => panic!("{other:?}"),
                })
                .collect();
            match answers[..] {
                [router] => routers.push(router),
                [] => break,
                _ => panic!("one answer a probe: {answers:?}"),
            }
        }
        let answered = names(fabric, &routers);
        network.paths.clear();
        network.udp(from, to, 64, ports, 32);
        network.run_for(MILLIS);
        assert_eq!(network.paths[&ports], answered, "the way of a packet of the flow");
        write!(measured, "{}{}", if v6 { ", " } else { "" }, answered.join(" ")).expect("written to memory");
    }
    Outcome::of(scenario, network, measured)
}

/// Many flows from one rack to another: both uplinks of the ToR and, in a fat tree, all cores share them.
fn spread(scenario: &'static str, fabric: &Fabric, from: &str, to: &str) -> Outcome {
    const FLOWS: usize = 1_000;
    let mut network = Network::new(fabric);
    let address = network.host(to).ip(false);
    for flow in 0..FLOWS as u16 {
        network.udp(from, address, 64, (flow, 80), 64);
        network.run_for(10 * MICROS);
    }
    network.run_for(MILLIS);
    let mut ways = BTreeMap::<&str, u64>::new();
    for ((_, port), path) in &network.paths {
        assert_eq!(*port, 80);
        // The highest switch of the way tells the ways apart.
        let top = &path[path.len() / 2];
        *ways.entry(fabric.switch(top).expect("a switch").name()).or_default() += 1;
    }
    let cores = fabric.switches.iter().filter(|s| s.role() == Role::Core).count();
    assert_eq!(ways.len(), cores, "every core is used: {ways:?}");
    let even = (FLOWS / cores) as u64;
    // Six standard deviations of a binomial distribution.
    let bound = (6.0 * (even as f64 * (1.0 - 1.0 / cores as f64)).sqrt()) as u64;
    assert!(ways.values().all(|n| n.abs_diff(even) < bound), "{ways:?}, even would be {even}");
    assert_eq!(received(&network, to).len(), FLOWS);
    let measured = ways.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ");
    Outcome::of(scenario, network, measured)
}

/// Source ports of the UDP packets that a host received.
fn received(network: &Network, host: &str) -> Vec<u16> {
    let port = |(_, heard): &(_, Heard)| match heard {
        Heard::Udp { ports, .. } => Some(ports.0),
        _ => None,
    };
    network.host(host).heard.iter().filter_map(port).collect()
}

/// An uplink of leaf0 fails under traffic and comes back: what was on it is lost, everything after goes
/// by the other one; what comes from leaf1 by the spine without a way down is a counted drop.
fn link_failure(scenario: &'static str, fabric: &Fabric) -> Outcome {
    let mut network = Network::new(fabric);
    let (here, there) = ("h0-0-2", "h0-1-2");
    let [to, back] = [there, here].map(|h| network.host(h).ip(false));
    let mut flow = 0..;
    let mut burst = |network: &mut Network, from: &str, to: IpAddr| {
        let before = [network.sent("leaf0", "spine0"), network.sent("leaf0", "spine1")];
        for port in flow.by_ref().take(200) {
            network.udp(from, to, 64, (port, 80), 64);
            network.run_for(10 * MICROS);
        }
        network.run_for(MILLIS);
        [network.sent("leaf0", "spine0") - before[0], network.sent("leaf0", "spine1") - before[1]]
    };
    let sound = burst(&mut network, here, to);
    assert!(sound.iter().all(|n| *n > 50), "both uplinks: {sound:?}");
    network.set_link("leaf0", "spine0", false);
    assert_eq!(burst(&mut network, here, to), [0, 200], "all by the one that is left");
    assert_eq!(received(&network, there).len(), 400, "and none is lost");
    // spine0 has no way down to rack 0 now; leaf1 does not know that and still uses both.
    burst(&mut network, there, back);
    let arrived = received(&network, here).len() as u64;
    let no_way = network.drops().iter().find(|(r, _)| *r == DropReason::EmptyGroup).map_or(0, |(_, n)| *n);
    assert!((50..150).contains(&arrived), "{arrived} of 200");
    assert_eq!(arrived + no_way, 200, "each that did not arrive was counted");
    let told = |(_, heard): &&(_, Heard)| matches!(heard, Heard::Error { kind: 3, code: 0, .. });
    // Errors about what came by one port are limited to 20 at once and 200 a second.
    assert!(network.host(there).heard.iter().filter(told).count() >= 20, "and its sender told");
    network.set_link("leaf0", "spine0", true);
    let mended = burst(&mut network, here, to);
    assert!(mended.iter().all(|n| *n > 50), "both uplinks again: {mended:?}");
    // Once more, with frames under way: they are lost with the link or dropped with the queue, no others.
    let before = received(&network, there).len();
    for port in 0..200 {
        network.udp(here, to, 64, (port, 81), 64);
    }
    network.run_for(20 * MICROS);
    network.set_link("leaf0", "spine0", false);
    network.run_for(MILLIS);
    let lost = network.drops().iter().find(|(r, _)| *r == DropReason::PortDown).map_or(0, |(_, n)| *n) + network.cut;
    assert_eq!(received(&network, there).len() - before + lost as usize, 200);
    assert!((1..10).contains(&lost), "{lost} frames were under way");
    let measured = format!("{} of 200 arrived at rack 0 by the other spine, {} cut off", arrived, network.cut);
    Outcome::of(scenario, network, measured)
}

/// leaf0 ceases to hear spine0, which hears it well; no device goes down. Within the detection time neither
/// of the two uses the link, and soon after it is mended both do again. (leaf1 goes on by spine0 meanwhile,
/// which has no way down to rack 0 and says so: a hello tells the state of one link, not of a path.)
fn deaf_link(scenario: &'static str, fabric: &Fabric) -> Outcome {
    const INTERVAL: u64 = 10 * MILLIS;
    const DETECTION: u64 = 3 * INTERVAL;
    const GAP: u64 = 100 * MICROS;
    let mut network = Network::new(fabric);
    let (here, there) = ("h0-0-2", "h0-1-2");
    let [to, back] = [there, here].map(|h| network.host(h).ip(false));
    network.run_for(2 * INTERVAL);
    let links = [("leaf0", "spine0"), ("spine0", "leaf0"), ("leaf1", "spine0"), ("leaf0", "spine1")];
    let live = |network: &Network| links.map(|(switch, peer)| network.link(switch, peer).live);
    assert_eq!(live(&network), [true; 4]);
    let mut flow = 0..;
    // Packets each way for `ns`; how many of them did not arrive.
    let mut traffic = |network: &mut Network, ns: u64| {
        let before = [here, there].map(|h| received(network, h).len());
        let packets = (ns / GAP) as usize;
        for port in flow.by_ref().take(packets) {
            network.udp(here, to, 64, (port, 80), 64);
            network.udp(there, back, 64, (port, 81), 64);
            network.run_for(GAP);
        }
        network.run_for(MILLIS);
        [here, there]
            .map(|h| received(network, h).len())
            .iter()
            .zip(before)
            .map(|(n, b)| b + packets - n)
            .sum::<usize>()
    };
    assert_eq!(traffic(&mut network, 20 * MILLIS), 0);
    network.set_deaf("leaf0", "spine0", true);
    let start = network.now;
    let mut left = None;
    let lost = traffic(&mut network, DETECTION);
    assert!((50..300).contains(&lost), "{lost} of 600: about half of what came down to leaf0");
    while left.is_none() {
        network.run_for(10 * MICROS);
        left = (live(&network) == [false, false, true, true]).then(|| network.now.since(start));
        assert!(network.now.since(start) < DETECTION + INTERVAL, "{:?}", live(&network));
    }
    let before = network.sent("leaf0", "spine0");
    let arrived = received(&network, there).len();
    for port in 0..200 {
        network.udp(here, to, 64, (port, 82), 64);
        network.run_for(GAP);
    }
    network.run_for(MILLIS);
    assert_eq!(received(&network, there).len() - arrived, 200, "none is lost on the way up");
    let hellos = network.sent("leaf0", "spine0") - before;
    assert!((2..=3).contains(&hellos), "nothing but a hello each interval went to spine0: {hellos}");
    network.set_deaf("leaf0", "spine0", false);
    network.run_for(INTERVAL + MILLIS);
    assert_eq!(live(&network), [true; 4]);
    assert_eq!(traffic(&mut network, 20 * MILLIS), 0, "as if nothing had been");
    let measured = format!("{lost} of 600 lost in the first {} ms", DETECTION / MILLIS);
    Outcome::of(scenario, network, measured)
}

/// Three hosts send to one at their full rate: the queue before it grows to its limit and drops the rest.
fn incast(scenario: &'static str, fabric: &Fabric) -> Outcome {
    let mut network = Network::new(fabric);
    let (to, sources) = ("h0-0-2", ["h0-0-3", "h0-1-2", "h0-1-3"]);
    let address = network.host(to).ip(false);
    for source in sources {
        network.ping(source, address, 1, 0);
    }
    network.run_for(MILLIS);
    const PACKETS: u16 = 1_000;
    for number in 0..PACKETS {
        for (source, index) in sources.iter().zip(0..) {
            network.udp(source, address, 64, (number, index), 1_400);
        }
    }
    network.run_for(SECONDS);
    let depth = network.switch("leaf0").queues().depth(weft::id::PortId(0), Queue::Data);
    let arrived = received(&network, to).len() as u64;
    let dropped: u64 = network.drops().iter().map(|(_, n)| n).sum();
    assert_eq!(arrived + dropped, 3 * u64::from(PACKETS));
    assert_eq!(depth.dropped, dropped, "only where the three meet");
    // The queue is full, so the delay that its depth and rate give is what its last packet saw.
    let full = depth.peak_bytes / 1_442;
    let measured = format!("{arrived} arrived, {full} packets at the peak, {} bytes", depth.peak_bytes);
    Outcome::of(scenario, network, measured)
}

/// Every scenario of the table.
fn scenarios(seed: u64) -> Vec<Outcome> {
    let (small, large) = (leaf_spine(seed), fat_tree(seed));
    let hellos = FabricOptions { hello_interval: Duration(10 * MILLIS), ..options(seed) };
    let talking = Fabric::leaf_spine(2, 2, &hellos).expect("a fabric");
    vec![
        all_pairs_ping("leaf-spine 2x2 all-pairs ping", &small),
        all_pairs_ping("fat-tree 4 all-pairs ping", &large),
        traceroute("leaf-spine 2x2 traceroute", &small, "h0-0-2", "h0-1-3"),
        traceroute("fat-tree 4 traceroute", &large, "h0-0-2", "h3-1-3"),
        spread("leaf-spine 2x2 ECMP", &small, "h0-0-2", "h0-1-3"),
        spread("fat-tree 4 ECMP", &large, "h0-0-2", "h3-1-3"),
        link_failure("leaf-spine 2x2 link failure", &small),
        deaf_link("leaf-spine 2x2 deaf link", &talking),
        incast("leaf-spine 2x2 incast 3:1", &small),
    ]
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from("scenario | frames | trace | measured | drops\n");
    for o in outcomes {
        let drops: Vec<String> = o.drops.iter().map(|(reason, n)| format!("{} {n}", reason.name())).collect();
        let drops = if drops.is_empty() { "none".into() } else { drops.join(", ") };
        let line = format!("{} | {} | {:016x} | {} | {drops}", o.scenario, o.arrivals, o.trace, o.measured);
        writeln!(text, "{line}").expect("written to memory");
    }
    text
}

#[test]
fn every_scenario_gives_what_the_committed_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/netsim/results.txt");
    let ours = table(&scenarios(1));
    if std::env::var_os("WEFT_NETSIM_UPDATE").is_some() {
        std::fs::write(&path, &ours).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(
        committed, ours,
        "the network behaves otherwise than in tests/netsim/results.txt; if that is meant, run \
         `WEFT_NETSIM_UPDATE=1 cargo test --test netsim` and review the difference"
    );
}

#[test]
fn a_run_repeats_to_the_byte_and_another_seed_takes_other_paths() {
    let run = |seed| {
        let outcome = spread("ECMP", &leaf_spine(seed), "h0-0-2", "h0-1-3");
        (outcome.arrivals, outcome.trace, outcome.measured)
    };
    assert_eq!(run(7), run(7));
    let traces: BTreeSet<u64> = (7..12).map(|seed| run(seed).1).collect();
    assert_eq!(traces.len(), 5);
}
