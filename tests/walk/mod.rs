//! A fabric's routing tables, walked: every way that equal-cost choices could send a packet.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use weft::config::PortConfig;
use weft::id::{PortId, PortKind};
use weft::topo::Fabric;

/// A fabric as the walker needs it: longest prefix first, and who is behind each port.
pub struct Walker<'a> {
    fabric: &'a Fabric,
    routes: Vec<Vec<(IpNet, &'a [PortId])>>,
    pub by_name: HashMap<&'a str, usize>,
}

/// Where a packet can end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// In the segment of this switch.
    Segment(usize),
    /// At this switch itself.
    Router(usize),
    /// No route, or a discard route, at this switch.
    Dropped(usize),
}

/// All ways from one switch to one address.
#[derive(Default)]
pub struct Ways {
    /// Switches passed, with the fate: one entry a different length or fate.
    pub ends: BTreeSet<(usize, Fate)>,
    /// (switch, port) of every port used.
    pub used: BTreeSet<(usize, PortId)>,
}

impl<'a> Walker<'a> {
    pub fn new(fabric: &'a Fabric) -> Walker<'a> {
        let routes = fabric.switches.iter().map(|switch| {
            let mut routes: Vec<_> = switch.config.routes.iter().map(|r| (r.prefix, r.ports.as_slice())).collect();
            routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
            routes
        });
        let by_name = fabric.switches.iter().enumerate().map(|(i, s)| (s.name(), i)).collect();
        Walker { fabric, routes: routes.collect(), by_name }
    }

    pub fn ways(&self, from: usize, to: IpAddr) -> Ways {
        let mut ways = Ways::default();
        self.step(from, to, 1, false, &mut ways);
        ways
    }

    /// Follows every port of the route taken; `passed` counts this switch.
    fn step(&self, at: usize, to: IpAddr, passed: usize, descends: bool, ways: &mut Ways) {
        assert!(passed <= 5, "a packet to {to} loops, it is at {}", self.fabric.switches[at].name());
        let config = &self.fabric.switches[at].config;
        let own = [config.router_ipv4.map(IpAddr::V4), config.router_ipv6.map(IpAddr::V6)];
        if own.contains(&Some(to)) {
            ways.ends.insert((passed, Fate::Router(at)));
            return;
        }
        let segment = config.segment.and_then(|s| match to {
            IpAddr::V4(_) => s.ipv4.map(IpNet::V4),
            IpAddr::V6(_) => s.ipv6.map(IpNet::V6),
        });
        if segment.is_some_and(|net| net.contains(&to)) {
            ways.ends.insert((passed, Fate::Segment(at)));
            return;
        }
        let route = self.routes[at].iter().find(|(prefix, _)| prefix.contains(&to));
        let ports = route.map_or(&[][..], |(_, ports)| ports);
        if ports.is_empty() {
            ways.ends.insert((passed, Fate::Dropped(at)));
        }
        for port in ports {
            let PortConfig { interface, kind, .. } = &config.ports[port.index()];
            let up = *kind == PortKind::Up;
            assert!(!(up && descends), "a packet to {to} turns up again at {}", config.name);
            ways.used.insert((at, *port));
            self.step(self.by_name[interface.as_str()], to, passed + 1, !up, ways);
        }
    }
}
