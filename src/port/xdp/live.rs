use std::io;

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};

use super::program::{Aligned, libbpf_error, load_error, open};
use super::{Device, XdpError};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/live.bpf.o")));

/// BPF_F_TEST_XDP_LIVE_FRAMES (linux/bpf.h, kernel 5.18): the frames of a test run really leave.
const LIVE_FRAMES: u32 = 2;

/// What of a frame the kernel fills in, frame by frame.
#[derive(Clone, Copy, Debug)]
pub struct LiveLayout {
    /// Offset of the UDP header in bytes, below 256.
    pub udp: u32,
    /// Folded sum of all that the UDP checksum covers, varying fields and checksum taken as 0.
    pub base: u16,
    /// Flows, served in turn.
    pub flows: u32,
    /// Source port of flow 0, counted from 1024.
    pub first_port: u32,
}

/// A flood made in the kernel: `BPF_PROG_TEST_RUN` with live XDP frames, an order of magnitude
/// faster than a socket, with no pacing at all.
///
/// On a veth frames are lost unless the peer has an XDP program or GRO on, and when its ring is full.
/// Nobody tells the sender: what did not fit counts as sent.
pub struct LiveFrames {
    object: Object,
    frame: Vec<u8>,
}

impl std::fmt::Debug for LiveFrames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LiveFrames({} B)", self.frame.len())
    }
}

impl LiveFrames {
    /// A flood of copies of `frame` out of `device`, which is in this thread's namespace.
    ///
    /// # Errors
    /// No privilege, or the kernel is older than 5.18.
    pub fn load(device: &Device, frame: &[u8], layout: LiveLayout) -> Result<LiveFrames, XdpError> {
        let failed = |e: libbpf_rs::Error| load_error(&device.name, &e);
        let mut object = open(&OBJECT.0).map_err(failed)?;
        let words = [device.index, layout.flows, layout.udp, u32::from(layout.base), layout.first_port];
        let mut config: Vec<u8> = Vec::new();
        words.iter().for_each(|word| config.extend(word.to_ne_bytes()));
        let mut map = object
            .maps_mut()
            .find(|m| m.name().to_string_lossy().ends_with(".rodata"))
            .expect("bpf/live.bpf.c has constants");
        map.set_initial_value(&config).map_err(failed)?;
        Ok(LiveFrames { object: object.load().map_err(failed)?, frame: frame.into() })
    }

    /// Makes `count` frames (all of them, unless a signal arrives). Takes some 20 ms beyond the
    /// sending, in which the kernel waits for a grace period.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&mut self, count: u32) -> io::Result<()> {
        let program = self.object.progs_mut().find(|p| p.name() == "weft_live").expect("bpf/live.bpf.c has it");
        let input = ProgramInput {
            data_in: Some(&self.frame),
            flags: LIVE_FRAMES,
            repeat: count.min(i32::MAX as u32),
            ..Default::default()
        };
        match program.test_run(input) {
            Ok(_) => Ok(()),
            Err(e) => match libbpf_error(&e) {
                // The caller looks at its stop flag, and at `sent`.
                cause if cause.kind() == io::ErrorKind::Interrupted => Ok(()),
                cause => Err(cause),
            },
        }
    }

    /// Frames made so far.
    ///
    /// # Errors
    /// The system's.
    pub fn sent(&self) -> io::Result<u64> {
        let counter = self.object.maps().find(|m| m.name().to_string_lossy().ends_with(".bss"));
        let counter = counter.expect("bpf/live.bpf.c has it");
        let value = counter.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|e| libbpf_error(&e))?;
        let value = value.expect("an array has its first element");
        Ok(u64::from_ne_bytes(value[..8].try_into().expect("eight bytes")))
    }
}
