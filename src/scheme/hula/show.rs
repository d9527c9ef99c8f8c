use crate::fabric::view::{Cell, SchemeTable};
use crate::time::{Instant, MICROS};

use super::table::TorView;
use super::{HulaCounters, HulaIngress};

impl HulaIngress {
    /// How busy each link to another switch is.
    pub(super) fn show_links(&self, now: Instant) -> SchemeTable {
        let utilisation = |port| f64::from(self.utilisation(now, port)) / 65535.0;
        let rows = self.up.or(self.down).iter().map(|port| vec![Cell::Port(port), Cell::Float(utilisation(port))]);
        SchemeTable { name: "meters", columns: &["port", "utilization"], rows: rows.collect() }
    }

    /// The best way to each ToR.
    pub(super) fn show_tors(&self, now: Instant) -> SchemeTable {
        let text = |prefix: Option<String>| prefix.map_or(Cell::None, Cell::Text);
        let row = |view: TorView| {
            vec![
                Cell::Int(view.tor.0.into()),
                text(view.ipv4.map(|p| p.to_string())),
                text(view.ipv6.map(|p| p.to_string())),
                view.best.map_or(Cell::None, Cell::Port),
                Cell::Float(f64::from(view.utilisation) / 65535.0),
                Cell::Int(view.age / MICROS),
            ]
        };
        SchemeTable {
            name: "groups",
            columns: &["tor", "ipv4", "ipv6", "best", "path_utilization", "age_us"],
            rows: self.tors(now).into_iter().map(row).collect(),
        }
    }

    /// What became of probes.
    pub(super) fn show_probes(&self) -> SchemeTable {
        let HulaCounters {
            originated,
            received,
            taken,
            replicated,
            spaced,
            expired,
            unmade,
            malformed,
            dead_link,
            own,
            worse,
            roundabout,
            full,
            prefix_taken,
        } = self.counters();
        let counts = [
            ("originated", originated),
            ("received", received),
            ("taken", taken),
            ("replicated", replicated),
            ("taken, not passed on: too soon after another", spaced),
            ("taken, not passed on: no links left", expired),
            ("not made: no frame", unmade),
            ("refused: malformed", malformed),
            ("refused: link not live", dead_link),
            ("refused: own", own),
            ("refused: worse way", worse),
            ("refused: roundabout way", roundabout),
            ("refused: table full", full),
            ("refused: prefix of another", prefix_taken),
        ];
        let rows = counts.map(|(what, n)| vec![what.into(), n.into()]).to_vec();
        SchemeTable { name: "probes", columns: &["probes", "count"], rows }
    }
}
