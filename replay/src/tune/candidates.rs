//! The settings of a pool that are worth trying.

use binpool::{GrowthPolicy, PoolOptions};

/// A setting to try.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name in tables and plots.
    pub name: &'static str,
    /// The pool's settings; `None` for no pool, the baseline.
    pub pool: Option<PoolOptions>,
    /// The Rust expression that makes [`pool`](Self::pool), to paste into a program.
    pub code: Option<&'static str>,
}

/// Makes settings together with their expression, so that the two always agree.
macro_rules! pool {
    ($name:literal, $options:expr) => {
        Candidate {
            name: $name,
            pool: Some($options),
            code: Some(stringify!($options)),
        }
    };
}

/// The candidates of `binpool tune`, in the order of its rows: no pool, bins, segments, and segments that grow otherwise. The
/// number in a name is that of the leading bits.
///
/// ```
/// let candidates = binpool_replay::candidates();
/// let best = candidates.iter().find(|candidate| candidate.name == "segments 8").unwrap();
/// assert_eq!(best.code, Some("PoolOptions::new().segments(true).leading_bits(8)"));
/// ```
#[must_use]
pub fn candidates() -> Vec<Candidate> {
    vec![
        Candidate {
            name: "no pool",
            pool: None,
            code: None,
        },
        pool!("bins 0", PoolOptions::new().segments(false).leading_bits(0)),
        pool!("bins 1", PoolOptions::new().segments(false).leading_bits(1)),
        pool!("bins 2", PoolOptions::new().segments(false).leading_bits(2)),
        pool!("bins 3", PoolOptions::new().segments(false).leading_bits(3)),
        pool!("bins 4", PoolOptions::new().segments(false).leading_bits(4)),
        pool!("bins 6", PoolOptions::new().segments(false).leading_bits(6)),
        pool!("bins 8", PoolOptions::new().segments(false).leading_bits(8)),
        pool!(
            "segments 4",
            PoolOptions::new().segments(true).leading_bits(4)
        ),
        pool!(
            "segments 5",
            PoolOptions::new().segments(true).leading_bits(5)
        ),
        pool!(
            "segments 6",
            PoolOptions::new().segments(true).leading_bits(6)
        ),
        pool!(
            "segments 7",
            PoolOptions::new().segments(true).leading_bits(7)
        ),
        pool!(
            "segments 8",
            PoolOptions::new().segments(true).leading_bits(8)
        ),
        pool!(
            "growth fewest-calls",
            PoolOptions::new().growth(GrowthPolicy::FewestCalls)
        ),
        pool!(
            "growth dense",
            PoolOptions::new().growth(GrowthPolicy::Dense)
        ),
    ]
}
