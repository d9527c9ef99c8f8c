//! PL2's host agent between a port and a TAP in memory, in virtual time; the switch is the test.

#[path = "../packets/mod.rs"]
mod packets;

/// Nothing is lost, doubled or reordered, whatever happens.
mod conservation;
/// A switch that has started anew.
mod restart;
/// Frames in slots: from the TAP to the uplink, and back.
mod scheduled;
/// Nobody answers.
mod silence;
/// What goes without a slot.
mod unscheduled;

use std::net::Ipv4Addr;

use packets::{Ends, udp};
use weft::agent::{Agent, AgentConfig, MemTap};
use weft::frame::Pool;
use weft::port::Port;
use weft::port::mem::MemPort;
use weft::scheme::pl2::host::HostConfig;
use weft::time::Instant;
use weft::wire::pl2::{Control, FRAME_LEN, Flags, Kind, NO_ROUTE};
use weft::wire::{MacAddr, parse};

/// 1,538 bytes of wire at 1 Gbit/s, the design's example (1.3, 8), in nanoseconds.
const SLOT: u64 = 12_304;
const OWN: MacAddr = mac(1);
const CHUNKS: usize = 512;

const fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// A UDP packet of flow `flow` to host `dst`, `len` bytes in all; `number` is its IPv4 TTL and first byte of payload.
fn packet(dst: u8, flow: u16, number: u8, len: usize) -> Vec<u8> {
    let address = |host| Ipv4Addr::new(10, 0, 0, host).into();
    let ends = Ends { src_mac: OWN, dst_mac: mac(dst), src: address(1), dst: address(dst) };
    udp(ends, 64, (1000 + flow, 9), &vec![number; len - 42])
}

/// A message of the switch's to a host; the sender is the one that the RSV was for.
fn from_switch(to: MacAddr, from: MacAddr, control: &Control) -> Vec<u8> {
    let mut frame = [0; FRAME_LEN];
    control.emit(to, from, &mut frame);
    frame.to_vec()
}

/// The answer of start 1 to `rsv`, by counters.
fn grant(rsv: &Control, (t_in, t_out): (u32, u32), t_sw: u64) -> Control {
    let flags = Flags::default();
    Control { kind: Kind::Grt, flags, epoch: 1, t_in, t_out, t_sw, slot_ns: SLOT as u32, ..*rsv }
}

/// There is no route to where it asks for.
fn refusal(rsv: &Control, t_sw: u64) -> Control {
    Control { t_in: NO_ROUTE, t_out: NO_ROUTE, ..busy(rsv, t_sw) }
}

/// There is no room now.
fn busy(rsv: &Control, t_sw: u64) -> Control {
    Control { k: 0, flags: Flags { nack: true, ..Flags::default() }, ..grant(rsv, (0, 0), t_sw) }
}

/// An agent under test.
struct Rig {
    agent: Agent<MemPort, MemTap>,
    now: u64,
}

impl Rig {
    fn new(host: HostConfig, port_room: usize) -> Rig {
        let config = AgentConfig { host, mac: OWN, unscheduled: vec![] };
        let agent = Agent::new(&config, MemPort::new(port_room), MemTap::default(), Pool::heap(CHUNKS, 2048));
        Rig { agent: agent.expect("a configuration in its ranges"), now: 0 }
    }

    /// An application sends.
    fn send(&mut self, frame: &[u8]) {
        self.agent.parts().1.outgoing.push_back(frame.to_vec());
    }

    /// A frame comes from the switch.
    fn arrive(&mut self, frame: &[u8]) {
        let (port, _, pool) = self.agent.parts();
        let frame = pool.alloc_with(frame).expect("a chunk");
        port.inject(frame).expect("room in the memory port");
    }

    /// The switch says something of a request to `dst`.
    fn answer(&mut self, dst: MacAddr, control: &Control) {
        self.arrive(&from_switch(OWN, dst, control));
    }

    /// A pass at `now`, and what has left by then.
    fn pass(&mut self, now: u64) -> Vec<Vec<u8>> {
        self.now = now;
        self.agent.pass(|| Instant(now)).expect("both sides are there");
        self.left()
    }

    fn left(&mut self) -> Vec<Vec<u8>> {
        let (port, _, pool) = self.agent.parts();
        let mut left = vec![];
        while let Some(frame) = port.sent() {
            left.push(frame.to_vec());
            pool.free(frame);
        }
        left
    }

    /// What applications were given.
    fn given(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.agent.parts().1.incoming)
    }

    /// When a pass is due.
    fn next(&mut self) -> Option<u64> {
        self.agent.next_deadline(Instant(self.now)).map(|Instant(at)| at)
    }

    /// The agent is taken apart; no chunk is missing.
    fn close(self) -> weft::agent::AgentCounters {
        let (mut port, _, mut pool, counters) = self.agent.close();
        port.clear(&mut pool);
        assert_eq!((pool.free_count(), port.held()), (CHUNKS, 0));
        counters
    }
}

/// The messages among frames that left: destination and what it says. Checks their source.
fn messages(frames: &[Vec<u8>]) -> Vec<(MacAddr, Control)> {
    let read = |frame: &Vec<u8>| {
        let control = Control::read(frame, &parse(frame).ok()?).ok()?;
        assert_eq!(weft::wire::ethernet::src(frame), OWN);
        Some((weft::wire::ethernet::dst(frame), control))
    };
    frames.iter().filter_map(read).collect()
}

/// The only message.
fn only(frames: &[Vec<u8>]) -> Control {
    match messages(frames)[..] {
        [(_, control)] if frames.len() == 1 => control,
        ref other => panic!("{} frames, messages {other:?}", frames.len()),
    }
}
