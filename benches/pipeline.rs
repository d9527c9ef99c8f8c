//! What the pipeline costs a frame: [`Switch::receive`] and [`Switch::transmit`] of a ToR that spreads
//! its hosts' UDP flows over its uplinks by ECMP, beside a *floor*: the least that any forwarding must
//! do to the same frames: find the headers, hash the five-tuple, touch one
//! 16-byte entry of a direct-mapped table, rewrite MAC addresses, TTL and checksum.
//!
//! Frames are 60 bytes (64 with FCS) in bursts of 64, on memory that stays the same. Between timed
//! passes over all 64 bursts each frame becomes a packet of a flow drawn at random, so no pass sees the
//! same frames again; that refill is not timed, and neither is a port.
//!
//! After criterion's report, both passes run interleaved and the ratio of their medians is printed.
//! Goal: at most 2 at 64 K flows.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use criterion::{BenchmarkId, Criterion, Throughput};
use weft::fabric::{Fabric, FabricConfig, FabricEgress, FabricIngress, FabricPort, Forwarding, HelloConfig, HelloMode};
use weft::frame::{BURST, Burst, Pool};
use weft::id::{PortId, PortKind, PortMask, SwitchId};
use weft::pisa::{Pipe, PortLimits, Switch};
use weft::scheme::ecmp::{Ecmp, EcmpEgress, EcmpIngress};
use weft::time::Instant;
use weft::wire::{MacAddr, checksum, ethernet};

const BURSTS: usize = 64;
const FRAMES: usize = BURSTS * BURST;
const HOSTS: u8 = 16;
const UPLINKS: u8 = 4;
const FLOWS: [(&str, u64); 3] = [("8K", 8 << 10), ("64K", 64 << 10), ("1M", 1 << 20)];

const SWITCH: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 1]);
const SPINE: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 9]);

/// SplitMix64 (Steele et al., OOPSLA 2014): flows in an order that no cache foresees.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Frames in their bursts; burst i comes in by host port i mod [`HOSTS`].
struct Traffic {
    pool: Pool,
    bursts: Vec<Burst>,
    flows: u64,
    random: Random,
}

impl Traffic {
    fn new(flows: u64) -> Traffic {
        let mut pool = Pool::heap(FRAMES + 64, 2048);
        let mut burst = || {
            let mut burst = Burst::new();
            (0..BURST).for_each(|_| burst.push(pool.alloc().expect("a chunk for each frame")));
            burst
        };
        let bursts = (0..BURSTS).map(|_| burst()).collect();
        Traffic { pool, bursts, flows, random: Random(1) }
    }

    /// Makes every frame a packet of some flow of its burst's host.
    fn refill(&mut self) {
        for (i, burst) in self.bursts.iter_mut().enumerate() {
            let host = (i % HOSTS as usize) as u8;
            for frame in burst.frames_mut() {
                let flow = Random(self.random.next() % (self.flows / u64::from(HOSTS))).next();
                frame.set_len(ethernet::MIN_FRAME);
                frame[40..].fill(0);
                ethernet::set_addresses(frame, SWITCH, host_mac(host));
                frame[12..14].copy_from_slice(&ethernet::ETHERTYPE_IPV4.to_be_bytes());
                frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0]);
                frame[26..30].copy_from_slice(&[10, 0, 0, 2 + host]);
                // To another rack of a pod of 256.
                frame[30..34].copy_from_slice(&[10, 0, 1 | flow as u8, 2 + (flow >> 8) as u8 % 100]);
                frame[34..38].copy_from_slice(&((flow >> 16) as u32).to_be_bytes());
                frame[38..40].copy_from_slice(&26u16.to_be_bytes());
                let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for frame in self.bursts.iter_mut().flat_map(Burst::drain) {
            self.pool.free(frame);
        }
    }
}

fn host_mac(host: u8) -> MacAddr {
    MacAddr([2, 0x68, 0, 0, 0, 2 + host])
}

/// A pass over all frames; what is timed.
trait Pass {
    fn run(&mut self, traffic: &mut Traffic);
}

/// The least that forwarding must do, as straight as it can be written.
struct Floor {
    /// By flow: frames seen and the last one's TTL, so that the entry is read and written.
    table: Vec<[u64; 2]>,
}

impl Floor {
    fn new(flows: u64) -> Floor {
        Floor { table: vec![[0; 2]; flows as usize] }
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Where the transport header is and the hash of the five-tuple of an IPv4 packet, if it is one.
#[inline]
fn five_tuple(frame: &[u8]) -> Option<u64> {
    let header: &[u8; 38] = frame.first_chunk()?;
    let word = |at: usize| u64::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    let plain = header[12..15] == [0x08, 0, 0x45] && 14 + length <= frame.len() && header[20] & 0x3f | header[21] == 0;
    let addresses = word(26) << 32 | word(30);
    let transport = word(34) << 8 | u64::from(header[23]);
    plain.then(|| mix(addresses ^ 0x9e37_79b9_7f4a_7c15, transport ^ 0xb7e1_5162_8aed_2a6b))
}

impl Pass for Floor {
    fn run(&mut self, traffic: &mut Traffic) {
        let mut hashes = [0; BURST];
        let mask = self.table.len() - 1;
        for burst in &mut traffic.bursts {
            for (hash, frame) in hashes.iter_mut().zip(burst.frames()) {
                *hash = five_tuple(frame).expect("an IPv4 packet");
            }
            for (hash, frame) in hashes.iter().zip(burst.frames_mut()) {
                let entry = &mut self.table[*hash as usize & mask];
                *entry = [entry[0] + 1, u64::from(frame[22])];
                ethernet::set_addresses(frame, SPINE, SWITCH);
                let before = u16::from_be_bytes([frame[22], frame[23]]);
                frame[22] -= 1;
                let after = u16::from_be_bytes([frame[22], frame[23]]);
                let sum = checksum::update(u16::from_be_bytes([frame[24], frame[25]]), before, after);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}

/// The switch: host ports first, then uplinks.
struct Pipeline {
    switch: Switch<Fabric<Ecmp>>,
    now: Instant,
}

impl Pipeline {
    fn new() -> Pipeline {
        let host = FabricPort { kind: PortKind::Host, peer: SPINE, mtu: 1500, rx_mtu: 1500, hello: HelloMode::Off };
        let up = FabricPort { kind: PortKind::Up, mtu: 1600, rx_mtu: 1600, ..host };
        let uplinks: PortMask = (HOSTS..HOSTS + UPLINKS).map(PortId).collect();
        let config = FabricConfig {
            id: SwitchId(0),
            mac: SWITCH,
            fabric_mac: SPINE,
            ports: [vec![host; HOSTS.into()], vec![up; UPLINKS.into()]].concat(),
            forwarding: Forwarding {
                segment_v4: Some("10.0.0.1/24".parse().expect("a prefix")),
                segment_v6: Some("fd00::1/64".parse().expect("a prefix")),
                router_v4: None,
                router_v6: None,
                routes: ["0.0.0.0/0", "::/0"].map(|p| (p.parse().expect("a prefix"), uplinks)).to_vec(),
            },
            seed: 1,
            hello: HelloConfig::OFF,
            pipe: Pipe::ONLY,
        };
        let limits = vec![PortLimits::default(); config.ports.len()];
        let ingress = FabricIngress::new(config, EcmpIngress);
        Pipeline { switch: Switch::new(ingress, FabricEgress::new(EcmpEgress), &limits), now: Instant(1) }
    }
}

impl Pass for Pipeline {
    fn run(&mut self, traffic: &mut Traffic) {
        for (i, burst) in traffic.bursts.iter_mut().enumerate() {
            self.now = self.now + 1_000;
            let port = PortId((i % HOSTS as usize) as u8);
            self.switch.receive(self.now, port, &mut traffic.pool, burst);
            // What leaves takes the place of what came.
            for up in self.switch.backlog().iter() {
                self.switch.transmit(self.now, up, &mut traffic.pool, BURST, burst);
            }
            assert_eq!(burst.len(), BURST, "a frame was not forwarded");
        }
    }
}

/// Time of `passes` passes, refills not counted.
fn time(pass: &mut impl Pass, traffic: &mut Traffic, passes: u64) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..passes {
        traffic.refill();
        let start = Clock::now();
        pass.run(black_box(traffic));
        total += start.elapsed();
    }
    total
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pipeline");
    group.throughput(Throughput::Elements(FRAMES as u64));
    for (name, flows) in FLOWS {
        let mut traffic = Traffic::new(flows);
        let (mut floor, mut ecmp) = (Floor::new(flows), Pipeline::new());
        group.bench_function(BenchmarkId::new("floor", name), |b| {
            b.iter_custom(|passes| time(&mut floor, &mut traffic, passes));
        });
        group.bench_function(BenchmarkId::new("ecmp", name), |b| {
            b.iter_custom(|passes| time(&mut ecmp, &mut traffic, passes));
        });
        ecmp.switch.ledger().check().expect("the conservation law");
    }
    group.finish();
}

/// Median nanoseconds a frame of both passes, taking turns.
fn ratio(flows: u64) -> (f64, f64) {
    const ROUNDS: usize = 401;
    let mut traffic = Traffic::new(flows);
    let (mut floor, mut ecmp) = (Floor::new(flows), Pipeline::new());
    let mut times = [vec![], vec![]];
    for _ in 0..ROUNDS {
        times[0].push(time(&mut floor, &mut traffic, 1));
        times[1].push(time(&mut ecmp, &mut traffic, 1));
    }
    let [floor, ecmp] = times.map(|mut t| {
        t.sort_unstable();
        t[ROUNDS / 2].as_nanos() as f64 / FRAMES as f64
    });
    (floor, ecmp)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
    // A profiler, or a test that the benchmark runs at all, wants nothing more.
    if std::env::args().any(|a| a == "--profile-time" || a == "--test") {
        return;
    }
    println!(
        "{:>8}  {:>9}  {:>9}  {:>5}   ns a frame, medians of interleaved passes",
        "flows", "floor", "ecmp", "ratio"
    );
    for (name, flows) in FLOWS {
        let (floor, ecmp) = ratio(flows);
        println!("{name:>8}  {floor:>9.1}  {ecmp:>9.1}  {:>5.2}", ecmp / floor);
    }
}
