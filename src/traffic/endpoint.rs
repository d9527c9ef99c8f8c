use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::ifaddrs::getifaddrs;

use crate::frame::{Burst, Frame, Pool};
use crate::id::XdpMode;
use crate::port::Port;
use crate::port::xdp::{Device, Memory, XdpOptions, XdpPort, chunk_size};
use crate::runtime::{Waiter, now};
use crate::time::{Instant, MILLIS, SECONDS};
use crate::wire::MacAddr;

use super::TrafficError;
use super::station::Station;

/// Questions asked before a neighbour is given up, and how long each waits.
const ASKS: u64 = 3;
const ANSWER_TIME: u64 = SECONDS;
/// Longest sleep: how late a signal may be seen that arrives just before it.
pub(super) const MAX_NAP: u64 = 100 * MILLIS;

/// One port with its memory, for a station that sends or receives by itself.
pub(super) struct Endpoint {
    // Before the pool: the port gives up the kernel's hold on its memory first.
    pub port: XdpPort,
    pub pool: Pool,
    pub waiter: Waiter,
    burst: Burst,
    replies: Burst,
    answered: u64,
}

impl Endpoint {
    /// Opens `interface` with `chunks` chunks of memory, `fill` of them for receiving.
    pub fn open(interface: &str, mode: XdpMode, chunks: u32, fill: usize) -> Result<Endpoint, TrafficError> {
        let device = Device::query(interface)?;
        device.check_up()?;
        let (memory, mut pool) = Memory::new(chunks, chunk_size(device.mtu))?;
        let mut port = XdpPort::open(
            &memory,
            device,
            &XdpOptions { mode, fill, complete_checksums: false, pass_to_kernel: false },
        )?;
        port.start(&mut pool);
        let waiter = Waiter::new().map_err(|e| TrafficError::system("epoll", e))?;
        waiter.watch(port.as_fd()).map_err(|e| TrafficError::system("epoll", e))?;
        Ok(Endpoint { port, pool, waiter, burst: Burst::new(), replies: Burst::new(), answered: 0 })
    }

    /// Takes a burst, shows each frame with its time of arrival to `see`, and lets `station` answer
    /// the frames that `see` returned true for. The number of frames.
    pub fn receive(
        &mut self,
        station: Option<&Station>,
        mut see: impl FnMut(Instant, &Frame) -> bool,
    ) -> Result<usize, TrafficError> {
        self.port.rx_burst(&mut self.pool, &mut self.burst);
        let count = self.burst.len();
        if count == 0 {
            return Ok(0);
        }
        // After the ring was read, or a frame could arrive before it was sent.
        let now = now();
        for frame in self.burst.drain() {
            let question = see(now, &frame);
            if question
                && let Some(station) = station
                && let Some(mut out) = self.pool.alloc()
            {
                if station.answer(&frame, &mut out) {
                    self.replies.push(out);
                } else {
                    self.pool.free(out);
                }
            }
            self.pool.free(frame);
        }
        if !self.replies.is_empty() {
            self.send_replies()?;
        }
        Ok(count)
    }

    fn send_replies(&mut self) -> Result<(), TrafficError> {
        let mut room = self.port.tx_room(&mut self.pool);
        let mut sending = Burst::new();
        for reply in self.replies.drain() {
            // Whoever asked asks again.
            if room == 0 {
                self.pool.free(reply);
                continue;
            }
            room -= 1;
            self.answered += 1;
            sending.push(reply);
        }
        self.port.tx_burst(&mut self.pool, &mut sending);
        self.kick()
    }

    /// Questions answered so far.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Makes the kernel send what is in the ring.
    pub fn kick(&mut self) -> Result<(), TrafficError> {
        self.port.kick().map_err(|cause| TrafficError::Dead { interface: self.port.device().name.clone(), cause })
    }

    /// Sleeps until `until`, a frame, or [`MAX_NAP`].
    pub fn nap(&mut self, now: Instant, until: Instant) -> Result<(), TrafficError> {
        let until = until.min(now + MAX_NAP);
        self.waiter.wait(now, Some(until)).map_err(|e| TrafficError::system("epoll_wait", e))
    }

    /// The MAC of `target`, asked for in the name of `station` behind `tags`.
    pub fn resolve(&mut self, station: &Station, target: IpAddr, tags: &[u8]) -> Result<MacAddr, TrafficError> {
        for _ in 0..ASKS {
            if let Some(mut question) = self.pool.alloc() {
                if self.port.tx_room(&mut self.pool) > 0 && station.ask(target, tags, &mut question) {
                    let mut burst = Burst::new();
                    burst.push(question);
                    self.port.tx_burst(&mut self.pool, &mut burst);
                    self.kick()?;
                } else {
                    self.pool.free(question);
                }
            }
            let deadline = now() + ANSWER_TIME;
            loop {
                let mut found = None;
                let got = self.receive(Some(station), |_, frame| {
                    found = found.or_else(|| station.learn(target, frame));
                    true
                })?;
                if let Some(mac) = found {
                    return Ok(mac);
                }
                let now = now();
                if now >= deadline {
                    break;
                }
                if got == 0 {
                    self.nap(now, deadline)?;
                }
            }
        }
        let interface = self.port.device().name.clone();
        Err(TrafficError::Unresolved { target, interface, seconds: ASKS * ANSWER_TIME / SECONDS })
    }

    /// Waits until the kernel has taken every frame, 200 ms at most; how many it has not.
    pub fn flush(&mut self) -> Result<usize, TrafficError> {
        let deadline = now() + 200 * MILLIS;
        while self.port.tx_pending() > 0 && now() < deadline {
            self.kick()?;
            std::thread::yield_now();
        }
        Ok(self.port.tx_pending())
    }
}
/// The first address of `interface` that can talk to `destination`: of its family, and link-local
/// only if that is.
pub(super) fn source_address(interface: &str, destination: IpAddr) -> Result<IpAddr, TrafficError> {
    let local = |a: IpAddr| matches!(a, IpAddr::V6(a) if a.is_unicast_link_local());
    let addresses = getifaddrs().map_err(|e| TrafficError::system("getifaddrs", e.into()))?;
    let mut own = addresses.filter(|a| a.interface_name == interface).filter_map(|a| {
        let address = a.address?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    });
    own.find(|a| a.is_ipv4() == destination.is_ipv4() && local(*a) == local(destination)).ok_or_else(|| {
        let family = if destination.is_ipv4() { "IPv4" } else { "IPv6" };
        TrafficError::Impossible(format!("`{interface}` has no {family} address to send from: give --src-ip"))
    })
}
