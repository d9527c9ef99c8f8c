//! One memory region cut into equal chunks, and the frames that own them.
//!
//! The region is a UMEM or plain heap memory; the pool does not care. A [`Frame`] is the only
//! handle to its chunk: it is neither `Copy` nor `Clone`, so holding one is the right to read and
//! write the chunk's bytes. A frame ends by [`Pool::free`] or, at a port, by [`Frame::into_index`].
//! Dropping one anywhere else is a bug and fails a debug assertion.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that a pool cuts into chunks. Keeps the mapping alive for as long as the pool lives.
///
/// # Safety
/// `base()` must point at `chunks() * stride()` bytes that stay valid until the value is dropped, and are
/// reached only through the pools made over it (and by the kernel, through descriptors that a port posted).
/// Each chunk is at any time one pool's to give out, one [`Frame`]'s, one port's, or a [`Stray`]: whoever
/// has it, whatever pool it is at home in, is the only one to reach its bytes.
pub unsafe trait Region: Send {
    /// First byte of chunk 0's data area.
    fn base(&self) -> NonNull<u8>;
    /// Bytes between the data areas of neighbouring chunks.
    fn stride(&self) -> usize;
    /// Usable bytes of a chunk's data area, at most `stride()`.
    fn capacity(&self) -> usize;
    /// Number of chunks.
    fn chunks(&self) -> usize;
}

/// Heap memory as a region: for memory ports, tests and benches.
struct Heap {
    memory: ManuallyDrop<Box<[u8]>>,
    base: NonNull<u8>,
    stride: usize,
}

// SAFETY: the pointer is to the heap allocation that `memory` owns alone; moving it between threads
// moves that ownership.
unsafe impl Send for Heap {}

impl Heap {
    fn new(chunks: usize, stride: usize) -> Self {
        let mut memory = ManuallyDrop::new(vec![0u8; chunks * stride].into_boxed_slice());
        let base = NonNull::new(memory.as_mut_ptr()).expect("a box is never null");
        Heap { memory, base, stride }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: dropped once, here; the pool that held the region checked that no frame is out.
        unsafe { ManuallyDrop::drop(&mut self.memory) }
    }
}

// SAFETY: `base` is the start of `memory`, which has `chunks * stride` bytes, is owned by this value
// and is never touched through `memory` itself.
unsafe impl Region for Heap {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn stride(&self) -> usize {
        self.stride
    }
    fn capacity(&self) -> usize {
        self.stride
    }
    fn chunks(&self) -> usize {
        self.memory.len() / self.stride
    }
}

/// Number of the first large buffer; chunks are numbered below.
const LARGE: u32 = 1 << 31;

/// A frame: the exclusive right to one chunk, and the length of what is in it.
///
/// States: free (in the pool) -> received or allocated -> pipeline -> queued -> handed to a port
/// -> completed -> free.
pub struct Frame {
    data: NonNull<u8>,
    index: u32,
    len: u16,
    capacity: u16,
}

// SAFETY: a frame is the only handle to its chunk, so sending it sends the bytes with it.
unsafe impl Send for Frame {}

impl Frame {
    /// The chunk's number in its pool, giving up the frame, which is not in a large buffer. The caller
    /// (a port that hands the chunk to the kernel) must bring it back through [`Pool::adopt`] or
    /// [`Pool::free_index`].
    #[inline]
    pub fn into_index(self) -> u32 {
        ManuallyDrop::new(self).index
    }

    /// The chunk's number in its pool.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether it is in a large buffer instead of a chunk.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.index >= LARGE
    }

    /// Bytes the chunk can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Sets the frame's length; bytes past the old length are whatever the chunk held before.
    ///
    /// # Panics
    /// If `len` is over [`Frame::capacity`].
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity as usize, "frame of {len} bytes in a chunk of {}", self.capacity);
        self.len = len as u16;
    }

    /// Asks for the first cache line, which holds the headers, ahead of its use.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_line(self.data.as_ptr());
    }

    /// Replaces the contents; `false` and unchanged if they do not fit.
    #[must_use]
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.capacity as usize {
            return false;
        }
        self.set_len(bytes.len());
        self.copy_from_slice(bytes);
        true
    }

    /// Opens `count` zero bytes at `at`, moving what follows; `false` and unchanged if the chunk has
    /// no room or `at` is past the end. Costs a move of the tail.
    #[must_use]
    pub fn insert(&mut self, at: usize, count: usize) -> bool {
        let len = self.len as usize;
        if at > len || len + count > self.capacity as usize {
            return false;
        }
        self.set_len(len + count);
        self.copy_within(at..len, at + count);
        self[at..at + count].fill(0);
        true
    }

    /// Takes `count` bytes at `at` out, closing the gap; `false` and unchanged if they are not there.
    #[must_use]
    pub fn remove(&mut self, at: usize, count: usize) -> bool {
        let len = self.len as usize;
        if at + count > len {
            return false;
        }
        self.copy_within(at + count..len, at);
        self.set_len(len - count);
        true
    }
}

impl Deref for Frame {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `data` is the start of a chunk of at least `capacity >= len` initialised bytes
        // which this frame owns alone; the pool keeps (or leaks) the region while frames are out.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only path to the chunk.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len as usize) }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(std::thread::panicking(), "frame {} was dropped instead of freed", self.index);
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame#{}[{}]", self.index, self.len)
    }
}

/// The frames of one worker: a region cut into chunks, large buffers for frames that do not fit one,
/// and the lists of those that are free.
///
/// Chunks are numbered from 0, large buffers from 2^31. A large buffer is plain memory that no
/// kernel knows: a port that takes or sends a frame in several chunks copies it from or to them, so
/// that the pipeline sees every frame in one piece.
///
/// Several pools may share a region ([`Pool::split`]), each with a part of its chunks: the workers of
/// one switch, which hand frames to each other. What a pool gets to free that is another's, it keeps as
/// [`Stray`]s to be brought home.
///
/// Invariant: every chunk is in the free list, owned by one [`Frame`], with a port
/// ([`Frame::into_index`]) or a [`Stray`]; `free_count() + out_count() = chunks()`. The same holds for
/// large buffers, but that no port keeps one.
pub struct Pool {
    // Options only so that `drop` can leak them.
    region: Option<Arc<SharedRegion>>,
    large_region: Option<Heap>,
    base: NonNull<u8>,
    stride: usize,
    capacity: u16,
    /// Chunks of the region.
    total: u32,
    /// This pool's first chunk, and how many it has.
    first: u32,
    chunks: u32,
    free: Vec<u32>,
    large_base: NonNull<u8>,
    large_size: u16,
    /// This pool's first large buffer, and how many it has.
    large_first: u32,
    large: u32,
    large_free: Vec<u32>,
    strays: Vec<Stray>,
    /// One flag a chunk or large buffer: set while it is out. Debug builds refuse a double free by it.
    #[cfg(debug_assertions)]
    out: Vec<bool>,
}

/// A chunk or large buffer that was freed in another pool than its own; to be taken home by
/// [`Pool::take_home`].
#[derive(Debug)]
pub struct Stray(u32);

/// A region that several pools have parts of.
struct SharedRegion(Box<dyn Region>);

// SAFETY: nothing is called through a shared reference: each pool copied the pointer when it was made,
// and reaches only the chunks that it owns or was handed.
unsafe impl Sync for SharedRegion {}

// SAFETY: `base` and `large_base` point into regions that the pool keeps; it reaches only chunks that are
// its own to give out, and moving it moves that right with it.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool over `region` with every chunk free, and no large buffers.
    ///
    /// # Panics
    /// As [`Pool::with_large`].
    pub fn new(region: Box<dyn Region>) -> Self {
        Pool::with_large(region, 0, 0)
    }

    /// A pool over `region`, and `large` buffers of `large_size` bytes beside it.
    ///
    /// # Panics
    /// With more than 2^31 chunks or buffers, or a capacity over 65,535 bytes.
    pub fn with_large(region: Box<dyn Region>, large: usize, large_size: usize) -> Self {
        Pool::split(region, 1, large, large_size).pop().expect("one part")
    }

    /// `parts` pools with equal shares of the chunks of `region`, and as many large buffers of
    /// `large_size` bytes each. What does not divide is left unused.
    ///
    /// # Panics
    /// As [`Pool::with_large`], and without parts.
    pub fn split(region: Box<dyn Region>, parts: usize, large: usize, large_size: usize) -> Vec<Self> {
        let below = |n: usize| u32::try_from(n).ok().filter(|n| *n <= LARGE).expect("at most 2^31 chunks");
        let (total, _, parts, large) = (below(region.chunks()), below(parts * large), parts as u32, large as u32);
        let chunks = total / parts;
        let region = Arc::new(SharedRegion(region));
        let part = |part: u32| {
            let heap = Heap::new(large as usize, large_size);
            let (first, large_first) = (part * chunks, LARGE + part * large);
            Pool {
                base: region.0.base(),
                stride: region.0.stride(),
                capacity: u16::try_from(region.0.capacity()).expect("chunks below 64 KiB"),
                total,
                first,
                chunks,
                free: (first..first + chunks).rev().collect(),
                large_base: heap.base,
                large_size: u16::try_from(large_size).expect("buffers below 64 KiB"),
                large_first,
                large,
                large_free: (large_first..large_first + large).rev().collect(),
                strays: Vec::new(),
                #[cfg(debug_assertions)]
                out: vec![false; (chunks + large) as usize],
                region: Some(region.clone()),
                large_region: Some(heap),
            }
        };
        (0..parts).map(part).collect()
    }

    /// Where a chunk or buffer of this pool is in `out`; `None` if it is another pool's.
    #[inline]
    fn slot(&self, index: u32) -> Option<usize> {
        let (small, large) = (index.wrapping_sub(self.first), index.wrapping_sub(self.large_first));
        match () {
            () if small < self.chunks => Some(small as usize),
            () if large < self.large => Some((self.chunks + large) as usize),
            () => None,
        }
    }

    /// Chunks and buffers of other pools that were freed here.
    pub fn strays(&mut self) -> &mut Vec<Stray> {
        &mut self.strays
    }

    /// The part of the region that a stray is at home in.
    pub fn home(&self, stray: &Stray) -> usize {
        match stray.0 {
            index if index < LARGE => (index / self.chunks) as usize,
            index => ((index - LARGE) / self.large) as usize,
        }
    }

    /// Takes a stray of its own back.
    ///
    /// # Panics
    /// If it is another pool's.
    pub fn take_home(&mut self, stray: Stray) {
        let slot = self.slot(stray.0).expect("a stray of this pool");
        self.put_back(slot, stray.0);
    }

    fn put_back(&mut self, slot: usize, index: u32) {
        #[cfg(debug_assertions)]
        {
            assert!(std::mem::replace(&mut self.out[slot], false), "chunk {index} freed twice");
        }
        match slot < self.chunks as usize {
            true => self.free.push(index),
            false => self.large_free.push(index),
        }
    }

    /// Gives a chunk or buffer back, which nobody owns any more.
    #[inline]
    fn settle(&mut self, index: u32) {
        match self.slot(index) {
            Some(slot) => self.put_back(slot, index),
            None => self.strays.push(Stray(index)),
        }
    }

    /// A pool of `chunks` chunks of `size` bytes on the heap.
    pub fn heap(chunks: usize, size: usize) -> Self {
        Pool::new(Box::new(Heap::new(chunks, size)))
    }

    /// A pool of chunks as of [`Pool::heap`] and `large` buffers of `large_size` bytes.
    pub fn heap_with_large(chunks: usize, size: usize, large: usize, large_size: usize) -> Self {
        Pool::with_large(Box::new(Heap::new(chunks, size)), large, large_size)
    }

    /// `parts` pools with equal shares of `chunks` chunks of `size` bytes on the heap.
    pub fn split_heap(chunks: usize, size: usize, parts: usize) -> Vec<Self> {
        Pool::split(Box::new(Heap::new(chunks, size)), parts, 0, 0)
    }

    /// Chunks in all.
    pub fn chunks(&self) -> usize {
        self.chunks as usize
    }

    /// Chunks that are free.
    #[inline]
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Chunks that are frames or with a port.
    #[inline]
    pub fn out_count(&self) -> usize {
        self.chunks() - self.free.len()
    }

    /// Bytes a frame in one chunk can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Large buffers in all.
    pub fn large(&self) -> usize {
        self.large as usize
    }

    /// Large buffers that are free.
    pub fn large_free_count(&self) -> usize {
        self.large_free.len()
    }

    /// How many are free of what `frame` is in, chunks or large buffers, and how many there are.
    #[inline]
    pub fn share(&self, frame: &Frame) -> (usize, usize) {
        match frame.is_large() {
            false => (self.free_count(), self.chunks()),
            true => (self.large_free_count(), self.large()),
        }
    }

    #[inline]
    fn frame(&self, index: u32, len: u16) -> Frame {
        // SAFETY: `index < total` (checked by every caller), so the offset stays inside the region.
        let data = unsafe { self.base.add(index as usize * self.stride) };
        Frame { data, index, len, capacity: self.capacity }
    }

    /// An empty frame in a large buffer, or `None` when all are out.
    pub fn alloc_large(&mut self) -> Option<Frame> {
        let index = self.large_free.pop()?;
        self.mark_out(index);
        let at = (index - self.large_first) as usize * self.large_size as usize;
        // SAFETY: the number comes from the list of large buffers, so the offset stays inside them.
        let data = unsafe { self.large_base.add(at) };
        Some(Frame { data, index, len: 0, capacity: self.large_size })
    }

    /// Notes that one of its own is out.
    #[inline]
    fn mark_out(&mut self, index: u32) {
        #[cfg(debug_assertions)]
        {
            let slot = self.slot(index).expect("its own");
            self.out[slot] = true;
        }
        let _ = index;
    }

    /// An empty frame, or `None` when all are out.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        let index = self.alloc_index()?;
        Some(self.frame(index, 0))
    }

    /// An empty frame with room for `len` bytes, in a large buffer if a chunk is too small; `None` when all
    /// are out or none has the room.
    pub fn alloc_for(&mut self, len: usize) -> Option<Frame> {
        match len {
            len if len <= self.capacity() => self.alloc(),
            len if len <= self.large_size as usize => self.alloc_large(),
            _ => None,
        }
    }

    /// A frame holding `bytes`, in a large buffer if a chunk is too small; `None` when all are out or
    /// `bytes` do not fit.
    pub fn alloc_with(&mut self, bytes: &[u8]) -> Option<Frame> {
        let mut frame = self.alloc_for(bytes.len())?;
        let fits = frame.fill(bytes);
        debug_assert!(fits);
        Some(frame)
    }

    /// Gives a frame back.
    ///
    /// # Panics
    /// If the frame is of another region.
    #[inline]
    pub fn free(&mut self, frame: Frame) {
        let offset = (frame.data.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize);
        // A large buffer of another part is somewhere else; which part it is of, its number tells.
        let ours = frame.is_large() || offset == frame.index as usize * self.stride;
        assert!(ours, "frame {} is of another pool", frame.index);
        // The frame was the chunk's only owner and ends here.
        let index = frame.into_index();
        self.settle(index);
    }

    /// Takes a free chunk out without making it a frame: for a port that lends it to the kernel.
    #[inline]
    pub fn alloc_index(&mut self) -> Option<u32> {
        let index = self.free.pop()?;
        self.mark_out(index);
        Some(index)
    }

    /// Gives a chunk back that left by [`Frame::into_index`] or [`Pool::alloc_index`].
    ///
    /// # Safety
    /// As for [`Pool::adopt`].
    ///
    /// # Panics
    /// If `index` is not a chunk; in debug builds, if the chunk is free already.
    #[inline]
    pub unsafe fn free_index(&mut self, index: u32) {
        assert!(index < self.total, "chunk {index} of {}", self.total);
        self.settle(index);
    }

    /// Makes a chunk that is out (and that no frame owns) a frame of `len` bytes again.
    ///
    /// # Safety
    /// The chunk must have left this pool, or another one over the same region, by [`Frame::into_index`] or
    /// [`Pool::alloc_index`], not have come back since, and be out of the kernel's hands: else two owners
    /// share its bytes.
    ///
    /// # Panics
    /// If `index` is not a chunk or `len` is over the capacity.
    #[inline]
    pub unsafe fn adopt(&mut self, index: u32, len: usize) -> Frame {
        assert!(index < self.total && len <= self.capacity as usize, "chunk {index}, {len} bytes");
        self.frame(index, len as u16)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Frames may outlive the pool in a panic: then the memory must outlive it too.
        if self.out_count() > 0 {
            std::mem::forget(self.region.take());
        }
        if self.large_free.len() < self.large as usize {
            std::mem::forget(self.large_region.take());
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} free of {}, {} B each)", self.free_count(), self.chunks, self.capacity)
    }
}

/// Asks for the cache line that `value` starts in, ahead of its use.
#[inline]
pub fn prefetch<T>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it neither faults nor changes memory, at any address.
        unsafe { _mm_prefetch(at.cast::<i8>(), _MM_HINT_T0) }
    }
}

#[cfg(test)]
mod tests;
