//! A whole switch as its driver sees it, changed while it runs the way the runtime changes it, with books of
//! its own: after each step the switch's balance, every chunk is accounted for, nothing has left that its link
//! would not carry, and what is shown is what was told.

use std::collections::BTreeMap;

use weft::config::diff::{self, Command, Layout};
use weft::config::{HelloMode, PortConfig, QueueOptions, SwitchConfig};
use weft::counters::PortCounters;
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::frame::{BURST, Burst, Pool};
use weft::id::{PortId, PortKind, PortMask};
use weft::pisa::Queue;
use weft::time::{Instant, SECONDS};
use weft::wire::ethernet;

const CHUNK: usize = 2048;
/// Buffers for frames that do not fit a chunk: few, so that they run out.
const LARGE: usize = 6;
const LARGE_SIZE: usize = 9216 + 256;

/// What stands at a port's number: the interface that the switch was told of.
struct Wire {
    config: PortConfig,
    mtu: u16,
    /// Whether the interface is up and has carrier.
    up: bool,
    /// Longest frame that may leave: of the largest MTU since nothing waited.
    longest: usize,
}

impl Wire {
    fn new(config: &PortConfig, mtu: u16) -> Wire {
        Wire { config: config.clone(), mtu, up: true, longest: longest(config, mtu) }
    }

    fn is_in_service(&self) -> bool {
        self.up && self.config.enabled
    }
}

/// A packet of the MTU behind a header and one tag.
fn longest(config: &PortConfig, mtu: u16) -> usize {
    usize::from(config.mtu_on(mtu)) + ethernet::HEADER_LEN + ethernet::TAG_LEN
}

/// A switch under test.
pub struct Bench {
    pub switch: Box<dyn Dataplane>,
    pub pool: Pool,
    pub now: Instant,
    pub arrived: u64,
    pub config: SwitchConfig,
    layout: Layout,
    wires: Vec<Option<Wire>>,
    burst: Burst,
    left: u64,
}

impl Bench {
    /// The switch of `config` with a pool of `chunks`, every interface up and of `mtu`.
    pub fn new(config: SwitchConfig, mtu: u16, chunks: usize) -> Bench {
        let mut bench = Bench {
            switch: dataplane::build(&config, &vec![mtu; config.ports.len()]),
            pool: Pool::heap_with_large(chunks, CHUNK, LARGE, LARGE_SIZE),
            now: Instant(1_000_000_000),
            arrived: 0,
            layout: Layout::of(&config),
            wires: config.ports.iter().map(|p| Some(Wire::new(p, mtu))).collect(),
            config,
            burst: Burst::new(),
            left: 0,
        };
        for id in bench.ports() {
            bench.tell(id);
        }
        bench
    }

    /// The ports that there are.
    pub fn ports(&self) -> Vec<PortId> {
        (0..).map(PortId).zip(&self.wires).filter(|(_, wire)| wire.is_some()).map(|(id, _)| id).collect()
    }

    /// The `n`th port of those there are, counted round.
    pub fn nth(&self, n: usize) -> PortId {
        let ports = self.ports();
        ports[n % ports.len()]
    }

    fn wire(&mut self, id: PortId) -> &mut Wire {
        self.wires[id.index()].as_mut().expect("a port that is there")
    }

    /// The name of a port's interface.
    pub fn interface(&self, id: PortId) -> &str {
        let mut names = self.config.ports.iter().map(|p| p.interface.as_str());
        names.find(|name| self.layout.port(name) == Some(id)).expect("a port that is there")
    }

    /// Tells the switch whether a port is in service.
    fn tell(&mut self, id: PortId) {
        let up = self.wire(id).is_in_service();
        if up != self.switch.is_port_up(id) {
            self.switch.set_port_up(id, up, &mut self.pool);
        }
    }

    /// The interface of a port goes up or down.
    pub fn set_up(&mut self, id: PortId, up: bool) {
        self.wire(id).up = up;
        self.tell(id);
    }

    /// The interface of a port has another MTU.
    pub fn set_mtu(&mut self, id: PortId, mtu: u16) {
        let queues = self.config.queues;
        let wire = self.wire(id);
        wire.mtu = mtu;
        wire.longest = wire.longest.max(longest(&wire.config, mtu));
        let config = wire.config.clone();
        self.switch.set_port(self.now, id, &config, &queues, mtu);
    }

    /// The port was attached anew.
    pub fn reattach(&mut self, id: PortId) {
        self.switch.reset_link(id);
    }

    /// Becomes `new`, if that is valid and no restart is needed for it; new interfaces are of `mtu`.
    pub fn become_config(&mut self, new: SwitchConfig, mtu: u16) -> bool {
        if new.validate().is_err() {
            return false;
        }
        let Ok(plan) = diff::diff(&self.config, &self.layout, &new) else { return false };
        let forwarding = dataplane::forwarding(&new, plan.layout.routes(&new));
        self.config = new;
        self.layout = plan.layout;
        let queues = self.config.queues;
        for command in plan.commands {
            match command {
                Command::RemovePort(id) => {
                    assert!(self.wires[id.index()].take().is_some(), "{id} was not there");
                    self.switch.remove_port(self.now, id, &mut self.pool);
                }
                Command::AddPort(id, config) => {
                    let wire = Wire::new(&config, mtu);
                    self.switch.add_port(self.now, id, &config, &queues, mtu);
                    assert_eq!(self.switch.counters(id), PortCounters::default(), "{id} starts anew");
                    match self.wires.get_mut(id.index()) {
                        Some(free) => assert!(free.replace(wire).is_none(), "{id} is taken"),
                        None => self.wires.push(Some(wire)),
                    }
                    self.switch.reset_link(id);
                    self.tell(id);
                }
                Command::SetPort(id, config) => {
                    let wire = self.wire(id);
                    wire.longest = wire.longest.max(longest(&config, wire.mtu));
                    wire.config = config.clone();
                    let mtu = wire.mtu;
                    self.switch.set_port(self.now, id, &config, &queues, mtu);
                    self.tell(id);
                }
                Command::SetQueues(queues) => self.set_queues(&queues),
                Command::SetHello(hello) => self.switch.set_hello(&hello),
                Command::SetForwarding => self.switch.set_forwarding(&forwarding),
            }
        }
        self.check_told();
        true
    }

    fn set_queues(&mut self, queues: &QueueOptions) {
        for (i, wire) in self.wires.iter().enumerate() {
            if let Some(Wire { config, mtu, .. }) = wire {
                self.switch.set_port(self.now, PortId(i as u8), config, queues, *mtu);
            }
        }
    }

    /// A burst of `count` frames that differ in their last byte.
    pub fn receive(&mut self, port: PortId, frame: &[u8], count: usize) {
        for i in 0..count {
            let Some(mut arriving) = self.pool.alloc_with(frame) else { break };
            if i > 0
                && let Some(last) = arriving.last_mut()
            {
                *last = last.wrapping_add(i as u8);
            }
            self.burst.push(arriving);
            self.arrived += 1;
        }
        self.switch.receive(self.now, port, &mut self.pool, &mut self.burst);
        assert!(self.burst.is_empty());
    }

    /// What a port sends when it has `room`.
    pub fn transmit(&mut self, port: PortId, room: usize) {
        self.switch.transmit(self.now, port, &mut self.pool, room, &mut self.burst);
        assert!(self.burst.len() <= room, "{} frames for room of {room}", self.burst.len());
        self.left += self.burst.len() as u64;
        let wire = self.wires[port.index()].as_mut();
        let may = wire.as_ref().is_some_and(|wire| wire.is_in_service());
        assert!(may || self.burst.is_empty(), "{} frames left by port {port}, which is no more", self.burst.len());
        let Some(wire) = wire else { return };
        for frame in self.burst.drain() {
            let longest = wire.longest;
            assert!(frame.len() >= ethernet::HEADER_LEN && frame.len() <= longest, "{} over {longest}", frame.len());
            self.pool.free(frame);
        }
        if !self.switch.backlog().contains(port) {
            wire.longest = longest(&wire.config, wire.mtu);
        }
    }

    /// What every port may send now, also those that are gone.
    pub fn transmit_all(&mut self) {
        for port in (0..self.wires.len()).map(|i| PortId(i as u8)) {
            self.transmit(port, BURST);
        }
    }

    /// Wakes at deadlines for two seconds, or a hundred times.
    pub fn settle(&mut self) {
        let end = self.now + 2 * SECONDS;
        for _ in 0..100 {
            self.switch.tick(self.now, &mut self.pool);
            self.transmit_all();
            match self.switch.next_deadline() {
                Some(due) if due <= end => self.now = self.now.max(due),
                _ => break,
            }
        }
    }

    /// Holds the switch to its books, and what it shows to what it was told.
    pub fn check(&self) {
        let ledger = self.switch.ledger();
        ledger.check().unwrap_or_else(|e| panic!("{e}"));
        let sum = |of: fn(&PortCounters) -> u64| ledger.entries().map(|(c, _)| of(c)).sum::<u64>();
        assert_eq!(sum(|c| c.rx), self.arrived);
        assert_eq!(sum(|c| c.tx), self.left);
        let queued: u64 = ledger.entries().map(|(_, queued)| queued).sum();
        let inside = queued + sum(|c| c.held);
        let out = self.pool.out_count() + self.pool.large() - self.pool.large_free_count();
        assert_eq!(out as u64, inside, "chunks out, but queued and held");
        self.check_ports();
    }

    fn check_ports(&self) {
        let (live, backlog) = (self.switch.live(), self.switch.backlog());
        let mut present = PortMask::EMPTY;
        for (id, wire) in (0..).map(PortId).zip(&self.wires) {
            let Some(wire) = wire else {
                assert!(!backlog.contains(id) && !live.contains(id), "port {id} is no more, but waits or lives");
                assert_eq!(self.switch.counters(id), PortCounters::default(), "port {id} is no more, but counts");
                continue;
            };
            present = present.with(id);
            let (up, link) = (wire.is_in_service(), self.switch.link(id));
            assert_eq!(self.switch.is_port_up(id), up, "port {id}");
            assert_eq!(live.contains(id), link.live, "port {id}: {link:?}");
            let silent = wire.config.kind == PortKind::Host
                || wire.config.hello == HelloMode::Off
                || self.config.hello.interval.0 == 0;
            match () {
                () if !up => assert!(!link.live && !backlog.contains(id), "port {id} is down: {link:?}"),
                () if silent => assert!(link.live, "port {id} is up and has no hellos: {link:?}"),
                () => {}
            }
            self.check_pace(id, wire);
        }
        assert_eq!(live.and(present), live, "what lives is there");
    }

    /// Whatever the rate was when a frame left, the next one waits no longer than the rate now takes for it.
    fn check_pace(&self, id: PortId, wire: &Wire) {
        let Some(due) = self.switch.queues().port_deadline(id) else { return };
        let bits = (LARGE_SIZE + ethernet::WIRE_OVERHEAD) as u64 * 8;
        let longest = (bits * SECONDS).checked_div(wire.config.rate.0).unwrap_or(0);
        assert!(due.since(self.now) <= longest + 1, "port {id} waits until {due:?} at {:?}", wire.config.rate);
    }

    /// Routes, rates and queues are as the configuration says, ports by their interfaces.
    fn check_told(&self) {
        let names = |ports: Vec<PortId>| {
            let mut names: Vec<_> = ports.into_iter().map(|p| self.interface(p).to_string()).collect();
            names.sort();
            names
        };
        let shown: BTreeMap<_, _> = (self.switch.paths().into_iter().filter(|path| !path.connected))
            .map(|path| {
                assert!(path.serving.iter().all(|p| self.switch.live().contains(*p)), "{path:?}");
                (path.prefix, names(path.priorities.into_iter().flatten().collect()))
            })
            .collect();
        let config = &self.config;
        let told: BTreeMap<_, _> = (config.routes.iter())
            .map(|r| {
                let mut names: Vec<_> = r.ports.iter().map(|p| config.ports[p.index()].interface.clone()).collect();
                names.sort();
                (r.prefix, names)
            })
            .collect();
        assert_eq!(shown, told, "routes");
        assert_eq!(self.ports().len(), config.ports.len());
        for id in self.ports() {
            let port = &config.ports[config.port(self.interface(id)).expect("of that name").index()];
            assert_eq!(self.wires[id.index()].as_ref().map(|wire| &wire.config), Some(port));
            assert_eq!(self.switch.queues().rate(id), port.rate);
            let depth = self.switch.queues().depth(id, Queue::Data);
            assert!(depth.packets <= depth.peak_packets);
        }
    }

    /// The end: nothing is left inside.
    pub fn finish(mut self) {
        self.settle();
        self.check();
        self.switch.drain(self.now, &mut self.pool);
        self.check();
        assert_eq!(self.pool.out_count(), 0, "chunks are out of a drained switch");
        assert_eq!(self.pool.large_free_count(), self.pool.large(), "buffers are out of a drained switch");
        self.check_slots();
        self.switch.drain(self.now, &mut self.pool);
    }

    /// What frames were dropped for, or nobody came to use, is reserved no more an hour after.
    fn check_slots(&mut self) {
        self.now = self.now + 3600 * SECONDS;
        self.switch.tick(self.now, &mut self.pool);
        let shown = self.switch.show(self.now, Topic::Slots);
        for table in shown.iter().filter(|table| table.name == "slots") {
            for row in &table.rows {
                let busy = (table.columns.iter().zip(row))
                    .any(|(column, cell)| ["in", "out", "queued", "pending"].contains(column) && *cell != Cell::Int(0));
                assert!(!busy, "slots of a drained switch: {:?}: {row:?}", table.columns);
            }
        }
    }
}
