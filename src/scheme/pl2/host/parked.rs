//! Frames that wait, one queue for each connection, all from one store of bounded size; and how they share slots.

use crate::wire::ethernet::on_wire;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Parked<T> {
    /// `None` if the place is unused.
    frame: Option<T>,
    len: u32,
    /// The first frame of a slot.
    opens: bool,
    next: u32,
}

/// The queue of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    pub frames: u32,
    /// Slots that they fill.
    pub slots: u32,
    pub bytes: u64,
    /// Bytes of the wire in the last slot.
    fill: u32,
}

impl Queue {
    pub const EMPTY: Queue = Queue { first: NONE, last: NONE, frames: 0, slots: 0, bytes: 0, fill: 0 };
}

/// A frame that is taken out, and where it stands.
#[derive(Debug)]
pub(super) struct Out<T> {
    pub frame: T,
    pub len: u32,
    /// The last frame of its slot.
    pub closes: bool,
}

/// The store of all queues.
#[derive(Debug)]
pub(super) struct Lot<T> {
    places: Vec<Parked<T>>,
    unused: Vec<u32>,
    limit: usize,
    slot_bytes: u32,
}

impl<T> Lot<T> {
    /// Room for `limit` frames, taken when it is first needed; slots of `slot_bytes` on the wire.
    pub fn new(limit: u32, slot_bytes: u32) -> Self {
        Lot { places: Vec::new(), unused: Vec::new(), limit: limit as usize, slot_bytes }
    }

    /// Frames that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len() - self.unused.len()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Queues a frame of `len` bytes, for which there is room.
    #[inline]
    pub fn push(&mut self, queue: &mut Queue, frame: T, len: u32) {
        let wire = on_wire(len as usize) as u32;
        let opens = queue.frames == 0 || queue.fill + wire > self.slot_bytes;
        queue.fill = if opens { wire } else { queue.fill + wire };
        queue.slots += u32::from(opens);
        queue.frames += 1;
        queue.bytes += u64::from(len);
        let new = Parked { frame: Some(frame), len, opens, next: NONE };
        let at = if let Some(at) = self.unused.pop() {
            self.places[at as usize] = new;
            at
        } else {
            self.places.push(new);
            // What is given back must find room without asking for any.
            self.unused.reserve(self.places.len());
            (self.places.len() - 1) as u32
        };
        match queue.last {
            NONE => queue.first = at,
            last => self.places[last as usize].next = at,
        }
        queue.last = at;
    }

    /// Takes the first frame out.
    #[inline]
    pub fn pop(&mut self, queue: &mut Queue) -> Option<Out<T>> {
        let at = queue.first;
        let place = self.places.get_mut(at as usize)?;
        let (frame, len, opens, next) = (place.frame.take()?, place.len, place.opens, place.next);
        self.unused.push(at);
        queue.first = next;
        queue.frames -= 1;
        queue.bytes -= u64::from(len);
        queue.slots -= u32::from(opens);
        let closes = match self.places.get_mut(next as usize) {
            None => {
                queue.last = NONE;
                true
            }
            // The rest of a slot, while the slot is still that of the frames at the front.
            Some(next) if !next.opens => {
                next.opens = true;
                queue.slots += 1;
                false
            }
            Some(_) => true,
        };
        Some(Out { frame, len, closes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of 300 bytes on the wire; a frame of 76 takes 100, one of 276 all.
    #[test]
    fn small_frames_share_a_slot_and_the_last_of_each_closes_it() {
        let mut lot = Lot::new(10, 300);
        let mut queue = Queue::EMPTY;
        for (number, len) in [76, 76, 76, 76, 276, 10].into_iter().enumerate() {
            lot.push(&mut queue, number, len);
        }
        // 0 1 2 | 3 | 4 | 5
        assert_eq!((queue.slots, queue.frames, queue.bytes), (4, 6, 590));
        let mut out = |_| lot.pop(&mut queue).map(|out| (out.frame, out.closes));
        let all: Vec<_> = (0..7).map_while(&mut out).collect();
        assert_eq!(all, [(0, false), (1, false), (2, true), (3, true), (4, true), (5, true)]);
        assert_eq!((queue.slots, queue.frames, queue.bytes, lot.len()), (0, 0, 0, 0));
    }
}
