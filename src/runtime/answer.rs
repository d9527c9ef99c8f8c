//! A worker's answers to the control socket, put together between two passes, so that they are
//! consistent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::control::Show;
use crate::counters::Drops;
use crate::fabric::view::{Cell, PathView, SchemeTable, Topic};
use crate::id::{PortId, PortKind};
use crate::pisa::Queue;
use crate::time::{Instant, MILLIS};

use serde_json::{Map, Value};

use super::clock::now;
use super::control::Ask;
use super::report::{
    Body, DropsReport, LinkReport, NeighbourReport, PathReport, PortReport, QueueReport, Report, StationReport, Totals,
    UmemReport, WorkerReport, drop_map,
};
use super::slot::PortSlot;
use super::worker::{Running, Worker};

impl Worker {
    /// The answer to one request.
    pub(super) fn report(&self, ask: &Ask) -> Report {
        let r = &self.switches[ask.switch];
        Report::of(&r.config, self.body(r, ask.show))
    }

    fn body(&self, r: &Running, show: Show) -> Body {
        let now = now();
        match show {
            Show::Ports => {
                let ports: Vec<_> = r.slots().map(|(id, slot)| r.port(id, slot)).collect();
                let ledger = r.plane.ledger();
                let (mut removed, mut total) = (Totals::default(), Totals::default());
                removed.add(&ledger.removed, 0);
                for (counters, queued) in ledger.entries() {
                    total.add(counters, queued);
                }
                total.hand_over(ledger.handed, ledger.accepted);
                Body::Ports { ports, removed, total }
            }
            Show::Queues => Body::Queues { queues: r.queues() },
            Show::Drops => Body::Drops { drops: r.drops() },
            Show::Umem => Body::Umem { umem: r.umem() },
            Show::Paths => Body::Paths { paths: r.paths(), scheme: r.tables(now, Topic::Paths) },
            Show::Meters => Body::Scheme(r.scheme(now, show, Topic::Meters)),
            Show::Groups => Body::Scheme(r.scheme(now, show, Topic::Groups)),
            Show::Flows => Body::Scheme(r.scheme(now, show, Topic::Flows)),
            Show::Dre => Body::Scheme(r.scheme(now, show, Topic::Dre)),
            Show::Pat => Body::Scheme(r.scheme(now, show, Topic::Pat)),
            Show::Failures => Body::Scheme(r.scheme(now, show, Topic::Failures)),
            Show::Slots => Body::Scheme(r.scheme(now, show, Topic::Slots)),
            Show::Workers => {
                let slots = self.switches.iter().flat_map(Running::slots);
                let kicks = slots.map(|(_, slot)| slot.stats().tx_kicks).sum();
                let worker = WorkerReport {
                    id: self.id,
                    core: self.core,
                    poll: self.poll.to_string(),
                    switches: self.switches.len(),
                    loops: self.stats.loops,
                    idle_loops: self.stats.idle_loops,
                    sleeps: self.stats.sleeps,
                    frames: self.stats.frames,
                    kicks,
                };
                Body::Workers { workers: vec![worker] }
            }
            Show::Neighbours => {
                let neighbours = r.plane.neighbours(now).into_iter().map(|n| NeighbourReport {
                    address: n.address,
                    mac: n.mac,
                    port: n.port.map(|p| r.name(p)),
                    age_ms: n.age_ms,
                    probes: n.probes,
                    waiting: n.waiting,
                });
                let stations = r.plane.stations(now).into_iter().map(|s| StationReport {
                    mac: s.mac,
                    port: r.name(s.port),
                    age_ms: s.age_ms,
                });
                Body::Neighbours { neighbours: neighbours.collect(), stations: stations.collect() }
            }
        }
    }
}

/// The JSON of what a scheme shows, by its name: an array of objects, of a record the object. `name` gives a port's.
fn table(shown: SchemeTable, name: &dyn Fn(PortId) -> String) -> (String, Value) {
    fn value(cell: Cell, name: &dyn Fn(PortId) -> String) -> Value {
        match cell {
            Cell::None => Value::Null,
            Cell::Int(n) => n.into(),
            Cell::Float(x) => x.into(),
            Cell::Bool(is_so) => is_so.into(),
            Cell::Text(word) => word.into(),
            Cell::Port(port) => name(port).into(),
            Cell::Ports(ports) => ports.iter().map(name).collect(),
            Cell::List(cells) => cells.into_iter().map(|cell| value(cell, name)).collect(),
        }
    }
    let SchemeTable { name: word, columns, rows, record } = shown;
    let row = |cells: Vec<Cell>| -> Value {
        let cells = cells.into_iter().map(|cell| value(cell, name));
        columns.iter().map(|c| c.to_string()).zip(cells).collect::<Map<_, _>>().into()
    };
    let mut rows = rows.into_iter().map(row);
    let shown = if record { rows.next().unwrap_or_default() } else { rows.collect() };
    (word.to_string(), shown)
}

impl Running {
    /// The ports that there are.
    fn slots(&self) -> impl Iterator<Item = (PortId, &PortSlot)> {
        let slots = self.ports.iter().enumerate();
        slots.filter_map(|(i, slot)| Some((PortId(i as u8), slot.as_ref()?)))
    }

    /// Where the switch's frame memory is.
    pub(super) fn umem(&self) -> UmemReport {
        let pool = &self.pool;
        let held = self.slots().map(|(_, slot)| slot.held()).sum::<usize>() + self.closing;
        let in_queues = self.plane.ledger().entries().map(|(c, queued)| queued + c.held).sum::<u64>() as usize;
        let (chunks, free, large, large_free) =
            (pool.chunks(), pool.free_count(), pool.large(), pool.large_free_count());
        UmemReport {
            chunks,
            capacity: pool.capacity(),
            free,
            large,
            large_free,
            held,
            in_queues,
            balanced: chunks + large == free + large_free + held + in_queues,
        }
    }

    /// What the scheme shows of `topic`, by the tables' names.
    fn tables(&self, now: Instant, topic: Topic) -> Map<String, Value> {
        self.plane.show(now, topic).into_iter().map(|shown| table(shown, &|port| self.name(port))).collect()
    }

    /// The same, with `null` by the word that was asked with if the switch keeps no such thing.
    fn scheme(&self, now: Instant, show: Show, topic: Topic) -> Map<String, Value> {
        // The word that was asked with is there whatever the scheme.
        let mut all = Map::from_iter([(show.to_string(), Value::Null)]);
        all.extend(self.tables(now, topic));
        all
    }

    fn name(&self, port: PortId) -> String {
        let slot = self.ports.get(port.index()).and_then(Option::as_ref);
        slot.map_or_else(|| format!("#{port}"), |slot| slot.config.interface.clone())
    }

    fn port(&self, id: PortId, slot: &PortSlot) -> PortReport {
        let config = &slot.config;
        let c = self.plane.counters(id);
        let link = self.plane.link(id);
        PortReport {
            port: config.interface.clone(),
            id,
            kind: config.kind,
            state: if link.live { "up".into() } else { "down".into() },
            reason: slot.out_of_service().or_else(|| (!link.live).then(|| link.why.text().into())).map(Cow::into_owned),
            link: (config.kind != PortKind::Host).then(|| LinkReport {
                hello: link.mode,
                state: link.state.name().into(),
                why: link.why.text().into(),
                peer_switch: link.peer.map(|p| p.switch),
                peer_port: link.peer.map(|p| p.port),
                age_ms: now().since(link.since) / MILLIS,
            }),
            mode: config.mode,
            rate: self.plane.queues().rate(id),
            mtu: config.mtu_on(slot.mtu()),
            mac: slot.device.mac,
            rx: c.rx,
            rx_bytes: c.rx_bytes,
            tx: c.tx,
            tx_bytes: c.tx_bytes,
            generated: c.generated,
            forwarded: c.forwarded,
            consumed: c.consumed,
            held: c.held,
            enqueued: c.enqueued,
            queued: self.plane.queues().queued(id),
            drops: c.drops().total(),
            ingress_drops: drop_map(&c.ingress_drops),
            egress_drops: drop_map(&c.egress_drops),
            device: slot.stats(),
            faults: slot.faults(),
        }
    }

    fn queues(&self) -> Vec<QueueReport> {
        let tm = self.plane.queues();
        let all = self.slots().flat_map(|(id, _)| Queue::ALL.map(|queue| (id, queue)));
        let report = |(id, queue): (PortId, Queue)| {
            let d = tm.depth(id, queue);
            QueueReport {
                port: self.name(id),
                queue: queue.name().into(),
                packets: d.packets,
                bytes: d.bytes,
                peak_packets: d.peak_packets,
                peak_bytes: d.peak_bytes,
                enqueued: d.enqueued,
                dropped: d.dropped,
                ecn_marked: if queue == Queue::Data { tm.ecn_marked(id) } else { 0 },
            }
        };
        all.map(report).collect()
    }

    fn drops(&self) -> DropsReport {
        let mut all = Drops::default();
        let mut by_port = BTreeMap::new();
        all.add(&self.plane.ledger().removed.drops());
        for (id, slot) in self.slots() {
            let drops = self.plane.counters(id).drops();
            all.add(&drops);
            if drops.total() > 0 {
                by_port.insert(slot.config.interface.clone(), drop_map(&drops));
            }
        }
        DropsReport { total: all.total(), by_reason: drop_map(&all), by_port }
    }

    fn paths(&self) -> Vec<PathReport> {
        let names = |ports: &[PortId]| ports.iter().map(|p| self.name(*p)).collect::<Vec<_>>();
        let report = |p: PathView| PathReport {
            prefix: p.prefix.to_string(),
            connected: p.connected,
            priorities: p.priorities.iter().map(|ports| names(ports)).collect(),
            serving: p.serving.iter().map(|id| (self.name(*id), self.plane.counters(*id).tx)).collect(),
        };
        self.plane.paths().into_iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PortMask;
    use serde_json::json;

    #[test]
    fn rows_are_an_array_of_objects_and_a_record_is_one_object_with_values_of_their_own_types() {
        let name = |port: PortId| format!("p{port}");
        let list = Cell::List(vec![Cell::Int(4), "failed".into(), Cell::None]);
        let shown = SchemeTable::table(
            "ways",
            &["to", "links", "ok"],
            vec![vec![Cell::Port(PortId(2)), list, Cell::Bool(true)]],
        );
        let expected = json!([{"to": "p2", "links": [4, "failed", null], "ok": true}]);
        assert_eq!(table(shown, &name), ("ways".into(), expected));
        assert_eq!(table(SchemeTable::table("ways", &["to"], vec![]), &name).1, json!([]));

        let ports = Cell::Ports(PortMask(0b101));
        let shown = SchemeTable::record("counts", [("sent", Cell::Int(7)), ("by", ports)]);
        assert_eq!(table(shown, &name), ("counts".into(), json!({"sent": 7, "by": ["p0", "p2"]})));
    }
}
