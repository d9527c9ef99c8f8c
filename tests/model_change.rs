//! Changes of a running switch against models: the plan between two configurations, the edits of `weft port`,
//! and a whole switch that is changed between frames.

#[path = "../fuzz/src/bench.rs"]
mod bench;
#[path = "../fuzz/src/bytes.rs"]
#[allow(dead_code, reason = "made for the fuzz targets")]
mod bytes;
#[path = "../fuzz/src/frames.rs"]
mod frames;
mod packets;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use weft::config::diff::{self, Command, Layout};
use weft::config::{
    CaftOptions, FlowletOptions, HelloMode, HelloOptions, HulaOptions, P4teOptions, Pl2Options, PollMode, PortConfig,
    QueueOptions, RouteConfig, RuntimeOptions, Segment, Selector, SwitchConfig, XdpMode,
};
use weft::fault::Faults;
use weft::id::{PortId, PortKind, Role, SwitchId};
use weft::units::{BitRate, Bytes, Duration};
use weft::wire::MacAddr;

use bench::Bench;

/// Few names, so that two configurations share some: the last two may be of either kind.
const NAMES: [&str; 9] = ["h0", "h1", "h2", "u0", "u1", "u2", "u3", "x0", "x1"];
const PREFIXES: [&str; 6] = ["0.0.0.0/0", "::/0", "10.9.0.0/16", "10.9.1.0/24", "fd00:9::/48", "198.18.0.0/15"];

fn port(name: &'static str) -> impl Strategy<Value = PortConfig> {
    let kinds = match name.as_bytes()[0] {
        b'h' => vec![PortKind::Host],
        b'u' => vec![PortKind::Up],
        // Mostly of one kind: what may not change is rare.
        _ => [vec![PortKind::Up; 15], vec![PortKind::Host]].concat(),
    };
    let modes = [vec![XdpMode::Native; 31], vec![XdpMode::Generic]].concat();
    (
        (select(kinds), select(modes), any::<bool>(), any::<bool>()),
        select(vec![0, 1_000, 1_000_000, 10_000_000_000]),
        select(vec![None, Some(1280), Some(1500), Some(9216)]),
        select(vec![HelloMode::Auto, HelloMode::Required, HelloMode::Off]),
        select(vec![0, 5]),
    )
        .prop_map(move |((kind, mode, enabled, peer), rate, mtu, hello, delay)| PortConfig {
            interface: name.into(),
            kind,
            rate: BitRate(rate),
            mtu,
            mode,
            pass_to_kernel: false,
            enabled,
            peer_mac: (peer && kind != PortKind::Host).then_some(MacAddr([2, 0x77, 0, 0, 9, 9])),
            hello: if kind == PortKind::Host { HelloMode::Off } else { hello },
            fault: Faults { delay, ..Faults::default() },
            uplink: None,
        })
}

prop_compose! {
    /// Valid configurations of one ToR. What only a restart can change is mostly the same.
    fn config()(
        names in subsequence(NAMES.to_vec(), 1..=NAMES.len()).prop_shuffle(),
    )(
        ports in names.into_iter().map(port).collect::<Vec<_>>(),
        routes in subsequence(PREFIXES.to_vec(), 0..=PREFIXES.len()).prop_shuffle(),
        masks in vec(any::<u16>(), PREFIXES.len()),
        segment in select(vec![Some("203.0.113.1/24"), Some("203.0.113.2/24"), None]),
        router in select(vec![None, Some("10.255.0.1")]),
        queues in select(vec![QueueOptions::default(), QueueOptions { packets: 7, ..QueueOptions::default() }]),
        hello in select(vec![(10_000_000, 3), (20_000_000, 3), (10_000_000, 4)]),
        fixed in select([vec![0; 24], (1..=10).collect()].concat()),
    ) -> SwitchConfig {
        let routes = routes.into_iter().zip(masks).map(|(prefix, mask)| RouteConfig {
            prefix: prefix.parse().expect("a prefix"),
            ports: (0..ports.len())
                .filter(|i| mask >> i & 1 == 1 && ports[*i].kind != PortKind::Host)
                .map(|i| PortId(i as u8))
                .collect(),
        });
        let mut config = SwitchConfig {
            name: "t".into(),
            id: SwitchId(1),
            role: Role::Tor,
            selector: Selector::Ecmp,
            seed: 1,
            mac: MacAddr([2, 0x77, 0, 0, 0, 1]),
            router_ipv4: router.map(|a| a.parse().expect("an address")),
            router_ipv6: None,
            segment: segment.map(|net| Segment { ipv4: Some(net.parse().expect("a prefix")), ipv6: None }),
            runtime: RuntimeOptions::of("t"),
            queues,
            hello: HelloOptions { interval: Duration(hello.0), multiplier: hello.1 },
            flowlet: FlowletOptions::default(),
            p4te: P4teOptions::default(),
            hula: HulaOptions::default(),
            caft: CaftOptions::default(),
            pl2: Pl2Options::default(),
            pod: None,
            uplinks: None,
            routes: routes.collect(),
            ports,
        };
        match fixed {
            1 => config.name = "other".into(),
            2 => config.id = SwitchId(2),
            3 => config.seed = 2,
            4 => config.mac = MacAddr([2, 0x77, 0, 0, 0, 2]),
            5 => config.runtime.poll = PollMode::Busy,
            6 => config.runtime.core = Some(1),
            7 => config.runtime.frames = 2048,
            8 => config.runtime.control = "/run/elsewhere".into(),
            // All that may change in the top table.
            9 => config.queues.ecn_mark = Bytes(9),
            10 => config.router_ipv6 = Some("fd00::9".parse().expect("an address")),
            _ => {}
        }
        config
    }
}

/// Routes with the names of their ports.
type Routes = BTreeMap<IpNet, BTreeSet<String>>;

fn routes(config: &SwitchConfig) -> Routes {
    let name = |p: &PortId| config.ports[p.index()].interface.clone();
    config.routes.iter().map(|r| (r.prefix, r.ports.iter().map(name).collect())).collect()
}

fn by_name(config: &SwitchConfig) -> BTreeMap<&str, &PortConfig> {
    config.ports.iter().map(|p| (p.interface.as_str(), p)).collect()
}

/// A running switch, as far as changes go.
#[derive(Debug)]
struct Running {
    /// By number.
    ports: Vec<Option<PortConfig>>,
    /// By number too, like the tables of a switch.
    routes: Vec<(IpNet, weft::id::PortMask)>,
    addresses: (Option<Segment>, Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>),
    queues: QueueOptions,
    hello: HelloOptions,
}

fn addresses(c: &SwitchConfig) -> (Option<Segment>, Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>) {
    (c.segment, c.router_ipv4, c.router_ipv6)
}

impl Running {
    fn start(config: &SwitchConfig) -> Running {
        Running {
            ports: config.ports.iter().cloned().map(Some).collect(),
            routes: Layout::of(config).routes(config),
            addresses: addresses(config),
            queues: config.queues,
            hello: config.hello,
        }
    }

    fn apply(&mut self, plan: &diff::Plan, new: &SwitchConfig) {
        let mut touched = BTreeSet::new();
        for command in &plan.commands {
            match command {
                Command::RemovePort(id) => {
                    assert!(self.ports[id.index()].take().is_some(), "{id} was not there");
                }
                Command::AddPort(id, port) => {
                    assert!(touched.insert(*id));
                    if id.index() == self.ports.len() {
                        self.ports.push(None);
                    }
                    assert!(self.ports[id.index()].replace(port.clone()).is_none(), "{id} is taken");
                }
                Command::SetPort(id, port) => {
                    assert!(touched.insert(*id), "{id} is changed twice");
                    let was = self.ports[id.index()].replace(port.clone()).expect("a port that is there");
                    let key = |p: &PortConfig| (p.interface.clone(), p.kind, p.mode);
                    assert_eq!(key(&was), key(port));
                    assert_ne!(was, *port, "what does not differ is not touched");
                }
                Command::SetQueues(queues) => self.queues = *queues,
                Command::SetHello(hello) => self.hello = *hello,
                Command::SetForwarding => {
                    self.routes = plan.layout.routes(new);
                    self.addresses = addresses(new);
                }
            }
        }
    }

    fn number(&self, interface: &str) -> Option<usize> {
        self.ports.iter().position(|p| p.as_ref().is_some_and(|p| p.interface == interface))
    }

    fn routes(&self) -> Routes {
        let name = |p: PortId| self.ports[p.index()].as_ref().expect("a route leads by a port").interface.clone();
        self.routes.iter().map(|(prefix, ports)| (*prefix, ports.iter().map(name).collect())).collect()
    }

    fn check(&self, layout: &Layout, config: &SwitchConfig) {
        let ports: BTreeMap<_, _> = self.ports.iter().flatten().map(|p| (p.interface.as_str(), p)).collect();
        assert_eq!(ports, by_name(config));
        assert_eq!(self.routes(), routes(config));
        assert_eq!((&self.addresses, &self.queues, &self.hello), (&addresses(config), &config.queues, &config.hello));
        for name in NAMES {
            assert_eq!(layout.port(name), self.number(name).map(|number| PortId(number as u8)), "{name}");
        }
    }
}

/// What only a restart can change, and what of ports, as an error names it: as it was.
fn fixed(old: &SwitchConfig, new: &SwitchConfig) -> BTreeSet<String> {
    let (a, b) = (&old.runtime, &new.runtime);
    let mut keys = BTreeSet::new();
    let mut note = |key: String, differs: bool| _ = differs.then(|| keys.insert(key));
    note(format!("`name = \"{}\"`", old.name), old.name != new.name);
    note(format!("`id = {}`", old.id.0), old.id != new.id);
    note(format!("`seed = {}`", old.seed), old.seed != new.seed);
    note(format!("`mac = \"{}\"`", old.mac), old.mac != new.mac);
    note(format!("`runtime.poll = \"{}\"`", a.poll), a.poll != b.poll);
    note(a.core.map_or("no `runtime.core`".into(), |core| format!("`runtime.core = {core}`")), a.core != b.core);
    note(format!("`runtime.frames = {}`", a.frames), a.frames != b.frames);
    note(format!("`runtime.control = \"{}\"`", a.control.display()), a.control != b.control);
    for (name, was) in by_name(old) {
        let Some(is) = by_name(new).remove(name) else { continue };
        note(format!("`kind = \"{}\"` of port `{name}`", was.kind), was.kind != is.kind);
        note(format!("`mode = \"{}\"` of port `{name}`", was.mode), was.mode != is.mode);
    }
    keys
}

/// The same configuration with ports and routes in another order.
fn reordered(config: &SwitchConfig) -> SwitchConfig {
    let mut other = config.clone();
    other.ports.rotate_left(config.ports.len() / 2);
    other.ports.reverse();
    other.routes.reverse();
    for id in other.routes.iter_mut().flat_map(|r| &mut r.ports) {
        *id = other.ports.iter().position(|p| *p == config.ports[id.index()]).map(|i| PortId(i as u8)).expect("there");
    }
    for route in &mut other.routes {
        route.ports.reverse();
    }
    other
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_plan_makes_of_a_running_switch_what_the_new_configuration_says_or_names_what_it_cannot(
        configs in vec(config(), 2..8),
    ) {
        let mut now = &configs[0];
        now.validate().unwrap();
        let (mut layout, mut running) = (Layout::of(now), Running::start(now));
        running.check(&layout, now);
        for new in &configs[1..] {
            new.validate().unwrap();
            let expected = fixed(now, new);
            match diff::diff(now, &layout, new) {
                Ok(plan) => {
                    prop_assert_eq!(&expected, &BTreeSet::new());
                    let numbers: Vec<_> = (new.ports.iter())
                        .filter_map(|p| Some((p.interface.clone(), running.number(&p.interface)?)))
                        .collect();
                    let same_routes = routes(now) == routes(new);
                    running.apply(&plan, new);
                    running.check(&plan.layout, new);
                    for (name, number) in numbers {
                        prop_assert_eq!(running.number(&name), Some(number), "{} keeps its number", name);
                    }
                    let told = plan.summary.iter().any(|line| line.starts_with("routes: "));
                    prop_assert_eq!(told, !same_routes, "{:?}", plan.summary);
                    prop_assert_eq!(plan.commands.is_empty(), plan.summary.is_empty());
                    layout = plan.layout;
                    now = new;
                    for same in [new.clone(), reordered(new)] {
                        same.validate().unwrap();
                        let plan = diff::diff(now, &layout, &same).unwrap();
                        prop_assert_eq!(&plan, &diff::Plan { layout: layout.clone(), commands: vec![], summary: vec![] });
                    }
                }
                Err(diff::Fixed { mut keys, ports }) => {
                    keys.extend(ports.into_iter().map(|(name, key)| format!("{key} of port `{name}`")));
                    prop_assert_eq!(keys.len(), expected.len(), "each once: {:?}", keys);
                    prop_assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), expected);
                }
            }
        }
    }

    #[test]
    fn edits_of_ports_keep_every_other_port_and_its_routes(
        config in config(),
        at in any::<prop::sample::Index>(),
        added in port("u9"),
        prefixes in subsequence(PREFIXES.to_vec(), 0..4),
        enabled in any::<bool>(),
    ) {
        let name = config.ports[at.index(config.ports.len())].interface.clone();
        let without = config.without_port(&name).unwrap();
        // The last port can't go, nothing else is wrong with it.
        prop_assert_eq!(without.validate().is_ok(), config.ports.len() > 1);
        let mut ports = by_name(&config);
        ports.remove(name.as_str());
        prop_assert_eq!(by_name(&without), ports);
        let mut expected = routes(&config);
        expected.values_mut().for_each(|ports| _ = ports.remove(&name));
        prop_assert_eq!(routes(&without), expected);

        let prefixes: Vec<IpNet> = prefixes.into_iter().map(|p| p.parse().unwrap()).collect();
        let with = config.with_port(added.clone(), &prefixes);
        with.validate().unwrap();
        let mut ports = by_name(&config);
        ports.insert("u9", &added);
        prop_assert_eq!(by_name(&with), ports);
        let mut expected = routes(&config);
        for prefix in &prefixes {
            expected.entry(*prefix).or_default().insert("u9".into());
        }
        prop_assert_eq!(routes(&with), expected);
        // There and back again, but for routes that were made and lead nowhere now.
        let back = with.without_port("u9").unwrap();
        let made = back.routes.len() - config.routes.len();
        prop_assert!(back.routes[config.routes.len()..].iter().all(|r| r.ports.is_empty()) && made <= prefixes.len());
        prop_assert_eq!(&back.routes[..config.routes.len()], &config.routes[..]);

        let set = config.with_enabled(&name, enabled).unwrap();
        let mut expected = config.clone();
        expected.ports[config.port(&name).unwrap().index()].enabled = enabled;
        prop_assert_eq!(set, expected);

        for refused in [config.without_port("u9"), config.with_enabled("u9", enabled)] {
            prop_assert!(refused.unwrap_err().contains(&name));
        }
        let twice = config.with_port(PortConfig { interface: name, ..added }, &[]);
        prop_assert!(twice.validate().is_err());
    }
}

#[test]
fn a_port_that_is_taken_out_of_service_is_told_as_down_and_what_else_changed_beside() {
    let text = "name = \"t\"\nrole = \"tor\"\n[[port]]\ninterface = \"h0\"\nkind = \"host\"\n";
    let old = SwitchConfig::parse(text, "t").unwrap();
    let summary = |new: &SwitchConfig| diff::diff(&old, &Layout::of(&old), new).unwrap().summary;
    let mut down = old.with_enabled("h0", false).unwrap();
    assert_eq!(summary(&down), ["port `h0` is down"]);
    assert_eq!(diff::diff(&down, &Layout::of(&down), &old).unwrap().summary, ["port `h0` is up"]);
    down.ports[0].rate = weft::units::BitRate(1_000_000);
    assert_eq!(summary(&down), ["port `h0` is down", "port `h0` changed"]);
}

#[test]
fn a_route_is_told_as_changed_when_its_ports_number_goes_to_another_interface() {
    let file = |up: &str| {
        let text = format!(
            "name = \"t\"\nrole = \"tor\"\n[[port]]\ninterface = \"{up}\"\nkind = \"up\"\n\
             [[route]]\nprefix = \"0.0.0.0/0\"\nports = [\"{up}\"]\n"
        );
        SwitchConfig::parse(&text, "t.toml").unwrap()
    };
    let (old, new) = (file("u0"), file("u1"));
    let plan = diff::diff(&old, &Layout::of(&old), &new).unwrap();
    assert_eq!(plan.summary, ["port `u0` removed", "port `u1` added", "routes: 0 added, 0 removed, 1 changed"]);
    assert_eq!(plan.commands.last(), Some(&Command::SetForwarding));
}

/// What happens to a whole switch.
#[derive(Clone, Debug)]
enum Step {
    /// Frames of a recipe ([`frames::frame`]) at a port, made longer by so many bytes.
    Arrive(usize, Vec<u8>, usize, usize),
    Transmit(usize, usize),
    TransmitAll,
    Pass(u64),
    Settle,
    Tick,
    Up(usize, bool),
    Mtu(usize, u16),
    Reattach(usize),
    Become(Box<SwitchConfig>, u16),
    Set(usize, PortConfig),
    Add(PortConfig, Vec<&'static str>, u16),
    Remove(usize),
    Enable(usize, bool),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0usize..16;
    let mtu = || select(vec![1500u16, 1280, 9000, 9216]);
    let longer = prop_oneof![4 => Just(0usize), 1 => 0usize..8000];
    prop_oneof![
        12 => (port.clone(), vec(any::<u8>(), 1..24), longer, 1usize..65)
            .prop_map(|(port, recipe, longer, count)| Step::Arrive(port, recipe, longer, count)),
        4 => (port.clone(), 0usize..65).prop_map(|(port, room)| Step::Transmit(port, room)),
        2 => Just(Step::TransmitAll),
        2 => (0u64..3_000_000_000).prop_map(Step::Pass),
        1 => Just(Step::Settle),
        2 => Just(Step::Tick),
        2 => (port.clone(), any::<bool>()).prop_map(|(port, up)| Step::Up(port, up)),
        1 => (port.clone(), mtu()).prop_map(|(port, mtu)| Step::Mtu(port, mtu)),
        1 => port.clone().prop_map(Step::Reattach),
        3 => (port.clone(), self::port("x0")).prop_map(|(port, config)| Step::Set(port, config)),
        2 => (config(), mtu()).prop_map(|(config, mtu)| Step::Become(config.into(), mtu)),
        2 => (select(NAMES.to_vec()).prop_flat_map(self::port), subsequence(PREFIXES.to_vec(), 0..3), mtu())
            .prop_map(|(port, routes, mtu)| Step::Add(port, routes, mtu)),
        2 => port.clone().prop_map(Step::Remove),
        1 => (port, any::<bool>()).prop_map(|(port, enabled)| Step::Enable(port, enabled)),
        1 => Just(Step::Drain),
    ]
}

/// With the addresses that [`frames`] knows, so that frames are routed, answered and held.
fn known(mut config: SwitchConfig) -> SwitchConfig {
    if let Some(segment) = &mut config.segment {
        segment.ipv4 = Some("10.0.1.1/24".parse().expect("a prefix"));
        segment.ipv6 = Some("fd00:0:0:1::1/64".parse().expect("a prefix"));
    }
    config
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_switch_that_is_changed_between_frames_loses_none_and_does_what_it_was_told(
        first in config(),
        chunks in select(vec![24usize, 256]),
        steps in vec(step(), 1..60),
    ) {
        let mut bench = Bench::new(known(first), 1500, chunks);
        for step in steps {
            match step {
                Step::Arrive(port, recipe, longer, count) => {
                    let mut frame = frames::frame(&mut bytes::Bytes::new(&recipe));
                    frame.resize(frame.len() + longer, 0x5a);
                    bench.receive(bench.nth(port), &frame, count);
                }
                Step::Transmit(port, room) => bench.transmit(bench.nth(port), room),
                Step::TransmitAll => bench.transmit_all(),
                Step::Pass(ns) => bench.now = bench.now + ns,
                Step::Settle => bench.settle(),
                Step::Tick => bench.switch.tick(bench.now, &mut bench.pool),
                Step::Up(port, up) => bench.set_up(bench.nth(port), up),
                Step::Mtu(port, mtu) => bench.set_mtu(bench.nth(port), mtu),
                Step::Reattach(port) => bench.reattach(bench.nth(port)),
                Step::Become(mut config, mtu) => {
                    // What a restart takes is another test's.
                    config = known(*config).into();
                    config.runtime = bench.config.runtime.clone();
                    (config.name, config.id) = (bench.config.name.clone(), bench.config.id);
                    (config.seed, config.mac) = (bench.config.seed, bench.config.mac);
                    for port in &mut config.ports {
                        if let Some(was) = bench.config.port(&port.interface) {
                            let was = &bench.config.ports[was.index()];
                            (port.kind, port.mode) = (was.kind, was.mode);
                        }
                    }
                    bench.become_config(*config, mtu);
                }
                Step::Set(port, new) => {
                    let mut config = bench.config.clone();
                    let at = config.port(bench.interface(bench.nth(port))).unwrap();
                    let PortConfig { interface, kind, mode, .. } = config.ports[at.index()].clone();
                    let fabric = kind != PortKind::Host;
                    let hello = if fabric { new.hello } else { HelloMode::Off };
                    let peer_mac = new.peer_mac.filter(|_| fabric);
                    config.ports[at.index()] = PortConfig { interface, kind, mode, hello, peer_mac, ..new };
                    prop_assert!(bench.become_config(config, 1500));
                }
                Step::Add(port, routes, mtu) => {
                    let routes: Vec<_> = routes.into_iter().map(|p| p.parse().unwrap()).collect();
                    let is_new = bench.config.port(&port.interface).is_none();
                    let free = (0..).map(PortId).find(|id| !bench.ports().contains(id));
                    let name = port.interface.clone();
                    let is_host = port.kind == PortKind::Host;
                    let new = bench.config.with_port(port, &routes);
                    prop_assert_eq!(bench.become_config(new, mtu), is_new && (routes.is_empty() || !is_host));
                    if let Some(port) = bench.ports().into_iter().find(|id| bench.interface(*id) == name).filter(|_| is_new) {
                        prop_assert_eq!(Some(port), free, "the lowest free number");
                    }
                }
                Step::Remove(port) => {
                    let new = bench.config.without_port(bench.interface(bench.nth(port))).unwrap();
                    let done = !new.ports.is_empty();
                    prop_assert_eq!(bench.become_config(new, 1500), done);
                }
                Step::Enable(port, enabled) => {
                    let new = bench.config.with_enabled(bench.interface(bench.nth(port)), enabled).unwrap();
                    prop_assert!(bench.become_config(new, 1500));
                }
                Step::Drain => bench.switch.drain(bench.now, &mut bench.pool),
            }
            bench.check();
        }
        bench.finish();
    }
}
