use std::borrow::Cow;
use std::io;

use crate::config::PortConfig;
use crate::frame::Pool;
use crate::port::fault::{FaultCounts, FaultPort};
use crate::port::xdp::{Device, XdpPort};
use crate::port::{DeviceStats, Port};
use crate::time::{Instant, MICROS, MILLIS};

/// How soon to look again at a ring that was full, or has frames the kernel did not take.
pub(crate) const RETRY: u64 = 100 * MICROS;
/// Longest time between two looks at such a ring.
const MAX_RETRY: u64 = 10 * MILLIS;

/// A port of a running switch: what it is to be, and the interface that it has at the moment, if any.
pub(super) struct PortSlot {
    pub config: PortConfig,
    /// The interface, as it was last seen.
    pub device: Device,
    /// Workers of the switch, each of which serves one RX queue.
    workers: u32,
    pub socket: Option<FaultPort<XdpPort>>,
    /// Why there is no socket.
    pub absent: String,
    /// What was counted at sockets that are closed.
    earlier: DeviceStats,
    earlier_faults: FaultCounts,
    /// When to kick again for frames that the kernel left in the ring, and how long after that.
    pub next_kick: Instant,
    retry: u64,
}

impl PortSlot {
    /// A port that has no socket yet, of a switch with so many workers.
    pub fn new(config: PortConfig, device: Device, workers: usize) -> PortSlot {
        PortSlot {
            config,
            device,
            workers: workers as u32,
            socket: None,
            absent: "not open yet".into(),
            earlier: DeviceStats::default(),
            earlier_faults: FaultCounts::default(),
            next_kick: Instant::ZERO,
            retry: RETRY,
        }
    }

    /// Why it carries no traffic, as far as interface and configuration go.
    pub fn out_of_service(&self) -> Option<Cow<'_, str>> {
        match () {
            () if !self.config.enabled => Some("taken out of service".into()),
            () if self.socket.is_none() => Some(self.absent.as_str().into()),
            () if !self.device.up => Some("interface is down".into()),
            // Frames of a queue without a worker are dropped, and one without a queue gets none.
            () if self.device.rx_queues != self.workers => {
                Some(format!("has {} RX queues, the switch {} workers", self.device.rx_queues, self.workers).into())
            }
            () if !self.device.carrier => Some("no carrier".into()),
            () => None,
        }
    }

    /// MTU of the interface in bytes of L3.
    pub fn mtu(&self) -> u16 {
        self.device.mtu.min(u32::from(u16::MAX)) as u16
    }

    /// Kicks if there is something in the ring: at once for `fresh` frames, else at growing intervals,
    /// for a link may be down for long.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn kick(&mut self, now: Instant, fresh: bool) -> io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        if !fresh && (now < self.next_kick || socket.tx_pending() == 0) {
            return Ok(());
        }
        socket.kick()?;
        self.retry = if fresh || socket.tx_pending() == 0 { RETRY } else { (2 * self.retry).min(MAX_RETRY) };
        self.next_kick = now + self.retry;
        Ok(())
    }

    /// Takes the socket out, with all chunks that are not with the kernel given back, to be closed.
    pub fn detach(&mut self, pool: &mut Pool, why: &str) -> Option<XdpPort> {
        let mut faulty = self.socket.take()?;
        faulty.flush(pool);
        self.earlier_faults.add(&faulty.faults());
        let mut socket = faulty.close(pool);
        self.earlier.add(&socket.stop(pool));
        self.absent = why.into();
        Some(socket)
    }

    /// Counters of all its sockets.
    pub fn stats(&self) -> DeviceStats {
        let mut stats = self.socket.as_ref().map(Port::stats).unwrap_or_default();
        stats.add(&self.earlier);
        stats
    }

    /// What became of frames by the faults that were asked for; none if none ever were.
    pub fn faults(&self) -> Option<FaultCounts> {
        let mut counts = self.socket.as_ref().map(FaultPort::faults).unwrap_or_default();
        counts.add(&self.earlier_faults);
        let untouched = counts.received == counts.passed && counts.duplicated + counts.corrupted == 0;
        (!untouched || !self.config.fault.is_none()).then_some(counts)
    }

    /// Chunks and buffers with the socket.
    pub fn held(&self) -> usize {
        self.socket.as_ref().map_or(0, Port::held)
    }
}
