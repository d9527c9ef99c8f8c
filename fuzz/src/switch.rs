//! A whole switch under a driver that may do anything a driver may, changes of its configuration included:
//! after each step [`Bench::check`] holds.

use std::sync::LazyLock;

use ipnet::IpNet;
use weft::config::{HelloMode, HelloOptions, PortConfig, RouteConfig, SwitchConfig, XdpMode};
use weft::fault::Faults;
use weft::frame::BURST;
use weft::id::{PortId, PortKind, Role};
use weft::units::{self, BitRate, Duration};
use weft::wire::MacAddr;

use super::bench::Bench;
use super::bytes::Bytes;
use super::frames::frame;

const TOR: &str = r#"
name = "tor"
role = "tor"
mac = "02:77:00:00:00:01"
[segment]
ipv4 = "10.0.1.1/24"
ipv6 = "fd00:0:0:1::1/64"
[queues]
ecn_mark = "5KB"
[[port]]
interface = "h0"
kind = "host"
[[port]]
interface = "h1"
kind = "host"
rate = "100Mbit"
[[port]]
interface = "h2"
kind = "host"
mtu = 1280
[[port]]
interface = "up0"
kind = "up"
rate = "1Gbit"
[[port]]
interface = "up1"
kind = "up"
mtu = 1400
[[route]]
prefix = "0.0.0.0/0"
ports = ["up0", "up1"]
[[route]]
prefix = "::/0"
ports = ["up0", "up1"]
[[route]]
prefix = "10.0.9.0/24"
ports = []
"#;

const AGG: &str = r#"
name = "agg"
role = "agg"
mac = "02:77:00:00:00:01"
router_ipv4 = "10.255.0.1"
router_ipv6 = "fd00:0:ffff::1"
[queues]
packets = 5
control_packets = 2
bytes = "4KB"
[[port]]
interface = "down0"
kind = "down"
rate = "10Mbit"
[[port]]
interface = "down1"
kind = "down"
mtu = 1280
[[port]]
interface = "up0"
kind = "up"
[[route]]
prefix = "10.0.1.0/24"
ports = ["down0"]
[[route]]
prefix = "10.0.2.0/24"
ports = ["down1", "down0"]
[[route]]
prefix = "fd00:0:0:1::/64"
ports = ["down0"]
[[route]]
prefix = "10.0.9.0/24"
ports = []
[[route]]
prefix = "0.0.0.0/0"
ports = ["up0"]
[[route]]
prefix = "::/0"
ports = ["up0"]
"#;

/// Whose hosts reserve slots by agents in the switch, and whose reserve by themselves or not at all.
const PL2: [&str; 2] = ["notify = true", "agent = \"none\"\ndrop_rogue = true\nmode = \"window\""];

/// The configurations and the MTU of every interface.
static CONFIGS: LazyLock<[(SwitchConfig, u16); 4]> = LazyLock::new(|| {
    let [edge, none] = PL2.map(|keys| scheduled(&format!("{TOR}[pl2]\n{keys}\n")));
    [(read(TOR), 1500), (read(AGG), 1600), (edge, 1500), (none, 1500)]
});

/// With host ports of one rate, of which slots are made: one that ports which are added may have.
fn scheduled(text: &str) -> SwitchConfig {
    let mut config = read(
        &text
            .replace("kind = \"host\"\nrate = \"100Mbit\"", "kind = \"host\"")
            .replace("kind = \"host\"", "kind = \"host\"\nrate = \"1Mbit\""),
    );
    config.queues.bytes = units::Bytes(20_000);
    config
}

fn read(text: &str) -> SwitchConfig {
    SwitchConfig::parse(text, "fuzz.toml").unwrap_or_else(|e| panic!("{e}"))
}

/// Frames that arrive in one run at most, so that no input takes long.
const MAX_ARRIVALS: u64 = 4096;
/// Most ports of a run.
const MAX_PORTS: usize = 12;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let (config, mtu) = &CONFIGS[bytes.below(CONFIGS.len())];
    let mut bench = Bench::new(config.clone(), *mtu, bytes.choose(&[256, 64, 8]));
    while !bytes.is_empty() && bench.arrived < MAX_ARRIVALS {
        let step = bytes.u8();
        let port = bench.nth(bytes.u8().into());
        match step % 16 {
            0..=5 => bench.receive(port, &frame(&mut bytes), 1),
            6 => bench.receive(port, &frame(&mut bytes), 1 + bytes.below(BURST)),
            7 | 8 => bench.transmit(port, bytes.below(BURST + 1)),
            9 => bench.transmit_all(),
            10 => bench.now = bench.now + (u64::from(bytes.u16()) << (step / 16)),
            11 => {
                bench.now = bench.now.max(bench.switch.next_deadline().unwrap_or_default());
                bench.switch.tick(bench.now, &mut bench.pool);
            }
            12 => bench.switch.tick(bench.now, &mut bench.pool),
            13 => bench.set_up(port, step & 0x10 != 0),
            14 if step >= 0x10 => change(&mut bench, &mut bytes, step / 16, port),
            14 => {
                // What `weft show` asks for, and a burst of nothing.
                let _ = (bench.switch.neighbours(bench.now), bench.switch.stations(bench.now), bench.switch.paths());
                bench.receive(port, &[], 0);
            }
            _ if step == 0xff => bench.switch.drain(bench.now, &mut bench.pool),
            _ => bench.settle(),
        }
        bench.check();
    }
    bench.finish();
}

/// Something that a user or the kernel changes while the switch runs.
fn change(bench: &mut Bench, bytes: &mut Bytes<'_>, kind: u8, port: PortId) {
    let interface = bench.interface(port).to_string();
    let mtu = bytes.choose(&[1500, 1280, 9000, 600, 9216]);
    let config = &bench.config;
    let new = match kind {
        1 | 2 if config.ports.len() < MAX_PORTS => {
            let port = new_port(config.role, bytes);
            let routes: Vec<_> = (0..bytes.below(3)).map(|_| prefix(bytes)).collect();
            config.with_port(port, &routes)
        }
        1..=4 => config.without_port(&interface).expect("a port that is there"),
        5 => {
            let mut new = config.clone();
            let port = &mut new.ports[config.port(&interface).expect("a port that is there").index()];
            *port = PortConfig { interface, kind: port.kind, mode: port.mode, ..new_port(config.role, bytes) };
            new
        }
        6 => {
            let mut new = config.clone();
            let ports = (0..new.ports.len()).filter(|_| bytes.u8() & 1 == 1).map(|i| PortId(i as u8)).collect();
            let prefix = prefix(bytes);
            new.routes.retain(|r| r.prefix != prefix);
            if bytes.u8() & 1 == 1 {
                new.routes.insert(0, RouteConfig { prefix, ports });
            }
            new
        }
        7 => {
            let mut new = config.clone();
            if let Some(segment) = &mut new.segment {
                segment.ipv4 = bytes.choose(&["10.0.1.1/24", "10.0.1.4/29", "10.0.1.2/24", ""]).parse().ok();
                segment.ipv6 = bytes.choose(&["fd00:0:0:1::1/64", "fd00::1/64", ""]).parse().ok();
            }
            new.router_ipv4 = bytes.choose(&["10.255.0.1", "10.0.1.3", ""]).parse().ok();
            new
        }
        8 => {
            let interval = bytes.choose(&[0, 10_000_000, 1_000_000, 300_000_000]);
            let hello = HelloOptions { interval: Duration(interval), multiplier: 2 + bytes.u8() % 4 };
            SwitchConfig { hello, ..config.clone() }
        }
        9 => {
            let mut new = config.clone();
            new.queues.packets = bytes.choose(&[1, 5, 100]);
            new.queues.bytes = units::Bytes(bytes.choose(&[1_000, 20_000, 1_000_000]));
            new.queues.ecn_mark = units::Bytes(bytes.choose(&[0, 900]));
            new
        }
        10 => config.with_enabled(&interface, bytes.u8() & 1 == 1).expect("a port that is there"),
        11 => return bench.set_mtu(port, mtu),
        12 | 13 => {
            let mut large = frame(bytes);
            large.resize(large.len() + 40 * usize::from(bytes.u8()), 0x5a);
            large.truncate(9216 + 100);
            return bench.receive(port, &large, 1 + bytes.below(4));
        }
        _ => return bench.reattach(port),
    };
    bench.become_config(new, mtu);
}

fn new_port(role: Role, bytes: &mut Bytes<'_>) -> PortConfig {
    let kind = match (role, bytes.u8() & 1) {
        (Role::Tor, 0) => PortKind::Host,
        (Role::Agg, 0) => PortKind::Down,
        _ => PortKind::Up,
    };
    let fabric = kind != PortKind::Host;
    let hello = bytes.choose(&[HelloMode::Auto, HelloMode::Off, HelloMode::Required]);
    PortConfig {
        interface: bytes.choose(&["n0", "n1", "n2", "n3", "n4", "n5", "h0", "up0"]).into(),
        kind,
        rate: BitRate(bytes.choose(&[0, 1_000, 1_000_000, 10_000_000_000])),
        mtu: bytes.choose(&[None, Some(1280), Some(1400), Some(9000)]),
        mode: XdpMode::Native,
        pass_to_kernel: false,
        enabled: bytes.u8() & 7 != 0,
        peer_mac: (fabric && bytes.u8() & 1 == 1).then_some(MacAddr([2, 0x77, 0, 0, 9, 9])),
        hello: if fabric { hello } else { HelloMode::Off },
        fault: Faults::default(),
        uplink: None,
    }
}

fn prefix(bytes: &mut Bytes<'_>) -> IpNet {
    let prefixes = ["0.0.0.0/0", "::/0", "10.0.2.0/24", "10.0.9.0/24", "fd00:0:0:2::/64", "10.0.0.0/8"];
    bytes.choose(&prefixes).parse().expect("a prefix")
}
