//! Routes computed from the wiring, so that they are right when links are missing.
//!
//! A path goes up, then down, and never up again. At each switch and for each destination the ports
//! on such paths are known: the ports down to it where it lies below, else the uplinks whose far end
//! reaches it. Aggregates (default, pod, plane) say it for most destinations in a few routes; a
//! longer prefix is added only where a destination's ports differ from what the aggregate says.
//!
//! Why nothing loops: a port down leads to a switch below which the destination lies, a port up to
//! one that reaches it, so a packet climbs at most once and each further step descends. What has no
//! way is taken by an aggregate: up and no further, or down to an agg that discards it.

use ipnet::IpNet;

use super::address;
use crate::config::RouteConfig;
use crate::id::{PortId, PortMask};

/// The wiring of the switches; indices are those of the fabric's list, lower tiers first.
#[derive(Default)]
pub(super) struct Graph {
    pub vertices: Vec<Vertex>,
}

/// A switch.
pub(super) struct Vertex {
    /// What lies at it: a ToR's rack, or the switch's own addresses.
    pub prefixes: [IpNet; 2],
    /// Whether that is a rack.
    pub rack: bool,
    /// The area that holds `prefixes`.
    pub area: Area,
    /// Where the destinations of a whole area go, each area once; no ports discard what no longer
    /// prefix takes.
    pub aggregates: Vec<(Area, PortMask)>,
    /// Links to the tier above.
    pub up: Vec<Uplink>,
}

/// A set of destinations with a prefix of its own in each family.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Area {
    /// The racks of a pod.
    Pod(u8),
    /// The own addresses of a plane's switches.
    Plane(u8),
    /// Everything that no other area's route takes.
    All,
}

/// A link, seen from its lower end.
#[derive(Clone, Copy)]
pub(super) struct Uplink {
    /// Port of the lower switch.
    pub port: PortId,
    /// The upper switch.
    pub peer: usize,
    /// Port of the upper switch.
    pub peer_port: PortId,
}

impl Graph {
    /// For each switch, the ports on the ways to `target`; empty if there is none, and at `target`.
    fn towards(&self, target: usize) -> Vec<PortMask> {
        let mut ports = vec![PortMask::EMPTY; self.vertices.len()];
        let mut below = vec![target];
        while let Some(lower) = below.pop() {
            for link in &self.vertices[lower].up {
                if ports[link.peer].is_empty() {
                    below.push(link.peer);
                }
                ports[link.peer] = ports[link.peer].with(link.peer_port);
            }
        }
        // From the top tier: what an uplink leads to is known before it is asked for.
        for lower in (0..self.vertices.len()).rev() {
            if lower == target || !ports[lower].is_empty() {
                continue;
            }
            let leads = |link: &&Uplink| link.peer == target || !ports[link.peer].is_empty();
            ports[lower] = self.vertices[lower].up.iter().filter(leads).map(|link| link.port).collect();
        }
        ports
    }

    /// The routes of each switch.
    ///
    /// # Errors
    /// Two ToRs of which the first can't reach the second.
    pub(super) fn routes(&self) -> Result<Vec<Vec<RouteConfig>>, (usize, usize)> {
        let both = |prefixes: [IpNet; 2], ports: PortMask| {
            prefixes.map(|prefix| RouteConfig { prefix, ports: ports.iter().collect() })
        };
        let aggregates =
            |v: &Vertex| v.aggregates.iter().flat_map(|(area, ports)| both(area.prefixes(), *ports)).collect();
        let mut routes: Vec<Vec<_>> = self.vertices.iter().map(aggregates).collect();
        for (target, vertex) in self.vertices.iter().enumerate() {
            for (at, ports) in self.towards(target).into_iter().enumerate().filter(|(at, _)| *at != target) {
                let here = &self.vertices[at];
                if ports.is_empty() && vertex.rack && here.rack {
                    return Err((at, target));
                }
                // A switch of another plane is out of reach for most: an aggregate takes packets for
                // it up, where they end, instead of a discard for each.
                let out_of_reach = ports.is_empty() && !vertex.rack;
                if !out_of_reach && here.aggregate(vertex.area) != ports {
                    routes[at].extend(both(vertex.prefixes, ports));
                }
            }
        }
        Ok(routes)
    }
}

impl Vertex {
    /// Where what lies in `area` goes by the aggregates alone; without one it is dropped, as by an
    /// empty one.
    fn aggregate(&self, area: Area) -> PortMask {
        let of = |area| self.aggregates.iter().find(|(a, _)| *a == area).map(|(_, ports)| *ports);
        of(area).or_else(|| of(Area::All)).unwrap_or(PortMask::EMPTY)
    }
}

impl Area {
    fn prefixes(self) -> [IpNet; 2] {
        match self {
            Area::Pod(pod) => address::pod_prefixes(pod),
            Area::Plane(plane) => address::plane_prefixes(plane),
            Area::All => address::default_prefixes(),
        }
    }
}
