use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::fabric::view::{Cell, SchemeTable};
use crate::pisa::pat::{Entry, PathTable};
use crate::time::{Instant, MILLIS};
use crate::wire::caft::Metric;

use super::FlowEnds;

/// Most entries of a path allocation table that are shown: the worker that forwards gathers them, and hellos wait
/// for a few milliseconds meanwhile, not more.
const SHOWN: usize = 4096;

/// What is shown of a path allocation table: a row for each live entry, up to 4,096; [`slots_record`] tells how many
/// there are. The table knows flows by fingerprint only; `known` are those of which the ends are remembered, the later
/// the better.
pub fn pat_table(pat: &PathTable, now: Instant, known: impl Iterator<Item = (u32, FlowEnds)>) -> SchemeTable {
    let known: BTreeMap<u32, FlowEnds> = known.collect();
    let row = |entry: Entry| {
        let [from, to] = match known.get(&entry.flow) {
            Some(ends) => ends_cells(*ends),
            None => [Cell::None, Cell::None],
        };
        vec![
            flow_cell(entry.flow),
            from,
            to,
            Cell::Port(entry.path.port),
            entry.path.origin.name().into(),
            Cell::Bool(entry.path.valid),
            // The age bit of the tables in hardware.
            (entry.age / pat.timeout()).into(),
        ]
    };
    let columns = &["flow", "from", "to", "outport", "origin", "valid", "age"];
    SchemeTable::table("pat", columns, pat.entries(now).take(SHOWN).map(row).collect())
}

/// How full it is, with the packets (`untracked`) and the ways (`unkept`) that found their slot taken.
pub fn slots_record(pat: &PathTable, now: Instant, untracked: u64, unkept: u64) -> SchemeTable {
    SchemeTable::record(
        "slots",
        [
            ("slots", (pat.slots() as u64).into()),
            ("live", (pat.occupancy(now) as u64).into()),
            ("timeout_ms", Cell::Float(pat.timeout() as f64 / MILLIS as f64)),
            ("untracked", untracked.into()),
            ("unkept", unkept.into()),
        ],
    )
}

/// A flow as every table of its switch names it: the path allocation table's fingerprint in hex.
pub fn flow_cell(fingerprint: u32) -> Cell {
    Cell::Text(format!("{fingerprint:08x}"))
}

/// Source and destination of a flow.
pub fn ends_cells(ends: FlowEnds) -> [Cell; 2] {
    ends.map(|end| Cell::Text(SocketAddr::from(end).to_string()))
}

/// Metrics of links: the load in eighths, `failed`, or nothing where it was not told.
pub fn metrics_cell(metrics: impl IntoIterator<Item = Option<Metric>>) -> Cell {
    let cell = |metric: Metric| match metric.is_failed() {
        true => "failed".into(),
        false => Cell::Int(metric.nibble().into()),
    };
    Cell::List(metrics.into_iter().map(|metric| metric.map_or(Cell::None, cell)).collect())
}
