//! A plan becomes namespaces, veths and addresses.

use std::collections::BTreeMap;

use super::net::{Namespace, Netlink, VethEnd};
use super::plan::{EndPlan, HostPlan, Plan};
use super::{LabError, LabName};

/// A host's addresses are usable the moment they are given (no duplicate address detection), and it
/// takes addresses and routes from the lab alone (no router solicitation, no router advertisement).
/// `default` holds for interfaces that come later, which all do. The kernel's own IPv6 may be switched
/// off machine-wide: it is on here.
const HOST_SYSCTLS: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.dad_transmits", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.autoconf", "0"),
];

/// In a switch's namespace the kernel has no address and, with IPv6 off, says nothing of its own (no
/// ND, no MLD): every frame on the wire is the switch's.
const SWITCH_SYSCTLS: &[(&str, &str)] =
    &[("net.ipv6.conf.all.disable_ipv6", "1"), ("net.ipv6.conf.default.disable_ipv6", "1")];

/// Builds all of `plan`; `keep_going` is asked before every node.
///
/// What was built stays when it fails: the caller removes it.
pub(super) fn build(
    lab: &LabName,
    plan: &Plan,
    mut keep_going: impl FnMut() -> Result<(), LabError>,
) -> Result<(), LabError> {
    let hosts: BTreeMap<&str, &HostPlan> = plan.hosts.iter().map(|host| (host.name.as_str(), host)).collect();
    // (end, the other end, MTU) of every interface, by node.
    let mut ends: BTreeMap<&str, Vec<(&EndPlan, &EndPlan, u16)>> = BTreeMap::new();
    for link in &plan.links {
        ends.entry(&link.a.node).or_default().push((&link.a, &link.b, link.mtu));
        ends.entry(&link.b.node).or_default().push((&link.b, &link.a, link.mtu));
    }

    let mut namespaces = BTreeMap::new();
    for node in plan.nodes() {
        keep_going()?;
        let namespace = Namespace::create(&lab.namespace(node))?;
        namespace.set_sysctls(if hosts.contains_key(node) { HOST_SYSCTLS } else { SWITCH_SYSCTLS })?;
        namespaces.insert(node, namespace);
    }

    // One netlink socket at a time, a node at a time: of descriptors, only the namespaces' own grow with
    // the fabric, one a node. The first of two nodes to come makes their link, so at its turn each node
    // has all its interfaces.
    for (node, namespace) in &namespaces {
        keep_going()?;
        let netlink = Netlink::open(namespace)?;
        netlink.set_up("lo", true)?;
        for (near, far, mtu) in ends.get(node).into_iter().flatten() {
            if near.node <= far.node {
                let far_in = &namespaces[far.node.as_str()];
                netlink.add_veth(&veth_end(near), &veth_end(far), far_in, (*mtu).into())?;
            }
            netlink.set_up(&near.interface, true)?;
        }
        // An agent has the addresses for its own device.
        if let Some(host) = hosts.get(node).filter(|host| host.agent.is_none()) {
            for address in &host.addresses {
                netlink.add_address(&host.interface, *address)?;
            }
        }
    }

    // A route needs its link's carrier, so both ends up.
    for host in plan.hosts.iter().filter(|host| host.agent.is_none()) {
        keep_going()?;
        let netlink = Netlink::open(&namespaces[host.name.as_str()])?;
        for gateway in &host.gateways {
            netlink.add_default_route(*gateway)?;
        }
    }
    Ok(())
}

fn veth_end(end: &EndPlan) -> VethEnd<'_> {
    VethEnd { interface: &end.interface, mac: end.mac.0 }
}
