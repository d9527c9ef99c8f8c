use hdrhistogram::Histogram;
use serde::Serialize;

use crate::port::{DeviceStats, Port};
use crate::scheme::pl2::host::HostCounters;
use crate::time::Instant;
use crate::wire::MacAddr;

use super::engine::{Agent, AgentCounters};
use super::tap::Tap;

/// A distribution of times, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Percentiles {
    /// How many there were.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// Half are at most this long.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Percentiles {
    /// Those of a histogram; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Percentiles> {
        let at = |quantile| histogram.value_at_quantile(quantile);
        (!histogram.is_empty()).then(|| Percentiles {
            count: histogram.len(),
            min: histogram.min(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
        })
    }
}

/// What an agent has done since its start, and what it holds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AgentReport {
    /// The interface to the switch.
    pub uplink: String,
    /// The interface to applications.
    pub tap: String,
    /// The MAC of both.
    pub mac: MacAddr,
    /// How long it has run.
    pub seconds: f64,
    /// The start of the switch that was last heard of; 0 if no switch of PL2's has answered.
    pub epoch: u16,
    /// Frames that wait for slots.
    pub parked: usize,
    /// Most that waited at once.
    pub parked_peak: u32,
    /// Connections with something queued or reserved.
    pub connections: usize,
    /// Slots that are asked for, granted, or whose frames are leaving.
    pub outstanding: u32,
    /// Refused destinations that go unscheduled now.
    pub learned: usize,
    /// How late bursts were handed on, after their time: the timer's accuracy, and what the core was busy with.
    pub lateness_ns: Option<Percentiles>,
    /// From a request (RSV) to its answer (GRT).
    pub rtt_ns: Option<Percentiles>,
    /// Frames between TAP and uplink.
    pub agent: AgentCounters,
    /// The host's reserving.
    pub host: HostCounters,
    /// The uplink's socket.
    pub device: DeviceStats,
}

impl AgentReport {
    pub(super) fn of<P: Port, T: Tap>(
        agent: &Agent<P, T>,
        (uplink, tap, mac): (&str, &str, MacAddr),
        (start, now): (Instant, Instant),
    ) -> AgentReport {
        let host = agent.host();
        let stats = host.stats();
        AgentReport {
            uplink: uplink.into(),
            tap: tap.into(),
            mac,
            seconds: now.since(start) as f64 / 1e9,
            epoch: host.epoch(),
            parked: host.parked(),
            parked_peak: stats.parked_peak,
            connections: host.connections(),
            outstanding: host.outstanding(),
            learned: agent.learned(now),
            lateness_ns: Percentiles::of(&stats.lateness),
            rtt_ns: Percentiles::of(&stats.rtt),
            agent: agent.counters(),
            host: stats.counters,
            device: agent.port().stats(),
        }
    }
}
