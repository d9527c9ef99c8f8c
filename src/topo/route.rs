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

use crate::config::RouteConfig;
use crate::id::{PortId, PortMask};

/// The wiring of the switches; indices are those of the fabric's list, lower tiers first.
#[derive(Default)]
pub(super) struct Graph {
    pub vertices: Vec<Vertex>,
}

/// A switch.
#[derive(Default)]
pub(super) struct Vertex {
    /// What lies at it, in both families: a ToR's rack, or the switch's own addresses.
    pub prefixes: Vec<IpNet>,
    /// Whether that is a rack.
    pub rack: bool,
    /// Routes that cover many destinations; no ports discard what no longer prefix takes.
    pub aggregates: Vec<(IpNet, PortMask)>,
    /// Links to the tier above.
    pub up: Vec<Uplink>,
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
    pub(super) fn towards(&self, target: usize) -> Vec<PortMask> {
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

    /// Two ToRs that no way joins.
    pub(super) fn cut(&self) -> Option<(usize, usize)> {
        let racks = || (0..self.vertices.len()).filter(|i| self.vertices[*i].rack);
        racks().find_map(|target| {
            let ports = self.towards(target);
            racks().find(|from| *from != target && ports[*from].is_empty()).map(|from| (from, target))
        })
    }

    /// The routes of each switch.
    pub(super) fn routes(&self) -> Vec<Vec<RouteConfig>> {
        let route = |prefix: IpNet, ports: PortMask| RouteConfig { prefix, ports: ports.iter().collect() };
        let aggregates = |v: &Vertex| v.aggregates.iter().map(|(prefix, ports)| route(*prefix, *ports)).collect();
        let mut routes: Vec<Vec<_>> = self.vertices.iter().map(aggregates).collect();
        for (target, vertex) in self.vertices.iter().enumerate() {
            let ports = self.towards(target);
            for (at, ports) in ports.into_iter().enumerate().filter(|(at, _)| *at != target) {
                // A switch of another plane is out of reach for most: an aggregate takes packets for
                // it up, where they end, instead of a discard for each.
                if ports.is_empty() && !vertex.rack {
                    continue;
                }
                let differs = |prefix: &&IpNet| self.vertices[at].aggregate(prefix) != ports;
                routes[at].extend(vertex.prefixes.iter().filter(differs).map(|prefix| route(*prefix, ports)));
            }
        }
        routes
    }
}

impl Vertex {
    /// Where `prefix` goes by the aggregates alone; without one it is dropped, as by an empty one.
    fn aggregate(&self, prefix: &IpNet) -> PortMask {
        let covering = self.aggregates.iter().filter(|(aggregate, _)| aggregate.contains(prefix));
        covering.max_by_key(|(aggregate, _)| aggregate.prefix_len()).map_or(PortMask::EMPTY, |(_, ports)| *ports)
    }
}
