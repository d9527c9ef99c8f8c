use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object, ProgramInput};
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;

use crate::time::{Instant, SECONDS};

use super::program::{Aligned, libbpf_error, load_error, open};
use super::{Device, XdpError};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/live.bpf.o")));

/// BPF_F_TEST_XDP_LIVE_FRAMES (linux/bpf.h, kernel 5.18): the frames of a test run really leave.
const LIVE_FRAMES: u32 = 2;
/// How soon the signal that ends a run comes again, should it have come before the run began.
const NUDGE: Duration = Duration::from_millis(10);
/// Intervals are in units of 2^-16 ns.
const FRACTION_BITS: u32 = 16;

/// What of a frame the kernel fills in, frame by frame.
#[derive(Clone, Copy, Debug)]
pub struct LiveLayout {
    /// Offset of the UDP header in bytes, below 256.
    pub udp: usize,
    /// Folded sum of all that the UDP checksum covers, varying fields and checksum taken as 0.
    pub base: u16,
    /// Flows, served in turn.
    pub flows: u32,
    /// Source port of flow 0, counted from 1024.
    pub first_port: u32,
}

/// When live frames go.
#[derive(Clone, Copy, Debug)]
pub struct LivePace {
    /// Frames per second as a fraction; `None`: as fast as the kernel makes them.
    pub rate: Option<(u64, u64)>,
    /// Frames that may go at once after the maker was kept off its core; more are skipped.
    pub backlog: u64,
}

/// What became of live frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveState {
    /// Frames made.
    pub sent: u64,
    /// Frames left out for being late.
    pub skipped: u64,
    /// When the first one was made.
    pub first: Instant,
    /// When the last one was made.
    pub last: Instant,
}

/// Frames made in the kernel: `BPF_PROG_TEST_RUN` with live XDP frames, several times faster than a
/// socket. It keeps its core busy, also while it waits for a frame to be due.
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
    /// Copies of `frame` to leave by `device`, which is in this thread's namespace.
    ///
    /// # Errors
    /// No privilege, or the kernel is older than 5.18.
    pub fn load(device: &Device, frame: &[u8], layout: LiveLayout, pace: LivePace) -> Result<LiveFrames, XdpError> {
        let failed = |e: libbpf_rs::Error| load_error(&device.name, &e);
        let interval = pace.rate.map_or(0, |(n, d)| {
            let ns = (u128::from(d) * u128::from(SECONDS)) << FRACTION_BITS;
            (ns / u128::from(n)).clamp(1, u128::from(u64::MAX)) as u64
        });
        let words = [
            u64::from(device.index),
            u64::from(layout.flows),
            layout.udp as u64,
            u64::from(layout.base),
            u64::from(layout.first_port),
            interval,
            pace.backlog,
        ];
        let config: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut object = open(&OBJECT.0).map_err(failed)?;
        let mut map = object
            .maps_mut()
            .find(|m| m.name().to_string_lossy().ends_with(".rodata"))
            .expect("bpf/live.bpf.c has constants");
        map.set_initial_value(&config).map_err(failed)?;
        Ok(LiveFrames { object: object.load().map_err(failed)?, frame: frame.into() })
    }

    /// Makes frames for `time`, or until a signal arrives; at most `count`, if they are not paced.
    /// Takes some 20 ms longer, in which the kernel waits for a grace period.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&mut self, time: Duration, count: u64) -> io::Result<()> {
        // A signal is what ends a test run early. Its handler has nothing to do.
        signal_hook::flag::register(signal_hook::consts::SIGALRM, Arc::new(AtomicBool::new(false)))?;
        let here = SigevNotify::SigevThreadId { signal: Signal::SIGALRM, thread_id: gettid().as_raw(), si_value: 0 };
        let mut alarm = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(here))?;
        let spec = |d: Duration| TimeSpec::from_duration(d.max(Duration::from_nanos(1)));
        alarm.set(Expiration::IntervalDelayed(spec(time), spec(NUDGE)), TimerSetTimeFlags::empty())?;
        let program = self.object.progs_mut().find(|p| p.name() == "weft_live").expect("bpf/live.bpf.c has it");
        let input = ProgramInput {
            data_in: Some(&self.frame),
            flags: LIVE_FRAMES,
            repeat: count.min(i32::MAX as u64) as u32,
            ..Default::default()
        };
        match program.test_run(input) {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(libbpf_error(&e)),
        }
    }

    /// What became of the frames so far.
    ///
    /// # Errors
    /// The system's.
    pub fn state(&self) -> io::Result<LiveState> {
        let map = self.object.maps().find(|m| m.name().to_string_lossy().ends_with(".bss"));
        let map = map.expect("bpf/live.bpf.c has variables");
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|e| libbpf_error(&e))?;
        let value = value.expect("an array has its first element");
        let word = |i: usize| u64::from_ne_bytes(value[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        Ok(LiveState { sent: word(0), skipped: word(1), first: Instant(word(2)), last: Instant(word(3)) })
    }
}
