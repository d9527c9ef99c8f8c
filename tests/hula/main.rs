//! HULA: the rules at one switch with numbers worked out by hand, and whole fabrics in virtual time.

#[path = "../net/mod.rs"]
mod net;
#[path = "../packets/mod.rs"]
mod packets;
mod rig;
mod sim;

use std::collections::BTreeMap;

use rig::{CONFIG, OWN, Rig, probe};
use sim::Sim;
use weft::counters::DropReason;
use weft::fabric::HelloMode;
use weft::id::PortId;
use weft::id::PortKind::{Down, Host, Up};
use weft::rng::Rng;
use weft::scheme::hula::util::Estimator;
use weft::scheme::hula::{HulaConfig, HulaConfigError, HulaCounters};
use weft::time::{Instant, MICROS, SECONDS};
use weft::topo::{Fabric, FabricOptions};
use weft::units::{BitRate, Duration};
use weft::wire::hula::{FULL, Probe};

const fn us(n: u64) -> Instant {
    Instant(n * MICROS)
}

#[test]
fn a_link_is_as_busy_as_the_formula_says() {
    // 1 Gbit/s over tau = 400 us is 50,000 B.
    let mut link = Estimator::new(BitRate(1_000_000_000), 400 * MICROS);
    assert_eq!(link.utilisation(us(1000)), 0);
    link.sent(us(1000), 1000);
    assert_eq!(link.utilisation(us(1000)), 1310, "1000 B: 0.02 * 65535 = 1310.7");
    assert_eq!(link.utilisation(us(1100)), 983, "1000 * (1 - 100/400) = 750 B: 983.0");
    assert_eq!(link.utilisation(us(1100)), 983, "however often it is looked at");
    link.sent(us(1100), 1000);
    assert_eq!(link.utilisation(us(1100)), 2293, "1000 + 750 B: 2293.7");
    assert_eq!(link.utilisation(us(1300)), 1146, "1750 * (1 - 200/400) = 875 B: 1146.9");
    assert_eq!(link.utilisation(us(1000)), 2293, "a clock that is behind is none that has passed");
    assert_eq!(link.utilisation(us(1500)), 0, "nothing for tau");
    link.sent(us(2000), 25_000);
    assert_eq!(link.utilisation(us(2000)), 32767, "what was before tau is forgotten: 25,000 B are a half");
    link.sent(us(2000), 25_000);
    assert_eq!(link.utilisation(us(2000)), FULL, "50,000 B");
    (0..1000).for_each(|_| link.sent(us(2000), u32::MAX));
    assert_eq!(link.utilisation(us(2000)), FULL, "and no more than all");
    let mut unpaced = Estimator::new(BitRate(0), 400 * MICROS);
    unpaced.sent(us(0), 1000);
    assert_eq!(unpaced.utilisation(us(0)), 131, "of 500,000 B, as at 10 Gbit/s");
}

#[test]
fn a_steady_rate_is_what_the_estimate_settles_at() {
    // 500 B each 10 us is 400 Mbit/s. After a frame U = 500 + U * (1 - 10/400), so U = 20,000 B, 0.4 of 50,000.
    let mut link = Estimator::new(BitRate(1_000_000_000), 400 * MICROS);
    (0..1000).for_each(|i| link.sent(us(10 * i), 500));
    let settled = link.utilisation(us(9990));
    assert!((26213..=26214).contains(&settled), "{settled}: 0.4 * 65535 = 26214");
    // A frame each 70 ns, of which 1/5714 of U decays: fractions of a byte must not be lost.
    let mut fast = Estimator::new(BitRate(10_000_000_000), 400 * MICROS);
    (0..100_000).for_each(|i| fast.sent(Instant(70 * i), 21));
    let settled = fast.utilisation(Instant(70 * 99_999));
    assert!((15_724..=15_730).contains(&settled), "{settled}: 2.4 Gbit/s of 10 is 0.24 * 65535 = 15728");
}

/// An aggregation switch: ports 0 and 1 down, 2 and 3 up.
fn agg() -> Rig {
    Rig::new(&[Down, Down, Up, Up], &CONFIG)
}

/// What is sent on of `probe(origin, _)` to these ports.
fn passed(to: &[u8], origin: u16, utilisation: u16) -> Vec<(u8, Probe)> {
    to.iter().map(|port| (*port, Probe { links: 3, ..probe(origin, utilisation) })).collect()
}

#[test]
fn the_best_way_follows_the_probes_of_the_paper() {
    let mut agg = agg();
    assert_eq!(agg.hear(us(1000), 2, &probe(7, 4000)), passed(&[0, 1], 7, 4000), "the first, from above: down");
    assert_eq!(agg.hear(us(1010), 3, &probe(7, 5000)), [], "a worse way");
    assert_eq!(agg.hear(us(1010), 3, &probe(7, 4000)), [], "no better way");
    assert_eq!(agg.way(us(1010), 7), Some((2, 4000)));
    assert_eq!(agg.hear(us(1020), 3, &probe(7, 3000)), [], "a better one, but one of the ToR's has just gone on");
    assert_eq!(agg.way(us(1020), 7), Some((3, 3000)));
    assert_eq!(agg.hear(us(1220), 3, &probe(7, 6000)), passed(&[0, 1], 7, 6000), "the best way has become worse");
    assert_eq!(agg.way(us(1220), 7), Some((3, 6000)));
    // 25,000 B up by port 2 within tau: half of it is in use.
    agg.scheme().sent(us(1400), PortId(2), 25_000);
    assert_eq!(agg.hear(us(1400), 2, &probe(7, 100)), [], "the link to the neighbour counts: 32767 is worse than 6000");
    assert_eq!(agg.hear(us(1500), 2, &probe(7, 100)), [], "100 us on, 24,575");
    assert_eq!(agg.way(us(1500), 7), Some((3, 6000)));
    assert_eq!(agg.hear(us(1800), 2, &probe(7, 100)), passed(&[0, 1], 7, 100), "and after tau nothing");
    // Silence: at the end of the keep-alive the way is still believed, after it anything is better.
    assert_eq!(agg.hear(us(2800), 3, &probe(7, FULL)), []);
    assert_eq!(agg.way(us(2800), 7), Some((2, 100)));
    assert_eq!(agg.way(us(2801), 7), None);
    assert_eq!(agg.hear(us(2801), 3, &probe(7, FULL)), passed(&[0, 1], 7, FULL));
    // The port goes down: its way is gone at once.
    agg.set_up(3, false);
    assert_eq!(agg.way(us(2801), 7), None);
    assert_eq!(agg.hear(us(2950), 2, &probe(7, FULL)), passed(&[0, 1], 7, FULL));
    let expected =
        HulaCounters { received: 11, taken: 6, replicated: 10, spaced: 1, worse: 5, ..HulaCounters::default() };
    assert_eq!(agg.scheme().counters(), expected);
}

#[test]
fn a_probe_from_below_goes_to_all_others_and_one_from_above_only_down() {
    let mut agg = agg();
    assert_eq!(agg.hear(us(1000), 0, &probe(5, 10)), passed(&[1, 2, 3], 5, 10));
    assert_eq!(agg.hear(us(1150), 2, &probe(5, 0)), [], "round from above: the ToR is below");
    assert_eq!(agg.way(us(1150), 5), Some((0, 10)));
    assert_eq!(agg.scheme().counters().roundabout, 1);
    assert_eq!(agg.hear(us(1200), 3, &probe(6, 500)), passed(&[0, 1], 6, 500));
    assert_eq!(agg.hear(us(1350), 1, &probe(6, 900)), passed(&[0, 2, 3], 6, 900), "down, however busy");
    // The last link of a probe, and dead ports.
    assert_eq!(agg.hear(us(1400), 0, &Probe { links: 1, ..probe(8, 0) }), []);
    assert_eq!(agg.scheme().counters().expired, 1);
    agg.set_up(1, false);
    agg.set_up(2, false);
    assert_eq!(agg.hear(us(1500), 0, &probe(5, 500)), passed(&[3], 5, 500));
    // A link that is not live by its hellos is no way, though its probes arrive.
    let mut strict = Rig::with_hellos(&[Down, Down, Up, Up], &CONFIG, HelloMode::Required);
    assert_eq!(strict.hear(us(1000), 0, &probe(5, 10)), []);
    assert_eq!((strict.way(us(1000), 5), strict.scheme().counters().dead_link), (None, 1));
    // A core has nothing above it, a ToR passes nothing on and takes its own for nobody else's.
    let mut core = Rig::new(&[Down, Down, Down], &CONFIG);
    assert_eq!(core.hear(us(1000), 1, &probe(5, 10)), passed(&[0, 2], 5, 10));
    let mut tor = Rig::new(&[Host, Up, Up], &CONFIG);
    assert_eq!(tor.hear(us(1000), 1, &probe(5, 10)), []);
    assert_eq!(tor.hear(us(1000), 2, &probe(OWN, 0)), []);
    assert_eq!((tor.way(us(1000), 5), tor.way(us(1000), OWN), tor.scheme().counters().own), (Some((1, 10)), None, 1));
}

#[test]
fn a_tor_probes_each_live_uplink_once_a_period_and_nothing_else_does() {
    let mut tor = Rig::new(&[Host, Up, Up, Down], &CONFIG);
    let own = Probe { links: 8, ..probe(OWN, 0) };
    assert_eq!(tor.switch.tick_deadline(), Some(us(0)));
    assert_eq!(tor.tick(us(0)), [(1, own), (2, own)]);
    assert_eq!(tor.tick(us(199)), []);
    assert_eq!(tor.tick(us(200)), [(1, own), (2, own)]);
    tor.set_up(1, false);
    assert_eq!(tor.tick(us(450)), [(2, own)], "a little late");
    assert_eq!(tor.switch.tick_deadline(), Some(us(600)), "the beat stays");
    assert_eq!(tor.tick(us(5000)), [(2, own)], "late by many: one");
    assert_eq!(tor.switch.tick_deadline(), Some(us(5200)));
    // Without frames to make them of, probes are lost like any.
    let hoard: Vec<_> = std::iter::from_fn(|| tor.pool.alloc()).collect();
    assert_eq!(tor.tick(us(5200)), []);
    assert_eq!(tor.scheme().counters().unmade, 1);
    hoard.into_iter().for_each(|frame| tor.pool.free(frame));
    assert_eq!(tor.tick(us(5400)), [(2, own)]);
    let mut agg = agg();
    assert_eq!((agg.switch.tick_deadline(), agg.tick(us(1000))), (None, vec![]));
}

#[test]
fn a_full_table_keeps_what_it_hears_and_a_prefix_has_one_owner() {
    let mut agg = agg();
    for tor in 2..=5 {
        agg.hear(us(1000 + u64::from(tor)), 0, &probe(tor, 0));
    }
    assert_eq!(agg.hear(us(1100), 0, &probe(6, 0)), [], "a fifth of four");
    assert_eq!((agg.scheme().counters().full, agg.way(us(1100), 6)), (1, None));
    // All but ToR 3 go on; when it has been silent for the keep-alive its place is free.
    for tor in [2, 4, 5] {
        agg.hear(us(1900), 0, &probe(tor, 0));
    }
    assert_eq!(agg.hear(us(2003), 0, &probe(6, 0)), [], "not yet");
    assert_eq!(agg.hear(us(2004), 0, &probe(6, 0)), passed(&[1, 2, 3], 6, 0));
    assert_eq!(agg.scheme().tors(us(2004)).iter().map(|t| t.tor.0).collect::<Vec<_>>(), [2, 4, 5, 6]);
    // ToR 4 claims the rack of ToR 2, which is heard; then it is not any more.
    let claim = Probe { ipv4: probe(2, 0).ipv4, ..probe(4, 0) };
    assert_eq!(agg.hear(us(2100), 0, &claim), []);
    assert_eq!((agg.scheme().counters().prefix_taken, agg.way(us(2100), 4)), (1, Some((0, 0))));
    assert_eq!(agg.hear(us(2901), 1, &claim).len(), 3);
    let prefixes = agg.scheme().tors(us(2901)).into_iter().map(|t| (t.tor.0, t.ipv4)).collect::<BTreeMap<_, _>>();
    assert_eq!((prefixes[&4], prefixes[&2]), (claim.ipv4, None));
}

#[test]
fn malformed_probes_and_those_of_hosts_are_drops() {
    let mut tor = Rig::new(&[Host, Up], &CONFIG);
    let mut frame = [0; 60];
    probe(5, 0).emit(weft::wire::MacAddr([2, 0, 0, 0, 0, 9]), &mut frame);
    tor.receive(us(1), 0, &frame);
    assert_eq!(tor.drops().nonzero().collect::<Vec<_>>(), [(DropReason::ReservedGroup, 1)]);
    frame[19] = 9; // version
    tor.receive(us(2), 1, &frame);
    let drops = [(DropReason::BadProbe, 1), (DropReason::ReservedGroup, 1)];
    assert_eq!(tor.drops().nonzero().collect::<Vec<_>>(), drops);
    assert_eq!(tor.scheme().counters(), HulaCounters { received: 1, malformed: 1, ..HulaCounters::default() });
    assert_eq!(tor.scheme().tors(us(2)), []);
}

#[test]
fn a_configuration_out_of_its_ranges_is_refused_and_says_what_it_may_be() {
    let bad = |change: fn(&mut HulaConfig)| {
        let mut config = CONFIG;
        change(&mut config);
        config.validate().expect_err("refused")
    };
    assert_eq!(bad(|c| c.period = 49_999), HulaConfigError::Period(49_999));
    assert_eq!(bad(|c| c.period = 10 * SECONDS + 1), HulaConfigError::Period(10 * SECONDS + 1));
    assert_eq!(
        bad(|c| c.keepalive = 399_999),
        HulaConfigError::Keepalive { keepalive: 399_999, period: 200_000 },
        "less than two periods"
    );
    assert_eq!(bad(|c| c.flowlet_gap = u64::MAX), HulaConfigError::FlowletGap(u64::MAX));
    assert_eq!(bad(|c| c.max_tors = 0), HulaConfigError::MaxTors(0));
    assert_eq!(bad(|c| c.max_tors = 65_537).to_string(), "room for 65537 ToRs: choose 1 to 65536");
    assert_eq!((CONFIG.validate(), HulaConfig::default().validate()), (Ok(()), Ok(())));
}

fn options() -> FabricOptions {
    FabricOptions { rate: BitRate(1_000_000_000), seed: 1, hello_interval: Duration(0), ..FabricOptions::default() }
}

fn leaf_spine() -> Fabric {
    Fabric::leaf_spine(2, 2, &options()).expect("a fabric")
}

fn fat_tree() -> Fabric {
    Fabric::fat_tree(4, &options()).expect("a fabric")
}

/// As many ToRs as there are.
fn config() -> HulaConfig {
    HulaConfig { max_tors: 64, ..CONFIG }
}

#[test]
fn every_tor_learns_the_ways_to_all_others_at_one_probe_a_link_tor_and_period() {
    for fabric in [leaf_spine(), fat_tree()] {
        const PERIODS: u64 = 50;
        let mut sim = Sim::new(&fabric, &config());
        sim.run_for(PERIODS * CONFIG.period - 1);
        let tors = sim.tors();
        for here in &tors {
            for there in tors.iter().filter(|t| t.name() != here.name()) {
                for port in sim.uplinks(here.name()) {
                    // At each uplink, from the first period to the last but for those still under way.
                    let heard = sim.log.probes.get(&(here.name().into(), port, there.id().0)).copied().unwrap_or(0);
                    assert!(
                        (PERIODS - 1..=PERIODS).contains(&heard),
                        "{} {port}: {heard} of {}",
                        here.name(),
                        there.name()
                    );
                }
                let best = sim.best(here.name(), there.name()).expect("a way");
                assert!(sim.uplinks(here.name()).contains(&best));
            }
            let counters = sim.scheme(here.name()).counters();
            assert_eq!(counters.originated, PERIODS * sim.uplinks(here.name()).len() as u64);
            assert_eq!((counters.own, counters.replicated, counters.unmade), (0, 0, 0), "{}", here.name());
            assert_eq!(sim.scheme(here.name()).tors(sim.now).len(), tors.len() - 1);
        }
        // No link carries more than one probe of a ToR a period, in either direction, whoever receives it.
        let worst = sim.log.probes.iter().max_by_key(|(_, n)| **n).expect("probes");
        assert!(*worst.1 <= PERIODS, "{worst:?}");
        for switch in &fabric.switches {
            let counters = sim.scheme(switch.name()).counters();
            assert_eq!(
                sim.scheme(switch.name()).tors(sim.now).len() + usize::from(switch.config.segment.is_some()),
                tors.len()
            );
            assert_eq!((counters.expired, counters.roundabout, counters.malformed), (0, 0, 0));
        }
        sim.finish();
    }
}

#[test]
fn under_changing_load_no_link_carries_more_probes_than_at_rest() {
    const PERIODS: u64 = 100;
    let fabric = fat_tree();
    let mut sim = Sim::new(&fabric, &config());
    let mut rng = Rng::new(1);
    let hosts: Vec<&str> = fabric.hosts.iter().map(|h| h.name.as_str()).collect();
    for source in 0..PERIODS as u16 * 10 {
        // Eight packets each 20 us, from anywhere to another rack: a quarter of what sixteen hosts can send.
        let [from, to] = [(); 2].map(|()| hosts[rng.below(hosts.len() as u64) as usize]);
        if fabric.host(from).unwrap().tor != fabric.host(to).unwrap().tor {
            (0..8).for_each(|_| sim.udp(from, to, (source, 80), false, 1_200));
        }
        sim.run_for(CONFIG.period / 10);
    }
    let worst = sim.log.probes.iter().max_by_key(|(_, n)| **n).expect("probes");
    assert!(*worst.1 <= PERIODS, "{worst:?}");
    let counters: Vec<_> = fabric.switches.iter().map(|s| sim.scheme(s.name()).counters()).collect();
    let spaced: u64 = counters.iter().map(|c| c.spaced).sum();
    assert!(spaced > PERIODS, "better ways were found within a period: {spaced}");
    sim.finish();
}

/// Loads the way from `from` to `to` with one flow, then lets other flows start at `other`, which is in the
/// same rack or pod: the first stays where it is, all others avoid it.
fn avoids_load(fabric: &Fabric, from: &str, other: &str, to: &str, v6: bool) {
    const LOAD: u16 = 9;
    let tor = |host: &str| fabric.host(host).expect("a host").tor.clone();
    let (near, beside) = (tor(from), tor(other));
    let mut sim = Sim::new(fabric, &config());
    sim.run_for(3 * CONFIG.period);
    // 1,242 B and 24 B of overhead each 20 us are half of 1 Gbit/s; the gap of 20 us keeps the flowlet.
    let load = |sim: &mut Sim| {
        sim.udp(from, to, (LOAD, 80), false, 1_200);
        sim.run_for(20 * MICROS);
    };
    (0..100).for_each(|_| load(&mut sim));
    let loaded = sim.next_hops(&near, |source| source == LOAD);
    let [ref way] = loaded.iter().collect::<Vec<_>>()[..] else { panic!("a flowlet is on one way: {loaded:?}") };
    for source in 1_000..1_100 {
        sim.udp(other, to, (source, 80), v6, 64);
        load(&mut sim);
    }
    assert_eq!(sim.next_hops(&near, |source| source == LOAD), loaded, "the flowlet stays");
    let fresh = sim.next_hops(&beside, |source| source >= 1_000);
    assert!(fresh.len() == 1 && !fresh.contains(*way), "new flowlets go by {fresh:?}, the load by {way}");
    // A pause longer than the gap, while the load is still remembered: a new flowlet of the same flow.
    sim.run_for(CONFIG.flowlet_gap);
    sim.log.hops.clear();
    load(&mut sim);
    assert!(sim.next_hops(&near, |source| source == LOAD).is_disjoint(&loaded), "after a pause it moves");
    sim.run_for(CONFIG.period);
    assert_eq!(sim.log.delivered.len(), 301, "and none is lost");
    sim.finish();
}

#[test]
fn new_flowlets_avoid_a_loaded_uplink_and_the_flowlet_that_loads_it_stays() {
    avoids_load(&leaf_spine(), "h0-0-2", "h0-0-3", "h0-1-2", false);
    avoids_load(&leaf_spine(), "h0-0-2", "h0-0-3", "h0-1-2", true);
}

#[test]
fn load_is_avoided_from_another_rack_that_sees_it_only_by_probes() {
    avoids_load(&fat_tree(), "h0-0-2", "h0-1-2", "h3-1-2", false);
    avoids_load(&fat_tree(), "h0-0-2", "h2-0-2", "h3-1-2", false);
}

#[test]
fn before_any_probe_is_heard_the_hash_spreads_flows() {
    let mut sim = Sim::new(&leaf_spine(), &config());
    (0..100).for_each(|source| sim.udp("h0-0-2", "h0-1-2", (source, 80), false, 64));
    assert_eq!(sim.best("leaf0", "leaf1"), None);
    sim.run_for(CONFIG.period);
    let by = |spine: &str| sim.log.hops.iter().filter(|(from, to, _)| from == "leaf0" && to == spine).count();
    assert!((25..=75).contains(&by("spine0")) && by("spine0") + by("spine1") == 100, "{} of 100", by("spine0"));
    sim.finish();
}

#[test]
fn a_way_that_fails_unseen_is_given_up_within_the_keep_alive() {
    for (fabric, from, to) in [(leaf_spine(), "h0-0-2", "h0-1-2"), (fat_tree(), "h0-0-2", "h3-1-2")] {
        let [near, far] = [from, to].map(|h| fabric.host(h).expect("a host").tor.clone());
        let mut sim = Sim::new(&fabric, &config());
        sim.run_for(3 * CONFIG.period);
        let failed = sim.best(&near, &far).expect("a way");
        sim.cut(&near, failed);
        sim.run_for(CONFIG.keepalive + CONFIG.period);
        let other = sim.best(&near, &far).expect("another way");
        assert_ne!(other, failed);
        // The far ToR, whose own links are sound, comes to know of it by silence as well, a hop after the other.
        sim.run_for(CONFIG.keepalive);
        for source in 1_000..1_100 {
            sim.udp(from, to, (source, 80), false, 64);
            sim.udp(to, from, (source + 1_000, 80), false, 64);
            sim.run_for(20 * MICROS);
        }
        sim.run_for(CONFIG.period);
        assert_eq!(sim.log.delivered.len(), 200, "{near} to {far} by {other}, none is lost");
        sim.finish();
    }
}
