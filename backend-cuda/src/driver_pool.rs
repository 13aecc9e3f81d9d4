//! The allocator over a memory pool of the driver.

use std::{sync::Arc, time::Duration};

use binpool_allocators::{Allocator, Error, Result, Scope, debug_by};

use crate::{
    backend::{CudaBackend, CudaEvent, CudaMemory, CudaQueue},
    block::Body,
    sys::{Allocation, DriverPool, PER_THREAD},
};

/// The peaks of a pool of the driver, in bytes.
///
/// ```no_run
/// use binpool_allocators::Allocator;
/// use binpool_cuda::{CudaBackend, DriverPoolAllocator};
///
/// let allocator = DriverPoolAllocator::new(&CudaBackend::open(0)?)?;
/// allocator.release(allocator.allocate(4096)?, &[])?;
/// let peaks = allocator.peaks()?;
/// assert!(peaks.used_bytes >= 4096 && peaks.reserved_bytes >= peaks.used_bytes);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverPoolPeaks {
    /// The peak of the memory that it had from the device.
    pub reserved_bytes: u64,
    /// The peak of the memory allocated from it.
    pub used_bytes: u64,
}

/// Allocates from a memory pool of the driver (`cuMemAllocFromPoolAsync`, `cuMemFreeAsync`).
///
/// A block is ready for every queue when [`allocate`](Allocator::allocate) returns. It returns to the driver's pool once the commands
/// that use it have ended; the driver does not wait, so the event of a kernel that the program launches itself must be passed to
/// [`release`](Allocator::release). The driver's pool keeps free memory, which counts as used on the device, until
/// [`trim_to`](Self::trim_to) is called or this value and its blocks are dropped. Clones share the pool; any thread may use them.
///
/// ```no_run
/// use binpool_allocators::Allocator;
/// use binpool_cuda::{CudaBackend, DriverPoolAllocator};
///
/// let allocator = DriverPoolAllocator::new(&CudaBackend::open(0)?)?;
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
    /// [`Unsupported`](Error::Unsupported) on a device without memory pools, or a failure of the driver.
    pub fn new(backend: &CudaBackend) -> Result<Self> {
        if !backend.shared.facts.memory_pools {
            return Err(backend.lacks("memory pools of the driver"));
        }
        let pool = DriverPool::create(&backend.shared.context)?;
        pool.set_release_threshold(u64::MAX)?;
        Ok(Self {
            backend: backend.clone(),
            pool: Arc::new(pool),
        })
    }

    /// Allocates memory for the commands of one queue, without waiting (`cuMemAllocFromPoolAsync` on its stream): it is ready for commands
    /// that are enqueued on the queue from now on. When it is dropped or released, it is freed after the commands that were enqueued on the
    /// queue before (`cuMemFreeAsync`), and after the events of the release.
    ///
    /// ```no_run
    /// use binpool_allocators::{Backend, QueueOrder, Region};
    /// use binpool_cuda::{CudaBackend, DriverPoolAllocator};
    ///
    /// let backend = CudaBackend::open(0)?;
    /// let allocator = DriverPoolAllocator::new(&backend)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let block = allocator.allocate_on(&queue, 4096)?;
    /// backend.enqueue_fill(&queue, &block, Region::first(4096), &[1_u8])?;
    /// drop(block); // Behind the fill.
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`allocate`](Allocator::allocate); [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for a queue of another
    /// device; [`Unsupported`](Error::Unsupported) for the per-thread default stream, which is another stream if another thread drops the
    /// memory, and while the stream is captured into a graph. A command of another queue on it is [`Unsupported`](Error::Unsupported), too, on any device.
    pub fn allocate_on(&self, queue: &CudaQueue, bytes: usize) -> Result<CudaMemory> {
        self.check_queue(queue)?;
        let stream = queue.stream().stream();
        self.backend.create(bytes, || {
            let allocation = Allocation::ordered(&self.pool, stream, bytes);
            let allocation = allocation.map_err(|error| error.shortage(bytes, Scope::Device))?;
            Ok(Body::Ordered(allocation, Arc::clone(stream)))
        })
    }

    fn check_queue(&self, queue: &CudaQueue) -> Result<()> {
        self.backend.check_own_queue(queue)?;
        if queue.stream().stream().raw() == PER_THREAD {
            return Err(Error::unsupported(
                "memory in the order of a per-thread default stream: use a queue of `create_queue`",
            ));
        }
        queue.check_not_captured("memory in the order of a queue")
    }

    /// Returns how long `pairs` pairs of `cuMemAllocFromPoolAsync` and `cuMemFreeAsync` on the stream of `queue` take alone.
    ///
    /// ```no_run
    /// use binpool_allocators::{Backend, QueueOrder};
    /// use binpool_cuda::{CudaBackend, DriverPoolAllocator};
    ///
    /// let backend = CudaBackend::open(0)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let took = DriverPoolAllocator::new(&backend)?.time_pairs(&queue, 4096, 1000)?;
    /// println!("{} ns a pair", took.as_nanos() / 1000);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`allocate_on`](Self::allocate_on).
    pub fn time_pairs(&self, queue: &CudaQueue, bytes: usize, pairs: u64) -> Result<Duration> {
        self.check_queue(queue)?;
        self.backend.shared.core.limits().check_block(bytes)?;
        let timed = self.pool.time_pairs(queue.stream().stream(), bytes, pairs);
        timed.map_err(|error| error.shortage(bytes, Scope::Device))
    }

    /// Returns the peaks of the driver's pool since it was made.
    ///
    /// ```no_run
    /// use binpool_cuda::{CudaBackend, DriverPoolAllocator};
    ///
    /// let allocator = DriverPoolAllocator::new(&CudaBackend::open(0)?)?;
    /// println!("{} MiB of the device", allocator.peaks()?.reserved_bytes >> 20);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn peaks(&self) -> Result<DriverPoolPeaks> {
        let (reserved_bytes, used_bytes) = self.pool.peaks()?;
        Ok(DriverPoolPeaks {
            reserved_bytes,
            used_bytes,
        })
    }

    /// Releases free memory to the device, but keeps this many bytes.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn trim_to(&self, bytes: usize) -> Result<()> {
        self.backend.shared.core.drop_what_has_ended();
        Ok(self.pool.trim_to(bytes)?)
    }
}

impl Allocator for DriverPoolAllocator {
    type Backend = CudaBackend;

    fn backend(&self) -> &CudaBackend {
        &self.backend
    }

    fn allocate(&self, bytes: usize) -> Result<CudaMemory> {
        self.backend.create(bytes, || {
            let allocation = Allocation::pooled(&self.pool, bytes);
            let allocation = allocation.map_err(|error| error.shortage(bytes, Scope::Device))?;
            Ok(Body::Allocation(allocation))
        })
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

debug_by!(DriverPoolAllocator, |this| backend: this.backend);
