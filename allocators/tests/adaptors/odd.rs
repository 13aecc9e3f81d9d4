//! An allocator that does what real ones seldom do.

use std::{fmt, sync::Arc};

use binpool_allocators::{Align, Allocator, DeferredAllocator, EventOf, Memory, MemoryOf, Result};
use binpool_mock::{MockBackend, MockDevice};

type Hook = Arc<dyn Fn(usize) -> Result<()> + Send + Sync>;

/// Deferred buffers, apart from what a test wants otherwise.
#[derive(Clone)]
pub(crate) struct Odd {
    pub(crate) inner: DeferredAllocator<MockBackend>,
    /// Blocks have a multiple of this.
    pub(crate) grain: usize,
    pub(crate) deferred: bool,
    pub(crate) needs_events: bool,
    pub(crate) alignment: usize,
    pub(crate) largest: usize,
    /// Called with the bytes of each block that is asked for, and of each that comes back; may refuse.
    pub(crate) on_allocate: Hook,
    pub(crate) on_release: Hook,
}

impl Odd {
    pub(crate) fn new(device: &MockDevice) -> Self {
        Self {
            inner: DeferredAllocator::new(&device.backend()),
            grain: 1,
            deferred: true,
            needs_events: false,
            alignment: 256,
            largest: device.limits().largest_block_bytes,
            on_allocate: Arc::new(|_| Ok(())),
            on_release: Arc::new(|_| Ok(())),
        }
    }

    /// Gives whole kibibytes.
    pub(crate) fn generous(device: &MockDevice) -> Self {
        Self {
            grain: crate::KIB,
            ..Self::new(device)
        }
    }

    pub(crate) fn on_allocate(
        mut self,
        hook: impl Fn(usize) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.on_allocate = Arc::new(hook);
        self
    }

    pub(crate) fn on_release(
        mut self,
        hook: impl Fn(usize) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.on_release = Arc::new(hook);
        self
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd")
    }
}

impl Allocator for Odd {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        (self.on_allocate)(bytes)?;
        self.inner.allocate(bytes.next_multiple_of(self.grain))
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let bytes = memory.bytes();
        self.inner.release(memory, after)?;
        (self.on_release)(bytes)
    }

    fn is_deferred(&self) -> bool {
        self.deferred
    }

    fn release_needs_events(&self) -> bool {
        self.needs_events
    }

    fn alignment(&self) -> Align {
        Align::new(self.alignment).unwrap()
    }

    fn largest_block(&self) -> usize {
        self.largest
    }
}
