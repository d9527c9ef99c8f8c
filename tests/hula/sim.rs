//! Fabrics of HULA switches in virtual time: links with a rate and a delay, hosts that only send and listen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use weft::dataplane::{self, Dataplane};
use weft::fabric::{Fabric, FabricEgress, FabricIngress};
use weft::frame::{Burst, Frame, Pool};
use weft::id::{PortId, PortKind};
use weft::pisa::{Pipe, Switch};
use weft::scheme::hula::{Hula, HulaConfig, HulaEgress, HulaIngress};
use weft::time::{Instant, SECONDS};
use weft::topo;
use weft::units::BitRate;
use weft::wire::MacAddr;
use weft::wire::ethernet::on_wire;
use weft::wire::hula::{is_probe, read};
use weft::wire::parse::{PROTO_UDP, parse};

use crate::packets::{self, Ends};

/// Time a bit takes through any link, ns.
const PROPAGATION: u64 = 500;

/// The switch of a configuration, with HULA.
pub fn build(config: &weft::config::SwitchConfig, hula: &HulaConfig) -> Switch<Fabric<Hula>> {
    let mtus: Vec<u16> = config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
    let fabric = dataplane::fabric_config(config, &mtus, Pipe::ONLY);
    let rates: Vec<BitRate> = config.ports.iter().map(|p| p.rate).collect();
    let ingress = HulaIngress::new(&fabric, &rates, hula).expect("a valid configuration");
    let limits = dataplane::port_limits(config);
    Switch::new(FabricIngress::new(fabric, ingress), FabricEgress::new(HulaEgress), &limits)
}

struct Node {
    name: String,
    switch: Switch<Fabric<Hula>>,
    rates: Vec<BitRate>,
    /// The other end by port; `None` at a host's.
    peers: Vec<Option<(usize, PortId)>>,
    wake: Option<Instant>,
}

enum What {
    Arrive(PortId, Frame),
    Wake,
}

/// The whole network.
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
    /// Directions of links that lose all, unseen by either end.
    dead: BTreeSet<(usize, PortId)>,
    /// Probes that arrived, by receiver, port and origin.
    pub probes: BTreeMap<(String, PortId, u16), u64>,
    /// UDP packets that left a switch by a link between switches: from, to, source port.
    pub hops: Vec<(String, String, u16)>,
    /// Source ports of UDP packets that left by hosts' ports.
    pub delivered: Vec<u16>,
}

impl Sim {
    /// All links up, every host known to its ToR.
    pub fn new(fabric: &topo::Fabric, hula: &HulaConfig) -> Sim {
        let node = |s: &topo::Switch| Node {
            name: s.name().into(),
            switch: build(&s.config, hula),
            rates: s.ports().iter().map(|p| p.rate).collect(),
            peers: vec![None; s.ports().len()],
            wake: None,
        };
        let mut sim = Sim {
            now: Instant::ZERO,
            fabric: fabric.clone(),
            nodes: fabric.switches.iter().map(node).collect(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            caused: 0,
            pool: Pool::heap(1 << 14, 2048),
            burst: Burst::new(),
            dead: BTreeSet::new(),
            probes: BTreeMap::new(),
            hops: vec![],
            delivered: vec![],
        };
        for link in &fabric.links {
            if let (Some(a), Some(b)) = (sim.end(&link.a), sim.end(&link.b)) {
                sim.nodes[a.0].peers[a.1.index()] = Some(b);
                sim.nodes[b.0].peers[b.1.index()] = Some(a);
            }
        }
        for host in &fabric.hosts {
            let (us, gateway) = ((host.mac, host.ipv4.addr()), (MacAddr([0; 6]), host.gateway_ipv4));
            sim.host_sends(&host.name, &packets::arp(false, us, gateway, MacAddr::BROADCAST, &[]));
            let us = (host.mac, host.ipv6.addr());
            sim.host_sends(&host.name, &packets::solicitation(us, host.gateway_ipv6));
        }
        (0..sim.nodes.len()).for_each(|node| sim.serve(node));
        sim
    }

    fn end(&self, end: &topo::End) -> Option<(usize, PortId)> {
        let node = self.fabric.switches.iter().position(|s| s.name() == end.node)?;
        let port = self.fabric.switches[node].ports().iter().position(|p| p.interface == end.interface)?;
        Some((node, PortId(port as u8)))
    }

    pub fn node(&self, name: &str) -> usize {
        self.nodes.iter().position(|n| n.name == name).expect("a switch")
    }

    /// The scheme's state in a switch.
    pub fn scheme(&self, name: &str) -> &HulaIngress {
        self.nodes[self.node(name)].switch.ingress().scheme()
    }

    /// Names of the switches with hosts.
    pub fn tors(&self) -> Vec<topo::Switch> {
        self.fabric.switches.iter().filter(|s| s.config.segment.is_some()).cloned().collect()
    }

    /// Ports of a switch that lead up.
    pub fn uplinks(&self, name: &str) -> Vec<PortId> {
        let ports = self.fabric.switch(name).expect("a switch").ports();
        (0..).map(PortId).zip(ports).filter(|(_, p)| p.kind == PortKind::Up).map(|(id, _)| id).collect()
    }

    /// Where new flowlets from the ToR `from` to the ToR `to` go.
    pub fn best(&self, from: &str, to: &str) -> Option<PortId> {
        let id = self.fabric.switch(to).expect("a switch").id();
        self.scheme(from).tors(self.now).into_iter().find(|t| t.tor == id).and_then(|t| t.best)
    }

    fn host_sends(&mut self, host: &str, frame: &[u8]) {
        let link = self.fabric.links.iter().find(|l| l.a.node == host).expect("a link for each host");
        let (node, port) = self.end(&link.b).expect("a host's link ends at a switch");
        let frame = self.pool.alloc_with(frame).expect("a free chunk");
        self.arrive(node, port, frame);
    }

    /// A host sends a UDP packet now.
    pub fn udp(&mut self, from: &str, to: &str, ports: (u16, u16), v6: bool, payload: usize) {
        let [a, b] = [from, to].map(|h| self.fabric.host(h).expect("a host").clone());
        let (src, dst) = if v6 {
            (a.ipv6.addr().into(), b.ipv6.addr().into())
        } else {
            (a.ipv4.addr().into(), b.ipv4.addr().into())
        };
        let gateway = self.fabric.switch(&a.tor).expect("a switch").config.mac;
        let frame = packets::udp(Ends { src_mac: a.mac, dst_mac: gateway, src, dst }, 64, ports, &vec![0x5a; payload]);
        self.host_sends(from, &frame);
    }

    /// Makes the link at that port lose all in both directions; no end is told.
    pub fn cut(&mut self, name: &str, port: PortId) {
        let here = (self.node(name), port);
        let there = self.nodes[here.0].peers[port.index()].expect("a link between switches");
        self.dead.extend([here, there]);
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
        let headers = parse(&frame).expect("an Ethernet frame");
        if is_probe(&frame, &headers) {
            let origin = read(&frame, &headers).expect("a well-formed probe").origin.0;
            *self.probes.entry((self.nodes[node].name.clone(), port, origin)).or_default() += 1;
        }
        self.burst.push(frame);
        self.nodes[node].switch.receive(self.now, port, &mut self.pool, &mut self.burst);
        self.serve(node);
    }

    /// What a worker does with a switch: what is due, then all that may leave, then sleep.
    fn serve(&mut self, node: usize) {
        let now = self.now;
        let n = &mut self.nodes[node];
        while n.switch.tick_deadline().is_some_and(|due| due <= now) {
            n.switch.tick(now, &mut self.pool);
        }
        let mut left = vec![];
        for port in n.switch.backlog().iter() {
            loop {
                let room = self.burst.room();
                n.switch.transmit(now, port, &mut self.pool, room, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                for frame in self.burst.drain() {
                    left.push((port, frame));
                }
            }
        }
        let deadline = n.switch.next_deadline();
        for (port, frame) in left {
            self.carry(node, port, frame);
        }
        if let Some(deadline) = deadline.filter(|due| self.nodes[node].wake.is_none_or(|wake| *due < wake)) {
            self.nodes[node].wake = Some(deadline);
            self.cause(deadline, node, What::Wake);
        }
    }

    fn carry(&mut self, node: usize, port: PortId, frame: Frame) {
        let headers = parse(&frame).expect("an Ethernet frame");
        let udp = headers.ports(&frame).filter(|_| headers.proto == PROTO_UDP).map(|ports| (ports >> 16) as u16);
        let n = &self.nodes[node];
        let Some((peer, peer_port)) = n.peers[port.index()] else {
            self.delivered.extend(udp);
            return self.pool.free(frame);
        };
        if let Some(source) = udp {
            self.hops.push((n.name.clone(), self.nodes[peer].name.clone(), source));
        }
        if self.dead.contains(&(node, port)) {
            return self.pool.free(frame);
        }
        let bits = on_wire(frame.len()) as u64 * 8 * SECONDS;
        let at = self.now + bits / n.rates[port.index()].0 + PROPAGATION;
        self.cause(at, peer, What::Arrive(peer_port, frame));
    }

    /// Where the packets of these source ports went from the switch `from`.
    pub fn next_hops(&self, from: &str, sources: impl Fn(u16) -> bool) -> BTreeSet<String> {
        self.hops.iter().filter(|(at, _, source)| at == from && sources(*source)).map(|(_, to, _)| to.clone()).collect()
    }

    /// Ends the run: every switch's books balance, and no frame is lost.
    pub fn finish(mut self) {
        for n in &mut self.nodes {
            n.switch.ledger().check().unwrap_or_else(|law| panic!("{}: {law}", n.name));
            Dataplane::drain(&mut n.switch, self.now, &mut self.pool);
            n.switch.ledger().check().unwrap_or_else(|law| panic!("{}, drained: {law}", n.name));
        }
        for (_, what) in self.what.into_values() {
            if let What::Arrive(_, frame) = what {
                self.pool.free(frame);
            }
        }
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}
