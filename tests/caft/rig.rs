//! One switch of the fat tree, whose links carry what a test says.

use weft::config::{CaftOptions, Selector, SwitchConfig};
use weft::counters::DropReason;
use weft::dataplane::{self, Dataplane};
use weft::fabric::clos::{ClosEgress, Sent};
use weft::fabric::{Fabric, FabricEgress, FabricIngress, SchemeIngress};
use weft::frame::{Burst, Pool};
use weft::id::{PortId, Role};
use weft::pisa::pat::{Lookup, Path};
use weft::pisa::{FlowHash, Meta, Pipe, PortLimits, Switch};
use weft::scheme::caft::{Caft, CaftCounters, CaftIngress};
use weft::time::{Instant, MILLIS, SECONDS};
use weft::topo::{self, FabricOptions, address};
use weft::units::Duration;
use weft::wire::{Headers, MacAddr, parse};

use crate::packets;
use crate::segment::{apart, trimmed, with_macs};

/// Links of any switch of the tree: the lower two, then uplink 0 and uplink 1. A core has pod 0 to 3.
pub const DOWN: [u8; 2] = [0, 1];
pub const UP: [u8; 2] = [2, 3];

/// Bytes of an eighth of C * tau at 10 Gbit/s and 200 us, which is what a link without a rate counts as.
pub const EIGHTH: u32 = 31_250;

pub fn options() -> FabricOptions {
    let caft = CaftOptions { deterministic: true, slots: 4096, ..CaftOptions::default() };
    FabricOptions { selector: Selector::Caft, seed: 1, hello_interval: Duration(0), caft, ..FabricOptions::default() }
}

pub fn tree(options: &FabricOptions) -> topo::Fabric {
    topo::Fabric::fat_tree(4, options).expect("a fabric")
}

/// What left: port, tag (see [`apart`]), frame without tag and padding.
pub type Out = (u8, String, Vec<u8>);

pub struct Node {
    pub config: SwitchConfig,
    pub switch: Switch<Fabric<Caft>>,
    pub now: Instant,
    pub pool: Pool,
    burst: Burst,
    /// What is asked for of the flow hash.
    hash: FlowHash,
}

impl Node {
    pub fn new(name: &str) -> Node {
        Node::of(&tree(&options()), name)
    }

    /// A switch of `fabric`; a ToR knows its hosts.
    pub fn of(fabric: &topo::Fabric, name: &str) -> Node {
        let config = fabric.switch_config(name).expect("a switch");
        let mtus: Vec<u16> = config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
        let (described, scheme) =
            (dataplane::fabric_config(&config, &mtus, Pipe::ONLY), dataplane::caft_config(&config));
        let (ingress, egress) = (CaftIngress::new(&described, &scheme), ClosEgress::new(scheme.clos.tpid));
        let limits: Vec<PortLimits> = dataplane::port_limits(&config);
        let mut node = Node {
            switch: Switch::new(FabricIngress::new(described, ingress), FabricEgress::new(egress), &limits),
            now: Instant(SECONDS),
            pool: Pool::heap(512, 2048),
            burst: Burst::new(),
            hash: FlowHash::new(config.seed),
            config,
        };
        for port in 0..node.config.ports.len() as u8 {
            node.describe(port, false);
        }
        for host in fabric.hosts.iter().filter(|host| host.tor == name) {
            let port = host.ipv4.addr().octets()[3] - address::FIRST_HOST;
            let (us, gateway) = ((host.mac, host.ipv4.addr()), (MacAddr([0; 6]), host.gateway_ipv4));
            node.raw(port, &packets::arp(false, us, gateway, MacAddr::BROADCAST, &[]));
            node.raw(port, &packets::solicitation((host.mac, host.ipv6.addr()), host.gateway_ipv6));
            // What is answered needs no probe when the first packet comes.
            let (mac, ours) = (node.config.mac, (host.mac, host.ipv6.addr()));
            node.raw(port, &packets::arp(true, us, (mac, host.gateway_ipv4), mac, &[]));
            node.raw(port, &packets::advertisement(ours, (mac, host.gateway_ipv6), false));
        }
        node
    }

    /// Tells the switch of a port, which it is to take for new if `add`.
    pub fn describe(&mut self, port: u8, add: bool) {
        let (id, description) = (PortId(port), self.config.ports[usize::from(port)].clone());
        let mtu = description.mtu.expect("topo sets each MTU");
        let queues = self.config.queues;
        match add {
            true => Dataplane::add_port(&mut self.switch, self.now, id, &description, &queues, mtu),
            false => Dataplane::set_port(&mut self.switch, self.now, id, &description, &queues, mtu),
        }
    }

    pub fn set_up(&mut self, port: u8, up: bool) {
        Dataplane::set_port_up(&mut self.switch, PortId(port), up, &mut self.pool);
    }

    pub fn remove(&mut self, port: u8) {
        Dataplane::remove_port(&mut self.switch, self.now, PortId(port), &mut self.pool);
    }

    pub fn scheme(&self) -> &CaftIngress {
        self.switch.ingress().scheme()
    }

    pub fn counters(&self) -> CaftCounters {
        self.scheme().counters()
    }

    /// Makes the uplinks read these loads from what they send. Only once in a test: it adds.
    pub fn load_up(&mut self, loads: [u8; 2]) {
        for (port, load) in UP.into_iter().zip(loads) {
            let sent = Sent { port: PortId(port), bytes: u32::from(load) * EIGHTH };
            self.switch.ingress_mut().scheme_mut().feedback(self.now, sent);
        }
    }

    /// The same from what they receive.
    pub fn load_down(&mut self, loads: [u8; 2]) {
        const PARTS: u32 = 25;
        let mut frame = self.pool.alloc().expect("a free chunk");
        frame.set_len((EIGHTH / PARTS) as usize);
        for (port, load) in UP.into_iter().zip(loads) {
            let mut meta = Meta::new(Headers::default(), PortId(port));
            for _ in 0..u32::from(load) * PARTS {
                self.switch.ingress_mut().scheme_mut().arrived(self.now, &mut frame, &mut meta);
            }
        }
        self.pool.free(frame);
    }

    /// A frame goes in by `port`, as it is; what comes out, in order of the ports.
    pub fn raw(&mut self, port: u8, frame: &[u8]) -> Vec<(u8, Vec<u8>)> {
        self.burst.push(self.pool.alloc_with(frame).expect("a free chunk"));
        self.switch.receive(self.now, PortId(port), &mut self.pool, &mut self.burst);
        self.leave()
    }

    /// What waits goes out.
    pub fn leave(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut out = vec![];
        for port in self.switch.backlog().iter() {
            self.switch.transmit(self.now, port, &mut self.pool, 64, &mut self.burst);
            for frame in self.burst.drain() {
                out.push((port.0, frame.to_vec()));
                self.pool.free(frame);
            }
        }
        self.switch.ledger().check().expect("the books balance");
        for (port, frame) in &out {
            assert!(!self.is_host(*port) || !has_tag(frame), "a tag to host {port}: {frame:02x?}");
        }
        out
    }

    fn is_host(&self, port: u8) -> bool {
        self.config.role == Role::Tor && DOWN.contains(&port)
    }

    /// The address at the other end of `port`.
    pub fn peer(&self, port: u8) -> MacAddr {
        self.config.ports[usize::from(port)].peer_mac.unwrap_or_else(|| {
            let segment = self.config.segment.and_then(|s| s.ipv4).expect("a rack").addr().octets();
            address::host_mac(segment[1], segment[2], address::FIRST_HOST + port)
        })
    }

    /// `frame` as it comes from the neighbour at `port`.
    pub fn from(&self, port: u8, frame: &[u8]) -> Vec<u8> {
        with_macs(frame, self.config.mac, self.peer(port))
    }

    /// The neighbour at `port` sends `frame`; what comes out.
    pub fn send(&mut self, port: u8, frame: &[u8]) -> Vec<Out> {
        let frame = self.from(port, frame);
        let parts = |(port, frame): (u8, Vec<u8>)| {
            let (tag, frame) = apart(&frame);
            (port, tag, frame)
        };
        self.raw(port, &frame).into_iter().map(parts).collect()
    }

    /// The same; nothing comes out, and one frame was dropped for this reason.
    pub fn refuse(&mut self, port: u8, frame: &[u8]) -> DropReason {
        let before = self.drops();
        let out = self.send(port, frame);
        assert_eq!(out, [], "nothing leaves");
        let new: Vec<DropReason> =
            self.drops().into_iter().filter(|reason| !before.contains(reason)).map(|(r, _)| r).collect();
        let [reason] = new[..] else { panic!("one reason: {new:?}") };
        reason
    }

    /// All drops so far.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let mut all = weft::counters::Drops::default();
        self.switch.ledger().ports.iter().for_each(|(counters, _)| all.add(&counters.drops()));
        all.nonzero().collect()
    }

    /// What the switch makes of `frame` if it goes on by `port`: one hop less.
    pub fn passed(&self, port: u8, frame: &[u8]) -> Vec<u8> {
        trimmed(&packets::routed(frame, self.config.mac, self.peer(port)))
    }

    /// A packet of the switch's own that leaves by `port`.
    pub fn made(&self, port: u8, frame: &[u8]) -> Vec<u8> {
        trimmed(&with_macs(frame, self.peer(port), self.config.mac))
    }

    /// Hash of the flow of an untagged packet.
    pub fn flow(&self, frame: &[u8]) -> u64 {
        self.hash.packet(frame, &parse(frame).expect("an Ethernet frame"))
    }

    /// What the path allocation table has of a packet's flow.
    pub fn path(&self, frame: &[u8]) -> Option<Path> {
        match self.scheme().pat().peek(self.now, self.flow(frame)) {
            Lookup::Own(path) => Some(path),
            Lookup::Free => None,
            Lookup::Taken => panic!("two flows of the test in one slot"),
        }
    }

    /// The same as port and whether it is valid.
    pub fn outport(&self, frame: &[u8]) -> Option<(u8, bool)> {
        self.path(frame).map(|path| (path.port.0, path.valid))
    }

    /// Entries of the table that live.
    pub fn entries(&self) -> usize {
        self.scheme().pat().occupancy(self.now)
    }

    pub fn wait(&mut self, millis: u64) {
        self.now = self.now + millis * MILLIS;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.switch.drain(self.now, &mut self.pool);
        self.switch.ledger().check().expect("the books balance after a drain");
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}

/// Whether there is a tag, also behind VLAN tags.
pub fn has_tag(frame: &[u8]) -> bool {
    let l3 = packets::l3(frame);
    frame[l3 - 2..l3] == [0x88, 0xb5]
}
