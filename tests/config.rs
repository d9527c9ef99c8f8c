//! Configuration files: what they mean, what is refused and in which words.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use weft::config::{
    AckRule, CaftOptions, DscpSet, FABRIC_MAC, FlowletOptions, Fraction, HelloMode, HelloOptions, HulaOptions,
    P4teOptions, Pl2Options, Pod, PollMode, PortConfig, QueueOptions, RateAdaptation, RouteConfig, RuntimeOptions,
    Segment, Selector, SwitchConfig, XdpMode, derived_mac, derived_seed,
};
use weft::fault::Faults;
use weft::id::{PortId, PortKind, PortMask, Role, SwitchId};
use weft::units::{BitRate, Bytes, Duration};
use weft::wire::MacAddr;

const FULL: &str = r#"name = "tor0-0"
role = "tor"
id = 1
selector = "ecmp"
seed = 7
mac = "02:77:00:00:00:aa"
router_ipv4 = "10.255.0.1"
router_ipv6 = "fd00:0:ffff::1"
uplinks = 4

[segment]
ipv4 = "10.0.0.1/24"
ipv6 = "fd00:0:0:0::1/64"

[pod]
ipv4 = "10.0.0.0/16"
ipv6 = "fd00::/48"

[runtime]
poll = "busy"
workers = 2
core = 1
frames = 8192
control = "/run/lab/tor0-0.sock"

[queues]
packets = 512
bytes = "500KB"
control_packets = 64
ecn_mark = "100KB"

[hello]
interval = "20ms"
multiplier = 5

[[port]]
interface = "h0-0-2"
kind = "host"
rate = "10Gbit"
mtu = 1500
mode = "generic"
pass_to_kernel = true

[[port]]
interface = "agg0-0"
kind = "up"
peer_mac = "02:77:00:00:00:05"
hello = "required"
uplink = 3

[[port]]
interface = "agg0-1"
kind = "up"
rate = 0

[[route]]
prefix = "0.0.0.0/0"
ports = ["agg0-1", "agg0-0"]

[[route]]
prefix = "fd00:0:1::/48"
ports = []
"#;

/// The least file of a ToR with a host and an uplink; `{}` lines are put where they belong.
fn tor(top: &str, host: &str, up: &str, tables: &str) -> String {
    format!(
        "name = \"t\"\nrole = \"tor\"\n{top}\n[[port]]\ninterface = \"h0\"\nkind = \"host\"\n{host}\n\
         [[port]]\ninterface = \"up0\"\nkind = \"up\"\n{up}\n{tables}"
    )
}

fn refusal(text: &str) -> String {
    SwitchConfig::parse(text, "t.toml").expect_err(text).to_string()
}

#[test]
fn every_key_of_a_file_arrives_in_the_configuration() {
    let port = |interface: &str, kind| PortConfig {
        interface: interface.into(),
        kind,
        rate: BitRate(0),
        mtu: None,
        mode: XdpMode::Native,
        enabled: true,
        pass_to_kernel: false,
        peer_mac: None,
        hello: if kind == PortKind::Host { HelloMode::Off } else { HelloMode::Auto },
        fault: Faults::default(),
        uplink: None,
    };
    let expected = SwitchConfig {
        name: "tor0-0".into(),
        id: SwitchId(1),
        role: Role::Tor,
        selector: Selector::Ecmp,
        seed: 7,
        mac: MacAddr([0x02, 0x77, 0, 0, 0, 0xaa]),
        router_ipv4: Some(Ipv4Addr::new(10, 255, 0, 1)),
        router_ipv6: Some("fd00:0:ffff::1".parse().unwrap()),
        segment: Some(Segment { ipv4: "10.0.0.1/24".parse().ok(), ipv6: "fd00::1/64".parse().ok() }),
        pod: Some(Pod { ipv4: "10.0.0.0/16".parse().ok(), ipv6: "fd00::/48".parse().ok() }),
        uplinks: Some(4),
        runtime: RuntimeOptions {
            workers: 2,
            poll: PollMode::Busy,
            core: Some(1),
            frames: 8192,
            control: PathBuf::from("/run/lab/tor0-0.sock"),
        },
        queues: QueueOptions { packets: 512, bytes: Bytes(500_000), control_packets: 64, ecn_mark: Bytes(100_000) },
        hello: HelloOptions { interval: Duration(20_000_000), multiplier: 5 },
        flowlet: FlowletOptions::default(),
        p4te: P4teOptions::default(),
        hula: HulaOptions::default(),
        caft: CaftOptions::default(),
        pl2: Pl2Options::default(),
        ports: vec![
            PortConfig {
                rate: BitRate(10_000_000_000),
                mtu: Some(1500),
                mode: XdpMode::Generic,
                pass_to_kernel: true,
                ..port("h0-0-2", PortKind::Host)
            },
            PortConfig {
                peer_mac: Some(MacAddr([0x02, 0x77, 0, 0, 0, 5])),
                hello: HelloMode::Required,
                uplink: Some(3),
                ..port("agg0-0", PortKind::Up)
            },
            port("agg0-1", PortKind::Up),
        ],
        routes: vec![
            RouteConfig { prefix: "0.0.0.0/0".parse().unwrap(), ports: vec![PortId(2), PortId(1)] },
            RouteConfig { prefix: "fd00:0:1::/48".parse().unwrap(), ports: vec![] },
        ],
    };
    let config = SwitchConfig::parse(FULL, "t.toml").unwrap();
    assert_eq!(config, expected);
    assert_eq!(config.port("agg0-1"), Some(PortId(2)));
    assert_eq!(config.port("agg0-2"), None);
    assert_eq!(config.ports_of(PortKind::Up), PortMask(0b110));
}

#[test]
fn a_file_of_only_the_required_keys_gets_the_documented_defaults() {
    let config = SwitchConfig::parse(&tor("", "", "", ""), "t.toml").unwrap();
    assert_eq!(config.id, SwitchId(0));
    assert_eq!(config.mac, MacAddr([0x02, 0x77, 0, 0, 0, 0]));
    assert_eq!(config.seed, derived_seed(0, SwitchId(0)));
    assert_eq!((config.router_ipv4, config.router_ipv6, config.segment), (None, None, None));
    let control = PathBuf::from("/run/weft/t.sock");
    assert_eq!(
        config.runtime,
        RuntimeOptions { poll: PollMode::Adaptive, workers: 1, core: None, frames: 16_384, control }
    );
    let queues = QueueOptions { packets: 1024, bytes: Bytes(1_000_000), control_packets: 256, ecn_mark: Bytes(0) };
    assert_eq!(config.queues, queues);
    assert_eq!(config.hello, HelloOptions { interval: Duration(10_000_000), multiplier: 3 });
    assert_eq!([config.ports[0].hello, config.ports[1].hello], [HelloMode::Off, HelloMode::Auto]);
    assert!(config.routes.is_empty());
    assert_eq!(config.ports[0].rate, BitRate(0));
    assert_eq!((config.ports[0].mtu, config.ports[0].mode, config.ports[0].peer_mac), (None, XdpMode::Native, None));
}

#[test]
fn derived_macs_and_seeds_are_stable_and_differ_by_switch() {
    assert_eq!(derived_mac(SwitchId(1)).to_string(), "02:77:00:00:00:01");
    assert_eq!(derived_mac(SwitchId(0x1234)).to_string(), "02:77:00:00:12:34");
    assert_eq!(FABRIC_MAC.to_string(), "02:77:65:66:74:00");
    let seeds: BTreeSet<u64> = (0..4).flat_map(|s| (0..1000).map(move |id| derived_seed(s, SwitchId(id)))).collect();
    assert_eq!(seeds.len(), 4000);
}

#[test]
fn one_wrong_value_is_refused_with_its_line_the_cause_and_a_remedy() {
    let route = |prefix: &str, ports: &str| format!("[[route]]\nprefix = \"{prefix}\"\nports = {ports}");
    let segment = "[segment]\nipv4 = \"10.0.0.1/24\"\nipv6 = \"fd00::1/64\"";
    // One case a line, however long, reads best as a table.
    #[rustfmt::skip]
    let cases: &[(String, &str)] = &[
        // Text of values.
        (tor("", "rate = \"fast\"", "", ""), "t.toml:7:8: port \"h0\": rate `fast` is not a rate: write a number and a unit, like \"10Gbit\", \"100Mbit\" or \"0\" (unlimited)"),
        (tor("", "rate = -5", "", ""), "t.toml:7:8: port \"h0\": rate `-5` is not a rate: write a number and a unit, like \"10Gbit\", \"100Mbit\" or \"0\" (unlimited)"),
        (tor("mac = \"02:77\"", "", "", ""), "t.toml:3:7: mac `02:77` is not a MAC address: write six octets, like \"02:00:00:00:00:01\""),
        (tor("router_ipv4 = \"10.0.0\"", "", "", ""), "t.toml:3:15: router_ipv4 `10.0.0` is not an IPv4 address: write \"10.255.0.1\""),
        (tor("seed = -1", "", "", ""), "t.toml:3:8: seed `-1` is not a seed: write a whole number from 0 to 18446744073709551615"),
        (tor("", "", "", "[queues]\nbytes = \"lots\""), "t.toml:13:9: queues: bytes `lots` is not a size: write a number and a unit, like \"200KB\", \"64KiB\" or 1500"),
        (tor("", "", "", "[segment]\nipv4 = \"10.0.0.1\""), "t.toml:13:8: segment: ipv4 `10.0.0.1` is not a gateway address with its prefix length: write \"10.0.0.1/24\""),
        (tor("", "", "", &route("10.0.1.0", "[\"up0\"]")), "t.toml:13:10: route \"10.0.1.0\": prefix `10.0.1.0` is not a prefix: write \"10.0.1.0/24\" or \"fd00::/64\""),
        // Selectors.
        (tor("selector = \"best\"", "", "", ""), "t.toml:3:12: selector `best` is not a selector: write \"ecmp\", \"flowlet\", \"letflow\", \"hula\", \"p4te\", \"caft\" or \"expeditus\""),
        // Shape.
        (tor("nmae = \"x\"", "", "", ""), "t.toml:3:1: unknown key `nmae`: write `name`"),
        (tor("", "", "mut = 1500", ""), "t.toml:11:1: port \"up0\": unknown key `mut`: write `mtu`"),
        (tor("", "", "", "[runtimes]\ncore = 1"), "t.toml:12:2: unknown table `runtimes`: write `runtime`"),
        (tor("", "", "", "[runtime]\ncpu = 1"), "t.toml:13:1: runtime: unknown key `cpu`: write one of `poll`, `workers`, `core`, `frames`, `control`"),
        (tor("", "mode = \"fast\"", "", ""), "t.toml:7:8: port \"h0\": mode: unknown value `fast`: write `native` or `generic`"),
        (tor("", "mtu = \"1500\"", "", ""), "t.toml:7:7: port \"h0\": mtu: invalid type: string \"1500\": write a whole number without quotes"),
        (tor("", "", "", "[[route]]\nprefix = \"::/0\"\nports = \"up0\""), "t.toml:14:9: route \"::/0\": ports: invalid type: string \"up0\": write a list, like [\"a\", \"b\"]"),
        ("name = \"t\"\nrole = \"tor\"\n[port]\ninterface = \"x\"\nkind = \"up\"".into(), "t.toml:3:1: [port] makes a single table of a list: write [[port]] for each port"),
        ("name = \"t\"\nrole = \"tor\"\nport = [1]".into(), "t.toml:3:9: port: invalid type: integer `1`: write a table of keys and values"),
        (tor("", "rate = true", "", ""), "t.toml:7:8: port \"h0\": rate: invalid type: boolean `true`: write a string or a number"),
        (tor("id = 1\nid = 2", "", "", ""), "t.toml:4:1: not TOML: duplicate key: a key or a table of that name is there already: keep one"),
        // Missing keys.
        ("role = \"tor\"\n[[port]]\ninterface = \"h0\"\nkind = \"host\"".into(), "t.toml:1:1: name is missing: write name = \"tor0-0\""),
        ("name = \"t\"\n[[port]]\ninterface = \"h0\"\nkind = \"host\"".into(), "t.toml:1:1: role is missing: write role = \"tor\", \"agg\" or \"core\""),
        (tor("", "", "", "[[port]]\nkind = \"up\""), "t.toml:12:1: port number 3: interface is missing: write interface = \"eth0\""),
        (tor("", "", "", "[[port]]\ninterface = \"x\""), "t.toml:12:1: port \"x\": kind is missing: write kind = \"host\", \"up\" or \"down\""),
        (tor("", "", "", "[[route]]\nports = [\"up0\"]"), "t.toml:12:1: route number 1: prefix is missing: write prefix = \"10.0.1.0/24\""),
        (tor("", "", "", "[[route]]\nprefix = \"10.0.1.0/24\""), "t.toml:12:1: route \"10.0.1.0/24\": ports is missing: write ports = [\"INTERFACE\", ...]"),
        ("name = \"t\"\nrole = \"tor\"\n".into(), "t.toml:1:1: no ports: add a [[port]] with interface and kind"),
        // Identity.
        ("name = \"a/b\"\nrole = \"core\"\n[[port]]\ninterface = \"x\"\nkind = \"down\"".into(), "t.toml:1:8: name `a/b` can't name a socket and a namespace: write letters, digits, `.`, `_` and `-`, a letter or digit first"),
        (tor("id = 65536", "", "", ""), "t.toml:3:6: id 65536 is out of range: write 0 to 65535"),
        (tor("mac = \"01:00:5e:00:00:01\"", "", "", ""), "t.toml:3:7: mac 01:00:5e:00:00:01 is a multicast address: write a unicast address, or leave it out"),
        (tor("mac = \"0:0:0:0:0:0\"", "", "", ""), "t.toml:3:7: mac 00:00:00:00:00:00 is no address: write a unicast address, or leave it out"),
        (tor("router_ipv4 = \"224.0.0.5\"", "", "", ""), "t.toml:3:15: router_ipv4 224.0.0.5 is a multicast address: write a unicast address, like \"10.255.0.1\""),
        (tor("router_ipv6 = \"fe80::1\"", "", "", ""), "t.toml:3:15: router_ipv6 fe80::1 is link-local and can't be reached from elsewhere: write a unicast address, like \"fd00:0:ffff::1\""),
        // Segment.
        (tor("", "", "", "[segment]"), "t.toml:12:1: segment: empty: write ipv4 = \"10.0.0.1/24\", ipv6 = \"fd00::1/64\" or both"),
        (tor("", "", "", "[segment]\nipv4 = \"10.0.0.0/24\""), "t.toml:13:8: segment: ipv4 10.0.0.0/24 is the segment itself, not a host of it: write the gateway's address and prefix length, like \"10.0.0.1/24\""),
        (tor("", "", "", "[segment]\nipv4 = \"10.0.0.255/24\""), "t.toml:13:8: segment: ipv4 10.0.0.255/24 is the segment's broadcast address: write the gateway's address and prefix length, like \"10.0.0.1/24\""),
        (tor("", "", "", "[segment]\nipv4 = \"10.0.0.1/32\""), "t.toml:13:8: segment: ipv4 10.0.0.1/32 leaves no address for a host: write the gateway's address and prefix length, like \"10.0.0.1/24\""),
        (tor("", "", "", "[segment]\nipv6 = \"fd00::/64\""), "t.toml:13:8: segment: ipv6 fd00::/64 is the segment's subnet-router anycast address: write the gateway's address and prefix length, like \"fd00::1/64\""),
        ("name = \"c\"\nrole = \"core\"\n[segment]\nipv4 = \"10.0.0.1/24\"\n[[port]]\ninterface = \"x\"\nkind = \"down\"".into(), "t.toml:3:1: segment: role core has no hosts: take [segment] out, or write role = \"tor\""),
        // Runtime and queues.
        (tor("", "", "", "[runtime]\nframes = 1023"), "t.toml:13:10: runtime: frames 1023 is out of range: write 1024 to 1048576"),
        (tor("", "", "", "[runtime]\nframes = -1"), "t.toml:13:10: runtime: frames -1 is out of range: write 1024 to 1048576"),
        (tor("", "", "", "[runtime]\ncore = 4096"), "t.toml:13:8: runtime: core 4096 is out of range: write 0 to 1023"),
        (tor("", "", "", "[runtime]\ncontrol = \"\""), "t.toml:13:11: runtime: control is a socket path of 0 bytes: write 1 to 107"),
        (tor("", "", "", "[queues]\npackets = 0"), "t.toml:13:11: queues: packets 0 is out of range: write 1 to 1048576"),
        (tor("", "", "", "[queues]\ncontrol_packets = 0"), "t.toml:13:19: queues: control_packets 0 is out of range: write 1 to 1048576"),
        (tor("", "", "", "[queues]\nbytes = 0"), "t.toml:13:9: queues: bytes 0 is out of range: write 1 to 4294967296"),
        (tor("", "", "", "[queues]\necn_mark = \"1MB\""), "t.toml:13:12: queues: ecn_mark 1MB is never reached, the queue drops from 1MB: write less, or \"0\" to mark nothing"),
        // Hellos.
        (tor("", "", "", "[hello]\ninterval = 10"), "t.toml:13:12: hello: interval `10` is not a time: write a number and a unit, like \"10ms\", \"1s\" or \"0\""),
        (tor("", "", "", "[hello]\ninterval = \"500us\""), "t.toml:13:12: hello: interval 500us is out of range: write 1ms to 10s, or \"0\" for no hellos"),
        (tor("", "", "", "[hello]\ninterval = \"11s\""), "t.toml:13:12: hello: interval 11s is out of range: write 1ms to 10s, or \"0\" for no hellos"),
        (tor("", "", "", "[hello]\nmultiplier = 1"), "t.toml:13:14: hello: multiplier 1 is out of range: write 2 to 50"),
        (tor("", "", "", "[hello]\nmultiplier = 300"), "t.toml:13:14: hello: multiplier 300 is out of range: write 2 to 50"),
        (tor("", "", "", "[hello]\nevery = 1"), "t.toml:13:1: hello: unknown key `every`: write `interval` or `multiplier`"),
        (tor("", "hello = \"auto\"", "", ""), "t.toml:7:9: port \"h0\": hello on a host port, hosts say none: take it out"),
        (tor("", "", "hello = \"on\"", ""), "t.toml:11:9: port \"up0\": hello: unknown value `on`: write one of `auto`, `required`, `off`"),
        (tor("", "", "hello = \"required\"", "[hello]\ninterval = 0"), "t.toml:11:9: port \"up0\": hello is required, but there are none with [hello] interval 0: write an interval"),
        // Ports.
        (tor("", "", "", "[[port]]\ninterface = \"h0\"\nkind = \"host\""), "t.toml:13:13: port \"h0\": interface is port number 1 already: take one out"),
        (tor("", "", "", "[[port]]\ninterface = \"a b\"\nkind = \"host\""), "t.toml:13:13: port \"a b\": interface can't be a name in Linux: write one as `ip link` shows it"),
        (tor("", "", "", "[[port]]\ninterface = \"abcdefghijklmnop\"\nkind = \"host\""), "t.toml:13:13: port \"abcdefghijklmnop\": interface has 16 bytes: write at most 15"),
        (tor("", "", "", "[[port]]\ninterface = \"x\"\nkind = \"down\""), "t.toml:14:8: port \"x\": kind down on role tor, the lowest tier: write \"host\" or \"up\""),
        ("name = \"c\"\nrole = \"core\"\n[[port]]\ninterface = \"x\"\nkind = \"up\"".into(), "t.toml:5:8: port \"x\": kind up on role core, the top tier: write \"down\""),
        ("name = \"a\"\nrole = \"agg\"\n[[port]]\ninterface = \"x\"\nkind = \"host\"".into(), "t.toml:5:8: port \"x\": kind host on role agg, which has no hosts: write \"up\" or \"down\", or role = \"tor\""),
        (tor("", "rate = 10", "", ""), "t.toml:7:8: port \"h0\": rate 10bit is no link's: write 1kbit to 10000Gbit with its unit, like \"10Gbit\", or 0 for unlimited"),
        (tor("", "rate = \"11Tbit\"", "", ""), "t.toml:7:8: port \"h0\": rate 11000Gbit is no link's: write 1kbit to 10000Gbit with its unit, like \"10Gbit\", or 0 for unlimited"),
        (tor("", "mtu = 575", "", ""), "t.toml:7:7: port \"h0\": mtu 575 is out of range: write 576 to 9216"),
        (tor("", "mtu = 70000", "", ""), "t.toml:7:7: port \"h0\": mtu 70000 is out of range: write 576 to 9216"),
        (tor("", "mtu = 9217", "", ""), "t.toml:7:7: port \"h0\": mtu 9217 is out of range: write 576 to 9216"),
        (tor("", "mtu = 1279", "", segment), "t.toml:7:7: port \"h0\": mtu 1279 can't carry IPv6 (RFC 8200): write at least 1280, or take the IPv6 segment and routes out"),
        (tor("", "peer_mac = \"02:77:00:00:00:01\"", "", ""), "t.toml:7:12: port \"h0\": peer_mac on a host port, where hosts are learned: take it out"),
        (tor("", "", "peer_mac = \"ff:ff:ff:ff:ff:ff\"", ""), "t.toml:11:12: port \"up0\": peer_mac ff:ff:ff:ff:ff:ff is a multicast address: write the neighbour's unicast address, or leave it out"),
        // Routes.
        (tor("", "", "", &route("10.0.1.1/24", "[\"up0\"]")), "t.toml:13:10: route \"10.0.1.1/24\": prefix has host bits set: write \"10.0.1.0/24\""),
        (tor("", "", "", &route("ff00::/8", "[\"up0\"]")), "t.toml:13:10: route \"ff00::/8\": prefix is multicast, routes are for unicast: take it out"),
        (tor("", "", "", &[route("10.1.0.0/16", "[\"up0\"]"), route("10.1.0.0/16", "[]")].join("\n")), "t.toml:16:10: route \"10.1.0.0/16\": prefix is in route number 1 already: make it one route with all the ports"),
        (tor("", "", "", &route("10.0.1.0/24", "[\"up0\", \"up9\"]")), "t.toml:14:17: route \"10.0.1.0/24\": ports: no [[port]] has interface \"up9\": add one, or name one of the up and down ports"),
        (tor("", "", "", &route("10.0.1.0/24", "[\"h0\"]")), "t.toml:14:10: route \"10.0.1.0/24\": ports: \"h0\" is a host port, routes leave by up and down ports: name one of those"),
        (tor("", "", "", &route("10.0.1.0/24", "[\"up0\", \"up0\"]")), "t.toml:14:17: route \"10.0.1.0/24\": ports: \"up0\" is named twice: name it once"),
        (tor("", "", "", &[segment, &route("10.0.0.0/24", "[\"up0\"]")].join("\n")), "t.toml:16:10: route \"10.0.0.0/24\": prefix overlaps the [segment] 10.0.0.0/24, whose hosts are on this switch: take it out"),
        (tor("", "", "", &[segment, &route("fd00::8:0/112", "[\"up0\"]")].join("\n")), "t.toml:16:10: route \"fd00::8:0/112\": prefix overlaps the [segment] fd00::/64, whose hosts are on this switch: take it out"),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .map(|(text, expected)| (refusal(text), *expected))
        .filter(|(got, expected)| got != expected)
        .map(|(got, expected)| format!("expected {expected}\n     got {got}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn several_problems_are_reported_at_once_in_the_order_of_the_file() {
    let text = tor(
        "mac = \"ff:ff:ff:ff:ff:ff\"",
        "mtu = 100",
        "mtu = 9217",
        "[[route]]\nprefix = \"10.0.0.1/8\"\nports = [\"h0\"]",
    );
    let lines: Vec<_> = refusal(&text).lines().map(|l| l.split(':').nth(1).unwrap().to_owned()).collect();
    assert_eq!(lines, ["3", "7", "11", "13", "14"]);
}

#[test]
fn text_that_is_not_toml_is_refused_where_it_breaks() {
    for (text, first) in [
        ("name = \"t\nrole = \"tor\"\n", "t.toml:1:10: not TOML: "),
        ("name = \"t\"\nrole = tor\n", "t.toml:2:8: not TOML: "),
        ("name = \"t\"\n[[port]\n", "t.toml:2:"),
    ] {
        let message = refusal(text);
        assert!(message.starts_with(first), "{message}");
        assert!(message.lines().all(|line| line.contains(": not TOML: ")), "{message}");
    }
}

#[test]
fn sixty_four_ports_are_accepted_and_one_more_is_not() {
    let ports =
        |n: usize| (0..n).map(|i| format!("[[port]]\ninterface = \"p{i}\"\nkind = \"down\"\n")).collect::<String>();
    let file = |n| format!("name = \"c\"\nrole = \"core\"\n{}", ports(n));
    assert_eq!(SwitchConfig::parse(&file(64), "t.toml").unwrap().ports.len(), 64);
    let message = refusal(&file(65));
    assert!(message.ends_with("65 ports: a switch has at most 64, take some out"), "{message}");
    // Far more than a PortId can number must not wrap around.
    let many = format!("{}[[route]]\nprefix = \"10.0.0.0/8\"\nports = [\"p256\"]", file(300));
    assert!(refusal(&many).contains("\"p256\""));
}

#[test]
fn a_point_to_point_segment_may_use_both_of_its_addresses() {
    for segment in ["ipv4 = \"10.0.0.0/31\"", "ipv4 = \"10.0.0.1/31\"", "ipv6 = \"fd00::/127\""] {
        SwitchConfig::parse(&tor("", "", "", &format!("[segment]\n{segment}")), "t.toml").unwrap();
    }
}

#[test]
fn a_configuration_made_in_code_obeys_the_same_rules() {
    let mut config = SwitchConfig::parse(FULL, "t.toml").unwrap();
    config.validate().unwrap();
    config.ports[0].mtu = Some(9217);
    config.routes[0].ports.push(PortId(9));
    let message = config.validate().unwrap_err().to_string();
    assert_eq!(
        message,
        "switch tor0-0: port \"h0-0-2\": mtu 9217 is out of range: write 576 to 9216\n\
         switch tor0-0: route \"0.0.0.0/0\": ports: the switch has no port 9: name one it has"
    );
    assert!(SwitchConfig::parse(&config.to_toml(), "t.toml").is_err());
}

#[test]
fn a_file_that_is_not_there_is_named_with_the_systems_words() {
    let message = SwitchConfig::load(Path::new("no/such.toml")).unwrap_err().to_string();
    assert!(message.starts_with("no/such.toml: No such file or directory (os error 2): "), "{message}");
}

#[test]
fn load_reads_a_file_and_names_it_in_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("leaf0.toml");
    std::fs::write(&path, FULL).unwrap();
    assert_eq!(SwitchConfig::load(&path).unwrap(), SwitchConfig::parse(FULL, "t.toml").unwrap());
    std::fs::write(&path, FULL.replace("10Gbit", "fast")).unwrap();
    let message = SwitchConfig::load(&path).unwrap_err().to_string();
    assert!(message.contains("leaf0.toml:39:8: port \"h0-0-2\": rate `fast`"), "{message}");
}

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(|mut b| {
        b[0] = b[0] & 0xfc | 2;
        MacAddr(b)
    })
}

fn port(role: Role) -> impl Strategy<Value = PortConfig> {
    let kinds = match role {
        Role::Tor => vec![PortKind::Host, PortKind::Up],
        Role::Agg => vec![PortKind::Up, PortKind::Down],
        Role::Core => vec![PortKind::Down],
    };
    (
        "[a-z][a-z0-9.\"\\\\é-]{0,6}",
        prop::sample::select(kinds),
        prop_oneof![Just(0), 1_000u64..=10_000_000_000_000],
        prop::option::of(1280u16..=9216),
        any::<bool>(),
        prop::option::of(mac()),
        prop::sample::select(vec![HelloMode::Auto, HelloMode::Required, HelloMode::Off]),
    )
        .prop_map(|(interface, kind, rate, mtu, native, peer_mac, hello)| PortConfig {
            interface,
            kind,
            rate: BitRate(rate),
            mtu,
            mode: if native { XdpMode::Native } else { XdpMode::Generic },
            enabled: rate % 3 != 0,
            pass_to_kernel: rate % 5 == 1,
            peer_mac: peer_mac.filter(|_| kind != PortKind::Host),
            hello: if kind == PortKind::Host { HelloMode::Off } else { hello },
            fault: Faults { loss: (rate % 7) as f64 / 7.0, delay: rate % 1000, ..Faults::default() },
            uplink: None,
        })
}

fn prefix() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (0u8..200, any::<[u8; 3]>(), 0u8..=32)
            .prop_map(|(a, [b, c, d], len)| IpNet::from(Ipv4Net::new(Ipv4Addr::new(a, b, c, d), len).unwrap())),
        (any::<[u16; 7]>(), 0u8..=128).prop_map(|(g, len)| {
            // 2000::/3 has neither multicast nor the segment in it.
            let address = Ipv6Addr::new(0x2001, g[0], g[1], g[2], g[3], g[4], g[5], g[6]);
            IpNet::from(Ipv6Net::new(address, len).unwrap())
        }),
    ]
    .prop_map(|net| net.trunc())
}

prop_compose! {
    fn flowlet()(gap in 1_000u64..=10_000_000_000, power in 10u32..=22) -> FlowletOptions {
        FlowletOptions { gap: Duration(gap), slots: 1 << power }
    }
}

prop_compose! {
    /// Bursts that hold a frame of 9216 bytes at 1 Mbit/s, and no more than a meter counts at 1 Gbit/s.
    fn p4te()(
        (delta, depth_step) in (1u32..=65_535, 1u32..=65_535),
        gap in 1_000u64..=10_000_000_000,
        (cir, above) in (1_000u32..=1_000_000, any::<u32>()),
        safe in (1_000u32..=1_000_000, 1_000u32..=1_000_000),
        bursts in (80_000_000u64..=1_000_000_000, 80_000_000u64..=1_000_000_000),
        dscps in any::<u64>(),
        (large_after, window, power) in (any::<u64>(), 1460u64..=1 << 28, 10u32..=22),
        rate_adaptation in prop::sample::select(vec![RateAdaptation::Off, RateAdaptation::Fack, RateAdaptation::Clamp]),
        ack in prop::sample::select(vec![AckRule::Safe, AckRule::Paper]),
    ) -> P4teOptions {
        let mut large_dscp = DscpSet::default();
        (0..64).filter(|i| dscps >> i & 1 == 1).for_each(|i| assert!(large_dscp.insert(i)));
        P4teOptions {
            delta,
            depth_step,
            flowlet_gap: Duration(gap),
            cir: Fraction::from_ppm(cir),
            pir: Fraction::from_ppm(cir + above % (1_000_001 - cir)),
            burst: Duration(bursts.0),
            safe_short: Fraction::from_ppm(safe.0),
            safe_large: Fraction::from_ppm(safe.1),
            class_burst: Duration(bursts.1),
            large_dscp,
            large_after: Bytes(large_after),
            rate_adaptation,
            ack,
            window: Bytes(window),
            rate_slots: 1 << power,
        }
    }
}

prop_compose! {
    fn hula()(period in 100_000u64..=10_000_000_000, more in any::<u64>(), max_tors in 1u32..=65_536) -> HulaOptions {
        let keepalive = 2 * period + more % (100_000_000_001 - 2 * period);
        HulaOptions { period: Duration(period), keepalive: Duration(keepalive), max_tors }
    }
}

prop_compose! {
    /// Its EtherTypes are above all that are taken.
    fn caft()(
        (tpid, alpha) in (0x9101u16.., 1_000u32..=500_000),
        failure_timeout in prop_oneof![Just(0), 1_000_000u64..=1_000_000_000_000],
        deterministic in any::<bool>(),
    ) -> CaftOptions {
        let (dre_alpha, failure_timeout) = (Fraction::from_ppm(alpha), Duration(failure_timeout));
        CaftOptions { tpid, dre_alpha, failure_timeout, deterministic, ..CaftOptions::default() }
    }
}

/// Gives some up ports the highest numbers; then the number of uplinks has to be said, else it may be.
fn number(ports: &mut [PortConfig], chance: u64) -> Option<u8> {
    let mut up: Vec<_> = ports.iter_mut().filter(|p| p.kind == PortKind::Up).collect();
    for (i, port) in up.iter_mut().enumerate().filter(|(i, _)| chance >> i & 1 == 1) {
        port.uplink = Some(63 - i as u8);
    }
    let said = up.iter().any(|p| p.uplink.is_some()) || chance >> 63 == 1;
    said.then_some(64)
}

prop_compose! {
    /// Valid configurations of every role. The segment lies in 203/8, which `prefix` can't reach.
    fn config()(role in prop::sample::select(vec![Role::Tor, Role::Agg, Role::Core]))(
        role in Just(role),
        (name, id, seed, mac) in ("[a-z0-9][a-zA-Z0-9._-]{0,40}", any::<u16>(), any::<u64>(), mac()),
        routers in (any::<bool>(), any::<bool>()),
        segment in prop::option::of((24u8..=30, any::<bool>(), any::<bool>())),
        (busy, core) in (any::<bool>(), prop::option::of(0usize..64)),
        (frames, control) in (1024u32..100_000, "/[ -~]{0,80}"),
        (packets, bytes, control_packets, mark) in (1u32..100_000, 1u64..1 << 32, 1u32..1000, any::<u64>()),
        hello in (1_000_000u64..=10_000_000_000, 2u8..=50, any::<bool>()),
        (flowlet, p4te, hula, caft) in (flowlet(), p4te(), hula(), caft()),
        (place, pod) in (any::<u64>(), any::<bool>()),
        selector in prop::sample::select(vec![
            Selector::Ecmp,
            Selector::Flowlet,
            Selector::LetFlow,
            Selector::Hula,
            Selector::P4te,
            Selector::Caft,
            Selector::Expeditus,
        ]),
        ports in prop::collection::vec(port(role), 1..12),
        routes in prop::collection::vec((prefix(), any::<u64>()), 0..12),
    ) -> SwitchConfig {
        let mut seen = BTreeSet::new();
        let required = ports.iter().any(|p: &PortConfig| p.hello == HelloMode::Required);
        let interval = Duration(if hello.2 || required { hello.0 } else { 0 });
        let mut ports: Vec<_> = ports.into_iter().filter(|p| seen.insert(p.interface.clone())).collect();
        // What P4TE's bursts allow.
        let metered = ports.iter_mut().filter(|p| selector == Selector::P4te && p.rate.0 > 0);
        metered.for_each(|p| p.rate.0 = p.rate.0.clamp(1_000_000, 1_000_000_000));
        let one_worker = !matches!(selector, Selector::Ecmp | Selector::Flowlet | Selector::LetFlow);
        let uplinks = number(&mut ports, place).filter(|_| role != Role::Core);
        let mut seen = BTreeSet::new();
        let fabric_ports = |mask: u64| {
            let chosen = |i: &usize| mask >> i & 1 == 1 && ports[*i].kind != PortKind::Host;
            (0..ports.len()).filter(chosen).map(|i| PortId(i as u8)).collect()
        };
        let routes = routes
            .into_iter()
            .filter(|(prefix, _)| seen.insert(*prefix))
            .map(|(prefix, mask)| RouteConfig { prefix, ports: fabric_ports(mask) })
            .collect();
        let segment = segment.filter(|_| role == Role::Tor).map(|(len, v4, v6)| Segment {
            ipv4: (v4 || !v6).then(|| Ipv4Net::new(Ipv4Addr::new(203, 0, 113, 1), len).unwrap()),
            ipv6: v6.then(|| "fd00:7::1/64".parse().unwrap()),
        });
        let needed = matches!(selector, Selector::Caft | Selector::Expeditus);
        let pod = ((pod || needed) && role != Role::Core)
            .then(|| Pod { ipv4: "203.0.0.0/16".parse().ok(), ipv6: "fd00:7::/48".parse().ok() });
        SwitchConfig {
            name,
            id: SwitchId(id),
            role,
            selector,
            seed,
            mac,
            router_ipv4: routers.0.then_some(Ipv4Addr::new(10, 255, 0, 9)),
            router_ipv6: routers.1.then(|| "fd00:0:ffff::9".parse().unwrap()),
            segment,
            pod,
            uplinks,
            runtime: RuntimeOptions {
                workers: if one_worker { 1 } else { 1 + (seed % 16) as usize },
                poll: if busy { PollMode::Busy } else { PollMode::Adaptive },
                core,
                frames,
                control: control.into(),
            },
            queues: QueueOptions { packets, bytes: Bytes(bytes), control_packets, ecn_mark: Bytes(mark % bytes) },
            hello: HelloOptions { interval, multiplier: hello.1 },
            flowlet,
            p4te,
            hula,
            caft,
            // Others are in `config_pl2`.
            pl2: Pl2Options::default(),
            ports,
            routes,
        }
    }
}

proptest! {
    #[test]
    fn a_valid_configuration_written_as_toml_reads_back_the_same(config in config()) {
        config.validate().unwrap();
        let text = config.to_toml();
        let back = SwitchConfig::parse(&text, "t.toml");
        prop_assert_eq!(back.map_err(|e| format!("{e}\n{text}")).unwrap(), config);
    }

    #[test]
    fn no_text_makes_the_reader_panic(
        text in "\\PC{0,200}",
        cut in 0usize..800,
        insert in "[\"\\[\\]={}a-z0-9\n.é-]{0,6}",
    ) {
        let _ = SwitchConfig::parse(&text, "t.toml");
        // A file broken in one place comes nearer the deep paths than noise does.
        let at = cut.min(FULL.len());
        let broken = format!("{}{insert}{}", &FULL[..at], &FULL[at..]);
        if let Err(error) = SwitchConfig::parse(&broken, "t.toml") {
            prop_assert!(error.to_string().starts_with("t.toml:"), "{}", error);
        }
    }
}
