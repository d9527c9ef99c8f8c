//! A fabric in virtual time: switches and hosts, the links between them, and one queue of events.
//!
//! The switches are the ones that run on real ports. A link takes each frame when its sender's pacer
//! lets it go, carries it for the time its bits take and the light needs, and hands it over whole.
//! Everything is a function of the fabric and of what the test does: events at one time happen in the
//! order in which they were caused, and no clock, thread or map order has a say.

use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

use weft::counters::{DropReason, Drops};
use weft::dataplane::{self, Dataplane};
use weft::fabric::link::LinkView;
use weft::frame::{Burst, Frame, Pool};
use weft::id::PortId;
use weft::pisa::tm::Pacer;
use weft::time::{Instant, SECONDS};
use weft::topo::Fabric;
use weft::units::BitRate;
use weft::wire::ethernet::{MIN_FRAME, WIRE_OVERHEAD};

use crate::host::Host;
use crate::packets;

/// Time a bit takes through any link, ns: 100 m of fibre.
pub const PROPAGATION: u64 = 500;

/// Nanoseconds that a frame of `len` bytes occupies a link of `rate`.
pub fn serialization(len: usize, rate: BitRate) -> u64 {
    let bits = (len.max(MIN_FRAME) + WIRE_OVERHEAD) as u64 * 8;
    (bits * SECONDS).checked_div(rate.0).unwrap_or(0)
}

enum What {
    Arrive(PortId, Frame),
    Wake,
}

struct Event {
    at: Instant,
    /// Events caused before this one.
    number: u64,
    node: usize,
    what: What,
}

impl Ord for Event {
    /// The earliest first, as a binary heap has it: greatest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

/// One end of a link.
struct Attachment {
    peer: usize,
    peer_port: PortId,
    rate: BitRate,
    up: bool,
    /// Whether what arrives here is lost, unseen by either end.
    deaf: bool,
}

enum Kind {
    Switch(Box<dyn Dataplane>),
    Host(Host, Box<Pacer>),
}

struct Node {
    kind: Kind,
    ports: Vec<Attachment>,
    /// The earliest wake-up that is in the queue.
    wake: Option<Instant>,
}

/// The whole network.
pub struct Network {
    pub now: Instant,
    nodes: Vec<Node>,
    by_name: BTreeMap<String, usize>,
    names: Vec<String>,
    events: BinaryHeap<Event>,
    caused: u64,
    pool: Pool,
    burst: Burst,
    /// Frames that arrived anywhere.
    pub arrivals: u64,
    /// FNV-1a over time, place and bytes of every arrival.
    pub trace: u64,
    /// Frames that were on a link when it went down, or whose receiver was deaf.
    pub cut: u64,
    /// The switches that UDP packets came by, by source and destination port.
    pub paths: BTreeMap<(u16, u16), Vec<String>>,
}

impl Network {
    /// The switches and hosts of `fabric`, all links up, at time 0.
    pub fn new(fabric: &Fabric) -> Network {
        let switch = |s: &weft::topo::Switch| {
            let mtus: Vec<u16> = s.config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
            (s.name().to_string(), Kind::Switch(dataplane::build(&s.config, &mtus)))
        };
        let host = |h: &weft::topo::Host| {
            let cable = fabric.links.iter().find(|l| l.a.node == h.name).expect("a link for each host");
            (h.name.clone(), Kind::Host(Host::new(h.clone()), Box::new(Pacer::new(cable.rate))))
        };
        let (names, kinds): (Vec<_>, Vec<_>) =
            fabric.switches.iter().map(switch).chain(fabric.hosts.iter().map(host)).unzip();
        let nodes = kinds.into_iter().map(|kind| Node { kind, ports: vec![], wake: None }).collect();
        let by_name = names.iter().cloned().zip(0..).collect();
        let mut network = Network {
            now: Instant::ZERO,
            nodes,
            by_name,
            names,
            events: BinaryHeap::new(),
            caused: 0,
            pool: Pool::heap(1 << 15, 2048),
            burst: Burst::new(),
            arrivals: 0,
            trace: 0xcbf2_9ce4_8422_2325,
            cut: 0,
            paths: BTreeMap::new(),
        };
        network.wire(fabric);
        // Switches that have something to say of themselves begin to.
        for node in 0..network.nodes.len() {
            if let Kind::Switch(plane) = &network.nodes[node].kind
                && plane.tick_deadline().is_some()
            {
                network.nodes[node].wake = Some(Instant::ZERO);
                network.cause(Instant::ZERO, node, What::Wake);
            }
        }
        network
    }

    fn wire(&mut self, fabric: &Fabric) {
        // Ports are numbered as the configurations list them; a host has one.
        let mut ends = BTreeMap::new();
        for (node, switch) in fabric.switches.iter().enumerate() {
            for (port, config) in (0..).zip(&switch.config.ports) {
                ends.insert((switch.name(), config.interface.as_str()), (node, PortId(port)));
            }
        }
        for host in &fabric.hosts {
            ends.insert((&host.name, &host.interface), (self.by_name[&host.name], PortId(0)));
        }
        let mut wired = BTreeMap::new();
        for link in &fabric.links {
            let [a, b] = [&link.a, &link.b].map(|end| ends[&(end.node.as_str(), end.interface.as_str())]);
            for (here, (peer, peer_port)) in [(a, b), (b, a)] {
                wired.insert(here, Attachment { peer, peer_port, rate: link.rate, up: true, deaf: false });
            }
        }
        for ((node, port), attachment) in wired {
            assert_eq!(self.nodes[node].ports.len(), port.index(), "{} has a port without a link", self.names[node]);
            self.nodes[node].ports.push(attachment);
        }
    }

    fn cause(&mut self, at: Instant, node: usize, what: What) {
        self.caused += 1;
        self.events.push(Event { at, number: self.caused, node, what });
    }

    /// Runs until `end`.
    pub fn run(&mut self, end: Instant) {
        while self.events.peek().is_some_and(|event| event.at <= end) {
            let Some(Event { at, node, what, .. }) = self.events.pop() else { break };
            self.now = at;
            match what {
                What::Arrive(port, frame) => self.arrive(node, port, frame),
                What::Wake => self.wake(node),
            }
        }
        self.now = end;
    }

    /// Runs for `ns` nanoseconds more.
    pub fn run_for(&mut self, ns: u64) {
        self.run(self.now + ns);
    }

    fn arrive(&mut self, node: usize, port: PortId, frame: Frame) {
        let Attachment { up, deaf, .. } = self.nodes[node].ports[port.index()];
        if !up || deaf {
            self.cut += 1;
            return self.pool.free(frame);
        }
        self.note(node, port, &frame);
        match &mut self.nodes[node].kind {
            Kind::Switch(plane) => {
                self.burst.push(frame);
                plane.receive(self.now, port, &mut self.pool, &mut self.burst);
                self.serve(node);
            }
            Kind::Host(host, _) => {
                let mut out = vec![];
                host.receive(self.now, &frame, &mut out);
                self.pool.free(frame);
                self.emit(node, out);
            }
        }
    }

    /// Adds an arrival to the trace and, if it is UDP at a switch, to its flow's path.
    fn note(&mut self, node: usize, port: PortId, frame: &[u8]) {
        self.arrivals += 1;
        let place = [&self.now.0.to_be_bytes()[..], &(node as u64).to_be_bytes(), &[port.0]].concat();
        for byte in place.iter().chain(frame) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let headers = weft::wire::parse(frame).expect("an Ethernet frame");
        let is_udp = headers.proto == weft::wire::parse::PROTO_UDP;
        if let (Kind::Switch(_), true, Some(ports)) = (&self.nodes[node].kind, is_udp, headers.ports(frame)) {
            let path = self.paths.entry(((ports >> 16) as u16, ports as u16)).or_default();
            path.push(self.names[node].clone());
        }
    }

    /// A deadline of a switch; one that an earlier wake-up has moved is let pass.
    fn wake(&mut self, node: usize) {
        if self.nodes[node].wake != Some(self.now) {
            return;
        }
        self.nodes[node].wake = None;
        self.serve(node);
    }

    /// What a worker does with a switch: what is due, then all that may leave, then sleep.
    fn serve(&mut self, node: usize) {
        let Kind::Switch(plane) = &mut self.nodes[node].kind else { return };
        while plane.tick_deadline().is_some_and(|due| due <= self.now) {
            plane.tick(self.now, &mut self.pool);
        }
        let mut left = vec![];
        for port in plane.backlog().iter() {
            loop {
                let room = self.burst.room();
                plane.transmit(self.now, port, &mut self.pool, room, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                left.extend(self.burst.drain().map(|frame| (port, frame)));
            }
        }
        let deadline = plane.next_deadline();
        for (port, frame) in left {
            self.carry(node, port, self.now, frame);
        }
        if let Some(deadline) = deadline
            && self.nodes[node].wake.is_none_or(|wake| deadline < wake)
        {
            self.nodes[node].wake = Some(deadline);
            self.cause(deadline, node, What::Wake);
        }
    }

    /// A frame starts on its way by a link at `at`.
    fn carry(&mut self, node: usize, port: PortId, at: Instant, frame: Frame) {
        let Attachment { peer, peer_port, rate, up, .. } = self.nodes[node].ports[port.index()];
        if !up {
            self.cut += 1;
            return self.pool.free(frame);
        }
        let arrives = at + serialization(frame.len(), rate) + PROPAGATION;
        self.cause(arrives, peer, What::Arrive(peer_port, frame));
    }

    /// A host sends frames, at its link's rate.
    fn emit(&mut self, node: usize, frames: Vec<Vec<u8>>) {
        for bytes in frames {
            let Kind::Host(_, pacer) = &mut self.nodes[node].kind else { return };
            pacer.start(self.now);
            let at = pacer.next().max(self.now);
            pacer.sent(bytes.len().max(MIN_FRAME) + WIRE_OVERHEAD);
            let frame = self.pool.alloc_with(&bytes).expect("a free chunk");
            self.carry(node, PortId(0), at, frame);
        }
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> &Host {
        match &self.nodes[self.by_name[name]].kind {
            Kind::Host(host, _) => host,
            Kind::Switch(_) => panic!("{name} is a switch"),
        }
    }

    /// The switch of that name.
    pub fn switch(&self, name: &str) -> &dyn Dataplane {
        match &self.nodes[self.by_name[name]].kind {
            Kind::Switch(plane) => &**plane,
            Kind::Host(..) => panic!("{name} is a host"),
        }
    }

    fn send(&mut self, from: &str, to: IpAddr, build: impl FnOnce(packets::Ends) -> Vec<u8>) {
        let node = self.by_name[from];
        let mut out = vec![];
        if let Kind::Host(host, _) = &mut self.nodes[node].kind {
            host.send(to, build, &mut out);
        }
        self.emit(node, out);
    }

    /// Host `from` pings `to` with `payload` bytes.
    pub fn ping(&mut self, from: &str, to: IpAddr, sequence: u16, payload: usize) {
        self.send(from, to, |ends| packets::echo(ends, 64, false, sequence, &vec![0x5a; payload]));
    }

    /// Host `from` sends a UDP packet of `payload` bytes.
    pub fn udp(&mut self, from: &str, to: IpAddr, ttl: u8, ports: (u16, u16), payload: usize) {
        self.send(from, to, |ends| packets::udp(ends, ttl, ports, &vec![0xa5; payload]));
    }

    /// Takes the link between two nodes down, or up again; both ends see it at once.
    pub fn set_link(&mut self, a: &str, b: &str, up: bool) {
        for (here, there) in [(a, b), (b, a)] {
            let (here, there) = (self.by_name[here], self.by_name[there]);
            let node = &mut self.nodes[here];
            let port = node.ports.iter().position(|p| p.peer == there).expect("a link between the two");
            node.ports[port].up = up;
            if let Kind::Switch(plane) = &mut node.kind {
                plane.set_port_up(PortId(port as u8), up, &mut self.pool);
            }
        }
    }

    /// Makes `node` lose all that comes by its link to `peer`, or hear it again; no end is told.
    pub fn set_deaf(&mut self, node: &str, peer: &str, deaf: bool) {
        let (node, port) = self.port(node, peer);
        self.nodes[node].ports[port.index()].deaf = deaf;
    }

    /// What the switch `from` thinks of its link to `to`.
    pub fn link(&self, from: &str, to: &str) -> LinkView {
        self.switch(from).link(self.port(from, to).1)
    }

    fn port(&self, node: &str, peer: &str) -> (usize, PortId) {
        let (node, peer) = (self.by_name[node], self.by_name[peer]);
        let port = self.nodes[node].ports.iter().position(|p| p.peer == peer).expect("a link between the two");
        (node, PortId(port as u8))
    }

    /// Frames that the switch `from` sent towards its neighbour `to`.
    pub fn sent(&self, from: &str, to: &str) -> u64 {
        self.switch(from).counters(self.port(from, to).1).tx
    }

    /// Drops of all switches.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let mut all = Drops::default();
        for node in &self.nodes {
            if let Kind::Switch(plane) = &node.kind {
                plane.ledger().ports.iter().for_each(|(counters, _)| all.add(&counters.drops()));
            }
        }
        all.nonzero().collect()
    }

    /// Ends the run: every switch's books balance, and no frame is lost.
    ///
    /// # Panics
    /// If not.
    pub fn finish(mut self) {
        let balance = |name: &str, plane: &dyn Dataplane| {
            plane.ledger().check().unwrap_or_else(|law| panic!("{name}: {law}"));
        };
        for (node, name) in self.nodes.iter_mut().zip(&self.names) {
            if let Kind::Switch(plane) = &mut node.kind {
                balance(name, &**plane);
                plane.drain(self.now, &mut self.pool);
                balance(name, &**plane);
            }
        }
        for event in self.events.drain() {
            if let What::Arrive(_, frame) = event.what {
                self.pool.free(frame);
            }
        }
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}
