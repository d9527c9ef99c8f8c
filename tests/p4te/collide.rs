//! Two elephants that ECMP puts on one spine, with mice among them: leaf-spine 2x2, all links alike, in virtual
//! time. Flows pause for longer than the flowlet gap, so that they can move.

use std::collections::BTreeMap;

use weft::config::{P4teOptions, Selector};
use weft::time::{Instant, MICROS, MILLIS};
use weft::topo::FabricOptions;
use weft::units::Duration;

use crate::chain::ends;
use crate::packets;
use crate::rig::{LARGE, fabric, options, set_tos};
use crate::sim::Sim;

const HOSTS: [(&str, &str); 2] = [("h0-0-2", "h0-1-2"), ("h0-0-3", "h0-1-3")];
/// An elephant sends for 4 ms of every 6 at 90 % of a link; the second starts 3 ms later.
const PERIOD: u64 = 6 * MILLIS;
const ON: u64 = 4 * MILLIS;
const STAGGER: u64 = 3 * MILLIS;
/// 1,024 B on the wire each.
const LEN: usize = 1_000 - 42;
const EVERY: u64 = 91 * MICROS;
const RUN: u64 = 240 * MILLIS;

/// What a run gave, of its second half.
#[derive(Debug)]
struct Outcome {
    /// Milliseconds in which both elephants used one spine, of those in which both sent.
    together: f64,
    /// Mean time from a mouse's sending to its arrival, ns.
    mice: f64,
    /// Bytes of the busier uplink over those of the other.
    ratio: f64,
    lost: u64,
}

fn frame(sim: &Sim, (from, to): (&str, &str), ports: (u16, u16), dscp: u8, len: usize) -> Vec<u8> {
    let mut frame = packets::udp(ends(sim, from, to, false), 64, ports, &vec![0; len]);
    set_tos(&mut frame, dscp << 2);
    frame
}

fn sim(selector: Selector, seed: u64) -> Sim {
    let p4te = P4teOptions {
        flowlet_gap: Duration(MILLIS),
        // 2,500 B: a link has its color after a fraction of a burst of the elephants.
        burst: Duration(200 * MICROS),
        ..P4teOptions::default()
    };
    let options = FabricOptions { selector, seed, hello_interval: Duration(MILLIS), host_mtu: 1500, ..options(p4te) };
    Sim::new(&fabric(2, &options))
}

/// Source and destination port of a UDP packet in IPv4 without options.
fn ports(frame: &[u8]) -> Option<(u16, u16)> {
    let is_udp = frame[12..14] == [8, 0] && frame[23] == 17;
    is_udp.then(|| [34, 36].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]))).map(|[a, b]| (a, b))
}

/// Source ports of two elephants that ECMP puts on one spine.
fn colliding(seed: u64) -> [u16; 2] {
    let mut sim = sim(Selector::Ecmp, seed);
    let mut spine = |host: usize, port: u16| {
        let frame = frame(&sim, HOSTS[host], (port, 9), LARGE, LEN);
        sim.send(HOSTS[host].0, &frame);
        sim.run_for(MILLIS);
        let seen = std::mem::take(&mut sim.seen);
        let up = seen.iter().find(|s| s.from == "leaf0" && ports(&s.frame) == Some((port, 9))).expect("sent up");
        up.to.clone()
    };
    let first = spine(0, 1_000);
    let second = (2_000..2_100).find(|port| spine(1, *port) == first).expect("one of a hundred");
    sim.finish();
    [1_000, second]
}

fn run(selector: Selector, seed: u64, elephants: [u16; 2]) -> Outcome {
    let mut sim = sim(selector, seed);
    let start = sim.now;
    let mut sendings: Vec<(u64, usize, (u16, u16))> = vec![];
    for (host, port) in elephants.into_iter().enumerate() {
        for period in 0..RUN / PERIOD {
            let begin = period * PERIOD + host as u64 * STAGGER;
            sendings.extend((0..ON / EVERY).map(|i| (begin + i * EVERY, host, (port, 9))));
        }
        // A mouse each 500 us, of one packet.
        sendings.extend((0..RUN / 500_000).map(|i| (i * 500_000 + 7 * MICROS, host, (i as u16, 10))));
    }
    sendings.sort_unstable();
    let mut mice: BTreeMap<(usize, u16), Instant> = BTreeMap::new();
    for (at, host, ports) in &sendings {
        sim.run_for((start + *at).since(sim.now));
        let (dscp, len) = if ports.1 == 9 { (LARGE, LEN) } else { (0, 100) };
        let frame = frame(&sim, HOSTS[*host], *ports, dscp, len);
        if ports.1 == 10 {
            mice.insert((*host, ports.0), sim.now);
        }
        sim.send(HOSTS[*host].0, &frame);
    }
    sim.run_for(50 * MILLIS);
    let half = start + RUN / 2;
    // By millisecond, elephant and spine: packets.
    let mut used: BTreeMap<u64, [[u32; 2]; 2]> = BTreeMap::new();
    let (mut bytes, mut delays, mut arrived) = ([0u64; 2], vec![], 0u64);
    for s in &sim.seen {
        let Some((port, kind @ (9 | 10))) = ports(&s.frame) else { continue };
        arrived += u64::from(s.to.starts_with('h'));
        if s.at < half {
            continue;
        }
        if s.from == "leaf0" {
            let spine = usize::from(s.to == "spine1");
            bytes[spine] += s.frame.len() as u64;
            if kind == 9 {
                let elephant = usize::from(port == elephants[1]);
                used.entry(s.at.since(start) / MILLIS).or_default()[elephant][spine] += 1;
            }
        } else if kind == 10 && s.to.starts_with('h') {
            let host = usize::from(s.to == HOSTS[1].1);
            delays.push(s.at.since(mice[&(host, port)]) as f64);
        }
    }
    let both = used.values().filter(|e| e.iter().all(|spines| spines.iter().sum::<u32>() > 1));
    let same: Vec<bool> = both.map(|e| (e[0][0] > e[0][1]) == (e[1][0] > e[1][1])).collect();
    let together = same.iter().filter(|same| **same).count() as f64 / same.len() as f64;
    let outcome = Outcome {
        together,
        mice: delays.iter().sum::<f64>() / delays.len() as f64,
        ratio: *bytes.iter().max().expect("two") as f64 / (*bytes.iter().min().expect("two")).max(1) as f64,
        lost: sendings.len() as u64 - arrived,
    };
    sim.finish();
    outcome
}

#[test]
fn elephants_that_collide_part_and_mice_do_not_wait_for_them() {
    for seed in 1..=5 {
        let elephants = colliding(seed);
        let ecmp = run(Selector::Ecmp, seed, elephants);
        let p4te = run(Selector::P4te, seed, elephants);
        let case = format!("seed {seed}: ECMP {ecmp:?}, P4TE {p4te:?}");
        // 180 % of an uplink for a third of the time: mice wait behind what piles up.
        assert!(ecmp.together == 1.0 && ecmp.ratio > 10.0, "{case}");
        assert!(p4te.together < 0.2 && p4te.ratio < 1.3, "{case}");
        assert!(p4te.mice * 10.0 < ecmp.mice, "{case}");
        assert_eq!((ecmp.lost, p4te.lost), (0, 0), "{case}");
    }
}
