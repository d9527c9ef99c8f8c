//! An agent takes no memory once it has held as much before.

mod counting;

use std::io;
use std::sync::atomic::Ordering;

use counting::ALLOCATIONS;
use weft::agent::{Agent, AgentConfig, Tap};
use weft::frame::Pool;
use weft::port::mem::MemPort;
use weft::scheme::pl2::host::HostConfig;
use weft::time::{Instant, MICROS, SECONDS};
use weft::wire::pl2::{Control, FRAME_LEN, Flags, Kind, NO_ROUTE, Shim};
use weft::wire::{MacAddr, ethernet, parse};

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// An application that sends `left` frames of 40 connections and reads what it gets.
struct Applications {
    frame: [u8; 1000],
    left: u32,
    got: u32,
}

impl Tap for Applications {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        // No IP: a connection is a destination.
        self.frame[5] = (self.left % 40) as u8;
        buffer[..self.frame.len()].copy_from_slice(&self.frame);
        Ok(Some(self.frame.len()))
    }

    fn write(&mut self, _: &[u8]) -> io::Result<bool> {
        self.got += 1;
        Ok(true)
    }
}

/// 2,000 frames go out in slots that are granted at once, refused now and then; each message is answered, each data
/// frame by one for the application. What left with a shim and without.
fn round(agent: &mut Agent<MemPort, Applications>, now: &mut Instant) -> (u32, u32) {
    agent.parts().1.left = 2_000;
    let (mut shimmed, mut plain) = (0, 0);
    for tick in 0..20_000u64 {
        *now = *now + 5 * MICROS;
        let at = *now;
        agent.pass(|| at).expect("both sides are there");
        let (port, ..) = agent.parts();
        while let Some(mut frame) = port.sent() {
            let headers = parse(&frame).expect("a frame");
            let Ok(rsv) = Control::read(&frame, &headers) else {
                let has_shim = Shim::read(&frame).is_ok();
                (shimmed, plain) = (shimmed + u32::from(has_shim), plain + u32::from(!has_shim));
                frame.set_len(100);
                ethernet::set_addresses(&mut frame, OWN, PEER);
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                port.inject(frame).expect("room in the memory port");
                continue;
            };
            let nack = rsv.kind == Kind::Rsv && tick % 100 == 97;
            let flags = Flags { nack, ..Flags::default() };
            let (t_in, t_out) = if nack { (NO_ROUTE, NO_ROUTE) } else { (0, (tick % 30) as u32) };
            let grant = Control { kind: Kind::Grt, flags, epoch: 1, t_in, t_out, t_sw: at.0, slot_ns: 1000, ..rsv };
            let from = ethernet::dst(&frame);
            grant.emit(OWN, from, frame.first_chunk_mut::<FRAME_LEN>().expect("60 bytes"));
            port.inject(frame).expect("room in the memory port");
        }
    }
    assert_eq!((agent.host().parked(), agent.queued()), (0, 0), "20,000 ticks of 5 us are enough for all");
    (shimmed, plain)
}

#[test]
fn reading_parking_sending_and_writing_allocate_nothing() {
    let host = HostConfig { depth: 2, ..HostConfig::default() };
    let config = AgentConfig { host, mac: OWN, unscheduled: vec![] };
    let mut frame = [0; 1000];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    let applications = Applications { frame, left: 0, got: 0 };
    let mut agent =
        Agent::new(&config, MemPort::new(1024), applications, Pool::heap(8192, 2048)).expect("a sound configuration");
    let mut now = Instant(1);
    let mut before = 0;
    for i in 0..6 {
        if i == 2 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        // What was refused is asked for again.
        now = now + 6 * SECONDS;
        let (shimmed, plain) = round(&mut agent, &mut now);
        assert!(shimmed > 500 && plain > 0 && shimmed + plain == 2_000, "{shimmed} in slots, {plain} without");
    }
    let taken = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(taken, 0, "allocations in four rounds");
    assert_eq!(agent.parts().1.got, 6 * 2_000);
    let (mut port, _, mut pool, _) = agent.close();
    port.clear(&mut pool);
    assert_eq!(pool.free_count(), 8192);
}
