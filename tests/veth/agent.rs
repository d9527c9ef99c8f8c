use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::bed::{Bed, Host, Kind, Lab, measured, ping_all_pairs, text, turn, weft_ok};
use crate::shown::{number, rows, wait_for};
use crate::traffic::tcp;

/// The rack is scheduled, and hosts reserve by themselves. At 100 Mbit/s a slot is 123 us: what the machine's few cores
/// do meanwhile makes few bursts late.
const PL2: &str = "[pl2]\nagent = \"none\"\n";
const RATE: &str = "rate = \"100Mbit\"\n";

/// A `weft host` on a host's `eth0`; killed when it is dropped.
struct HostAgent {
    child: Child,
    log: PathBuf,
    out: PathBuf,
}

impl HostAgent {
    /// Starts one and waits until it is ready.
    fn start(bed: &Bed, host: &Host, options: &[&str]) -> HostAgent {
        let [log, out] = ["log", "out"].map(|kind| bed.path(&format!("{}.{kind}", host.name)));
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["host", "--uplink", "eth0", "--force", "--json"]).args(options).stdin(Stdio::null());
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&log).unwrap());
        let mut agent = HostAgent { child: host.netns.spawn(&mut command).unwrap(), log, out };
        wait_for("the agent is ready", || {
            let ended = agent.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", agent.log());
            agent.log().contains("ready")
        });
        agent
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn end(&mut self, signal: Signal) -> ExitStatus {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end: {}", self.log());
    }

    /// Ends it as a user would; its last report.
    fn stop(mut self) -> Value {
        let status = self.end(Signal::SIGTERM);
        assert!(status.success(), "{status}: {}", self.log());
        let out = fs::read_to_string(&self.out).unwrap();
        serde_json::from_str(out.lines().last().expect("a report")).unwrap()
    }
}

impl Drop for HostAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Addresses and routes, each with its interface, and whether a program is on `eth0`.
fn network(host: &Host) -> Vec<String> {
    let mut all = Vec::new();
    for command in [&["ip", "-o", "addr", "show", "scope", "global"][..], &["ip", "route"], &["ip", "-6", "route"]] {
        let said = host.ok(command);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        // The number of an interface says nothing, and link-local routes are the kernel's.
        let lines = said.lines().map(|line| words(line.split_once(": ").map_or(line, |(_, rest)| rest)));
        all.extend(lines.filter(|line| !line.starts_with("fe80::")));
    }
    all.sort();
    all.push(format!("program: {}", host.ok(&["ip", "link", "show", "eth0"]).contains("xdp")));
    all
}

fn slots(bed: &Bed) -> Value {
    serde_json::from_str(&weft_ok(&["show", "slots", "--json", "--socket", bed.socket().to_str().unwrap()])).unwrap()
}

/// What is reserved at all ports, and queued frames that count as such.
fn reserved(shown: &Value) -> u64 {
    rows(shown, "slots").iter().map(|row| number(row, "in") + number(row, "out") + number(row, "pending")).sum()
}

fn sum(shown: &Value, key: &str) -> u64 {
    rows(shown, "requests").iter().map(|row| number(row, key)).sum()
}

/// Runs `weft host` in the namespace of `host`, which has to end by itself.
fn refused(host: &Host, options: &[&str]) -> Output {
    let output = host.spawn(&[&[env!("CARGO_BIN_EXE_weft"), "host"], options].concat()).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{options:?}: {}", text(&output));
    output
}

/// Ping and TCP of the kernel's stacks through two agents, to a host without one, and to the gateway; then the agents
/// end, and all is as before them.
#[test]
fn unmodified_applications_are_scheduled_through_tap_devices() {
    let Some(_turn) = turn("agent") else { return };
    let bed = Bed::new("agent", &[Kind::Host; 3]);
    let switch = bed.start(&(bed.toml(RATE) + PL2), &[]);
    let [a, b, plain] = &bed.hosts[..] else { unreachable!() };
    let before = [a, b].map(network);
    let agents = [a, b].map(|host| HostAgent::start(&bed, host, &[]));
    let with_agent = network(a);
    assert!(with_agent.iter().all(|line| !line.contains("eth0")), "{with_agent:#?}");
    assert!(with_agent.contains(&"program: true".into()) && with_agent.len() >= before[0].len(), "{with_agent:#?}");

    ping_all_pairs(&bed.hosts);
    for gateway in Bed::GATEWAYS {
        a.ping(gateway, &[]).answered();
    }
    tcp(a, b, b.ipv4.into(), 2 << 20);
    tcp(b, a, a.ipv6.into(), 1 << 20);
    tcp(a, plain, plain.ipv4.into(), 1 << 20);

    wait_for("nothing is reserved", || reserved(&slots(&bed)) == 0);
    let shown = slots(&bed);
    let [first, second] = agents.map(HostAgent::stop);
    for report in [&first, &second] {
        let (agent, host) = (&report["agent"], &report["host"]);
        assert!(number(host, "grants") > 0 && number(agent, "data_sent") > 100, "{report}");
        assert_eq!(number(host, "taken"), number(host, "sent") + number(host, "withdrawn"), "{report}");
        assert_eq!(number(agent, "data_sent"), number(host, "sent"), "{report}");
        assert_eq!((number(agent, "left"), number(agent, "malformed")), (0, 0), "{report}");
        assert!(number(&report["rtt_ns"], "count") > 0 && number(&report["lateness_ns"], "count") > 0, "{report}");
    }
    // The gateway, for its one MAC: after it has spoken, and then at doubling intervals.
    assert!((1..=10).contains(&number(&first["agent"], "learned")), "{first}");
    assert_eq!(number(&second["agent"], "learned"), 0, "{second}");
    let closed = number(&first["host"], "used_slots") + number(&second["host"], "used_slots");
    let seen = sum(&shown, "used_slots") + sum(&shown, "late") + sum(&shown, "rogue");
    assert!(seen >= closed, "{closed} slots were used, the switch has seen {seen}: {shown}");

    assert_eq!([a, b].map(network), before);
    ping_all_pairs(&bed.hosts);
    switch.stop();
}

/// The spec's section 3: what a dead sender holds is free again after its deadline, and nobody else waits. The kernel
/// takes TAP and program away.
#[test]
fn a_killed_agent_leaves_no_tap_and_no_program_and_its_slots_come_back() {
    let Some(_turn) = turn("agentkill") else { return };
    let bed = Bed::new("akill", &[Kind::Host; 3]);
    let switch = bed.start(&(bed.toml(RATE) + PL2), &[]);
    let [victim, target, other] = &bed.hosts[..] else { unreachable!() };
    let mut agents: Vec<_> = [victim, target, other].map(|host| HostAgent::start(&bed, host, &[])).into();
    ping_all_pairs(&bed.hosts);

    // Many connections, so that some hold slots at any time.
    let flood = |stop: Instant| {
        let bind = || UdpSocket::bind((victim.ipv4, 0));
        let sockets: Vec<_> = (0..16).map(|_| victim.netns.run_in(bind).unwrap().unwrap()).collect();
        while Instant::now() < stop {
            for socket in &sockets {
                // Fails once the TAP and its address are gone.
                let _ = socket.send_to(&[0; 1400], (target.ipv4, 9));
            }
            thread::sleep(Duration::from_micros(500));
        }
    };
    let mut held = 0;
    thread::scope(|scope| {
        scope.spawn(|| flood(Instant::now() + Duration::from_secs(4)));
        wait_for("the victim holds slots", || {
            held = rows(&slots(&bed), "slots").iter().map(|row| number(row, "pending")).sum();
            held > 0
        });
        let status = agents[0].end(Signal::SIGKILL);
        assert!(!status.success());
        // Longest wait: 32 slots of each of three senders, 12 ms, and the switch's grace of 2 ms. What is left of the
        // second is for `weft show`, one look after the other.
        let killed = Instant::now();
        while reserved(&slots(&bed)) > 0 {
            assert!(killed.elapsed() < Duration::from_secs(1), "{}", slots(&bed));
        }
        let recovered = killed.elapsed();
        measured("`weft host` killed", &format!("nothing is reserved {:.0} ms after", recovered.as_secs_f64() * 1e3));
    });
    assert!(sum(&slots(&bed), "timeouts") > 0, "{held} reservations were pending: {}", slots(&bed));
    let left = network(victim);
    assert!(left.contains(&"program: false".into()), "{left:#?}");
    assert!(!victim.ok(&["ip", "-o", "link"]).contains("pl2"));
    for address in other.addresses() {
        target.ping(address, &[]).answered();
    }
    tcp(target, other, other.ipv4.into(), 1 << 20);

    // It comes back with the addresses that it is told.
    let (ipv4, ipv6) = (format!("{}/24", victim.ipv4), format!("{}/64", victim.ipv6));
    let [via4, via6] = Bed::GATEWAYS.map(|gateway| gateway.to_string());
    let options = ["--address", &ipv4, "--address", &ipv6, "--via", &via4, "--via", &via6];
    agents[0] = HostAgent::start(&bed, victim, &options);
    tcp(victim, target, target.ipv6.into(), 256 << 10);
    victim.ping(Bed::GATEWAYS[0], &[]).answered();
    wait_for("nothing is reserved", || reserved(&slots(&bed)) == 0);
    switch.stop();
}

/// A pipe holds 64 KiB, which are some fifty reports; whatever does not fit must not stop the packets, nor the end.
#[test]
fn an_idle_agent_ends_soon_after_its_uplink_is_gone() {
    let Some(_turn) = turn("agent-gone") else { return };
    let bed = Bed::new("agone", &[Kind::Host; 2]);
    let switch = bed.start(&(bed.toml(RATE) + PL2), &[]);
    let host = &bed.hosts[0];
    let mut agent = HostAgent::start(&bed, host, &["--no-addresses"]);
    // Past what the kernel says by itself when a device comes up.
    thread::sleep(Duration::from_secs(2));
    host.ok(&["ip", "link", "del", "eth0"]);
    let deleted = Instant::now();
    let status = loop {
        if let Some(status) = agent.child.try_wait().unwrap() {
            break status;
        }
        assert!(deleted.elapsed() < Duration::from_secs(3), "it still runs: {}", agent.log());
        thread::sleep(Duration::from_millis(5));
    };
    assert!(!status.success() && agent.log().contains("eth0"), "{status}: {}", agent.log());
    switch.stop();
}

#[test]
fn reports_that_nobody_reads_are_dropped_and_stop_nothing() {
    let Some(_turn) = turn("agentpipe") else { return };
    let bed = Bed::new("apipe", &[Kind::Host; 2]);
    let switch = bed.start(&(bed.toml(RATE) + PL2), &[]);
    let [a, b] = &bed.hosts[..] else { unreachable!() };
    let before = network(a);
    let (log, out) = (bed.path("pipe.log"), bed.path("pipe.out"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["host", "--uplink", "eth0", "--force", "--json", "--stats-interval", "0.005"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
    let mut agent = HostAgent { child: a.netns.spawn(&mut command).unwrap(), log, out };
    wait_for("the agent is ready", || agent.log().contains("ready"));
    // 300 reports.
    thread::sleep(Duration::from_millis(1500));
    for address in b.addresses() {
        a.ping(address, &[]).answered();
    }
    let status = agent.end(Signal::SIGTERM);
    assert!(!status.success() && agent.log().contains("nobody reads"), "{status}: {}", agent.log());
    assert_eq!(network(a), before);
    switch.stop();
}

#[test]
fn what_keeps_an_agent_from_starting_is_said_with_a_remedy_and_changes_nothing() {
    let Some(_turn) = turn("agentrefused") else { return };
    let bed = Bed::new("arefuse", &[Kind::Host]);
    let host = &bed.hosts[0];
    // Routes as an administrator makes them: one of the next hops is reached by a route that the kernel lists behind.
    host.ok(&["ip", "route", "add", "198.51.100.1", "dev", "eth0"]);
    host.ok(&["ip", "route", "add", "192.0.2.0/24", "via", "198.51.100.1"]);
    host.ok(&["ip", "-6", "route", "add", "2001:db8::/32", "via", &Bed::GATEWAYS[1].to_string()]);
    let before = network(host);
    assert_eq!(before.iter().filter(|line| line.starts_with("default")).count(), 2, "{before:#?}");
    host.ok(&["ip", "tuntap", "add", "name", "taken", "mode", "tap"]);
    for (options, words) in [
        (&["--uplink", "eth0"][..], &["`eth0`", "default route", "--force"][..]),
        (&["--uplink", "eth7"], &["`eth7`", "ip link"]),
        (&["--uplink", "eth0", "--force", "--tap", "taken"], &["`taken`", "exists", "--tap"]),
        (&["--uplink", "eth0", "--force", "--tap", "a-name-of-16-byte"], &["a-name-of-16-byte", "15 bytes"]),
        (&["--uplink", "eth0", "--force", "--tap", "pl2-%d"], &["`pl2-%d`", "1 to 15 bytes"]),
        (&["--uplink", "eth0", "--force", "--tap", ""], &["``", "1 to 15 bytes"]),
        (&["--uplink", "eth0", "--force", "--report", "/nowhere/x.json"], &["`/nowhere/x.json`", "No such file"]),
        (&["--uplink", "eth0", "--force", "--report", "/"], &["`/`", "is a directory"]),
        (&["--uplink", "eth0", "--force", "--mtu", "9000"], &["9000", "1500", "--mtu 1500"]),
        (&["--uplink", "eth0", "--force", "--depth", "17"], &["17", "1 to 16"]),
        (&["--uplink", "eth0", "--force", "--address", "10.1.0.1/24", "--via", "10.9.0.1"], &["10.9.0.1", "prefix"]),
        // The TAP has an address and a default route when the second gateway is refused.
        (
            &["--uplink", "eth0", "--force", "--address", "10.1.0.1/24", "--via", "10.1.0.254", "--via", "fd00::1"],
            &["fd00::1", "prefix"],
        ),
    ] {
        let said = text(&refused(host, options));
        assert!(words.iter().all(|word| said.contains(word)), "{options:?}: {said}");
        assert_eq!(network(host), before, "{options:?}");
    }
}

/// The agents of a lab as `weft lab status` tells of them: host, whether it runs, process.
fn agents(lab: &Lab) -> Vec<(String, bool, Option<i32>)> {
    let status: Value = serde_json::from_str(&weft_ok(&["lab", "status", "--json", "--name", &lab.name])).unwrap();
    let agent = |host: &Value| {
        let agent = &host["agent"];
        let pid = agent["pid"].as_i64().map(|pid| pid as i32);
        (host["name"].as_str().unwrap().to_string(), agent["running"].as_bool().unwrap(), pid)
    };
    status["hosts"].as_array().unwrap().iter().map(agent).collect()
}

fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

/// Section 3 of the spec once more, by `weft lab`: one of its agents dies, and the lab tells so and goes on; then the
/// lab's own process dies, and takes the others along.
#[test]
fn a_lab_starts_an_agent_for_each_host_and_ends_them_however_it_ends() {
    let Some(_turn) = turn("agentlab") else { return };
    let lab = Lab::up("agents", &["--rack", "3", "--pl2-agents", "--rate", "100Mbit"]);
    ping_all_pairs(&lab.hosts);
    let [a, b, c] = &lab.hosts[..] else { unreachable!() };
    tcp(a, b, b.ipv4.into(), 1 << 20);
    tcp(c, a, a.ipv6.into(), 256 << 10);
    let socket = lab.switches[0].1.clone();
    let slots = || -> Value {
        serde_json::from_str(&weft_ok(&["show", "slots", "--json", "--socket", socket.to_str().unwrap()])).unwrap()
    };
    wait_for("nothing is reserved", || reserved(&slots()) == 0);
    assert!(sum(&slots(), "used_slots") > 1000, "{}", slots());

    let started = agents(&lab);
    assert!(started.len() == 3 && started.iter().all(|(_, running, pid)| *running && pid.is_some()), "{started:?}");
    let report = || -> Value {
        let text = fs::read_to_string(format!("/run/weft/{}/{}.agent.json", lab.name, a.name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    wait_for("the report tells of data", || number(&report()["agent"], "data_sent") > 0);
    assert_eq!(number(&report()["agent"], "learned"), 0, "the gateway was named: {}", report());

    let victim = started[2].2.unwrap();
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    wait_for("the lab has noticed", || !agents(&lab)[2].1);
    assert_eq!(agents(&lab)[2], (c.name.clone(), false, None));
    assert!(agents(&lab)[..2].iter().all(|(_, running, _)| *running));
    wait_for("nothing is reserved", || reserved(&slots()) == 0);
    tcp(a, b, b.ipv6.into(), 256 << 10);
    let said = weft_ok(&["lab", "status", "--name", &lab.name]);
    assert!(said.contains(&format!("agents: 2 running, 1 not: {}", c.name)), "{said}");

    let status: Value = serde_json::from_str(&weft_ok(&["lab", "status", "--json", "--name", &lab.name])).unwrap();
    let server = status["pid"].as_i64().expect("the lab runs") as i32;
    kill(Pid::from_raw(server), Signal::SIGKILL).unwrap();
    let others: Vec<_> = started[..2].iter().filter_map(|(_, _, pid)| *pid).collect();
    wait_for("the agents end with their lab", || !others.iter().any(|pid| is_alive(*pid)));
    lab.down();

    // Down in good order, too.
    let lab = Lab::up("agents", &["--rack", "2", "--pl2-agents", "--rate", "100Mbit"]);
    let started: Vec<_> = agents(&lab).into_iter().filter_map(|(_, _, pid)| pid).collect();
    assert_eq!(started.len(), 2);
    lab.down();
    assert!(!started.iter().any(|pid| is_alive(*pid)), "{started:?}");
}
