//! TOML to validated configuration of one switch.
//!
//! A file passes three gates: TOML and its shape (`file`, unknown keys refused), the text of each
//! value (units, addresses, MACs), and the rules between values (`check`). The last works on a
//! [`SwitchConfig`] wherever it came from, so a fabric built by `topo`
//! obeys the same rules as a file written by hand. Every problem says where it stands, what is wrong
//! and what to write.

/// The rules between values.
mod check;
/// What leads from one configuration of a running switch to another.
pub mod diff;
mod edit;
/// What is wrong, where it stands and how to mend it.
mod error;
/// The shape of the file and both ways between it and [`SwitchConfig`].
mod file;
/// The pod and the uplinks' numbers.
mod place;
/// Options of the path-selection schemes.
pub mod scheme;
/// The tables that a fabric sets for all of its switches.
mod tables;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

pub use error::{ConfigError, Problem};
// What `topo` reads a fabric's file with, and `cli` its options.
pub(crate) use check::{hello_interval, no_rate};
pub(crate) use error::{Document, Found, Table, link_name};
pub(crate) use file::{Int, Reader, Text, out_of_range};
pub use place::{Pod, UPLINK, UPLINKS};
pub(crate) use scheme::FilePl2;
pub use scheme::{
    AckRule, CaftOptions, DscpSet, FlowletOptions, Fraction, HulaOptions, P4teOptions, Pl2Options, RateAdaptation,
};
pub(crate) use tables::{FileCaft, FileFlowlet, FileHello, FileHula, FileP4te, FileQueues, FileTables};
pub use tables::{Setting, SettingError, SettingsError, Tables};

pub use crate::fabric::HelloMode;
use crate::fault::Faults;
pub use crate::id::XdpMode;
use crate::id::{PortId, PortKind, PortMask, Role, SwitchId};
use crate::units::{BitRate, Bytes, Duration};
use crate::wire::MacAddr;

/// Destination MAC on a fabric link whose port has no `peer_mac`: locally administered, "weft" in
/// its middle octets. Every switch takes frames sent to it on its up and down ports.
pub const FABRIC_MAC: MacAddr = MacAddr([0x02, 0x77, 0x65, 0x66, 0x74, 0x00]);

/// Longest interface name in bytes: IFNAMSIZ (16) less the closing zero.
pub const MAX_INTERFACE_NAME: usize = 15;
/// Longest switch name in bytes; it must fit into the default socket path.
pub const MAX_SWITCH_NAME: usize = 64;
/// Longest socket path in bytes: `sun_path` (108, unix(7)) less the closing zero.
pub const MAX_SOCKET_PATH: usize = 107;
/// Possible MTUs in bytes of L3. Below: the least datagram an IPv4 host must take (RFC 791 section
/// 3.1). Above: the jumbo frames that switches of the field take.
pub const MTU: RangeInclusive<u16> = 576..=9216;
/// Smallest MTU of a link that carries IPv6 (RFC 8200 section 5).
pub const MIN_IPV6_MTU: u16 = 1280;
/// Possible port rates other than 0. Below: a number that lost its unit. Above: no such link.
pub const RATE: RangeInclusive<u64> = 1_000..=10_000_000_000_000;
/// Possible numbers of frames of a switch, all ports together, at 4 KiB each.
pub const FRAMES: RangeInclusive<u32> = 1024..=1 << 20;
/// Possible numbers of threads of a switch.
pub const WORKERS: RangeInclusive<usize> = 1..=16;
/// Possible packet limits of a queue.
pub const QUEUE_PACKETS: RangeInclusive<u32> = 1..=1 << 20;
/// Possible byte limits of a queue.
pub const QUEUE_BYTES: RangeInclusive<u64> = 1..=1 << 32;
/// Possible intervals of hellos other than 0, in nanoseconds. Below: a worker that sleeps for a moment
/// would be taken for dead. Above: nobody wants to wait that long.
pub const HELLO_INTERVAL: RangeInclusive<u64> = 1_000_000..=10_000_000_000;
/// Possible multipliers. At 1 any delay of a hello would take the link down.
pub const HELLO_MULTIPLIER: RangeInclusive<u8> = 2..=50;

/// How a switch chooses among the ports of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Selector {
    /// By a seeded hash of the flow (RFC 2992's hash-threshold idea, per switch seed).
    #[default]
    Ecmp,
    /// By the same hash anew for each flowlet: flowlet-ECMP, P4TE's baseline.
    Flowlet,
    /// At random for each flowlet (LetFlow, Vanini et al., NSDI 2017).
    LetFlow,
    /// By the least utilised way that probes have found, for each flowlet (HULA, Katta et al., SOSR 2016).
    Hula,
    /// By groups of like queues and like links, for each flowlet (P4TE, Computer Networks 215, 2022,
    /// arXiv 2207.09378).
    P4te,
    /// By the least loaded of two candidate ways, found for each flow by its first packet (CAFT, IWCMC 2020, arXiv
    /// 2010.00720).
    Caft,
    /// By the least loaded way, chosen tier by tier for each flow (Expeditus, Wang et al., SoCC 2016).
    Expeditus,
}

/// Text that names no scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a selector: write \"ecmp\", \"flowlet\", \"letflow\", \"hula\", \"p4te\", \"caft\" or \"expeditus\""
)]
pub struct SelectorError(String);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        match text {
            "ecmp" => Ok(Selector::Ecmp),
            "flowlet" => Ok(Selector::Flowlet),
            "letflow" => Ok(Selector::LetFlow),
            "hula" => Ok(Selector::Hula),
            "p4te" => Ok(Selector::P4te),
            "caft" => Ok(Selector::Caft),
            "expeditus" => Ok(Selector::Expeditus),
            _ => Err(SelectorError(text.into())),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Selector::Ecmp => "ecmp",
            Selector::Flowlet => "flowlet",
            Selector::LetFlow => "letflow",
            Selector::Hula => "hula",
            Selector::P4te => "p4te",
            Selector::Caft => "caft",
            Selector::Expeditus => "expeditus",
        })
    }
}

/// What a worker does when no frame waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PollMode {
    /// Spin: least delay, one whole core.
    Busy,
    /// Spin briefly, then sleep until a frame or a deadline.
    #[default]
    Adaptive,
}

impl fmt::Display for PollMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PollMode::Busy => "busy",
            PollMode::Adaptive => "adaptive",
        })
    }
}

/// The L2 segment of a ToR's host ports: the switch's own address (the hosts' gateway) with the
/// prefix, for each family it serves. At least one is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Gateway and prefix, like 10.0.0.1/24.
    pub ipv4: Option<Ipv4Net>,
    /// Gateway and prefix, like fd00::1/64.
    pub ipv6: Option<Ipv6Net>,
}

/// How the switch runs on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuntimeOptions {
    /// What to do when idle.
    pub poll: PollMode,
    /// Threads that run the switch, each with a queue of every port ([`WORKERS`]).
    pub workers: usize,
    /// The core to pin the first worker to, the next one to the next core; `None` leaves it to the
    /// scheduler.
    pub core: Option<usize>,
    /// Frames of the pool, all ports together ([`FRAMES`]).
    pub frames: u32,
    /// Path of the control socket.
    pub control: PathBuf,
}

impl RuntimeOptions {
    /// The defaults of a switch of that name.
    pub fn of(name: &str) -> RuntimeOptions {
        RuntimeOptions {
            poll: PollMode::default(),
            workers: 1,
            core: None,
            frames: 16_384,
            control: PathBuf::from(format!("/run/weft/{name}.sock")),
        }
    }
}

/// Limits of each port's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueOptions {
    /// Packets the data queue holds.
    pub packets: u32,
    /// Bytes the data queue holds.
    pub bytes: Bytes,
    /// Packets the control queue holds.
    pub control_packets: u32,
    /// Depth in bytes from which ECN-capable packets are marked; 0 = never.
    pub ecn_mark: Bytes,
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions { packets: 1024, bytes: Bytes(1_000_000), control_packets: 256, ecn_mark: Bytes(0) }
    }
}

/// Hellos to other switches ([`crate::fabric::link`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloOptions {
    /// Time between hellos ([`HELLO_INTERVAL`]); 0 = none at all.
    pub interval: Duration,
    /// Intervals of silence after which other switches give this one up ([`HELLO_MULTIPLIER`]).
    pub multiplier: u8,
}

impl Default for HelloOptions {
    fn default() -> Self {
        HelloOptions { interval: Duration(10_000_000), multiplier: 3 }
    }
}

/// One port; its [`PortId`] is its place in [`SwitchConfig::ports`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Network interface, at most [`MAX_INTERFACE_NAME`] bytes, unique in the switch.
    pub interface: String,
    /// What is at the other end.
    pub kind: PortKind,
    /// Rate the port is paced to; 0 = unlimited.
    pub rate: BitRate,
    /// MTU in bytes of L3 ([`MTU`]), in force as [`PortConfig::mtu_on`] says; `None` keeps the
    /// interface's own.
    pub mtu: Option<u16>,
    /// Where the XDP program hooks in.
    pub mode: XdpMode,
    /// Whether it is in service; a port that is not keeps its interface, but takes and sends nothing.
    pub enabled: bool,
    /// Whether frames to the interface's own addresses go to the kernel's stack instead of the switch.
    pub pass_to_kernel: bool,
    /// Destination MAC on this fabric link; `None` means [`FABRIC_MAC`]. Never on a host port.
    pub peer_mac: Option<MacAddr>,
    /// What hellos mean to this port; off at host ports.
    pub hello: HelloMode,
    /// What happens to the frames it receives, for whoever wants to see what comes of that.
    pub fault: Faults,
    /// Number among the switch's uplinks, the same for the links to one core in every pod ([`UPLINK`]); up ports
    /// only. `None`: see [`SwitchConfig::uplink_numbers`].
    pub uplink: Option<u8>,
}

/// What hellos mean to a port of which nothing is said.
pub(crate) fn default_hello(kind: PortKind) -> HelloMode {
    if kind == PortKind::Host { HelloMode::Off } else { HelloMode::Auto }
}

/// One route. The longest prefix wins; several ports share its flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteConfig {
    /// Destination prefix, no host bits.
    pub prefix: IpNet,
    /// Up and down ports, each once. None at all makes a discard route: who announces an aggregate
    /// must drop what no longer prefix of it takes, or it loops (RFC 4632 section 5.1).
    pub ports: Vec<PortId>,
}

/// The validated configuration of one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// Name, also of the control socket: letters, digits, `.`, `_`, `-`.
    pub name: String,
    /// Number, unique in the fabric.
    pub id: SwitchId,
    /// Tier.
    pub role: Role,
    /// Path selection.
    pub selector: Selector,
    /// Seed of the switch's hash ([`derived_seed`] unless given).
    pub seed: u64,
    /// Source MAC of all the switch sends, and the gateway's ([`derived_mac`] unless given).
    pub mac: MacAddr,
    /// Source of ICMP errors where the segment has no IPv4 address.
    pub router_ipv4: Option<Ipv4Addr>,
    /// Source of ICMPv6 errors where the segment has no IPv6 address.
    pub router_ipv6: Option<Ipv6Addr>,
    /// The hosts' segment; ToRs only.
    pub segment: Option<Segment>,
    /// The switch's own pod; not on cores.
    pub pod: Option<Pod>,
    /// Links to the tier above that every switch of this tier has, absent ones counted ([`UPLINKS`]); not on cores.
    /// `None`: see [`SwitchConfig::uplink_count`].
    pub uplinks: Option<u8>,
    /// How it runs on this machine.
    pub runtime: RuntimeOptions,
    /// Limits of each port's queues.
    pub queues: QueueOptions,
    /// Hellos to other switches.
    pub hello: HelloOptions,
    /// Flowlets of every scheme that has any.
    pub flowlet: FlowletOptions,
    /// P4TE, where it is selected.
    pub p4te: P4teOptions,
    /// HULA, where it is selected.
    pub hula: HulaOptions,
    /// CAFT or Expeditus, where one is selected.
    pub caft: CaftOptions,
    /// PL2, where it is enabled.
    pub pl2: Pl2Options,
    /// Ports by [`PortId`], 1 to [`MAX_PORTS`](crate::id::MAX_PORTS).
    pub ports: Vec<PortConfig>,
    /// Routes beside the segment's own, each prefix once, in no order that matters.
    pub routes: Vec<RouteConfig>,
}

impl PortConfig {
    /// MTU in bytes of L3 of what leaves by an interface with the MTU `interface`: what the
    /// configuration says is at most that when the port is opened, but an interface can shrink
    /// afterwards, and what is longer the kernel drops without a word.
    pub fn mtu_on(&self, interface: u16) -> u16 {
        self.mtu.map_or(interface, |configured| configured.min(interface))
    }
}

impl SwitchConfig {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// The file can't be read, or [`SwitchConfig::parse`] refuses it.
    pub fn load(path: &Path) -> Result<SwitchConfig, ConfigError> {
        ConfigError::read_text(path).and_then(|text| SwitchConfig::parse(&text, &path.display().to_string()))
    }

    /// Validates TOML `text`; `file` is the name that errors carry.
    ///
    /// # Errors
    /// All problems of the first gate that found any (see the module), in the order of the file.
    pub fn parse(text: &str, file: &str) -> Result<SwitchConfig, ConfigError> {
        let doc = error::Document::new(text, file);
        let config = file::read(&doc)?;
        doc.accept(check::problems(&config))?;
        Ok(config)
    }

    /// Holds a configuration made in code to the rules a file has to obey.
    ///
    /// # Errors
    /// All problems, without line numbers.
    pub fn validate(&self) -> Result<(), ConfigError> {
        error::accept_unplaced(&self.name, check::problems(self))
    }

    /// The configuration as TOML, defaults written out; [`SwitchConfig::parse`] gives `self` back
    /// if `self` is valid.
    pub fn to_toml(&self) -> String {
        file::write(self)
    }

    /// The port on `interface`.
    pub fn port(&self, interface: &str) -> Option<PortId> {
        self.ports.iter().position(|p| p.interface == interface).and_then(|i| u8::try_from(i).ok()).map(PortId)
    }

    /// The tables that a fabric sets for all of its switches.
    pub fn tables(&self) -> Tables {
        let SwitchConfig { queues, hello, flowlet, p4te, hula, caft, pl2, .. } = *self;
        Tables { queues, hello, flowlet, p4te, hula, caft, pl2 }
    }

    /// The ports of one kind.
    pub fn ports_of(&self, kind: PortKind) -> PortMask {
        (0u8..).map(PortId).zip(&self.ports).filter(|(_, p)| p.kind == kind).map(|(id, _)| id).collect()
    }
}

/// The MAC of a switch that was not given one: 02:77:00:00 and its number.
pub fn derived_mac(id: SwitchId) -> MacAddr {
    let [high, low] = id.0.to_be_bytes();
    MacAddr([0x02, 0x77, 0, 0, high, low])
}

/// The hash seed of switch `id` in a fabric with `seed` (0 where a file stands alone).
///
/// Neighbouring numbers must not give related seeds, or the tiers' choices correlate and half the
/// paths stay unused (polarisation): two rounds of the finaliser of SplitMix64 (Steele et al.,
/// OOPSLA 2014, section 5). 63 bits, which TOML can hold as a number.
pub fn derived_seed(seed: u64, id: SwitchId) -> u64 {
    fn mix(mut z: u64) -> u64 {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    mix(mix(seed).wrapping_add(u64::from(id.0))) >> 1
}
