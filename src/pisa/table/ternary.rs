/// One entry of a [`TernaryTable`]: matches keys that equal `value` in the bits of `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TernaryEntry<V> {
    /// Bits to compare with, zero outside `mask`.
    pub value: u128,
    /// Bits that count.
    pub mask: u128,
    /// Higher wins; among equals, the one inserted first.
    pub priority: i32,
    /// The result.
    pub result: V,
}

/// Ternary match by priority, as a TCAM does: entries in priority order, the first match wins.
///
/// Linear in the number of entries, which suits the tens of entries of ACLs and class maps; routes
/// belong into [`super::Lpm`].
#[derive(Clone, Debug)]
pub struct TernaryTable<V> {
    entries: Vec<TernaryEntry<V>>,
}

impl<V> Default for TernaryTable<V> {
    fn default() -> Self {
        TernaryTable { entries: Vec::new() }
    }
}

impl<V> TernaryTable<V> {
    /// No entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry; bits of `value` outside `mask` are cleared.
    pub fn insert(&mut self, value: u128, mask: u128, priority: i32, result: V) {
        let at = self.entries.partition_point(|e| e.priority >= priority);
        self.entries.insert(at, TernaryEntry { value: value & mask, mask, priority, result });
    }

    /// Takes out every entry with this value and mask; how many there were.
    pub fn remove(&mut self, value: u128, mask: u128) -> usize {
        let before = self.entries.len();
        self.entries.retain(|e| (e.value, e.mask) != (value & mask, mask));
        before - self.entries.len()
    }

    /// The result of the best match.
    #[inline]
    pub fn get(&self, key: u128) -> Option<&V> {
        self.entries.iter().find(|e| key & e.mask == e.value).map(|e| &e.result)
    }

    /// The entries, best first.
    pub fn entries(&self) -> &[TernaryEntry<V>] {
        &self.entries
    }
}
