use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::wire::MacAddr;

use super::XdpError;
use super::memory::FRAME_SLACK;

/// Largest MTU that fits a page with XDP's headroom and tail: above it a program must take frames in
/// pieces.
pub(super) const MAX_LINEAR_MTU: u32 = 3506;
/// Largest MTU of all: what switches of the field take.
const MAX_MTU: u32 = 9216;

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
    /// Whether it has carrier: for a veth, whether its peer is up.
    pub carrier: bool,
    /// RX queues in use.
    pub rx_queues: u32,
    /// TX queues in use.
    pub tx_queues: u32,
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

/// `struct ethtool_value` (linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}
const ETHTOOL_GLINK: u32 = 0x0a;
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

/// The interfaces of one network namespace: that of the thread that makes this, whatever namespace
/// the thread that asks is in.
#[derive(Debug)]
pub struct Devices {
    socket: OwnedFd,
}

impl Devices {
    /// Those of this thread's namespace.
    ///
    /// # Errors
    /// Out of file descriptors.
    pub fn here() -> io::Result<Devices> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a fresh descriptor that nobody else owns.
        Ok(Devices { socket: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// What the kernel says of the interface `name` now.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn query(&self, name: &str) -> io::Result<Device> {
        let socket = &self.socket;
        let mut r = request(name)?;
        ioctl(socket, libc::SIOCGIFINDEX, &mut r)?;
        // SAFETY: SIOCGIFINDEX fills this member of the union.
        let index = unsafe { r.ifr_ifru.ifru_ifindex } as u32;
        ioctl(socket, libc::SIOCGIFMTU, &mut r)?;
        // SAFETY: SIOCGIFMTU fills this member of the union.
        let mtu = unsafe { r.ifr_ifru.ifru_mtu } as u32;
        ioctl(socket, libc::SIOCGIFFLAGS, &mut r)?;
        // SAFETY: SIOCGIFFLAGS fills this member of the union.
        let flags = i32::from(unsafe { r.ifr_ifru.ifru_flags });
        ioctl(socket, libc::SIOCGIFHWADDR, &mut r)?;
        // SAFETY: SIOCGIFHWADDR fills this member of the union.
        let address = unsafe { r.ifr_ifru.ifru_hwaddr };
        let mut mac = MacAddr::default();
        for (to, from) in mac.0.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        let mut link = EthtoolValue { cmd: ETHTOOL_GLINK, data: 0 };
        r.ifr_ifru.ifru_data = (&raw mut link).cast();
        // The flag follows the carrier by up to a second; it is for drivers that don't say.
        let carrier = match ioctl(socket, SIOCETHTOOL, &mut r) {
            Ok(()) => link.data != 0,
            Err(_) => flags & libc::IFF_RUNNING != 0,
        };
        let mut channels = EthtoolChannels { cmd: ETHTOOL_GCHANNELS, ..Default::default() };
        r.ifr_ifru.ifru_data = (&raw mut channels).cast();
        // A driver without channels has one queue.
        let (rx_queues, tx_queues) = match ioctl(socket, SIOCETHTOOL, &mut r) {
            Ok(()) => ((channels.rx + channels.combined).max(1), (channels.tx + channels.combined).max(1)),
            Err(_) => (1, 1),
        };
        Ok(Device { name: name.into(), index, mtu, mac, up: flags & libc::IFF_UP != 0, carrier, rx_queues, tx_queues })
    }
}

impl Device {
    /// Asks the kernel about `name` in this thread's namespace.
    ///
    /// # Errors
    /// There is no such interface, or the kernel does not say.
    pub fn query(name: &str) -> Result<Device, XdpError> {
        Devices::here().and_then(|devices| devices.query(name)).map_err(|cause| Device::unknown(name, cause))
    }

    /// The error that [`Devices::query`] failed for `name`.
    pub fn unknown(name: &str, cause: io::Error) -> XdpError {
        let remedy = match cause.raw_os_error() {
            Some(libc::ENODEV) => "`ip link` lists the interfaces of this namespace",
            _ => "check `ip link show`",
        };
        XdpError::new(format!("interface `{name}`"), cause, remedy)
    }

    /// Whether it is administratively up.
    ///
    /// # Errors
    /// The command that brings it up.
    pub fn check_up(&self) -> Result<(), XdpError> {
        if self.up {
            return Ok(());
        }
        let cause = io::Error::other("it is down");
        Err(XdpError::new(format!("interface `{}`", self.name), cause, format!("ip link set {} up", self.name)))
    }

    /// Whether weft can serve the interface by so many queues, with frames of one chunk of `chunk` bytes
    /// or, with `frags`, of several.
    ///
    /// # Errors
    /// What is in the way, and the command that mends it.
    pub(super) fn check(&self, chunk: usize, frags: bool, queues: u32) -> Result<(), XdpError> {
        let name = &self.name;
        let refuse = |cause: String, remedy: String| {
            Err(XdpError::new(format!("interface `{name}`"), io::Error::other(cause), remedy))
        };
        if self.rx_queues != queues || self.tx_queues < queues {
            let (rx, tx) = (self.rx_queues, self.tx_queues);
            let workers = if queues == 1 { "worker serves one".into() } else { format!("workers serve {queues}") };
            return refuse(
                format!("it has {rx} RX queues and {tx} TX queues, and the switch's {queues} {workers}"),
                format!("ethtool -L {name} rx {queues} tx {queues} (or combined {queues}), or set `workers` to {rx}"),
            );
        }
        let most = match frags {
            true => MAX_MTU,
            false => MAX_LINEAR_MTU.min((chunk - FRAME_SLACK) as u32),
        };
        if self.mtu > most {
            let why = if frags { "weft takes" } else { "this kernel and driver take in one piece" };
            return refuse(
                format!("its MTU of {} is over {most}, the most that {why}", self.mtu),
                format!("ip link set {name} mtu {most}"),
            );
        }
        Ok(())
    }
}
