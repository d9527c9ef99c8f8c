//! A configured ToR and what drives it: frames, time, and what reaches it beside them.

use weft::config::SwitchConfig;
use weft::dataplane::{self, Dataplane};
use weft::frame::{BURST, Burst};
use weft::id::{PortId, Role, SwitchId};
use weft::time::{Instant, MILLIS};
use weft::wire::caft::{self, Metrics, Tag, Trip};
use weft::wire::hula::{FRAME_LEN, MAX_LINKS, Probe};
use weft::wire::{self, ethernet};

use super::Pass;
use super::traffic::{Flow, HOSTS, Random, SWITCH, Segment, Traffic, host_mac};

const UPLINKS: u8 = 4;
/// Nanoseconds between two bursts, and half of that: from arrival to departure. A burst takes a 100 Gbit/s port
/// 430 ns, so pacers and meters are at work but no frame waits for the next burst.
const STEP: u64 = 1_000;
const PACED: &str = "rate = \"100Gbit\"";
/// The racks that flows go to.
const TORS: u16 = 128;
/// The period of HULA's probes, its default.
const PERIOD: u64 = MILLIS;

/// What is measured: a path selection, in a role, with or without rates at its ports.
#[derive(Clone, Copy)]
pub struct Setup {
    pub name: &'static str,
    selector: &'static str,
    role: Role,
    is_paced: bool,
    /// `[caft] timeout`.
    timeout: &'static str,
}

const TOR: Setup = Setup { name: "", selector: "", role: Role::Tor, is_paced: true, timeout: "100ms" };

pub const SETUPS: [Setup; 9] = [
    Setup { name: "ecmp", selector: "ecmp", is_paced: false, ..TOR },
    Setup { name: "paced", selector: "ecmp", ..TOR },
    Setup { name: "letflow", selector: "letflow", ..TOR },
    Setup { name: "hula", selector: "hula", ..TOR },
    Setup { name: "p4te", selector: "p4te", ..TOR },
    Setup { name: "caft", selector: "caft", ..TOR },
    Setup { name: "caft-open", selector: "caft", timeout: "1ms", ..TOR },
    Setup { name: "expeditus", selector: "expeditus", ..TOR },
    Setup { name: "caft-agg", selector: "caft", role: Role::Agg, ..TOR },
];

impl Setup {
    /// Whether it looks after the rates of flows.
    pub fn adapts_rates(&self) -> bool {
        self.selector == "p4te"
    }

    /// With a table entry for each of `flows` flows, as the floor has: flows that fall on one share it, or do
    /// without.
    fn config(&self, flows: u64) -> SwitchConfig {
        let rate = if self.is_paced { PACED } else { "" };
        let (below, segment) = match self.role {
            Role::Tor => ("host", "[segment]\nipv4 = \"10.0.0.1/24\"\n"),
            Role::Agg | Role::Core => ("down", ""),
        };
        let port =
            |name: char, kind: &str, i: u8| format!("[[port]]\ninterface = \"{name}{i}\"\nkind = \"{kind}\"\n{rate}\n");
        let hosts: String = (0..HOSTS).map(|i| port('h', below, i)).collect();
        let ups: String = (0..UPLINKS).map(|i| port('u', "up", i)).collect();
        let names = |name: char, count: u8| (0..count).map(|i| format!("\"{name}{i}\"")).collect::<Vec<_>>().join(", ");
        let down = match self.role {
            Role::Tor => String::new(),
            Role::Agg | Role::Core => {
                format!("[[route]]\nprefix = \"10.0.0.0/24\"\nports = [{}]\n", names('h', HOSTS))
            }
        };
        let text = format!(
            "name = \"t\"\nmac = \"{SWITCH}\"\nrole = \"{}\"\nselector = \"{}\"\n{segment}[pod]\nipv4 = \"10.0.0.0/24\"\n\
             [hello]\ninterval = 0\n[flowlet]\nslots = {flows}\n[p4te]\nrate_adaptation = \"fack\"\nrate_slots = {flows}\n\
             [caft]\nslots = {flows}\ntimeout = \"{}\"\n{hosts}{ups}[[route]]\nprefix = \"0.0.0.0/0\"\nports = [{}]\n{down}",
            self.role,
            self.selector,
            self.timeout,
            names('u', UPLINKS)
        );
        SwitchConfig::parse(&text, "bench").expect("a sound configuration")
    }
}

/// A switch and its time; host ports first, then uplinks.
pub struct Plane {
    plane: Box<dyn Dataplane>,
    now: Instant,
    probes: Option<Probes>,
    /// What leaves or comes beside the frames that are timed.
    aside: Burst,
}

/// The probes of all racks, by all uplinks, each period: evenly spaced.
struct Probes {
    next: Instant,
    sent: u64,
    load: Random,
}

impl Probes {
    /// The next one and its uplink.
    fn next(&mut self) -> (Probe, PortId) {
        let (tor, uplink) = (self.sent / u64::from(UPLINKS) % u64::from(TORS), self.sent % u64::from(UPLINKS));
        self.sent += 1;
        self.next = self.next + PERIOD / (u64::from(UPLINKS) * u64::from(TORS));
        let ipv4 = format!("10.0.{}.0/24", 2 * tor + 1).parse().ok();
        let utilisation = self.load.next() as u16;
        let probe = Probe { origin: SwitchId(100 + tor as u16), links: MAX_LINKS - 2, utilisation, ipv4, ipv6: None };
        (probe, PortId(HOSTS + uplink as u8))
    }
}

impl Plane {
    /// The switch of `setup` which has seen the hosts' addresses and the handshakes of all flows.
    pub fn new(setup: &Setup, flows: u64, traffic: &mut Traffic) -> Plane {
        let config = setup.config(flows);
        let plane = dataplane::build(&config, &[1500; (HOSTS + UPLINKS) as usize]);
        let probes = (setup.selector == "hula").then_some(Probes { next: Instant::ZERO, sent: 0, load: Random(2) });
        let mut plane = Plane { plane, now: Instant(1), probes, aside: Burst::new() };
        if setup.role == Role::Tor {
            (0..HOSTS).for_each(|host| plane.announce(host, traffic));
        }
        (0..HOSTS).for_each(|host| plane.open(host, traffic));
        if setup.selector == "caft" && setup.role == Role::Agg {
            (0..HOSTS).for_each(|host| plane.place(host, traffic));
        }
        plane
    }

    /// The far aggregation switches have chosen cores for a host's flows, and say so by these (CAFT's M1).
    fn place(&mut self, host: u8, traffic: &mut Traffic) {
        let tag = Tag { trip: Trip::Outbound, metrics: Metrics::new() };
        for i in 0..traffic.flows_of_a_host() {
            let mut syn = traffic.pool.alloc().expect("a spare frame");
            Flow::new(host, i).handshake()[0].0.write(&mut syn, SWITCH, weft::config::FABRIC_MAC);
            let headers = wire::parse(&syn).expect("a frame");
            let mut frame = traffic.pool.alloc().expect("a spare frame");
            frame.set_len(128);
            let macs = (SWITCH, weft::config::FABRIC_MAC);
            let len = caft::emit_message(&mut frame, macs, caft::TPID, &tag, &syn, &headers).expect("a TCP segment");
            frame.set_len(len);
            traffic.pool.free(syn);
            self.aside.push(frame);
            if self.aside.room() == 0 || i + 1 == traffic.flows_of_a_host() {
                let left = self.pass_by(PortId(HOSTS + (i as u8 / BURST as u8) % UPLINKS), traffic);
                assert_eq!(left, 0, "a message to the switch itself was passed on");
            }
        }
    }

    /// `host` asks for the gateway's address, which tells its own.
    fn announce(&mut self, host: u8, traffic: &mut Traffic) {
        let mut frame = traffic.pool.alloc().expect("a spare frame");
        frame.set_len(ethernet::MIN_FRAME);
        frame[..].fill(0);
        ethernet::set_addresses(&mut frame, weft::wire::MacAddr::BROADCAST, host_mac(host));
        frame[12..22].copy_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
        frame[22..28].copy_from_slice(&host_mac(host).0);
        frame[28..32].copy_from_slice(&[10, 0, 0, 2 + host]);
        frame[38..42].copy_from_slice(&[10, 0, 0, 1]);
        self.aside.push(frame);
        self.pass_by(PortId(host), traffic);
    }

    /// The handshakes of a host's flows, a burst of each step at a time.
    fn open(&mut self, host: u8, traffic: &mut Traffic) {
        let flows: Vec<u64> = (0..traffic.flows_of_a_host()).collect();
        for some in flows.chunks(BURST) {
            for step in 0..3 {
                let mut port = PortId(host);
                for flow in some {
                    let (segment, is_receivers): (Segment, bool) = Flow::new(host, *flow).handshake()[step];
                    let (from, by) = match is_receivers {
                        true => (weft::config::FABRIC_MAC, PortId(HOSTS + host % UPLINKS)),
                        false => (host_mac(host), PortId(host)),
                    };
                    port = by;
                    let mut frame = traffic.pool.alloc().expect("a spare frame");
                    segment.write(&mut frame, SWITCH, from);
                    self.aside.push(frame);
                }
                let left = self.pass_by(port, traffic);
                // Beside them the switch may ask a host whether it still has its address.
                assert!(left >= some.len(), "a segment of a handshake was not forwarded");
            }
        }
    }

    /// Takes what is set aside through the switch and frees what leaves: how many frames.
    fn pass_by(&mut self, port: PortId, traffic: &mut Traffic) -> usize {
        self.plane.receive(self.now, port, &mut traffic.pool, &mut self.aside);
        self.now = self.now + STEP;
        self.free_backlog(traffic)
    }

    fn free_backlog(&mut self, traffic: &mut Traffic) -> usize {
        let mut left = 0;
        for port in self.plane.backlog().iter() {
            self.plane.transmit(self.now, port, &mut traffic.pool, BURST, &mut self.aside);
            left += self.aside.len();
            self.aside.drain().for_each(|frame| traffic.pool.free(frame));
        }
        left
    }

    /// What falls due beside data: own probes, and those of other racks.
    fn housekeeping(&mut self, traffic: &mut Traffic) {
        if self.plane.tick_deadline().is_some_and(|due| due <= self.now) {
            self.plane.tick(self.now, &mut traffic.pool);
            self.free_backlog(traffic);
        }
        let Some(probes) = &mut self.probes else { return };
        if probes.next <= self.now {
            let (probe, port) = probes.next();
            let mut frame = traffic.pool.alloc().expect("a spare frame");
            frame.set_len(FRAME_LEN);
            probe.emit(weft::config::FABRIC_MAC, frame.first_chunk_mut().expect("as long as was set"));
            self.aside.push(frame);
            self.plane.receive(self.now, port, &mut traffic.pool, &mut self.aside);
        }
    }

    /// The conservation law holds.
    pub fn check(&self) {
        self.plane.ledger().check().expect("the conservation law");
    }
}

impl Pass for Plane {
    fn run(&mut self, traffic: &mut Traffic) {
        for i in 0..traffic.bursts.len() {
            self.now = self.now + STEP / 2;
            self.housekeeping(traffic);
            let burst = &mut traffic.bursts[i];
            let port = PortId((i % usize::from(HOSTS)) as u8);
            self.plane.receive(self.now, port, &mut traffic.pool, burst);
            self.now = self.now + STEP / 2;
            // What leaves takes the place of what came.
            for up in self.plane.backlog().iter() {
                self.plane.transmit(self.now, up, &mut traffic.pool, BURST, burst);
            }
            self.plane.control(self.now);
            assert_eq!(burst.len(), BURST, "a frame was not forwarded");
        }
    }
}
