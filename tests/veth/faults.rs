use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft::lab::net::{Namespace, Netlink, VethEnd};

use crate::bed::Kind::{self, Host};
use crate::bed::{self, Bed, Switch, measured, ping_all_pairs, text, turn, weft, weft_ok};
use crate::books;

/// Frames a second of a stream on ports that nothing happens to: few enough for a loaded machine with
/// two cores, enough that a pause of 100 ms of the switch would show.
const PPS: u64 = 20_000;
/// A port has to be attached again within this.
const RECOVERY: Duration = Duration::from_secs(1);

pub fn ip(namespace: &Namespace, arguments: &str) {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    let status = namespace.spawn(&mut command).unwrap().wait().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// The far end of port `index` and its wire, made anew as [`Bed::new`] made them.
pub fn rewire(bed: &Bed, index: usize) {
    let (host, near) = (&bed.hosts[index], Netlink::open(&bed.switch).unwrap());
    let (name, last) = (format!("p{index}"), index as u8);
    let port = VethEnd { interface: &name, mac: [2, 0x77, 1, 0, 0, last] };
    let eth0 = VethEnd { interface: "eth0", mac: [2, 0x77, 2, 0, 0, last] };
    near.add_veth(&port, &eth0, &host.netns, 1500).unwrap();
    near.set_up(&name, true).unwrap();
    let far = Netlink::open(&host.netns).unwrap();
    far.set_up("eth0", true).unwrap();
    far.add_address("eth0", format!("{}/24", host.ipv4).parse().unwrap()).unwrap();
    far.add_address("eth0", format!("{}/64", host.ipv6).parse().unwrap()).unwrap();
}

/// Waits until port `name` is as `is`, and returns how long that took.
fn wait_for(switch: &Switch, name: &str, is: impl Fn(&str, Option<&str>) -> bool) -> Duration {
    let start = Instant::now();
    loop {
        let port = books::port(&switch.socket, name);
        if is(&port.state, port.reason.as_deref()) {
            return start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{port:?}\n{}", switch.log());
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn wait_down(switch: &Switch, name: &str, why: &str) {
    wait_for(switch, name, |state, reason| state == "down" && reason.is_some_and(|r| r.contains(why)));
}

pub fn wait_up(switch: &Switch, name: &str) -> Duration {
    wait_for(switch, name, |state, reason| state == "up" && reason.is_none())
}

/// Sends a paced stream from the first host of `bed` to the second while `during` runs, which takes
/// less than two seconds; every frame of it has to arrive, once and in order. Says how many did not.
pub fn nothing_is_lost_while(bed: &Bed, during: impl FnOnce()) -> String {
    nothing_is_lost_between(&bed.hosts, during)
}

/// The same between the first two of some hosts.
pub fn nothing_is_lost_between(hosts: &[bed::Host], during: impl FnOnce()) -> String {
    let binary = env!("CARGO_BIN_EXE_weft");
    let (from, to) = (&hosts[0], &hosts[1]);
    let target = to.ipv4.to_string();
    let sink = to.spawn(&[binary, "sink", "-i", "eth0", "--ip", &target, "--duration", "8", "--json"]);
    thread::sleep(Duration::from_millis(500)); // its socket has to be open
    let (pps, count) = (PPS.to_string(), (2 * PPS).to_string());
    let mac = to.mac().map(|byte| format!("{byte:02x}")).join(":");
    let arguments =
        ["gen", "-i", "eth0", "--dst-ip", &target, "--dst-mac", &mac, "--pps", &pps, "--count", &count, "--flows", "8"];
    let source = from.spawn(&[&[binary], &arguments[..]].concat());
    thread::sleep(Duration::from_millis(200));
    during();
    let (source, sink) = (source.wait_with_output().unwrap(), sink.wait_with_output().unwrap());
    assert!(source.status.success() && sink.status.success(), "{}{}", text(&source), text(&sink));
    let report: serde_json::Value =
        serde_json::from_str(String::from_utf8_lossy(&sink.stdout).lines().last().unwrap()).unwrap();
    assert_eq!(report["received"], 2 * PPS, "{report}");
    for trouble in ["lost", "reordered", "duplicated"] {
        assert_eq!(report[trouble], 0, "{report}");
    }
    format!("lost {} of {} on other ports", report["lost"], 2 * PPS)
}

/// CPU time that a process has used, in clock ticks (1/100 s).
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_peer_that_is_deleted_and_made_anew_is_attached_within_a_second_and_costs_others_nothing() {
    let Some(_turn) = turn("anew") else { return };
    let bed = Bed::new("anew", &[Host, Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let mut back = Duration::ZERO;
    let lost = nothing_is_lost_while(&bed, || {
        for _ in 0..2 {
            ip(&bed.hosts[2].netns, "link del eth0");
            wait_down(&switch, "p2", "interface is gone");
            rewire(&bed, 2);
            let took = wait_up(&switch, "p2");
            assert!(took < RECOVERY, "{took:?}");
            back = back.max(took);
        }
    });
    measured("interface made anew under its name", &format!("{lost}, back after {back:.2?}"));
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

#[test]
fn a_port_whose_peer_is_gone_takes_no_cpu_and_no_frame_without_a_count() {
    let Some(_turn) = turn("gone") else { return };
    let bed = Bed::new("gone", &[Host, Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let mut down = Duration::ZERO;
    let lost = nothing_is_lost_while(&bed, || {
        let start = Instant::now();
        ip(&bed.hosts[2].netns, "link del eth0");
        wait_down(&switch, "p2", "interface is gone");
        down = start.elapsed();
    });
    // Something for all ports: the dead one takes nothing.
    drop(bed.hosts[0].ping(bed.hosts[2].ipv4.into(), &["-w", "1"]));
    thread::sleep(Duration::from_secs(1));
    let before = cpu_ticks(switch.pid());
    thread::sleep(Duration::from_secs(2));
    let used = cpu_ticks(switch.pid()) - before;
    assert!(used <= 10, "{used} of 200 ticks"); // spinning would take some 200
    let figures = format!("{lost}, down after {down:.2?}, {used} of 200 ticks of CPU in 2 s");
    measured("peer of a port deleted", &figures);
    books::at_rest(&switch.socket);
    ping_all_pairs(&bed.hosts[..2]);
    switch.stop();
}

#[test]
fn a_hosts_namespace_that_is_deleted_takes_its_port_down_and_one_made_anew_brings_it_back() {
    let Some(_turn) = turn("ns") else { return };
    let mut bed = Bed::new("ns", &[Host, Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let name = bed.hosts[2].netns.name().to_string();
    let lost = nothing_is_lost_while(&bed, || {
        Namespace::delete(&name).unwrap();
        // The namespace ends with its last user, the test's own handle.
        ip(&bed.switch, "link del p2");
        wait_down(&switch, "p2", "interface is gone");
    });
    bed.hosts[2].netns = Namespace::create(&name).unwrap();
    Netlink::open(&bed.hosts[2].netns).unwrap().set_up("lo", true).unwrap();
    rewire(&bed, 2);
    let back = wait_up(&switch, "p2");
    assert!(back < RECOVERY, "{back:?}");
    measured("host's namespace deleted, made anew", &format!("{lost}, back after {back:.2?}"));
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn a_link_that_flaps_is_told_as_no_carrier_or_down_and_forwards_as_soon_as_it_is_back() {
    let Some(_turn) = turn("flap") else { return };
    let bed = Bed::new("flap", &[Host, Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let (mut down, mut back) = (Duration::ZERO, Duration::ZERO);
    let lost = nothing_is_lost_while(&bed, || {
        for (end, interface, why) in
            [(&bed.hosts[2].netns, "eth0", "no carrier"), (&bed.switch, "p2", "interface is down")].repeat(2)
        {
            let start = Instant::now();
            ip(end, &format!("link set {interface} down"));
            wait_down(&switch, "p2", why);
            down = down.max(start.elapsed());
            ip(end, &format!("link set {interface} up"));
            back = back.max(wait_up(&switch, "p2"));
        }
    });
    measured("link down at either end", &format!("{lost}, down after {down:.2?}, back after {back:.2?}"));
    ip(&bed.hosts[2].netns, &format!("address replace {}/64 dev eth0 nodad", bed.hosts[2].ipv6));
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn a_switch_starts_with_a_port_that_is_down_and_serves_it_when_it_comes_up() {
    let Some(_turn) = turn("late") else { return };
    let bed = Bed::new("late", &[Host, Host]);
    ip(&bed.switch, "link set p1 down");
    let switch = bed.start(&bed.toml(""), &[]);
    wait_down(&switch, "p1", "interface is down");
    ip(&bed.switch, "link set p1 up");
    let up = wait_up(&switch, "p1");
    measured("interface down at the start", &format!("up after {up:.2?}"));
    ping_all_pairs(&bed.hosts);
    switch.stop();
}

#[test]
fn an_mtu_that_changes_while_the_switch_runs_is_kept_to_from_then_on() {
    let Some(_turn) = turn("mtu") else { return };
    let bed = Bed::new("mtu", &[Host; 4]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let large = |bytes: &str| bed.hosts[2].ping(bed.hosts[3].ipv4.into(), &["-M", "do", "-s", bytes]);
    let mut kept = Duration::ZERO;
    let lost = nothing_is_lost_while(&bed, || {
        for mtu in [9000, 1400] {
            for i in 2..=3 {
                ip(&bed.switch, &format!("link set p{i} mtu {mtu}"));
                ip(&bed.hosts[i].netns, &format!("link set eth0 mtu {mtu}"));
                let name = format!("p{i}");
                kept = kept.max(wait_for(&switch, &name, |_, _| books::port(&switch.socket, &name).mtu == mtu));
            }
            large(&(mtu - 28).to_string()).answered();
        }
    });
    measured("MTU changed", &format!("{lost}, kept to after {kept:.2?}"));
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn an_interface_that_shrinks_below_the_configured_mtu_bounds_what_leaves_and_each_drop_is_counted() {
    let Some(_turn) = turn("mtu-shrinks") else { return };
    let bed = Bed::new("shrink", &[Host; 2]);
    let switch = bed.start(&bed.toml("mtu = 1500"), &[]);
    ping_all_pairs(&bed.hosts);
    let ping = |bytes: &str| bed.hosts[0].ping(bed.hosts[1].ipv4.into(), &["-M", "do", "-s", bytes]);
    let mtu = |interface: u16, in_force| {
        ip(&bed.switch, &format!("link set p1 mtu {interface}"));
        ip(&bed.hosts[1].netns, &format!("link set eth0 mtu {interface}"));
        wait_for(&switch, "p1", |_, _| books::port(&switch.socket, "p1").mtu == in_force);
    };
    mtu(9000, 1500);
    ping("1472").answered();
    mtu(1400, 1400);
    ping("1372").answered();
    // The kernel would take it and drop it without a word to the switch.
    drop(ping("1373"));
    let too_big = || books::port(&switch.socket, "p0").ingress_drops.get("too_big").copied();
    wait_for(&switch, "p0", |_, _| too_big() == Some(2));
    books::at_rest(&switch.socket);
    mtu(1500, 1500);
    ping("1472").answered();
    switch.stop();
}

#[test]
fn a_port_that_can_t_be_opened_is_told_once_tried_ever_less_often_and_at_once_when_its_interface_changes() {
    let Some(_turn) = turn("unfit") else { return };
    let bed = Bed::new("unfit", &[Host, Host]);
    let switch = bed.start(&bed.toml("mtu = 1500"), &[]);
    ping_all_pairs(&bed.hosts);
    ip(&bed.switch, "link del p1");
    wait_down(&switch, "p1", "interface is gone");
    let far = bed.hosts[1].netns.name();
    ip(&bed.switch, &format!("link add p1 mtu 1400 type veth peer name eth0 netns {far}"));
    ip(&bed.switch, "link set p1 up");
    ip(&bed.hosts[1].netns, "link set eth0 up");
    wait_down(&switch, "p1", "mtu = 1500 is over");
    let other =
        bed.toml("").replace("s.sock", "other.sock").replace("[[port]]\ninterface = \"p0\"\nkind = \"host\"\n", "");
    let mut rival = bed.start_beside(&other, "other");
    // By now it is tried every four seconds.
    thread::sleep(Duration::from_secs(4));
    let start = Instant::now();
    ip(&bed.switch, "link set p1 mtu 1500");
    wait_down(&switch, "p1", "held by weft");
    assert!(start.elapsed() < RECOVERY, "{:?}", start.elapsed());
    thread::sleep(Duration::from_secs(1));
    let told = |why: &str| switch.log().lines().filter(|line| line.contains(why)).count();
    assert_eq!((told("mtu = 1500 is over"), told("held by weft")), (1, 1), "{}", switch.log());
    rival.signal(Signal::SIGTERM);
    rival.wait();
    wait_up(&switch, "p1");
    switch.stop();
    bed.assert_detached();
}

/// Asks a control socket by hand; the answer is read by [`answer`].
pub fn ask(socket: &Path, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    stream
}

pub fn answer(stream: UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn a_port_that_is_removed_and_added_at_once_is_there_again() {
    let Some(_turn) = turn("at-once") else { return };
    let bed = Bed::new("once", &[Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    let (del, add) =
        ("{\"change\":{\"del\":\"p1\"}}", "{\"change\":{\"add\":{\"interface\":\"p1\",\"kind\":\"host\"}}}");
    for round in 0..20 {
        let (removed, added) = (ask(&switch.socket, del), ask(&switch.socket, add));
        let (removed, added) = (answer(removed), answer(added));
        assert!(removed.contains("port `p1` removed"), "round {round}: {removed}");
        if !added.contains("port `p1` added") {
            // It was first, and p1 still in the configuration.
            assert!(added.contains("is port number 2 already"), "round {round}: {added}");
            assert!(answer(ask(&switch.socket, add)).contains("port `p1` added"), "round {round}");
        }
    }
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

#[test]
fn killed_at_full_load_it_starts_again_at_once_in_either_mode() {
    let Some(_turn) = turn("kill-load") else { return };
    let bed = Bed::new("kload", &[Host, Host]);
    let binary = env!("CARGO_BIN_EXE_weft");
    let target = bed.hosts[1].ipv4.to_string();
    let mac = bed.hosts[1].mac().map(|byte| format!("{byte:02x}")).join(":");
    let flood = ["gen", "-i", "eth0", "--dst-ip", &target, "--dst-mac", &mac, "--pps", "0", "--duration", "20"];
    let mut load = bed.hosts[0].spawn(&[&[binary], &flood[..]].concat());
    let mut forwards = Duration::ZERO;
    for round in 0..6 {
        let mode = ["native", "generic"][round / 2 % 2];
        let start = Instant::now();
        let mut switch = bed.start(&bed.toml(""), &["--mode", mode]);
        while books::port(&switch.socket, "p1").tx < 1000 {
            assert!(start.elapsed() < Duration::from_secs(10), "round {round}: {}", switch.log());
            thread::sleep(Duration::from_millis(10));
        }
        forwards = forwards.max(start.elapsed());
        switch.signal(Signal::SIGKILL);
        switch.wait();
        bed.assert_detached();
    }
    measured("process killed at full load", &format!("started anew, its first 1000 frames out after {forwards:.2?}"));
    // To `timeout`, which passes it on to the generator.
    kill(Pid::from_raw(load.id() as i32), Signal::SIGTERM).unwrap();
    load.wait().unwrap();
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

#[test]
fn what_runs_leaves_offloads_pins_and_namespaces_as_they_were() {
    let Some(_turn) = turn("traces") else { return };
    let bed = Bed::new("traces", &[Host, Host]);
    let own = |command: &[&str]| {
        let mut command_line = Command::new(command[0]);
        command_line.args(&command[1..]).stdout(std::process::Stdio::piped());
        let output = bed.switch.spawn(&mut command_line).unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{command:?}");
        text(&output)
    };
    let state = || {
        let namespaces = Namespace::list("").unwrap();
        let pins = std::fs::read_dir("/sys/fs/bpf").map(|d| d.count()).unwrap_or(0);
        let offloads = ["p0", "p1"].map(|port| own(&["ethtool", "-k", port]));
        let peers: Vec<_> = bed.hosts.iter().map(|host| host.ok(&["ethtool", "-k", "eth0"])).collect();
        (namespaces, pins, offloads, peers, own(&["ip", "-d", "link"]))
    };
    let before = state();
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    switch.stop();
    assert_eq!(state(), before);
}

/// The changes that a command told, a line each.
fn changed(switch: &Switch, arguments: &[&str]) -> String {
    weft_ok(&[arguments, &["--socket", switch.socket.to_str().unwrap()]].concat())
}

/// What a command says that the switch refuses.
fn refused(switch: &Switch, arguments: &[&str]) -> String {
    let output = weft(&[arguments, &["--socket", switch.socket.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output));
    text(&output)
}

#[test]
fn ports_are_taken_out_and_put_back_removed_and_added_while_others_lose_nothing() {
    let Some(_turn) = turn("ports") else { return };
    let bed = Bed::new("ports", &[Host, Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    let lost = nothing_is_lost_while(&bed, || {
        assert_eq!(changed(&switch, &["port", "down", "p2"]).trim(), "port `p2` is down");
        wait_down(&switch, "p2", "taken out of service");
        assert_eq!(changed(&switch, &["port", "down", "p2"]).trim(), "nothing to change");
        changed(&switch, &["port", "up", "p2"]);
        wait_up(&switch, "p2");
        assert_eq!(changed(&switch, &["port", "del", "p2"]).trim(), "port `p2` removed");
        assert!(books::ports(&switch.socket).0.iter().all(|p| p.port != "p2"));
        assert!(!bed.ip_link("p2").contains("xdp"), "{}", bed.ip_link("p2"));
        assert_eq!(changed(&switch, &["port", "add", "p2", "--kind", "host"]).trim(), "port `p2` added");
    });
    measured("port taken out, put back, removed, added", &lost);
    wait_up(&switch, "p2");
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);

    for (arguments, why) in [
        (&["port", "up", "p9"][..], "no port `p9`: name one of p0, p1, p2"),
        (&["port", "add", "p0", "--kind", "host"], "already"),
        (&["port", "add", "p9", "--kind", "host"], "No such device"),
        (&["port", "add", "p9", "--kind", "down"], "kind down on role tor"),
    ] {
        let said = refused(&switch, arguments);
        assert!(said.contains(why), "{said}");
    }
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}

#[test]
fn a_reload_is_done_whole_or_not_at_all_and_loses_nothing_on_ports_it_leaves_alone() {
    let Some(_turn) = turn("reload") else { return };
    let bed = Bed::new("reload", &[Host, Host, Host, Kind::Up]);
    let toml = bed.toml("");
    let switch = bed.start(&toml, &[]);
    ping_all_pairs(&bed.hosts[..3]);
    let without_p2 = toml.replace("[[port]]\ninterface = \"p2\"\nkind = \"host\"\n", "");
    let paced = toml.replace("interface = \"p2\"", "interface = \"p2\"\nrate = \"10Mbit\"");
    let id_before = books::port(&switch.socket, "p3").id;
    let lost = nothing_is_lost_while(&bed, || {
        bed.write("s.toml", &without_p2);
        assert_eq!(changed(&switch, &["reload"]).trim(), "port `p2` removed");
        bed.write("s.toml", &paced);
        switch.signal(Signal::SIGHUP);
        wait_for(&switch, "p3", |_, _| books::ports(&switch.socket).0.iter().any(|p| p.port == "p2"));
    });
    measured("reload, SIGHUP", &lost);
    assert_eq!(books::port(&switch.socket, "p2").rate.0, 10_000_000);
    assert_eq!(books::port(&switch.socket, "p3").id, id_before, "a port keeps its number");

    // Each of these has something right and something wrong in it: nothing of it is done.
    let extra = "[[port]]\ninterface = \"nosuch\"\nkind = \"host\"\n";
    for (wrong, why) in [
        (paced.replace("10Mbit", "20Mbit").replace("id = 7", "id = 8"), "`id = 7`"),
        (paced.replace("10Mbit", "20Mbit") + extra, "No such device"),
        (paced.replace("10Mbit", "20Mbit").replace("kind = \"up\"", "kind = \"cat\""), "cat"),
        (paced.replace("10Mbit", "20Mbit").replace("\"p3\"\nkind", "\"p3\"\nmtu = 9000\nkind"), "mtu = 9000"),
    ] {
        bed.write("s.toml", &wrong);
        let said = refused(&switch, &["reload"]);
        assert!(said.contains(why), "{said}");
        assert_eq!(books::port(&switch.socket, "p2").rate.0, 10_000_000, "{said}");
    }
    bed.write("s.toml", &toml.replace("10.78.0.0/16", "10.79.0.0/16"));
    let said = changed(&switch, &["reload"]);
    assert_eq!(said.trim(), "port `p2` changed\nroutes: 1 added, 1 removed, 0 changed");
    let paths = weft_ok(&["show", "paths", "--socket", switch.socket.to_str().unwrap()]);
    assert!(paths.contains("10.79.0.0/16") && !paths.contains("10.78.0.0/16"), "{paths}");
    ping_all_pairs(&bed.hosts[..3]);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}
