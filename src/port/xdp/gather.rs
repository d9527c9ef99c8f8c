use crate::frame::{Frame, Pool};

/// A frame that the kernel hands over in several chunks (XDP multi-buffer), put together in a large
/// buffer, so that the pipeline sees it in one piece. It may stretch over several bursts.
#[derive(Debug, Default)]
pub(super) struct Gather {
    state: State,
    skipped: u64,
}

#[derive(Debug, Default)]
enum State {
    /// No frame is half received.
    #[default]
    Idle,
    /// The chunks so far.
    Copying(Frame),
    /// The frame fits no large buffer, or there is none: what is left of it is thrown away.
    Skipping,
}

impl Gather {
    /// Whether no frame is half received: then a chunk that is not continued is a frame.
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Takes the next chunk, which is continued in another if `more`. Returns the frame when it is
    /// whole.
    pub fn add(&mut self, pool: &mut Pool, part: Frame, more: bool) -> Option<Frame> {
        let state = match std::mem::take(&mut self.state) {
            State::Idle => pool.alloc_large().map_or(State::Skipping, State::Copying),
            state => state,
        };
        let state = match state {
            State::Copying(frame) if frame.len() + part.len() > frame.capacity() => {
                pool.free(frame);
                State::Skipping
            }
            State::Copying(mut frame) => {
                let len = frame.len();
                frame.set_len(len + part.len());
                frame[len..].copy_from_slice(&part);
                State::Copying(frame)
            }
            state => state,
        };
        pool.free(part);
        match state {
            state if more => {
                self.state = state;
                None
            }
            State::Copying(frame) => Some(frame),
            _ => {
                self.skipped += 1;
                None
            }
        }
    }

    /// Frames that were thrown away.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Large buffers in use.
    pub fn held(&self) -> usize {
        usize::from(matches!(self.state, State::Copying(_)))
    }

    /// Gives up what is half received.
    pub fn clear(&mut self, pool: &mut Pool) {
        if let State::Copying(frame) = std::mem::take(&mut self.state) {
            pool.free(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands `parts` over as one frame's chunks.
    fn gather(gather: &mut Gather, pool: &mut Pool, parts: &[&[u8]]) -> Option<Frame> {
        let mut whole = None;
        for (i, part) in parts.iter().enumerate() {
            assert!(whole.is_none());
            let frame = pool.alloc_with(part).unwrap();
            whole = gather.add(pool, frame, i + 1 < parts.len());
        }
        whole
    }

    #[test]
    fn a_frame_in_chunks_comes_out_whole_and_what_is_too_long_or_finds_no_buffer_is_counted() {
        let mut pool = Pool::heap_with_large(8, 4, 1, 10);
        let mut g = Gather::default();
        let whole = gather(&mut g, &mut pool, &[b"abcd", b"efgh", b"ij"]).unwrap();
        assert_eq!(&whole[..], b"abcdefghij");
        assert_eq!(pool.free_count(), 8, "the chunks are free again");

        // The only buffer is out.
        assert!(gather(&mut g, &mut pool, &[b"abcd", b"e"]).is_none());
        assert_eq!((g.skipped(), g.is_idle()), (1, true));
        pool.free(whole);

        assert!(gather(&mut g, &mut pool, &[b"abcd", b"efgh", b"ijk", b"l"]).is_none());
        assert_eq!((g.skipped(), g.is_idle()), (2, true));
        assert_eq!(pool.large_free_count(), 1);

        // Half received when the port is closed.
        let part = pool.alloc_with(b"abcd").unwrap();
        assert!(g.add(&mut pool, part, true).is_none());
        assert_eq!((g.held(), pool.large_free_count()), (1, 0));
        g.clear(&mut pool);
        assert_eq!((g.held(), pool.large_free_count(), pool.free_count()), (0, 1, 8));
    }
}
