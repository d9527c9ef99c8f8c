//! A switch on several workers as one: its pipes on one thread, each frame by any of them.

use weft::config::{HelloOptions, PortConfig, QueueOptions, SwitchConfig};
use weft::counters::{Ledger, PortCounters};
use weft::dataplane::{self, Dataplane};
use weft::fabric::Forwarding;
use weft::fabric::link::LinkView;
use weft::fabric::note::Note;
use weft::fabric::view::{NeighbourView, PathView, SchemeTable, StationView, Topic};
use weft::frame::{Burst, Pool};
use weft::id::{PortId, PortMask};
use weft::pisa::{DigestCounts, Handed, Pipe, TrafficManager};
use weft::rng::Rng;
use weft::runtime::exchange::{Exchange, Wake};
use weft::time::{Instant, earliest};

/// The pipes, which all use the caller's pool. What one hands to another is there at once.
pub struct Pipes {
    pub planes: Vec<Box<dyn Dataplane>>,
    exchanges: Vec<Exchange>,
    rng: Rng,
    one: Burst,
    /// To others: none.
    handing: Vec<Handed>,
}

impl Pipes {
    pub fn new(config: &SwitchConfig, mtus: &[u16], pipes: usize) -> Pipes {
        let wakes: Vec<Wake> = (0..pipes).map(|_| std::sync::Arc::new(|| ()) as Wake).collect();
        let exchanges = Exchange::mesh(&wakes);
        let build = |e: &Exchange| dataplane::build_pipe(config, mtus, e.pipe(), e.common());
        let planes = exchanges.iter().map(build).collect();
        Pipes { planes, exchanges, rng: Rng::new(7), one: Burst::new(), handing: vec![] }
    }

    /// All that is under way arrives.
    fn exchange(&mut self, now: Instant, pool: &mut Pool) {
        loop {
            let ends = self.exchanges.iter_mut().zip(&mut self.planes);
            ends.for_each(|(exchange, plane)| exchange.send(plane.as_mut(), pool));
            if !self.exchanges.iter().any(Exchange::has_mail) {
                break;
            }
            for (exchange, plane) in self.exchanges.iter_mut().zip(&mut self.planes) {
                exchange.receive(now, plane.as_mut(), pool);
            }
        }
    }

    fn each(&mut self, tell: impl FnMut(&mut Box<dyn Dataplane>)) {
        self.planes.iter_mut().for_each(tell);
    }
}

impl Dataplane for Pipes {
    fn receive(&mut self, now: Instant, port: PortId, pool: &mut Pool, burst: &mut Burst) {
        for frame in burst.drain() {
            let pipe = self.rng.below(self.planes.len() as u64) as usize;
            self.one.push(frame);
            self.planes[pipe].receive(now, port, pool, &mut self.one);
            // The next frame must not overtake what this one has led to.
            self.exchange(now, pool);
        }
    }
    fn transmit(&mut self, now: Instant, port: PortId, pool: &mut Pool, room: usize, out: &mut Burst) {
        let pipe = Pipe { index: 0, count: self.planes.len() as u8 }.owner(port);
        self.planes[usize::from(pipe)].transmit(now, port, pool, room, out);
        self.exchange(now, pool);
    }
    fn tick(&mut self, now: Instant, pool: &mut Pool) {
        self.each(|plane| plane.tick(now, pool));
        self.exchange(now, pool);
    }
    fn control(&mut self, now: Instant) {
        self.each(|plane| plane.control(now));
    }
    fn digests(&self) -> DigestCounts {
        self.planes[0].digests()
    }
    /// As the runtime puts the pipes' answers together: rows behind rows.
    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        let mut all: Vec<SchemeTable> = vec![];
        for table in self.planes.iter().flat_map(|plane| plane.show(now, topic)) {
            match all.iter_mut().find(|known| known.name == table.name) {
                Some(known) => {
                    assert!(!known.record, "{} is told of twice", table.name);
                    known.rows.extend(table.rows);
                }
                None => all.push(table),
            }
        }
        all
    }
    fn tick_deadline(&self) -> Option<Instant> {
        self.planes.iter().map(|plane| plane.tick_deadline()).fold(None, earliest)
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.planes.iter().map(|plane| plane.next_deadline()).fold(None, earliest)
    }
    fn backlog(&self) -> PortMask {
        self.planes.iter().fold(PortMask::EMPTY, |all, plane| all.or(plane.backlog()))
    }
    fn set_start(&mut self, number: u16) {
        self.each(|plane| plane.set_start(number));
    }
    fn set_port_up(&mut self, port: PortId, up: bool, pool: &mut Pool) {
        self.each(|plane| plane.set_port_up(port, up, pool));
    }
    fn is_port_up(&self, port: PortId) -> bool {
        self.planes[0].is_port_up(port)
    }
    fn add_port(&mut self, now: Instant, id: PortId, port: &PortConfig, queues: &QueueOptions, mtu: u16) {
        self.each(|plane| plane.add_port(now, id, port, queues, mtu));
    }
    fn set_port(&mut self, now: Instant, id: PortId, port: &PortConfig, queues: &QueueOptions, mtu: u16) {
        self.each(|plane| plane.set_port(now, id, port, queues, mtu));
    }
    fn remove_port(&mut self, now: Instant, id: PortId, pool: &mut Pool) {
        self.each(|plane| plane.remove_port(now, id, pool));
    }
    fn set_forwarding(&mut self, forwarding: &Forwarding) {
        self.each(|plane| plane.set_forwarding(forwarding));
    }
    fn set_hello(&mut self, options: &HelloOptions) {
        self.each(|plane| plane.set_hello(options));
    }
    fn handing(&mut self) -> &mut Vec<Handed> {
        &mut self.handing
    }
    fn accept(&mut self, now: Instant, pool: &mut Pool, handed: Handed) {
        self.planes[0].accept(now, pool, handed);
    }
    fn take_notes(&mut self, _: &mut Vec<Note>) {}
    fn note(&mut self, now: Instant, pool: &mut Pool, note: Note) {
        self.each(|plane| plane.note(now, pool, note.clone()));
    }
    fn drain(&mut self, now: Instant, pool: &mut Pool) {
        self.each(|plane| plane.drain(now, pool));
    }
    fn counters(&self, port: PortId) -> PortCounters {
        let mut all = PortCounters::default();
        self.planes.iter().for_each(|plane| all.add(&plane.counters(port)));
        all
    }
    fn ledger(&self) -> Ledger {
        let mut ledgers = self.planes.iter().map(|plane| plane.ledger());
        let mut all = ledgers.next().expect("a pipe");
        for Ledger { ports, removed, handed, accepted } in ledgers {
            for ((ours, queued), (theirs, more)) in all.ports.iter_mut().zip(ports) {
                ours.add(&theirs);
                *queued += more;
            }
            all.removed.add(&removed);
            (all.handed, all.accepted) = (all.handed + handed, all.accepted + accepted);
        }
        assert_eq!(all.handed, all.accepted, "something is under way between pipes");
        all
    }
    /// Those of the first pipe.
    fn queues(&self) -> &TrafficManager {
        self.planes[0].queues()
    }
    fn neighbours(&self, now: Instant) -> Vec<NeighbourView> {
        self.planes[0].neighbours(now)
    }
    fn stations(&self, now: Instant) -> Vec<StationView> {
        self.planes[0].stations(now)
    }
    fn paths(&self) -> Vec<PathView> {
        self.planes[0].paths()
    }
    fn live(&self) -> PortMask {
        self.planes[0].live()
    }
    fn link(&self, port: PortId) -> LinkView {
        self.planes[0].link(port)
    }
    fn reset_link(&mut self, port: PortId) {
        self.each(|plane| plane.reset_link(port));
    }
}
