//! A frame against a vector of bytes. (The pool's own model test is in its module: adopting a chunk is
//! unsafe.)

use proptest::collection::vec;
use proptest::prelude::*;
use weft::frame::{BURST, Burst, Pool};

#[derive(Clone, Debug)]
enum Op {
    Insert(usize, usize),
    Remove(usize, usize),
    Fill(Vec<u8>),
    Write(usize, u8),
    Truncate(usize),
}

const CAPACITY: usize = 96;

fn op() -> impl Strategy<Value = Op> {
    let place = || 0..CAPACITY + 4;
    prop_oneof![
        (place(), 0usize..24).prop_map(|(at, count)| Op::Insert(at, count)),
        (place(), 0usize..24).prop_map(|(at, count)| Op::Remove(at, count)),
        vec(any::<u8>(), 0..CAPACITY + 4).prop_map(Op::Fill),
        (place(), any::<u8>()).prop_map(|(at, byte)| Op::Write(at, byte)),
        place().prop_map(Op::Truncate),
    ]
}

proptest! {
    #[test]
    fn a_frame_is_a_vector_with_a_capacity(ops in vec(op(), 0..60)) {
        let mut pool = Pool::heap(3, CAPACITY);
        // Neighbours on both sides: nothing done to the frame may touch them.
        let mut frames: Vec<_> = (0..3).map(|_| pool.alloc_with(&[0xaa; CAPACITY]).expect("a free chunk")).collect();
        frames.sort_by_key(|f| f.index());
        let [below, frame, above] = &mut frames[..] else { unreachable!("three frames") };
        frame.set_len(0);
        let mut model: Vec<u8> = vec![];
        for op in ops {
            match op {
                Op::Insert(at, count) => {
                    let fits = at <= model.len() && model.len() + count <= CAPACITY;
                    prop_assert_eq!(frame.insert(at, count), fits);
                    if fits {
                        model.splice(at..at, std::iter::repeat_n(0, count));
                    }
                }
                Op::Remove(at, count) => {
                    let there = at + count <= model.len();
                    prop_assert_eq!(frame.remove(at, count), there);
                    if there {
                        model.drain(at..at + count);
                    }
                }
                Op::Fill(bytes) => {
                    let fits = bytes.len() <= CAPACITY;
                    prop_assert_eq!(frame.fill(&bytes), fits);
                    if fits {
                        model = bytes;
                    }
                }
                Op::Write(at, byte) => {
                    prop_assert_eq!(frame.get(at), model.get(at));
                    if let (Some(ours), Some(theirs)) = (frame.get_mut(at), model.get_mut(at)) {
                        (*ours, *theirs) = (byte, byte);
                    }
                }
                Op::Truncate(len) => {
                    if len <= model.len() {
                        frame.set_len(len);
                        model.truncate(len);
                    }
                }
            }
            prop_assert_eq!(&frame[..], &model[..]);
            prop_assert_eq!(frame.capacity(), CAPACITY);
        }
        prop_assert!(below.iter().chain(above.iter()).all(|byte| *byte == 0xaa));
        frames.into_iter().for_each(|f| pool.free(f));
        prop_assert_eq!((pool.free_count(), pool.out_count()), (3, 0));
    }

    #[test]
    fn a_burst_is_a_queue_that_drains_in_order_of_arrival(rounds in vec(0usize..=BURST, 1..6)) {
        let mut pool = Pool::heap(BURST, 64);
        let mut burst = Burst::new();
        for count in rounds {
            let mut pushed = vec![];
            for i in 0..count {
                prop_assert_eq!((burst.len(), burst.room(), burst.is_empty()), (i, BURST - i, i == 0));
                let frame = pool.alloc().expect("a free chunk");
                pushed.push(frame.index());
                burst.push(frame);
            }
            prop_assert_eq!(burst.frames().iter().map(|f| f.index()).collect::<Vec<_>>(), &pushed[..]);
            for (frame, index) in burst.drain().zip(&pushed) {
                prop_assert_eq!(frame.index(), *index);
                pool.free(frame);
            }
            prop_assert!(burst.is_empty());
        }
        prop_assert_eq!(pool.out_count(), 0);
    }
}

#[test]
fn a_pool_refuses_what_does_not_fit_and_takes_nothing_for_it() {
    let mut pool = Pool::heap(1, 64);
    assert!(pool.alloc_with(&[0; 65]).is_none());
    assert_eq!(pool.free_count(), 1);
    let frame = pool.alloc_with(&[7; 64]).expect("it fits");
    assert!(pool.alloc().is_none() && pool.alloc_with(&[]).is_none() && pool.alloc_index().is_none());
    pool.free(frame);
}

#[test]
#[should_panic(expected = "is of another pool")]
fn a_frame_of_another_pool_is_not_taken() {
    let (mut mine, mut theirs) = (Pool::heap(1, 64), Pool::heap(1, 64));
    let frame = theirs.alloc().expect("a free chunk");
    mine.free(frame);
}
