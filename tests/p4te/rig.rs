//! One leaf with P4TE whose packets see the queue depths that a test gives, at the times that it gives.

use weft::config::{P4teOptions, PortConfig, RouteConfig, Selector, SwitchConfig};
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, SchemeTable, Topic};
use weft::fabric::{Fabric, FabricEgress, FabricIngress, Scheme, SchemeEgress, SchemePort};
use weft::frame::{Burst, Frame, Pool};
use weft::id::PortId;
use weft::pisa::meter::Color;
use weft::pisa::{EgressContext, EgressVerdict, Meta, Pipe, PortLimits, Switch};
use weft::scheme::p4te::control::ControlPlane;
use weft::scheme::p4te::monitor::{Counts, Digest};
use weft::scheme::p4te::{ColorEvent, P4teConfig, P4teEgress, P4teIngress};
use weft::time::{Instant, MICROS, MILLIS, SECONDS};
use weft::topo::{self, FabricOptions};
use weft::units::{BitRate, Duration};

use crate::packets::{self, Ends};

/// Of every port; a burst of 1 ms is 12,500 B.
pub const RATE: BitRate = BitRate(100_000_000);
/// The uplinks of the leaf.
pub const A: u8 = 2;
/// See [`A`].
pub const B: u8 = 3;
/// Short and large by the paper's tags.
pub const SHORT: u8 = 0;
/// See [`SHORT`].
pub const LARGE: u8 = 5;

/// P4TE, but a packet's queue depth is what its last four bytes say.
#[derive(Debug)]
pub struct Told;

/// See [`Told`].
#[derive(Debug)]
pub struct ToldEgress {
    inner: P4teEgress,
    last: [u32; 64],
}

const SAME: u32 = u32::MAX;

impl Scheme for Told {
    type Ingress = P4teIngress;
    type Egress = ToldEgress;
    type Control = ControlPlane;
}

impl SchemeEgress for ToldEgress {
    type Feedback = ColorEvent;
    type Digest = Digest;

    fn leaving(
        &mut self,
        cx: &mut EgressContext<'_, ColorEvent, Digest>,
        port: PortId,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> EgressVerdict {
        let told = u32::from_be_bytes(frame[frame.len() - 4..].try_into().expect("four bytes"));
        let last = &mut self.last[port.index()];
        *last = if told == SAME { *last } else { told };
        meta.deq_qdepth = *last;
        self.inner.leaving(cx, port, frame, meta)
    }

    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>) {
        self.last[port.index()] = 0;
        self.inner.set_port(now, port, description);
    }

    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        self.inner.show(now, topic)
    }
}

/// A fabric of two leaves, without hellos.
pub fn fabric(spines: usize, options: &FabricOptions) -> topo::Fabric {
    topo::Fabric::leaf_spine(2, spines, options).expect("a fabric")
}

pub fn options(p4te: P4teOptions) -> FabricOptions {
    FabricOptions {
        rate: RATE,
        selector: Selector::P4te,
        seed: 1,
        hello_interval: Duration(0),
        p4te,
        ..FabricOptions::default()
    }
}

/// What a packet is.
#[derive(Clone, Copy)]
pub struct What {
    pub dscp: u8,
    pub v6: bool,
    pub flow: u16,
    /// Bytes of UDP payload, 30 at least.
    pub len: usize,
}

impl What {
    pub fn new(dscp: u8, v6: bool, flow: u16) -> What {
        What { dscp, v6, flow, len: 30 }
    }
}

/// The leaf: hosts at 0 and 1, uplinks from 2 on. What goes to 10.200.N.0/24 takes port N.
pub struct Rig {
    pub switch: Switch<Fabric<Told>>,
    pub now: Instant,
    pub config: SwitchConfig,
    pool: Pool,
    burst: Burst,
}

impl Rig {
    pub fn new(spines: usize, p4te: P4teOptions, change: impl FnOnce(&mut P4teConfig)) -> Rig {
        let mut config = fabric(spines, &options(p4te)).switch_config("leaf0").expect("a switch");
        for port in A..A + spines as u8 {
            let prefix = format!("10.200.{port}.0/24").parse().expect("a prefix");
            config.routes.push(RouteConfig { prefix, ports: vec![PortId(port)] });
        }
        let mtus: Vec<u16> = config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
        let mut scheme = dataplane::p4te_config(&config);
        change(&mut scheme);
        let ingress =
            FabricIngress::new(dataplane::fabric_config(&config, &mtus, Pipe::ONLY), P4teIngress::new(scheme));
        let egress = FabricEgress::new(ToldEgress { inner: P4teEgress::new(scheme), last: [0; 64] });
        let control = ControlPlane::new(scheme.depth_step);
        let limits = dataplane::port_limits(&config);
        let switch = Switch::with_pipe(ingress, egress, control, &limits, Pipe::ONLY);
        let (now, pool) = (Instant(SECONDS), Pool::heap(4096, 2048));
        let mut rig = Rig { switch, now, config, pool, burst: Burst::new() };
        for port in 0..rig.config.ports.len() as u8 {
            rig.describe(port, false);
        }
        rig
    }

    /// Tells the switch of a port, which it is to take for new if `add`. Frames leave at once: only the meters know
    /// the rate.
    fn describe(&mut self, port: u8, add: bool) {
        let (id, description): (_, PortConfig) = (PortId(port), self.config.ports[usize::from(port)].clone());
        let mtu = description.mtu.expect("topo sets each MTU");
        let queues = self.config.queues;
        match add {
            true => Dataplane::add_port(&mut self.switch, self.now, id, &description, &queues, mtu),
            false => Dataplane::set_port(&mut self.switch, self.now, id, &description, &queues, mtu),
        }
        self.switch.set_limits(self.now, id, &PortLimits::default());
    }

    pub fn add(&mut self, port: u8) {
        self.describe(port, true);
    }

    pub fn remove(&mut self, port: u8) {
        Dataplane::remove_port(&mut self.switch, self.now, PortId(port), &mut self.pool);
    }

    pub fn set_up(&mut self, port: u8, up: bool) {
        Dataplane::set_port_up(&mut self.switch, PortId(port), up, &mut self.pool);
    }

    fn frame(&self, what: What, to: Option<u8>, depth: u32) -> Vec<u8> {
        let (src, dst) = match (what.v6, to) {
            (false, Some(port)) => ("10.0.0.2".into(), format!("10.200.{port}.1")),
            (false, None) => ("10.0.0.2".into(), "10.0.1.2".into()),
            (true, _) => ("fd00:0:0:0::2".to_string(), "fd00:0:0:1::2".to_string()),
        };
        let ends = Ends {
            src_mac: weft::wire::MacAddr([2, 0x68, 0, 0, 0, 2]),
            dst_mac: self.config.mac,
            src: src.parse().expect("an address"),
            dst: dst.parse().expect("an address"),
        };
        let mut payload = vec![0x5a; what.len];
        payload[what.len - 4..].copy_from_slice(&depth.to_be_bytes());
        let mut frame = packets::udp(ends, 64, (what.flow, 80), &payload);
        set_tos(&mut frame, what.dscp << 2);
        frame
    }

    /// A packet comes in from host 0; the port it leaves by.
    pub fn send(&mut self, what: What, to: Option<u8>, depth: Option<u32>) -> Option<u8> {
        let frame = self.frame(what, to, depth.unwrap_or(SAME));
        self.burst.push(self.pool.alloc_with(&frame).expect("a free chunk"));
        self.pass().first().copied()
    }

    /// `n` packets that see `depth` leave by `port` at once.
    pub fn leave(&mut self, port: u8, depth: u32, n: usize) {
        let frame = self.frame(What::new(SHORT, false, 1), Some(port), depth);
        for _ in 0..n {
            self.burst.push(self.pool.alloc_with(&frame).expect("a free chunk"));
            if self.burst.room() == 0 {
                self.pass();
            }
        }
        self.pass();
    }

    /// A new flowlet's port.
    pub fn ask(&mut self, what: What) -> Option<u8> {
        self.send(what, None, None)
    }

    fn pass(&mut self) -> Vec<u8> {
        self.switch.receive(self.now, PortId(0), &mut self.pool, &mut self.burst);
        let mut ports = vec![];
        for port in self.switch.backlog().iter() {
            loop {
                self.switch.transmit(self.now, port, &mut self.pool, 64, &mut self.burst);
                if self.burst.is_empty() {
                    break;
                }
                for frame in self.burst.drain() {
                    ports.push(port.0);
                    self.pool.free(frame);
                }
            }
        }
        self.switch.ledger().check().expect("the books balance");
        // ICMP errors go back to the host.
        ports.retain(|port| *port >= A);
        ports
    }

    /// The control plane takes all reports.
    pub fn control(&mut self) {
        self.switch.control(self.now);
    }

    /// Makes the link of `port` have `color`.
    pub fn color(&mut self, port: u8, color: Color) {
        let what = What { len: 1_000 - 42, ..What::new(SHORT, false, 1) };
        if color == Color::Red {
            // 20 times 1,024 B on the wire are more than both bursts of 12,500 B.
            for _ in 0..20 {
                self.send(what, Some(port), None);
            }
            return;
        }
        self.now = self.now + 10 * MILLIS;
        self.send(what, Some(port), None);
        if color == Color::Yellow {
            // 85 % of the rate: 10 % too much for the CIR, so that 12,500 B are spent in 10 ms.
            for _ in 0..210 {
                self.now = self.now + 96 * MICROS + 376;
                self.send(what, Some(port), None);
            }
        }
    }

    pub fn counts(&self, port: u8) -> Counts {
        self.switch.egress().scheme().inner.monitor().counts(PortId(port))
    }

    /// The color of a port as reported last.
    pub fn reported(&self, port: u8) -> (String, u64) {
        let tables = Dataplane::show(&self.switch, self.now, Topic::Meters);
        let row = find(&tables, "meters", |row| row[0] == Cell::Port(PortId(port)));
        match (&row[1], &row[2]) {
            (Cell::Text(color), Cell::Int(depth)) => (color.clone(), *depth),
            other => panic!("{other:?}"),
        }
    }

    /// Ports that ingress takes for yellow or red.
    pub fn busy(&self) -> Vec<u8> {
        let tables = Dataplane::show(&self.switch, self.now, Topic::Groups);
        match find(&tables, "up_ports", |_| true)[2] {
            Cell::Ports(ports) => ports.iter().map(|p| p.0).collect(),
            ref other => panic!("{other:?}"),
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.switch.drain(self.now, &mut self.pool);
        self.switch.ledger().check().expect("the books balance after a drain");
        assert_eq!(self.pool.free_count(), self.pool.chunks(), "frames were lost");
    }
}

/// The first row of a table that `is` one.
pub fn find(tables: &[SchemeTable], name: &str, is: impl Fn(&[Cell]) -> bool) -> Vec<Cell> {
    let table = tables.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no table {name}"));
    table.rows.iter().find(|row| is(row)).expect("a row").clone()
}

/// Sets DSCP and ECN of an untagged packet.
pub fn set_tos(frame: &mut [u8], tos: u8) {
    if frame[14] >> 4 == 4 {
        frame[15] = tos;
        packets::mend_ipv4(frame, 14);
    } else {
        frame[14] = 0x60 | tos >> 4;
        frame[15] = frame[15] & 0xf | tos << 4;
    }
}
