//! Fabrics from files, and fabrics with links unlike the others: what is refused and in which words,
//! and every route held against all the ways that the wiring has.

mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weft::config::{CaftOptions, FlowletOptions, HulaOptions, P4teOptions, Pl2Options, QueueOptions, Selector};
use weft::id::{PortKind, Role};
use weft::topo::{Fabric, FabricOptions, LinkChange, LinkException, Shape, Switch, TopoError};
use weft::units::{BitRate, Duration};

use walk::{Fate, Walker};

const ASYMMETRIC: &str = r#"shape = "clos"
pods = 2
tors = 2
aggs = 2
cores = 4
hosts_per_tor = 3
rate = "1Gbit"
host_rate = "2Gbit"
host_mtu = 1400
fabric_mtu = 1700
selector = "ecmp"
seed = 7
hello_interval = "100ms"

[[link]]
a = "agg0-1"
b = "tor0-0"
rate = "100Mbit"

[[link]]
a = "h1-0-2"
b = "tor1-0"
rate = 0

[[link]]
a = "tor1-1"
b = "agg1-0"
absent = true
"#;

fn clos(pods: usize, tors_per_pod: usize, aggs_per_pod: usize, cores: usize) -> Shape {
    Shape::Clos { pods, tors_per_pod, aggs_per_pod, cores }
}

fn absent(a: &str, b: &str) -> LinkException {
    LinkException { a: a.into(), b: b.into(), change: LinkChange::Absent }
}

fn without(shape: Shape, links: &[(&str, &str)]) -> Result<Fabric, TopoError> {
    let links: Vec<_> = links.iter().map(|(a, b)| absent(a, b)).collect();
    shape.build_with(&FabricOptions::default(), &links)
}

fn refusal(text: &str) -> String {
    Fabric::parse(text, "f.toml").expect_err(text).to_string()
}

/// Ports of the longest route of `switch` to `to`, by the names of those they lead to.
fn hops<'f>(fabric: &'f Fabric, switch: &str, to: &str) -> Vec<&'f str> {
    let config = &fabric.switch(switch).unwrap().config;
    let to: IpAddr = to.parse().unwrap();
    let routes = config.routes.iter().filter(|r| r.prefix.contains(&to));
    let route = routes.max_by_key(|r| r.prefix.prefix_len()).expect("a route");
    route.ports.iter().map(|p| config.ports[p.index()].interface.as_str()).collect()
}

#[test]
fn a_file_gives_the_fabric_of_its_shape_and_options() {
    for (text, shape) in [
        ("shape = \"leaf-spine\"\nleaves = 3\nspines = 2", Shape::LeafSpine { leaves: 3, spines: 2 }),
        ("shape = \"fat-tree\"\nk = 4", Shape::FatTree { k: 4 }),
        ("shape = \"clos\"\npods = 2\ntors = 3\naggs = 2\ncores = 6", clos(2, 3, 2, 6)),
        ("shape = \"rack\"\nhosts = 5", Shape::Rack { hosts: 5 }),
    ] {
        let options = FabricOptions { seed: 1, ..FabricOptions::default() };
        assert_eq!(Fabric::parse(text, "f.toml").unwrap(), shape.build(&options).unwrap());
        let options = FabricOptions {
            hosts_per_tor: (!matches!(shape, Shape::Rack { .. })).then_some(1),
            rate: BitRate(10_000_000_000),
            host_rate: Some(BitRate(1_000_000)),
            host_mtu: 1280,
            fabric_mtu: 3506,
            selector: Selector::Hula,
            seed: u64::MAX,
            hello_interval: Duration(0),
            hello_multiplier: 4,
            queues: QueueOptions { packets: 100, ..QueueOptions::default() },
            flowlet: FlowletOptions { gap: Duration(100_000), ..FlowletOptions::default() },
            p4te: P4teOptions { delta: 3, depth_step: 3, ..P4teOptions::default() },
            pl2: Pl2Options { enabled: false, k: 8, ..Pl2Options::default() },
            caft: CaftOptions { tpid: 0x9999, deterministic: true, ..CaftOptions::default() },
            hula: HulaOptions { period: Duration(200_000), keepalive: Duration(2_000_000), ..HulaOptions::default() },
            fault: "loss=0.5,seed=3".parse().expect("faults"),
        };
        let hosts = options.hosts_per_tor.map_or("", |_| "hosts_per_tor = 1");
        let text = format!(
            "{text}\n{hosts}\nrate = \"10Gbit\"\nhost_rate = \"1Mbit\"\nhost_mtu = 1280\nfabric_mtu = 3506\n\
             selector = \"hula\"\nseed = \"18446744073709551615\"\nhello_interval = 0\n\
             fault = \"loss=0.5,seed=3\"\n[queues]\npackets = 100\n[hello]\nmultiplier = 4\n\
             [flowlet]\ngap = \"100us\"\n[p4te]\ndelta = 3\n[hula]\nperiod = \"200us\"\n\
             [caft]\ntpid = 0x9999\ndeterministic = true\n[pl2]\nenabled = false\nk = 8"
        );
        assert_eq!(Fabric::parse(&text, "f.toml").unwrap(), shape.build(&options).unwrap());
    }
}

#[test]
fn a_slower_link_is_slower_at_both_its_ends_and_nothing_else_changes() {
    let shape = clos(2, 2, 2, 4);
    let options = FabricOptions { rate: BitRate(1_000_000_000), ..FabricOptions::default() };
    let mut expected = shape.build(&options).unwrap();
    let slow = BitRate(200_000_000);
    let link = |a: &str, b: &str| LinkException { a: a.into(), b: b.into(), change: LinkChange::Rate(slow) };
    let links = [link("core2", "agg1-1"), link("tor0-0", "h0-0-3")];
    let fabric = shape.build_with(&options, &links).unwrap();
    for (a, b) in [("agg1-1", "core2"), ("h0-0-3", "tor0-0")] {
        expected.links.iter_mut().find(|l| l.a.node == a && l.b.node == b).unwrap().rate = slow;
        for (here, there) in [(a, b), (b, a)] {
            let Some(switch) = expected.switches.iter_mut().find(|s| s.name() == here) else { continue };
            switch.config.ports.iter_mut().find(|p| p.interface == there).unwrap().rate = slow;
        }
    }
    assert_eq!(fabric, expected);
}

#[test]
fn the_links_of_a_file_are_found_by_their_ends_in_either_order() {
    let fabric = Fabric::parse(ASYMMETRIC, "f.toml").unwrap();
    let rates: BTreeMap<_, _> =
        fabric.links.iter().map(|l| ((l.a.node.as_str(), l.b.node.as_str()), l.rate.0)).collect();
    assert_eq!(rates[&("tor0-0", "agg0-1")], 100_000_000);
    assert_eq!(rates[&("tor0-0", "agg0-0")], 1_000_000_000);
    assert_eq!((rates[&("h1-0-2", "tor1-0")], rates[&("h1-0-3", "tor1-0")]), (0, 2_000_000_000));
    assert!(!rates.contains_key(&("tor1-1", "agg1-0")));
    assert_eq!(rates.len(), 12 + 8 + 8 - 1);
    let mtus: BTreeSet<_> = fabric.links.iter().map(|l| (l.a.node.starts_with('h'), l.mtu)).collect();
    assert_eq!(mtus, BTreeSet::from([(true, 1400), (false, 1700)]));
}

/// tor1-1 hangs on plane 1 alone: who sends to it keeps to plane 1, all the way from the source.
#[test]
fn nobody_sends_to_a_tor_through_a_plane_that_has_no_link_to_it() {
    let fabric = Fabric::parse(ASYMMETRIC, "f.toml").unwrap();
    for there in ["10.1.1.2", "fd00:0:1:1::2"] {
        for tor in ["tor0-0", "tor0-1", "tor1-0"] {
            let plane = if tor == "tor1-0" { "agg1-1" } else { "agg0-1" };
            assert_eq!(hops(&fabric, tor, there), [plane]);
        }
        assert_eq!(hops(&fabric, "agg0-1", there), ["core2", "core3"]);
        for nowhere in ["agg0-0", "agg1-0", "core0", "core1"] {
            assert!(hops(&fabric, nowhere, there).is_empty(), "{nowhere}");
        }
    }
    for elsewhere in ["10.1.0.2", "fd00:0:1:0::2"] {
        assert_eq!(hops(&fabric, "tor0-0", elsewhere), ["agg0-0", "agg0-1"]);
        assert_eq!(hops(&fabric, "tor1-1", elsewhere), ["agg1-1"]);
    }
}

#[test]
fn longer_prefixes_appear_only_where_the_ways_differ() {
    let whole = clos(2, 2, 2, 4).build(&FabricOptions::default()).unwrap();
    let fabric = without(clos(2, 2, 2, 4), &[("core3", "agg1-1")]).unwrap();
    // core3 does not lead to pod 1 any more: agg0-1 goes to its racks and to agg1-1 by core2.
    let at = |name| {
        let routes = &fabric.switch(name).unwrap().config.routes;
        let before = &whole.switch(name).unwrap().config.routes;
        let is_new = |prefix: &str| before.iter().all(|r| r.prefix.to_string() != prefix);
        routes.iter().map(|r| r.prefix.to_string()).filter(|p| !p.contains(':') && is_new(p)).collect::<Vec<_>>()
    };
    assert_eq!(at("agg0-1"), ["10.1.0.0/24", "10.1.1.0/24", "10.255.1.2/32"]);
    assert_eq!(hops(&fabric, "agg0-1", "10.1.1.9"), ["core2"]);
    for same in ["tor0-0", "tor0-1", "agg0-0", "agg1-0", "agg1-1", "core0", "core1", "core2"] {
        assert_eq!(at(same), [""; 0], "{same}");
    }
}

#[test]
fn a_switch_without_links_is_left_out_and_the_others_keep_their_place() {
    let whole = Shape::LeafSpine { leaves: 2, spines: 2 }.build(&FabricOptions::default()).unwrap();
    let dead = [("leaf0", "spine0"), ("spine0", "leaf1")];
    let fabric = without(Shape::LeafSpine { leaves: 2, spines: 2 }, &dead).unwrap();
    assert_eq!(fabric.switch("spine0"), None);
    let spine = fabric.switch("spine1").unwrap();
    assert_eq!(Some(spine), whole.switch("spine1"));
    for leaf in ["leaf0", "leaf1"] {
        let (before, after) = (&whole.switch(leaf).unwrap().config, &fabric.switch(leaf).unwrap().config);
        assert_eq!((before.id, before.mac, before.seed), (after.id, after.mac, after.seed));
        assert_eq!(hops(&fabric, leaf, "192.0.2.1"), ["spine1"]);
        // Its address is not looked for in the other plane.
        assert_eq!(hops(&fabric, leaf, "10.255.0.65"), [""; 0]);
    }
}

/// The wiring as names, lower end first, and what it allows: the oracle of the routes.
struct Wiring<'f> {
    links: Vec<(&'f str, &'f str)>,
}

impl<'f> Wiring<'f> {
    fn of(whole: &'f Fabric, absent: &[(&str, &str)]) -> Wiring<'f> {
        let links = switch_links(whole);
        Wiring { links: links.into_iter().filter(|link| !absent.contains(link)).collect() }
    }

    /// Every (switch, next switch) of every simple path from `from` to `to` that goes up, then down.
    fn ways(&self, from: &'f str, to: &str) -> BTreeSet<(&'f str, &'f str)> {
        let mut ways = BTreeSet::new();
        self.extend(&mut vec![from], to, false, &mut ways);
        ways
    }

    fn extend(&self, path: &mut Vec<&'f str>, to: &str, descends: bool, ways: &mut BTreeSet<(&'f str, &'f str)>) {
        let at = *path.last().unwrap();
        if at == to {
            ways.extend(path.windows(2).map(|pair| (pair[0], pair[1])));
            return;
        }
        for (lower, upper) in &self.links {
            let (next, down) = match () {
                () if at == *lower && !descends => (*upper, false),
                () if at == *upper => (*lower, true),
                () => continue,
            };
            if !path.contains(&next) {
                path.push(next);
                self.extend(path, to, down, ways);
                path.pop();
            }
        }
    }

    fn pair_apart(&self, tors: &[&'f str]) -> Option<(&'f str, &'f str)> {
        let pairs = tors.iter().flat_map(|a| tors.iter().map(move |b| (*a, *b)));
        pairs.filter(|(a, b)| a != b).find(|(a, b)| self.ways(a, b).is_empty())
    }
}

fn switch_links(fabric: &Fabric) -> Vec<(&str, &str)> {
    let links = fabric.links.iter().map(|l| (l.a.node.as_str(), l.b.node.as_str()));
    links.filter(|(a, _)| fabric.host(a).is_none()).collect()
}

/// A shape and links to leave out: a few, or so many that the fabric is mostly cut.
fn wounded() -> impl Strategy<Value = (Shape, Vec<LinkException>)> {
    let shape = prop_oneof![
        (1usize..=5, 1usize..=4).prop_map(|(leaves, spines)| Shape::LeafSpine { leaves, spines }),
        Just(Shape::FatTree { k: 4 }),
        (1usize..=3, 1usize..=3, 1usize..=3, 1usize..=3).prop_map(|(p, t, a, m)| clos(p, t, a, a * m)),
    ];
    let percent = prop_oneof![Just(4usize), Just(15), Just(40)];
    (shape, percent).prop_flat_map(|(shape, percent)| {
        let whole = shape.build(&FabricOptions::default()).unwrap();
        let links: Vec<_> = switch_links(&whole).iter().map(|(a, b)| absent(b, a)).collect();
        let most = (links.len() * percent).div_ceil(100);
        (Just(shape), subsequence(links, 0..=most).prop_shuffle())
    })
}

fn names_of(absent: &[LinkException]) -> Vec<(&str, &str)> {
    absent.iter().map(|e| (e.b.as_str(), e.a.as_str())).collect()
}

/// Refused just if two ToRs are apart, and then the exception is named that parts them.
fn check_refusal(whole: &Fabric, absent: &[LinkException], error: &TopoError) {
    let TopoError::Cut { index, link, from, to } = error else { panic!("{error}") };
    let tors: Vec<_> = whole.switches.iter().filter(|s| s.role() == Role::Tor).map(|s| s.name()).collect();
    let gone = names_of(absent);
    assert_eq!(&absent[*index], link);
    assert_eq!(Wiring::of(whole, &gone[..*index]).pair_apart(&tors), None, "cut before {link}");
    let cut = Wiring::of(whole, &gone[..=*index]);
    let from = whole.switch(from).unwrap().name();
    assert_eq!(cut.ways(from, to), BTreeSet::new(), "{from} reaches {to} without {link}");
}

/// From every switch to every rack and switch: each way that the routes have ends there, and they
/// have all the ways there are; where there is none, all end in a drop.
fn check_routes(whole: &Fabric, fabric: &Fabric, absent: &[LinkException]) {
    let wiring = Wiring::of(whole, &names_of(absent));
    let walker = Walker::new(fabric);
    for target in &whole.switches {
        let there = walker.by_name.get(target.name()).copied();
        let (to, fate): ([IpAddr; 2], _) = match target.config.segment {
            Some(segment) => {
                let host = whole.hosts.iter().find(|h| h.tor == target.name()).unwrap();
                assert!(segment.ipv4.unwrap().contains(&host.ipv4.addr()));
                ([host.ipv4.addr().into(), host.ipv6.addr().into()], there.map(Fate::Segment))
            }
            None => {
                let config = &target.config;
                ([config.router_ipv4.unwrap().into(), config.router_ipv6.unwrap().into()], there.map(Fate::Router))
            }
        };
        for (at, from) in fabric.switches.iter().enumerate().filter(|(at, _)| Some(*at) != there) {
            let from_name = whole.switch(from.name()).unwrap().name();
            let expected = wiring.ways(from_name, target.name());
            for to in to {
                let ways = walker.ways(at, to);
                let fates: BTreeSet<_> = ways.ends.into_iter().map(|(_, fate)| fate).collect();
                let pair = format!("{} to {} with {:?} absent", from.name(), target.name(), names_of(absent));
                if expected.is_empty() {
                    assert!(
                        !fates.is_empty() && fates.iter().all(|f| matches!(f, Fate::Dropped(_))),
                        "{pair}: {fates:?}"
                    );
                    continue;
                }
                assert_eq!(fates, BTreeSet::from([fate.clone().unwrap()]), "{pair}");
                let port = |(i, port): &(usize, weft::id::PortId)| {
                    let config = &fabric.switches[*i].config;
                    (config.name.as_str(), config.ports[port.index()].interface.as_str())
                };
                assert_eq!(ways.used.iter().map(port).collect::<BTreeSet<_>>(), expected, "{pair}");
            }
        }
    }
}

/// Uplink j of a ToR leads to agg or spine j, uplink m of an agg to core m of its plane, in every pod, and the links
/// that are not there are counted (docs/topology.md).
fn check_uplinks(whole: &Fabric, fabric: &Fabric) {
    for switch in &fabric.switches {
        let up = |s: &Switch| s.ports().iter().filter(|p| p.kind == PortKind::Up).count();
        let all = up(whole.switch(switch.name()).unwrap());
        assert_eq!(switch.config.uplinks.map_or(0, usize::from), all, "{}", switch.name());
        for port in switch.ports() {
            let place = |name: &str| name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().unwrap();
            let number = match (port.kind, port.interface.rsplit_once('-')) {
                (PortKind::Up, Some((_, agg))) => Some(place(agg)),
                (PortKind::Up, None) => Some(place(&port.interface) % all),
                (PortKind::Host | PortKind::Down, _) => None,
            };
            assert_eq!(port.uplink.map(usize::from), number, "{} to {}", switch.name(), port.interface);
        }
    }
}

#[test]
fn with_any_links_absent_every_branch_arrives_or_the_pair_that_is_apart_is_named() {
    let (mut arrived, mut refused, mut wounds) = (0, 0, 0);
    let mut runner = TestRunner::deterministic();
    let strategy = wounded();
    for _ in 0..250 {
        let (shape, absent) = strategy.new_tree(&mut runner).unwrap().current();
        let whole = shape.build(&FabricOptions::default()).unwrap();
        match shape.build_with(&FabricOptions::default(), &absent) {
            Ok(fabric) => {
                let gone: BTreeSet<_> = names_of(&absent).into_iter().collect();
                let left: Vec<_> = switch_links(&whole).into_iter().filter(|l| !gone.contains(l)).collect();
                assert_eq!(switch_links(&fabric), left);
                let ports = fabric.switches.iter().flat_map(|s| s.ports()).filter(|p| p.kind != PortKind::Host);
                assert_eq!(ports.count(), 2 * left.len());
                check_routes(&whole, &fabric, &absent);
                check_uplinks(&whole, &fabric);
                arrived += 1;
                wounds += usize::from(!absent.is_empty());
            }
            Err(error) => {
                check_refusal(&whole, &absent, &error);
                refused += 1;
            }
        }
    }
    assert!(wounds > 50 && refused > 50, "{arrived} arrived, {wounds} of them with links absent, {refused} refused");
}

#[test]
fn impossible_links_are_refused_with_line_cause_and_remedy() {
    let top = "shape = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_tor = 1\n";
    let link = |lines: &str| refusal(&format!("{top}[[link]]\n{lines}"));
    let names = "leaf0 to leaf1, spine0 to spine1, h0-0-2 to h0-1-2";
    for (lines, expected) in [
        (
            "a = \"leaf9\"\nb = \"spine0\"\nabsent = true",
            &*format!("f.toml:6:5: link \"leaf9 - spine0\": the fabric has no `leaf9`: write one of {names}"),
        ),
        (
            "rate = 0\na = \"leaf0\"\nb = \"\"",
            &format!("f.toml:8:5: link \"leaf0 - \": the fabric has no ``: write one of {names}"),
        ),
        (
            "a = \"leaf0\"\nb = \"leaf1\"\nabsent = true",
            "f.toml:7:5: link \"leaf0 - leaf1\": the shape has no such link: leaf0 has links to h0-0-2, spine0, spine1",
        ),
        (
            "a = \"h0-0-2\"\nb = \"leaf0\"\nabsent = true",
            "f.toml:8:10: link \"h0-0-2 - leaf0\": absent would leave a host without its one link: write a rate instead",
        ),
        (
            "a = \"leaf0\"\nb = \"spine0\"",
            "f.toml:6:5: link \"leaf0 - spine0\": nothing is different about it: \
             write rate = \"100Mbit\" or absent = true",
        ),
        (
            "a = \"leaf0\"\nb = \"spine0\"\nabsent = false",
            "f.toml:8:10: link \"leaf0 - spine0\": nothing is different about it: \
             write rate = \"100Mbit\" or absent = true",
        ),
        (
            "a = \"leaf0\"\nb = \"spine0\"\nabsent = true\nrate = 0",
            "f.toml:9:8: link \"leaf0 - spine0\": rate of a link that is absent: take out one of the two",
        ),
        (
            "a = \"leaf0\"\nb = \"spine0\"\nrate = \"fast\"",
            "f.toml:8:8: link \"leaf0 - spine0\": rate `fast` is not a rate: \
             write a number and a unit, like \"10Gbit\", \"100Mbit\" or \"0\" (unlimited)",
        ),
        (
            "a = \"leaf0\"\nb = \"spine0\"\nrate = 100",
            "f.toml:8:8: link \"leaf0 - spine0\": rate 100bit is no link's: \
             write 1kbit to 10000Gbit with its unit, like \"10Gbit\", or 0 for unlimited",
        ),
        ("b = \"spine0\"\nabsent = true", "f.toml:5:1: link number 1: a is missing: write a = \"leaf0\""),
        (
            "a = \"leaf0\"\nb = \"spine0\"\nabsent = \"yes\"",
            "f.toml:8:10: link \"leaf0 - spine0\": absent: invalid type: string \"yes\": write true or false",
        ),
        (
            "a = \"leaf0\"\nb = \"spine0\"\nloss = 1",
            "f.toml:8:1: link \"leaf0 - spine0\": unknown key `loss`: write one of `a`, `b`, `rate`, `absent`",
        ),
    ] {
        assert_eq!(link(lines), expected);
    }
    // All that is wrong with names, at once and in order.
    let twice = "a = \"leaf0\"\nb = \"spine0\"\nrate = 0\n[[link]]\nb = \"leaf0\"\na = \"spine0\"\nabsent = true\n\
                 [[link]]\na = \"x\"\nb = \"y\"\nabsent = true";
    assert_eq!(
        link(twice),
        format!(
            "f.toml:11:5: link \"spine0 - leaf0\": is link number 1 already: make it one\n\
             f.toml:14:5: link \"x - y\": the fabric has no `x`: write one of {names}"
        )
    );
    assert_eq!(
        refusal(&format!("{top}[link]\na = \"leaf0\"")),
        "f.toml:5:1: [link] makes a single table of a list: write [[link]] for each link"
    );
}

#[test]
fn a_fabric_that_absent_links_cut_is_refused_at_the_link_that_cuts_it() {
    let text = "shape = \"clos\"\npods = 2\ntors = 2\naggs = 2\ncores = 2\n\
                [[link]]\na = \"tor0-0\"\nb = \"agg0-0\"\nabsent = true\n\
                [[link]]\na = \"tor0-1\"\nb = \"agg0-0\"\nrate = \"1Mbit\"\n\
                [[link]]\na = \"core1\"\nb = \"agg1-1\"\nabsent = true\n\
                [[link]]\na = \"tor1-0\"\nb = \"agg1-0\"\nabsent = true\n";
    // tor0-0 is left with plane 1, whose one core does not lead to pod 1.
    assert_eq!(
        refusal(text),
        "f.toml:17:10: link \"core1 - agg1-1\": without it tor1-0 can't reach tor0-0 by any way up and then down: \
         keep this link"
    );
}

#[test]
fn impossible_shapes_and_options_are_refused_with_line_cause_and_remedy() {
    for (text, expected) in [
        ("", "f.toml:1:1: shape is missing: write shape = \"leaf-spine\", \"fat-tree\", \"clos\" or \"rack\""),
        (
            "shape = \"ring\"",
            "f.toml:1:9: shape: unknown value `ring`: write one of `leaf-spine`, `fat-tree`, `clos`, `rack`",
        ),
        (
            "shape = \"leaf-spine\"\nleaves = 2\nk = 4",
            "f.toml:1:1: spines is missing: write spines = 2\n\
             f.toml:3:5: k is no size of shape \"leaf-spine\", which takes leaves, spines and hosts_per_tor: take it out",
        ),
        (
            "shape = \"rack\"\nhosts = 2\nhosts_per_tor = 2",
            "f.toml:3:17: hosts_per_tor is no size of shape \"rack\", which takes hosts: take it out",
        ),
        ("shape = \"fat-tree\"\nk = 0", "f.toml:2:5: k 0 is out of range: write 1 to 4096"),
        ("shape = \"fat-tree\"\nk = -4", "f.toml:2:5: k -4 is out of range: write 1 to 4096"),
        (
            "seed = 1\nshape = \"fat-tree\"\nk = 3",
            "f.toml:2:9: fat-tree 3: k = 3 can't be halved into up and down ports: write an even k from 2",
        ),
        (
            "shape = \"clos\"\npods = 2\ntors = 2\naggs = 2\ncores = 3",
            "f.toml:1:9: clos 2x2x2x3: 3 cores can't be shared evenly by 2 aggs: write a multiple of 2, like 4",
        ),
        (
            "shape = \"rack\"\nhosts = \"2\"",
            "f.toml:2:9: hosts: invalid type: string \"2\": write a whole number without quotes",
        ),
        (
            "shape = \"rack\"\nhosts = 2\nhost_mtu = 1000\nfabric_mtu = 9300\nhost_rate = \"10bit\"",
            "f.toml:3:12: host_mtu 1000 is out of range: write 1280 to 9216\n\
             f.toml:4:14: fabric_mtu 9300 is out of range: write 1280 to 9216\n\
             f.toml:5:13: host_rate 10bit is no link's: \
             write 1kbit to 10000Gbit with its unit, like \"10Gbit\", or 0 for unlimited",
        ),
        (
            "shape = \"rack\"\nhosts = 2\nseed = -1\nselector = \"best\"",
            "f.toml:3:8: seed `-1` is not a seed: write a whole number from 0 to 18446744073709551615\n\
             f.toml:4:12: selector `best` is not a selector: write \"ecmp\", \"flowlet\", \"letflow\", \"hula\", \"p4te\", \"caft\" or \"expeditus\"",
        ),
        (
            "shape = \"rack\"\nhosts = 2\nhello_interval = \"1us\"",
            "f.toml:3:18: hello_interval 1us is out of range: write 1ms to 10s, or \"0\" for no hellos",
        ),
        (
            "shape = \"rack\"\nhosts = 2\n[p4te]\ncir = 0.8\npir = 0.7\n[flowlet]\nslots = 1000",
            "f.toml:5:7: p4te: pir 0.7 is below cir 0.8, no link would be yellow: write 0.8 or more, or a lower cir\n\
             f.toml:7:9: flowlet: slots 1000 is no power of two from 1024 to 4194304: write 1024",
        ),
        (
            "shape = \"rack\"\nhosts = 2\nhello_interval = 0\n[hello]\ninterval = 0",
            "f.toml:3:18: hello_interval is the interval of [hello], which says it too: take one of the two out",
        ),
        (
            "shape = \"rack\"\nhosts = 2\nhosts = 3",
            "f.toml:3:1: not TOML: duplicate key: a key or a table of that name is there already: keep one",
        ),
    ] {
        assert_eq!(refusal(text), expected);
    }
    let error = refusal("shape = \"rack\"\nhosts = 2\nracks = 2");
    assert!(error.starts_with("f.toml:3:1: unknown key `racks`: write one of `shape`, `leaves`,"), "{error}");
    let error = Fabric::load(Path::new("/nonexistent/f.toml")).unwrap_err().to_string();
    assert_eq!(
        error,
        "/nonexistent/f.toml: No such file or directory (os error 2): give the path of a TOML file that you may read"
    );
}

/// Every TOML of the page, so that no example there is wrong.
#[test]
fn the_examples_of_the_documentation_are_fabrics() {
    let page = include_str!("../docs/topology.md");
    let examples: Vec<_> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() > 1);
    for example in examples {
        Fabric::parse(example, "docs/topology.md").unwrap();
    }
}

/// Refused before anything is made: needs no privileges.
fn lab_up(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weft")).args(["lab", "up"]).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_wrong_file_is_misuse_and_so_is_an_option_that_belongs_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.toml");
    std::fs::write(&path, "shape = \"rack\"\nhosts = 0\n").unwrap();
    let file = path.to_str().unwrap();
    let expected = format!("weft: {file}:2:9: hosts 0 is out of range: write 1 to 4096\n");
    assert_eq!(lab_up(&["--file", file]), (Some(2), expected));
    for (option, value, line) in [
        ("--rate", "0", "rate = \"0\""),
        ("--rate", "1500Mbit", "rate = \"1500Mbit\""),
        ("--host-rate", "1Gbit", "host_rate = \"1Gbit\""),
        ("--selector", "ecmp", "selector = \"ecmp\""),
        ("--hosts-per-tor", "2", "hosts_per_tor = 2"),
        ("--seed", "1", "seed = 1"),
        ("--hello-interval", "0", "hello_interval = \"0\""),
        ("--set", "p4te.flowlet_gap=500us", "[p4te] flowlet_gap = \"500us\""),
    ] {
        let expected = format!("weft: {option} can't go with --file: write {line} in {file}\n");
        assert_eq!(lab_up(&["--file", file, option, value]), (Some(2), expected));
    }
    for (option, value) in [("--rack", "2"), ("--clos", "2x2x2x4"), ("--leaf-spine", "2x2"), ("--fat-tree", "4")] {
        let (code, message) = lab_up(&["--file", file, option, value]);
        assert_eq!(code, Some(2));
        assert!(message.contains(option) && message.contains("--file") && message.contains("cannot be used with"));
    }
}
