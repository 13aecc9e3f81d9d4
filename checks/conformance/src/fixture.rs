//! What is checked, and by what.

use std::fmt;

use binpool_allocators::{Allocator, Backend, On};

/// A way to make the backend under test.
pub trait Fixture {
    /// The backend under test.
    type Backend: Backend;

    /// Makes a backend of the device under test, with nothing on it yet. The backends of two calls share no
    /// objects.
    fn backend(&self) -> Self::Backend;

    /// Returns the capacity in bytes, if the device refuses to commit more; `None`, the default, if its behaviour is
    /// unknown, and then nothing is checked about running out of memory. Keep it small, since the checks fill it, and let half of it fit in one
    /// block. With virtual memory, it holds 8 pages or more.
    ///
    /// ```
    /// # use binpool_conformance::Fixture;
    /// # use binpool_mock::{MockBackend, MockDevice};
    /// struct Mine;
    ///
    /// impl Fixture for Mine {
    ///     type Backend = MockBackend;
    ///
    ///     fn backend(&self) -> MockBackend {
    ///         MockDevice::builder().capacity_bytes(16 << 20).build().backend()
    ///     }
    ///
    ///     fn enforced_capacity(&self) -> Option<u64> {
    ///         Some(16 << 20)
    ///     }
    /// }
    /// ```
    fn enforced_capacity(&self) -> Option<u64> {
        None
    }

    /// Enqueues a kernel that adds each 32-bit float of `operand` to the one at the same place in `sum`, and returns its event. `None`, the
    /// default, if the backend launches no kernels, and then nothing is checked about them.
    ///
    /// ```
    /// # use binpool_allocators::On;
    /// # use binpool_conformance::Fixture;
    /// # use binpool_mock::{MockBackend, MockDevice, MockEvent, MockMemory, MockQueue};
    /// struct Mine;
    ///
    /// impl Fixture for Mine {
    ///     type Backend = MockBackend;
    ///
    ///     fn backend(&self) -> MockBackend {
    ///         MockDevice::new().backend()
    ///     }
    ///
    ///     fn launch_add(
    ///         &self,
    ///         backend: &MockBackend,
    ///         on: On<'_, MockQueue, MockEvent>,
    ///         sum: &MockMemory,
    ///         operand: &MockMemory,
    ///     ) -> Option<MockEvent> {
    ///         let add = |operands: &[&[u8]], sums: &mut [&mut [u8]]| {
    ///             for (sum, operand) in sums[0].chunks_mut(4).zip(operands[0].chunks(4)) {
    ///                 let [left, right] = [&*sum, operand].map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()));
    ///                 sum.copy_from_slice(&(left + right).to_ne_bytes());
    ///             }
    ///         };
    ///         Some(backend.launch(on, "add", &[operand], &[sum], add).unwrap())
    ///     }
    /// }
    /// ```
    fn launch_add(
        &self,
        _backend: &Self::Backend,
        _on: OnFixture<'_, Self>,
        _sum: &<Self::Backend as Backend>::Memory,
        _operand: &<Self::Backend as Backend>::Memory,
    ) -> Option<<Self::Backend as Backend>::Event> {
        None
    }
}

/// A queue of a fixture's backend, and events.
type OnFixture<'a, F> = On<
    'a,
    <<F as Fixture>::Backend as Backend>::Queue,
    <<F as Fixture>::Backend as Backend>::Event,
>;

/// A way to make the allocator under test: a closure, or a type that also knows the device's capacity.
pub trait AllocatorFixture {
    /// The allocator under test.
    type Allocator: Allocator;

    /// Makes a fresh allocator.
    fn allocator(&self) -> Self::Allocator;

    /// The capacity in bytes, as for [`Fixture::enforced_capacity`], of the device that each fresh allocator has
    /// to itself.
    fn enforced_capacity(&self) -> Option<u64> {
        None
    }
}

impl<A: Allocator, F: Fn() -> A> AllocatorFixture for F {
    type Allocator = A;

    fn allocator(&self) -> A {
        self()
    }
}

/// A promise, and the check of it.
pub struct Check<F> {
    /// The promise, in words.
    pub name: &'static str,
    /// The check, which panics if the promise is broken.
    pub run: fn(&F),
}

impl<F> fmt::Debug for Check<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
