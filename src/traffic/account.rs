use serde::{Deserialize, Serialize};

/// Frames back from a flow's highest sequence number within which a late frame and a second copy
/// can be told apart.
pub const WINDOW: u64 = 1024;
const WORDS: usize = WINDOW as usize / 64;

/// What became of the frames of a run. `received + lost` is the sum over flows of the highest
/// sequence number seen, plus one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Totals {
    /// Frames that arrived, first copies only, less `stale` ones.
    pub received: u64,
    /// Sequence numbers below the highest of their flow that have not arrived.
    pub lost: u64,
    /// Frames that arrived after one of their flow with a higher number (RFC 4737, section 3.3;
    /// first copies only, as section 2.3 has it).
    pub reordered: u64,
    /// Further copies.
    pub duplicated: u64,
    /// Frames more than [`WINDOW`] behind their flow's highest: late, or a copy; nobody knows. Their
    /// numbers are counted as lost or received already.
    pub stale: u64,
    /// Frames of flows beyond the table.
    pub untracked: u64,
}

/// What one arrival was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The highest number so far.
    InOrder,
    /// Late, and the first of its number.
    Reordered,
    /// Seen before.
    Duplicate,
    /// Too far behind to tell.
    Stale,
    /// Of a flow beyond the table.
    Untracked,
}

#[derive(Clone)]
struct Flow {
    /// NextExp of RFC 4737: one more than the highest number seen.
    next: u64,
    /// Which of the numbers `next - WINDOW .. next` have arrived, at their value modulo WINDOW.
    seen: [u64; WORDS],
}

/// The accounts of a fixed number of flows, each 136 bytes.
#[derive(Clone)]
pub struct Accounts {
    flows: Box<[Flow]>,
    totals: Totals,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Accounts({} flows, {:?})", self.flows.len(), self.totals)
    }
}

impl Flow {
    #[inline]
    fn bit(sequence: u64) -> (usize, u64) {
        ((sequence % WINDOW / 64) as usize, 1 << (sequence % 64))
    }

    /// Moves the window on to end before `next`, all new numbers unseen.
    #[inline]
    fn advance(&mut self, next: u64) {
        if next - self.next >= WINDOW {
            self.seen = [0; WORDS];
        } else {
            for sequence in self.next..next {
                let (word, mask) = Flow::bit(sequence);
                self.seen[word] &= !mask;
            }
        }
        self.next = next;
    }
}

impl Accounts {
    /// Accounts of the flows 0 to `flows` - 1, all expected to start with number 0.
    pub fn new(flows: usize) -> Accounts {
        Accounts { flows: vec![Flow { next: 0, seen: [0; WORDS] }; flows].into(), totals: Totals::default() }
    }

    /// Enters one arrival.
    #[inline]
    pub fn enter(&mut self, flow: u32, sequence: u64) -> Arrival {
        let totals = &mut self.totals;
        let Some(flow) = self.flows.get_mut(flow as usize) else {
            totals.untracked += 1;
            return Arrival::Untracked;
        };
        let (word, mask) = Flow::bit(sequence);
        if sequence >= flow.next {
            totals.lost += sequence - flow.next;
            totals.received += 1;
            flow.advance(sequence + 1);
            flow.seen[word] |= mask;
            return Arrival::InOrder;
        }
        if flow.next - sequence > WINDOW {
            totals.stale += 1;
            return Arrival::Stale;
        }
        if flow.seen[word] & mask != 0 {
            totals.duplicated += 1;
            return Arrival::Duplicate;
        }
        flow.seen[word] |= mask;
        totals.lost -= 1;
        totals.received += 1;
        totals.reordered += 1;
        Arrival::Reordered
    }

    /// The sums over all flows.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Flows of which a frame has arrived.
    pub fn flows_seen(&self) -> u64 {
        self.flows.iter().filter(|f| f.next > 0).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The definitions, with all arrivals kept.
    #[derive(Default)]
    struct Oracle {
        arrived: HashSet<u64>,
        highest: Option<u64>,
        totals: Totals,
    }

    impl Oracle {
        fn enter(&mut self, sequence: u64) -> Arrival {
            let arrival = match self.highest {
                Some(highest) if highest + 1 - sequence.min(highest) > WINDOW => Arrival::Stale,
                _ if self.arrived.contains(&sequence) => Arrival::Duplicate,
                Some(highest) if sequence < highest => Arrival::Reordered,
                _ => Arrival::InOrder,
            };
            match arrival {
                Arrival::Stale => self.totals.stale += 1,
                Arrival::Duplicate => self.totals.duplicated += 1,
                Arrival::Reordered => self.totals.reordered += 1,
                Arrival::InOrder | Arrival::Untracked => self.highest = Some(sequence),
            }
            if arrival != Arrival::Stale {
                self.arrived.insert(sequence);
            }
            arrival
        }

        fn totals(&self) -> Totals {
            let received = self.arrived.len() as u64;
            let lost = self.highest.map_or(0, |h| (0..=h).filter(|s| !self.arrived.contains(s)).count() as u64);
            Totals { received, lost, ..self.totals }
        }
    }

    /// Walks that go on, skip, fall back a little or far, and repeat.
    fn walk() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![
            8 => Just(1i64),
            2 => 2i64..70,
            1 => 900i64..2200,
            2 => -80i64..=0,
            1 => -2200i64..-900,
        ];
        prop::collection::vec(step, 1..400).prop_map(|steps| {
            let walked = steps.iter().scan(0i64, |at, step| {
                *at = (*at + step).max(0);
                Some(*at as u64)
            });
            walked.collect()
        })
    }

    proptest! {
        #[test]
        fn accounts_agree_with_keeping_every_arrival(walks in prop::collection::vec(walk(), 1..4)) {
            let mut accounts = Accounts::new(walks.len());
            let mut oracles: Vec<Oracle> = walks.iter().map(|_| Oracle::default()).collect();
            let longest = walks.iter().map(Vec::len).max().unwrap();
            for i in 0..longest {
                for (flow, walk) in walks.iter().enumerate() {
                    if let Some(&sequence) = walk.get(i) {
                        prop_assert_eq!(accounts.enter(flow as u32, sequence), oracles[flow].enter(sequence));
                    }
                }
            }
            let mut sum = Totals::default();
            for totals in oracles.iter().map(Oracle::totals) {
                sum.received += totals.received;
                sum.lost += totals.lost;
                sum.reordered += totals.reordered;
                sum.duplicated += totals.duplicated;
                sum.stale += totals.stale;
            }
            prop_assert_eq!(accounts.totals(), sum);
        }
    }

    #[test]
    fn a_swap_of_two_frames_is_one_reordered_and_none_lost() {
        let mut accounts = Accounts::new(1);
        let arrivals: Vec<_> = [0, 2, 1, 3, 3].map(|s| accounts.enter(0, s)).into();
        use Arrival::*;
        assert_eq!(arrivals, [InOrder, InOrder, Reordered, InOrder, Duplicate]);
        assert_eq!(accounts.totals(), Totals { received: 4, reordered: 1, duplicated: 1, ..Totals::default() });
    }

    #[test]
    fn a_flow_beyond_the_table_is_counted_and_changes_nothing_else() {
        let mut accounts = Accounts::new(2);
        assert_eq!(accounts.enter(2, 9), Arrival::Untracked);
        assert_eq!(accounts.totals(), Totals { untracked: 1, ..Totals::default() });
        assert_eq!(accounts.flows_seen(), 0);
    }
}
