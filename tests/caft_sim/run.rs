//! A run: a fabric with a fault, flows between its pods, and what came of them.

use std::collections::BTreeMap;

use etherparse::PacketBuilder;
use weft::config::Selector;
use weft::counters::DropReason;
use weft::dataplane::{self, Dataplane};
use weft::fabric::view::{Cell, Topic};
use weft::id::PortId;
use weft::pisa::tm::Pacer;
use weft::rng::Rng;
use weft::time::{Instant, MICROS, MILLIS, SECONDS};
use weft::topo::{Fabric, FabricOptions, LinkChange, LinkException, Shape};
use weft::units::{BitRate, Duration};
use weft::wire::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MIN_FRAME, on_wire};
use weft::wire::{L3, parse, tcp as header};

use crate::net::{Hop, Net, Outside, PROPAGATION, Tap, serialization};
use crate::packets;
use crate::tcp::{Receiver, Segment, Sender};

/// Of every link but one.
pub const RATE: BitRate = BitRate(1_000_000_000);
/// Flows begin within this time.
const ARRIVALS: u64 = 8 * MILLIS;
/// The same, where a link is slow: its load is averaged over 8 ms, 100 kB at its rate.
const ARRIVALS_SLOW: u64 = 16 * MILLIS;
/// Share of the hosts' rate that flows offer, per cent.
const LOAD: u64 = 50;
/// When a link fails that was sound.
pub const FAILURE: Instant = Instant(BEGIN + ARRIVALS / 2);
/// A flow that has not ended then has been lost.
const END: u64 = 4 * SECONDS;
/// Before the first flow: hosts make themselves known, and links that are down go down.
pub const BEGIN: u64 = MILLIS;

/// Web search (DCTCP, SIGCOMM 2010): sizes in bytes and how many per cent of flows are smaller, as in the traffic
/// generator of HKUST, conf/DCTCP_CDF.txt. Here without those above 1 MB, and a fifth of each: enough of them fit into
/// a run.
const SIZES: [(u64, u64); 8] =
    [(0, 0), (10_000, 15), (20_000, 20), (30_000, 30), (50_000, 40), (80_000, 53), (200_000, 60), (1_000_000, 70)];
const DIVISOR: u64 = 5;

/// What is wrong with the fabric: with the link between agg0-0 and core0, or that between tor0-0 and agg0-0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Healthy,
    /// The core's link has a tenth of the rate.
    CoreSlow,
    /// It was never there, and routes know it.
    CoreAbsent,
    /// The ToR's was never there, and routes know it.
    TorAbsent,
    /// The core's is down from the start; its ends see it, routes do not change.
    CoreDown,
    /// It goes down under load.
    CoreFails,
    /// The ToR's is down from the start; its ends see it, routes do not change.
    TorDown,
}

impl State {
    pub const ALL: [State; 7] = [
        State::Healthy,
        State::CoreSlow,
        State::CoreAbsent,
        State::TorAbsent,
        State::CoreDown,
        State::CoreFails,
        State::TorDown,
    ];

    fn arrivals(self) -> u64 {
        if self == State::CoreSlow { ARRIVALS_SLOW } else { ARRIVALS }
    }

    pub fn name(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::CoreDown => "agg-core down",
            State::CoreFails => "agg-core fails",
            State::CoreSlow => "agg-core 1/10",
            State::CoreAbsent => "agg-core absent",
            State::TorAbsent => "tor-agg absent",
            State::TorDown => "tor-agg down",
        }
    }
}

/// A flow and its ends.
pub struct Flow {
    /// Places of its hosts in the fabric's list.
    pub from: usize,
    pub to: usize,
    size: u64,
    pub start: Instant,
    pub end: Option<Instant>,
    sender: Sender,
    receiver: Receiver,
    /// When its alarm is set to.
    alarm: Option<Instant>,
}

impl Flow {
    /// Flow completion time, from its SYN to its last byte, ns; `None` if that never came.
    pub fn fct(&self) -> Option<u64> {
        self.end.map(|end| end.since(self.start))
    }
}

/// What came of a run.
pub struct Outcome {
    pub flows: Vec<Flow>,
    /// Bytes that switches sent, by their name and the neighbour's.
    pub bytes: BTreeMap<(String, String), u64>,
    pub drops: Vec<(DropReason, u64)>,
    /// When packets were last dropped for want of a way, to half a ms while flows begin.
    pub last_lost: Option<Instant>,
    /// What became of requests and messages, over all switches.
    pub counters: BTreeMap<String, u64>,
}

/// Looks for tags on their way to hosts.
#[derive(Default)]
struct Watch {
    tagged: u64,
}

impl Tap for Watch {
    fn leaves(&mut self, hop: &Hop<'_>) {
        let plain = [ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ARP];
        let ethertype = u16::from_be_bytes([hop.frame[12], hop.frame[13]]);
        self.tagged += u64::from(hop.to_host && !plain.contains(&ethertype));
    }
}

/// The fabric of `shape` in `state`.
pub fn fabric(shape: Shape, state: State, selector: Selector, seed: u64) -> Fabric {
    let options = FabricOptions { rate: RATE, seed, selector, hello_interval: Duration(0), ..FabricOptions::default() };
    let except = |a: &str, b: &str, change| vec![LinkException { a: a.into(), b: b.into(), change }];
    let exceptions = match state {
        State::CoreSlow => except("agg0-0", "core0", LinkChange::Rate(BitRate(RATE.0 / 10))),
        State::CoreAbsent => except("agg0-0", "core0", LinkChange::Absent),
        State::TorAbsent => except("tor0-0", "agg0-0", LinkChange::Absent),
        State::Healthy | State::CoreDown | State::CoreFails | State::TorDown => vec![],
    };
    shape.build_with(&options, &exceptions).expect("a fabric")
}

/// Flows from hosts to hosts of other pods, the same for every scheme. One begins in each us with the same
/// probability, which is Poisson's process in steps.
fn flows(fabric: &Fabric, state: State, seed: u64) -> Vec<Flow> {
    let mut rng = Rng::new(seed);
    let pod = |host: usize| fabric.switch(&fabric.hosts[host].tor).expect("a switch").pod;
    let hosts = fabric.hosts.len() as u64;
    let top = SIZES[SIZES.len() - 1].1;
    let mean = SIZES.windows(2).map(|w| (w[0].0 + w[1].0) * (w[1].1 - w[0].1)).sum::<u64>() / (2 * top * DIVISOR);
    let bytes_per_us = hosts * RATE.0 / 8 / (SECONDS / MICROS) * LOAD / 100;
    let mut flows = vec![];
    for us in 0..state.arrivals() / MICROS {
        if !rng.chance(bytes_per_us as f64 / mean as f64) {
            continue;
        }
        let from = rng.below(hosts) as usize;
        let mut others = (0..hosts as usize).filter(|to| pod(*to) != pod(from));
        let to = others.clone().count() as u64;
        let to = others.nth(rng.below(to) as usize).expect("another pod");
        let share = rng.below(top * 1_000);
        let (a, b) = SIZES.iter().zip(&SIZES[1..]).find(|(_, b)| share < b.1 * 1_000).expect("below the top");
        let size = a.0 + (b.0 - a.0) * (share - a.1 * 1_000) / ((b.1 - a.1) * 1_000);
        let size = (size / DIVISOR).max(1);
        flows.push(Flow {
            from,
            to,
            size,
            start: Instant(BEGIN + us * MICROS),
            end: None,
            sender: Sender::new(size),
            receiver: Receiver::default(),
            alarm: None,
        });
    }
    flows
}

/// Source port of the first flow; they all go to port 80.
const FIRST_PORT: usize = 10_000;

struct Run {
    net: Net<Box<dyn Dataplane>>,
    watch: Watch,
    flows: Vec<Flow>,
    pacers: Vec<Pacer>,
}

impl Run {
    /// A host sends a segment of a flow, behind what it has sent.
    fn send(&mut self, flow: usize, forth: bool, segment: &Segment) {
        let f = &self.flows[flow];
        let (from, to) = if forth { (f.from, f.to) } else { (f.to, f.from) };
        let fabric = &self.net.fabric;
        let (a, b) = (&fabric.hosts[from], &fabric.hosts[to]);
        let gateway = fabric.switch(&a.tor).expect("a switch").config.mac;
        let port = (FIRST_PORT + flow) as u16;
        let ports = if forth { (port, 80) } else { (80, port) };
        let mut tcp = PacketBuilder::ethernet2(a.mac.0, gateway.0)
            .ipv4(a.ipv4.addr().octets(), b.ipv4.addr().octets(), 64)
            .tcp(ports.0, ports.1, segment.seq, u16::MAX);
        tcp = if segment.syn { tcp.syn() } else { tcp };
        tcp = if segment.push { tcp.psh() } else { tcp };
        tcp = if let Some(ack) = segment.ack { tcp.ack(ack) } else { tcp };
        let mut frame = Vec::with_capacity(1514);
        tcp.write(&mut frame, &vec![0x5a; segment.len as usize]).expect("written to memory");
        frame.resize(frame.len().max(MIN_FRAME), 0);
        let pacer = &mut self.pacers[from];
        pacer.start(self.net.now);
        let at = pacer.next() + serialization(frame.len(), RATE) + PROPAGATION;
        pacer.sent(on_wire(frame.len()));
        self.net.send_at(at, from, &frame);
    }

    fn alarm(&mut self, flow: usize) {
        let (now, f) = (self.net.now, &mut self.flows[flow]);
        f.alarm = None;
        let mut out = vec![];
        match f.sender.deadline {
            None if f.start == now => f.sender.open(now, &mut out),
            Some(due) if due <= now => f.sender.timeout(now, &mut out),
            _ => {}
        }
        self.follow(flow, &out);
    }

    /// Sends what a sender gave, and sets its alarm.
    fn follow(&mut self, flow: usize, out: &[Segment]) {
        out.iter().for_each(|segment| self.send(flow, true, segment));
        let f = &mut self.flows[flow];
        // A later deadline is seen to when the earlier alarm comes.
        if let Some(due) = f.sender.deadline.filter(|due| f.alarm.is_none_or(|alarm| *due < alarm)) {
            f.alarm = Some(due);
            self.net.alarm(due, flow);
        }
    }

    /// A host gets a frame.
    fn receive(&mut self, host: usize, frame: &[u8]) {
        let headers = parse(frame).expect("an Ethernet frame");
        if headers.kind == L3::Arp {
            let (us, us_ip) = (self.net.fabric.hosts[host].mac, self.net.fabric.hosts[host].ipv4.addr());
            let gateway = (ethernet::src(frame), self.net.fabric.hosts[host].gateway_ipv4);
            let at = self.net.now + PROPAGATION;
            return self.net.send_at(at, host, &packets::arp(true, (us, us_ip), gateway, gateway.0, &[]));
        }
        if headers.ethertype != ETHERTYPE_IPV4 || headers.proto != weft::wire::parse::PROTO_TCP {
            return;
        }
        assert_eq!(headers.fault, None);
        let (now, at) = (self.net.now, usize::from(headers.l4));
        let ports = headers.ports(frame).expect("TCP");
        let (source, destination) = ((ports >> 16) as u16, ports as u16);
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"));
        let flags = frame[at + 13];
        let segment = Segment {
            seq: word(at + 4),
            ack: (flags & header::ACK != 0).then(|| word(at + 8)),
            syn: flags & header::SYN != 0,
            push: flags & header::PSH != 0,
            len: (usize::from(headers.end) - at - usize::from(frame[at + 12] >> 4) * 4) as u64,
        };
        if destination == 80 {
            let flow = usize::from(source) - FIRST_PORT;
            let f = &mut self.flows[flow];
            assert_eq!(host, f.to, "a segment for somebody else");
            let answer = f.receiver.receive(&segment);
            if f.receiver.got == f.size {
                f.end.get_or_insert(now);
            }
            if let Some(answer) = answer {
                self.send(flow, false, &answer);
            }
        } else {
            let flow = usize::from(destination) - FIRST_PORT;
            let f = &mut self.flows[flow];
            assert_eq!(host, f.from, "a segment for somebody else");
            let mut out = vec![];
            f.sender.receive(now, &segment, &mut out);
            self.follow(flow, &out);
        }
    }

    /// Frames dropped for want of a way, in all switches.
    fn no_way(&self) -> u64 {
        let is = |r: DropReason| matches!(r, DropReason::EmptyGroup | DropReason::NoRoute);
        self.net.drops().iter().filter(|(reason, _)| is(*reason)).map(|(_, n)| n).sum()
    }
}

/// Runs the flows of `seed` over `shape` in `state`, until all have ended or [`END`].
///
/// # Panics
/// If books do not balance, or a frame with a tag gets to a host.
pub fn run(shape: Shape, state: State, selector: Selector, seed: u64) -> Outcome {
    let fabric = fabric(shape, state, selector, seed);
    let build = |s: &weft::topo::Switch| {
        let mtus: Vec<u16> = s.config.ports.iter().map(|p| p.mtu.expect("topo sets each MTU")).collect();
        dataplane::build(&s.config, &mtus)
    };
    let flows = flows(&fabric, state, seed);
    let mut run = Run {
        net: Net::new(&fabric, Instant::ZERO, 1 << 13, build),
        watch: Watch::default(),
        pacers: fabric.hosts.iter().map(|_| Pacer::new(RATE)).collect(),
        flows,
    };
    run.net.begin(&mut run.watch);
    run.net.run_for(BEGIN / 2, &mut run.watch);
    match state {
        State::CoreDown => run.net.take_down("agg0-0", "core0"),
        State::TorDown => run.net.take_down("tor0-0", "agg0-0"),
        State::Healthy | State::CoreFails | State::CoreSlow | State::CoreAbsent | State::TorAbsent => {}
    }
    for flow in 0..run.flows.len() {
        let start = run.flows[flow].start;
        run.flows[flow].alarm = Some(start);
        run.net.alarm(start, flow);
    }
    let mut lost = (0, None);
    let mut failed = state != State::CoreFails;
    while run.flows.iter().any(|f| f.end.is_none()) && run.net.now < Instant(END) {
        let busy = run.net.now < Instant(BEGIN + ARRIVALS_SLOW);
        let end = run.net.now + if busy { 500 * MICROS } else { 10 * MILLIS };
        while let Some((who, what)) = run.net.next(end, &mut run.watch) {
            match what {
                Outside::Frame(frame) => run.receive(who, &frame),
                Outside::Alarm => run.alarm(who),
            }
        }
        if !failed && run.net.now >= FAILURE {
            run.net.take_down("agg0-0", "core0");
            failed = true;
        }
        let n = run.no_way();
        if n != lost.0 {
            lost = (n, Some(run.net.now));
        }
    }
    // What is still under way, acknowledgements mostly, is let arrive.
    run.net.run_for(20 * MILLIS, &mut run.watch);
    assert_eq!(run.watch.tagged, 0, "a tag got to a host");
    let Run { net, flows, .. } = run;
    let (mut bytes, mut counters) = (BTreeMap::new(), BTreeMap::new());
    for (node, switch) in net.nodes.iter().zip(&net.fabric.switches) {
        for (port, config) in (0..).map(PortId).zip(switch.ports()) {
            bytes.insert((node.name.clone(), config.interface.clone()), node.plane.counters(port).tx_bytes);
        }
        for table in node.plane.show(net.now, Topic::Paths).iter().filter(|t| t.name == "allocation") {
            for (what, n) in table.columns.iter().zip(&table.rows[0]) {
                let Cell::Int(n) = n else { panic!("{table:?}") };
                *counters.entry(what.to_string()).or_default() += n;
            }
        }
    }
    let drops = net.drops();
    net.finish();
    Outcome { flows, bytes, drops, last_lost: lost.1, counters }
}
