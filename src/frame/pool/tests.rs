use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What happens to chunks and buffers, at some pool; the number chooses among those that it can happen to.
#[derive(Clone, Debug)]
enum Op {
    Alloc,
    AllocLarge,
    AllocWith(Vec<u8>),
    AllocIndex,
    IntoIndex(usize),
    Adopt(usize, usize),
    Free(usize),
    FreeIndex(usize),
    /// What was freed away from home is brought there.
    BringHome,
}

/// Of each pool.
const CHUNKS: usize = 6;
const SIZE: usize = 16;
const BUFFERS: usize = 3;
const LARGE_SIZE: usize = 40;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Alloc),
        1 => Just(Op::AllocLarge),
        3 => vec(any::<u8>(), 0..SIZE + 3).prop_map(Op::AllocWith),
        1 => vec(any::<u8>(), LARGE_SIZE - 3..LARGE_SIZE + 3).prop_map(Op::AllocWith),
        2 => Just(Op::AllocIndex),
        2 => any::<usize>().prop_map(Op::IntoIndex),
        2 => (any::<usize>(), 0..=SIZE).prop_map(|(n, len)| Op::Adopt(n, len)),
        4 => any::<usize>().prop_map(Op::Free),
        1 => any::<usize>().prop_map(Op::FreeIndex),
        1 => Just(Op::BringHome),
    ]
}

fn take<T>(from: &mut Vec<T>, n: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(n % from.len()))
}

/// Pools over one region, and who has what of them.
struct Model {
    pools: Vec<Pool>,
    /// Frames with the bytes they must hold.
    frames: Vec<(Frame, Vec<u8>)>,
    /// Chunks without a frame, as a port lends them.
    lent: Vec<(u32, Vec<u8>)>,
    /// What was freed away from home, by the pool that has it.
    strays: Vec<Vec<u32>>,
}

/// The pool that a chunk or buffer is at home in.
fn home(index: u32) -> usize {
    match index < LARGE {
        true => index as usize / CHUNKS,
        false => (index - LARGE) as usize / BUFFERS,
    }
}

impl Model {
    fn new(parts: usize) -> Model {
        // One chunk too many, which is left unused.
        let region = Box::new(Heap::new(parts * CHUNKS + parts - 1, SIZE));
        let pools = Pool::split(region, parts, BUFFERS, LARGE_SIZE);
        Model { pools, frames: vec![], lent: vec![], strays: vec![vec![]; parts] }
    }

    fn run(&mut self, at: usize, op: Op) {
        let (free, large_free) = (self.free(at, false), self.free(at, true));
        let Model { pools, frames, lent, strays } = self;
        let pool = &mut pools[at];
        match op {
            Op::Alloc => {
                let frame = pool.alloc();
                assert_eq!(frame.is_some(), free > 0);
                frames.extend(frame.map(|f| (f, vec![])));
            }
            Op::AllocLarge => {
                let frame = pool.alloc_large();
                assert_eq!(frame.is_some(), large_free > 0);
                assert!(frame.as_ref().is_none_or(|f| f.is_large() && f.capacity() == LARGE_SIZE));
                frames.extend(frame.map(|f| (f, vec![])));
            }
            Op::AllocWith(bytes) => {
                let frame = pool.alloc_with(&bytes);
                let there = if bytes.len() <= SIZE { free } else { large_free };
                assert_eq!(frame.is_some(), there > 0 && bytes.len() <= LARGE_SIZE);
                assert!(frame.as_ref().is_none_or(|f| f.is_large() == (bytes.len() > SIZE)));
                frames.extend(frame.map(|f| (f, bytes)));
            }
            Op::AllocIndex => {
                let index = pool.alloc_index();
                assert_eq!(index.is_some(), free > 0);
                lent.extend(index.map(|i| (i, vec![])));
            }
            Op::IntoIndex(n) => match take(frames, n) {
                // No port keeps a large buffer.
                Some((frame, bytes)) if frame.is_large() => frames.push((frame, bytes)),
                Some((frame, bytes)) => lent.push((frame.into_index(), bytes)),
                None => {}
            },
            Op::Adopt(n, len) => {
                if let Some((index, bytes)) = take(lent, n) {
                    // SAFETY: the chunk left by `into_index` or `alloc_index` and is no more in `lent`.
                    let frame = unsafe { pool.adopt(index, len) };
                    assert_eq!((frame.index(), frame.len()), (index, len));
                    let kept = bytes.len().min(len);
                    assert_eq!(frame[..kept], bytes[..kept]);
                    let bytes = frame.to_vec();
                    frames.push((frame, bytes));
                }
            }
            Op::Free(n) => {
                if let Some((frame, _)) = take(frames, n) {
                    strays[at].extend(Some(frame.index()).filter(|index| home(*index) != at));
                    pool.free(frame);
                }
            }
            Op::FreeIndex(n) => {
                if let Some((index, _)) = take(lent, n) {
                    strays[at].extend(Some(index).filter(|index| home(*index) != at));
                    // SAFETY: as for `adopt`.
                    unsafe { pool.free_index(index) };
                }
            }
            Op::BringHome => {
                strays[at].clear();
                for stray in std::mem::take(pool.strays()) {
                    let home = pools[at].home(&stray);
                    assert_eq!(home, self::home(stray.0));
                    pools[home].take_home(stray);
                }
            }
        }
    }

    /// Chunks or large buffers that a pool has to give out.
    fn free(&self, of: usize, large: bool) -> usize {
        let away = self.away().filter(|index| home(*index) == of && (*index >= LARGE) == large).count();
        if large { BUFFERS - away } else { CHUNKS - away }
    }

    fn away(&self) -> impl Iterator<Item = u32> {
        let owned = self.frames.iter().map(|(f, _)| f.index()).chain(self.lent.iter().map(|l| l.0));
        owned.chain(self.strays.iter().flatten().copied())
    }

    fn check(&mut self) {
        for at in 0..self.pools.len() {
            let (free, large_free) = (self.free(at, false), self.free(at, true));
            let pool = &mut self.pools[at];
            assert_eq!((pool.free_count(), pool.large_free_count()), (free, large_free));
            assert_eq!((pool.chunks(), pool.large()), (CHUNKS, BUFFERS));
            assert_eq!(pool.free_count() + pool.out_count(), pool.chunks());
            assert_eq!(pool.strays().iter().map(|s| s.0).collect::<Vec<_>>(), self.strays[at]);
        }
        let mut away: Vec<u32> = self.away().collect();
        let count = away.len();
        away.sort_unstable();
        away.dedup();
        assert_eq!(away.len(), count, "a chunk has two owners");
        for (frame, bytes) in &self.frames {
            assert_eq!(frame[..], bytes[..]);
        }
    }

    fn finish(mut self) {
        let parts = self.pools.len();
        while !self.frames.is_empty() || !self.lent.is_empty() {
            self.run(0, Op::Free(0));
            self.run(parts - 1, Op::FreeIndex(0));
        }
        (0..parts).for_each(|at| self.run(at, Op::BringHome));
        self.check();
        let home = |pool: &Pool| pool.free_count() == CHUNKS && pool.large_free_count() == BUFFERS;
        assert!(self.pools.iter().all(home));
    }
}

proptest! {
    #[test]
    fn every_chunk_and_buffer_is_free_or_owned_once_and_keeps_its_owners_bytes_whichever_pool_it_is_in(
        parts in 1..4usize,
        ops in vec((any::<usize>(), op()), 0..200),
    ) {
        let mut model = Model::new(parts);
        for (at, op) in ops {
            model.run(at % parts, op);
            model.check();
        }
        model.finish();
    }
}

#[test]
#[should_panic(expected = "a stray of this pool")]
fn a_pool_refuses_a_stray_of_another() {
    let mut pools = Pool::split_heap(2 * CHUNKS, SIZE, 2);
    let frame = pools[0].alloc().expect("a free chunk");
    pools[1].free(frame);
    let stray = pools[1].strays().pop().expect("a stray");
    pools[1].take_home(stray);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "freed twice")]
fn a_debug_build_refuses_to_free_a_chunk_twice() {
    let mut pool = Pool::heap(2, SIZE);
    let index = pool.alloc().expect("a free chunk").into_index();
    // SAFETY: the first call is right; the second breaks the contract and must panic before it does harm.
    unsafe {
        pool.free_index(index);
        pool.free_index(index);
    }
}
