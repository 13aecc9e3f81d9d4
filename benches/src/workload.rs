//! What is done with a subject.

use std::{fmt, thread::Scope};

use crate::{
    Mixed, Subject, Work,
    cross_thread::CrossThread,
    lifo::Lifo,
    miss::Miss,
    pair::{HOT_BYTES, LARGE_BYTES, Pair},
};

/// A sequence of allocations and frees, the same for every subject and on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// A block of 4096 bytes is allocated and dropped, over and over.
    Hot,
    /// 1000 live blocks of 256 bytes to 64 MiB, replaced at random: see [`Mixed`].
    Mixed,
    /// 64 blocks of 4 KiB to 512 KiB are allocated, then dropped in reverse order.
    Lifo,
    /// A block of 8 MiB is allocated and dropped, over and over.
    Large,
    /// A block of 8 MiB is allocated, dropped, and given back to the allocator, so that the next request goes there too.
    Miss,
    /// One thread allocates blocks of 4096 bytes and sends them to another one, 64 at a time, which drops them.
    CrossThread,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Hot,
        Self::Mixed,
        Self::Lifo,
        Self::Large,
        Self::Miss,
        Self::CrossThread,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Mixed => "mixed",
            Self::Lifo => "lifo",
            Self::Large => "large",
            Self::Miss => "miss",
            Self::CrossThread => "cross-thread",
        }
    }

    /// The workload on `subject`, warmed up, for the thread that calls this. Threads of its own are in `scope`.
    pub fn start<'s, S: Subject>(
        self,
        subject: &'s S,
        scope: &'s Scope<'s, '_>,
    ) -> Box<dyn Work + 's> {
        match self {
            Self::Hot => Box::new(Pair::warmed_up(subject, HOT_BYTES)),
            Self::Mixed => Box::new(Mixed::warmed_up(subject)),
            Self::Lifo => Box::new(Lifo::warmed_up(subject)),
            Self::Large => Box::new(Pair::warmed_up(subject, LARGE_BYTES)),
            Self::Miss => Box::new(Miss::warmed_up(subject)),
            Self::CrossThread => Box::new(CrossThread::warmed_up(subject, scope)),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
