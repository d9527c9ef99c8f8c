//! What is to be built, as plain data: the part of a topology that namespaces and links are made
//! of. Kept as `fabric.json`, so that `status`, `exec` and `down` need no topology.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{LabError, LabName};
use crate::config::PollMode;
use crate::id::Role;
use crate::topo::{End, Fabric};
use crate::units::BitRate;
use crate::wire::MacAddr;

/// A fabric as the lab keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Worker threads of the runtime, 0 = as it chooses.
    pub workers: usize,
    /// How idle workers wait, if not as each switch says.
    pub poll: Option<PollMode>,
    pub hosts: Vec<HostPlan>,
    pub switches: Vec<SwitchPlan>,
    pub links: Vec<LinkPlan>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct HostPlan {
    pub name: String,
    /// The switch it hangs on.
    pub tor: String,
    pub interface: String,
    pub addresses: Vec<IpNet>,
    pub gateways: Vec<IpAddr>,
    /// The process that has the interface and gives applications another one, if any.
    #[serde(default)]
    pub agent: Option<AgentPlan>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentPlan {
    /// Destinations outside of the rack: the gateway.
    pub unscheduled: Vec<MacAddr>,
    /// How it reserves, as its ToR's `[pl2]` says: options of `weft host`.
    #[serde(default)]
    pub options: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SwitchPlan {
    pub name: String,
    pub role: Role,
    pub pod: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LinkPlan {
    pub a: EndPlan,
    pub b: EndPlan,
    /// What both ends pace to; 0 = unlimited.
    pub rate: BitRate,
    /// Bytes of L3.
    pub mtu: u16,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EndPlan {
    pub node: String,
    pub interface: String,
    pub mac: MacAddr,
}

impl Plan {
    pub(super) fn of(fabric: &Fabric, workers: usize, poll: Option<PollMode>) -> Plan {
        let end = |end: &End| EndPlan { node: end.node.clone(), interface: end.interface.clone(), mac: end.mac };
        let hosts = fabric.hosts.iter().map(|host| HostPlan {
            name: host.name.clone(),
            tor: host.tor.clone(),
            interface: host.interface.clone(),
            addresses: vec![host.ipv4.into(), host.ipv6.into()],
            gateways: vec![host.gateway_ipv4.into(), host.gateway_ipv6.into()],
            agent: None,
        });
        let switches = fabric.switches.iter().map(|switch| SwitchPlan {
            name: switch.name().into(),
            role: switch.role(),
            pod: switch.pod,
        });
        let links = fabric.links.iter().map(|link| LinkPlan {
            a: end(&link.a),
            b: end(&link.b),
            rate: link.rate,
            mtu: link.mtu,
        });
        Plan { workers, poll, hosts: hosts.collect(), switches: switches.collect(), links: links.collect() }
    }

    /// Puts an agent beside every host.
    pub(super) fn add_agents(&mut self, fabric: &Fabric) {
        for host in &mut self.hosts {
            let tor = fabric.switches.iter().find(|switch| switch.name() == host.tor);
            host.agent = Some(AgentPlan {
                unscheduled: tor.map(|tor| tor.config.mac).into_iter().collect(),
                options: tor.map(|tor| super::agents::options(&tor.config.pl2)).unwrap_or_default(),
            });
        }
    }

    /// Hosts with an agent.
    pub(super) fn agents(&self) -> usize {
        self.hosts.iter().filter(|host| host.agent.is_some()).count()
    }

    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join("fabric.json")
    }

    /// Writes the plan to `dir`.
    pub(super) fn write(&self, dir: &Path) -> Result<(), LabError> {
        let path = Plan::path(dir);
        File::create(&path)
            .and_then(|file| {
                let mut file = BufWriter::new(file);
                serde_json::to_writer_pretty(&mut file, self)?;
                file.flush()
            })
            .map_err(LabError::file("cannot write", path))
    }

    /// Reads what [`Plan::write`] wrote.
    pub(super) fn read(dir: &Path) -> Result<Plan, LabError> {
        let path = Plan::path(dir);
        File::open(&path)
            .and_then(|file| Ok(serde_json::from_reader(BufReader::new(file))?))
            .map_err(LabError::file("cannot read", path))
    }

    /// The plan of the lab `name` if it is up, or was.
    pub(super) fn of_lab(name: &LabName) -> Result<Plan, LabError> {
        match Plan::read(&name.state_dir()) {
            Err(LabError::File { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => {
                Err(LabError::NotUp(name.clone()))
            }
            other => other,
        }
    }

    /// Hosts, then switches.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.name.as_str()).chain(self.switches.iter().map(|switch| switch.name.as_str()))
    }

    /// Node names are unique and file names, and links join nodes that exist: what a topology made
    /// by hand could get wrong, found before anything is built.
    pub(super) fn check(&self) -> Result<(), LabError> {
        let mut names = BTreeSet::new();
        for node in self.nodes() {
            if node.is_empty() || node.starts_with('.') || node.contains(['/', '\0']) {
                return Err(LabError::BadFabric(format!("`{node}` is no name for a node")));
            }
            if !names.insert(node) {
                return Err(LabError::BadFabric(format!("two nodes are named `{node}`")));
            }
        }
        let mut ends = BTreeSet::new();
        for end in self.links.iter().flat_map(|link| [&link.a, &link.b]) {
            if !names.contains(end.node.as_str()) {
                return Err(LabError::BadFabric(format!("a link ends at `{}`, which is no node", end.node)));
            }
            if !ends.insert((end.node.as_str(), end.interface.as_str())) {
                return Err(LabError::BadFabric(format!("two links end at `{}` of `{}`", end.interface, end.node)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::FabricOptions;

    fn plan() -> Plan {
        Plan::of(&Fabric::leaf_spine(2, 2, &FabricOptions::default()).unwrap(), 3, Some(PollMode::Busy))
    }

    #[test]
    fn a_plan_has_all_of_the_fabric_and_survives_its_file() {
        let plan = plan();
        assert_eq!((plan.hosts.len(), plan.switches.len(), plan.links.len()), (4, 4, 4 + 4));
        plan.check().unwrap();
        let host = &plan.hosts[0];
        assert_eq!((host.addresses.len(), host.gateways.len()), (2, 2));
        assert!(plan.links.iter().any(|link| link.a.node == host.name && link.b.node == host.tor));
        let dir = tempfile::tempdir().unwrap();
        plan.write(dir.path()).unwrap();
        assert_eq!(Plan::read(dir.path()).unwrap(), plan);
    }

    #[test]
    fn a_file_that_is_no_plan_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(Plan::path(dir.path()), "{}").unwrap();
        let error = Plan::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("fabric.json") && error.contains("missing field"), "{error}");
    }

    #[test]
    fn a_fabric_that_contradicts_itself_is_refused_before_anything_is_built() {
        let refused = |edit: fn(&mut Plan), cause| {
            let mut plan = plan();
            edit(&mut plan);
            let error = plan.check().unwrap_err();
            assert!(error.to_string().contains(cause), "{error}");
            assert_eq!(error.exit_code(), 2);
        };
        refused(|plan| plan.hosts[1].name = plan.switches[0].name.clone(), "two nodes");
        refused(|plan| plan.hosts[0].name = "../h".into(), "no name");
        refused(|plan| plan.links[0].b.node = "nowhere".into(), "`nowhere`");
        refused(|plan| plan.links[1].b = plan.links[0].b.clone(), "two links");
    }
}
