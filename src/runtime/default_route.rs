//! Whether an interface carries this machine's default route, which a switch on it would cut off.

use std::io;
use std::time::Duration;

use futures::TryStreamExt;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use std::net::{Ipv4Addr, Ipv6Addr};
use tokio::runtime::Builder;

use crate::port::xdp::Device;

/// How long the kernel may take to tell all routes: millions of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Refuses an interface of this thread's namespace by which the default route leads, of either family,
/// unless `force`.
///
/// # Errors
/// The interface and the remedy, or why the routes can't be read.
pub(super) fn check_default_route(device: &Device, force: bool) -> Result<(), String> {
    if force {
        return Ok(());
    }
    let name = &device.name;
    match carries(device.index) {
        Ok(false) => Ok(()),
        Ok(true) => Err(format!(
            "interface `{name}`: it carries the default route of this machine, whose traffic weft would take over; use \
             another interface, or say --force"
        )),
        Err(cause) => Err(format!("the routes by interface `{name}`: {cause}; --force does without them")),
    }
}

/// Whether a default route leads by interface `index` of this thread's namespace.
fn carries(index: u32) -> io::Result<bool> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let look = async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let asked = [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()];
        let mut found = false;
        for family in asked {
            let mut routes = std::pin::pin!(handle.route().get(family).execute());
            while let Some(route) = routes.try_next().await.map_err(io::Error::other)? {
                found |= is_default_by(&route, index);
            }
        }
        connection.abort();
        Ok(found)
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, look).await })?
}

/// Whether a route is one of the main table's to everywhere, and leads by interface `index`, alone or
/// among others.
fn is_default_by(route: &RouteMessage, index: u32) -> bool {
    // Numbers over 255 are in an attribute, beside a number here that is not the main table's.
    let header = &route.header;
    let is_default = header.destination_prefix_length == 0
        && header.table == RouteHeader::RT_TABLE_MAIN
        && header.kind == RouteType::Unicast;
    is_default
        && route.attributes.iter().any(|attribute| match attribute {
            RouteAttribute::Oif(by) => *by == index,
            RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_route::route::RouteNextHop;

    fn route(prefix: u8, table: u8, kind: RouteType, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header = RouteHeader { destination_prefix_length: prefix, table, kind, ..RouteHeader::default() };
        route.attributes = attributes;
        route
    }

    #[test]
    fn a_default_route_counts_for_each_interface_it_leads_by_and_no_other_route_does() {
        const MAIN: u8 = RouteHeader::RT_TABLE_MAIN;
        let by = |index| vec![RouteAttribute::Priority(100), RouteAttribute::Oif(index)];
        let hop = |index| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop
        };
        let several = vec![RouteAttribute::MultiPath(vec![hop(2), hop(3)])];
        for (description, route, expected) in [
            ("by it", route(0, MAIN, RouteType::Unicast, by(3)), true),
            ("by another", route(0, MAIN, RouteType::Unicast, by(2)), false),
            ("by it and another", route(0, MAIN, RouteType::Unicast, several), true),
            ("half of all addresses", route(1, MAIN, RouteType::Unicast, by(3)), false),
            ("another table", route(0, 100, RouteType::Unicast, by(3)), false),
            ("an unreachable default", route(0, MAIN, RouteType::Unreachable, by(3)), false),
            ("a discard route", route(0, MAIN, RouteType::BlackHole, vec![]), false),
        ] {
            assert_eq!(is_default_by(&route, 3), expected, "{description}");
        }
    }
}
