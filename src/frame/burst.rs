use super::Frame;

/// Frames handled per pass: enough to hide a cache miss behind the others' work, few enough that
/// the burst's metadata stays in L1.
pub const BURST: usize = 64;

/// Frames on their way between a port and a switch, in arrival order. Bounded by the caller; it
/// never reallocates as long as no more than [`BURST`] frames are in it.
#[derive(Debug)]
pub struct Burst(Vec<Frame>);

impl Default for Burst {
    fn default() -> Self {
        Burst(Vec::with_capacity(BURST))
    }
}

impl Burst {
    /// An empty burst with room for [`BURST`] frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many more frames fit.
    #[inline]
    pub fn room(&self) -> usize {
        BURST.saturating_sub(self.0.len())
    }

    /// Frames in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no frame is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a frame at the end.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        debug_assert!(self.0.len() < BURST, "burst overfilled");
        self.0.push(frame);
    }

    /// Takes every frame out, first one first.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, Frame> {
        self.0.drain(..)
    }

    /// The frames, first one first.
    #[inline]
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }

    /// The frames, for rewriting.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [Frame] {
        &mut self.0
    }
}
