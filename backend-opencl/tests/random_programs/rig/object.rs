//! Memory that a program has in hand.

use binpool::PooledBuffer;
use binpool_allocators::{AsMemory, MemoryFlags};
use binpool_opencl::{ClMemory, ClQueue, HostMemory, OpenClBackend};

use crate::model::roots::Place;

/// What the memory is.
pub(crate) enum Handle {
    Bare(ClMemory),
    Pooled(PooledBuffer<OpenClBackend>),
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
            Handle::Pooled(block) => block,
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
