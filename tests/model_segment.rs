//! The learning bridge and the neighbour caches against oracles that remember everything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use weft::fabric::bridge::{self, AGEING, Bridge, PORT_QUOTA, SWEEP};
use weft::fabric::neighbour::{
    self, Claim, Due, Lookup, MAX_PARKED, MAX_PENDING, MAX_PROBES, Neighbours, PATIENCE, REACHABLE, RETRANSMIT,
};
use weft::frame::{Frame, Pool};
use weft::id::{PortId, PortMask};
use weft::pisa::Meta;
use weft::time::{Instant, SECONDS};
use weft::wire::{Headers, MacAddr};

const PORTS: u8 = 4;

fn live() -> impl Strategy<Value = PortMask> {
    prop_oneof![Just(PortMask(u64::MAX)), (0u64..16).prop_map(PortMask)]
}

#[derive(Clone, Debug)]
enum BridgeOp {
    Advance(u64),
    Learn(u8, u8),
    Lookup(u8),
    Live(PortMask),
}

fn bridge_ops() -> impl Strategy<Value = Vec<BridgeOp>> {
    let advance = prop_oneof![0..2 * SECONDS, 0..AGEING, Just(AGEING), Just(AGEING - 1)];
    let op = prop_oneof![
        2 => advance.prop_map(BridgeOp::Advance),
        4 => (0u8..6, 0..PORTS).prop_map(|(mac, port)| BridgeOp::Learn(mac, port)),
        6 => (0u8..6).prop_map(BridgeOp::Lookup),
        1 => live().prop_map(BridgeOp::Live),
    ];
    vec(op, 0..200)
}

fn station(number: u64) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 + number)
}

proptest! {
    // Each step lists a table of 8,192 slots.
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_bridge_knows_where_each_station_last_spoke_for_three_hundred_seconds(seed: u64, ops in bridge_ops()) {
        let hosts = PortMask(0b0111);
        let mut bridge = Bridge::new(hosts, seed);
        let mut model = BTreeMap::<u8, (u8, u64)>::new();
        let (mut now, mut up) = (0, PortMask(u64::MAX));
        for op in ops {
            match op {
                BridgeOp::Advance(ns) => now += ns,
                BridgeOp::Learn(mac, port) => {
                    bridge.learn(Instant(now), station(mac.into()), PortId(port));
                    model.insert(mac, (port, now));
                }
                BridgeOp::Live(live) => {
                    up = live;
                    bridge.set_live(live);
                    model.retain(|_, (port, _)| live.contains(PortId(*port)));
                }
                BridgeOp::Lookup(mac) => {
                    let found = bridge.lookup(Instant(now), station(mac.into()));
                    match model.get(&mac) {
                        // The time is kept to within a second.
                        Some((port, seen)) if now - seen < AGEING - SECONDS => {
                            prop_assert_eq!(found, Some(PortId(*port)));
                        }
                        Some((port, seen)) if now - seen < AGEING => {
                            prop_assert!(found.is_none_or(|p| p == PortId(*port)));
                        }
                        _ => prop_assert_eq!(found, None),
                    }
                }
            }
            for from in (0..PORTS).map(PortId) {
                prop_assert_eq!(bridge.flood_ports(from), hosts.and(up).without(from));
            }
            let stations: Vec<_> = bridge.stations().iter().map(|(mac, s)| (*mac, s.port.0)).collect();
            prop_assert_eq!(stations, model.iter().map(|(m, (p, _))| (station((*m).into()), *p)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_full_bridge_forgets_who_has_aged_once_a_second_and_otherwise_learns_no_more() {
    let full = bridge::CAPACITY as u64;
    let mut bridge = Bridge::new(PortMask(1), 7);
    let port = |number: u64| PortId((number % 4) as u8);
    for number in 0..full {
        // The first half spoke long before the second.
        let seen = if number < full / 2 { 0 } else { AGEING / 2 };
        bridge.learn(Instant(seen), station(number), port(number));
    }
    assert_eq!(bridge.stations().len() as u64, full);
    let new = station(full);
    bridge.learn(Instant(AGEING - 1), new, PortId(9));
    assert_eq!(bridge.lookup(Instant(AGEING - 1), new), None, "nobody has aged");
    assert_eq!(bridge.stations().len() as u64, full);
    // Who is known may still move.
    bridge.learn(Instant(AGEING - 1), station(full / 2), PortId(9));
    assert_eq!(bridge.lookup(Instant(AGEING - 1), station(full / 2)), Some(PortId(9)));
    // Half have aged by now, but the table was searched a moment ago.
    bridge.learn(Instant(AGEING + SWEEP - 2), new, PortId(9));
    assert_eq!((bridge.lookup(Instant(AGEING + SWEEP - 2), new), bridge.stations().len() as u64), (None, full));
    bridge.learn(Instant(AGEING + SWEEP - 1), new, PortId(9));
    assert_eq!(bridge.lookup(Instant(AGEING + SWEEP - 1), new), Some(PortId(9)));
    assert_eq!(bridge.stations().len() as u64, full / 2 + 1);
}

#[test]
fn a_port_that_floods_sources_fills_its_quota_and_nobody_elses() {
    let mut bridge = Bridge::new(PortMask(0b111), 7);
    let quota = PORT_QUOTA as u64;
    for number in 0..2 * bridge::CAPACITY as u64 {
        bridge.learn(Instant(number), station(number), PortId(0));
    }
    let now = Instant(SECONDS);
    assert_eq!(bridge.stations().len() as u64, quota);
    let other = station(1 << 20);
    bridge.learn(now, other, PortId(1));
    assert_eq!(bridge.lookup(now, other), Some(PortId(1)));
    // Taking another's name moves nobody into a full quota: the station's frames are flooded.
    bridge.learn(now, other, PortId(0));
    assert_eq!((bridge.lookup(now, other), bridge.stations().len() as u64), (None, quota));
    bridge.learn(now, other, PortId(1));
    assert_eq!(bridge.lookup(now, other), Some(PortId(1)));
    // One that moves away makes room for one.
    bridge.learn(now, station(0), PortId(1));
    bridge.learn(now, station(1 << 21), PortId(0));
    assert_eq!(bridge.lookup(now, station(1 << 21)), Some(PortId(0)));
    bridge.set_live(PortMask(0b110));
    assert_eq!(bridge.stations().len(), 2, "what was behind a dead port is forgotten");
    bridge.set_live(PortMask(0b111));
    for number in 0..quota {
        bridge.learn(now, station(number + 1), PortId(0));
    }
    assert_eq!(bridge.stations().len() as u64, quota + 2, "with its port's quota");
}

#[derive(Clone, Debug)]
enum NeighbourOp {
    Advance(u64),
    /// A packet for the address came in by the port.
    Packet(usize, u8),
    Confirm {
        address: usize,
        port: u8,
        mac: u64,
        claim: Claim,
    },
    Poll,
    Live(PortMask),
}

fn neighbour_ops() -> impl Strategy<Value = Vec<NeighbourOp>> {
    let advance = prop_oneof![
        3 => 0..RETRANSMIT,
        3 => Just(RETRANSMIT),
        1 => Just(RETRANSMIT - 1),
        1 => Just(REACHABLE),
        1 => 0..2 * REACHABLE,
    ];
    let op = prop_oneof![
        4 => advance.prop_map(NeighbourOp::Advance),
        8 => (0..ADDRESSES, 0..PORTS).prop_map(|(address, port)| NeighbourOp::Packet(address, port)),
        2 => (0..ADDRESSES, 0..PORTS, 0u64..2, any::<[bool; 3]>()).prop_map(|(address, port, mac, [solicited, overrides, create])| {
            NeighbourOp::Confirm { address, port, mac, claim: Claim { solicited, overrides, create } }
        }),
        4 => Just(NeighbourOp::Poll),
        1 => live().prop_map(NeighbourOp::Live),
    ];
    vec(op, 0..200)
}

const ADDRESSES: usize = 4;

fn address(number: usize) -> IpAddr {
    match number % 2 {
        0 => Ipv4Addr::from_bits(0x0a00_0102 + number as u32).into(),
        _ => Ipv6Addr::from_bits(0xfd00_0000_0000_0001_0000_0000_0000_0002 + number as u128).into(),
    }
}

/// A neighbour by the definitions of RFC 4861: when it confirmed, and when it was asked since.
#[derive(Clone)]
struct Known {
    port: u8,
    mac: u64,
    /// Told unasked, or doubted.
    doubtful: bool,
    confirmed: u64,
    asked: Vec<u64>,
}

/// An address being resolved: when it was asked for, and who waits.
struct Resolving {
    asked: Vec<u64>,
    waiting: Vec<u32>,
}

fn indices(frames: &[(Frame, Meta)]) -> Vec<u32> {
    frames.iter().map(|(frame, _)| frame.index()).collect()
}

fn free(pool: &mut Pool, frames: Vec<(Frame, Meta)>) {
    frames.into_iter().for_each(|(frame, _)| pool.free(frame));
}

proptest! {
    // Each step lists two tables of 8,192 slots.
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn neighbours_are_used_asked_forgotten_and_resolved_as_rfc_4861_says(seed: u64, ops in neighbour_ops()) {
        let mut pool = Pool::heap(ADDRESSES * MAX_PARKED, 64);
        let mut cache = Neighbours::new(seed);
        let mut known = BTreeMap::<usize, Known>::new();
        let mut resolving = BTreeMap::<usize, Resolving>::new();
        let mut came_by = BTreeMap::<u32, u8>::new();
        let mut now = 0;
        for op in ops {
            match op {
                NeighbourOp::Advance(ns) => now += ns,
                NeighbourOp::Packet(number, port) => {
                    let found = cache.lookup(Instant(now), address(number));
                    let stale = |k: &Known| k.doubtful || now - k.confirmed >= REACHABLE;
                    let waits = |k: &Known| k.asked.last().is_some_and(|asked| now - asked < RETRANSMIT);
                    if known.get(&number).is_some_and(|k| stale(k) && !waits(k) && k.asked.len() == MAX_PROBES as usize) {
                        known.remove(&number);
                    }
                    match (known.get_mut(&number), found) {
                        (Some(k), Lookup::Reachable(n)) => {
                            prop_assert!(!stale(k) || waits(k));
                            prop_assert_eq!((n.port, n.mac, n.confirmed), (PortId(k.port), station(k.mac), Instant(k.confirmed)));
                        }
                        (Some(k), Lookup::Probe(n)) => {
                            prop_assert!(stale(k) && !waits(k));
                            k.asked.push(now);
                            prop_assert_eq!((n.port, n.probes() as usize), (PortId(k.port), k.asked.len()));
                        }
                        (None, Lookup::Unknown(ask)) => {
                            prop_assert_eq!(ask, !resolving.contains_key(&number));
                            let r = resolving.entry(number).or_insert(Resolving { asked: vec![now], waiting: vec![] });
                            prop_assert!(r.waiting.len() < MAX_PARKED);
                            let frame = pool.alloc().expect("as many as may wait");
                            r.waiting.push(frame.index());
                            came_by.insert(frame.index(), port);
                            cache.park(Instant(now), address(number), frame, Meta::new(Headers::default(), PortId(port)));
                        }
                        (None, Lookup::Full) => prop_assert_eq!(resolving[&number].waiting.len(), MAX_PARKED),
                        (k, found) => {
                            return Err(TestCaseError::fail(format!("{found:?}, known: {}", k.is_some())));
                        }
                    }
                }
                NeighbourOp::Confirm { address: number, port, mac, claim } => {
                    let released = cache.confirm(Instant(now), address(number), station(mac), PortId(port), claim);
                    let waited = resolving.remove(&number);
                    prop_assert_eq!(indices(&released), waited.as_ref().map(|r| r.waiting.clone()).unwrap_or_default());
                    free(&mut pool, released);
                    let told = Known { port, mac, doubtful: !claim.solicited, confirmed: now, asked: vec![] };
                    // RFC 4861, section 7.2.5, and 7.2.3 for what is not an advertisement.
                    match known.get_mut(&number) {
                        Some(k) if k.mac != mac && !claim.overrides => k.doubtful = true,
                        Some(k) if k.mac != mac || claim.solicited => *k = told,
                        Some(k) => k.port = port,
                        None if claim.create || waited.is_some() => drop(known.insert(number, told)),
                        None => {}
                    }
                }
                NeighbourOp::Poll => {
                    let due = |r: &Resolving| now - r.asked[r.asked.len() - 1] >= RETRANSMIT;
                    let mut expected = BTreeSet::new();
                    for (number, r) in &mut resolving {
                        if due(r) && r.asked.len() < MAX_PROBES as usize {
                            r.asked.push(now);
                            expected.insert((address(*number), vec![]));
                        } else if due(r) {
                            expected.insert((address(*number), r.waiting.clone()));
                        }
                    }
                    let mut got = BTreeSet::new();
                    while let Some(due) = cache.poll(Instant(now)) {
                        let fresh = match due {
                            Due::Request(address) => got.insert((address, vec![])),
                            Due::Failed(frames) => {
                                let waiting = indices(&frames);
                                free(&mut pool, frames);
                                let at = resolving.iter().find(|(_, r)| r.waiting == waiting).map(|(number, _)| *number);
                                let number = at.ok_or_else(|| TestCaseError::fail("frames that did not wait together"))?;
                                resolving.remove(&number);
                                got.insert((address(number), waiting))
                            }
                        };
                        prop_assert!(fresh, "twice at one time");
                    }
                    prop_assert_eq!(got, expected);
                }
                NeighbourOp::Live(live) => {
                    cache.set_live(live);
                    known.retain(|_, k| live.contains(PortId(k.port)));
                }
            }
            let mut expected: Vec<_> = known.iter().map(|(n, k)| (address(*n), PortId(k.port), k.asked.len())).collect();
            expected.sort_unstable();
            let listed: Vec<_> = cache.iter().iter().map(|(a, n)| (*a, n.port, n.probes() as usize)).collect();
            prop_assert_eq!(listed, expected);
            let pending: BTreeSet<_> = cache.pending().map(|(a, probes, waiting)| (a, probes as usize, waiting)).collect();
            prop_assert_eq!(pending, resolving.iter().map(|(n, r)| (address(*n), r.asked.len(), r.waiting.len())).collect());
            let next = resolving.values().filter_map(|r| r.asked.last()).map(|asked| Instant(asked + RETRANSMIT)).min();
            prop_assert_eq!(cache.next_deadline(), next);
            let waiting = || resolving.values().flat_map(|r| &r.waiting);
            for port in 0..PORTS {
                prop_assert_eq!(cache.parked(PortId(port)), waiting().filter(|i| came_by[*i] == port).count());
            }
            prop_assert_eq!(pool.out_count(), waiting().count());
        }
        let left = cache.take_parked(PortMask(u64::MAX));
        prop_assert_eq!(left.len(), pool.out_count());
        free(&mut pool, left);
        prop_assert_eq!((pool.out_count(), cache.next_deadline()), (0, None));
    }
}

#[test]
fn sixty_four_addresses_are_resolved_at_once_and_each_is_found_again() {
    let mut pool = Pool::heap(MAX_PENDING, 64);
    let mut cache = Neighbours::new(1);
    let number = |i: usize| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0100 + i as u32));
    for i in 0..MAX_PENDING {
        assert_eq!(cache.lookup(Instant(0), number(i)), Lookup::Unknown(true));
        let frame = pool.alloc().expect("a free chunk");
        cache.park(Instant(0), number(i), frame, Meta::new(Headers::default(), PortId(0)));
    }
    assert_eq!(cache.lookup(Instant(0), number(MAX_PENDING)), Lookup::Crowded);
    assert_eq!(cache.lookup(Instant(0), number(5)), Lookup::Unknown(false), "that one has room");
    for i in (0..MAX_PENDING).rev() {
        let waited = cache.confirm(Instant(1), number(i), station(i as u64), PortId(0), Claim::ANSWER);
        assert_eq!(waited.len(), 1);
        free(&mut pool, waited);
    }
    assert_eq!(pool.out_count(), 0);
    assert!(matches!(cache.lookup(Instant(1), number(MAX_PENDING)), Lookup::Unknown(true)));
}

#[test]
fn the_address_asked_for_most_and_longest_makes_room_once_it_has_had_its_time() {
    let mut pool = Pool::heap(8, 64);
    let mut cache = Neighbours::new(1);
    for i in 0..3 {
        let frame = pool.alloc().expect("a free chunk");
        let at = Instant(i * 10);
        cache.park(at, address(i as usize), frame, Meta::new(Headers::default(), PortId(0)));
    }
    assert!(cache.evict(Instant(PATIENCE - 1)).is_none(), "nobody has had its time");
    // Only the first has waited for a second, and is asked for again.
    let mut due = vec![];
    while let Some(Due::Request(address)) = cache.poll(Instant(RETRANSMIT)) {
        due.push(address);
    }
    assert_eq!(due, [address(0)]);
    let mut evicted = |at: u64| {
        let frames = cache.evict(Instant(at)).map(|frames| {
            let count = frames.len();
            free(&mut pool, frames);
            count
        });
        (frames, cache.pending().map(|(a, _, _)| a).collect::<BTreeSet<_>>())
    };
    assert_eq!(evicted(RETRANSMIT), (Some(1), BTreeSet::from([address(1), address(2)])));
    assert_eq!(evicted(RETRANSMIT), (Some(1), BTreeSet::from([address(2)])));
    assert_eq!(evicted(RETRANSMIT), (Some(1), BTreeSet::new()));
    assert_eq!(evicted(RETRANSMIT).0, None);
    assert_eq!(pool.out_count(), 0);
}

#[test]
fn a_port_that_invents_addresses_fills_its_quota_and_nobody_elses() {
    let mut pool = Pool::heap(8, 64);
    let mut cache = Neighbours::new(1);
    let number = |i: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + i));
    let quota = neighbour::PORT_QUOTA as u32;
    let confirm = |cache: &mut Neighbours, at: u64, address: IpAddr, port: u8| {
        let waited = cache.confirm(Instant(at), address, station(1), PortId(port), Claim::REQUEST);
        let count = cache.iter().len() as u32;
        (waited, count)
    };
    for i in 0..quota {
        confirm(&mut cache, 0, number(i), 0);
    }
    assert_eq!(confirm(&mut cache, 1, number(quota), 0).1, quota, "no more from there");
    assert_eq!(confirm(&mut cache, 1, number(quota), 1).1, quota + 1, "but from elsewhere");
    assert_eq!(confirm(&mut cache, 1, address(1), 0).1, quota + 2, "and of the other family");
    // Who moves is counted where it went, and makes room where it was.
    assert_eq!(confirm(&mut cache, 1, number(0), 1).1, quota + 2);
    assert_eq!(confirm(&mut cache, 1, number(quota + 1), 0).1, quota + 3);
    assert_eq!(confirm(&mut cache, 1, number(quota + 2), 0).1, quota + 3);
    // What the switch itself asks for is taken up all the same.
    let asked = number(quota + 3);
    assert_eq!(cache.lookup(Instant(2), asked), Lookup::Unknown(true));
    let frame = pool.alloc().expect("a free chunk");
    cache.park(Instant(2), asked, frame, Meta::new(Headers::default(), PortId(3)));
    let (waited, count) = confirm(&mut cache, 2, asked, 0);
    assert_eq!((waited.len(), count), (1, quota + 4));
    free(&mut pool, waited);
}

#[test]
fn a_full_cache_forgets_who_was_silent_for_two_minutes_and_otherwise_takes_no_more() {
    let full = neighbour::CAPACITY as u32;
    let mut cache = Neighbours::new(1);
    let number = |i: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + i));
    let mut confirm = |at: u64, i: u32| {
        let port = if i < full { PortId((i % 4) as u8) } else { PortId(9) };
        let waited = cache.confirm(Instant(at), number(i), station(i.into()), port, Claim::REQUEST);
        assert!(waited.is_empty());
        cache.iter().len() as u32
    };
    for i in 0..full {
        confirm(if i < full / 2 { 0 } else { REACHABLE }, i);
    }
    let silent = 4 * REACHABLE;
    assert_eq!(confirm(silent - 1, full), full, "nobody was silent long enough");
    assert_eq!(confirm(silent + neighbour::SWEEP - 2, full), full, "looked for a moment ago");
    assert_eq!(confirm(silent + neighbour::SWEEP - 1, full), full / 2 + 1);
    assert!(matches!(cache.lookup(Instant(silent + SECONDS), number(full)), Lookup::Probe(_)), "known, not confirmed");
}
