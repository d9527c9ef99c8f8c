//! The least that forwarding must do, as straight as it can be written.

use weft::frame::BURST;
use weft::wire::{MacAddr, checksum, ethernet};

use super::Pass;
use super::traffic::{SWITCH, Traffic};

const SPINE: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 9]);

pub struct Floor {
    /// By flow: frames seen and the last one's TTL, so that the entry is read and written.
    table: Vec<[u64; 2]>,
}

impl Floor {
    pub fn new(flows: u64) -> Floor {
        Floor { table: vec![[0; 2]; flows as usize] }
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Where the transport header is and the hash of the five-tuple of an IPv4 packet, if it is one.
#[inline]
fn five_tuple(frame: &[u8]) -> Option<u64> {
    let header: &[u8; 38] = frame.first_chunk()?;
    let word = |at: usize| u64::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    let plain = header[12..15] == [0x08, 0, 0x45] && 14 + length <= frame.len() && header[20] & 0x3f | header[21] == 0;
    let addresses = word(26) << 32 | word(30);
    let transport = word(34) << 8 | u64::from(header[23]);
    plain.then(|| mix(addresses ^ 0x9e37_79b9_7f4a_7c15, transport ^ 0xb7e1_5162_8aed_2a6b))
}

impl Pass for Floor {
    fn run(&mut self, traffic: &mut Traffic) {
        let mut hashes = [0; BURST];
        let mask = self.table.len() - 1;
        for burst in &mut traffic.bursts {
            for (hash, frame) in hashes.iter_mut().zip(burst.frames()) {
                *hash = five_tuple(frame).expect("an IPv4 packet");
            }
            for (hash, frame) in hashes.iter().zip(burst.frames_mut()) {
                let entry = &mut self.table[*hash as usize & mask];
                *entry = [entry[0] + 1, u64::from(frame[22])];
                ethernet::set_addresses(frame, SPINE, SWITCH);
                let before = u16::from_be_bytes([frame[22], frame[23]]);
                frame[22] -= 1;
                let after = u16::from_be_bytes([frame[22], frame[23]]);
                let sum = checksum::update(u16::from_be_bytes([frame[24], frame[25]]), before, after);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}
