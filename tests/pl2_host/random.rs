//! Hosts beside a switch that answers what it likes, when it likes, or not.

use std::collections::{BTreeMap, HashMap, VecDeque};

use proptest::prelude::*;
use weft::scheme::pl2::host::{Action, ConnKey, Enqueued, Host, HostConfig};
use weft::time::{Instant, MILLIS};
use weft::wire::ethernet::on_wire;
use weft::wire::pl2::{Control, Flags, Kind};

use super::{SLOT, SWITCH, key};

#[derive(Clone, Debug)]
enum Step {
    /// Frames of a flow, of this length.
    Enqueue { flow: u8, len: u32, count: u8 },
    /// The switch answers the oldest or the newest request that it knows of.
    Answer { newest: bool, what: What, t_in: u32, t_out: u32, clock: bool },
    /// The request is lost.
    Lose,
    /// So many nanoseconds pass, with polls at the deadlines or with none until the end.
    Pass { ns: u64, punctual: bool },
    /// The switch starts anew.
    Restart,
    /// The frames of a flow are taken back.
    Withdraw { flow: u8 },
}

#[derive(Clone, Copy, Debug)]
enum What {
    Grant,
    /// Granted, and the request is kept to be answered once more.
    Twice,
    Nack,
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![6 => Just(What::Grant), 1 => Just(What::Twice), 1 => Just(What::Nack)];
    prop_oneof![
        6 => (0u8..5, prop_oneof![Just(1514u32), 40u32..1514], 1u8..12)
            .prop_map(|(flow, len, count)| Step::Enqueue { flow, len, count }),
        8 => (any::<bool>(), what, 0u32..60, 0u32..60, any::<bool>())
            .prop_map(|(newest, what, t_in, t_out, clock)| Step::Answer { newest, what, t_in, t_out, clock }),
        1 => Just(Step::Lose),
        8 => (prop_oneof![0..50 * SLOT, 0..20 * MILLIS], any::<bool>())
            .prop_map(|(ns, punctual)| Step::Pass { ns, punctual }),
        1 => Just(Step::Restart),
        1 => (0u8..5).prop_map(|flow| Step::Withdraw { flow }),
    ]
}

/// A grant that the host has been told of, by the design's rules (2.10).
#[derive(Clone, Copy, Debug)]
struct Told {
    k: u16,
    due: u64,
    t_sw: u64,
    epoch: u16,
}

/// What the host may do, kept beside it.
struct Model {
    host: Host<u64>,
    config: HostConfig,
    now: u64,
    epoch: u16,
    t_sw: u64,
    /// Requests on their way to the switch, and copies.
    asked: VecDeque<Control>,
    /// By connection and number: grants that came and were not used.
    told: BTreeMap<(u32, u32), Told>,
    /// By flow: numbers of frames that are parked, and their lengths.
    parked: HashMap<ConnKey, VecDeque<(u64, u32)>>,
    flow_of: BTreeMap<u64, ConnKey>,
    next_frame: u64,
    sent: u64,
    /// Grants that a later one, or a refusal, took the place of.
    replaced: u64,
    /// Grants that were given back.
    given_back: u64,
    /// Frames that were taken back, and their bytes.
    withdrawn: (u64, u64),
    /// Slots that have been used of the reservation that is being released, and bytes of wire of the open slot.
    open: Option<(u32, u16, usize)>,
}

impl Model {
    fn new(config: HostConfig) -> Model {
        let host = Host::new(&config).expect("a configuration in its ranges");
        Model {
            host,
            config,
            now: 0,
            epoch: 1,
            t_sw: 0,
            asked: VecDeque::new(),
            told: BTreeMap::new(),
            parked: HashMap::new(),
            flow_of: BTreeMap::new(),
            next_frame: 0,
            sent: 0,
            replaced: 0,
            given_back: 0,
            withdrawn: (0, 0),
            open: None,
        }
    }

    fn poll(&mut self) {
        let mut actions = vec![];
        self.host.poll(Instant(self.now), |action| actions.push(action));
        for action in actions {
            match action {
                Action::Send { control, .. } | Action::SendBehind { control, .. } => self.message(control),
                Action::Release { frame, shim } => self.release(frame, shim.conn.into(), shim.closes, shim.last),
            }
        }
        assert!(self.open.is_none(), "a burst ends with L");
        assert!(self.host.outstanding() <= self.config.max_outstanding);
        let parked: usize = self.parked.values().map(VecDeque::len).sum();
        assert_eq!(self.host.parked(), parked);
        let next = self.host.next_deadline();
        assert!(next.is_none_or(|at| at > Instant(self.now)), "{next:?} is due and was not done at {}", self.now);
        assert!(parked == 0 || next.is_some(), "{parked} frames wait, and for nothing");
    }

    fn message(&mut self, control: Control) {
        match control.kind {
            Kind::Rsv => {
                assert!((1..=self.config.max_burst).contains(&control.k) && control.seq > 0);
                assert_eq!(control.t_tx, self.now);
                self.asked.push_back(control);
            }
            // Late, or withdrawn: what is given back is not used any more.
            Kind::Rel => self.given_back += u64::from(self.told.remove(&(control.conn, control.seq)).is_some()),
            other => panic!("{other:?} of a sender"),
        }
    }

    /// I7 and I10: every frame in a granted slot, not before its time, in its connection's order, and slots
    /// no fuller than a full frame makes them.
    fn release(&mut self, frame: u64, conn: u32, closes: bool, last: bool) {
        let key = self.flow_of[&frame];
        let (first, len) = self.parked.get_mut(&key).and_then(VecDeque::pop_front).expect("a parked frame");
        assert_eq!(first, frame, "out of its connection's order");
        self.sent += 1;
        let lowest = self.told.range((conn, 0)..=(conn, u32::MAX)).next();
        let (&id, told) = lowest.unwrap_or_else(|| panic!("frame {frame} of connection {conn} without a grant"));
        assert!(told.due <= self.now, "{} ns before its time", told.due - self.now);
        assert_eq!(told.epoch, self.host.epoch(), "by a grant of another start");
        let (open_conn, used, fill) = self.open.take().unwrap_or((conn, 0, 0));
        assert_eq!(open_conn, conn, "bursts are not mixed");
        let fill = fill + on_wire(len as usize);
        assert!(fill <= self.config.slot_bytes() as usize, "{fill} bytes in a slot");
        let used = used + u16::from(closes);
        assert!(used <= told.k);
        assert!(closes || !last, "L without E");
        if last {
            self.told.remove(&id);
        } else {
            self.open = Some((conn, used, if closes { 0 } else { fill }));
        }
    }

    fn answer(&mut self, newest: bool, what: What, (t_in, t_out): (u32, u32), clock: bool) {
        let Some(rsv) = (if newest { self.asked.pop_back() } else { self.asked.pop_front() }) else { return };
        self.t_sw += 1;
        let flags = Flags { nack: matches!(what, What::Nack), clock, ..Flags::default() };
        let k = if flags.nack { 0 } else { rsv.k };
        let (epoch, t_sw, slot_ns) = (self.epoch, self.t_sw, SLOT as u32);
        let answer = Control { kind: Kind::Grt, flags, k, epoch, t_in, t_out, t_sw, slot_ns, ..rsv };
        if matches!(what, What::Twice) {
            self.asked.push_back(rsv);
        }
        let before = (self.host.stats().counters.grants, self.host.stats().counters.nacks);
        self.host.control(Instant(self.now), SWITCH, &answer);
        // The host says what it took, and is held to that.
        let after = (self.host.stats().counters.grants, self.host.stats().counters.nacks);
        let id = (rsv.conn, rsv.seq);
        if after.0 > before.0 {
            let due = self.now + u64::from(t_in.max(t_out)) * SLOT;
            // Those of another start are void, whether they were heard of or not.
            self.told.retain(|_, told| told.epoch == epoch);
            let old = self.told.insert(id, Told { k, due, t_sw, epoch });
            assert!(old.is_none_or(|old| old.t_sw < t_sw), "an older grant was taken");
            self.replaced += u64::from(old.is_some());
        } else if after.1 > before.1 {
            self.told.retain(|_, told| told.epoch == epoch);
            self.replaced += u64::from(self.told.remove(&id).is_some());
        }
        self.told.retain(|_, told| told.epoch == self.host.epoch());
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Enqueue { flow, len, count } => {
                let key = key(flow % 3, flow.into());
                for _ in 0..count {
                    let frame = self.next_frame;
                    match self.host.enqueue(Instant(self.now), key, len, frame) {
                        Enqueued::Parked => {
                            self.parked.entry(key).or_default().push_back((frame, len));
                            self.flow_of.insert(frame, key);
                        }
                        Enqueued::Dropped(back) => assert_eq!(back, frame),
                        Enqueued::Bypass(_) => panic!("nothing bypasses"),
                    }
                    self.next_frame += 1;
                }
            }
            Step::Answer { newest, what, t_in, t_out, clock } => self.answer(newest, what, (t_in, t_out), clock),
            Step::Lose => _ = self.asked.pop_front(),
            Step::Pass { ns, punctual } => {
                let end = self.now + ns;
                while punctual
                    && let Some(Instant(at)) = self.host.next_deadline()
                    && at <= end
                {
                    self.now = at.max(self.now);
                    self.poll();
                }
                self.now = end;
            }
            Step::Restart => self.epoch += 1,
            Step::Withdraw { flow } => {
                let key = key(flow % 3, flow.into());
                let mut back = vec![];
                self.host.withdraw(Instant(self.now), |other| *other == key, |frame| back.push(frame));
                let (frames, lens): (Vec<_>, Vec<_>) = self.parked.remove(&key).unwrap_or_default().into_iter().unzip();
                assert_eq!(back, frames);
                let bytes: u64 = lens.into_iter().map(u64::from).sum();
                self.withdrawn = (self.withdrawn.0 + back.len() as u64, self.withdrawn.1 + bytes);
            }
        }
        self.poll();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn frames_leave_in_order_in_granted_slots_only_and_all_of_them(
        steps in prop::collection::vec(step(), 1..120),
        (max_burst, depth, max_outstanding) in (1u16..6, 1u8..4, 1u32..20),
        fixed_k in any::<bool>(),
    ) {
        let config = HostConfig { max_burst, depth, max_outstanding, fixed_k, max_queue: 40, max_parked: 90,
            max_connections: 4, ..HostConfig::default() };
        let mut model = Model::new(config);
        for step in &steps {
            model.step(step);
        }
        // A switch that answers all it is asked from now on: everything leaves, in bounded time (I7).
        for _ in 0..4000 {
            if model.host.connections() == 0 {
                break;
            }
            while !model.asked.is_empty() {
                model.answer(false, What::Grant, (0, 0), false);
            }
            model.poll();
            if let Some(Instant(at)) = model.host.next_deadline() && model.asked.is_empty() {
                model.now = at;
                model.poll();
            }
        }
        let counters = model.host.stats().counters;
        prop_assert_eq!((model.host.parked(), model.host.outstanding(), model.host.connections()), (0, 0, 0));
        let (withdrawn, bytes) = model.withdrawn;
        prop_assert_eq!(counters.withdrawn, withdrawn);
        prop_assert_eq!((counters.taken, counters.taken_bytes), (counters.sent + withdrawn, counters.sent_bytes + bytes));
        prop_assert_eq!(counters.taken + counters.dropped(), model.next_frame);
        prop_assert_eq!(counters.sent, model.sent);
        let not_used = counters.voided + model.given_back + model.replaced;
        prop_assert!(counters.given_up <= model.given_back);
        prop_assert_eq!(counters.bursts, counters.grants - not_used, "each grant once, or accounted for");
        // The first frame of a connection is taken in any case.
        prop_assert!(model.host.stats().parked_peak <= 90 + 4);
    }
}
