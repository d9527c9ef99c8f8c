//! One report of what the pipes of a switch told each for itself. What is counted is added up; the laws
//! that hold in every pipe hold in the sum, although the pipes were not asked at the same moment.

use std::collections::BTreeMap;

use serde_json::map::Entry;
use serde_json::{Map, Value};

use super::report::{Body, DropMap, PortReport, Report, UmemReport};

fn add_drops(to: &mut DropMap, from: DropMap) {
    for (reason, n) in from {
        *to.entry(reason).or_default() += n;
    }
}

/// Adds the rows of each table. A record is of one pipe, which tells it for all
/// ([`crate::fabric::view::SchemeTable::record`]), and what one pipe does not keep, none does.
fn add_tables(to: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, theirs) in from {
        match to.entry(name) {
            Entry::Vacant(free) => _ = free.insert(theirs),
            Entry::Occupied(mut there) => {
                if let (Value::Array(ours), Value::Array(rows)) = (there.get_mut(), theirs) {
                    ours.extend(rows);
                }
            }
        }
    }
}

impl PortReport {
    fn add(&mut self, other: PortReport) {
        self.rx += other.rx;
        self.rx_bytes += other.rx_bytes;
        self.tx += other.tx;
        self.tx_bytes += other.tx_bytes;
        self.generated += other.generated;
        self.forwarded += other.forwarded;
        self.consumed += other.consumed;
        self.held += other.held;
        self.enqueued += other.enqueued;
        self.queued += other.queued;
        self.drops += other.drops;
        add_drops(&mut self.ingress_drops, other.ingress_drops);
        add_drops(&mut self.egress_drops, other.egress_drops);
        self.device.add(&other.device);
        if let Some(theirs) = other.faults {
            self.faults.get_or_insert_default().add(&theirs);
        }
    }
}

impl UmemReport {
    fn add(&mut self, other: &UmemReport) {
        self.chunks += other.chunks;
        self.free += other.free;
        self.large += other.large;
        self.large_free += other.large_free;
        self.held += other.held;
        self.in_queues += other.in_queues;
        self.balanced = self.chunks + self.large == self.free + self.large_free + self.held + self.in_queues;
    }
}

/// Adds what belongs to the same thing, by its key, and keeps the rest, in the order of the keys.
fn join<T, K: Ord>(ours: Vec<T>, theirs: Vec<T>, key: impl Fn(&T) -> K, mut add: impl FnMut(&mut T, T)) -> Vec<T> {
    let mut all: BTreeMap<K, T> = BTreeMap::new();
    for item in ours.into_iter().chain(theirs) {
        match all.entry(key(&item)) {
            std::collections::btree_map::Entry::Occupied(mut there) => add(there.get_mut(), item),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(item);
            }
        }
    }
    all.into_values().collect()
}

impl Report {
    /// This report with that of another pipe of the same switch. Both answer the same question.
    pub(super) fn merge(self, other: Report) -> Report {
        let body = match (self.body, other.body) {
            (
                Body::Ports { ports, mut removed, mut total },
                Body::Ports { ports: theirs, removed: their_removed, total: their_total },
            ) => {
                removed.merge(&their_removed);
                total.merge(&their_total);
                Body::Ports { ports: join(ports, theirs, |p| p.id, PortReport::add), removed, total }
            }
            (Body::Queues { queues }, Body::Queues { queues: theirs }) => {
                let order: Vec<_> = queues.iter().map(|q| (q.port.clone(), q.queue.clone())).collect();
                let place = |q: &super::report::QueueReport| {
                    let at = order.iter().position(|(port, queue)| *port == q.port && *queue == q.queue);
                    (at.unwrap_or(order.len()), q.port.clone(), q.queue.clone())
                };
                let queues = join(queues, theirs, place, |ours, theirs| {
                    ours.packets += theirs.packets;
                    ours.bytes += theirs.bytes;
                    ours.peak_packets = ours.peak_packets.max(theirs.peak_packets);
                    ours.peak_bytes = ours.peak_bytes.max(theirs.peak_bytes);
                    ours.enqueued += theirs.enqueued;
                    ours.dropped += theirs.dropped;
                    ours.ecn_marked += theirs.ecn_marked;
                });
                Body::Queues { queues }
            }
            (Body::Drops { mut drops }, Body::Drops { drops: theirs }) => {
                drops.total += theirs.total;
                add_drops(&mut drops.by_reason, theirs.by_reason);
                for (port, theirs) in theirs.by_port {
                    add_drops(drops.by_port.entry(port).or_default(), theirs);
                }
                Body::Drops { drops }
            }
            (Body::Workers { mut workers }, Body::Workers { workers: theirs }) => {
                workers.extend(theirs);
                Body::Workers { workers }
            }
            (Body::Umem { mut umem }, Body::Umem { umem: theirs }) => {
                umem.add(&theirs);
                Body::Umem { umem }
            }
            (Body::Paths { mut paths, mut scheme }, Body::Paths { paths: theirs, scheme: their_scheme }) => {
                for (ours, theirs) in paths.iter_mut().zip(theirs) {
                    for (port, sent) in theirs.serving {
                        *ours.serving.entry(port).or_default() += sent;
                    }
                }
                add_tables(&mut scheme, their_scheme);
                Body::Paths { paths, scheme }
            }
            (
                Body::Neighbours { neighbours, stations },
                Body::Neighbours { neighbours: theirs, stations: their_stations },
            ) => {
                // What one knows better, it heard itself.
                let neighbours = join(
                    neighbours,
                    theirs,
                    |n| n.address,
                    |ours, theirs| {
                        let waiting = ours.waiting + theirs.waiting;
                        if ours.mac.is_none() || theirs.age_ms.is_some_and(|age| Some(age) < ours.age_ms) {
                            *ours = theirs;
                        }
                        ours.waiting = waiting;
                    },
                );
                let stations = join(
                    stations,
                    their_stations,
                    |s| s.mac,
                    |ours, theirs| {
                        if theirs.age_ms < ours.age_ms {
                            *ours = theirs;
                        }
                    },
                );
                Body::Neighbours { neighbours, stations }
            }
            (Body::Scheme(mut tables), Body::Scheme(theirs)) => {
                add_tables(&mut tables, theirs);
                Body::Scheme(tables)
            }
            (ours, _) => ours,
        };
        Report { body, ..self }
    }
}
