use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::CaptureError;
use crate::time::{Instant, SECONDS};

/// What a pcap file with nanoseconds starts with, and the longest frame it may hold.
const MAGIC: u32 = 0xa1b2_3c4d;
const SNAP_LEN: u32 = 1 << 18;
const LINK_ETHERNET: u32 = 1;

/// A capture file that is written: pcap with nanoseconds, little endian (draft-ietf-opsawg-pcap).
pub struct Recorder {
    sink: BufWriter<Box<dyn Write + Send>>,
    name: String,
    epoch: u64,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Makes a file, or empties the one that is there. `epoch` is what [`Instant::ZERO`] is in nanoseconds
    /// since 1970.
    ///
    /// # Errors
    /// It can't be made or written.
    pub fn create(path: &Path, epoch: u64) -> Result<Recorder, CaptureError> {
        let name = path.display().to_string();
        match File::create(path) {
            Ok(file) => Recorder::new(Box::new(file), &name, epoch),
            Err(error) => Err(CaptureError::Create { name, error }),
        }
    }

    /// Writes to `sink`; `name` is what errors call it.
    ///
    /// # Errors
    /// It can't be written.
    pub fn new(sink: Box<dyn Write + Send>, name: &str, epoch: u64) -> Result<Recorder, CaptureError> {
        let mut recorder = Recorder { sink: BufWriter::new(sink), name: name.into(), epoch };
        let mut header = [0; 24];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..6].copy_from_slice(&2u16.to_le_bytes()); // version 2.4
        header[6..8].copy_from_slice(&4u16.to_le_bytes());
        header[16..20].copy_from_slice(&SNAP_LEN.to_le_bytes());
        header[20..].copy_from_slice(&LINK_ETHERNET.to_le_bytes());
        let written = recorder.sink.write_all(&header);
        recorder.named(written)?;
        Ok(recorder)
    }

    /// Writes one frame that left at `now`. Times past the year 2106 are written as its last second.
    ///
    /// # Errors
    /// The sink's; what was written before may be incomplete.
    pub fn write(&mut self, now: Instant, frame: &[u8]) -> Result<(), CaptureError> {
        let time = now + self.epoch;
        let seconds = u32::try_from(time.0 / SECONDS).unwrap_or(u32::MAX);
        let len = frame.len() as u32; // chunks are below 64 KiB
        let mut header = [0; 16];
        for (place, word) in header.chunks_mut(4).zip([seconds, (time.0 % SECONDS) as u32, len, len]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let written = self.sink.write_all(&header).and_then(|()| self.sink.write_all(frame));
        self.named(written)
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// The sink's.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        let flushed = self.sink.flush();
        self.named(flushed)
    }

    fn named(&self, result: io::Result<()>) -> Result<(), CaptureError> {
        result.map_err(|error| CaptureError::Write { name: self.name.clone(), error })
    }
}
