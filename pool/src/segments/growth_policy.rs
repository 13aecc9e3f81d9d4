//! Whether growth saves calls to the device, or memory.

/// What segments save when they grow: calls to the device, or memory.
///
/// Segments as large as their blocks save memory, and so does releasing idle segments sooner; both cost calls. The first two policies
/// learn: memory that was released to the device and requested again is kept, up to a part of the peak in use (the *high water*), and idle
/// segments serve more sizes. So a program that repeats its work soon finds nearly everything in the pool. [`Dense`](Self::Dense) does not
/// learn: it gives memory back no matter how often that memory is requested again.
///
/// In a pool of pages the first two are the same: free pages move, and memory that many moves would have saved is bought instead. `Dense` has
/// smaller pages and buys none.
///
/// `scripts/density` records what each policy reserves and how often it calls the device, in the first round of a program
/// (`density.txt`) and in later ones (`warm.txt`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrowthPolicy {
    /// Fewest calls to the device: segments are reused for blocks of other sizes. While some are idle, all together may have 1.05 times the
    /// high water, and up to 1.5 times after that much was requested again. For devices with costly allocations, and programs that leave
    /// much memory free.
    FewestCalls,
    /// Little memory for few calls: 1.03 times the high water while some segments are idle, and up to 1.15 times after that much was
    /// requested again. If queues keep memory from each other, up to the high water more, after many calls.
    #[default]
    Balanced,
    /// Least memory: 1.01 times the high water while some segments are idle, even in a program that repeats its work. A block of more than
    /// 1/20 of a usual segment, and more than 1 MiB, has a segment of its own. For programs that need nearly all of the device, and can
    /// afford the calls.
    Dense,
}

impl GrowthPolicy {
    /// Every policy, from the fewest calls to the least memory.
    pub const ALL: [Self; 3] = [Self::FewestCalls, Self::Balanced, Self::Dense];

    /// The policy as one word, as in recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FewestCalls => "fewest_calls",
            Self::Balanced => "balanced",
            Self::Dense => "dense",
        }
    }
}
