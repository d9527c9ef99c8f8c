//! Hosts and the switch's slot book in virtual time: links of constant delay, jitter, loss, outputs that send a frame
//! after the other from a buffer of bounded size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use weft::id::PortId;
use weft::rng::Rng;
use weft::scheme::pl2::host::{Action, ConnKey, Enqueued, Host, HostConfig};
use weft::scheme::pl2::{BookConfig, SlotBook};
use weft::time::{Instant, MILLIS};
use weft::wire::MacAddr;
use weft::wire::ethernet::on_wire;
use weft::wire::pl2::{Control, Kind, Shim};

use crate::lengths::segments;
use crate::setup::{FULL, Feed, Frame, SLOT, Setup, mac, wire_time};

/// What travels on a link. A frame without a shim is unscheduled.
#[derive(Clone, Copy, Debug)]
enum Load {
    Data(Frame, Option<Shim>),
    Control { dst: MacAddr, src: MacAddr, control: Control },
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// An output has sent a frame.
    Sent(u8),
    ToSwitch(u8, Load),
    ToHost(u8, Load),
    /// A host's deadline.
    Poll(u8),
    /// The switch's deadline.
    Sweep,
    /// A flow's burst has left its host.
    Left(u8, u16),
    /// A message of an application.
    Message(u8, u16),
    /// A host dies.
    Crash(u8),
    /// The switch starts anew.
    Restart,
}

/// Events of one time: data that comes in, which so finds what is just leaving, outputs, messages, timers.
fn order(event: &Event) -> u8 {
    match event {
        Event::ToSwitch(_, Load::Data(..)) => 0,
        Event::Sent(_) => 1,
        Event::ToSwitch(..) => 2,
        Event::ToHost(..) => 3,
        _ => 4,
    }
}

/// One host's side.
struct Station {
    host: Host<Frame>,
    alive: bool,
    /// When its link is free.
    link: u64,
    poll_at: Option<u64>,
    /// By flow: the next frame's number, and when its last burst has left.
    next: Vec<u32>,
    left: Vec<u64>,
    /// By flow: the receiver of its next burst.
    to: Vec<u8>,
}

#[derive(Default)]
struct Output {
    queue: VecDeque<(Frame, Option<Shim>)>,
    bytes: u64,
    busy: bool,
}

/// What was seen of an output.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    /// Frames in the queue at most, with the one being sent; and wire bytes of them, in full frames.
    pub depth: u64,
    pub depth_full: f64,
    pub busy: u64,
    pub dropped: u64,
    /// The most that t_in was above t_out in a grant to it (L_o).
    pub in_above: u64,
    /// The least and the most t_out of a grant since `warm`.
    pub t_out: Option<(u32, u32)>,
}

pub struct Sim {
    pub setup: Setup,
    pub book: SlotBook,
    stations: Vec<Station>,
    outputs: Vec<Output>,
    pub seen: Vec<Seen>,
    /// The most that t_out was above t_in in a grant, of all hosts (L').
    pub out_above: u64,
    /// The longest that a burst was late, in slots.
    pub jitter: u64,
    events: BinaryHeap<Reverse<(u64, u8, u64)>>,
    what: Vec<Option<Event>>,
    unused: Vec<u64>,
    sweep_at: Option<u64>,
    count: u64,
    pub now: u64,
    pub rng: Rng,
    /// From when on shares and use are counted.
    pub warm: u64,
    /// By sender and flow: slots delivered since `warm`.
    pub delivered: Vec<Vec<u64>>,
    /// By sender, flow, receiver: next number that may come, for the order.
    pub expected: BTreeMap<(u8, u16, u8), u32>,
    pub frames_in: u64,
    pub frames_out: u64,
    /// Frames that links lost, dead hosts' and those lost on the way to dead hosts.
    pub lost: u64,
}

impl Sim {
    pub fn new(setup: Setup) -> Sim {
        let config = BookConfig {
            mode: setup.mode,
            slot_ns: SLOT as u32,
            max_burst: setup.config.max_burst,
            max_reserved: (4 * setup.config.max_outstanding).max(setup.config.max_burst.into()),
            grace: 2 * MILLIS,
            notify: setup.notify,
            ..BookConfig::default()
        };
        let flows = usize::from(setup.flows);
        let station = |_| Station {
            host: Host::new(&setup.config).expect("a configuration in its ranges"),
            alive: true,
            link: 0,
            poll_at: None,
            next: vec![0; flows],
            left: vec![0; flows],
            to: vec![0; flows],
        };
        let hosts = usize::from(setup.hosts);
        let mut sim = Sim {
            setup,
            book: SlotBook::new(&config, 1).expect("a configuration in its ranges"),
            stations: (0..hosts).map(station).collect(),
            outputs: (0..hosts).map(|_| Output::default()).collect(),
            seen: vec![Seen::default(); hosts],
            out_above: 0,
            jitter: 0,
            events: BinaryHeap::new(),
            what: vec![],
            unused: vec![],
            sweep_at: None,
            count: 0,
            now: 0,
            rng: Rng::new(setup.seed),
            warm: 0,
            delivered: vec![vec![0; flows]; hosts],
            expected: BTreeMap::new(),
            frames_in: 0,
            frames_out: 0,
            lost: 0,
        };
        for host in 0..setup.hosts {
            for flow in 0..setup.flows {
                sim.start(host, flow);
            }
            sim.poll(host);
        }
        sim
    }

    fn start(&mut self, host: u8, flow: u16) {
        match self.setup.feed {
            Feed::Saturated(to) => {
                self.stations[usize::from(host)].to[usize::from(flow)] = to(host, flow);
                let HostConfig { max_burst, depth, .. } = self.setup.config;
                if to(host, flow) != host {
                    self.hand_in(host, flow, to(host, flow), FULL, u32::from(max_burst) * (u32::from(depth) + 1));
                }
            }
            Feed::Once(to) => {
                let dst = to(host, flow);
                if dst != host {
                    self.hand_in(host, flow, dst, FULL, self.setup.config.max_burst.into());
                }
            }
            Feed::Random => self.burst(host, flow),
            Feed::Messages { .. } => self.next_message(host, flow),
        }
    }

    fn burst(&mut self, host: u8, flow: u16) {
        let other = self.rng.below(u64::from(self.setup.hosts) - 1) as u8;
        let dst = if other >= host { other + 1 } else { other };
        self.hand_in(host, flow, dst, FULL, self.setup.config.max_burst.into());
    }

    /// Messages of a flow come at exponential distances.
    fn next_message(&mut self, host: u8, flow: u16) {
        let Feed::Messages { load, until, lengths, .. } = self.setup.feed else { return };
        let gap = lengths.slots / load * f64::from(self.setup.flows) * SLOT as f64;
        let at = self.now + self.exponential(gap);
        if at < until {
            self.at(at, Event::Message(host, flow));
        }
    }

    fn message(&mut self, host: u8, flow: u16) {
        let Feed::Messages { to, lengths, .. } = self.setup.feed else { return };
        let dst = to(host, flow, &mut self.rng);
        let bytes = lengths.draw(&mut self.rng);
        if dst != host {
            for len in segments(bytes) {
                self.hand_in(host, flow, dst, len, 1);
            }
        }
        self.next_message(host, flow);
        self.poll(host);
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        let unit = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - unit).ln() * mean) as u64
    }

    fn hand_in(&mut self, host: u8, flow: u16, dst: u8, len: u32, count: u32) {
        let now = self.now;
        for _ in 0..count {
            let station = &mut self.stations[usize::from(host)];
            if !station.alive {
                return;
            }
            let number = station.next[usize::from(flow)];
            let frame = Frame { src: host, dst, flow, number, len };
            station.next[usize::from(flow)] += 1;
            self.frames_in += 1;
            if self.setup.unscheduled {
                self.transmit(host, now, frame, None);
                continue;
            }
            let key = ConnKey { dst: mac(dst), flow: flow.into() };
            if let Enqueued::Dropped(_) = station.host.enqueue(Instant(now), key, len, frame) {
                panic!("a sender without room for frame {number}");
            }
        }
    }

    /// Sends a frame by a host's link, from `ready` on, and gives when it has left.
    fn transmit(&mut self, host: u8, ready: u64, frame: Frame, shim: Option<Shim>) -> u64 {
        let station = &mut self.stations[usize::from(host)];
        station.link = station.link.max(ready) + wire_time(frame.len);
        let left = station.link;
        self.send(left + self.one_way(), Event::ToSwitch(host, Load::Data(frame, shim)));
        left
    }

    fn one_way(&self) -> u64 {
        self.setup.rtt * SLOT / 2
    }

    /// Something travels, unless it is lost.
    fn send(&mut self, at: u64, event: Event) {
        if self.setup.loss > 0.0 && self.rng.chance(self.setup.loss) {
            if let Event::ToSwitch(_, Load::Data(..)) | Event::ToHost(_, Load::Data(..)) = event {
                self.lost += 1;
            }
            return;
        }
        self.at(at, event);
    }

    fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.what.push(None);
            self.what.len() as u64 - 1
        });
        let rank = order(&event);
        self.what[slot as usize] = Some(event);
        self.events.push(Reverse((at.max(self.now), rank, self.count << 24 | slot)));
    }

    fn poll(&mut self, host: u8) {
        let now = self.now;
        let station = &mut self.stations[usize::from(host)];
        if !station.alive || self.setup.unscheduled {
            return;
        }
        let mut actions = vec![];
        station.host.poll(Instant(now), |action| actions.push(action));
        let mut late = None;
        for action in actions {
            match action {
                Action::SendBehind { dst, control } => {
                    let at = self.stations[usize::from(host)].left.iter().fold(now, |at, left| at.max(*left));
                    let load = Load::Control { dst, src: mac(host), control };
                    self.send(at + self.one_way(), Event::ToSwitch(host, load));
                }
                Action::Send { dst, control } => {
                    // A flow asks again when its burst has really left, which jitter makes later than it thinks.
                    let at = now.max(self.left_of(host, &control));
                    self.send(
                        at + self.one_way(),
                        Event::ToSwitch(host, Load::Control { dst, src: mac(host), control }),
                    );
                }
                Action::Release { frame, shim } => {
                    let flow = usize::from(frame.flow);
                    let jitter = match late {
                        Some(jitter) => jitter,
                        None if self.setup.jitter > 0 => self.exponential((self.setup.jitter * SLOT) as f64),
                        None => 0,
                    };
                    // A flow does not overtake itself.
                    let at = (now + jitter).max(self.stations[usize::from(host)].left[flow]);
                    self.jitter = self.jitter.max((at - now).div_ceil(SLOT));
                    late = (!shim.last).then_some(jitter);
                    if self.setup.jitter > 0 {
                        self.at(at, Event::ToSwitch(host | LEAVING, Load::Data(frame, Some(shim))));
                        self.stations[usize::from(host)].left[flow] = at;
                    } else {
                        self.leave(host, now, frame, shim);
                    }
                    self.feed_on(host, frame);
                }
            }
        }
        self.rearm(host);
    }

    /// When what a flow sent before has left. Flows that always have frames keep their connections, which have
    /// the flows' numbers; of others it is not known.
    fn left_of(&self, host: u8, control: &Control) -> u64 {
        let Feed::Saturated(_) = self.setup.feed else { return 0 };
        if self.setup.jitter == 0 {
            return 0;
        }
        let station = &self.stations[usize::from(host)];
        if control.kind != Kind::Rsv { 0 } else { station.left[control.conn as usize % station.left.len()] }
    }

    fn leave(&mut self, host: u8, ready: u64, frame: Frame, shim: Shim) {
        let left = self.transmit(host, ready, frame, Some(shim));
        let last = &mut self.stations[usize::from(host)].left[usize::from(frame.flow)];
        *last = left.max(*last);
        if shim.last {
            self.at(left, Event::Left(host, frame.flow));
        }
    }

    fn feed_on(&mut self, host: u8, frame: Frame) {
        if let Feed::Saturated(_) = self.setup.feed {
            self.hand_in(host, frame.flow, frame.dst, FULL, 1);
        }
    }

    fn rearm(&mut self, host: u8) {
        let station = &mut self.stations[usize::from(host)];
        let next = station.host.next_deadline().map(|Instant(at)| at);
        if let Some(at) = next.filter(|_| next != station.poll_at) {
            station.poll_at = next;
            self.at(at, Event::Poll(host));
        }
    }

    /// Runs until `end`, or until nothing happens any more.
    pub fn run(&mut self, end: u64) {
        while let Some(&Reverse((at, _, id))) = self.events.peek()
            && at <= end
        {
            self.events.pop();
            self.now = at;
            let slot = id & 0xff_ffff;
            let event = self.what[slot as usize].take().expect("an event");
            self.unused.push(slot);
            self.handle(event);
        }
        self.now = self.now.max(end);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Sent(port) => self.sent(port),
            Event::ToSwitch(from, Load::Data(frame, shim)) if from & LEAVING != 0 => {
                self.leave(from & !LEAVING, self.now, frame, shim.expect("a scheduled frame"));
            }
            Event::ToSwitch(from, load) => self.at_switch(from, load),
            Event::ToHost(to, load) => self.at_host(to, load),
            Event::Poll(host) => {
                if self.stations[usize::from(host)].poll_at == Some(self.now) {
                    self.stations[usize::from(host)].poll_at = None;
                    self.poll(host);
                }
            }
            Event::Sweep => {
                self.sweep_at = None;
                self.book.sweep(Instant(self.now));
                self.sweep_next();
            }
            Event::Left(host, flow) => {
                if let Feed::Random = self.setup.feed {
                    self.burst(host, flow);
                    self.poll(host);
                }
            }
            Event::Message(host, flow) => self.message(host, flow),
            Event::Restart => self.book.restart(self.book.epoch() + 1),
            Event::Crash(host) => self.stations[usize::from(host)].alive = false,
        }
    }

    fn sweep_next(&mut self) {
        if self.setup.sweep
            && let Some(Instant(at)) = self.book.next_deadline()
            && self.sweep_at.is_none_or(|known| at < known)
        {
            self.sweep_at = Some(at);
            self.at(at, Event::Sweep);
        }
    }

    fn at_switch(&mut self, from: u8, load: Load) {
        let ingress = PortId(from);
        match load {
            Load::Data(frame, shim) => {
                if let Some(shim) = shim {
                    self.book.arrived(ingress, Some(PortId(frame.dst)), shim);
                }
                self.queue(frame, shim);
            }
            Load::Control { dst, src, control } => {
                let to = dst.0[5];
                let now = Instant(self.now);
                match control.kind {
                    Kind::Rsv => {
                        let answer = self.book.reserve(now, ingress, Some(PortId(to)), &control);
                        let Control { t_in, t_out, flags, .. } = answer.grant;
                        if !flags.nack {
                            let seen = &mut self.seen[usize::from(to)].in_above;
                            *seen = (*seen).max(t_in.saturating_sub(t_out).into());
                            if self.now >= self.warm {
                                let (least, most) = self.seen[usize::from(to)].t_out.unwrap_or((t_out, t_out));
                                self.seen[usize::from(to)].t_out = Some((least.min(t_out), most.max(t_out)));
                            }
                            self.out_above = self.out_above.max(t_out.saturating_sub(t_in).into());
                        }
                        let back = Load::Control { dst: src, src: dst, control: answer.grant };
                        self.send(self.now + self.one_way(), Event::ToHost(from, back));
                        if let Some((port, ntf)) = answer.notify {
                            let told = Load::Control { dst, src, control: ntf };
                            self.send(self.now + self.one_way(), Event::ToHost(port.0, told));
                        }
                        self.sweep_next();
                    }
                    Kind::Rst => _ = self.book.reset(ingress, Some(PortId(to)), &control),
                    Kind::Rel => _ = self.book.release(ingress, &control),
                    other => panic!("{other:?} of a host"),
                }
            }
        }
    }

    fn queue(&mut self, frame: Frame, shim: Option<Shim>) {
        let closes = shim.is_some_and(|shim| shim.closes);
        let port = usize::from(frame.dst);
        let (output, seen) = (&mut self.outputs[port], &mut self.seen[port]);
        let bytes = on_wire(frame.len as usize) as u64;
        let full = on_wire(FULL as usize) as u64;
        if output.bytes + bytes > self.setup.buffer * full {
            seen.dropped += 1;
            if closes {
                self.book.left(PortId(frame.dst), 1);
            }
            return;
        }
        // The one being sent is the first of the queue until it has left.
        output.queue.push_back((frame, shim));
        output.bytes += bytes;
        seen.depth = seen.depth.max(output.queue.len() as u64);
        seen.depth_full = seen.depth_full.max(output.bytes as f64 / full as f64);
        if !output.busy {
            self.begin(frame.dst);
        }
    }

    fn begin(&mut self, port: u8) {
        let output = &mut self.outputs[usize::from(port)];
        let Some((frame, shim)) = output.queue.front().copied() else { return };
        output.busy = true;
        if shim.is_some_and(|shim| shim.closes) {
            self.book.left(PortId(port), 1);
        }
        let time = wire_time(frame.len);
        if self.now >= self.warm {
            self.seen[usize::from(port)].busy += time;
        }
        self.at(self.now + time, Event::Sent(port));
    }

    fn sent(&mut self, port: u8) {
        let output = &mut self.outputs[usize::from(port)];
        let (frame, shim) = output.queue.pop_front().expect("the frame that was sent");
        output.bytes -= on_wire(frame.len as usize) as u64;
        output.busy = false;
        self.begin(port);
        self.send(self.now + self.one_way(), Event::ToHost(port, Load::Data(frame, shim)));
    }

    fn at_host(&mut self, to: u8, load: Load) {
        if !self.stations[usize::from(to)].alive {
            self.lost += u64::from(matches!(load, Load::Data(..)));
            return;
        }
        match load {
            Load::Data(frame, shim) => {
                if let Some(shim) = shim.filter(|_| self.setup.notify) {
                    self.stations[usize::from(to)].host.arrived(mac(frame.src), shim);
                }
                let next = self.expected.entry((frame.src, frame.flow, frame.dst)).or_default();
                assert!(frame.number >= *next, "{frame:?} after number {next}");
                *next = frame.number + 1;
                self.frames_out += 1;
                if self.now >= self.warm {
                    self.delivered[usize::from(frame.src)][usize::from(frame.flow)] += 1;
                }
            }
            Load::Control { src, control, .. } => {
                self.stations[usize::from(to)].host.control(Instant(self.now), src, &control);
                self.poll(to);
            }
        }
    }

    pub fn crash(&mut self, host: u8, at: u64) {
        self.at(at, Event::Crash(host));
    }

    pub fn restart(&mut self, at: u64) {
        self.at(at, Event::Restart);
    }

    /// Everything is over: what came in went out or was lost on a link, and nothing is reserved or waits.
    pub fn assert_at_rest(&self) {
        assert_eq!(self.frames_in, self.frames_out + self.lost + self.dropped(), "{:?}", self.setup);
        for port in 0..self.setup.hosts {
            assert_eq!(self.registers(port), (0, 0), "registers of port {port}: {:?}", self.setup);
            let host = self.host(port);
            let left = (host.parked(), host.outstanding(), host.connections(), host.expected());
            assert_eq!(left, (0, 0, 0, 0), "frames, slots, connections, expected of host {port}: {:?}", self.setup);
        }
        assert_eq!(self.book.pending().count(), 0);
    }

    pub fn host(&self, host: u8) -> &Host<Frame> {
        &self.stations[usize::from(host)].host
    }

    /// Registers of a port: reserved and not used on the way in, on the way out.
    pub fn registers(&self, port: u8) -> (u32, u32) {
        let slots = self.book.port(PortId(port));
        (slots.in_slots, slots.out_slots)
    }

    /// The busiest output's use since `warm`, 0 to 1.
    pub fn utilisation(&self) -> f64 {
        let busy = self.seen.iter().map(|seen| seen.busy).max().unwrap_or(0);
        busy as f64 / (self.now - self.warm) as f64
    }

    pub fn depth(&self) -> u64 {
        self.seen.iter().map(|seen| seen.depth).max().unwrap_or(0)
    }

    pub fn dropped(&self) -> u64 {
        self.seen.iter().map(|seen| seen.dropped).sum()
    }

    /// I4 for each output, with the jitter that there was.
    pub fn assert_bound(&self) {
        for (port, seen) in self.seen.iter().enumerate() {
            let bound = match self.jitter {
                0 => 2 + seen.in_above + self.out_above,
                jitter => 3 + seen.in_above + self.out_above + 2 * jitter,
            };
            assert!(seen.depth <= bound, "output {port}: {} frames, bound {bound}: {:?}", seen.depth, self.setup);
        }
    }
}

/// A burst that is late, and has not come to its link yet.
const LEAVING: u8 = 0x80;
