use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR (linux/rtnetlink.h): interfaces and their
/// addresses that come, go or change.
const GROUPS: u32 = 1 | 0x10 | 0x100;

/// Tells when an interface of one network namespace or its addresses may have changed: that of the
/// thread that makes this.
///
/// What the messages say is not read. They can be lost when they come too fast (ENOBUFS), so whoever
/// trusts them has to look for himself then; looking always is simpler, and an interface changes
/// seldom.
#[derive(Debug)]
pub(super) struct LinkMonitor {
    socket: OwnedFd,
}

impl LinkMonitor {
    pub fn here() -> io::Result<LinkMonitor> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &NetlinkAddr::new(0, GROUPS))?;
        Ok(LinkMonitor { socket })
    }

    /// Takes what has been said; whether it was anything.
    pub fn drain(&self) -> bool {
        let mut buffer = [0; 8192];
        let mut said = false;
        loop {
            match recv(std::os::fd::AsRawFd::as_raw_fd(&self.socket), &mut buffer, MsgFlags::empty()) {
                Ok(0) | Err(Errno::EAGAIN) => return said,
                // Some were lost: that is word enough.
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => said = true,
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
