//! A ToR with five hosts and two uplinks on memory ports, as its configuration makes it.

use std::net::Ipv4Addr;

use weft::config::SwitchConfig;
use weft::counters::DropReason;
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::frame::{Burst, Pool};
use weft::id::PortId;
use weft::port::Port;
use weft::port::mem::MemPort;
use weft::time::Instant;
use weft::wire::MacAddr;

use crate::packets::{self, Ends};

/// The switch.
pub const SWITCH: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 1]);
/// What any fabric port takes for its own.
pub const FABRIC: MacAddr = MacAddr([2, 0x77, 0x65, 0x66, 0x74, 0]);
/// Host ports, from 0.
pub const HOSTS: u8 = 5;
/// A fabric port.
pub const UPLINK: u8 = HOSTS;
/// 1,538 bytes at 1 Gbit/s.
pub const SLOT: u64 = 12_304;

/// The host behind a port.
pub fn mac(port: u8) -> MacAddr {
    MacAddr([2, 0x68, 0, 0, 1, port])
}

/// Its address.
pub fn ip(port: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, 2 + port)
}

/// A UDP packet from host to host, of `len` bytes as a frame (at least 60).
pub fn udp(from: u8, to: u8, len: usize) -> Vec<u8> {
    numbered(from, to, len, 1)
}

/// The same of the flow with that source port.
pub fn numbered(from: u8, to: u8, len: usize, flow: u16) -> Vec<u8> {
    let ends = Ends { src_mac: mac(from), dst_mac: mac(to), src: ip(from).into(), dst: ip(to).into() };
    packets::udp(ends, 64, (flow, 2), &vec![flow as u8; len.saturating_sub(42)])
}

/// `frame` in a slot: with a shim of connection `conn`, E and L as given. By hand: the 4 bytes behind the addresses.
pub fn in_slot(frame: &[u8], conn: u16, closes: bool, last: bool) -> Vec<u8> {
    let high = if closes { 8 } else { 0 } + if last { 4 } else { 0 } + (conn >> 8) as u8;
    [&frame[..12], &[0x88, 0xb6, high, conn as u8], &frame[12..]].concat()
}

/// An RSV as it is on the wire, field by field.
pub fn rsv(from: u8, to: MacAddr, k: u8, conn: u8, seq: u8) -> Vec<u8> {
    let mut frame = [&to.0[..], &mac(from).0, &[0x88, 0xb6, 0x11, 0, 0, k, 0, 0, 0, 0, 0, conn, 0, 0, 0, seq]].concat();
    frame.resize(60, 0);
    frame
}

/// A switch of this configuration; its keys stand before its tables.
pub struct Setup {
    pub top: &'static str,
    pub tables: &'static str,
    /// Of host ports.
    pub rate: &'static str,
}

/// Hosts that reserve by themselves.
pub const ALONE: Setup = Setup { top: "", tables: "[pl2]\nagent = \"none\"", rate: "1Gbit" };

impl Setup {
    pub fn config(&self) -> SwitchConfig {
        let Setup { top, tables, rate } = self;
        let mut text = format!(
            "name = \"t\"\nrole = \"tor\"\nid = 1\nmac = \"{SWITCH}\"\n{top}\n[segment]\nipv4 = \"10.0.1.1/24\"\n\
             [pod]\nipv4 = \"10.0.0.0/16\"\n[hello]\ninterval = \"0\"\n{tables}\n"
        );
        for port in 0..HOSTS {
            text += &format!("[[port]]\ninterface = \"h{port}\"\nkind = \"host\"\nrate = \"{rate}\"\n");
        }
        for port in 0..2 {
            text += &format!("[[port]]\ninterface = \"up{port}\"\nkind = \"up\"\nrate = \"10Gbit\"\n");
        }
        text += "[[route]]\nprefix = \"0.0.0.0/0\"\nports = [\"up0\", \"up1\"]\n";
        SwitchConfig::parse(&text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    /// The switch, which has heard of its hosts.
    pub fn rig(&self) -> Rig {
        self.rig_of(dataplane::build)
    }

    /// The same, of what `build` makes of its configuration and MTUs.
    pub fn rig_of(&self, build: impl Fn(&SwitchConfig, &[u16]) -> Box<dyn Dataplane>) -> Rig {
        let config = self.config();
        let ports = config.ports.len();
        let mut rig = Rig {
            plane: build(&config, &vec![1500; ports]),
            config,
            now: Instant(999_000_000),
            pool: Pool::heap(4096, 2048),
            ports: (0..ports).map(|_| MemPort::new(4096)).collect(),
            burst: Burst::new(),
            kept: vec![],
        };
        for port in 0..HOSTS {
            let (us, gateway) = ((mac(port), ip(port)), (MacAddr([0; 6]), Ipv4Addr::new(10, 0, 1, 1)));
            rig.send(port, &packets::arp(false, us, gateway, MacAddr::BROADCAST, &[]));
        }
        rig.now = Instant(1_000_000_000);
        rig
    }
}

/// `in[]`, `out[]`, queued slots and pending reservations of a port.
pub type Registers = [u64; 4];

pub struct Rig {
    pub plane: Box<dyn Dataplane>,
    pub config: SwitchConfig,
    pub now: Instant,
    pub pool: Pool,
    ports: Vec<MemPort>,
    burst: Burst,
    /// What was sent while time went by: when, by which port, and what.
    pub kept: Vec<(Instant, u8, Vec<u8>)>,
}

impl Rig {
    /// Puts a frame on the wire to `port`.
    pub fn arrive(&mut self, port: u8, frame: &[u8]) {
        let frame = self.pool.alloc_with(frame).expect("a free chunk");
        if let Err(frame) = self.ports[port as usize].inject(frame) {
            self.pool.free(frame);
            panic!("port {port} is full");
        }
    }

    /// One pass of a worker.
    pub fn pass(&mut self) {
        for (i, port) in self.ports.iter_mut().enumerate() {
            loop {
                port.rx_burst(&mut self.pool, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                self.plane.receive(self.now, PortId(i as u8), &mut self.pool, &mut self.burst);
            }
        }
        if self.plane.tick_deadline().is_some_and(|t| t <= self.now) {
            self.plane.tick(self.now, &mut self.pool);
        }
        for id in self.plane.backlog().iter() {
            let port = &mut self.ports[id.index()];
            loop {
                let room = port.tx_room(&mut self.pool);
                self.plane.transmit(self.now, id, &mut self.pool, room, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                port.tx_burst(&mut self.pool, &mut self.burst);
            }
        }
        self.plane.control(self.now);
    }

    /// Lets `ns` nanoseconds go by, awake at each deadline; what is sent meanwhile is kept.
    pub fn wait(&mut self, ns: u64) {
        let end = self.now + ns;
        self.pass();
        self.keep();
        while let Some(due) = self.plane.next_deadline().filter(|due| *due < end) {
            self.now = self.now.max(due);
            self.pass();
            self.keep();
        }
        self.now = end;
        self.pass();
        self.keep();
    }

    fn keep(&mut self) {
        for (port, frame) in self.sent() {
            self.kept.push((self.now, port, frame));
        }
    }

    /// Lets `frames` come in, each by its port at its time from now, in order.
    pub fn feed(&mut self, frames: impl IntoIterator<Item = (u64, u8, Vec<u8>)>) {
        let start = self.now;
        for (at, port, frame) in frames {
            self.wait((start + at).since(self.now));
            self.arrive(port, &frame);
        }
        self.pass();
        self.keep();
    }

    /// Lets time go by until nothing is queued, held or reserved, `ns` at most.
    pub fn settle(&mut self, ns: u64) {
        let end = self.now + ns;
        let busy = |rig: &Rig| {
            rig.plane.ledger().ports.iter().any(|(c, queued)| c.held + queued > 0)
                || (0..HOSTS).any(|port| rig.registers(port) != [0; 4])
        };
        while self.now < end && busy(self) {
            self.wait(100_000);
        }
        self.at_rest();
    }

    /// What was sent by `port` while time went by.
    pub fn kept_by(&self, port: u8) -> Vec<&[u8]> {
        self.kept.iter().filter(|(_, by, _)| *by == port).map(|(.., frame)| frame.as_slice()).collect()
    }

    /// What the switch sent since last asked, by port and in order.
    pub fn sent(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut sent = vec![];
        for (i, port) in self.ports.iter_mut().enumerate() {
            while let Some(frame) = port.sent() {
                sent.push((i as u8, frame.to_vec()));
                self.pool.free(frame);
            }
        }
        sent
    }

    /// One frame in by `port`, and all that comes out in the next 2 us: what is short, and waits for nothing.
    pub fn send(&mut self, port: u8, frame: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let before = std::mem::take(&mut self.kept);
        self.arrive(port, frame);
        self.wait(2_000);
        let sent = std::mem::replace(&mut self.kept, before);
        sent.into_iter().map(|(_, port, frame)| (port, frame)).collect()
    }

    /// Frames dropped, by reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let ledger = self.plane.ledger();
        let mut all = weft::counters::Drops::default();
        ledger.entries().for_each(|(c, _)| all.add(&c.drops()));
        all.nonzero().collect()
    }

    /// What is shown of a port.
    pub fn cell(&self, table: &str, port: u8, column: &str) -> Cell {
        let tables = self.plane.show(self.now, Topic::Slots);
        let table = tables.iter().find(|t| t.name == table).expect("a table");
        let at = table.columns.iter().position(|c| *c == column).expect("a column");
        let row = table.rows.iter().find(|row| row[0] == Cell::Port(PortId(port))).expect("the port's row");
        row[at].clone()
    }

    /// A number that is shown of a port.
    pub fn number(&self, table: &str, port: u8, column: &str) -> u64 {
        match self.cell(table, port, column) {
            Cell::Int(n) => n,
            other => panic!("{other:?}"),
        }
    }

    /// What the agent at a port has counted.
    pub fn agent(&self, port: u8, column: &str) -> u64 {
        self.number("agents", port, column)
    }

    pub fn registers(&self, port: u8) -> Registers {
        ["in", "out", "queued", "pending"].map(|column| self.number("slots", port, column))
    }

    /// What the book has counted of a port.
    pub fn counted(&self, port: u8, column: &str) -> u64 {
        self.number("requests", port, column)
    }

    /// Asserts that nothing is reserved or queued.
    pub fn at_rest(&self) {
        for port in 0..HOSTS {
            assert_eq!(self.registers(port), [0; 4], "port {port}");
        }
        self.plane.ledger().check().expect("the conservation law");
    }

    /// Takes a port out of or back into service.
    pub fn set_up(&mut self, port: u8, up: bool) {
        self.plane.set_port_up(PortId(port), up, &mut self.pool);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.pass();
        self.sent();
        self.plane.ledger().check().expect("the conservation law");
        self.plane.drain(self.now, &mut self.pool);
        let ledger = self.plane.ledger();
        ledger.check().expect("the conservation law after a drain");
        assert!(ledger.ports.iter().all(|(c, queued)| c.held == 0 && *queued == 0), "something is left: {ledger:?}");
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}
