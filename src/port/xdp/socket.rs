use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig};
use xsk_rs::socket::{RxQueue, Socket, TxQueue};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::umem::{CompQueue, FillQueue, Umem};

use crate::frame::{BURST, Burst, Frame, Pool};
use crate::port::{DeviceStats, Port};
use crate::wire::{self, checksum};

use super::gather::Gather;
use super::holder::{Wanted, is_foreign};
use super::lent::Lent;
use super::local::LocalAddresses;
use super::memory::{LARGE_SIZE, system_error};
use super::program::{Program, Variant};
use super::{Device, Memory, XdpError, XdpMode};

/// Entries of the RX and the TX ring.
const RING: u32 = 2048;
/// Chunks that may be in the TX ring: what one `sendto` takes with the raised budget. More would be
/// a queue behind the traffic manager that nobody sees. A burst of large frames may pass it once.
const TX_WINDOW: usize = 256;
/// `sendto` calls in one kick: with the default budget of 32, enough for a whole window and a burst of
/// the largest frames, six chunks each.
const MAX_KICKS: usize = (TX_WINDOW + 6 * BURST) / 32;
/// SOL_XDP option, kernel 6.17 and later: frames that one `sendto` takes.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// One part in so many of a pool's chunks that are not lent for receiving.
const SEND_RESERVE: usize = 16;
/// On all descriptors of a frame but the last (linux/if_xdp.h).
const XDP_PKT_CONTD: u32 = 1;
/// How often a queue is tried that stays busy after its last owner closed it: the kernel frees it in deferred
/// work, which has taken over a second on a machine that deleted namespaces meanwhile.
const BIND_RETRIES: u32 = 1000;
const BIND_PAUSE: Duration = Duration::from_millis(5);
/// After so many a socket that is still open elsewhere is taken for one that stays: a process that was
/// killed has closed its own by then.
const FOREIGN_RETRIES: u32 = 20;
/// How long the chunks of a socket that was closed are kept from use: the kernel frees its queue in
/// deferred work, milliseconds later.
pub const QUARANTINE: Duration = Duration::from_millis(100);

/// How to open a port.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// Where in the kernel frames are taken.
    pub mode: XdpMode,
    /// Chunks to lend to the kernel for receiving; no more than the RX ring holds are.
    pub fill: usize,
    /// Whether the peer may leave checksums unfinished: true for a veth to a host.
    pub complete_checksums: bool,
    /// Whether frames to the interface's own addresses ([`XdpPort::local`]) go to the kernel's stack.
    pub pass_to_kernel: bool,
}

/// The four rings of a socket. It is closed when all of them are dropped.
pub(super) struct Queues {
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    comp: CompQueue,
}

/// An AF_XDP socket on a queue of an interface, with the interface's XDP program.
///
/// Invariant: `filled` chunks are in the fill or RX ring and `in_flight` ones in the TX or
/// completion ring; `lent` has them all, and no [`crate::frame::Frame`] owns any of them.
pub struct XdpPort {
    // Dropped first: no frame is redirected to a socket that is being closed. Shared by the queues of an
    // interface; those are closed together.
    _program: Arc<Program>,
    local: Option<Arc<LocalAddresses>>,
    queues: Queues,
    memory: Memory,
    scratch: Box<[FrameDesc; BURST]>,
    lent: Lent,
    fill_target: usize,
    filled: usize,
    in_flight: usize,
    complete_checksums: bool,
    gather: Gather,
    counts: DeviceStats,
    device: Device,
    mode: XdpMode,
}

impl std::fmt::Debug for XdpPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XdpPort({}, {}, {} filled, {} in flight)", self.device.name, self.mode, self.filled, self.in_flight)
    }
}

impl XdpPort {
    /// Opens `device`, which is in this thread's namespace and has one queue. Nothing is received before
    /// [`XdpPort::start`].
    ///
    /// # Errors
    /// The interface is not fit (its MTU or number of queues), is somebody else's, or the kernel refuses.
    pub fn open(memory: &Memory, device: Device, options: &XdpOptions) -> Result<XdpPort, XdpError> {
        let ports = XdpPort::open_queues(memory, device, options, 1).map_err(XdpError::name_holder)?;
        Ok(ports.into_iter().next().expect("one queue"))
    }

    /// Opens each of the `queues` queues of `device` as a port of its own, by number: they can be driven by
    /// different threads. Otherwise as [`XdpPort::open`].
    ///
    /// # Errors
    /// As for [`XdpPort::open`]; also if the interface has more or fewer queues. Who holds the interface is not
    /// in it yet: see [`XdpError::name_holder`].
    pub fn open_queues(
        memory: &Memory,
        device: Device,
        options: &XdpOptions,
        queues: u32,
    ) -> Result<Vec<XdpPort>, XdpError> {
        device.check(memory.capacity(), memory.frags, queues)?;
        let opened = (0..queues).map(|queue| open_rings(memory, &device, queue)).collect::<Result<Vec<_>, _>>()?;
        opened.iter().for_each(|rings| set_tx_budget(&rings.tx));
        let sockets: Vec<_> = (0..).zip(&opened).map(|(queue, rings)| (queue, rings.rx.fd().as_raw_fd())).collect();
        let variant = Variant { frags: memory.frags, pass_to_kernel: options.pass_to_kernel };
        let (program, local) = Program::attach(&device, options.mode, variant, &sockets)?;
        let (program, local) = (Arc::new(program), local.map(Arc::new));
        let port = |queues| XdpPort {
            _program: program.clone(),
            local: local.clone(),
            queues,
            memory: memory.clone(),
            scratch: Box::new([FrameDesc::default(); BURST]),
            lent: Lent::none(memory.descs.len()),
            fill_target: options.fill.min(RING as usize),
            filled: 0,
            in_flight: 0,
            complete_checksums: options.complete_checksums,
            gather: Gather::default(),
            counts: DeviceStats::default(),
            device: device.clone(),
            mode: options.mode,
        };
        Ok(opened.into_iter().map(port).collect())
    }

    /// Lends chunks of `pool` to the kernel to receive into.
    pub fn start(&mut self, pool: &mut Pool) {
        self.refill(pool);
    }

    /// Gives `pool` back what it can without closing the socket, and returns the last counters. After it
    /// the port needs no pool, and can be sent to another thread to be closed.
    pub fn stop(&mut self, pool: &mut Pool) -> DeviceStats {
        self.complete(pool);
        self.gather.clear(pool);
        let mut stats = self.stats();
        stats.tx_unsent += self.tx_pending() as u64;
        stats
    }

    /// Detaches the program and closes the socket, which takes the kernel some milliseconds, after
    /// [`XdpPort::stop`]. Returns the chunks that were with it, received ones that nobody took included.
    ///
    /// A driver in zero-copy mode may write into the chunks until the kernel's deferred work has
    /// stopped its queue: let [`QUARANTINE`] pass before they are restored.
    pub fn close(mut self) -> Lent {
        std::mem::replace(&mut self.lent, Lent::none(0))
    }

    /// Changes how many chunks are lent for receiving; a surplus comes back as frames arrive.
    pub fn set_fill(&mut self, fill: usize) {
        self.fill_target = fill.min(RING as usize);
    }

    /// The interface.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The addresses whose frames go to the kernel's stack, none at first, if any do.
    pub fn local(&self) -> Option<Arc<LocalAddresses>> {
        self.local.clone()
    }

    /// The mode in use.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Takes back chunks whose frames the kernel has sent; how many are still with it for sending.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut Pool) -> usize {
        self.complete(pool);
        self.in_flight
    }

    /// Lends chunks to the kernel until `fill_target` of them are with it. The last of the pool are left for
    /// sending: another port may have more than its share by now, which it gives back only as frames arrive.
    fn refill(&mut self, pool: &mut Pool) {
        let reserve = pool.chunks() / SEND_RESERVE;
        while self.filled < self.fill_target {
            let spare = pool.free_count().saturating_sub(reserve);
            let room = self.queues.fill.nb_free_exact() as usize;
            let want = (self.fill_target - self.filled).min(BURST).min(room).min(spare);
            let mut n = 0;
            while n < want {
                let Some(index) = pool.alloc_index() else { break };
                self.lent.add(index);
                self.scratch[n] = self.memory.descs[index as usize];
                n += 1;
            }
            if n == 0 {
                return;
            }
            // SAFETY: the chunks are of this UMEM and were just taken out of the pool, so neither a
            // Frame nor another ring has them.
            let produced = unsafe { self.queues.fill.produce(&self.scratch[..n]) };
            debug_assert_eq!(produced, n, "room was asked for");
            self.filled += n;
        }
    }

    /// Takes back what the kernel has sent.
    fn complete(&mut self, pool: &mut Pool) {
        while self.in_flight > 0 {
            // SAFETY: the descriptors are overwritten; what they held before is not used again.
            let n = unsafe { self.queues.comp.consume(&mut self.scratch[..]) };
            for i in 0..n {
                let index = self.memory.index(&self.scratch[i]);
                if self.lent.take(index) {
                    // SAFETY: the chunk left a pool over this UMEM when it was lent for sending, and the
                    // kernel has returned it.
                    unsafe { pool.free_index(index) };
                }
            }
            self.in_flight -= n;
            if n < BURST {
                return;
            }
        }
    }

    /// One received chunk: a frame, the last part of one, or nothing yet.
    #[inline]
    fn received(&mut self, pool: &mut Pool, desc: &FrameDesc) -> Option<Frame> {
        let index = self.memory.index(desc);
        if !self.lent.take(index) {
            debug_assert!(false, "chunk {index} was not with the kernel");
            return None;
        }
        // SAFETY: the chunk left the pool in `refill`, and the kernel has returned it.
        let mut frame = unsafe { pool.adopt(index, desc.lengths().data()) };
        let more = desc.has_more_frames();
        if more || !self.gather.is_idle() {
            frame = self.gather.add(pool, frame, more)?;
        }
        if self.complete_checksums
            && let Ok(headers) = wire::parse(&frame)
        {
            self.counts.checksums_completed += u64::from(checksum::complete_partial(&mut frame, &headers));
        }
        Some(frame)
    }

    /// The descriptor of a frame that is to be sent; its chunk is the kernel's from now on.
    #[inline]
    fn lend(&mut self, frame: Frame, more: bool) -> FrameDesc {
        let len = frame.len();
        let index = frame.into_index();
        self.lent.add(index);
        let mut desc = self.memory.descs[index as usize];
        if more {
            desc.set_options(XDP_PKT_CONTD);
        }
        // SAFETY: the chunk is of this UMEM, and the Frame that owned it just gave it up; only the
        // descriptor's length is set.
        unsafe { self.memory.umem.data_mut(&mut desc) }.cursor().set_pos(len);
        desc
    }

    /// Sends `self.scratch[..n]`.
    #[inline]
    fn produce(&mut self, n: usize) {
        // SAFETY: each descriptor is of a chunk that `lend` took from its Frame, so nobody else has it.
        let produced = unsafe { self.queues.tx.produce(&self.scratch[..n]) };
        assert_eq!(produced, n, "the window is smaller than the ring");
        self.in_flight += n;
    }

    /// Copies a frame in a large buffer into chunks and sends those.
    #[cold]
    fn send_large(&mut self, pool: &mut Pool, frame: Frame) {
        let size = pool.capacity();
        if pool.free_count() < frame.len().div_ceil(size) {
            self.counts.tx_unsent += 1;
            return pool.free(frame);
        }
        let mut n = 0;
        for (i, part) in frame.chunks(size).enumerate() {
            let chunk = pool.alloc_with(part).expect("as many are free");
            self.scratch[i] = self.lend(chunk, (i + 1) * size < frame.len());
            n += 1;
        }
        self.produce(n);
        pool.free(frame);
    }
}

/// A socket on a queue of `device`.
fn open_rings(memory: &Memory, device: &Device, queue: u32) -> Result<Queues, XdpError> {
    let name = &device.name;
    // They count only without an anchor, for the first port; the others take over what it has. Without
    // XDP_COPY a driver might choose zero-copy.
    let flags = BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP;
    bind(&memory.umem, name, queue, RING, flags).map_err(|cause| {
        let remedy = match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_NET_RAW".into(),
            Some(libc::EMFILE) => "too many open files: `ulimit -n` higher".into(),
            Some(libc::EBUSY) => "another AF_XDP socket holds it (`ss --xdp -p` tells whose): stop its owner".into(),
            Some(libc::EEXIST) => "this switch has the interface already: name it once".into(),
            _ => "see dmesg".to_string(),
        };
        let wanted = (cause.raw_os_error() == Some(libc::EBUSY)).then_some(Wanted::Queue(device.index, queue));
        XdpError::new(format!("AF_XDP socket on `{name}` queue {queue}"), cause, remedy).wanting(wanted)
    })
}

/// A socket of `umem` with rings of `ring` entries, bound to a queue of an interface of this thread's
/// namespace; waits out one that was just closed, but not one that another process has open.
///
/// # Errors
/// The system's; EEXIST if a socket of this very `umem` has the queue.
pub(super) fn bind(umem: &Umem, interface: &str, queue: u32, ring: u32, flags: BindFlags) -> io::Result<Queues> {
    let ring = QueueSize::new(ring).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()))?;
    let config = SocketConfig::builder()
        .rx_queue_size(ring)
        .tx_queue_size(ring)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(flags)
        .build();
    let name = interface;
    let interface = Interface::new(CString::new(name)?);
    let mut tries = 0;
    loop {
        // SAFETY: libxdp's program is inhibited, which is what this function asks for when a UMEM is
        // shared.
        let (tx, rx, rings) = match unsafe { Socket::new(config, umem, &interface, queue) } {
            Ok(queues) => queues,
            Err(e) => {
                let cause = system_error(&e);
                if cause.raw_os_error() == Some(libc::EBUSY) && tries < BIND_RETRIES {
                    tries += 1;
                    if tries == FOREIGN_RETRIES && if_nametoindex(name).is_ok_and(|index| is_foreign(index, queue)) {
                        return Err(cause);
                    }
                    thread::sleep(BIND_PAUSE);
                    continue;
                }
                return Err(cause);
            }
        };
        let Some((fill, comp)) = rings else { return Err(io::Error::from_raw_os_error(libc::EEXIST)) };
        return Ok(Queues { tx, rx, fill, comp });
    }
}

/// Lets one `sendto` take a whole window. Kernels before 6.17 don't know the option: then a kick
/// takes several calls.
fn set_tx_budget(tx: &TxQueue) {
    let budget = TX_WINDOW as u32;
    // SAFETY: the descriptor is open; the option's value is a u32 that lives through the call. A
    // refusal is fine.
    unsafe {
        libc::setsockopt(
            tx.fd().as_raw_fd(),
            libc::SOL_XDP,
            XDP_MAX_TX_SKB_BUDGET,
            (&raw const budget).cast(),
            size_of::<u32>() as u32,
        );
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket stays open for as long as its queues, which `self` owns.
        unsafe { BorrowedFd::borrow_raw(self.queues.rx.fd().as_raw_fd()) }
    }
}

impl Port for XdpPort {
    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) {
        // SAFETY: the descriptors are overwritten; what they held before is not used again.
        let n = unsafe { self.queues.rx.consume(&mut self.scratch[..burst.room()]) };
        if n == 0 {
            // The pool may have been empty when frames last came.
            if self.filled < self.fill_target {
                self.refill(pool);
            }
            // A zero-copy driver that ran out of chunks waits to be told (never set in copy mode). A
            // failure shows as frames lost for want of chunks, and is tried again.
            if self.queues.fill.needs_wakeup() {
                let _ = self.queues.fill.wakeup(self.queues.rx.fd_mut(), 0);
            }
            return;
        }
        for i in 0..n {
            let desc = self.scratch[i];
            if let Some(frame) = self.received(pool, &desc) {
                burst.push(frame);
            }
        }
        self.filled -= n;
        self.refill(pool);
    }

    fn tx_room(&mut self, pool: &mut Pool) -> usize {
        self.complete(pool);
        let room = TX_WINDOW.saturating_sub(self.in_flight);
        match pool.large_free_count() == pool.large() {
            true => room,
            // Any of the frames may be a large one, for which there must be chunks.
            false => room.min(pool.free_count() / LARGE_SIZE.div_ceil(pool.capacity())),
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) {
        let mut n = 0;
        for frame in burst.drain() {
            if frame.is_large() {
                self.produce(n);
                n = 0;
                self.send_large(pool, frame);
            } else {
                self.scratch[n] = self.lend(frame, false);
                n += 1;
            }
        }
        self.produce(n);
    }

    fn kick(&mut self) -> io::Result<()> {
        for _ in 0..MAX_KICKS {
            if self.tx_pending() == 0 {
                return Ok(());
            }
            self.counts.tx_kicks += 1;
            let fd = self.queues.tx.fd().as_raw_fd();
            // SAFETY: an empty message to an open socket.
            let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
            if sent < 0 {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    // The budget ran out with frames left, or the socket's send buffer is full; only
                    // another call tells.
                    Some(libc::EAGAIN) => continue,
                    // The interface or the socket is gone for good.
                    Some(libc::ENXIO | libc::ENODEV | libc::EBADF) => Err(error),
                    // Too much under way at the receiver, the link is down, memory is short: later.
                    _ => {
                        self.counts.tx_kick_errors += 1;
                        Ok(())
                    }
                };
            }
        }
        Ok(())
    }

    fn tx_pending(&mut self) -> usize {
        (RING - self.queues.tx.nb_free_exact()) as usize
    }

    fn held(&self) -> usize {
        self.lent.count() + self.gather.held()
    }

    fn stats(&self) -> DeviceStats {
        let own = DeviceStats { rx_no_buffer: self.gather.skipped(), ..self.counts };
        match self.queues.rx.fd().xdp_statistics() {
            Ok(s) => DeviceStats {
                rx_dropped: s.rx_dropped(),
                rx_ring_full: s.rx_ring_full(),
                rx_fill_ring_empty: s.rx_fill_ring_empty_descs(),
                rx_invalid_descs: s.rx_invalid_descs(),
                tx_invalid_descs: s.tx_invalid_descs(),
                tx_ring_empty: s.tx_ring_empty_descs(),
                ..own
            },
            Err(_) => own,
        }
    }
}
