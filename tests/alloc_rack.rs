//! A rack that PL2 schedules takes no memory in its steady state: messages and shims off the wire, agents that park,
//! reserve, wait and release, queues that refuse, reservations that are taken back.

mod counting;
#[path = "packets/mod.rs"]
mod packets;

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use counting::ALLOCATIONS;
use packets::Ends;
use weft::config::SwitchConfig;
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::frame::{BURST, Burst, Pool};
use weft::id::PortId;
use weft::time::{Instant, SECONDS};
use weft::wire::MacAddr;

const SLOT: u64 = 12_304;

fn mac(port: u8) -> MacAddr {
    MacAddr([2, 0x68, 0, 0, 1, port])
}

fn udp(from: u8, to: u8, flow: u16, len: usize) -> Vec<u8> {
    let ip = |port: u8| Ipv4Addr::new(10, 0, 1, 2 + port).into();
    let ends = Ends { src_mac: mac(from), dst_mac: mac(to), src: ip(from), dst: ip(to) };
    packets::udp(ends, 64, (flow, 2), &vec![0; len - 42])
}

struct Rack {
    plane: Box<dyn Dataplane>,
    pool: Pool,
    now: Instant,
    burst: Burst,
}

impl Rack {
    fn new() -> Rack {
        let ports = |port: u8| format!("[[port]]\ninterface = \"h{port}\"\nkind = \"host\"\nrate = \"1Gbit\"\n");
        let ports: String = (0..5).map(ports).collect();
        // So little room that some of an incast is dropped where it would be queued.
        let text = format!(
            "name = \"t\"\nrole = \"tor\"\n[segment]\nipv4 = \"10.0.1.1/24\"\n\
             [pl2]\nnotify = true\nmax_queue = 4\nrsv_delay = \"30us\"\n[queues]\nbytes = \"20kB\"\n{ports}"
        );
        let config = SwitchConfig::parse(&text, "t.toml").expect("a valid file");
        let plane = dataplane::build(&config, &[1500; 5]);
        Rack { plane, pool: Pool::heap(2048, 2048), now: Instant(SECONDS), burst: Burst::new() }
    }

    fn receive(&mut self, port: u8, frames: &[&[u8]]) {
        for frame in frames {
            self.burst.push(self.pool.alloc_with(frame).expect("a free chunk"));
        }
        self.plane.receive(self.now, PortId(port), &mut self.pool, &mut self.burst);
    }

    fn wait(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(due) = self.plane.next_deadline().filter(|due| *due < end) {
            self.now = self.now.max(due);
            self.serve();
        }
        self.now = end;
        self.serve();
    }

    fn serve(&mut self) {
        if self.plane.tick_deadline().is_some_and(|due| due <= self.now) {
            self.plane.tick(self.now, &mut self.pool);
        }
        for port in self.plane.backlog().iter() {
            self.plane.transmit(self.now, port, &mut self.pool, BURST, &mut self.burst);
            self.burst.drain().for_each(|frame| self.pool.free(frame));
        }
    }

    fn sum(&self, table: &str, column: &str) -> u64 {
        let tables = self.plane.show(self.now, Topic::Slots);
        let table = tables.iter().find(|t| t.name == table).expect("a table");
        let at = table.columns.iter().position(|c| *c == column).expect("a column");
        let number = |row: &Vec<Cell>| if let Cell::Int(n) = row[at] { n } else { 0 };
        table.rows.iter().map(number).sum()
    }
}

#[test]
fn a_scheduled_rack_allocates_nothing() {
    let mut rack = Rack::new();
    // Host 0 reserves by itself. Its third request is not used; its fourth slot is one that nobody has reserved.
    let rsv = |seq: u32| {
        let mut frame =
            [&mac(4).0[..], &mac(0).0, &[0x88, 0xb6, 0x11, 0, 0, 1, 0, 0, 0, 0, 0, 7], &seq.to_be_bytes()].concat();
        frame.resize(60, 0);
        frame
    };
    let shim = |frame: Vec<u8>, conn: u8| [&frame[..12], &[0x88, 0xb6, 0x0c, conn], &frame[12..]].concat();
    let (used, rogue) = (shim(udp(0, 4, 1, 1514), 7), shim(udp(0, 4, 1, 1514), 9));
    // Host 4 is known.
    rack.receive(4, &[&udp(4, 1, 1, 60)]);
    let mut seq = 0;
    let flows: Vec<Vec<Vec<u8>>> = (1..4)
        .map(|from| (0..40).map(|i| udp(from, 4, i / 5, if i % 3 == 0 { 100 } else { 1514 })).collect())
        .collect();
    let plain: Vec<_> = (0..20).map(|_| udp(0, 4, 1, 1514)).collect();
    let mut round = |rack: &mut Rack| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let mut taken = 0;
        for third in [false, false, true] {
            seq += 1;
            let request = rsv(seq);
            taken += 1;
            rack.receive(0, &[&request]);
            rack.wait(SLOT);
            if !third {
                rack.receive(0, &[&used, &rogue]);
            }
            for (from, frames) in (1u8..).zip(&flows) {
                for frame in frames {
                    rack.receive(from, &[frame]);
                }
            }
            for frame in &plain {
                rack.receive(0, &[frame]);
            }
            rack.wait(200 * SLOT);
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before - 2 * taken
    };
    (0..20).for_each(|_| _ = round(&mut rack));
    // The test's own: a request is made of two vectors, as the next line shows.
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(std::hint::black_box(rsv(1)));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 2, "the counter counts");
    assert_eq!((0..100).map(|_| round(&mut rack)).sum::<u64>(), 0, "allocations");

    for (table, column) in [
        ("requests", "grants"),
        ("requests", "resets"),
        ("requests", "rogue"),
        ("requests", "used_slots"),
        ("agents", "sent"),
        ("agents", "dropped"),
        ("slots", "queue_drops"),
    ] {
        let count = rack.sum(table, column);
        assert!(count > 0, "no {column}");
    }
    rack.wait(100_000_000);
    assert_eq!((rack.sum("slots", "in"), rack.sum("slots", "out")), (0, 0));
    rack.plane.ledger().check().expect("the conservation law");
    rack.plane.drain(rack.now, &mut rack.pool);
    assert_eq!(rack.pool.free_count(), rack.pool.chunks());
}
