//! How commands use memory.

use binpool_allocators::{HostUse, Region};

use crate::{order::access_log::AccessLog, svm::block::SvmBlock};

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
}

impl Access {
    /// Whether the order of the two matters.
    pub(crate) fn conflicts_with(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// One thing that a command uses: bytes of a memory object, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use<'a> {
    /// What is known of the whole object that the bytes belong to.
    pub(crate) log: &'a AccessLog,
    /// The bytes, counted from the start of that object.
    pub(crate) region: Region,
    pub(crate) access: Access,
    /// The block, where it is shared virtual memory, which is not freed under the command.
    pub(crate) block: Option<&'a SvmBlock>,
}

impl Use<'_> {
    /// Whether both use a byte of one object.
    pub(crate) fn shares_bytes_with(&self, other: &Self) -> bool {
        std::ptr::eq(self.log, other.log) && self.region.overlaps(other.region)
    }
}
