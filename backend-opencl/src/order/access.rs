//! How commands use memory.

use binpool_allocators::HostUse;

use crate::sys::HostSide;

/// What a command does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only reads it.
    Read,
    /// It may write it.
    Write,
}

impl Access {
    /// What a transfer with these bytes of the host does with the device's.
    pub(crate) const fn of_transfer(host: &HostSide<'_>) -> Self {
        if host.is_target() {
            Self::Read
        } else {
            Self::Write
        }
    }

    /// What the host does by a transfer that has this access to the memory.
    pub(crate) const fn host_use(self) -> HostUse {
        match self {
            Self::Read => HostUse::Read,
            Self::Write => HostUse::Write,
        }
    }
}

impl Access {
    /// Returns whether the order of the two matters.
    pub(crate) fn conflicts_with(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}
