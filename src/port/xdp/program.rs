use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::id::XdpMode;
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder, OpenObject};

use super::device::MAX_LINEAR_MTU;
use super::holder::Wanted;
use super::local::{self, LocalAddresses};
use super::{Device, XdpError};

/// An ELF object as libelf wants it: aligned.
#[repr(align(16))]
pub(super) struct Aligned<T: ?Sized>(pub T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/weft.bpf.o")));

/// Which of the programs of bpf/weft.bpf.c.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    /// Takes frames in several chunks too.
    pub frags: bool,
    /// Leaves frames to the interface's own addresses to the kernel.
    pub pass_to_kernel: bool,
}

impl Variant {
    fn program(self) -> &'static str {
        match (self.pass_to_kernel, self.frags) {
            (false, false) => "weft_redirect",
            (false, true) => "weft_redirect_frags",
            (true, false) => "weft_own",
            (true, true) => "weft_own_frags",
        }
    }
}

/// A program on an interface. Dropping it detaches it, and so does the process's end.
#[derive(Debug)]
pub(super) struct Program {
    _link: OwnedFd,
}

impl Program {
    /// Loads the redirecting program, points each queue at its socket and attaches it to `device`.
    ///
    /// # Errors
    /// No privilege, a program is attached already, or the driver does not do XDP.
    pub fn attach(
        device: &Device,
        mode: XdpMode,
        variant: Variant,
        queues: &[(u32, RawFd)],
    ) -> Result<(Program, Option<LocalAddresses>), XdpError> {
        let failed = |e: libbpf_rs::Error| load_error(&device.name, &e);
        let wanted = variant.program();
        let mut object = open(&OBJECT.0).map_err(failed)?;
        for mut program in object.progs_mut() {
            let load = program.name() == wanted;
            program.set_autoload(load);
        }
        for mut map in object.maps_mut().filter(|m| local::MAPS.iter().any(|name| m.name() == *name)) {
            map.set_autocreate(variant.pass_to_kernel).map_err(failed)?;
        }
        let object = object.load().map_err(failed)?;
        let sockets = object.maps().find(|m| m.name() == "sockets").expect("bpf/weft.bpf.c has it");
        for (queue, socket) in queues {
            sockets.update(&queue.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        let program = object.progs().find(|p| p.name() == wanted).expect("bpf/weft.bpf.c has it");
        let local = variant.pass_to_kernel.then(|| LocalAddresses::of(&object, &device.name));
        let local = local.transpose().map_err(failed)?;
        // The link keeps the program, and the program its maps, when `object` is closed.
        Ok((Program::link(&program, device, mode)?, local))
    }

    /// Attaches a loaded program to `device`.
    ///
    /// # Errors
    /// As for [`Program::attach`].
    pub fn link(program: &libbpf_rs::Program<'_>, device: &Device, mode: XdpMode) -> Result<Program, XdpError> {
        let name = &device.name;
        let link = create_link(program.as_fd().as_raw_fd(), device.index, mode).map_err(|cause| {
            let remedy = match cause.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_BPF and CAP_NET_ADMIN".into(),
                Some(libc::EBUSY | libc::EEXIST) => {
                    format!("another XDP program holds it (`ip link show {name}` tells its id): stop its owner")
                }
                Some(libc::EOPNOTSUPP) if mode == XdpMode::Native => {
                    "its driver has no native XDP: use mode = \"generic\"".into()
                }
                Some(libc::ERANGE) => format!("its veth peer's MTU is too large: set it to at most {MAX_LINEAR_MTU}"),
                Some(libc::ENOSPC) => {
                    "its veth peer has more TX queues than it has RX queues: `ethtool -L PEER tx 1` at the other end"
                        .into()
                }
                _ => "see dmesg".into(),
            };
            let is_held = matches!(cause.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
            let wanted = is_held.then_some(Wanted::Program(device.index));
            XdpError::new(format!("attaching XDP ({mode}) to `{name}`"), cause, remedy).wanting(wanted)
        })?;
        Ok(Program { _link: link })
    }
}

/// An object's maps and programs before the kernel has seen them.
pub(super) fn open(object: &[u8]) -> libbpf_rs::Result<OpenObject> {
    ObjectBuilder::default().name("weft")?.open_memory(object)
}

/// Why the program for the interface `name` could not be loaded.
pub(super) fn load_error(name: &str, error: &libbpf_rs::Error) -> XdpError {
    let cause = libbpf_error(error);
    let remedy = match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_BPF and CAP_NET_ADMIN",
        _ => "this kernel may lack CONFIG_BPF_SYSCALL or CONFIG_XDP_SOCKETS",
    };
    XdpError::new(format!("XDP program for `{name}`"), cause, remedy)
}

fn create_link(program: RawFd, ifindex: u32, mode: XdpMode) -> io::Result<OwnedFd> {
    let flags = match mode {
        XdpMode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
        XdpMode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
    };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: the program's descriptor is open, and `options` is initialised and outlives the call.
    let fd = unsafe { libbpf_sys::bpf_link_create(program, ifindex as i32, libbpf_sys::BPF_XDP, &options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf-rs wraps the system's error in its own; the number is what remedies go by.
pub(super) fn libbpf_error(error: &libbpf_rs::Error) -> io::Error {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = source {
        if let Some(code) = inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        source = inner.source();
    }
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => io::Error::from_raw_os_error(libc::EPERM),
        _ => io::Error::other(error.to_string()),
    }
}
