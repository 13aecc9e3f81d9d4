//! The adaptor that knows the most memory that was taken from the device since it was last asked.

use std::sync::Arc;

use binpool::{Allocator, Memory, Result};
use binpool_allocators::forward_to_inner;
use binpool_allocators::{EventOf, MemoryOf};

use crate::watermark::Watermark;

/// An allocator whose bytes in use a [`Watermark`] counts, by their real size.
#[derive(Debug)]
pub(crate) struct Reserved<A> {
    inner: A,
    bytes: Arc<Watermark>,
}

impl<A> Reserved<A> {
    pub(crate) fn new(inner: A) -> Self {
        Self {
            inner,
            bytes: Arc::default(),
        }
    }

    pub(crate) fn bytes(&self) -> Arc<Watermark> {
        Arc::clone(&self.bytes)
    }
}

impl<A: Allocator> Allocator for Reserved<A> {
    forward_to_inner!();

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let memory = self.inner.allocate(bytes)?;
        self.bytes.add(memory.bytes() as u64);
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let bytes = memory.bytes() as u64;
        let released = self.inner.release(memory, after);
        // A release that fails has released the memory all the same.
        self.bytes.remove(bytes);
        released
    }
}
