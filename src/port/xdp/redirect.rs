use libbpf_rs::{MapCore, MapFlags, OpenObject};

use super::program::{Aligned, Program, load_error, open};
use super::{Device, XdpError, XdpMode};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o")));

/// The kernel's own forwarding from one interface to another, `XDP_REDIRECT` over a devmap: what
/// AF_XDP is measured against. Ends when dropped.
///
/// On a veth the frame is lost unless the *peer* of the outgoing end has an XDP program or GRO on
/// (only then is there a NAPI instance to take it).
#[derive(Debug)]
pub struct KernelRedirect {
    _program: Program,
}

impl KernelRedirect {
    /// Sends every frame that arrives at `from` out of `to`; both are in this thread's namespace.
    ///
    /// # Errors
    /// No privilege, a program is attached already, or the driver does not do XDP.
    pub fn attach(from: &Device, to: &Device, mode: XdpMode) -> Result<KernelRedirect, XdpError> {
        let failed = |e: libbpf_rs::Error| load_error(&from.name, &e);
        let object = open(&OBJECT.0).and_then(OpenObject::load).map_err(failed)?;
        let out = object.maps().find(|m| m.name() == "out").expect("bpf/redirect.bpf.c has it");
        out.update(&0u32.to_ne_bytes(), &to.index.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        let program = object.progs().find(|p| p.name() == "weft_forward").expect("bpf/redirect.bpf.c has it");
        Ok(KernelRedirect { _program: Program::link(&program, from, mode).map_err(XdpError::name_holder)? })
    }
}
