//! How commands use memory.

use binpool_allocators::HostUse;

/// What a command does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only reads it.
    Read,
    /// It may write it.
    Write,
}

impl Access {
    /// What the host does by a transfer that has this access to the memory.
    pub(crate) const fn host_use(self) -> HostUse {
        match self {
            Self::Read => HostUse::Read,
            Self::Write => HostUse::Write,
        }
    }

    /// Returns whether the order of the two matters.
    pub(crate) fn conflicts_with(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}
