//! An interface's addresses and routes as they are, to be put on another one.

use std::net::{Ipv4Addr, Ipv6Addr};

use futures::TryStreamExt;
use nix::errno::Errno;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol};
use rtnetlink::packet_route::{AddressFamily, route::RouteFlags};

use super::{NetError, Netlink};

/// What was given to an interface: addresses, and the routes of the main table that lead by it alone. Not what the
/// kernel makes by itself: link-local addresses of IPv6, and the routes to the addresses' prefixes.
#[derive(Debug, Default, Clone)]
pub struct InterfaceConfig {
    addresses: Vec<AddressMessage>,
    routes: Vec<RouteMessage>,
}

impl InterfaceConfig {
    /// Whether there is nothing of either.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.routes.is_empty()
    }
}

impl Netlink {
    /// The addresses and routes of `interface`.
    ///
    /// # Errors
    /// `ENODEV` for an unknown interface.
    pub fn config_of(&self, interface: &str) -> Result<InterfaceConfig, NetError> {
        let step = || format!("cannot read the addresses and routes of `{interface}`");
        let index = self.index_of(interface, step)?;
        let addresses = self.handle.address().get().set_link_index_filter(index).execute();
        let mut addresses: Vec<AddressMessage> = self.run(addresses.try_collect(), step)?;
        addresses.retain(|a| {
            a.header.index == index
                && !(a.header.family == AddressFamily::Inet6 && a.header.scope == AddressScope::Link)
        });
        let mut routes = Vec::new();
        for family in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
            let all: Vec<RouteMessage> = self.run(self.handle.route().get(family).execute().try_collect(), step)?;
            routes.extend(all.into_iter().filter(|route| is_given(route, index)));
        }
        Ok(InterfaceConfig { addresses, routes })
    }

    /// Takes what `config` has off `interface`; what is gone already is no error.
    ///
    /// # Errors
    /// `ENODEV` for an unknown interface, `EPERM` without CAP_NET_ADMIN.
    pub fn remove_config(&self, interface: &str, config: &InterfaceConfig) -> Result<(), NetError> {
        let gone = |result: Result<(), NetError>| match result {
            Err(e) if matches!(e.errno(), Some(Errno::ESRCH | Errno::EADDRNOTAVAIL | Errno::ENODEV)) => Ok(()),
            other => other,
        };
        for route in &config.routes {
            let step = || format!("cannot take a route off `{interface}`");
            gone(self.run(self.handle.route().del(route.clone()).execute(), step))?;
        }
        // The last first: with the first address of a prefix the others may go too.
        for address in config.addresses.iter().rev() {
            let step = || format!("cannot take an address off `{interface}`");
            gone(self.run(self.handle.address().del(address.clone()).execute(), step))?;
        }
        Ok(())
    }

    /// Gives `interface`, which is up, what `config` has, IPv6 addresses without duplicate address detection. All is
    /// tried, whatever the kernel says of one; what is there already is done.
    ///
    /// # Errors
    /// The first that was refused: `ENODEV` for an unknown interface, `ENETUNREACH` for a next hop that no address
    /// reaches.
    pub fn add_config(&self, interface: &str, config: &InterfaceConfig) -> Result<(), NetError> {
        if config.is_empty() {
            return Ok(());
        }
        let step = || format!("cannot give `{interface}` an address that another interface had");
        let index = self.index_of(interface, step)?;
        let mut failed = None;
        for address in &config.addresses {
            let mut address = address.clone();
            address.header.index = index;
            // A label begins with the name of the interface that it is of.
            address.attributes.retain(|a| !matches!(a, AddressAttribute::Label(_) | AddressAttribute::Flags(_)));
            if address.header.family == AddressFamily::Inet6 {
                address.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
            let mut request = self.handle.address().add(index, Ipv4Addr::UNSPECIFIED.into(), 0);
            *request.message_mut() = address;
            failed = failed.or(refused(self.run(request.execute(), step)));
        }
        let mut routes: Vec<_> = config.routes.iter().map(|route| through(route, index)).collect();
        // A route's next hop may be reached by one that the kernel listed behind it.
        loop {
            let (before, mut first) = (routes.len(), None);
            routes.retain(|route| {
                let step = || format!("cannot give `{interface}` a route that another interface had");
                let refused = refused(self.run(self.handle.route().add(route.clone()).execute(), step));
                let again = refused.is_some();
                first = first.take().or(refused);
                again
            });
            if routes.is_empty() || routes.len() == before {
                return failed.or(first).map_or(Ok(()), Err);
            }
        }
    }

    fn index_of(&self, interface: &str, step: impl FnOnce() -> String) -> Result<u32, NetError> {
        self.link_by_name(interface).map(|link| link.header.index).map_err(|e| self.fail(step(), e))
    }
}

/// The error, unless it says that this is there already.
fn refused(result: Result<(), NetError>) -> Option<NetError> {
    result.err().filter(|error| error.errno() != Some(Errno::EEXIST))
}

/// The same route by interface `index`.
fn through(route: &RouteMessage, index: u32) -> RouteMessage {
    let mut route = route.clone();
    // What the kernel says of a route's state is nothing to ask for.
    route.header.flags = RouteFlags::empty();
    route.attributes.retain(|a| !matches!(a, RouteAttribute::CacheInfo(_)));
    for attribute in &mut route.attributes {
        if let RouteAttribute::Oif(by) = attribute {
            *by = index;
        }
    }
    route
}

/// Whether somebody made a route of the main table that leads by interface `index` alone.
fn is_given(route: &RouteMessage, index: u32) -> bool {
    let by = |a: &RouteAttribute| matches!(a, RouteAttribute::Oif(by) if *by == index);
    route.header.table == RouteHeader::RT_TABLE_MAIN
        && route.header.protocol != RouteProtocol::Kernel
        && route.attributes.iter().any(by)
}
