//! The switch under test and what stands around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft::counters::DropReason;
use weft::dataplane::Dataplane;
use weft::fabric::{Fabric, FabricConfig, FabricEgress, FabricIngress, FabricPort, Forwarding, HelloConfig, HelloMode};
use weft::frame::{Burst, Pool};
use weft::id::{PortId, PortKind, PortMask, SwitchId};
use weft::pisa::{Pipe, PortLimits, Switch};
use weft::port::Port;
use weft::port::mem::MemPort;
use weft::scheme::ecmp::{Ecmp, EcmpEgress, EcmpIngress};
use weft::time::Instant;
use weft::wire::MacAddr;

use crate::packets::{self, Ends};

/// The switch under test.
pub const SWITCH: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 1]);
/// What any fabric port takes for its own.
pub const FABRIC: MacAddr = MacAddr([2, 0x77, 0x65, 0x66, 0x74, 0]);
/// The ToR's address on the segment.
pub const GATEWAY4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The same for IPv6.
pub const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1);
/// The agg's own address.
pub const ROUTER4: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// The same for IPv6.
pub const ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0xffff, 0, 0, 0, 0, 1);
/// Where the ToR's uplinks are.
pub const UPLINKS: [u8; 2] = [3, 4];

/// The MAC of the switch at the other end of fabric port `port`.
pub fn peer(port: u8) -> MacAddr {
    MacAddr([2, 0x77, 0, 0, 1, port])
}

/// A host, or somebody far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    pub mac: MacAddr,
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
}

const fn station(mac: u8, rack: u8, octet: u8) -> Station {
    Station {
        mac: MacAddr([2, 0x68, 0, 0, rack, mac]),
        v4: Ipv4Addr::new(10, 0, rack, octet),
        v6: Ipv6Addr::new(0xfd00, 0, 0, rack as u16, 0, 0, 0, octet as u16),
    }
}

/// The hosts of the ToR, behind ports 0 to 2.
pub const HOSTS: [Station; 3] = [station(0, 1, 2), station(1, 1, 3), station(2, 1, 4)];
/// See [`HOSTS`].
pub const H0: Station = HOSTS[0];
/// See [`HOSTS`].
pub const H1: Station = HOSTS[1];
/// See [`HOSTS`].
pub const H2: Station = HOSTS[2];
/// A host of rack 2: beyond the uplinks of the ToR, below port 1 of the agg.
pub const FAR: Station = station(9, 2, 2);

impl Station {
    /// Its address of the given IP version.
    pub fn ip(self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }

    /// From this host by way of the gateway.
    pub fn to_gateway(self, dst: IpAddr) -> Ends {
        Ends { src_mac: self.mac, dst_mac: SWITCH, src: self.ip(dst.is_ipv6()), dst }
    }

    /// From this host to another one of the segment.
    pub fn to_station(self, to: &Station, v6: bool) -> Ends {
        Ends { src_mac: self.mac, dst_mac: to.mac, src: self.ip(v6), dst: to.ip(v6) }
    }

    /// From this far host, as it comes in by fabric port `port`.
    pub fn by_fabric(self, port: u8, dst: IpAddr) -> Ends {
        Ends { src_mac: peer(port), dst_mac: SWITCH, src: self.ip(dst.is_ipv6()), dst }
    }
}

/// A frame that the switch sent: port and bytes.
pub type Sent = (u8, Vec<u8>);

/// One switch on memory ports, driven as a worker drives it. Dropping it checks that it lost nothing.
pub struct Rig {
    pub switch: Switch<Fabric<Ecmp>>,
    pub now: Instant,
    pub pool: Pool,
    ports: Vec<MemPort>,
    burst: Burst,
}

/// What the ToR is made of, for a test to change. It says no hellos: they would stand between the frames
/// that a test expects.
pub fn tor_config() -> FabricConfig {
    let host = FabricPort { kind: PortKind::Host, peer: FABRIC, mtu: 1500, rx_mtu: 1500, hello: HelloMode::Off };
    let up =
        |port| FabricPort { kind: PortKind::Up, peer: peer(port), mtu: 1600, rx_mtu: 1600, hello: HelloMode::Auto };
    let uplinks: PortMask = UPLINKS.into_iter().map(PortId).collect();
    FabricConfig {
        id: SwitchId(1),
        mac: SWITCH,
        fabric_mac: FABRIC,
        ports: vec![host, host, host, up(3), up(4)],
        forwarding: Forwarding {
            segment_v4: Some("10.0.1.1/24".parse().expect("a prefix")),
            segment_v6: Some("fd00:0:0:1::1/64".parse().expect("a prefix")),
            router_v4: None,
            router_v6: None,
            routes: vec![
                ("0.0.0.0/0".parse().expect("a prefix"), uplinks),
                ("::/0".parse().expect("a prefix"), uplinks),
                // Announced, but with nowhere to go: a discard route.
                ("10.0.9.0/24".parse().expect("a prefix"), PortMask::EMPTY),
                ("fd00:0:0:9::/64".parse().expect("a prefix"), PortMask::EMPTY),
            ],
        },
        seed: 1,
        hello: HelloConfig::OFF,
        pipe: Pipe::ONLY,
    }
}

/// What the agg is made of.
pub fn agg_config() -> FabricConfig {
    let port = |(id, kind)| FabricPort { kind, peer: peer(id), mtu: 1600, rx_mtu: 1600, hello: HelloMode::Auto };
    let kinds = [PortKind::Down, PortKind::Down, PortKind::Up, PortKind::Up];
    let up: PortMask = [PortId(2), PortId(3)].into_iter().collect();
    let route = |prefix: &str, ports| (prefix.parse().expect("a prefix"), ports);
    FabricConfig {
        ports: (0..).zip(kinds).map(port).collect(),
        forwarding: Forwarding {
            segment_v4: None,
            segment_v6: None,
            router_v4: Some(ROUTER4),
            router_v6: Some(ROUTER6),
            routes: vec![
                route("10.0.1.0/24", PortMask::only(PortId(0))),
                route("10.0.2.0/24", PortMask::only(PortId(1))),
                route("fd00:0:0:1::/64", PortMask::only(PortId(0))),
                route("fd00:0:0:2::/64", PortMask::only(PortId(1))),
                route("10.0.0.0/16", PortMask::EMPTY),
                route("0.0.0.0/0", up),
                route("::/0", up),
            ],
        },
        ..tor_config()
    }
}

impl Rig {
    /// The ToR, unlimited rates, no host known to it yet.
    pub fn tor() -> Rig {
        Rig::new(tor_config(), PortLimits::default(), 4096)
    }

    /// The agg.
    pub fn agg() -> Rig {
        Rig::new(agg_config(), PortLimits::default(), 4096)
    }

    /// A switch of `config` with the same limits at every port and a pool of `chunks` frames.
    pub fn new(config: FabricConfig, limits: PortLimits, chunks: usize) -> Rig {
        let ports = config.ports.len();
        let ingress = FabricIngress::new(config, EcmpIngress);
        Rig {
            switch: Switch::new(ingress, FabricEgress::new(EcmpEgress), &vec![limits; ports]),
            now: Instant(1_000_000_000),
            pool: Pool::heap(chunks, 2048),
            ports: (0..ports).map(|_| MemPort::new(4096)).collect(),
            burst: Burst::new(),
        }
    }

    /// Puts a frame on the wire to `port`.
    pub fn arrive(&mut self, port: u8, frame: &[u8]) {
        let frame = self.pool.alloc_with(frame).expect("a free chunk");
        if let Err(frame) = self.ports[port as usize].inject(frame) {
            self.pool.free(frame);
            panic!("port {port} is full");
        }
    }

    /// Whether a frame can arrive at all.
    pub fn has_free_chunk(&self) -> bool {
        self.pool.free_count() > 0
    }

    /// One pass of a worker at the present time: all that came in, what is due, all that may go out.
    pub fn pass(&mut self) {
        for (i, port) in self.ports.iter_mut().enumerate() {
            loop {
                port.rx_burst(&mut self.pool, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                self.switch.receive(self.now, PortId(i as u8), &mut self.pool, &mut self.burst);
            }
        }
        if self.switch.tick_deadline().is_some_and(|t| t <= self.now) {
            self.switch.tick(self.now, &mut self.pool);
        }
        for id in self.switch.backlog().iter() {
            let port = &mut self.ports[id.index()];
            loop {
                let room = port.tx_room(&mut self.pool);
                self.switch.transmit(self.now, id, &mut self.pool, room, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                port.tx_burst(&mut self.pool, &mut self.burst);
            }
        }
    }

    /// What is due, and nothing else.
    pub fn tick(&mut self) {
        self.switch.tick(self.now, &mut self.pool);
    }

    /// Lets `ns` nanoseconds go by; the worker is awake now, at each deadline and at the end.
    pub fn wait(&mut self, ns: u64) {
        let end = self.now + ns;
        self.pass();
        while let Some(due) = self.switch.next_deadline().filter(|due| *due < end) {
            self.now = self.now.max(due);
            self.pass();
        }
        self.now = end;
        self.pass();
    }

    /// What the switch sent since last asked, by port and in order.
    pub fn sent(&mut self) -> Vec<Sent> {
        let mut sent = vec![];
        for (i, port) in self.ports.iter_mut().enumerate() {
            while let Some(frame) = port.sent() {
                sent.push((i as u8, frame.to_vec()));
                self.pool.free(frame);
            }
        }
        sent
    }

    /// One frame in by `port`, and all that comes out at once.
    pub fn send(&mut self, port: u8, frame: &[u8]) -> Vec<Sent> {
        self.arrive(port, frame);
        self.pass();
        self.sent()
    }

    /// The same, with what was dropped because of it.
    pub fn refuse(&mut self, port: u8, frame: &[u8]) -> (Vec<Sent>, Vec<DropReason>) {
        let before = self.drops();
        let sent = self.send(port, frame);
        let after = self.drops();
        let new = DropReason::ALL.iter().zip(before.iter().zip(after));
        (sent, new.flat_map(|(r, (b, a))| std::iter::repeat_n(*r, (a - b) as usize)).collect())
    }

    fn drops(&self) -> Vec<u64> {
        let ledger = self.switch.ledger();
        let of = |r: &DropReason| ledger.ports.iter().map(|(c, _)| c.drops().get(*r)).sum();
        DropReason::ALL.iter().map(of).collect()
    }

    /// Frames dropped for `reason` so far.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops()[reason as usize]
    }

    /// Lets the ToR learn the addresses of its hosts, as their first ARP and ND requests and their answers to the switch's do.
    pub fn meet_hosts(&mut self) {
        for (port, host) in (0..).zip(HOSTS) {
            let request =
                packets::arp(false, (host.mac, host.v4), (MacAddr([0; 6]), GATEWAY4), MacAddr::BROADCAST, &[]);
            self.send(port, &request);
            self.send(port, &packets::solicitation((host.mac, host.v6), GATEWAY6));
            self.send(port, &packets::arp(true, (host.mac, host.v4), (SWITCH, GATEWAY4), SWITCH, &[]));
            self.send(port, &packets::advertisement((host.mac, host.v6), (SWITCH, GATEWAY6), false));
        }
        assert_eq!(self.switch.ingress().neighbour_views(self.now).len(), 2 * HOSTS.len());
    }

    /// Takes a port out of or back into service, as the runtime does.
    pub fn set_up(&mut self, port: u8, up: bool) {
        Dataplane::set_port_up(&mut self.switch, PortId(port), up, &mut self.pool);
    }

    /// Drops all that the switch holds.
    pub fn drain(&mut self) {
        self.switch.drain(self.now, &mut self.pool);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.pass();
        self.sent();
        self.switch.ledger().check().expect("the conservation law");
        self.drain();
        let ledger = self.switch.ledger();
        ledger.check().expect("the conservation law after a drain");
        assert!(ledger.ports.iter().all(|(c, queued)| c.held == 0 && *queued == 0), "something is left: {ledger:?}");
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}
