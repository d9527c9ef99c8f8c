use crate::fabric::clos::{metrics_text, pat_table, slots_table};
use crate::fabric::view::{Cell, SchemeTable, Topic};
use crate::time::{Instant, MICROS, MILLIS};

use super::{CaftCounters, CaftIngress, Candidate, Decision};

impl CaftIngress {
    /// What it has to show of `topic`.
    pub(super) fn tables(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match topic {
            Topic::Dre => vec![self.clos.uplinks().show(now)],
            Topic::Pat => {
                let CaftCounters { untracked, unkept, .. } = self.counters;
                vec![pat_table(&self.pat, now), slots_table(&self.pat, now, untracked, unkept)]
            }
            Topic::Failures => vec![self.show_failures(now), self.clos.uplinks().show_state()],
            Topic::Paths => vec![self.show_decisions(now), self.show_counters()],
            Topic::Meters | Topic::Groups | Topic::Flows | Topic::Slots => Vec::new(),
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
        SchemeTable { name: "failures", columns: &["pod", "failed", "told_us_ago"], rows: rows.collect() }
    }

    fn show_decisions(&self, now: Instant) -> SchemeTable {
        let metrics = |way: Candidate| match way.metrics {
            [None, ..] => Cell::None,
            metrics => Cell::Text(metrics_text(metrics.into_iter().flatten())),
        };
        let row = |d: &Decision| {
            let [from, to] = d.ends.map(|end| Cell::Text(std::net::SocketAddr::from(end).to_string()));
            vec![
                Cell::Text(format!("{:08x}", d.flow)),
                from,
                to,
                metrics(d.first),
                metrics(d.second),
                if d.moved { "second" } else { "first" }.into(),
                (d.first.uplink as u64).into(),
                (d.second.uplink as u64).into(),
                (now.since(d.at) / MILLIS).into(),
            ]
        };
        SchemeTable {
            name: "candidates",
            columns: &["flow", "from", "to", "first", "second", "won", "first_uplink", "second_uplink", "age_ms"],
            rows: self.decisions.iter().map(row).collect(),
        }
    }

    fn show_counters(&self) -> SchemeTable {
        let CaftCounters {
            requests,
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
            responses_up,
            responses_down,
            stayed,
            moved,
            orphans,
            unmade,
            no_path,
            unkept,
        } = self.counters;
        let counts = [
            ("requests_opened", requests),
            ("requests_passed_up", requests_up),
            ("requests_come_down", requests_down),
            ("requests_without_room_for_a_tag", untagged),
            ("requests_that_do_not_fit_the_fabric", requests_odd),
            ("requests_without_a_second_way", no_second),
            ("choices_sent", choices_sent),
            ("choices_taken", choices_taken),
            ("responses_sent", responses_sent),
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
        let rows = counts.map(|(what, n)| vec![what.into(), n.into()]).to_vec();
        SchemeTable { name: "allocation", columns: &["outcome", "count"], rows }
    }
}
