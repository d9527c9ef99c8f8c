use std::process::Output;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use weft::lab::net::Netlink;

use crate::bed::Kind::Host;
use crate::bed::{Bed, measured, ping_all_pairs, text, turn, weft, weft_ok};
use crate::books;

/// The one line in which `weft` says why it did not start: exit code 2, naming all of `parts`. Beside
/// it, at most the log tells what it had done by then.
pub fn refused(output: &Output, parts: &[&str]) {
    let said = text(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let lines: Vec<_> = said.lines().filter(|line| !line.contains(" INFO ")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("weft: "), "one line:\n{said}");
    for part in parts {
        assert!(lines[0].contains(part), "it lacks `{part}`: {said}");
    }
}

#[test]
fn sigterm_and_sigint_end_it_well_and_leave_the_interfaces_as_they_were() {
    let Some(_turn) = turn("stop") else { return };
    let bed = Bed::new("stop", &[Host, Host]);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut switch = bed.start(&bed.toml(""), &[]);
        assert!(bed.ip_link("p0").contains("prog/xdp"), "{}", bed.ip_link("p0"));
        ping_all_pairs(&bed.hosts);
        books::at_rest(&switch.socket);
        let start = Instant::now();
        switch.signal(signal);
        let status = switch.wait();
        measured("end of the process", &format!("{signal}: ended after {:.2?}", start.elapsed()));
        assert!(status.success(), "{signal}: {status}\n{}", switch.log());
        assert!(!switch.socket.exists(), "the control socket goes");
        bed.assert_detached();
    }
}

#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    let Some(_turn) = turn("full") else { return };
    let bed = Bed::new("full", &[Host, Host]);
    let full = ["sh", "-c", "exec \"$@\" 2>/dev/full", "sh"];
    let switch = bed.start_by(&full, env!("CARGO_BIN_EXE_weft").as_ref(), &bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    weft_ok(&["port", "down", "p0", "--socket", switch.socket.to_str().unwrap()]);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn after_a_kill_the_next_one_starts_on_the_same_interfaces() {
    let Some(_turn) = turn("kill") else { return };
    let bed = Bed::new("kill", &[Host, Host]);
    let mut killed = bed.start(&bed.toml(""), &[]);
    killed.signal(Signal::SIGKILL);
    assert!(!killed.wait().success());
    bed.assert_detached();
    assert!(bed.socket().exists(), "a killed process can't remove its socket");
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn a_second_switch_on_an_interface_is_refused_and_the_first_goes_on() {
    let Some(_turn) = turn("second") else { return };
    let bed = Bed::new("second", &[Host, Host]);
    let switch = bed.start(&bed.toml(""), &[]);
    let other = bed.toml("").replace("s.sock", "other.sock");
    let holder = format!("held by weft (process {})", switch.pid());
    refused(&bed.fail(&other, &[]), &["`p0` queue 0", "busy", &holder, "stop it"]);
    // Another interface, but the same control socket.
    let near = Netlink::open(&bed.switch).unwrap();
    let veth = |interface, last| weft::lab::net::VethEnd { interface, mac: [2, 0x77, 3, 0, 0, last] };
    near.add_veth(&veth("q0", 0), &veth("q1", 1), &bed.switch, 1500).unwrap();
    near.set_up("q0", true).unwrap();
    near.set_up("q1", true).unwrap();
    let same_socket = bed.toml("").replace("\"p0\"", "\"q0\"").replace("\"p1\"", "\"q1\"");
    refused(&bed.fail(&same_socket, &[]), &["s.sock", "in use", "`control`"]);
    assert!(!bed.ip_link("q0").contains("xdp"), "{}", bed.ip_link("q0"));
    // A program without a socket holds an interface as well.
    let mut forwarder = std::process::Command::new(env!("CARGO_BIN_EXE_weft"));
    forwarder.args(["bench", "redirect", "--a", "q0", "--b", "q1", "--duration", "10"]);
    let mut forwarder = bed.switch.spawn(&mut forwarder).unwrap();
    let start = Instant::now();
    while !bed.ip_link("q1").contains("prog/xdp") {
        assert!(start.elapsed() < Duration::from_secs(5) && forwarder.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let other = same_socket.replace("s.sock", "other.sock");
    let holder = format!("held by weft (process {})", forwarder.id());
    refused(&bed.fail(&other, &[]), &["`q0`", "busy", &holder, "stop it"]);
    forwarder.kill().unwrap();
    forwarder.wait().unwrap();
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn an_interface_that_is_missing_too_large_or_of_many_queues_is_refused_and_nothing_is_changed() {
    let Some(_turn) = turn("unfit") else { return };
    let bed = Bed::new("unfit", &[Host, Host]);
    let toml = bed.toml("");
    let with_second = |name: &str| toml.replace("\"p1\"", &format!("\"{name}\""));
    refused(&bed.fail(&with_second("nosuch"), &[]), &["`nosuch`", "No such device", "ip link"]);
    bed.assert_detached();

    let ip = |arguments: &str| {
        let mut command = std::process::Command::new("ip");
        command.args(arguments.split(' '));
        let status = bed.switch.spawn(&mut command).unwrap().wait().unwrap();
        assert!(status.success(), "ip {arguments}");
    };
    ip("link add many numrxqueues 2 numtxqueues 2 type veth peer name much numrxqueues 2 numtxqueues 2");
    ip("link set many up");
    ip("link set much up");
    refused(&bed.fail(&with_second("many"), &[]), &["`many`", "2 RX queues", "ethtool -L many"]);
    ip("link set p1 mtu 9300");
    refused(&bed.fail(&toml, &[]), &["`p1`", "9300", "9216", "ip link set p1 mtu 9216"]);
    ip("link set p1 mtu 1500");
    bed.assert_detached();

    // With all mended it starts.
    bed.start(&toml, &[]).stop();
}

#[test]
fn a_bad_configuration_is_refused_by_file_and_line_by_run_as_by_check() {
    let Some(_turn) = turn("config") else { return };
    let bed = Bed::new("config", &[Host, Host]);
    let toml = bed.toml("");
    for (bad, parts) in [
        (toml.replace("id = 7", "idd = 7"), &["idd", "3"][..]),
        (toml.replace("kind = \"host\"", "kind = \"cat\""), &["cat", "host"]),
        (toml.replace("id = 7", "id = 7\nselector = \"best\""), &["best", "not a selector"]),
        (toml.replace("[[port]]", "[[port]]\nrate = \"fast\""), &["fast", "rate"]),
        (toml.replace("[[port]]", "[[port]]\nmtu = 9300"), &["9300", "9216"]),
        (toml.replace("\"p1\"", "\"p0\""), &["p0", "already"]),
        ("name = ".into(), &["1"]),
    ] {
        let path = bed.write("bad.toml", &bad);
        let (run, check) = (bed.fail(&bad, &[]), weft(&["check", path.to_str().unwrap()]));
        for output in [&run, &check] {
            let said = text(output);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(".toml:"), "file and line: {said}");
            for part in parts {
                assert!(said.contains(part), "it lacks `{part}`: {said}");
            }
        }
        bed.assert_detached();
    }
    let missing = weft(&["run", "/no/such/switch.toml"]);
    refused(&missing, &["/no/such/switch.toml", "No such file"]);
    assert!(weft(&["check", bed.write("good.toml", &toml).to_str().unwrap()]).status.success());
}

#[test]
fn the_example_configuration_is_sound_and_shows_every_key() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/switch.toml");
    let printed = weft_ok(&["check", "--print", example]);
    let written = std::fs::read_to_string(example).unwrap();
    let keys = |toml: &str| -> std::collections::BTreeSet<String> {
        let key = |line: &str| Some(line.split_once(" = ")?.0.to_string());
        toml.lines().filter(|line| !line.starts_with('#')).filter_map(key).collect()
    };
    // What is printed has every key that has a value, defaults filled in.
    assert_eq!(keys(&written), keys(&printed));
}
