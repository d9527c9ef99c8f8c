//! The traffic manager: per port, strict-priority queues behind a pacer.
//!
//! It is the only queue in a switch that may grow. A port's driver takes no more frames than the
//! pacer released and the ring has room for, so the depth shown here times the port's rate is the
//! delay a frame sees (ARCHITECTURE.md rule 5).

mod pacer;
mod queue;

pub use pacer::Pacer;
pub use queue::{QueueDepth, QueueLimits};

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{PortId, PortMask};
use crate::time::Instant;
use crate::units::BitRate;
use crate::wire::{L3, ethernet, ipv4, ipv6};

use super::{Meta, Queue};
pub(super) use queue::Packet;
use queue::PortQueue;

/// Rate and queue limits of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// Rate to pace to, counting what a frame takes on the wire (its length, at least 60 B, and
    /// 24 B of FCS, preamble and gap); 0 = unlimited.
    pub rate: BitRate,
    /// Limits of the control queue.
    pub control: QueueLimits,
    /// Limits of the data queue.
    pub data: QueueLimits,
    /// ECN step threshold of the data queue: an ECN-capable packet that joins when more than this
    /// many bytes wait is marked (RFC 3168; the step of DCTCP, RFC 8257 section 3.1). 0 = off.
    pub ecn_mark_bytes: u64,
}

impl Default for PortLimits {
    fn default() -> Self {
        PortLimits {
            rate: BitRate(0),
            control: QueueLimits { packets: 256, bytes: 256_000 },
            data: QueueLimits { packets: 1024, bytes: 1_000_000 },
            ecn_mark_bytes: 0,
        }
    }
}

#[derive(Debug)]
struct Port {
    queues: [PortQueue; Queue::ALL.len()],
    pacer: Pacer,
    ecn_mark_bytes: u64,
    ecn_marked: u64,
}

impl Port {
    fn new(limits: &PortLimits) -> Port {
        let mut port = Port {
            queues: [PortQueue::new(limits.control), PortQueue::new(limits.data)],
            pacer: Pacer::new(limits.rate),
            ecn_mark_bytes: 0,
            ecn_marked: 0,
        };
        port.set_limits(Instant::ZERO, limits);
        port
    }

    fn set_limits(&mut self, now: Instant, limits: &PortLimits) {
        self.queues[Queue::Control as usize].set_limits(limits.control);
        self.queues[Queue::Data as usize].set_limits(limits.data);
        self.pacer.set_rate(now, limits.rate);
        self.ecn_mark_bytes = if limits.ecn_mark_bytes == 0 { u64::MAX } else { limits.ecn_mark_bytes };
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(PortQueue::is_empty)
    }
}

/// The queues of all ports of a switch.
#[derive(Debug)]
pub struct TrafficManager {
    ports: Vec<Port>,
    backlog: PortMask,
}

impl TrafficManager {
    /// Empty queues for ports `0..limits.len()`. All memory is taken here.
    pub fn new(limits: &[PortLimits]) -> Self {
        TrafficManager { ports: limits.iter().map(Port::new).collect(), backlog: PortMask::EMPTY }
    }

    /// Fresh queues for `port`: the next after the last, or one whose queues are empty.
    pub(super) fn add_port(&mut self, port: PortId, limits: &PortLimits) {
        debug_assert!(!self.backlog.contains(port), "purged before");
        match self.ports.get_mut(port.index()) {
            Some(old) => *old = Port::new(limits),
            None => self.ports.push(Port::new(limits)),
        }
    }

    /// Changes rate and limits of `port`; what waits stays.
    ///
    /// # Panics
    /// If `port` is not one of this switch.
    pub fn set_limits(&mut self, now: Instant, port: PortId, limits: &PortLimits) {
        self.ports[port.index()].set_limits(now, limits);
    }

    /// Ports that have frames waiting.
    #[inline]
    pub fn backlog(&self) -> PortMask {
        self.backlog
    }

    /// Puts a frame at the end of a queue, or hands it back with the reason it was refused.
    ///
    /// # Errors
    /// The frame, with [`DropReason::QueuePackets`] or [`DropReason::QueueBytes`].
    ///
    /// # Panics
    /// If `port` is not one of this switch.
    pub fn enqueue(
        &mut self,
        now: Instant,
        port: PortId,
        queue: Queue,
        frame: Frame,
        meta: Meta,
    ) -> Result<(), (Frame, DropReason)> {
        match self.admit(port, queue, &frame, usize::MAX) {
            Ok(()) => {
                self.join(now, port, queue, &mut Some(Packet { frame, meta }));
                Ok(())
            }
            Err(reason) => Err((frame, reason)),
        }
    }

    /// Whether `frame` may join a queue now that `free` chunks of the pool are free, or large buffers if it
    /// is in one; a refusal is counted.
    ///
    /// Beside its own limits a queue may hold no more packets than there are free chunks, nor more large ones
    /// than there are free buffers: the dynamic threshold of Choudhury and Hahne (IEEE/ACM ToN 1998, alpha =
    /// 1). So however many queues are flooded, some of both stay for those that are not, and for receiving.
    #[inline(always)]
    pub(super) fn admit(&mut self, port: PortId, queue: Queue, frame: &Frame, free: usize) -> Result<(), DropReason> {
        self.ports[port.index()].queues[queue as usize].admits(frame, free)
    }

    /// The wire takes nothing from `port` at `now`: it may not make up for that later.
    #[inline]
    pub(super) fn blocked(&mut self, now: Instant, port: PortId) {
        self.ports[port.index()].pacer.start(now);
    }

    /// Puts a packet that was admitted at the end of its queue; takes it out of `slot`.
    #[inline(always)]
    pub(super) fn join(&mut self, now: Instant, port: PortId, queue: Queue, slot: &mut Option<Packet>) {
        let Some(packet) = slot else { return };
        let p = &mut self.ports[port.index()];
        let q = &mut p.queues[queue as usize];
        if queue == Queue::Data && q.bytes() > p.ecn_mark_bytes && mark_ce(&mut packet.frame, &packet.meta) {
            p.ecn_marked += 1;
        }
        q.push(now, slot);
        if !self.backlog.contains(port) {
            // The port was idle: it may not claim the time since its last frame as credit.
            p.pacer.start(now);
            self.backlog = self.backlog.with(port);
        }
    }

    /// Takes the next frame that `port` may send at `now`: highest priority first, one at a time as
    /// the pacer allows.
    #[inline(always)]
    pub fn dequeue(&mut self, now: Instant, port: PortId) -> Option<(Frame, Meta)> {
        let p = &mut self.ports[port.index()];
        if !p.pacer.ready(now) {
            return None;
        }
        let q = p.queues.iter_mut().find(|q| !q.is_empty())?;
        let Packet { frame, mut meta } = q.pop()?;
        meta.deq_qdepth = p.queues[Queue::Data as usize].packets() as u32;
        p.pacer.sent(ethernet::on_wire(frame.len()));
        if p.is_empty() {
            self.backlog = self.backlog.without(port);
        }
        Some((frame, meta))
    }

    /// Takes the next frame of `port` regardless of pacing: the port is going away.
    pub fn purge(&mut self, port: PortId) -> Option<(Frame, Meta)> {
        let p = &mut self.ports[port.index()];
        let queued = p.queues.iter_mut().find_map(PortQueue::pop);
        if p.is_empty() {
            self.backlog = self.backlog.without(port);
        }
        queued.map(|q| (q.frame, q.meta))
    }

    /// When the pacer of some port with waiting frames lets the next one go.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.backlog.iter().map(|p| self.ports[p.index()].pacer.next()).min()
    }

    /// When the pacer of `port` lets the next frame go; `None` if none waits.
    pub fn port_deadline(&self, port: PortId) -> Option<Instant> {
        self.backlog.contains(port).then(|| self.ports[port.index()].pacer.next())
    }

    /// Frames waiting at `port`.
    pub fn queued(&self, port: PortId) -> u64 {
        self.ports[port.index()].queues.iter().map(|q| q.packets() as u64).sum()
    }

    /// Depth, peak and drops of one queue.
    pub fn depth(&self, port: PortId, queue: Queue) -> QueueDepth {
        self.ports[port.index()].queues[queue as usize].depth()
    }

    /// Packets of `port` that got the CE mark here.
    pub fn ecn_marked(&self, port: PortId) -> u64 {
        self.ports[port.index()].ecn_marked
    }

    /// The rate `port` is paced to.
    pub fn rate(&self, port: PortId) -> BitRate {
        self.ports[port.index()].pacer.rate()
    }
}

/// Sets CE on an ECN-capable IP packet; `false` if it is none.
#[inline]
fn mark_ce(frame: &mut Frame, meta: &Meta) -> bool {
    let l3 = meta.headers.l3 as usize;
    match meta.headers.kind {
        _ if meta.headers.fault.is_some() => false,
        L3::Ipv4 => ipv4::mark_ce(frame, l3),
        L3::Ipv6 => ipv6::mark_ce(frame, l3),
        _ => false,
    }
}
