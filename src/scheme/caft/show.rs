use crate::fabric::clos::{ends_cells, flow_cell, metrics_cell, pat_table, slots_record};
use crate::fabric::view::{Cell, SchemeTable, Topic};
use crate::id::Role;
use crate::time::{Instant, MICROS, MILLIS};

use super::{CaftCounters, CaftIngress, Candidate, Decision};

impl CaftIngress {
    /// What it has to show of `topic`: of what a switch of its tier keeps, and nothing of what it does not.
    pub(super) fn tables(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match (topic, self.clos.role()) {
            (Topic::Paths, Role::Tor) => vec![self.show_decisions(now), self.show_counters()],
            (Topic::Paths, Role::Agg | Role::Core) => vec![self.show_counters()],
            (_, Role::Core) => Vec::new(),
            (Topic::Dre, _) => vec![self.clos.uplinks().show(now)],
            (Topic::Pat, _) => {
                let CaftCounters { untracked, unkept, .. } = self.counters;
                let known = self.decisions.iter().map(|d| (d.flow, d.ends));
                vec![pat_table(&self.pat, now, known), slots_record(&self.pat, now, untracked, unkept)]
            }
            // A ToR is told of its own links only, and finds out of others.
            (Topic::Failures, Role::Tor) => vec![self.show_doubts(now), self.clos.uplinks().show_state()],
            (Topic::Failures, Role::Agg) => vec![self.show_failures(now), self.clos.uplinks().show_state()],
            (Topic::Meters | Topic::Groups | Topic::Flows | Topic::Slots, _) => Vec::new(),
        }
    }

    fn show_failures(&self, now: Instant) -> SchemeTable {
        let pods = self.clos.pods();
        let rows = self.failures.rows(now).map(|row| {
            vec![
                Cell::Text(pods.prefix(row.pod).to_string()),
                Cell::Ports(row.failed),
                (now.since(row.told) / MICROS).into(),
            ]
        });
        SchemeTable::table("failures", &["pod", "failed", "age_us"], rows.collect())
    }

    fn show_doubts(&self, now: Instant) -> SchemeTable {
        let uplinks = self.clos.uplinks();
        let rows = self.reach.doubts(now).map(|doubt| {
            let numbers = (0..uplinks.count()).filter(|number| doubt.uplinks & 1 << number != 0);
            let ports = numbers.clone().filter_map(|number| uplinks.port(number)).collect();
            let numbers = numbers.map(|number| Cell::Int(number as u64)).collect();
            let age = now.since(doubt.since) / MICROS;
            vec![Cell::Text(doubt.host.to_string()), Cell::List(numbers), Cell::Ports(ports), age.into()]
        });
        SchemeTable::table("doubted", &["host", "uplinks", "ports", "age_us"], rows.collect())
    }

    fn show_decisions(&self, now: Instant) -> SchemeTable {
        let metrics = |way: Candidate| match way.metrics {
            [None, None, None, None] => Cell::None,
            metrics => metrics_cell(metrics),
        };
        let number = |uplink: usize| Cell::Int(uplink as u64);
        let row = |d: &Decision| {
            let [from, to] = ends_cells(d.ends);
            let second = d.second_way();
            vec![
                flow_cell(d.flow),
                from,
                to,
                metrics(d.first),
                second.map_or(Cell::None, metrics),
                number(d.first.uplink),
                second.map_or(Cell::None, |way| number(way.uplink)),
                number(d.chosen()),
                Cell::Bool(d.moved),
                (now.since(d.at) / MILLIS).into(),
            ]
        };
        let columns =
            &["flow", "from", "to", "first", "second", "first_uplink", "second_uplink", "chosen", "moved", "age_ms"];
        SchemeTable::table("decisions", columns, self.decisions.iter().map(row).collect())
    }

    fn show_counters(&self) -> SchemeTable {
        let CaftCounters {
            requests,
            requests_in_vain,
            untracked,
            foreign,
            untagged,
            requests_up,
            requests_down,
            requests_odd,
            no_second,
            choices_sent,
            choices_taken,
            responses_sent,
            responses_by_first,
            responses_up,
            responses_down,
            stayed,
            moved,
            orphans,
            unmade,
            no_path,
            unkept,
        } = self.counters;
        // One counter, of which the tiers mean different things: T8, and A4 or A7.
        let of = |counted: bool, n: u64| if counted { n } else { 0 };
        let at_tor = self.clos.role() == Role::Tor;
        let counts = [
            ("requests_opened", requests),
            ("requests_in_vain", requests_in_vain),
            ("requests_passed_up", requests_up),
            ("requests_come_down", requests_down),
            ("requests_without_room_for_a_tag", untagged),
            ("requests_that_do_not_fit_the_fabric", requests_odd),
            ("requests_without_a_second_way", of(at_tor, no_second)),
            ("messages_without_a_core", of(!at_tor, no_second)),
            ("choices_sent", choices_sent),
            ("choices_taken", choices_taken),
            ("responses_sent", responses_sent),
            ("responses_by_the_first_way_too", responses_by_first),
            ("responses_passed_up", responses_up),
            ("responses_completed", responses_down),
            ("flows_stayed", stayed),
            ("flows_moved", moved),
            ("responses_to_nobody", orphans),
            ("messages_not_made", unmade),
            ("packets_without_a_slot", untracked),
            ("packets_not_from_the_segment", foreign),
            ("ways_without_a_slot", unkept),
            ("packets_without_a_way", no_path),
        ];
        SchemeTable::counts("allocation", counts)
    }
}
