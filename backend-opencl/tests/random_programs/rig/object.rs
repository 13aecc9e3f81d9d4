//! Memory that a program has in hand.

use binpool::{Allocator, PooledBuffer};
use binpool_allocators::{AsMemory, MemoryFlags, Queue, Region, Result};
use binpool_opencl::{ClEvent, ClMemory, ClQueue, HostMemory, OpenClBackend};

use crate::model::roots::Place;

/// A block of a pool over any allocator.
pub(crate) trait Pooled: AsMemory<OpenClBackend> + Send + Sync {
    fn as_memory(&self) -> &dyn AsMemory<OpenClBackend>;

    fn order_before(&self, queue: &ClQueue) -> Result<()>;

    fn bind_to_queue(&mut self, queue: &ClQueue) -> Result<()>;

    fn unbind_from_queue(&mut self) -> Result<()>;

    fn enqueue_release(self: Box<Self>, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent>;

    fn release(self: Box<Self>) -> Result<()>;

    fn enqueue_fill(
        &self,
        queue: &ClQueue,
        region: Region,
        pattern: &[u8],
        wait_for: &[ClEvent],
    ) -> Result<ClEvent>;

    /// A view of `region`, which lives as long as `use_it`.
    fn with_view(
        &self,
        region: Region,
        use_it: &mut dyn FnMut(&dyn AsMemory<OpenClBackend>),
    ) -> Result<()>;
}

impl<A: Allocator<Backend = OpenClBackend> + Send + Sync> Pooled for PooledBuffer<A> {
    fn as_memory(&self) -> &dyn AsMemory<OpenClBackend> {
        self
    }

    fn order_before(&self, queue: &ClQueue) -> Result<()> {
        Self::order_before(self, queue)
    }

    fn bind_to_queue(&mut self, queue: &ClQueue) -> Result<()> {
        Self::bind_to_queue(self, queue)
    }

    fn unbind_from_queue(&mut self) -> Result<()> {
        Self::unbind_from_queue(self)
    }

    fn enqueue_release(self: Box<Self>, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        Self::enqueue_release(*self, Some(queue), wait_for)
    }

    fn release(self: Box<Self>) -> Result<()> {
        Self::release(*self)
    }

    fn enqueue_fill(
        &self,
        queue: &ClQueue,
        region: Region,
        pattern: &[u8],
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        Self::enqueue_fill(self, queue.after(wait_for), region, pattern)
    }

    fn with_view(
        &self,
        region: Region,
        use_it: &mut dyn FnMut(&dyn AsMemory<OpenClBackend>),
    ) -> Result<()> {
        let view = self.sub_region(region)?;
        use_it(&view);
        Ok(())
    }
}

/// What the memory is.
pub(crate) enum Handle {
    Bare(ClMemory),
    Pooled(Box<dyn Pooled>),
    /// Over memory of the host.
    Host(HostMemory<u8>),
    /// A vector of the host, as shared virtual memory.
    System(HostMemory<u8>),
}

pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) handle: Handle,
    pub(crate) place: Place,
    pub(crate) flags: MemoryFlags,
    /// Set if it is shared virtual memory, or a buffer over it.
    pub(crate) is_svm: bool,
    /// Set if it can be the parent of a view.
    pub(crate) has_views: bool,
}

impl Object {
    pub(crate) fn memory(&self) -> &dyn AsMemory<OpenClBackend> {
        match &self.handle {
            Handle::Bare(memory) => memory,
            Handle::Pooled(block) => block.as_memory(),
            Handle::Host(buffer) => buffer,
            Handle::System(memory) => memory,
        }
    }

    pub(crate) fn on(&self, queue: &ClQueue) -> &ClMemory {
        let memory = self.memory().memory_on(queue);
        memory.expect("no object here has 0 bytes")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory().size()
    }

    pub(crate) fn host_reads(&self) -> bool {
        let no = MemoryFlags::HOST_WRITE_ONLY | MemoryFlags::HOST_NO_ACCESS;
        !self.flags.intersects(no)
    }

    pub(crate) fn host_writes(&self) -> bool {
        let no = MemoryFlags::HOST_READ_ONLY | MemoryFlags::HOST_NO_ACCESS;
        !self.flags.intersects(no)
    }

    /// Returns whether kernels may read and write it.
    pub(crate) fn is_for_kernels(&self) -> bool {
        let no = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
        !self.flags.intersects(no)
    }
}
