use crate::fabric::clos::{ends_cells, flow_cell, metrics_cell, pat_table, slots_record};
use crate::fabric::view::{Cell, SchemeTable, Topic};
use crate::id::Role;
use crate::time::{Instant, MILLIS};
use crate::wire::caft::Metrics;

use super::{Decision, ExpeditusCounters, ExpeditusIngress, Stage};

impl ExpeditusIngress {
    /// What it has to show of `topic`, of what a switch of its tier keeps. None keeps anything of others' failures.
    pub(super) fn tables(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match (topic, self.clos.role()) {
            (Topic::Paths, Role::Core) => vec![self.show_counters()],
            (Topic::Paths, Role::Tor | Role::Agg) => vec![self.show_decisions(now), self.show_counters()],
            (_, Role::Core) => Vec::new(),
            (Topic::Dre, _) => vec![self.clos.uplinks().show(now)],
            (Topic::Pat, _) => {
                let ExpeditusCounters { untracked, unkept, .. } = self.counters;
                let known = self.decisions.iter().filter_map(|d| Some((d.flow?, d.ends)));
                vec![pat_table(&self.pat, now, known), slots_record(&self.pat, now, untracked, unkept)]
            }
            (Topic::Failures | Topic::Meters | Topic::Groups | Topic::Flows | Topic::Slots, _) => Vec::new(),
        }
    }

    fn show_decisions(&self, now: Instant) -> SchemeTable {
        let number = |number: Option<usize>| number.map_or(Cell::None, |number| (number as u64).into());
        let metrics = |metrics: &Metrics| match metrics.is_empty() {
            true => Cell::None,
            false => metrics_cell(metrics.iter().copied().map(Some)),
        };
        let row = |d: &Decision| {
            let [from, to] = ends_cells(d.ends);
            vec![
                d.flow.map_or(Cell::None, flow_cell),
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
                number(d.before),
                number(d.chosen),
                d.before.map_or(Cell::None, |before| Cell::Bool(d.chosen != Some(before))),
                (now.since(d.at) / MILLIS).into(),
            ]
        };
        let columns =
            &["flow", "from", "to", "stage", "egress", "ingress", "first_uplink", "chosen", "moved", "age_ms"];
        SchemeTable::table("decisions", columns, self.decisions.iter().map(row).collect())
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
        SchemeTable::counts("allocation", counts)
    }
}
