//! The memory of a device as a trait: what every backend's blocks can tell and do.

use std::fmt;

use crate::{Error, MemoryId, Result, SvmGrain};

/// The kind of a block's memory.
///
/// ```
/// use binpool_allocators::{Backend, Memory, MemoryFlags, MemoryKind, SvmBackend, SvmGrain};
/// # use binpool_mock::MockDevice;
///
/// /// How a kernel takes the block: by its address, or as the runtime's object.
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
    /// A memory object of the runtime, without an address on the host.
    Buffer,
    /// Shared virtual memory: a pointer that host and device both understand.
    Svm(SvmGrain),
    /// Pages of [virtual memory](crate::VirtualMemory), which have no address before they are mapped.
    Pages,
}

/// A block of memory of one backend: a whole buffer, a whole SVM allocation, or a region of either.
///
/// The value owns the block. Dropping it releases the block to the runtime as
/// [`Backend::release`](crate::Backend::release) does, except that a failure is only logged. Commands
/// that were enqueued before keep what they use until they end, so dropping a block never causes a use
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
    /// This block's identity. A region has its own.
    fn id(&self) -> MemoryId;

    /// The size in bytes.
    fn bytes(&self) -> usize;

    /// The kind of the block's memory.
    fn kind(&self) -> MemoryKind;

    /// Returns the address by which kernels reach the first byte.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Memory, MemoryFlags, SvmBackend, SvmGrain};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let shared = backend.allocate_svm(4096, None, SvmGrain::Coarse, None)?;
    /// assert_ne!(shared.device_address()?, 0);
    /// let buffer = backend.create_buffer(4096, MemoryFlags::empty())?; // A kernel gets the object itself.
    /// assert!(buffer.device_address().is_err());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for memory that kernels take as an object, such as a buffer of OpenCL, and for pages, which have
    /// an address where they are mapped.
    fn device_address(&self) -> Result<u64> {
        Err(Error::unsupported("the address of this memory"))
    }

    /// Returns whether views of this value exist: an object made from it that outlives it and gives the
    /// program access to its bytes. That is a region of it (or of such a region), an image or a buffer over it, or a map,
    /// including forgotten ones. Commands are not views.
    ///
    /// A pool does not reuse memory while this is `true`, and neither does any other owner that hands memory out
    /// again. Only objects made from *this* value count: a block carved from a segment is a view of the segment,
    /// and has no views itself until its user creates some.
    ///
    /// A backend overrides this, since regions can outlive the value that they were made from; [`ViewCount`] implements it. `false` also
    /// means that everything other threads did through former views has happened. The pool calls this whenever a block is freed, even under
    /// its lock, so it must take no lock and make no call to the device.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Memory, MemoryFlags, Region};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let half = backend.create_sub_region(&block, Region::first(2048))?;
    /// let quarter = backend.create_sub_region(&half, Region::first(1024))?;
    /// drop(half);
    /// assert!(block.has_views()); // The quarter is left.
    /// drop(quarter);
    /// assert!(!block.has_views());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// [`ViewCount`]: crate::ViewCount
    #[inline]
    fn has_views(&self) -> bool {
        false
    }
}
