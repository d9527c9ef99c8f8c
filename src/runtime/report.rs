//! What a running switch tells of itself: the answers of the control socket. Names and units are
//! part of the external contract; fields are only added.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::SwitchConfig;
use crate::counters::{Drops, PortCounters};
use crate::fabric::HelloMode;
use crate::id::{PortId, PortKind, Role, SwitchId, XdpMode};
use crate::port::DeviceStats;
use crate::port::fault::FaultCounts;
use crate::units::BitRate;
use crate::wire::MacAddr;

/// Drops by the reason's name.
pub type DropMap = BTreeMap<String, u64>;

pub(super) fn drop_map(drops: &Drops) -> DropMap {
    drops.nonzero().map(|(reason, n)| (reason.name().to_string(), n)).collect()
}

/// The answer to a request: which switch it is of, and what was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The switch's name.
    pub switch: String,
    /// Its tier.
    pub role: Role,
    /// Its path-selection scheme.
    pub selector: String,
    /// What was asked for.
    #[serde(flatten)]
    pub body: Body,
}

impl Report {
    pub(super) fn of(config: &SwitchConfig, body: Body) -> Report {
        let selector = config.selector.to_string();
        Report { switch: config.name.clone(), role: config.role, selector, body }
    }
}

/// What was asked for: the first field of each is the word that was asked with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Body {
    /// `show ports`
    Ports {
        /// By port number.
        ports: Vec<PortReport>,
        /// Sums over the ports that were there and are removed.
        removed: Totals,
        /// Sums over all ports, those removed included.
        total: Totals,
    },
    /// `show queues`
    Queues {
        /// By port number, highest priority first.
        queues: Vec<QueueReport>,
    },
    /// `show drops`
    Drops {
        /// Of the whole switch.
        drops: DropsReport,
    },
    /// `show workers`
    Workers {
        /// The threads that run the switch.
        workers: Vec<WorkerReport>,
    },
    /// `show umem`
    Umem {
        /// Of the switch.
        umem: UmemReport,
    },
    /// `show paths`
    Paths {
        /// By prefix.
        paths: Vec<PathReport>,
        /// What the scheme has to tell of ways, as in [`Body::Scheme`]; empty if nothing.
        #[serde(flatten)]
        scheme: Map<String, Value>,
    },
    /// `show neighbours`
    Neighbours {
        /// ARP and ND, by address.
        neighbours: Vec<NeighbourReport>,
        /// The bridge's, by MAC address.
        stations: Vec<StationReport>,
    },
    /// What a change did.
    Changed {
        /// In words, one entry each; none if all was so already.
        changed: Vec<String>,
    },
    /// `show meters`, `groups`, `flows`, `dre`, `pat`, `failures`, `slots`: arrays by name, the first by that word, of objects with the
    /// same keys in the same order. Empty if the scheme has no such thing.
    Scheme(Map<String, Value>),
}

/// One port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// The interface's name.
    pub port: String,
    /// The port's number.
    pub id: PortId,
    /// What is at the other end.
    pub kind: PortKind,
    /// `up` or `down`.
    pub state: String,
    /// Why it is down.
    pub reason: Option<String>,
    /// What hellos tell of the link; none for a host's port.
    pub link: Option<LinkReport>,
    /// The XDP mode in use.
    pub mode: XdpMode,
    /// The rate it is paced to in bit/s; 0 = unlimited.
    pub rate: BitRate,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// The interface's MAC address.
    pub mac: MacAddr,
    /// Frames and bytes received.
    pub rx: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Frames made by the switch on behalf of this ingress port.
    pub generated: u64,
    /// Frames of this ingress port handed to an egress queue.
    pub forwarded: u64,
    /// Frames of this ingress port that ended in the switch on purpose.
    pub consumed: u64,
    /// Frames of this ingress port waiting for a neighbour.
    pub held: u64,
    /// Frames that reached this port's egress queues.
    pub enqueued: u64,
    /// Frames in this port's egress queues now.
    pub queued: u64,
    /// Frames dropped, as ingress or egress port.
    pub drops: u64,
    /// Those dropped as ingress port, by reason.
    pub ingress_drops: DropMap,
    /// Those dropped as egress port, by reason.
    pub egress_drops: DropMap,
    /// What the kernel counted.
    pub device: DeviceStats,
    /// What became of received frames by faults that were asked for.
    pub faults: Option<FaultCounts>,
}

impl PortReport {
    /// Frames that the kernel lost before the switch could receive them: it was too slow, or had no
    /// memory for them. They are in no other counter.
    pub fn missed(&self) -> u64 {
        self.device.rx_dropped + self.device.rx_ring_full + self.device.rx_no_buffer
    }
}

/// The link of a port to another switch, as hellos tell it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// What hellos mean to the port.
    pub hello: HelloMode,
    /// State of the handshake: `down`, `init` or `up` (RFC 5880, section 6.2).
    pub state: String,
    /// Why it is in that state.
    pub why: String,
    /// The switch that is heard.
    pub peer_switch: Option<SwitchId>,
    /// Its port.
    pub peer_port: Option<PortId>,
    /// Milliseconds since the state last changed.
    pub age_ms: u64,
}

/// Sums over all ports of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Frames received.
    pub rx: u64,
    /// Frames made by the switch.
    pub generated: u64,
    /// Frames sent.
    pub tx: u64,
    /// Frames that ended in the switch on purpose.
    pub consumed: u64,
    /// Frames dropped.
    pub drops: u64,
    /// Frames in queues or waiting for a neighbour.
    pub queued: u64,
    /// Frames that one worker of the switch handed to another.
    pub handed: u64,
    /// Those that the other has taken; the rest is on its way.
    pub accepted: u64,
    /// Whether rx + generated + accepted = tx + consumed + drops + queued + handed.
    pub balanced: bool,
}

impl Totals {
    pub(super) fn add(&mut self, c: &PortCounters, queued: u64) {
        self.rx += c.rx;
        self.generated += c.generated;
        self.tx += c.tx;
        self.consumed += c.consumed;
        self.drops += c.drops().total();
        self.queued += queued + c.held;
        self.balance();
    }

    pub(super) fn hand_over(&mut self, handed: u64, accepted: u64) {
        self.handed += handed;
        self.accepted += accepted;
        self.balance();
    }

    pub(super) fn merge(&mut self, other: &Totals) {
        self.rx += other.rx;
        self.generated += other.generated;
        self.tx += other.tx;
        self.consumed += other.consumed;
        self.drops += other.drops;
        self.queued += other.queued;
        self.hand_over(other.handed, other.accepted);
    }

    fn balance(&mut self) {
        let came = self.rx + self.generated + self.accepted;
        self.balanced = came == self.tx + self.consumed + self.drops + self.queued + self.handed;
    }
}

/// One queue of one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueReport {
    /// The interface's name.
    pub port: String,
    /// `control` or `data`.
    pub queue: String,
    /// Packets waiting now.
    pub packets: u64,
    /// Bytes waiting now.
    pub bytes: u64,
    /// Most packets that ever waited.
    pub peak_packets: u64,
    /// Most bytes that ever waited.
    pub peak_bytes: u64,
    /// Frames that joined.
    pub enqueued: u64,
    /// Frames refused (tail drop).
    pub dropped: u64,
    /// Packets marked with CE.
    pub ecn_marked: u64,
}

/// Drops of the whole switch and by port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DropsReport {
    /// Frames dropped for any reason.
    pub total: u64,
    /// By reason.
    pub by_reason: DropMap,
    /// By port and reason, as ingress or egress port.
    pub by_port: BTreeMap<String, DropMap>,
}

/// The thread that runs a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its number.
    pub id: usize,
    /// The core it is bound to, if any.
    pub core: Option<usize>,
    /// What it does when no frame waits.
    pub poll: String,
    /// Switches it runs.
    pub switches: usize,
    /// Passes over its ports.
    pub loops: u64,
    /// Passes that found nothing to do.
    pub idle_loops: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Frames taken in.
    pub frames: u64,
    /// System calls made to send.
    pub kicks: u64,
}

/// Frame memory of a switch: `chunks + large = free + large_free + held + in_queues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UmemReport {
    /// Chunks in all.
    pub chunks: usize,
    /// Bytes a chunk can hold.
    pub capacity: usize,
    /// Chunks free.
    pub free: usize,
    /// Large buffers in all, for frames that take several chunks.
    pub large: usize,
    /// Large buffers free.
    pub large_free: usize,
    /// Chunks with the kernel, and large buffers that are half received.
    pub held: usize,
    /// Chunks and large buffers in queues and waiting rooms.
    pub in_queues: usize,
    /// Whether every chunk is accounted for.
    pub balanced: bool,
}

/// A route and its ports by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// The prefix.
    pub prefix: String,
    /// Whether it is the switch's own segment.
    pub connected: bool,
    /// The ports by priority, best first.
    pub priorities: Vec<Vec<String>>,
    /// Those chosen from now, with the frames each has sent (for whatever route).
    pub serving: BTreeMap<String, u64>,
}

/// A neighbour of the segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourReport {
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address; none while it is being resolved.
    pub mac: Option<MacAddr>,
    /// The port it is behind.
    pub port: Option<String>,
    /// Milliseconds since it last confirmed that.
    pub age_ms: Option<u64>,
    /// Requests sent without an answer.
    pub probes: u8,
    /// Packets that wait for it.
    pub waiting: usize,
}

/// A station that the bridge has learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StationReport {
    /// Its MAC address.
    pub mac: MacAddr,
    /// The port it was seen on.
    pub port: String,
    /// Milliseconds since then, to within a second.
    pub age_ms: u64,
}
