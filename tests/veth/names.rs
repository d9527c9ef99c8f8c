use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use weft::lab::net::{Namespace, Netlink, VethEnd};

use crate::bed::Kind::Host;
use crate::bed::{Bed, Lab, measured, ping_all_pairs, turn};
use crate::books;
use crate::faults::{ip, nothing_is_lost_while, wait_down, wait_up};

/// Gives an interface of the switch's namespace another name, for which it has to be down.
fn rename(bed: &Bed, from: &str, to: &str) {
    ip(&bed.switch, &format!("link set {from} down"));
    ip(&bed.switch, &format!("link set {from} name {to}"));
    ip(&bed.switch, &format!("link set {to} up"));
}

#[test]
fn a_port_follows_its_name_not_its_interface_and_others_lose_nothing() {
    let Some(_turn) = turn("rename") else { return };
    let bed = Bed::new("rename", &[Host; 4]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let mut back = Duration::ZERO;
    let lost = nothing_is_lost_while(&bed, || {
        rename(&bed, "p2", "q2");
        wait_down(&switch, "p2", "interface is gone");
        assert!(!bed.ip_link("q2").contains("xdp"), "given up under its new name: {}", bed.ip_link("q2"));
        rename(&bed, "q2", "p2");
        back = wait_up(&switch, "p2");
        assert!(back < Duration::from_secs(1), "{back:?}");
    });
    ping_all_pairs(&bed.hosts);
    // Two that swap their names: each port finds the other's interface.
    rename(&bed, "p2", "q2");
    rename(&bed, "p3", "p2");
    rename(&bed, "q2", "p3");
    let swapped = wait_up(&switch, "p2") + wait_up(&switch, "p3");
    measured("interfaces renamed", &format!("{lost}, back after {:.2?}", back.max(swapped)));
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

#[test]
fn a_switchs_namespace_that_is_made_anew_under_its_name_is_where_its_ports_are_then() {
    let Some(_turn) = turn("anew-ns") else { return };
    let lab = Lab::up("anewns", &["--rack", "2"]);
    ping_all_pairs(&lab.hosts);
    let name = format!("weft-{}.tor0-0", lab.name);
    let socket = lab.socket("tor0-0");
    Namespace::delete(&name).unwrap();
    let anew = Namespace::create(&name).unwrap();
    let near = Netlink::open(&anew).unwrap();
    for (i, host) in (0u8..).zip(&lab.hosts) {
        // The old one lives on as long as the switch has sockets in it, and the wire with it.
        let mut old = Command::new("ip");
        old.args(["link", "del", "eth0"]).stderr(std::process::Stdio::null());
        let _ = host.netns.spawn(&mut old).unwrap().wait();
        let port = VethEnd { interface: &host.name, mac: [2, 0x77, 4, 0, 0, i] };
        let eth0 = VethEnd { interface: "eth0", mac: [2, 0x77, 5, 0, 0, i] };
        near.add_veth(&port, &eth0, &host.netns, 1500).unwrap();
        near.set_up(&host.name, true).unwrap();
        let far = Netlink::open(&host.netns).unwrap();
        far.set_up("eth0", true).unwrap();
        far.add_address("eth0", format!("{}/24", host.ipv4).parse().unwrap()).unwrap();
        far.add_address("eth0", format!("{}/64", host.ipv6).parse().unwrap()).unwrap();
    }
    let start = Instant::now();
    let attached = || {
        let mut command = Command::new("ip");
        command.args(["-d", "link"]).stdout(std::process::Stdio::piped());
        let output = anew.spawn(&mut command).unwrap().wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).matches("prog/xdp").count() == lab.hosts.len()
    };
    while !attached() || books::ports(socket).0.iter().any(|p| p.state != "up") {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", books::ports(socket).0);
        thread::sleep(Duration::from_millis(20));
    }
    let attached = start.elapsed();
    // What comes in the milliseconds between program and socket is lost, and with it a host's first question,
    // which it repeats after a second.
    let (from, to) = (&lab.hosts[0], lab.hosts[1].ipv4.to_string());
    while !from.spawn(&["ping", "-c", "1", "-W", "1", &to]).wait().unwrap().success() {
        assert!(start.elapsed() < Duration::from_secs(5), "it does not forward");
    }
    let forwards = start.elapsed();
    measured(
        "switch's namespace made anew",
        &format!("attached after {attached:.2?}, a ping answered after {forwards:.2?}"),
    );
    ping_all_pairs(&lab.hosts);
    books::at_rest(socket);
    lab.down();
}
