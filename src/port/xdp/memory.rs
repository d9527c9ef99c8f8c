use std::io;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use xsk_rs::config::{BindFlags, FrameSize, QueueSize, UmemConfig};
use xsk_rs::umem::Umem;
use xsk_rs::umem::frame::FrameDesc;

use crate::frame::{Pool, Region};

use super::XdpError;
use super::socket::{Queues, bind};

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
/// Buffers for frames that take several chunks, and their size: the largest MTU with all that a
/// scheme puts around a packet. Pages that are never used are never given out by the kernel.
const LARGE_FRAMES: usize = 512;
pub(super) const LARGE_SIZE: usize = 9216 + 256;

/// A UMEM: frame memory that the kernel reads and writes too. The pool over it is handed out once,
/// at the start; this is what ports need to bind to it.
#[derive(Clone)]
pub struct Memory {
    pub(super) umem: Umem,
    /// The descriptor of each chunk, by index.
    pub(super) descs: Arc<[FrameDesc]>,
    pub(super) chunk_size: usize,
    /// Whether frames may take several chunks.
    pub(super) frags: bool,
    /// Behind a lock that nobody takes: the rings may not be shared between threads without.
    _anchor: Option<Arc<Mutex<Queues>>>,
}

struct Anchored {
    umem: Umem,
    descs: Vec<FrameDesc>,
    anchor: Option<Queues>,
    frags: bool,
}

/// Entries of the rings of an anchor, which are never used.
const ANCHOR_RING: u32 = 64;

/// A UMEM with its own socket bound where nothing ever happens, and whether its sockets take frames in
/// several chunks (kernel 6.6): sockets that share a UMEM have the flags of the first.
///
/// libxdp gives the first socket that binds to a UMEM the descriptor of the UMEM itself, and the
/// kernel lets others share the UMEM only while that one is bound (xsk_bind, XDP_SHARED_UMEM). As a
/// port it could not be closed before the UMEM, and once its interface was gone no port could be
/// opened any more. So the first socket is on the loopback interface of a network namespace that has
/// no name and no process, and is gone with the socket.
fn anchored(config: UmemConfig, count: NonZeroU32) -> io::Result<Anchored> {
    // In a thread of its own: it does not come back from where it goes.
    let thread = thread::Builder::new().name("weft-anchor".into()).spawn(move || {
        let alone = unshare(CloneFlags::CLONE_NEWNET);
        // Created here, because the descriptor belongs to the namespace of the thread that makes it.
        let (umem, descs) = Umem::new(config, count, false).map_err(|e| system_error(&e))?;
        alone?;
        let flags = BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP;
        let (anchor, frags) = match bind(&umem, "lo", 0, ANCHOR_RING, flags | BindFlags::XDP_USE_SG) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (bind(&umem, "lo", 0, ANCHOR_RING, flags)?, false),
            bound => (bound?, true),
        };
        Ok(Anchored { umem, descs, anchor: Some(anchor), frags })
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that makes it panicked")))
}

struct UmemRegion {
    // Keeps the mapping.
    _umem: Umem,
    base: NonNull<u8>,
    chunks: usize,
    chunk_size: usize,
}

// SAFETY: the mapping is reached through its pools alone; `Umem` itself is Send.
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
    /// The number of the chunk that a descriptor is of.
    #[inline]
    pub(super) fn index(&self, desc: &FrameDesc) -> u32 {
        (desc.addr() / self.chunk_size) as u32
    }

    /// Bytes a frame in one chunk can hold.
    pub(super) fn capacity(&self) -> usize {
        self.chunk_size - CHUNK_HEADROOM
    }

    /// A UMEM of `chunks` chunks of `chunk_size` bytes (2048 or 4096, of which
    /// [`CHUNK_HEADROOM`] are not for data), with its pool.
    ///
    /// With CAP_SYS_ADMIN its ports may be in any namespace, and be closed and opened in any order;
    /// without, the first port has to be opened in the namespace of the calling thread, and stays.
    ///
    /// # Errors
    /// The kernel refuses, for want of memory, privileges or AF_XDP.
    pub fn new(chunks: u32, chunk_size: u32) -> Result<(Memory, Pool), XdpError> {
        let (memory, mut pools) = Memory::split(chunks, chunk_size, 1)?;
        Ok((memory, pools.pop().expect("one part")))
    }

    /// As [`Memory::new`], with the chunks in `parts` pools of equal size, for as many threads.
    ///
    /// # Errors
    /// As for [`Memory::new`].
    pub fn split(chunks: u32, chunk_size: u32, parts: usize) -> Result<(Memory, Vec<Pool>), XdpError> {
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
        let made = anchored(config, count).or_else(|e| match e.raw_os_error() {
            // Without CAP_SYS_ADMIN the first port is the anchor: it can't be reopened.
            Some(libc::EPERM) => {
                let (umem, descs) = Umem::new(config, count, false).map_err(|e| system_error(&e))?;
                Ok(Anchored { umem, descs, anchor: None, frags: false })
            }
            _ => Err(e),
        });
        let Anchored { umem, mut descs, anchor, frags } = made.map_err(|cause| {
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
        let pools = Pool::split(Box::new(region), parts, LARGE_FRAMES / parts, LARGE_SIZE);
        Ok((
            Memory {
                umem,
                descs: descs.into(),
                chunk_size,
                frags,
                _anchor: anchor.map(|queues| Arc::new(Mutex::new(queues))),
            },
            pools,
        ))
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
