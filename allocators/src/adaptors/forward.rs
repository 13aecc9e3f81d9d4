//! The macro by which adaptors pass on the calls that they do not change.

/// Implements the methods of [`Allocator`](crate::Allocator) that an adaptor passes on unchanged to its field `inner: A`.
///
/// That is everything but `allocate` and `release`, or the named groups: `properties` (the backend; whether memory is
/// deferred; how it is released and aligned; the largest block), `views` (creating and releasing them, and what they are),
/// `pages` (their size, and where they are mapped), `limits` (the capacity and what is available of it). An adaptor that left a
/// method out would get the trait's default, which describes the backend instead of the inner allocator.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use binpool_allocators::adaptors::Limit;
/// use binpool_allocators::{Allocator, EventOf, ImmediateAllocator, MemoryOf, Result, forward_to_inner};
/// # use binpool_mock::MockDevice;
///
/// /// Counts requests.
/// #[derive(Debug)]
/// struct Counted<A> {
///     inner: A,
///     calls: AtomicU64,
/// }
///
/// impl<A: Allocator> Allocator for Counted<A> {
///     forward_to_inner!();
///
///     fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         self.inner.allocate(bytes)
///     }
///
///     fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
///         self.inner.release(memory, after)
///     }
/// }
///
/// let backend = MockDevice::new().backend();
/// let limited = Limit::new(ImmediateAllocator::new(&backend)?, 1 << 20);
/// let counted = Counted { inner: limited, calls: AtomicU64::new(0) };
/// assert_eq!(counted.capacity_bytes(), 1 << 20); // The limit's, not the device's.
/// counted.release(counted.allocate(4096)?, &[])?;
/// assert_eq!(counted.calls.into_inner(), 1);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[macro_export]
macro_rules! forward_to_inner {
    () => {
        $crate::forward_to_inner!(properties);
        $crate::forward_to_inner!(views);
        $crate::forward_to_inner!(pages);
        $crate::forward_to_inner!(limits);
    };
    (properties) => {
        type Backend = A::Backend;

        fn backend(&self) -> &Self::Backend {
            self.inner.backend()
        }

        fn is_deferred(&self) -> bool {
            self.inner.is_deferred()
        }

        fn release_needs_events(&self) -> bool {
            self.inner.release_needs_events()
        }

        fn alignment(&self) -> $crate::Align {
            self.inner.alignment()
        }

        fn largest_block(&self) -> usize {
            self.inner.largest_block()
        }
    };
    (views) => {
        fn create_view(
            &self,
            block: &$crate::MemoryOf<Self>,
            region: $crate::Region,
        ) -> $crate::Result<$crate::MemoryOf<Self>> {
            self.inner.create_view(block, region)
        }

        fn release_view(&self, view: $crate::MemoryOf<Self>) {
            self.inner.release_view(view);
        }

        fn views_are_addresses(&self) -> bool {
            self.inner.views_are_addresses()
        }
    };
    (pages) => {
        fn page_bytes(&self) -> Option<usize> {
            self.inner.page_bytes()
        }

        fn reserve(&self, bytes: usize) -> $crate::Result<$crate::MemoryOf<Self>> {
            self.inner.reserve(bytes)
        }

        fn map(
            &self,
            reservation: &$crate::MemoryOf<Self>,
            offset: usize,
            pages: &$crate::MemoryOf<Self>,
        ) -> $crate::Result<()> {
            self.inner.map(reservation, offset, pages)
        }

        fn unmap(
            &self,
            reservation: &$crate::MemoryOf<Self>,
            region: $crate::Region,
        ) -> $crate::Result<()> {
            self.inner.unmap(reservation, region)
        }
    };
    (limits) => {
        fn capacity_bytes(&self) -> u64 {
            self.inner.capacity_bytes()
        }

        fn available_bytes(&self) -> u64 {
            self.inner.available_bytes()
        }
    };
}
