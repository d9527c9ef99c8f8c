use std::fs;
use std::net::Ipv6Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use weft::lab::net::Namespace;

use crate::bed::Kind::Host;
use crate::bed::{self, Bed, Lab, Switch, ping_all_pairs, text, turn, weft, weft_ok};
use crate::books;
use crate::faults::{ip, rewire, wait_down, wait_up};
use crate::packet::{PacketSocket, ethernet};
use crate::run::refused;
use crate::traffic::tcp;

/// Bits of linux/capability.h.
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const IPC_LOCK: u64 = 1 << 14;
const SYS_ADMIN: u64 = 1 << 21;
const BPF: u64 = 1 << 39;
/// What `weft run` keeps.
const KEPT: u64 = NET_ADMIN | NET_RAW | BPF;
/// `nobody`, who has no privilege of his own.
const NOBODY: u32 = 65534;

/// `setpriv` arguments for a user without privileges who is given `capabilities`.
fn as_nobody(capabilities: &[&str]) -> Vec<String> {
    let list: String = capabilities.iter().map(|cap| format!(",+{cap}")).collect();
    let sets = ["--inh-caps", "--ambient-caps", "--bounding-set"].map(|set| format!("{set}=-all{list}"));
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()];
    [vec!["setpriv".into()], user.to_vec(), sets.to_vec()].concat()
}

/// Gives the bed's directory with its files to `nobody`, and returns a copy of `weft` there that he may
/// run.
fn give_to_nobody(bed: &Bed) -> PathBuf {
    let own = bed.path("weft");
    fs::copy(env!("CARGO_BIN_EXE_weft"), &own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    chown(bed.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    own
}

fn strings(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

/// Holds every thread of a process to a set of capabilities and a bounding set.
fn assert_capabilities(pid: u32, kept: u64, bounding: u64) {
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim();
        let set = |name: &str| u64::from_str_radix(field(name), 16).unwrap();
        let sets = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:", "CapBnd:"].map(set);
        assert_eq!(sets, [kept, kept, 0, 0, bounding], "{status}");
        assert_eq!(field("NoNewPrivs:"), "1", "{status}");
        threads += 1;
    }
    assert!(threads >= 4, "main, worker, keeper, control: {threads}");
}

/// Loses a port and gets it back, changes by reload, and has a port taken away and added.
fn assert_changes_work(bed: &Bed, switch: &Switch) {
    let socket = switch.socket.to_str().unwrap();
    ip(&bed.hosts[1].netns, "link del eth0");
    wait_down(switch, "p1", "interface is gone");
    rewire(bed, 1);
    wait_up(switch, "p1");
    let toml = fs::read_to_string(bed.path("s.toml")).unwrap();
    bed.write("s.toml", &toml.replace("id = 7", "id = 7\nrouter_ipv4 = \"10.99.0.1\""));
    assert!(weft_ok(&["reload", "--socket", socket]).contains("addresses changed"));
    weft_ok(&["port", "del", "p1", "--socket", socket]);
    weft_ok(&["port", "add", "p1", "--kind", "host", "--socket", socket]);
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
}

#[test]
fn every_thread_keeps_what_reopening_a_port_takes_and_nothing_else() {
    let Some(_turn) = turn("caps") else { return };
    let bed = Bed::new("caps", &[Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    assert_capabilities(switch.pid(), KEPT, KEPT);
    assert_changes_work(&bed, &switch);
    assert_capabilities(switch.pid(), KEPT, KEPT);
    let socket = switch.socket.clone();
    switch.stop();
    assert!(!socket.exists());
    bed.assert_detached();
}

#[test]
fn a_lab_keeps_what_entering_its_namespaces_takes_as_well() {
    let Some(_turn) = turn("caps-lab") else { return };
    let lab = Lab::up("caps", &["--rack", "2"]);
    let status: serde_json::Value =
        serde_json::from_str(&weft_ok(&["lab", "status", "--json", "--name", &lab.name])).unwrap();
    let pid = status["pid"].as_u64().expect("a lab that runs has a process") as u32;
    assert_capabilities(pid, KEPT | SYS_ADMIN, KEPT | SYS_ADMIN);
    // A port comes back, in the namespace of its switch.
    let (switch, socket) = &lab.switches[0];
    let port = books::ports(socket).0[0].port.clone();
    let namespace = Namespace::open(&format!("weft-{}.{switch}", lab.name)).unwrap();
    let socket_text = socket.to_str().unwrap();
    weft_ok(&["port", "del", &port, "--socket", socket_text]);
    weft_ok(&["reload", "--socket", socket_text]);
    ip(&namespace, &format!("link set {port} down"));
    ip(&namespace, &format!("link set {port} up"));
    ping_all_pairs(&lab.hosts);
    lab.check_books();
    lab.down();
}

#[test]
fn a_user_with_the_documented_capabilities_runs_a_switch_that_mends_its_ports() {
    let Some(_turn) = turn("caps-user") else { return };
    let bed = Bed::new("user", &[Host, Host]);
    let own = give_to_nobody(&bed);
    let before = as_nobody(&["net_admin", "net_raw", "bpf", "sys_admin", "ipc_lock"]);
    let switch = bed.start_by(&strings(&before), &own, &bed.toml(""), &[]);
    assert_eq!(fs::metadata(format!("/proc/{}", switch.pid())).unwrap().uid(), NOBODY);
    // Taking something out of the bounding set takes CAP_SETPCAP, which it was not given.
    assert_capabilities(switch.pid(), KEPT, KEPT | SYS_ADMIN | IPC_LOCK);
    assert_changes_work(&bed, &switch);
    assert_eq!(fs::metadata(&switch.socket).unwrap().uid(), NOBODY);
    let socket = switch.socket.clone();
    switch.stop();
    assert!(!socket.exists() && !bed.path("s.sock.lock").exists());
    bed.assert_detached();
}

#[test]
fn without_sys_admin_all_ports_but_the_first_are_mended_and_without_ipc_lock_memory_is_limited() {
    let Some(_turn) = turn("caps-three") else { return };
    let bed = Bed::new("three", &[Host, Host, Host]);
    let own = give_to_nobody(&bed);
    let three = as_nobody(&["net_admin", "net_raw", "bpf"]);
    let limit = ["prlimit".to_string(), format!("--memlock={0}:{0}", 8 << 20)];
    let before = [&limit, &three[..]].concat();
    let said = bed.fail_by(&strings(&before), &own, &bed.toml(""), &[]);
    refused(&said, &["16384 x 2048 bytes", "CAP_IPC_LOCK", "ulimit -l"]);

    // 4 MiB.
    let toml = bed.toml("").replace("[runtime]", "[runtime]\nframes = 2048");
    let switch = bed.start_by(&strings(&before), &own, &toml, &[]);
    assert_capabilities(switch.pid(), KEPT, KEPT);
    assert_changes_work(&bed, &switch);
    // The first port is the one that its memory hangs on.
    ip(&bed.hosts[0].netns, "link del eth0");
    wait_down(&switch, "p0", "interface is gone");
    rewire(&bed, 0);
    wait_down(&switch, "p0", "AF_XDP socket on `p0`");
    ping_all_pairs(&bed.hosts[1..]);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn a_capability_that_is_missing_is_named_and_nothing_is_touched() {
    let Some(_turn) = turn("caps-miss") else { return };
    let bed = Bed::new("miss", &[Host, Host]);
    for missing in ["net_admin", "net_raw", "bpf"] {
        let bounding = format!("--bounding-set=-{missing}");
        let said = bed.fail_by(&["setpriv", &bounding], env!("CARGO_BIN_EXE_weft").as_ref(), &bed.toml(""), &[]);
        let name = format!("lacks CAP_{} to", missing.to_uppercase());
        refused(&said, &[&name, "root", "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF"]);
        assert!(!bed.socket().exists());
        bed.assert_detached();
    }
    let own = give_to_nobody(&bed);
    let said = bed.fail_by(&strings(&as_nobody(&[])), &own, &bed.toml(""), &[]);
    refused(&said, &["CAP_NET_RAW to", "CAP_NET_ADMIN to", "CAP_BPF to"]);
}

#[test]
fn an_interface_with_the_default_route_is_refused_at_start_and_later_unless_forced() {
    let Some(_turn) = turn("default") else { return };
    let bed = Bed::new("deflt", &[Host, Host]);
    bed.switch.set_sysctls(&[("net.ipv6.conf.p1.disable_ipv6", "0")]).unwrap();
    let (toml, default) = (bed.toml(""), ["`p1`", "default route", "another interface", "--force"]);
    let two_ways = "route add default nexthop dev p0 onlink via 10.77.0.2 nexthop dev p1 onlink via 10.77.0.3";
    ip(&bed.switch, "address add 10.77.0.100/24 dev p0");
    ip(&bed.switch, "address add 10.78.0.100/24 dev p1");
    for (add, del) in [
        ("route add default via 10.78.0.1 dev p1", "route del default"),
        ("-6 route add default dev p1", "-6 route del default"),
    ] {
        ip(&bed.switch, add);
        refused(&bed.fail(&toml, &[]), &default);
        bed.assert_detached();
        ip(&bed.switch, del);
    }
    ip(&bed.switch, two_ways);
    refused(&bed.fail(&toml, &[]), &["`p0`", "default route"]);
    bed.start(&toml, &["--force"]).stop();
    ip(&bed.switch, "route del default");

    // A bridge with the port in it, and what is on top of the port as a VLAN would be.
    for (make, by, end) in [
        (&["link add br0 up type bridge", "link set p1 master br0"][..], "br0", "link del br0"),
        (&["link add link p1 name top up type macvlan"], "top", "link del top"),
    ] {
        make.iter().for_each(|make| ip(&bed.switch, make));
        ip(&bed.switch, &format!("route add default dev {by}"));
        refused(&bed.fail(&toml, &[]), &["`p1`", "default route", by, "--force"]);
        bed.assert_detached();
        ip(&bed.switch, end);
    }

    // A port that is added, by hand and by file, and one whose interface comes back.
    let alone = toml.split("[[port]]\ninterface = \"p1\"").next().unwrap().to_string();
    let switch = bed.start(&alone, &[]);
    let socket = switch.socket.to_str().unwrap();
    ip(&bed.switch, "route add default via 10.78.0.1 dev p1");
    bed.write("s.toml", &toml);
    for command in [&["port", "add", "p1", "--kind", "host", "--socket", socket][..], &["reload", "--socket", socket]] {
        let said = weft(command);
        assert!(!said.status.success() && default.iter().all(|part| text(&said).contains(part)), "{}", text(&said));
        assert!(!bed.ip_link("p1").contains("xdp"));
    }
    ip(&bed.switch, "route del default");
    weft_ok(&["reload", "--socket", socket]);
    ping_all_pairs(&bed.hosts);
    switch.stop();
}

/// The namespace of a bed's switch as a host with these addresses.
fn kernel_of(bed: &Bed, ipv4: &str, ipv6: &str) -> bed::Host {
    bed::Host {
        name: "kernel".into(),
        netns: Namespace::open(bed.switch.name()).unwrap(),
        ipv4: ipv4.parse().unwrap(),
        ipv6: ipv6.parse().unwrap(),
    }
}

/// An ARP request of `host` for `target`.
fn arp_request(host: &bed::Host, target: [u8; 4], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut request = ethernet([0xff; 6], host.mac(), tags, 0x0806);
    request.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    request.extend([&host.mac()[..], &host.ipv4.octets(), &[0; 6], &target].concat());
    request
}

/// Whether an ARP request for `target` from one host gets to another.
fn arp_reaches(from: &bed::Host, to: &bed::Host, target: [u8; 4]) -> bool {
    let (near, far) = (PacketSocket::open(from), PacketSocket::open(to));
    let request = arp_request(from, target, &[]);
    near.send(&request);
    far.receive(Duration::from_millis(500), |frame| frame.starts_with(&request)).is_some()
}

/// Neighbour advertisements of `target` that one ping of it brings, nothing being known of it.
fn advertisements(host: &bed::Host, target: Ipv6Addr) -> usize {
    let socket = PacketSocket::open(host);
    host.ok(&["ip", "neigh", "flush", "dev", "eth0"]);
    assert!(answers(host, &target.to_string()));
    let mut count = 0;
    socket.receive(Duration::from_millis(300), |frame| {
        let is = frame.len() >= 78 && frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame[54] == 136;
        count += usize::from(is && frame[62..78] == target.octets());
        false
    });
    count
}

/// How many answers to an ARP request for `target` come within half a second, by their senders.
fn arp_answers(host: &bed::Host, target: [u8; 4], tags: &[(u16, u16)]) -> Vec<[u8; 6]> {
    let socket = PacketSocket::open(host);
    socket.send(&arp_request(host, target, tags));
    let mut answers = Vec::new();
    socket.receive(Duration::from_millis(500), |frame| {
        if frame.len() >= 42 && frame[12..14] == [8, 6] && frame[20..22] == [0, 2] && frame[28..32] == target {
            answers.push(frame[22..28].try_into().unwrap());
        }
        false
    });
    answers
}

fn answers(host: &bed::Host, target: &str) -> bool {
    host.spawn(&["ping", "-n", "-c", "1", "-W", "1", target]).wait_with_output().unwrap().status.success()
}

/// Waits until pings of `target` are answered, or no longer are.
fn wait_answers(host: &bed::Host, target: &str, expected: bool) {
    let start = Instant::now();
    while answers(host, target) != expected {
        assert!(start.elapsed() < Duration::from_secs(10), "{target}: {expected}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn frames_to_a_ports_own_addresses_are_the_kernels_if_it_says_so_and_all_others_are_the_switchs() {
    let Some(_turn) = turn("own") else { return };
    let bed = Bed::new("own", &[Host, Host]);
    bed.switch.set_sysctls(&[("net.ipv6.conf.p0.disable_ipv6", "0"), ("net.ipv6.conf.p0.accept_dad", "0")]).unwrap();
    ip(&bed.switch, "address add 10.77.0.100/24 dev p0");
    ip(&bed.switch, "address add fd77::100/64 dev p0 nodad");
    let (near, kernel) = (&bed.hosts[0], kernel_of(&bed, "10.77.0.100", "fd77::100"));

    // Without the key, every frame is the switch's.
    let switch = bed.start(&bed.toml(""), &[]);
    assert!(!answers(near, "10.77.0.100") && !answers(near, "fd77::100"));
    assert_eq!(arp_answers(near, [10, 77, 0, 100], &[]), Vec::<[u8; 6]>::new());
    switch.stop();

    let toml = bed.toml("").replace("interface = \"p0\"", "interface = \"p0\"\npass_to_kernel = true");
    for mode in ["native", "generic"] {
        let switch = bed.start(&toml, &["--mode", mode]);
        wait_answers(near, "10.77.0.100", true);
        for address in kernel.addresses() {
            near.ping(address, &[]).answered();
            tcp(near, &kernel, address, 1 << 18);
        }
        // In pieces, too.
        near.ping(kernel.ipv4.into(), &["-s", "4000"]).answered();
        near.ping(kernel.ipv6.into(), &["-s", "4000"]).answered();
        // The kernel can ask and speak first.
        kernel.ok(&["ip", "neigh", "flush", "dev", "p0"]);
        near.addresses().into_iter().for_each(|address| kernel.ping(address, &[]).answered());
        ping_all_pairs(&bed.hosts);
        near.ping(Bed::GATEWAYS[0], &[]).answered();
        near.ping(Bed::GATEWAYS[1], &[]).answered();

        // One answer, the interface's; the gateway's is still the switch's; a tagged question is no
        // question for the interface.
        assert_eq!(arp_answers(near, [10, 77, 0, 100], &[]), [[2, 0x77, 1, 0, 0, 0]]);
        assert_eq!(advertisements(near, kernel.ipv6), 1);
        assert_eq!(arp_answers(near, [10, 77, 0, 1], &[]), [[2, 0x77, 0, 0, 0, 7]]);
        assert_eq!(arp_answers(near, [10, 77, 0, 100], &[(0x8100, 5)]), Vec::<[u8; 6]>::new());
        // From another port the interface's addresses are not the kernel's.
        assert!(!answers(&bed.hosts[1], "10.77.0.100"));

        // What is passed was never the switch's.
        let rx = |switch: &Switch| books::port(&switch.socket, "p0").rx;
        let before = rx(&switch);
        near.ok(&["ping", "-n", "-q", "-c", "50", "-i", "0.01", "10.77.0.100"]);
        let taken = rx(&switch) - before;
        assert!(taken < 10, "{taken} frames of 50 pings");

        // Addresses that come and go, and another MAC address.
        ip(&bed.switch, "address add 10.77.0.101/24 dev p0");
        wait_answers(near, "10.77.0.101", true);
        assert!(!arp_reaches(near, &bed.hosts[1], [10, 77, 0, 101]), "it is the kernel's");
        ip(&bed.switch, "address del 10.77.0.101/24 dev p0");
        wait_answers(near, "10.77.0.101", false);
        assert!(arp_reaches(near, &bed.hosts[1], [10, 77, 0, 101]), "it is anybody's");
        ip(&bed.switch, "link set p0 address 02:77:01:00:00:99");
        near.ok(&["ip", "neigh", "flush", "dev", "eth0"]);
        wait_answers(near, "10.77.0.100", true);
        assert_eq!(arp_answers(near, [10, 77, 0, 100], &[]), [[2, 0x77, 1, 0, 0, 0x99]]);
        ip(&bed.switch, "link set p0 address 02:77:01:00:00:00");
        near.ok(&["ip", "neigh", "flush", "dev", "eth0"]);
        wait_answers(near, "10.77.0.100", true);
        books::at_rest(&switch.socket);

        // The key is one of those that a running switch keeps.
        bed.write("s.toml", &bed.toml(""));
        let said = weft(&["reload", "--socket", switch.socket.to_str().unwrap()]);
        assert!(!said.status.success() && text(&said).contains("pass_to_kernel"), "{}", text(&said));
        switch.stop();
        bed.assert_detached();
    }

    // An interface that is made anew, and a port that is added.
    let switch = bed.start(&toml, &[]);
    ip(&near.netns, "link del eth0");
    wait_down(&switch, "p0", "interface is gone");
    rewire(&bed, 0);
    wait_up(&switch, "p0");
    ip(&bed.switch, "address add 10.77.0.102/24 dev p0");
    wait_answers(near, "10.77.0.102", true);
    let socket = switch.socket.to_str().unwrap();
    weft_ok(&["port", "del", "p0", "--socket", socket]);
    weft_ok(&["port", "add", "p0", "--kind", "host", "--pass-to-kernel", "--socket", socket]);
    wait_answers(near, "10.77.0.102", true);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn control_socket_and_lock_are_the_owners_alone_and_nothing_listens_on_the_network() {
    let Some(_turn) = turn("socket") else { return };
    let bed = Bed::new("socket", &[Host, Host]);
    let toml = bed.toml("").replace("s.sock", "run/s.sock");
    let config = bed.write("s.toml", &toml);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$0\" run \"$1\"", env!("CARGO_BIN_EXE_weft")]).arg(config);
    command.stderr(fs::File::create(bed.path("log")).unwrap());
    let mut child = bed.switch.spawn(&mut command).unwrap();
    let socket = bed.path("run/s.sock");
    let start = Instant::now();
    while !weft(&["show", "workers", "--socket", socket.to_str().unwrap()]).status.success() {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", fs::read_to_string(bed.path("log")).unwrap());
        thread::sleep(Duration::from_millis(20));
    }
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
    let modes = [&socket, &bed.path("run/s.sock.lock"), &bed.path("run")].map(|path| mode(path));
    let mut ss = Command::new("ss");
    ss.args(["-H", "-l", "-n", "-t", "-u", "-p"]).stdout(std::process::Stdio::piped());
    let listening = bed.switch.spawn(&mut ss).unwrap().wait_with_output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(modes, [0o600, 0o600, 0o755]);
    assert!(listening.status.success() && listening.stdout.is_empty(), "{}", text(&listening));
}
