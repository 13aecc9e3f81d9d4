//! Random numbers that a seed decides.

/// The generator splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, but not including, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
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
    fn fractions_stay_in_their_bounds_and_spread() {
        let mut random = Random::new(1);
        let fractions: Vec<_> = (0..1000).map(|_| random.fraction()).collect();
        assert!(
            fractions
                .iter()
                .all(|fraction| (0.0..1.0).contains(fraction))
        );
        let low = fractions.iter().filter(|fraction| **fraction < 0.5).count();
        assert!((400..600).contains(&low), "{low}");
    }
}
