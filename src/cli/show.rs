use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use comfy_table::{CellAlignment, Table, presets};

use crate::control::{Request, Show};
use crate::runtime::report::{Body, DropMap, Report};

use super::which::{Which, ask};
use super::{Failure, Outcome, print};

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// What to show: ports, queues, drops, workers, umem, paths or neighbours; of the scheme: meters,
    /// groups, flows, dre, pat or failures; of a rack that PL2 schedules: slots
    what: Show,
    #[command(flatten)]
    which: Which,
    /// Every switch of the running lab, one after another; without such a lab, every switch that
    /// `weft run` started (with --json: an array)
    #[arg(long, conflicts_with_all = ["switch", "socket"])]
    all: bool,
    /// Machine-readable: one line of JSON
    #[arg(long)]
    json: bool,
    /// Show again every so many seconds until interrupted
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

pub(super) fn show(args: ShowArgs) -> Outcome {
    let sockets = args.which.sockets(args.all)?;
    loop {
        let mut reports = Vec::new();
        for socket in &sockets {
            reports.push(ask(socket, &Request::Show(args.what))?);
        }
        if args.watch.is_some() && io::stdout().is_terminal() && !args.json {
            print("\x1b[H\x1b[2J")?;
        }
        match args.json {
            true if args.all => print(&format!("[{}]", reports.join(",")))?,
            true => print(&reports.concat())?,
            false => {
                for report in &reports {
                    let report: Report = serde_json::from_str(report)
                        .map_err(|e| Failure::failed(format!("the switch speaks another version: {e}")))?;
                    print(&text(&report, reports.len() > 1))?;
                }
            }
        }
        match args.watch {
            Some(seconds) => thread::sleep(Duration::from_secs(seconds)),
            None => return Ok(()),
        }
    }
}

/// A table without lines; columns from `right` on are aligned to the right.
fn table(header: &[&str], right: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().copied());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(right) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.lines().map(|l| l.trim_end().to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// A table of what a scheme shows, under the name of its rows; the keys of the first row are the columns.
fn scheme_table(name: &str, rows: &Value) -> String {
    let rows: Vec<_> = rows.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    let Some(first) = rows.first() else { return format!("no {}", spaced(name)) };
    let header: Vec<String> = first.keys().map(|key| spaced(key)).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let words = first.values().take_while(|v| !v.is_number()).count();
    let cells = |row: &Map<String, Value>| row.values().map(cell).collect();
    format!("{}\n{}", spaced(name), table(&header, words, rows.into_iter().map(cells)))
}

fn scheme_tables(tables: &Map<String, Value>) -> impl Iterator<Item = String> {
    tables.iter().map(|(name, rows)| scheme_table(name, rows))
}

fn spaced(key: &str) -> String {
    key.replace('_', " ")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(word) => word.clone(),
        Value::Array(words) => match words.is_empty() {
            true => "-".into(),
            false => words.iter().map(cell).collect::<Vec<_>>().join(" "),
        },
        Value::Number(n) => n.as_f64().filter(|_| n.is_f64()).map_or(n.to_string(), |x| format!("{x:.3}")),
        other => other.to_string(),
    }
}

fn reasons(drops: &DropMap) -> String {
    drops.iter().map(|(reason, n)| format!("{reason}={n}")).collect::<Vec<_>>().join(" ")
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".into(), |v| v.to_string())
}

/// What a person reads.
pub(super) fn text(report: &Report, titled: bool) -> String {
    let body = match &report.body {
        Body::Changed { changed } if changed.is_empty() => "nothing to change".into(),
        Body::Changed { changed } => changed.join("\n"),
        Body::Ports { ports, total, .. } => {
            let row = |p: &crate::runtime::report::PortReport| {
                let mut drops = p.ingress_drops.clone();
                for (reason, n) in &p.egress_drops {
                    *drops.entry(reason.clone()).or_default() += n;
                }
                let state = p.reason.as_ref().map_or(p.state.clone(), |r| format!("{} ({r})", p.state));
                vec![
                    p.port.clone(),
                    p.kind.to_string(),
                    state,
                    p.mode.to_string(),
                    p.rate.to_string(),
                    p.rx.to_string(),
                    p.missed().to_string(),
                    p.tx.to_string(),
                    p.generated.to_string(),
                    p.consumed.to_string(),
                    (p.queued + p.held).to_string(),
                    p.drops.to_string(),
                    reasons(&drops),
                ]
            };
            let header = [
                "port", "kind", "state", "mode", "rate", "rx", "missed", "tx", "gen", "consumed", "queued", "drops",
                "why",
            ];
            let books = if total.balanced { "=" } else { "≠" };
            format!(
                "{}\nrx {} + generated {} {books} tx {} + consumed {} + drops {} + queued {}",
                table(&header, 5, ports.iter().map(row)),
                total.rx,
                total.generated,
                total.tx,
                total.consumed,
                total.drops,
                total.queued
            )
        }
        // The word that was asked with, and nothing under it.
        Body::Scheme(tables)
            if tables.len() == 1 && tables.values().all(|rows| rows.as_array().is_some_and(Vec::is_empty)) =>
        {
            let word = tables.keys().next().map_or("", String::as_str);
            match word == Show::Slots.name() {
                true => "nothing is reserved here: PL2 is off, or there are no host ports".into(),
                false => format!("the selector {} keeps no {word}", report.selector),
            }
        }
        Body::Scheme(tables) => scheme_tables(tables).collect::<Vec<_>>().join("\n\n"),
        Body::Queues { queues } => {
            let header =
                ["port", "queue", "packets", "bytes", "peak packets", "peak bytes", "enqueued", "dropped", "CE"];
            let row = |q: &crate::runtime::report::QueueReport| {
                let numbers = [q.packets, q.bytes, q.peak_packets, q.peak_bytes, q.enqueued, q.dropped, q.ecn_marked];
                [q.port.clone(), q.queue.clone()].into_iter().chain(numbers.map(|n| n.to_string())).collect()
            };
            table(&header, 2, queues.iter().map(row))
        }
        Body::Drops { drops } if drops.total == 0 => "no drops".into(),
        Body::Drops { drops } => {
            let rows = drops
                .by_port
                .iter()
                .flat_map(|(port, map)| map.iter().map(move |(r, n)| vec![port.clone(), r.clone(), n.to_string()]));
            format!(
                "{}\ntotal {}: {}",
                table(&["port", "reason", "frames"], 2, rows),
                drops.total,
                reasons(&drops.by_reason)
            )
        }
        Body::Workers { workers } => {
            let header = ["worker", "core", "poll", "switches", "frames", "loops", "idle", "sleeps", "kicks"];
            let row = |w: &crate::runtime::report::WorkerReport| {
                let numbers = [w.switches as u64, w.frames, w.loops, w.idle_loops, w.sleeps, w.kicks];
                let words = [w.id.to_string(), or_dash(w.core), w.poll.clone()];
                words.into_iter().chain(numbers.map(|n| n.to_string())).collect()
            };
            table(&header, 3, workers.iter().map(row))
        }
        Body::Umem { umem: u } => {
            let books = if u.balanced { "=" } else { "≠" };
            format!(
                "{} chunks of {} B {books} {} free + {} with the kernel + {} in queues",
                u.chunks, u.capacity, u.free, u.held, u.in_queues
            )
        }
        Body::Paths { paths, scheme } => {
            let row = |p: &crate::runtime::report::PathReport| {
                let names = |ports: &Vec<String>| ports.join(" ");
                let groups = match p.connected {
                    true => "segment".into(),
                    false => p.priorities.iter().map(names).collect::<Vec<_>>().join(" > "),
                };
                let serving = p.serving.iter().map(|(port, tx)| format!("{port}={tx}")).collect::<Vec<_>>().join(" ");
                vec![p.prefix.clone(), groups, serving]
            };
            let routes = table(&["prefix", "ports", "serving (frames sent)"], 3, paths.iter().map(row));
            std::iter::once(routes).chain(scheme_tables(scheme)).collect::<Vec<_>>().join("\n\n")
        }
        Body::Neighbours { neighbours, stations } => {
            let neighbour = |n: &crate::runtime::report::NeighbourReport| {
                let numbers = [or_dash(n.age_ms), n.probes.to_string(), n.waiting.to_string()];
                let words = [n.address.to_string(), or_dash(n.mac), or_dash(n.port.clone())];
                words.into_iter().chain(numbers).collect()
            };
            let station = |s: &crate::runtime::report::StationReport| {
                vec![s.mac.to_string(), s.port.clone(), s.age_ms.to_string()]
            };
            format!(
                "{}\n\n{}",
                table(&["address", "mac", "port", "age ms", "probes", "waiting"], 3, neighbours.iter().map(neighbour)),
                table(&["station", "port", "age ms"], 2, stations.iter().map(station))
            )
        }
    };
    match titled {
        true => format!("{} ({}, {})\n{body}\n", report.switch, report.role, report.selector),
        false => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a switch would send it.
    fn paths(more: &str) -> String {
        let route = r#"{"prefix":"10.1.0.0/16","connected":false,"priorities":[["up0","up1"]],"serving":{"up0":7}}"#;
        format!(r#"{{"switch":"tor0-0","role":"tor","selector":"caft","paths":[{route}]{more}}}"#)
    }

    #[test]
    fn what_a_scheme_tells_of_ways_stands_beside_the_routes_in_json_and_below_them_in_text() {
        let routes = "prefix       ports    serving (frames sent)\n 10.1.0.0/16  up0 up1  up0=7";
        for (more, below) in [
            ("", ""),
            (
                r#","ways":[{"flow":"a","port":"up1","load":3}],"lost":[]"#,
                "\n\nways\n flow  port  load\n a     up1      3\n\nno lost",
            ),
        ] {
            let sent = paths(more);
            let report: Report = serde_json::from_str(&sent).unwrap();
            assert!(matches!(report.body, Body::Paths { .. }));
            assert_eq!(serde_json::to_string(&report).unwrap(), sent);
            assert_eq!(text(&report, false).trim_start(), format!("{routes}{below}"));
        }
    }

    #[test]
    fn a_scheme_without_what_was_asked_for_is_named_with_the_word() {
        for word in ["dre", "pat", "failures"] {
            let report = format!(r#"{{"switch":"t","role":"tor","selector":"ecmp","{word}":[]}}"#);
            let report: Report = serde_json::from_str(&report).unwrap();
            assert_eq!(text(&report, false), format!("the selector ecmp keeps no {word}"));
        }
        let report: Report =
            serde_json::from_str(r#"{"switch":"t","role":"tor","selector":"ecmp","slots":[]}"#).unwrap();
        assert!(text(&report, false).contains("PL2 is off"));
    }
}
