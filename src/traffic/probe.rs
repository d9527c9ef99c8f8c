use crate::time::Instant;

/// Bytes of a probe: what a 60-byte IPv4 frame has left behind its UDP header.
pub const PROBE_LEN: usize = 18;
/// Flow number of the frames that end a run; their sequence number is how many frames it had.
pub const END_FLOW: u32 = MAX_FLOWS;
/// Most flows of a run.
pub const MAX_FLOWS: u32 = (1 << 24) - 1;

/// First two bytes of every probe.
pub const MAGIC: [u8; 2] = [0x77, 0xf7];
const SEQUENCE_BITS: u32 = 40;
const TIME_BITS: u32 = 48;

/// What a frame of the generator says of itself. On the wire, big endian:
///
/// ```text
/// magic 16 | run 16 | flow 24 | sequence 40 | time 48
/// ```
///
/// A flow's sequence numbers count up from 0 and last 12 days at 1 Mframe/s; the time is
/// CLOCK_MONOTONIC in nanoseconds modulo 2^48 (3.2 days), enough for any delay and the same in all
/// processes and namespaces of one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Number of the run, so that a sink can tell two apart.
    pub run: u16,
    /// Number of the flow, 0 up to [`MAX_FLOWS`] - 1, or [`END_FLOW`].
    pub flow: u32,
    /// Number of the frame in its flow, from 0.
    pub sequence: u64,
    /// When it was handed to the port, ns modulo 2^48.
    pub time: u64,
}

impl Probe {
    /// A probe sent at `now`.
    #[inline]
    pub fn new(run: u16, flow: u32, sequence: u64, now: Instant) -> Probe {
        debug_assert!(flow <= END_FLOW && sequence >> SEQUENCE_BITS == 0);
        Probe { run, flow, sequence, time: now.0 & ((1 << TIME_BITS) - 1) }
    }

    /// The probe at the start of a UDP payload, if there is one.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Probe> {
        let bytes: &[u8; PROBE_LEN] = payload.first_chunk()?;
        if bytes[..2] != MAGIC {
            return None;
        }
        let word = u64::from_be_bytes(bytes[4..12].try_into().expect("eight bytes"));
        let mut time = [0; 8];
        time[2..].copy_from_slice(&bytes[12..18]);
        Some(Probe {
            run: u16::from_be_bytes([bytes[2], bytes[3]]),
            flow: (word >> SEQUENCE_BITS) as u32,
            sequence: word & ((1 << SEQUENCE_BITS) - 1),
            time: u64::from_be_bytes(time),
        })
    }

    /// Writes the probe.
    #[inline]
    pub fn write(&self, out: &mut [u8; PROBE_LEN]) {
        out[..2].copy_from_slice(&MAGIC);
        out[2..4].copy_from_slice(&self.run.to_be_bytes());
        out[4..12].copy_from_slice(&(u64::from(self.flow) << SEQUENCE_BITS | self.sequence).to_be_bytes());
        out[12..18].copy_from_slice(&self.time.to_be_bytes()[2..]);
    }

    /// Nanoseconds that the frame was under way if it arrived at `now`; 0 if the sender's clock is
    /// ahead.
    #[inline]
    pub fn delay(&self, now: Instant) -> u64 {
        let delay = now.0.wrapping_sub(self.time) & ((1 << TIME_BITS) - 1);
        if delay >> (TIME_BITS - 1) == 1 { 0 } else { delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_reads_back_as_it_was_written() {
        for (flow, sequence, now) in [(0, 0, 0), (MAX_FLOWS - 1, (1 << 40) - 1, u64::MAX), (END_FLOW, 17, 1 << 50)] {
            let probe = Probe::new(0xabcd, flow, sequence, Instant(now));
            let mut bytes = [0; PROBE_LEN];
            probe.write(&mut bytes);
            assert_eq!(Probe::read(&bytes), Some(probe));
            assert_eq!((probe.flow, probe.sequence), (flow, sequence));
        }
    }

    #[test]
    fn other_payloads_are_no_probes() {
        let mut bytes = [0; PROBE_LEN];
        Probe::new(1, 2, 3, Instant(4)).write(&mut bytes);
        assert_eq!(Probe::read(&bytes[..PROBE_LEN - 1]), None);
        bytes[1] ^= 1;
        assert_eq!(Probe::read(&bytes), None);
        assert_eq!(Probe::read(&[]), None);
    }

    #[test]
    fn delay_survives_the_wrap_of_the_clock_and_is_never_negative() {
        let sent = Instant((1 << 48) - 5);
        assert_eq!(Probe::new(0, 0, 0, sent).delay(sent + 12), 12);
        assert_eq!(Probe::new(0, 0, 0, sent).delay(sent - 12), 0);
        assert_eq!(Probe::new(0, 0, 0, Instant(7)).delay(Instant(7)), 0);
    }
}
