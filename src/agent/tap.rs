use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::wire::MacAddr;

use super::AgentError;

/// Where applications' frames come from, and go to. Frames are without FCS, and have finished checksums.
pub trait Tap {
    /// Reads a frame into `buffer`, cut if it is longer; its length, `None` if none waits.
    ///
    /// # Errors
    /// The device is gone.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Hands a frame over; `false` if it is not taken now.
    ///
    /// # Errors
    /// The device is gone.
    fn write(&mut self, frame: &[u8]) -> io::Result<bool>;
}

/// A TAP in memory: what is put in is read, what is written piles up.
#[derive(Debug, Default)]
pub struct MemTap {
    /// What applications have sent and nobody has read.
    pub outgoing: VecDeque<Vec<u8>>,
    /// What applications were given.
    pub incoming: Vec<Vec<u8>>,
    /// Takes nothing, as an interface that is down.
    pub down: bool,
}

impl Tap for MemTap {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(self.outgoing.pop_front().map(|frame| {
            let len = frame.len().min(buffer.len());
            buffer[..len].copy_from_slice(&frame[..len]);
            len
        }))
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<bool> {
        if !self.down {
            self.incoming.push(frame.to_vec());
        }
        Ok(!self.down)
    }
}

/// A TAP device of the kernel, of this process alone: it goes with it, however that ends.
pub struct TapDevice {
    device: SyncDevice,
    name: String,
}

impl std::fmt::Debug for TapDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TapDevice({})", self.name)
    }
}

impl TapDevice {
    /// Makes the device `name` in this thread's namespace and brings it up. Without `VNET_HDR`: what is read has its
    /// checksums, and no frame is longer than `mtu` bytes behind its Ethernet header and tags.
    ///
    /// # Errors
    /// No privilege, no TUN driver, or there is an interface of that name.
    pub fn create(name: &str, mac: MacAddr, mtu: u16) -> Result<TapDevice, AgentError> {
        let failed = |cause| AgentError::Tap { name: name.into(), cause };
        // The kernel would choose a name.
        if name.is_empty() || name.contains('%') {
            return Err(failed(Errno::EINVAL.into()));
        }
        // A persistent TAP would be taken over, and stay.
        if nix::net::if_::if_nametoindex(name).is_ok() {
            return Err(failed(Errno::EEXIST.into()));
        }
        let builder = DeviceBuilder::new().name(name).layer(Layer::L2).mtu(mtu).mac_addr(mac.0);
        let device = builder.build_sync().map_err(failed)?;
        device.set_nonblocking(true).map_err(failed)?;
        Ok(TapDevice { device, name: name.into() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

pub(super) fn remedy(cause: &io::Error) -> &'static str {
    const NAME: &str = "use a name of 1 to 15 bytes, without `/`, `%` and spaces";
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => "run it as root, or with CAP_NET_ADMIN",
        Some(Errno::EEXIST | Errno::EBUSY) => "choose another name with --tap, or remove the one that is there",
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => "load the kernel's TUN driver: `modprobe tun`",
        Some(Errno::EINVAL) => NAME,
        _ if cause.kind() == io::ErrorKind::InvalidInput => NAME,
        _ => "see dmesg",
    }
}

impl Tap for TapDevice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.device.recv(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<bool> {
        match self.device.send(frame) {
            Ok(_) => Ok(true),
            // EBADFD: the device was deleted.
            Err(e) if e.raw_os_error() == Some(Errno::EBADFD as i32) => Err(e),
            // It is down (EIO), memory is short, or the frame is one that the kernel does not take.
            Err(_) => Ok(false),
        }
    }
}

impl AsFd for TapDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
