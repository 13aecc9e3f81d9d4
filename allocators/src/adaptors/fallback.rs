//! A second way of getting memory.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

use crate::{Align, Allocator, Error, EventOf, InvalidRequest, Memory, MemoryId, MemoryOf, Result};

/// Asks one allocator, and where that has no memory, another one: buffers of the device first, say, and then shared
/// virtual memory, which may lie in the host's.
///
/// The second is asked where the first is out of memory, where the block is
/// [too large](InvalidRequest::TooLarge) for it, and where what it needs is [unsupported](Error::Unsupported). Any
/// other failure is the answer, since it would be hidden otherwise; so a lost device is not tried twice.
/// A first allocator that [is deferred](Allocator::is_deferred) is hardly ever out of memory in time, so the second is
/// hardly ever asked.
///
/// Where neither has memory, the answer is out-of-memory if either was (freeing may help), the first one's by
/// preference.
///
/// Both must be of the same device, since [`backend`](Allocator::backend) can only name one: it is the first one's.
///
/// # Which block is whose
///
/// A block goes back to the allocator that gave it. That is remembered by its [`MemoryId`], for blocks of the second
/// allocator only, which are the exception. A block's [kind](Memory::kind) would not do: both allocators may give the
/// same kind, and a fallback inside a fallback gives either. Clones share what they remember, so a block may be given by
/// one and taken back by another. A block that is dropped instead of released is remembered for good, which costs a few
/// bytes and, since identities are never used again, nothing else.
///
/// ```
/// use binpool_allocators::{
///     Allocator, Fallback, ImmediateAllocator, Limit, Memory, MemoryKind, SvmAllocator, SvmGrain,
/// };
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let buffers = Limit::new(ImmediateAllocator::new(&backend)?, 4096);
/// let svm = SvmAllocator::new(&backend, SvmGrain::Coarse)?;
/// let allocator = Fallback::new(buffers, svm);
/// let [first, second] = [allocator.allocate(4096)?, allocator.allocate(4096)?];
/// assert_eq!(first.kind(), MemoryKind::Buffer);
/// assert_eq!(second.kind(), MemoryKind::Svm(SvmGrain::Coarse));
/// allocator.release(second, &[])?; // Its 4096 bytes are not the limit's.
/// assert_eq!(allocator.first().budget().used_bytes(), 4096);
/// assert_eq!(allocator.second().grain(), SvmGrain::Coarse);
/// allocator.release(first, &[])?;
/// let (buffers, _svm) = allocator.into_inner(); // All is back, so each can go on alone.
/// assert!(buffers.allocate(8192).is_err());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fallback<A, B> {
    first: A,
    second: B,
    /// The blocks that the second allocator gave, and that are not back.
    of_second: Arc<Mutex<HashSet<MemoryId>>>,
}

impl<A, B> Fallback<A, B> {
    /// Asks `first`, then `second`, both of one device.
    pub fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            of_second: Arc::default(),
        }
    }

    /// The allocator that is asked first. Blocks that this adaptor gave must come back to this adaptor.
    pub const fn first(&self) -> &A {
        &self.first
    }

    /// The allocator that is asked where the first has no memory. Blocks that this adaptor gave must come back to this
    /// adaptor.
    pub const fn second(&self) -> &B {
        &self.second
    }

    /// Both allocators, the first one first.
    pub fn into_inner(self) -> (A, B) {
        (self.first, self.second)
    }
}

/// Whether another allocator may have the memory that this one has not.
const fn is_for_the_next(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_)
            | Error::InvalidRequest(InvalidRequest::TooLarge { .. })
            | Error::Unsupported { .. }
    )
}

/// What to answer where neither has memory.
fn both(first: Error, second: Error) -> Error {
    let largest = |error: &Error| match error {
        Error::InvalidRequest(InvalidRequest::TooLarge { largest, .. }) => Some(*largest),
        _ => None,
    };
    let second_counts = !is_for_the_next(&second)
        || (!first.is_out_of_memory() && second.is_out_of_memory())
        // So that the size in the error is that of `largest_block`.
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

    /// Where either is.
    fn is_deferred(&self) -> bool {
        self.first.is_deferred() || self.second.is_deferred()
    }

    /// Where either needs them.
    fn release_needs_events(&self) -> bool {
        self.first.release_needs_events() || self.second.release_needs_events()
    }

    /// The smaller of both, which every block starts on.
    fn alignment(&self) -> Align {
        self.first.alignment().min(self.second.alignment())
    }

    /// The larger of both.
    fn largest_block(&self) -> usize {
        self.first.largest_block().max(self.second.largest_block())
    }

    /// Where both have.
    fn has_concurrent_views(&self) -> bool {
        self.first.has_concurrent_views() && self.second.has_concurrent_views()
    }

    /// Both together: the second may have memory that the device's own is not.
    fn capacity_bytes(&self) -> u64 {
        let second = self.second.capacity_bytes();
        self.first.capacity_bytes().saturating_add(second)
    }

    /// The larger of both: a block is of the one or the other.
    fn available_bytes(&self) -> u64 {
        self.first
            .available_bytes()
            .max(self.second.available_bytes())
    }
}
