//! The utilisation meter at a real port: paced, driven at the times that the switch asks for.

use weft::config::P4teOptions;
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::frame::{Burst, Pool};
use weft::id::PortId;
use weft::time::{Instant, MILLIS, SECONDS};
use weft::wire::MacAddr;

use crate::packets::{self, Ends};
use crate::rig::{A, RATE, fabric, find, options};

/// On the wire a frame takes 24 B more: 1,024 B, 81,920 ns.
const LEN: usize = 1_000;
const WIRE: u64 = 1_024;

struct Leaf {
    plane: Box<dyn Dataplane>,
    pool: Pool,
    burst: Burst,
    now: Instant,
    frame: Vec<u8>,
}

impl Leaf {
    /// One uplink, at 100 Mbit/s.
    fn new() -> Leaf {
        let config = fabric(1, &options(P4teOptions::default())).switch_config("leaf0").expect("a switch");
        let mtus: Vec<u16> = config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
        let (src, dst) = ("10.0.0.2".parse().expect("an address"), "10.0.1.2".parse().expect("an address"));
        let ends = Ends { src_mac: MacAddr([2, 0x68, 0, 0, 0, 2]), dst_mac: config.mac, src, dst };
        let frame = packets::udp(ends, 64, (1, 2), &[0; LEN - 42]);
        let plane = dataplane::build(&config, &mtus);
        Leaf { plane, pool: Pool::heap(4096, 2048), burst: Burst::new(), now: Instant(SECONDS), frame }
    }

    fn receive(&mut self) {
        self.burst.push(self.pool.alloc_with(&self.frame).expect("a free chunk"));
        self.plane.receive(self.now, PortId(0), &mut self.pool, &mut self.burst);
        self.leave();
    }

    fn leave(&mut self) {
        self.plane.transmit(self.now, PortId(A), &mut self.pool, 64, &mut self.burst);
        self.burst.drain().for_each(|frame| self.pool.free(frame));
        self.plane.control(self.now);
        self.plane.ledger().check().expect("the books balance");
    }

    fn until(&mut self, end: Instant) {
        while let Some(due) = self.plane.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.leave();
        }
        self.now = end;
    }

    /// `percent` of the rate for `ms`; the color's changes in each half of that time, and the color after it.
    fn load(&mut self, percent: u64, ms: u64) -> (u64, u64, String) {
        let (start, before) = (self.now, self.seen().0);
        let half = start + ms * MILLIS / 2;
        let mut at_half = None;
        for i in 0.. {
            let at = start + i * WIRE * 8 * SECONDS * 100 / RATE.0 / percent;
            if at > start + ms * MILLIS {
                break;
            }
            self.until(at);
            if at > half {
                at_half.get_or_insert(self.seen().0);
            }
            self.receive();
        }
        let (after, color) = self.seen();
        let at_half = at_half.expect("a second half");
        (at_half - before, after - at_half, color)
    }

    /// Changes so far, and the color.
    fn seen(&self) -> (u64, String) {
        let tables = self.plane.show(self.now, Topic::Meters);
        let table = tables.iter().find(|t| t.name == "meters").expect("meters");
        let column = |name| table.columns.iter().position(|c| *c == name).expect("a column");
        let row = find(&tables, "meters", |row| row[0] == Cell::Port(PortId(A)));
        match (&row[column("color_changes")], &row[column("color")]) {
            (Cell::Int(n), Cell::Text(color)) => (*n, color.clone()),
            other => panic!("{other:?}"),
        }
    }
}

/// At 85 % the CIR of 75 % is exceeded by 10 %, so that its burst of 12,500 B is gone in 10 ms; at 100 % the PIR of
/// 95 % by 5 %, in 20 ms. At 50 % PIR and CIR earn 45 % and 25 % too much: full in 2.2 and 4 ms.
#[test]
fn a_steady_load_has_one_color_and_each_transition_one_event() {
    let mut leaf = Leaf::new();
    assert_eq!(leaf.load(50, 100), (0, 0, "green".into()));
    assert_eq!(leaf.load(85, 100), (1, 0, "yellow".into()));
    assert_eq!(leaf.load(100, 100), (1, 0, "red".into()));
    assert_eq!(leaf.load(85, 100), (1, 0, "yellow".into()));
    assert_eq!(leaf.load(50, 100), (1, 0, "green".into()));
    assert_eq!(leaf.load(100, 100), (2, 0, "red".into()), "by way of yellow");
    assert_eq!(leaf.load(50, 100), (2, 0, "green".into()));
}

#[test]
fn a_burst_below_the_cbs_near_the_cir_makes_at_most_one_event_up_and_one_down() {
    for percent in [70, 73, 74] {
        for frames in [1, 6, 11] {
            let mut leaf = Leaf::new();
            assert_eq!(leaf.load(percent, 100), (0, 0, "green".into()));
            (0..frames).for_each(|_| leaf.receive());
            let (first, second, color) = leaf.load(percent, 400);
            assert!(first + second <= 2, "{frames} frames at {percent} %: {first} and {second} events");
            assert_eq!((second, color), (0, "green".into()));
        }
    }
}
