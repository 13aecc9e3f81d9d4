//! The trait of allocators: ways of getting memory from a backend.

use std::{fmt, sync::Arc};

use crate::{Align, Backend, Error, Region, Result};

/// The memory that an allocator hands out.
pub type MemoryOf<A> = <<A as Allocator>::Backend as Backend>::Memory;
/// The queues of an allocator's backend.
pub type QueueOf<A> = <<A as Allocator>::Backend as Backend>::Queue;
/// The events of an allocator's backend.
pub type EventOf<A> = <<A as Allocator>::Backend as Backend>::Event;

/// A way of getting memory from a backend: deferred, immediate, SVM, or an adaptor around one of them.
///
/// The trait is object safe: `Arc<dyn Allocator<Backend = B>>` is an allocator too, for programs that choose
/// at run time. All methods may be called from any thread; none holds a lock while it calls the runtime.
///
/// ```
/// use std::sync::Arc;
///
/// use binpool_allocators::{Allocator, Backend, DeferredAllocator, ImmediateAllocator, Memory};
/// use binpool_mock::{MockBackend, MockDevice};
///
/// fn chosen(backend: &MockBackend, deferred: bool) -> binpool_allocators::Result<Arc<dyn Allocator<Backend = MockBackend>>> {
///     Ok(if deferred {
///         Arc::new(DeferredAllocator::new(backend))
///     } else {
///         Arc::new(ImmediateAllocator::new(backend)?)
///     })
/// }
///
/// let allocator = chosen(&MockDevice::new().backend(), false)?;
/// let block = allocator.allocate(4096)?;
/// assert!(block.bytes() >= 4096);
/// allocator.release(block, &[])?; // Dropping it does the same, unseen by adaptors.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// A pool, or any other user of an allocator, reads its properties:
///
/// ```
/// use binpool_allocators::adaptors::Limit;
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
/// let allocator = Limit::new(ImmediateAllocator::new(&backend)?, 600_000);
/// assert!(!allocator.is_deferred(), "where memory runs out, `allocate` says so");
/// assert_eq!(allocator.alignment().round_up(1000), Some(1024)); // The cost of 1000 bytes.
/// assert_eq!(allocator.largest_block(), 1 << 20); // Larger ones fail, however much is free.
/// let block = allocator.allocate(400_000)?;
/// assert_eq!((allocator.capacity_bytes(), allocator.available_bytes()), (600_000, 200_000));
/// # allocator.release(block, &[])?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// A user that carves blocks lets the allocator create the views, so that adaptors see them:
///
/// ```
/// use binpool_allocators::adaptors::Statistics;
/// use binpool_allocators::{Allocator, ImmediateAllocator, Region};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// let allocator = Statistics::new(ImmediateAllocator::new(&backend)?);
/// let block = allocator.allocate(4096)?;
/// let lower = allocator.create_view(&block, Region::first(2048))?;
/// let upper = allocator.create_view(&block, Region::new(2048, 2048))?;
/// for view in [lower, upper] {
///     allocator.release_view(view);
/// }
/// allocator.release(block, &[])?;
/// assert_eq!((allocator.reading().views, allocator.reading().allocations), (2, 1));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an allocator",
    note = "wrap a backend in one, as in `ImmediateAllocator::new(&backend)?`"
)]
pub trait Allocator: fmt::Debug + Send + Sync + 'static {
    /// The backend that the memory comes from.
    type Backend: Backend;

    /// The backend that the memory comes from.
    fn backend(&self) -> &Self::Backend;

    /// Allocates a block of at least `bytes` bytes (its real size is [`Memory::bytes`](crate::Memory::bytes)), aligned to
    /// [`alignment`](Self::alignment), with undefined contents.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if freeing memory may help;
    /// [`ZeroSize`](crate::InvalidRequest::ZeroSize) and [`TooLarge`](crate::InvalidRequest::TooLarge) if
    /// it never will.
    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>>;

    /// Releases `memory`, which may be freed or reused once the events in `after` have ended. An allocator that
    /// reuses blocks itself first waits until the block [has no views](crate::Memory::has_views).
    ///
    /// # Errors
    ///
    /// A failure of the runtime. The block is gone in any case.
    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()>;

    /// Creates a view of a region of a block of this allocator, for a user that carves blocks from it.
    ///
    /// # Errors
    ///
    /// Those of [`create_sub_region`](Backend::create_sub_region).
    fn create_view(&self, block: &MemoryOf<Self>, region: Region) -> Result<MemoryOf<Self>> {
        self.backend().create_sub_region(block, region)
    }

    /// Releases a view of [`create_view`](Self::create_view). Dropping it does the same, unseen by adaptors.
    fn release_view(&self, view: MemoryOf<Self>) {
        drop(view);
    }

    /// Returns whether views are only addresses: creating and dropping one does not call the runtime, and several views of the same
    /// bytes are allowed.
    ///
    /// A user that carves blocks then keeps no views for reuse. It drops each with its range, at any time and under its own
    /// locks, and does not call [`release_view`](Self::release_view). So an allocator or adaptor that does something there must
    /// return false.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, DeferredAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// let allocator = DeferredAllocator::new(&MockDevice::new().backend());
    /// assert!(!allocator.views_are_addresses()); // The mock device counts its views.
    /// ```
    fn views_are_addresses(&self) -> bool {
        false
    }

    /// The bytes of a page, if this allocator allocates pages of [virtual memory](crate::VirtualMemory): blocks without addresses,
    /// whose sizes are multiples of it. `None` for all other allocators.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, ImmediateAllocator, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// assert_eq!(VirtualMemoryAllocator::new(&backend).page_bytes(), Some(2 << 20));
    /// assert_eq!(ImmediateAllocator::new(&backend)?.page_bytes(), None);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    fn page_bytes(&self) -> Option<usize> {
        None
    }

    /// Reserves `bytes` bytes of addresses for pages of this allocator.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Region, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// let allocator = VirtualMemoryAllocator::new(&backend);
    /// let (addresses, pages) = (allocator.reserve(1 << 40)?, allocator.allocate(2 << 20)?);
    /// allocator.map(&addresses, 64 << 20, &pages)?;
    /// allocator.unmap(&addresses, Region::new(64 << 20, 2 << 20))?;
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`VirtualMemory::reserve`](crate::VirtualMemory::reserve); [`Unsupported`](crate::Error::Unsupported) without
    /// [pages](Self::page_bytes).
    fn reserve(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let _ = bytes;
        Err(no_pages())
    }

    /// Maps pages of this allocator to addresses that it has reserved. Pages that are mapped already get a further address, if
    /// the backend [can do that](crate::VirtualMemory::map).
    ///
    /// # Errors
    ///
    /// Those of [`VirtualMemory::map`](crate::VirtualMemory::map); [`Unsupported`](crate::Error::Unsupported) without
    /// [pages](Self::page_bytes).
    fn map(
        &self,
        reservation: &MemoryOf<Self>,
        offset: usize,
        pages: &MemoryOf<Self>,
    ) -> Result<()> {
        let _ = (reservation, offset, pages);
        Err(no_pages())
    }

    /// Unmaps the pages at `region`. The commands that use these addresses must have ended.
    ///
    /// # Errors
    ///
    /// Those of [`VirtualMemory::unmap`](crate::VirtualMemory::unmap); [`Unsupported`](crate::Error::Unsupported) without
    /// [pages](Self::page_bytes).
    fn unmap(&self, reservation: &MemoryOf<Self>, region: Region) -> Result<()> {
        let _ = (reservation, region);
        Err(no_pages())
    }

    /// Returns whether an out-of-memory failure may appear only after [`allocate`](Self::allocate) has returned.
    fn is_deferred(&self) -> bool;

    /// Returns whether [`release`](Self::release) needs the events of commands that may still use the block. False if
    /// the runtime itself keeps memory until the commands that use it have ended, as OpenCL does for buffers.
    ///
    /// ```
    /// use binpool_allocators::{Queue, Allocator, EventOf, MemoryOf, Result};
    /// # use binpool_allocators::{
    /// #     Backend, Outcome, QueueOrder, Region, SvmAllocator, SvmGrain,
    /// # };
    /// # use binpool_mock::MockDevice;
    ///
    /// /// Releases a block after the last command that uses it.
    /// fn give_back<A: Allocator>(allocator: &A, block: MemoryOf<A>, last: EventOf<A>) -> Result<()> {
    ///     let after = if allocator.release_needs_events() { vec![last] } else { Vec::new() };
    ///     allocator.release(block, &after)
    /// }
    ///
    /// # let device = MockDevice::new();
    /// # let backend = device.backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let gate = backend.create_user_event()?;
    /// let allocator = SvmAllocator::new(&backend, SvmGrain::Coarse)?; // The runtime does not know who uses an address.
    /// let block = allocator.allocate(4096)?;
    /// let clear = backend.enqueue_fill(queue.after(&[gate.clone()]), &block, Region::first(4096), &[0_u8])?;
    /// give_back(&allocator, block, clear)?;
    /// assert_eq!(device.statistics().live_blocks, 1); // Until the command has ended.
    /// # backend.resolve_user_event(&gate, Outcome::Complete)?;
    /// # assert_eq!(device.statistics().live_blocks, 0);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    fn release_needs_events(&self) -> bool {
        true
    }

    /// The alignment of blocks. Other sizes cost as much as the next multiple.
    fn alignment(&self) -> Align {
        self.backend().limits().alignment
    }

    /// The largest block that can be requested, in bytes.
    fn largest_block(&self) -> usize {
        self.backend().limits().largest_block_bytes
    }

    /// The most bytes that all blocks can have together: the device's capacity, or less with a limit.
    fn capacity_bytes(&self) -> u64 {
        self.backend().limits().capacity_bytes
    }

    /// The bytes that limits leave available. The device may have less: other programs use it, too.
    fn available_bytes(&self) -> u64 {
        self.capacity_bytes()
    }
}

fn no_pages() -> Error {
    Error::unsupported("pages from this allocator: use a `VirtualMemoryAllocator`")
}

macro_rules! forward_allocator {
    ($pointer:ident) => {
        impl<A: Allocator + ?Sized> Allocator for $pointer<A> {
            type Backend = A::Backend;

            fn backend(&self) -> &Self::Backend {
                (**self).backend()
            }

            fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
                (**self).allocate(bytes)
            }

            fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
                (**self).release(memory, after)
            }

            fn create_view(
                &self,
                block: &MemoryOf<Self>,
                region: Region,
            ) -> Result<MemoryOf<Self>> {
                (**self).create_view(block, region)
            }

            fn release_view(&self, view: MemoryOf<Self>) {
                (**self).release_view(view);
            }

            fn views_are_addresses(&self) -> bool {
                (**self).views_are_addresses()
            }

            fn page_bytes(&self) -> Option<usize> {
                (**self).page_bytes()
            }

            fn reserve(&self, bytes: usize) -> Result<MemoryOf<Self>> {
                (**self).reserve(bytes)
            }

            fn map(
                &self,
                reservation: &MemoryOf<Self>,
                offset: usize,
                pages: &MemoryOf<Self>,
            ) -> Result<()> {
                (**self).map(reservation, offset, pages)
            }

            fn unmap(&self, reservation: &MemoryOf<Self>, region: Region) -> Result<()> {
                (**self).unmap(reservation, region)
            }

            fn is_deferred(&self) -> bool {
                (**self).is_deferred()
            }

            fn release_needs_events(&self) -> bool {
                (**self).release_needs_events()
            }

            fn alignment(&self) -> Align {
                (**self).alignment()
            }

            fn largest_block(&self) -> usize {
                (**self).largest_block()
            }

            fn capacity_bytes(&self) -> u64 {
                (**self).capacity_bytes()
            }

            fn available_bytes(&self) -> u64 {
                (**self).available_bytes()
            }
        }
    };
}

forward_allocator!(Arc);
forward_allocator!(Box);
