//! Blocks of memory.

use std::fmt;

use crate::{MemoryId, SvmGrain};

/// What a block of memory is made of.
///
/// ```
/// use binpool_allocators::{Backend, Memory, MemoryFlags, MemoryKind, SvmBackend, SvmGrain};
/// # use binpool_mock::MockDevice;
///
/// /// How a kernel is given the block: by its address, or as the runtime's object.
/// fn argument<B: SvmBackend>(backend: &B, block: &B::Memory) -> Option<usize> {
///     match block.kind() {
///         MemoryKind::Svm(_) => backend.svm_address(block).map(|address| address.addr().get()),
///         _ => None,
///     }
/// }
///
/// # let backend = MockDevice::new().backend();
/// let shared = backend.allocate_svm(4096, None, SvmGrain::Coarse, None)?;
/// assert!(argument(&backend, &shared).is_some());
/// let buffer = backend.create_buffer(4096, MemoryFlags::empty())?;
/// assert_eq!(argument(&backend, &buffer), None);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// A memory object of the runtime, without an address that the host knows.
    Buffer,
    /// Shared virtual memory: a pointer that host and device both understand.
    Svm(SvmGrain),
}

/// A block of memory of one backend: a whole buffer, a whole SVM allocation, or a region of either.
///
/// The value owns the block. Dropping it gives the block back to the runtime as
/// [`Backend::release`](crate::Backend::release) does, except that a failure can only be logged. Commands
/// that were enqueued before keep what they use until they end, so that dropping a block is never a use
/// after free on the device.
///
/// A region of a block ([`Backend::create_sub_region`](crate::Backend::create_sub_region)) keeps the whole
/// block alive.
///
/// ```
/// use binpool_allocators::{Backend, Memory, MemoryFlags, MemoryKind, Region};
/// # use binpool_mock::MockDevice;
///
/// # let device = MockDevice::new();
/// # let backend = device.backend();
/// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let region = backend.create_sub_region(&block, Region::new(1024, 512))?;
/// assert_eq!((block.bytes(), region.bytes()), (4096, 512));
/// assert_eq!(region.kind(), MemoryKind::Buffer);
/// assert_ne!(region.id(), block.id());
/// drop(block);
/// assert_eq!(device.statistics().live_blocks, 1, "the region keeps it");
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait Memory: fmt::Debug + Send + Sync + 'static {
    /// This block's identity. A region has one of its own.
    fn id(&self) -> MemoryId;

    /// The size in bytes.
    fn bytes(&self) -> usize;

    /// What the block is made of.
    fn kind(&self) -> MemoryKind;
}
