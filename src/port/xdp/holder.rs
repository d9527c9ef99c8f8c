//! Who holds an interface's queue or its XDP program, for errors that name them.
//!
//! Best effort: the kernel tells of sockets of this thread's namespace only, and only if it was built
//! with CONFIG_XDP_SOCKETS_DIAG; /proc shows the files of processes that this one may look into. What
//! can't be found out is left out of the error.

use std::fmt;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// SOCK_DIAG_BY_FAMILY (linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// XDP_SHOW_INFO and XDP_DIAG_INFO (linux/xdp_diag.h).
const XDP_SHOW_INFO: u32 = 1;
const XDP_DIAG_INFO: u16 = 1;
/// NLMSG_ERROR and NLMSG_DONE (linux/netlink.h).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`, `struct xdp_diag_msg` and `struct nlattr`.
const MESSAGE_HEADER: usize = 16;
const DIAG_MESSAGE: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// Answers read before giving up: some 100 sockets each.
const MAX_ANSWERS: usize = 256;
/// Open files of other processes looked at before giving up.
const MAX_FILES: usize = 1 << 17;

/// A process that holds what another wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    command: String,
    process: u32,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.command, self.process)
    }
}

impl Holder {
    /// Whether it is another process than this.
    pub fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }
}

/// What of an interface of this thread's namespace, by its index, was to be had and is another's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// A queue, by its number.
    Queue(u32, u32),
    /// The place of the XDP program.
    Program(u32),
}

impl Wanted {
    /// The process that has it.
    pub fn holder(self) -> Option<Holder> {
        match self {
            Wanted::Queue(ifindex, queue) => queue_holder(ifindex, queue),
            Wanted::Program(ifindex) => program_holder(ifindex),
        }
    }
}

/// The process that has a queue of an interface of this thread's namespace: that of its socket, or where
/// the kernel does not tell sockets, of the interface's program, which is the same as a rule.
fn queue_holder(ifindex: u32, queue: u32) -> Option<Holder> {
    match XdpSocket::on(ifindex, queue) {
        Some(socket) => socket.holder(),
        None => program_holder(ifindex),
    }
}

/// Whether another process has a queue of an interface of this thread's namespace, and has not closed
/// its socket; `false` if that can't be told.
pub(super) fn is_foreign(ifindex: u32, queue: u32) -> bool {
    match XdpSocket::on(ifindex, queue) {
        Some(socket) => socket.is_foreign(),
        None => program_holder(ifindex).is_some_and(|holder| holder.is_foreign()),
    }
}

/// An open AF_XDP socket, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct XdpSocket(u32);

impl XdpSocket {
    /// The one that is bound to a queue of an interface of this thread's namespace. One that was closed
    /// is not found, though the kernel may keep its queue busy a little longer.
    fn on(ifindex: u32, queue: u32) -> Option<XdpSocket> {
        ask(ifindex, queue).ok().flatten()
    }

    /// Whether some other process than this has it open; `false` if that can't be told.
    fn is_foreign(self) -> bool {
        let name = self.file_name();
        fs::read_dir("/proc/self/fd").is_ok_and(|mut files| !files.any(|f| f.is_ok_and(|f| leads_to(&f.path(), &name))))
    }

    /// The first process that has it open.
    fn holder(self) -> Option<Holder> {
        let name = self.file_name();
        find_process(|file| leads_to(file, &name))
    }

    fn file_name(self) -> String {
        format!("socket:[{}]", self.0)
    }
}

/// The process that attached the XDP program of an interface: who has its link open, or else the
/// program itself.
fn program_holder(ifindex: u32) -> Option<Holder> {
    let mut id = 0;
    // SAFETY: `id` outlives the call, which writes one u32.
    let failed = unsafe { libbpf_sys::bpf_xdp_query_id(ifindex as i32, 0, &raw mut id) };
    if failed != 0 || id == 0 {
        return None;
    }
    let id = id.to_string();
    let is = |file: &Path, kind: &str| {
        let there = fs::read_link(file).is_ok_and(|to| to.to_string_lossy().contains("bpf"));
        let fdinfo = file.to_string_lossy().replacen("/fd/", "/fdinfo/", 1);
        there
            && fs::read_to_string(fdinfo)
                .is_ok_and(|text| field(&text, kind).is_some() && field(&text, "prog_id") == Some(&id))
    };
    find_process(|file| is(file, "link_id")).or_else(|| find_process(|file| is(file, "prog_type")))
}

/// The value of a line `name:\tvalue` of /proc/PID/fdinfo/FD.
fn field<'a>(fdinfo: &'a str, name: &str) -> Option<&'a str> {
    fdinfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn leads_to(file: &Path, name: &str) -> bool {
    fs::read_link(file).is_ok_and(|to| to.as_os_str() == name)
}

/// The first process one of whose files `is` what is looked for, by the file's path under /proc.
fn find_process(is: impl Fn(&Path) -> bool) -> Option<Holder> {
    let mut left = MAX_FILES;
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // No error: it has ended, or is none of ours to look into.
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            left = left.checked_sub(1)?;
            if is(&file.path()) {
                let command = fs::read_to_string(process.path().join("comm")).ok()?;
                return Some(Holder { command: command.trim_end().into(), process: number });
            }
        }
    }
    None
}

/// Asks the kernel for all AF_XDP sockets of this namespace.
fn ask(ifindex: u32, queue: u32) -> Result<Option<XdpSocket>, Errno> {
    let socket: OwnedFd =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(1))?;
    sendto(socket.as_raw_fd(), &request(), &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut buffer = [0; 1 << 14];
    for _ in 0..MAX_ANSWERS {
        let n = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        match read_answer(&buffer[..n], ifindex, queue) {
            Answer::Found(socket) => return Ok(Some(socket)),
            Answer::More => {}
            Answer::End => break,
        }
    }
    Ok(None)
}

/// A dump request: `struct nlmsghdr`, `struct xdp_diag_req`.
fn request() -> [u8; 36] {
    let mut request = [0; 36];
    request[0..4].copy_from_slice(&36u32.to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    let flags = (nix::libc::NLM_F_REQUEST | nix::libc::NLM_F_DUMP) as u16;
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[16] = nix::libc::AF_XDP as u8;
    request[24..28].copy_from_slice(&XDP_SHOW_INFO.to_ne_bytes());
    request
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Found(XdpSocket),
    /// It is not among these; there are others.
    More,
    /// No more, or nothing that can be read.
    End,
}

/// One datagram of the answer: messages of `struct nlmsghdr`, `struct xdp_diag_msg` and attributes.
fn read_answer(mut bytes: &[u8], ifindex: u32, queue: u32) -> Answer {
    while let Some((length, kind)) = word(bytes, 0).zip(half(bytes, 4)) {
        let length = length as usize;
        if kind == NLMSG_DONE || kind == NLMSG_ERROR || length < MESSAGE_HEADER {
            return Answer::End;
        }
        let Some(message) = bytes.get(MESSAGE_HEADER..length) else { return Answer::End };
        if kind == SOCK_DIAG_BY_FAMILY
            && let Some(inode) = word(message, 4)
            && info(message) == Some((ifindex, queue))
        {
            return Answer::Found(XdpSocket(inode));
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Answer::More
}

/// Interface and queue of one socket: `struct xdp_diag_info`.
fn info(message: &[u8]) -> Option<(u32, u32)> {
    let mut attributes = message.get(DIAG_MESSAGE..)?;
    loop {
        let (length, kind) = (usize::from(half(attributes, 0)?), half(attributes, 2)?);
        if length < ATTRIBUTE_HEADER {
            return None;
        }
        if kind == XDP_DIAG_INFO {
            return word(attributes, ATTRIBUTE_HEADER).zip(word(attributes, ATTRIBUTE_HEADER + 4));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((MESSAGE_HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    /// A socket with `inode` on `ifindex` and `queue`, after an attribute of another kind.
    fn socket_message(inode: u32, ifindex: u32, queue: u32) -> Vec<u8> {
        let mut body = vec![44, 3, 0, 0];
        body.extend(inode.to_ne_bytes());
        body.extend([0; 8]);
        body.extend([8u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
        body.extend(0u32.to_ne_bytes());
        body.extend([12u16.to_ne_bytes(), XDP_DIAG_INFO.to_ne_bytes()].concat());
        body.extend([ifindex.to_ne_bytes(), queue.to_ne_bytes()].concat());
        message(SOCK_DIAG_BY_FAMILY, &body)
    }

    #[test]
    fn the_socket_of_a_queue_is_found_among_others_by_interface_and_queue() {
        let answer = [socket_message(11, 4, 0), socket_message(12, 3, 1), socket_message(13, 3, 0)].concat();
        assert_eq!(read_answer(&answer, 3, 0), Answer::Found(XdpSocket(13)));
        assert_eq!(read_answer(&answer, 3, 1), Answer::Found(XdpSocket(12)));
        assert_eq!(read_answer(&answer, 5, 0), Answer::More);
        assert_eq!(read_answer(&[answer, message(NLMSG_DONE, &[0; 4])].concat(), 5, 0), Answer::End);
        assert_eq!(read_answer(&message(NLMSG_ERROR, &[0; 20]), 3, 0), Answer::End);
    }

    #[test]
    fn an_answer_cut_off_anywhere_or_with_impossible_lengths_is_read_as_far_as_it_goes() {
        let whole = socket_message(13, 3, 0);
        for length in 0..whole.len() {
            assert_ne!(read_answer(&whole[..length], 3, 0), Answer::Found(XdpSocket(13)), "{length} bytes");
            for changed in [0, 1, 0xff] {
                let mut bad = whole.clone();
                bad[length] = changed;
                let _ = read_answer(&bad, 3, 0);
            }
        }
    }

    #[test]
    fn a_file_of_this_process_is_traced_to_it() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let name = fs::read_link(format!("/proc/self/fd/{}", near.as_raw_fd())).unwrap();
        let name = name.to_str().unwrap().to_string();
        let inode = name.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap();
        let holder = XdpSocket(inode).holder().unwrap();
        assert_eq!(holder.process, std::process::id());
        assert!(!XdpSocket(inode).is_foreign());
        assert!(holder.to_string().ends_with(&format!("(process {})", std::process::id())));
        drop(near);
        assert_eq!(XdpSocket(inode).holder(), None);
        assert!(XdpSocket(inode).is_foreign());
    }

    #[test]
    fn fdinfo_gives_a_link_its_program() {
        let text = "pos:\t0\nlink_type:\txdp\nlink_id:\t9\nprog_tag:\tff\nprog_id:\t41\nifindex:\t3\n";
        assert_eq!(
            (field(text, "link_id"), field(text, "prog_id"), field(text, "prog")),
            (Some("9"), Some("41"), None)
        );
    }
}
