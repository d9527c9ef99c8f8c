use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig};
use xsk_rs::socket::{RxQueue, Socket, TxQueue};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::umem::{CompQueue, FillQueue};

use crate::frame::{BURST, Burst, Pool};
use crate::port::{DeviceStats, Port};
use crate::wire::{self, checksum};

use super::memory::system_error;
use super::program::Program;
use super::{Device, Memory, XdpError, XdpMode};

/// Entries of the RX and the TX ring.
const RING: u32 = 2048;
/// Frames that may be in the TX ring: what one `sendto` takes with the raised budget. More would be
/// a queue behind the traffic manager that nobody sees.
const TX_WINDOW: usize = 256;
/// `sendto` calls in one kick: with the default budget of 32, enough for a whole window.
const MAX_KICKS: usize = TX_WINDOW / 32;
/// SOL_XDP option, kernel 6.17 and later: frames that one `sendto` takes.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// How long a queue may stay busy after its last owner closed it.
const BIND_RETRIES: u32 = 200;
const BIND_PAUSE: Duration = Duration::from_millis(5);

/// How to open a port.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// Where in the kernel frames are taken.
    pub mode: XdpMode,
    /// Chunks to lend to the kernel for receiving; no more than the RX ring holds are.
    pub fill: usize,
    /// Whether the peer may leave checksums unfinished: true for a veth to a host.
    pub complete_checksums: bool,
}

/// An AF_XDP socket on queue 0 of an interface, with its XDP program.
///
/// Invariant: `filled` chunks are in the fill or RX ring and `in_flight` ones in the TX or
/// completion ring; no [`crate::frame::Frame`] owns any of them.
pub struct XdpPort {
    // Dropped first: no frame is redirected to a socket that is being closed.
    _program: Program,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    comp: CompQueue,
    memory: Memory,
    scratch: Box<[FrameDesc; BURST]>,
    fill_target: usize,
    filled: usize,
    in_flight: usize,
    complete_checksums: bool,
    kicks: u64,
    kick_errors: u64,
    completed: u64,
    device: Device,
    mode: XdpMode,
}

impl std::fmt::Debug for XdpPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XdpPort({}, {}, {} filled, {} in flight)", self.device.name, self.mode, self.filled, self.in_flight)
    }
}

impl XdpPort {
    /// Opens `device`, which is in this thread's namespace.
    ///
    /// # Errors
    /// The interface is not fit ([`Device::check`]), is somebody else's, or the kernel refuses.
    pub fn open(memory: &Memory, pool: &mut Pool, device: Device, options: &XdpOptions) -> Result<XdpPort, XdpError> {
        device.check(pool.capacity())?;
        let (tx, rx, fill, comp) = bind(memory, &device)?;
        set_tx_budget(&tx);
        let program = Program::attach(&device, options.mode, 0, rx.fd().as_raw_fd())?;
        let mut port = XdpPort {
            _program: program,
            rx,
            tx,
            fill,
            comp,
            memory: memory.clone(),
            scratch: Box::new([FrameDesc::default(); BURST]),
            fill_target: options.fill.min(RING as usize),
            filled: 0,
            in_flight: 0,
            complete_checksums: options.complete_checksums,
            kicks: 0,
            kick_errors: 0,
            completed: 0,
            device,
            mode: options.mode,
        };
        port.refill(pool);
        Ok(port)
    }

    /// The interface.
    pub fn device(&self) -> &Device {
        &self.device
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

    /// Lends chunks to the kernel until `fill_target` of them are with it.
    fn refill(&mut self, pool: &mut Pool) {
        while self.filled < self.fill_target {
            let want = (self.fill_target - self.filled).min(BURST).min(self.fill.nb_free_exact() as usize);
            let mut n = 0;
            while n < want {
                let Some(index) = pool.alloc_index() else { break };
                self.scratch[n] = self.memory.descs[index as usize];
                n += 1;
            }
            if n == 0 {
                return;
            }
            // SAFETY: the chunks are of this UMEM and were just taken out of the pool, so neither a
            // Frame nor another ring has them.
            let produced = unsafe { self.fill.produce(&self.scratch[..n]) };
            debug_assert_eq!(produced, n, "room was asked for");
            self.filled += n;
        }
    }

    /// Takes back what the kernel has sent.
    fn complete(&mut self, pool: &mut Pool) {
        while self.in_flight > 0 {
            // SAFETY: the descriptors are overwritten; what they held before is not used again.
            let n = unsafe { self.comp.consume(&mut self.scratch[..]) };
            for desc in &self.scratch[..n] {
                // SAFETY: the chunk left the pool in `tx_burst`, and the kernel has returned it.
                unsafe { pool.free_index((desc.addr() / self.memory.chunk_size) as u32) };
            }
            self.in_flight -= n;
            if n < BURST {
                return;
            }
        }
    }
}

/// A queue pair bound to queue 0 of `device`, waiting out a socket that was just closed.
fn bind(memory: &Memory, device: &Device) -> Result<(TxQueue, RxQueue, FillQueue, CompQueue), XdpError> {
    let name = &device.name;
    let ring = QueueSize::new(RING).expect("a power of two");
    let config = SocketConfig::builder()
        .rx_queue_size(ring)
        .tx_queue_size(ring)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(BindFlags::XDP_USE_NEED_WAKEUP)
        .build();
    let interface = Interface::new(
        CString::new(name.as_str())
            .map_err(|e| XdpError::new(format!("interface `{name}`"), e.into(), "its name has a zero byte"))?,
    );
    let mut tries = 0;
    let (tx, rx, rings) = loop {
        // SAFETY: libxdp's program is inhibited, which is what this function asks for when a UMEM is
        // shared.
        match unsafe { Socket::new(config, &memory.umem, &interface, 0) } {
            Ok(queues) => break queues,
            Err(e) => {
                let cause = system_error(&e);
                if cause.raw_os_error() == Some(libc::EBUSY) && tries < BIND_RETRIES {
                    tries += 1;
                    thread::sleep(BIND_PAUSE);
                    continue;
                }
                let remedy = match cause.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_NET_RAW",
                    Some(libc::EMFILE) => "too many open files: `ulimit -n` higher",
                    Some(libc::EBUSY) => "another AF_XDP socket holds it (`ss --xdp -p` tells whose): stop its owner",
                    _ => "see dmesg",
                };
                return Err(XdpError::new(format!("AF_XDP socket on `{name}` queue 0"), cause, remedy));
            }
        }
    };
    match rings {
        Some((fill, comp)) => Ok((tx, rx, fill, comp)),
        None => Err(XdpError::new(
            format!("AF_XDP socket on `{name}` queue 0"),
            io::Error::from_raw_os_error(libc::EBUSY),
            "this switch has the interface already: name it once",
        )),
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
        unsafe { BorrowedFd::borrow_raw(self.rx.fd().as_raw_fd()) }
    }
}

impl Port for XdpPort {
    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) {
        // SAFETY: the descriptors are overwritten; what they held before is not used again.
        let n = unsafe { self.rx.consume(&mut self.scratch[..burst.room()]) };
        if n == 0 {
            // The pool may have been empty when frames last came.
            if self.filled < self.fill_target {
                self.refill(pool);
            }
            // A zero-copy driver that ran out of chunks waits to be told (never set in copy mode). A
            // failure shows as frames lost for want of chunks, and is tried again.
            if self.fill.needs_wakeup() {
                let _ = self.fill.wakeup(self.rx.fd_mut(), 0);
            }
            return;
        }
        for desc in &self.scratch[..n] {
            let (index, len) = ((desc.addr() / self.memory.chunk_size) as u32, desc.lengths().data());
            // SAFETY: the chunk left the pool in `refill`, and the kernel has returned it.
            let mut frame = unsafe { pool.adopt(index, len) };
            if self.complete_checksums
                && let Ok(headers) = wire::parse(&frame)
            {
                self.completed += u64::from(checksum::complete_partial(&mut frame, &headers));
            }
            burst.push(frame);
        }
        self.filled -= n;
        self.refill(pool);
    }

    fn tx_room(&mut self, pool: &mut Pool) -> usize {
        self.complete(pool);
        TX_WINDOW - self.in_flight
    }

    fn tx_burst(&mut self, _: &mut Pool, burst: &mut Burst) {
        let n = burst.len();
        for (slot, frame) in self.scratch.iter_mut().zip(burst.drain()) {
            let len = frame.len();
            *slot = self.memory.descs[frame.into_index() as usize];
            // SAFETY: the chunk is of this UMEM, and the Frame that owned it just gave it up; only
            // the descriptor's length is set.
            unsafe { self.memory.umem.data_mut(slot) }.cursor().set_pos(len);
        }
        // SAFETY: as above; each descriptor is of a chunk that nobody else has.
        let produced = unsafe { self.tx.produce(&self.scratch[..n]) };
        assert_eq!(produced, n, "the window is smaller than the ring");
        self.in_flight += n;
    }

    fn kick(&mut self) -> io::Result<()> {
        for _ in 0..MAX_KICKS {
            if self.tx_pending() == 0 {
                return Ok(());
            }
            self.kicks += 1;
            // SAFETY: an empty message to an open socket.
            let sent = unsafe {
                libc::sendto(self.tx.fd().as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
            };
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
                        self.kick_errors += 1;
                        Ok(())
                    }
                };
            }
        }
        Ok(())
    }

    fn tx_pending(&mut self) -> usize {
        (RING - self.tx.nb_free_exact()) as usize
    }

    fn held(&self) -> usize {
        self.filled + self.in_flight
    }

    fn stats(&self) -> DeviceStats {
        let own = DeviceStats {
            tx_kicks: self.kicks,
            tx_kick_errors: self.kick_errors,
            checksums_completed: self.completed,
            ..Default::default()
        };
        match self.rx.fd().xdp_statistics() {
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
