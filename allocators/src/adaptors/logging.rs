//! The adaptor that logs every call.

use std::{sync::Arc, time::Instant};

use crate::{Allocator, EventOf, Memory, MemoryOf, Result, forward_to_inner};

/// Logs each call to an allocator through `tracing`, at level `DEBUG` if it succeeded and at `WARN` if it failed, with
/// the allocator's name, the bytes, the time that the call took, and the error.
///
/// ```
/// use binpool_allocators::adaptors::Logging;
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let allocator = Logging::new(ImmediateAllocator::new(&backend)?, "weights");
/// // DEBUG allocated allocator="weights" bytes=4096 given=4096 time=1.2µs
/// let block = allocator.allocate(4096)?;
/// // WARN not allocated allocator="weights" bytes=0 time=90ns error=invalid request: ...
/// assert!(allocator.allocate(0).is_err());
/// // DEBUG released allocator="weights" bytes=4096 time=310ns
/// allocator.release(block, &[])?;
/// assert_eq!(allocator.name(), "weights");
///
/// // In a loop that would flood the log:
/// for _ in 0..1000 {
///     let block = allocator.inner().allocate(64)?;
///     allocator.inner().release(block, &[])?;
/// }
/// let quiet = allocator.into_inner(); // Without logging for good.
/// assert!(quiet.allocate(0).is_err());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Logging<A> {
    inner: A,
    name: Arc<str>,
}

impl<A> Logging<A> {
    /// Logs each call to `inner` under the name `name`.
    pub fn new(inner: A, name: impl Into<Arc<str>>) -> Self {
        Self {
            inner,
            name: name.into(),
        }
    }

    /// The name used in the log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The inner allocator, whose calls are not logged.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns the inner allocator, whose calls are not logged.
    pub fn into_inner(self) -> A {
        self.inner
    }
}

impl<A: Allocator> Allocator for Logging<A> {
    forward_to_inner!();

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let start = Instant::now();
        let memory = self.inner.allocate(bytes);
        let (allocator, time) = (&*self.name, start.elapsed());
        match &memory {
            Ok(memory) => {
                tracing::debug!(allocator, bytes, given = memory.bytes(), ?time, "allocated");
            }
            Err(error) => tracing::warn!(allocator, bytes, ?time, %error, "not allocated"),
        }
        memory
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let bytes = memory.bytes();
        let start = Instant::now();
        let result = self.inner.release(memory, after);
        let (allocator, time) = (&*self.name, start.elapsed());
        match &result {
            Ok(()) => tracing::debug!(allocator, bytes, ?time, "released"),
            Err(error) => tracing::warn!(allocator, bytes, ?time, %error, "not released cleanly"),
        }
        result
    }
}
