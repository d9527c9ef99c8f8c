use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::id::XdpMode;
use crate::port::Port;
use crate::port::xdp::{Device, Devices, Memory, XdpOptions, XdpPort, chunk_size};
use crate::runtime::{Waiter, check_default_route, check_privileges, drop_privileges, now};
use crate::scheme::pl2::host::HostConfig;
use crate::time::{Instant, MILLIS, SECONDS, earliest};
use crate::wire::MacAddr;

use super::AgentError;
use super::address::{Addresses, Addressing};
use super::engine::{Agent, AgentConfig, Gone};
use super::report::AgentReport;
use super::tap::TapDevice;

/// Chunks to receive into.
const FILL: u32 = 1024;
/// Chunks beside those of parked frames: received ones, those that wait for the TAP or go unscheduled, the TX ring.
const CHUNKS: u32 = 4096;
/// Most chunks for frames that were released and are paced, and how many of the smallest fill a slot.
const MAX_PACED: u32 = 16_384;
const FRAMES_OF_SLOT: u32 = 18;
/// Longest sleep: how late a signal may be seen that arrives just before it.
const MAX_NAP: u64 = 100 * MILLIS;
/// How long what was released may take to leave at the end.
const DRAIN: u64 = 200 * MILLIS;
/// Time between two looks whether the uplink is still there: an idle socket is not told.
const LOOK_AGAIN: u64 = 500 * MILLIS;
/// Time between two warnings that nobody answers.
const WARN_AGAIN: u64 = 60 * SECONDS;

/// What an agent does when there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Spins: exact times, for a whole core.
    Busy,
    /// Sleeps until so many nanoseconds before something is due, and spins from there.
    Sleep {
        /// About as long as the kernel takes to wake a process.
        spin: u64,
    },
}

/// What to run.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The interface to the switch, in this thread's namespace.
    pub uplink: String,
    /// The TAP device to make.
    pub tap: String,
    /// Where the uplink's XDP program hooks in.
    pub mode: XdpMode,
    /// How it reserves. An `mtu` of 0 stands for the uplink's.
    pub host: HostConfig,
    /// Destinations that always go unscheduled.
    pub unscheduled: Vec<MacAddr>,
    /// The TAP's addresses.
    pub addressing: Addressing,
    /// How it waits.
    pub wait: Wait,
    /// Whether the uplink may carry the machine's default route.
    pub force: bool,
    /// Time between reports in nanoseconds; `None`: one at the end.
    pub interval: Option<u64>,
}

/// Runs an agent until `stop` is set: makes the TAP, moves the addresses, and puts everything back. `ready` is called
/// with a first report once frames pass, `report` at each interval; the last report is returned.
///
/// # Errors
/// It can't start, and changed nothing; or a side of it went away ([`AgentError::is_late`]).
pub fn run(
    options: &AgentOptions,
    stop: &AtomicBool,
    ready: impl FnOnce(&AgentReport),
    mut report: impl FnMut(&AgentReport),
) -> Result<AgentReport, AgentError> {
    check_privileges(false)?;
    let devices = Devices::here().map_err(AgentError::system("socket"))?;
    let device = devices.query(&options.uplink).map_err(|cause| Device::unknown(&options.uplink, cause))?;
    let index = device.index;
    device.check_up()?;
    check_default_route(&device, options.force).map_err(AgentError::Impossible)?;
    let config = agent_config(options, &device)?;
    let mac = config.mac;

    let paced = config.host.max_outstanding.saturating_mul(FRAMES_OF_SLOT).min(MAX_PACED);
    let chunks = CHUNKS.saturating_add(paced).saturating_add(config.host.max_parked);
    let (memory, mut pool) = Memory::new(chunks, chunk_size(device.mtu))?;
    let xdp = XdpOptions { mode: options.mode, fill: FILL as usize, complete_checksums: false, pass_to_kernel: false };
    let mut port = XdpPort::open(&memory, device, &xdp)?;
    port.start(&mut pool);
    let tap = TapDevice::create(&options.tap, mac, config.host.mtu)?;
    let names = (options.uplink.as_str(), options.tap.as_str(), mac);
    let waiter = Waiter::new().and_then(|waiter| {
        waiter.watch(port.as_fd())?;
        waiter.watch(tap.as_fd())?;
        Ok(waiter)
    });
    let waiter = waiter.map_err(AgentError::system("epoll"))?;
    let agent = Agent::new(&config, port, tap, pool)?;
    let looks = Looks { devices, index, next: now() + LOOK_AGAIN };
    let mut running = Running { agent, waiter, wait: options.wait, names, start: now(), warned: None, looks };
    let mut addresses = Addresses::of(&options.uplink)?;
    let given = addresses.give(&options.addressing, &options.tap).map_err(AgentError::from);
    let outcome = match given.and_then(|()| Ok(drop_privileges(false)?)) {
        Ok(()) => {
            running.start = now();
            ready(&AgentReport::of(&running.agent, names, (running.start, running.start)));
            let outcome = running.until(stop, options.interval, &mut report);
            let last = running.finish();
            outcome.map(|()| last)
        }
        Err(error) => {
            // The TAP goes first, and with it what it was given.
            drop(running);
            Err(error)
        }
    };
    // Also after a failure, which is what is told then.
    let restored = addresses.restore();
    if let Err(error) = &restored {
        tracing::error!(%error, "the uplink does not have all that it had");
    }
    let last = outcome?;
    restored?;
    Ok(last)
}

fn agent_config(options: &AgentOptions, device: &Device) -> Result<AgentConfig, AgentError> {
    let uplink = &device.name;
    let mtu = if options.host.mtu == 0 { device.mtu } else { options.host.mtu.into() };
    if mtu > device.mtu {
        let most = device.mtu;
        return Err(AgentError::Impossible(format!(
            "an MTU of {mtu} is over that of the uplink `{uplink}`, {most}: use at most --mtu {most}, or raise it with \
             `ip link set {uplink} mtu {mtu}`"
        )));
    }
    let mtu = u16::try_from(mtu).map_err(|_| {
        AgentError::Impossible(format!(
            "an MTU of {mtu} of `{uplink}` is more than a frame can have: use --mtu 9216 or less"
        ))
    })?;
    let host = HostConfig { mtu, max_expected: 0, ..options.host };
    host.validate()?;
    Ok(AgentConfig { host, mac: device.mac, unscheduled: options.unscheduled.clone() })
}

struct Running<'a> {
    agent: Agent<XdpPort, TapDevice>,
    waiter: Waiter,
    wait: Wait,
    names: (&'a str, &'a str, MacAddr),
    start: Instant,
    /// When it was last said that nobody answers, and how many frames had gone unscheduled for it; `None` if somebody
    /// does.
    warned: Option<(Instant, u64)>,
    looks: Looks,
}

/// Whether the uplink is still there.
struct Looks {
    devices: Devices,
    index: u32,
    next: Instant,
}

impl Running<'_> {
    fn until(
        &mut self,
        stop: &AtomicBool,
        interval: Option<u64>,
        report: &mut impl FnMut(&AgentReport),
    ) -> Result<(), AgentError> {
        let mut report_at = interval.map(|interval| self.start + interval);
        while !stop.load(Ordering::Relaxed) {
            let moved = self.agent.pass(now).map_err(|gone| self.dead(gone))?;
            let now = now();
            if let Some(at) = report_at
                && at <= now
            {
                report(&AgentReport::of(&self.agent, self.names, (self.start, now)));
                report_at = interval.map(|interval| now + interval);
            }
            self.warn(now);
            if self.looks.next <= now {
                self.look(now)?;
            }
            if moved > 0 {
                continue;
            }
            match self.wait {
                Wait::Busy => std::hint::spin_loop(),
                Wait::Sleep { spin } => {
                    let next = self.agent.next_deadline(now);
                    if next.is_some_and(|at| at <= now + spin) {
                        // Not a yield: who gets the core then has it for milliseconds.
                        std::hint::spin_loop();
                        continue;
                    }
                    let until = earliest(next.map(|at| at - spin), report_at);
                    let until = earliest(until, Some(now + MAX_NAP));
                    self.waiter.wait(now, until).map_err(AgentError::system("epoll_wait"))?;
                }
            }
        }
        Ok(())
    }

    /// Looks whether the uplink is still there, and the same.
    fn look(&mut self, now: Instant) -> Result<(), AgentError> {
        self.looks.next = now + LOOK_AGAIN;
        let cause = match self.looks.devices.query(self.names.0) {
            Ok(device) if device.index == self.looks.index => return Ok(()),
            Ok(_) => io::Error::other("another interface has its name"),
            Err(cause) => cause,
        };
        Err(self.dead(Gone::Uplink(cause)))
    }

    fn dead(&self, gone: Gone) -> AgentError {
        let (uplink, tap, _) = self.names;
        match gone {
            Gone::Uplink(cause) => AgentError::Dead { interface: uplink.into(), cause },
            Gone::Tap(cause) => AgentError::Dead { interface: tap.into(), cause },
        }
    }

    /// Says that nobody answers, which is what a switch without PL2 looks like, and that somebody does again.
    fn warn(&mut self, now: Instant) {
        let uplink = self.names.0;
        if !self.agent.is_unanswered() {
            if self.warned.take().is_some() {
                tracing::info!(uplink, "slots are granted again");
            }
            return;
        }
        let unscheduled = self.agent.counters().unanswered;
        if self.warned.is_none_or(|(at, before)| now.since(at) >= WARN_AGAIN && unscheduled > before) {
            self.warned = Some((now, unscheduled));
            tracing::warn!(
                uplink,
                unscheduled,
                "no switch grants slots here: all frames go unscheduled; has it `pl2`?"
            );
        }
    }

    /// Gives back what is reserved, lets what was released leave, and takes the agent apart.
    fn finish(mut self) -> AgentReport {
        let end = now();
        self.agent.stop(end);
        while let Ok(false) = self.agent.flush(now()) {
            if now().since(end) > DRAIN {
                break;
            }
            thread::yield_now();
        }
        let mut report = AgentReport::of(&self.agent, self.names, (self.start, end));
        let (mut port, tap, mut pool, counters) = self.agent.close();
        report.agent = counters;
        report.device = port.stats();
        port.stop(&mut pool);
        // The socket first, then its memory.
        drop((port, tap));
        drop(pool);
        report
    }
}
