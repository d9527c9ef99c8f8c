use std::thread;
use std::time::Duration;

use crate::bed::Kind::{Host, Up};
use crate::bed::{self, Bed, Lab, measured, ping_all_pairs, turn};
use crate::books;
use crate::packet::{LONGEST, Numbers, PacketSocket, SHORTEST, bad_frame, destinations, ethernet};
use crate::traffic::tcp;

/// Frames of every length from one host, `rounds` of each; how many were sent.
fn blast(host: &bed::Host, gateway: [u8; 6], neighbour: [u8; 6], seed: u64, rounds: usize) -> u64 {
    let socket = PacketSocket::open(host);
    let mac = host.mac();
    let mut numbers = Numbers(seed);
    let mut sent = 0;
    for _ in 0..rounds {
        for len in SHORTEST..=LONGEST {
            let to = destinations(gateway, neighbour)[numbers.below(5) as usize];
            socket.send(&bad_frame(&mut numbers, len, to, mac, host));
            sent += 1;
            if sent % 64 == 0 {
                // The point is the bytes, not the rate: a receive ring of the switch holds the rest.
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
    sent
}

/// The MAC address a switch derives from its number in the configuration of a bed.
const BED_GATEWAY: [u8; 6] = [2, 0x77, 0, 0, 0, 7];

#[test]
fn bad_frames_of_every_length_at_every_host_port_harm_nobody() {
    let Some(_turn) = turn("bad-fabric") else { return };
    let lab = Lab::up("bad", &["--leaf-spine", "2x2"]);
    ping_all_pairs(&lab.hosts);
    let mut all = 0;
    for (i, (host, near)) in [(0, 1), (1, 0), (2, 3), (3, 2)].into_iter().enumerate() {
        let (host, near) = (&lab.hosts[host], &lab.hosts[near]);
        let tor = lab.links.iter().find(|(a, _)| *a == host.name).expect("a host has a link").1.clone();
        let before = books::port(lab.socket(&tor), &host.name);
        let gateway = host.neighbour(if i < 2 { "10.0.0.1" } else { "10.0.1.1" });
        let sent = blast(host, gateway, near.mac(), i as u64, 3);
        let after = books::at_rest(lab.socket(&tor)).into_iter().find(|p| p.port == host.name).unwrap();
        let seen = after.rx - before.rx + books::lost_at_device(&after) - books::lost_at_device(&before);
        assert!(seen >= sent, "{sent} were sent, {seen} seen at {}", host.name);
        assert_eq!(after.state, "up");
        all += sent;
    }
    measured("malformed frames", &format!("{all} sent, each counted"));
    // No reason stays untouched that such frames can have; each is counted under its own name.
    let (ports, ..) = books::ports(lab.socket("leaf0"));
    for reason in
        ["truncated_tag", "truncated_l3", "bad_ip_version", "bad_ip_checksum", "multicast_source", "no_listener"]
    {
        assert!(ports.iter().any(|p| p.ingress_drops.contains_key(reason)), "{reason}: {ports:?}");
    }
    ping_all_pairs(&lab.hosts);
    tcp(&lab.hosts[0], &lab.hosts[2], lab.hosts[2].ipv4.into(), 1 << 20);
    lab.check_books();
}

#[test]
fn bad_frames_at_an_uplink_harm_nobody_either() {
    let Some(_turn) = turn("bad-uplink") else { return };
    let bed = Bed::new("bad", &[Host, Host, Up]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts[..2]);
    let up = &bed.hosts[2];
    let fabric_mac = weft::config::FABRIC_MAC.0;
    let sent = blast(up, fabric_mac, BED_GATEWAY, 77, 4);
    let ports = books::at_rest(&switch.socket);
    assert!(ports[2].rx + books::lost_at_device(&ports[2]) >= sent, "{sent} sent: {:?}", ports[2]);
    for reason in ["not_for_us", "unknown_ethertype", "truncated_tag", "truncated_l3", "bad_ip_version"] {
        assert!(ports[2].ingress_drops.contains_key(reason), "{reason}: {:?}", ports[2]);
    }
    ping_all_pairs(&bed.hosts[..2]);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn a_broadcast_storm_is_bounded_and_leaves_the_switch_answering() {
    let Some(_turn) = turn("storm") else { return };
    let bed = Bed::new("storm", &[Host, Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let before = books::at_rest(&switch.socket);
    let socket = PacketSocket::open(&bed.hosts[0]);
    let mut frame = ethernet([0xff; 6], bed.hosts[0].mac(), &[], 0x88b5);
    frame.resize(60, 0);
    // More at once than the limit of a port lets pass; fewer than its ring holds would not do.
    let sent = 20_000;
    let start = std::time::Instant::now();
    for _ in 0..sent {
        socket.send(&frame);
    }
    let took = start.elapsed();
    ping_all_pairs(&bed.hosts);
    let after = books::at_rest(&switch.socket);
    let limited = after[0].ingress_drops.get("storm_limited").copied().unwrap_or(0);
    let flooded = after[1].tx - before[1].tx;
    let lost = books::lost_at_device(&after[0]) - books::lost_at_device(&before[0]);
    // Burst and rate of the limit (fabric::ingress), over the time it took and some; 100 frames of pings.
    let bound = 2_000.0 + 20_000.0 * (took.as_secs_f64() + 1.0) + 100.0;
    assert!((flooded as f64) < bound, "{flooded} flooded in {took:?}");
    assert!(limited + lost > 0 && flooded + limited + lost >= sent, "{flooded} + {limited} + {lost}");
    switch.stop();
}
