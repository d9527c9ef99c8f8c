use std::net::Ipv4Addr;

use weft::agent::{Agent, AgentConfig, MemTap};
use weft::config::SwitchConfig;
use weft::dataplane::{self, Dataplane};
use weft::frame::{Burst, Pool};
use weft::id::PortId;
use weft::port::Port;
use weft::port::mem::MemPort;
use weft::scheme::pl2::host::HostConfig;
use weft::time::{Instant, MILLIS, SECONDS};
use weft::wire::MacAddr;

use super::mac;
use super::packets::{self, Ends};

const HOSTS: u8 = 3;
/// The quiet one, behind the last port.
const RECEIVER: u8 = HOSTS - 1;
const STEP: u64 = 4_000;
/// A full frame of 1,538 bytes of wire at 100 Mbit/s lasts 123 us: two senders offer nearly twice what fits.
const PERIOD: u64 = 128_000;

fn ip(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, 2 + host)
}

/// A ToR that has heard of nobody.
fn switch() -> Box<dyn Dataplane> {
    let mut text = String::from(
        "name = \"t\"\nrole = \"tor\"\nid = 1\nmac = \"02:77:00:00:00:01\"\n[segment]\nipv4 = \"10.0.1.1/24\"\n\
         [pod]\nipv4 = \"10.0.0.0/16\"\n[hello]\ninterval = \"0\"\n[pl2]\nagent = \"none\"\nmode = \"window\"\n",
    );
    for port in 0..HOSTS {
        text += &format!("[[port]]\ninterface = \"h{port}\"\nkind = \"host\"\nrate = \"100Mbit\"\n");
    }
    let config = SwitchConfig::parse(&text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
    dataplane::build(&config, &[1500; HOSTS as usize])
}

/// Two agents at a switch on memory ports, and a receiver that has none.
struct Rack {
    plane: Box<dyn Dataplane>,
    pool: Pool,
    ports: Vec<MemPort>,
    agents: Vec<Agent<MemPort, MemTap>>,
    now: u64,
}

impl Rack {
    fn new() -> Rack {
        let agent = |host| {
            let config = AgentConfig { host: HostConfig::default(), mac: mac(host), unscheduled: vec![] };
            Agent::new(&config, MemPort::new(256), MemTap::default(), Pool::heap(4096, 2048)).expect("a configuration")
        };
        Rack {
            plane: switch(),
            pool: Pool::heap(4096, 2048),
            ports: (0..HOSTS).map(|_| MemPort::new(4096)).collect(),
            agents: (0..RECEIVER).map(agent).collect(),
            now: SECONDS,
        }
    }

    /// A host announces itself, to the switch alone: nobody hears it but by the bridge.
    fn speak(&mut self, host: u8) {
        let (us, gateway) = ((mac(host), ip(host)), (MacAddr([0; 6]), Ipv4Addr::new(10, 0, 1, 1)));
        self.arrive(host, &packets::arp(false, us, gateway, MacAddr::BROADCAST, &[]));
    }

    fn arrive(&mut self, port: u8, frame: &[u8]) {
        let frame = self.pool.alloc_with(frame).expect("a chunk");
        self.ports[usize::from(port)].inject(frame).expect("room");
    }

    /// Both senders send for so long.
    fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.now += STEP;
            for host in 0..RECEIVER {
                if self.now % PERIOD < STEP {
                    let ends = Ends {
                        src_mac: mac(host),
                        dst_mac: mac(RECEIVER),
                        src: ip(host).into(),
                        dst: ip(RECEIVER).into(),
                    };
                    let frame = packets::udp(ends, 64, (1000, 9), &[0; 1472]);
                    self.agents[usize::from(host)].parts().1.outgoing.push_back(frame);
                }
                let now = Instant(self.now);
                let agent = &mut self.agents[usize::from(host)];
                agent.pass(|| now).expect("both sides are there");
                let (port, _, pool) = agent.parts();
                let mut left = vec![];
                while let Some(frame) = port.sent() {
                    left.push(frame.to_vec());
                    pool.free(frame);
                }
                left.iter().for_each(|frame| self.arrive(host, frame));
            }
            self.forward();
        }
    }

    /// A pass of the switch, and what it sends to the agents.
    fn forward(&mut self) {
        let (now, mut burst) = (Instant(self.now), Burst::new());
        for (i, port) in (0..).zip(&mut self.ports) {
            loop {
                port.rx_burst(&mut self.pool, &mut burst);
                if burst.is_empty() {
                    break;
                }
                self.plane.receive(now, PortId(i), &mut self.pool, &mut burst);
            }
        }
        if self.plane.tick_deadline().is_some_and(|at| at <= now) {
            self.plane.tick(now, &mut self.pool);
        }
        for id in self.plane.backlog().iter() {
            self.plane.transmit(now, id, &mut self.pool, 64, &mut burst);
            self.ports[id.index()].tx_burst(&mut self.pool, &mut burst);
        }
        self.plane.control(now);
        for (i, port) in self.ports.iter_mut().enumerate() {
            while let Some(frame) = port.sent() {
                if let Some(agent) = self.agents.get_mut(i) {
                    let (port, _, pool) = agent.parts();
                    let copy = pool.alloc_with(&frame).expect("a chunk");
                    port.inject(copy).expect("room");
                }
                self.pool.free(frame);
            }
        }
    }

    /// All is taken apart; no chunk is missing.
    fn close(mut self) {
        self.plane.drain(Instant(self.now), &mut self.pool);
        self.ports.iter_mut().for_each(|port| port.clear(&mut self.pool));
        assert_eq!(self.pool.free_count(), self.pool.chunks());
        for agent in self.agents {
            let (mut port, _, mut pool, _) = agent.close();
            port.clear(&mut pool);
            assert_eq!(pool.free_count(), pool.chunks());
        }
    }

    /// Frames that went unscheduled, and in slots, of each sender.
    fn sent(&self) -> Vec<(u64, u64)> {
        self.agents.iter().map(|agent| (agent.counters().bypass_sent, agent.counters().data_sent)).collect()
    }
}

/// A switch started anew has an empty bridge and refuses what it has no route to. The receiver says something 10 ms
/// after; at most 20 ms later, and a round trip, all is in slots again.
#[test]
fn after_a_restart_of_the_switch_an_incast_to_a_quiet_host_is_soon_scheduled_again() {
    let mut rack = Rack::new();
    (0..HOSTS).for_each(|host| rack.speak(host));
    rack.run(20 * MILLIS);
    assert!(rack.sent().iter().all(|(unscheduled, data)| *unscheduled == 0 && *data > 50), "{:?}", rack.sent());

    let now = Instant(rack.now);
    rack.plane.drain(now, &mut rack.pool);
    rack.plane = switch();
    rack.run(10 * MILLIS);
    assert!(rack.sent().iter().all(|(unscheduled, _)| *unscheduled > 0), "no route: {:?}", rack.sent());
    rack.speak(RECEIVER);
    rack.run(25 * MILLIS);
    let before = rack.sent();
    rack.run(50 * MILLIS);
    for ((unscheduled, data), (unscheduled_then, data_then)) in before.into_iter().zip(rack.sent()) {
        // Half of 50 ms of slots of 123 us is 203; a round trip and the host's pauses come off.
        assert!(unscheduled_then == unscheduled && data_then > data + 100, "{:?}", rack.sent());
    }
    rack.close();
}
