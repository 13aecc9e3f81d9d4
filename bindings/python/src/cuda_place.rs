//! Where CuPy's blocks come from: the pool of a device, and the queue of one of its streams.

#![expect(unsafe_code, reason = "streams of CUDA are numbers in Python")]

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    ptr::without_provenance_mut,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool::{
    Error, ImmediateAllocator, Memory, MemoryPool, PoolError, PoolOptions, PooledBuffer,
};
use binpool_capi::{Failure, graph_memory, torch};
use binpool_cuda::{CudaBackend, CudaQueue};
use parking_lot::{Mutex, RwLock};
use pyo3::PyResult;

use crate::error::raised;

/// `CU_STREAM_LEGACY`. This stream, which null is, too, cannot be captured.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`, which is another stream in each thread.
const PER_THREAD: usize = 2;

/// Set where each block is an allocation of `cuMemAlloc`.
static WHOLE_ALLOCATIONS: AtomicBool = AtomicBool::new(false);

/// The pools of such blocks, by the device. They live as long as the program, as those that PyTorch and CuPy share.
static OF_ALLOCATIONS: Mutex<BTreeMap<i32, MemoryPool<CudaBackend>>> = Mutex::new(BTreeMap::new());

/// Those of all threads, but for per-thread default streams. They stay, as their streams do.
static PLACES: RwLock<Option<HashMap<Key, Arc<Place>>>> = RwLock::new(None);

/// A device, a stream, and whether blocks are whole allocations.
type Key = (i32, usize, bool);

/// Set once a request was made during a capture. Before that, nothing asks whether blocks are freed during one.
static HAS_CAPTURED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// That of this thread's last request.
    static LAST: RefCell<Option<Arc<Place>>> = const { RefCell::new(None) };
    /// That of this thread's last request during a capture, which may have ended since.
    static CAPTURED: RefCell<Option<Arc<Place>>> = const { RefCell::new(None) };
}

/// The pool of a device, and the queue of one of its streams.
pub(crate) struct Place {
    key: Key,
    pool: MemoryPool<CudaBackend>,
    queue: CudaQueue,
}

/// A block that was allocated, and whether it is from the pool of a graph.
pub(crate) type Allocated = (PooledBuffer<CudaBackend>, bool);

/// Chooses whether each block is an allocation of `cuMemAlloc`, from now on.
pub(crate) fn choose_whole_allocations(are_chosen: bool) {
    WHOLE_ALLOCATIONS.store(are_chosen, Ordering::Relaxed);
}

/// Returns the pool that CuPy's blocks of a device are from at present, which is made on first use.
pub(crate) fn pool_of(device: i32) -> Result<MemoryPool<CudaBackend>, Failure> {
    let shared = torch::pool_of(device)?;
    if !WHOLE_ALLOCATIONS.load(Ordering::Relaxed) {
        return Ok(shared);
    }
    // Held while a pool is made, so that a device has one.
    let mut pools = OF_ALLOCATIONS.lock();
    if let Some(pool) = pools.get(&device) {
        return Ok(pool.clone());
    }
    let allocator = ImmediateAllocator::new(shared.backend())?;
    let options = PoolOptions::new().segments(false);
    let made = options.build(allocator, shared.home_queue())?;
    pools.insert(device, made.clone());
    Ok(made)
}

impl Place {
    /// Returns the place of a stream of a device. Where it is a new one, `keep_stream` is called, which keeps the stream.
    #[inline]
    pub(crate) fn of(
        device: i32,
        stream: usize,
        keep_stream: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<Arc<Self>> {
        let key = (device, stream, WHOLE_ALLOCATIONS.load(Ordering::Relaxed));
        // A thread that is ending keeps no place.
        let last = LAST.try_with(|last| {
            let last = last.borrow();
            last.as_ref().filter(|last| last.key == key).map(Arc::clone)
        });
        match last {
            Ok(Some(last)) => Ok(last),
            _ => Self::find(key, keep_stream),
        }
    }

    #[cold]
    fn find(key: Key, keep_stream: impl FnOnce() -> PyResult<()>) -> PyResult<Arc<Self>> {
        let known = PLACES
            .read()
            .as_ref()
            .and_then(|places| places.get(&key).cloned());
        let place = match known {
            Some(known) => known,
            None => Self::make(key, keep_stream)?,
        };
        let former = LAST.try_with(|last| last.replace(Some(Arc::clone(&place))));
        drop(former);
        Ok(place)
    }

    fn make(key: Key, keep_stream: impl FnOnce() -> PyResult<()>) -> PyResult<Arc<Self>> {
        let (device, stream, _) = key;
        keep_stream()?;
        let pool = pool_of(device).map_err(raised)?;
        let handle = without_provenance_mut(stream);
        // SAFETY: It is a stream of CuPy's for this device, whose primary context CuPy uses, and is kept.
        let queue = unsafe { pool.backend().wrap_raw_queue(handle) }.map_err(raised)?;
        let place = Arc::new(Self { key, pool, queue });
        if stream != PER_THREAD {
            let mut places = PLACES.write();
            let places = places.get_or_insert_default();
            // Another thread may have been faster, with an equal place.
            places.insert(key, Arc::clone(&place));
        }
        Ok(place)
    }

    pub(crate) fn pool(&self) -> &MemoryPool<CudaBackend> {
        &self.pool
    }

    /// Returns whether each block is an allocation of `cuMemAlloc`.
    pub(crate) fn has_whole_allocations(&self) -> bool {
        self.key.2
    }

    pub(crate) fn device(&self) -> i32 {
        self.key.0
    }

    /// Returns the address of a block of the stream.
    pub(crate) fn address(&self, block: &PooledBuffer<CudaBackend>) -> Result<usize, Error> {
        let memory = block.memory_on(&self.queue);
        let address = memory.map_or(Ok(0), Memory::device_address)?;
        // Addresses have 64 bits where CUDA is.
        Ok(usize::try_from(address).unwrap_or(0))
    }

    /// Returns a block that this thread has at hand; `None` if no cached block has this size, while the pool is watched, and if the stream
    /// may be captured. It waits for nothing.
    #[inline]
    pub(crate) fn allocate_at_hand(&self, bytes: usize) -> Option<Allocated> {
        if self.key.1 > LEGACY && !matches!(self.capture(), Ok(None)) {
            return None;
        }
        Some((self.pool.allocate_cached(&self.queue, bytes)?, false))
    }

    /// Allocates a block for the stream: from the pool of its graph, while it is captured.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Allocated, PoolError> {
        self.pool.backend().drop_what_graphs_kept();
        if self.key.1 > LEGACY
            && let Some(pool) = graph_memory::pool_of_capture(&self.pool, &self.queue)?
        {
            HAS_CAPTURED.store(true, Ordering::Relaxed);
            let former = CAPTURED.try_with(|captured| captured.replace(Some(Arc::clone(self))));
            drop(former);
            return Ok((pool.allocate_on(&self.queue, bytes)?, true));
        }
        Ok((self.pool.allocate_on(&self.queue, bytes)?, false))
    }

    /// Frees a block of the device's pool. During a capture of its stream, or of that for which this thread has last allocated in a capture,
    /// the graph keeps it.
    #[inline]
    pub(crate) fn free(&self, block: PooledBuffer<CudaBackend>) -> Result<(), Error> {
        if HAS_CAPTURED.load(Ordering::Relaxed) {
            return self.free_unless_captured(block);
        }
        block.release()
    }

    #[cold]
    fn free_unless_captured(&self, block: PooledBuffer<CudaBackend>) -> Result<(), Error> {
        if self.capture()?.is_some() {
            return self.keep_with_graph(block);
        }
        let captured = CAPTURED.try_with(|captured| captured.borrow().clone());
        if let Ok(Some(place)) = captured {
            if place.capture()?.is_some() {
                return place.keep_with_graph(block);
            }
            let former = CAPTURED.try_with(RefCell::take);
            drop(former);
        }
        block.release()
    }

    fn capture(&self) -> Result<Option<u64>, Error> {
        self.pool.backend().capture_number(&self.queue)
    }

    fn keep_with_graph(&self, block: PooledBuffer<CudaBackend>) -> Result<(), Error> {
        self.pool.backend().keep_with_graph(&self.queue, block)
    }
}
