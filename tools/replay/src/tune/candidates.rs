//! The settings of a pool that are worth trying.

use binpool::{GrowthPolicy, PoolOptions, Retain};

use crate::AllocatorChoice;

/// A setting to try.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name in tables.
    pub name: &'static str,
    /// The pool's settings; `None` for no pool, the baseline.
    pub pool: Option<PoolOptions>,
    /// The allocator below it; `None` for that of the whole trial.
    pub allocator: Option<AllocatorChoice>,
    /// The Rust expression that makes [`pool`](Self::pool), to paste into a program.
    pub code: Option<&'static str>,
}

/// The name of the candidate with a pool's default settings.
const DEFAULT: &str = "segments 8";

/// The name of the candidate that gives nothing back.
const KEEP_ALL: &str = "bins keep-all";

/// Returns how far a candidate is from the default, among all: those that are alike stand next to each other. One that gives nothing back
/// is the farthest.
pub(crate) fn oddness(index: usize, candidates: &[Candidate]) -> usize {
    if candidates[index].name == KEEP_ALL {
        return candidates.len();
    }
    let default = candidates.iter().position(Candidate::is_default);
    default.map_or(index, |default| index.abs_diff(default))
}

impl Candidate {
    pub(crate) fn is_default(&self) -> bool {
        self.name == DEFAULT
    }
}

/// Makes settings together with their expression, so that the two always agree.
macro_rules! pool {
    ($name:literal, $($changes:tt)*) => {
        Candidate {
            name: $name,
            pool: Some(PoolOptions::new()$($changes)*),
            allocator: None,
            code: Some(concat!("PoolOptions::new()", stringify!($($changes)*))),
        }
    };
}

/// The candidates of `binpool tune`, in the order of its rows: no pool, bins, bins that give nothing back, segments, and segments with
/// other growth policies. The number in a name is that of the leading bits.
///
/// ```
/// let candidates = binpool_replay::tune::candidates();
/// let best = candidates.iter().find(|candidate| candidate.name == "segments 8").unwrap();
/// assert_eq!(best.code, Some("PoolOptions::new().segments(true).leading_bits(8)"));
/// ```
#[must_use]
pub fn candidates() -> Vec<Candidate> {
    vec![
        Candidate {
            name: "no pool",
            pool: None,
            allocator: None,
            code: None,
        },
        pool!("bins 0", .segments(false).leading_bits(0)),
        pool!("bins 1", .segments(false).leading_bits(1)),
        pool!("bins 2", .segments(false).leading_bits(2)),
        pool!("bins 3", .segments(false).leading_bits(3)),
        pool!("bins 4", .segments(false).leading_bits(4)),
        pool!("bins 6", .segments(false).leading_bits(6)),
        pool!("bins 8", .segments(false).leading_bits(8)),
        pool!("bins keep-all", .segments(false).retain(Retain::new().at_least(u64::MAX))),
        pool!("segments 4", .segments(true).leading_bits(4)),
        pool!("segments 5", .segments(true).leading_bits(5)),
        pool!("segments 6", .segments(true).leading_bits(6)),
        pool!("segments 7", .segments(true).leading_bits(7)),
        pool!("segments 8", .segments(true).leading_bits(8)),
        pool!("growth dense", .growth(GrowthPolicy::Dense)),
    ]
}

/// Pools of pages of virtual memory, over a `VirtualMemoryAllocator`: candidates of `binpool tune --allocator virtual-memory` besides the
/// [others](candidates).
///
/// ```
/// let names = binpool_replay::tune::page_candidates().map(|candidate| candidate.name);
/// assert_eq!(names, ["pages", "pages dense"]);
/// ```
#[must_use]
pub fn page_candidates() -> [Candidate; 2] {
    let candidates = [
        pool!("pages",),
        pool!("pages dense", .growth(GrowthPolicy::Dense)),
    ];
    candidates.map(|candidate| Candidate {
        allocator: Some(AllocatorChoice::VirtualMemory),
        ..candidate
    })
}
