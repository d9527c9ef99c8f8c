use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::error::{Found, Place, Table, label};
use super::file::out_of_range;
use super::{
    FRAMES, HELLO_INTERVAL, HELLO_MULTIPLIER, HelloMode, HelloOptions, MAX_INTERFACE_NAME, MAX_SOCKET_PATH,
    MAX_SWITCH_NAME, MIN_IPV6_MTU, MTU, PortConfig, QUEUE_BYTES, QUEUE_PACKETS, QueueOptions, RATE, Segment,
    SwitchConfig, WORKERS, place, scheme,
};
use crate::id::{MAX_PORTS, PortKind, Role};
use crate::units::{BitRate, Duration, UnitError};
use crate::wire::MacAddr;

/// Highest core number accepted; the kernel's own limit (NR_CPUS) is 8192, machines have fewer.
const MAX_CORE: usize = 1023;

/// Everything the rules have against `config`.
pub(super) fn problems(config: &SwitchConfig) -> Found {
    let mut found = Found::new();
    identity(config, &mut found);
    if let Some(segment) = &config.segment {
        check_segment(config.role, segment, &mut found);
    }
    place::problems(config, &mut found);
    runtime(config, &mut found);
    found.extend(config.tables().problems());
    scheme::selected(config, &mut found);
    ports(config, &mut found);
    routes(config, &mut found);
    found
}

fn identity(config: &SwitchConfig, found: &mut Found) {
    let mut note = |key, message: String| found.push((Table::Top.key(key), message));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name = &config.name;
    if !name.chars().all(plain) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        note(
            "name",
            format!(
                "name `{name}` can't name a socket and a namespace: \
                 write letters, digits, `.`, `_` and `-`, a letter or digit first"
            ),
        );
    }
    if name.len() > MAX_SWITCH_NAME {
        note("name", format!("name has {} bytes: write at most {MAX_SWITCH_NAME}", name.len()));
    }
    if let Some(reason) = no_station(config.mac) {
        note("mac", format!("mac {} {reason}: write a unicast address, or leave it out", config.mac));
    }
    if let Some((address, reason)) = config.router_ipv4.and_then(|a| Some((a, no_host_v4(a)?))) {
        note("router_ipv4", format!("router_ipv4 {address} {reason}: write a unicast address, like \"10.255.0.1\""));
    }
    if let Some((address, reason)) = config.router_ipv6.and_then(|a| Some((a, no_host_v6(a)?))) {
        note(
            "router_ipv6",
            format!("router_ipv6 {address} {reason}: write a unicast address, like \"fd00:0:ffff::1\""),
        );
    }
}

/// Why no station can have this MAC address.
fn no_station(mac: MacAddr) -> Option<&'static str> {
    match mac {
        MacAddr([0, 0, 0, 0, 0, 0]) => Some("is no address"),
        mac if mac.is_multicast() => Some("is a multicast address"),
        _ => None,
    }
}

/// Why no interface can have this address.
fn no_host_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address {
        a if a.is_multicast() => Some("is a multicast address"),
        a if a.is_loopback() => Some("is a loopback address"),
        // RFC 1122 section 3.2.1.3 (0/8) and RFC 1112 section 4 (240/4, broadcast included).
        a if a.octets()[0] == 0 || a.octets()[0] >= 240 => Some("is no host's address"),
        _ => None,
    }
}

/// Why no routed interface can have this address.
fn no_host_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address {
        a if a.is_multicast() => Some("is a multicast address"),
        a if a.is_loopback() || a.is_unspecified() => Some("is no host's address"),
        a if a.is_unicast_link_local() => Some("is link-local and can't be reached from elsewhere"),
        _ => None,
    }
}

fn check_segment(role: Role, segment: &Segment, found: &mut Found) {
    let mut note = |key, message: String| found.push((Table::Segment.key(key), label(Table::Segment, None) + &message));
    if role != Role::Tor {
        note("", format!("role {role} has no hosts: take [segment] out, or write role = \"tor\""));
    }
    if segment.ipv4.is_none() && segment.ipv6.is_none() {
        note("", "empty: write ipv4 = \"10.0.0.1/24\", ipv6 = \"fd00::1/64\" or both".into());
    }
    if let Some((net, reason)) = segment.ipv4.and_then(|n| Some((n, no_gateway_v4(n)?))) {
        note(
            "ipv4",
            format!("ipv4 {net} {reason}: write the gateway's address and prefix length, like \"10.0.0.1/24\""),
        );
    }
    if let Some((net, reason)) = segment.ipv6.and_then(|n| Some((n, no_gateway_v6(n)?))) {
        note(
            "ipv6",
            format!("ipv6 {net} {reason}: write the gateway's address and prefix length, like \"fd00::1/64\""),
        );
    }
}

fn no_gateway_v4(net: Ipv4Net) -> Option<&'static str> {
    match net.prefix_len() {
        0 => return Some("covers every address"),
        32 => return Some("leaves no address for a host"),
        // Both addresses of a /31 are hosts (RFC 3021 section 2.1).
        31 => {}
        _ if net.addr() == net.network() => return Some("is the segment itself, not a host of it"),
        _ if net.addr() == net.broadcast() => return Some("is the segment's broadcast address"),
        _ => {}
    }
    no_host_v4(net.addr())
}

fn no_gateway_v6(net: Ipv6Net) -> Option<&'static str> {
    match net.prefix_len() {
        0 => return Some("covers every address"),
        128 => return Some("leaves no address for a host"),
        // Both addresses of a /127 are hosts (RFC 6164 section 6).
        127 => {}
        // RFC 4291 section 2.6.1.
        _ if net.addr() == net.network() => return Some("is the segment's subnet-router anycast address"),
        _ => {}
    }
    no_host_v6(net.addr())
}

fn runtime(config: &SwitchConfig, found: &mut Found) {
    let mut note = |key, message: String| found.push((Table::Runtime.key(key), label(Table::Runtime, None) + &message));
    let runtime = &config.runtime;
    if !FRAMES.contains(&runtime.frames) {
        note("frames", out_of_range("frames", runtime.frames, FRAMES));
    }
    if !WORKERS.contains(&runtime.workers) {
        note("workers", out_of_range("workers", runtime.workers, WORKERS));
    }
    if let Some(core) = runtime.core.filter(|c| *c > MAX_CORE) {
        note("core", out_of_range("core", core, 0..=MAX_CORE));
    }
    let control = runtime.control.as_os_str();
    if control.is_empty() || control.len() > MAX_SOCKET_PATH {
        note("control", format!("control is a socket path of {} bytes: write 1 to {MAX_SOCKET_PATH}", control.len()));
    }
}

pub(super) fn queues(queues: &QueueOptions, found: &mut Found) {
    let mut note = |key, message: String| found.push((Table::Queues.key(key), label(Table::Queues, None) + &message));
    for (key, packets) in [("packets", queues.packets), ("control_packets", queues.control_packets)] {
        if !QUEUE_PACKETS.contains(&packets) {
            note(key, out_of_range(key, packets, QUEUE_PACKETS));
        }
    }
    if !QUEUE_BYTES.contains(&queues.bytes.0) {
        note("bytes", out_of_range("bytes", queues.bytes.0, QUEUE_BYTES));
    }
    if queues.ecn_mark >= queues.bytes && queues.ecn_mark.0 > 0 {
        note(
            "ecn_mark",
            format!(
                "ecn_mark {} is never reached, the queue drops from {}: write less, or \"0\" to mark nothing",
                queues.ecn_mark, queues.bytes
            ),
        );
    }
}

pub(super) fn hello(hello: &HelloOptions, found: &mut Found) {
    let mut note = |key, message: String| found.push((Table::Hello.key(key), label(Table::Hello, None) + &message));
    if let Some(reason) = no_interval(hello.interval) {
        note("interval", format!("interval {} {reason}", hello.interval));
    }
    if !HELLO_MULTIPLIER.contains(&hello.multiplier) {
        note("multiplier", out_of_range("multiplier", hello.multiplier, HELLO_MULTIPLIER));
    }
}

fn ports(config: &SwitchConfig, found: &mut Found) {
    if config.ports.is_empty() {
        found.push((Table::Top.key("port"), "no ports: add a [[port]] with interface and kind".into()));
    }
    if config.ports.len() > MAX_PORTS {
        let message = format!("{} ports: a switch has at most {MAX_PORTS}, take some out", config.ports.len());
        found.push((Table::Port(MAX_PORTS).key("interface"), message));
    }
    let ipv6 = config.segment.is_some_and(|s| s.ipv6.is_some())
        || config.routes.iter().any(|r| matches!(r.prefix, IpNet::V6(_)));
    let mut seen = HashMap::new();
    for (i, port) in config.ports.iter().enumerate() {
        let table = Table::Port(i);
        let who = label(table, Some(&port.interface));
        let mut note = |key: &'static str, message: String| found.push((table.key(key), format!("{who}{message}")));
        check_port(config.role, ipv6, port, &mut note);
        if port.hello == HelloMode::Required && config.hello.interval.0 == 0 {
            note("hello", "hello is required, but there are none with [hello] interval 0: write an interval".into());
        }
        if let Some(first) = seen.insert(&port.interface, i) {
            let message = format!("{who}interface is port number {} already: take one out", first + 1);
            found.push((table.key("interface"), message));
        }
    }
}

fn check_port(role: Role, ipv6: bool, port: &PortConfig, note: &mut dyn FnMut(&'static str, String)) {
    let interface = &port.interface;
    // The kernel's own rule: dev_valid_name() in net/core/dev.c.
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if matches!(interface.as_str(), "" | "." | "..") || interface.contains(odd) {
        note("interface", "interface can't be a name in Linux: write one as `ip link` shows it".into());
    }
    if interface.len() > MAX_INTERFACE_NAME {
        note("interface", format!("interface has {} bytes: write at most {MAX_INTERFACE_NAME}", interface.len()));
    }
    match (role, port.kind) {
        (Role::Agg | Role::Core, PortKind::Host) => {
            note(
                "kind",
                format!("kind host on role {role}, which has no hosts: write \"up\" or \"down\", or role = \"tor\""),
            );
        }
        (Role::Core, PortKind::Up) => note("kind", "kind up on role core, the top tier: write \"down\"".into()),
        (Role::Tor, PortKind::Down) => {
            note("kind", "kind down on role tor, the lowest tier: write \"host\" or \"up\"".into());
        }
        _ => {}
    }
    if let Some(reason) = no_rate(port.rate) {
        note("rate", format!("rate {} {reason}", port.rate));
    }
    match port.mtu {
        Some(mtu) if !MTU.contains(&mtu) => note("mtu", out_of_range("mtu", mtu, MTU)),
        Some(mtu) if ipv6 && mtu < MIN_IPV6_MTU => note(
            "mtu",
            format!(
                "mtu {mtu} can't carry IPv6 (RFC 8200): \
                 write at least {MIN_IPV6_MTU}, or take the IPv6 segment and routes out"
            ),
        ),
        _ => {}
    }
    if port.kind == PortKind::Host && port.hello != HelloMode::Off {
        note("hello", "hello on a host port, hosts say none: take it out".into());
    }
    if let Some(mac) = port.peer_mac {
        if port.kind == PortKind::Host {
            note("peer_mac", "peer_mac on a host port, where hosts are learned: take it out".into());
        }
        if let Some(reason) = no_station(mac) {
            note(
                "peer_mac",
                format!("peer_mac {mac} {reason}: write the neighbour's unicast address, or leave it out"),
            );
        }
    }
}

/// Why hellos can't be so far apart, and what to write.
fn no_interval(interval: Duration) -> Option<&'static str> {
    let possible = interval == Duration(0) || HELLO_INTERVAL.contains(&interval.0);
    (!possible).then_some("is out of range: write 1ms to 10s, or \"0\" for no hellos")
}

/// Reads an interval of hellos.
pub(crate) fn hello_interval(text: &str) -> Result<Duration, String> {
    let interval = text.parse().map_err(|e: UnitError| e.to_string())?;
    no_interval(interval).map_or(Ok(interval), |reason| Err(format!("{interval} {reason}")))
}

/// Why no link has this rate, and what to write.
pub(crate) fn no_rate(rate: BitRate) -> Option<&'static str> {
    let possible = rate == BitRate(0) || RATE.contains(&rate.0);
    (!possible).then_some("is no link's: write 1kbit to 10000Gbit with its unit, like \"10Gbit\", or 0 for unlimited")
}

fn routes(config: &SwitchConfig, found: &mut Found) {
    let mut seen = HashMap::new();
    for (i, route) in config.routes.iter().enumerate() {
        let table = Table::Route(i);
        let who = label(table, Some(&route.prefix.to_string()));
        let mut note = |place, message: String| found.push((place, format!("{who}{message}")));
        let prefix = table.key("prefix");
        if route.prefix != route.prefix.trunc() {
            note(prefix, format!("prefix has host bits set: write \"{}\"", route.prefix.trunc()));
        }
        if route.prefix.addr().is_multicast() {
            note(prefix, "prefix is multicast, routes are for unicast: take it out".into());
        }
        if let Some(first) = seen.insert(route.prefix.trunc(), i) {
            note(
                prefix,
                format!("prefix is in route number {} already: make it one route with all the ports", first + 1),
            );
        }
        if let Some(segment) = inside_segment(config, &route.prefix) {
            note(
                prefix,
                format!("prefix overlaps the [segment] {segment}, whose hosts are on this switch: take it out"),
            );
        }
        for (item, id) in route.ports.iter().enumerate() {
            let place = Place { item: Some(item), ..table.key("ports") };
            let Some(port) = config.ports.get(id.index()) else {
                note(place, format!("ports: the switch has no port {id}: name one it has"));
                continue;
            };
            let interface = &port.interface;
            if port.kind == PortKind::Host {
                note(
                    place,
                    format!(
                        "ports: \"{interface}\" is a host port, routes leave by up and down ports: name one of those"
                    ),
                );
            }
            if route.ports[..item].contains(id) {
                note(place, format!("ports: \"{interface}\" is named twice: name it once"));
            }
        }
    }
}

/// The segment that holds all of `prefix`. One that holds the segment is fine: the longer wins.
fn inside_segment(config: &SwitchConfig, prefix: &IpNet) -> Option<IpNet> {
    let segment = config.segment.as_ref()?;
    [segment.ipv4.map(IpNet::V4), segment.ipv6.map(IpNet::V6)]
        .into_iter()
        .flatten()
        .map(|net| net.trunc())
        .find(|net| net.contains(prefix))
}
