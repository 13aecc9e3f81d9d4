//! Seeded random numbers for the crates of this project, so that faults and simulated devices can be repeated.

/// The generator splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is uniform but for a bias of `bound` in 2^64.
        let product = u128::from(self.next()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or(0)
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn fraction(&mut self) -> f64 {
        // 32 bits are fine enough for a probability, and fit an `f64`.
        let bits = u32::try_from(self.next() >> 32).unwrap_or(0);
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let first: Vec<_> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn stays_in_its_bounds() {
        let mut random = Random::new(1);
        assert_eq!(random.below(0), 0);
        for _ in 0..1000 {
            assert!(random.below(3) < 3);
            assert!((0.0..1.0).contains(&random.fraction()));
        }
    }

    #[test]
    fn the_largest_number_is_a_fraction_below_1() {
        let random = Random::new(0x3162_8af6_7b21_31ab);
        assert_eq!(random.clone().next(), u64::MAX);
        assert!(random.clone().fraction() < 1.0);
    }
}
