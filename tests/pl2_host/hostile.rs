//! Whatever a switch says, and whenever: nothing is lost or sent twice, and no bound is passed.

use proptest::prelude::*;
use weft::scheme::pl2::host::{Action, Enqueued, Host, HostConfig};
use weft::time::Instant;
use weft::wire::pl2::{Control, Kind, Shim};

use super::said::{controls, number};
use super::{key, mac};

#[derive(Clone, Debug)]
enum Step {
    Enqueue(u8, u8),
    /// From one of a few addresses; with the number of a request that was sent, or any.
    Control(u8, Control, bool),
    Arrive(u8, Shim),
    Poll,
    /// Ahead, or back.
    Move(i64),
    Withdraw(u8),
    Reset,
}

fn control() -> impl Strategy<Value = Control> {
    use Kind::{Grt, Ntf, Rel, Rst, Rsv};
    let kinds = prop_oneof![8 => Just(Grt), 4 => Just(Ntf), 1 => prop::sample::select(vec![Rsv, Rst, Rel])];
    controls(kinds, 0u32..3)
}

fn step() -> impl Strategy<Value = Step> {
    let shim = (any::<bool>(), any::<bool>(), 0u16..3);
    prop_oneof![
        6 => (0u8..4, 1u8..8).prop_map(|(flow, count)| Step::Enqueue(flow, count)),
        8 => (0u8..3, control(), prop::bool::weighted(0.8)).prop_map(|(from, c, known)| Step::Control(from, c, known)),
        2 => (0u8..3, shim).prop_map(|(from, (closes, last, conn))| Step::Arrive(from, Shim { closes, last, conn })),
        8 => Just(Step::Poll),
        4 => prop_oneof![0i64..3_000_000, -1_000i64..0, Just(i64::MAX / 4)].prop_map(Step::Move),
        1 => (0u8..4).prop_map(Step::Withdraw),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_is_said_every_frame_is_somewhere_once(
        steps in prop::collection::vec(step(), 1..200),
        (max_burst, depth, max_outstanding) in (1u16..6, 1u8..4, 1u32..20),
        (late_max, rtt_comp) in (number!(u32), number!(u64)),
        start in number!(u64),
    ) {
        let config = HostConfig {
            max_burst, depth, max_outstanding, late_max, rtt_comp, max_connections: 3, max_parked: 20, max_expected: 4,
            ..HostConfig::default()
        };
        let mut host = Host::new(&config).expect("a configuration in its ranges");
        let mut now = start.min(u64::MAX / 2);
        let (mut next, mut out, mut asked) = (0u32, Vec::new(), Vec::new());
        let mut inside = 0;
        for step in steps {
            match step {
                Step::Enqueue(flow, count) => for _ in 0..count {
                    match host.enqueue(Instant(now), key(flow % 2, flow.into()), 200 * u32::from(count), next) {
                        Enqueued::Parked => inside += 1,
                        Enqueued::Dropped(frame) | Enqueued::Bypass(frame) => out.push(frame),
                    }
                    next += 1;
                },
                Step::Control(from, said, known) => {
                    let named: Option<&Control> = if known { asked.last() } else { None };
                    let said = match named {
                        Some(Control { conn, seq, .. }) => Control { conn: *conn, seq: *seq, ..said },
                        None => said,
                    };
                    host.control(Instant(now), mac(from), &said);
                }
                Step::Arrive(from, shim) => host.arrived(mac(from), shim),
                Step::Poll => host.poll(Instant(now), |action| match action {
                    Action::Release { frame, .. } => {
                        inside -= 1;
                        out.push(frame);
                    }
                    Action::Send { control, .. } if control.kind == Kind::Rsv => asked.push(control),
                    Action::Send { .. } | Action::SendBehind { .. } => {}
                }),
                Step::Move(by) => now = now.saturating_add_signed(by).min(u64::MAX / 2),
                Step::Withdraw(flow) => host.withdraw(Instant(now), |k| *k == key(flow % 2, flow.into()), |frame| {
                    inside -= 1;
                    out.push(frame);
                }),
                Step::Reset => host.reset(|frame| {
                    inside -= 1;
                    out.push(frame);
                }),
            }
            prop_assert_eq!(host.parked(), inside);
            prop_assert!(host.outstanding() <= max_outstanding && host.expected() <= 4 && host.connections() <= 3);
            host.next_deadline();
        }
        host.reset(|frame| out.push(frame));
        out.sort_unstable();
        prop_assert_eq!(out, (0..next).collect::<Vec<_>>());
        prop_assert_eq!((host.parked(), host.outstanding(), host.connections(), host.next_deadline()), (0, 0, 0, None));
    }
}
