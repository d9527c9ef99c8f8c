mod reports;

use std::cell::OnceCell;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::info;

use crate::agent::{self, Addressing, AgentError, AgentOptions, AgentReport, Percentiles, Wait};
use crate::scheme::pl2::host::HostConfig;
use crate::units;
use crate::wire::MacAddr;

use super::run::Mode;
use super::traffic::seconds;
use super::{Failure, Outcome, start_logging};
use reports::{Sinks, Writer};

/// Between two reports that are kept in a file.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Send what this host's applications send in slots that a PL2 switch grants.
///
/// Makes a TAP device for the applications and takes the uplink: addresses and routes move to the TAP and back
/// again at SIGINT or SIGTERM. After kill -9 the TAP is gone, the uplink has its frames again, and no addresses.
#[derive(Args, Debug)]
pub(super) struct HostArgs {
    /// Interface to the switch
    #[arg(long, value_name = "IFACE")]
    uplink: String,
    /// TAP device to make for the applications
    #[arg(long, value_name = "NAME", default_value = "pl2")]
    tap: String,
    /// Longest packet of the TAP in bytes [default: the uplink's]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=9216))]
    mtu: Option<u16>,
    /// K, the most slots to ask for at once
    #[arg(long, value_name = "K", default_value_t = 4)]
    k: u16,
    /// Ask for K slots always, and give back what is not needed
    #[arg(long)]
    fixed_k: bool,
    /// D, the most reservations of a connection at once
    #[arg(long, value_name = "D", default_value_t = 1)]
    depth: u8,
    /// Most slots of all connections that are asked for and have not left; times the senders, what the
    /// switch may have to queue [default: 32, or K if that is more]
    #[arg(long, value_name = "SLOTS")]
    max_outstanding: Option<u32>,
    /// Frames of up to so many bytes go unscheduled if nothing of their connection waits; 0 = none
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    bypass: u16,
    /// Slots after its time at which a burst is late
    #[arg(long, value_name = "SLOTS", default_value_t = 16)]
    late_max: u32,
    /// Taken off each wait, like 20us: the round trip to the switch buys throughput with queues
    #[arg(long, value_name = "TIME", default_value = "0")]
    rtt_comp: units::Duration,
    /// Most frames of a connection that wait for slots; the newest is dropped beyond
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_queue: u32,
    /// Most frames that wait in all
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_parked: u32,
    /// A destination MAC that goes unscheduled, like that of a gateway; may be given several times.
    /// What the switch has no route to goes unscheduled anyway, from the first refusal on
    #[arg(long, value_name = "MAC")]
    unscheduled: Vec<MacAddr>,
    /// Give the TAP this address instead of the uplink's; may be given several times
    #[arg(long, value_name = "IP/LEN")]
    address: Vec<IpNet>,
    /// With --address: next hop of a default route; may be given once a family
    #[arg(long, value_name = "IP", requires = "address")]
    via: Vec<IpAddr>,
    /// Leave all addresses where they are
    #[arg(long, conflicts_with = "address")]
    no_addresses: bool,
    /// Spin instead of sleeping: exact times, for a whole core
    #[arg(long, conflicts_with = "spin")]
    busy: bool,
    /// How long before something is due sleep ends
    #[arg(long, value_name = "TIME", default_value = "20us")]
    spin: units::Duration,
    /// Take the uplink even if it carries the machine's default route
    #[arg(long)]
    force: bool,
    /// Where the uplink's XDP program hooks in
    #[arg(long, value_enum, default_value = "native")]
    mode: Mode,
    /// Print a report every so many seconds, and one at the end
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stats_interval: Option<Duration>,
    /// Print reports as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Keep the last report in a file, as JSON: at the start, each second or --stats-interval, at the end
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// End when standard input does: whoever started it is gone
    #[arg(long, hide = true)]
    until_eof: bool,
}

pub(super) fn host(args: HostArgs) -> Outcome {
    let addressing = match (args.no_addresses, args.address.is_empty()) {
        (true, _) => Addressing::Leave,
        (false, true) => Addressing::Move,
        (false, false) => Addressing::Give { addresses: args.address, gateways: args.via },
    };
    let options = AgentOptions {
        uplink: args.uplink,
        tap: args.tap,
        mode: args.mode.into(),
        host: HostConfig {
            mtu: args.mtu.unwrap_or(0),
            max_burst: args.k,
            fixed_k: args.fixed_k,
            depth: args.depth,
            max_outstanding: args.max_outstanding.unwrap_or(HostConfig::outstanding_for(args.k)),
            rtt_comp: args.rtt_comp.0,
            bypass_bytes: args.bypass,
            late_max: args.late_max,
            max_queue: args.max_queue,
            max_parked: args.max_parked,
            ..HostConfig::default()
        },
        unscheduled: args.unscheduled,
        addressing,
        wait: if args.busy { Wait::Busy } else { Wait::Sleep { spin: args.spin.0 } },
        force: args.force,
        interval: args
            .stats_interval
            .or(args.report.as_ref().map(|_| REPORT_INTERVAL))
            .map(|time| time.as_nanos().try_into().unwrap_or(u64::MAX)),
    };
    start_logging();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let sinks = Sinks {
        file: args.report,
        print: args.stats_interval.is_some(),
        shown: if args.json { json } else { text },
        kept: json,
    };
    sinks.check()?;
    // Threads come after privileges are given up.
    let writer = OnceCell::new();
    let ready = |first: &AgentReport| {
        if args.until_eof {
            let stop = stop.clone();
            thread::spawn(move || {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                stop.store(true, Ordering::Relaxed);
            });
        }
        sinks.keep(first, false);
        let _ = writer.set(Writer::start(sinks.clone()));
        info!(uplink = options.uplink, tap = options.tap, "ready");
    };
    let show = |report: &AgentReport| {
        if let Some(Ok(writer)) = writer.get() {
            writer.write(report);
        }
    };
    let last = agent::run(&options, &stop, ready, show)?;
    let writer = writer.into_inner().expect("it was ready")?;
    match writer.finish(last) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(Failure::failed("the last report is lost: nobody reads standard output, or the disk of --report hangs"))
        }
        // As everywhere: a reader that has gone away is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Failure {
        match error.is_late() {
            true => Failure::failed(error),
            false => Failure::misuse(error),
        }
    }
}

fn json(report: &AgentReport) -> String {
    serde_json::to_string(report).expect("plain data")
}

fn text(report: &AgentReport) -> String {
    let AgentReport { agent, host, device, .. } = report;
    let times = |times: &Option<Percentiles>| match times {
        None => "none".into(),
        Some(Percentiles { min, p50, p90, p99, p999, max, count }) => {
            let [min, p50, p90, p99, p999, max] = [min, p50, p90, p99, p999, max].map(|ns| *ns as f64 / 1000.0);
            format!(
                "min {min:.1}, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1} us of {count}"
            )
        }
    };
    format!(
        "{} on {} ({}), {:.1} s, switch's start {}\n\
         from applications {}: scheduled {} (parked {}, at most {}), unscheduled {}, dropped {} (queue {}, host {}, \
         connections {}, too long {}, refused {}, memory {}, unscheduled queue {})\n\
         to applications   {}, dropped {} by the TAP, {} by the socket, malformed {}\n\
         slots             used {}, unused {}, bursts {}, late {}, given up {}, outstanding {}\n\
         messages          RSV {} and {} again, grants {}, refusals {}, stale {}, REL {}, NTF {}, restarts {}\n\
         lateness          {}\n\
         RSV to GRT        {}",
        report.tap,
        report.uplink,
        report.mac,
        report.seconds,
        report.epoch,
        agent.tap_read,
        host.taken,
        report.parked,
        report.parked_peak,
        agent.unscheduled + host.bypassed,
        host.dropped() + agent.refused + agent.no_memory + agent.bypass_dropped,
        host.dropped_queue,
        host.dropped_host,
        host.dropped_connections,
        host.dropped_too_long,
        agent.refused,
        agent.no_memory,
        agent.bypass_dropped,
        agent.tap_written,
        agent.tap_dropped,
        device.rx_dropped + device.rx_ring_full,
        agent.malformed,
        host.used_slots,
        host.unused_slots,
        host.bursts,
        host.late,
        host.given_up,
        report.outstanding,
        host.requests,
        host.retries,
        host.grants,
        host.nacks,
        host.stale,
        host.released,
        host.announced,
        host.restarts,
        times(&report.lateness_ns),
        times(&report.rtt_ns),
    )
}
