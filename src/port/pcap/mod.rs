//! A port on capture files: what one file holds comes in, what the switch sends goes into another.
//!
//! Either side is optional: without a capture nothing comes, without a recorder what is sent ends here. Frames
//! are due at once, or at their recorded time after the first ([`Pace`]). The port reads and writes files
//! when it is asked for frames, so it may wait for a disk: it is for replay and tests. No chunk stays with it.

mod read;
mod write;

use std::io;

use serde::{Deserialize, Serialize};

pub use read::{Capture, MAX_RECORD, Record};
pub use write::Recorder;

use super::{DeviceStats, Port};
use crate::frame::{BURST, Burst, Pool};
use crate::time::Instant;

/// What is wrong with a capture file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It can't be opened.
    #[error("{name}: {error}: name a capture file that can be read")]
    Open {
        /// The file.
        name: String,
        /// The system's words.
        error: io::Error,
    },
    /// It can't be made.
    #[error("{name}: {error}: name a file in a directory that can be written")]
    Create {
        /// The file.
        name: String,
        /// The system's words.
        error: io::Error,
    },
    /// Reading failed.
    #[error("{name}: {error}: the frames before this were taken; copy the file to a sound disk")]
    Read {
        /// The file.
        name: String,
        /// The system's words.
        error: io::Error,
    },
    /// Writing failed.
    #[error("{name}: {error}: its last frames are missing; make room and record again")]
    Write {
        /// The file.
        name: String,
        /// The system's words.
        error: io::Error,
    },
    /// Another kind of file.
    #[error("{name} is neither pcap nor pcapng: save it as one of them")]
    NotACapture {
        /// The file.
        name: String,
    },
    /// Another link layer.
    #[error(
        "{name} holds frames of link type {link:#x}, not Ethernet (0x1) without FCS: capture on an Ethernet interface"
    )]
    LinkType {
        /// The file.
        name: String,
        /// The link type field of its header.
        link: u32,
    },
    /// It ends too early.
    #[error("{name} is cut off inside what starts at byte {at}: the frames before it were taken; copy the file anew")]
    CutOff {
        /// The file.
        name: String,
        /// Where the incomplete record or block starts.
        at: u64,
    },
    /// It holds what can't be.
    #[error("{name}, byte {at}: {what}: the frames before it were taken; save the capture anew")]
    Damaged {
        /// The file.
        name: String,
        /// Where the bad record or block starts.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
}

impl CaptureError {
    /// `other` in place of [`CaptureError::CutOff`].
    fn if_cut_off(self, other: impl FnOnce() -> CaptureError) -> CaptureError {
        if matches!(self, CaptureError::CutOff { .. }) { other() } else { self }
    }
}

/// When the frames of a capture are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// The first one when the time is first told, the others as long after it as they were captured; one that
    /// is recorded earlier than the one before it comes together with that one.
    #[default]
    Recorded,
    /// As soon as the switch takes them.
    Asap,
}

/// What became of the frames on either side. Of the capture's frames read so far,
/// `received + truncated + too_long + other_link` and the one that is next.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcapCounts {
    /// Frames passed to the switch.
    pub received: u64,
    /// Frames left out because the capture holds only their beginning.
    pub truncated: u64,
    /// Frames left out because they are longer than a chunk.
    pub too_long: u64,
    /// Frames left out because they are of an interface that is not Ethernet, or that keeps the FCS.
    pub other_link: u64,
    /// Frames the switch sent that were recorded.
    pub recorded: u64,
    /// Frames the switch sent that were not: there is no recorder, or it failed.
    pub unrecorded: u64,
}

/// A capture that is replayed.
#[derive(Debug)]
struct Source {
    capture: Capture,
    pace: Pace,
    /// When the replay started, and the recorded time of its first frame.
    start: Option<(Instant, u64)>,
    /// When the capture's present record is due; `None` before the start and after the end.
    due: Option<Instant>,
}

/// A port on up to two capture files.
#[derive(Debug)]
pub struct PcapPort {
    source: Option<Source>,
    recorder: Option<Recorder>,
    now: Instant,
    counts: PcapCounts,
    read_error: Option<CaptureError>,
    write_error: Option<CaptureError>,
}

impl PcapPort {
    /// Receives what `capture` holds, and records what is sent.
    pub fn new(capture: Option<(Capture, Pace)>, recorder: Option<Recorder>) -> PcapPort {
        PcapPort {
            source: capture.map(|(capture, pace)| Source { capture, pace, start: None, due: None }),
            recorder,
            now: Instant::ZERO,
            counts: PcapCounts::default(),
            read_error: None,
            write_error: None,
        }
    }

    /// Tells the time; an earlier one than before changes nothing. The first time starts the replay.
    pub fn at(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.source.as_ref().is_some_and(|source| source.start.is_none()) {
            self.advance();
        }
    }

    /// When the next frame is due: in the past if it waits for room or a chunk, `None` if the time was never
    /// told or no frame is left.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.source.as_ref()?.due
    }

    /// What became of the frames so far.
    pub fn counts(&self) -> PcapCounts {
        let other_link = self.source.as_ref().map_or(0, |source| source.capture.other_link());
        PcapCounts { other_link, ..self.counts }
    }

    /// What ended the replay before the capture's end.
    pub fn read_error(&self) -> Option<&CaptureError> {
        self.read_error.as_ref()
    }

    /// Ends the replay and writes out what was recorded.
    ///
    /// # Errors
    /// What went wrong first on the way: with the capture, or else with the recording.
    pub fn finish(mut self) -> Result<PcapCounts, CaptureError> {
        let counts = self.counts();
        let flushed = self.recorder.as_mut().map_or(Ok(()), Recorder::flush);
        match self.read_error.or(self.write_error) {
            Some(error) => Err(error),
            None => flushed.map(|()| counts),
        }
    }

    /// Goes to the capture's next whole frame.
    fn advance(&mut self) {
        let Some(source) = &mut self.source else { return };
        source.due = loop {
            match source.capture.advance() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => {
                    self.read_error = Some(error);
                    break None;
                }
            }
            let record = source.capture.record();
            let (start, first) = *source.start.get_or_insert((self.now, record.time));
            if record.bytes.len() < record.original_len {
                self.counts.truncated += 1;
                continue;
            }
            break Some(match source.pace {
                Pace::Asap => start,
                Pace::Recorded => start + record.time.saturating_sub(first),
            });
        };
        source.start.get_or_insert((self.now, 0));
    }
}

impl Port for PcapPort {
    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) {
        self.at(self.now);
        while let Some(source) = &self.source
            && source.due.is_some_and(|due| due <= self.now)
            && burst.room() > 0
        {
            let bytes = source.capture.record().bytes;
            match pool.alloc_with(bytes) {
                Some(frame) => {
                    burst.push(frame);
                    self.counts.received += 1;
                }
                None if bytes.len() > pool.capacity() => self.counts.too_long += 1,
                None => break,
            }
            self.advance();
        }
    }

    fn tx_room(&mut self, _: &mut Pool) -> usize {
        BURST
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) {
        for frame in burst.drain() {
            let recorder = self.recorder.as_mut().filter(|_| self.write_error.is_none());
            match recorder.map(|recorder| recorder.write(self.now, &frame)) {
                Some(Ok(())) => self.counts.recorded += 1,
                Some(Err(error)) => {
                    self.counts.unrecorded += 1;
                    self.write_error = Some(error);
                }
                None => self.counts.unrecorded += 1,
            }
            pool.free(frame);
        }
    }

    /// # Errors
    /// What the recording failed of.
    fn kick(&mut self) -> io::Result<()> {
        self.write_error.as_ref().map_or(Ok(()), |error| Err(io::Error::other(error.to_string())))
    }

    fn tx_pending(&mut self) -> usize {
        0
    }

    fn held(&self) -> usize {
        0
    }

    fn stats(&self) -> DeviceStats {
        let PcapCounts { truncated, too_long, other_link, .. } = self.counts();
        DeviceStats { rx_dropped: truncated + too_long + other_link, ..DeviceStats::default() }
    }
}
