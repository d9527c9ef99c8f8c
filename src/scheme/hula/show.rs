use crate::fabric::view::{Cell, SchemeTable};
use crate::time::{Instant, MICROS};

use super::table::TorView;
use super::{HulaCounters, HulaIngress};

impl HulaIngress {
    /// How busy each link to another switch is.
    pub(super) fn show_links(&self, now: Instant) -> SchemeTable {
        let utilisation = |port| f64::from(self.utilisation(now, port)) / 65535.0;
        let rows = self.up.or(self.down).iter().map(|port| vec![Cell::Port(port), Cell::Float(utilisation(port))]);
        SchemeTable::table("meters", &["port", "utilization"], rows.collect())
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
        let columns = &["tor", "ipv4", "ipv6", "best", "path_utilization", "age_us"];
        SchemeTable::table("groups", columns, self.tors(now).into_iter().map(row).collect())
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
            ("taken_too_soon_to_pass_on", spaced),
            ("taken_no_links_left", expired),
            ("not_made", unmade),
            ("refused_malformed", malformed),
            ("refused_link_not_live", dead_link),
            ("refused_own", own),
            ("refused_worse", worse),
            ("refused_roundabout", roundabout),
            ("refused_table_full", full),
            ("refused_prefix_of_another", prefix_taken),
        ];
        SchemeTable::counts("probes", counts)
    }
}
