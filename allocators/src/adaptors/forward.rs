//! What all adaptors around one allocator have in common: they pass on what they do not change.

/// The part of an `impl<A: Allocator> Allocator` that an adaptor over a field `inner: A` leaves as it is: everything but
/// `allocate` and `release`, or the named parts of that.
macro_rules! forward_to_inner {
    () => {
        crate::adaptors::forward::forward_to_inner!(properties);
        crate::adaptors::forward::forward_to_inner!(views);
        crate::adaptors::forward::forward_to_inner!(limits);
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

        fn alignment(&self) -> crate::Align {
            self.inner.alignment()
        }

        fn has_concurrent_views(&self) -> bool {
            self.inner.has_concurrent_views()
        }

        fn largest_block(&self) -> usize {
            self.inner.largest_block()
        }
    };
    (views) => {
        fn create_view(
            &self,
            block: &crate::MemoryOf<Self>,
            region: crate::Region,
        ) -> crate::Result<crate::MemoryOf<Self>> {
            self.inner.create_view(block, region)
        }

        fn release_view(&self, view: crate::MemoryOf<Self>) {
            self.inner.release_view(view);
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

pub(crate) use forward_to_inner;
