use std::net::SocketAddr;

use crate::fabric::clos::{metrics_text, pat_table, slots_table};
use crate::fabric::view::{Cell, SchemeTable, Topic};
use crate::time::{Instant, MILLIS};
use crate::wire::caft::Metrics;

use super::{Decision, ExpeditusCounters, ExpeditusIngress, Stage};

impl ExpeditusIngress {
    /// What it has to show of `topic`. It keeps nothing of others' failures.
    pub(super) fn tables(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match topic {
            Topic::Dre => vec![self.clos.uplinks().show(now)],
            Topic::Pat => {
                let ExpeditusCounters { untracked, unkept, .. } = self.counters;
                vec![pat_table(&self.pat, now), slots_table(&self.pat, now, untracked, unkept)]
            }
            Topic::Paths => vec![self.show_decisions(now), self.show_counters()],
            Topic::Failures | Topic::Meters | Topic::Groups | Topic::Flows | Topic::Slots => Vec::new(),
        }
    }

    fn show_decisions(&self, now: Instant) -> SchemeTable {
        let number = |number: Option<usize>| number.map_or(Cell::None, |number| (number as u64).into());
        let metrics = |metrics: &Metrics| match metrics.is_empty() {
            true => Cell::None,
            false => Cell::Text(metrics_text(metrics.iter().copied())),
        };
        let row = |d: &Decision| {
            let [from, to] = d.ends.map(|end| Cell::Text(SocketAddr::from(end).to_string()));
            vec![
                d.flow.map_or(Cell::None, |flow| Cell::Text(format!("{flow:08x}"))),
                from,
                to,
                match d.stage {
                    Stage::Agg => "agg",
                    Stage::Core => "core",
                    Stage::Uplink => "uplink",
                }
                .into(),
                metrics(&d.egress),
                metrics(&d.ingress),
                number(d.chosen),
                number(d.before),
                (now.since(d.at) / MILLIS).into(),
            ]
        };
        SchemeTable {
            name: "decisions",
            columns: &["flow", "from", "to", "stage", "egress", "ingress", "chosen", "before", "age_ms"],
            rows: self.decisions.iter().map(row).collect(),
        }
    }

    fn show_counters(&self) -> SchemeTable {
        let ExpeditusCounters {
            requests,
            untracked,
            untagged,
            requests_down,
            requests_odd,
            no_way,
            responses_sent,
            unmade,
            responses_up,
            responses_turned,
            responses_down,
            stayed,
            moved,
            orphans,
            unkept,
        } = self.counters;
        let counts = [
            ("requests_opened", requests),
            ("requests_come_down", requests_down),
            ("requests_without_room_for_a_tag", untagged),
            ("requests_that_do_not_fit_the_fabric", requests_odd),
            ("responses_sent", responses_sent),
            ("responses_not_made", unmade),
            ("responses_passed_up", responses_up),
            ("responses_turned_round", responses_turned),
            ("responses_given_a_core", responses_down),
            ("choices_without_a_way", no_way),
            ("flows_stayed", stayed),
            ("flows_moved", moved),
            ("responses_to_nobody", orphans),
            ("packets_without_a_slot", untracked),
            ("ways_without_a_slot", unkept),
        ];
        let rows = counts.map(|(what, n)| vec![what.into(), n.into()]).to_vec();
        SchemeTable { name: "allocation", columns: &["outcome", "count"], rows }
    }
}
