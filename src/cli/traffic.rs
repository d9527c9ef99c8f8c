use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::traffic::TrafficError;
use crate::traffic::generate::{GenOptions, GenReport, generate};
use crate::traffic::meter::Latency;
use crate::traffic::null::{NullOptions, null};
use crate::traffic::pace::Load;
use crate::traffic::redirect::redirect;
use crate::traffic::sink::{SinkOptions, SinkReport, sink};
use crate::units::BitRate;
use crate::wire::MacAddr;

use super::run::Mode;
use super::{Failure, Outcome, print, tell};

/// Seconds, also fractions of one.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let value = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    value
        .filter(|s| (0.0..=1e9).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is no time: write seconds, like 10 or 0.5"))
}

/// Send UDP frames with sequence numbers and times, for `weft sink` to measure.
///
/// While it runs, the kernel's stack sees no frame that arrives at the interface; ARP, neighbour
/// discovery and ping for the source address are answered.
#[derive(Args, Debug)]
pub(super) struct GenArgs {
    /// Interface to send from
    #[arg(short, long, value_name = "IFACE")]
    interface: String,
    /// Frames per second; 0 = as fast as possible
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    pps: Option<u64>,
    /// Bits per second on the wire (FCS, preamble and gap count, 24 bytes a frame), like 1Gbit;
    /// 0 = as fast as possible
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Frames that go together, 1 to 256; the rate stays the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    burst: u64,
    /// Frame size in bytes without FCS, 60 or more (80 or more for IPv6)
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    size: usize,
    /// Frames to send; without it, as many as fit the duration
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Longest time to send, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    duration: Duration,
    /// Flows, served in turn: each has its own UDP source port, and 64,512 share a source address
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: u32,
    /// Source address; without it, the interface's own
    #[arg(long, value_name = "IP")]
    src_ip: Option<IpAddr>,
    /// Destination address, IPv4 or IPv6
    #[arg(long, value_name = "IP")]
    dst_ip: IpAddr,
    /// UDP destination port
    #[arg(long, value_name = "PORT", default_value_t = 9)]
    dst_port: u16,
    /// Source MAC; without it, the interface's own
    #[arg(long, value_name = "MAC")]
    src_mac: Option<MacAddr>,
    /// Destination MAC; without it, the next hop is asked by ARP or neighbour discovery
    #[arg(long, value_name = "MAC")]
    dst_mac: Option<MacAddr>,
    /// Next hop to ask, if not the destination itself
    #[arg(long, value_name = "IP", conflicts_with = "dst_mac")]
    gateway: Option<IpAddr>,
    /// VLAN ids, outermost first, comma between: `10` is an 802.1Q tag, `10,20` QinQ
    #[arg(long, value_name = "VID", value_delimiter = ',')]
    vlan: Vec<u16>,
    /// Number of the run, 0 to 65535; without it, from the clock
    #[arg(long, value_name = "N")]
    run: Option<u16>,
    /// Picks source ports and payload bytes: the same seed makes the same frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Let the kernel make the frames (BPF live frames): several times faster, keeps its core busy,
    /// and what the peer's ring can't take counts as sent. On a veth the peer needs an XDP program or
    /// GRO
    #[arg(long)]
    live: bool,
    /// Where the XDP program hooks in
    #[arg(long, value_enum, default_value = "native")]
    mode: Mode,
    /// Print the report as one JSON object, on the last line
    #[arg(long)]
    json: bool,
}

/// Receive and measure what `weft gen` sends: loss, order, copies, rate and delay.
///
/// While it runs, the kernel's stack sees no frame that arrives at the interface: give --ip, so that
/// ARP, neighbour discovery and ping are answered. Ends by itself when the run is over; SIGINT and
/// SIGTERM end it too, and the report is printed.
#[derive(Args, Debug)]
pub(super) struct SinkArgs {
    /// Interface to receive on
    #[arg(short, long, value_name = "IFACE")]
    interface: String,
    /// Longest time to wait and receive, in seconds; without it, until the run is over
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// End after so many seconds without a frame of the run, once one has come
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    idle: Duration,
    /// End after so many frames of the run
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Flows to keep accounts of, at most 1048576; each takes 136 bytes
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    flows: usize,
    /// Number of the run to count; without it, that of the first frame
    #[arg(long, value_name = "N")]
    run: Option<u16>,
    /// Address to answer ARP, neighbour discovery and ping for; may be given several times
    #[arg(long, value_name = "IP")]
    ip: Vec<IpAddr>,
    /// MAC to answer with; without it, the interface's own
    #[arg(long, value_name = "MAC")]
    mac: Option<MacAddr>,
    /// Spin instead of sleeping: exact times of arrival, for a whole core
    #[arg(long)]
    busy: bool,
    /// Where the XDP program hooks in
    #[arg(long, value_enum, default_value = "native")]
    mode: Mode,
    /// Print the report as one JSON object, on the last line
    #[arg(long)]
    json: bool,
}

/// What weft is measured against.
#[derive(Subcommand, Debug)]
pub(super) enum BenchCommand {
    /// Forward between two interfaces with weft's ports and no pipeline
    Null(ForwardArgs),
    /// Let the kernel forward between two interfaces (XDP_REDIRECT). On veths, the peers need an XDP
    /// program or GRO
    Redirect(ForwardArgs),
}

/// Two interfaces to forward between.
#[derive(Args, Debug)]
pub(super) struct ForwardArgs {
    /// One interface
    #[arg(long, value_name = "IFACE")]
    a: String,
    /// The other
    #[arg(long, value_name = "IFACE")]
    b: String,
    /// How long, in seconds; without it, until SIGINT or SIGTERM
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Spin instead of sleeping when idle (`null` only)
    #[arg(long)]
    busy: bool,
    /// Where the XDP programs hook in
    #[arg(long, value_enum, default_value = "native")]
    mode: Mode,
    /// Print the report as one JSON object, on the last line
    #[arg(long)]
    json: bool,
}

/// Runs `weft gen`.
pub(super) fn generate_frames(args: GenArgs) -> Outcome {
    let load = match (args.pps, args.rate) {
        (Some(pps), _) => Load::Frames(pps),
        (None, Some(rate)) => Load::Bits(rate),
        (None, None) => Load::Flood,
    };
    let options = GenOptions {
        interface: args.interface,
        mode: args.mode.into(),
        load,
        group: args.burst,
        size: args.size,
        count: args.count,
        duration: args.duration,
        flows: args.flows,
        src_ip: args.src_ip,
        dst_ip: args.dst_ip,
        dst_port: args.dst_port,
        src_mac: args.src_mac,
        dst_mac: args.dst_mac,
        gateway: args.gateway,
        vlans: args.vlan,
        run: args.run,
        seed: args.seed,
        live: args.live,
    };
    finish(args.json, stopping().and_then(|stop| generate(&options, &stop)), |r| gen_text(&options, r))
}

/// Runs `weft sink`.
pub(super) fn measure(args: SinkArgs) -> Outcome {
    let options = SinkOptions {
        interface: args.interface,
        mode: args.mode.into(),
        duration: args.duration,
        idle: Some(args.idle),
        count: args.count,
        until_end: true,
        flows: args.flows,
        run: args.run,
        addresses: args.ip,
        mac: args.mac,
        busy: args.busy,
    };
    let ready = || tell(format_args!("receiving on {}", options.interface));
    finish(args.json, stopping().and_then(|stop| sink(&options, &stop, ready)), sink_text)
}

/// Runs one of the forwarders that weft is measured against.
pub(super) fn bench(command: BenchCommand) -> Outcome {
    let ready = || tell(format_args!("forwarding"));
    match command {
        BenchCommand::Null(args) => {
            let options = NullOptions {
                interfaces: [args.a, args.b],
                mode: args.mode.into(),
                duration: args.duration,
                busy: args.busy,
            };
            finish(args.json, stopping().and_then(|stop| null(&options, &stop, ready)), |r| {
                let [there, back] = r.forwarded;
                let dropped = r.dropped[0] + r.dropped[1];
                format!("forwarded {there} + {back} frames, dropped {dropped}, {} system calls to send", r.kicks)
            })
        }
        BenchCommand::Redirect(args) => {
            let (interfaces, mode) = ([args.a, args.b], args.mode.into());
            let run = |stop: Arc<AtomicBool>| redirect(&interfaces, mode, args.duration, &stop, ready);
            finish(args.json, stopping().and_then(run), |()| String::from("stopped"))
        }
    }
}

/// A flag that SIGINT and SIGTERM set.
fn stopping() -> Result<Arc<AtomicBool>, TrafficError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|cause| TrafficError::System { what: "signal handler", cause })?;
    }
    Ok(stop)
}

/// Prints the report, or says why there is none.
fn finish<R: Serialize>(json: bool, result: Result<R, TrafficError>, text: impl FnOnce(&R) -> String) -> Outcome {
    let report = result.map_err(|e| if e.is_late() { Failure::failed(e) } else { Failure::misuse(e) })?;
    print(&if json { serde_json::to_string(&report).expect("plain data") } else { text(&report) })
}

/// `value` with three digits and a decimal prefix.
fn si(value: f64) -> String {
    let (factor, prefix) = match value {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / factor;
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$} {prefix}")
}

fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

fn gen_text(options: &GenOptions, r: &GenReport) -> String {
    let asked = match options.load {
        Load::Frames(n) if n > 0 => format!(" (asked for {}pps)", si(n as f64)),
        Load::Bits(rate) if rate.0 > 0 => format!(" (asked for {rate}/s)"),
        _ => String::new(),
    };
    let skipped = if r.skipped > 0 { format!(", {} skipped for being late", r.skipped) } else { String::new() };
    format!(
        "run {}: sent {} frames of {} B in {} flows in {:.3} s{skipped}\n\
         rate    {}pps, {}bit/s of frames, {}bit/s on the wire{asked}",
        r.run,
        r.frames,
        r.size,
        r.flows,
        r.seconds,
        si(r.pps),
        si(r.bits_per_second),
        si(r.wire_bits_per_second),
    )
}

fn sink_text(r: &SinkReport) -> String {
    let m = &r.measured;
    let t = &m.totals;
    let Some(run) = m.run else {
        return format!(
            "no frame of a run came; foreign {}, corrupt {}, of other runs {}, answered {}",
            m.foreign, m.corrupt, m.other_runs, r.answered
        );
    };
    let sent = m.sent.map_or("an unknown number of".into(), |n| n.to_string());
    let mut text = format!(
        "run {run}: received {} of {sent} frames in {} flows in {:.3} s\n\
         lost {}, reordered {}, duplicated {}, stale {}, untracked {}\n\
         foreign {}, corrupt {}, of other runs {}, answered {}\n\
         rate    {}pps, {}bit/s of frames, {}bit/s on the wire",
        t.received,
        m.flows,
        m.seconds,
        t.lost,
        t.reordered,
        t.duplicated,
        t.stale,
        t.untracked,
        m.foreign,
        m.corrupt,
        m.other_runs,
        r.answered,
        si(m.pps),
        si(m.bits_per_second),
        si(m.wire_bits_per_second),
    );
    if let Some(Latency { min, p50, p90, p99, p999, max, .. }) = m.latency_ns {
        let [min, p50, p90, p99, p999, max] = [min, p50, p90, p99, p999, max].map(micros);
        text += &format!("\ndelay   min {min}, p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max} us");
    }
    // A frame that found no chunk in the fill ring is in `rx_dropped` already.
    let own = r.device.rx_dropped + r.device.rx_ring_full;
    if own > 0 {
        text += &format!("\nof the lost, {own} were dropped at the sink's own socket");
    }
    if t.untracked > 0 {
        text += "\nsome flows are beyond the accounts: use a larger --flows";
    }
    text
}
