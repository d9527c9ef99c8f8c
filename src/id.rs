use std::fmt;

use serde::{Deserialize, Serialize};

/// Index of a port within its switch, 0 to [`MAX_PORTS`] - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortId(pub u8);

/// Ports a switch can have: a [`PortMask`] holds one bit a port.
pub const MAX_PORTS: usize = 64;

impl PortId {
    /// The port as an array index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of ports of one switch, one bit a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PortMask(pub u64);

impl PortMask {
    /// No port.
    pub const EMPTY: PortMask = PortMask(0);

    /// The set holding just `port`.
    #[inline]
    pub fn only(port: PortId) -> PortMask {
        PortMask(1 << (port.0 & 63))
    }

    /// Whether no port is in the set.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many ports are in the set.
    #[inline]
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `port` is in the set.
    #[inline]
    pub fn contains(self, port: PortId) -> bool {
        self.0 >> (port.0 & 63) & 1 == 1
    }

    /// The set with `port` added.
    #[inline]
    #[must_use]
    pub fn with(self, port: PortId) -> PortMask {
        PortMask(self.0 | PortMask::only(port).0)
    }

    /// The set with `port` taken out.
    #[inline]
    #[must_use]
    pub fn without(self, port: PortId) -> PortMask {
        PortMask(self.0 & !PortMask::only(port).0)
    }

    /// The ports in either set.
    #[inline]
    #[must_use]
    pub fn or(self, other: PortMask) -> PortMask {
        PortMask(self.0 | other.0)
    }

    /// The ports in both sets.
    #[inline]
    #[must_use]
    pub fn and(self, other: PortMask) -> PortMask {
        PortMask(self.0 & other.0)
    }

    /// The `n`-th port of the set from the lowest, counted from 0; `None` if there are no more than `n`.
    #[inline]
    pub fn nth(self, n: usize) -> Option<PortId> {
        self.iter().nth(n)
    }

    /// The ports of the set, lowest first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = PortId> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let port = (bits != 0).then(|| PortId(bits.trailing_zeros() as u8))?;
            bits &= bits - 1;
            Some(port)
        })
    }
}

impl FromIterator<PortId> for PortMask {
    fn from_iter<T: IntoIterator<Item = PortId>>(ports: T) -> Self {
        ports.into_iter().fold(PortMask::EMPTY, PortMask::with)
    }
}

impl fmt::Debug for PortMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|p| p.0)).finish()
    }
}

/// Number of a switch, unique in its fabric; seeds its hash and its MAC addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SwitchId(pub u16);

/// The tier a switch stands in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Top of rack (leaf): has hosts.
    Tor,
    /// Aggregation: between tors and cores.
    Agg,
    /// Core (spine): the top tier, no uplinks.
    Core,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Tor => "tor",
            Role::Agg => "agg",
            Role::Core => "core",
        })
    }
}

/// What is at the other end of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// A host of this switch's segment.
    Host,
    /// A switch of the tier above.
    Up,
    /// A switch of the tier below.
    Down,
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortKind::Host => "host",
            PortKind::Up => "up",
            PortKind::Down => "down",
        })
    }
}

/// Where in the kernel a port takes frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver, before the kernel makes a socket buffer. The default.
    #[default]
    Native,
    /// After it has: slower, but works with every driver.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}
