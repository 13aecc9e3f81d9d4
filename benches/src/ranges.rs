//! The crate `offset-allocator` behind a lock.

use std::fmt;

use offset_allocator::{Allocation, Allocator};
use parking_lot::Mutex;

use crate::Subject;

/// What blocks start on, in bytes, as on [`NullBackend`](crate::NullBackend).
const UNIT: usize = 512;

/// What there is, in units: 1 TiB.
const UNITS: u32 = 1 << 31;

/// Which bytes of 1 TiB each block gets, by the crate `offset-allocator` behind a lock. It hands out numbers: there are
/// no views, no queues, no statistics and no errors, which the pool has.
pub struct Ranges {
    allocator: Mutex<Allocator>,
}

impl Ranges {
    /// 1 TiB, all of it free.
    #[must_use]
    pub fn new() -> Self {
        Self {
            allocator: Mutex::new(Allocator::new(UNITS)),
        }
    }
}

impl Default for Ranges {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranges").finish_non_exhaustive()
    }
}

/// A range, which becomes free again when it is dropped.
pub struct Range<'a> {
    ranges: &'a Ranges,
    allocation: Allocation,
}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range")
            .field("offset", &self.allocation.offset)
            .finish_non_exhaustive()
    }
}

impl<'a> Subject for &'a Ranges {
    type Block = Range<'a>;

    const NAME: &'static str = "offset-allocator";

    fn allocate(&self, bytes: usize) -> Option<Range<'a>> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        let allocation = self.allocator.lock().allocate(units)?;
        Some(Range {
            ranges: self,
            allocation,
        })
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        self.ranges.allocator.lock().free(self.allocation);
    }
}
