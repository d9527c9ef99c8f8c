//! A port in memory: what is put into its receive queue comes in, what the switch sends piles up in
//! its transmit queue. Needs no privileges and no time; the oracle for AF_XDP ports.

use std::collections::VecDeque;
use std::io;

use crate::frame::{Burst, Frame, Pool};

use super::Port;

/// Two bounded queues.
#[derive(Debug)]
pub struct MemPort {
    rx: VecDeque<Frame>,
    tx: VecDeque<Frame>,
    capacity: usize,
}

impl MemPort {
    /// A port whose queues hold `capacity` frames each.
    pub fn new(capacity: usize) -> Self {
        MemPort { rx: VecDeque::with_capacity(capacity), tx: VecDeque::with_capacity(capacity), capacity }
    }

    /// Lets `frame` arrive; hands it back if the receive queue is full.
    ///
    /// # Errors
    /// The frame.
    pub fn inject(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.rx.len() == self.capacity {
            return Err(frame);
        }
        self.rx.push_back(frame);
        Ok(())
    }

    /// The oldest frame that was sent.
    pub fn sent(&mut self) -> Option<Frame> {
        self.tx.pop_front()
    }

    /// Gives back every frame in either queue.
    pub fn clear(&mut self, pool: &mut Pool) {
        for frame in self.rx.drain(..).chain(self.tx.drain(..)) {
            pool.free(frame);
        }
    }
}

impl Port for MemPort {
    fn rx_burst(&mut self, _: &mut Pool, burst: &mut Burst) {
        for frame in self.rx.drain(..burst.room().min(self.rx.len())) {
            burst.push(frame);
        }
    }

    fn tx_room(&mut self, _: &mut Pool) -> usize {
        self.capacity - self.tx.len()
    }

    fn tx_burst(&mut self, _: &mut Pool, burst: &mut Burst) {
        self.tx.extend(burst.drain());
    }

    fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn tx_pending(&mut self) -> usize {
        0
    }

    fn held(&self) -> usize {
        self.rx.len() + self.tx.len()
    }
}
