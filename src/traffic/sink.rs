use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::XdpMode;
use crate::port::{DeviceStats, Port};
use crate::runtime::now;
use crate::time::{Instant, MILLIS, earliest};
use crate::wire::MacAddr;

use super::TrafficError;
use super::endpoint::{Endpoint, MAX_NAP};
use super::meter::{Measured, Meter, Seen};
use super::station::Station;

/// Chunks of the sink's memory: as many as an AF_XDP port can lend for receiving, and replies.
const CHUNKS: u32 = 4096;
const FILL: usize = 2048;
/// Quiet time after the end of a run in which stragglers may still come.
const LINGER: u64 = 150 * MILLIS;
/// Most flows a sink keeps accounts of, 136 bytes each.
pub const MAX_SINK_FLOWS: usize = 1 << 20;

/// What to receive, and for how long.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// Interface, in this thread's namespace.
    pub interface: String,
    /// Where its XDP program hooks in.
    pub mode: XdpMode,
    /// Longest time; `None`: no limit.
    pub duration: Option<Duration>,
    /// Ends this long after the last probe; `None`: never for that.
    pub idle: Option<Duration>,
    /// Ends after so many probes.
    pub count: Option<u64>,
    /// Ends when the generator says that the run is over.
    pub until_end: bool,
    /// Flows to keep accounts of, at most [`MAX_SINK_FLOWS`].
    pub flows: usize,
    /// The run to count; `None`: the first whose probe comes.
    pub run: Option<u16>,
    /// Addresses to answer ARP, neighbour discovery and ping for.
    pub addresses: Vec<IpAddr>,
    /// Source MAC of those answers; `None`: the interface's own.
    pub mac: Option<MacAddr>,
    /// Spins instead of sleeping: exact times of arrival, for a whole core.
    pub busy: bool,
}

/// What was received.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SinkReport {
    /// Interface.
    pub interface: String,
    /// Where its XDP program hooks in.
    pub mode: XdpMode,
    /// What the frames say.
    #[serde(flatten)]
    pub measured: Measured,
    /// ARP, neighbour discovery and ping requests answered.
    pub answered: u64,
    /// What the kernel dropped at the sink's own socket, which is in `lost` too.
    pub device: DeviceStats,
}

/// Receives until one of the options' ends is reached or `stop` is set; calls `ready` once frames
/// are counted.
///
/// # Errors
/// The options are impossible, the port can't be opened, or the interface goes away.
pub fn sink(options: &SinkOptions, stop: &AtomicBool, ready: impl FnOnce()) -> Result<SinkReport, TrafficError> {
    if !(1..=MAX_SINK_FLOWS).contains(&options.flows) {
        return Err(TrafficError::Impossible(format!("{} flows: use 1 to {MAX_SINK_FLOWS}", options.flows)));
    }
    let mut endpoint = Endpoint::open(&options.interface, options.mode, CHUNKS, FILL)?;
    let mac = options.mac.unwrap_or(endpoint.port.device().mac);
    let station = (!options.addresses.is_empty()).then(|| Station { mac, addresses: options.addresses.clone() });
    let mut meter = Meter::new(options.flows, options.run);
    ready();

    let ns = |d: Duration| d.as_nanos().min(u128::from(u64::MAX)) as u64;
    let end = options.duration.map(|d| now() + ns(d));
    let mut last_probe: Option<Instant> = None;
    let mut ended = false;
    while !stop.load(Ordering::Relaxed) {
        let mut seen_at = None;
        let got = endpoint.receive(station.as_ref(), |now, frame| {
            let seen = meter.enter(now, frame);
            match seen {
                Seen::Probe => seen_at = Some(now),
                Seen::End => {
                    seen_at = Some(now);
                    ended = true;
                }
                Seen::Other => {}
            }
            seen == Seen::Other
        })?;
        last_probe = seen_at.or(last_probe);
        if options.count.is_some_and(|count| meter.probes() >= count) {
            break;
        }
        let quiet = if ended && options.until_end { Some(LINGER) } else { options.idle.map(ns) };
        let quiet_end = last_probe.zip(quiet).map(|(at, quiet)| at + quiet);
        let deadline = earliest(end, quiet_end);
        if got > 0 && deadline.is_none() {
            continue;
        }
        let now = now();
        if deadline.is_some_and(|d| d <= now) {
            break;
        }
        if got == 0 && options.busy {
            std::hint::spin_loop();
        } else if got == 0 {
            endpoint.nap(now, deadline.unwrap_or(now + MAX_NAP))?;
        }
    }
    let device = endpoint.port.stats();
    Ok(SinkReport {
        interface: options.interface.clone(),
        mode: endpoint.port.mode(),
        measured: meter.measured(),
        answered: endpoint.answered(),
        device,
    })
}
