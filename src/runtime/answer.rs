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
        let value = |cell: Cell| match cell {
            Cell::None => Value::Null,
            Cell::Int(n) => n.into(),
            Cell::Float(x) => x.into(),
            Cell::Bool(is_so) => is_so.into(),
            Cell::Text(word) => word.into(),
            Cell::Port(port) => self.name(port).into(),
            Cell::Ports(ports) => ports.iter().map(|p| self.name(p)).collect(),
        };
        let row = |columns: &[&str], row: Vec<Cell>| -> Value {
            columns.iter().map(|c| c.to_string()).zip(row.into_iter().map(value)).collect::<Map<_, _>>().into()
        };
        let table = |SchemeTable { name, columns, rows }: SchemeTable| {
            (name.to_string(), rows.into_iter().map(|cells| row(columns, cells)).collect())
        };
        self.plane.show(now, topic).into_iter().map(table).collect()
    }

    /// The same, with an empty table by the word that was asked with if there is nothing.
    fn scheme(&self, now: Instant, show: Show, topic: Topic) -> Map<String, Value> {
        // The word that was asked with is there whatever the scheme.
        let mut all = Map::from_iter([(show.to_string(), Value::Array(Vec::new()))]);
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
