//! What failed maps have left mapped.

use super::{
    driver::{Address, Driver},
    status::CudaResult,
};

/// Pages at an address where nothing uses them: a failed map has left them there, or their reservation ends. They may be released already: the driver frees them once
/// they are mapped nowhere.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) address: Address,
    pub(super) bytes: usize,
}

impl Left {
    /// Unmaps them.
    pub(super) fn unmap(&self, driver: &Driver) -> CudaResult<()> {
        // SAFETY: It takes no pointers; the addresses are reserved as long as something is mapped there, and nothing uses them.
        unsafe { driver.unmap(self.address, self.bytes) }
    }

    /// Returns whether they are in the way of pages at these addresses.
    pub(super) fn overlaps(&self, start: Address, bytes: usize) -> bool {
        let end = self.address + self.bytes as Address;
        self.address < start + bytes as Address && start < end
    }
}
