use crate::pisa::hash::FlowHash;

/// A key that an [`ExactTable`] can hold: plain data with a cheap hash.
pub trait ExactKey: Copy + Eq {
    /// The key's hash under `hash`'s seed.
    fn hash(&self, hash: &FlowHash) -> u64;
}

impl ExactKey for u32 {
    #[inline]
    fn hash(&self, hash: &FlowHash) -> u64 {
        hash.word(u64::from(*self))
    }
}

impl ExactKey for u64 {
    #[inline]
    fn hash(&self, hash: &FlowHash) -> u64 {
        hash.word(*self)
    }
}

impl ExactKey for u128 {
    #[inline]
    fn hash(&self, hash: &FlowHash) -> u64 {
        hash.words(*self as u64, (*self >> 64) as u64)
    }
}

/// Exact match with linear probing in one array taken at the start: no growth, no allocation.
/// An insert into a full table is refused; removal closes the gap (no tombstones), so look-ups stay
/// short however long the table lives.
///
/// Invariant: each entry can be reached from its home slot without crossing an empty one.
#[derive(Debug, Clone)]
pub struct ExactTable<K, V> {
    slots: Box<[Option<(K, V)>]>,
    hash: FlowHash,
    len: usize,
    limit: usize,
}

/// The table holds its limit of entries already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table is full")]
pub struct Full;

impl<K: ExactKey, V: Copy> ExactTable<K, V> {
    /// A table for up to `limit` entries; takes memory for twice as many, so that a probe run stays
    /// short.
    pub fn new(limit: usize, seed: u64) -> Self {
        let slots = (limit.max(1) * 2).next_power_of_two();
        ExactTable { slots: vec![None; slots].into_boxed_slice(), hash: FlowHash::new(seed), len: 0, limit }
    }

    #[inline]
    fn home(&self, key: &K) -> usize {
        key.hash(&self.hash) as usize & (self.slots.len() - 1)
    }

    /// Slot of `key`, or the empty slot where its search ends.
    #[inline]
    fn find(&self, key: &K) -> (usize, bool) {
        let mut at = self.home(key);
        loop {
            match &self.slots[at] {
                Some((k, _)) if k == key => return (at, true),
                Some(_) => at = (at + 1) & (self.slots.len() - 1),
                None => return (at, false),
            }
        }
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        let mut at = self.home(key);
        loop {
            match &self.slots[at] {
                Some((k, value)) if k == key => return Some(value),
                Some(_) => at = (at + 1) & (self.slots.len() - 1),
                None => return None,
            }
        }
    }

    /// The value of `key`, to change in place.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (at, _) = self.find(key);
        self.slots[at].as_mut().map(|(_, v)| v)
    }

    /// Sets the value of `key` and returns the old one.
    ///
    /// # Errors
    /// [`Full`] if `key` is new and the table holds its limit; nothing changes.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        let (at, found) = self.find(&key);
        if !found && self.len == self.limit {
            return Err(Full);
        }
        let old = self.slots[at].replace((key, value));
        self.len += usize::from(!found);
        Ok(old.map(|(_, v)| v))
    }

    /// Takes `key` out and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (mut gap, found) = self.find(key);
        if !found {
            return None;
        }
        let (_, value) = self.slots[gap].take()?;
        self.len -= 1;
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let Some((k, _)) = &self.slots[at] else { return Some(value) };
            // An entry may move into the gap if the gap lies between its home and where it is.
            let home = self.home(k);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = self.slots[at].take();
                gap = at;
            }
        }
    }

    /// Takes out every entry for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        let gone: Vec<K> = self.iter().filter(|(k, v)| !keep(k, v)).map(|(k, _)| *k).collect();
        for key in gone {
            self.remove(&key);
        }
    }

    /// Every entry, in slot order (the same for the same seed and history).
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().flatten().map(|(k, v)| (k, v))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most entries it holds.
    pub fn limit(&self) -> usize {
        self.limit
    }
}
