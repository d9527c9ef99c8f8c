use std::collections::VecDeque;

use serde::Serialize;

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::pisa::Meta;
use crate::time::Instant;

/// How much a queue may hold. A frame is refused when either limit would be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Packets.
    pub packets: u32,
    /// Bytes of frames, without FCS.
    pub bytes: u64,
}

/// What a queue holds and has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueDepth {
    /// Packets waiting.
    pub packets: u64,
    /// Bytes waiting.
    pub bytes: u64,
    /// Most packets that ever waited.
    pub peak_packets: u64,
    /// Most bytes that ever waited.
    pub peak_bytes: u64,
    /// Frames that joined.
    pub enqueued: u64,
    /// Frames refused (tail drop).
    pub dropped: u64,
}

/// A frame and its metadata on their way through the switch, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(in crate::pisa) struct Packet {
    pub frame: Frame,
    pub meta: Meta,
}

/// A FIFO with limits. Its memory is taken once; it never grows past its packet limit.
#[derive(Debug)]
pub(super) struct PortQueue {
    fifo: VecDeque<Packet>,
    limits: QueueLimits,
    bytes: u64,
    /// Packets in large buffers.
    large: usize,
    peak_packets: u64,
    peak_bytes: u64,
    enqueued: u64,
    dropped: u64,
}

impl PortQueue {
    pub fn new(limits: QueueLimits) -> Self {
        PortQueue {
            fifo: VecDeque::with_capacity(limits.packets as usize),
            limits,
            bytes: 0,
            large: 0,
            peak_packets: 0,
            peak_bytes: 0,
            enqueued: 0,
            dropped: 0,
        }
    }

    /// Changes the limits; what waits stays, also beyond them.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
        self.fifo.reserve((limits.packets as usize).saturating_sub(self.fifo.len()));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    #[inline]
    pub fn packets(&self) -> usize {
        self.fifo.len()
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `frame` may join while `free` of what it is in, chunks or large buffers, are free; a refusal
    /// is counted.
    #[inline(always)]
    pub fn admits(&mut self, frame: &Frame, free: usize) -> Result<(), DropReason> {
        let taken = if frame.is_large() { self.large } else { self.fifo.len() - self.large };
        let reason = if self.fifo.len() >= self.limits.packets as usize {
            DropReason::QueuePackets
        } else if self.bytes + frame.len() as u64 > self.limits.bytes {
            DropReason::QueueBytes
        } else if taken > free {
            DropReason::SharedBuffer
        } else {
            return Ok(());
        };
        self.dropped += 1;
        Err(reason)
    }

    /// The packet in `slot` joins at `now`, which its metadata shall show.
    #[inline(always)]
    pub fn push(&mut self, now: Instant, slot: &mut Option<Packet>) {
        let Some(packet) = slot else { return };
        let depth = self.fifo.len();
        self.bytes += packet.frame.len() as u64;
        self.large += usize::from(packet.frame.is_large());
        let meta = packet.meta;
        let Some(Packet { frame, .. }) = slot.take() else { return };
        self.fifo.push_back(Packet { frame, meta });
        // Written where it now is: a wide copy right after narrow writes waits for them.
        if let Some(Packet { meta, .. }) = self.fifo.back_mut() {
            meta.enq_timestamp = now;
            meta.enq_qdepth = depth as u32;
        }
        self.enqueued += 1;
        self.peak_packets = self.peak_packets.max(depth as u64 + 1);
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.fifo.pop_front()?;
        self.bytes -= packet.frame.len() as u64;
        self.large -= usize::from(packet.frame.is_large());
        if self.fifo.is_empty() {
            // Start over at the same memory: a queue that drains each burst stays in L1.
            self.fifo.clear();
        }
        Some(packet)
    }

    pub fn depth(&self) -> QueueDepth {
        QueueDepth {
            packets: self.fifo.len() as u64,
            bytes: self.bytes,
            peak_packets: self.peak_packets,
            peak_bytes: self.peak_bytes,
            enqueued: self.enqueued,
            dropped: self.dropped,
        }
    }
}

const _: () = assert!(size_of::<Packet>() == 64, "a queue entry is one cache line");
