//! A fabric in virtual time: the switches as on real ports, links with a rate and a delay, hosts that are what the
//! test does. After every step the books of the switch balance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weft::counters::{DropReason, Drops};
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::frame::{Burst, Frame, Pool};
use weft::id::PortId;
use weft::time::{Instant, SECONDS};
use weft::topo;
use weft::units::BitRate;
use weft::wire::MacAddr;
use weft::wire::ethernet::{MIN_FRAME, WIRE_OVERHEAD};

use crate::packets;
use crate::rig::find;

/// Of any link, ns.
const PROPAGATION: u64 = 500;

struct Node {
    name: String,
    plane: Box<dyn Dataplane>,
    rates: Vec<BitRate>,
    /// The other end by port; a host's name at the edge.
    peers: Vec<Result<(usize, PortId), String>>,
    wake: Option<Instant>,
}

enum What {
    Arrive(PortId, Frame),
    Wake,
}

/// A frame at a place.
pub struct Seen {
    pub at: Instant,
    /// Switch that sent it.
    pub from: String,
    /// Switch or host that gets it.
    pub to: String,
    pub frame: Vec<u8>,
}

pub struct Sim {
    pub now: Instant,
    fabric: topo::Fabric,
    nodes: Vec<Node>,
    /// By time, then in the order in which they were caused.
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    what: BTreeMap<u64, (usize, What)>,
    caused: u64,
    pool: Pool,
    burst: Burst,
    /// What left a switch since last taken.
    pub seen: Vec<Seen>,
}

/// Gives a switch another address, and its neighbours the news.
pub fn set_mac(fabric: &mut topo::Fabric, name: &str, mac: MacAddr) {
    let old = fabric.switch(name).expect("a switch").config.mac;
    for switch in &mut fabric.switches {
        let config = &mut switch.config;
        config.mac = if config.mac == old { mac } else { config.mac };
        let peers = config.ports.iter_mut().filter_map(|port| port.peer_mac.as_mut());
        peers.filter(|peer| **peer == old).for_each(|peer| *peer = mac);
    }
}

/// Gives each switch an address with two low bits clear, as the flags of rate adaptation are towards hosts.
pub fn plain_macs(fabric: &mut topo::Fabric) {
    let names: Vec<String> = fabric.switches.iter().map(|s| s.name().into()).collect();
    for (i, name) in (1..).zip(names) {
        set_mac(fabric, &name, MacAddr([2, 0x77, 0, 1, i, 4 * i]));
    }
}

impl Sim {
    /// All links up, every host known to its ToR.
    pub fn new(fabric: &topo::Fabric) -> Sim {
        let node = |s: &topo::Switch| {
            let mtus: Vec<u16> = s.config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
            let rates: Vec<BitRate> = s.config.ports.iter().map(|p| p.rate).collect();
            let peers = vec![Err(String::new()); rates.len()];
            Node { name: s.name().into(), plane: dataplane::build(&s.config, &mtus), rates, peers, wake: None }
        };
        let mut sim = Sim {
            now: Instant(SECONDS),
            fabric: fabric.clone(),
            nodes: fabric.switches.iter().map(node).collect(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            caused: 0,
            pool: Pool::heap(1 << 14, 2048),
            burst: Burst::new(),
            seen: vec![],
        };
        for link in &fabric.links {
            for (here, there) in [(&link.a, &link.b), (&link.b, &link.a)] {
                let Some((node, port)) = sim.end(here) else { continue };
                sim.nodes[node].peers[port.index()] = sim.end(there).ok_or(there.node.clone());
            }
        }
        for host in &fabric.hosts {
            let (us, gateway) = ((host.mac, host.ipv4.addr()), (MacAddr([0; 6]), host.gateway_ipv4));
            sim.send(&host.name, &packets::arp(false, us, gateway, MacAddr::BROADCAST, &[]));
            sim.send(&host.name, &packets::solicitation((host.mac, host.ipv6.addr()), host.gateway_ipv6));
        }
        (0..sim.nodes.len()).for_each(|node| sim.serve(node));
        sim.run_for(1_000_000);
        sim.seen.clear();
        sim
    }

    fn end(&self, end: &topo::End) -> Option<(usize, PortId)> {
        let node = self.fabric.switches.iter().position(|s| s.name() == end.node)?;
        let port = self.fabric.switches[node].ports().iter().position(|p| p.interface == end.interface)?;
        Some((node, PortId(port as u8)))
    }

    /// The switch next to a host.
    pub fn leaf(&self, host: &str) -> &topo::Switch {
        self.fabric.switch(&self.fabric.host(host).expect("a host").tor).expect("a switch")
    }

    pub fn host(&self, name: &str) -> &topo::Host {
        self.fabric.host(name).expect("a host")
    }

    pub fn plane(&self, name: &str) -> &dyn Dataplane {
        &*self.nodes.iter().find(|n| n.name == name).expect("a switch").plane
    }

    /// A count of rate adaptation at a switch, for decreases and increases together.
    pub fn rate_count(&self, switch: &str, what: &str) -> u64 {
        let tables = self.plane(switch).show(self.now, Topic::Flows);
        let count = |action: &str| {
            let row = find(&tables, "rate_control", |r| r[0] == Cell::from(action) && r[1] == Cell::from(what));
            if let Cell::Int(n) = row[2] { n } else { panic!("{row:?}") }
        };
        count("decrease") + count("increase")
    }

    /// A host sends a frame now.
    pub fn send(&mut self, host: &str, frame: &[u8]) {
        let link = self.fabric.links.iter().find(|l| l.a.node == host).expect("a link for each host");
        let (node, port) = self.end(&link.b).expect("a host's link ends at a switch");
        let frame = self.pool.alloc_with(frame).expect("a free chunk");
        self.arrive(node, port, frame);
    }

    fn cause(&mut self, at: Instant, node: usize, what: What) {
        self.caused += 1;
        self.events.push(Reverse((at, self.caused)));
        self.what.insert(self.caused, (node, what));
    }

    /// Runs for `ns` nanoseconds more.
    pub fn run_for(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(Reverse((at, number))) = self.events.peek().copied().filter(|Reverse((at, _))| *at <= end) {
            self.events.pop();
            let (node, what) = self.what.remove(&number).expect("one for each event");
            self.now = at;
            match what {
                What::Arrive(port, frame) => self.arrive(node, port, frame),
                // One that an earlier wake-up has moved is let pass.
                What::Wake if self.nodes[node].wake == Some(at) => {
                    self.nodes[node].wake = None;
                    self.serve(node);
                }
                What::Wake => {}
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, node: usize, port: PortId, frame: Frame) {
        self.burst.push(frame);
        self.nodes[node].plane.receive(self.now, port, &mut self.pool, &mut self.burst);
        self.serve(node);
    }

    /// What a worker does with a switch: what is due, then all that may leave, then sleep.
    fn serve(&mut self, node: usize) {
        let (now, n) = (self.now, &mut self.nodes[node]);
        n.plane.control(now);
        while n.plane.tick_deadline().is_some_and(|due| due <= now) {
            n.plane.tick(now, &mut self.pool);
        }
        let mut left = vec![];
        // What leaves may cause more to leave, by another port.
        for _ in 0..3 {
            for port in n.plane.backlog().iter() {
                n.plane.transmit(now, port, &mut self.pool, 64, &mut self.burst);
                left.extend(self.burst.drain().map(|frame| (port, frame)));
            }
        }
        n.plane.ledger().check().unwrap_or_else(|law| panic!("{}: {law}", n.name));
        let deadline = n.plane.next_deadline().map(|due| due.max(now));
        for (port, frame) in left {
            self.carry(node, port, frame);
        }
        if let Some(deadline) = deadline.filter(|due| self.nodes[node].wake.is_none_or(|wake| *due < wake)) {
            self.nodes[node].wake = Some(deadline);
            self.cause(deadline, node, What::Wake);
        }
    }

    fn carry(&mut self, node: usize, port: PortId, frame: Frame) {
        let n = &self.nodes[node];
        let rate = n.rates[port.index()].0;
        let bits = (frame.len().max(MIN_FRAME) + WIRE_OVERHEAD) as u64 * 8 * SECONDS;
        let at = self.now + bits.checked_div(rate).unwrap_or(0) + PROPAGATION;
        let (to, peer) = match &n.peers[port.index()] {
            Ok((peer, port)) => (self.nodes[*peer].name.clone(), Some((*peer, *port))),
            Err(host) => (host.clone(), None),
        };
        self.seen.push(Seen { at, from: n.name.clone(), to, frame: frame.to_vec() });
        match peer {
            Some((peer, port)) => self.cause(at, peer, What::Arrive(port, frame)),
            None => self.pool.free(frame),
        }
    }

    /// Frames that got to a host since last taken, oldest first; all others that were seen are forgotten.
    pub fn take(&mut self, host: &str) -> Vec<Vec<u8>> {
        let (ours, _): (Vec<_>, Vec<_>) = std::mem::take(&mut self.seen).into_iter().partition(|s| s.to == host);
        ours.into_iter().map(|s| s.frame).collect()
    }

    /// Drops of all switches.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let mut all = Drops::default();
        for n in &self.nodes {
            n.plane.ledger().ports.iter().for_each(|(counters, _)| all.add(&counters.drops()));
        }
        all.nonzero().collect()
    }

    /// Ends the run: no frame is lost.
    pub fn finish(mut self) {
        for n in &mut self.nodes {
            n.plane.drain(self.now, &mut self.pool);
            n.plane.ledger().check().unwrap_or_else(|law| panic!("{}, drained: {law}", n.name));
        }
        for (_, what) in self.what.into_values() {
            if let What::Arrive(_, frame) = what {
                self.pool.free(frame);
            }
        }
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}
