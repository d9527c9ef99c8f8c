//! Hosts with agents of their own on real frames: the host core behind a NIC, over a link that may lose frames, to the
//! whole switch.

use std::collections::VecDeque;

use weft::pisa::tm::Pacer;
use weft::rng::Rng;
use weft::scheme::pl2::host::{Action, ConnKey, Enqueued, Host, HostConfig};
use weft::time::{Instant, MILLIS, earliest};
use weft::units::BitRate;
use weft::wire::ethernet::{self, on_wire};
use weft::wire::pl2::{Control, FRAME_LEN, Kind, SHIM_LEN};

use crate::rig::{ALONE, Rig, SLOT, Setup, mac, numbered};

const FULL: usize = 1514;
/// Frames of each sender.
const FRAMES: u16 = 200;

/// A host: its agent and what its NIC has to send, messages first.
pub struct Station {
    port: u8,
    pub host: Host<Vec<u8>>,
    messages: VecDeque<Vec<u8>>,
    data: VecDeque<Vec<u8>>,
    link: Pacer,
    /// Killed: it sends nothing any more, and hears nothing.
    pub dead: bool,
}

impl Station {
    fn new(port: u8, config: HostConfig) -> Station {
        let host = Host::new(&config).expect("a configuration in its ranges");
        let (messages, data, link) = (VecDeque::new(), VecDeque::new(), Pacer::new(BitRate(1_000_000_000)));
        Station { port, host, messages, data, link, dead: false }
    }

    /// Full frames to host 4, all at once.
    fn load(&mut self, now: Instant) {
        (0..FRAMES).for_each(|number| self.queue(now, 4, FULL, number));
    }

    /// A frame of `len` bytes to the host behind a port.
    pub fn queue(&mut self, now: Instant, to: u8, len: usize, number: u16) {
        let frame = numbered(self.port, to, len, number);
        let taken = self.host.enqueue(now, ConnKey { dst: mac(to), flow: 0 }, len as u32, frame);
        assert_eq!(taken, Enqueued::Parked);
    }

    /// The frames that are at the switch by now.
    fn sends(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let Station { port, host, messages, data, link, .. } = self;
        host.poll(now, |action| {
            if messages.is_empty() && data.is_empty() {
                link.start(now);
            }
            match action {
                Action::Send { dst, control } => {
                    let mut frame = [0; FRAME_LEN];
                    control.emit(dst, mac(*port), &mut frame);
                    messages.push_back(frame.to_vec());
                }
                Action::Release { mut frame, shim } => {
                    let mut bytes = [0; SHIM_LEN];
                    shim.emit(&mut bytes);
                    frame.splice(12..12, bytes);
                    data.push_back(frame);
                }
                Action::SendBehind { dst, control } => {
                    let mut frame = [0; FRAME_LEN];
                    control.emit(dst, mac(*port), &mut frame);
                    data.push_back(frame.to_vec());
                }
            }
        });
        let mut sent = vec![];
        while self.link.ready(now)
            && let Some(frame) = self.messages.pop_front().or_else(|| self.data.pop_front())
        {
            self.link.sent(on_wire(frame.len()));
            sent.push(frame);
        }
        sent
    }

    fn next(&self) -> Option<Instant> {
        let waits = !(self.messages.is_empty() && self.data.is_empty());
        earliest(self.host.next_deadline(), waits.then(|| self.link.next()))
    }
}

pub struct Net {
    pub rig: Rig,
    pub stations: Vec<Station>,
    /// One frame in so many is lost, on either way; 0: none.
    pub loss: u64,
    /// All data of hosts is lost.
    loses_data: bool,
    rng: Rng,
    /// Data that the switch got, and what came to host 4.
    sent: u64,
    came: Vec<Vec<u8>>,
    /// All that the switch sent: when, by which port, and what.
    pub log: Vec<(Instant, u8, Vec<u8>)>,
}

impl Net {
    pub fn new(rig: Rig, senders: &[u8], config: HostConfig) -> Net {
        let stations = senders.iter().map(|port| Station::new(*port, config)).collect();
        Net { rig, stations, loss: 0, loses_data: false, rng: Rng::new(1), sent: 0, came: vec![], log: vec![] }
    }

    fn loses(&mut self) -> bool {
        self.loss > 0 && self.rng.below(self.loss) == 0
    }

    /// What happens at one time; whether anything did.
    fn moment(&mut self) -> bool {
        let now = self.rig.now;
        let mut moved = false;
        for i in 0..self.stations.len() {
            if self.stations[i].dead {
                continue;
            }
            for frame in self.stations[i].sends(now) {
                moved = true;
                let is_data = frame.len() > FRAME_LEN;
                let is_lost = self.loses() || is_data && self.loses_data;
                if !is_lost {
                    self.sent += u64::from(is_data);
                    self.rig.arrive(self.stations[i].port, &frame);
                }
            }
        }
        self.rig.pass();
        for (port, frame) in self.rig.sent() {
            moved = true;
            self.log.push((now, port, frame.clone()));
            let headers = weft::wire::parse(&frame).expect("a frame");
            match Control::read(&frame, &headers) {
                Ok(grant) => {
                    assert_eq!((grant.kind, ethernet::dst(&frame)), (Kind::Grt, mac(port)));
                    let lost = self.loses();
                    let station = self.stations.iter_mut().find(|s| s.port == port && !s.dead && !lost);
                    station.into_iter().for_each(|s| _ = s.host.control(now, ethernet::src(&frame), &grant));
                }
                Err(_) if port == 4 && headers.ethertype == 0x0800 => self.came.push(frame),
                Err(_) => {}
            }
        }
        moved
    }

    pub fn run(&mut self, ns: u64) {
        let end = self.rig.now + ns;
        loop {
            while self.moment() {}
            let hosts = self.stations.iter().filter(|s| !s.dead).map(Station::next).fold(None, earliest);
            let Some(next) = earliest(hosts, self.rig.plane.next_deadline()).filter(|next| *next <= end) else { break };
            self.rig.now = next.max(self.rig.now + 1);
        }
        self.rig.now = end;
        while self.moment() {}
    }

    fn load(&mut self) {
        let now = self.rig.now;
        self.stations.iter_mut().for_each(|s| s.load(now));
    }

    /// The numbers of the frames that came from a sender, in order.
    fn from(&self, port: u8) -> Vec<u16> {
        let of = self.came.iter().filter(|f| f[11] == port);
        of.map(|f| u16::from_be_bytes([f[34], f[35]])).collect()
    }

    pub fn sum(&self, column: &str) -> u64 {
        (0..4).map(|port| self.rig.counted(port, column)).sum()
    }
}

#[test]
fn an_incast_of_hosts_with_agents_loses_nothing_whoever_has_the_agent() {
    for (tables, senders) in [(ALONE.tables, &[0u8, 1, 2, 3][..]), ("[pl2]\n", &[0, 1])] {
        let mut net = Net::new(Setup { tables, ..ALONE }.rig(), senders, HostConfig::default());
        net.load();
        // The others know nothing of it, and send as fast.
        for port in (0..4).filter(|port| !senders.contains(port)) {
            (0..FRAMES).for_each(|number| net.rig.arrive(port, &numbered(port, 4, FULL, number)));
        }
        net.run(60 * MILLIS);
        assert_eq!(net.rig.drops(), [], "{tables}");
        for port in 0..4 {
            let mut came = net.from(port);
            // One connection of an agent by itself keeps its order; those of the switch's agent are by flow.
            let in_order = came.is_sorted();
            came.sort_unstable();
            assert_eq!(came, (0..FRAMES).collect::<Vec<_>>(), "host {port}");
            assert!(in_order || !senders.contains(&port), "host {port}");
        }
        // A shim makes a host's frame longer than a slot by 4 bytes, and it waits for RSVs on its link: a frame more.
        assert!(net.rig.number("slots", 4, "peak_packets") <= 3, "{}", net.rig.number("slots", 4, "peak_packets"));
        assert_eq!((net.sum("rogue"), net.sum("late"), net.sum("timeouts")), (0, 0, 0));
        net.rig.at_rest();
    }
}

#[test]
fn whatever_is_lost_all_else_comes_and_nothing_stays_reserved() {
    for mode in ["counter", "clock", "window"] {
        let tables = format!("[pl2]\nagent = \"none\"\nmode = \"{mode}\"").leak();
        let config = HostConfig { depth: 2, ..HostConfig::default() };
        let mut net = Net::new(Setup { tables, ..ALONE }.rig(), &[0, 1, 2, 3], config);
        net.loss = 20;
        net.load();
        net.run(500 * MILLIS);
        assert!(net.stations.iter().all(|s| s.host.parked() == 0), "{mode}: something still waits");
        assert_eq!(net.came.len() as u64, net.sent, "{mode}");
        assert!(net.sent > 4 * u64::from(FRAMES) * 9 / 10 && net.sent < 4 * u64::from(FRAMES));
        assert!((0..4).all(|port| net.from(port).is_sorted()), "{mode}: out of order");
        let retries: u64 = net.stations.iter().map(|s| s.host.stats().counters.retries).sum();
        assert!(retries > 0 && net.sum("timeouts") + net.sum("unused_slots") > 0, "{mode}: nothing was lost");
        assert_eq!(net.rig.drops(), [], "{mode}");
        net.rig.at_rest();
    }
}

/// A burst that is lost as a whole, last frame and all: the next grant tells of its slots, which are given back before
/// the next burst. Without that they would be taken for it, and it for the one behind it, for 2 ms after each.
#[test]
fn the_slots_of_a_burst_that_is_lost_are_free_a_round_trip_after_the_next_request() {
    let mut net = Net::new(ALONE.rig(), &[0], HostConfig::default());
    net.load();
    let held = |net: &Net| net.rig.registers(0)[0];
    let mut lost = 0;
    while net.stations[0].host.parked() > 0 {
        // Each sixth burst.
        net.loses_data = net.stations[0].host.stats().counters.bursts % 6 == 5;
        lost += u64::from(net.loses_data);
        net.run(5 * SLOT);
        assert!(held(&net) <= 2 * 4, "{} slots held", held(&net));
    }
    let host = net.stations[0].host.stats().counters;
    net.run(3 * MILLIS);
    assert!(lost > 3 && net.sent < u64::from(FRAMES) && host.reclaims > 3, "{lost} steps, {} REL", host.reclaims);
    assert_eq!((net.came.len() as u64, net.sum("late"), net.sum("rogue")), (net.sent, 0, 0));
    assert_eq!((net.sum("timeouts"), net.sum("refused")), (0, 0));
    assert!(net.from(0).is_sorted());
    net.rig.at_rest();
}

#[test]
fn a_sender_that_is_killed_holds_nothing_2_ms_after_its_slots() {
    let mut net = Net::new(ALONE.rig(), &[0, 1, 2, 3], HostConfig { max_burst: 4, ..HostConfig::default() });
    net.load();
    net.run(5 * MILLIS);
    let held = net.rig.registers(0);
    assert!(held[0] > 0 && held[3] > 0, "it has reserved: {held:?}");
    net.stations[0].dead = true;
    // At most 16 slots of an incast are ahead of its own four.
    net.run(20 * SLOT + 2 * MILLIS);
    assert_eq!(net.rig.registers(0), [0; 4]);
    assert!(net.rig.counted(0, "timeouts") > 0);
    net.run(60 * MILLIS);
    for port in 1..4 {
        assert_eq!(net.from(port), (0..FRAMES).collect::<Vec<_>>(), "host {port}");
    }
    assert_eq!(net.rig.drops(), []);
    net.rig.at_rest();
}

#[test]
fn hosts_finish_through_a_switch_that_was_started_anew() {
    let mut net = Net::new(ALONE.rig(), &[0, 1, 2, 3], HostConfig::default());
    net.load();
    net.run(5 * MILLIS);
    // What it has queued is gone with it.
    net.rig.plane.drain(net.rig.now, &mut net.rig.pool);
    let mut new = ALONE.rig();
    new.plane.set_start(2);
    new.now = net.rig.now;
    net.rig = new;
    net.run(100 * MILLIS);
    for station in &net.stations {
        let counters = station.host.stats().counters;
        assert_eq!((counters.restarts, station.host.epoch(), station.host.parked()), (1, 2, 0));
    }
    assert_eq!(net.rig.drops(), []);
    assert!((0..4).all(|port| net.from(port).len() >= usize::from(FRAMES) - 4 && net.from(port).is_sorted()));
    net.rig.at_rest();
}
