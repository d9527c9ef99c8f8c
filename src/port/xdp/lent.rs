use crate::frame::Pool;

/// The chunks of a pool that are with the kernel, one bit each.
#[derive(Debug)]
pub struct Lent {
    bits: Box<[u64]>,
    count: usize,
}

impl Lent {
    /// None of `chunks` chunks.
    pub(super) fn none(chunks: usize) -> Lent {
        Lent { bits: vec![0; chunks.div_ceil(64)].into(), count: 0 }
    }

    /// The kernel gets a chunk that was taken out of the pool.
    #[inline]
    pub(super) fn add(&mut self, index: u32) {
        self.bits[index as usize / 64] |= 1 << (index % 64);
        self.count += 1;
    }

    /// The kernel returns a chunk; `false` if it never had it.
    #[inline]
    pub(super) fn take(&mut self, index: u32) -> bool {
        let Some(word) = self.bits.get_mut(index as usize / 64) else { return false };
        let bit = 1 << (index % 64);
        let lent = *word & bit != 0;
        *word &= !bit;
        self.count -= usize::from(lent);
        lent
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Gives them back to `pool`, which must be the one that the port was driven with. Only a socket that was closed
    /// gives its `Lent` away ([`super::XdpPort::close`]).
    pub fn restore(self, pool: &mut Pool) {
        for (i, word) in self.bits.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let index = (i * 64) as u32 + word.trailing_zeros();
                word &= word - 1;
                // SAFETY: the chunk left a pool over this UMEM when it was lent, no Frame owns it, and the
                // socket it was lent to is closed.
                unsafe { pool.free_index(index) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_returned_once_each_and_the_rest_is_restored() {
        let mut pool = Pool::heap(200, 64);
        let mut lent = Lent::none(200);
        let indices: Vec<u32> = (0..130).map(|_| pool.alloc_index().unwrap()).collect();
        indices.iter().for_each(|i| lent.add(*i));
        assert_eq!(lent.count(), 130);
        assert!(lent.take(indices[64]));
        assert!(!lent.take(indices[64]), "it has that one back already");
        assert!(!lent.take(5000), "no such chunk");
        // SAFETY: the chunk left by `alloc_index` and is not lent any more.
        unsafe { pool.free_index(indices[64]) };
        assert_eq!((lent.count(), pool.free_count()), (129, 71));
        lent.restore(&mut pool);
        assert_eq!(pool.free_count(), 200);
    }
}
