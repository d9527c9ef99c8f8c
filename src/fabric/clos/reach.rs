use crate::pisa::table::Registers;
use crate::time::Instant;

/// Remote hosts that are remembered, one a row of 32 bytes.
const ROWS: usize = 4096;

/// What a ToR can tell of whether its uplinks lead to a remote host, and back: ToRs hear of links that have failed
/// beyond their own in no other way (CAFT's blind spot, design 6i).
///
/// Evidence is what comes with a tag, off an uplink: a request or an answer of the host. A link that fails does so in
/// both directions, since both ends take it down; so an uplink that something of the host has come by leads there. One
/// that a flow asked by in vain, and that nothing has come by since, is *doubted* until something does. Answers go by
/// other uplinks than requests, so that those which are doubted are tried without any flow's packets on them.
///
/// Collisions: a row is of the host that was last asked for; the one before is forgotten, which costs it one more
/// request in vain at most.
#[derive(Clone, Debug)]
pub struct Reach {
    rows: Registers<Row>,
    /// Nanoseconds after which silence tells something.
    patience: u64,
    /// Rows with a doubt: at rest there is nothing to look up.
    doubtful: u32,
}

/// Of one remote host; bits by uplink number.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    fingerprint: u32,
    /// Something was sent by it since anything was heard by it.
    unheard: u64,
    /// Since when that has been so of any.
    since: Instant,
    /// Unheard, and a flow has waited for an answer in vain.
    doubted: u64,
}

fn fingerprint(host: u64) -> u32 {
    (host >> 32) as u32
}

fn bit(uplink: usize) -> u64 {
    1 << uplink
}

impl Reach {
    /// Nothing is known; a sound uplink is heard by within `patience` nanoseconds.
    pub fn new(patience: u64) -> Self {
        Reach { rows: Registers::new(ROWS), patience, doubtful: 0 }
    }

    /// Changes the host's row, if it has one.
    fn change(&mut self, host: u64, change: impl FnOnce(&mut Row)) {
        let row = self.rows.at_mut(host);
        if row.fingerprint == fingerprint(host) {
            self.doubtful -= u32::from(row.doubted != 0);
            change(row);
            self.doubtful += u32::from(row.doubted != 0);
        }
    }

    /// A request or an answer for the host with hash `host` leaves by `uplink` at `now`. Whether nothing has come by it
    /// since an earlier one, long ago.
    pub fn sent(&mut self, now: Instant, host: u64, uplink: usize) -> bool {
        let row = self.rows.at_mut(host);
        if row.fingerprint != fingerprint(host) {
            self.doubtful -= u32::from(row.doubted != 0);
            *row = Row { fingerprint: fingerprint(host), ..Row::default() };
        }
        if row.unheard == 0 {
            row.since = now;
        }
        let unheard = row.unheard & bit(uplink) != 0 && now.since(row.since) >= self.patience;
        row.unheard |= bit(uplink);
        unheard
    }

    /// Something of the host came by `uplink`, or an answer to what was sent by it.
    pub fn heard(&mut self, host: u64, uplink: usize) {
        self.change(host, |row| {
            row.unheard &= !bit(uplink);
            row.doubted &= !bit(uplink);
        });
    }

    /// A flow to the host has had no answer to its request by `uplink`.
    pub fn in_vain(&mut self, host: u64, uplink: usize) {
        self.change(host, |row| row.doubted |= row.unheard & bit(uplink));
    }

    /// Whether there is no doubt at all, about no host.
    #[inline]
    pub fn is_sure(&self) -> bool {
        self.doubtful == 0
    }

    /// Whether `uplink` is doubted to lead to the host.
    pub fn doubts(&self, host: u64, uplink: usize) -> bool {
        let row = self.rows.at(host);
        row.fingerprint == fingerprint(host) && row.doubted & bit(uplink) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: u64 = 7 << 32 | 5;
    const NOW: Instant = Instant(1_000);

    #[test]
    fn an_uplink_is_doubted_after_a_request_in_vain_until_something_comes_by_it() {
        let mut reach = Reach::new(100);
        reach.in_vain(HOST, 1);
        assert!(!reach.doubts(HOST, 1), "nothing was sent by it");
        assert!(!reach.sent(NOW, HOST, 1));
        assert!(!reach.doubts(HOST, 1), "it may yet be answered");
        reach.in_vain(HOST, 1);
        assert!(reach.doubts(HOST, 1) && !reach.doubts(HOST, 0));
        reach.heard(HOST, 0);
        assert!(reach.doubts(HOST, 1), "by another one");
        reach.heard(HOST, 1);
        assert!(!reach.doubts(HOST, 1) && reach.is_sure());
    }

    #[test]
    fn silence_tells_something_after_a_while() {
        let mut reach = Reach::new(100);
        assert!(!reach.sent(NOW, HOST, 1) && !reach.sent(NOW + 99, HOST, 1));
        assert!(!reach.sent(NOW + 100, HOST, 0), "the first one by it");
        assert!(reach.sent(NOW + 100, HOST, 1));
        reach.heard(HOST, 0);
        reach.heard(HOST, 1);
        assert!(!reach.sent(NOW + 150, HOST, 1) && !reach.sent(NOW + 249, HOST, 1));
        assert!(reach.sent(NOW + 250, HOST, 1));
    }

    #[test]
    fn what_came_since_the_request_speaks_for_its_uplink() {
        let mut reach = Reach::new(100);
        reach.sent(NOW, HOST, 1);
        reach.heard(HOST, 1);
        reach.in_vain(HOST, 1);
        assert!(!reach.doubts(HOST, 1));
    }

    #[test]
    fn the_host_that_was_last_asked_for_has_the_row() {
        let mut reach = Reach::new(100);
        let other = 8 << 32 | 5;
        reach.sent(NOW, HOST, 0);
        reach.in_vain(HOST, 0);
        reach.heard(other, 0);
        reach.in_vain(other, 0);
        assert!(reach.doubts(HOST, 0) && !reach.doubts(other, 0));
        assert!(!reach.sent(NOW, other, 0));
        assert!(!reach.doubts(HOST, 0) && reach.is_sure());
    }
}
