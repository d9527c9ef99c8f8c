//! Whatever bytes arrive at whatever port and time: no panic, no frame lost, every drop counted.

use proptest::collection::vec;
use proptest::prelude::*;
use weft::pisa::PortLimits;
use weft::pisa::tm::QueueLimits;
use weft::time::SECONDS;
use weft::units::BitRate;
use weft::wire::MacAddr;

use crate::packets::{advertisement, arp, echo, solicitation, tagged, udp};
use crate::rig::{FABRIC, FAR, GATEWAY4, GATEWAY6, H0, H1, ROUTER4, Rig, SWITCH, agg_config, tor_config};

/// What happens to the switch.
#[derive(Clone, Debug)]
enum Step {
    Arrive(u8, Vec<u8>),
    Wait(u64),
    Link(u8, bool),
    Drain,
}

/// Packets that take every way through the forwarding.
fn templates() -> Vec<Vec<u8>> {
    let nobody = MacAddr([0; 6]);
    let mut frames = vec![
        arp(false, (H0.mac, H0.v4), (nobody, GATEWAY4), MacAddr::BROADCAST, &[]),
        arp(true, (H1.mac, H1.v4), (SWITCH, GATEWAY4), SWITCH, &[]),
        solicitation((H0.mac, H0.v6), GATEWAY6),
        advertisement((H1.mac, H1.v6), (SWITCH, GATEWAY6), false),
        udp(H0.to_station(&H1, false), 64, (1, 2), b"bridged"),
        echo(FAR.by_fabric(3, ROUTER4.into()), 9, false, 1, b"ping"),
    ];
    for v6 in [false, true] {
        let gateway = if v6 { GATEWAY6.into() } else { GATEWAY4.into() };
        frames.push(echo(H0.to_gateway(gateway), 64, false, 1, b"ping"));
        for ttl in [1, 64] {
            frames.push(udp(H0.to_gateway(FAR.ip(v6)), ttl, (1, 2), b"up"));
            frames.push(udp(FAR.by_fabric(3, H1.ip(v6)), ttl, (1, 2), &[0; 1500]));
        }
    }
    frames
}

/// A template, cut and with some bytes changed, perhaps tagged; or any bytes at all.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop_oneof![Just(vec![]), vec((0usize..120, any::<u8>()), 1..4)];
    let tags = vec(prop_oneof![Just([0x81, 0, 0, 5]), Just([0x88, 0xa8, 0xff, 0xff])], 0..3);
    let cut = prop_oneof![4 => Just(usize::MAX), 1 => 0usize..120];
    let made = (prop::sample::select(templates()), changes, tags, cut).prop_map(|(template, changes, tags, cut)| {
        let mut frame = tagged(&template, &tags);
        for (at, byte) in changes {
            if let Some(slot) = frame.get_mut(at) {
                *slot = byte;
            }
        }
        frame.truncate(cut);
        frame
    });
    let to = prop::sample::select(vec![SWITCH, FABRIC, MacAddr::BROADCAST, H0.mac, H1.mac]);
    let addressed = (to, vec(any::<u8>(), 0..200)).prop_map(|(to, bytes)| [&to.0[..], &bytes].concat());
    prop_oneof![4 => made, 1 => addressed, 1 => vec(any::<u8>(), 0..2048)]
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![Just(0), 0u64..10_000, 0..2 * SECONDS, Just(40 * SECONDS)];
    prop_oneof![
        40 => (0u8..5, frame()).prop_map(|(port, frame)| Step::Arrive(port, frame)),
        10 => wait.prop_map(Step::Wait),
        2 => (0u8..5, any::<bool>()).prop_map(|(port, up)| Step::Link(port, up)),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_at_any_port_at_any_time_are_accounted_for(
        agg in any::<bool>(),
        rate in prop::sample::select(vec![0, 1_000_000, 10_000_000_000]),
        chunks in prop_oneof![Just(64usize), Just(1024)],
        steps in vec(step(), 1..80),
    ) {
        let queue = QueueLimits { packets: 8, bytes: 9_000 };
        let limits = PortLimits { rate: BitRate(rate), control: queue, data: queue, ecn_mark_bytes: 3_000 };
        let mut rig = Rig::new(if agg { agg_config() } else { tor_config() }, limits, chunks);
        let ports = rig.switch.ports() as u8;
        for step in steps {
            match step {
                Step::Arrive(port, frame) => {
                    if rig.has_free_chunk() {
                        rig.arrive(port % ports, &frame);
                    }
                    rig.pass();
                }
                Step::Wait(ns) => rig.wait(ns),
                Step::Link(port, up) => rig.set_up(port % ports, up),
                Step::Drain => rig.drain(),
            }
            // What leaves is at least an Ethernet header, and what was in the switch is still accounted for.
            for (_, frame) in rig.sent() {
                prop_assert!(frame.len() >= 14);
            }
            if let Err(law) = rig.switch.ledger().check() {
                return Err(TestCaseError::fail(law));
            }
        }
        // Dropping the rig checks the pool.
    }
}
