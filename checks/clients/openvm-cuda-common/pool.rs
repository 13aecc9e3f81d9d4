//! The device memory of the program, from a binpool pool of the device that was current at the first allocation.

use std::{collections::HashMap, ffi::c_void, sync::OnceLock};

use binpool::{
    Backend, GrowthPolicy, Memory, MemoryPool, PoolError, PoolOptions, PooledBuffer, Queue, QueueOrder, VirtualMemoryAllocator,
};
use binpool_cuda::{CudaBackend, CudaQueue};

use crate::{
    common::get_device,
    error::MemoryError,
    stream::{cudaStream_t, StreamGuard},
};

pub(super) struct Pool {
    pool: MemoryPool<CudaBackend>,
    blocks: HashMap<usize, Block>,
}

/// A block, and after it the stream that it belongs to.
struct Block {
    memory: PooledBuffer<CudaBackend>,
    stream: StreamGuard,
}

impl Pool {
    pub(super) fn new() -> Result<Self, MemoryError> {
        let device = u32::try_from(get_device()?).unwrap_or(0);
        let pool = || {
            let backend = CudaBackend::open(device)?;
            let queue = backend.create_queue(QueueOrder::InOrder)?;
            // A prover fills the device.
            let options = PoolOptions::new().growth(GrowthPolicy::Dense);
            options.build(VirtualMemoryAllocator::new(&backend), &queue)
        };
        let pool = pool().map_err(|error| failed(&error, 0))?;
        Ok(Self { pool, blocks: HashMap::new() })
    }

    pub(super) fn allocate(&mut self, size: usize, stream: &StreamGuard) -> Result<*mut c_void, MemoryError> {
        let queue = stream.queue.get_or_init(|| StreamQueue::new(&self.pool, stream.as_raw()));
        let queue = &queue.as_ref().ok_or(MemoryError::InvalidPointer)?.queue;
        let memory = self.pool.allocate_on(queue, size);
        let memory = memory.map_err(|error| failed(&error, size))?;
        let address = memory.memory_on(queue).map_or(Ok(0), Memory::device_address);
        let address = address.map_err(|error| failed(&error.into(), size))? as usize;
        let stream = stream.clone();
        self.blocks.insert(address, Block { memory, stream });
        Ok(std::ptr::without_provenance_mut(address))
    }

    /// Frees what is at an address, for whatever is given to its stream from now on. Returns its size, and its stream, which is to be dropped without a lock.
    pub(super) fn free(&mut self, address: usize) -> Result<(usize, StreamGuard), MemoryError> {
        let block = self.blocks.remove(&address).ok_or(MemoryError::UntrackedPointer)?;
        Ok((block.memory.size(), block.stream))
    }

    pub(super) fn memory_usage(&self) -> usize {
        usize::try_from(self.pool.managed_bytes()).unwrap_or(usize::MAX)
    }
}

fn failed(error: &PoolError, requested: usize) -> MemoryError {
    tracing::error!("{error:#}");
    match error {
        PoolError::OutOfMemory(_) => MemoryError::OutOfMemory { requested, available: 0 },
        _ => MemoryError::InvalidMemorySize { size: requested },
    }
}

/// The queue of a stream, which its pool drops before the stream is destroyed.
pub(crate) struct StreamQueue {
    pool: MemoryPool<CudaBackend>,
    queue: CudaQueue,
}

/// The queue of a stream once it has had memory; `None` if that failed.
pub(crate) type QueueOfStream = OnceLock<Option<StreamQueue>>;

impl StreamQueue {
    fn new(pool: &MemoryPool<CudaBackend>, stream: cudaStream_t) -> Option<Self> {
        // SAFETY: the stream is one of the device, and has this, whose drop ends the pool's use of it.
        let queue = unsafe { pool.backend().wrap_raw_queue(stream) };
        let queue = queue.map_err(|error| tracing::error!("{error:#}")).ok()?;
        Some(Self { pool: pool.clone(), queue })
    }
}

impl Drop for StreamQueue {
    fn drop(&mut self) {
        // The pool drops a queue as soon as its commands have ended.
        if let Err(error) = self.queue.finish() {
            tracing::error!("{error:#}");
        }
        self.pool.retire_queue(&self.queue);
    }
}
