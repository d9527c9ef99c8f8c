use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::wire::MacAddr;

use super::XdpError;
use super::memory::FRAME_SLACK;

/// Largest MTU that fits a page with XDP's headroom and tail: above it a
/// program must take frames in pieces.
const MAX_MTU: u32 = 3506;

/// What the kernel says of a network interface of this thread's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Whether it is administratively up.
    pub up: bool,
    /// RX queues in use.
    pub rx_queues: u32,
}

/// `struct ethtool_channels` (linux/ethtool.h), which libc lacks.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    cmd: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: ifreq is plain data for which all zeros is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(socket: &OwnedFd, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the descriptor is open and `request` is the structure that every code used here takes.
    match unsafe { libc::ioctl(socket.as_raw_fd(), code, request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Device {
    /// Asks the kernel about `name` in this thread's namespace.
    ///
    /// # Errors
    /// There is no such interface, or the kernel does not say.
    pub fn query(name: &str) -> Result<Device, XdpError> {
        Device::read(name).map_err(|cause| {
            let remedy = match cause.raw_os_error() {
                Some(libc::ENODEV) => "`ip link` lists the interfaces of this namespace",
                _ => "check `ip link show`",
            };
            XdpError::new(format!("interface `{name}`"), cause, remedy)
        })
    }

    fn read(name: &str) -> io::Result<Device> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a fresh descriptor that nobody else owns.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut r = request(name)?;
        ioctl(&socket, libc::SIOCGIFINDEX, &mut r)?;
        // SAFETY: SIOCGIFINDEX fills this member of the union.
        let index = unsafe { r.ifr_ifru.ifru_ifindex } as u32;
        ioctl(&socket, libc::SIOCGIFMTU, &mut r)?;
        // SAFETY: SIOCGIFMTU fills this member of the union.
        let mtu = unsafe { r.ifr_ifru.ifru_mtu } as u32;
        ioctl(&socket, libc::SIOCGIFFLAGS, &mut r)?;
        // SAFETY: SIOCGIFFLAGS fills this member of the union.
        let flags = unsafe { r.ifr_ifru.ifru_flags };
        ioctl(&socket, libc::SIOCGIFHWADDR, &mut r)?;
        // SAFETY: SIOCGIFHWADDR fills this member of the union.
        let address = unsafe { r.ifr_ifru.ifru_hwaddr };
        let mut mac = MacAddr::default();
        for (to, from) in mac.0.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        let mut channels = EthtoolChannels { cmd: ETHTOOL_GCHANNELS, ..Default::default() };
        r.ifr_ifru.ifru_data = (&raw mut channels).cast();
        // A driver without channels has one queue.
        let rx_queues = match ioctl(&socket, SIOCETHTOOL, &mut r) {
            Ok(()) => (channels.rx + channels.combined).max(1),
            Err(_) => 1,
        };
        Ok(Device { name: name.into(), index, mtu, mac, up: i32::from(flags) & libc::IFF_UP != 0, rx_queues })
    }

    /// Whether weft can serve the interface.
    ///
    /// # Errors
    /// What is in the way, and the command that mends it.
    pub fn check(&self, frame_capacity: usize) -> Result<(), XdpError> {
        let name = &self.name;
        let refuse = |cause: String, remedy: String| {
            Err(XdpError::new(format!("interface `{name}`"), io::Error::other(cause), remedy))
        };
        if !self.up {
            return refuse("it is down".into(), format!("ip link set {name} up"));
        }
        if self.rx_queues > 1 {
            return refuse(
                format!("it spreads frames over {} RX queues, and weft serves one", self.rx_queues),
                format!("ethtool -L {name} rx 1 tx 1 (or combined 1)"),
            );
        }
        if self.mtu > MAX_MTU {
            return refuse(
                format!("its MTU of {} is over {MAX_MTU}, the most for a frame in one piece", self.mtu),
                format!("ip link set {name} mtu {MAX_MTU}"),
            );
        }
        if self.mtu as usize + FRAME_SLACK > frame_capacity {
            return refuse(
                format!("its MTU of {} does not fit frames of {frame_capacity} bytes", self.mtu),
                format!("ip link set {name} mtu {}", frame_capacity - FRAME_SLACK),
            );
        }
        Ok(())
    }
}
