//! What the pipeline costs a frame: receiving and transmitting on a ToR that spreads its hosts' TCP flows over its
//! uplinks, beside a *floor*: the least that any forwarding must do to the same frames: find the headers, hash the
//! five-tuple, touch one 16-byte entry of a direct-mapped table, rewrite MAC addresses, TTL and checksum.
//!
//! | name | switch |
//! |---|---|
//! | ecmp | ports without a rate |
//! | paced | ECMP, ports of 100 Gbit/s, as all below |
//! | letflow | a flowlet table |
//! | hula | a flowlet table, utilisation of links, probes of its own and of 128 racks each millisecond |
//! | p4te | a flowlet table, monitoring, class meters, rate adaptation by FACKs; the control plane takes digests |
//! | caft | the path allocation table, in which flows are found that have a slot; loads of uplinks |
//! | caft-open | the same with entries that end after 1 ms: with 1 M flows every frame opens its flow anew, and is tagged |
//! | expeditus | as caft |
//! | caft-agg | an aggregation switch, which has been told a core for each flow |
//! | bridged | a ToR between its own hosts, no routes |
//! | pl2-data | the same in reserved slots: shims come off, slots are counted off at both ends |
//! | pl2-rsv | requests (RSV) of as many connections as frames, each granted |
//!
//! Frames are 60 bytes (64 with FCS) in bursts of 64, on memory that stays the same. Between timed
//! passes over all 64 bursts each frame becomes the next data of a flow drawn at random, so no pass sees the
//! same frames again; that refill is not timed, and neither is a port. Every switch has seen the handshakes
//! of all flows and their receivers' windows, so that rate adaptation looks after each flow that got a slot, and
//! finds data to offer to rate control; each table has as many slots as there are flows.
//!
//! After criterion's report, each switch's passes run interleaved with the floor's, and the ratio of their medians
//! is printed. Goals at 64 K flows: ecmp at most 2, p4te and caft at most 3; and p4te with 1 M flows at most 2.1 times what it
//! costs with 8 K; pl2-rsv at most 2, and pl2-data at most 1.3 times bridged.

mod floor;
mod plane;
mod rack;
mod traffic;

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use criterion::{BenchmarkId, Criterion, Throughput};

use floor::Floor;
use plane::{Plane, SETUPS, Setup};
use rack::{LOADS, Load, Rack};
use traffic::{FRAMES, Traffic};

const FLOWS: [(&str, u64); 3] = [("8K", 8 << 10), ("64K", 64 << 10), ("1M", 1 << 20)];

/// A pass over all frames; what is timed.
trait Pass {
    /// Makes the frames of the next pass; not timed.
    fn ready(&mut self, traffic: &mut Traffic) {
        traffic.refill();
    }
    fn run(&mut self, traffic: &mut Traffic);
}

/// Time of `passes` passes, refills not counted.
fn time(pass: &mut impl Pass, traffic: &mut Traffic, passes: u64) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..passes {
        pass.ready(traffic);
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
        group.bench_function(BenchmarkId::new("floor", name), |b| {
            let mut floor = Floor::new(flows);
            b.iter_custom(|passes| time(&mut floor, &mut traffic, passes));
        });
        for setup in &SETUPS {
            // Not made at all if the filter leaves it out.
            let mut plane = None;
            group.bench_function(BenchmarkId::new(setup.name, name), |b| {
                let plane = plane.get_or_insert_with(|| Plane::new(setup, flows, &mut traffic));
                b.iter_custom(|passes| time(plane, &mut traffic, passes));
            });
            plane.iter().for_each(Plane::check);
        }
    }
    for (name, load) in LOADS {
        let mut traffic = Traffic::new(FLOWS[0].1);
        let mut rack = None;
        group.bench_function(name, |b| {
            let rack = rack.get_or_insert_with(|| Rack::new(load, &mut traffic));
            b.iter_custom(|passes| time(rack, &mut traffic, passes));
        });
        rack.iter().for_each(Rack::check);
    }
    group.finish();
}

/// Median nanoseconds a frame of two, taking turns.
fn medians(passes: [&mut dyn FnMut(&mut Traffic) -> Duration; 2], traffic: &mut Traffic) -> [f64; 2] {
    const ROUNDS: usize = 401;
    let mut times = [vec![], vec![]];
    let [a, b] = passes;
    for _ in 0..ROUNDS {
        times[0].push(a(traffic));
        times[1].push(b(traffic));
    }
    times.map(|mut t| {
        t.sort_unstable();
        t[ROUNDS / 2].as_nanos() as f64 / FRAMES as f64
    })
}

/// Median nanoseconds a frame of the floor and of a switch, taking turns, and the share of the switch's last frames
/// that it offers to rate control.
fn measure(setup: &Setup, flows: u64) -> (f64, f64, f64) {
    let mut traffic = Traffic::new(flows);
    let (mut floor, mut plane) = (Floor::new(flows), Plane::new(setup, flows, &mut traffic));
    let [floor, switch] = medians([&mut |t| time(&mut floor, t, 1), &mut |t| time(&mut plane, t, 1)], &mut traffic);
    plane.check();
    (floor, switch, traffic.offered())
}

/// Median nanoseconds a frame of the floor and of a rack, and of the bridge and of the rack.
fn measure_rack(load: Load) -> [[f64; 2]; 2] {
    let flows = FLOWS[0].1;
    let mut traffic = Traffic::new(flows);
    let mut rack = Rack::new(load, &mut traffic);
    let (mut floor, mut bridge) = (Floor::new(flows), Rack::new(Load::Bridged, &mut traffic));
    let beside_floor = medians([&mut |t| time(&mut floor, t, 1), &mut |t| time(&mut rack, t, 1)], &mut traffic);
    let beside_bridge = medians([&mut |t| time(&mut bridge, t, 1), &mut |t| time(&mut rack, t, 1)], &mut traffic);
    rack.check();
    [beside_floor, beside_bridge]
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
        "{:>9}  {:>8}  {:>9}  {:>9}  {:>5}  {:>5}   ns a frame, medians of interleaved passes",
        "", "flows", "floor", "switch", "ratio", "of 8K"
    );
    for setup in &SETUPS {
        let mut least = None;
        for (name, flows) in FLOWS {
            let (floor, plane, offered) = measure(setup, flows);
            let of_least = plane / *least.get_or_insert(plane);
            let ratio = plane / floor;
            print!("{:>9}  {name:>8}  {floor:>9.1}  {plane:>9.1}  {ratio:>5.2}  {of_least:>5.2}", setup.name);
            if setup.adapts_rates() {
                // One segment in three of a flow at least is due for an offer; some flows share a slot with another.
                assert!((0.1..0.9).contains(&offered), "{offered} of the frames are offered to rate control");
                print!("   {:.0} % of the frames offered to rate control", 100.0 * offered);
            }
            println!();
        }
    }
    println!("{:>9}  {:>9}  {:>9}  {:>5}  {:>10}", "rack", "floor", "switch", "ratio", "of bridged");
    for (name, load) in LOADS {
        let [[floor, switch], [bridged, beside]] = measure_rack(load);
        println!("{name:>9}  {floor:>9.1}  {switch:>9.1}  {:>5.2}  {:>10.2}", switch / floor, beside / bridged);
    }
}
