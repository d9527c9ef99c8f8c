//! Fabrics: addresses, wiring, and every path of every pair walked through the routing tables.

mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;
use weft::config::{Pod, Selector, SwitchConfig};
use weft::id::{PortKind, Role};
use weft::topo::{Fabric, FabricOptions, Shape};
use weft::units::BitRate;

use walk::{Fate, Walker};

fn build(shape: Shape) -> Fabric {
    shape.build(&FabricOptions::default()).unwrap()
}

fn clos(pods: usize, tors_per_pod: usize, aggs_per_pod: usize, cores: usize) -> Shape {
    Shape::Clos { pods, tors_per_pod, aggs_per_pod, cores }
}

fn shapes() -> Vec<Shape> {
    vec![
        Shape::LeafSpine { leaves: 2, spines: 2 },
        Shape::LeafSpine { leaves: 5, spines: 3 },
        Shape::FatTree { k: 2 },
        Shape::FatTree { k: 4 },
        Shape::FatTree { k: 8 },
        clos(2, 2, 2, 4),
        clos(3, 4, 2, 6),
        clos(2, 1, 3, 3),
        clos(1, 2, 2, 2),
        clos(5, 3, 4, 12),
        Shape::Rack { hosts: 9 },
    ]
}

#[test]
fn every_pair_of_hosts_is_joined_by_shortest_paths_only_and_every_uplink_is_used() {
    for shape in shapes() {
        let fabric = build(shape);
        let walker = Walker::new(&fabric);
        let mut used = BTreeSet::new();
        // Hosts of one ToR enter at the same switch, so one walk a ToR stands for all of them.
        for from in 0..fabric.switches.len() {
            if fabric.switches[from].role() != Role::Tor {
                continue;
            }
            for host in &fabric.hosts {
                let tor = walker.by_name[host.tor.as_str()];
                let same_pod = fabric.switches[tor].pod == fabric.switches[from].pod;
                let passed = if tor == from {
                    1
                } else if same_pod {
                    3
                } else {
                    5
                };
                for to in [IpAddr::V4(host.ipv4.addr()), IpAddr::V6(host.ipv6.addr())] {
                    let ways = walker.ways(from, to);
                    let from_name = fabric.switches[from].name();
                    assert_eq!(
                        ways.ends,
                        BTreeSet::from([(passed, Fate::Segment(tor))]),
                        "{shape}: {from_name} to {}",
                        host.name
                    );
                    used.extend(ways.used);
                }
            }
        }
        for (i, switch) in fabric.switches.iter().enumerate() {
            for port in switch.config.ports_of(PortKind::Up).iter() {
                // With one pod and aggs, nothing has to pass a core.
                let needless = matches!(shape, Shape::Clos { pods: 1, .. }) && switch.role() == Role::Agg;
                let expected = !needless;
                assert_eq!(used.contains(&(i, port)), expected, "{shape}: {} port {port}", switch.name());
            }
        }
    }
}

#[test]
fn every_switch_of_the_fabric_answers_every_tor_at_its_own_address() {
    for shape in shapes() {
        let fabric = build(shape);
        let walker = Walker::new(&fabric);
        for (i, switch) in fabric.switches.iter().enumerate() {
            let config = &switch.config;
            let (own, fate) = match config.segment {
                Some(s) => ([s.ipv4.unwrap().addr().into(), s.ipv6.unwrap().addr().into()], Fate::Segment(i)),
                None => ([config.router_ipv4.unwrap().into(), config.router_ipv6.unwrap().into()], Fate::Router(i)),
            };
            for from in (0..fabric.switches.len()).filter(|f| fabric.switches[*f].role() == Role::Tor) {
                for to in own {
                    let fates: BTreeSet<Fate> = walker.ways(from, to).ends.into_iter().map(|(_, f)| f).collect();
                    let from_name = fabric.switches[from].name();
                    assert_eq!(fates, BTreeSet::from([fate.clone()]), "{shape}: {from_name} to {}", switch.name());
                }
            }
        }
    }
}

#[test]
fn an_address_that_nobody_has_is_dropped_and_never_loops() {
    for shape in shapes() {
        let fabric = build(shape);
        let walker = Walker::new(&fabric);
        // A rack no pod has, a pod no fabric has, a switch no plane has, a plane, the world outside.
        let nowhere = ["10.0.200.2", "10.200.0.2", "10.255.0.250", "10.255.200.1", "192.0.2.1"];
        let nowhere_v6 = ["fd00:0:0:200::2", "fd00:0:200::2", "fd00:0:ffff::fa", "fd00:0:ffff:200::1", "2001:db8::1"];
        for to in nowhere.iter().chain(&nowhere_v6).map(|a| a.parse::<IpAddr>().unwrap()) {
            for from in 0..fabric.switches.len() {
                for (_, fate) in walker.ways(from, to).ends {
                    assert!(matches!(fate, Fate::Dropped(_)), "{shape}: {to} got {fate:?}");
                }
            }
        }
    }
}

#[test]
fn an_unknown_host_of_a_tors_own_segment_is_never_sent_up() {
    let fabric = build(Shape::FatTree { k: 4 });
    let walker = Walker::new(&fabric);
    let tor = walker.by_name["tor1-1"];
    for unknown in ["10.1.1.77", "fd00:0:1:1::77"] {
        let ways = walker.ways(tor, unknown.parse().unwrap());
        assert_eq!(ways.ends, BTreeSet::from([(1, Fate::Segment(tor))]));
        assert!(ways.used.is_empty());
    }
}

#[test]
fn every_configuration_is_valid_and_survives_its_toml_form() {
    for shape in shapes() {
        let options = FabricOptions {
            rate: BitRate(2_500_000_000),
            host_rate: Some(BitRate(10_000_000_000)),
            ..FabricOptions::default()
        };
        let fabric = shape.build(&options).unwrap();
        for switch in &fabric.switches {
            let config = fabric.switch_config(switch.name()).unwrap();
            config.validate().unwrap();
            assert_eq!(SwitchConfig::parse(&config.to_toml(), "t.toml").unwrap(), config);
            for port in &config.ports {
                let (rate, mtu) = match port.kind {
                    PortKind::Host => (BitRate(10_000_000_000), 1500),
                    PortKind::Up | PortKind::Down => (BitRate(2_500_000_000), 1600),
                };
                assert_eq!((port.rate, port.mtu), (rate, Some(mtu)));
            }
        }
        assert_eq!(fabric.switch_config("nobody"), None);
    }
}

#[test]
fn names_and_addresses_follow_their_place() {
    let fabric = build(Shape::FatTree { k: 4 });
    assert_eq!((fabric.switches.len(), fabric.hosts.len(), fabric.links.len()), (20, 16, 48));
    let host = fabric.host("h3-1-3").unwrap();
    assert_eq!((host.ipv4.to_string(), host.ipv6.to_string()), ("10.3.1.3/24".into(), "fd00:0:3:1::3/64".into()));
    assert_eq!(
        (host.gateway_ipv4.to_string(), host.gateway_ipv6.to_string()),
        ("10.3.1.1".into(), "fd00:0:3:1::1".into())
    );
    assert_eq!((host.tor.as_str(), host.interface.as_str()), ("tor3-1", "eth0"));
    let names = |fabric: &Fabric| fabric.switches.iter().map(|s| s.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&build(Shape::LeafSpine { leaves: 2, spines: 2 })), ["leaf0", "leaf1", "spine0", "spine1"]);
    assert_eq!(names(&build(Shape::Rack { hosts: 2 })), ["tor0-0"]);
    assert_eq!(
        names(&build(clos(2, 1, 2, 4))),
        ["tor0-0", "tor1-0", "agg0-0", "agg0-1", "agg1-0", "agg1-1", "core0", "core1", "core2", "core3"]
    );
    let leaf_spine = build(Shape::LeafSpine { leaves: 2, spines: 2 });
    assert_eq!(leaf_spine.hosts[2].name, "h0-1-2");
    assert_eq!(leaf_spine.hosts[2].tor, "leaf1");
    assert_eq!(leaf_spine.switch("spine0").map(|s| (s.role(), s.pod)), Some((Role::Core, None)));
    assert_eq!(leaf_spine.switch("leaf0").map(|s| (s.role(), s.pod)), Some((Role::Tor, Some(0))));
}

/// CAFT section 2: core c(j,m) has exactly one link a pod, to agg j, on that agg's uplink m.
#[test]
fn a_core_meets_the_same_agg_by_the_same_uplink_in_every_pod() {
    for (pods, tors, aggs, cores) in [(2, 2, 2, 4), (4, 2, 2, 4), (3, 4, 2, 6), (5, 3, 4, 12)] {
        let fabric = build(clos(pods, tors, aggs, cores));
        let uplinks = cores / aggs;
        for pod in 0..pods {
            for tor in 0..tors {
                let config = fabric.switch_config(&format!("tor{pod}-{tor}")).unwrap();
                let ups: Vec<_> = config.ports_of(PortKind::Up).iter().collect();
                for (j, port) in ups.iter().enumerate() {
                    assert_eq!(config.ports[port.index()].interface, format!("agg{pod}-{j}"));
                }
                assert_eq!(ups.len(), aggs);
            }
            for j in 0..aggs {
                let config = fabric.switch_config(&format!("agg{pod}-{j}")).unwrap();
                let ups: Vec<_> = config.ports_of(PortKind::Up).iter().collect();
                for (m, port) in ups.iter().enumerate() {
                    assert_eq!(config.ports[port.index()].interface, format!("core{}", j * uplinks + m));
                }
                assert_eq!(ups.len(), uplinks);
            }
        }
        for core in 0..cores {
            let config = fabric.switch_config(&format!("core{core}")).unwrap();
            let below: Vec<_> = config.ports.iter().map(|p| p.interface.clone()).collect();
            let expected: Vec<_> = (0..pods).map(|pod| format!("agg{pod}-{}", core / uplinks)).collect();
            assert_eq!(below, expected);
        }
    }
}

#[test]
fn every_switch_below_the_cores_knows_the_prefixes_of_its_pod_and_can_run_caft() {
    for shape in shapes() {
        let options = FabricOptions { selector: Selector::Caft, ..FabricOptions::default() };
        for switch in &shape.build(&options).unwrap().switches {
            let pod = switch.pod.map(|pod| Pod {
                ipv4: format!("10.{pod}.0.0/16").parse().ok(),
                ipv6: format!("fd00:0:{pod:x}::/48").parse().ok(),
            });
            assert_eq!(switch.config.pod, pod, "{shape}: {}", switch.name());
            assert_eq!(pod.is_none(), switch.role() == Role::Core);
        }
    }
}

#[test]
fn both_ends_of_a_link_agree_with_the_ports_of_their_switches() {
    for shape in shapes() {
        let fabric = build(shape);
        let mut ports: BTreeMap<(&str, &str), _> = BTreeMap::new();
        for switch in &fabric.switches {
            for port in switch.ports() {
                ports.insert((switch.name(), port.interface.as_str()), (switch.config.mac, port));
            }
        }
        for link in &fabric.links {
            for (end, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
                if let Some(host) = fabric.host(&end.node) {
                    assert_eq!(
                        (end.interface.as_str(), end.mac, far.node.as_str()),
                        ("eth0", host.mac, host.tor.as_str())
                    );
                    continue;
                }
                let (mac, port) =
                    ports.remove(&(end.node.as_str(), end.interface.as_str())).expect("a port of its own");
                assert_eq!((port.interface.as_str(), end.mac), (far.node.as_str(), mac));
                assert_eq!((port.rate, port.mtu), (link.rate, Some(link.mtu)));
                assert_eq!(port.peer_mac, (port.kind != PortKind::Host).then_some(far.mac));
            }
        }
        assert!(ports.is_empty(), "{shape}: ports without a link: {:?}", ports.keys());
    }
}

#[test]
fn impossible_sizes_are_refused_with_the_cause_and_a_remedy() {
    let options = FabricOptions::default();
    let refused = |shape: Shape, options: &FabricOptions| shape.build(options).unwrap_err().to_string();
    for (shape, expected) in [
        (Shape::LeafSpine { leaves: 0, spines: 2 }, "leaf-spine 0x2: no leaves: write at least 1"),
        (Shape::LeafSpine { leaves: 2, spines: 0 }, "leaf-spine 2x0: no spines: write at least 1"),
        (
            Shape::LeafSpine { leaves: 65, spines: 1 },
            "leaf-spine 65x1: each spine needs 65 ports, a switch has at most 64: write less",
        ),
        (
            Shape::LeafSpine { leaves: 1, spines: 63 },
            "leaf-spine 1x63: each ToR needs 65 ports, a switch has at most 64: write less",
        ),
        (Shape::FatTree { k: 0 }, "fat-tree 0: k = 0 can't be halved into up and down ports: write an even k from 2"),
        (Shape::FatTree { k: 3 }, "fat-tree 3: k = 3 can't be halved into up and down ports: write an even k from 2"),
        (Shape::FatTree { k: 66 }, "fat-tree 66: each ToR needs 66 ports, a switch has at most 64: write less"),
        (
            Shape::FatTree { k: 32 },
            "fat-tree 32: 9472 switches and hosts, at most 4096 fit: write less, or fewer hosts a ToR",
        ),
        (clos(2, 2, 2, 3), "clos 2x2x2x3: 3 cores can't be shared evenly by 2 aggs: write a multiple of 2, like 4"),
        (clos(2, 0, 2, 4), "clos 2x0x2x4: no ToRs a pod: write at least 1"),
        (clos(65, 1, 1, 1), "clos 65x1x1x1: each core needs 65 ports, a switch has at most 64: write less"),
        (clos(2, 60, 1, 5), "clos 2x60x1x5: each agg needs 65 ports, a switch has at most 64: write less"),
        (Shape::Rack { hosts: 0 }, "rack 0: no hosts: write at least 1"),
        (Shape::Rack { hosts: 65 }, "rack 65: each ToR needs 65 ports, a switch has at most 64: write less"),
    ] {
        assert_eq!(refused(shape, &options), expected);
    }
    let huge = usize::MAX;
    for shape in [
        Shape::LeafSpine { leaves: huge, spines: huge },
        Shape::FatTree { k: huge - 1 },
        clos(huge, huge, huge, huge),
        clos(huge, huge, 1, huge),
        clos(2, 2, huge - 1, huge),
        Shape::Rack { hosts: huge },
    ] {
        refused(shape, &options);
    }
    let hosts = FabricOptions { hosts_per_tor: Some(0), ..options.clone() };
    assert_eq!(refused(clos(2, 2, 2, 4), &hosts), "clos 2x2x2x4: no hosts a ToR: write at least 1");
    let hosts = FabricOptions { hosts_per_tor: Some(3), ..options.clone() };
    assert_eq!(
        refused(Shape::Rack { hosts: 4 }, &hosts),
        "rack 4: 3 hosts a ToR were asked for too: leave one of the two out"
    );
    let rate = FabricOptions { rate: BitRate(10), ..options.clone() };
    let message = refused(Shape::Rack { hosts: 1 }, &rate);
    assert!(message.starts_with("rack 1: switch tor0-0: port \"h0-0-2\": rate 10bit is no link's"), "{message}");
    let mtu = FabricOptions { fabric_mtu: 1279, ..options };
    assert!(refused(Shape::FatTree { k: 2 }, &mtu).contains("mtu 1279 can't carry IPv6"));
}

#[test]
fn sizes_are_read_from_their_text_forms() {
    assert_eq!(Shape::parse_leaf_spine("2x3").unwrap(), Shape::LeafSpine { leaves: 2, spines: 3 });
    assert_eq!(Shape::parse_clos("2x3x4x8").unwrap(), clos(2, 3, 4, 8));
    for text in ["", "2", "2x", "x2", "2x2x2", "2X2", "+2x2", "-1x2", "2 x 2", "2x99999999999999999999"] {
        let message = Shape::parse_leaf_spine(text).unwrap_err().to_string();
        assert_eq!(message, format!("`{text}` is not a size: write LEAVESxSPINES, like 2x2"));
        Shape::parse_clos(text).unwrap_err();
    }
    assert_eq!(
        Shape::parse_clos("2x2").unwrap_err().to_string(),
        "`2x2` is not a size: write PODSxTORSxAGGSxCORES, like 2x2x2x4"
    );
}

#[test]
fn the_json_of_a_fabric_has_the_names_that_tools_rely_on() {
    let options = FabricOptions { rate: BitRate(1_000_000_000), ..FabricOptions::default() };
    let json = serde_json::to_value(Fabric::leaf_spine(1, 1, &options).unwrap()).unwrap();
    let expected = serde_json::json!({
        "hosts": [
            {"name": "h0-0-2", "ipv4": "10.0.0.2", "ipv6": "fd00::2", "tor": "leaf0"},
            {"name": "h0-0-3", "ipv4": "10.0.0.3", "ipv6": "fd00::3", "tor": "leaf0"},
        ],
        "switches": [
            {"name": "leaf0", "role": "tor", "pod": 0},
            {"name": "spine0", "role": "core", "pod": null},
        ],
        "links": [
            {"a": "h0-0-2", "b": "leaf0", "rate": 1_000_000_000},
            {"a": "h0-0-3", "b": "leaf0", "rate": 1_000_000_000},
            {"a": "leaf0", "b": "spine0", "rate": 1_000_000_000},
        ],
    });
    assert_eq!(json, expected);
}

fn any_shape() -> impl Strategy<Value = (Shape, usize)> {
    let shape = prop_oneof![
        (1usize..=64, 1usize..=32).prop_map(|(leaves, spines)| Shape::LeafSpine { leaves, spines }),
        (1usize..=6).prop_map(|half| Shape::FatTree { k: 2 * half }),
        (1usize..=10, 1usize..=8, 1usize..=5, 1usize..=6).prop_map(|(p, t, a, m)| clos(p, t, a, a * m)),
        (1usize..=64).prop_map(|hosts| Shape::Rack { hosts }),
    ];
    (shape, 1usize..=8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn names_macs_addresses_and_ids_are_unique_in_a_fabric_of_any_size((shape, hosts) in any_shape(), seed: u64) {
        let hosts_per_tor = (!matches!(shape, Shape::Rack { .. })).then_some(hosts);
        let options = FabricOptions { hosts_per_tor, seed, ..FabricOptions::default() };
        let fabric = shape.build(&options).unwrap();
        prop_assert_eq!(&fabric, &shape.build(&options).unwrap());

        let mut names = BTreeSet::new();
        let mut macs = BTreeSet::new();
        let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
        let mut ids = BTreeSet::new();
        let mut seeds = BTreeSet::new();
        for host in &fabric.hosts {
            prop_assert!(names.insert(host.name.clone()));
            prop_assert!(macs.insert(host.mac) && !host.mac.is_multicast());
            prop_assert!(addresses.insert(host.ipv4.addr().into()) && addresses.insert(host.ipv6.addr().into()));
            let segment = fabric.switch(&host.tor).unwrap().config.segment.unwrap();
            prop_assert_eq!(segment.ipv4.unwrap().addr(), host.gateway_ipv4);
            prop_assert_eq!(segment.ipv6.unwrap().addr(), host.gateway_ipv6);
            prop_assert_eq!(segment.ipv4.unwrap().trunc(), host.ipv4.trunc());
            prop_assert_eq!(segment.ipv6.unwrap().trunc(), host.ipv6.trunc());
            let octet = host.ipv4.addr().octets()[3].to_string();
            prop_assert_eq!(host.name.rsplit('-').next(), Some(octet.as_str()));
        }
        for switch in &fabric.switches {
            let config = &switch.config;
            prop_assert!(names.insert(config.name.clone()));
            prop_assert!(macs.insert(config.mac));
            prop_assert!(ids.insert(config.id) && seeds.insert(config.seed));
            let own: [Option<IpAddr>; 4] = [
                config.router_ipv4.map(Into::into),
                config.router_ipv6.map(Into::into),
                config.segment.and_then(|s| s.ipv4).map(|n| n.addr().into()),
                config.segment.and_then(|s| s.ipv6).map(|n| n.addr().into()),
            ];
            prop_assert_eq!(own.iter().flatten().count(), 2);
            for address in own.into_iter().flatten() {
                prop_assert!(addresses.insert(address), "{} twice", address);
            }
            prop_assert!(config.ports.iter().all(|p| p.interface.len() <= 15));
        }
    }
}
