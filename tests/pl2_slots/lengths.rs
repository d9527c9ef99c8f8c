//! Lengths of messages: the five workloads of Homa, as quantiles of the tables in PlatformLab/HomaModule
//! (util/dist.cc), each cut off at 100,000 bytes so that short runs see many messages.

use weft::rng::Rng;
use weft::wire::ethernet::on_wire;

/// Bytes by quantile; between two of them the logarithm is uniform.
type Quantiles = [(f64, f64)];

const W1: &Quantiles = &[
    (0.0, 8.0),
    (0.3, 8.0),
    (0.4, 11.0),
    (0.5, 27.0),
    (0.6, 79.0),
    (0.7, 151.0),
    (0.8, 264.0),
    (0.9, 503.0),
    (0.95, 804.0),
    (0.98, 1360.0),
    (0.99, 1876.0),
    (0.999, 4924.0),
    (0.9999, 11837.0),
    (1.0, 100_000.0),
];
const W2: &Quantiles = &[
    (0.0, 8.0),
    (0.1, 8.0),
    (0.2, 34.0),
    (0.3, 58.0),
    (0.4, 171.0),
    (0.5, 269.0),
    (0.6, 320.0),
    (0.7, 366.0),
    (0.8, 427.0),
    (0.9, 512.0),
    (0.95, 931.0),
    (0.98, 2048.0),
    (0.99, 3151.0),
    (0.999, 21845.0),
    (1.0, 154_202.0),
];
const W3: &Quantiles = &[
    (0.0, 8.0),
    (0.1, 36.0),
    (0.2, 77.0),
    (0.3, 110.0),
    (0.4, 158.0),
    (0.5, 268.0),
    (0.6, 313.0),
    (0.7, 402.0),
    (0.8, 573.0),
    (0.9, 1755.0),
    (0.95, 5521.0),
    (0.98, 13435.0),
    (0.99, 31013.0),
    (0.999, 356_516.0),
    (1.0, 2_342_777.0),
];
const W4: &Quantiles = &[
    (0.0, 53.0),
    (0.1, 315.0),
    (0.2, 376.0),
    (0.3, 502.0),
    (0.4, 561.0),
    (0.5, 662.0),
    (0.6, 960.0),
    (0.7, 6387.0),
    (0.8, 49408.0),
    (0.9, 120_373.0),
    (1.0, 10_000_000.0),
];
const W5: &Quantiles = &[
    (0.0, 1430.0),
    (0.1, 5720.0),
    (0.2, 19110.0),
    (0.3, 27930.0),
    (0.4, 48510.0),
    (0.5, 72030.0),
    (0.6, 195_510.0),
    (1.0, 29_400_000.0),
];
const CUT: f64 = 100_000.0;

/// A distribution of lengths, and the mean of what a message takes on the wire, in slots.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    pub name: &'static str,
    quantiles: &'static Quantiles,
    pub slots: f64,
}

/// W1 to W5.
pub fn workloads() -> [Lengths; 5] {
    [("W1", W1), ("W2", W2), ("W3", W3), ("W4", W4), ("W5", W5)].map(|(name, quantiles)| {
        let mut lengths = Lengths { name, quantiles, slots: 0.0 };
        let mut rng = Rng::new(5);
        let draws = 20_000;
        let wire: usize =
            (0..draws).flat_map(|_| segments(lengths.draw(&mut rng))).map(|len| on_wire(len as usize)).sum();
        lengths.slots = wire as f64 / 1538.0 / f64::from(draws);
        lengths
    })
}

impl Lengths {
    /// Bytes of a message.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let at = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let above = self.quantiles.iter().position(|(q, _)| *q > at).expect("the last one is 1");
        let ((q0, low), (q1, high)) = (self.quantiles[above - 1], self.quantiles[above]);
        let bytes = low * (high / low).powf((at - q0) / (q1 - q0));
        bytes.min(CUT) as u32
    }
}

/// Frames of a message of so many bytes, 1460 in each behind 54 of headers.
pub fn segments(bytes: u32) -> impl Iterator<Item = u32> {
    (0..bytes).step_by(1460).map(move |at| (bytes - at).min(1460) + 54)
}
