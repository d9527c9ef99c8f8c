use std::collections::VecDeque;
use std::io;

use crate::frame::{BURST, Burst, Frame, Pool};
use crate::port::Port;
use crate::time::Instant;
use crate::wire::MacAddr;
use crate::wire::ethernet::{self, on_wire};
use crate::wire::pl2::{self, Control, SHIM_LEN, Shim};

/// Most messages that wait for room in the TX ring; what is beyond is sent again by the host's timers.
const MAX_MESSAGES: usize = 1024;
/// Most unscheduled frames that wait for it.
const MAX_BYPASS: usize = 1024;

/// What leaves by the uplink, in three queues: messages, unscheduled frames, data. Some messages wait for data that was
/// released before them.
///
/// Data is paced to the slots' rate: a frame of n bytes on the wire, its shim not counted, takes n / slot_bytes of a
/// slot, as in the host's own account, and frames of one burst follow each other. A frame that leaves late does
/// not put off the next one, so that the rate is kept. Before the first grant nothing is known of a rate, and there
/// is no data.
///
/// Bounded: data by what the host may have outstanding, the other two by the number of frames.
#[derive(Debug)]
pub struct Uplink {
    mac: MacAddr,
    messages: VecDeque<(MacAddr, Control)>,
    /// Messages that go behind data: when so many data frames have been handed to the port.
    behind: VecDeque<(u64, MacAddr, Control)>,
    bypass: VecDeque<Frame>,
    data: VecDeque<Frame>,
    burst: Burst,
    /// When the next data frame may start.
    free_at: Instant,
    slot_ns: u32,
    slot_bytes: u32,
    /// Data frames that were released: handed to the port by now, or to be.
    data_released: u64,
    /// Messages that were handed to the port.
    pub messages_sent: u64,
    /// Messages that found no room.
    pub messages_dropped: u64,
    /// Unscheduled frames that were handed to the port.
    pub bypass_sent: u64,
    /// Unscheduled frames that found no room.
    pub bypass_dropped: u64,
    /// Data frames that were handed to the port.
    pub data_sent: u64,
}

impl Uplink {
    /// Of a host with this MAC, whose slots hold `slot_bytes` bytes of wire
    /// ([`HostConfig::slot_bytes`](crate::scheme::pl2::host::HostConfig::slot_bytes)).
    pub fn new(mac: MacAddr, slot_bytes: u32) -> Self {
        Uplink {
            mac,
            messages: VecDeque::with_capacity(MAX_MESSAGES),
            behind: VecDeque::with_capacity(MAX_MESSAGES),
            bypass: VecDeque::with_capacity(MAX_BYPASS),
            data: VecDeque::new(),
            burst: Burst::new(),
            free_at: Instant::ZERO,
            slot_ns: 0,
            slot_bytes,
            data_released: 0,
            messages_sent: 0,
            messages_dropped: 0,
            bypass_sent: 0,
            bypass_dropped: 0,
            data_sent: 0,
        }
    }

    /// The switch said how long a slot is, in nanoseconds.
    #[inline]
    pub fn set_slot(&mut self, slot_ns: u32) {
        self.slot_ns = slot_ns;
    }

    /// A message to `dst` is to be sent.
    #[inline]
    pub fn message(&mut self, dst: MacAddr, control: Control) {
        if self.messages.len() < MAX_MESSAGES {
            self.messages.push_back((dst, control));
        } else {
            self.messages_dropped += 1;
        }
    }

    /// A message to `dst` is to be sent behind the data that was released before.
    #[inline]
    pub fn behind(&mut self, dst: MacAddr, control: Control) {
        if self.behind.len() < MAX_MESSAGES {
            self.behind.push_back((self.data_released, dst, control));
        } else {
            self.messages_dropped += 1;
        }
    }

    /// A frame is to be sent unscheduled.
    #[inline]
    pub fn bypass(&mut self, pool: &mut Pool, frame: Frame) {
        if self.bypass.len() < MAX_BYPASS {
            self.bypass.push_back(frame);
        } else {
            self.bypass_dropped += 1;
            pool.free(frame);
        }
    }

    /// A frame that has its shim was released at `now`.
    #[inline]
    pub fn release(&mut self, now: Instant, frame: Frame) {
        if self.data.is_empty() {
            self.free_at = self.free_at.max(now);
        }
        self.data.push_back(frame);
        self.data_released += 1;
    }

    /// Data that was released and has not left, for the destinations that `which` picks, goes unscheduled frames' way,
    /// ahead of those that come from now on: frames of a connection must not pass each other.
    pub fn expedite(&mut self, which: impl Fn(MacAddr) -> bool) {
        for _ in 0..self.data.len() {
            let Some(frame) = self.data.pop_front() else { return };
            match which(ethernet::dst(&frame)) {
                true => self.bypass.push_back(frame),
                false => self.data.push_back(frame),
            }
        }
    }

    /// Hands to `port` what may leave at `now` and has room there.
    ///
    /// # Errors
    /// The port is gone.
    pub fn flush(&mut self, now: Instant, pool: &mut Pool, port: &mut impl Port) -> io::Result<()> {
        let mut handed = false;
        loop {
            let room = port.tx_room(pool).min(BURST);
            while self.burst.len() < room
                && let Some(frame) = self.next(now, pool)
            {
                self.burst.push(frame);
            }
            if self.burst.is_empty() {
                break;
            }
            port.tx_burst(pool, &mut self.burst);
            handed = true;
        }
        // What the kernel did not take before is tried again as well.
        if handed || port.tx_pending() > 0 { port.kick() } else { Ok(()) }
    }

    fn next(&mut self, now: Instant, pool: &mut Pool) -> Option<Frame> {
        if let Some((dst, control)) = self.first_message()
            && let Some(mut frame) = pool.alloc()
        {
            frame.set_len(pl2::FRAME_LEN);
            control.emit(dst, self.mac, frame.first_chunk_mut().expect("a chunk holds a shortest frame"));
            if self.messages.pop_front().is_none() {
                self.behind.pop_front();
            }
            self.messages_sent += 1;
            return Some(frame);
        }
        if let Some(frame) = self.bypass.pop_front() {
            let is_data = Shim::read(&frame).is_ok();
            self.data_sent += u64::from(is_data);
            self.bypass_sent += u64::from(!is_data);
            return Some(frame);
        }
        if now < self.free_at {
            return None;
        }
        let frame = self.data.pop_front()?;
        let wire = on_wire(frame.len() - SHIM_LEN) as u64;
        self.free_at = self.free_at + (wire * u64::from(self.slot_ns)).div_ceil(self.slot_bytes.into());
        self.data_sent += 1;
        Some(frame)
    }

    /// The next message that may leave, of those that wait for no data first.
    #[inline]
    fn first_message(&self) -> Option<(MacAddr, Control)> {
        let behind = || self.behind.front().filter(|(released, ..)| *released <= self.data_sent);
        self.messages.front().copied().or_else(|| behind().map(|(_, dst, control)| (*dst, *control)))
    }

    /// When the next data frame may leave; `None` if there is none.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        (!self.data.is_empty()).then_some(self.free_at)
    }

    /// Whether anything waits that room in the TX ring would let go.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.first_message().is_some() || !self.bypass.is_empty()
    }

    /// Frames that wait: unscheduled ones and data.
    #[inline]
    pub fn queued(&self) -> usize {
        self.bypass.len() + self.data.len()
    }

    /// Data leaves without pacing from now on: the agent ends.
    pub fn hurry(&mut self) {
        self.slot_ns = 0;
        self.free_at = Instant::ZERO;
    }

    /// Gives back what waits; how many frames that was.
    pub fn clear(&mut self, pool: &mut Pool) -> usize {
        let queued = self.queued();
        for frame in self.bypass.drain(..).chain(self.data.drain(..)) {
            pool.free(frame);
        }
        self.messages.clear();
        self.behind.clear();
        queued
    }
}
