//! The allocator over a memory pool of the driver.

use std::{fmt, sync::Arc};

use binpool_allocators::{Allocator, MemoryFlags, Result, Scope};

use crate::{
    backend::CudaBackend,
    event::CudaEvent,
    memory::CudaMemory,
    root::Body,
    sys::{Allocation, DriverPool},
};

/// Allocates from a memory pool of the driver (`cuMemAllocFromPoolAsync`, `cuMemFreeAsync`).
///
/// A block is there when [`allocate`](Allocator::allocate) returns, for every queue. It goes back to the driver's pool once the commands
/// that use it have ended; the driver waits for nothing then, so a kernel that the program launches itself has to be among the events of
/// [`release`](Allocator::release). The driver's pool keeps what is free, and it shows as used on the device, until
/// [`trim_to`](Self::trim_to) or the end of this value and its blocks. Clones share the pool; any thread may use them.
///
/// ```no_run
/// use binpool_allocators::Allocator;
/// use binpool_cuda::{CudaDevice, DriverPoolAllocator};
///
/// let allocator = DriverPoolAllocator::new(&CudaDevice::open(0)?)?;
/// let block = allocator.allocate(4096)?;
/// allocator.release(block, &[])?;
/// allocator.trim_to(0)?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct DriverPoolAllocator {
    backend: CudaBackend,
    pool: Arc<DriverPool>,
}

impl DriverPoolAllocator {
    /// Makes a pool of the driver that keeps all of its free memory.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) on a device without memory pools, or a failure of the driver.
    pub fn new(backend: &CudaBackend) -> Result<Self> {
        if !backend.shared.facts.memory_pools {
            return Err(backend.shared.lacks("memory pools of the driver"));
        }
        let pool = DriverPool::create(&backend.shared.context)?;
        pool.set_release_threshold(u64::MAX)?;
        Ok(Self {
            backend: backend.clone(),
            pool: Arc::new(pool),
        })
    }

    /// Gives free memory back to the device, but keeps so many bytes.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn trim_to(&self, bytes: usize) -> Result<()> {
        self.backend.shared.graveyard.reap_all();
        Ok(self.pool.trim_to(bytes)?)
    }
}

impl Allocator for DriverPoolAllocator {
    type Backend = CudaBackend;

    fn backend(&self) -> &CudaBackend {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<CudaMemory> {
        let shared = &self.backend.shared;
        shared.limits.check_block(bytes)?;
        let allocate = || Allocation::pooled(&self.pool, bytes);
        let block = shared.allocate(bytes, Scope::Device, allocate)?;
        let body = Body::Block(block);
        Ok(CudaMemory::whole(shared, body, bytes, MemoryFlags::empty()))
    }

    fn release(&self, memory: CudaMemory, after: &[CudaEvent]) -> Result<()> {
        use binpool_allocators::Backend as _;

        self.backend.release(memory, after)
    }

    fn views_are_addresses(&self) -> bool {
        true
    }

    fn is_deferred(&self) -> bool {
        false
    }
}

impl fmt::Debug for DriverPoolAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverPoolAllocator")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}
