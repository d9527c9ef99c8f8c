use crate::fabric::clos::Pod;
use crate::id::PortMask;
use crate::time::Instant;

/// Pods of which failures are known at once; more than a fabric can have, unless somebody sends tags from made-up
/// prefixes.
const ROWS: usize = 256;

/// The failure table: a row for each pod with the uplinks of its aggregation switch in this one's plane that have
/// failed. As the ports that lead to the same cores from here: no packet for the pod can take them.
#[derive(Clone, Debug)]
pub struct FailureTable {
    /// Those with a failure, and no others: at rest there is nothing to look through.
    rows: Vec<Row>,
    /// Nanoseconds without news after which a row is forgotten; 0: never.
    timeout: u64,
}

/// The row of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Which.
    pub pod: Pod,
    /// Ports that lead to cores without a live link to it.
    pub failed: PortMask,
    /// When a tag last said so.
    pub told: Instant,
}

impl FailureTable {
    /// No failures; rows are forgotten `timeout` nanoseconds after they were last told, or never if 0.
    pub fn new(timeout: u64) -> Self {
        FailureTable { rows: Vec::with_capacity(ROWS), timeout }
    }

    /// A tag tells the whole row of `pod`: what it does not name is sound. With too many, the oldest is forgotten.
    pub fn tell(&mut self, now: Instant, pod: Pod, failed: PortMask) {
        let timeout = self.timeout;
        // In the order in which they were told.
        self.rows.retain(|row| row.pod != pod && is_news(row, now, timeout));
        if failed.is_empty() {
            return;
        }
        if self.rows.len() == ROWS {
            self.rows.remove(0);
        }
        self.rows.push(Row { pod, failed, told: now });
    }

    /// Ports that lead to no live link of `pod`.
    #[inline]
    pub fn of(&self, now: Instant, pod: impl FnOnce() -> Option<Pod>) -> PortMask {
        if self.rows.is_empty() {
            return PortMask::EMPTY;
        }
        let Some(pod) = pod() else { return PortMask::EMPTY };
        let row = self.rows.iter().find(|row| row.pod == pod && is_news(row, now, self.timeout));
        row.map_or(PortMask::EMPTY, |row| row.failed)
    }

    /// `port` is gone, or leads elsewhere from now on.
    pub fn forget_port(&mut self, port: crate::id::PortId) {
        for row in &mut self.rows {
            row.failed = row.failed.without(port);
        }
        self.rows.retain(|row| !row.failed.is_empty());
    }

    /// The rows that count at `now`.
    pub fn rows(&self, now: Instant) -> impl Iterator<Item = &Row> {
        let timeout = self.timeout;
        self.rows.iter().filter(move |row| is_news(row, now, timeout))
    }
}

fn is_news(row: &Row, now: Instant, timeout: u64) -> bool {
    timeout == 0 || now.since(row.told) <= timeout
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PortId;

    #[test]
    fn of_too_many_pods_the_one_that_was_told_of_longest_ago_is_forgotten() {
        let (mut table, failed) = (FailureTable::new(0), PortMask::only(PortId(3)));
        let pod = |n: usize| Pod::V4(n as u32);
        (0..ROWS).for_each(|n| table.tell(Instant(n as u64), pod(n), failed));
        // What is told again is news.
        table.tell(Instant(ROWS as u64), pod(0), failed);
        table.tell(Instant(ROWS as u64 + 1), pod(ROWS), failed);
        let of = |n| table.of(Instant(ROWS as u64 + 1), || Some(pod(n)));
        assert_eq!([0, 1, 2, ROWS].map(of), [failed, PortMask::EMPTY, failed, failed]);
    }
}
