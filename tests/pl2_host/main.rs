//! PL2's hosts: timelines worked out by hand from the design, and its rules under random switches.
//!
//! - I7: what is queued is sent, and only in slots that were granted, each once.
//! - I10: nothing leaves before its grant's time, a connection's frames keep their order, and what comes in goes out.

#[path = "../said/mod.rs"]
mod said;

mod faults;
mod flush;
mod hostile;
mod lost;
mod random;
mod receivers;
mod shared;
mod timeline;
mod withdrawn;

use weft::scheme::pl2::host::{Action, ConnKey, Enqueued, Host, HostConfig};
use weft::time::{Instant, MICROS};
use weft::wire::MacAddr;
use weft::wire::pl2::{Control, Flags, Kind, Shim};

/// A frame that fills a slot, in bytes.
const FULL: u32 = 1514;
/// Slots of a microsecond.
const SLOT: u64 = MICROS;

const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xff]);

/// A message with a time and a slot of 0, as a host sends.
fn message(kind: Kind, conn: u32, seq: u32, k: u16) -> Control {
    let flags = Flags::default();
    Control { kind, flags, k, epoch: 0, conn, seq, demand: 0, t_in: 0, t_out: 0, t_sw: 0, t_tx: 0, slot_ns: 0 }
}

/// What start 1 answers at its time `t_sw`, by counters.
fn grant(rsv: &Control, (t_in, t_out): (u32, u32), t_sw: u64) -> Control {
    Control { kind: Kind::Grt, flags: Flags::default(), epoch: 1, t_in, t_out, t_sw, slot_ns: SLOT as u32, ..*rsv }
}

fn refusal(rsv: &Control, t_sw: u64) -> Control {
    Control { k: 0, flags: Flags { nack: true, ..Flags::default() }, ..grant(rsv, (0, 0), t_sw) }
}

fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// Flow `flow` to host `dst`.
fn key(dst: u8, flow: u64) -> ConnKey {
    ConnKey { dst: mac(dst), flow }
}

/// A host under test, and what it did.
struct Rig {
    host: Host<u64>,
    /// Messages of the last poll.
    sent: Vec<(MacAddr, Control)>,
    /// Frames that were released, each with its shim and when.
    released: Vec<(u64, u64, Shim)>,
}

impl Rig {
    fn new(config: HostConfig) -> Rig {
        let host = Host::new(&config).expect("a configuration in its ranges");
        Rig { host, sent: vec![], released: vec![] }
    }

    /// Queues full frames with these numbers.
    fn enqueue(&mut self, now: u64, key: ConnKey, frames: impl IntoIterator<Item = u64>) {
        for frame in frames {
            assert_eq!(self.host.enqueue(Instant(now), key, FULL, frame), Enqueued::Parked, "frame {frame}");
        }
    }

    fn poll(&mut self, now: u64) -> &[(MacAddr, Control)] {
        self.sent.clear();
        let Rig { host, sent, released } = self;
        host.poll(Instant(now), |action| match action {
            Action::Send { dst, control } | Action::SendBehind { dst, control } => sent.push((dst, control)),
            Action::Release { frame, shim } => released.push((now, frame, shim)),
        });
        &self.sent
    }

    /// The only message of a poll.
    fn only(&mut self, now: u64) -> Control {
        match self.poll(now) {
            [(_, control)] => *control,
            other => panic!("{} messages at {now}: {other:?}", other.len()),
        }
    }

    fn control(&mut self, now: u64, control: &Control) {
        self.host.control(Instant(now), SWITCH, control);
    }

    fn next(&self) -> Option<u64> {
        self.host.next_deadline().map(|Instant(at)| at)
    }

    /// Polls at each deadline until `end`, and gives the messages with their times.
    fn run(&mut self, end: u64) -> Vec<(u64, Control)> {
        let mut sent = vec![];
        while let Some(at) = self.next()
            && at <= end
        {
            sent.extend(self.poll(at).iter().map(|(_, control)| (at, *control)));
        }
        sent
    }

    /// Frames that left, with E and L, and when.
    fn frames(&self) -> Vec<(u64, u64, &'static str)> {
        let marks = |shim: &Shim| match (shim.closes, shim.last) {
            (false, false) => "",
            (true, false) => "E",
            (false, true) => "L",
            (true, true) => "EL",
        };
        self.released.iter().map(|(at, frame, shim)| (*at, *frame, marks(shim))).collect()
    }
}
