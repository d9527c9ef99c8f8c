//! PL2 on a ToR: the slot book in the packet path, and beside it an agent for each host that has none.
//!
//! ```text
//!   host i --- RSV --> message() --> book.reserve --> GRT, in the RSV's own frame, ahead of data --> host i
//!          --- data, shim --> (shim off) --> bridge --> data() --> book.arrived --> queue of o
//!                                                 egress, refused --> departed() --> book.left
//!          --- data, plain --> bridge --> hold() --> Edge: host::Host --> book.reserve, wait, NIC --> queue of o
//! ```
//! What is decided here beyond [the book's rules](super) and [the hosts'](super::host):
//!
//! 1. **A shim comes off at ingress**, and only the fact that a slot ends travels on with the frame: every way that a
//!    frame can take then is that of a plain one, MTU and pacer count what the receiver gets, and no shim can leave.
//! 2. **An edge agent is a host's NIC**: what it releases goes through a FIFO at the link's rate, and only what is
//!    out of that has come to the switch. So queues are those of hosts with agents of their own.
//! 3. **A host that reserves by itself** is left alone: from its first RSV on until its link goes down, or it has sent
//!    neither messages nor data in slots for 1 s, what it sends without a shim is its own unscheduled traffic.
//! 4. **Bounded**: an agent holds no more frames than are free in the pool, so that ports go on receiving.
//! 5. **An agent is alive** while the switch is: what it has reserved is taken back when its link goes down, not because
//!    the switch was held up, which holds up the agent too. Receivers look after hosts that reserve by themselves.
//! 6. **Several workers** share one book ([`SharedBook`]), and only that: a lock is taken for each message and each frame
//!    with a shim that comes in, and once for each burst that leaves. A worker that is alone has the book for itself.
//!    The pipe that receives a message answers it; a GRT goes to the pipe with its port's queue as all packets do,
//!    which also counts off what leaves there. Any pipe takes back what is due, and the first that hears of a link
//!    that is down, what was reserved behind it. An agent is in one pipe, since a host's NIC is one while its frames
//!    come on several queues: with agents there is one worker.
//! 7. **Not scheduled** is what does not go from one host to one other: groups, floods, ARP and neighbour discovery,
//!    what is for the gateway or comes from other racks; and a frame that is longer than a slot.

mod edge;
/// The book, for several pipes.
mod shared;
mod show;

use super::book::Arrival;
use super::config::BookConfig;
use super::host::{HostConfig, HostConfigError};
use crate::counters::DropReason;
use crate::fabric::view::SchemeTable;
use crate::fabric::{RackScheduler, SchemePort, Stations};
use crate::frame::Frame;
use crate::id::{MAX_PORTS, PortId, PortKind, PortMask};
use crate::pisa::{Action, Context, Meta, Outbox, Pipe, Queue, TrafficManager, Verdict};
use crate::time::{Instant, SECONDS, earliest};
use crate::wire::ethernet::{self, on_wire};
use crate::wire::pl2::{Control, FRAME_LEN, Kind, Shim};
use crate::wire::{Headers, MacAddr};

use edge::Edge;
pub use shared::{Book, SharedBook};

/// How long a host that reserves by itself may be silent, in nanoseconds; it may also be twice as long.
const SILENCE: u64 = SECONDS;

/// How PL2 runs on a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RackConfig {
    /// The slot book.
    pub book: BookConfig,
    /// Agents for hosts that have none; `None` leaves what those send unscheduled.
    pub agent: Option<HostConfig>,
    /// Round trip between an agent and the book, in nanoseconds. They are in one place: what is said here is waited
    /// for.
    pub rsv_delay: u64,
}

/// PL2 on one pipe of a switch: see [the module](self).
#[derive(Debug)]
pub struct Rack {
    config: RackConfig,
    pipe: Pipe,
    book: Book,
    /// By port: the agent of what is there.
    edges: Vec<Option<Box<Edge>>>,
    hosts: PortMask,
    up: PortMask,
    /// How often each port has gone.
    departures: [u32; MAX_PORTS],
    /// Ports whose hosts reserve by themselves. Only agents ask, and where they are there is one pipe.
    speakers: PortMask,
    /// Those of them that were heard since then.
    heard: PortMask,
    heard_since: Instant,
    /// The earliest time at which an agent may have something to do.
    next: Option<Instant>,
    /// By port: frames of its host to another one that neither came in a slot nor waited for one.
    unscheduled: [u64; MAX_PORTS],
    /// Frames that agents would have taken, but they are longer than a slot.
    oversized: u64,
    /// NTF that were sent, and those that were not.
    announced: u64,
    unannounced: u64,
}

impl Rack {
    /// A pipe without ports, of the switch that has `book`. With agents it has to be the only one.
    ///
    /// # Errors
    /// The first value of the agents that is not in its range.
    pub fn new(config: &RackConfig, pipe: Pipe, book: Book) -> Result<Rack, HostConfigError> {
        if let Some(agent) = &config.agent {
            debug_assert_eq!(pipe, Pipe::ONLY, "an agent is in one pipe");
            agent.validate()?;
        }
        Ok(Rack {
            config: *config,
            pipe,
            book,
            edges: (0..MAX_PORTS).map(|_| None).collect(),
            hosts: PortMask::EMPTY,
            up: PortMask(u64::MAX),
            departures: [0; MAX_PORTS],
            speakers: PortMask::EMPTY,
            heard: PortMask::EMPTY,
            heard_since: Instant::ZERO,
            unscheduled: [0; MAX_PORTS],
            next: None,
            oversized: 0,
            announced: 0,
            unannounced: 0,
        })
    }

    /// The link of `port` is down, or the port is no more.
    fn gone(&mut self, port: PortId) {
        let departures = &mut self.departures[port.index()];
        *departures += 1;
        self.book.gone(port, *departures);
        self.speakers = self.speakers.without(port);
    }

    /// The agent at a port that has one at work.
    #[inline]
    fn agent(&mut self, port: PortId) -> Option<&mut Edge> {
        if self.speakers.contains(port) {
            return None;
        }
        self.edges[port.index()].as_deref_mut()
    }

    /// The host behind `from` reserves by itself.
    fn speaks(&mut self, now: Instant, from: PortId) {
        if self.speakers == PortMask::EMPTY {
            self.heard_since = now;
        }
        (self.speakers, self.heard) = (self.speakers.with(from), self.heard.with(from));
    }

    /// Hosts that were silent since the last time are looked after again.
    fn forget_silent(&mut self, now: Instant) {
        if self.next_silence().is_some_and(|at| at <= now) {
            (self.speakers, self.heard) = (self.speakers.and(self.heard), PortMask::EMPTY);
            self.heard_since = now;
        }
    }

    fn next_silence(&self) -> Option<Instant> {
        (self.speakers != PortMask::EMPTY).then(|| self.heard_since + SILENCE)
    }

    /// A frame in a slot of `ingress`, or of its agent, is at the switch.
    #[inline]
    fn book_data(&mut self, ingress: PortId, output: Option<PortId>, shim: Shim) -> Option<DropReason> {
        if self.book.with(|book| book.arrived(ingress, output, shim)) == Arrival::Refused {
            return Some(DropReason::Unreserved);
        }
        // The receiver waits for what reserved slots of the switch, not for what its queues do with it.
        if self.config.book.notify
            && let Some(edge) = output.and_then(|to| self.agent(to))
        {
            edge.host.arrived(edge::station(ingress), shim);
        }
        None
    }

    /// An agent may have something to do at `at`.
    #[inline]
    fn wake(&mut self, at: Option<Instant>) {
        self.next = earliest(self.next, at);
    }

    /// Tells the receiver behind `port` what the sender `src` behind `from` was granted.
    fn notify(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        port: PortId,
        (dst, src): (MacAddr, MacAddr),
        ntf: &Control,
    ) {
        if let Some(edge) = self.agent(port) {
            edge.host.control(cx.now, edge::station(from), ntf);
            let next = edge.next_deadline();
            self.wake(next);
            return;
        }
        // What can't be made now is lost as a frame can be: the switch takes back what it was about.
        if self.book.with(|book| book.may_announce(cx.now, port))
            && cx.outbox.has_room()
            && let Some(mut out) = cx.pool.alloc()
        {
            self.announced += 1;
            write(ntf, dst, src, &mut out);
            cx.outbox.generate(out, Meta::new(Headers::default(), from), Action::Forward(port, Queue::Control));
        } else {
            self.unannounced += 1;
        }
    }

    /// Does what is due at the agent of `port`.
    fn serve(&mut self, cx: &mut Context<'_>, stations: Stations<'_>, port: PortId) {
        let Some(mut edge) = self.edges[port.index()].take() else { return };
        if edge.is_cut {
            edge.is_cut = false;
            edge.reset(|frame, meta| cx.outbox.release(frame, meta, Action::Drop(DropReason::PortDown)));
        }
        loop {
            edge.poll(cx.now);
            let mut changed = false;
            while let Some((dst, control)) = edge.sent(cx.now) {
                self.said(cx, stations, port, &mut edge, dst, control);
                changed = true;
            }
            while let Some(grant) = edge.received(cx.now) {
                edge.host.control(cx.now, MacAddr::default(), &grant);
                changed = true;
            }
            if !changed {
                break;
            }
        }
        while let Some((frame, mut meta, shim)) = edge.depart(cx.now) {
            let output = stations.way(&frame, &meta);
            let action = match (self.book_data(port, output.ok(), shim), output) {
                (Some(reason), _) | (None, Err(reason)) => Action::Drop(reason),
                (None, Ok(to)) => {
                    meta.headers.put_in_slot(shim.closes);
                    Action::Forward(to, Queue::Data)
                }
            };
            cx.outbox.release(frame, meta, action);
        }
        self.wake(edge.next_deadline());
        self.edges[port.index()] = Some(edge);
    }

    /// A message of the agent at `port` is at the book.
    fn said(
        &mut self,
        cx: &mut Context<'_>,
        stations: Stations<'_>,
        port: PortId,
        edge: &mut Edge,
        dst: MacAddr,
        control: Control,
    ) {
        match control.kind {
            Kind::Rsv => {
                let output = stations.port(dst).filter(|to| *to != port);
                let rsv = edge::at_switch(control);
                let answer = self.book.with(|book| book.reserve(cx.now, port, output, &rsv));
                if output.is_none() {
                    // It was there when they came: its port has gone down, or it is where they come from.
                    let drop = Action::Drop(DropReason::NoBridgePort);
                    edge.host.withdraw(
                        cx.now,
                        |key| key.dst == dst,
                        |(frame, meta)| cx.outbox.release(frame, meta, drop),
                    );
                }
                edge.grant(cx.now, answer.grant);
                // An agent need not know of another: one can't be gone without the other.
                if let Some((to, ntf)) = answer.notify.filter(|(to, _)| self.agent(*to).is_none()) {
                    self.notify(cx, port, to, (dst, edge.address), &ntf);
                }
            }
            Kind::Rel => _ = self.book.with(|book| book.release(port, &edge::at_switch(control))),
            Kind::Rst => _ = self.book.with(|book| book.reset(port, edge::port_of(dst), &control)),
            Kind::Grt | Kind::Ntf => {}
        }
    }
}

impl RackScheduler for Rack {
    fn message(
        &mut self,
        cx: &mut Context<'_>,
        stations: Stations<'_>,
        from: PortId,
        frame: &mut Frame,
        control: &Control,
    ) -> Verdict {
        let (dst, src) = (ethernet::dst(frame), ethernet::src(frame));
        self.heard = self.heard.with(from);
        match control.kind {
            Kind::Rsv => {
                self.speaks(cx.now, from);
                let output = stations.port(dst);
                let answer = self.book.with(|book| book.reserve(cx.now, from, output, control));
                if let Some((to, ntf)) = answer.notify {
                    self.notify(cx, from, to, (dst, src), &ntf);
                }
                write(&answer.grant, src, dst, frame);
                Verdict::Forward(from, Queue::Control)
            }
            Kind::Rel => {
                self.book.with(|book| book.release(from, control));
                Verdict::Consume
            }
            Kind::Rst => {
                let sender = stations.port(dst);
                self.book.with(|book| book.reset(from, sender, control));
                Verdict::Consume
            }
            Kind::Grt | Kind::Ntf => Verdict::Drop(DropReason::BadSlotMessage),
        }
    }

    #[inline]
    fn data(&mut self, ingress: PortId, output: Option<PortId>, shim: Shim) -> Option<DropReason> {
        self.heard = self.heard.with(ingress);
        self.book_data(ingress, output, shim)
    }

    #[inline]
    fn schedules(&mut self, ingress: PortId, len: usize) -> bool {
        let slot = self.config.agent.as_ref().map_or(0, HostConfig::slot_bytes);
        let has_agent = self.agent(ingress).is_some();
        let fits = on_wire(len) <= slot as usize;
        self.oversized += u64::from(has_agent && !fits);
        self.unscheduled[ingress.index()] += u64::from(!(has_agent && fits));
        has_agent && fits
    }

    fn hold(&mut self, cx: &mut Context<'_>, stations: Stations<'_>, frame: Frame, meta: Meta) {
        let (port, dst) = (meta.ingress_port, ethernet::dst(&frame));
        let free = cx.pool.share(&frame).0;
        let Some(edge) = self.edges[port.index()].as_deref_mut() else {
            return cx.outbox.release(frame, meta, Action::Drop(DropReason::PortDown));
        };
        // Its link was down, and this is the first frame since: not one of those that are to be dropped.
        if std::mem::take(&mut edge.is_cut) {
            edge.reset(|frame, meta| cx.outbox.release(frame, meta, Action::Drop(DropReason::PortDown)));
        }
        if edge.held() > free {
            return cx.outbox.release(frame, meta, Action::Drop(DropReason::SharedBuffer));
        }
        match edge.park(cx.now, dst, frame, meta) {
            Ok(()) => self.serve(cx, stations, port),
            Err((frame, meta, true)) => {
                let action =
                    stations.way(&frame, &meta).map_or_else(Action::Drop, |to| Action::Forward(to, Queue::Data));
                cx.outbox.release(frame, meta, action);
            }
            Err((frame, meta, false)) => cx.outbox.release(frame, meta, Action::Drop(DropReason::SlotQueueFull)),
        }
    }

    #[inline]
    fn departed(&mut self, port: PortId, frames: u32) {
        self.book.with(|book| book.left(port, frames));
    }

    fn tick(&mut self, cx: &mut Context<'_>, stations: Stations<'_>) {
        if self.book.next_deadline().is_some_and(|due| due <= cx.now) {
            let edges = &self.edges;
            let is_at_work = |port: PortId, conn| {
                edge::is_agents(conn) && edges[port.index()].as_deref().is_some_and(Edge::is_at_work)
            };
            self.book.with(|book| book.sweep_unless(cx.now, is_at_work));
        }
        self.forget_silent(cx.now);
        if self.next.is_none_or(|next| next > cx.now) {
            return;
        }
        let is_due = |edge: &Edge| edge.next_deadline().is_some_and(|due| due <= cx.now);
        let due = self.hosts.iter().find(|port| self.edges[port.index()].as_deref().is_some_and(is_due));
        if let Some(port) = due {
            self.serve(cx, stations, port);
        }
        let deadlines = self.edges.iter().flatten().map(|edge| edge.next_deadline());
        self.next = deadlines.fold(None, earliest);
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.book.next_deadline(), self.next_silence()].into_iter().fold(self.next, earliest)
    }

    fn held(&self, port: PortId) -> usize {
        self.edges.get(port.index()).and_then(Option::as_deref).map_or(0, Edge::held)
    }

    fn release(&mut self, ports: PortMask, reason: DropReason, outbox: &mut Outbox) {
        for port in ports.and(self.hosts).iter() {
            if let Some(edge) = &mut self.edges[port.index()] {
                edge.reset(|frame, meta| outbox.release(frame, meta, Action::Drop(reason)));
                self.gone(port);
            }
        }
    }

    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>) {
        let rate = description.filter(|port| port.kind == PortKind::Host).map(|port| port.rate);
        let Some(rate) = rate else {
            if self.hosts.contains(port) {
                self.gone(port);
            }
            self.hosts = self.hosts.without(port);
            self.edges[port.index()] = None;
            return;
        };
        self.hosts = self.hosts.with(port);
        if let Some(agent) = &self.config.agent {
            let new = || Box::new(Edge::new(agent, self.config.rsv_delay));
            self.edges[port.index()].get_or_insert_with(new).set_rate(now, rate);
        }
    }

    fn set_up(&mut self, up: PortMask) {
        let was_up = self.up;
        for port in self.hosts.iter().filter(|port| was_up.contains(*port) && !up.contains(*port)) {
            self.gone(port);
            if let Some(edge) = &mut self.edges[port.index()] {
                edge.is_cut = true;
                self.next = Some(Instant::ZERO);
            }
        }
        self.up = up;
    }

    fn start(&mut self, epoch: u16) {
        self.book.start(epoch);
    }

    fn show(&self, _: Instant, queues: &TrafficManager) -> Vec<SchemeTable> {
        self.tables(queues)
    }
}

/// Writes a message over what is in `frame`, which holds one at least.
fn write(control: &Control, dst: MacAddr, src: MacAddr, frame: &mut Frame) {
    frame.set_len(FRAME_LEN);
    if let Some(bytes) = frame.first_chunk_mut() {
        control.emit(dst, src, bytes);
    }
}
