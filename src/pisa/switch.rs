use std::collections::VecDeque;

use crate::counters::{DropReason, Ledger, PortCounters};
use crate::frame::{BURST, Burst, Frame, Pool};
use crate::id::{PortId, PortMask};
use crate::time::{Instant, earliest};
use crate::wire::{self, Headers};

use super::digest::{DigestCounts, Digests};
use super::outbox::{Action, Entry, Origin, Outbox};
use super::pipe::{Handed, Pipe};
use super::program::{Context, Control, Egress, EgressContext, Ingress, Program};
use super::tm::{Packet, PortLimits, TrafficManager};
use super::{EgressVerdict, Meta, Queue, Verdict};

/// Passes through ingress after the first that a frame may make.
const MAX_RECIRCULATIONS: u8 = 4;
/// Frames that headers are fetched ahead for. Chunks lie a power of two apart, so few of their first
/// lines fit the L1 cache at once: eight, if the chunks are pages.
const AHEAD: usize = 4;
/// Times that one [`Switch::tick`] asks the program what is due.
const MAX_TICKS: usize = 64;
/// One part in so many of the pool's chunks that packets without a neighbour, or for other pipes, may not take.
const HOLD_RESERVE: usize = 16;
/// The same of its large buffers, of which there are fewer than may be held.
const LARGE_HOLD_RESERVE: usize = 2;
/// Packets put aside for other pipes: what comes in one pass; they are no queue that anybody sees.
const MAX_HANDING: usize = 256;
/// What egress may tell ingress about a burst without taking memory.
const FEEDBACK: usize = 2 * BURST;
/// Frames that wait for the control plane to take them.
const PUNT_CAPACITY: usize = 256;

/// The engine: a program, its queues and its counters. One worker owns it.
///
/// Invariant, whenever no call is under way: [`Switch::ledger`] passes [`Ledger::check`].
#[derive(Debug)]
pub struct Switch<P: Program> {
    ingress: P::Ingress,
    egress: P::Egress,
    control: P::Control,
    /// From egress to control.
    digests: Digests<<P::Egress as Egress>::Digest>,
    /// From egress to ingress; empty between calls.
    feedback: Vec<<P::Egress as Egress>::Feedback>,
    tm: TrafficManager,
    counters: Vec<PortCounters>,
    outbox: Outbox,
    punted: VecDeque<(Frame, Meta)>,
    /// Pass 1's results, empty between bursts.
    parsed: Box<[Option<Packet>]>,
    down: PortMask,
    /// Ports that there are; the other numbers were removed.
    present: PortMask,
    /// What ports counted that were removed.
    removed: PortCounters,
    pipe: Pipe,
    /// Paced ports whose queues are in another pipe.
    remote: PortMask,
    /// Packets for those, to be taken by the driver.
    handing: Vec<Handed>,
    handed: u64,
    accepted: u64,
}

impl<P: Program> Switch<P> {
    /// A switch with one port for each entry of `limits`, all up.
    ///
    /// # Panics
    /// With more than [`crate::id::MAX_PORTS`] ports.
    pub fn new(ingress: P::Ingress, egress: P::Egress, limits: &[PortLimits]) -> Self
    where
        P::Control: Default,
    {
        Switch::with_pipe(ingress, egress, P::Control::default(), limits, Pipe::ONLY)
    }

    /// One pipe of a switch; otherwise as [`Switch::new`].
    ///
    /// # Panics
    /// With more than [`crate::id::MAX_PORTS`] ports.
    pub fn with_pipe(
        ingress: P::Ingress,
        egress: P::Egress,
        control: P::Control,
        limits: &[PortLimits],
        pipe: Pipe,
    ) -> Self {
        assert!(limits.len() <= crate::id::MAX_PORTS, "{} ports", limits.len());
        let paced = (0..).map(PortId).zip(limits).filter(|(_, limits)| limits.rate.0 > 0).map(|(port, _)| port);
        Switch {
            ingress,
            egress,
            control,
            digests: Digests::new(),
            feedback: Vec::with_capacity(FEEDBACK),
            tm: TrafficManager::new(limits),
            counters: vec![PortCounters::default(); limits.len()],
            outbox: Outbox::new(),
            punted: VecDeque::with_capacity(PUNT_CAPACITY),
            parsed: (0..BURST).map(|_| None).collect(),
            down: PortMask::EMPTY,
            present: (0..limits.len()).map(|port| PortId(port as u8)).collect(),
            removed: PortCounters::default(),
            pipe,
            remote: paced.filter(|port| !pipe.owns(*port)).collect(),
            handing: Vec::new(),
            handed: 0,
            accepted: 0,
        }
    }

    /// Takes every frame of `burst`, which came in by `port` at `now`, through ingress into queues. A
    /// port that is down receives nothing: its frames are dropped.
    ///
    /// # Panics
    /// If `port` is not one of this switch.
    pub fn receive(&mut self, now: Instant, port: PortId, pool: &mut Pool, burst: &mut Burst) {
        let mut parsed = std::mem::take(&mut self.parsed);
        let frames = burst.len();
        let mut bytes = 0;
        burst.frames().iter().take(AHEAD).for_each(Frame::prefetch);
        let mut arrived = burst.drain();
        let mut slots = parsed.iter_mut();
        while let Some(frame) = arrived.next() {
            if let Some(ahead) = arrived.as_slice().get(AHEAD - 1) {
                ahead.prefetch();
            }
            bytes += frame.len() as u64;
            let slot = slots.next().expect("a burst is at most BURST frames");
            let Packet { frame, meta } = slot.insert(Packet { frame, meta: Meta::new(Headers::default(), port) });
            match wire::parse_into(frame, &mut meta.headers) {
                Ok(()) => self.ingress.prepare(frame, meta),
                Err(reason) => {
                    if let Some(Packet { frame, .. }) = slot.take() {
                        self.drop_at_ingress(pool, port, frame, reason);
                    }
                }
            }
        }
        drop(arrived);
        if self.down.contains(port) {
            for Packet { frame, .. } in parsed.iter_mut().filter_map(Option::take) {
                self.drop_at_ingress(pool, port, frame, DropReason::PortDown);
            }
        }
        let counters = &mut self.counters[port.index()];
        counters.rx += frames as u64;
        counters.rx_bytes += bytes;
        for i in 0..frames {
            if let Some(Some(Packet { frame, .. })) = parsed.get(i + AHEAD) {
                frame.prefetch();
            }
            // A packet stays where pass 1 wrote it until it joins a queue.
            let Some(Packet { frame, meta }) = &mut parsed[i] else { continue };
            let verdict = self.ingress.process(&mut Context { now, pool, outbox: &mut self.outbox }, frame, meta);
            if let Verdict::Forward(to, queue) = verdict {
                self.forward(now, pool, to, queue, &mut parsed[i]);
            } else if let Some(packet) = parsed[i].take() {
                self.settle(now, pool, verdict, packet);
            }
            if !self.outbox.is_empty() {
                self.drain_outbox(now, pool);
            }
        }
        self.parsed = parsed;
    }

    /// Does what ingress decided about a frame.
    #[inline(never)]
    fn settle(&mut self, now: Instant, pool: &mut Pool, verdict: Verdict, packet: Packet) {
        let Packet { frame, meta } = packet;
        let port = meta.ingress_port;
        match verdict {
            Verdict::Forward(to, queue) => self.forward(now, pool, to, queue, &mut Some(Packet { frame, meta })),
            Verdict::Flood(to) => self.flood(now, pool, to, frame, meta),
            Verdict::Recirculate => self.recirculate(now, pool, Packet { frame, meta }),
            Verdict::Drop(reason) => self.drop_at_ingress(pool, port, frame, reason),
            Verdict::Consume => {
                self.counters[port.index()].consumed += 1;
                pool.free(frame);
            }
            Verdict::Hold if is_scarce(pool, &frame) => {
                self.drop_at_ingress(pool, port, frame, DropReason::SharedBuffer);
            }
            Verdict::Hold => self.ingress.hold(&mut Context { now, pool, outbox: &mut self.outbox }, frame, meta),
            Verdict::Punt if self.punted.len() < PUNT_CAPACITY => {
                self.counters[port.index()].consumed += 1;
                self.punted.push_back((frame, meta));
            }
            Verdict::Punt => self.drop_at_ingress(pool, port, frame, DropReason::OutboxFull),
        }
    }

    #[inline]
    fn drop_at_ingress(&mut self, pool: &mut Pool, port: PortId, frame: Frame, reason: DropReason) {
        self.counters[port.index()].ingress_drops.count(reason);
        pool.free(frame);
    }

    /// Hands a packet over from its ingress port to a queue of `to`. It is taken out of where it is only when it joins
    /// that: moved once, as it is.
    #[inline(always)]
    fn forward(&mut self, now: Instant, pool: &mut Pool, to: PortId, queue: Queue, slot: &mut Option<Packet>) {
        let Some(packet) = slot else { return };
        if !self.present.contains(to) || self.remote.contains(to) {
            return self.hand_over(pool, to, queue, slot);
        }
        self.counters[packet.meta.ingress_port.index()].forwarded += 1;
        self.enqueue(now, pool, to, queue, slot);
    }

    /// Puts a packet aside for the pipe that has its port's queues, if there is such a port.
    #[inline(never)]
    fn hand_over(&mut self, pool: &mut Pool, to: PortId, queue: Queue, slot: &mut Option<Packet>) {
        let Some(packet) = slot.take() else { return };
        let from = packet.meta.ingress_port;
        // What is abroad does not show in the depths here, so a part of the pool is kept from it.
        let refused = match () {
            () if !self.present.contains(to) => Some(DropReason::NoSuchPort),
            () if self.handing.len() >= MAX_HANDING => Some(DropReason::PipeFull),
            () if is_scarce(pool, &packet.frame) => Some(DropReason::SharedBuffer),
            () => None,
        };
        if let Some(reason) = refused {
            self.ingress.refused(to, &packet.meta);
            return self.drop_at_ingress(pool, from, packet.frame, reason);
        }
        self.counters[from.index()].forwarded += 1;
        self.handed += 1;
        self.handing.push(Handed { to, queue, packet });
    }

    /// Packets for other pipes, oldest first; whoever takes them brings them there.
    pub fn handing(&mut self) -> &mut Vec<Handed> {
        &mut self.handing
    }

    /// Takes a packet that another pipe handed over into its queue. Pipes come to know of a change one after
    /// the other: a port that is not here yet, or no more, drops it.
    pub fn accept(&mut self, now: Instant, pool: &mut Pool, handed: Handed) {
        let Handed { to, queue, packet } = handed;
        self.accepted += 1;
        match self.present.contains(to) {
            true => self.enqueue(now, pool, to, queue, &mut Some(packet)),
            false => self.refuse(pool, to, packet, DropReason::NoSuchPort),
        }
    }

    /// Drops a frame at the egress of a port, which need not be there.
    fn refuse(&mut self, pool: &mut Pool, to: PortId, packet: Packet, reason: DropReason) {
        let counters = match self.present.contains(to) {
            true => &mut self.counters[to.index()],
            false => &mut self.removed,
        };
        counters.enqueued += 1;
        counters.egress_drops.count(reason);
        self.ingress.refused(to, &packet.meta);
        pool.free(packet.frame);
    }

    /// What this pipe has to tell the others.
    pub fn take_notes(&mut self, notes: &mut Vec<<P::Ingress as Ingress>::Note>) {
        self.ingress.take_notes(notes);
    }

    /// Another pipe tells something.
    pub fn note(&mut self, now: Instant, pool: &mut Pool, note: <P::Ingress as Ingress>::Note) {
        self.ingress.note(&mut Context { now, pool, outbox: &mut self.outbox }, note);
        self.drain_outbox(now, pool);
    }

    #[inline(always)]
    fn enqueue(&mut self, now: Instant, pool: &mut Pool, to: PortId, queue: Queue, slot: &mut Option<Packet>) {
        let Some(packet) = slot else { return };
        let counters = &mut self.counters[to.index()];
        counters.enqueued += 1;
        let admitted = match self.down.contains(to) {
            true => Err(DropReason::PortDown),
            false => self.tm.admit(to, queue, &packet.frame, pool.share(&packet.frame).0),
        };
        match admitted {
            Ok(()) => self.tm.join(now, to, queue, slot),
            Err(reason) => {
                counters.egress_drops.count(reason);
                if let Some(packet) = slot.take() {
                    self.ingress.refused(to, &packet.meta);
                    pool.free(packet.frame);
                }
            }
        }
    }

    /// A copy to each port of `to`; the last one gets the frame itself. A copy for which there is no
    /// free frame is counted as made and dropped, so that the loss shows.
    fn flood(&mut self, now: Instant, pool: &mut Pool, to: PortMask, frame: Frame, meta: Meta) {
        let from = meta.ingress_port;
        let copies = to.len();
        if copies == 0 {
            return self.drop_at_ingress(pool, from, frame, DropReason::NoBridgePort);
        }
        let mut ports = to.iter();
        for port in ports.by_ref().take(copies as usize - 1) {
            self.counters[from.index()].generated += 1;
            match pool.alloc_with(&frame) {
                Some(frame) => self.forward(now, pool, port, Queue::Data, &mut Some(Packet { frame, meta })),
                None => self.counters[from.index()].ingress_drops.count(DropReason::NoFrame),
            }
        }
        if let Some(last) = ports.next() {
            self.forward(now, pool, last, Queue::Data, &mut Some(Packet { frame, meta }));
        }
    }

    /// Does what the program put into the outbox, and what that leads to in turn. It ends because
    /// no packet of the switch's own causes another one (RFC 1122 section 3.2.2).
    #[inline(never)]
    fn drain_outbox(&mut self, now: Instant, pool: &mut Pool) {
        while let Some(Entry { frame, meta, origin, action }) = self.outbox.pop() {
            if origin == Origin::Generated {
                self.counters[meta.ingress_port.index()].generated += 1;
            }
            match action {
                Action::Forward(port, queue) => self.forward(now, pool, port, queue, &mut Some(Packet { frame, meta })),
                Action::Recirculate => self.recirculate(now, pool, Packet { frame, meta }),
                Action::Drop(reason) => self.drop_at_ingress(pool, meta.ingress_port, frame, reason),
            }
        }
    }

    /// One more pass of a frame through ingress, if it has not had too many.
    fn recirculate(&mut self, now: Instant, pool: &mut Pool, packet: Packet) {
        let Packet { mut frame, mut meta } = packet;
        let readied = match meta.recirculations {
            MAX_RECIRCULATIONS => Err(DropReason::RecirculationLimit),
            _ => wire::parse_into(&frame, &mut meta.headers),
        };
        if let Err(reason) = readied {
            return self.drop_at_ingress(pool, meta.ingress_port, frame, reason);
        }
        meta.recirculations += 1;
        self.ingress.prepare(&frame, &mut meta);
        let mut cx = Context { now, pool, outbox: &mut self.outbox };
        let verdict = self.ingress.process(&mut cx, &mut frame, &mut meta);
        self.settle(now, pool, verdict, Packet { frame, meta });
    }

    /// Moves up to `room` frames that `port` may send at `now` through egress into `out`, and counts
    /// them as sent: the caller must have room for them on the wire. Time in which it has none is lost
    /// to the port's rate.
    ///
    /// # Panics
    /// If `port` is not one of this switch.
    #[inline]
    pub fn transmit(&mut self, now: Instant, port: PortId, pool: &mut Pool, room: usize, out: &mut Burst) {
        let room = room.min(out.room());
        if room == 0 {
            self.tm.blocked(now, port);
            return;
        }
        let (mut frames, mut bytes, mut departed) = (0, 0, 0);
        while frames < room {
            let Some((mut frame, mut meta)) = self.tm.dequeue(now, port) else { break };
            let mut cx = EgressContext {
                now,
                pool,
                outbox: &mut self.outbox,
                feedback: &mut self.feedback,
                digests: &mut self.digests,
                departed: 0,
            };
            let verdict = self.egress.process(&mut cx, port, &mut frame, &mut meta);
            departed += cx.departed;
            match verdict {
                EgressVerdict::Send => {
                    frames += 1;
                    bytes += frame.len() as u64;
                    out.push(frame);
                }
                EgressVerdict::Drop(reason) => {
                    self.counters[port.index()].egress_drops.count(reason);
                    pool.free(frame);
                }
            }
        }
        let counters = &mut self.counters[port.index()];
        counters.tx += frames as u64;
        counters.tx_bytes += bytes;
        for feedback in self.feedback.drain(..) {
            self.ingress.feedback(now, feedback);
        }
        if departed > 0 {
            self.ingress.departed(port, departed);
        }
        if !self.outbox.is_empty() {
            self.drain_outbox(now, pool);
        }
    }

    /// Lets the control plane take what egress has reported.
    #[inline]
    pub fn control(&mut self, now: Instant) {
        while let Some(digest) = self.digests.pop() {
            if let Some(command) = self.control.digest(now, &digest) {
                self.ingress.command(now, command);
            }
        }
    }

    /// How many digests there were.
    pub fn digests(&self) -> DigestCounts {
        self.digests.counts()
    }

    /// The control plane's state.
    pub fn control_plane(&self) -> &P::Control {
        &self.control
    }

    /// The egress stage's state.
    pub fn egress(&self) -> &P::Egress {
        &self.egress
    }

    /// The egress stage's state, to tell it of ports.
    pub fn egress_mut(&mut self) -> &mut P::Egress {
        &mut self.egress
    }

    /// The control plane's state, to tell it of ports.
    pub fn control_plane_mut(&mut self) -> &mut P::Control {
        &mut self.control
    }

    /// Lets the program act on time that has passed, until nothing is due or (so that what has piled
    /// up does not hold up the ports) 64 things were done. Then [`Switch::tick_deadline`] is still
    /// past, and the rest is for the next call.
    pub fn tick(&mut self, now: Instant, pool: &mut Pool) {
        for _ in 0..MAX_TICKS {
            self.ingress.tick(&mut Context { now, pool, outbox: &mut self.outbox });
            self.drain_outbox(now, pool);
            if self.ingress.next_deadline().is_none_or(|due| due > now) {
                break;
            }
        }
    }

    /// When to call [`Switch::tick`] or [`Switch::transmit`] although no frame has come; a time in
    /// the past means at once.
    pub fn next_deadline(&self) -> Option<Instant> {
        earliest(self.tm.next_deadline(), self.ingress.next_deadline())
    }

    /// When the program itself wants [`Switch::tick`].
    #[inline]
    pub fn tick_deadline(&self) -> Option<Instant> {
        self.ingress.next_deadline()
    }

    /// Ports with frames waiting to be sent.
    #[inline]
    pub fn backlog(&self) -> PortMask {
        self.tm.backlog()
    }

    /// Gives the switch one more port, up, without counters: the number after the last, or that of one
    /// that was removed. The program has to know it already.
    ///
    /// # Panics
    /// If it is neither.
    pub fn add_port(&mut self, port: PortId, limits: &PortLimits) {
        assert!(port.index() < crate::id::MAX_PORTS && port.index() <= self.counters.len(), "port {port}");
        assert!(!self.present.contains(port), "port {port} is in use");
        if port.index() == self.counters.len() {
            self.counters.push(PortCounters::default());
        }
        self.present = self.present.with(port);
        self.tm.add_port(port, limits);
        self.down = self.down.without(port);
        self.place(port, limits);
    }

    /// Finds out whose queues a port's are.
    fn place(&mut self, port: PortId, limits: &PortLimits) {
        self.remote = match limits.rate.0 > 0 && !self.pipe.owns(port) {
            true => self.remote.with(port),
            false => self.remote.without(port),
        };
    }

    /// Takes a port out of the switch: what waits at it, and what it brought and is held, is dropped. Its
    /// counters are added to those of all removed ports; its number is free for [`Switch::add_port`].
    pub fn remove_port(&mut self, now: Instant, port: PortId, pool: &mut Pool) {
        self.set_port_up(port, false, pool);
        self.ingress.release(PortMask::only(port), DropReason::PortDown, &mut self.outbox);
        self.drain_outbox(now, pool);
        let counters = std::mem::take(&mut self.counters[port.index()]);
        self.removed.add(&counters);
        self.present = self.present.without(port);
    }

    /// Changes rate and queue limits of a port; what waits stays.
    pub fn set_limits(&mut self, now: Instant, port: PortId, limits: &PortLimits) {
        self.tm.set_limits(now, port, limits);
        self.place(port, limits);
    }

    /// Takes a port out of or back into service. What waits at a port that goes down is dropped.
    pub fn set_port_up(&mut self, port: PortId, up: bool, pool: &mut Pool) {
        if up {
            self.down = self.down.without(port);
            return;
        }
        self.down = self.down.with(port);
        self.purge(port, pool, DropReason::PortDown);
    }

    fn purge(&mut self, port: PortId, pool: &mut Pool, reason: DropReason) {
        while let Some((frame, meta)) = self.tm.purge(port) {
            self.counters[port.index()].egress_drops.count(reason);
            self.ingress.refused(port, &meta);
            pool.free(frame);
        }
    }

    /// Whether a port is in service.
    pub fn is_port_up(&self, port: PortId) -> bool {
        !self.down.contains(port)
    }

    /// A frame that ingress punted, oldest first, with its metadata. It is counted as consumed.
    pub fn take_punted(&mut self) -> Option<(Frame, Meta)> {
        self.punted.pop_front()
    }

    /// Drops everything that is queued, held or punted; the ledger still balances after it.
    pub fn drain(&mut self, now: Instant, pool: &mut Pool) {
        self.ingress.release(PortMask(u64::MAX), DropReason::Shutdown, &mut self.outbox);
        self.drain_outbox(now, pool);
        for port in 0..self.counters.len() {
            self.purge(PortId(port as u8), pool, DropReason::Shutdown);
        }
        while let Some((frame, _)) = self.punted.pop_front() {
            pool.free(frame);
        }
        // Not handed over after all.
        for Handed { to, packet, .. } in std::mem::take(&mut self.handing) {
            self.accepted += 1;
            self.refuse(pool, to, packet, DropReason::Shutdown);
        }
    }

    /// The counters of `port`, with what the program holds for it filled in.
    pub fn counters(&self, port: PortId) -> PortCounters {
        PortCounters { held: self.ingress.held(port) as u64, ..self.counters[port.index()] }
    }

    /// Counters and queue lengths of all ports, at rest between bursts.
    pub fn ledger(&self) -> Ledger {
        let port = |i| (self.counters(PortId(i as u8)), self.tm.queued(PortId(i as u8)));
        let ports = (0..self.counters.len()).map(port).collect();
        Ledger { ports, removed: self.removed, handed: self.handed, accepted: self.accepted }
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.counters.len()
    }

    /// The queues, for showing.
    pub fn queues(&self) -> &TrafficManager {
        &self.tm
    }

    /// The ingress stage's state.
    pub fn ingress(&self) -> &P::Ingress {
        &self.ingress
    }

    /// The ingress stage's state, for commands of the control plane.
    pub fn ingress_mut(&mut self) -> &mut P::Ingress {
        &mut self.ingress
    }
}

/// Whether what `frame` is in is too scarce to be held for a neighbour, or handed to another pipe.
fn is_scarce(pool: &Pool, frame: &Frame) -> bool {
    let (free, all) = pool.share(frame);
    free < all / if frame.is_large() { LARGE_HOLD_RESERVE } else { HOLD_RESERVE }
}
