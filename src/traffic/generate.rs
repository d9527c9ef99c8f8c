use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::frame::{Burst, Pool};
use crate::id::XdpMode;
use crate::port::Port;
use crate::port::xdp::{Device, LiveFrames, LivePace};
use crate::runtime::now;
use crate::time::{Instant, MICROS, SECONDS};
use crate::wire::MacAddr;
use crate::wire::ethernet::{HEADER_LEN, TAG_LEN, WIRE_OVERHEAD};

use super::TrafficError;
use super::endpoint::{Endpoint, source_address};
use super::pace::{Load, TokenClock};
use super::probe::{END_FLOW, MAX_FLOWS, Probe};
use super::station::Station;
use super::template::{FrameSpec, PORTS, Template, tag_bytes};

/// Chunks of the generator's memory: a full TX window, and what comes in.
const CHUNKS: u32 = 2048;
const FILL: usize = 512;
/// Most frames handed over at once: what one kick takes.
const BATCH: u64 = 256;
/// Frames that may go in one burst after the generator was kept off its core: as many as a kick
/// takes, a fraction of any receiver's ring.
const BACKLOG: u64 = 256;
/// A sleep ends this much early, and the rest is waited for awake: about what a wake-up costs.
const WAKE_EARLY: u64 = 10 * MICROS;
/// Waits below this are spent awake.
const NEAR: u64 = 25 * MICROS;
/// How often the end of a run is told, and how far apart.
const ENDS: u32 = 3;
const END_GAP: Duration = Duration::from_millis(20);

/// What to send, and how fast.
#[derive(Clone, Debug)]
pub struct GenOptions {
    /// Interface, in this thread's namespace.
    pub interface: String,
    /// Where its XDP program hooks in (for what it receives).
    pub mode: XdpMode,
    /// How fast.
    pub load: Load,
    /// Frames that go together; 1 spaces them evenly.
    pub group: u64,
    /// Frame bytes without FCS.
    pub size: usize,
    /// Frames to send; `None` goes on for `duration`.
    pub count: Option<u64>,
    /// Longest time.
    pub duration: Duration,
    /// Flows, served in turn.
    pub flows: u32,
    /// Source address; `None`: the interface's own.
    pub src_ip: Option<IpAddr>,
    /// Destination address.
    pub dst_ip: IpAddr,
    /// UDP destination port.
    pub dst_port: u16,
    /// Source MAC; `None`: the interface's own.
    pub src_mac: Option<MacAddr>,
    /// Destination MAC; `None`: asked for by ARP or neighbour discovery.
    pub dst_mac: Option<MacAddr>,
    /// Whose MAC that is if not the destination's own: the next hop.
    pub gateway: Option<IpAddr>,
    /// VLAN ids, outermost first.
    pub vlans: Vec<u16>,
    /// Number of the run; `None`: from the clock.
    pub run: Option<u16>,
    /// Picks source ports and payload.
    pub seed: u64,
    /// Whether the kernel makes the frames ([`LiveFrames`]): no groups, and a count only of a flood.
    pub live: bool,
}

/// What was sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GenReport {
    /// Interface.
    pub interface: String,
    /// `af_xdp`, or `live` for frames made in the kernel.
    pub method: String,
    /// Number of the run.
    pub run: u16,
    /// Frames sent, those that end the run not counted. Of a live run: frames made; what the
    /// receiver's ring had no room for is among them.
    pub frames: u64,
    /// Bytes of each without FCS.
    pub size: usize,
    /// Flows they are of.
    pub flows: u32,
    /// Destination MAC, given or resolved.
    pub dst_mac: MacAddr,
    /// From the first frame to the last.
    pub seconds: f64,
    /// Frames per second in that time.
    pub pps: f64,
    /// Their bits per second, without FCS.
    pub bits_per_second: f64,
    /// Bits per second on the wire, with FCS, preamble and gap.
    pub wire_bits_per_second: f64,
    /// Frames left out because the generator came too late for them, to keep bursts short.
    pub skipped: u64,
    /// System calls made to send.
    pub kicks: u64,
}

/// Makes the frames of a run, one after the other: flows in turn, each with its own numbers.
#[derive(Clone, Debug)]
pub struct Generator {
    template: Template,
    flows: u32,
    flow: u32,
    sequence: u64,
    made: u64,
}

impl Generator {
    /// A run of `flows` flows.
    ///
    /// # Panics
    /// If there is no flow, or more than [`MAX_FLOWS`].
    pub fn new(template: Template, flows: u32) -> Generator {
        assert!((1..=MAX_FLOWS).contains(&flows), "{flows} flows");
        Generator { template, flows, flow: 0, sequence: 0, made: 0 }
    }

    /// Adds up to `count` frames made at `now` to `burst`; fewer if burst or pool have no room.
    #[inline]
    pub fn fill(&mut self, now: Instant, count: u64, pool: &mut Pool, burst: &mut Burst) {
        let run = self.template.run();
        for _ in 0..count.min(burst.room() as u64) {
            let Some(mut frame) = pool.alloc_with(self.template.bytes()) else { return };
            let probe = Probe::new(run, self.flow, self.sequence, now);
            self.template.stamp(&mut frame, &probe, self.flow);
            burst.push(frame);
            self.made += 1;
            self.flow += 1;
            if self.flow == self.flows {
                self.flow = 0;
                self.sequence += 1;
            }
        }
    }

    /// Frames made so far.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// The frame that ends a run of `sent` frames; `None` if the pool has no room.
    fn end(&self, now: Instant, sent: u64, pool: &mut Pool) -> Option<crate::frame::Frame> {
        let mut frame = pool.alloc_with(self.template.bytes())?;
        self.template.stamp(&mut frame, &Probe::new(self.template.run(), END_FLOW, sent, now), 0);
        Some(frame)
    }
}

/// When frames went, and how many.
#[derive(Default)]
struct Sent {
    frames: u64,
    first: Option<Instant>,
    last: Instant,
    skipped: u64,
}

/// Sends until the count or the time is reached, or `stop` is set; then tells the sink that the run
/// is over, and how many frames it had.
///
/// # Errors
/// The options are impossible, the port can't be opened, nobody answers for the next hop, or the
/// interface goes away.
pub fn generate(options: &GenOptions, stop: &AtomicBool) -> Result<GenReport, TrafficError> {
    check(options)?;
    let src = match options.src_ip {
        Some(src) => src,
        None => source_address(&options.interface, options.dst_ip)?,
    };
    let device = Device::query(&options.interface)?;
    let packet = options.size.saturating_sub(HEADER_LEN + options.vlans.len() * TAG_LEN);
    if packet > device.mtu as usize {
        return Err(TrafficError::Impossible(format!(
            "frames of {} bytes carry packets of {packet}, and `{}` has an MTU of {}: use a smaller --size",
            options.size, device.name, device.mtu
        )));
    }
    let station = Station { mac: options.src_mac.unwrap_or(device.mac), addresses: vec![src] };
    let mut spec = FrameSpec {
        src_mac: station.mac,
        dst_mac: options.dst_mac.unwrap_or_default(),
        vlans: options.vlans.clone(),
        src,
        dst: options.dst_ip,
        dst_port: options.dst_port,
        size: options.size,
        run: options.run.unwrap_or_else(|| run_number(now())),
        seed: options.seed,
    };
    // What is impossible is said before anything is changed.
    Template::new(&spec)?;
    let mut endpoint = Endpoint::open(&options.interface, options.mode, CHUNKS, FILL)?;
    if options.dst_mac.is_none() {
        let next_hop = options.gateway.unwrap_or(options.dst_ip);
        spec.dst_mac = endpoint.resolve(&station, next_hop, &tag_bytes(&options.vlans))?;
    }
    let template = Template::new(&spec)?;
    let mut generator = Generator::new(template.clone(), options.flows);
    let sent = if options.live {
        let pace = LivePace { rate: options.load.frame_rate(options.size), backlog: BACKLOG };
        let mut live = LiveFrames::load(&device, template.bytes(), template.live_layout(options.flows), pace)?;
        send_live(options, &mut live, stop)?
    } else {
        send(options, &mut endpoint, &station, &mut generator, stop)?
    };
    tell_end(&mut endpoint, &generator, sent.frames)?;

    let ns = sent.first.map_or(0, |first| sent.last.since(first));
    // n frames span n - 1 intervals.
    let intervals = sent.frames.saturating_sub(1);
    let pps = if ns == 0 { 0.0 } else { intervals as f64 * SECONDS as f64 / ns as f64 };
    Ok(GenReport {
        interface: options.interface.clone(),
        method: if options.live { "live" } else { "af_xdp" }.into(),
        run: spec.run,
        frames: sent.frames,
        size: options.size,
        flows: options.flows,
        dst_mac: spec.dst_mac,
        seconds: ns as f64 / SECONDS as f64,
        pps,
        bits_per_second: pps * 8.0 * options.size as f64,
        wire_bits_per_second: pps * 8.0 * (options.size + WIRE_OVERHEAD) as f64,
        skipped: sent.skipped,
        kicks: endpoint.port.stats().tx_kicks,
    })
}

fn check(options: &GenOptions) -> Result<(), TrafficError> {
    let refuse = |text: String| Err(TrafficError::Impossible(text));
    if !(1..=MAX_FLOWS).contains(&options.flows) {
        return refuse(format!("{} flows: use 1 to {MAX_FLOWS}", options.flows));
    }
    if let Some(vid) = options.vlans.iter().find(|v| **v > 4094) {
        return refuse(format!("{vid} is no VLAN id: use 0 to 4094"));
    }
    if options.group == 0 || options.group > BACKLOG {
        return refuse(format!("bursts of {} frames: use 1 to {BACKLOG}", options.group));
    }
    if options.live && options.flows > PORTS {
        return refuse(format!("{} live flows: use at most {PORTS}", options.flows));
    }
    if options.live && options.group > 1 {
        return refuse("live frames are not made in bursts: leave out --burst, or --live".into());
    }
    if options.live && options.count.is_some() && options.load.frame_rate(options.size).is_some() {
        return refuse("paced live frames are not counted: give --duration in place of --count".into());
    }
    Ok(())
}

/// Two runs after one another get different numbers.
fn run_number(now: Instant) -> u16 {
    (now.0 / MICROS % 0xffff) as u16 + 1
}

/// Sends through the socket, on time.
fn send(
    options: &GenOptions,
    endpoint: &mut Endpoint,
    station: &Station,
    generator: &mut Generator,
    stop: &AtomicBool,
) -> Result<Sent, TrafficError> {
    let mut burst = Burst::new();
    let mut sent = Sent::default();
    let limit = options.count.unwrap_or(u64::MAX);
    let start = now();
    let end = start + options.duration.as_nanos().min(u128::from(u64::MAX)) as u64;
    let mut clock = TokenClock::new(start, options.load, options.size, options.group, BACKLOG);
    loop {
        let now = now();
        if now >= end || generator.made() >= limit || stop.load(Ordering::Relaxed) {
            break;
        }
        let room = endpoint.port.tx_room(&mut endpoint.pool) as u64;
        let due = clock.take(now, room.min(BATCH).min(limit - generator.made()));
        let before = generator.made();
        let mut left = due;
        while left > 0 {
            let made = generator.made();
            generator.fill(now, left, &mut endpoint.pool, &mut burst);
            if burst.is_empty() {
                // The pool holds more than a TX window; only a bug gets here.
                debug_assert!(false, "no chunk for a frame that the ring has room for");
                break;
            }
            left -= generator.made() - made;
            endpoint.port.tx_burst(&mut endpoint.pool, &mut burst);
        }
        if generator.made() > before {
            sent.first.get_or_insert(now);
            sent.last = now;
        }
        if due > 0 || room < BATCH {
            endpoint.kick()?;
        }
        endpoint.receive(Some(station), |_, _| true)?;
        if due > 0 {
            continue;
        }
        match clock.next() {
            Some(next) if next.since(now) > NEAR => endpoint.nap(now, (next - WAKE_EARLY).min(end))?,
            Some(next) if next > now => std::hint::spin_loop(),
            // The ring is full: the receiver needs the core to empty it.
            _ => thread::yield_now(),
        }
    }
    let unsent = endpoint.flush()? as u64;
    sent.frames = generator.made() - unsent;
    sent.skipped = clock.skipped();
    Ok(sent)
}

/// Lets the kernel make the frames.
fn send_live(options: &GenOptions, live: &mut LiveFrames, stop: &AtomicBool) -> Result<Sent, TrafficError> {
    let failed = |e| TrafficError::system("BPF_PROG_TEST_RUN with live frames (kernel 5.18 or later)", e);
    let end = now() + options.duration.as_nanos().min(u128::from(u64::MAX)) as u64;
    let limit = options.count.unwrap_or(u64::MAX);
    loop {
        let state = live.state().map_err(failed)?;
        let (left, time) = (limit - state.sent.min(limit), end.since(now()));
        if left == 0 || time == 0 || stop.load(Ordering::Relaxed) {
            return Ok(Sent {
                frames: state.sent,
                first: (state.sent > 0).then_some(state.first),
                last: state.last,
                skipped: state.skipped,
            });
        }
        live.send(Duration::from_nanos(time), left).map_err(failed)?;
    }
}

/// Tells the sink that the run is over. Several times, because a queue may be full just now.
fn tell_end(endpoint: &mut Endpoint, generator: &Generator, sent: u64) -> Result<(), TrafficError> {
    for _ in 0..ENDS {
        thread::sleep(END_GAP);
        if endpoint.port.tx_room(&mut endpoint.pool) > 0
            && let Some(frame) = generator.end(now(), sent, &mut endpoint.pool)
        {
            let mut burst = Burst::new();
            burst.push(frame);
            endpoint.port.tx_burst(&mut endpoint.pool, &mut burst);
            endpoint.flush()?;
        }
    }
    Ok(())
}
