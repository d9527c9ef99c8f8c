//! The loop under fabrics in virtual time: switches as on real ports, links with a rate and a delay, and hosts, which
//! are the test's. Everything is a function of the fabric and of what the test does: events at one time happen in the
//! order in which they were caused.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BinaryHeap;
use std::ops::DerefMut;

use weft::counters::{DropReason, Drops};
use weft::dataplane::Dataplane;
use weft::frame::{Burst, Frame, Pool};
use weft::id::{PortId, PortMask};
use weft::time::{Instant, SECONDS};
use weft::topo::{self, Fabric};
use weft::units::BitRate;
use weft::wire::MacAddr;
use weft::wire::ethernet::on_wire;

use crate::packets;

/// Time a bit takes through any link, ns: 100 m of fibre.
pub const PROPAGATION: u64 = 500;

/// Nanoseconds that a frame of `len` bytes occupies a link of `rate`; 0 is unlimited.
pub fn serialization(len: usize, rate: BitRate) -> u64 {
    (on_wire(len) as u64 * 8 * SECONDS).checked_div(rate.0).unwrap_or(0)
}

/// The other end of a switch's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A switch, by its place in [`Net::nodes`], and its port.
    Switch(usize, PortId),
    /// A host, by its place in the fabric's list.
    Host(usize),
}

/// A switch.
pub struct Node<P> {
    pub name: String,
    pub plane: P,
    rates: Vec<BitRate>,
    peers: Vec<Peer>,
    /// Links that lose what is sent by them, unseen by either end.
    dead: PortMask,
    /// The earliest wake-up that is in the queue.
    wake: Option<Instant>,
}

/// A frame on its way from a switch.
pub struct Hop<'a> {
    pub from: &'a str,
    /// Switch or host.
    pub to: &'a str,
    pub to_host: bool,
    /// When it will be there.
    pub arrives: Instant,
    pub frame: &'a [u8],
}

/// What a test sees of frames between their ends.
pub trait Tap {
    /// A frame leaves a switch.
    fn leaves(&mut self, hop: &Hop<'_>);
    /// A frame has come to a switch.
    fn arrives(&mut self, _switch: &str, _port: PortId, _frame: &[u8]) {}
}

/// What happens to a host.
#[derive(Debug)]
pub enum Outside {
    /// A frame has come.
    Frame(Vec<u8>),
    /// The time that [`Net::alarm`] was asked to tell.
    Alarm,
}

enum What {
    Arrive(usize, PortId, Frame),
    Wake(usize),
    Deliver(usize, Frame),
    Alarm(usize),
}

struct Event {
    at: Instant,
    /// Events caused before this one.
    number: u64,
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

/// Switches, the links between them and to hosts, and one queue of events.
pub struct Net<P> {
    pub now: Instant,
    pub fabric: Fabric,
    pub nodes: Vec<Node<P>>,
    /// Where each host is attached.
    attached: Vec<(usize, PortId)>,
    events: BinaryHeap<Event>,
    caused: u64,
    pool: Pool,
    burst: Burst,
    /// Whether a switch's books must balance whenever it has done something, not at the end alone.
    pub strict: bool,
}

impl<P: DerefMut<Target: Dataplane>> Net<P> {
    /// The switches that `build` makes of `fabric`'s, all links up, at `start`; `chunks` frames may be under way.
    pub fn new(fabric: &Fabric, start: Instant, chunks: usize, build: impl Fn(&topo::Switch) -> P) -> Net<P> {
        let mut net = Net {
            now: start,
            fabric: fabric.clone(),
            nodes: vec![],
            attached: vec![],
            events: BinaryHeap::new(),
            caused: 0,
            pool: Pool::heap(chunks, 2048),
            burst: Burst::new(),
            strict: false,
        };
        for switch in &fabric.switches {
            net.nodes.push(Node {
                name: switch.name().into(),
                plane: build(switch),
                rates: switch.ports().iter().map(|p| p.rate).collect(),
                peers: vec![Peer::Host(usize::MAX); switch.ports().len()],
                dead: PortMask::EMPTY,
                wake: None,
            });
        }
        for link in &fabric.links {
            for (here, there) in [(&link.a, &link.b), (&link.b, &link.a)] {
                let Some((node, port)) = net.end(here) else { continue };
                let peer = net.end(there).map(|(node, port)| Peer::Switch(node, port));
                net.nodes[node].peers[port.index()] = peer.unwrap_or_else(|| Peer::Host(net.host(&there.node)));
            }
        }
        let tor = |name: &str| fabric.links.iter().find(|l| l.a.node == name).expect("a link for each host");
        let attach = |h: &topo::Host| net.end(&tor(&h.name).b).expect("a host's link ends at a switch");
        net.attached = fabric.hosts.iter().map(attach).collect();
        net
    }

    fn end(&self, end: &topo::End) -> Option<(usize, PortId)> {
        let node = self.fabric.switches.iter().position(|s| s.name() == end.node)?;
        let port = self.fabric.switches[node].ports().iter().position(|p| p.interface == end.interface)?;
        Some((node, PortId(port as u8)))
    }

    /// The place of a switch.
    pub fn node(&self, name: &str) -> usize {
        self.nodes.iter().position(|n| n.name == name).expect("a switch")
    }

    /// The place of a host.
    pub fn host(&self, name: &str) -> usize {
        self.fabric.hosts.iter().position(|h| h.name == name).expect("a host")
    }

    /// The port of the switch `from` that leads to the switch `to`.
    pub fn port(&self, from: &str, to: &str) -> (usize, PortId) {
        let (from, to) = (self.node(from), self.node(to));
        let leads = |peer: &Peer| matches!(peer, Peer::Switch(node, _) if *node == to);
        let port = self.nodes[from].peers.iter().position(leads).expect("a link between the two");
        (from, PortId(port as u8))
    }

    /// Every host tells its ToR who it is, and every switch begins.
    pub fn begin(&mut self, tap: &mut impl Tap) {
        for host in self.fabric.hosts.clone() {
            let (us, gateway) = ((host.mac, host.ipv4.addr()), (MacAddr([0; 6]), host.gateway_ipv4));
            self.send(&host.name, &packets::arp(false, us, gateway, MacAddr::BROADCAST, &[]), tap);
            let us = (host.mac, host.ipv6.addr());
            self.send(&host.name, &packets::solicitation(us, host.gateway_ipv6), tap);
        }
        (0..self.nodes.len()).for_each(|node| self.serve(node, tap));
    }

    /// A frame of a host is at its switch now.
    pub fn send(&mut self, host: &str, frame: &[u8], tap: &mut impl Tap) {
        let (node, port) = self.attached[self.host(host)];
        let frame = self.pool.alloc_with(frame).expect("a free chunk");
        self.arrive(node, port, frame, tap);
    }

    /// A frame of the host at that place will be at its switch at `at`.
    pub fn send_at(&mut self, at: Instant, host: usize, frame: &[u8]) {
        let (node, port) = self.attached[host];
        let frame = self.pool.alloc_with(frame).expect("a free chunk");
        self.cause(at, What::Arrive(node, port, frame));
    }

    /// Something will happen at the host at that place at `at`.
    pub fn alarm(&mut self, at: Instant, host: usize) {
        self.cause(at, What::Alarm(host));
    }

    /// Makes the link at that port lose all in both directions; no end is told.
    pub fn cut(&mut self, node: usize, port: PortId) {
        let Peer::Switch(peer, peer_port) = self.nodes[node].peers[port.index()] else {
            panic!("a link between switches");
        };
        for (node, port) in [(node, port), (peer, peer_port)] {
            self.nodes[node].dead = self.nodes[node].dead.with(port);
        }
    }

    /// Takes the link between two switches down; both ends see it at once. What is under way on it is lost.
    pub fn take_down(&mut self, a: &str, b: &str) {
        for (node, port) in [self.port(a, b), self.port(b, a)] {
            self.nodes[node].plane.set_port_up(port, false, &mut self.pool);
        }
    }

    fn cause(&mut self, at: Instant, what: What) {
        self.caused += 1;
        self.events.push(Event { at, number: self.caused, what });
    }

    /// Runs until something happens to a host, or until `end`: `None` then.
    pub fn next(&mut self, end: Instant, tap: &mut impl Tap) -> Option<(usize, Outside)> {
        while self.events.peek().is_some_and(|event| event.at <= end) {
            let Event { at, what, .. } = self.events.pop()?;
            self.now = at;
            match what {
                What::Arrive(node, port, frame) => self.arrive(node, port, frame, tap),
                // One that an earlier wake-up has moved is let pass.
                What::Wake(node) if self.nodes[node].wake == Some(at) => {
                    self.nodes[node].wake = None;
                    self.serve(node, tap);
                }
                What::Wake(_) => {}
                What::Deliver(host, frame) => {
                    let bytes = frame.to_vec();
                    self.pool.free(frame);
                    return Some((host, Outside::Frame(bytes)));
                }
                What::Alarm(host) => return Some((host, Outside::Alarm)),
            }
        }
        self.now = end;
        None
    }

    /// Runs for `ns` nanoseconds more; nobody is at the hosts.
    pub fn run_for(&mut self, ns: u64, tap: &mut impl Tap) {
        let end = self.now + ns;
        while self.next(end, tap).is_some() {}
    }

    fn arrive(&mut self, node: usize, port: PortId, frame: Frame, tap: &mut impl Tap) {
        let Node { name, plane, .. } = &mut self.nodes[node];
        tap.arrives(name, port, &frame);
        self.burst.push(frame);
        plane.receive(self.now, port, &mut self.pool, &mut self.burst);
        self.serve(node, tap);
    }

    /// What a worker does with a switch: what is due, then all that may leave, then sleep.
    fn serve(&mut self, node: usize, tap: &mut impl Tap) {
        let (now, n) = (self.now, &mut self.nodes[node]);
        n.plane.control(now);
        while n.plane.tick_deadline().is_some_and(|due| due <= now) {
            n.plane.tick(now, &mut self.pool);
        }
        let mut left = vec![];
        // What leaves may cause more to leave, by another port.
        loop {
            let before = left.len();
            for port in n.plane.backlog().iter() {
                n.plane.transmit(now, port, &mut self.pool, self.burst.room(), &mut self.burst);
                left.extend(self.burst.drain().map(|frame| (port, frame)));
            }
            if left.len() == before {
                break;
            }
        }
        if self.strict {
            n.plane.ledger().check().unwrap_or_else(|law| panic!("{}: {law}", n.name));
        }
        let deadline = n.plane.next_deadline().map(|due| due.max(now));
        for (port, frame) in left {
            self.carry(node, port, frame, tap);
        }
        if let Some(deadline) = deadline.filter(|due| self.nodes[node].wake.is_none_or(|wake| *due < wake)) {
            self.nodes[node].wake = Some(deadline);
            self.cause(deadline, What::Wake(node));
        }
    }

    fn carry(&mut self, node: usize, port: PortId, frame: Frame, tap: &mut impl Tap) {
        let n = &self.nodes[node];
        let arrives = self.now + serialization(frame.len(), n.rates[port.index()]) + PROPAGATION;
        let (to, to_host) = match n.peers[port.index()] {
            Peer::Switch(peer, _) => (self.nodes[peer].name.as_str(), false),
            Peer::Host(host) => (self.fabric.hosts[host].name.as_str(), true),
        };
        tap.leaves(&Hop { from: &n.name, to, to_host, arrives, frame: &frame });
        match n.peers[port.index()] {
            _ if n.dead.contains(port) => self.pool.free(frame),
            Peer::Switch(peer, port) => self.cause(arrives, What::Arrive(peer, port, frame)),
            Peer::Host(host) => self.cause(arrives, What::Deliver(host, frame)),
        }
    }

    /// Checks that the books of every switch balance.
    ///
    /// # Panics
    /// If not.
    pub fn balance(&self) {
        for n in &self.nodes {
            n.plane.ledger().check().unwrap_or_else(|law| panic!("{}: {law}", n.name));
        }
    }

    /// Drops of all switches.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let mut all = Drops::default();
        for n in &self.nodes {
            n.plane.ledger().ports.iter().for_each(|(counters, _)| all.add(&counters.drops()));
        }
        all.nonzero().collect()
    }

    /// Ends the run: every switch's books balance, and no frame is lost.
    ///
    /// # Panics
    /// If not.
    pub fn finish(mut self) {
        self.balance();
        for n in &mut self.nodes {
            n.plane.drain(self.now, &mut self.pool);
        }
        self.balance();
        for event in self.events.drain() {
            if let What::Arrive(_, _, frame) | What::Deliver(_, frame) = event.what {
                self.pool.free(frame);
            }
        }
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}
