use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::id::MAX_PORTS;
use crate::wire::MacAddr;

/// Second octet of the switches' own addresses, 10.255.0.0/16; so pods end before it.
pub const ROUTER_OCTET: u8 = 255;
/// Third group of the switches' own IPv6 addresses, fd00:0:ffff::/48.
pub const ROUTER_GROUP: u16 = 0xffff;
/// Last octet of the first host of a segment; the ToR is .1.
pub const FIRST_HOST: u8 = 2;

// A switch has MAX_PORTS ports, which bounds pods, planes, racks of a pod and hosts of a rack far
// below what an octet holds; that is why no builder can run out of addresses.
const _: () = assert!(MAX_PORTS + (FIRST_HOST as usize) < 255 && 2 * MAX_PORTS < 254);

/// Host `octet` (1 = the ToR) of rack `tor` in `pod`: 10.pod.tor.octet/24.
pub fn segment_v4(pod: u8, tor: u8, octet: u8) -> Ipv4Net {
    net_v4([10, pod, tor, octet], 24)
}

/// Host `octet` (1 = the ToR) of rack `tor` in `pod`: fd00:0:pod:tor::octet/64.
pub fn segment_v6(pod: u8, tor: u8, octet: u8) -> Ipv6Net {
    net_v6([pod.into(), tor.into()], octet.into(), 64)
}

/// The prefixes of a rack: 10.pod.tor.0/24 and fd00:0:pod:tor::/64.
pub fn rack_prefixes(pod: u8, tor: u8) -> [IpNet; 2] {
    [segment_v4(pod, tor, 0).into(), segment_v6(pod, tor, 0).into()]
}

/// The prefixes of a pod: 10.pod.0.0/16 and fd00:0:pod::/48.
pub fn pod_prefixes(pod: u8) -> [IpNet; 2] {
    [net_v4([10, pod, 0, 0], 16).into(), net_v6([pod.into(), 0], 0, 48).into()]
}

/// Everything: 0.0.0.0/0 and ::/0.
pub fn default_prefixes() -> [IpNet; 2] {
    [Ipv4Net::default().into(), Ipv6Net::default().into()]
}

/// Number within its plane of the aggregation switch of `pod`.
///
/// Plane j is aggregation switch j of every pod and the cores they reach; a spine is a plane by
/// itself. One prefix a plane lets a ToR reach all of them with one route each, by uplink j.
pub fn agg_number(pod: u8) -> u8 {
    1 + pod
}

/// Number within its plane of core `m` (or of the spine, `m` = 0); above all of [`agg_number`].
pub fn core_number(m: u8) -> u8 {
    1 + MAX_PORTS as u8 + m
}

/// Own addresses of the switch with `number` in `plane`: 10.255.plane.number, fd00:0:ffff:plane::number.
pub fn router(plane: u8, number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = net_v6([ROUTER_GROUP, plane.into()], number.into(), 128);
    (Ipv4Addr::new(10, ROUTER_OCTET, plane, number), v6.addr())
}

/// The same as host routes.
pub fn router_prefixes(plane: u8, number: u8) -> [IpNet; 2] {
    let (v4, v6) = router(plane, number);
    [IpNet::from(std::net::IpAddr::V4(v4)), IpNet::from(std::net::IpAddr::V6(v6))]
}

/// The prefixes of all switches of a plane: 10.255.plane.0/24 and fd00:0:ffff:plane::/64.
pub fn plane_prefixes(plane: u8) -> [IpNet; 2] {
    [net_v4([10, ROUTER_OCTET, plane, 0], 24).into(), net_v6([ROUTER_GROUP, plane.into()], 0, 64).into()]
}

/// MAC of a host, 02:68:00 and its place; a switch's has 77 as second octet ([`crate::config::derived_mac`]).
pub fn host_mac(pod: u8, tor: u8, octet: u8) -> MacAddr {
    MacAddr([0x02, 0x68, 0, pod, tor, octet])
}

fn net_v4(octets: [u8; 4], len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from(octets), len)
}

fn net_v6(pod_and_tor: [u16; 2], interface_id: u16, len: u8) -> Ipv6Net {
    let [pod, tor] = pod_and_tor;
    Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0, pod, tor, 0, 0, 0, interface_id), len)
}
