use crate::time::Instant;

/// Which of many numbered things is due first: a binary heap that knows where each thing is in it, so that one
/// can be taken out early. No allocation once it has held as many.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<(Instant, u32)>,
    /// By number: where it is in `heap`. What is not there holds something else.
    place: Vec<u32>,
}

impl Deadlines {
    /// The earliest, and which it is.
    #[inline]
    pub fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Adds `id`, which is not there.
    #[inline]
    pub fn add(&mut self, id: u32, at: Instant) {
        if self.place.len() <= id as usize {
            self.place.resize(id as usize + 1, 0);
        }
        self.heap.push((at, id));
        self.rise(self.heap.len() - 1);
    }

    /// Takes `id` out, which is there.
    #[inline]
    pub fn remove(&mut self, id: u32) {
        let at = self.place[id as usize] as usize;
        debug_assert_eq!(self.heap[at].1, id, "a deadline that is there");
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            let moved = self.rise(at);
            self.sink(moved);
        }
    }

    pub fn clear(&mut self) {
        self.heap.clear();
    }

    /// Moves what is at `at` up to its place, and gives that.
    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.heap.swap(at, (at - 1) / 2);
            self.note(at);
            at = (at - 1) / 2;
        }
        self.note(at);
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let Some(first) =
                [left, left + 1].into_iter().filter(|c| *c < self.heap.len()).min_by_key(|c| self.heap[*c])
            else {
                break;
            };
            if self.heap[at] <= self.heap[first] {
                break;
            }
            self.heap.swap(at, first);
            self.note(at);
            at = first;
        }
        self.note(at);
    }

    #[inline]
    fn note(&mut self, at: usize) {
        self.place[self.heap[at].1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_that_of_a_sorted_map(ops in prop::collection::vec((0u32..20, 0u64..30), 1..200)) {
            let (mut deadlines, mut model) = (Deadlines::default(), BTreeMap::new());
            for (id, at) in ops {
                if model.remove(&id).is_some() {
                    deadlines.remove(id);
                } else {
                    model.insert(id, at);
                    deadlines.add(id, Instant(at));
                }
                let first = model.iter().map(|(id, at)| (Instant(*at), *id)).min();
                prop_assert_eq!(deadlines.first(), first);
            }
        }
    }
}
