//! Random numbers that are the same for a seed.

/// Seeded random numbers, by splitmix64: a random program that has failed is repeated by its seed, on any platform.
///
/// ```
/// use binpool_conformance::Random;
///
/// let picks = |seed| {
///     let mut random = Random::new(seed);
///     [(); 8].map(|()| random.below(100))
/// };
/// assert_eq!(picks(7), picks(7));
/// assert_ne!(picks(7), picks(8));
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns any number.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is uniform but for a bias of `bound` in 2^64.
        let product = u128::from(self.next()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or(0)
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
        }
    }
}
