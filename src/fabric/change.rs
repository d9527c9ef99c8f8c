//! Changes to the forwarding of a running switch. What is known of neighbours, stations and flows
//! stays, as far as it is still true.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::id::{PortId, PortKind, PortMask};

use super::fib::Fib;
use super::hooks::SchemeIngress;
use super::ingress::{FabricIngress, FabricPort, Own, messages, port_errors, storm};
use super::link::HelloConfig;

/// Addresses and routes: all of the forwarding that is not about ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Gateway address and prefix of the segment of host ports.
    pub segment_v4: Option<Ipv4Net>,
    /// The same for IPv6.
    pub segment_v6: Option<Ipv6Net>,
    /// Source of ICMP errors where there is no segment address; answers ping.
    pub router_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub router_v6: Option<Ipv6Addr>,
    /// Prefixes and the ports that lead to them.
    pub routes: Vec<(IpNet, PortMask)>,
}

impl Forwarding {
    /// The table that it makes.
    pub(super) fn fib(&self, seed: u64) -> Fib {
        let mut fib = Fib::new(seed);
        for (prefix, ports) in &self.routes {
            fib.set_route(*prefix, *ports);
        }
        if let Some(net) = self.segment_v4 {
            fib.set_connected(IpNet::V4(net.trunc()));
        }
        if let Some(net) = self.segment_v6 {
            fib.set_connected(IpNet::V6(net.trunc()));
        }
        fib
    }
}

impl<S: SchemeIngress> FabricIngress<S> {
    /// Replaces addresses and routes in one step. Neighbours that are not on the segment any more are
    /// forgotten.
    pub fn set_forwarding(&mut self, new: &Forwarding) {
        self.fib = new.fib(self.seed);
        self.regroup();
        self.own_v4 = Own::new(new.segment_v4.map(|n| n.addr()), new.router_v4);
        self.own_v6 = Own::new(new.segment_v6.map(|n| n.addr()), new.router_v6);
        self.segment_v4 = new.segment_v4;
        self.segment_v6 = new.segment_v6;
        self.broadcast_v4 = broadcast(new.segment_v4);
        self.scheme.set_segment(new.segment_v4, new.segment_v6);
        self.neighbours.retain(|address| match address {
            IpAddr::V4(a) => new.segment_v4.is_some_and(|n| n.contains(&a)),
            IpAddr::V6(a) => new.segment_v6.is_some_and(|n| n.contains(&a)),
        });
    }

    /// Adds a port, the next after the last or one that was removed, or changes one that is there.
    ///
    /// # Panics
    /// If it is neither.
    pub fn set_port(&mut self, id: PortId, port: FabricPort) {
        match self.ports.get_mut(id.index()) {
            Some(old) => *old = port,
            None => {
                assert_eq!(id.index(), self.ports.len(), "the next port");
                self.ports.push(port);
                self.storm.push(storm());
                self.port_errors.push(port_errors());
            }
        }
        self.set_host(id, port.kind == PortKind::Host);
        self.links.set_port(id, port.hello_mode());
        self.regroup();
    }

    /// Takes a port out. Its number may be given to another.
    pub fn remove_port(&mut self, id: PortId) {
        self.set_host(id, false);
        self.links.reset(id);
        // What the port used up of its limits is not held against its successor.
        self.storm[id.index()] = storm();
        self.port_errors[id.index()] = port_errors();
        self.messages[id.index()] = messages();
    }

    /// Changes when hellos are sent.
    pub fn set_hello(&mut self, hello: HelloConfig) {
        let modes: Vec<_> = self.ports.iter().map(FabricPort::hello_mode).collect();
        if self.keeps_links() {
            self.links.set_config(hello, &modes);
        }
        self.regroup();
    }

    fn set_host(&mut self, id: PortId, is_host: bool) {
        let others = self.hosts.without(id);
        let hosts = if is_host { others.with(id) } else { others };
        if hosts != self.hosts {
            self.hosts = hosts;
            self.bridge.set_ports(hosts);
        }
    }
}

/// A segment's directed broadcast address, if its prefix leaves one (RFC 3021).
pub(super) fn broadcast(segment: Option<Ipv4Net>) -> Option<Ipv4Addr> {
    segment.filter(|n| n.prefix_len() < 31).map(|n| n.broadcast())
}
