//! A ToR that forwards between its own hosts, without and with PL2.

use weft::config::SwitchConfig;
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::frame::{BURST, Burst, Frame};
use weft::id::PortId;
use weft::time::{Instant, MILLIS};
use weft::wire::ethernet;
use weft::wire::pl2::{Control, FRAME_LEN, Flags, Kind, SHIM_LEN, SHIM_START, Shim};

use super::Pass;
use super::traffic::{FRAMES, HOSTS, SWITCH, Traffic, host_mac};

/// As for a plane.
const STEP: u64 = 1_000;
/// Slots of a reservation, and so frames of a connection in a pass.
const SLOTS: usize = 4;
/// Frames of a host in a pass, and its connections.
const FRAMES_OF_A_HOST: usize = FRAMES / HOSTS as usize;
const CONNECTIONS: u32 = (FRAMES_OF_A_HOST / SLOTS) as u32;

/// What the frames are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Data between hosts of a switch without PL2.
    Bridged,
    /// The same in slots that were reserved before; frames of a host's connections take turns.
    Data,
    /// Requests, each granted.
    Requests,
}

pub const LOADS: [(&str, Load); 3] =
    [("bridged", Load::Bridged), ("pl2-data", Load::Data), ("pl2-rsv", Load::Requests)];

pub struct Rack {
    plane: Box<dyn Dataplane>,
    load: Load,
    now: Instant,
    /// Number of each connection's last reservation.
    seq: u32,
    aside: Burst,
}

/// Where a host sends to.
fn receiver(host: u8) -> u8 {
    (host + 1) % HOSTS
}

impl Rack {
    pub fn new(load: Load, traffic: &mut Traffic) -> Rack {
        let port = |i: u8| format!("[[port]]\ninterface = \"h{i}\"\nkind = \"host\"\nrate = \"100Gbit\"\n");
        let hosts: String = (0..HOSTS).map(port).collect();
        let pl2 = if load == Load::Bridged { "" } else { "[pl2]\nagent = \"none\"\nmax_reserved = 4000\n" };
        let text = format!(
            "name = \"t\"\nmac = \"{SWITCH}\"\nrole = \"tor\"\n[segment]\nipv4 = \"10.0.0.1/24\"\n{pl2}\
             [queues]\nbytes = \"1MB\"\n{hosts}"
        );
        let config = SwitchConfig::parse(&text, "bench").expect("a sound configuration");
        let plane = dataplane::build(&config, &[1500; HOSTS as usize]);
        let mut rack = Rack { plane, load, now: Instant(1), seq: 0, aside: Burst::new() };
        // Who has sent something is known.
        for host in 0..HOSTS {
            let mut frame = traffic.pool.alloc().expect("a spare frame");
            frame.set_len(ethernet::MIN_FRAME);
            frame[..].fill(0);
            ethernet::set_addresses(&mut frame, host_mac(receiver(host)), host_mac(host));
            frame[12..14].copy_from_slice(&[0x12, 0x34]);
            rack.aside.push(frame);
            rack.pass_by(host, traffic);
        }
        rack
    }

    /// Takes what is set aside through the switch, and frees what leaves.
    fn pass_by(&mut self, host: u8, traffic: &mut Traffic) {
        self.plane.receive(self.now, PortId(host), &mut traffic.pool, &mut self.aside);
        self.now = self.now + STEP;
        for port in self.plane.backlog().iter() {
            self.plane.transmit(self.now, port, &mut traffic.pool, BURST, &mut self.aside);
            self.aside.drain().for_each(|frame| traffic.pool.free(frame));
        }
    }

    fn request(&self, host: u8, conn: u32, k: u16, frame: &mut Frame) {
        let (kind, flags, seq) = (Kind::Rsv, Flags::default(), self.seq);
        let (epoch, demand, t_in, t_out, t_sw, t_tx, slot_ns) = (1, 0, 0, 0, 0, self.now.0, 0);
        let rsv = Control { kind, flags, k, epoch, conn, seq, demand, t_in, t_out, t_sw, t_tx, slot_ns };
        frame.set_len(FRAME_LEN);
        rsv.emit(host_mac(receiver(host)), host_mac(host), frame.first_chunk_mut().expect("as long as was set"));
    }

    /// Slots for all frames of the next pass.
    fn reserve(&mut self, traffic: &mut Traffic) {
        for host in 0..HOSTS {
            for conn in 0..CONNECTIONS {
                let mut frame = traffic.pool.alloc().expect("a spare frame");
                self.request(host, conn, SLOTS as u16, &mut frame);
                self.aside.push(frame);
                if self.aside.room() == 0 || conn + 1 == CONNECTIONS {
                    self.pass_by(host, traffic);
                }
            }
        }
    }

    /// Every frame was what it was to be: none was dropped, and each slot was used.
    pub fn check(&self) {
        let ledger = self.plane.ledger();
        ledger.check().expect("the conservation law");
        let drops: u64 = ledger.ports.iter().map(|(c, _)| c.drops().total()).sum();
        assert_eq!(drops, 0, "frames were dropped");
        let shown = self.plane.show(self.now, Topic::Slots);
        for table in shown.iter().filter(|table| table.name == "requests") {
            let unwanted = |column: &&str| ["nacks", "late", "rogue"].contains(column);
            for (at, column) in table.columns.iter().enumerate().filter(|(_, column)| unwanted(column)) {
                assert!(table.rows.iter().all(|row| row[at] == Cell::Int(0)), "{column}: {table:?}");
            }
        }
    }
}

impl Pass for Rack {
    fn ready(&mut self, traffic: &mut Traffic) {
        traffic.refill();
        self.seq += 1;
        // What was granted and not used is over.
        self.now = self.now + 10 * MILLIS;
        while self.plane.tick_deadline().is_some_and(|due| due <= self.now) {
            self.plane.tick(self.now, &mut traffic.pool);
        }
        if self.load == Load::Data {
            self.reserve(traffic);
        }
        let mut of_host = [0u32; HOSTS as usize];
        let mut bursts = std::mem::take(&mut traffic.bursts);
        for (i, burst) in bursts.iter_mut().enumerate() {
            let host = (i % usize::from(HOSTS)) as u8;
            for frame in burst.frames_mut() {
                let number = &mut of_host[usize::from(host)];
                match self.load {
                    Load::Requests => self.request(host, *number, 1, frame),
                    Load::Bridged | Load::Data => {
                        ethernet::set_addresses(frame, host_mac(receiver(host)), host_mac(host));
                    }
                }
                if self.load == Load::Data {
                    let last = *number >= CONNECTIONS * (SLOTS as u32 - 1);
                    let mut shim = [0; SHIM_LEN];
                    Shim::new(*number % CONNECTIONS, true, last).emit(&mut shim);
                    assert!(frame.insert(SHIM_START, SHIM_LEN), "a chunk has room");
                    frame[SHIM_START..SHIM_START + SHIM_LEN].copy_from_slice(&shim);
                }
                *number += 1;
            }
        }
        traffic.bursts = bursts;
    }

    fn run(&mut self, traffic: &mut Traffic) {
        for i in 0..traffic.bursts.len() {
            self.now = self.now + STEP / 2;
            let burst = &mut traffic.bursts[i];
            let port = PortId((i % usize::from(HOSTS)) as u8);
            self.plane.receive(self.now, port, &mut traffic.pool, burst);
            self.now = self.now + STEP / 2;
            for to in self.plane.backlog().iter() {
                self.plane.transmit(self.now, to, &mut traffic.pool, BURST, burst);
            }
            assert_eq!(burst.len(), BURST, "a frame was not forwarded");
        }
    }
}
