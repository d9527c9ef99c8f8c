use std::io;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Arc;

use xsk_rs::config::{FrameSize, QueueSize, UmemConfig};
use xsk_rs::umem::Umem;
use xsk_rs::umem::frame::FrameDesc;

use crate::frame::{Pool, Region};

use super::XdpError;

/// Bytes that the kernel keeps before the data of each chunk (XDP_PACKET_HEADROOM).
pub const CHUNK_HEADROOM: usize = 256;
/// Bytes of a frame beside its packet: Ethernet header and two tags.
pub(super) const FRAME_SLACK: usize = 14 + 2 * 4;

/// The chunk size for packets of up to `mtu` bytes: 2 KiB where they fit, else 4 KiB.
pub fn chunk_size(mtu: u32) -> u32 {
    if mtu as usize + FRAME_SLACK <= 2048 - CHUNK_HEADROOM { 2048 } else { 4096 }
}

/// Entries of each port's fill and completion ring.
pub(super) const UMEM_RING: u32 = 4096;

/// A UMEM: frame memory that the kernel reads and writes too. The pool over it is handed out once,
/// at the start; this is what ports need to bind to it.
#[derive(Clone)]
pub struct Memory {
    pub(super) umem: Umem,
    /// The descriptor of each chunk, by index.
    pub(super) descs: Arc<[FrameDesc]>,
    pub(super) chunk_size: usize,
}

struct UmemRegion {
    // Keeps the mapping.
    _umem: Umem,
    base: NonNull<u8>,
    chunks: usize,
    chunk_size: usize,
}

// SAFETY: the mapping is reached through the pool alone; `Umem` itself is Send.
unsafe impl Send for UmemRegion {}

// SAFETY: `base` is the data area of chunk 0 in a mapping of `chunks * chunk_size` bytes that `_umem`
// keeps; data areas are `chunk_size` apart and end where the next chunk's headroom starts. The kernel
// writes to a chunk only while its index is in a ring, when no Frame owns it.
unsafe impl Region for UmemRegion {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn stride(&self) -> usize {
        self.chunk_size
    }
    fn capacity(&self) -> usize {
        self.chunk_size - CHUNK_HEADROOM
    }
    fn chunks(&self) -> usize {
        self.chunks
    }
}

impl Memory {
    /// A UMEM of `chunks` chunks of `chunk_size` bytes (2048 or 4096, of which
    /// [`CHUNK_HEADROOM`] are not for data), with its pool.
    ///
    /// The kernel ties the UMEM's own socket to the namespace of the calling thread: it must be the
    /// one in which the first port is opened.
    ///
    /// # Errors
    /// The kernel refuses, for want of memory, privileges or AF_XDP.
    pub fn new(chunks: u32, chunk_size: u32) -> Result<(Memory, Pool), XdpError> {
        let what = || format!("frame memory of {chunks} x {chunk_size} bytes");
        let invalid = |e: &dyn std::error::Error| {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, e.to_string());
            XdpError::new(what(), cause, "use 2048 or 4096 bytes a frame")
        };
        let ring = QueueSize::new(UMEM_RING).map_err(|e| invalid(&e))?;
        let config = UmemConfig::builder()
            .frame_size(FrameSize::new(chunk_size).map_err(|e| invalid(&e))?)
            .fill_queue_size(ring)
            .comp_queue_size(ring)
            .build()
            .map_err(|e| invalid(&e))?;
        let count = NonZeroU32::new(chunks).ok_or_else(|| invalid(&io::Error::other("no frames")))?;
        let (umem, mut descs) = Umem::new(config, count, false).map_err(|e| {
            let cause = system_error(&e);
            let remedy = match cause.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF",
                Some(libc::EAFNOSUPPORT) => "this kernel has no AF_XDP: build it with CONFIG_XDP_SOCKETS",
                Some(libc::ENOBUFS | libc::ENOMEM) => "use fewer frames, or give CAP_IPC_LOCK or a higher `ulimit -l`",
                _ => "see dmesg",
            };
            XdpError::new(what(), cause, remedy)
        })?;
        let first = descs.first_mut().expect("at least one frame");
        // SAFETY: the descriptor is of this UMEM, and nobody else has it yet.
        let mut data = unsafe { umem.data_mut(first) };
        let base = NonNull::new(data.cursor_base()).expect("a mapping is never null");
        let chunk_size = chunk_size as usize;
        let region = UmemRegion { _umem: umem.clone(), base, chunks: chunks as usize, chunk_size };
        let pool = Pool::new(Box::new(region));
        Ok((Memory { umem, descs: descs.into(), chunk_size }, pool))
    }
}

/// Reaches the start of a chunk's whole data area, not only of the bytes set so far.
trait CursorBase {
    fn cursor_base(&mut self) -> *mut u8;
}

impl CursorBase for xsk_rs::umem::frame::DataMut<'_> {
    fn cursor_base(&mut self) -> *mut u8 {
        let mut cursor = self.cursor();
        let full = cursor.buf_len();
        cursor.set_pos(full);
        let base = self.contents_mut().as_mut_ptr();
        self.cursor().set_pos(0);
        base
    }
}

/// The system's error at the bottom of an xsk-rs error.
pub(super) fn system_error(error: &dyn std::error::Error) -> io::Error {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(code) = inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        source = inner.source();
    }
    io::Error::other(error.to_string())
}
