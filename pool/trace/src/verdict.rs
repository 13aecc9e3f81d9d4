//! Why a request failed for lack of memory.

use std::fmt;

/// The cause of an out-of-memory error.
///
/// ```
/// use binpool_trace::Verdict;
///
/// let found = Verdict::ALL.into_iter().find(|it| it.name() == "limited"); // As in a recording.
/// assert_eq!(found, Some(Verdict::Limited));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The block is larger than the largest block of the device, or than the whole device.
    NeverFits,
    /// A limit that the program set is reached.
    Limited,
    /// The pool holds enough bytes, but each block is too small.
    Fragmented,
    /// The pool holds enough bytes, but commands that use them have not ended.
    Pending,
    /// The program has dropped enough blocks, but still has views of them.
    Viewed,
    /// Active blocks of this pool, or other memory, fill the device.
    #[default]
    DeviceFull,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 6] = [
        Self::NeverFits,
        Self::Limited,
        Self::Fragmented,
        Self::Pending,
        Self::Viewed,
        Self::DeviceFull,
    ];

    /// The verdict as one word, as in snapshots and recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeverFits => "never_fits",
            Self::Limited => "limited",
            Self::Fragmented => "fragmented",
            Self::Pending => "pending",
            Self::Viewed => "viewed",
            Self::DeviceFull => "device_full",
        }
    }

    /// What the program can do about it, as text.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NeverFits => "split the work into smaller blocks, or use a larger device",
            Self::Limited => "free blocks, or raise the limit",
            Self::Fragmented => "free adjacent blocks, or request smaller ones",
            Self::Pending => {
                "unblock the queues that use those blocks: \
                 a command there waits for something that has not happened"
            }
            Self::Viewed => {
                "drop the regions, images and maps of freed blocks: \
                 a forgotten one keeps its block forever"
            }
            Self::DeviceFull => {
                "free blocks, or memory outside the pool, or have a reclaim hook do it"
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverFits => "it can never fit",
            Self::Limited => "a limit is reached",
            Self::Fragmented => "the free memory is fragmented",
            Self::Pending => "the free memory is in use by pending commands",
            Self::Viewed => "freed blocks still have views",
            Self::DeviceFull => "the device is full",
        })
    }
}
