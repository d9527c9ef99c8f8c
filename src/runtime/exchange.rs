//! What the pipes of one switch hand to each other, over bounded rings from each worker to each other.
//!
//! A worker puts all that one port's turn has for another pipe into one parcel, so that the cost of a ring is
//! a burst's, not a packet's: packets for queues that are there, notes, and chunks that are at home there. A
//! ring has one sender and one receiver, so packets of a flow, which all come in by one queue, keep their
//! order.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering, fence};

use crossbeam::queue::ArrayQueue;

use crate::dataplane::{Common, Dataplane};
use crate::fabric::note::Note;
use crate::frame::{Pool, Stray};
use crate::pisa::{Handed, Pipe};
use crate::time::Instant;

/// Ends the sleep of a worker that has something to take; called after it was put there.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Parcels on their way from one pipe to another: few, for no queue shall hide here.
const PARCELS: usize = 8;
/// Packets in a parcel; more stay with the sender's switch, which drops what is too much and counts it.
const MAX_PACKETS: usize = 128;
/// Notes in a parcel that waits for room in its ring, vital ones not counted.
const MAX_NOTES: usize = 1024;

#[derive(Default)]
struct Parcel {
    packets: Vec<Handed>,
    notes: Vec<Note>,
    strays: Vec<Stray>,
}

impl Parcel {
    fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.notes.is_empty() && self.strays.is_empty()
    }
}

/// From one pipe to another.
struct Lane {
    parcels: ArrayQueue<Parcel>,
    /// Emptied parcels on their way back, so that none need be allocated.
    spare: ArrayQueue<Parcel>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Only a worker that panicked leaves packets here; their memory outlives them (`Pool`).
        while let Some(parcel) = self.parcels.pop() {
            mem::forget(parcel.packets);
        }
    }
}

struct Peer {
    to: Arc<Lane>,
    from: Arc<Lane>,
    wake: Wake,
    /// What waits to be sent.
    waiting: Parcel,
}

/// One pipe's ends of all rings.
pub struct Exchange {
    pipe: Pipe,
    /// By pipe; none where it is this one.
    peers: Vec<Option<Peer>>,
    notes: Vec<Note>,
    handing: Vec<Handed>,
    strays: Vec<Stray>,
    shared: Arc<Shared>,
    common: Common,
}

/// What the pipes of a switch count together, at the end.
#[derive(Default)]
struct Shared {
    /// Pipes that hand over no more packets.
    ended: AtomicUsize,
    /// Pipes whose books are closed.
    settled: AtomicUsize,
    /// Chunks that are missing in some pools, less those that are too many in others.
    chunks: AtomicI64,
    /// Frames handed over, less those accepted.
    frames: AtomicI64,
}

impl Exchange {
    /// The exchanges of a switch with as many pipes as there are ways to wake one's worker.
    pub fn mesh(wakes: &[Wake]) -> Vec<Exchange> {
        let count = wakes.len();
        let lane = || Arc::new(Lane { parcels: ArrayQueue::new(PARCELS), spare: ArrayQueue::new(PARCELS) });
        let lanes: Vec<Vec<_>> = (0..count).map(|_| (0..count).map(|_| lane()).collect()).collect();
        let (shared, common) = (Arc::new(Shared::default()), Common::default());
        let exchange = |index: usize| {
            let peer = |other: usize| Peer {
                to: lanes[index][other].clone(),
                from: lanes[other][index].clone(),
                wake: wakes[other].clone(),
                waiting: Parcel::default(),
            };
            let peers = (0..count).map(|other| (other != index).then(|| peer(other))).collect();
            let pipe = Pipe { index: index as u8, count: count as u8 };
            let (shared, common) = (shared.clone(), common.clone());
            Exchange { pipe, peers, notes: Vec::new(), handing: Vec::new(), strays: Vec::new(), shared, common }
        };
        (0..count).map(exchange).collect()
    }

    /// Which pipe this is of.
    pub fn pipe(&self) -> Pipe {
        self.pipe
    }

    /// What its pipe has in common with the others.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Whether something has come, or waits to be sent.
    pub fn has_mail(&self) -> bool {
        self.peers.iter().flatten().any(|p| !p.from.parcels.is_empty() || !p.waiting.is_empty())
    }

    /// Whether the switch has other pipes.
    pub fn is_used(&self) -> bool {
        self.pipe.count > 1
    }

    /// Takes what has come for this pipe: before its queues are served. How many packets came.
    pub fn receive(&mut self, now: Instant, plane: &mut dyn Dataplane, pool: &mut Pool) -> usize {
        let mut moved = 0;
        for peer in self.peers.iter().flatten() {
            // No more than were there: a peer that is faster must not keep this one from its ports.
            for _ in 0..peer.from.parcels.len() {
                let Some(mut parcel) = peer.from.parcels.pop() else { break };
                moved += parcel.packets.len();
                parcel.strays.drain(..).for_each(|stray| pool.take_home(stray));
                parcel.notes.drain(..).for_each(|note| plane.note(now, pool, note));
                parcel.packets.drain(..).for_each(|handed| plane.accept(now, pool, handed));
                let _ = peer.from.spare.push(parcel);
            }
        }
        moved
    }

    /// Sends what this pipe has for others: after a port's turn that handed much over, and at the end of a pass.
    pub fn send(&mut self, plane: &mut dyn Dataplane, pool: &mut Pool) {
        plane.take_notes(&mut self.notes);
        for note in self.notes.drain(..) {
            self.peers.iter_mut().flatten().for_each(|peer| note.clone().join(&mut peer.waiting.notes, MAX_NOTES));
        }
        mem::swap(pool.strays(), &mut self.strays);
        for stray in self.strays.drain(..) {
            if let Some(peer) = &mut self.peers[pool.home(&stray)] {
                peer.waiting.strays.push(stray);
            }
        }
        let handing = plane.handing();
        if !handing.is_empty() {
            mem::swap(handing, &mut self.handing);
            for handed in self.handing.drain(..) {
                match &mut self.peers[self.pipe.owner(handed.to) as usize] {
                    Some(peer) if peer.waiting.packets.len() < MAX_PACKETS => peer.waiting.packets.push(handed),
                    _ => handing.push(handed),
                }
            }
        }
        for peer in self.peers.iter_mut().flatten().filter(|p| !p.waiting.is_empty()) {
            let next = peer.to.spare.pop().unwrap_or_default();
            match peer.to.parcels.push(mem::replace(&mut peer.waiting, next)) {
                Ok(()) => {
                    // Pairs with the fence of a worker that is about to sleep: either it sees the parcel, or
                    // this sees that it sleeps.
                    fence(Ordering::SeqCst);
                    (peer.wake)();
                }
                Err(parcel) => peer.waiting = parcel,
            }
        }
    }

    /// This pipe hands over no more packets. When all have said so, one more [`Exchange::collect`] leaves
    /// nothing under way.
    pub fn end(&self) {
        self.shared.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether every pipe has said [`Exchange::end`].
    pub fn all_ended(&self) -> bool {
        self.shared.ended.load(Ordering::SeqCst) >= usize::from(self.pipe.count)
    }

    /// Closes this pipe's books: chunks that it misses (or has too many), and frames that it handed over, less
    /// those it accepted. The last pipe to do so gets the sums, which are to be zero.
    pub fn settle(&self, chunks: i64, frames: i64) -> Option<(i64, i64)> {
        let Shared { settled, chunks: all_chunks, frames: all_frames, .. } = &*self.shared;
        all_chunks.fetch_add(chunks, Ordering::SeqCst);
        all_frames.fetch_add(frames, Ordering::SeqCst);
        let last = settled.fetch_add(1, Ordering::SeqCst) + 1 == usize::from(self.pipe.count);
        last.then(|| (all_chunks.load(Ordering::SeqCst), all_frames.load(Ordering::SeqCst)))
    }

    /// Takes what has come and what could not be sent, at the end: the switch drops it.
    pub fn collect(&mut self, now: Instant, plane: &mut dyn Dataplane, pool: &mut Pool) {
        self.receive(now, plane, pool);
        for peer in self.peers.iter_mut().flatten() {
            peer.waiting.notes.clear();
            plane.handing().append(&mut peer.waiting.packets);
        }
    }
}
