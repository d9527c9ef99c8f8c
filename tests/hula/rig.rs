//! One HULA switch, probes in and out by hand.

use weft::counters::Drops;
use weft::dataplane::Dataplane;
use weft::fabric::{Fabric, FabricConfig, FabricEgress, FabricIngress, FabricPort, Forwarding, HelloConfig, HelloMode};
use weft::frame::{Burst, Pool};
use weft::id::{PortId, PortKind, SwitchId};
use weft::pisa::{Pipe, PortLimits, Switch};
use weft::scheme::hula::{Hula, HulaConfig, HulaEgress, HulaIngress, TorView};
use weft::time::{Instant, MICROS, SECONDS};
use weft::units::BitRate;
use weft::wire::MacAddr;
use weft::wire::hula::{FRAME_LEN, Probe, read};
use weft::wire::parse::parse;

const PEER: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 9]);
const RATE: BitRate = BitRate(1_000_000_000);
/// The switch's number.
pub const OWN: u16 = 1;

/// Period 200 us, so 400 us of memory and 100 us between two probes of a ToR; keep-alive 1 ms.
pub const CONFIG: HulaConfig = HulaConfig {
    period: 200 * MICROS,
    keepalive: 1_000 * MICROS,
    flowlet_gap: 100 * MICROS,
    flowlet_slots: 8192,
    max_tors: 4,
};

/// A switch with ports of these kinds.
pub struct Rig {
    pub switch: Switch<Fabric<Hula>>,
    pub pool: Pool,
    ports: usize,
}

impl Rig {
    pub fn new(kinds: &[PortKind], config: &HulaConfig) -> Rig {
        Rig::with_hellos(kinds, config, HelloMode::Off)
    }

    /// A switch whose fabric ports take hellos so.
    pub fn with_hellos(kinds: &[PortKind], config: &HulaConfig, hello: HelloMode) -> Rig {
        let port = |kind: &PortKind| FabricPort { kind: *kind, peer: PEER, mtu: 1500, rx_mtu: 1500, hello };
        let tor = kinds.contains(&PortKind::Host);
        let fabric = FabricConfig {
            id: SwitchId(OWN),
            mac: MacAddr([2, 0x77, 0, 0, 0, 1]),
            fabric_mac: PEER,
            ports: kinds.iter().map(port).collect(),
            forwarding: Forwarding { segment_v4: tor.then(|| "10.0.1.1/24".parse().unwrap()), ..Forwarding::default() },
            seed: 1,
            hello: HelloConfig { interval: if hello == HelloMode::Off { 0 } else { SECONDS }, multiplier: 3 },
            pipe: Pipe::ONLY,
        };
        let scheme = HulaIngress::new(&fabric, &vec![RATE; kinds.len()], config).expect("a valid configuration");
        let limits = vec![PortLimits::default(); kinds.len()];
        let switch = Switch::new(FabricIngress::new(fabric, scheme), FabricEgress::new(HulaEgress), &limits);
        Rig { switch, pool: Pool::heap(256, 2048), ports: kinds.len() }
    }

    /// A frame comes in; the probes that leave.
    pub fn receive(&mut self, at: Instant, port: u8, frame: &[u8]) -> Vec<(u8, Probe)> {
        let mut burst = Burst::new();
        burst.push(self.pool.alloc_with(frame).expect("a free chunk"));
        self.switch.receive(at, PortId(port), &mut self.pool, &mut burst);
        self.leave(at)
    }

    /// A probe comes in; the probes that leave.
    pub fn hear(&mut self, at: Instant, port: u8, probe: &Probe) -> Vec<(u8, Probe)> {
        let mut frame = [0; FRAME_LEN];
        probe.emit(PEER, &mut frame);
        self.receive(at, port, &frame)
    }

    /// Time passes; the probes that leave.
    pub fn tick(&mut self, at: Instant) -> Vec<(u8, Probe)> {
        self.switch.tick(at, &mut self.pool);
        self.leave(at)
    }

    fn leave(&mut self, at: Instant) -> Vec<(u8, Probe)> {
        let mut probes = vec![];
        for port in (0..self.ports).map(|p| PortId(p as u8)) {
            let mut burst = Burst::new();
            self.switch.transmit(at, port, &mut self.pool, 64, &mut burst);
            for frame in burst.drain() {
                let headers = parse(&frame).expect("an Ethernet frame");
                probes.push((port.0, read(&frame, &headers).expect("a well-formed probe")));
                self.pool.free(frame);
            }
        }
        self.switch.ledger().check().expect("the books balance");
        probes
    }

    pub fn set_up(&mut self, port: u8, up: bool) {
        Dataplane::set_port_up(&mut self.switch, PortId(port), up, &mut self.pool);
    }

    pub fn scheme(&mut self) -> &mut HulaIngress {
        self.switch.ingress_mut().scheme_mut()
    }

    /// The way to a ToR: port and utilisation.
    pub fn way(&self, at: Instant, tor: u16) -> Option<(u8, u16)> {
        let is = |view: &TorView| view.tor == SwitchId(tor);
        let view = self.switch.ingress().scheme().tors(at).into_iter().find(is)?;
        Some((view.best?.0, view.utilisation))
    }

    pub fn drops(&self) -> Drops {
        let mut all = Drops::default();
        self.switch.ledger().ports.iter().for_each(|(counters, _)| all.add(&counters.drops()));
        all
    }
}

/// A probe of ToR `origin`, whose prefix is 10.0.origin.0/24.
pub fn probe(origin: u16, utilisation: u16) -> Probe {
    let prefix = format!("10.0.{origin}.0/24").parse().unwrap();
    Probe { origin: SwitchId(origin), links: 4, utilisation, ipv4: Some(prefix), ipv6: None }
}
