use std::net::IpAddr;

use crate::bed::Kind::Host;
use crate::bed::{Bed, Lab, ping_all_pairs, turn};
use crate::books;
use crate::traffic::{IcmpError, tcp, udp_error};

/// ICMP types and codes of RFC 792 and RFC 4443, by family.
struct Words {
    time_exceeded: (u8, u8),
    no_route: (u8, u8),
    host_unreachable: (u8, u8),
    port_unreachable: (u8, u8),
    too_big: (u8, u8),
}

fn words(of: IpAddr) -> Words {
    match of {
        IpAddr::V4(_) => Words {
            time_exceeded: (11, 0),
            no_route: (3, 0),
            host_unreachable: (3, 1),
            port_unreachable: (3, 3),
            too_big: (3, 4),
        },
        IpAddr::V6(_) => Words {
            time_exceeded: (3, 0),
            no_route: (1, 0),
            host_unreachable: (1, 3),
            port_unreachable: (1, 4),
            too_big: (2, 0),
        },
    }
}

fn said(error: Option<IcmpError>, (kind, code): (u8, u8)) -> IpAddr {
    let error = error.expect("an ICMP error");
    assert_eq!((error.kind, error.code), (kind, code), "{error:?}");
    error.from
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_packet_with_each_ttl_is_answered_by_the_next_router_of_the_path() {
    let Some(_turn) = turn("traceroute") else { return };
    let lab = Lab::up("path", &["--leaf-spine", "2x2"]);
    let (from, to) = (lab.host("h0-0-2"), lab.host("h0-1-2"));
    for (target, near, spine, far) in [
        (IpAddr::from(to.ipv4), ip("10.0.0.1"), "10.255.", ip("10.0.1.1")),
        (IpAddr::from(to.ipv6), ip("fd00::1"), "fd00:0:ffff:", ip("fd00:0:0:1::1")),
    ] {
        let words = words(target);
        let hop = |ttl| udp_error(from, target, ttl, 32);
        assert_eq!(said(hop(1), words.time_exceeded), near);
        let second = said(hop(2), words.time_exceeded).to_string();
        assert!(second.starts_with(spine), "the second hop is a spine: {second}");
        assert_eq!(said(hop(3), words.time_exceeded), far);
        assert_eq!(said(hop(4), words.port_unreachable), target);
    }
    // The tool that people use, over both families: the same path by name of its hops.
    for (target, near, far) in
        [(to.ipv4.to_string(), "10.0.0.1", "10.0.1.1"), (to.ipv6.to_string(), "fd00::1", "fd00:0:0:1::1")]
    {
        let shown = from.ok(&["traceroute", "-n", "-q", "1", "-w", "3", "-m", "6", &target]);
        let hops: Vec<_> = shown.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops.len(), 4, "{shown}");
        assert_eq!((hops[0], hops[2], hops[3]), (near, far, target.as_str()), "{shown}");
    }
    lab.check_books();
    let dropped: u64 = lab
        .switches
        .iter()
        .flat_map(|(_, s)| books::ports(s).0)
        .flat_map(|p| p.ingress_drops)
        .map(|(reason, n)| if reason == "ttl_expired" { n } else { 0 })
        .sum();
    assert!(dropped >= 6, "each is a counted drop: {dropped}");
}

#[test]
fn a_dead_host_a_missing_route_and_a_gateway_without_a_service_are_told_to_the_sender() {
    let Some(_turn) = turn("unreachable") else { return };
    let lab = Lab::up("dead", &["--leaf-spine", "2x2"]);
    let from = lab.host("h0-0-2");
    for (dead, router, nowhere, gateway) in [
        (ip("10.0.1.200"), ip("10.0.1.1"), ip("10.9.9.9"), ip("10.0.0.1")),
        (ip("fd00:0:0:1::200"), ip("fd00:0:0:1::1"), ip("fd00:0:9:9::9"), ip("fd00::1")),
    ] {
        let words = words(dead);
        assert_eq!(said(udp_error(from, dead, 64, 32), words.host_unreachable), router);
        said(udp_error(from, nowhere, 64, 32), words.no_route);
        assert_eq!(said(udp_error(from, gateway, 64, 32), words.port_unreachable), gateway);
    }
    lab.check_books();
    let drops = &books::port(lab.socket("leaf1"), "spine0").ingress_drops;
    let other = &books::port(lab.socket("leaf1"), "spine1").ingress_drops;
    let unresolved = |drops: &weft::runtime::report::DropMap| drops.get("neighbour_unresolved").copied().unwrap_or(0);
    assert_eq!(unresolved(drops) + unresolved(other), 2, "{drops:?} {other:?}");
}

#[test]
fn a_packet_over_the_mtu_of_the_way_out_is_answered_with_that_mtu() {
    let Some(_turn) = turn("too-big") else { return };
    let bed = Bed::new("mtu", &[Host, Host]);
    let (a, b) = (&bed.hosts[0], &bed.hosts[1]);
    // A narrow link to `b`; and `a` sends all it has through the gateway, so that packets are routed.
    b.ok(&["ip", "link", "set", "eth0", "mtu", "1300"]);
    for change in [
        "addr flush dev eth0 scope global",
        "addr add 10.77.0.2/32 dev eth0",
        "addr add fd77::2/128 dev eth0 nodad",
        "route replace 10.77.0.1/32 dev eth0",
        "route replace default via 10.77.0.1",
        "-6 route replace fd77::1/128 dev eth0",
        "-6 route replace default via fd77::1",
    ] {
        a.ok(&[&["ip"], change.split(' ').collect::<Vec<_>>().as_slice()].concat());
    }
    let toml = bed.toml("").replacen("interface = \"p1\"", "interface = \"p1\"\nmtu = 1300", 1);
    let switch = bed.start(&toml, &[]);
    for (target, gateway) in [(IpAddr::from(b.ipv4), Bed::GATEWAYS[0]), (IpAddr::from(b.ipv6), Bed::GATEWAYS[1])] {
        a.ping(target, &[]).answered();
        let error = udp_error(a, target, 64, 1400).expect("an ICMP error");
        let (kind, code) = words(target).too_big;
        assert_eq!(error, IcmpError { from: gateway, kind, code, info: 1300 });
        // The host has learned the path's MTU: what it sends now, in pieces or smaller segments, arrives.
        tcp(a, b, target, 1 << 20);
        a.ping(target, &["-s", "2500"]).answered();
    }
    let ports = books::at_rest(&switch.socket);
    assert_eq!(ports[0].ingress_drops.get("too_big"), Some(&2), "{ports:?}");
    assert_eq!(ports[1].mtu, 1300);
    switch.stop();
}

#[test]
fn a_gateway_pings_back_while_hosts_of_a_rack_come_and_go() {
    let Some(_turn) = turn("flap") else { return };
    let lab = Lab::up("flap", &["--rack", "2"]);
    ping_all_pairs(&lab.hosts);
    let (a, b) = (&lab.hosts[0], &lab.hosts[1]);
    b.ok(&["ip", "link", "set", "eth0", "down"]);
    a.ping(ip("10.0.0.1"), &[]).answered();
    b.ok(&["ip", "link", "set", "eth0", "up"]);
    // The kernel forgets a route when its link goes down; the segment needs none.
    b.ok(&["ip", "addr", "replace", &format!("{}/64", b.ipv6), "dev", "eth0", "nodad"]);
    b.ok(&["ip", "-6", "route", "replace", "default", "via", "fd00::1"]);
    b.ok(&["ip", "route", "replace", "default", "via", "10.0.0.1"]);
    ping_all_pairs(&lab.hosts);
    lab.check_books();
}
