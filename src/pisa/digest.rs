use std::collections::VecDeque;

use serde::Serialize;

/// Digests that wait for the control plane: more are lost.
pub const DIGESTS: usize = 1024;

/// How many digests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DigestCounts {
    /// Taken by the control plane, or waiting for it.
    pub sent: u64,
    /// Lost because [`DIGESTS`] waited.
    pub lost: u64,
}

/// The bounded channel from the egress stage to the control plane.
#[derive(Debug)]
pub(super) struct Digests<D> {
    waiting: VecDeque<D>,
    counts: DigestCounts,
}

impl<D> Digests<D> {
    pub fn new() -> Self {
        // A program without digests takes no memory for them.
        let room = if size_of::<D>() == 0 { 0 } else { DIGESTS };
        Digests { waiting: VecDeque::with_capacity(room), counts: DigestCounts::default() }
    }

    #[inline]
    pub fn push(&mut self, digest: D) -> bool {
        let fits = self.waiting.len() < DIGESTS;
        if fits {
            self.counts.sent += 1;
            self.waiting.push_back(digest);
        } else {
            self.counts.lost += 1;
        }
        fits
    }

    #[inline]
    pub fn pop(&mut self) -> Option<D> {
        self.waiting.pop_front()
    }

    pub fn counts(&self) -> DigestCounts {
        self.counts
    }
}
