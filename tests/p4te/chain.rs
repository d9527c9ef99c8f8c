//! Rate adaptation through whole switches: sender - leaf0 - spine0 - leaf1 - receiver, and back.

use weft::config::{AckRule, P4teOptions, RateAdaptation, Selector};
use weft::topo::{self, FabricOptions};
use weft::units::{BitRate, Bytes};

use crate::packets::Ends;
use crate::rig::{LARGE, RATE, options};
use crate::sim::{Sim, plain_macs, set_mac};
use crate::tcp::{ACK, Got, SYN, Segment, parse, read};

pub const HERE: &str = "h0-0-2";
pub const THERE: &str = "h0-1-2";
/// B.
pub const WINDOW: u32 = 20_000;
pub const MSS: usize = 1_000;
/// Window that the receiver advertises, and what becomes of it.
pub const W: u16 = 1_000;
const HALF: u16 = 500;
const MORE: u16 = 1_250;
const ISN: u32 = u32::MAX - 50_000;
/// A segment of 1,000 B takes 1,090 B of the wire: 87.2 us.
const FULL_SPEED: u64 = 87_200;

/// Who can tell that the flow is above its class's safe rate: the first who knows its ingress port's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    Leaf,
    Spine,
}

pub fn fabric(decider: Decider, mode: RateAdaptation, ack: AckRule) -> topo::Fabric {
    let p4te = P4teOptions { rate_adaptation: mode, ack, window: Bytes(WINDOW.into()), ..P4teOptions::default() };
    let host_rate = Some(if decider == Decider::Leaf { RATE } else { BitRate(0) });
    let mut fabric = crate::rig::fabric(1, &FabricOptions { host_rate, ..options(p4te) });
    plain_macs(&mut fabric);
    fabric
}

/// A connection with timestamps from [`HERE`] to [`THERE`].
pub struct Connection {
    pub ports: (u16, u16),
    pub v6: bool,
    pub next: u32,
    pub acked: u32,
    clock: u32,
    /// What the sender got: by whom it believes, the receiver.
    pub heard: Vec<Got>,
    /// Genuine ACKs of the receiver, in order: acknowledgment numbers.
    pub genuine: Vec<u32>,
    pub delivered: u64,
    /// Whether some switch runs another scheme: then notices may get to hosts, which drop them.
    mixed: bool,
    dropped: u64,
}

pub fn ends(sim: &Sim, from: &str, to: &str, v6: bool) -> Ends {
    let (a, b) = (sim.host(from), sim.host(to));
    let (src, dst) = match v6 {
        true => (a.ipv6.addr().into(), b.ipv6.addr().into()),
        false => (a.ipv4.addr().into(), b.ipv4.addr().into()),
    };
    Ends { src_mac: a.mac, dst_mac: sim.leaf(from).config.mac, src, dst }
}

fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

impl Connection {
    /// After its handshake.
    pub fn open(sim: &mut Sim, ports: (u16, u16), v6: bool) -> Connection {
        let mut c = Connection {
            ports,
            v6,
            next: ISN,
            acked: ISN,
            clock: 1,
            heard: vec![],
            genuine: vec![],
            delivered: 0,
            mixed: false,
            dropped: 0,
        };
        let syn = [&[2, 4, 3, 232, 1, 3, 3, 7][..], &stamps(1, 0)].concat();
        let out = Segment { ports, seq: ISN, flags: SYN, window: 60_000, options: syn.clone(), ..Segment::default() };
        sim.send(HERE, &out.bytes(ends(sim, HERE, THERE, v6)));
        sim.run_for(1_000_000);
        let back = Segment {
            ports: (ports.1, ports.0),
            seq: 7_000,
            ack: ISN.wrapping_add(1),
            flags: SYN | ACK,
            window: 60_000,
            options: syn,
            ..Segment::default()
        };
        sim.send(THERE, &back.bytes(ends(sim, THERE, HERE, v6)));
        sim.run_for(1_000_000);
        c.next = ISN.wrapping_add(1);
        c.segment(sim, ACK, 0);
        c.answer(sim, W);
        sim.run_for(1_000_000);
        sim.seen.clear();
        c
    }

    /// Sends a segment of `len` bytes; sequence numbers go on.
    pub fn segment(&mut self, sim: &mut Sim, flags: u8, len: usize) {
        self.clock += 1;
        let segment = Segment {
            ports: self.ports,
            seq: self.next,
            ack: 7_001,
            flags,
            window: 400,
            options: stamps(self.clock, 1),
            len,
            tos: LARGE << 2 | 2,
        };
        sim.send(HERE, &segment.bytes(ends(sim, HERE, THERE, self.v6)));
        self.next = self.next.wrapping_add(len as u32);
    }

    /// The receiver acknowledges all that it got.
    pub fn answer(&mut self, sim: &mut Sim, window: u16) {
        self.clock += 1;
        let segment = Segment {
            ports: (self.ports.1, self.ports.0),
            seq: 7_001,
            ack: self.acked.max_seq(ISN.wrapping_add(1)),
            flags: ACK,
            window,
            options: stamps(self.clock, 1),
            ..Segment::default()
        };
        self.genuine.push(segment.ack);
        sim.send(THERE, &segment.bytes(ends(sim, THERE, HERE, self.v6)));
    }

    /// Data, one segment each `gap` ns, `n` of them; the receiver acknowledges each at once.
    pub fn run(&mut self, sim: &mut Sim, n: usize, gap: u64) {
        for _ in 0..n {
            self.segment(sim, ACK, MSS);
            sim.run_for(gap);
            self.listen(sim);
        }
    }

    /// Looks at what got to hosts: each frame as a host does, and that nothing of the fabric's shows.
    pub fn listen(&mut self, sim: &mut Sim) {
        let seen = std::mem::take(&mut sim.seen);
        for s in seen.iter().filter(|s| s.to == HERE || s.to == THERE) {
            let leaf = sim.leaf(&s.to).config.mac;
            assert_eq!((&s.frame[6..12], s.frame[11] & 3), (&leaf.0[..], 0), "the leaf's address, no flag");
            let (got, is_right) = parse(&s.frame).expect("TCP");
            if !is_right {
                assert!(self.mixed, "a notice, as it is: {got:?}");
                assert_eq!((got.len, got.flags, [1, 2].contains(&got.window)), (0, ACK, true), "no notice: {got:?}");
                self.dropped += 1;
                continue;
            }
            if got.ports != self.ports && got.ports != (self.ports.1, self.ports.0) {
                continue;
            }
            if s.to == HERE {
                self.heard.push(got);
                continue;
            }
            assert_eq!((got.tos, got.ttl, got.window), (LARGE << 2 | 2, 61, 400), "data is not touched");
            if got.len > 0 {
                assert_eq!(got.seq, self.acked.max_seq(ISN.wrapping_add(1)), "in order, none lost");
                self.acked = got.seq.wrapping_add(got.len as u32);
                self.delivered += 1;
                self.answer(sim, W);
            }
        }
        // What the answers caused at once.
        sim.seen.retain(|s| s.to == HERE || s.to == THERE);
    }

    /// FACKs: what no receiver has sent. In `fack` mode genuine ACKs have their own window.
    pub fn facks(&self) -> Vec<&Got> {
        self.heard.iter().filter(|got| got.window != W).collect()
    }
}

/// The later of two sequence numbers.
trait Seq {
    fn max_seq(self, other: u32) -> u32;
}

impl Seq for u32 {
    fn max_seq(self, other: u32) -> u32 {
        if self.wrapping_sub(other) < 1 << 31 { self } else { other }
    }
}

fn fack_run(decider: Decider, rule: AckRule, v6: bool) {
    let fabric = fabric(decider, RateAdaptation::Fack, rule);
    let mut sim = Sim::new(&fabric);
    let mut c = Connection::open(&mut sim, (40_000, 80), v6);
    // The link is green for 4 ms (its burst, above the CIR by a quarter), yellow until 20 ms, then red.
    c.run(&mut sim, 500, FULL_SPEED);
    for _ in 0..2 {
        sim.run_for(5_000_000);
        c.listen(&mut sim);
    }
    let case = format!("{decider:?}, {rule:?}, v6 {v6}");
    assert_eq!((c.delivered, sim.drops()), (500, vec![]), "{case}");
    let sent = 500 * MSS as u32;
    let facks = c.facks();
    let (less, more): (Vec<&Got>, Vec<&Got>) = facks.iter().partition(|f| f.window < W);
    assert!(less.iter().all(|f| f.window == HALF) && more.iter().all(|f| f.window == MORE), "{case}: {facks:?}");
    assert!(!more.is_empty() && less.len() >= 8, "{case}: {} up, {} down", more.len(), less.len());
    assert!(facks.len() as u32 <= sent / WINDOW, "{case}: {} in {sent} B", facks.len());
    let mut last = (ISN, 0);
    for fack in &facks {
        assert_eq!((fack.flags, fack.len, fack.seq), (ACK, 0, 7_001), "{case}");
        let (_, echo) = fack.timestamps.expect("the flow has timestamps");
        assert!(echo > last.1, "{case}: echoes of data that came later each time");
        match rule {
            // What the receiver has acknowledged itself.
            AckRule::Safe => assert!(c.genuine.contains(&fack.ack), "{case}: {fack:?}"),
            AckRule::Paper => {
                let seq = fack.ack.wrapping_sub(1);
                assert!(seq.wrapping_sub(last.0) > WINDOW, "{case}: {seq} after {}", last.0);
                assert!(seq.wrapping_sub(last.0) < 1 << 31);
                last.0 = seq;
            }
        }
        last.1 = echo;
    }
    assert_eq!(c.heard.len() - facks.len(), c.genuine.len() - 1, "{case}: and all genuine ACKs");
    // Who acted.
    let counts = ["fack_made", "fack_completed"].map(|what| sim.rate_count("leaf0", what));
    let all = facks.len() as u64;
    // Where the spine's link is yellow, leaf1's may not be.
    let notices = ["spine0", "leaf1"].map(|switch| sim.rate_count(switch, "notice_sent"));
    match decider {
        // Where the leaf's link is yellow already or still, the spine's may not be.
        Decider::Leaf => assert!(counts[0] + counts[1] == all && counts[0] > 4 * counts[1], "{case}: {counts:?}"),
        Decider::Spine => {
            let enough = notices[0] > notices[1] && notices[0] + notices[1] >= all;
            assert!(counts == [0, all] && enough, "{case}: {counts:?}, {notices:?} notices");
        }
    }
    assert_eq!(sim.rate_count("leaf1", "fack_made"), 0, "{case}");
    sim.finish();
}

#[test]
fn at_most_one_fack_per_b_bytes_whoever_decides() {
    for decider in [Decider::Leaf, Decider::Spine] {
        for rule in [AckRule::Paper, AckRule::Safe] {
            for v6 in [false, true] {
                fack_run(decider, rule, v6);
            }
        }
    }
}

#[test]
fn both_on_the_way_may_decide_and_there_is_still_one_fack_per_b_bytes() {
    // The leaf's meter sees the flow above its safe rate, and so does the spine's; the way down from the spine is
    // slower, so that it is red where the leaf's is green or yellow.
    let mut fabric = fabric(Decider::Leaf, RateAdaptation::Fack, AckRule::Paper);
    let spine = fabric.switches.iter_mut().find(|s| s.name() == "spine0").expect("a switch");
    spine.config.ports.iter_mut().for_each(|port| port.rate = BitRate(50_000_000));
    let mut sim = Sim::new(&fabric);
    let mut flows: Vec<Connection> = (0..3).map(|i| Connection::open(&mut sim, (40_000 + i, 80), i == 1)).collect();
    for _ in 0..150 {
        for c in &mut flows {
            c.segment(&mut sim, ACK, MSS);
        }
        sim.run_for(6 * FULL_SPEED);
        // Each looks at its own; all get to see the same.
        let seen: Vec<_> = std::mem::take(&mut sim.seen);
        for c in &mut flows {
            let ours = |s: &&crate::sim::Seen| {
                read(&s.frame).is_some_and(|g| g.ports == c.ports || g.ports == (c.ports.1, c.ports.0))
            };
            let to_hosts: Vec<_> = seen.iter().filter(|s| s.to == HERE || s.to == THERE).filter(ours).collect();
            for s in to_hosts {
                let got = read(&s.frame).expect("TCP");
                match s.to == HERE {
                    true => c.heard.push(got),
                    false if got.len > 0 => {
                        c.acked = got.seq.wrapping_add(got.len as u32);
                        c.answer(&mut sim, W);
                    }
                    false => {}
                }
            }
        }
    }
    let by_leaf = sim.rate_count("leaf0", "fack_made");
    let by_spine = sim.rate_count("leaf0", "fack_completed");
    assert!(by_leaf > 0 && by_spine > 0, "{by_leaf} by the leaf, {by_spine} by the spine");
    for c in &flows {
        let mut last = ISN;
        for fack in c.facks() {
            let seq = fack.ack.wrapping_sub(1);
            assert!((WINDOW + 1..1 << 31).contains(&seq.wrapping_sub(last)), "{seq} after {last}");
            last = seq;
        }
        assert!(!c.facks().is_empty());
    }
    sim.finish();
}

#[test]
fn a_clamp_lowers_genuine_windows_for_b_bytes_and_no_longer() {
    for decider in [Decider::Leaf, Decider::Spine] {
        let fabric = fabric(decider, RateAdaptation::Clamp, AckRule::Safe);
        let mut sim = Sim::new(&fabric);
        let mut c = Connection::open(&mut sim, (40_000, 80), decider == Decider::Spine);
        while c.facks().is_empty() {
            c.run(&mut sim, 1, FULL_SPEED);
            assert!(c.next.wrapping_sub(ISN) < 500_000, "no clamp by {decider:?}");
        }
        // Now below the safe rate of large flows, a tenth.
        c.run(&mut sim, 60, 1_800_000);
        let lowered = c.facks();
        let (first, last) = (lowered[0].ack, lowered[lowered.len() - 1].ack);
        // In flight are some segments of 1,000 B, 8 units of 128 B each: less than what is shown.
        assert!(lowered.iter().all(|got| got.window == HALF), "{decider:?}: {lowered:?}");
        let span = last.wrapping_sub(first);
        assert!(span < WINDOW && span >= WINDOW - 4 * MSS as u32, "{decider:?}: {span} B");
        assert_eq!(c.heard[c.heard.len() - 20..].iter().filter(|got| got.window == W).count(), 20, "released");
        assert!(c.heard.iter().all(|got| c.genuine.contains(&got.ack)), "all are genuine");
        let acks: Vec<u32> = c.heard.iter().map(|got| got.ack).collect();
        assert!(acks.windows(2).all(|w| w[1].wrapping_sub(w[0]) == MSS as u32), "one for each");
        sim.finish();
    }
}

/// A spine with ECMP writes its own address over the flags, whatever its low bits are taken for: that rate control
/// is allowed (0), is not (1), was applied (2), or a notice (3). With 0, leaf1 asks for what leaf0 has asked for, too,
/// and what it sends is not known for a notice at leaf0: the sender gets it, with a checksum that makes it drop it.
#[test]
fn rate_adaptation_loses_nothing_where_a_neighbours_address_looks_like_its_flags() {
    for low in 0..4 {
        let mut fabric = fabric(Decider::Leaf, RateAdaptation::Fack, AckRule::Safe);
        let spine = fabric.switches.iter_mut().find(|s| s.name() == "spine0").expect("a switch");
        spine.config.selector = Selector::Ecmp;
        let mut mac = spine.config.mac;
        mac.0[5] = 0xf0 | low;
        set_mac(&mut fabric, "spine0", mac);
        let mut sim = Sim::new(&fabric);
        let mut c = Connection::open(&mut sim, (40_000, 80), low % 2 == 1);
        c.mixed = true;
        c.run(&mut sim, 300, FULL_SPEED);
        // ACKs with windows as notices have them.
        for window in [1, 2, 3] {
            c.answer(&mut sim, window);
        }
        for _ in 0..2 {
            sim.run_for(5_000_000);
            c.listen(&mut sim);
        }
        assert_eq!((c.delivered, sim.drops()), (300, vec![]));
        let genuine = c.heard.iter().filter(|got| ![HALF, MORE].contains(&got.window)).count();
        assert_eq!(genuine, c.genuine.len() - 1, "address ends in {low}: every ACK");
        assert_eq!(c.dropped > 0, low == 0, "{} notices", c.dropped);
        sim.finish();
    }
}
