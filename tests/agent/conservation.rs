use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use weft::scheme::pl2::host::HostConfig;
use weft::time::{Instant, MILLIS};
use weft::wire::ethernet;
use weft::wire::pl2::{Control, Kind, SHIM_LEN, SHIM_START, Shim};

use super::{Rig, SLOT, grant, messages, packet, refusal};

#[derive(Clone, Debug)]
enum Step {
    /// An application sends so many frames of a flow.
    Send {
        dst: u8,
        flow: u16,
        len: usize,
        count: u8,
    },
    /// The switch answers the oldest request, or loses it.
    Grant {
        t_in: u32,
        t_out: u32,
    },
    Refuse,
    Lose,
    /// Frames come for applications.
    Arrive {
        count: u8,
    },
    /// The TAP goes down or comes up.
    Down(bool),
    /// Time passes, with passes at the deadlines; the port's queue is emptied or not.
    Pass {
        ns: u64,
        stuck: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (2u8..5, 0u16..3, prop_oneof![Just(1514usize), 60usize..1514, Just(1515)], 1u8..30)
            .prop_map(|(dst, flow, len, count)| Step::Send { dst, flow, len, count }),
        8 => (0u32..40, 0u32..40).prop_map(|(t_in, t_out)| Step::Grant { t_in, t_out }),
        1 => Just(Step::Refuse),
        1 => Just(Step::Lose),
        2 => (1u8..40).prop_map(|count| Step::Arrive { count }),
        1 => any::<bool>().prop_map(Step::Down),
        8 => (0..30 * SLOT, any::<bool>()).prop_map(|(ns, stuck)| Step::Pass { ns, stuck }),
    ]
}

#[derive(Default)]
struct Model {
    asked: VecDeque<(weft::wire::MacAddr, Control)>,
    t_sw: u64,
    /// By destination and flow: the numbers of frames that were sent, the newest last.
    last: BTreeMap<(u8, u8), u32>,
    sent: u64,
    data: u64,
}

impl Model {
    /// Every frame is one of an application's, whole, and behind those of its flow that were sent before.
    fn leaves(&mut self, frames: Vec<Vec<u8>>) {
        self.asked.extend(messages(&frames).into_iter().filter(|(_, control)| control.kind == Kind::Rsv));
        for mut frame in frames {
            if !messages(std::slice::from_ref(&frame)).is_empty() {
                continue;
            }
            if Shim::read(&frame).is_ok() {
                frame.drain(SHIM_START..SHIM_START + SHIM_LEN);
                self.data += 1;
            }
            self.sent += 1;
            let number = u32::from_be_bytes(frame[18..22].try_into().expect("four bytes"));
            let key = (ethernet::dst(&frame).0[5], frame[22]);
            let last = self.last.insert(key, number);
            assert!(last.is_none_or(|last| last < number), "{key:?}: {number} after {last:?}");
            assert!(frame[23..].iter().all(|byte| *byte == frame[22]), "its bytes are those that were sent");
        }
    }
}

/// A frame with its number in bytes 18 to 21, its flow in byte 22 and in each that follows. It is no IP, so all frames
/// for a destination are of one connection.
fn numbered(dst: u8, flow: u16, number: u32, len: usize) -> Vec<u8> {
    let mut frame = packet(dst, 0, 0, len);
    frame[12..18].copy_from_slice(&[0x88, 0xb5, 0, 0, 0, 0]);
    frame[18..22].copy_from_slice(&number.to_be_bytes());
    frame[22..].fill(flow as u8);
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Frames in = frames out + parked + queued + dropped, by the counters and by the frames; order is kept, no
    /// chunk is lost.
    #[test]
    fn every_frame_of_an_application_is_accounted_for(
        steps in proptest::collection::vec(step(), 1..60),
        depth in 1u8..4,
        max_parked in prop_oneof![Just(20u32), Just(200)],
        room in 1usize..40,
        bypass_bytes in prop_oneof![Just(0u16), Just(500)],
    ) {
        let config = HostConfig { depth, max_parked, bypass_bytes, ..HostConfig::default() };
        let mut rig = Rig::new(config, room);
        let (mut model, mut number, mut offered, mut arrived) = (Model::default(), 0u32, 0u64, 0u64);
        for step in steps {
            match step {
                Step::Send { dst, flow, len, count } => {
                    for _ in 0..count {
                        number += 1;
                        offered += 1;
                        rig.send(&numbered(dst, flow, number, len));
                    }
                }
                Step::Grant { t_in, t_out } => if let Some((dst, rsv)) = model.asked.pop_front() {
                    model.t_sw += 1;
                    let grant = grant(&rsv, (t_in, t_out), model.t_sw);
                    room_for(&mut rig, &mut model);
                    rig.answer(dst, &grant);
                },
                Step::Refuse => if let Some((dst, rsv)) = model.asked.pop_front() {
                    model.t_sw += 1;
                    room_for(&mut rig, &mut model);
                    rig.answer(dst, &refusal(&rsv, model.t_sw));
                },
                Step::Lose => _ = model.asked.pop_front(),
                Step::Arrive { count } => for _ in 0..count {
                    room_for(&mut rig, &mut model);
                    arrived += 1;
                    rig.arrive(&packet(1, 0, 1, 300));
                },
                Step::Down(down) => rig.agent.parts().1.down = down,
                Step::Pass { ns, stuck } => {
                    let end = rig.now + ns;
                    while let Some(at) = rig.next() && at <= end && !stuck {
                        let left = rig.pass(at.max(rig.now + 1));
                        model.leaves(left);
                    }
                    rig.now = rig.now.max(end);
                    let now = rig.now;
                    rig.agent.pass(|| Instant(now)).expect("both sides are there");
                    if !stuck {
                        let left = rig.left();
                        model.leaves(left);
                    }
                }
            }
            check(&mut rig);
        }
        // Whatever still comes in comes to rest: every request is answered.
        rig.agent.parts().1.down = false;
        for _ in 0..4000 {
            let at = rig.next().unwrap_or(rig.now).max(rig.now) + 1;
            let left = rig.pass(at);
            model.leaves(left);
            while let Some((dst, rsv)) = model.asked.pop_front() {
                model.t_sw += 1;
                let grant = grant(&rsv, (0, 0), model.t_sw);
                room_for(&mut rig, &mut model);
                rig.answer(dst, &grant);
            }
        }
        let left = rig.left();
        model.leaves(left);
        check(&mut rig);
        let (counters, host) = (rig.agent.counters(), rig.agent.host().stats().counters);
        prop_assert_eq!((rig.agent.host().parked(), rig.agent.queued()), (0, 0));
        prop_assert_eq!(counters.tap_read, offered);
        prop_assert_eq!(model.sent, offered - host.dropped() - counters.bypass_dropped - counters.no_memory);
        prop_assert_eq!((model.data, host.sent), (counters.data_sent, counters.data_sent));
        prop_assert_eq!(counters.uplink_received - counters.messages_received, arrived);
        prop_assert_eq!(rig.given().len() as u64 + counters.tap_dropped, arrived);
        prop_assert_eq!(rig.close().left, 0);
    }
}

/// The memory port holds few frames each way: makes room for one to come.
fn room_for(rig: &mut Rig, model: &mut Model) {
    rig.now += MILLIS / 10;
    let now = rig.now;
    let left = rig.pass(now);
    model.leaves(left);
}

/// The equations of `AgentCounters`.
fn check(rig: &mut Rig) {
    let (agent, host) = (rig.agent.counters(), rig.agent.host().stats().counters);
    let taken = host.taken + host.bypassed + host.dropped();
    assert_eq!(agent.tap_read, agent.refused + agent.no_memory + agent.unscheduled + taken);
    let released = agent.unscheduled + host.bypassed + host.withdrawn + host.sent;
    let left = agent.bypass_sent + agent.bypass_dropped + agent.data_sent;
    assert_eq!(released, left + rig.agent.queued() as u64);
    assert_eq!(host.taken, host.sent + host.withdrawn + rig.agent.host().parked() as u64);
}
