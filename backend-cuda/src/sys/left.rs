//! What failed maps have left mapped.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{
    driver::{Address, Driver},
    status::CudaResult,
};

/// The claim of one place on pages: set while they are mapped.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Returns whether the pages were free.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Ends the claim, once they are unmapped.
    pub(super) fn let_go(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Pages at an address where nothing uses them: a failed map has left them there, or their reservation ends. They may be released already: the driver frees them once
/// they are unmapped.
pub(super) struct Left {
    pub(super) address: Address,
    pub(super) bytes: usize,
    pub(super) claim: Claim,
}

impl Left {
    /// Unmaps them, and ends their claim.
    pub(super) fn unmap(&self, driver: &Driver) -> CudaResult<()> {
        // SAFETY: It takes no pointers; the addresses are reserved as long as something is mapped there, and nothing uses them.
        unsafe { driver.unmap(self.address, self.bytes) }?;
        self.claim.let_go();
        Ok(())
    }

    /// Returns whether they are in the way of the pages of a claim, or lie in these addresses.
    pub(super) fn is_in_the_way(&self, claim: &Claim, start: Address, bytes: usize) -> bool {
        let end = self.address + self.bytes as Address;
        let overlaps = self.address < start + bytes as Address && start < end;
        overlaps || Arc::ptr_eq(&self.claim.0, &claim.0)
    }
}
