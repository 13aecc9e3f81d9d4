//! A subject by its name.

use std::fmt;

use binpool::PoolError;

use crate::{
    Bins, Direct, Failure, Malloc, Mimalloc, Nothing, Pool, Ranges, Recorded, Snmalloc, Subject,
    Watched, Workload,
};

/// A subject that is chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubjectChoice {
    /// [`Pool`].
    Pool,
    /// [`Bins`].
    Bins,
    /// [`Watched`].
    Watched,
    /// [`Recorded`].
    Recorded,
    /// [`Malloc`].
    Malloc,
    /// [`Mimalloc`].
    Mimalloc,
    /// [`Snmalloc`].
    Snmalloc,
    /// [`Ranges`].
    Ranges,
    /// [`Direct`].
    Direct,
    /// [`Nothing`].
    Nothing,
}

/// What is done with a subject of any type.
pub trait Visitor {
    /// What it comes to.
    type Output;

    /// Does it.
    fn visit<S: Subject>(self, subject: &S) -> Self::Output;
}

impl SubjectChoice {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Pool,
        Self::Bins,
        Self::Watched,
        Self::Recorded,
        Self::Malloc,
        Self::Mimalloc,
        Self::Snmalloc,
        Self::Ranges,
        Self::Direct,
        Self::Nothing,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pool => Pool::NAME,
            Self::Bins => Bins::NAME,
            Self::Watched => Watched::NAME,
            Self::Recorded => Recorded::NAME,
            Self::Malloc => Malloc::NAME,
            Self::Mimalloc => Mimalloc::NAME,
            Self::Snmalloc => Snmalloc::NAME,
            Self::Ranges => <&Ranges as Subject>::NAME,
            Self::Direct => <&Direct as Subject>::NAME,
            Self::Nothing => Nothing::NAME,
        }
    }

    /// Makes the subject, afresh, and shows it to `visitor`.
    ///
    /// # Errors
    ///
    /// Those of the pool, and of its recording.
    pub fn show<V: Visitor>(self, visitor: V) -> Result<V::Output, Failure> {
        Ok(match self {
            Self::Pool => visitor.visit(&Pool::new()?),
            Self::Bins => visitor.visit(&Bins::new()?),
            Self::Watched => visitor.visit(&Watched::new()?),
            Self::Recorded => visitor.visit(&Recorded::new()?),
            Self::Malloc => visitor.visit(&Malloc),
            Self::Mimalloc => visitor.visit(&Mimalloc),
            Self::Snmalloc => visitor.visit(&Snmalloc),
            Self::Ranges => visitor.visit(&&Ranges::new()),
            Self::Direct => visitor.visit(&&Direct::new().map_err(PoolError::from)?),
            Self::Nothing => visitor.visit(&Nothing),
        })
    }
}

impl fmt::Display for SubjectChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What most workloads are measured on.
const POOLS_AND_PEERS: [SubjectChoice; 9] = [
    SubjectChoice::Pool,
    SubjectChoice::Bins,
    SubjectChoice::Watched,
    SubjectChoice::Recorded,
    SubjectChoice::Malloc,
    SubjectChoice::Mimalloc,
    SubjectChoice::Ranges,
    SubjectChoice::Nothing,
    SubjectChoice::Snmalloc,
];

impl Workload {
    /// What it is measured on, the pool first. A miss is one of the pool's, beside the allocator by itself.
    #[must_use]
    pub const fn subjects(self) -> &'static [SubjectChoice] {
        match self {
            Self::Miss => &[
                SubjectChoice::Pool,
                SubjectChoice::Bins,
                SubjectChoice::Direct,
            ],
            // Not snmalloc, the last: blocks of mebibytes go to the kernel, which takes milliseconds a pair.
            Self::Mixed | Self::Large => POOLS_AND_PEERS.split_at(POOLS_AND_PEERS.len() - 1).0,
            _ => &POOLS_AND_PEERS,
        }
    }
}
