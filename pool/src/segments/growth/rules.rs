//! The numbers in which the policies of growth differ.

use crate::segments::GrowthPolicy;

/// The numbers of a policy. They were found by trying several hundred on copies of recorded programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// While some of them are free, segments may exceed the high water by one part in this of it.
    pub(super) slack_parts: u64,
    /// While segments have less than the high water plus one part in this of it, an arena grows before its threads take from another one,
    /// which would make threads wait for each other.
    pub(super) arena_slack_parts: u64,
    /// Blocks of up to one part in this of a usual segment are small, and lie in segments of their own: a small block that lives long would
    /// otherwise keep its neighbours from being joined to one large range.
    pub(super) small_parts: usize,
    /// The most blocks of one size that a segment is made for: the last of many to be freed keeps the segment from being released.
    pub(super) most_blocks: usize,
    /// The free blocks that may be cached outside of their segments: one part in this of the high water.
    pub(super) cached_parts: u64,
    /// A block of more than one part in this of a usual segment has a segment of its own.
    pub(super) own_parts: usize,
    /// A large segment that is free as a whole is broken up only for a block of at least this part of it.
    pub(super) least_piece: (usize, usize),
    /// A segment is large if it has more than one part in this of a usual one.
    pub(super) whole_parts: usize,
    /// New pages have at most one part in this of the high water. Smaller ones fit more holes, and take more calls.
    pub(super) page_parts: u64,
    /// The most that memory may pass the high water by because it was asked for again after it had gone back, in percent of that. With 0,
    /// idle segments are kept whole, too, however often they replace one another, and none is kept for pages that move.
    pub(super) regret_percent: u64,
}

impl Rules {
    pub(super) const fn of(policy: GrowthPolicy) -> Self {
        match policy {
            GrowthPolicy::FewestCalls => Self {
                slack_parts: 20,
                arena_slack_parts: 5,
                small_parts: 256,
                most_blocks: 128,
                cached_parts: 256,
                own_parts: 2,
                least_piece: (3, 8),
                whole_parts: 1,
                page_parts: 128,
                regret_percent: 50,
            },
            GrowthPolicy::Balanced => Self {
                slack_parts: 33,
                arena_slack_parts: 5,
                small_parts: 256,
                most_blocks: 128,
                cached_parts: 256,
                own_parts: 4,
                least_piece: (3, 5),
                whole_parts: 1,
                page_parts: 128,
                regret_percent: 15,
            },
            GrowthPolicy::Dense => Self {
                slack_parts: 100,
                arena_slack_parts: 100,
                small_parts: 512,
                most_blocks: 16,
                cached_parts: 1024,
                own_parts: 20,
                least_piece: (9, 10),
                whole_parts: 2,
                page_parts: 512,
                regret_percent: 0,
            },
        }
    }
}
