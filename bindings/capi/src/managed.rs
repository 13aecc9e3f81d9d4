//! The allocator of managed memory, which host and device use at the same address.

use binpool::{Allocator, Error};
use binpool_cuda::{CudaBackend, CudaEvent, CudaMemory};

/// Allocates managed memory of CUDA (`cuMemAllocManaged`).
#[derive(Debug)]
pub(crate) struct ManagedAllocator {
    backend: CudaBackend,
}

impl ManagedAllocator {
    pub(crate) fn new(backend: CudaBackend) -> Self {
        Self { backend }
    }
}

impl Allocator for ManagedAllocator {
    type Backend = CudaBackend;

    fn backend(&self) -> &CudaBackend {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<CudaMemory, Error> {
        self.backend.create_managed(bytes)
    }

    fn release(&self, memory: CudaMemory, after: &[CudaEvent]) -> Result<(), Error> {
        binpool::Backend::release(&self.backend, memory, after)
    }

    fn views_are_addresses(&self) -> bool {
        true
    }

    fn is_deferred(&self) -> bool {
        false
    }
}
