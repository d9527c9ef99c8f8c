//! The packet path takes no memory whatever the scheme: a leaf of each selector in its steady state, P4TE with its
//! control plane and with FACKs made.

mod counting;
#[path = "packets/mod.rs"]
mod packets;
#[path = "p4te/tcp.rs"]
mod tcp;

/// What the segments of P4TE's tests need.
mod rig {
    pub fn set_tos(frame: &mut [u8], tos: u8) {
        frame[15] = tos;
        crate::packets::mend_ipv4(frame, 14);
    }
}

use std::sync::atomic::Ordering;

use counting::ALLOCATIONS;
use packets::{Ends, arp};
use tcp::{ACK, SYN, Segment};
use weft::config::{P4teOptions, RateAdaptation, Selector, SwitchConfig};
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::frame::{BURST, Burst, Pool};
use weft::id::PortId;
use weft::time::{Instant, MICROS, SECONDS};
use weft::topo::{Fabric, FabricOptions};
use weft::units::{BitRate, Bytes};
use weft::wire::MacAddr;

/// The host at port 0 of leaf0, and one of leaf1.
const HOST: MacAddr = MacAddr([2, 0x68, 0, 0, 0, 2]);
const PORTS: (u16, u16) = (40_000, 80);
const LEN: usize = 1_000;

fn leaf(selector: Selector) -> SwitchConfig {
    let p4te = P4teOptions {
        rate_adaptation: RateAdaptation::Fack,
        window: Bytes(20_000),
        depth_step: 1,
        delta: 1,
        ..P4teOptions::default()
    };
    let options = FabricOptions { rate: BitRate(1_000_000_000), selector, p4te, ..FabricOptions::default() };
    Fabric::leaf_spine(2, 2, &options).expect("a fabric").switch_config("leaf0").expect("a switch")
}

struct Leaf {
    plane: Box<dyn Dataplane>,
    pool: Pool,
    burst: Burst,
    out: Burst,
    now: Instant,
    data: Vec<u8>,
    seq: u32,
}

impl Leaf {
    fn new(selector: Selector) -> Leaf {
        let config = leaf(selector);
        let mtus: Vec<u16> = config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
        let (here, there) = ("10.0.0.2".parse().expect("an address"), "10.0.1.2".parse().expect("an address"));
        let up = Ends { src_mac: HOST, dst_mac: config.mac, src: here, dst: there };
        let down = Ends { src_mac: MacAddr([2, 0x77, 0, 0, 9, 4]), dst_mac: config.mac, src: there, dst: here };
        let data = Segment { ports: PORTS, ack: 1, flags: ACK, window: 9, len: LEN, tos: 5 << 2, ..Segment::default() };
        let mut leaf = Leaf {
            plane: dataplane::build(&config, &mtus),
            pool: Pool::heap(4096, 2048),
            burst: Burst::new(),
            out: Burst::new(),
            now: Instant(SECONDS),
            data: data.bytes(up),
            seq: 1_000,
        };
        let who = (MacAddr([0; 6]), "10.0.0.1".parse().expect("an address"));
        let hello = arp(false, (HOST, "10.0.0.2".parse().expect("an address")), who, MacAddr::BROADCAST, &[]);
        leaf.arrive(0, &hello, 1);
        let syn = Segment { ports: PORTS, seq: 999, flags: SYN, window: 9, ..Segment::default() };
        let frame = syn.bytes(up);
        leaf.arrive(0, &frame, 1);
        let answer = Segment { ports: (80, 40_000), ack: 1_000, flags: SYN | ACK, window: 9_000, ..Segment::default() };
        let frame = answer.bytes(down);
        leaf.arrive(2, &frame, 1);
        let ack = Segment { ports: (80, 40_000), seq: 1, ack: 1_000, flags: ACK, window: 9_000, ..answer };
        let frame = ack.bytes(down);
        leaf.arrive(2, &frame, 1);
        leaf
    }

    fn arrive(&mut self, port: u8, bytes: &[u8], n: usize) {
        for _ in 0..n {
            self.burst.push(self.pool.alloc_with(bytes).expect("a free chunk"));
        }
        self.plane.receive(self.now, PortId(port), &mut self.pool, &mut self.burst);
        self.turn();
    }

    fn turn(&mut self) {
        self.plane.tick(self.now, &mut self.pool);
        for port in self.plane.backlog().iter() {
            self.plane.transmit(self.now, port, &mut self.pool, BURST, &mut self.out);
            self.out.drain().for_each(|frame| self.pool.free(frame));
        }
        self.plane.control(self.now);
    }

    /// Data of one flow at the rate of its link, every seventh time twice as much so that its queue grows.
    fn run(&mut self, packets: usize) {
        for i in 0..packets {
            self.now = self.now + 8 * MICROS + 700;
            self.data[38..42].copy_from_slice(&self.seq.to_be_bytes());
            self.seq = self.seq.wrapping_add(LEN as u32);
            let data = std::mem::take(&mut self.data);
            // The next seven milliseconds nothing comes: the link turns green.
            if i % 4_000 > 3_200 {
                self.turn();
            } else {
                self.arrive(0, &data, 1 + usize::from(i % 7 == 0));
            }
            self.data = data;
        }
    }
}

/// FACKs and notices of a leaf.
fn acted(leaf: &Leaf) -> u64 {
    let tables = leaf.plane.show(leaf.now, Topic::Flows);
    let rows = tables.iter().filter(|t| t.name == "rate_control").flat_map(|t| &t.rows);
    rows.filter(|r| r[1] == Cell::from("fack_made")).map(|r| if let Cell::Int(n) = r[2] { n } else { 0 }).sum()
}

/// A switch of a fat tree with CAFT, and frames that make it find ways: each is of a new flow each time.
struct Finder {
    plane: Box<dyn Dataplane>,
    pool: Pool,
    burst: Burst,
    now: Instant,
    /// Port, frame, and where its source port stands.
    frames: Vec<(u8, Vec<u8>, usize)>,
}

impl Finder {
    fn new(name: &str, frames: &[(u8, [u8; 2], &[u8])]) -> Finder {
        let options = FabricOptions { selector: Selector::Caft, ..FabricOptions::default() };
        let config = Fabric::fat_tree(4, &options).expect("a fabric").switch_config(name).expect("a switch");
        let mtus: Vec<u16> = config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
        // From pod to pod, between the first hosts of the second racks.
        let frames = frames.iter().map(|(port, [from, to], tag)| {
            let address = |pod| format!("10.{pod}.1.2").parse().expect("an address");
            let ends = Ends { src_mac: HOST, dst_mac: config.mac, src: address(from), dst: address(to) };
            let frame = Segment { ports: PORTS, flags: SYN, window: 9, ..Segment::default() }.bytes(ends);
            (*port, [&frame[..12], tag, &frame[12..]].concat(), 34 + tag.len())
        });
        let mut finder = Finder {
            plane: dataplane::build(&config, &mtus),
            pool: Pool::heap(1024, 2048),
            burst: Burst::new(),
            now: Instant(SECONDS),
            frames: frames.collect(),
        };
        if config.segment.is_some() {
            let who = (MacAddr([0; 6]), "10.0.1.1".parse().expect("an address"));
            let hello = arp(false, (HOST, "10.0.1.2".parse().expect("an address")), who, MacAddr::BROADCAST, &[]);
            finder.burst.push(finder.pool.alloc_with(&hello).expect("a free chunk"));
            finder.plane.receive(finder.now, PortId(0), &mut finder.pool, &mut finder.burst);
        }
        finder
    }

    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now = self.now + 50 * MICROS;
            for (port, frame, at) in &mut self.frames {
                let source = u16::from_be_bytes([frame[*at], frame[*at + 1]]).wrapping_add(1);
                frame[*at..*at + 2].copy_from_slice(&source.to_be_bytes());
                self.burst.push(self.pool.alloc_with(frame).expect("a free chunk"));
                self.plane.receive(self.now, PortId(*port), &mut self.pool, &mut self.burst);
            }
            self.plane.tick(self.now, &mut self.pool);
            for port in self.plane.backlog().iter() {
                self.plane.transmit(self.now, port, &mut self.pool, BURST, &mut self.burst);
                self.burst.drain().for_each(|frame| self.pool.free(frame));
            }
        }
    }

    fn count(&self, what: &str) -> u64 {
        let tables = self.plane.show(self.now, Topic::Paths);
        match tables.iter().find(|t| t.name == "allocation").and_then(|counts| counts.get(what)) {
            Some(Cell::Int(n)) => *n,
            _ => panic!("no {what}"),
        }
    }
}

/// Requests, choices and responses at a ToR and an aggregation switch, and news of failed links.
fn caft_finds_ways_without_an_allocation() {
    const REQUEST: &[u8] = &[0x88, 0xb5, 4, 0x13, 0x42];
    const RESPONSE: &[u8] = &[0x88, 0xb5, 0x88, 0, 0x77, 0x77, 0];
    let tor: &[(u8, [u8; 2], &[u8])] = &[(0, [0, 1], &[]), (2, [1, 0], REQUEST), (3, [1, 0], RESPONSE)];
    let agg: &[(u8, [u8; 2], &[u8])] = &[
        (1, [0, 1], &[0x88, 0xb5, 2, 0x13]),
        (2, [1, 0], REQUEST),
        (2, [1, 0], &[0x88, 0xb5, 4, 0x13, 0x4f]),
        (3, [1, 0], &[0x88, 0xb5, 0]),
        (1, [0, 1], &[0x88, 0xb5, 0x86, 0, 0, 0]),
        (3, [1, 0], RESPONSE),
    ];
    for (name, frames, made) in [
        ("tor0-1", tor, &["requests_opened", "responses_sent", "flows_moved"][..]),
        (
            "agg0-0",
            agg,
            &["requests_passed_up", "choices_sent", "choices_taken", "responses_passed_up", "responses_completed"],
        ),
    ] {
        let mut finder = Finder::new(name, frames);
        finder.run(2_000);
        let before: Vec<u64> = made.iter().map(|what| finder.count(what)).collect();
        let allocations = ALLOCATIONS.load(Ordering::Relaxed);
        finder.run(8_000);
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - allocations, 0, "allocations of {name}");
        for (what, before) in made.iter().zip(before) {
            let made = finder.count(what) - before;
            // Some responses come by the uplink that their flow has.
            assert!(made > 3_000, "{name}: {made} {what}: not what is to be measured");
        }
        finder.plane.ledger().check().expect("the books balance");
        finder.plane.drain(finder.now, &mut finder.pool);
        assert_eq!(finder.pool.free_count(), finder.pool.chunks());
    }
}

#[test]
fn no_scheme_allocates_on_the_packet_path() {
    for selector in [
        Selector::Ecmp,
        Selector::Flowlet,
        Selector::LetFlow,
        Selector::Hula,
        Selector::P4te,
        Selector::Caft,
        Selector::Expeditus,
    ] {
        let mut leaf = Leaf::new(selector);
        leaf.run(8_000);
        let (before, digests) = (acted(&leaf), leaf.plane.digests().sent);
        let allocations = ALLOCATIONS.load(Ordering::Relaxed);
        leaf.run(40_000);
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - allocations, 0, "allocations of {selector:?}");
        if selector == Selector::P4te {
            let (facks, digests) = (acted(&leaf) - before, leaf.plane.digests().sent - digests);
            assert!(facks > 100 && digests > 1_000, "{facks} FACKs, {digests} digests: not what is to be measured");
        }
        let ledger = leaf.plane.ledger();
        ledger.check().expect("the books balance");
        let sent: u64 = ledger.ports.iter().map(|(c, _)| c.tx).sum();
        assert!(sent > 30_000, "{selector:?} sent {sent}");
        leaf.plane.drain(leaf.now, &mut leaf.pool);
        assert_eq!(leaf.pool.free_count(), leaf.pool.chunks());
    }
    caft_finds_ways_without_an_allocation();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 1, "the counter counts");
}
