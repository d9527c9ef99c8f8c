use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::time::{Instant, SECONDS};
use crate::wire::parse::PROTO_UDP;
use crate::wire::{Headers, L3, checksum, parse};

use super::account::{Accounts, Totals};
use super::probe::{END_FLOW, Probe};

/// Longest delay told apart from longer ones: one minute.
const MAX_DELAY: u64 = 60 * SECONDS;
const UDP_HEADER: usize = 8;

/// Delays from port to port in nanoseconds, to three digits (hdrhistogram): from when the generator
/// built the burst that the frame was in to when the sink took the burst that it came in.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Shortest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Longest, at most a minute.
    pub max: u64,
    /// Mean.
    pub mean: f64,
}

/// What a frame was to the meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A probe of the run.
    Probe,
    /// The run's end.
    End,
    /// Anything else.
    Other,
}

/// Counts the frames of one run as they arrive. Its memory does not grow.
#[derive(Debug)]
pub struct Meter {
    accounts: Accounts,
    delays: Histogram<u64>,
    /// The run that is counted: given, or that of the first probe.
    run: Option<u16>,
    sent: Option<u64>,
    probes: u64,
    bytes: u64,
    first: Instant,
    last: Instant,
    other_runs: u64,
    corrupt: u64,
    foreign: u64,
}

/// What a meter counted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Number of the run; null if no probe came.
    pub run: Option<u16>,
    /// Frames that the generator says it sent; null if the end of the run did not arrive.
    pub sent: Option<u64>,
    /// Received, reordered, duplicated, stale and untracked frames, and lost ones: of `sent`, or, if
    /// that is not known, of the numbers up to each flow's highest.
    #[serde(flatten)]
    pub totals: Totals,
    /// Flows of which a frame came.
    pub flows: u64,
    /// Probes of other runs.
    pub other_runs: u64,
    /// Probes with a wrong UDP checksum, and frames with a broken IP header.
    pub corrupt: u64,
    /// Frames that are no probes (ARP and ND that was answered included).
    pub foreign: u64,
    /// From the first probe to the last.
    pub seconds: f64,
    /// Probes per second in that time, copies included.
    pub pps: f64,
    /// Their frame bits per second, without FCS.
    pub bits_per_second: f64,
    /// Bits per second on the wire, with FCS, preamble and gap.
    pub wire_bits_per_second: f64,
    /// Delays in ns; null if no probe came.
    pub latency_ns: Option<Latency>,
}

impl Meter {
    /// A meter of up to `flows` flows of `run`, or of the run whose probe comes first.
    pub fn new(flows: usize, run: Option<u16>) -> Meter {
        Meter {
            accounts: Accounts::new(flows),
            delays: Histogram::new_with_bounds(1, MAX_DELAY, 3).expect("bounds in order, three digits"),
            run,
            sent: None,
            probes: 0,
            bytes: 0,
            first: Instant::ZERO,
            last: Instant::ZERO,
            other_runs: 0,
            corrupt: 0,
            foreign: 0,
        }
    }

    /// Enters a frame that arrived at `now`.
    #[inline]
    pub fn enter(&mut self, now: Instant, frame: &[u8]) -> Seen {
        let Ok(headers) = parse(frame) else {
            self.corrupt += 1;
            return Seen::Other;
        };
        if headers.fault.is_some() {
            self.corrupt += 1;
            return Seen::Other;
        }
        let Some(probe) = probe_of(frame, &headers) else {
            self.foreign += 1;
            return Seen::Other;
        };
        if !has_good_checksum(frame, &headers) {
            self.corrupt += 1;
            return Seen::Other;
        }
        if *self.run.get_or_insert(probe.run) != probe.run {
            self.other_runs += 1;
            return Seen::Other;
        }
        if probe.flow == END_FLOW {
            self.sent = Some(probe.sequence);
            return Seen::End;
        }
        if self.probes == 0 {
            self.first = now;
        }
        self.last = now;
        self.probes += 1;
        self.bytes += frame.len() as u64;
        self.delays.saturating_record(probe.delay(now));
        self.accounts.enter(probe.flow, probe.sequence);
        Seen::Probe
    }

    /// Probes of the run so far, copies included.
    #[inline]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// The sums.
    pub fn measured(&self) -> Measured {
        let mut totals = self.accounts.totals();
        if let Some(sent) = self.sent {
            // Also those after each flow's last to arrive, which leave no gap.
            totals.lost = sent.saturating_sub(totals.received + totals.untracked);
        }
        let ns = self.last.since(self.first);
        // n frames span n - 1 intervals.
        let per_second = |count: f64| if ns == 0 { 0.0 } else { count * SECONDS as f64 / ns as f64 };
        let intervals = self.probes.saturating_sub(1) as f64;
        let size = self.bytes as f64 / self.probes.max(1) as f64;
        let overhead = crate::wire::ethernet::WIRE_OVERHEAD as f64;
        let d = &self.delays;
        Measured {
            run: self.run.filter(|_| self.probes > 0 || self.sent.is_some()),
            sent: self.sent,
            totals,
            flows: self.accounts.flows_seen(),
            other_runs: self.other_runs,
            corrupt: self.corrupt,
            foreign: self.foreign,
            seconds: ns as f64 / SECONDS as f64,
            pps: per_second(intervals),
            bits_per_second: per_second(intervals * size * 8.0),
            wire_bits_per_second: per_second(intervals * (size + overhead) * 8.0),
            latency_ns: (self.probes > 0).then(|| Latency {
                min: d.min(),
                p50: d.value_at_quantile(0.5),
                p90: d.value_at_quantile(0.9),
                p99: d.value_at_quantile(0.99),
                p999: d.value_at_quantile(0.999),
                max: d.max(),
                mean: d.mean(),
            }),
        }
    }
}

#[inline]
fn probe_of(frame: &[u8], headers: &Headers) -> Option<Probe> {
    if headers.proto != PROTO_UDP || headers.l4 == 0 || headers.is_fragment() {
        return None;
    }
    Probe::read(frame.get(headers.l4 as usize + UDP_HEADER..headers.end as usize)?)
}

/// Whether the UDP checksum of a probe is right (RFC 768; RFC 8200, section 8.1). The generator
/// always sets one.
#[inline]
fn has_good_checksum(frame: &[u8], headers: &Headers) -> bool {
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    let segment = &frame[l4..headers.end as usize];
    let addresses = if headers.kind == L3::Ipv6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
    let pseudo = checksum::sum(&frame[addresses], u64::from(PROTO_UDP) + segment.len() as u64);
    checksum::fold(checksum::sum(segment, pseudo)) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::template::{FrameSpec, Template};
    use crate::wire::MacAddr;

    const RUN: u16 = 99;

    fn template() -> Template {
        Template::new(&FrameSpec {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans: vec![7],
            src: "10.0.0.1".parse().unwrap(),
            dst: "10.0.0.2".parse().unwrap(),
            dst_port: 9,
            size: 76,
            run: RUN,
            seed: 1,
        })
        .unwrap()
    }

    fn frame(run: u16, flow: u32, sequence: u64, at: u64) -> Vec<u8> {
        let template = template();
        let mut frame = template.bytes().to_vec();
        template.stamp(&mut frame, &Probe::new(run, flow, sequence, Instant(at)), flow % 3);
        frame
    }

    #[test]
    fn rate_and_delay_follow_from_the_frames_times() {
        let mut meter = Meter::new(1, None);
        for i in 0..101 {
            assert_eq!(meter.enter(Instant(1_000 + i * 10_000), &frame(RUN, 0, i, i * 10_000)), Seen::Probe);
        }
        let m = meter.measured();
        assert_eq!((m.run, m.totals.received, m.totals.lost, m.flows), (Some(RUN), 101, 0, 1));
        assert!((m.pps - 100_000.0).abs() < 1e-6, "{m:?}");
        assert!((m.bits_per_second - 100_000.0 * 76.0 * 8.0).abs() < 1e-3, "{m:?}");
        assert!((m.wire_bits_per_second - 100_000.0 * 100.0 * 8.0).abs() < 1e-3, "{m:?}");
        let latency = m.latency_ns.unwrap();
        assert!((latency.min, latency.p50) == (1_000, 1_000) && latency.max <= 1_001, "{latency:?}");
    }

    #[test]
    fn any_flipped_bit_of_a_probe_is_seen_as_corrupt_or_foreign() {
        let good = frame(RUN, 0, 0, 0);
        // Tag and addresses of Ethernet are under no checksum but the wire's own.
        for bit in 18 * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let mut meter = Meter::new(1, None);
            assert_eq!(meter.enter(Instant(0), &bad), Seen::Other, "bit {bit}");
            let m = meter.measured();
            assert_eq!((m.totals.received, m.corrupt + m.foreign), (0, 1), "bit {bit}");
        }
    }

    #[test]
    fn frames_of_others_are_told_apart() {
        let mut meter = Meter::new(1, Some(RUN));
        for bytes in [&[][..], &[0; 13], &[0x45; 60]] {
            meter.enter(Instant(0), bytes);
        }
        let mut broken = frame(RUN, 0, 0, 0);
        broken[18 + 10] ^= 1; // IPv4 checksum
        meter.enter(Instant(0), &broken);
        meter.enter(Instant(0), &frame(RUN + 1, 0, 0, 0));
        let m = meter.measured();
        assert_eq!((m.corrupt, m.foreign, m.other_runs, m.totals.received), (3, 1, 1, 0));
        assert_eq!((m.run, m.latency_ns), (None, None));
    }

    #[test]
    fn the_end_of_a_run_uncovers_what_was_lost_at_its_tail() {
        let mut meter = Meter::new(2, None);
        for sequence in [0, 2] {
            meter.enter(Instant(0), &frame(RUN, 1, sequence, 0));
        }
        assert_eq!(meter.measured().totals.lost, 1);
        assert_eq!(meter.enter(Instant(0), &frame(RUN, END_FLOW, 10, 0)), Seen::End);
        let m = meter.measured();
        assert_eq!((m.sent, m.totals.received, m.totals.lost), (Some(10), 2, 8));
    }
}
