use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use pcap_parser::nom;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    Block, EPB_MAGIC, IDB_MAGIC, InterfaceDescriptionBlock, Linktype, OptionCode, SHB_MAGIC, SPB_MAGIC, parse_block_be,
    parse_block_le, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header,
};

use super::CaptureError;

/// Longest record or block with a frame in it, in bytes: the longest frame that captures hold (262,144)
/// with room for its options. It bounds the memory of a [`Capture`].
pub const MAX_RECORD: usize = 1 << 19;
/// Most interfaces of one pcapng section.
const MAX_INTERFACES: usize = 1 << 16;
/// Bytes of a pcap file's header.
const FILE_HEADER: usize = 24;
/// Bytes of a pcap record's header.
const RECORD_HEADER: usize = 16;
/// Bytes of a pcapng block's type and length, and the length again at its end: the shortest block.
const MIN_BLOCK: usize = 12;
/// What says which end comes first in a pcapng section.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Option of an interface: bytes of FCS that its frames keep (draft-ietf-opsawg-pcapng, section 4.2).
const IF_FCSLEN: OptionCode = OptionCode(13);
const NANOS: i128 = 1_000_000_000;

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was captured, in nanoseconds since the epoch; 0 for times before it.
    pub time: u64,
    /// Its bytes, without FCS; fewer than `original_len` if the capture cut it short.
    pub bytes: &'a [u8],
    /// Its length on the wire, in bytes.
    pub original_len: usize,
}

/// A pcapng interface, as far as its frames depend on it.
#[derive(Clone, Copy, Debug)]
struct Interface {
    ethernet: bool,
    /// Longest captured frame; 0 for no limit.
    snap_len: usize,
    /// As `if_tsresol` has it: the negative exponent of 10, or of 2 if the highest bit is set.
    resolution: u8,
    /// Seconds to add to every timestamp.
    offset: i64,
}

impl Interface {
    /// By a description block in a big-endian section or another.
    fn of(block: &InterfaceDescriptionBlock<'_>, big: bool) -> Interface {
        let option = |code| block.options.iter().find(|o| o.code == code).map(|o| &*o.value);
        let offset = option(OptionCode::IfTsoffset).and_then(|value| value.first_chunk::<8>());
        let fcs = option(IF_FCSLEN).and_then(<[u8]>::first).is_some_and(|len| *len > 0);
        Interface {
            ethernet: block.linktype == Linktype::ETHERNET && !fcs,
            snap_len: block.snaplen as usize,
            resolution: block.if_tsresol,
            offset: offset.map_or(0, |b| if big { i64::from_be_bytes(*b) } else { i64::from_le_bytes(*b) }),
        }
    }

    /// Nanoseconds since the epoch of a timestamp in this interface's units, as far as 64 bits reach.
    fn time(&self, ticks: u64) -> u64 {
        let ticks = i128::from(ticks) * NANOS;
        let exponent = u32::from(self.resolution & 0x7f);
        let ns = match self.resolution & 0x80 {
            0 => 10i128.checked_pow(exponent).map_or(0, |unit| ticks / unit),
            _ => ticks >> exponent.min(126),
        };
        (ns + i128::from(self.offset) * NANOS).clamp(0, u64::MAX.into()) as u64
    }
}

#[derive(Debug)]
enum Format {
    Pcap { big: bool, nanos: bool },
    PcapNg { big: bool, interfaces: Vec<Interface> },
}

/// The frame that was found last: where it lies in the buffer.
#[derive(Debug, Default)]
struct Found {
    time: u64,
    bytes: Range<usize>,
    original_len: usize,
}

/// A capture file that is read from front to end: pcap in either byte order, with microseconds or
/// nanoseconds (draft-ietf-opsawg-pcap), or pcapng (draft-ietf-opsawg-pcapng). Takes [`MAX_RECORD`] bytes of
/// memory, however long the file.
pub struct Capture {
    source: Box<dyn Read + Send>,
    name: String,
    buffer: Box<[u8]>,
    /// What of the buffer is read and not yet used.
    unused: Range<usize>,
    /// Place in the file of the first unused byte.
    at: u64,
    format: Format,
    found: Found,
    /// Frames of interfaces that are not Ethernet, or that keep the FCS.
    other_link: u64,
    ended: bool,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("name", &self.name).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Capture {
    /// Opens a file.
    ///
    /// # Errors
    /// It can't be opened, or as [`Capture::new`].
    pub fn open(path: &Path) -> Result<Capture, CaptureError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Capture::new(Box::new(file), &name),
            Err(error) => Err(CaptureError::Open { name, error }),
        }
    }

    /// Reads from `source`; `name` is what errors call it.
    ///
    /// # Errors
    /// It is not a capture, or one of another link layer than Ethernet.
    pub fn new(source: Box<dyn Read + Send>, name: &str) -> Result<Capture, CaptureError> {
        let format = Format::PcapNg { big: false, interfaces: vec![] };
        let mut capture = Capture {
            source,
            name: name.into(),
            buffer: vec![0; MAX_RECORD].into(),
            unused: 0..0,
            at: 0,
            format,
            found: Found::default(),
            other_link: 0,
            ended: false,
        };
        let not_a_capture = || CaptureError::NotACapture { name: name.into() };
        if !capture.fill(4).map_err(|error| error.if_cut_off(not_a_capture))? {
            return Err(not_a_capture());
        }
        if capture.word(0, false) == SHB_MAGIC {
            return Ok(capture);
        }
        // Four bytes of nothing known are no capture, however short the rest.
        match parse_pcap_header(capture.unused()) {
            Ok(_) | Err(nom::Err::Incomplete(_)) => {}
            Err(_) => return Err(not_a_capture()),
        }
        capture.fill(FILE_HEADER)?;
        let (_, header) = parse_pcap_header(capture.unused()).map_err(|_| not_a_capture())?;
        if header.version_major != 2 || header.is_modified_format() {
            return Err(capture.damaged(format!("version {} of pcap is not known", header.version_major)));
        }
        if header.network != Linktype::ETHERNET {
            // The upper bits say, among others, whether the frames keep their FCS.
            return Err(CaptureError::LinkType { name: name.into(), link: header.network.0 as u32 });
        }
        capture.format = Format::Pcap { big: header.is_bigendian(), nanos: header.is_nanosecond_precision() };
        capture.use_up(FILE_HEADER);
        Ok(capture)
    }

    /// Goes to the next frame; `false` at the end, and for ever after an error.
    ///
    /// # Errors
    /// The source can't be read, ends inside a record, or holds what can't be.
    pub fn advance(&mut self) -> Result<bool, CaptureError> {
        if self.ended {
            return Ok(false);
        }
        let next = match self.format {
            Format::Pcap { big, nanos } => self.pcap_record(big, nanos),
            Format::PcapNg { .. } => self.pcapng_record(),
        };
        self.ended = !matches!(next, Ok(true));
        next
    }

    /// The frame that [`Capture::advance`] went to; empty before the first.
    pub fn record(&self) -> Record<'_> {
        let Found { time, bytes, original_len } = &self.found;
        Record { time: *time, bytes: &self.buffer[bytes.clone()], original_len: *original_len }
    }

    /// Frames passed over because their interface is not Ethernet, or keeps the FCS.
    pub fn other_link(&self) -> u64 {
        self.other_link
    }

    fn unused(&self) -> &[u8] {
        &self.buffer[self.unused.clone()]
    }

    fn use_up(&mut self, bytes: usize) {
        self.unused.start += bytes;
        self.at += bytes as u64;
    }

    /// Sees to it that `bytes`, at most [`MAX_RECORD`], are there; `false` if the file ends before the first.
    fn fill(&mut self, bytes: usize) -> Result<bool, CaptureError> {
        if self.unused.len() >= bytes {
            return Ok(true);
        }
        self.buffer.copy_within(self.unused.clone(), 0);
        self.unused = 0..self.unused.len();
        while self.unused.len() < bytes {
            match self.source.read(&mut self.buffer[self.unused.end..]) {
                Ok(0) if self.unused.is_empty() => return Ok(false),
                Ok(0) => return Err(CaptureError::CutOff { name: self.name.clone(), at: self.at }),
                Ok(read) => self.unused.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CaptureError::Read { name: self.name.clone(), error }),
            }
        }
        Ok(true)
    }

    /// Passes over `bytes`, however many.
    fn skip(&mut self, bytes: usize) -> Result<(), CaptureError> {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(MAX_RECORD);
            if !self.fill(part)? {
                return Err(CaptureError::CutOff { name: self.name.clone(), at: self.at });
            }
            self.use_up(part);
            left -= part;
        }
        Ok(())
    }

    /// The number at byte `at` of what is unused, which is there.
    fn word(&self, at: usize, big: bool) -> u32 {
        let bytes = self.unused()[at..at + 4].try_into().expect("four bytes");
        if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn damaged(&self, what: impl Into<String>) -> CaptureError {
        CaptureError::Damaged { name: self.name.clone(), at: self.at, what: what.into() }
    }

    fn pcap_record(&mut self, big: bool, nanos: bool) -> Result<bool, CaptureError> {
        if !self.fill(RECORD_HEADER)? {
            return Ok(false);
        }
        let len = self.word(8, big) as usize;
        if len > MAX_RECORD - RECORD_HEADER {
            return Err(self.damaged(format!("a frame of {len} bytes is longer than any capture holds")));
        }
        self.fill(RECORD_HEADER + len)?;
        let parse = if big { parse_pcap_frame_be } else { parse_pcap_frame };
        let Ok((_, frame)) = parse(self.unused()) else {
            return Err(self.damaged("not a record"));
        };
        let fraction = u64::from(frame.ts_usec) * if nanos { 1 } else { 1000 };
        let time = u64::from(frame.ts_sec) * NANOS as u64 + fraction;
        let original_len = frame.origlen as usize;
        let start = self.unused.start + RECORD_HEADER;
        self.found = Found { time, bytes: start..start + len, original_len };
        self.use_up(RECORD_HEADER + len);
        Ok(true)
    }

    fn pcapng_record(&mut self) -> Result<bool, CaptureError> {
        while self.fill(MIN_BLOCK)? {
            let Format::PcapNg { mut big, .. } = self.format else { return Ok(false) };
            let section = self.word(0, big) == SHB_MAGIC; // the same in either byte order
            if section {
                big = match (self.word(8, false), self.word(8, true)) {
                    (BYTE_ORDER, _) => false,
                    (_, BYTE_ORDER) => true,
                    _ => return Err(self.damaged("a section without its byte-order magic")),
                };
            }
            let (kind, len) = (self.word(0, big), self.word(4, big) as usize);
            if len < MIN_BLOCK || !len.is_multiple_of(4) {
                return Err(self.damaged(format!("a block of {len} bytes")));
            }
            if !matches!(kind, SHB_MAGIC | IDB_MAGIC | EPB_MAGIC | SPB_MAGIC) {
                self.skip(len)?;
                continue;
            }
            if len > MAX_RECORD {
                return Err(self.damaged(format!("a block of {len} bytes is longer than any frame needs")));
            }
            self.fill(len)?;
            let found = self.block(big, len)?;
            self.use_up(len);
            if let Some(found) = found {
                self.found = found;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes in the block of `len` bytes that is first of what is unused; the frame in it, if any.
    fn block(&mut self, in_big: bool, len: usize) -> Result<Option<Found>, CaptureError> {
        let start = self.unused.start;
        let bytes = &self.buffer[start..start + len];
        let parse = if in_big { parse_block_be } else { parse_block_le };
        // The whole block is there, so "incomplete" means that its parts do not fit into it.
        let Ok((_, block)) = parse(bytes) else {
            return Err(self.damaged("a block whose parts do not fit its length"));
        };
        let Format::PcapNg { big, interfaces } = &mut self.format else { return Ok(None) };
        let (interface, time, data, original_len) = match &block {
            Block::SectionHeader(section) if section.major_version != 1 => {
                let version = section.major_version;
                return Err(self.damaged(format!("version {version} of pcapng is not known")));
            }
            Block::SectionHeader(_) => {
                *big = in_big;
                interfaces.clear();
                return Ok(None);
            }
            Block::InterfaceDescription(_) if interfaces.len() == MAX_INTERFACES => {
                return Err(self.damaged(format!("more than {MAX_INTERFACES} interfaces")));
            }
            Block::InterfaceDescription(described) => {
                interfaces.push(Interface::of(described, in_big));
                return Ok(None);
            }
            Block::EnhancedPacket(packet) => {
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                (packet.if_id, Some(ticks), packet.packet_data(), packet.origlen as usize)
            }
            Block::SimplePacket(packet) => (0, None, packet.packet_data(), packet.origlen as usize),
            _ => return Ok(None),
        };
        let Some(interface) = interfaces.get(interface as usize) else {
            return Err(self.damaged(format!("a frame of interface {interface}, which was not described")));
        };
        if !interface.ethernet {
            self.other_link += 1;
            return Ok(None);
        }
        // A simple packet has no length of its own but the block's, which counts the padding, and no time.
        let simple = time.is_none();
        let limit = if simple && interface.snap_len > 0 { interface.snap_len } else { usize::MAX };
        let captured = data.len().min(limit);
        let offset = if simple { 12 } else { 28 };
        Ok(Some(Found {
            time: time.map_or(self.found.time, |ticks| interface.time(ticks)),
            bytes: start + offset..start + offset + captured,
            original_len,
        }))
    }
}
