//! Topologies: who is wired to whom, every address and every route. Pure data.
//!
//! [`Shape`] says what to build, [`FabricOptions`] how, and [`LinkException`]s which links are not
//! like the others; a file says all three ([`Fabric::load`]). The result is a [`Fabric`]: plain lists
//! of switches, hosts and links, the same for the same input. Each switch carries its own
//! configuration, held to the rules a file has to obey.
//!
//! Routing is the two-level scheme of a folded Clos. Up: a default route over all uplinks. Down: the
//! longest prefix. Only up-then-down paths exist, so nothing loops, and an aggregation switch
//! discards what is in its pod's prefix but in no rack's (RFC 4632 section 5.1), which the default
//! route would send up and the core straight back. Where links are missing, longer prefixes keep
//! traffic off the ways that lead nowhere.

/// Every address as a function of its place in the fabric.
pub mod address;
/// From a shape to switches, hosts and links.
mod build;
/// Links that differ from what the shape says.
mod exception;
/// Fabrics from TOML files.
mod file;
/// From the wiring to routes.
mod route;
/// What can be built, its text forms and limits.
mod shape;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub use exception::{LinkChange, LinkException, LinkProblem};
pub use shape::{MAX_NODES, Shape, TopoError};

use crate::config::{
    CaftOptions, ConfigError, FlowletOptions, HelloOptions, HulaOptions, P4teOptions, Pl2Options, PortConfig,
    QueueOptions, Selector, SwitchConfig,
};
use crate::fault::Faults;
use crate::id::{Role, SwitchId};
use crate::units::{BitRate, Duration};
use crate::wire::MacAddr;

/// Seed of a fabric where its user gives none, on the command line or in a file.
pub const DEFAULT_SEED: u64 = 1;

/// How a fabric is built, whatever its shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricOptions {
    /// Hosts of each ToR; `None` means the shape's own: k/2 in a fat tree, all N in a rack, else 2.
    pub hosts_per_tor: Option<usize>,
    /// Rate of the links between switches; 0 = unlimited.
    pub rate: BitRate,
    /// Rate of the hosts' links; `None` means `rate`.
    pub host_rate: Option<BitRate>,
    /// MTU of the hosts' links, bytes of L3.
    pub host_mtu: u16,
    /// MTU of the links between switches; the slack over `host_mtu` is for what schemes insert.
    pub fabric_mtu: u16,
    /// Path selection of every switch.
    pub selector: Selector,
    /// Seed that the switches' own seeds are derived from.
    pub seed: u64,
    /// Time between the switches' hellos; 0 = none.
    pub hello_interval: Duration,
    /// Intervals of silence after which a switch is given up.
    pub hello_multiplier: u8,
    /// Limits of the queues of every port.
    pub queues: QueueOptions,
    /// Flowlets of every switch.
    pub flowlet: FlowletOptions,
    /// P4TE on every switch, where it is selected.
    pub p4te: P4teOptions,
    /// HULA on every switch, where it is selected.
    pub hula: HulaOptions,
    /// CAFT or Expeditus on every switch, where one is selected.
    pub caft: CaftOptions,
    /// `[pl2]` of every ToR.
    pub pl2: Pl2Options,
    /// What happens to frames on each link between switches, either way.
    pub fault: Faults,
}

impl Default for FabricOptions {
    fn default() -> Self {
        FabricOptions {
            hosts_per_tor: None,
            rate: BitRate(0),
            host_rate: None,
            host_mtu: 1500,
            fabric_mtu: 1600,
            selector: Selector::default(),
            seed: 0,
            hello_interval: HelloOptions::default().interval,
            hello_multiplier: HelloOptions::default().multiplier,
            queues: QueueOptions::default(),
            flowlet: FlowletOptions::default(),
            p4te: P4teOptions::default(),
            hula: HulaOptions::default(),
            caft: CaftOptions::default(),
            pl2: Pl2Options::default(),
            fault: Faults::default(),
        }
    }
}

/// A switch of a fabric. Serializes as `{"name","role","pod"}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// Its pod; `None` for cores, which stand above the pods.
    pub pod: Option<u16>,
    /// Everything it needs to run, with the default runtime options.
    pub config: SwitchConfig,
}

impl Switch {
    /// Name, also of its namespace.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Tier.
    pub fn role(&self) -> Role {
        self.config.role
    }

    /// Number, unique in the fabric, from 1.
    pub fn id(&self) -> SwitchId {
        self.config.id
    }

    /// Ports by `PortId`: hosts or down ports first, then up ports.
    pub fn ports(&self) -> &[PortConfig] {
        &self.config.ports
    }
}

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_struct("Switch", 3)?;
        map.serialize_field("name", self.name())?;
        map.serialize_field("role", &self.role())?;
        map.serialize_field("pod", &self.pod)?;
        map.end()
    }
}

/// A host of a fabric. Serializes as `{"name","ipv4","ipv6","tor"}`, addresses without length.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Host {
    /// Name, also of its namespace: `h<pod>-<tor>-<last octet>`.
    pub name: String,
    /// Address and prefix length of its segment.
    #[serde(serialize_with = "plain_v4")]
    pub ipv4: Ipv4Net,
    /// Address and prefix length of its segment.
    #[serde(serialize_with = "plain_v6")]
    pub ipv6: Ipv6Net,
    /// Name of its ToR.
    pub tor: String,
    /// MAC of its interface.
    #[serde(skip)]
    pub mac: MacAddr,
    /// The ToR's address on the segment.
    #[serde(skip)]
    pub gateway_ipv4: Ipv4Addr,
    /// The ToR's address on the segment.
    #[serde(skip)]
    pub gateway_ipv6: Ipv6Addr,
    /// Its one interface.
    #[serde(skip)]
    pub interface: String,
}

fn plain_v4<S: Serializer>(net: &Ipv4Net, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&net.addr())
}

fn plain_v6<S: Serializer>(net: &Ipv6Net, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&net.addr())
}

/// One end of a link. Serializes as the node's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Name of the switch or host.
    pub node: String,
    /// Interface in its namespace: the other end's name on a switch, `eth0` on a host.
    pub interface: String,
    /// MAC of the interface; a switch has one for all its ports.
    pub mac: MacAddr,
}

impl Serialize for End {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.node)
    }
}

/// A cable. Serializes as `{"a","b","rate"}`, the rate in bit/s, 0 = unlimited.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Link {
    /// The lower end.
    pub a: End,
    /// The upper end, always a switch.
    pub b: End,
    /// Rate in each direction; 0 = unlimited.
    pub rate: BitRate,
    /// MTU of both ends, bytes of L3.
    #[serde(skip)]
    pub mtu: u16,
}

/// A whole fabric. Names, MACs and addresses are unique in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fabric {
    /// By tier: ToRs, aggs, cores; within a tier by pod. One that has lost all its links is not there.
    pub switches: Vec<Switch>,
    /// By pod, ToR and number.
    pub hosts: Vec<Host>,
    /// Hosts' links first, then up the tiers.
    pub links: Vec<Link>,
}

impl Fabric {
    /// Reads a file that describes a fabric; `docs/topology.md` has its keys.
    ///
    /// # Errors
    /// The file can't be read, or [`Fabric::parse`] refuses it.
    pub fn load(path: &Path) -> Result<Fabric, ConfigError> {
        ConfigError::read_text(path).and_then(|text| Fabric::parse(&text, &path.display().to_string()))
    }

    /// Builds what TOML `text` describes; `file` is the name that errors carry.
    ///
    /// # Errors
    /// All problems of the first gate that found any, in the order of the file: TOML and its keys,
    /// each value, then what [`Shape::build_with`] refuses.
    pub fn parse(text: &str, file: &str) -> Result<Fabric, ConfigError> {
        file::read(text, file)
    }

    /// See [`Shape::LeafSpine`].
    ///
    /// # Errors
    /// As [`Shape::build`].
    pub fn leaf_spine(leaves: usize, spines: usize, options: &FabricOptions) -> Result<Fabric, TopoError> {
        Shape::LeafSpine { leaves, spines }.build(options)
    }

    /// See [`Shape::FatTree`].
    ///
    /// # Errors
    /// As [`Shape::build`].
    pub fn fat_tree(k: usize, options: &FabricOptions) -> Result<Fabric, TopoError> {
        Shape::FatTree { k }.build(options)
    }

    /// See [`Shape::Clos`].
    ///
    /// # Errors
    /// As [`Shape::build`].
    pub fn clos(
        pods: usize,
        tors_per_pod: usize,
        aggs_per_pod: usize,
        cores: usize,
        options: &FabricOptions,
    ) -> Result<Fabric, TopoError> {
        Shape::Clos { pods, tors_per_pod, aggs_per_pod, cores }.build(options)
    }

    /// See [`Shape::Rack`].
    ///
    /// # Errors
    /// As [`Shape::build`].
    pub fn rack(hosts: usize, options: &FabricOptions) -> Result<Fabric, TopoError> {
        Shape::Rack { hosts }.build(options)
    }

    /// The switch of that name.
    pub fn switch(&self, name: &str) -> Option<&Switch> {
        self.switches.iter().find(|s| s.name() == name)
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|h| h.name == name)
    }

    /// The configuration of the switch of that name: valid, with the default runtime options for
    /// the caller to change.
    pub fn switch_config(&self, name: &str) -> Option<SwitchConfig> {
        self.switch(name).map(|s| s.config.clone())
    }
}
