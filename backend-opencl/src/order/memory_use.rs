//! The bytes that a command uses.

use binpool_allocators::{Region, runtime::Access};

use crate::order::access_log::AccessLog;

/// One thing that a command uses: bytes of a memory object, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryUse<'a> {
    /// The log of the whole object that the bytes belong to.
    pub(crate) log: &'a AccessLog,
    /// The bytes, counted from the start of that object.
    pub(crate) region: Region,
    pub(crate) access: Access,
    /// Set if the object is shared virtual memory.
    pub(crate) is_svm: bool,
}

impl MemoryUse<'_> {
    /// Returns whether both use the same byte of one object.
    pub(crate) fn shares_bytes_with(&self, other: &Self) -> bool {
        std::ptr::eq(self.log, other.log) && self.region.overlaps(other.region)
    }
}
