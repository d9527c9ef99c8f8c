//! What is simulated.

use weft::rng::Rng;
use weft::scheme::pl2::SlotMode;
use weft::scheme::pl2::host::HostConfig;
use weft::wire::MacAddr;
use weft::wire::ethernet::on_wire;

use super::lengths::Lengths;

/// Slots of a microsecond, each for a full frame.
pub const SLOT: u64 = 1_000;
/// Bytes of a full frame.
pub const FULL: u32 = 1514;

/// A frame: where it comes from and goes to, its flow, and its number in that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Frame {
    pub src: u8,
    pub dst: u8,
    pub flow: u16,
    pub number: u32,
    pub len: u32,
}

/// What hosts have to send.
#[derive(Clone, Copy, Debug)]
pub enum Feed {
    /// Each flow has always frames for its receiver: host and flow to receiver.
    Saturated(fn(u8, u16) -> u8),
    /// Each flow has a burst of K frames for a random other host, and the next one when that has left.
    Random,
    /// Each flow has one burst of K frames, for its receiver.
    Once(fn(u8, u16) -> u8),
    /// Messages with these lengths, as many as fill `load` of a link at each sender, until `until`. A flow whose
    /// receiver would be its own host has none.
    Messages { load: f64, until: u64, to: fn(u8, u16, &mut Rng) -> u8, lengths: Lengths },
}

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub hosts: u8,
    /// P: flows of a host, each with D reservations at once.
    pub flows: u16,
    pub config: HostConfig,
    pub mode: SlotMode,
    /// R, in slots: from request to grant without jitter.
    pub rtt: u64,
    /// Mean of the exponential time, in slots, that a burst is late.
    pub jitter: u64,
    /// Part of all frames, messages too, that links lose.
    pub loss: f64,
    /// Frames are sent as they come, without slots.
    pub unscheduled: bool,
    /// Receivers are told of grants.
    pub notify: bool,
    /// Whether the switch takes back what is not used.
    pub sweep: bool,
    /// Full frames that an output has room for.
    pub buffer: u64,
    pub feed: Feed,
    pub seed: u64,
}

impl Setup {
    /// 6 hosts, K = 4, D = 1, P flows, no jitter, no loss, more buffer than anything needs.
    pub fn new(mode: SlotMode, flows: u16, rtt: u64, feed: Feed) -> Setup {
        let config = HostConfig { max_outstanding: 1 << 16, late_max: u32::MAX, ..HostConfig::default() };
        Setup {
            hosts: 6,
            flows,
            config,
            mode,
            rtt,
            jitter: 0,
            loss: 0.0,
            unscheduled: false,
            notify: false,
            sweep: true,
            buffer: 1 << 20,
            feed,
            seed: 1,
        }
    }
}

/// Nanoseconds that a frame takes on a link.
pub fn wire_time(len: u32) -> u64 {
    (on_wire(len as usize) as u64 * SLOT).div_ceil(on_wire(FULL as usize) as u64)
}

pub fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}
