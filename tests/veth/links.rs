use std::thread;
use std::time::{Duration, Instant};

use weft::port::fault::FaultCounts;
use weft::runtime::report::{Body, Report};

use crate::bed::Kind::Host;
use crate::bed::{Bed, Lab, measured, ping_all_pairs, turn, weft_ok};
use crate::books;
use crate::faults::{answer, ask, nothing_is_lost_between};
use crate::traffic::tcp;

/// Sets what happens to frames that `switch` receives from `peer`.
fn fault(lab: &Lab, switch: &str, peer: &str, spec: &str) {
    weft_ok(&["port", "fault", peer, spec, "--socket", lab.socket(switch).to_str().unwrap()]);
}

/// Waits until the link of `switch` to `peer` is `up` or not, by what `switch` says of it; why it is.
fn wait_for(lab: &Lab, switch: &str, peer: &str, up: bool) -> String {
    let start = Instant::now();
    loop {
        // By hand: a process for each look would take as long as what is measured.
        let line = answer(ask(lab.socket(switch), "{\"show\":\"ports\"}"));
        let Body::Ports { ports, .. } = serde_json::from_str::<Report>(&line).unwrap().body else { panic!("{line}") };
        let port = ports.into_iter().find(|port| port.port == peer).expect(peer);
        if (port.state == "up") == up {
            return port.reason.unwrap_or_default();
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{port:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_link_that_is_up_but_deaf_one_way_is_left_out_at_both_ends_and_comes_back() {
    let Some(_turn) = turn("deaf") else { return };
    let lab = Lab::up_talking("deaf", &["--leaf-spine", "2x2"]);
    let (leaf, deaf, other) = ("leaf0", "spine0", "spine1");
    wait_for(&lab, leaf, deaf, true);
    ping_all_pairs(&lab.hosts);
    // What the leaf says still arrives; what it should hear does not.
    let mut out = [Duration::ZERO; 2];
    let lost = nothing_is_lost_between(&lab.hosts, || {
        let start = Instant::now();
        let change = format!("{{\"change\":{{\"fault\":{{\"interface\":\"{deaf}\",\"fault\":\"loss=1\"}}}}}}");
        let done = answer(ask(lab.socket(leaf), &change));
        assert!(done.contains("changed"), "{done}");
        assert_eq!(wait_for(&lab, leaf, deaf, false), "peer fell silent");
        out[0] = start.elapsed();
        // It says so first when it is told, and goes on trying.
        let why = wait_for(&lab, deaf, leaf, false);
        out[1] = start.elapsed();
        assert!(["peer ceased to hear us", "peer does not hear us yet"].contains(&why.as_str()), "{why}");
    });
    // One link of two is left to this leaf. That the other leaf sends over the spine that has lost its way
    // down is for it to find out: so it, too, is kept off that spine.
    weft_ok(&["port", "down", deaf, "--socket", lab.socket("leaf1").to_str().unwrap()]);
    let data = |port: &str| books::data_queue(lab.socket(leaf), port).enqueued;
    let before = (data(deaf), data(other));
    ping_all_pairs(&lab.hosts);
    tcp(&lab.hosts[0], &lab.hosts[3], lab.hosts[3].ipv4.into(), 1 << 20);
    // Hellos go on in the hope of an answer, but no data does.
    assert_eq!(data(deaf), before.0);
    assert!(data(other) > before.1 + 700, "a segment is 1448 bytes");

    fault(&lab, leaf, deaf, "");
    let start = Instant::now();
    wait_for(&lab, leaf, deaf, true);
    wait_for(&lab, deaf, leaf, true);
    let back = start.elapsed();
    weft_ok(&["port", "up", deaf, "--socket", lab.socket("leaf1").to_str().unwrap()]);
    wait_for(&lab, "leaf1", deaf, true);
    wait_for(&lab, deaf, "leaf1", true);
    let [near, far] = out;
    let figures = format!("{lost}, out after {near:.2?} and at the far end {far:.2?}, back at both after {back:.2?}");
    measured("link up, but deaf one way", &figures);
    ping_all_pairs(&lab.hosts);
    let counted = books::port(lab.socket(leaf), deaf).faults.expect("some were lost");
    assert!(counted.lost > 3 && counted.balances(), "{counted:?}");
}

#[test]
fn an_uplink_that_is_removed_and_added_again_carries_what_it_carried() {
    let Some(_turn) = turn("again") else { return };
    let options = ["--leaf-spine", "2x2", "--selector", "caft", "--rate", "100Mbit"];
    let lab = Lab::up("again", &options);
    let leaf = lab.socket("leaf0").to_str().unwrap();
    let routes = || {
        let line = answer(ask(lab.socket("leaf0"), "{\"show\":\"paths\"}"));
        let Body::Paths { paths, .. } = serde_json::from_str::<Report>(&line).unwrap().body else { panic!("{line}") };
        paths.into_iter().map(|p| (p.prefix, p.serving.into_keys().collect::<Vec<_>>())).collect::<Vec<_>>()
    };
    let before = routes();
    let by =
        |port: &str, routes: &[(String, Vec<String>)]| routes.iter().filter(|r| r.1.contains(&port.into())).count();
    assert!(by("spine0", &before) > 1, "{before:?}");
    let said = weft_ok(&["port", "del", "spine0", "--socket", leaf]);
    assert!(said.starts_with("port `spine0` removed\nroutes: "), "{said}");
    assert_eq!(by("spine0", &routes()), 0);
    let said = weft_ok(&["port", "add", "spine0", "--kind", "up", "--socket", leaf]);
    assert!(said.starts_with("port `spine0` added as uplink 0\nroutes: "), "{said}");
    wait_for(&lab, "leaf0", "spine0", true);
    assert_eq!(routes(), before);
    assert_eq!(books::port(lab.socket("leaf0"), "spine0").rate.0, 100_000_000);
    assert_eq!(weft_ok(&["reload", "--socket", leaf]).trim(), "nothing to change");
    // It is the only one that is left.
    for leaf in ["leaf0", "leaf1"] {
        weft_ok(&["port", "down", "spine1", "--socket", lab.socket(leaf).to_str().unwrap()]);
    }
    tcp(&lab.hosts[0], &lab.hosts[3], lab.hosts[3].ipv4.into(), 256 << 10);
}

#[test]
fn a_worker_that_panics_takes_its_switch_down_whole_and_says_so() {
    let Some(_turn) = turn("panic") else { return };
    let bed = Bed::new("panic", &[Host, Host]);
    let toml = bed.toml("").replace("interface = \"p1\"", "interface = \"p1\"\nfault = \"panic=5\"");
    let mut switch = bed.start(&toml, &[]);
    // Kept until then: a ping that nobody listens to any more ends with its first line.
    let ping = bed.hosts[1].spawn(&["ping", "-n", "-c", "9", "-i", "0.2", "-w", "3", &bed.hosts[0].ipv4.to_string()]);
    let status = switch.wait();
    drop(ping.wait_with_output());
    assert_eq!(status.code(), Some(1), "{}", switch.log());
    let log = switch.log();
    assert!(log.contains("worker 0 panicked") && log.contains("all switches of this process were stopped"), "{log}");
    assert!(!switch.socket.exists(), "the control socket goes");
    bed.assert_detached();
    // Nothing is in the way of the next.
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    switch.stop();
}

#[test]
fn tcp_is_byte_exact_over_links_that_lose_double_reorder_and_delay() {
    let Some(_turn) = turn("lossy") else { return };
    let spec = "loss=0.005,duplicate=0.01,reorder=0.02,corrupt=0.002,delay=200us,jitter=100us,seed=5";
    let lab = Lab::up("lossy", &["--leaf-spine", "2x2", "--hosts-per-tor", "1", "--fault", spec]);
    let (a, b) = (&lab.hosts[0], &lab.hosts[1]);
    for address in b.addresses() {
        tcp(a, b, address, 512 << 10);
    }
    // Which of the spines the flows took is the hash's affair.
    let faults = |switch: &str, spine: &str| books::port(lab.socket(switch), spine).faults.expect("asked for");
    let ports = [("leaf0", "spine0"), ("leaf0", "spine1"), ("leaf1", "spine0"), ("leaf1", "spine1")];
    let counts = ports.map(|(leaf, spine)| faults(leaf, spine));
    assert!(counts.iter().all(|c| c.balances()), "{counts:?}");
    let sum = |of: fn(&FaultCounts) -> u64| counts.iter().map(of).sum::<u64>();
    let received = sum(|c| c.received);
    assert!(received > 100, "{counts:?}");
    let [lost, doubled, late, damaged] =
        [sum(|c| c.lost), sum(|c| c.duplicated), sum(|c| c.reordered), sum(|c| c.corrupted)];
    let fates = format!("{lost} lost, {doubled} doubled, {late} reordered, {damaged} damaged");
    measured("links that lose, double, reorder", &format!("2 MiB exact; of {received} frames {fates}"));
}
