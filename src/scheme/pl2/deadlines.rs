use crate::time::Instant;

/// Stands for none.
const NEVER: Instant = Instant(u64::MAX);

/// Which of many numbered things is due first. Most are over before they are due, so the heap is not told of that: what
/// has its number next takes its place there, and moves to its own when the old one's time has come. No allocation once
/// it has held as many.
///
/// Invariant: each thing with a deadline is in the heap, once, with a time that is not after its deadline.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<(Instant, u32)>,
    things: Vec<Thing>,
    /// Things with a deadline.
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Thing {
    /// [`NEVER`] if it has none.
    deadline: Instant,
    /// Where it is in the heap, if it is: what is not holds something else there.
    place: u32,
}

const OVER: Thing = Thing { deadline: NEVER, place: 0 };

impl Deadlines {
    /// A time not after the earliest deadline; `None` if there is none.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        (self.count > 0).then(|| self.heap[0].0)
    }

    /// The thing with the earliest deadline, if that is not after `now`.
    #[inline]
    pub fn due(&mut self, now: Instant) -> Option<u32> {
        while let Some(&(at, id)) = self.heap.first()
            && at <= now
        {
            let deadline = self.things[id as usize].deadline;
            if deadline == at {
                return Some(id);
            }
            if deadline == NEVER {
                self.heap.swap_remove(0);
            } else {
                self.heap[0].0 = deadline;
            }
            self.sink(0);
        }
        None
    }

    /// `id` is due at `at`, whether or not it had a deadline. [`NEVER`] is a nanosecond earlier, to be one: a grant may
    /// name any time.
    #[inline]
    pub fn set(&mut self, id: u32, at: Instant) {
        let at = at.min(NEVER - 1);
        if self.things.len() <= id as usize {
            self.things.resize(id as usize + 1, OVER);
        }
        let thing = &mut self.things[id as usize];
        self.count += usize::from(thing.deadline == NEVER);
        thing.deadline = at;
        let place = thing.place as usize;
        match self.heap.get_mut(place) {
            Some((_, other)) if *other != id => self.push(at, id),
            None => self.push(at, id),
            Some((early, _)) if *early <= at => {}
            Some((late, _)) => {
                *late = at;
                self.rise(place);
            }
        }
    }

    fn push(&mut self, at: Instant, id: u32) {
        self.heap.push((at, id));
        self.rise(self.heap.len() - 1);
    }

    /// `id`, which has a deadline, is over.
    #[inline]
    pub fn cancel(&mut self, id: u32) {
        debug_assert_ne!(self.things[id as usize].deadline, NEVER, "a deadline that is there");
        self.things[id as usize].deadline = NEVER;
        self.count -= 1;
        if self.count == 0 {
            self.heap.clear();
        }
    }

    /// None has a deadline any more.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.things.fill(OVER);
        self.count = 0;
    }

    /// Moves what is at `at` up to its place.
    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.heap.swap(at, (at - 1) / 2);
            self.note(at);
            at = (at - 1) / 2;
        }
        self.note(at);
    }

    /// Moves what is at `at`, if anything is, down to its place.
    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(mut first) = (left < self.heap.len()).then_some(left) else { break };
            if right < self.heap.len() && self.heap[right] < self.heap[left] {
                first = right;
            }
            if self.heap[at] <= self.heap[first] {
                break;
            }
            self.heap.swap(at, first);
            self.note(at);
            at = first;
        }
        if at < self.heap.len() {
            self.note(at);
        }
    }

    #[inline]
    fn note(&mut self, at: usize) {
        self.things[self.heap[at].1 as usize].place = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Set(u32, u64),
        Cancel(u32),
        /// The first that is due by then is over.
        Due(u64),
        Clear,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => (0u32..20, 0u64..30).prop_map(|(id, at)| Op::Set(id, at)),
            1 => (0u32..20).prop_map(|id| Op::Set(id, u64::MAX)),
            4 => (0u32..20).prop_map(Op::Cancel),
            4 => (0u64..30).prop_map(Op::Due),
            1 => Just(Op::Clear),
        ]
    }

    proptest! {
        #[test]
        fn what_is_due_is_the_first_of_a_sorted_map(ops in prop::collection::vec(op(), 1..200)) {
            let (mut deadlines, mut model) = (Deadlines::default(), BTreeMap::new());
            let first = |model: &BTreeMap<u32, u64>| model.iter().map(|(id, at)| (*at, *id)).min();
            for op in ops {
                match op {
                    Op::Set(id, at) => {
                        deadlines.set(id, Instant(at));
                        model.insert(id, at.min(u64::MAX - 1));
                    }
                    Op::Cancel(id) => {
                        if model.remove(&id).is_some() {
                            deadlines.cancel(id);
                        }
                    }
                    Op::Due(now) => {
                        let due = first(&model).filter(|(at, _)| *at <= now).map(|(_, id)| id);
                        prop_assert_eq!(deadlines.due(Instant(now)), due);
                        // Nobody is to be woken for what is over.
                        prop_assert!(due.is_some() || deadlines.next().is_none_or(|next| next > Instant(now)));
                        if let Some(id) = due {
                            deadlines.cancel(id);
                            model.remove(&id);
                        }
                    }
                    Op::Clear => {
                        deadlines.clear();
                        model.clear();
                    }
                }
                let (next, first) = (deadlines.next(), first(&model).map(|(at, _)| Instant(at)));
                prop_assert_eq!(next.is_some(), first.is_some());
                prop_assert!(next <= first, "{:?}, {:?}", next, first);
            }
        }
    }
}
