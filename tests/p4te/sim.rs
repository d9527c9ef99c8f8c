//! A fabric in virtual time; hosts are what the test does. After every step the books of all switches balance.

use weft::counters::DropReason;
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::time::{Instant, SECONDS};
use weft::topo;
use weft::wire::MacAddr;

use crate::net::{Hop, Net, Tap};
use crate::rig::find;

/// A frame at a place.
pub struct Seen {
    pub at: Instant,
    /// Switch that sent it.
    pub from: String,
    /// Switch or host that gets it.
    pub to: String,
    pub frame: Vec<u8>,
}

/// Keeps what leaves switches.
#[derive(Default)]
struct Log(Vec<Seen>);

impl Tap for Log {
    fn leaves(&mut self, hop: &Hop<'_>) {
        let (from, to) = (hop.from.into(), hop.to.into());
        self.0.push(Seen { at: hop.arrives, from, to, frame: hop.frame.to_vec() });
    }
}

pub struct Sim {
    pub now: Instant,
    net: Net<Box<dyn Dataplane>>,
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
        let build = |s: &topo::Switch| {
            let mtus: Vec<u16> = s.config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
            dataplane::build(&s.config, &mtus)
        };
        let mut net = Net::new(fabric, Instant(SECONDS), 1 << 14, build);
        net.strict = true;
        let mut sim = Sim { now: net.now, net, seen: vec![] };
        sim.run(|net, log| net.begin(log));
        sim.run_for(1_000_000);
        sim.seen.clear();
        sim
    }

    /// Does something to the network, and sees what it causes.
    fn run(&mut self, act: impl FnOnce(&mut Net<Box<dyn Dataplane>>, &mut Log)) {
        let mut log = Log(std::mem::take(&mut self.seen));
        act(&mut self.net, &mut log);
        (self.now, self.seen) = (self.net.now, log.0);
    }

    /// The switch next to a host.
    pub fn leaf(&self, host: &str) -> &topo::Switch {
        self.net.fabric.switch(&self.host(host).tor).expect("a switch")
    }

    pub fn host(&self, name: &str) -> &topo::Host {
        self.net.fabric.host(name).expect("a host")
    }

    pub fn plane(&self, name: &str) -> &dyn Dataplane {
        &*self.net.nodes[self.net.node(name)].plane
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
        self.run(|net, log| net.send(host, frame, log));
    }

    /// Runs for `ns` nanoseconds more.
    pub fn run_for(&mut self, ns: u64) {
        self.run(|net, log| net.run_for(ns, log));
    }

    /// Frames that got to a host since last taken, oldest first; all others that were seen are forgotten.
    pub fn take(&mut self, host: &str) -> Vec<Vec<u8>> {
        let (ours, _): (Vec<_>, Vec<_>) = std::mem::take(&mut self.seen).into_iter().partition(|s| s.to == host);
        ours.into_iter().map(|s| s.frame).collect()
    }

    /// Drops of all switches.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.net.drops()
    }

    /// Ends the run: no frame is lost.
    pub fn finish(self) {
        self.net.finish();
    }
}
