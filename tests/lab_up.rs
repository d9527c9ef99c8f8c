//! Labs on the real kernel, from `up` to `down`, with stand-ins for the switches' process. Needs
//! root; without it each test says so and passes, unless CI=true, where a skipped test is a failure.

mod privilege;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use privilege::privileged;
use weft::lab::net::{Namespace, Netlink};
use weft::lab::{LabError, LabName, LinkState, UpOptions, down, exec, serve, status, up};
use weft::topo::{Fabric, FabricOptions};

/// Set in a copy of this program that a test starts, with what it is to do.
const ROLE: &str = "WEFT_TEST_ROLE";

/// Says it forwards, then waits to be told to end; drops its shell, so that it is one process.
const FORWARDS: &str = r#"touch "$2/ready"; exec sleep 300"#;
/// Never says it forwards.
const SLOW: &str = "exec sleep 300";

/// A lab's name; the lab goes when the test ends, by a panic too.
struct Lab(LabName);

impl Lab {
    fn new(test: &str) -> Lab {
        Lab(format!("t{}-{test}", std::process::id()).parse().unwrap())
    }

    fn options(&self, script: &str) -> UpOptions {
        UpOptions {
            fabric: Fabric::leaf_spine(2, 2, &FabricOptions::default()).unwrap(),
            name: self.0.clone(),
            workers: 0,
            poll: None,
            congestion_control: None,
            agents: false,
            server: ["sh", "-c", script, "lab-serve"].map(OsString::from).into(),
        }
    }

    fn namespaces(&self) -> Vec<String> {
        Namespace::list(&self.0.namespace("")).unwrap()
    }

    fn assert_gone(&self) {
        assert_eq!(self.namespaces(), Vec::<String>::new());
        assert!(!self.0.state_dir().exists());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = down(&self.0) {
            eprintln!("{error}");
        }
    }
}

/// This program again, running only `test`, in `role`.
fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role);
    command
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_lab_comes_up_shows_itself_and_goes_down_without_a_trace() {
    if !privileged("cycle") {
        return;
    }
    let lab = Lab::new("cycle");
    let report = up(&lab.options(FORWARDS)).unwrap();
    assert_eq!(lab.namespaces().len(), 8);

    let shown = status(&lab.0).unwrap();
    assert!(shown.running && !shown.ended && lab.0.is_running());
    assert_eq!(shown.pid, Some(report.pid as i32));
    assert_eq!((shown.hosts.len(), shown.switches.len(), shown.links.len()), (4, 4, 8));
    assert!(shown.links.iter().all(|link| link.state == LinkState::Up), "{shown}");
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["hosts"][0]["ipv4"], "10.0.0.2");
    assert_eq!(json["hosts"][0]["ipv6"], "fd00::2");
    assert_eq!(json["switches"][0]["role"], "tor");
    assert_eq!(json["switches"][0]["socket"], lab.0.socket(&shown.switches[0].name).to_str().unwrap());
    assert_eq!(json["links"][0]["state"], "up");
    assert!(shown.to_string().contains("links: 8 up, 0 down"), "{shown}");

    let gone = down(&lab.0).unwrap();
    assert!(gone.was_up && !gone.killed);
    assert_eq!((gone.namespaces, gone.left), (8, vec![]));
    lab.assert_gone();
    wait_until("the background process ends", || {
        kill(Pid::from_raw(report.pid as i32), None).is_err() || zombie(report.pid)
    });
    let again = down(&lab.0).unwrap();
    assert!(!again.was_up, "{again:?}");
    let error = status(&lab.0).unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

/// Whether `pid`, our own child that nobody waited for, has ended.
fn zombie(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn hosts_are_addressed_and_switch_namespaces_are_silent() {
    if !privileged("addr") {
        return;
    }
    let lab = Lab::new("addr");
    up(&lab.options(FORWARDS)).unwrap();
    let shown = status(&lab.0).unwrap();
    let (host, switch) = (&shown.hosts[0], &shown.switches[0]);
    let output = |node: &str, command: &[&str]| {
        let namespace = Namespace::open(&lab.0.namespace(node)).unwrap();
        let mut child = Command::new(command[0]);
        let child = namespace.spawn(child.args(&command[1..]).stdout(Stdio::piped())).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let routes = output(&host.name, &["ip", "route"]) + &output(&host.name, &["ip", "-6", "route"]);
    assert!(
        routes.contains("default via 10.0.0.1 dev eth0") && routes.contains("default via fd00::1 dev eth0"),
        "{routes}"
    );
    let addresses = output(&host.name, &["ip", "addr", "show", "dev", "eth0"]);
    assert!(addresses.contains("10.0.0.2/24") && addresses.contains("fd00::2/64"), "{addresses}");
    assert!(!addresses.contains("tentative"), "{addresses}");
    let silent = output(&switch.name, &["ip", "addr", "show", "up"]);
    assert!(silent.contains(&host.name), "the port is named after its peer: {silent}");
    assert!(!silent.contains("inet6 fe80"), "{silent}");

    // An end that goes down is a link that is down.
    let namespace = Namespace::open(&lab.0.namespace(&switch.name)).unwrap();
    Netlink::open(&namespace).unwrap().set_up(&host.name, false).unwrap();
    let after = status(&lab.0).unwrap();
    let down: Vec<_> = after.links.iter().filter(|link| link.state == LinkState::Down).collect();
    assert_eq!(down.len(), 1);
    assert_eq!((&down[0].a, &down[0].b), (&host.name, &switch.name));
    assert!(after.to_string().contains(&format!("down: {} - {}", host.name, switch.name)));
}

#[test]
fn a_second_up_of_the_same_name_is_refused_and_changes_nothing() {
    if !privileged("twice") {
        return;
    }
    let lab = Lab::new("twice");
    up(&lab.options(FORWARDS)).unwrap();
    let before = status(&lab.0).unwrap();
    let error = up(&lab.options(FORWARDS)).unwrap_err();
    assert!(matches!(error, LabError::AlreadyUp(_)));
    assert_eq!(error.exit_code(), 2);
    assert_eq!(error.to_string(), format!("lab `{0}` is already up: `weft lab down --name {0}`", lab.0));
    assert_eq!(status(&lab.0).unwrap(), before);
}

#[test]
fn two_labs_stand_side_by_side_even_if_one_name_begins_with_the_other() {
    if !privileged("side") {
        return;
    }
    let (short, long) = (Lab::new("s"), Lab::new("s-b"));
    up(&short.options(FORWARDS)).unwrap();
    up(&long.options(FORWARDS)).unwrap();
    assert_eq!(down(&short.0).unwrap().namespaces, 8);
    let other = status(&long.0).unwrap();
    assert!(other.running && other.links.iter().all(|link| link.state == LinkState::Up), "{other}");
    assert_eq!(down(&long.0).unwrap().namespaces, 8);
    short.assert_gone();
}

#[test]
fn a_fabric_that_needs_more_open_files_than_allowed_is_refused_before_anything_is_made() {
    let test = "a_fabric_that_needs_more_open_files_than_allowed_is_refused_before_anything_is_made";
    if let Ok(name) = std::env::var(ROLE) {
        setrlimit(Resource::RLIMIT_NOFILE, 100, 100).unwrap();
        let lab = Lab(name.parse().unwrap());
        let mut options = lab.options(FORWARDS);
        options.fabric = Fabric::fat_tree(8, &FabricOptions::default()).unwrap();
        let error = up(&options).unwrap_err();
        assert!(!lab.0.state_dir().exists());
        assert_eq!(error.exit_code(), 2);
        println!("{error}");
        return;
    }
    let lab = Lab::new("files");
    let output = again(test, &lab.0.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // 80 switches of 8 ports: 1282 for the ports, 400 for the switches, 7 for worker and keeper, 64 to spare.
    let expected = "a lab of 80 switches and 128 hosts needs 1753 open files and may have 100: `ulimit -n 1753`";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn down_of_a_lab_named_like_another_labs_node_touches_nothing() {
    if !privileged("node") {
        return;
    }
    let lab = Lab::new("n");
    up(&lab.options(FORWARDS)).unwrap();
    for like_node in ["n-h0", "n-h0-0", "n-tor0"].map(Lab::new) {
        let gone = down(&like_node.0).unwrap();
        assert!(!gone.was_up && gone.namespaces == 0, "{gone:?}");
    }
    assert_eq!(lab.namespaces().len(), 8);
    let shown = status(&lab.0).unwrap();
    assert!(shown.running && shown.links.iter().all(|link| link.state == LinkState::Up), "{shown}");
}

#[test]
fn a_lab_whose_process_was_killed_is_shown_so_and_goes_down() {
    if !privileged("kill") {
        return;
    }
    let lab = Lab::new("kill");
    let report = up(&lab.options(FORWARDS)).unwrap();
    kill(Pid::from_raw(report.pid as i32), Signal::SIGKILL).unwrap();
    wait_until("the lab is seen as ended", || !status(&lab.0).unwrap().running);
    let shown = status(&lab.0).unwrap();
    assert_eq!((shown.pid, shown.ended, lab.0.is_running()), (None, true, false));
    let remedy = format!("`weft lab down --name {}`", lab.0);
    assert!(shown.to_string().lines().nth(1).unwrap().ends_with(&remedy), "{shown}");
    assert!(matches!(up(&lab.options(FORWARDS)).unwrap_err(), LabError::LeftBehind(_)));
    let gone = down(&lab.0).unwrap();
    assert!(gone.was_up && !gone.killed);
    lab.assert_gone();
}

#[test]
fn namespaces_without_any_state_still_go_down() {
    if !privileged("bare") {
        return;
    }
    let lab = Lab::new("bare");
    Namespace::create(&lab.0.namespace("tor0-0")).unwrap();
    assert!(matches!(up(&lab.options(FORWARDS)).unwrap_err(), LabError::LeftBehind(_)));
    assert_eq!(down(&lab.0).unwrap().namespaces, 1);
    lab.assert_gone();
}

#[test]
fn a_process_that_ignores_sigterm_is_killed() {
    if !privileged("deaf") {
        return;
    }
    let lab = Lab::new("deaf");
    up(&lab.options(r#"trap "" TERM; touch "$2/ready"; while :; do sleep 1; done"#)).unwrap();
    let gone = down(&lab.0).unwrap();
    assert!(gone.killed, "{gone:?}");
    lab.assert_gone();
}

#[test]
fn down_tells_of_processes_that_still_run_in_the_namespaces() {
    if !privileged("left") {
        return;
    }
    let lab = Lab::new("left");
    up(&lab.options(FORWARDS)).unwrap();
    let host = lab.0.namespace(&status(&lab.0).unwrap().hosts[0].name);
    let mut sleeper = Namespace::open(&host).unwrap().spawn(Command::new("sleep").arg("60")).unwrap();
    let gone = down(&lab.0).unwrap();
    let alive = sleeper.try_wait().unwrap().is_none();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(alive, "it was left alone");
    let left: Vec<_> = gone.left.iter().map(|left| (left.pid as u32, left.command.as_str(), &left.namespace)).collect();
    assert_eq!(left, [(sleeper.id(), "sleep", &host)]);
}

#[test]
fn switches_that_do_not_start_leave_their_log_in_the_error_and_nothing_else() {
    if !privileged("fail") {
        return;
    }
    let lab = Lab::new("fail");
    let error = up(&lab.options("echo no AF_XDP on this kernel >&2; exit 3")).unwrap_err();
    assert!(matches!(error, LabError::NotReady { .. }));
    let text = error.to_string();
    assert!(text.contains("exit status: 3") && text.contains("no AF_XDP on this kernel"), "{text}");
    assert_eq!(error.exit_code(), 1);
    lab.assert_gone();

    let mut options = lab.options("");
    options.server = vec!["/no/such/server".into()];
    let text = up(&options).unwrap_err().to_string();
    assert!(text.contains("/no/such/server") && text.contains("No such file"), "{text}");
    lab.assert_gone();
}

/// Starts a copy of this test that is stuck in `up`, once its server runs.
fn stuck_up(test: &str, lab: &Lab) -> Child {
    let child = again(test, &lab.0.to_string()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let own = child.id() as i32;
    wait_until("the server holds the lock", || {
        status(&lab.0).is_ok_and(|shown| shown.pid.is_some_and(|pid| pid != own))
    });
    child
}

/// In the copy: `up`, which never gets ready, and its error on the way out.
fn play_stuck_up() -> bool {
    let Ok(name) = std::env::var(ROLE) else { return false };
    let lab = Lab(name.parse().unwrap());
    let error = up(&lab.options(SLOW)).unwrap_err();
    eprintln!("{error}");
    // No second `down` here: `up` must have cleaned by itself.
    std::mem::forget(lab);
    true
}

#[test]
fn an_interrupted_up_removes_all_it_made() {
    let test = "an_interrupted_up_removes_all_it_made";
    if play_stuck_up() || !privileged("int") {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let lab = Lab::new("int");
        let child = stuck_up(test, &lab);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("interrupted"), "{text}");
        lab.assert_gone();
    }
}

#[test]
fn an_up_that_was_killed_half_way_goes_down_with_its_server() {
    let test = "an_up_that_was_killed_half_way_goes_down_with_its_server";
    if play_stuck_up() || !privileged("half") {
        return;
    }
    let lab = Lab::new("half");
    let mut child = stuck_up(test, &lab);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let shown = status(&lab.0).unwrap();
    assert!(!shown.running && shown.pid.is_some(), "it never said that it forwards: {shown}");
    let gone = down(&lab.0).unwrap();
    assert!(gone.was_up && !gone.killed);
    lab.assert_gone();
}

#[test]
fn down_during_up_ends_it() {
    let test = "down_during_up_ends_it";
    if play_stuck_up() || !privileged("race") {
        return;
    }
    let lab = Lab::new("race");
    let child = stuck_up(test, &lab);
    assert!(down(&lab.0).unwrap().was_up);
    assert!(child.wait_with_output().unwrap().status.success());
    lab.assert_gone();
}

#[test]
fn serve_runs_every_switch_in_its_namespace_and_ends_on_sigterm() {
    let test = "serve_runs_every_switch_in_its_namespace_and_ends_on_sigterm";
    if let Ok(state) = std::env::var(ROLE) {
        let stop = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop)).unwrap();
        serve::<std::io::Error>(Path::new(&state), |job, ready| {
            assert_eq!((job.switches.len(), job.workers), (4, 2));
            for (config, netns, _) in &job.switches {
                assert!(netns.to_str().unwrap().ends_with(&format!(".{}", config.name)), "{netns:?}");
                let namespace = Namespace::open(netns.file_name().unwrap().to_str().unwrap()).unwrap();
                let links = Netlink::open(&namespace).unwrap().links().unwrap();
                let there = |port: &str| links.iter().any(|link| link.name == port && link.carrier);
                assert!(config.ports.iter().all(|port| there(&port.interface)), "{links:?}");
                assert_eq!(config.runtime.control.parent(), Some(Path::new(&state)));
            }
            ready();
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(10));
            }
            println!("drained");
            Err(std::io::Error::other("no more frames"))
        })
        .unwrap_err();
        return;
    }
    if !privileged("serve") {
        return;
    }
    let lab = Lab::new("serve");
    let copy = std::env::current_exe().unwrap();
    let mut options =
        lab.options(&format!("{ROLE}=\"$2\" exec '{}' --exact {test} --nocapture", copy.to_str().unwrap()));
    options.workers = 2;
    let report = up(&options).unwrap();
    let shown = status(&lab.0).unwrap();
    assert!(shown.running);
    kill(Pid::from_raw(report.pid as i32), Signal::SIGTERM).unwrap();
    wait_until("it ended", || !status(&lab.0).unwrap().running && status(&lab.0).unwrap().pid.is_none());
    let log = std::fs::read_to_string(lab.0.state_dir().join("weft.log")).unwrap();
    assert!(log.contains("drained") && log.contains("1 passed"), "{log}");
    assert!(!lab.0.state_dir().join("ready").exists());
}

#[test]
fn exec_becomes_the_command_in_the_namespace_and_passes_its_exit_code() {
    let test = "exec_becomes_the_command_in_the_namespace_and_passes_its_exit_code";
    if let Ok(name) = std::env::var(ROLE) {
        let script = "ls /sys/class/net; ip -br addr show dev eth0; exit 7";
        panic!("{}", exec(&name.parse().unwrap(), "h0-0-2", &"sh".into(), &["-c".into(), script.into()]));
    }
    if !privileged("exec") {
        return;
    }
    let lab = Lab::new("exec");
    up(&lab.options(FORWARDS)).unwrap();
    let output = again(test, &lab.0.to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("eth0") && text.contains("10.0.0.2/24"), "{text}");

    let unknown = exec(&lab.0, "h0-0-1", &"true".into(), &[]);
    assert_eq!(unknown.exit_code(), 2);
    assert!(unknown.to_string().contains("`h0-0-1`") && unknown.to_string().contains("`h0-0-2`"), "{unknown}");
    // On a thread of its own, which stays in the namespace.
    let name = lab.0.clone();
    let missing = thread::spawn(move || exec(&name, "h0-0-2", &"no-such-command".into(), &[])).join().unwrap();
    assert_eq!(missing.exit_code(), 127);
    assert!(
        missing.to_string().contains("`no-such-command`") && missing.to_string().contains("No such file"),
        "{missing}"
    );
    let directory = lab.0.clone();
    let denied = thread::spawn(move || exec(&directory, "h0-0-2", &"/tmp".into(), &[])).join().unwrap();
    assert_eq!(denied.exit_code(), 126);
    let nowhere = exec(&Lab::new("none").0, "h0-0-2", &"true".into(), &[]);
    assert!(matches!(nowhere, LabError::NotUp(_)) && nowhere.exit_code() == 2);
}

#[test]
fn a_fat_tree_of_k_4_is_built_quickly() {
    if !privileged("fat") {
        return;
    }
    let lab = Lab::new("fat");
    let mut options = lab.options(FORWARDS);
    options.fabric = Fabric::fat_tree(4, &FabricOptions::default()).unwrap();
    let report = up(&options).unwrap();
    let shown = status(&lab.0).unwrap();
    assert_eq!((shown.switches.len(), shown.hosts.len(), shown.links.len()), (20, 16, 48));
    assert!(shown.links.iter().all(|link| link.state == LinkState::Up), "{shown}");
    eprintln!("built in {:?}, ready in {:?}", report.built_in, report.ready_in);
    // A bound on runaway cost, far above what a loaded machine needs.
    assert!(report.built_in < Duration::from_secs(20), "{report:?}");
}
