//! Two ends of a link, joined by a wire that loses and delays in virtual time: they agree soon after the
//! wire is sound, both leave the port soon after one direction goes deaf, and a break that both ends take
//! together brings nothing down.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use weft::fabric::link::{HelloConfig, HelloMode, Links};
use weft::id::{PortId, PortMask, SwitchId};
use weft::time::{Instant, MICROS, MILLIS, earliest};
use weft::wire::hello::{Hello, LinkState};

const P0: PortId = PortId(0);

/// One direction of the wire: hellos on their way, and when they arrive.
#[derive(Default)]
struct Wire {
    flying: VecDeque<(Instant, Hello)>,
    delay: u64,
    /// Of 256 hellos, so many are lost; 256 is a deaf end.
    loss: u16,
}

impl Wire {
    fn carry(&mut self, now: Instant, hello: Hello, fate: u8) {
        if u16::from(fate) >= self.loss {
            // A link keeps the order of frames, also when it gets shorter.
            let arrives = self.flying.back().map_or(now, |(last, _)| *last).max(now + self.delay);
            self.flying.push_back((arrives, hello));
        }
    }
}

struct Pair {
    now: Instant,
    ends: [Links; 2],
    /// Into each end.
    wires: [Wire; 2],
    fates: Box<dyn Iterator<Item = u8>>,
    /// Times that an end took the port out.
    falls: usize,
}

impl Pair {
    fn new(configs: [HelloConfig; 2], mode: HelloMode, fates: Vec<u8>) -> Pair {
        let end = |i: usize| Links::new(SwitchId(i as u16), configs[i], &[mode]);
        let fates = Box::new(fates.into_iter().cycle());
        Pair { now: Instant(7), ends: [0, 1].map(end), wires: Default::default(), fates, falls: 0 }
    }

    fn set_wire(&mut self, into: usize, loss: u16, delay: u64) {
        (self.wires[into].loss, self.wires[into].delay) = (loss, delay);
    }

    /// What each end does when it runs: read what came, then see what is due.
    fn pass(&mut self) {
        for i in 0..2 {
            let before = self.ends[i].live();
            while self.wires[i].flying.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, hello) = self.wires[i].flying.pop_front().expect("there is one");
                self.ends[i].heard(self.now, P0, &hello);
            }
            if self.ends[i].next_deadline().is_some_and(|due| due <= self.now) {
                self.ends[i].tick(self.now);
            }
            while let Some((_, hello)) = self.ends[i].next_hello() {
                let fate = self.fates.next().expect("endless");
                self.wires[1 - i].carry(self.now, hello, fate);
            }
            self.falls += usize::from(!before.is_empty() && self.ends[i].live().is_empty());
        }
    }

    fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            let arrival = self.wires.iter().filter_map(|w| w.flying.front()).map(|(at, _)| *at).min();
            let due = self.ends.iter().fold(arrival, |due, end| earliest(due, end.next_deadline()));
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.pass();
        }
        self.now = end;
    }

    fn live(&self) -> [bool; 2] {
        [0, 1].map(|i| self.ends[i].live() == PortMask(1))
    }

    fn states(&self) -> [LinkState; 2] {
        [0, 1].map(|i| self.ends[i].view(P0).state)
    }
}

fn config() -> impl Strategy<Value = HelloConfig> {
    (1u64..50, 2u8..6).prop_map(|(ms, multiplier)| HelloConfig { interval: ms * MILLIS, multiplier })
}

fn longer(configs: &[HelloConfig; 2]) -> u64 {
    configs[0].interval.max(configs[1].interval)
}

/// Nanoseconds after which either end gives the other up.
fn detection(configs: &[HelloConfig; 2]) -> u64 {
    u64::from(configs[0].multiplier.max(configs[1].multiplier)) * longer(configs)
}

fn mode() -> impl Strategy<Value = HelloMode> {
    prop::sample::select(vec![HelloMode::Auto, HelloMode::Required])
}

proptest! {
    #[test]
    fn both_ends_agree_within_two_detection_times_of_a_sound_wire_and_both_leave_when_one_goes_deaf(
        configs in [config(), config()],
        mode in mode(),
        fates in vec(any::<u8>(), 1..100),
        // Milliseconds, loss each way, microseconds of delay, whether one end's device goes down for it.
        weather in vec((1u64..300, 0u16..=256, 0u16..=256, 0u64..900, any::<bool>()), 0..8),
        deaf in 0usize..2,
    ) {
        let mut pair = Pair::new(configs, mode, fates);
        for (ms, a, b, delay, unplug) in weather {
            pair.set_wire(0, a, delay * MICROS);
            pair.set_wire(1, b, delay * MICROS);
            pair.ends[deaf].set_up(P0, !unplug);
            pair.run(ms * MILLIS);
            pair.ends[deaf].set_up(P0, true);
        }
        let delay = 900 * MICROS;
        pair.set_wire(0, 0, delay);
        pair.set_wire(1, 0, delay);
        pair.run(2 * detection(&configs));
        prop_assert_eq!((pair.states(), pair.live()), ([LinkState::Up; 2], [true; 2]));
        pair.falls = 0;
        pair.run(10 * detection(&configs));
        prop_assert_eq!((pair.falls, pair.states()), (0, [LinkState::Up; 2]), "nor do they fall again");

        pair.set_wire(deaf, 256, delay);
        // What is under way still arrives, and the last hello was up to an interval ago.
        pair.run(delay + detection(&configs) + delay);
        prop_assert_eq!(pair.live(), [false; 2]);
        pair.run(10 * detection(&configs));
        prop_assert_eq!(pair.live(), [false; 2], "and stay out");
    }

    #[test]
    fn a_break_that_both_ends_take_together_brings_nothing_down(
        configs in [config(), config()],
        breaks in vec((0u64..200_000, 0u64..5_000_000), 1..20),
        delay in 0u64..900,
    ) {
        let mut pair = Pair::new(configs, HelloMode::Required, vec![0]);
        pair.set_wire(0, 0, delay * MICROS);
        pair.set_wire(1, 0, delay * MICROS);
        pair.run(2 * detection(&configs));
        prop_assert_eq!(pair.live(), [true; 2]);
        for (awake, asleep) in breaks {
            pair.run(awake * MICROS);
            pair.now = pair.now + asleep * MICROS;
            pair.pass();
        }
        prop_assert_eq!(pair.falls, 0);
    }
}
