//! The pool of each device, and the queues of its streams.

#![expect(
    unsafe_code,
    reason = "PyTorch promises that its streams live as long as the program"
)]

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    ffi::c_void,
    sync::Arc,
};

use binpool::{
    AddressedPool, Backend, MemoryPool, PoolOptions, QueueOrder, VirtualMemoryAllocator,
};
use binpool_cuda::{CudaBackend, CudaQueue};
use parking_lot::{Mutex, RwLock};

use super::pages::{NotedPages, Pages};
use crate::status::Failure;

/// `CU_STREAM_PER_THREAD`, which is another stream in each thread.
const PER_THREAD: usize = 2;

/// The pool of a device. It lives as long as the program: tensors are freed until its end.
pub(super) struct DevicePool {
    /// Its blocks, as PyTorch knows them.
    pub(super) memory: AddressedPool<CudaBackend>,
    /// The pages that are mapped for it.
    pub(super) pages: Arc<Pages>,
    /// By the stream, but for those of threads. They stay, so that a stream is the same queue forever.
    queues: RwLock<HashMap<usize, &'static CudaQueue>>,
}

/// A device's pool, and the queue of one of its streams.
pub(super) struct Place {
    device: i32,
    stream: usize,
    pub(super) pool: &'static DevicePool,
    queue: Known,
}

/// A queue. Threads come and go, and their queues with them: those that the pool has a use for are equal to a later one.
enum Known {
    OfAll(&'static CudaQueue),
    OfThread(CudaQueue),
}

static POOLS: Mutex<BTreeMap<i32, &'static DevicePool>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Where the last request of this thread was.
    static LAST: Cell<Option<Place>> = const { Cell::new(None) };
}

impl Place {
    /// Calls `work` with the place of a stream of a device, and makes its pool on first use.
    #[inline]
    pub(super) fn with<R>(
        device: i32,
        stream: *mut c_void,
        work: impl FnOnce(&Self) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        // A thread that is ending keeps no place. If `work` comes here again, its place is looked up.
        let last = LAST.try_with(Cell::take).ok().flatten();
        let place = match last {
            Some(last) if last.device == device && last.stream == stream.addr() => last,
            _ => Self::look_up(device, stream)?,
        };
        let result = work(&place);
        let _ended = LAST.try_with(|last| last.set(Some(place)));
        result
    }

    #[cold]
    fn look_up(device: i32, stream: *mut c_void) -> Result<Self, Failure> {
        let pool = DevicePool::of(device)?;
        Ok(Self {
            device,
            stream: stream.addr(),
            pool,
            queue: pool.queue_of(stream)?,
        })
    }

    pub(super) fn queue(&self) -> &CudaQueue {
        match &self.queue {
            Known::OfAll(queue) => queue,
            Known::OfThread(queue) => queue,
        }
    }
}

impl DevicePool {
    /// Returns the pool of a device, which is made on first use.
    pub(super) fn of(device: i32) -> Result<&'static Self, Failure> {
        // Held while a pool is made, so that a device has one.
        let mut pools = POOLS.lock();
        if let Some(pool) = pools.get(&device) {
            return Ok(pool);
        }
        let made = Box::leak(Box::new(Self::open(device)?));
        pools.insert(device, made);
        Ok(made)
    }

    pub(super) fn pool(&self) -> &MemoryPool<CudaBackend> {
        self.memory.pool()
    }

    fn open(device: i32) -> Result<Self, Failure> {
        let ordinal = u32::try_from(device).map_err(|_| {
            Failure::argument(format!("device {device}: devices are numbered from 0"))
        })?;
        let backend = CudaBackend::open(ordinal)?;
        let home = backend.create_queue(QueueOrder::InOrder)?;
        let pages = Arc::<Pages>::default();
        let allocator = NotedPages {
            inner: VirtualMemoryAllocator::new(&backend),
            device,
            pages: Arc::clone(&pages),
        };
        // The threads of a training step take turns: the backward pass begins where the forward pass has ended.
        let options = PoolOptions::new().arenas(1);
        Ok(Self {
            memory: AddressedPool::new(&options.build(allocator, &home)?),
            pages,
            queues: RwLock::default(),
        })
    }

    fn queue_of(&self, stream: *mut c_void) -> Result<Known, Failure> {
        let raw = stream.addr();
        if let Some(queue) = self.queues.read().get(&raw) {
            return Ok(Known::OfAll(queue));
        }
        // SAFETY: It is a stream of the device's primary context, and lives as long as the program, as the callers of the functions of
        // this module promise.
        let queue = unsafe { self.pool().backend().wrap_raw_queue(stream) }?;
        if raw == PER_THREAD {
            return Ok(Known::OfThread(queue));
        }
        let mut queues = self.queues.write();
        // Another thread may have been faster, with an equal queue.
        let known = queues
            .entry(raw)
            .or_insert_with(|| Box::leak(Box::new(queue)));
        Ok(Known::OfAll(known))
    }
}

/// Returns the pool of a device, where one was made.
pub(super) fn find(device: i32) -> Option<&'static DevicePool> {
    POOLS.lock().get(&device).copied()
}

/// Returns the pools that were made, with the numbers of their devices.
pub(super) fn all() -> Vec<(i32, &'static DevicePool)> {
    let pools = POOLS.lock();
    pools
        .iter()
        .map(|(device, pool)| (*device, *pool))
        .collect()
}

/// Returns the pool that the functions for PyTorch have for a device, by its number; it is made on first use.
///
/// # Errors
///
/// Where the device cannot be opened.
///
/// ```
/// use binpool_capi::{Status, torch::pool_of};
///
/// let failure = pool_of(-1).err().unwrap();
/// assert_eq!(failure.status(), Status::InvalidArgument);
/// assert_eq!(failure.to_string(), "device -1: devices are numbered from 0");
/// ```
pub fn pool_of(device: i32) -> Result<MemoryPool<CudaBackend>, Failure> {
    Ok(DevicePool::of(device)?.pool().clone())
}
