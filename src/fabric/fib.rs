use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::id::PortMask;
use crate::pisa::table::{Group, GroupId, GroupTable, Lpm};

/// Where packets for a prefix go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHop {
    /// To the addressed host itself, on this switch's segment.
    Connected,
    /// Over one port of a group.
    Group(GroupId),
}

/// The forwarding table: longest prefix to next hop, IPv4 and IPv6, and the groups behind it.
///
/// A fabric's routing needs two levels: prefixes that lie below the switch point to one port each,
/// the default route points to the group of uplinks.
#[derive(Debug)]
pub struct Fib {
    v4: Lpm<u32, NextHop>,
    v6: Lpm<u128, NextHop>,
    groups: GroupTable,
}

impl Fib {
    /// An empty table; `seed` seeds its hashes.
    pub fn new(seed: u64) -> Self {
        Fib { v4: Lpm::new(seed), v6: Lpm::new(seed), groups: GroupTable::new() }
    }

    /// Routes `prefix` over `ports`, replacing what was there.
    pub fn set_route(&mut self, prefix: IpNet, ports: PortMask) {
        let group = self.groups.intern(vec![ports]);
        self.set(prefix, NextHop::Group(group));
    }

    /// Routes `prefix` to hosts of this switch's segment, replacing what was there.
    pub fn set_connected(&mut self, prefix: IpNet) {
        self.set(prefix, NextHop::Connected);
    }

    fn set(&mut self, prefix: IpNet, hop: NextHop) {
        match prefix {
            IpNet::V4(p) => self.v4.insert(p.addr().to_bits(), p.prefix_len(), hop),
            IpNet::V6(p) => self.v6.insert(p.addr().to_bits(), p.prefix_len(), hop),
        };
    }

    /// Takes a prefix out; whether it was there.
    pub fn remove(&mut self, prefix: IpNet) -> bool {
        match prefix {
            IpNet::V4(p) => self.v4.remove(p.addr().to_bits(), p.prefix_len()).is_some(),
            IpNet::V6(p) => self.v6.remove(p.addr().to_bits(), p.prefix_len()).is_some(),
        }
    }

    /// The next hop of an IPv4 address.
    #[inline]
    pub fn lookup_v4(&self, address: Ipv4Addr) -> Option<NextHop> {
        self.v4.get(address.to_bits()).copied()
    }

    /// The next hop of an IPv6 address.
    #[inline]
    pub fn lookup_v6(&self, address: Ipv6Addr) -> Option<NextHop> {
        self.v6.get(address.to_bits()).copied()
    }

    /// The group `id`.
    #[inline]
    pub fn group(&self, id: GroupId) -> &Group {
        self.groups.get(id)
    }

    /// Ports that may be chosen; the others leave every group at once.
    pub fn set_live(&mut self, live: PortMask) {
        self.groups.set_live(live);
    }

    /// Every route: prefix, next hop.
    pub fn routes(&self) -> Vec<(IpNet, NextHop)> {
        let net = |addr: IpAddr, len| IpNet::new(addr, len).expect("lengths come from prefixes");
        let v4 = self.v4.iter().map(|(k, len, hop)| (net(Ipv4Addr::from_bits(k.unwrap_or(0)).into(), len), *hop));
        let v6 = self.v6.iter().map(|(k, len, hop)| (net(Ipv6Addr::from_bits(k.unwrap_or(0)).into(), len), *hop));
        let mut routes: Vec<_> = v4.chain(v6).collect();
        routes.sort_by_key(|(prefix, _)| *prefix);
        routes
    }
}
