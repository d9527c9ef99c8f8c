//! `weft lab status`: what the lab has and whether it is up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::agents::{self, TAP};
use super::down::identity;
use super::lock::{Holder, LockFile};
use super::net::{Namespace, Netlink};
use super::plan::{EndPlan, Plan};
use super::{LabError, LabName};
use crate::id::Role;
use crate::units::BitRate;

/// A lab, as `--json` prints it; [`fmt::Display`] is the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabStatus {
    /// The lab's name.
    pub name: String,
    /// Whether the switches' process runs and has said that it forwards.
    pub running: bool,
    /// Whether it has ended without `down`, which is to remove what it left.
    pub ended: bool,
    /// That process.
    pub pid: Option<i32>,
    /// All hosts.
    pub hosts: Vec<HostStatus>,
    /// All switches.
    pub switches: Vec<SwitchStatus>,
    /// All links.
    pub links: Vec<LinkStatus>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostStatus {
    /// Its name, as `exec` takes it.
    pub name: String,
    /// Its IPv4 address, without prefix length.
    pub ipv4: Option<IpAddr>,
    /// Its IPv6 address, without prefix length.
    pub ipv6: Option<IpAddr>,
    /// Its top-of-rack switch.
    pub tor: String,
    /// Its agent, if it is to have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStatus>,
}

/// The `weft host` of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentStatus {
    /// Whether it runs: its TAP device is there.
    pub running: bool,
    /// Its process.
    pub pid: Option<i32>,
    /// What it says of itself, as `weft host --json` does, anew each second.
    pub report: PathBuf,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SwitchStatus {
    /// Its name, as `show --switch` takes it.
    pub name: String,
    /// Its tier.
    pub role: Role,
    /// Its pod; `None` above the pods.
    pub pod: Option<u16>,
    /// Its control socket.
    pub socket: PathBuf,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkStatus {
    /// The node at one end.
    pub a: String,
    /// The node at the other end.
    pub b: String,
    /// Bits per second; 0 = unlimited.
    pub rate: BitRate,
    /// Up if both ends have carrier.
    pub state: LinkState,
}

/// Whether frames can pass a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Both ends have carrier.
    Up,
    /// An end is down, or gone.
    Down,
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkState::Up => "up",
            LinkState::Down => "down",
        })
    }
}

/// Reads what is so now: the lock, and the carrier of every interface from the kernel.
///
/// # Errors
/// [`LabError::NotUp`] if there is no such lab; without privileges.
pub fn status(name: &LabName) -> Result<LabStatus, LabError> {
    let plan = Plan::of_lab(name)?;
    let dir = name.state_dir();
    let path = dir.join("lock");
    let lock = LockFile::open(&path).map_err(LabError::file("cannot open", &path))?;
    let holder = lock.holder().map_err(LabError::file("cannot read", &path))?;
    let pid = match holder {
        Holder::Process(pid) => Some(pid.as_raw()),
        Holder::Nobody | Holder::Unnamed => None,
    };
    let running = pid.is_some() && dir.join("ready").exists();
    let ended = holder == Holder::Nobody;

    let carriers = carriers(name, &plan)?;
    let has_carrier = |end: &EndPlan| carriers.get(end.node.as_str()).is_some_and(|up| up.contains(&end.interface));
    let links = plan
        .links
        .iter()
        .map(|link| LinkStatus {
            a: link.a.node.clone(),
            b: link.b.node.clone(),
            rate: link.rate,
            state: if has_carrier(&link.a) && has_carrier(&link.b) { LinkState::Up } else { LinkState::Down },
        })
        .collect();
    let hosts = plan.hosts.iter().map(|host| {
        let address = |v4: bool| host.addresses.iter().map(|net| net.addr()).find(|addr| addr.is_ipv4() == v4);
        let agent = host.agent.as_ref().map(|_| agent(name, &dir, &host.name, &carriers));
        HostStatus { name: host.name.clone(), ipv4: address(true), ipv6: address(false), tor: host.tor.clone(), agent }
    });
    let switches = plan.switches.iter().map(|switch| SwitchStatus {
        name: switch.name.clone(),
        role: switch.role,
        pod: switch.pod,
        socket: name.socket(&switch.name),
    });
    let (name, hosts, switches) = (name.to_string(), hosts.collect(), switches.collect());
    Ok(LabStatus { name, running, ended, pid, hosts, switches, links })
}

fn agent(name: &LabName, dir: &Path, host: &str, carriers: &BTreeMap<&str, BTreeSet<String>>) -> AgentStatus {
    let running = carriers.get(host).is_some_and(|up| up.contains(TAP));
    // Believed only of a process in that very namespace: numbers are given out again.
    let there = |pid: &i32| {
        let own = identity(Path::new(&format!("/proc/{pid}/ns/net")));
        own.is_some() && own == identity(&Namespace::path(&name.namespace(host)))
    };
    let pid = fs::read_to_string(agents::pid_path(dir, host)).ok().and_then(|text| text.parse().ok()).filter(there);
    AgentStatus { running, pid, report: agents::report_path(dir, host) }
}

/// By node, the interfaces that have carrier. A namespace that is gone has none.
fn carriers<'a>(name: &LabName, plan: &'a Plan) -> Result<BTreeMap<&'a str, BTreeSet<String>>, LabError> {
    let mut carriers = BTreeMap::new();
    for node in plan.nodes() {
        let namespace = match Namespace::open(&name.namespace(node)) {
            Ok(namespace) => namespace,
            Err(e) if e.errno() == Some(nix::errno::Errno::ENOENT) => continue,
            Err(e) => return Err(e.into()),
        };
        let links = Netlink::open(&namespace)?.links()?;
        carriers.insert(node, links.into_iter().filter(|link| link.carrier).map(|link| link.name).collect());
    }
    Ok(carriers)
}

impl fmt::Display for LabStatus {
    /// A short table: the lab, then switches, hosts, and the links that are down.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.running, self.pid) {
            (true, Some(pid)) => format!("running, process {pid}"),
            (true, None) => "running".into(),
            (false, Some(pid)) => format!("starting, process {pid}"),
            (false, None) if self.ended => "not running".into(),
            (false, None) => "being built".into(),
        };
        writeln!(f, "lab {}: {state}", self.name)?;
        if let (true, Ok(name)) = (self.ended, self.name.parse()) {
            writeln!(f, "{}", LabError::LeftBehind(name))?;
        }
        writeln!(f, "\n{:<12} {:<5} {:>3}  socket", "switch", "role", "pod")?;
        for switch in &self.switches {
            let pod = switch.pod.map_or_else(|| "-".into(), |pod| pod.to_string());
            let role = switch.role.to_string();
            writeln!(f, "{:<12} {role:<5} {pod:>3}  {}", switch.name, switch.socket.display())?;
        }
        writeln!(f, "\n{:<12} {:<15} {:<24} tor", "host", "ipv4", "ipv6")?;
        let text = |address: Option<IpAddr>| address.map_or_else(|| "-".into(), |address| address.to_string());
        for host in &self.hosts {
            writeln!(f, "{:<12} {:<15} {:<24} {}", host.name, text(host.ipv4), text(host.ipv6), host.tor)?;
        }
        let agents = || self.hosts.iter().filter_map(|host| Some((&host.name, host.agent.as_ref()?)));
        if let Some((_, first)) = agents().next() {
            let gone: Vec<_> = agents().filter(|(_, agent)| !agent.running).map(|(name, _)| name.as_str()).collect();
            write!(f, "\nagents: {} running", agents().count() - gone.len())?;
            match gone.len() {
                0 => writeln!(f)?,
                n => writeln!(f, ", {n} not: {}", gone.join(", "))?,
            }
            writeln!(
                f,
                "  what they report each second: {}",
                first.report.with_file_name("HOST.agent.json").display()
            )?;
        }
        let down: Vec<_> = self.links.iter().filter(|link| link.state == LinkState::Down).collect();
        write!(f, "\nlinks: {} up, {} down", self.links.len() - down.len(), down.len())?;
        for link in down {
            write!(f, "\n  down: {} - {} ({})", link.a, link.b, link.rate)?;
        }
        Ok(())
    }
}
