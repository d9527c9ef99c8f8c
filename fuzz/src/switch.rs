//! A whole switch under a driver that may do anything a driver may: after each step the books balance, every
//! chunk is accounted for, and nothing has left that its link would not carry.

use std::sync::LazyLock;

use weft::config::SwitchConfig;
use weft::dataplane::{self, Dataplane};
use weft::frame::{BURST, Burst, Pool};
use weft::id::PortId;
use weft::time::Instant;
use weft::wire::ethernet;

use super::bytes::Bytes;
use super::frames::frame;

const TOR: &str = r#"
name = "tor"
role = "tor"
mac = "02:77:00:00:00:01"
[segment]
ipv4 = "10.0.1.1/24"
ipv6 = "fd00:0:0:1::1/64"
[queues]
ecn_mark = "5KB"
[[port]]
interface = "h0"
kind = "host"
[[port]]
interface = "h1"
kind = "host"
rate = "100Mbit"
[[port]]
interface = "h2"
kind = "host"
mtu = 1280
[[port]]
interface = "up0"
kind = "up"
rate = "1Gbit"
[[port]]
interface = "up1"
kind = "up"
mtu = 1400
[[route]]
prefix = "0.0.0.0/0"
ports = ["up0", "up1"]
[[route]]
prefix = "::/0"
ports = ["up0", "up1"]
[[route]]
prefix = "10.0.9.0/24"
ports = []
"#;

const AGG: &str = r#"
name = "agg"
role = "agg"
mac = "02:77:00:00:00:01"
router_ipv4 = "10.255.0.1"
router_ipv6 = "fd00:0:ffff::1"
[queues]
packets = 5
control_packets = 2
bytes = "4KB"
[[port]]
interface = "down0"
kind = "down"
rate = "10Mbit"
[[port]]
interface = "down1"
kind = "down"
mtu = 1280
[[port]]
interface = "up0"
kind = "up"
[[route]]
prefix = "10.0.1.0/24"
ports = ["down0"]
[[route]]
prefix = "10.0.2.0/24"
ports = ["down1", "down0"]
[[route]]
prefix = "fd00:0:0:1::/64"
ports = ["down0"]
[[route]]
prefix = "10.0.9.0/24"
ports = []
[[route]]
prefix = "0.0.0.0/0"
ports = ["up0"]
[[route]]
prefix = "::/0"
ports = ["up0"]
"#;

/// The configurations and the MTU of every interface.
static CONFIGS: LazyLock<[(SwitchConfig, u16); 2]> =
    LazyLock::new(|| [(TOR, 1500), (AGG, 1600)].map(|(text, mtu)| (read(text), mtu)));

fn read(text: &str) -> SwitchConfig {
    SwitchConfig::parse(text, "fuzz.toml").unwrap_or_else(|e| panic!("{e}"))
}

/// Frames that arrive in one run at most, so that no input takes long.
const MAX_ARRIVALS: usize = 4096;
const CHUNK: usize = 2048;

struct Bench {
    switch: Box<dyn Dataplane>,
    pool: Pool,
    /// Longest frame that each port's link carries: its MTU behind a header and one tag.
    longest: Vec<usize>,
    now: Instant,
    burst: Burst,
    arrived: u64,
    left: u64,
}

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let (config, mtu) = &CONFIGS[bytes.below(2)];
    let ports = config.ports.len();
    let longest = config.ports.iter().map(|p| usize::from(p.mtu.unwrap_or(*mtu)) + ethernet::HEADER_LEN + 4).collect();
    let mut bench = Bench {
        switch: dataplane::build(config, &vec![*mtu; ports]),
        pool: Pool::heap(bytes.choose(&[256, 64, 8]), CHUNK),
        longest,
        now: Instant(1_000_000_000),
        burst: Burst::new(),
        arrived: 0,
        left: 0,
    };
    while !bytes.is_empty() && bench.arrived < MAX_ARRIVALS as u64 {
        let step = bytes.u8();
        let port = PortId(bytes.u8() % ports as u8);
        match step % 16 {
            0..=5 => bench.receive(port, &frame(&mut bytes), 1),
            6 => bench.receive(port, &frame(&mut bytes), 1 + bytes.below(BURST)),
            7 | 8 => bench.transmit(port, bytes.below(BURST + 1)),
            9 => bench.transmit_all(),
            10 => bench.now = bench.now + (u64::from(bytes.u16()) << (step / 16)),
            11 => {
                bench.now = bench.now.max(bench.switch.next_deadline().unwrap_or_default());
                bench.switch.tick(bench.now, &mut bench.pool);
            }
            12 => bench.switch.tick(bench.now, &mut bench.pool),
            13 => bench.switch.set_port_up(port, step & 0x10 != 0, &mut bench.pool),
            14 => {
                // What `weft show` asks for, and a burst of nothing.
                let _ = (bench.switch.neighbours(bench.now), bench.switch.stations(bench.now), bench.switch.paths());
                bench.switch.receive(bench.now, port, &mut bench.pool, &mut bench.burst);
            }
            _ if step == 0xff => bench.switch.drain(bench.now, &mut bench.pool),
            _ => bench.settle(),
        }
        bench.check();
    }
    bench.settle();
    bench.check();
    bench.switch.drain(bench.now, &mut bench.pool);
    bench.check();
    assert_eq!(bench.pool.out_count(), 0, "chunks are out of a drained switch");
}

impl Bench {
    /// A burst of `count` frames that differ in their last byte.
    fn receive(&mut self, port: PortId, frame: &[u8], count: usize) {
        for i in 0..count {
            let Some(mut arriving) = self.pool.alloc_with(frame) else { break };
            if i > 0
                && let Some(last) = arriving.last_mut()
            {
                *last = last.wrapping_add(i as u8);
            }
            self.burst.push(arriving);
            self.arrived += 1;
        }
        self.switch.receive(self.now, port, &mut self.pool, &mut self.burst);
        assert!(self.burst.is_empty());
    }

    fn transmit(&mut self, port: PortId, room: usize) {
        self.switch.transmit(self.now, port, &mut self.pool, room, &mut self.burst);
        assert!(self.burst.len() <= room, "{} frames for room of {room}", self.burst.len());
        self.left += self.burst.len() as u64;
        for frame in self.burst.drain() {
            let longest = self.longest[port.index()];
            assert!(frame.len() >= ethernet::HEADER_LEN && frame.len() <= longest, "{} over {longest}", frame.len());
            self.pool.free(frame);
        }
    }

    fn transmit_all(&mut self) {
        for port in self.switch.backlog().iter() {
            self.transmit(port, BURST);
        }
    }

    /// Wakes at deadlines for two seconds, or a hundred times.
    fn settle(&mut self) {
        let end = self.now + 2_000_000_000;
        for _ in 0..100 {
            self.switch.tick(self.now, &mut self.pool);
            self.transmit_all();
            match self.switch.next_deadline() {
                Some(due) if due <= end => self.now = self.now.max(due),
                _ => break,
            }
        }
    }

    fn check(&self) {
        let ledger = self.switch.ledger();
        ledger.check().unwrap_or_else(|e| panic!("{e}"));
        let sum = |of: fn(&weft::counters::PortCounters) -> u64| ledger.ports.iter().map(|(c, _)| of(c)).sum::<u64>();
        assert_eq!(sum(|c| c.rx), self.arrived);
        assert_eq!(sum(|c| c.tx), self.left);
        let queued: u64 = ledger.ports.iter().map(|(_, queued)| queued).sum();
        let inside = queued + sum(|c| c.held);
        assert_eq!(self.pool.out_count() as u64, inside, "chunks out, but queued and held");
    }
}
