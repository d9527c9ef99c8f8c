//! TCP flows between the hosts of a rack and those of other racks, and the frames that are timed.

use weft::frame::{BURST, Burst, Frame, Pool};
use weft::wire::{MacAddr, checksum, ethernet, tcp};

pub const BURSTS: usize = 64;
pub const FRAMES: usize = BURSTS * BURST;
pub const HOSTS: u8 = 16;
/// Bytes of data in a frame: as many as fill it up to 64 bytes with FCS.
const DATA: usize = 6;
/// What a flow's sequence number moves on by from frame to frame: as if each were a whole segment, so that rate
/// control is offered data as often as by real flows.
const SEGMENT: u32 = 1460;
/// Bytes that every flow has sent before: more than rate control lets pass before it acts on a flow.
const WINDOW: u32 = 64_001;
/// Sequence number of a sender's first byte.
const FIRST: u32 = 1001;
const PEER_FIRST: u32 = 5001;
/// The switch's address.
pub const SWITCH: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 4]);
/// The two bits of a source address by which P4TE's switches say that rate control may not act, or has acted.
const FLAGS: u8 = 3;
/// Frames beside those that are timed: handshakes and probes.
const SPARE: usize = 256;

/// SplitMix64 (Steele et al., OOPSLA 2014): flows in an order that no cache foresees.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

pub fn host_mac(host: u8) -> MacAddr {
    MacAddr([2, 0x68, 0, 0, 0, 2 + host])
}

/// A flow that a host sends: addresses and ports as they stand in its data.
#[derive(Clone, Copy)]
pub struct Flow {
    src: [u8; 4],
    dst: [u8; 4],
    ports: [u8; 4],
}

impl Flow {
    /// Number `i` of `host`, to another rack of a pod of 256.
    pub fn new(host: u8, i: u64) -> Flow {
        let random = Random(i).next();
        let dst = [10, 0, 1 | random as u8, 2 + (random >> 8) as u8 % 100];
        Flow { src: [10, 0, 0, 2 + host], dst, ports: ((random >> 16) as u32).to_be_bytes() }
    }

    fn back(self) -> Flow {
        let [a, b, c, d] = self.ports;
        Flow { src: self.dst, dst: self.src, ports: [c, d, a, b] }
    }

    /// What its sender and receiver say before data flows: SYN, SYN-ACK, and the acknowledgment that has the window.
    /// The second field says whether it is the receiver's.
    pub fn handshake(self) -> [(Segment, bool); 3] {
        let segment = |flow, flags, seq, ack| Segment { flow, flags, seq, ack, data: 0 };
        let receiver = |flags, seq| (segment(self.back(), flags, seq, FIRST), true);
        [
            (segment(self, tcp::SYN, FIRST - 1, 0), false),
            receiver(tcp::SYN | tcp::ACK, PEER_FIRST - 1),
            receiver(tcp::ACK, PEER_FIRST),
        ]
    }
}

/// A TCP segment without options.
#[derive(Clone, Copy)]
pub struct Segment {
    flow: Flow,
    flags: u8,
    seq: u32,
    ack: u32,
    data: usize,
}

impl Segment {
    /// Makes `frame` its frame, 64 bytes with FCS.
    pub fn write(&self, frame: &mut Frame, to: MacAddr, from: MacAddr) {
        let Segment { flow: Flow { src, dst, ports }, flags, seq, ack, data } = *self;
        frame.set_len(ethernet::MIN_FRAME);
        frame[40..].fill(0);
        ethernet::set_addresses(frame, to, from);
        frame[12..14].copy_from_slice(&ethernet::ETHERTYPE_IPV4.to_be_bytes());
        let end = 54 + data;
        frame[14..26].copy_from_slice(&[0x45, 0, 0, end as u8 - 14, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame[26..30].copy_from_slice(&src);
        frame[30..34].copy_from_slice(&dst);
        frame[34..38].copy_from_slice(&ports);
        frame[38..42].copy_from_slice(&seq.to_be_bytes());
        frame[42..46].copy_from_slice(&ack.to_be_bytes());
        frame[46..50].copy_from_slice(&[5 << 4, flags, 0x80, 0]);
        let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        let sum = tcp::checksum(&frame[26..34], &frame[34..end]);
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Frames in their bursts; burst i comes in by host port i mod [`HOSTS`].
pub struct Traffic {
    pub pool: Pool,
    pub bursts: Vec<Burst>,
    /// Sequence numbers of the next data, by host and flow.
    next: Vec<Vec<u32>>,
    random: Random,
}

impl Traffic {
    /// Of `flows` flows.
    pub fn new(flows: u64) -> Traffic {
        let mut pool = Pool::heap(FRAMES + SPARE, 2048);
        let mut burst = || {
            let mut burst = Burst::new();
            (0..BURST).for_each(|_| burst.push(pool.alloc().expect("a chunk for each frame")));
            burst
        };
        let bursts = (0..BURSTS).map(|_| burst()).collect();
        let next = vec![vec![FIRST + WINDOW; (flows / u64::from(HOSTS)) as usize]; HOSTS.into()];
        Traffic { pool, bursts, next, random: Random(1) }
    }

    /// Flows of each host.
    pub fn flows_of_a_host(&self) -> u64 {
        self.next[0].len() as u64
    }

    /// The share of frames, as P4TE has sent them, that the next switch may act upon.
    pub fn offered(&self) -> f64 {
        let frames = self.bursts.iter().flat_map(Burst::frames);
        frames.filter(|frame| frame[11] & FLAGS == 0).count() as f64 / FRAMES as f64
    }

    /// Makes every frame the next data of some flow of its burst's host.
    pub fn refill(&mut self) {
        let flows = self.flows_of_a_host();
        for (i, burst) in self.bursts.iter_mut().enumerate() {
            let host = (i % usize::from(HOSTS)) as u8;
            for frame in burst.frames_mut() {
                let i = self.random.next() % flows;
                let next = &mut self.next[usize::from(host)][i as usize];
                let flow = Flow::new(host, i);
                let data = Segment { flow, flags: tcp::ACK, seq: *next, ack: PEER_FIRST, data: DATA };
                *next = next.wrapping_add(SEGMENT);
                data.write(frame, SWITCH, host_mac(host));
            }
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for frame in self.bursts.iter_mut().flat_map(Burst::drain) {
            self.pool.free(frame);
        }
    }
}
