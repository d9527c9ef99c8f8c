//! Fabrics of HULA switches in virtual time: links with a rate and a delay, hosts that only send and listen.

use std::collections::{BTreeMap, BTreeSet};

use weft::dataplane;
use weft::fabric::{Fabric, FabricEgress, FabricIngress};
use weft::id::{PortId, PortKind};
use weft::pisa::{Pipe, Switch};
use weft::scheme::hula::{Hula, HulaConfig, HulaEgress, HulaIngress};
use weft::time::Instant;
use weft::topo;
use weft::units::BitRate;
use weft::wire::hula::{is_probe, read};
use weft::wire::parse::{PROTO_UDP, parse};

use crate::net::{Hop, Net, Tap};
use crate::packets::{self, Ends};

/// The switch of a configuration, with HULA.
pub fn build(config: &weft::config::SwitchConfig, hula: &HulaConfig) -> Switch<Fabric<Hula>> {
    let mtus: Vec<u16> = config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
    let fabric = dataplane::fabric_config(config, &mtus, Pipe::ONLY);
    let rates: Vec<BitRate> = config.ports.iter().map(|p| p.rate).collect();
    let ingress = HulaIngress::new(&fabric, &rates, hula).expect("a valid configuration");
    let limits = dataplane::port_limits(config);
    Switch::new(FabricIngress::new(fabric, ingress), FabricEgress::new(HulaEgress), &limits)
}

/// What came by.
#[derive(Default)]
pub struct Log {
    /// Probes that arrived, by receiver, port and origin.
    pub probes: BTreeMap<(String, PortId, u16), u64>,
    /// UDP packets that left a switch by a link between switches: from, to, source port.
    pub hops: Vec<(String, String, u16)>,
    /// Source ports of UDP packets that left by hosts' ports.
    pub delivered: Vec<u16>,
}

impl Tap for Log {
    fn arrives(&mut self, switch: &str, port: PortId, frame: &[u8]) {
        let headers = parse(frame).expect("an Ethernet frame");
        if is_probe(frame, &headers) {
            let origin = read(frame, &headers).expect("a well-formed probe").origin.0;
            *self.probes.entry((switch.into(), port, origin)).or_default() += 1;
        }
    }

    fn leaves(&mut self, hop: &Hop<'_>) {
        let headers = parse(hop.frame).expect("an Ethernet frame");
        let udp = headers.ports(hop.frame).filter(|_| headers.proto == PROTO_UDP).map(|ports| (ports >> 16) as u16);
        match udp {
            Some(source) if hop.to_host => self.delivered.push(source),
            Some(source) => self.hops.push((hop.from.into(), hop.to.into(), source)),
            None => {}
        }
    }
}

/// The whole network.
pub struct Sim {
    pub now: Instant,
    net: Net<Box<Switch<Fabric<Hula>>>>,
    pub log: Log,
}

impl Sim {
    /// All links up, every host known to its ToR.
    pub fn new(fabric: &topo::Fabric, hula: &HulaConfig) -> Sim {
        let mut net = Net::new(fabric, Instant::ZERO, 1 << 14, |s| Box::new(build(&s.config, hula)));
        let mut log = Log::default();
        net.begin(&mut log);
        Sim { now: net.now, net, log }
    }

    /// The scheme's state in a switch.
    pub fn scheme(&self, name: &str) -> &HulaIngress {
        self.net.nodes[self.net.node(name)].plane.ingress().scheme()
    }

    /// Names of the switches with hosts.
    pub fn tors(&self) -> Vec<topo::Switch> {
        self.net.fabric.switches.iter().filter(|s| s.config.segment.is_some()).cloned().collect()
    }

    /// Ports of a switch that lead up.
    pub fn uplinks(&self, name: &str) -> Vec<PortId> {
        let ports = self.net.fabric.switch(name).expect("a switch").ports();
        (0..).map(PortId).zip(ports).filter(|(_, p)| p.kind == PortKind::Up).map(|(id, _)| id).collect()
    }

    /// Where new flowlets from the ToR `from` to the ToR `to` go.
    pub fn best(&self, from: &str, to: &str) -> Option<PortId> {
        let id = self.net.fabric.switch(to).expect("a switch").id();
        self.scheme(from).tors(self.now).into_iter().find(|t| t.tor == id).and_then(|t| t.best)
    }

    /// A host sends a UDP packet now.
    pub fn udp(&mut self, from: &str, to: &str, ports: (u16, u16), v6: bool, payload: usize) {
        let [a, b] = [from, to].map(|h| self.net.fabric.host(h).expect("a host").clone());
        let (src, dst) = if v6 {
            (a.ipv6.addr().into(), b.ipv6.addr().into())
        } else {
            (a.ipv4.addr().into(), b.ipv4.addr().into())
        };
        let gateway = self.net.fabric.switch(&a.tor).expect("a switch").config.mac;
        let frame = packets::udp(Ends { src_mac: a.mac, dst_mac: gateway, src, dst }, 64, ports, &vec![0x5a; payload]);
        self.net.send(from, &frame, &mut self.log);
    }

    /// Makes the link at that port lose all in both directions; no end is told.
    pub fn cut(&mut self, name: &str, port: PortId) {
        self.net.cut(self.net.node(name), port);
    }

    /// Runs for `ns` nanoseconds more.
    pub fn run_for(&mut self, ns: u64) {
        self.net.run_for(ns, &mut self.log);
        self.now = self.net.now;
    }

    /// Where the packets of these source ports went from the switch `from`.
    pub fn next_hops(&self, from: &str, sources: impl Fn(u16) -> bool) -> BTreeSet<String> {
        self.log
            .hops
            .iter()
            .filter(|(at, _, source)| at == from && sources(*source))
            .map(|(_, to, _)| to.clone())
            .collect()
    }

    /// Ends the run: every switch's books balance, and no frame is lost.
    pub fn finish(self) {
        self.net.finish();
    }
}
