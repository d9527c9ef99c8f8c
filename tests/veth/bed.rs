use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::privilege::privileged;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft::lab::net::{Namespace, Netlink, VethEnd};

use crate::books;

/// No command of a test takes this long unless it hangs.
const COMMAND_SECONDS: &str = "60";

/// A test's turn: tests that measure and tests that flood must not share the machine's few cores, so
/// they run one at a time, whatever `--test-threads` says and whichever checkout they are of.
#[must_use]
pub struct Turn(#[expect(dead_code, reason = "held, not read")] Flock<File>);

/// Waits for this test's turn; `None` where namespaces can't be made, which is said aloud.
pub fn turn(test: &str) -> Option<Turn> {
    if !privileged(test) {
        return None;
    }
    let path = std::env::temp_dir().join("weft-veth-tests.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).unwrap();
    Some(Turn(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno).unwrap()))
}

/// `program arguments`, killed if it hangs.
fn bounded(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", COMMAND_SECONDS, program]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the `weft` under test.
pub fn weft(arguments: &[&str]) -> Output {
    bounded(env!("CARGO_BIN_EXE_weft"), arguments).output().unwrap()
}

/// What a test has measured, a line for the row of that name in docs/reliability.md.
pub fn measured(row: &str, figures: &str) {
    println!("measured: {row}: {figures}");
}

/// Both outputs, for messages.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Standard output of a `weft` command that has to succeed.
pub fn weft_ok(arguments: &[&str]) -> String {
    let output = weft(arguments);
    assert!(output.status.success(), "weft {arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace with a host's stack; its interface is `eth0`.
#[derive(Debug)]
pub struct Host {
    pub name: String,
    pub netns: Namespace,
    pub ipv4: Ipv4Addr,
    pub ipv6: Ipv6Addr,
}

impl Host {
    /// Its IPv4 and IPv6 address.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [self.ipv4.into(), self.ipv6.into()]
    }

    /// Starts a command in the namespace.
    pub fn spawn(&self, command: &[&str]) -> Child {
        self.netns.spawn(&mut bounded(command[0], &command[1..])).unwrap()
    }

    /// Standard output of a command in the namespace that has to succeed.
    pub fn ok(&self, command: &[&str]) -> String {
        let output = self.spawn(command).wait_with_output().unwrap();
        assert!(output.status.success(), "{} {command:?}: {}", self.name, text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Its MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let links = Netlink::open(&self.netns).unwrap().links().unwrap();
        links.into_iter().find(|link| link.name == "eth0").expect("a host has eth0").mac
    }

    /// The MAC address that it knows a neighbour by.
    pub fn neighbour(&self, address: &str) -> [u8; 6] {
        let line = self.ok(&["ip", "neigh", "show", address]);
        let text = line.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).expect(&line);
        let bytes: Vec<_> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        bytes.try_into().unwrap()
    }

    /// Starts two pings of `target`; see [`Pings::answered`].
    pub fn ping(&self, target: IpAddr, options: &[&str]) -> Pings {
        let target = target.to_string();
        let mut command = vec!["ping", "-n", "-c", "2", "-i", "0.2", "-W", "5"];
        command.extend(options);
        command.push(&target);
        Pings { what: format!("{} to {target} {options:?}", self.name), child: self.spawn(&command) }
    }
}

/// A `ping` under way.
pub struct Pings {
    what: String,
    child: Child,
}

impl Pings {
    /// Waits for it; every request has to be answered.
    pub fn answered(self) {
        let output = self.child.wait_with_output().unwrap();
        let said = text(&output);
        assert!(output.status.success() && said.contains(" 0% packet loss"), "{}:\n{said}", self.what);
    }
}

/// Every host pings every other over both families, all at once.
pub fn ping_all_pairs(hosts: &[Host]) {
    let mut pings = Vec::new();
    for from in hosts {
        for to in hosts.iter().filter(|to| to.name != from.name) {
            pings.extend(to.addresses().map(|address| from.ping(address, &[])));
        }
    }
    pings.into_iter().for_each(Pings::answered);
}

/// A lab of its own for one test; down when it is dropped.
pub struct Lab {
    pub name: String,
    pub hosts: Vec<Host>,
    /// Switch names with their sockets.
    pub switches: Vec<(String, PathBuf)>,
    /// Links by their ends' names.
    pub links: Vec<(String, String)>,
}

impl Lab {
    /// `weft lab up` under a name of this process and `tag` (at most 7 letters). Its switches say no hellos:
    /// with them the counters of two ends of a link are never read at one state.
    pub fn up(tag: &str, arguments: &[&str]) -> Lab {
        Lab::up_talking(tag, &[arguments, &["--hello-interval", "0"]].concat())
    }

    /// The same with hellos.
    pub fn up_talking(tag: &str, arguments: &[&str]) -> Lab {
        let name = format!("v{}-{tag}", std::process::id());
        // From here on `down` runs, whatever becomes of `up`.
        let mut lab = Lab { name, hosts: Vec::new(), switches: Vec::new(), links: Vec::new() };
        weft_ok(&[&["lab", "up", "--name", &lab.name], arguments].concat());
        let status: serde_json::Value =
            serde_json::from_str(&weft_ok(&["lab", "status", "--json", "--name", &lab.name])).unwrap();
        assert_eq!(status["running"], true, "{status}");
        let field = |value: &serde_json::Value, key: &str| value[key].as_str().expect(key).to_string();
        for host in status["hosts"].as_array().unwrap() {
            let name = field(host, "name");
            lab.hosts.push(Host {
                netns: Namespace::open(&format!("weft-{}.{name}", lab.name)).unwrap(),
                ipv4: field(host, "ipv4").parse().unwrap(),
                ipv6: field(host, "ipv6").parse().unwrap(),
                name,
            });
        }
        for switch in status["switches"].as_array().unwrap() {
            lab.switches.push((field(switch, "name"), field(switch, "socket").into()));
        }
        for link in status["links"].as_array().unwrap() {
            assert_eq!(link["state"], "up", "{link}");
            lab.links.push((field(link, "a"), field(link, "b")));
        }
        lab
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).expect(name)
    }

    /// The control socket of the switch of that name.
    pub fn socket(&self, name: &str) -> &Path {
        &self.switches.iter().find(|(switch, _)| switch == name).expect(name).1
    }

    /// Waits until nothing moves, and checks every switch's books and both ends of every link.
    pub fn check_books(&self) {
        let deadline = Instant::now() + books::REST;
        loop {
            let ports: Vec<_> = self.switches.iter().map(|(_, socket)| books::at_rest(socket)).collect();
            let port = |node: &str, peer: &str| {
                let switch = self.switches.iter().position(|(name, _)| name == node)?;
                ports[switch].iter().find(|port| port.port == peer)
            };
            let fabric_links = self.links.iter().filter_map(|(a, b)| Some((port(a, b)?, port(b, a)?)));
            let ends: Vec<_> = fabric_links.flat_map(|(near, far)| [(near, far), (far, near)]).collect();
            assert_eq!(ends.len() / 2 + self.hosts.len(), self.links.len(), "every link has its ports");
            let lost: Vec<_> = ends.into_iter().filter_map(|(near, far)| books::check_link(near, far).err()).collect();
            if lost.is_empty() {
                return;
            }
            // One end was looked at after the other, and a late frame came between: it is no loss if
            // both agree at another look.
            assert!(Instant::now() < deadline, "{}", lost.join("\n"));
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// `weft lab down`, checked: nothing of the lab is left.
    pub fn down(self) {
        let said = weft_ok(&["lab", "down", "--name", &self.name]);
        let nodes = self.hosts.len() + self.switches.len();
        assert_eq!(said.trim(), format!("lab `{}` is down: {nodes} namespaces removed", self.name));
        let nodes = self.hosts.iter().map(|host| &host.name).chain(self.switches.iter().map(|(name, _)| name));
        for node in nodes {
            assert!(!Namespace::path(&format!("weft-{}.{node}", self.name)).exists(), "{node} is left");
        }
        assert!(!Path::new("/run/weft").join(&self.name).exists());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let output = weft(&["lab", "down", "--name", &self.name]);
        if !output.status.success() {
            eprintln!("{}", text(&output));
        }
    }
}

/// What a hand-made switch's interface leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Host,
    Up,
}

/// One ToR wired by hand: a namespace for the switch, and one for whatever is at the other end of each
/// of its interfaces `p0`, `p1`, ... The segment is 10.77.0.0/24 and fd77::/64, gateway 1, host `pN` is
/// N + 2. Behind an up port is a namespace without addresses; 10.78.0.0/16 is routed there.
pub struct Bed {
    prefix: String,
    dir: tempfile::TempDir,
    pub switch: Namespace,
    pub hosts: Vec<Host>,
    ports: Vec<Kind>,
}

impl Bed {
    /// The gateway in both families.
    pub const GATEWAYS: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1))];

    /// Namespaces, veths and addresses; no switch runs yet.
    pub fn new(tag: &str, ports: &[Kind]) -> Bed {
        let prefix = format!("weft-bed{}-{tag}-", std::process::id());
        let switch = Namespace::create(&format!("{prefix}s")).unwrap();
        // From here on all goes when it is dropped.
        let mut bed =
            Bed { prefix, dir: tempfile::tempdir().unwrap(), switch, hosts: Vec::new(), ports: ports.to_vec() };
        bed.switch.set_sysctls(&[("net.ipv6.conf.default.disable_ipv6", "1")]).unwrap();
        let near = Netlink::open(&bed.switch).unwrap();
        for (i, kind) in (0u8..).zip(ports) {
            let name = format!("p{i}");
            let netns = Namespace::create(&format!("{}{name}", bed.prefix)).unwrap();
            let quiet = if *kind == Kind::Up { "1" } else { "0" };
            netns
                .set_sysctls(&[
                    ("net.ipv6.conf.default.disable_ipv6", quiet),
                    ("net.ipv6.conf.default.accept_dad", "0"),
                    ("net.ipv6.conf.default.router_solicitations", "0"),
                ])
                .unwrap();
            let port = VethEnd { interface: &name, mac: [2, 0x77, 1, 0, 0, i] };
            let eth0 = VethEnd { interface: "eth0", mac: [2, 0x77, 2, 0, 0, i] };
            near.add_veth(&port, &eth0, &netns, 1500).unwrap();
            near.set_up(&name, true).unwrap();
            let far = Netlink::open(&netns).unwrap();
            far.set_up("lo", true).unwrap();
            far.set_up("eth0", true).unwrap();
            let host = i + 2;
            let (ipv4, ipv6) = (Ipv4Addr::new(10, 77, 0, host), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host.into()));
            if *kind == Kind::Host {
                far.add_address("eth0", format!("{ipv4}/24").parse().unwrap()).unwrap();
                far.add_address("eth0", format!("{ipv6}/64").parse().unwrap()).unwrap();
                Bed::GATEWAYS.iter().for_each(|gateway| far.add_default_route(*gateway).unwrap());
            }
            bed.hosts.push(Host { name, netns, ipv4, ipv6 });
        }
        bed
    }

    /// A path in the bed's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The switch's control socket.
    pub fn socket(&self) -> PathBuf {
        self.path("s.sock")
    }

    /// The switch's configuration; `extra` is added to each port of kind host.
    pub fn toml(&self, extra: &str) -> String {
        let mut text = format!(
            "name = \"bed\"\nrole = \"tor\"\nid = 7\n[segment]\nipv4 = \"{}/24\"\nipv6 = \"{}/64\"\n[runtime]\ncontrol = {:?}\n[hello]\ninterval = 0\n",
            Bed::GATEWAYS[0],
            Bed::GATEWAYS[1],
            self.socket()
        );
        for (i, kind) in self.ports.iter().enumerate() {
            let (kind, extra) = if *kind == Kind::Host { ("host", extra) } else { ("up", "") };
            writeln!(text, "[[port]]\ninterface = \"p{i}\"\nkind = \"{kind}\"\n{extra}").unwrap();
        }
        if let Some(up) = self.ports.iter().position(|kind| *kind == Kind::Up) {
            writeln!(text, "[[route]]\nprefix = \"10.78.0.0/16\"\nports = [\"p{up}\"]").unwrap();
        }
        text
    }

    /// Writes a configuration and returns its path.
    pub fn write(&self, name: &str, toml: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, toml).unwrap();
        path
    }

    /// Starts `weft run` on `toml` and waits until it forwards.
    pub fn start(&self, toml: &str, arguments: &[&str]) -> Switch {
        self.start_by(&[], env!("CARGO_BIN_EXE_weft").as_ref(), toml, arguments)
    }

    /// The same of the binary `weft` by a command that becomes it, like `setpriv`.
    pub fn start_by(&self, before: &[&str], weft_path: &Path, toml: &str, arguments: &[&str]) -> Switch {
        self.start_as("s", before, weft_path, toml, arguments)
    }

    /// Starts one more, whose files are called `name`.
    pub fn start_beside(&self, toml: &str, name: &str) -> Switch {
        self.start_as(name, &[], env!("CARGO_BIN_EXE_weft").as_ref(), toml, &[])
    }

    fn start_as(&self, name: &str, before: &[&str], weft_path: &Path, toml: &str, arguments: &[&str]) -> Switch {
        let config = self.write(&format!("{name}.toml"), toml);
        let log = self.path(&format!("{name}.log"));
        // Not under `timeout`, which would stand between it and a signal: Switch ends it.
        let mut command = Command::new(before.first().map_or(weft_path.as_os_str(), OsStr::new));
        if let [_, options @ ..] = before {
            command.args(options).arg(weft_path);
        }
        command.arg("run").arg(config).args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let child = self.switch.spawn(&mut command).unwrap();
        let mut switch = Switch { child, log, socket: self.path(&format!("{name}.sock")) };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !weft(&["show", "workers", "--socket", switch.socket.to_str().unwrap()]).status.success() {
            let ended = switch.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "it does not forward: {ended:?}\n{}", switch.log());
            thread::sleep(Duration::from_millis(20));
        }
        switch
    }

    /// Runs `weft run` on `toml`, which has to end by itself.
    pub fn fail(&self, toml: &str, arguments: &[&str]) -> Output {
        self.fail_by(&[], env!("CARGO_BIN_EXE_weft").as_ref(), toml, arguments)
    }

    /// The same of the binary `weft` by a command that becomes it.
    pub fn fail_by(&self, before: &[&str], weft_path: &Path, toml: &str, arguments: &[&str]) -> Output {
        let config = self.write("refused.toml", toml);
        let weft = [weft_path.to_str().unwrap(), "run", config.to_str().unwrap()];
        let all = [before, &weft, arguments].concat();
        let child = self.switch.spawn(&mut bounded(all[0], &all[1..])).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What `ip` says of an interface of the switch's namespace.
    pub fn ip_link(&self, interface: &str) -> String {
        let mut command = bounded("ip", &["-d", "link", "show", "dev", interface]);
        text(&self.switch.spawn(&mut command).unwrap().wait_with_output().unwrap())
    }

    /// Fails if an XDP program is on any port.
    pub fn assert_detached(&self) {
        for i in 0..self.ports.len() {
            let shown = self.ip_link(&format!("p{i}"));
            assert!(shown.contains("link/ether") && !shown.contains("xdp"), "{shown}");
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for name in Namespace::list(&self.prefix).unwrap_or_default() {
            let _ = Namespace::delete(&name);
        }
    }
}

/// A `weft run` under way; killed when it is dropped.
pub struct Switch {
    child: Child,
    log: PathBuf,
    pub socket: PathBuf,
}

impl Switch {
    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it as a user would; it has to end well.
    pub fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert!(status.success(), "{status}:\n{}", self.log());
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
