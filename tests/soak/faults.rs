use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use weft::id::{PortId, PortKind};
use weft::units::BitRate;

use crate::books;
use crate::net::{Site, Station, has_link, ip};
use crate::packet::Numbers;
use crate::soak::Soak;

/// A link that does not carry again so long after it was healed is a finding.
const RECOVERY: Duration = Duration::from_secs(20);
/// Faults at the same time, at most.
const AT_ONCE: usize = 5;

/// What can be done to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    HostFlaps,
    PortFlaps,
    SpineFlaps,
    WireLost,
    NamespaceLost,
    SpineDeaf,
    SpineLossy,
    SpineLate,
    HostLossy,
    PortDown,
    SpineDown,
    PortRemoved,
    SpineRemoved,
    Reload,
    BrokenFile,
    Mtu,
    Control,
    Killed,
}

const KINDS: [(Kind, &str); 18] = [
    (Kind::HostFlaps, "host's link flaps"),
    (Kind::PortFlaps, "switch's link flaps"),
    (Kind::SpineFlaps, "fabric link flaps"),
    (Kind::WireLost, "host's veth lost"),
    (Kind::NamespaceLost, "host's namespace lost"),
    (Kind::SpineDeaf, "fabric link deaf"),
    (Kind::SpineLossy, "fabric link lossy"),
    (Kind::SpineLate, "fabric link late"),
    (Kind::HostLossy, "host port lossy"),
    (Kind::PortDown, "host port down"),
    (Kind::SpineDown, "fabric port down"),
    (Kind::PortRemoved, "host port removed"),
    (Kind::SpineRemoved, "fabric port removed"),
    (Kind::Reload, "file changed"),
    (Kind::BrokenFile, "file broken"),
    (Kind::Mtu, "MTU changed"),
    (Kind::Control, "control socket abused"),
    (Kind::Killed, "switch killed"),
];

/// One fault: all that is drawn of it, so that a seed gives the same faults in the same order.
struct Fault {
    kind: Kind,
    name: &'static str,
    /// Index of a station, of a fabric link, of a site; each kind uses what it needs.
    station: usize,
    link: usize,
    site: usize,
    /// At the leaf's end of the link; else at the spine's.
    at_leaf: bool,
    hold: Duration,
    roll: u64,
}

/// What faults have in hand, so that none heals another's: links by their ends, and the configurations of
/// switches, which a reload makes whole at once.
#[derive(Default)]
struct Held {
    keys: Mutex<(BTreeSet<String>, usize)>,
    freed: Condvar,
}

impl Held {
    fn take(&self, keys: &BTreeSet<String>) {
        let mut held = self.keys.lock().unwrap();
        while held.1 >= AT_ONCE || !held.0.is_disjoint(keys) {
            held = self.freed.wait(held).unwrap();
        }
        held.0.extend(keys.iter().cloned());
        held.1 += 1;
    }

    fn give_back(&self, keys: &BTreeSet<String>) {
        let mut held = self.keys.lock().unwrap();
        held.0.retain(|key| !keys.contains(key));
        held.1 -= 1;
        drop(held);
        self.freed.notify_all();
    }

    /// Whether no fault but these keys' own touches a fabric link.
    fn fabric_is_whole_but(&self, keys: &BTreeSet<String>) -> bool {
        let held = self.keys.lock().unwrap();
        held.0.iter().filter(|key| !keys.contains(*key)).all(|key| !key.starts_with("fabric"))
    }

    fn is_free(&self, key: &str) -> bool {
        !self.keys.lock().unwrap().0.contains(key)
    }
}

/// Draws faults and does them, a few a second, until the end; returns when all are healed.
pub fn inject(soak: &Soak, seed: u64) {
    let mut numbers = Numbers(seed);
    let held = Held::default();
    // Every kind once, in an order of the seed, before any comes again.
    let mut deck = Vec::new();
    thread::scope(|scope| {
        while soak.goes_on() {
            if deck.is_empty() {
                deck = KINDS.to_vec();
            }
            let (kind, name) = deck.swap_remove(numbers.below(deck.len() as u64) as usize);
            let fault = draw(soak, kind, name, &mut numbers);
            let pause = Duration::from_millis(20 + numbers.below(300));
            let keys = soak.keys(&fault);
            held.take(&keys);
            let held = &held;
            scope.spawn(move || {
                {
                    let _gate = soak.gate.read().unwrap();
                    soak.one(&fault, held, &keys);
                }
                held.give_back(&keys);
            });
            thread::sleep(pause);
        }
    });
}

fn draw(soak: &Soak, kind: Kind, name: &'static str, numbers: &mut Numbers) -> Fault {
    let below = |numbers: &mut Numbers, n: usize| numbers.below(n as u64) as usize;
    let net = &soak.net;
    let talking: Vec<_> = (0..net.stations.len()).filter(|i| net.stations[*i].talks).collect();
    let station = match kind {
        Kind::PortFlaps => below(numbers, net.stations.len()),
        Kind::Killed => {
            let of_bed: Vec<_> = talking.into_iter().filter(|i| net.stations[*i].site == net.bed_site()).collect();
            of_bed[below(numbers, of_bed.len())]
        }
        _ => talking[below(numbers, talking.len())],
    };
    let link = below(numbers, net.links.len());
    let at_leaf = numbers.below(2) == 1;
    let at_link = if at_leaf { net.links[link].leaf } else { net.links[link].spine };
    let site = match kind {
        Kind::SpineFlaps
        | Kind::SpineDeaf
        | Kind::SpineLossy
        | Kind::SpineLate
        | Kind::SpineDown
        | Kind::SpineRemoved => at_link,
        Kind::BrokenFile | Kind::Control => below(numbers, net.sites.len()),
        Kind::Killed => net.bed_site(),
        _ => net.stations[station].site,
    };
    // As often short as long, between 10 ms and 2 s.
    let hold = Duration::from_millis((10 << numbers.below(8)) + numbers.below(700));
    Fault { kind, name, station, link, site, at_leaf, hold, roll: numbers.next() }
}

impl Soak<'_> {
    fn station_key(&self, station: usize) -> String {
        format!("station {}", self.net.stations[station].name)
    }

    fn keys(&self, fault: &Fault) -> BTreeSet<String> {
        let (station, link) = (self.station_key(fault.station), format!("fabric {}", fault.link));
        let control = format!("control {}", fault.site);
        match fault.kind {
            Kind::HostFlaps | Kind::PortFlaps | Kind::WireLost | Kind::NamespaceLost | Kind::Mtu => [station].into(),
            Kind::SpineFlaps => [link].into(),
            Kind::SpineDeaf | Kind::SpineLossy | Kind::SpineLate | Kind::SpineDown | Kind::SpineRemoved => {
                [link, control].into()
            }
            Kind::HostLossy | Kind::PortDown | Kind::PortRemoved | Kind::Reload => [station, control].into(),
            Kind::BrokenFile => [control].into(),
            // The places for clients are the process's.
            Kind::Control => [control, "clients".into()].into(),
            Kind::Killed => {
                let all = (0..self.net.stations.len()).filter(|i| self.net.stations[*i].site == fault.site);
                all.map(|i| self.station_key(i)).chain([control]).collect()
            }
        }
    }

    /// One fault from its beginning until all is well again.
    fn one(&self, fault: &Fault, held: &Held, keys: &BTreeSet<String>) {
        let (site, station) = (&self.net.sites[fault.site], &self.net.stations[fault.station]);
        let mut what = format!("{} at {}", fault.name, site.name);
        match keys.iter().find(|key| key.starts_with("station") || key.starts_with("fabric")) {
            Some(key) if key.starts_with("station") => write!(what, ", {}", station.name).unwrap(),
            Some(_) => write!(what, ", to {}", self.far(fault)).unwrap(),
            None => {}
        }
        write!(what, ", roll {:x}, {} ms", fault.roll & 0xffff, fault.hold.as_millis()).unwrap();
        self.record.say(&what);
        self.record.injected(fault.name);
        self.record.guard(&what, || self.harm(fault, site, station));
        let healed = Instant::now();
        if self.record.guard(format_args!("healing {what}"), || self.heal(fault, site, station)).is_none() {
            return;
        }
        self.record.guard(format_args!("after {what}"), || self.recover(fault, held, keys, healed));
    }

    /// The port at the fault's end of its link, which is named after the other end.
    fn far(&self, fault: &Fault) -> &str {
        let link = &self.net.links[fault.link];
        &self.net.sites[if fault.at_leaf { link.spine } else { link.leaf }].name
    }

    fn harm(&self, fault: &Fault, site: &Site, station: &Station) {
        let (far, port) = (self.far(fault), station.port.as_str());
        let hold = || thread::sleep(fault.hold);
        let percent = |at: u32| (fault.roll >> at) % 30;
        match fault.kind {
            Kind::HostFlaps => ip(&station.host().netns, "link set eth0 down"),
            Kind::PortFlaps => ip(&site.netns, &format!("link set {port} down")),
            Kind::SpineFlaps => ip(&site.netns, &format!("link set {far} down")),
            // From either end.
            Kind::WireLost if fault.roll.is_multiple_of(2) => ip(&station.host().netns, "link del eth0"),
            Kind::WireLost => ip(&site.netns, &format!("link del {port}")),
            Kind::NamespaceLost => self.net.lose_namespace(station),
            Kind::SpineDeaf => drop(site.change(&["port", "fault", far, "loss=1"])),
            Kind::SpineLossy => {
                let spec =
                    format!("loss=0.{:02},reorder=0.{:02},corrupt=0.0{:02}", percent(0), percent(8), percent(16));
                drop(site.change(&["port", "fault", far, &format!("{spec},duplicate=0.02,seed={}", fault.roll)]));
            }
            Kind::SpineLate => {
                let spec = format!("delay={}ms,jitter={}ms", percent(0), percent(8));
                drop(site.change(&["port", "fault", far, &spec]));
            }
            Kind::HostLossy => {
                let spec = format!("loss=0.{:02},delay={}us,seed={}", percent(0), percent(8) * 100, fault.roll);
                drop(site.change(&["port", "fault", port, &spec]));
            }
            Kind::PortDown => drop(site.change(&["port", "down", port])),
            Kind::SpineDown => drop(site.change(&["port", "down", far])),
            Kind::PortRemoved => drop(site.change(&["port", "del", port])),
            Kind::SpineRemoved => drop(site.change(&["port", "del", far])),
            Kind::Reload => self.reload_changed(fault, site, port),
            Kind::BrokenFile => reload_broken(fault, site),
            Kind::Mtu => {
                let mtu = [1400, 1280, 2000, 9000][(fault.roll % 4) as usize];
                ip(&site.netns, &format!("link set {port} mtu {mtu}"));
                ip(&station.host().netns, &format!("link set eth0 mtu {mtu}"));
            }
            Kind::Control => return abuse(fault, site),
            Kind::Killed => {
                self.check_log(&self.net.switch().log());
                let mut switch = self.net.switch_mut();
                switch.signal(Signal::SIGKILL);
                switch.wait();
                self.net.bed.assert_detached();
                // A host's link regains what native mode has taken from it.
                self.net.stations.iter().for_each(|station| self.net.cut_up(station));
                let mode = ["native", "generic"][(fault.roll % 2) as usize];
                *switch = self.net.bed.start(&site.toml, &["--mode", mode]);
                return;
            }
        }
        hold();
    }

    fn heal(&self, fault: &Fault, site: &Site, station: &Station) {
        let (far, port) = (self.far(fault), station.port.as_str());
        match fault.kind {
            Kind::HostFlaps | Kind::PortFlaps | Kind::Mtu => self.net.restore(station),
            Kind::SpineFlaps => ip(&site.netns, &format!("link set {far} up")),
            Kind::WireLost => {
                assert!(!has_link(&site.netns, port), "{port} is still there");
                self.net.rewire(station);
            }
            Kind::NamespaceLost => self.net.renew_namespace(station),
            Kind::SpineDeaf | Kind::SpineLossy | Kind::SpineLate => drop(site.change(&["port", "fault", far, ""])),
            Kind::HostLossy => drop(site.change(&["port", "fault", port, ""])),
            Kind::PortDown => drop(site.change(&["port", "up", port])),
            Kind::SpineDown => drop(site.change(&["port", "up", far])),
            Kind::PortRemoved => {
                // In the mode that the switch runs in: its others have it.
                let mode = books::ports(&site.socket).0.first().map_or("native".into(), |port| port.mode.to_string());
                site.change(&["port", "add", port, "--kind", "host", "--mode", &mode]);
                // What the file says of it beyond that, as its MTU.
                site.change(&["reload"]);
            }
            Kind::SpineRemoved | Kind::Reload => {
                std::fs::write(&site.file, &site.toml).unwrap();
                site.change(&["reload"]);
            }
            Kind::BrokenFile => std::fs::write(&site.file, &site.toml).unwrap(),
            Kind::Control | Kind::Killed => {}
        }
    }

    /// A file that is right, and other than before: a rate, a port less, a route less.
    fn reload_changed(&self, fault: &Fault, site: &Site, port: &str) {
        let mut config = site.config();
        let at = config.port(port).unwrap();
        match fault.roll % 3 {
            0 => config.ports[at.index()].rate = BitRate(10_000_000 << (fault.roll >> 8 & 7)),
            1 => {
                config.ports.remove(at.index());
                for route in &mut config.routes {
                    for id in route.ports.iter_mut().filter(|id| id.index() > at.index()) {
                        *id = PortId(id.0 - 1);
                    }
                }
            }
            _ => drop(config.routes.pop()),
        }
        std::fs::write(&site.file, config.to_toml()).unwrap();
        let said = site.change(&["reload"]);
        assert!(!said.contains("nothing to change"), "{said}");
    }

    /// Waits until what was harmed carries again, and takes note how long after `healed` that was.
    fn recover(&self, fault: &Fault, held: &Held, keys: &BTreeSet<String>, healed: Instant) {
        let site = &self.net.sites[fault.site];
        let station = &self.net.stations[fault.station];
        if keys.iter().any(|key| key.starts_with("fabric")) {
            let link = &self.net.links[fault.link];
            for (near, far) in [(link.leaf, link.spine), (link.spine, link.leaf)] {
                self.wait_up(near, &self.net.sites[far].name, healed);
            }
            // Across the fabric, where no other fault is to blame: from a leaf to another.
            let [circle, _] = self.net.circles();
            let free: Vec<_> = circle.into_iter().filter(|i| held.is_free(&self.station_key(*i))).collect();
            let far = free.iter().find(|i| self.net.stations[**i].site != self.net.stations[free[0]].site);
            let whole = held.fabric_is_whole_but(keys);
            if let (true, Some(far)) = (whole, far) {
                let target = self.net.stations[*far].host().ipv4.to_string();
                answered(&self.net.stations[free[0]], &target);
            }
            return self.record.recovered(fault.name, healed.elapsed());
        }
        match fault.kind {
            Kind::BrokenFile | Kind::Control => {
                books::look(&site.socket);
            }
            _ if !station.talks => self.wait_up(fault.site, &station.port, healed),
            _ => {
                let gateway = site.config().segment.and_then(|s| s.ipv4).unwrap().addr().to_string();
                if !answered(station, &gateway) {
                    let port = books::port(&site.socket, &station.port);
                    panic!("no ping of {} is answered within {RECOVERY:?}: {port:?}", station.name);
                }
            }
        }
        self.record.recovered(fault.name, healed.elapsed());
    }

    fn wait_up(&self, site: usize, port: &str, since: Instant) {
        loop {
            let report = books::port(&self.net.sites[site].socket, port);
            if report.state == "up" {
                return;
            }
            assert!(since.elapsed() < RECOVERY, "port {port} of {} is down: {report:?}", self.net.sites[site].name);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether a ping is answered in time; pings until one is.
fn answered(station: &Station, target: &str) -> bool {
    let seconds = RECOVERY.as_secs().to_string();
    let ping = station.host().spawn(&["ping", "-n", "-q", "-c", "1", "-i", "0.02", "-w", &seconds, target]);
    ping.wait_with_output().unwrap().status.success()
}

/// Files that no switch may take, each with something right in it too.
fn reload_broken(fault: &Fault, site: &Site) {
    let mut config = site.config();
    let faster = |config: &mut weft::config::SwitchConfig| config.ports[0].rate = BitRate(20_000_000);
    let before = books::ports(&site.socket).0;
    faster(&mut config);
    let text = match fault.roll % 4 {
        0 => config.to_toml() + "[[port]]\ninterface = \"nosuch\"\nkind = \"" + kind(&config) + "\"\n",
        1 => config.to_toml().replace("interface", "interfaec"),
        2 => {
            let mut text = config.to_toml();
            text.truncate((fault.roll >> 8) as usize % (text.len() / 2));
            text + "[["
        }
        _ => {
            config.id.0 += 1;
            config.to_toml()
        }
    };
    std::fs::write(&site.file, text).unwrap();
    site.refused(&["reload"]);
    let after = books::ports(&site.socket).0;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            (&before.port, before.id, before.rate),
            (&after.port, after.id, after.rate),
            "a refused file changed it"
        );
    }
}

fn kind(config: &weft::config::SwitchConfig) -> &'static str {
    match config.ports[0].kind {
        PortKind::Host => "host",
        PortKind::Up => "up",
        PortKind::Down => "down",
    }
}

/// Bytes that are no request, requests that stop half-way, and more clients than there are places.
fn abuse(fault: &Fault, site: &Site) {
    let mut numbers = Numbers(fault.roll);
    let connect = || UnixStream::connect(&site.socket).unwrap();
    let mut garbage = vec![0; 1 + numbers.below(10_000) as usize];
    numbers.fill(&mut garbage);
    match fault.roll % 4 {
        0 => {
            let mut client = connect();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            // It may refuse before it has read all.
            let _ = client.write_all(&garbage);
            let _ = client.write_all(b"\n");
            let _ = client.read(&mut [0; 4096]);
        }
        1 => {
            let half: Vec<_> = (0..8).map(|_| connect()).collect();
            half.iter().for_each(|mut client| client.write_all(b"{\"show\":\"po").unwrap());
            thread::sleep(fault.hold.min(Duration::from_secs(1)));
        }
        2 => {
            let silent: Vec<_> = (0..40).map(|_| connect()).collect();
            thread::sleep(fault.hold.min(Duration::from_secs(1)));
            drop(silent);
        }
        _ => {
            // Asks, and does not stay for the answer.
            for _ in 0..100 {
                let _ = connect().write_all(b"{\"show\":\"ports\"}\n");
            }
        }
    }
}
