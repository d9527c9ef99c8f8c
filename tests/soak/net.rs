use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weft::config::SwitchConfig;
use weft::lab::net::{Namespace, Netlink, VethEnd};

use crate::bed::Kind::{self, Up};
use crate::bed::{Bed, Host, Lab, Switch, text, weft, weft_ok};

/// MTU of every link when it is well.
const MTU: u32 = 1500;

/// A switch, wherever it runs.
pub struct Site {
    pub name: String,
    pub netns: Namespace,
    pub socket: PathBuf,
    /// The file it reads again at a reload.
    pub file: PathBuf,
    /// What is in the file when all is well.
    pub toml: String,
}

impl Site {
    fn new(name: &str, netns: Namespace, socket: PathBuf, file: PathBuf) -> Site {
        let toml = std::fs::read_to_string(&file).unwrap();
        Site { name: name.into(), netns, socket, file, toml }
    }

    pub fn config(&self) -> SwitchConfig {
        SwitchConfig::parse(&self.toml, "soak").unwrap()
    }

    /// What a change says that has to be made.
    pub fn change(&self, arguments: &[&str]) -> String {
        weft_ok(&[arguments, &["--socket", self.socket.to_str().unwrap()]].concat())
    }

    /// What a change says that has to be refused.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = weft(&[arguments, &["--socket", self.socket.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1), "{}: {arguments:?}: {}", self.name, text(&output));
        text(&output)
    }
}

/// A host, or what stands in its place at a link up, and its wire to a switch.
pub struct Station {
    pub name: String,
    /// Index of its switch.
    pub site: usize,
    /// The interface at the switch; at the host it is `eth0`.
    pub port: String,
    near_mac: [u8; 6],
    pub mac: [u8; 6],
    gateways: [IpAddr; 2],
    /// Whether it has addresses.
    pub talks: bool,
    /// Segments may not be merged on their way: what generic mode can't carry.
    plain: bool,
    host: RwLock<Arc<Host>>,
    /// Counts up whenever it loses a namespace, and again when it has another.
    lost: AtomicU64,
}

impl Station {
    /// The host as it is now.
    pub fn host(&self) -> Arc<Host> {
        self.host.read().unwrap().clone()
    }

    pub fn times_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// A link between two switches of the lab, by indices of sites; the interface is named after the other end.
#[derive(Clone, Copy)]
pub struct FabricLink {
    pub leaf: usize,
    pub spine: usize,
}

/// All that is under test: a lab, and a switch of its own that can be killed.
pub struct Net {
    pub lab: Lab,
    pub bed: Bed,
    /// The one of `bed`; its last site.
    switch: RwLock<Switch>,
    pub sites: Vec<Site>,
    pub stations: Vec<Station>,
    pub links: Vec<FabricLink>,
    /// The process of the lab's switches.
    pub pid: u32,
}

impl Net {
    pub fn up() -> Net {
        let mut lab = Lab::up_talking("soak", &["--leaf-spine", "2x2"]);
        let mut bed = Bed::new("soak", &[Kind::Host, Kind::Host, Kind::Host, Up]);
        let switch = bed.start(&bed.toml(""), &[]);
        let status: serde_json::Value =
            serde_json::from_str(&weft_ok(&["lab", "status", "--json", "--name", &lab.name])).unwrap();
        let pid = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();

        let mut sites = Vec::new();
        for (name, socket) in &lab.switches {
            let netns = Namespace::open(&format!("weft-{}.{name}", lab.name)).unwrap();
            sites.push(Site::new(name, netns, socket.clone(), socket.with_extension("toml")));
        }
        let netns = Namespace::open(bed.switch.name()).unwrap();
        sites.push(Site::new("bed", netns, bed.socket(), bed.path("s.toml")));
        let named = |name: &str| sites.iter().position(|site| site.name == name).expect(name);

        // Out of lab and bed, whose handles would keep a namespace alive that is to be lost.
        let mut stations = Vec::new();
        for host in std::mem::take(&mut lab.hosts) {
            let tor = &lab.links.iter().find(|(a, _)| *a == host.name).expect("a host has a link").1;
            stations.push(station(&sites, named(tor), host.name.clone(), host, true));
        }
        for host in std::mem::take(&mut bed.hosts) {
            let talks = host.name != "p3";
            stations.push(station(&sites, named("bed"), host.name.clone(), host, talks));
        }
        let is_host = |name: &str| stations.iter().any(|s: &Station| s.name == name);
        let fabric = lab.links.iter().filter(|(a, _)| !is_host(a));
        let links = fabric.map(|(a, b)| FabricLink { leaf: named(a), spine: named(b) }).collect();
        let net = Net { lab, bed, switch: RwLock::new(switch), sites, stations, links, pid };
        net.stations.iter().for_each(|station| net.restore(station));
        net
    }

    /// The switch of the bed, which is not killed meanwhile. A finding at it does not end the run.
    pub fn switch(&self) -> RwLockReadGuard<'_, Switch> {
        self.switch.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to be killed.
    pub fn switch_mut(&self) -> RwLockWriteGuard<'_, Switch> {
        self.switch.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn bed_site(&self) -> usize {
        self.sites.len() - 1
    }

    /// Stations that talk to each other, by index: those of the lab, and those of the bed.
    pub fn circles(&self) -> [Vec<usize>; 2] {
        let circle = |of_bed: bool| {
            let there = self.stations.iter().enumerate();
            there.filter(|(_, s)| s.talks && (s.site == self.bed_site()) == of_bed).map(|(i, _)| i).collect()
        };
        [circle(false), circle(true)]
    }

    /// Makes a station's link, and what its host says of it, as they are to be.
    pub fn restore(&self, station: &Station) {
        let host = station.host();
        ip(&self.sites[station.site].netns, &format!("link set {} mtu {MTU} up", station.port));
        ip(&host.netns, &format!("link set lo up\nlink set eth0 mtu {MTU} up"));
        if station.talks {
            let [v4, v6] = station.gateways;
            ip(
                &host.netns,
                &format!(
                    "address replace {}/24 dev eth0\naddress replace {}/64 dev eth0 nodad\n\
                     route replace default via {v4}\nroute replace default via {v6}",
                    host.ipv4, host.ipv6
                ),
            );
        }
        self.cut_up(station);
    }

    /// Has segments of a host sent and received in pieces, where the switch may be in generic mode, which
    /// can't carry them whole. Lasts only where no switch is attached in native mode.
    pub fn cut_up(&self, station: &Station) {
        if !station.plain {
            return;
        }
        let run = |netns: &Namespace, arguments: &[&str]| {
            let mut command = Command::new("ethtool");
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // Native mode has switched it off already, and says that it can't be changed.
            let _ = netns.spawn(&mut command).unwrap().wait();
        };
        run(&station.host().netns, &["-K", "eth0", "tso", "off", "gso", "off"]);
        run(&self.sites[station.site].netns, &["-K", &station.port, "gro", "off"]);
    }

    /// Makes a station's link anew, which must not be there.
    pub fn rewire(&self, station: &Station) {
        let near = VethEnd { interface: &station.port, mac: station.near_mac };
        let eth0 = VethEnd { interface: "eth0", mac: station.mac };
        let switch = Netlink::open(&self.sites[station.site].netns).unwrap();
        switch.add_veth(&near, &eth0, &station.host().netns, MTU).unwrap();
        self.restore(station);
    }

    /// Takes a station's namespace away; what still has sockets in it keeps it alive a little.
    pub fn lose_namespace(&self, station: &Station) {
        station.lost.fetch_add(1, Ordering::Relaxed);
        assert!(Namespace::delete(station.host().netns.name()).unwrap());
    }

    /// Gives it another of that name.
    pub fn renew_namespace(&self, station: &Station) {
        let old = station.host();
        let netns = Namespace::create(old.netns.name()).unwrap();
        let quiet = if station.talks { "0" } else { "1" };
        netns
            .set_sysctls(&[
                ("net.ipv6.conf.default.disable_ipv6", quiet),
                ("net.ipv6.conf.default.accept_dad", "0"),
                ("net.ipv6.conf.default.router_solicitations", "0"),
            ])
            .unwrap();
        *station.host.write().unwrap() =
            Arc::new(Host { name: old.name.clone(), netns, ipv4: old.ipv4, ipv6: old.ipv6 });
        // Whoever took the old one in the meantime has lost it, too.
        station.lost.fetch_add(1, Ordering::Relaxed);
        // The namespace of old may live on by its sockets, and the interface with it.
        drop(old);
        if has_link(&self.sites[station.site].netns, &station.port) {
            let _ = Command::new("ip")
                .args(["-n", self.sites[station.site].netns.name(), "link", "del", &station.port])
                .stderr(Stdio::null())
                .status();
        }
        self.rewire(station);
    }

    /// Gives lab and bed back what they had.
    pub fn give_back(self) -> (Lab, Bed, Switch) {
        let Net { mut lab, mut bed, switch, sites, stations, .. } = self;
        let of_bed = sites.len() - 1;
        for station in stations {
            let host = Arc::into_inner(station.host.into_inner().unwrap()).expect("nobody else has it");
            if station.site == of_bed { bed.hosts.push(host) } else { lab.hosts.push(host) }
        }
        (lab, bed, switch.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

fn station(sites: &[Site], site: usize, port: String, host: Host, talks: bool) -> Station {
    let links = Netlink::open(&sites[site].netns).unwrap().links().unwrap();
    let near_mac = links.iter().find(|link| link.name == port).expect(&port).mac;
    let config = sites[site].config();
    let segment = config.segment.expect("hosts are at ToRs");
    let gateways = [segment.ipv4.unwrap().addr().into(), segment.ipv6.unwrap().addr().into()];
    let (name, mac, plain) = (host.name.clone(), host.mac(), config.name == "bed");
    let host = RwLock::new(Arc::new(host));
    Station { name, site, port, near_mac, mac, gateways, talks, plain, host, lost: AtomicU64::new(0) }
}

/// Runs lines of `ip`'s arguments in a namespace; all have to succeed.
pub fn ip(netns: &Namespace, lines: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = netns.spawn(&mut command).unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "ip in {}: {lines}: {}", netns.name(), text(&output));
}

/// Whether a namespace has an interface of that name.
pub fn has_link(netns: &Namespace, name: &str) -> bool {
    Netlink::open(netns).unwrap().links().unwrap().iter().any(|link| link.name == name)
}
