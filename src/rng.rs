//! A small seeded generator of random numbers, the same on every machine.
//!
//! xoshiro256** 1.0 (Blackman and Vigna, "Scrambled linear pseudorandom number generators", ACM
//! Transactions on Mathematical Software 47(4), 2021), its state filled from a seed by SplitMix64
//! (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, section 5),
//! as its authors advise. Period 2^256 - 1. Not for secrets.

/// The generator; equal states give equal numbers for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng([u64; 4]);

/// The next number of SplitMix64 in `state`.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The generator of `seed`; any seed will do, 0 too.
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng(std::array::from_fn(|_| split_mix(&mut state)))
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let Rng([a, b, c, d]) = self;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `n`, each equally likely; 0 if `n` is 0. Takes one number, rarely more (Lemire,
    /// "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019, algorithm 5).
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            // 2^64 mod n of the low halves would make some results more likely than others.
            let excess = n.wrapping_neg() % n;
            while (product as u64) < excess {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// `true` with probability `p`: never for 0 or less and for NaN, always for 1 or more. Takes one
    /// number whatever `p` is. Exact to 2^-53, and no rounding differs between machines.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        (self.next_u64() >> 11) as f64 * UNIT < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers that the authors' own programs print.
    #[test]
    fn the_published_reference_gives_the_same_numbers() {
        let mut state = 1_234_567;
        let mixed: [u64; 5] = std::array::from_fn(|_| split_mix(&mut state));
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(mixed, expected, "SplitMix64 from 1234567");

        let mut rng = Rng([1, 2, 3, 4]);
        let numbers: [u64; 10] = std::array::from_fn(|_| rng.next_u64());
        let expected = [
            11_520,
            0,
            1_509_978_240,
            1_215_971_899_390_074_240,
            1_216_172_134_540_287_360,
            607_988_272_756_665_600,
            16_172_922_978_634_559_625,
            8_476_171_486_693_032_832,
            10_595_114_339_597_558_777,
            2_904_607_092_377_533_576,
        ];
        assert_eq!(numbers, expected, "xoshiro256** from state 1, 2, 3, 4");
    }

    #[test]
    fn a_seed_gives_its_own_numbers_and_always_the_same() {
        let first = |seed| {
            let mut rng = Rng::new(seed);
            std::array::from_fn::<u64, 4, _>(|_| rng.next_u64())
        };
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
        assert_ne!(Rng::new(0), Rng([0; 4]), "the all-zero state gives nothing but zeros");
    }

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let mut rng = Rng::new(1);
        assert_eq!((rng.below(0), rng.below(1)), (0, 0));
        // Three quarters of 2^64: by a plain modulo, numbers below 2^62 would come twice as often.
        let n = 3 << 62;
        let low = (0..30_000).filter(|_| rng.below(n) < 1 << 62).count();
        assert!((9_600..10_400).contains(&low), "{low} of 30,000 in the lowest third");
        let mut counts = [0; 6];
        (0..60_000).for_each(|_| counts[rng.below(6) as usize] += 1);
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    }

    #[test]
    fn a_chance_is_met_as_often_as_it_says() {
        let mut rng = Rng::new(3);
        for never in [0.0, -1.0, f64::NAN] {
            assert!((0..1000).all(|_| !rng.chance(never)), "{never}");
        }
        assert!((0..1000).all(|_| rng.chance(1.0)));
        let met = (0..100_000).filter(|_| rng.chance(0.01)).count();
        assert!((850..1150).contains(&met), "{met} of 100,000 at 0.01");
    }
}
