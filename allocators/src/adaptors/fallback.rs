//! An allocator with a fallback.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

use crate::{Align, Allocator, Error, EventOf, InvalidRequest, Memory, MemoryId, MemoryOf, Result};

/// Tries one allocator and, if it is out of memory, a second one: for example, first buffers of the device, then
/// shared virtual memory, which may lie in the host's memory.
///
/// The second is tried if the first is out of memory, if the block is
/// [too large](InvalidRequest::TooLarge) for it, or if it returns [unsupported](Error::Unsupported). Any
/// other failure is returned at once, since the second allocator would hide it.
/// A first allocator that [is deferred](Allocator::is_deferred) rarely reports out-of-memory in time, so the second is
/// rarely tried.
///
/// If both fail, the error is out-of-memory if either reported that (freeing may help), preferably the first
/// one's.
///
/// Both must belong to the same device, since [`backend`](Allocator::backend) names only one: the first one's.
///
/// # Which allocator a block goes back to
///
/// A block goes back to the allocator that gave it. The adaptor remembers the [`MemoryId`] of each block of the second
/// allocator; these are the exception. The [kind](Memory::kind) of a block would not be enough: both allocators may give the
/// same kind, and a fallback inside a fallback gives either. Clones share this record, so a block may be allocated through
/// one clone and released through another. A block that is dropped instead of released stays in the record, which costs a
/// few bytes and nothing else, since identities are never used again.
///
/// ```
/// use binpool_allocators::adaptors::{Fallback, Limit};
/// use binpool_allocators::{Allocator, ImmediateAllocator, Memory, MemoryKind, SvmAllocator, SvmGrain};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let buffers = Limit::new(ImmediateAllocator::new(&backend)?, 4096);
/// let svm = SvmAllocator::new(&backend, SvmGrain::Coarse)?;
/// let allocator = Fallback::new(buffers, svm);
/// let [first, second] = [allocator.allocate(4096)?, allocator.allocate(4096)?];
/// assert_eq!(first.kind(), MemoryKind::Buffer);
/// assert_eq!(second.kind(), MemoryKind::Svm(SvmGrain::Coarse));
/// allocator.release(second, &[])?; // Its 4096 bytes do not count for the limit.
/// assert_eq!(allocator.first().budget().used_bytes(), 4096);
/// assert_eq!(allocator.second().grain(), SvmGrain::Coarse);
/// allocator.release(first, &[])?;
/// let (buffers, _svm) = allocator.into_inner(); // All blocks are released, so each allocator can be used alone.
/// assert!(buffers.allocate(8192).is_err());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fallback<A, B> {
    first: A,
    second: B,
    /// The blocks of the second allocator that have not been released.
    of_second: Arc<Mutex<HashSet<MemoryId>>>,
}

impl<A, B> Fallback<A, B> {
    /// Tries `first`, then `second`. Both must belong to one device.
    pub fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            of_second: Arc::default(),
        }
    }

    /// The allocator that is tried first. Blocks from this adaptor must be released through this adaptor.
    pub const fn first(&self) -> &A {
        &self.first
    }

    /// The allocator that is tried if the first has no memory. Blocks from this adaptor must be released through this
    /// adaptor.
    pub const fn second(&self) -> &B {
        &self.second
    }

    /// Returns both allocators.
    pub fn into_inner(self) -> (A, B) {
        (self.first, self.second)
    }
}

/// Returns whether another allocator may have memory where this one failed.
const fn is_for_the_next(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_)
            | Error::InvalidRequest(InvalidRequest::TooLarge { .. })
            | Error::Unsupported { .. }
    )
}

/// Returns the error to report where neither has memory.
fn both(first: Error, second: Error) -> Error {
    let largest = |error: &Error| match error {
        Error::InvalidRequest(InvalidRequest::TooLarge { largest, .. }) => Some(*largest),
        _ => None,
    };
    let second_counts = !is_for_the_next(&second)
        || (!first.is_out_of_memory() && second.is_out_of_memory())
        // The larger of both, as `largest_block` reports.
        || (largest(&first).is_some() && largest(&second) > largest(&first));
    if second_counts { second } else { first }
}

impl<A: Allocator, B: Allocator<Backend = A::Backend>> Allocator for Fallback<A, B> {
    type Backend = A::Backend;

    fn backend(&self) -> &Self::Backend {
        self.first.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let refusal = match self.first.allocate(bytes) {
            Err(error) if is_for_the_next(&error) => error,
            result => return result,
        };
        match self.second.allocate(bytes) {
            Ok(memory) => {
                self.of_second.lock().insert(memory.id());
                Ok(memory)
            }
            Err(error) => Err(both(refusal, error)),
        }
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let is_of_second = self.of_second.lock().remove(&memory.id());
        if is_of_second {
            self.second.release(memory, after)
        } else {
            self.first.release(memory, after)
        }
    }

    /// Returns whether either allocator is deferred.
    fn is_deferred(&self) -> bool {
        self.first.is_deferred() || self.second.is_deferred()
    }

    /// Returns whether either allocator needs them.
    fn release_needs_events(&self) -> bool {
        self.first.release_needs_events() || self.second.release_needs_events()
    }

    /// Returns the smaller of both alignments, which every block has.
    fn alignment(&self) -> Align {
        self.first.alignment().min(self.second.alignment())
    }

    /// Returns the larger of both.
    fn largest_block(&self) -> usize {
        self.first.largest_block().max(self.second.largest_block())
    }

    /// Returns the sum of both: the second may use memory that is not the device's own.
    fn capacity_bytes(&self) -> u64 {
        let second = self.second.capacity_bytes();
        self.first.capacity_bytes().saturating_add(second)
    }

    /// Returns the larger of both, since a block comes from one of the two.
    fn available_bytes(&self) -> u64 {
        self.first
            .available_bytes()
            .max(self.second.available_bytes())
    }
}
