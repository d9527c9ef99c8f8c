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

#[test]
fn no_scheme_allocates_on_the_packet_path() {
    for selector in
        [Selector::Ecmp, Selector::Flowlet, Selector::LetFlow, Selector::Hula, Selector::P4te, Selector::Expeditus]
    {
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
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 1, "the counter counts");
}
