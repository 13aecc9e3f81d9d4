//! The memory of graphs: blocks that are requested or freed while a stream is captured.
//!
//! A graph uses the addresses that it was captured with at each launch, also those of blocks that were freed meanwhile. So requests on a
//! stream that is captured are served by a pool of the capture and the stream, which serves no other requests, and stays until the
//! graph, its copies and its executables are gone. A block from before the capture that is freed meanwhile stays as long.
//!
//! The pool is one of the stream, too: the streams of a capture may run side by side at each launch, and a block may only go to a later
//! command of the same stream.

use binpool::{MemoryPool, PoolError, PooledBuffer, VirtualMemoryAllocator, WeakPool};
use binpool_cuda::{CudaBackend, CudaQueue};
use parking_lot::Mutex;

/// By the number of the capture and the handle of the stream. What the graph keeps keeps them.
static POOLS: Mutex<Vec<Captured>> = Mutex::new(Vec::new());

struct Captured {
    capture: u64,
    stream: usize,
    pool: WeakPool<CudaBackend>,
}

/// Returns the pool for requests on a queue whose stream is captured; `None` if it is not. `pool` is that of the device.
///
/// # Errors
///
/// Failures of the device.
///
/// ```no_run
/// use binpool::{Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
/// use binpool_capi::graph_memory;
/// use binpool_cuda::CudaBackend;
///
/// let backend = CudaBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
/// // ... cuStreamBeginCapture ...
/// let of_graph = graph_memory::pool_of_capture(&pool, &queue)?;
/// let block = of_graph.unwrap_or(pool).allocate_on(&queue, 4096)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pool_of_capture(
    pool: &MemoryPool<CudaBackend>,
    queue: &CudaQueue,
) -> Result<Option<MemoryPool<CudaBackend>>, PoolError> {
    let backend = pool.backend();
    let Some(capture) = backend.capture_number(queue)? else {
        return Ok(None);
    };
    let stream = queue.raw().addr();
    let known = POOLS.lock().iter().find_map(|known| {
        let is_this = known.capture == capture && known.stream == stream;
        is_this.then(|| known.pool.upgrade()).flatten()
    });
    if known.is_some() {
        return Ok(known);
    }
    let made = MemoryPool::new(VirtualMemoryAllocator::new(backend), pool.home_queue())?;
    let kept = made.keep_addresses();
    backend.keep_with_graph(queue, kept)?;
    // Dropped after the lock is let go: a pool whose graph ends meanwhile has its last handle here, and its end waits for the device.
    let mut alive = Vec::new();
    let mut pools = POOLS.lock();
    pools.retain(|known| {
        let pool = known.pool.upgrade();
        let is_alive = pool.is_some();
        alive.extend(pool);
        is_alive
    });
    pools.push(Captured {
        capture,
        stream,
        pool: made.downgrade(),
    });
    drop(pools);
    Ok(Some(made))
}

/// Frees a block of a device's pool after the commands that its queue has had until now. If the stream of the queue is captured, the
/// graph keeps the block.
///
/// # Errors
///
/// Failures of the device; the block is freed anyway.
///
/// ```no_run
/// # use binpool::{Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
/// # use binpool_capi::graph_memory;
/// # use binpool_cuda::CudaBackend;
/// # let backend = CudaBackend::open(0)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
/// let block = pool.allocate_on(&queue, 4096)?;
/// // ... cuStreamBeginCapture, and commands that use the block ...
/// graph_memory::free_on(&queue, block)?;
/// assert_eq!(pool.active_blocks(), 1); // Until the graph is gone.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn free_on(
    queue: &CudaQueue,
    block: PooledBuffer<CudaBackend>,
) -> binpool::Result<(), binpool::Error> {
    let backend = block.backend().clone();
    if backend.capture_number(queue)?.is_some() {
        return backend.keep_with_graph(queue, block);
    }
    block.record_use(queue)?;
    block.release()
}

/// Returns the bytes that the pools of captures have of a device, whose graphs live.
///
/// ```no_run
/// # use binpool_capi::graph_memory;
/// # use binpool_cuda::CudaBackend;
/// let backend = CudaBackend::open(0)?;
/// println!("{} MiB are kept for graphs", graph_memory::bytes(&backend) >> 20);
/// # Ok::<(), binpool::Error>(())
/// ```
#[must_use]
pub fn bytes(backend: &CudaBackend) -> u64 {
    backend.drop_what_graphs_kept();
    let pools = POOLS.lock();
    let alive: Vec<_> = pools
        .iter()
        .filter_map(|known| known.pool.upgrade())
        .collect();
    drop(pools);
    let of_device = alive
        .iter()
        .filter(|pool| pool.backend().raw_context() == backend.raw_context());
    of_device.map(MemoryPool::managed_bytes).sum()
}
