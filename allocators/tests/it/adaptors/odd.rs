//! An allocator that does what real ones seldom do.

use std::{fmt, sync::Arc};

use binpool_allocators::{
    Align, Allocator, DeferredAllocator, EventOf, Memory, MemoryOf, Region, Result,
};
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
    pub(crate) capacity: u64,
    pub(crate) available: u64,
    /// Called with the bytes of each block that is asked for, and of each that comes back; may refuse.
    pub(crate) on_allocate: Hook,
    pub(crate) on_release: Hook,
    /// Called with the bytes of each view that is made, and of each that comes back; may refuse the former.
    pub(crate) on_create_view: Hook,
    pub(crate) on_release_view: Arc<dyn Fn(usize) + Send + Sync>,
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
            capacity: device.limits().capacity_bytes,
            available: device.limits().capacity_bytes,
            on_allocate: Arc::new(|_| Ok(())),
            on_release: Arc::new(|_| Ok(())),
            on_create_view: Arc::new(|_| Ok(())),
            on_release_view: Arc::new(|_| ()),
        }
    }

    /// Gives whole kibibytes.
    pub(crate) fn generous(device: &MockDevice) -> Self {
        Self {
            grain: crate::adaptors::KIB,
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

    pub(crate) fn on_create_view(
        mut self,
        hook: impl Fn(usize) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.on_create_view = Arc::new(hook);
        self
    }

    pub(crate) fn on_release_view(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_release_view = Arc::new(hook);
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

    fn create_view(&self, block: &MemoryOf<Self>, region: Region) -> Result<MemoryOf<Self>> {
        (self.on_create_view)(region.bytes)?;
        self.inner.create_view(block, region)
    }

    fn release_view(&self, view: MemoryOf<Self>) {
        (self.on_release_view)(view.bytes());
        self.inner.release_view(view);
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

    fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    fn available_bytes(&self) -> u64 {
        self.available
    }
}
