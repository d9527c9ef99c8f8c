//! CAFT's Ethernet tag, in which the switches on a flow's way collect the load of their links ("CAFT:
//! Congestion-Aware Fault-Tolerant Load Balancing for Three-Tier Clos Data Centers", IWCMC 2020,
//! arXiv 2010.00720); Expeditus (SoCC 2016) uses the same tag.
//!
//! ```text
//!  0  destination
//!  6  source
//! 12  TPID 0x88B5
//! 14  TF (1 bit): 0 outbound, 1 inbound; NoC (7 bits): number of metrics
//! 15  metrics of 4 bits, the first in the high nibble of the first byte
//!  -  what stood behind the addresses before: VLAN tags, EtherType, packet
//! ```
//! A metric is a failure flag (1 bit) and a load (3 bits). If NoC is odd, the low nibble of the last byte is
//! sent as 0 and not looked at. A tag of an odd length shifts the packet behind it to odd offsets; its
//! headers are found by [`parse_behind`](super::parse_behind()).
//!
//! The paper gives neither TPID nor place of the tag, and calls NoC once the number of metrics, once that of
//! their bits. Here it counts metrics: bits would end at 31 of them.

mod message;

pub use message::{MAX_MESSAGE, MAX_UNTAGGED_MESSAGE, emit_message, swap_addresses};

use std::fmt;
use std::ops::Deref;

/// The TPID if no other is configured: IEEE 802 local experimental EtherType 1, which no NIC or kernel takes
/// for a VLAN tag.
pub const TPID: u16 = 0x88B5;
/// Metrics that the 7 bits of NoC can count.
pub const MAX_METRICS: usize = 127;
/// Bytes of the longest tag.
pub const MAX_LEN: usize = len(MAX_METRICS);

/// Where the tag starts: behind the two addresses.
const START: usize = 12;
/// Bytes of TPID, TF and NoC.
const FIXED: usize = 3;
/// Bytes of the EtherType (or TPID) that follows the tag.
const ETHERTYPE: usize = 2;
/// TF beside NoC.
const INBOUND: u8 = 0x80;

/// Bytes that a tag with `metrics` metrics takes in a frame, TPID included: 3 to [`MAX_LEN`].
#[inline]
pub const fn len(metrics: usize) -> usize {
    FIXED + metrics.div_ceil(2)
}

/// The state of one direction of a link: its load, or that it has failed. A failed link is greater than any
/// load, so that the greatest of a path's metrics is that of the path, and the least of several paths' the
/// best of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric(u8);

impl Metric {
    /// The link can't be used.
    pub const FAILED: Metric = Metric(0xf);
    /// The greatest load.
    pub const MAX_LOAD: u8 = 7;

    /// A link with load `q`, in eighths of its rate rounded down; above [`MAX_LOAD`](Metric::MAX_LOAD) it is
    /// that.
    #[inline]
    pub const fn load(q: u8) -> Metric {
        Metric(if q < Metric::MAX_LOAD { q } else { Metric::MAX_LOAD })
    }

    /// The metric of the low 4 bits. The load beside a set failure flag means nothing: 8 to 15 all are
    /// [`FAILED`](Metric::FAILED).
    #[inline]
    pub const fn from_nibble(nibble: u8) -> Metric {
        let nibble = nibble & 0xf;
        if nibble > Metric::MAX_LOAD { Metric::FAILED } else { Metric(nibble) }
    }

    /// The 4 bits on the wire: 0 to 7, or 15.
    #[inline]
    pub const fn nibble(self) -> u8 {
        self.0
    }

    /// Whether the failure flag is set.
    #[inline]
    pub const fn is_failed(self) -> bool {
        self.0 > Metric::MAX_LOAD
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// There are [`MAX_METRICS`] already, or would be more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Up to [`MAX_METRICS`] metrics, in the order of the wire. Reading is by slice: `metrics.get(1)`,
/// `&metrics[2..]`.
#[derive(Clone, Copy)]
pub struct Metrics {
    list: [Metric; MAX_METRICS],
    len: u8,
}

impl Metrics {
    /// None.
    #[inline]
    pub const fn new() -> Metrics {
        Metrics { list: [Metric(0); MAX_METRICS], len: 0 }
    }

    /// All of `parts`, one behind the other.
    ///
    /// # Errors
    /// [`Full`] if they don't all fit.
    pub fn of(parts: &[&[Metric]]) -> Result<Metrics, Full> {
        let mut metrics = Metrics::new();
        metrics.extend(parts.iter().copied().flatten().copied())?;
        Ok(metrics)
    }

    /// All of them.
    #[inline]
    pub fn as_slice(&self) -> &[Metric] {
        &self.list[..usize::from(self.len)]
    }

    /// Appends one.
    ///
    /// # Errors
    /// [`Full`]; then nothing has changed.
    #[inline]
    pub fn push(&mut self, metric: Metric) -> Result<(), Full> {
        *self.list.get_mut(usize::from(self.len)).ok_or(Full)? = metric;
        self.len += 1;
        Ok(())
    }

    /// Appends all or none.
    ///
    /// # Errors
    /// [`Full`] if they don't all fit; then nothing has changed.
    #[inline]
    pub fn extend(&mut self, metrics: impl IntoIterator<Item = Metric>) -> Result<(), Full> {
        let before = self.len;
        let fit = metrics.into_iter().try_for_each(|metric| self.push(metric));
        if fit.is_err() {
            self.len = before;
        }
        fit
    }

    /// Leaves the first `len`; nothing changes if there are not more.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = usize::from(self.len).min(len) as u8;
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Deref for Metrics {
    type Target = [Metric];

    #[inline]
    fn deref(&self) -> &[Metric] {
        self.as_slice()
    }
}

impl PartialEq for Metrics {
    fn eq(&self, other: &Metrics) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Metrics {}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// The way that a tag is on: the TF bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trip {
    /// From the source of the flow (the paper's message-request), and the choice of a core that answers it.
    Outbound,
    /// From its destination (message-response).
    Inbound,
}

/// What a tag says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// TF.
    pub trip: Trip,
    /// The metrics that were collected so far; what each is of follows from how many there are.
    pub metrics: Metrics,
}

/// Why no tag was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagError {
    /// What stands behind the addresses is no tag.
    NoTag,
    /// The frame ends inside the tag or the EtherType that follows it.
    Truncated,
}

/// Whether `frame` has a tag, whole or not.
#[inline]
pub fn is_tagged(frame: &[u8], tpid: u16) -> bool {
    frame.get(START..START + 2).is_some_and(|bytes| *bytes == tpid.to_be_bytes())
}

impl Tag {
    /// Reads the tag that stands right behind the addresses, and gives it with its length in bytes.
    ///
    /// # Errors
    /// See [`TagError`].
    #[inline]
    pub fn read(frame: &[u8], tpid: u16) -> Result<(Tag, usize), TagError> {
        if !is_tagged(frame, tpid) {
            return Err(TagError::NoTag);
        }
        let tag = &frame[START..];
        let first = *tag.get(FIXED - 1).ok_or(TagError::Truncated)?;
        let count = usize::from(first & !INBOUND);
        let len = len(count);
        if tag.len() < len + ETHERTYPE {
            return Err(TagError::Truncated);
        }
        let mut metrics = Metrics::new();
        for (pair, byte) in metrics.list[..count].chunks_mut(2).zip(&tag[FIXED..len]) {
            for (metric, nibble) in pair.iter_mut().zip([byte >> 4, byte & 0xf]) {
                *metric = Metric::from_nibble(nibble);
            }
        }
        metrics.len = count as u8;
        let trip = if first & INBOUND == 0 { Trip::Outbound } else { Trip::Inbound };
        Ok((Tag { trip, metrics }, len))
    }

    /// Writes the tag, all of `out`: what stands from byte 12 of the frame.
    ///
    /// # Panics
    /// If `out` is not of [`len`] bytes.
    #[inline]
    pub fn emit(&self, tpid: u16, out: &mut [u8]) {
        assert_eq!(out.len(), len(self.metrics.len()), "a tag and the bytes for it");
        let (fixed, bytes) = out.split_at_mut(FIXED);
        let [high, low] = tpid.to_be_bytes();
        let trip = if self.trip == Trip::Inbound { INBOUND } else { 0 };
        fixed.copy_from_slice(&[high, low, trip | self.metrics.len]);
        for (byte, pair) in bytes.iter_mut().zip(self.metrics.chunks(2)) {
            *byte = pair[0].nibble() << 4 | pair.get(1).map_or(0, |metric| metric.nibble());
        }
    }
}
