//! Namespaces and veths on the real kernel. Needs root; without it each test says so and passes,
//! unless CI=true, where a skipped test is a failure.

mod privilege;

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use privilege::privileged;
use weft::lab::net::{Namespace, NetError, Netlink, VethEnd};

/// Namespaces of one test, removed when it ends, by a panic too.
struct Bed {
    prefix: String,
}

impl Bed {
    fn new(test: &str) -> Bed {
        Bed { prefix: format!("weft-test-{}-{test}-", std::process::id()) }
    }

    fn name(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    fn create(&self, node: &str) -> Result<Namespace, NetError> {
        Namespace::create(&self.name(node))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for name in Namespace::list(&self.prefix).unwrap_or_default() {
            let _ = Namespace::delete(&name);
        }
    }
}

fn run(namespace: &Namespace, command: &[&str]) -> Output {
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    namespace.spawn(&mut child).unwrap().wait_with_output().unwrap()
}

fn end(interface: &str, last: u8) -> VethEnd<'_> {
    VethEnd { interface, mac: [2, 0x77, 0, 0, 0, last] }
}

/// Two namespaces `a` and `b` joined by a veth, both with addresses and default routes.
fn pair(bed: &Bed) -> (Namespace, Namespace, Netlink, Netlink) {
    let (a, b) = (bed.create("a").unwrap(), bed.create("b").unwrap());
    for namespace in [&a, &b] {
        namespace.set_sysctls(&[("net.ipv6.conf.default.accept_dad", "0")]).unwrap();
    }
    let (na, nb) = (Netlink::open(&a).unwrap(), Netlink::open(&b).unwrap());
    na.add_veth(&end("eth0", 1), &end("peer-of-15-char", 2), &b, 1600).unwrap();
    for (netlink, interface) in [(&na, "lo"), (&na, "eth0"), (&nb, "lo"), (&nb, "peer-of-15-char")] {
        netlink.set_up(interface, true).unwrap();
    }
    na.add_address("eth0", "10.9.0.1/24".parse().unwrap()).unwrap();
    na.add_address("eth0", "fd00:9::1/64".parse().unwrap()).unwrap();
    nb.add_address("peer-of-15-char", "10.9.0.2/24".parse().unwrap()).unwrap();
    nb.add_address("peer-of-15-char", "fd00:9::2/64".parse().unwrap()).unwrap();
    (a, b, na, nb)
}

#[test]
fn a_namespace_is_listed_opened_once_created_and_gone_once_deleted() {
    if !privileged("life") {
        return;
    }
    let bed = Bed::new("life");
    let name = bed.name("a");
    let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let namespace = bed.create("a").unwrap();
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), own, "the caller stays where it was");
    assert_eq!(Namespace::list(&bed.prefix).unwrap(), [name.as_str()]);

    let taken = bed.create("a").unwrap_err();
    assert_eq!(taken.errno(), Some(nix::errno::Errno::EEXIST));
    assert!(taken.to_string().contains(&name), "{taken}");

    let inside = Namespace::open(&name).unwrap().run_in(|| std::fs::read_link("/proc/thread-self/ns/net")).unwrap();
    assert_ne!(inside.unwrap(), own);
    let lone: Vec<_> = Netlink::open(&namespace).unwrap().links().unwrap().into_iter().map(|l| l.name).collect();
    assert!(lone.contains(&"lo".to_string()) && !lone.contains(&"eth0".to_string()), "{lone:?}");

    assert!(Namespace::delete(&name).unwrap());
    assert!(!Namespace::delete(&name).unwrap(), "the second delete finds nothing");
    assert_eq!(Namespace::open(&name).unwrap_err().errno(), Some(nix::errno::Errno::ENOENT));
}

#[test]
fn names_that_are_no_file_names_are_refused_before_anything_is_touched() {
    for name in ["", ".", "..", "a/b", "../etc"] {
        assert_eq!(Namespace::create(name).unwrap_err().errno(), Some(nix::errno::Errno::EINVAL), "{name:?}");
        assert_eq!(Namespace::delete(name).unwrap_err().errno(), Some(nix::errno::Errno::EINVAL), "{name:?}");
    }
}

#[test]
fn a_file_left_without_its_mount_is_removed_by_delete() {
    if !privileged("stale") {
        return;
    }
    let bed = Bed::new("stale");
    std::fs::write(Namespace::path(&bed.name("a")), "").unwrap();
    assert!(Namespace::delete(&bed.name("a")).unwrap());
    assert_eq!(Namespace::list(&bed.prefix).unwrap(), Vec::<String>::new());
}

#[test]
fn iproute2_enters_a_namespace_made_here() {
    if !privileged("iproute2") {
        return;
    }
    let bed = Bed::new("iproute2");
    let (a, ..) = pair(&bed);
    let shown = Command::new("ip").args(["netns", "exec", a.name(), "ip", "-br", "link"]).output();
    let Ok(shown) = shown else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI needs iproute2");
        let _ = writeln!(std::io::stderr(), "SKIPPED iproute2: there is no `ip` on this machine");
        return;
    };
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success() && text.contains("eth0"), "{text}{}", String::from_utf8_lossy(&shown.stderr));
}

#[test]
fn a_veth_has_the_names_macs_mtu_and_queues_asked_for_and_carrier() {
    if !privileged("veth") {
        return;
    }
    let bed = Bed::new("veth");
    let (a, b, na, nb) = pair(&bed);
    let near = na.links().unwrap().into_iter().find(|l| l.name == "eth0").unwrap();
    let far = nb.links().unwrap().into_iter().find(|l| l.name == "peer-of-15-char").unwrap();
    for (link, last) in [(&near, 1), (&far, 2)] {
        assert_eq!((link.mac, link.mtu, link.up, link.carrier), ([2, 0x77, 0, 0, 0, last], 1600, true, true));
    }
    for (namespace, interface) in [(&a, "eth0"), (&b, "peer-of-15-char")] {
        let link = run(namespace, &["ip", "-d", "link", "show", "dev", interface]);
        let text = String::from_utf8_lossy(&link.stdout).into_owned();
        assert!(text.contains("numtxqueues 1 ") && text.contains("numrxqueues 1 "), "{text}");
    }
    nb.set_up("peer-of-15-char", false).unwrap();
    let near = na.links().unwrap().into_iter().find(|l| l.name == "eth0").unwrap();
    assert!(near.up && !near.carrier, "the far end went down: {near:?}");
}

#[test]
fn hosts_ping_each_other_over_ipv4_and_ipv6_right_after_set_up() {
    if !privileged("ping") {
        return;
    }
    let bed = Bed::new("ping");
    let (a, _b, na, _nb) = pair(&bed);
    for gateway in ["10.9.0.2", "fd00:9::2"] {
        na.add_default_route(gateway.parse::<IpAddr>().unwrap()).unwrap();
    }
    // 127.0.0.1 needs loopback up; the others need an address that is not tentative any more.
    for target in ["127.0.0.1", "10.9.0.2", "fd00:9::2"] {
        let ping = run(&a, &["ping", "-c1", "-W2", target]);
        assert!(ping.status.success(), "{target}: {}", String::from_utf8_lossy(&ping.stdout));
    }
    let routes = run(&a, &["ip", "route"]).stdout;
    assert!(String::from_utf8_lossy(&routes).contains("default via 10.9.0.2 dev eth0"));
    let unreachable = na.add_default_route("192.0.2.1".parse().unwrap()).unwrap_err();
    assert!(unreachable.to_string().contains("192.0.2.1") && unreachable.to_string().contains("address"));
}

#[test]
fn sysctls_are_set_in_the_namespace_and_nowhere_else() {
    if !privileged("sysctl") {
        return;
    }
    let bed = Bed::new("sysctl");
    let (a, b) = (bed.create("a").unwrap(), bed.create("b").unwrap());
    a.set_sysctls(&[("net.ipv4.ip_default_ttl", "77")]).unwrap();
    let read = |ns: &Namespace| ns.run_in(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl")).unwrap();
    assert_eq!(read(&a).unwrap().trim(), "77");
    assert_eq!(read(&b).unwrap().trim(), "64");
    let error = a.set_sysctls(&[("net.ipv4.no_such_key", "1")]).unwrap_err().to_string();
    assert!(error.contains("net.ipv4.no_such_key"), "{error}");
}

#[test]
fn errors_of_netlink_name_the_interface_and_the_namespace() {
    if !privileged("errors") {
        return;
    }
    let bed = Bed::new("errors");
    let (a, b, na, _nb) = pair(&bed);
    let taken = na.add_veth(&end("eth0", 3), &end("other", 4), &b, 1500).unwrap_err();
    assert_eq!(taken.errno(), Some(nix::errno::Errno::EEXIST));
    let missing = na.add_address("eth7", "10.9.1.1/24".parse().unwrap()).unwrap_err();
    assert_eq!(missing.errno(), Some(nix::errno::Errno::ENODEV));
    for text in [taken.to_string(), missing.to_string()] {
        assert!(text.contains(a.name()) && text.contains("eth"), "{text}");
    }
    let command = a.spawn(&mut Command::new("/no/such/command")).unwrap_err().to_string();
    assert!(command.contains("/no/such/command") && command.contains("No such file"), "{command}");
}

#[test]
fn the_namespaces_and_veths_of_a_fat_tree_of_k_4_come_up_quickly() {
    if !privileged("fat") {
        return;
    }
    let bed = Bed::new("fat");
    let start = Instant::now();
    let nodes: Vec<_> = (0..36).map(|i| bed.create(&i.to_string()).unwrap()).collect();
    for i in 0..48 {
        let (a, b) = (&nodes[i % 36], &nodes[(i * 7 + 5) % 36]);
        let (near, far) = (format!("n{i}"), format!("f{i}"));
        Netlink::open(a).unwrap().add_veth(&end(&near, i as u8), &end(&far, i as u8 + 100), b, 1600).unwrap();
    }
    let took = start.elapsed();
    eprintln!("36 namespaces and 48 veths in {took:?}");
    // A bound on runaway cost (a namespace costs milliseconds), far above what a loaded machine needs.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
