use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use super::Fabric;
use crate::id::Role;
use crate::units::BitRate;

/// Names that a remedy offers at most.
const OFFERED: usize = 8;

/// One link that is not like the others of the shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkException {
    /// Name of the switch or host at one end.
    pub a: String,
    /// Name of the one at the other end; either may be the upper.
    pub b: String,
    /// What is different.
    pub change: LinkChange,
}

/// What is different about a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkChange {
    /// Its rate, in each direction; 0 = unlimited.
    Rate(BitRate),
    /// It is not there. Switches only: a host has no other.
    Absent,
}

impl fmt::Display for LinkException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.a, self.b)
    }
}

/// Why an exception can't be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkProblem {
    /// Its place in the list of exceptions.
    pub index: usize,
    /// The part of it that is wrong: `a`, `b` or `absent`, the keys of the file.
    pub key: &'static str,
    /// The link, the cause, the remedy.
    pub message: String,
}

impl fmt::Display for LinkProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The exceptions while a fabric is built: found by the two ends, and whether they were.
pub(super) struct Exceptions<'a> {
    list: &'a [LinkException],
    by_ends: BTreeMap<[&'a str; 2], usize>,
    /// Those that met their link.
    taken: Vec<bool>,
    problems: Vec<LinkProblem>,
}

impl<'a> Exceptions<'a> {
    pub(super) fn of(list: &'a [LinkException]) -> Exceptions<'a> {
        let taken = vec![false; list.len()];
        let mut exceptions = Exceptions { list, by_ends: BTreeMap::new(), taken, problems: vec![] };
        for (i, exception) in list.iter().enumerate() {
            match exceptions.by_ends.entry(ends(&exception.a, &exception.b)) {
                Entry::Vacant(entry) => {
                    entry.insert(i);
                }
                Entry::Occupied(first) => {
                    let cause = format!("is link number {} already: make it one", first.get() + 1);
                    exceptions.problems.push(problem(i, "a", exception, &cause));
                }
            }
        }
        exceptions
    }

    /// What is different about the link between `a` and `b`.
    pub(super) fn take(&mut self, a: &str, b: &str) -> Option<LinkChange> {
        let index = *self.by_ends.get(&ends(a, b))?;
        self.taken[index] = true;
        Some(self.list[index].change)
    }

    /// What is wrong with the exceptions, now that all links of `fabric` have been asked for; by index.
    pub(super) fn problems(mut self, fabric: &Fabric) -> Vec<LinkProblem> {
        for index in self.by_ends.values().copied() {
            let exception = &self.list[index];
            let LinkException { a, b, change } = exception;
            let known = |name: &str| fabric.switch(name).is_some() || fabric.host(name).is_some();
            let (key, cause) = match (self.taken[index], change) {
                (true, LinkChange::Absent) if fabric.host(a).is_some() || fabric.host(b).is_some() => {
                    ("absent", "absent would leave a host without its one link: write a rate instead".into())
                }
                (true, _) => continue,
                (false, _) if !known(a) => ("a", unknown(a, fabric)),
                (false, _) if !known(b) => ("b", unknown(b, fabric)),
                (false, _) => ("b", format!("the shape has no such link: {}", self.neighbours(a, fabric))),
            };
            self.problems.push(problem(index, key, exception, &cause));
        }
        self.problems.sort_by_key(|problem| problem.index);
        self.problems
    }

    /// `tor0-0 has links to h0-0-2, agg0-0`, those left out included.
    fn neighbours(&self, name: &str, fabric: &Fabric) -> String {
        let links = fabric.links.iter().map(|link| (link.a.node.as_str(), link.b.node.as_str()));
        let absent = self.by_ends.iter().filter(|(_, index)| self.taken[**index]).map(|(&[a, b], _)| (a, b));
        let mut others: Vec<_> = links
            .chain(absent)
            .filter_map(|(a, b)| match () {
                () if a == name => Some(b),
                () if b == name => Some(a),
                () => None,
            })
            .collect();
        others.sort_unstable();
        others.dedup();
        let more = if others.len() > OFFERED { ", ..." } else { "" };
        others.truncate(OFFERED);
        format!("{name} has links to {}{more}", others.join(", "))
    }
}

fn ends<'n>(a: &'n str, b: &'n str) -> [&'n str; 2] {
    if a <= b { [a, b] } else { [b, a] }
}

fn problem(index: usize, key: &'static str, link: &LinkException, cause: &str) -> LinkProblem {
    LinkProblem { index, key, message: format!("link \"{link}\": {cause}") }
}

fn unknown(name: &str, fabric: &Fabric) -> String {
    let tier = |role| fabric.switches.iter().filter(move |s| s.role() == role).map(|s| s.name());
    let hosts = fabric.hosts.iter().map(|h| h.name.as_str());
    let ranges = [range(tier(Role::Tor)), range(tier(Role::Agg)), range(tier(Role::Core)), range(hosts)];
    let ranges: Vec<_> = ranges.into_iter().flatten().collect();
    format!("the fabric has no `{name}`: write one of {}", ranges.join(", "))
}

/// `core0 to core3`.
fn range<'n>(mut names: impl Iterator<Item = &'n str>) -> Option<String> {
    let first = names.next()?;
    Some(names.last().map_or_else(|| first.into(), |last| format!("{first} to {last}")))
}
