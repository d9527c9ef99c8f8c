use std::net::IpAddr;
use std::thread;

use crate::bed::{Bed, Host, Lab, ping_all_pairs, turn};
use crate::traffic::{tcp, udp_echo};

/// Bytes each way of a checked TCP connection: a few thousand segments, several windows.
const STREAM: usize = 3 << 20;

/// The first host of a lab, one under the same leaf, and one under another.
fn near_and_far(lab: &Lab) -> [&Host; 3] {
    [lab.host("h0-0-2"), lab.host("h0-0-3"), lab.host("h0-1-2")]
}

#[test]
fn all_pairs_of_a_leaf_spine_fabric_and_their_gateways_answer_ping_over_both_families() {
    let Some(_turn) = turn("ping-fabric") else { return };
    let lab = Lab::up("ping", &["--leaf-spine", "2x2"]);
    ping_all_pairs(&lab.hosts);
    let mut pings = Vec::new();
    for host in &lab.hosts {
        // The own gateway, and the far one, which is a router's address like any other.
        for gateway in ["10.0.0.1", "10.0.1.1", "fd00::1", "fd00:0:0:1::1"] {
            pings.push(host.ping(gateway.parse().unwrap(), &[]));
        }
    }
    let [first, near, far] = near_and_far(&lab);
    for host in [near, far] {
        // The largest packet in one piece, and one in three.
        pings.push(first.ping(host.ipv4.into(), &["-s", "1472", "-M", "do"]));
        pings.push(first.ping(host.ipv6.into(), &["-s", "1452", "-M", "do"]));
        pings.extend(host.addresses().map(|address| first.ping(address, &["-s", "4000"])));
    }
    pings.into_iter().for_each(crate::bed::Pings::answered);
    lab.check_books();
}

#[test]
fn switches_that_say_hello_hear_each_other_and_lose_nothing_to_it() {
    let Some(_turn) = turn("hello") else { return };
    let lab = Lab::up_talking("hello", &["--leaf-spine", "2x2"]);
    ping_all_pairs(&lab.hosts);
    for (name, socket) in &lab.switches {
        for port in crate::books::ports(socket).0.iter().filter(|p| !p.port.starts_with('h')) {
            // A dead link would show as a packet that found no way.
            assert!(port.generated > 10 && port.consumed > 10 && port.drops == 0, "{name}: {port:?}");
        }
    }
}

#[test]
fn all_pairs_of_a_rack_answer_ping_over_both_families() {
    let Some(_turn) = turn("ping-rack") else { return };
    let lab = Lab::up("rack", &["--rack", "3"]);
    ping_all_pairs(&lab.hosts);
    lab.check_books();
}

#[test]
fn tcp_with_default_offloads_carries_every_byte_both_ways_at_once() {
    let Some(_turn) = turn("tcp") else { return };
    let lab = Lab::up("tcp", &["--leaf-spine", "2x2"]);
    let [first, near, far] = near_and_far(&lab);
    // The default is what the test is about: checksums are left to the "device".
    let offloads = first.ok(&["ethtool", "-k", "eth0"]);
    assert!(offloads.contains("tx-checksumming: on"), "{offloads}");
    for server in [near, far] {
        for address in server.addresses() {
            tcp(first, server, address, STREAM);
        }
    }
    // Several at once, both leaves serving, so that flows meet on the spines.
    thread::scope(|scope| {
        for address in far.addresses() {
            scope.spawn(move || tcp(near, far, address, STREAM));
        }
        for address in first.addresses() {
            scope.spawn(move || tcp(far, first, address, STREAM));
        }
    });
    lab.check_books();
    let completed: u64 = crate::books::ports(lab.socket("leaf0")).0.iter().map(|p| p.device.checksums_completed).sum();
    assert!(completed > 0, "the hosts left checksums open, and the switch completed them");
}

#[test]
fn udp_of_every_size_comes_back_as_it_was() {
    let Some(_turn) = turn("udp") else { return };
    let lab = Lab::up("udp", &["--leaf-spine", "2x2"]);
    let [first, near, far] = near_and_far(&lab);
    for address in far.addresses() {
        let largest = if address.is_ipv4() { 1472 } else { 1452 };
        udp_echo(first, far, address, 0..=largest);
    }
    for address in near.addresses() {
        udp_echo(first, near, address, (0..=1452).step_by(11));
    }
    lab.check_books();
}

#[test]
fn fragmented_datagrams_arrive_whole() {
    let Some(_turn) = turn("fragments") else { return };
    let lab = Lab::up("frag", &["--leaf-spine", "2x2"]);
    let [first, near, far] = near_and_far(&lab);
    for server in [near, far] {
        for address in server.addresses() {
            // Around the first cut, thrice the MTU, and the largest there is.
            let largest = 65_507;
            udp_echo(first, server, address, [1473, 1480, 2000, 4000, 4001, 8000, 30_000, largest, largest]);
        }
    }
    lab.check_books();
    // All fragments of a datagram take one path: the later ones, which have no ports, do not stray.
    let up: Vec<_> = crate::books::ports(lab.socket("leaf0")).0.into_iter().filter(|p| p.tx > 0).collect();
    assert!(up.iter().all(|p| p.egress_drops.is_empty()), "{up:?}");
}

#[test]
fn generic_mode_carries_the_same_traffic_and_says_so() {
    use crate::bed::Kind::Host;
    let Some(_turn) = turn("generic") else { return };
    let bed = Bed::new("generic", &[Host, Host]);
    let switch = bed.start(&bed.toml(""), &["--mode", "generic"]);
    let [a, b] = [&bed.hosts[0], &bed.hosts[1]];
    assert!(switch.log().contains("tso off gso off"), "{}", switch.log());
    for host in [a, b] {
        host.ok(&["ethtool", "-K", "eth0", "tso", "off", "gso", "off"]);
    }
    ping_all_pairs(&bed.hosts);
    for gateway in Bed::GATEWAYS {
        a.ping(gateway, &[]).answered();
    }
    let address: [IpAddr; 2] = b.addresses();
    for to in address {
        tcp(a, b, to, STREAM);
        udp_echo(a, b, to, (0..=1452).step_by(7));
    }
    for port in crate::books::at_rest(&switch.socket) {
        assert_eq!(port.mode.to_string(), "generic");
    }
    assert!(bed.ip_link("p0").contains("xdpgeneric"), "{}", bed.ip_link("p0"));
    switch.stop();
    bed.assert_detached();
}
