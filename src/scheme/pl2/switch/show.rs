use super::super::book::SlotBook;
use super::super::stats::{PortSlots, SlotCounters};
use super::Rack;
use crate::fabric::view::{Cell, SchemeTable};
use crate::id::PortId;
use crate::pisa::{Queue, TrafficManager};
use crate::time::MICROS;

impl Rack {
    /// All that `show slots` tells, at one moment of the book. Each pipe shows the ports whose queues it has, and the
    /// first one what there is once.
    pub(super) fn tables(&self, queues: &TrafficManager) -> Vec<SchemeTable> {
        let ports: Vec<PortId> = self.hosts.iter().filter(|port| self.pipe.owns(*port)).collect();
        let table = |name, columns, row: &dyn Fn(PortId) -> Option<Vec<Cell>>| {
            SchemeTable::table(name, columns, ports.iter().filter_map(|port| row(*port)).collect())
        };
        self.book.look(|book| {
            let mut tables = vec![
                table("slots", SLOTS, &|port| Some(self.slots(book.port(port), queues, port))),
                table("requests", REQUESTS, &|port| Some(requests(port, book.port(port).counters))),
            ];
            if self.config.agent.is_some() {
                tables.push(table("agents", AGENTS, &|port| self.agents(port)));
            }
            if self.pipe.index == 0 {
                tables.push(self.switch(book));
            }
            tables
        })
    }

    fn slots(&self, slots: PortSlots, queues: &TrafficManager, port: PortId) -> Vec<Cell> {
        let PortSlots { in_slots, out_slots, queued, pending, .. } = slots;
        let depth = queues.depth(port, Queue::Data);
        let edge = self.edges[port.index()].as_deref();
        vec![
            Cell::Port(port),
            u64::from(in_slots).into(),
            u64::from(out_slots).into(),
            u64::from(queued).into(),
            u64::from(pending).into(),
            depth.bytes.into(),
            depth.peak_bytes.into(),
            depth.peak_packets.into(),
            depth.dropped.into(),
            edge.map_or(0, |edge| edge.held() as u64).into(),
            self.unscheduled[port.index()].into(),
        ]
    }

    fn agents(&self, port: PortId) -> Option<Vec<Cell>> {
        let host = &self.edges[port.index()].as_deref()?.host;
        let (stats, speaks) = (host.stats(), self.speakers.contains(port));
        let counters = &stats.counters;
        let quantiles = |histogram: &hdrhistogram::Histogram<u64>| {
            let us = |q| Cell::Float(histogram.value_at_quantile(q) as f64 / MICROS as f64);
            if histogram.is_empty() { [Cell::None, Cell::None] } else { [us(0.5), us(0.99)] }
        };
        let numbers = [
            host.parked() as u64,
            stats.parked_peak.into(),
            host.connections() as u64,
            host.outstanding().into(),
            host.expected() as u64,
            counters.requests,
            counters.retries,
            counters.grants,
            counters.nacks,
            counters.sent,
            counters.bypassed,
            counters.dropped(),
            counters.late,
            counters.given_up,
        ];
        let words = [Cell::Port(port), if speaks { "host" } else { "edge" }.into()];
        let times = [&stats.rtt, &stats.lateness].into_iter().flat_map(quantiles);
        Some(words.into_iter().chain(numbers.map(Cell::Int)).chain(times).collect())
    }

    fn switch(&self, book: &SlotBook) -> SchemeTable {
        let fields = [
            ("mode", book.mode().name().into()),
            ("epoch", u64::from(book.epoch()).into()),
            ("slot_ns", u64::from(self.config.book.slot_ns).into()),
            ("grace_ns", self.config.book.grace.into()),
            ("k", u64::from(self.config.book.max_burst).into()),
            ("agent", if self.config.agent.is_some() { "edge" } else { "none" }.into()),
            ("oversized", self.oversized.into()),
            ("announced", self.announced.into()),
            ("unannounced", self.unannounced.into()),
        ];
        SchemeTable::record("book", fields)
    }
}

fn requests(port: PortId, counters: SlotCounters) -> Vec<Cell> {
    let nacks = counters.nacks();
    let SlotCounters {
        grants,
        renewed,
        granted_slots,
        no_route,
        full,
        stale,
        invalid,
        used_slots,
        unused_slots,
        timeouts,
        timeout_slots,
        resets,
        releases,
        refused,
        late,
        rogue,
        in_underflows,
        out_underflows,
    } = counters;
    let numbers = [
        grants,
        renewed,
        granted_slots,
        used_slots,
        unused_slots,
        nacks,
        no_route,
        full,
        stale,
        invalid,
        timeouts,
        timeout_slots,
        resets,
        releases,
        refused,
        late,
        rogue,
        in_underflows,
        out_underflows,
    ];
    std::iter::once(Cell::Port(port)).chain(numbers.map(Cell::Int)).collect()
}

/// Registers and queues.
const SLOTS: &[&str] = &[
    "port",
    "in",
    "out",
    "queued",
    "pending",
    "queue_bytes",
    "peak_bytes",
    "peak_packets",
    "queue_drops",
    "parked",
    "unscheduled",
];

/// What the book has counted, where the sender is.
const REQUESTS: &[&str] = &[
    "port",
    "grants",
    "renewed",
    "granted_slots",
    "used_slots",
    "unused_slots",
    "nacks",
    "no_route",
    "full",
    "stale",
    "invalid",
    "timeouts",
    "timeout_slots",
    "resets",
    "releases",
    "refused",
    "late",
    "rogue",
    "in_underflows",
    "out_underflows",
];

/// What the switch's agents have done; `by` says who reserves for the port.
const AGENTS: &[&str] = &[
    "port",
    "by",
    "parked",
    "parked_peak",
    "connections",
    "outstanding",
    "expected",
    "requests",
    "retries",
    "grants",
    "nacks",
    "sent",
    "bypassed",
    "dropped",
    "late_sends",
    "given_up",
    "rtt_p50_us",
    "rtt_p99_us",
    "lateness_p50_us",
    "lateness_p99_us",
];
