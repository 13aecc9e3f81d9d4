//! The memory of slices from binpool: one pool for each device, for all of its streams.

use std::{
    boxed::Box,
    cell::RefCell,
    collections::HashMap,
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    vec::Vec,
};

use binpool::{
    Backend, Memory, MemoryPool, PoolError, PooledBuffer, Queue, QueueOrder, VirtualMemoryAllocator,
};
use binpool_cuda::{CudaBackend, CudaQueue};

use super::{
    core::CudaStream,
    owner::{DeviceAllocator, MemoryOwner, StreamAllocator},
};
use crate::driver::{result::DriverError, sys};

/// The handle of the default stream of the calling thread. Those of the other default streams are less.
const PER_THREAD: usize = 2;

/// The allocator that is used unless the program sets another.
pub(crate) fn allocator() -> Box<dyn DeviceAllocator> {
    Box::new(Pools(Mutex::default()))
}

/// The pools by the ordinal of their device.
struct Pools(Mutex<HashMap<usize, MemoryPool<CudaBackend>>>);

impl Pools {
    fn of(&self, ordinal: usize) -> Result<MemoryPool<CudaBackend>, PoolError> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&ordinal) {
            return Ok(pool.clone());
        }
        let backend = CudaBackend::open(u32::try_from(ordinal).unwrap_or(u32::MAX))?;
        let queue = backend.create_queue(QueueOrder::InOrder)?;
        let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
        pools.insert(ordinal, pool.clone());
        Ok(pool)
    }
}

impl DeviceAllocator for Pools {
    fn for_stream(&self, stream: &CudaStream) -> Option<Box<dyn StreamAllocator>> {
        let pool = self.of(stream.context().ordinal());
        let pool = pool.map_err(|error| refused(&error)).ok()?;
        // The pool is of the primary context.
        if pool.backend().raw_context().addr() != stream.context().cu_ctx().addr() {
            return None;
        }
        if stream.cu_stream().addr() == PER_THREAD {
            let ordinal = stream.context().ordinal();
            return Some(Box::new(PerThread(Arc::new(OfThreads { pool, ordinal }))));
        }
        // SAFETY: it is a stream of the context. Before it is destroyed, its allocator is dropped, which makes the pool drop the queue.
        let queue = unsafe { pool.backend().wrap_raw_queue(stream.cu_stream().cast()) };
        let queue = queue.map_err(|error| refused(&error)).ok()?;
        let is_default = stream.cu_stream().addr() <= PER_THREAD;
        Some(Box::new(OfStream { pool, queue, is_default }))
    }
}

/// Allocates for a stream.
struct OfStream {
    pool: MemoryPool<CudaBackend>,
    queue: CudaQueue,
    /// The driver never destroys the default streams.
    is_default: bool,
}

impl StreamAllocator for OfStream {
    fn alloc(&self, num_bytes: usize) -> Result<(sys::CUdeviceptr, MemoryOwner), DriverError> {
        let (address, block) = allocate(&self.pool, &self.queue, num_bytes)?;
        Ok((address, Box::new(block)))
    }
}

impl Drop for OfStream {
    fn drop(&mut self) {
        if self.is_default {
            return;
        }
        // The pool drops a queue as soon as its commands have ended.
        if let Err(error) = self.queue.finish() {
            refused(&error);
        }
        self.pool.retire_queue(&self.queue);
    }
}

/// Allocates for the default stream of the calling thread.
struct PerThread(Arc<OfThreads>);

struct OfThreads {
    pool: MemoryPool<CudaBackend>,
    ordinal: usize,
}

impl OfThreads {
    /// The queue of the calling thread's default stream.
    fn queue(&self) -> CudaQueue {
        thread_local! {
            static QUEUES: RefCell<Vec<(usize, CudaQueue)>> = const { RefCell::new(Vec::new()) };
        }
        let find = |queues: &RefCell<Vec<(usize, CudaQueue)>>| {
            let mut queues = queues.borrow_mut();
            if let Some((_, queue)) = queues.iter().find(|(ordinal, _)| *ordinal == self.ordinal) {
                return queue.clone();
            }
            let queue = self.pool.backend().per_thread_default_queue();
            queues.push((self.ordinal, queue.clone()));
            queue
        };
        let queue = QUEUES.try_with(find);
        queue.unwrap_or_else(|_| self.pool.backend().per_thread_default_queue())
    }
}

impl StreamAllocator for PerThread {
    fn alloc(&self, num_bytes: usize) -> Result<(sys::CUdeviceptr, MemoryOwner), DriverError> {
        let (address, block) = allocate(&self.0.pool, &self.0.queue(), num_bytes)?;
        let of = Arc::clone(&self.0);
        Ok((address, Box::new(PerThreadBlock { block, of })))
    }
}

/// A block of one thread's default stream, which another thread may use and drop: cudarc takes their streams for the same one.
struct PerThreadBlock {
    block: PooledBuffer<CudaBackend>,
    of: Arc<OfThreads>,
}

impl Drop for PerThreadBlock {
    fn drop(&mut self) {
        if let Err(error) = self.block.record_use(&self.of.queue()) {
            refused(&error);
        }
    }
}

fn allocate(
    pool: &MemoryPool<CudaBackend>,
    queue: &CudaQueue,
    num_bytes: usize,
) -> Result<(sys::CUdeviceptr, PooledBuffer<CudaBackend>), DriverError> {
    let block = pool.allocate_on(queue, num_bytes).map_err(|error| {
        refused(&error);
        DriverError(match error.is_out_of_memory() {
            true => sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            false => sys::CUresult::CUDA_ERROR_UNKNOWN,
        })
    })?;
    let address = block.memory_on(queue).map_or(Ok(0), Memory::device_address);
    let address = address.map_err(|error| {
        refused(&error);
        DriverError(sys::CUresult::CUDA_ERROR_UNKNOWN)
    })?;
    Ok((address, block))
}

/// Says why, which a code of the driver cannot.
fn refused(error: &dyn Display) {
    std::eprintln!("binpool: {error:#}");
}
