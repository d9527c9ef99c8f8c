//! Opens all that a runtime needs, or nothing: every interface is looked at before the first is
//! changed, and what was opened is closed again when a later step fails.

use std::path::{Path, PathBuf};

use tracing::{info, warn};

use crate::config::diff::Layout;
use crate::config::scheme::cautions;
use crate::config::{PortConfig, SwitchConfig};
use crate::frame::{BURST, Pool};
use crate::id::{PortKind, XdpMode};
use crate::port::xdp::{Device, Devices, Memory, XdpOptions, XdpPort, chunk_size};

use super::default_route::check_default_route;
use super::monitor::LinkMonitor;
use super::netns::{Home, Identity};
use super::worker::BURSTS;
use super::{RuntimeError, Source, SwitchInstance};

/// A switch with all its ports open, not forwarding yet.
pub(super) struct Opened {
    pub config: SwitchConfig,
    /// By pipe.
    pub pools: Vec<Pool>,
    /// By [`crate::id::PortId`], with a socket for each pipe.
    pub ports: Vec<(Device, Vec<XdpPort>)>,
    pub site: Site,
}

/// Where a switch's interfaces are, and what opening one more of them takes.
pub(super) struct Site {
    pub netns: Option<PathBuf>,
    /// Which namespace that was when it was last entered.
    pub identity: Identity,
    pub devices: Devices,
    pub monitor: LinkMonitor,
    pub memory: Memory,
    pub source: Option<Source>,
    pub layout: Layout,
    /// Whether a port may be on an interface with the default route.
    pub force: bool,
}

/// Opens every port of every switch.
pub(super) fn open_all(instances: Vec<SwitchInstance>, force: bool) -> Result<Vec<Opened>, RuntimeError> {
    let home = Home::here()?;
    let mut seen = Vec::new();
    for SwitchInstance { config, netns, .. } in &instances {
        check_frames(config)?;
        home.enter(netns.as_deref())?;
        let (devices, monitor) = look(netns.as_deref())?;
        let port = |p: &PortConfig| {
            let device = devices.query(&p.interface).map_err(|e| Device::unknown(&p.interface, e));
            let device = device.map_err(|e| RuntimeError::port(&config.name, e))?;
            check_mtu(p, &device).map_err(RuntimeError::Impossible)?;
            check_default_route(&device, force)
                .map_err(|e| RuntimeError::Impossible(format!("switch `{}`: {e}", config.name)))?;
            Ok(device)
        };
        let found = config.ports.iter().map(port).collect::<Result<Vec<Device>, RuntimeError>>()?;
        seen.push((devices, monitor, found));
    }
    let mut switches = Vec::new();
    for (SwitchInstance { config, netns, source }, (devices, monitor, found)) in instances.into_iter().zip(seen) {
        home.enter(netns.as_deref())?;
        let failed = |e| RuntimeError::port(&config.name, e);
        // A UMEM a switch, not a worker: the kernel keeps an entry for every chunk at every socket, and
        // one switch's load must not take another's frames.
        let mtu = found.iter().map(|d| d.mtu).max().unwrap_or(0);
        let (memory, pools) =
            Memory::split(config.runtime.frames, chunk_size(mtu), config.runtime.workers).map_err(failed)?;
        let mut ports = Vec::new();
        for (port, device) in config.ports.iter().zip(found) {
            let opened = open_port(&memory, &config, port, device.clone()).map_err(|e| failed(e.name_holder()))?;
            ports.push((device, opened));
        }
        let identity = Identity::of(netns.as_deref());
        let layout = Layout::of(&config);
        for caution in cautions(&config) {
            warn!(switch = config.name, "{caution}");
        }
        info!(switch = config.name, role = %config.role, selector = %config.selector, ports = ports.len(), "attached");
        let site = Site { netns, identity, devices, monitor, memory, source, layout, force };
        switches.push(Opened { config, pools, ports, site });
    }
    home.enter(None)?;
    Ok(switches)
}

/// The interfaces of this thread's namespace, which is `netns`, and word of their changes.
pub(super) fn look(netns: Option<&Path>) -> Result<(Devices, LinkMonitor), RuntimeError> {
    Devices::here().and_then(|devices| Ok((devices, LinkMonitor::here()?))).map_err(|cause| RuntimeError::Namespace {
        path: netns.unwrap_or(Path::new("/proc/self/ns/net")).to_owned(),
        cause,
    })
}

/// Opens one port of `config` on `device`, in this thread's namespace: a socket for each of the switch's
/// workers.
///
/// # Errors
/// As for [`XdpPort::open_queues`].
pub(super) fn open_port(
    memory: &Memory,
    config: &SwitchConfig,
    port: &PortConfig,
    device: Device,
) -> Result<Vec<XdpPort>, crate::port::xdp::XdpError> {
    let options = XdpOptions {
        mode: port.mode,
        fill: fill(config, port.kind),
        complete_checksums: port.kind == PortKind::Host,
        pass_to_kernel: port.pass_to_kernel,
    };
    let opened = XdpPort::open_queues(memory, device, &options, config.runtime.workers as u32)?;
    if port.mode == XdpMode::Generic {
        // The kernel hands over what it has merged or not yet cut, and a buffer takes one frame: unlike
        // native mode, generic mode does not switch that off at a veth's peer.
        warn!(
            switch = config.name,
            port = port.interface,
            "generic mode loses segments in one piece, and TCP with them: `ethtool -K INTERFACE tso off gso off` at a \
             veth's other end, `ethtool -K {} gro off lro off` here",
            port.interface
        );
    }
    Ok(opened)
}

/// Refuses a port that is to carry more than its interface.
pub(super) fn check_mtu(port: &PortConfig, device: &Device) -> Result<(), String> {
    match port.mtu {
        Some(mtu) if u32::from(mtu) > device.mtu => Err(format!(
            "port `{0}`: mtu = {mtu} is over the interface's {1}: ip link set {0} mtu {mtu}, or lower it in the \
             configuration",
            device.name, device.mtu
        )),
        _ => Ok(()),
    }
}

/// Chunks that every port gets to receive into, whatever the others' shares: a few bursts.
const MIN_FILL: usize = 4 * BURST;
/// The most for a port to another switch, which has paced and queued what it sends: two passes' worth.
const MAX_FABRIC_FILL: usize = 2 * BURSTS * BURST;

/// Chunks for a queue of a port to receive into: its share of two thirds of the switch's frames. A host's
/// TCP sends a whole window at once; what comes from another switch was queued and paced there.
pub(super) fn fill(config: &SwitchConfig, kind: PortKind) -> usize {
    let weight = |kind| match kind {
        PortKind::Host => 4,
        PortKind::Up | PortKind::Down => 1,
    };
    let weights: usize = config.ports.iter().map(|p| weight(p.kind)).sum();
    let queues = config.runtime.workers;
    let share = (config.runtime.frames as usize * 2 / 3 * weight(kind) / weights / queues).max(MIN_FILL);
    if kind == PortKind::Host { share } else { share.min(MAX_FABRIC_FILL) }
}

/// Refuses a switch whose frames do not give every port its chunks with a quarter left for queues.
pub(super) fn check_frames(config: &SwitchConfig) -> Result<(), RuntimeError> {
    let queues = config.runtime.workers;
    let fills: usize = config.ports.iter().map(|p| queues * fill(config, p.kind)).sum();
    let frames = config.runtime.frames as usize;
    if fills <= frames / 4 * 3 {
        return Ok(());
    }
    let enough = config.ports.len() * queues * 2 * MIN_FILL;
    Err(RuntimeError::Impossible(format!(
        "switch `{}`: frames = {frames} is too few for {} ports: set at least {enough}",
        config.name,
        config.ports.len()
    )))
}
