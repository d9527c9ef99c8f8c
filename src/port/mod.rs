//! Ports: where frames come from and go to.
//!
//! A port is driven by its worker: receive a burst, ask for room, send a burst, kick. It owns the
//! chunks it lent to the kernel and says how many ([`Port::held`]), so that a pool's chunks can be
//! accounted for at any time.

pub mod fault;
pub mod mem;
pub mod pcap;
pub mod xdp;

use std::io;

use serde::{Deserialize, Serialize};

use crate::frame::{Burst, Pool};

/// What the kernel counted at an AF_XDP socket (`XDP_STATISTICS`), and what the port itself saw.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStats {
    /// Frames lost for other reasons than a full RX ring: no chunk in the fill ring (those are counted
    /// in `rx_fill_ring_empty` too), or too long for a chunk.
    pub rx_dropped: u64,
    /// Frames lost because the RX ring was full: the switch was too slow.
    pub rx_ring_full: u64,
    /// Frames lost because the fill ring was empty: the pool was exhausted or the switch too slow.
    pub rx_fill_ring_empty: u64,
    /// Descriptors of the fill ring that the kernel refused (always 0, or weft has a bug).
    pub rx_invalid_descs: u64,
    /// Descriptors of the TX ring that the kernel refused (always 0, or weft has a bug).
    pub tx_invalid_descs: u64,
    /// TX kicks that found the ring empty; harmless.
    pub tx_ring_empty: u64,
    /// System calls made to send.
    pub tx_kicks: u64,
    /// Those that failed for a while: the link down, the receiver's ring full.
    pub tx_kick_errors: u64,
    /// Frames lost because they fit no large buffer, or all of those were in use.
    pub rx_no_buffer: u64,
    /// Frames that were counted as sent, but never left: they were in the TX ring of an interface that
    /// went away, or there were no chunks for a large one.
    pub tx_unsent: u64,
    /// Partial L4 checksums completed.
    pub checksums_completed: u64,
}

impl DeviceStats {
    /// Adds what an earlier attachment to the same interface counted.
    pub fn add(&mut self, earlier: &DeviceStats) {
        self.rx_dropped += earlier.rx_dropped;
        self.rx_ring_full += earlier.rx_ring_full;
        self.rx_fill_ring_empty += earlier.rx_fill_ring_empty;
        self.rx_invalid_descs += earlier.rx_invalid_descs;
        self.tx_invalid_descs += earlier.tx_invalid_descs;
        self.tx_ring_empty += earlier.tx_ring_empty;
        self.tx_kicks += earlier.tx_kicks;
        self.tx_kick_errors += earlier.tx_kick_errors;
        self.rx_no_buffer += earlier.rx_no_buffer;
        self.tx_unsent += earlier.tx_unsent;
        self.checksums_completed += earlier.checksums_completed;
    }
}

/// One attachment of a switch to a wire.
pub trait Port {
    /// Adds received frames to `burst`, no more than fit.
    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst);

    /// How many frames [`Port::tx_burst`] takes now. Takes back what has been sent.
    fn tx_room(&mut self, pool: &mut Pool) -> usize;

    /// Sends every frame of `burst`, of which there are at most [`Port::tx_room`].
    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst);

    /// Makes the wire take what was sent.
    ///
    /// # Errors
    /// The device is gone ([`io::ErrorKind`] of the system's error): nothing more will be sent.
    fn kick(&mut self) -> io::Result<()>;

    /// Frames handed over that the wire has not taken yet: it wants another kick.
    fn tx_pending(&mut self) -> usize;

    /// Chunks of the pool that are with this port.
    fn held(&self) -> usize;

    /// Counters of the device.
    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}
