use crate::fabric::view::{Cell, SchemeTable};
use crate::pisa::pat::{Entry, PathTable};
use crate::time::{Instant, MILLIS};
use crate::wire::caft::Metric;

/// Most entries of a path allocation table that are shown: the worker that forwards gathers them, and hellos wait
/// for a few milliseconds meanwhile, not more.
const SHOWN: usize = 4096;

/// What is shown of a path allocation table: a row for each live entry, up to 4,096; [`slots_table`] tells how many
/// there are.
pub fn pat_table(pat: &PathTable, now: Instant) -> SchemeTable {
    let row = |entry: Entry| {
        vec![
            Cell::Text(format!("{:08x}", entry.flow)),
            Cell::Port(entry.path.port),
            entry.path.origin.name().into(),
            Cell::Bool(entry.path.valid),
            // The age bit of the tables in hardware.
            (entry.age / pat.timeout()).into(),
        ]
    };
    SchemeTable {
        name: "pat",
        columns: &["flow", "outport", "origin", "valid", "age"],
        rows: pat.entries(now).take(SHOWN).map(row).collect(),
    }
}

/// How full it is, with the packets (`untracked`) and the ways (`unkept`) that found their slot taken.
pub fn slots_table(pat: &PathTable, now: Instant, untracked: u64, unkept: u64) -> SchemeTable {
    SchemeTable {
        name: "slots",
        columns: &["slots", "live", "timeout_ms", "untracked", "unkept"],
        rows: vec![vec![
            (pat.slots() as u64).into(),
            (pat.occupancy(now) as u64).into(),
            Cell::Float(pat.timeout() as f64 / MILLIS as f64),
            untracked.into(),
            unkept.into(),
        ]],
    }
}

/// Metrics as people read them: loads, and F for what has failed.
pub fn metrics_text(metrics: impl IntoIterator<Item = Metric>) -> String {
    let words = metrics.into_iter().map(|metric| match metric.is_failed() {
        true => "F".to_string(),
        false => metric.nibble().to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}
