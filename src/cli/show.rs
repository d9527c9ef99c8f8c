use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use comfy_table::{CellAlignment, Table, presets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::config::Selector;
use crate::control::{Request, Show};
use crate::id::Role;
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
    /// Show again every so many seconds, 0.1 to 3600, until interrupted; the time goes before each
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,
}

/// Reads how long to wait between two looks.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write seconds, 0.1 to 3600, like 0.5".into())
}

/// What goes before each of several looks: an empty line, and the time as the log tells it (UTC).
fn moment() -> String {
    let mut line = String::from("\n");
    // It fails only where its clock does, and a look without a time is better than none.
    let _ = SystemTime.format_time(&mut Writer::new(&mut line));
    line
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
        if args.watch.is_some() && !args.json {
            print(&moment())?;
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
            Some(pause) => thread::sleep(pause),
            None => return Ok(()),
        }
    }
}

/// A table without lines; columns from `right` on are aligned to the right.
fn table(header: &[&str], right: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(right) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.lines().map(|l| l.trim_end().to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// What a scheme shows, under its name: of rows a table, in which the keys of the first are the columns; of one record a
/// line for each key.
fn scheme_table(report: &Report, name: &str, shown: &Value) -> String {
    if shown.is_null() {
        return keeps_no(report, name);
    }
    if let Some(record) = shown.as_object() {
        let lines = record.iter().map(|(key, value)| vec![spaced(key), cell(value)]);
        return format!("{}\n{}", spaced(name), table(&[], 1, lines));
    }
    let rows: Vec<_> = shown.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    let Some(first) = rows.first() else { return format!("no {}", spaced(name)) };
    let header: Vec<String> = first.keys().map(|key| spaced(key)).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let words = first.values().take_while(|v| !v.is_number()).count();
    let cells = |row: &Map<String, Value>| row.values().map(cell).collect();
    format!("{}\n{}", spaced(name), table(&header, words, rows.into_iter().map(cells)))
}

fn scheme_tables(report: &Report, tables: &Map<String, Value>) -> impl Iterator<Item = String> {
    tables.iter().map(|(name, shown)| scheme_table(report, name, shown))
}

/// That the switch has nothing of what was asked for by `word`, and whether that is its scheme's doing or its tier's.
fn keeps_no(report: &Report, word: &str) -> String {
    if word == Show::Slots.name() {
        return "nothing is reserved here: PL2 is off, or there are no host ports".into();
    }
    let thing = match word {
        "dre" => "load estimates (dre)",
        "pat" => "path allocation table",
        "failures" => "failure table",
        "flows" => "state of flows",
        word => word,
    };
    let selector = &report.selector;
    let elsewhere = match word {
        "dre" | "pat" => selector.parse().is_ok_and(Selector::goes_by_place),
        "failures" => selector.parse() == Ok(Selector::Caft),
        _ => false,
    };
    match report.role {
        Role::Core if elsewhere => format!("a core keeps no {thing}"),
        Role::Agg if elsewhere => format!("an aggregation switch keeps no {thing}"),
        Role::Tor if elsewhere => format!("a ToR keeps no {thing}"),
        _ => format!("the selector {selector} keeps no {thing}"),
    }
}

fn spaced(key: &str) -> String {
    key.replace('_', " ")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(word) => word.clone(),
        Value::Array(words) if words.is_empty() => "-".into(),
        Value::Array(words) => {
            // A list of metrics is narrow: F stands for a link that has failed.
            let short = |word: &Value| if word == "failed" { "F".into() } else { cell(word) };
            words.iter().map(short).collect::<Vec<_>>().join(" ")
        }
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
        Body::Scheme(tables) => scheme_tables(report, tables).collect::<Vec<_>>().join("\n\n"),
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
            std::iter::once(routes).chain(scheme_tables(report, scheme)).collect::<Vec<_>>().join("\n\n")
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
        format!(r#"{{"time_ms":1,"switch":"tor0-0","role":"tor","selector":"caft","paths":[{route}]{more}}}"#)
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
            (
                r#","ways":[{"flow":"a","links":[4,"failed",null],"other":null}],"counts":{"sent_up":12,"lost":3}"#,
                "\n\nways\n flow  links  other\n a     4 F -  -\n\ncounts\n sent up  12\n lost      3",
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
    fn looks_are_a_tenth_of_a_second_to_an_hour_apart_and_each_has_its_time() {
        for (text, ms) in [("0.1", 100), ("0.2", 200), ("1", 1_000), ("2.5", 2_500), ("3600", 3_600_000)] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["0", "0.09", "3600.1", "-1", "", "1s", "nan", "inf"] {
            assert_eq!(seconds(text).unwrap_err(), "write seconds, 0.1 to 3600, like 0.5", "{text}");
        }
        // 2026-01-02T03:04:05.678901Z
        let line = moment();
        let time = line.strip_prefix('\n').and_then(|line| line.strip_suffix('Z')).expect(&line);
        let (day, hour) = time.split_once('T').expect(time);
        assert_eq!((day.split('-').count(), hour.split([':', '.']).count()), (3, 4), "{line:?}");
    }

    #[test]
    fn who_keeps_no_such_thing_is_named_the_scheme_or_the_tier_and_an_empty_table_is_another_matter() {
        for (role, selector, shown, expected) in [
            ("tor", "ecmp", r#""dre":null"#, "the selector ecmp keeps no load estimates (dre)"),
            ("core", "ecmp", r#""pat":null"#, "the selector ecmp keeps no path allocation table"),
            ("tor", "hula", r#""meters":null"#, "the selector hula keeps no meters"),
            ("core", "caft", r#""dre":null"#, "a core keeps no load estimates (dre)"),
            ("core", "expeditus", r#""pat":null"#, "a core keeps no path allocation table"),
            ("core", "expeditus", r#""failures":null"#, "the selector expeditus keeps no failure table"),
            ("tor", "caft", r#""failures":null,"uplinks":[]"#, "a ToR keeps no failure table\n\nno uplinks"),
            ("tor", "ecmp", r#""slots":null"#, "nothing is reserved here: PL2 is off, or there are no host ports"),
            ("agg", "caft", r#""failures":[]"#, "no failures"),
            ("agg", "caft", r#""pat":[],"slots":{"slots":8,"live":0}"#, "no pat\n\nslots\n slots  8\n live   0"),
        ] {
            let report = format!(r#"{{"switch":"t","role":"{role}","selector":"{selector}",{shown}}}"#);
            let report: Report = serde_json::from_str(&report).unwrap();
            assert_eq!(text(&report, false), expected);
        }
    }
}
