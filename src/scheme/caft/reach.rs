use std::net::IpAddr;

use crate::fabric::clos::RemoteHost;
use crate::pisa::table::Registers;
use crate::time::{Instant, SECONDS};

/// How long something is remembered that is not used, and doubted that is not tried, in nanoseconds.
pub const MEMORY: u64 = 60 * SECONDS;

/// What a ToR can tell of whether its uplinks lead to a remote host, and back: ToRs hear of links that have failed
/// beyond their own in no other way (CAFT's blind spot, design 6i).
///
/// Evidence is what comes with a tag, off an uplink: a request or an answer of the host. A link that fails does so in
/// both directions, since both ends take it down; so an uplink that something of the host has come by leads there. One
/// that a flow asked by in vain, and that nothing has come by since, is *doubted* until something does. Answers go by
/// other uplinks than requests, so that those which are doubted are tried without any flow's packets on them; where
/// they are not, one request a minute tries them.
///
/// Collisions: a row that was used within a minute stays, and of a host that falls on it nothing is remembered. Its
/// flows still try all uplinks in turn, each for itself, and its requests are answered both ways.
#[derive(Clone, Debug)]
pub struct Reach {
    rows: Registers<Row>,
    /// Nanoseconds after which silence tells something.
    patience: u64,
    /// Rows with a doubt: at rest there is nothing to look up.
    doubtful: u32,
}

/// Of one remote host, a cache line; bits by uplink number.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    host: Option<IpAddr>,
    /// When something was last sent to it, or heard of it.
    used: Instant,
    /// Something was sent by it since anything was heard by it.
    unheard: u64,
    /// Since when that has been so of any.
    since: Instant,
    /// Unheard, and a flow has waited for an answer in vain.
    doubted: u64,
    /// Since when that has been so of any, or was last tried.
    tried: Instant,
}

const _: () = assert!(size_of::<Row>() <= 64);

impl Row {
    fn is_live(&self, now: Instant) -> bool {
        self.host.is_some() && now.since(self.used) < MEMORY
    }
}

/// What is doubted about a host, for showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// Which.
    pub host: IpAddr,
    /// Bits by uplink number.
    pub uplinks: u64,
    /// Since when, or since it was last tried.
    pub since: Instant,
}

fn bit(uplink: usize) -> u64 {
    1 << uplink
}

impl Reach {
    /// Nothing is known of up to `hosts` (rounded up to a power of two); a sound uplink is heard by within `patience`
    /// nanoseconds.
    pub fn new(hosts: usize, patience: u64) -> Self {
        Reach { rows: Registers::new(hosts), patience, doubtful: 0 }
    }

    fn row(&self, now: Instant, host: RemoteHost) -> Option<&Row> {
        Some(self.rows.at(host.hash)).filter(|row| row.host == Some(host.address) && row.is_live(now))
    }

    /// Changes the host's row, if it has one.
    fn change<T>(&mut self, now: Instant, host: RemoteHost, change: impl FnOnce(&mut Row) -> T) -> Option<T> {
        self.row(now, host)?;
        let row = self.rows.at_mut(host.hash);
        self.doubtful -= u32::from(row.doubted != 0);
        let result = change(row);
        self.doubtful += u32::from(row.doubted != 0);
        Some(result)
    }

    /// A request or an answer for `host` leaves by `uplink` at `now`. Whether nothing has come by it since an earlier
    /// one, for as long as to tell something, or nothing is known.
    pub fn sent(&mut self, now: Instant, host: RemoteHost, uplink: usize) -> bool {
        let row = self.rows.at_mut(host.hash);
        if !row.is_live(now) {
            self.doubtful -= u32::from(row.doubted != 0);
            *row = Row { host: Some(host.address), used: now, ..Row::default() };
        }
        let patience = self.patience;
        let told = self.change(now, host, |row| {
            row.used = now;
            if row.unheard == 0 {
                row.since = now;
            }
            let silent = row.unheard & bit(uplink) != 0 && now.since(row.since) >= patience;
            row.unheard |= bit(uplink);
            silent
        });
        told.unwrap_or(true)
    }

    /// Something of the host came by `uplink`, or an answer to what was sent by it.
    pub fn heard(&mut self, now: Instant, host: RemoteHost, uplink: usize) {
        self.change(now, host, |row| {
            row.used = now;
            row.unheard &= !bit(uplink);
            row.doubted &= !bit(uplink);
        });
    }

    /// A flow to the host has had no answer to its request by `uplink`, for as long as it takes.
    pub fn in_vain(&mut self, now: Instant, host: RemoteHost, uplink: usize) {
        self.change(now, host, |row| {
            if row.doubted == 0 {
                row.tried = now;
            }
            row.doubted |= row.unheard & bit(uplink);
        });
    }

    /// Whether there is no doubt at all, about no host.
    #[inline]
    pub fn is_sure(&self) -> bool {
        self.doubtful == 0
    }

    /// The uplinks that are doubted to lead to the host, by number.
    pub fn doubted(&self, now: Instant, host: RemoteHost) -> u64 {
        self.row(now, host).map_or(0, |row| row.doubted)
    }

    /// Those that a request to the host leaves out: the doubted ones, or none when these are to be tried again.
    pub fn left_out(&mut self, now: Instant, host: RemoteHost) -> u64 {
        let left_out = self.change(now, host, |row| {
            if now.since(row.tried) < MEMORY {
                return row.doubted;
            }
            row.tried = now;
            0
        });
        left_out.unwrap_or(0)
    }

    /// `uplink` is gone or down, or leads elsewhere from now on. Looks through the whole table.
    pub fn forget(&mut self, uplink: usize) {
        let others = !bit(uplink);
        let mut doubtful = 0;
        self.rows.for_each(|row| {
            row.unheard &= others;
            row.doubted &= others;
            doubtful += u32::from(row.doubted != 0);
        });
        self.doubtful = doubtful;
    }

    /// All doubts at `now`. Looks through the whole table: for showing.
    pub fn doubts(&self, now: Instant) -> impl Iterator<Item = Doubt> {
        let doubted = self.rows.cells().iter().filter(move |row| row.doubted != 0 && row.is_live(now));
        doubted.filter_map(|row| Some(Doubt { host: row.host?, uplinks: row.doubted, since: row.tried }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000);

    fn host(number: u8, hash: u64) -> RemoteHost {
        RemoteHost { address: IpAddr::from([10, 0, 0, number]), hash }
    }

    /// Two that fall on one row.
    fn hosts() -> [RemoteHost; 2] {
        [host(1, 5), host(2, 5 + 64)]
    }

    fn reach() -> Reach {
        Reach::new(64, 100)
    }

    #[test]
    fn an_uplink_is_doubted_after_a_request_in_vain_until_something_comes_by_it() {
        let (mut reach, [host, _]) = (reach(), hosts());
        reach.in_vain(NOW, host, 63);
        assert_eq!(reach.doubted(NOW, host), 0, "nothing was sent by it");
        assert!(!reach.sent(NOW, host, 63));
        assert_eq!(reach.doubted(NOW, host), 0, "it may yet be answered");
        reach.in_vain(NOW, host, 63);
        assert_eq!((reach.doubted(NOW, host), reach.is_sure()), (1 << 63, false));
        reach.heard(NOW, host, 0);
        assert_eq!(reach.doubted(NOW, host), 1 << 63, "by another one");
        reach.heard(NOW, host, 63);
        assert_eq!((reach.doubted(NOW, host), reach.is_sure()), (0, true));
    }

    #[test]
    fn what_came_since_the_request_speaks_for_its_uplink() {
        let (mut reach, [host, _]) = (reach(), hosts());
        reach.sent(NOW, host, 1);
        reach.heard(NOW, host, 1);
        reach.in_vain(NOW, host, 1);
        assert!(reach.is_sure());
    }

    #[test]
    fn silence_tells_something_after_a_while() {
        let (mut reach, [host, _]) = (reach(), hosts());
        assert!(!reach.sent(NOW, host, 1) && !reach.sent(NOW + 99, host, 1));
        assert!(!reach.sent(NOW + 100, host, 0), "the first one by it");
        assert!(reach.sent(NOW + 100, host, 1));
        reach.heard(NOW, host, 0);
        reach.heard(NOW, host, 1);
        assert!(!reach.sent(NOW + 150, host, 1) && !reach.sent(NOW + 249, host, 1));
        assert!(reach.sent(NOW + 250, host, 1));
    }

    #[test]
    fn a_row_in_use_stays_and_of_who_falls_on_it_nothing_is_known() {
        let (mut reach, [host, other]) = (reach(), hosts());
        reach.sent(NOW, host, 0);
        reach.in_vain(NOW, host, 0);
        assert!(reach.sent(NOW, other, 0), "answered both ways");
        reach.in_vain(NOW, other, 0);
        reach.heard(NOW, other, 0);
        assert_eq!((reach.doubted(NOW, host), reach.doubted(NOW, other)), (1, 0));
        let later = NOW + MEMORY;
        assert_eq!(reach.doubted(later, host), 0, "not used for as long");
        assert!(!reach.sent(later, other, 0) && reach.is_sure());
        assert!(reach.sent(later, host, 0));
    }

    #[test]
    fn one_request_a_minute_tries_what_is_doubted() {
        let (mut reach, [host, _]) = (reach(), hosts());
        reach.sent(NOW, host, 2);
        reach.in_vain(NOW, host, 2);
        for minute in 1..4 {
            let (before, due) = (NOW + minute * MEMORY - 1, NOW + minute * MEMORY);
            reach.sent(before, host, 0);
            assert_eq!(reach.left_out(before, host), 1 << 2);
            reach.sent(due, host, 0);
            assert_eq!((reach.left_out(due, host), reach.left_out(due, host)), (0, 1 << 2));
            assert_eq!(reach.doubted(due, host), 1 << 2, "by other packets it is still avoided");
            assert_eq!(
                reach.doubts(due).map(|doubt| (doubt.uplinks, doubt.since)).collect::<Vec<_>>(),
                [(1 << 2, due)]
            );
        }
    }

    #[test]
    fn what_was_of_an_uplink_that_is_gone_is_forgotten() {
        let (mut reach, [a, _], b) = (reach(), hosts(), host(3, 9));
        for (host, uplinks) in [(a, [0, 1]), (b, [1, 2])] {
            uplinks.into_iter().for_each(|uplink| {
                reach.sent(NOW, host, uplink);
                reach.in_vain(NOW, host, uplink);
            });
        }
        reach.forget(1);
        assert_eq!([a, b].map(|host| reach.doubted(NOW, host)), [1, 1 << 2]);
        reach.in_vain(NOW, a, 1);
        assert_eq!(reach.doubted(NOW, a), 1, "nothing was sent by the new one");
        reach.forget(0);
        reach.forget(2);
        assert!(reach.is_sure());
    }
}
