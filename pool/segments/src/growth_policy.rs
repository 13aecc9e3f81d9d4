//! Whether growth saves calls to the device, or memory.

/// What segments save when they grow: calls to the device, or memory.
///
/// A policy says by how much segments may exceed the peak in use (the *high water*) while some of them are idle. Before a new one would
/// take the pool beyond that, idle ones are released. Within it, calls end once a program has repeated its work.
///
/// In a pool of pages a policy changes nothing.
///
/// `scripts/density` records what each policy reserves and how often it calls the device, in the first round of a program
/// (`density.txt`) and in later ones (`warm.txt`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrowthPolicy {
    /// Little memory for few calls: 1.1 times the high water. Where the high water is more than half of what the device, a
    /// limit or other programs leave, segments are `Dense`.
    #[default]
    Balanced,
    /// Least memory: 1.01 times the high water. A block of more than 1/20 of a usual segment, and more than 1 MiB, has a segment of its own, and
    /// a large idle segment is not split for a much smaller block, so that both can go back. For programs that need nearly all of the
    /// device, and can afford calls in every round.
    Dense,
}

impl GrowthPolicy {
    /// Every policy, from the fewest calls to the least memory.
    pub const ALL: [Self; 2] = [Self::Balanced, Self::Dense];

    /// The policy as one word, as in recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Dense => "dense",
        }
    }
}
