use crate::frame::prefetch;

/// A register array: fixed size, addressed by a hash or an index, no growth. Two keys that fall on
/// one cell share it; what that means is the owner's stated collision policy.
#[derive(Clone, Debug)]
pub struct Registers<T> {
    cells: Box<[T]>,
}

impl<T: Copy + Default> Registers<T> {
    /// At least `cells` cells (rounded up to a power of two), each at its default.
    pub fn new(cells: usize) -> Self {
        Registers { cells: vec![T::default(); cells.max(1).next_power_of_two()].into_boxed_slice() }
    }

    /// Number of cells, a power of two.
    #[inline]
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there is no cell (never).
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The index that `hash` falls on.
    #[inline]
    pub fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.cells.len() - 1)
    }

    /// The cell that `hash` falls on.
    #[inline]
    pub fn at(&self, hash: u64) -> &T {
        &self.cells[hash as usize & (self.cells.len() - 1)]
    }

    /// The cell that `hash` falls on, for a read-modify-write.
    #[inline]
    pub fn at_mut(&mut self, hash: u64) -> &mut T {
        let slot = self.slot(hash);
        &mut self.cells[slot]
    }

    /// Asks for the first cache line of the cell that `hash` falls on, ahead of its use.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(self.at(hash));
    }

    /// Sets every cell to its default.
    pub fn clear(&mut self) {
        self.cells.fill(T::default());
    }

    /// Changes every cell.
    pub fn for_each(&mut self, change: impl FnMut(&mut T)) {
        self.cells.iter_mut().for_each(change);
    }

    /// All cells.
    pub fn cells(&self) -> &[T] {
        &self.cells
    }
}
