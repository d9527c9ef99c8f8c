//! Hellos on fabric ports, and what the state of a link does to forwarding. The state machine itself is in
//! `tests/golden_link.rs`.

use weft::counters::DropReason;
use weft::dataplane::Dataplane;
use weft::fabric::link::Reason;
use weft::fabric::{FabricConfig, FabricPort, HelloConfig, HelloMode};
use weft::id::{PortId, PortKind, SwitchId};
use weft::pisa::PortLimits;
use weft::time::{MICROS, MILLIS, SECONDS};
use weft::units::BitRate;
use weft::wire::hello::{self, Hello, LinkEnd, LinkState};
use weft::wire::parse;

use crate::packets::udp;
use crate::rig::{FAR, H0, HOSTS, Rig, Sent, agg_config, peer, tor_config};

const INTERVAL: u64 = 10 * MILLIS;
const HELLO: HelloConfig = HelloConfig { interval: INTERVAL, multiplier: 3 };

fn config() -> FabricConfig {
    FabricConfig { hello: HELLO, ..tor_config() }
}

/// A ToR that says hello, knows its hosts and has said its first.
fn tor(config: FabricConfig, limits: PortLimits) -> Rig {
    let mut rig = Rig::new(config, limits, 4096);
    rig.meet_hosts();
    rig.wait(MILLIS);
    rig.sent();
    rig
}

/// The hello of the spine at uplink `port`, in `state`; it hears the ToR unless it is Down.
fn spine(port: u8, state: LinkState) -> Vec<u8> {
    let sender = LinkEnd { switch: SwitchId(100 + u16::from(port)), port: PortId(0) };
    let heard = (state != LinkState::Down).then_some(LinkEnd { switch: SwitchId(1), port: PortId(port) });
    let mut frame = [0; hello::FRAME_LEN];
    Hello { state, multiplier: 3, interval: 10_000, sender, heard }.emit(peer(port), &mut frame);
    frame.to_vec()
}

fn said(frame: &[u8]) -> Option<Hello> {
    let headers = parse(frame).expect("an Ethernet frame");
    hello::is_hello(frame, &headers).then(|| hello::read(frame, &headers).expect("well-formed"))
}

/// Ports and states of the hellos among what was sent, and the ports of the rest.
fn told(sent: Vec<Sent>) -> (Vec<(u8, LinkState)>, Vec<u8>) {
    let hellos = sent.iter().filter_map(|(port, frame)| Some((*port, said(frame)?.state))).collect();
    let others = sent.iter().filter(|(_, frame)| said(frame).is_none()).map(|(port, _)| *port).collect();
    (hellos, others)
}

/// How many of 64 flows go up by each uplink.
fn spread(rig: &mut Rig) -> [usize; 2] {
    let mut by = [0; 2];
    for flow in 0..64 {
        for (port, frame) in rig.send(0, &udp(H0.to_gateway(FAR.v4.into()), 64, (flow, 80), b"up")) {
            if said(&frame).is_none() {
                by[usize::from(port) - 3] += 1;
            }
        }
    }
    by
}

#[test]
fn a_port_that_is_dead_by_hello_leaves_its_groups_and_comes_back() {
    let mut rig = tor(config(), PortLimits::default());
    let both = |by: [usize; 2]| by[0] > 10 && by[1] > 10 && by[0] + by[1] == 64;
    assert!(both(spread(&mut rig)), "nobody was heard: both are trusted");
    // The spine at 3 is heard, and does not hear yet.
    assert_eq!(told(rig.send(3, &spine(3, LinkState::Down))).0, [(3, LinkState::Init)], "told at once");
    assert_eq!(spread(&mut rig), [0, 64]);
    assert_eq!(told(rig.send(3, &spine(3, LinkState::Up))).0, [(3, LinkState::Up)]);
    assert!(both(spread(&mut rig)));
    // It falls silent.
    rig.wait(3 * INTERVAL - 1);
    assert!(both(spread(&mut rig)));
    rig.wait(1);
    assert_eq!(spread(&mut rig), [0, 64]);
    assert_eq!(Dataplane::link(&rig.switch, PortId(3)).why, Reason::Silent);
    // So does the other one, after it was heard once: there is no way up at all.
    rig.send(4, &spine(4, LinkState::Init));
    rig.wait(3 * INTERVAL);
    rig.sent();
    let (sent, dropped) = rig.refuse(0, &udp(H0.to_gateway(FAR.v4.into()), 64, (1, 80), b"up"));
    assert_eq!(dropped, [DropReason::EmptyGroup]);
    assert_eq!(told(sent), (vec![], vec![0]), "and the host is told");
    rig.send(3, &spine(3, LinkState::Init));
    assert_eq!(spread(&mut rig), [64, 0]);
    // A stranger at port 4 is trusted again.
    Dataplane::reset_link(&mut rig.switch, PortId(4));
    assert!(both(spread(&mut rig)));
    assert_eq!(rig.switch.ingress().neighbour_views(rig.now).len(), 2 * HOSTS.len(), "no host was forgotten");
}

#[test]
fn hellos_are_counted_as_generated_and_consumed_and_go_to_fabric_ports_only() {
    let mut rig = tor(config(), PortLimits::default());
    let before = rig.switch.counters(PortId(3));
    rig.wait(10 * INTERVAL);
    let (hellos, others) = told(rig.sent());
    assert_eq!((hellos.len(), others), (20, vec![]));
    assert!(hellos.iter().all(|(port, state)| [3, 4].contains(port) && *state == LinkState::Down));
    for _ in 0..5 {
        rig.send(3, &spine(3, LinkState::Down));
    }
    let after = rig.switch.counters(PortId(3));
    assert_eq!(after.consumed - before.consumed, 5);
    // One each interval, and one at once because the first was news.
    assert_eq!((after.generated - before.generated, after.tx - before.tx), (11, 11));
    assert_eq!(after.drops().total(), 0);
    rig.switch.ledger().check().expect("the conservation law");
}

#[test]
fn a_hello_is_the_switchs_own_frame_to_the_nearest_bridge_and_leaves_ahead_of_data() {
    let limits = PortLimits { rate: BitRate(1_000_000_000), ..PortLimits::default() };
    let mut rig = tor(config(), limits);
    // The clock was 1 s when the switch started to say hello.
    rig.wait(INTERVAL - MILLIS - 3 * MICROS);
    for flow in 0..40 {
        rig.arrive(0, &udp(H0.to_gateway(FAR.v4.into()), 64, (flow, 80), &[1; 1000]));
    }
    rig.wait(30 * MICROS);
    let sent: Vec<Vec<u8>> = rig.sent().into_iter().filter(|(port, _)| *port == 3).map(|(_, f)| f).collect();
    let place = sent.iter().position(|frame| said(frame).is_some()).expect("a hello");
    assert!(place <= 1 && sent.len() > place + 1, "frame {place} of {}", sent.len());
    let mut expected = [0; hello::FRAME_LEN];
    let sender = LinkEnd { switch: SwitchId(1), port: PortId(3) };
    Hello { state: LinkState::Down, multiplier: 3, interval: 10_000, sender, heard: None }
        .emit(crate::rig::SWITCH, &mut expected);
    assert_eq!(sent[place], expected);
}

#[test]
fn what_is_queued_at_a_port_that_dies_by_hello_is_left_to_go() {
    let limits = PortLimits { rate: BitRate(1_000_000), ..PortLimits::default() };
    let mut rig = tor(config(), limits);
    rig.send(3, &spine(3, LinkState::Init));
    for flow in 0..64 {
        rig.arrive(0, &udp(H0.to_gateway(FAR.v4.into()), 64, (flow, 80), b"up"));
    }
    rig.pass();
    let queued = rig.switch.ledger().ports[3].1;
    assert!(queued > 10, "{queued}");
    rig.send(3, &spine(3, LinkState::Down));
    assert!(!Dataplane::link(&rig.switch, PortId(3)).live);
    rig.sent();
    rig.wait(SECONDS);
    let by_three = told(rig.sent()).1.into_iter().filter(|port| *port == 3).count();
    assert!(by_three as u64 + 2 >= queued, "{by_three} of {queued}");
    assert_eq!(rig.dropped(DropReason::PortDown), 0);
}

#[test]
fn a_hello_that_can_not_be_read_is_a_counted_drop_and_changes_nothing() {
    let mut rig = tor(config(), PortLimits::default());
    let mut later = spine(3, LinkState::Down);
    later[19] = 2;
    assert_eq!(rig.refuse(3, &later), (vec![], vec![DropReason::BadHello]), "of a later version");
    assert_eq!(rig.refuse(3, &spine(3, LinkState::Down)[..30]), (vec![], vec![DropReason::BadHello]), "cut short");
    let mut elsewhere = spine(3, LinkState::Down);
    elsewhere[..6].copy_from_slice(&crate::rig::SWITCH.0);
    assert_eq!(rig.refuse(3, &elsewhere), (vec![], vec![DropReason::BadHello]), "not to the nearest bridge");
    let view = Dataplane::link(&rig.switch, PortId(3));
    assert_eq!((view.live, view.why), (true, Reason::Unheard), "who can't be understood is a stranger");
    // A link that was up is lost with the last hello that was understood.
    rig.send(3, &spine(3, LinkState::Init));
    for _ in 0..5 {
        rig.wait(INTERVAL);
        rig.send(3, &later);
    }
    assert!(!Dataplane::link(&rig.switch, PortId(3)).live);
    // Other messages of weft's are the scheme's; ECMP has none.
    let mut other = spine(3, LinkState::Down);
    other[18] = 2;
    assert_eq!(rig.refuse(3, &other).1, [DropReason::UnknownEthertype]);
}

#[test]
fn a_hello_from_a_host_is_a_reserved_group_like_any_other() {
    let mut rig = tor(config(), PortLimits::default());
    assert_eq!(rig.refuse(0, &spine(3, LinkState::Down)), (vec![], vec![DropReason::ReservedGroup]));
}

#[test]
fn a_port_that_requires_hellos_is_in_no_group_before_they_are_exchanged() {
    let mut config = config();
    config.ports[3].hello = HelloMode::Required;
    let mut rig = tor(config, PortLimits::default());
    assert_eq!(spread(&mut rig), [0, 64]);
    rig.send(3, &spine(3, LinkState::Init));
    assert!(spread(&mut rig)[0] > 10);
}

#[test]
fn a_port_with_hellos_off_is_spared_them_and_takes_none() {
    let mut config = config();
    config.ports[3].hello = HelloMode::Off;
    let mut rig = tor(config, PortLimits::default());
    assert_eq!(rig.refuse(3, &spine(3, LinkState::Down)), (vec![], vec![]), "consumed");
    rig.wait(10 * INTERVAL);
    let (hellos, _) = told(rig.sent());
    assert!(hellos.iter().all(|(port, _)| *port == 4) && hellos.len() == 10);
    assert!(spread(&mut rig)[0] > 10);
}

#[test]
fn a_device_that_goes_down_silences_its_port_and_the_handshake_starts_anew_when_it_is_back() {
    let mut rig = tor(config(), PortLimits::default());
    rig.send(3, &spine(3, LinkState::Init));
    rig.set_up(3, false);
    assert_eq!(spread(&mut rig), [0, 64]);
    rig.wait(5 * INTERVAL);
    assert!(told(rig.sent()).0.iter().all(|(port, _)| *port == 4));
    assert_eq!(rig.dropped(DropReason::PortDown), 0, "no hello was made for it");
    rig.set_up(3, true);
    rig.pass();
    assert_eq!(told(rig.sent()).0, [(3, LinkState::Down)], "at once");
    assert_eq!(spread(&mut rig), [0, 64], "it was heard before, so it is not trusted");
    rig.send(3, &spine(3, LinkState::Init));
    assert!(spread(&mut rig)[0] > 10);
}

#[test]
fn a_switch_of_sixty_four_ports_says_all_its_hellos_in_one_pass() {
    let port = FabricPort { kind: PortKind::Down, ..agg_config().ports[0] };
    let config = FabricConfig { hello: HELLO, ports: vec![port; 64], ..agg_config() };
    let mut rig = Rig::new(config, PortLimits::default(), 256);
    for _ in 0..3 {
        rig.pass();
        let ports: Vec<u8> = rig.sent().into_iter().map(|(port, _)| port).collect();
        assert_eq!(ports, (0..64).collect::<Vec<_>>());
        rig.now = rig.now + INTERVAL;
    }
}

#[test]
fn without_a_free_frame_a_beat_is_missed_and_nothing_else_is_lost() {
    let mut rig = Rig::new(config(), PortLimits::default(), 8);
    rig.pass();
    rig.sent();
    for _ in 0..8 {
        // In the ring of a port that nobody reads now.
        rig.arrive(0, &[0; 13]);
    }
    rig.now = rig.now + INTERVAL;
    rig.tick();
    assert_eq!(rig.sent(), []);
    rig.pass();
    rig.wait(INTERVAL);
    assert_eq!(told(rig.sent()).0.len(), 2);
}
