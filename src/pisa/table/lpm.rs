use super::exact::{ExactKey, ExactTable};

/// An address as an LPM key.
pub trait LpmKey: ExactKey {
    /// Bits of the address.
    const BITS: u8;
    /// The address with all but its first `len` bits cleared.
    #[must_use]
    fn prefix(&self, len: u8) -> Self;
}

impl LpmKey for u32 {
    const BITS: u8 = 32;
    #[inline]
    fn prefix(&self, len: u8) -> u32 {
        if len == 0 { 0 } else { self & (u32::MAX << (32 - len)) }
    }
}

impl LpmKey for u128 {
    const BITS: u8 = 128;
    #[inline]
    fn prefix(&self, len: u8) -> u128 {
        if len == 0 { 0 } else { self & (u128::MAX << (128 - len)) }
    }
}

/// Longest-prefix match: an exact table for each prefix length in use, longest first.
///
/// A fabric's routes have two or three lengths (two-level lookup), so a look-up is two or three
/// probes. Tables grow on insertion, which the control plane does, never on look-up.
#[derive(Clone, Debug)]
pub struct Lpm<K, V> {
    /// By length, longest first.
    levels: Vec<(u8, ExactTable<K, V>)>,
    /// The entry of length 0, if any: no key to compare.
    default: Option<V>,
    seed: u64,
}

impl<K: LpmKey, V: Copy> Lpm<K, V> {
    /// No routes.
    pub fn new(seed: u64) -> Self {
        Lpm { levels: Vec::new(), default: None, seed }
    }

    /// Sets the value of the prefix `key`/`len` and returns the old one; bits past `len` are ignored.
    ///
    /// # Panics
    /// If `len` is over [`LpmKey::BITS`].
    pub fn insert(&mut self, key: K, len: u8, value: V) -> Option<V> {
        assert!(len <= K::BITS, "prefix length {len}");
        if len == 0 {
            return self.default.replace(value);
        }
        let at = self.levels.partition_point(|(l, _)| *l > len);
        if self.levels.get(at).is_none_or(|(l, _)| *l != len) {
            self.levels.insert(at, (len, ExactTable::new(16, self.seed)));
        }
        let table = &mut self.levels[at].1;
        if table.len() == table.limit() {
            let mut larger = ExactTable::new(table.limit() * 2, self.seed);
            for (k, v) in table.iter() {
                larger.insert(*k, *v).expect("twice the room");
            }
            *table = larger;
        }
        table.insert(key.prefix(len), value).expect("grown if it was full")
    }

    /// Takes the prefix out and returns its value.
    pub fn remove(&mut self, key: K, len: u8) -> Option<V> {
        if len == 0 {
            return self.default.take();
        }
        let at = self.levels.iter().position(|(l, _)| *l == len)?;
        let old = self.levels[at].1.remove(&key.prefix(len));
        if self.levels[at].1.is_empty() {
            self.levels.remove(at);
        }
        old
    }

    /// The value of the longest prefix that `key` is in.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        for (len, table) in &self.levels {
            if let Some(value) = table.get(&key.prefix(*len)) {
                return Some(value);
            }
        }
        self.default.as_ref()
    }

    /// Every prefix: key, length, value; longest first.
    pub fn iter(&self) -> impl Iterator<Item = (Option<K>, u8, &V)> {
        let levels = self.levels.iter().flat_map(|(len, t)| t.iter().map(move |(k, v)| (Some(*k), *len, v)));
        levels.chain(self.default.as_ref().map(|v| (None, 0, v)))
    }
}
