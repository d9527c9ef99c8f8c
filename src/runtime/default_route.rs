//! Whether an interface carries this machine's default route, which a switch on it would cut off.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use futures::TryStreamExt;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use std::net::{Ipv4Addr, Ipv6Addr};
use tokio::runtime::Builder;

use crate::port::xdp::Device;

/// How long the kernel may take to tell all routes: millions of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Refuses an interface of this thread's namespace by which the default route leads, of either family,
/// also as a part of another interface (of a bridge or bond, or under a VLAN), unless `force`.
///
/// # Errors
/// The interface and the remedy, or why the routes can't be read.
pub(crate) fn check_default_route(device: &Device, force: bool) -> Result<(), String> {
    if force {
        return Ok(());
    }
    let name = &device.name;
    match routed(device.index) {
        Ok(None) => Ok(()),
        Ok(Some(by)) => {
            let by = if by == *name { String::new() } else { format!(" by `{by}`") };
            Err(format!(
                "interface `{name}`: it carries the default route of this machine{by}, whose traffic weft would take over; \
                 use another interface, or say --force"
            ))
        }
        Err(cause) => Err(format!("the routes by interface `{name}`: {cause}; --force does without them")),
    }
}

/// The interface by which a default route leads whose frames go by interface `index` of this thread's
/// namespace, if there is one.
fn routed(index: u32) -> io::Result<Option<String>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let look = async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let asked = [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()];
        let mut routed = Vec::new();
        for family in asked {
            let mut routes = std::pin::pin!(handle.route().get(family).execute());
            while let Some(route) = routes.try_next().await.map_err(io::Error::other)? {
                routed.extend(default_by(&route));
            }
        }
        let mut links = Vec::new();
        if !routed.is_empty() {
            let mut messages = std::pin::pin!(handle.link().get().execute());
            while let Some(message) = messages.try_next().await.map_err(io::Error::other)? {
                links.push(Link::of(&message));
            }
        }
        connection.abort();
        let by = routed.into_iter().find(|by| carriers(*by, &links).contains(&index));
        Ok(by.map(|by| links.into_iter().find(|l| l.index == by).map_or_else(|| format!("#{by}"), |l| l.name)))
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, look).await })?
}

/// The interfaces that a route of the main table's to everywhere leads by: none if it is another route.
fn default_by(route: &RouteMessage) -> Vec<u32> {
    // Numbers over 255 are in an attribute, beside a number here that is not the main table's.
    let header = &route.header;
    let is_default = header.destination_prefix_length == 0
        && header.table == RouteHeader::RT_TABLE_MAIN
        && header.kind == RouteType::Unicast;
    let by = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Oif(by) => vec![*by],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    };
    if is_default { route.attributes.iter().flat_map(by).collect() } else { Vec::new() }
}

/// How an interface stands to others of its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    name: String,
    /// The bridge, bond or team that it is of (IFLA_MASTER).
    master: Option<u32>,
    /// What it is on top of, as a VLAN is (IFLA_LINK).
    lower: Option<u32>,
}

impl Link {
    fn of(message: &LinkMessage) -> Link {
        let mut link = Link { index: message.header.index, ..Link::default() };
        let mut is_lower_here = true;
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Controller(master) => link.master = Some(*master),
                LinkAttribute::Link(lower) => link.lower = Some(*lower),
                // It is another namespace's.
                LinkAttribute::LinkNetNsId(_) => is_lower_here = false,
                // It is the other end: what is sent here arrives there, it does not leave by it.
                LinkAttribute::LinkInfo(infos) => {
                    let is_pair = |info: &LinkInfo| matches!(info, LinkInfo::Kind(InfoKind::Veth | InfoKind::Netkit));
                    is_lower_here &= !infos.iter().any(is_pair);
                }
                _ => {}
            }
        }
        link.lower = link.lower.filter(|_| is_lower_here);
        link
    }
}

/// The interfaces by which frames leave that are sent by interface `by`: itself, the members of what is a
/// master, and what it is on top of, of each of these in turn.
fn carriers(by: u32, links: &[Link]) -> BTreeSet<u32> {
    let mut carriers = BTreeSet::new();
    let mut next = vec![by];
    while let Some(index) = next.pop() {
        if carriers.insert(index) {
            next.extend(links.iter().filter(|link| link.master == Some(index)).map(|link| link.index));
            next.extend(links.iter().filter(|link| link.index == index).filter_map(|link| link.lower));
        }
    }
    carriers
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
            ("by one", route(0, MAIN, RouteType::Unicast, by(3)), &[3][..]),
            ("by one and another", route(0, MAIN, RouteType::Unicast, several), &[2, 3]),
            ("half of all addresses", route(1, MAIN, RouteType::Unicast, by(3)), &[]),
            ("another table", route(0, 100, RouteType::Unicast, by(3)), &[]),
            ("an unreachable default", route(0, MAIN, RouteType::Unreachable, by(3)), &[]),
            ("a discard route", route(0, MAIN, RouteType::BlackHole, vec![]), &[]),
        ] {
            assert_eq!(default_by(&route), expected, "{description}");
        }
    }

    #[test]
    fn a_route_is_carried_by_members_of_its_master_and_by_what_its_interface_is_on_top_of() {
        let link = |index, master, lower| Link { index, name: String::new(), master, lower };
        let links = [
            link(1, None, None),
            // A bridge with a NIC and a bond of two.
            link(10, None, None),
            link(11, Some(10), None),
            link(12, Some(10), None),
            link(13, Some(12), None),
            link(14, Some(12), None),
            // A VLAN on a VLAN on a NIC, and a VLAN on the bridge.
            link(20, None, None),
            link(21, None, Some(20)),
            link(22, None, Some(21)),
            link(23, None, Some(10)),
            // Nothing the kernel would make: each on top of the other.
            link(30, None, Some(31)),
            link(31, None, Some(30)),
        ];
        for (description, by, expected) in [
            ("a NIC", 1, &[1][..]),
            ("one that is gone", 9, &[9]),
            ("a bridge", 10, &[10, 11, 12, 13, 14]),
            ("a bond", 12, &[12, 13, 14]),
            ("a member, not its master", 11, &[11]),
            ("a VLAN on a VLAN", 22, &[20, 21, 22]),
            ("a VLAN's parent, not the VLAN", 20, &[20]),
            ("a VLAN on a bridge", 23, &[10, 11, 12, 13, 14, 23]),
            ("a circle", 30, &[30, 31]),
        ] {
            assert_eq!(carriers(by, &links), expected.iter().copied().collect(), "{description}");
        }
    }

    #[test]
    fn the_other_end_of_a_pair_and_an_interface_elsewhere_are_nothing_to_be_on_top_of() {
        let kind = |kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        for (description, attributes, lower) in [
            ("a VLAN", vec![LinkAttribute::Link(5), kind(InfoKind::Vlan)], Some(5)),
            ("a veth", vec![LinkAttribute::Link(5), kind(InfoKind::Veth)], None),
            ("a VLAN's parent elsewhere", vec![LinkAttribute::LinkNetNsId(0), LinkAttribute::Link(5)], None),
        ] {
            let mut message = LinkMessage::default();
            message.header.index = 7;
            message.attributes = [attributes, vec![LinkAttribute::Controller(9)]].concat();
            let expected = Link { index: 7, name: String::new(), master: Some(9), lower };
            assert_eq!(Link::of(&message), expected, "{description}");
        }
    }
}
