//! Switches with Expeditus and the links between them. No time passes but what a test lets pass.

use std::collections::VecDeque;
use std::net::IpAddr;

use etherparse::PacketBuilder;
use weft::config::{CaftOptions, Selector};
use weft::counters::{DropReason, Drops};
use weft::dataplane::{self, Dataplane};
use weft::fabric::clos::{Direction, Sent};
use weft::fabric::{Fabric, FabricEgress, FabricIngress, SchemeIngress};
use weft::frame::{Burst, Pool};
use weft::id::PortId;
use weft::pisa::pat::Entry;
use weft::pisa::{Meta, Pipe, Switch};
use weft::scheme::expeditus::{Expeditus, ExpeditusConfig, ExpeditusCounters, ExpeditusIngress};
use weft::time::{Instant, SECONDS};
use weft::topo::{self, FabricOptions};
use weft::units::Duration;
use weft::wire::MacAddr;
use weft::wire::parse::{Headers, PROTO_TCP, PROTO_UDP, parse};

use crate::packets::{self, Ends};

/// Bytes of an eighth of a link without a rate: 10 Gbit/s for tau = 200 us are 250,000 B (CAFT, section on DRE).
const EIGHTH: usize = 31_250;

/// What `topo` builds fabrics by here: no hellos, of equals the lowest.
pub fn options() -> FabricOptions {
    FabricOptions {
        selector: Selector::Expeditus,
        seed: 1,
        hello_interval: Duration(0),
        caft: CaftOptions { deterministic: true, ..CaftOptions::default() },
        ..FabricOptions::default()
    }
}

/// Two pods of two ToRs and two aggregation switches, two planes of two cores. The paper's t(1,2) is tor0-1 here,
/// a(1,2) agg0-1, c(1,2) core1 and c(2,2) core3.
pub fn clos(options: &FabricOptions) -> topo::Fabric {
    topo::Fabric::clos(2, 2, 2, 4, options).expect("a fabric")
}

struct Node {
    name: String,
    switch: Switch<Fabric<Expeditus>>,
    /// The node at the other end, by port, and its port there if it is a switch.
    peers: Vec<(String, Option<(usize, PortId)>)>,
}

/// A frame on a link.
#[derive(Clone, Debug)]
pub struct Hop {
    pub from: String,
    pub to: String,
    pub frame: Vec<u8>,
}

impl Hop {
    /// The tag with its TPID in hexadecimal; `-` if there is none.
    pub fn tag(&self) -> String {
        tag(&self.frame)
    }

    /// Whether it carries a tag with TF = 1.
    pub fn is_response(&self) -> bool {
        self.tag().get(4..5).is_some_and(|nibble| nibble >= "8")
    }

    /// As `from to tag`.
    pub fn line(&self) -> String {
        format!("{} {} {}", self.from, self.to, self.tag())
    }
}

/// See [`Hop::tag`].
pub fn tag(frame: &[u8]) -> String {
    if frame[12..14] != [0x88, 0xb5] {
        return "-".into();
    }
    let bytes = 3 + usize::from(frame[14] & 0x7f).div_ceil(2);
    frame[12..12 + bytes].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `frame` with a tag: what follows the TPID, in hexadecimal.
pub fn with_tag(frame: &[u8], tag: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&tag[at..at + 2], 16).expect("hexadecimal");
    let bytes: Vec<u8> = (0..tag.len()).step_by(2).map(byte).collect();
    [&frame[..12], &[0x88, 0xb5], &bytes, &frame[12..]].concat()
}

/// A SYN, or with `len` bytes of data an ACK.
pub fn tcp(ends: Ends, (from, to): (u16, u16), len: usize) -> Vec<u8> {
    let link = PacketBuilder::ethernet2(ends.src_mac.0, ends.dst_mac.0);
    let ip = match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => link.ipv4(src.octets(), dst.octets(), 64),
        (IpAddr::V6(src), IpAddr::V6(dst)) => link.ipv6(src.octets(), dst.octets(), 64),
        mixed => panic!("one IP version a packet: {mixed:?}"),
    };
    let tcp = ip.tcp(from, to, 1_000, 64_000);
    let tcp = if len == 0 { tcp.syn() } else { tcp.ack(7) };
    let mut frame = vec![];
    tcp.write(&mut frame, &vec![0x5a; len]).expect("written to memory");
    packets::padded(frame)
}

/// The whole network.
pub struct Net {
    pub now: Instant,
    pub fabric: topo::Fabric,
    nodes: Vec<Node>,
    pool: Pool,
    burst: Burst,
    /// What left switches, in that order, but for what they say in their own name (ARP, ND, ICMP).
    pub hops: Vec<Hop>,
    /// That.
    pub said: Vec<Vec<u8>>,
}

impl Net {
    /// All links up, every host known to its ToR.
    pub fn new(fabric: &topo::Fabric) -> Net {
        Net::with(fabric, |_| {})
    }

    /// The same, with each switch's scheme changed.
    pub fn with(fabric: &topo::Fabric, change: impl Fn(&mut ExpeditusConfig)) -> Net {
        let node = |s: &topo::Switch| {
            let mtus: Vec<u16> = s.ports().iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
            let place = dataplane::fabric_config(&s.config, &mtus, Pipe::ONLY);
            let mut config = dataplane::expeditus_config(&s.config);
            change(&mut config);
            let scheme = ExpeditusIngress::new(&place, &config);
            let egress = FabricEgress::new(weft::fabric::clos::ClosEgress::new(config.clos.tpid));
            let limits = dataplane::port_limits(&s.config);
            let mut switch = Switch::new(FabricIngress::new(place, scheme), egress, &limits);
            for ((id, port), mtu) in (0..).map(PortId).zip(s.ports()).zip(&mtus) {
                Dataplane::set_port(&mut switch, Instant::ZERO, id, port, &s.config.queues, *mtu);
            }
            let peers = s.ports().iter().map(|p| (p.interface.clone(), None)).collect();
            Node { name: s.name().into(), switch, peers }
        };
        let mut net = Net {
            now: Instant(SECONDS),
            fabric: fabric.clone(),
            nodes: fabric.switches.iter().map(node).collect(),
            pool: Pool::heap(1024, 2048),
            burst: Burst::new(),
            hops: vec![],
            said: vec![],
        };
        for link in &fabric.links {
            if let (Some(a), Some(b)) = (net.find(&link.a.node), net.find(&link.b.node)) {
                let ports = (net.port(a, &link.b.node), net.port(b, &link.a.node));
                net.nodes[a].peers[ports.0.index()].1 = Some((b, ports.1));
                net.nodes[b].peers[ports.1.index()].1 = Some((a, ports.0));
            }
        }
        for host in &fabric.hosts {
            let (us, gateway) = ((host.mac, host.ipv4.addr()), (MacAddr([0; 6]), host.gateway_ipv4));
            net.send(&host.name, &packets::arp(false, us, gateway, MacAddr::BROADCAST, &[]));
            net.send(&host.name, &packets::solicitation((host.mac, host.ipv6.addr()), host.gateway_ipv6));
        }
        net.hops.clear();
        net
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|n| n.name == name)
    }

    fn node(&self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| panic!("no switch {name}"))
    }

    fn port(&self, node: usize, peer: &str) -> PortId {
        let is = |(name, _): &(String, _)| name == peer;
        PortId(self.nodes[node].peers.iter().position(is).expect("a link") as u8)
    }

    pub fn switch(&self, name: &str) -> &Switch<Fabric<Expeditus>> {
        &self.nodes[self.node(name)].switch
    }

    pub fn scheme(&self, name: &str) -> &ExpeditusIngress {
        self.switch(name).ingress().scheme()
    }

    pub fn counters(&self, name: &str) -> ExpeditusCounters {
        self.scheme(name).counters()
    }

    /// The path allocation table: peers and origins.
    pub fn pat(&self, name: &str) -> Vec<(String, &'static str)> {
        let node = &self.nodes[self.node(name)];
        let entry = |e: Entry| (node.peers[e.path.port.index()].0.clone(), e.path.origin.name());
        self.scheme(name).pat().entries(self.now).map(entry).collect()
    }

    pub fn drops(&self, name: &str, reason: DropReason) -> u64 {
        let mut all = Drops::default();
        self.switch(name).ledger().ports.iter().for_each(|(counters, _)| all.add(&counters.drops()));
        all.get(reason)
    }

    /// Makes an uplink have this load, in the middle of that eighth.
    pub fn load(&mut self, name: &str, peer: &str, direction: Direction, eighths: usize) {
        let node = self.node(name);
        let port = self.port(node, peer);
        let scheme = self.nodes[node].switch.ingress_mut().scheme_mut();
        let bytes = EIGHTH * eighths + EIGHTH / 2;
        match direction {
            Direction::Egress => scheme.feedback(self.now, Sent { port, bytes: bytes as u32 }),
            Direction::Ingress => {
                let mut frame = self.pool.alloc_with(&[0; 125]).expect("a free chunk");
                for _ in 0..bytes / frame.len() {
                    scheme.arrived(self.now, &mut frame, &mut Meta::new(Headers::default(), port));
                }
                self.pool.free(frame);
            }
        }
    }

    /// A link fails, or is mended, and both ends know.
    pub fn set_link(&mut self, a: &str, b: &str, up: bool) {
        for (name, peer) in [(a, b), (b, a)] {
            let node = self.node(name);
            let port = self.port(node, peer);
            Dataplane::set_port_up(&mut self.nodes[node].switch, port, up, &mut self.pool);
        }
    }

    /// The four addresses of a packet of `from` to `to`, as it leaves that host.
    pub fn ends(&self, from: &str, to: &str, v6: bool) -> Ends {
        let [a, b] = [from, to].map(|h| self.fabric.host(h).expect("a host"));
        let (src, dst): (IpAddr, IpAddr) = match v6 {
            true => (a.ipv6.addr().into(), b.ipv6.addr().into()),
            false => (a.ipv4.addr().into(), b.ipv4.addr().into()),
        };
        let dst_mac = self.fabric.switch(&a.tor).expect("its ToR").config.mac;
        Ends { src_mac: a.mac, dst_mac, src, dst }
    }

    /// A frame with the addresses of `from` and `to` as `peer` sends it to `at`.
    pub fn between(&self, at: &str, peer: &str, from: &str, to: &str, v6: bool) -> Ends {
        let mac = |name: &str| self.fabric.switch(name).expect("a switch").config.mac;
        Ends { src_mac: mac(peer), dst_mac: mac(at), ..self.ends(from, to, v6) }
    }

    /// A host sends `frame`; it and all that follows from it goes its way.
    pub fn send(&mut self, host: &str, frame: &[u8]) {
        let node = self.node(&self.fabric.host(host).expect("a host").tor.clone());
        let mut waiting = VecDeque::from([(node, self.port(node, host), frame.to_vec())]);
        while let Some((node, port, frame)) = waiting.pop_front() {
            for (out, frame) in self.receive(node, port, &frame) {
                if let Some((peer, port)) = self.nodes[node].peers[out.index()].1 {
                    waiting.push_back((peer, port, frame));
                }
            }
        }
    }

    /// A flow's packet from host to host; the frames that left switches for it.
    pub fn flow(&mut self, from: &str, to: &str, port: u16, v6: bool, len: usize) -> Vec<Hop> {
        let frame = tcp(self.ends(from, to, v6), (port, 80), len);
        self.hops.clear();
        self.send(from, &frame);
        std::mem::take(&mut self.hops)
    }

    /// `peer` sends `frame` to `at`; what leaves that, and goes no further.
    pub fn at(&mut self, at: &str, peer: &str, frame: &[u8]) -> Vec<Hop> {
        let node = self.node(at);
        self.hops.clear();
        self.said.clear();
        self.receive(node, self.port(node, peer), frame);
        std::mem::take(&mut self.hops)
    }

    fn receive(&mut self, node: usize, port: PortId, frame: &[u8]) -> Vec<(PortId, Vec<u8>)> {
        let n = &mut self.nodes[node];
        self.burst.push(self.pool.alloc_with(frame).expect("a free chunk"));
        n.switch.receive(self.now, port, &mut self.pool, &mut self.burst);
        let mut left = vec![];
        for port in n.switch.backlog().iter() {
            n.switch.transmit(self.now, port, &mut self.pool, 64, &mut self.burst);
            for frame in self.burst.drain() {
                let (peer, end) = &n.peers[port.index()];
                assert!(end.is_some() || tag(&frame) == "-", "{peer} got {frame:02x?}");
                let proto = parse(&frame).expect("an Ethernet frame").proto;
                if tag(&frame) != "-" || matches!(proto, PROTO_TCP | PROTO_UDP) {
                    self.hops.push(Hop { from: n.name.clone(), to: peer.clone(), frame: frame.to_vec() });
                } else {
                    self.said.push(frame.to_vec());
                }
                left.push((port, frame.to_vec()));
                self.pool.free(frame);
            }
        }
        n.switch.ledger().check().unwrap_or_else(|law| panic!("{}: {law}", n.name));
        left
    }

    /// Names of what is at the ports of a switch.
    pub fn peers(&self, name: &str) -> Vec<String> {
        self.nodes[self.node(name)].peers.iter().map(|(peer, _)| peer.clone()).collect()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for n in &mut self.nodes {
            Dataplane::drain(&mut n.switch, self.now, &mut self.pool);
            n.switch.ledger().check().unwrap_or_else(|law| panic!("{}, drained: {law}", n.name));
        }
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}

/// The hops of one kind, as lines.
pub fn lines(hops: &[Hop], is: impl Fn(&Hop) -> bool) -> Vec<String> {
    hops.iter().filter(|hop| is(hop)).map(Hop::line).collect()
}

/// What got to hosts.
pub fn delivered<'a>(net: &Net, hops: &'a [Hop]) -> Vec<&'a Hop> {
    hops.iter().filter(|hop| net.fabric.host(&hop.to).is_some()).collect()
}
