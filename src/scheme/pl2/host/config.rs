use super::super::config::MAX_BURST;
use super::super::table::MAX_OUTSTANDING;
use crate::wire::ethernet::{HEADER_LEN, on_wire};
use crate::wire::pl2::SHIM_CONN;

/// Most connections of a host that have something queued or reserved: with as many, no two have the same bits in
/// a shim.
pub const MAX_CONNECTIONS: u16 = SHIM_CONN + 1;

/// Most reservations that a connection may have at once, which is what the switch allows.
pub const MAX_DEPTH: u8 = MAX_OUTSTANDING as u8;

/// How a host reserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// Longest payload of a frame in bytes, by which the slot's length was chosen
    /// ([`slot_ns`](super::super::slot_ns)).
    pub mtu: u16,
    /// K, the most slots to ask for at once: 1 to [`MAX_BURST`].
    pub max_burst: u16,
    /// Always ask for K slots, the paper's words taken strictly; what is not needed is given back.
    pub fixed_k: bool,
    /// D, the most reservations of a connection at once: 1 to [`MAX_DEPTH`].
    pub depth: u8,
    /// Most slots of all connections that are asked for and have not left; from 1. It bounds what one
    /// host can have queued in the switch.
    pub max_outstanding: u32,
    /// Taken off each wait, in nanoseconds. The round trip here raises throughput where slots are counted, and
    /// queues by as much (design, 2.3).
    pub rtt_comp: u64,
    /// Frames of up to so many bytes are sent unscheduled if nothing of their connection waits. 0: none.
    pub bypass_bytes: u16,
    /// Slots after its time at which a burst is late; where slots go by the clock, at least 1.
    pub late_max: u32,
    /// Most connections with something queued or reserved: 1 to [`MAX_CONNECTIONS`].
    pub max_connections: u16,
    /// Most frames that wait in one connection; from 1.
    pub max_queue: u32,
    /// Most frames that wait in all, the first one of each connection not counted; from 1.
    pub max_parked: u32,
    /// Most announced bursts that the receiver's side watches; 0 if it does not see shims.
    pub max_expected: u32,
}

impl Default for HostConfig {
    /// K = 4, D = 1, 32 slots of a host at once: 200 kB of buffer hold those of four.
    fn default() -> Self {
        HostConfig {
            mtu: 1500,
            max_burst: 4,
            fixed_k: false,
            depth: 1,
            max_outstanding: 32,
            rtt_comp: 0,
            bypass_bytes: 0,
            late_max: 16,
            max_connections: MAX_CONNECTIONS,
            max_queue: 512,
            max_parked: 4096,
            max_expected: 4096,
        }
    }
}

/// What a [`HostConfig`] can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostConfigError {
    /// Nothing could be reserved, or more than the switch grants.
    #[error("bursts of {0} slots: choose 1 to {MAX_BURST}")]
    MaxBurst(u16),
    /// Nothing could be reserved, or the switch would refuse it.
    #[error("{0} reservations of a connection at once: choose 1 to {MAX_DEPTH}")]
    Depth(u8),
    /// Nothing could be reserved, or shims would not tell connections apart.
    #[error("{0} connections: choose 1 to {MAX_CONNECTIONS}")]
    MaxConnections(u16),
    /// Nothing could ever be sent.
    #[error("{0} is 0: choose at least 1")]
    Zero(&'static str),
}

impl HostConfig {
    /// [`HostConfig::max_outstanding`] for bursts of up to `max_burst` slots, if nobody says another: the default, or one
    /// burst if that is more.
    pub fn outstanding_for(max_burst: u16) -> u32 {
        HostConfig::default().max_outstanding.max(max_burst.into())
    }

    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), HostConfigError> {
        let HostConfig { max_burst, depth, max_connections, .. } = *self;
        let zero = [
            ("max_outstanding", self.max_outstanding),
            ("max_queue", self.max_queue),
            ("max_parked", self.max_parked),
            ("mtu", self.mtu.into()),
        ];
        match zero.into_iter().find(|(_, value)| *value == 0) {
            _ if !(1..=MAX_BURST).contains(&max_burst) => Err(HostConfigError::MaxBurst(max_burst)),
            _ if !(1..=MAX_DEPTH).contains(&depth) => Err(HostConfigError::Depth(depth)),
            _ if !(1..=MAX_CONNECTIONS).contains(&max_connections) => {
                Err(HostConfigError::MaxConnections(max_connections))
            }
            Some((name, _)) => Err(HostConfigError::Zero(name)),
            None => Ok(()),
        }
    }

    /// Bytes on the wire of a full frame: what a slot holds.
    #[inline]
    pub fn slot_bytes(&self) -> u32 {
        on_wire(usize::from(self.mtu) + HEADER_LEN) as u32
    }
}
