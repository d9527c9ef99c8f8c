//! Switches of the fat tree, wired to each other. Time stands still while frames go round.

use std::collections::{BTreeMap, VecDeque};

use weft::time::MILLIS;
use weft::topo;

use crate::rig::{Node, options, tree};
use crate::segment::{apart, with_macs};

/// A frame on a link.
#[derive(Clone, Debug)]
pub struct Hop {
    pub from: String,
    pub to: String,
    pub frame: Vec<u8>,
}

pub struct Net {
    pub nodes: BTreeMap<String, Node>,
    fabric: topo::Fabric,
    /// The other end of a switch's port: name, and port if it is a switch.
    wires: BTreeMap<(String, u8), (String, Option<u8>)>,
    /// Links on which what is sent is lost.
    lossy: Vec<(String, String)>,
}

/// More hops than any frame and what follows from it can take.
const MAX_HOPS: usize = 200;

impl Net {
    /// All 20 switches.
    pub fn whole() -> Net {
        let fabric = tree(&options());
        let names: Vec<String> = fabric.switches.iter().map(|s| s.name().into()).collect();
        Net::of(&fabric, &names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Some switches of `fabric`; what is sent to others is lost.
    pub fn of(fabric: &topo::Fabric, names: &[&str]) -> Net {
        let port = |end: &topo::End| {
            let switch = fabric.switch(&end.node)?;
            switch.ports().iter().position(|p| p.interface == end.interface).map(|port| port as u8)
        };
        let mut wires = BTreeMap::new();
        for link in &fabric.links {
            for (here, there) in [(&link.a, &link.b), (&link.b, &link.a)] {
                if let Some(from) = port(here) {
                    wires.insert((here.node.clone(), from), (there.node.clone(), port(there)));
                }
            }
        }
        let nodes = names.iter().map(|name| (name.to_string(), Node::of(fabric, name))).collect();
        Net { nodes, fabric: fabric.clone(), wires, lossy: vec![] }
    }

    pub fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).unwrap_or_else(|| panic!("no {name} here"))
    }

    /// What `from` sends to `to` is lost from now on.
    pub fn lose(&mut self, from: &str, to: &str) {
        self.lossy.push((from.into(), to.into()));
    }

    pub fn heal(&mut self) {
        self.lossy.clear();
    }

    /// The switch and port of a host.
    pub fn edge(&self, host: &str) -> (String, u8) {
        let host = self.fabric.host(host).expect("a host");
        (host.tor.clone(), host.ipv4.addr().octets()[3] - topo::address::FIRST_HOST)
    }

    /// A host sends a packet to its gateway; every frame that this sends over any link, oldest first.
    pub fn send(&mut self, host: &str, packet: &[u8]) -> Vec<Hop> {
        let mac = self.fabric.host(host).expect("a host").mac;
        let (tor, port) = self.edge(host);
        let frame = with_macs(packet, self.node(&tor).config.mac, mac);
        self.inject(&tor, port, &frame)
    }

    /// A frame comes to a switch by `port`.
    pub fn inject(&mut self, switch: &str, port: u8, frame: &[u8]) -> Vec<Hop> {
        let mut hops = vec![];
        let mut arriving = VecDeque::from([(switch.to_string(), port, frame.to_vec())]);
        while let Some((name, port, frame)) = arriving.pop_front() {
            let out = self.node(&name).raw(port, &frame);
            for (port, frame) in out {
                let (to, peer) = self.wires[&(name.clone(), port)].clone();
                hops.push(Hop { from: name.clone(), to: to.clone(), frame: frame.clone() });
                assert!(hops.len() < MAX_HOPS, "frames go round");
                let lost = self.lossy.contains(&(name.clone(), to.clone()));
                if let Some(peer) = peer.filter(|_| !lost && self.nodes.contains_key(&to)) {
                    arriving.push_back((to, peer, frame));
                }
            }
        }
        hops
    }

    pub fn wait(&mut self, millis: u64) {
        self.nodes.values_mut().for_each(|node| node.now = node.now + millis * MILLIS);
    }
}

/// The tags that went over each link, as `from to tag`.
pub fn tags(hops: &[Hop]) -> Vec<String> {
    hops.iter().map(|hop| format!("{} {} {}", hop.from, hop.to, apart(&hop.frame).0).trim_end().to_string()).collect()
}
