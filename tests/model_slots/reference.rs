//! The slot book as one would write it without a thought of speed: reservations in a map, registers added up
//! anew each time they are asked for, slots of the window in a set.

use std::collections::{BTreeMap, BTreeSet};

use weft::scheme::pl2::{BookConfig, SlotMode};

/// Ingress port, connection, number of the reservation.
pub type Key = (u8, u32, u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    NoRoute,
    Full,
    Stale,
    Invalid,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Reserved,
    Late,
    Rogue,
}

/// What is left of a reservation; `end` is that of its window.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub k_left: u16,
    pub output: u8,
    pub deadline: u64,
    ends: (u64, u64),
    reset: bool,
    released: bool,
}

/// What is remembered of a connection. The times are counts of operations.
#[derive(Clone, Copy, Debug)]
struct Known {
    admitted: u64,
    idle_since: u64,
    finished: u32,
    taken_back: u32,
    taken_seq: u32,
    late: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Side {
    In,
    Out,
}

pub struct Reference {
    config: BookConfig,
    pub epoch: u16,
    pub entries: BTreeMap<Key, Entry>,
    known: BTreeMap<(u8, u32), Known>,
    pub queued: BTreeMap<u8, u32>,
    pub underflows: u64,
    free_from: BTreeMap<(Side, u8), u64>,
    busy: BTreeSet<(Side, u8, u64)>,
    /// By ingress: output, slot.
    taken: BTreeMap<u8, BTreeSet<(u8, u64)>>,
    operations: u64,
}

impl Reference {
    pub fn new(config: BookConfig) -> Self {
        Reference {
            config,
            epoch: 1,
            entries: BTreeMap::new(),
            known: BTreeMap::new(),
            queued: BTreeMap::new(),
            underflows: 0,
            free_from: BTreeMap::new(),
            busy: BTreeSet::new(),
            taken: BTreeMap::new(),
            operations: 0,
        }
    }

    /// in[port]: what is left of the reservations from there.
    pub fn in_slots(&self, port: u8) -> u32 {
        self.entries.iter().filter(|((ingress, ..), _)| *ingress == port).map(|(_, e)| u32::from(e.k_left)).sum()
    }

    /// out[port]: the same of those to there, and the closing frames that are queued.
    pub fn out_slots(&self, port: u8) -> u32 {
        let left: u32 = self.entries.values().filter(|e| e.output == port).map(|e| u32::from(e.k_left)).sum();
        left + self.queued.get(&port).copied().unwrap_or(0)
    }

    pub fn pending(&self, port: u8) -> usize {
        self.entries.keys().filter(|(ingress, ..)| *ingress == port).count()
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.entries.values().map(|entry| entry.deadline).min()
    }

    /// What is granted: slots, t_in, t_out.
    pub fn reserve(
        &mut self,
        now: u64,
        ingress: u8,
        output: Option<u8>,
        (conn, seq, k, epoch): (u32, u32, u16, u16),
    ) -> Result<(u16, u32, u32), Refusal> {
        self.operations += 1;
        if k == 0 || seq == 0 {
            return Err(Refusal::Invalid);
        }
        let k = k.min(self.config.max_burst);
        if self.entries.contains_key(&(ingress, conn, seq)) {
            self.drop_entry((ingress, conn, seq));
        } else if let Some(known) = self.known.get(&(ingress, conn)).copied()
            && seq <= known.finished
        {
            if epoch != 0 {
                return Err(Refusal::Stale);
            }
            for key in self.keys_of(ingress, conn).into_iter().rev() {
                self.drop_entry(key);
            }
            self.known.get_mut(&(ingress, conn)).unwrap().finished = 0;
        }
        let output = output.filter(|output| *output != ingress).ok_or(Refusal::NoRoute)?;
        if self.pending(ingress) == usize::from(self.config.max_pending) || self.keys_of(ingress, conn).len() == 16 {
            return Err(Refusal::Full);
        }
        self.admit(ingress, conn)?;
        let (t_in, t_out, start) = self.times(now, ingress, output, k).ok_or(Refusal::Full)?;
        let slots = u64::from(t_in.max(t_out)) + u64::from(k);
        let deadline = now + slots * u64::from(self.config.slot_ns) + self.config.grace;
        let ends = (start.0 + u64::from(k), start.1 + u64::from(k));
        self.entries
            .insert((ingress, conn, seq), Entry { k_left: k, output, deadline, ends, reset: false, released: false });
        if epoch == 0 {
            let known = self.known.get_mut(&(ingress, conn)).unwrap();
            (known.taken_back, known.late) = (0, 0);
        }
        Ok((k, t_in, t_out))
    }

    /// Remembers the connection, if need be in place of the one that is idle for longest.
    fn admit(&mut self, ingress: u8, conn: u32) -> Result<(), Refusal> {
        if self.known.contains_key(&(ingress, conn)) {
            return Ok(());
        }
        if self.known.keys().filter(|(port, _)| *port == ingress).count() == usize::from(self.config.max_pending) {
            let idle =
                self.known.iter().filter(|((port, conn), _)| *port == ingress && self.keys_of(*port, *conn).is_empty());
            let oldest = idle.min_by_key(|(_, known)| known.idle_since).map(|(key, _)| *key).ok_or(Refusal::Full)?;
            self.known.remove(&oldest);
        }
        let at = self.operations;
        self.known.insert(
            (ingress, conn),
            Known { admitted: at, idle_since: at, finished: 0, taken_back: 0, taken_seq: 0, late: 0 },
        );
        Ok(())
    }

    fn times(&mut self, now: u64, ingress: u8, output: u8, k: u16) -> Option<(u32, u32, (u64, u64))> {
        if self.in_slots(ingress) + u32::from(k) > self.config.max_reserved {
            return None;
        }
        let (slot, k) = (now / u64::from(self.config.slot_ns), u64::from(k));
        match self.config.mode {
            SlotMode::Counter => Some((self.in_slots(ingress), self.out_slots(output), (0, 0))),
            SlotMode::Clock => {
                let after = |side, port| slot.max(self.free_from.get(&(side, port)).copied().unwrap_or(0));
                let starts = (after(Side::In, ingress), after(Side::Out, output));
                if starts.0.max(starts.1) + k > slot + 4_080 || !self.may_take(slot, ingress, k) {
                    return None;
                }
                self.free_from.insert((Side::In, ingress), starts.0 + k);
                self.free_from.insert((Side::Out, output), starts.1 + k);
                self.taken.entry(ingress).or_default().extend((starts.1..starts.1 + k).map(|at| (output, at)));
                Some(((starts.0 - slot) as u32, (starts.1 - slot) as u32, starts))
            }
            SlotMode::Window => {
                if !self.may_take(slot, ingress, k) {
                    return None;
                }
                let free = |s: &u64| {
                    !self.busy.contains(&(Side::In, ingress, *s)) && !self.busy.contains(&(Side::Out, output, *s))
                };
                let start = (slot..=slot + 1024 - k).find(|start| (*start..*start + k).all(|s| free(&s)))?;
                for s in start..start + k {
                    self.busy.extend([(Side::In, ingress, s), (Side::Out, output, s)]);
                }
                self.taken.entry(ingress).or_default().extend((start..start + k).map(|at| (output, at)));
                Some(((start - slot) as u32, (start - slot) as u32, (start, start)))
            }
        }
    }

    /// Whether `k` more than the slots that `ingress` took, and that are not of a span of 16 that has passed, are in
    /// bounds.
    fn may_take(&mut self, slot: u64, ingress: u8, k: u64) -> bool {
        let taken = self.taken.entry(ingress).or_default();
        taken.retain(|(_, at)| *at >= slot / 16 * 16);
        taken.len() as u64 + k <= u64::from(self.config.max_reserved)
    }

    pub fn arrived(&mut self, ingress: u8, output: Option<u8>, (low, closes, last): (u32, bool, bool)) -> Seen {
        self.operations += 1;
        let mut chain: Vec<u32> = self
            .known
            .keys()
            .filter(|(port, conn)| *port == ingress && conn % 1024 == low)
            .map(|(_, conn)| *conn)
            .collect();
        chain.sort_by_key(|conn| std::cmp::Reverse(self.known[&(ingress, *conn)].admitted));
        let firsts: Vec<Key> = chain.iter().filter_map(|conn| self.keys_of(ingress, *conn).first().copied()).collect();
        let key = firsts.iter().find(|key| Some(self.entries[key].output) == output).or(firsts.first()).copied();
        let seen = match key {
            Some(key)
                if {
                    let known = self.known[&(ingress, key.1)];
                    known.taken_back > 0 && known.taken_seq < key.2
                } =>
            {
                let known = self.known.get_mut(&(ingress, key.1)).unwrap();
                known.late += u32::from(closes);
                known.taken_back = if last { 0 } else { known.taken_back - u32::from(closes) };
                Seen::Late
            }
            Some(key) => {
                let entry = self.entries.get_mut(&key).unwrap();
                entry.k_left -= u16::from(closes);
                if last || entry.k_left == 0 {
                    self.finish(key);
                }
                Seen::Reserved
            }
            None => match chain.iter().find(|conn| self.known[&(ingress, **conn)].taken_back > 0) {
                Some(conn) => {
                    let known = self.known.get_mut(&(ingress, *conn)).unwrap();
                    known.taken_back = if last { 0 } else { known.taken_back - u32::from(closes) };
                    Seen::Late
                }
                None => Seen::Rogue,
            },
        };
        if closes
            && let Some(output) = output
            && !(seen == Seen::Rogue && self.config.drop_rogues && chain.is_empty())
        {
            *self.queued.entry(output).or_default() += 1;
        }
        seen
    }

    pub fn left(&mut self, output: u8) {
        match self.queued.get_mut(&output).filter(|queued| **queued > 0) {
            Some(queued) => *queued -= 1,
            None => self.underflows += 1,
        }
    }

    pub fn reset(&mut self, from: u8, sender: Option<u8>, (conn, seq, k, epoch): (u32, u32, u16, u16)) -> Option<u16> {
        self.operations += 1;
        let key = (sender?, conn, seq);
        let entry = self.entries.get_mut(&key).filter(|e| e.output == from && !e.reset)?;
        if epoch != self.epoch || k == 0 {
            return None;
        }
        entry.reset = true;
        let taken = self.shorten(key, k);
        let known = self.known.get_mut(&(key.0, conn)).unwrap();
        (known.taken_back, known.taken_seq) = (known.taken_back + u32::from(taken), seq);
        Some(taken)
    }

    pub fn release(&mut self, ingress: u8, (conn, seq, k, epoch): (u32, u32, u16, u16)) -> Option<u16> {
        self.operations += 1;
        if epoch != self.epoch || k == 0 {
            return None;
        }
        let Some(entry) = self.entries.get_mut(&(ingress, conn, seq)).filter(|e| !e.released) else {
            if let Some(known) = self.known.get_mut(&(ingress, conn)).filter(|known| known.taken_seq == seq) {
                known.taken_back = known.taken_back.saturating_sub(k.into());
            }
            return None;
        };
        entry.released = true;
        Some(self.shorten((ingress, conn, seq), k))
    }

    pub fn sweep(&mut self, now: u64) {
        let due = self.entries.iter().filter(|(_, entry)| entry.deadline <= now);
        let mut due: Vec<(u64, Key)> = due.map(|(key, entry)| (entry.deadline, *key)).collect();
        due.sort_unstable();
        for (_, key) in due {
            self.operations += 1;
            let left = u32::from(self.entries[&key].k_left);
            let known = self.known.get_mut(&(key.0, key.1)).unwrap();
            let came = known.late.min(left);
            known.late -= came;
            known.taken_back += left - came;
            known.taken_seq = key.2;
            self.finish(key);
        }
    }

    pub fn link_down(&mut self, port: u8) {
        let mut gone: Vec<Key> = self.entries.keys().filter(|(ingress, ..)| *ingress == port).copied().collect();
        gone.sort_by_key(|key| std::cmp::Reverse(self.entries[key].ends.1));
        for key in gone {
            self.drop_entry(key);
        }
        self.known.retain(|(ingress, _), _| *ingress != port);
        self.free_from.remove(&(Side::In, port));
    }

    pub fn restart(&mut self) {
        self.epoch += 1;
        self.entries.clear();
        self.known.clear();
        self.free_from.clear();
        self.busy.clear();
        self.taken.clear();
    }

    fn keys_of(&self, ingress: u8, conn: u32) -> Vec<Key> {
        self.entries.range((ingress, conn, 0)..=(ingress, conn, u32::MAX)).map(|(key, _)| *key).collect()
    }

    fn shorten(&mut self, key: Key, k: u16) -> u16 {
        let taken = k.min(self.entries[&key].k_left);
        self.cut(key, taken);
        if self.entries[&key].k_left == 0 {
            self.finish(key);
        }
        taken
    }

    /// The last `slots` of a reservation are nobody's.
    fn cut(&mut self, key: Key, slots: u16) {
        let entry = self.entries.get_mut(&key).unwrap();
        let (count, (end_in, end_out)) = (u64::from(slots), entry.ends);
        let mut is_free = true;
        match self.config.mode {
            SlotMode::Counter => return entry.k_left -= slots,
            SlotMode::Clock => {
                for (side, port, end) in [(Side::In, key.0, end_in), (Side::Out, entry.output, end_out)] {
                    let last = self.free_from.get(&(side, port)) == Some(&end);
                    if last {
                        self.free_from.insert((side, port), end - count);
                    }
                    is_free = last;
                }
            }
            SlotMode::Window => {
                (end_in - count..end_in).for_each(|slot| _ = self.busy.remove(&(Side::In, key.0, slot)));
                (end_out - count..end_out).for_each(|slot| _ = self.busy.remove(&(Side::Out, entry.output, slot)));
            }
        }
        if is_free {
            let taken = self.taken.entry(key.0).or_default();
            (end_out - count..end_out).for_each(|slot| _ = taken.remove(&(entry.output, slot)));
        }
        entry.ends = (end_in - count, end_out - count);
        entry.k_left -= slots;
    }

    fn drop_entry(&mut self, key: Key) {
        self.cut(key, self.entries[&key].k_left);
        self.entries.remove(&key);
        if self.keys_of(key.0, key.1).is_empty() {
            self.known.get_mut(&(key.0, key.1)).unwrap().idle_since = self.operations;
        }
    }

    fn finish(&mut self, key: Key) {
        self.drop_entry(key);
        let known = self.known.get_mut(&(key.0, key.1)).unwrap();
        known.finished = known.finished.max(key.2);
        if self.keys_of(key.0, key.1).is_empty() {
            self.known.get_mut(&(key.0, key.1)).unwrap().late = 0;
        }
    }
}
