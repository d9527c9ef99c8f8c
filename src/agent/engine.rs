use std::collections::VecDeque;
use std::io;

use serde::{Deserialize, Serialize};

use crate::frame::{BURST, Burst, Frame, Pool};
use crate::pisa::hash::FlowHash;
use crate::port::Port;
use crate::runtime::RETRY;
use crate::scheme::pl2::host::{Action, ConnKey, Enqueued, Host, HostConfig, HostConfigError};
use crate::time::{Instant, earliest};
use crate::wire::ethernet::{self, HEADER_LEN, TAG_LEN};
use crate::wire::pl2::{self, Control, Kind, SHIM_LEN, SHIM_START, Shim};
use crate::wire::{MacAddr, parse};

use super::silence::Silence;
use super::tap::Tap;
use super::unscheduled::Unscheduled;
use super::uplink::Uplink;

/// Frames that are read from the TAP in one pass, and written to it: each is a system call of about a microsecond,
/// and what is due meanwhile is late by as much.
const READS: usize = 16;
const WRITES: usize = 16;
/// Most frames that wait for the TAP.
const MAX_TO_TAP: usize = 1024;
/// Hashes need not differ between hosts, only between the connections of one.
const SEED: u64 = 0;

/// How an agent works.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// How it reserves. Its `mtu` is that of the TAP.
    pub host: HostConfig,
    /// The host's MAC, to which grants are sent.
    pub mac: MacAddr,
    /// Destinations that always go unscheduled.
    pub unscheduled: Vec<MacAddr>,
}

/// What an agent has done, beside what its host counts.
///
/// At any time `tap_read = refused + no_memory + unscheduled + taken + bypassed + dropped`, with the host's
/// `taken`, `bypassed` and `dropped`; and until the agent ends, with what waits in the queues of the uplink,
/// `unscheduled + bypassed + withdrawn = bypass_sent + bypass_dropped + waiting` and `sent = data_sent + waiting`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AgentCounters {
    /// Frames of applications that were read.
    pub tap_read: u64,
    /// Of those, frames that are none: shorter than an Ethernet header, longer than the uplink takes, or with the
    /// EtherType of PL2.
    pub refused: u64,
    /// Of those, frames for which there was no memory.
    pub no_memory: u64,
    /// Of those, frames that go unscheduled by what they are or where they go, or since nobody answers.
    pub unscheduled: u64,
    /// Of the unscheduled ones, those that nobody would have granted a slot: no switch answers.
    pub unanswered: u64,
    /// Frames that were given to applications.
    pub tap_written: u64,
    /// Frames that the TAP did not take: it is down, or memory is short.
    pub tap_dropped: u64,
    /// Frames that came by the uplink, messages included.
    pub uplink_received: u64,
    /// Messages among them.
    pub messages_received: u64,
    /// Frames among them that are malformed, or messages for another host.
    pub malformed: u64,
    /// Messages that were sent.
    pub messages_sent: u64,
    /// Messages that found no room.
    pub messages_dropped: u64,
    /// Unscheduled frames that were sent.
    pub bypass_sent: u64,
    /// Unscheduled frames that found no room.
    pub bypass_dropped: u64,
    /// Data frames that were sent.
    pub data_sent: u64,
    /// Times that a destination went unscheduled as the switch had no route to it.
    pub learned: u64,
    /// Frames that were parked or queued when the agent ended.
    pub left: u64,
}

/// Which side of an agent is gone.
#[derive(Debug)]
pub enum Gone {
    /// The uplink.
    Uplink(io::Error),
    /// The TAP.
    Tap(io::Error),
}

/// The agent of one host, over whatever brings frames. The rules are those of [the module](super).
///
/// Sans-IO but for its port and its TAP: the time is read once a pass, by the caller's clock. Nothing allocates once as
/// many frames and connections have been held before.
#[derive(Debug)]
pub struct Agent<P, T> {
    // Before the pool: a port gives up the kernel's hold on its memory first.
    port: P,
    tap: T,
    pool: Pool,
    host: Host<Frame>,
    uplink: Uplink,
    unscheduled: Unscheduled,
    silence: Silence,
    hash: FlowHash,
    mac: MacAddr,
    /// Longest frame that the uplink takes, its shim not counted.
    max_frame: usize,
    burst: Burst,
    /// The frames of a burst, while they are looked at.
    arrived: VecDeque<Frame>,
    to_tap: VecDeque<Frame>,
    counters: AgentCounters,
}

impl<P: Port, T: Tap> Agent<P, T> {
    /// An agent between `tap` and `port`, whose frames are of `pool`.
    ///
    /// # Errors
    /// See [`HostConfig::validate`].
    pub fn new(config: &AgentConfig, port: P, tap: T, pool: Pool) -> Result<Self, HostConfigError> {
        Ok(Agent {
            port,
            tap,
            pool,
            host: Host::new(&config.host)?,
            uplink: Uplink::new(config.mac, config.host.slot_bytes()),
            unscheduled: Unscheduled::new(&config.unscheduled),
            silence: Silence::default(),
            hash: FlowHash::new(SEED),
            mac: config.mac,
            max_frame: usize::from(config.host.mtu) + HEADER_LEN + TAG_LEN,
            burst: Burst::new(),
            arrived: VecDeque::with_capacity(BURST),
            to_tap: VecDeque::with_capacity(MAX_TO_TAP),
            counters: AgentCounters::default(),
        })
    }

    /// Does all that there is to do, as far as one pass goes; how many frames it took or gave. `clock` is read
    /// after the uplink, so that no grant is taken to be earlier than it is.
    ///
    /// # Errors
    /// One of its sides is gone.
    pub fn pass(&mut self, clock: impl FnOnce() -> Instant) -> Result<usize, Gone> {
        self.port.rx_burst(&mut self.pool, &mut self.burst);
        let now = clock();
        let mut moved = self.burst.len();
        self.receive(now);
        self.poll(now);
        let host = &self.host;
        if self.silence.begins(now, host.parked(), host.stats().counters.retries) {
            self.withdraw(now, |_| true);
            self.poll(now);
        }
        self.uplink.flush(now, &mut self.pool, &mut self.port).map_err(Gone::Uplink)?;
        let read = self.read(now).map_err(Gone::Tap)?;
        if read > 0 {
            self.poll(now);
            self.uplink.flush(now, &mut self.pool, &mut self.port).map_err(Gone::Uplink)?;
        }
        moved += read;
        moved += self.write().map_err(Gone::Tap)?;
        Ok(moved)
    }

    /// Takes in what came by the uplink: messages at once, data to wait for the TAP.
    fn receive(&mut self, now: Instant) {
        self.arrived.extend(self.burst.drain());
        while let Some(frame) = self.arrived.pop_front() {
            self.counters.uplink_received += 1;
            let Ok(headers) = parse(&frame) else {
                self.counters.malformed += 1;
                self.pool.free(frame);
                continue;
            };
            if !pl2::is_pl2(&headers) {
                self.unscheduled.heard(now, ethernet::src(&frame));
                self.keep_for_tap(frame);
                continue;
            }
            match Control::read(&frame, &headers) {
                Ok(control) if ethernet::dst(&frame) == self.mac => {
                    let from = ethernet::src(&frame);
                    self.pool.free(frame);
                    self.message(now, from, &control);
                }
                Ok(_) => {
                    self.counters.malformed += 1;
                    self.pool.free(frame);
                }
                Err(_) => self.shimmed(now, frame),
            }
        }
    }

    fn message(&mut self, now: Instant, from: MacAddr, control: &Control) {
        self.counters.messages_received += 1;
        if control.kind == Kind::Grt && control.slot_ns > 0 {
            self.uplink.set_slot(control.slot_ns);
            self.silence.answered();
            if control.k > 0 && !control.flags.nack {
                self.unscheduled.granted(from);
            }
        }
        // Whatever else is refused, the host asks for again.
        if let Some(refused) = self.host.control(now, from, control)
            && refused.no_route
        {
            self.counters.learned += 1;
            self.unscheduled.learn(now, refused.dst);
            self.withdraw(now, |dst| dst == refused.dst);
        }
    }

    /// What waits for the destinations that `which` picks goes unscheduled, in its order.
    fn withdraw(&mut self, now: Instant, which: impl Fn(MacAddr) -> bool) {
        let Agent { host, uplink, pool, .. } = self;
        uplink.expedite(&which);
        host.withdraw(now, |key| which(key.dst), |frame| uplink.bypass(pool, frame));
    }

    /// A frame whose shim the switch did not take off, as one that is flooded.
    fn shimmed(&mut self, now: Instant, mut frame: Frame) {
        match Shim::read(&frame) {
            Ok(shim) if frame.remove(SHIM_START, SHIM_LEN) => {
                self.host.arrived(ethernet::src(&frame), shim);
                self.unscheduled.heard(now, ethernet::src(&frame));
                self.keep_for_tap(frame);
            }
            _ => {
                self.counters.malformed += 1;
                self.pool.free(frame);
            }
        }
    }

    fn keep_for_tap(&mut self, frame: Frame) {
        if self.to_tap.len() < MAX_TO_TAP {
            self.to_tap.push_back(frame);
        } else {
            self.counters.tap_dropped += 1;
            self.pool.free(frame);
        }
    }

    /// Lets the host do what is due.
    fn poll(&mut self, now: Instant) {
        let Agent { host, uplink, .. } = self;
        host.poll(now, |action| match action {
            Action::Send { dst, control } => uplink.message(dst, control),
            Action::Release { mut frame, shim } => {
                let has_room = frame.insert(SHIM_START, SHIM_LEN);
                debug_assert!(has_room, "room for the shim was asked for with the frame");
                shim.emit((&mut frame[SHIM_START..SHIM_START + SHIM_LEN]).try_into().expect("so many bytes"));
                uplink.release(now, frame);
            }
            Action::SendBehind { dst, control } => uplink.behind(dst, control),
        });
    }

    /// Reads what applications send; how many frames.
    fn read(&mut self, now: Instant) -> io::Result<usize> {
        // One byte more than is taken, which tells what is too long.
        let longest = self.max_frame + 1;
        for count in 0..READS {
            let Some(mut frame) = self.pool.alloc_for(longest + SHIM_LEN) else {
                if self.tap.read(&mut [0; HEADER_LEN])?.is_none() {
                    return Ok(count);
                }
                self.counters.tap_read += 1;
                self.counters.no_memory += 1;
                continue;
            };
            frame.set_len(longest);
            match self.tap.read(&mut frame) {
                Ok(Some(len)) => frame.set_len(len),
                none => {
                    self.pool.free(frame);
                    return none.map(|_| count);
                }
            }
            self.counters.tap_read += 1;
            self.take(now, frame);
        }
        Ok(READS)
    }

    /// A frame of an application's.
    fn take(&mut self, now: Instant, frame: Frame) {
        let headers = match parse(&frame) {
            Ok(headers) if !pl2::is_pl2(&headers) && frame.len() <= self.max_frame => headers,
            _ => {
                self.counters.refused += 1;
                return self.pool.free(frame);
            }
        };
        if self.unscheduled.is(now, &frame, &headers) {
            self.counters.unscheduled += 1;
            return self.uplink.bypass(&mut self.pool, frame);
        }
        let is_probe = self.silence.probes(now);
        if self.silence.is_silent() && !is_probe {
            self.counters.unscheduled += 1;
            self.counters.unanswered += 1;
            return self.uplink.bypass(&mut self.pool, frame);
        }
        let key = ConnKey { dst: ethernet::dst(&frame), flow: self.hash.packet(&frame, &headers) };
        match self.host.enqueue(now, key, frame.len() as u32, frame) {
            Enqueued::Parked if is_probe => {
                // Asked for, and given back: others of its connection go without, and it must not fall behind them.
                self.poll(now);
                self.withdraw(now, |_| true);
            }
            Enqueued::Parked => {}
            Enqueued::Bypass(frame) => {
                // It has left by the host's account, but the port may have had no room.
                self.uplink.expedite(|dst| dst == key.dst);
                self.uplink.bypass(&mut self.pool, frame);
            }
            Enqueued::Dropped(frame) => self.pool.free(frame),
        }
    }

    /// Gives applications what came for them; how many frames.
    fn write(&mut self) -> io::Result<usize> {
        for count in 0..WRITES {
            let Some(frame) = self.to_tap.pop_front() else { return Ok(count) };
            let taken = self.tap.write(&frame);
            self.pool.free(frame);
            match taken? {
                true => self.counters.tap_written += 1,
                false => self.counters.tap_dropped += 1,
            }
        }
        Ok(WRITES)
    }

    /// When a pass is due next, if nothing comes before; `None` if none is.
    pub fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        if !self.to_tap.is_empty() {
            return Some(now);
        }
        let pending = self.uplink.is_waiting() || self.port.tx_pending() > 0;
        let uplink = match self.uplink.next_deadline() {
            // It may leave, but has no room.
            Some(at) if at <= now && self.port.tx_room(&mut self.pool) == 0 => Some(now + RETRY),
            other => other,
        };
        let next = earliest(self.host.next_deadline(), uplink);
        earliest(next, pending.then(|| now + RETRY))
    }

    /// Ends: nothing is read any more, what is parked is left, what is reserved is given back, and what was released
    /// leaves at once. [`Agent::flush`] until it has.
    pub fn stop(&mut self, now: Instant) {
        let Agent { host, pool, counters, .. } = self;
        host.withdraw(
            now,
            |_| true,
            |frame| {
                counters.left += 1;
                pool.free(frame);
            },
        );
        self.poll(now);
        self.uplink.hurry();
    }

    /// Hands what waits to the port, without reading anything; whether all of it has left.
    ///
    /// # Errors
    /// The port is gone.
    pub fn flush(&mut self, now: Instant) -> io::Result<bool> {
        self.uplink.flush(now, &mut self.pool, &mut self.port)?;
        Ok(!self.uplink.is_waiting() && self.uplink.queued() == 0 && self.port.tx_pending() == 0)
    }

    /// Gives up what it still has, and its parts. A frame that is with the port stays there.
    pub fn close(mut self) -> (P, T, Pool, AgentCounters) {
        let Agent { host, pool, counters, .. } = &mut self;
        host.withdraw(
            Instant::ZERO,
            |_| true,
            |frame| {
                counters.left += 1;
                pool.free(frame);
            },
        );
        for frame in self.to_tap.drain(..) {
            self.pool.free(frame);
        }
        self.counters.left += self.uplink.clear(&mut self.pool) as u64;
        let counters = self.counters();
        (self.port, self.tap, self.pool, counters)
    }

    /// What it has done.
    pub fn counters(&self) -> AgentCounters {
        let Uplink { messages_sent, messages_dropped, bypass_sent, bypass_dropped, data_sent, .. } = self.uplink;
        AgentCounters { messages_sent, messages_dropped, bypass_sent, bypass_dropped, data_sent, ..self.counters }
    }

    /// Frames that were released or go unscheduled, and have not left.
    pub fn queued(&self) -> usize {
        self.uplink.queued()
    }

    /// Whether no switch answers, so that all goes unscheduled.
    pub fn is_unanswered(&self) -> bool {
        self.silence.is_silent()
    }

    /// Destinations that go unscheduled at `now` as the switch has no route to them.
    pub fn learned(&self, now: Instant) -> usize {
        self.unscheduled.learned(now)
    }

    /// Its host.
    pub fn host(&self) -> &Host<Frame> {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Its port, its TAP and its memory, for those that are both ends of a test.
    pub fn parts(&mut self) -> (&mut P, &mut T, &mut Pool) {
        (&mut self.port, &mut self.tap, &mut self.pool)
    }
}
