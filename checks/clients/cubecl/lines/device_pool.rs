//! One pool of memory for all streams of a device.

use binpool::{MemoryPool, PoolError, PoolOptions, PooledBuffer, VirtualMemoryAllocator};
use binpool_cuda::{CudaBackend, CudaQueue};
use cubecl_core::{MemoryConfiguration, ir::MemoryDeviceProperties, server::IoError};
use cubecl_environment::backtrace::BackTrace;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{MemoryAllocationMode, MemoryManagement, MemoryManagementOptions};
use cubecl_server::storage::ComputeStorage;
use cudarc::driver::sys::{CUdeviceptr, CUstream, cuCtxGetDevice};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A block of the pool; `None` for an empty buffer.
pub(crate) type Block = Option<PooledBuffer<CudaBackend>>;

struct DevicePool {
    pool: MemoryPool<CudaBackend>,
    /// The stream of collectives, once there are any. Their buffers are not held until they end.
    collectives: OnceLock<CudaQueue>,
    queues: Mutex<HashMap<usize, CudaQueue>>,
}

impl DevicePool {
    /// The queue of one of the server's streams.
    fn queue(&self, stream: usize) -> Result<CudaQueue, IoError> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&stream) {
            return Ok(queue.clone());
        }
        let queue = queue_of(self.pool.backend(), stream as CUstream)?;
        queues.insert(stream, queue.clone());
        Ok(queue)
    }
}

fn queue_of(backend: &CudaBackend, stream: CUstream) -> Result<CudaQueue, IoError> {
    // SAFETY: the stream is one of the server of this device, which never destroys its streams.
    unsafe { backend.wrap_raw_queue(stream.cast()) }.map_err(failed)
}

/// The pools by the numbers of their devices.
static POOLS: Mutex<BTreeMap<i32, Arc<DevicePool>>> = Mutex::new(BTreeMap::new());

fn device_pool(stream: CUstream) -> Result<(Arc<DevicePool>, CudaQueue), IoError> {
    let mut device = 0;
    // SAFETY: the server has set the context of its device, and the call writes to a number that lives.
    unsafe { cuCtxGetDevice(&mut device) }.result().map_err(failed)?;
    let ordinal = u32::try_from(device).map_err(failed)?;
    let backend = CudaBackend::open(ordinal).map_err(failed)?;
    let queue = queue_of(&backend, stream)?;
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&device) {
        return Ok((pool.clone(), queue));
    }
    let pool = PoolOptions::new().build(VirtualMemoryAllocator::new(&backend), &queue).map_err(failed)?;
    let pool = Arc::new(DevicePool { pool, collectives: OnceLock::new(), queues: Mutex::default() });
    pools.insert(device, pool.clone());
    Ok((pool, queue))
}

/// From now on, memory that is given back is free after what `stream` has to do by then, too.
pub(crate) fn used_by_collectives(stream: CUstream) {
    match device_pool(stream) {
        Ok((pool, queue)) => drop(pool.collectives.set(queue)),
        Err(error) => log::error!("a collective uses memory that the pool does not know of: {error}"),
    }
}

/// A stream's way to the pool of its device.
#[derive(Default)]
pub(crate) struct StreamPool(Option<(Arc<DevicePool>, CudaQueue)>);

impl StreamPool {
    pub(crate) fn allocate(&mut self, stream: CUstream, size: u64) -> Result<(CUdeviceptr, Block), IoError> {
        if size == 0 {
            return Ok((0, None));
        }
        let (device, queue) = match &self.0 {
            Some(place) => place,
            None => &*self.0.insert(device_pool(stream)?),
        };
        let block = device.pool.allocate_on(queue, size as usize).map_err(|error| match error {
            PoolError::OutOfMemory(report) => {
                log::warn!("{report:#}");
                IoError::OutOfMemory { size, backtrace: BackTrace::capture() }
            }
            other => failed(other),
        })?;
        let memory = block.memory_on(queue).ok_or_else(|| failed("a block without memory"))?;
        let address = memory.device_address().map_err(failed)?;
        Ok((address, Some(block)))
    }

    /// Gives a block back. It is free when its stream, and the collectives, have come so far.
    pub(crate) fn give_back(&self, block: Block) {
        let collectives = self.0.as_ref().and_then(|(device, _)| device.collectives.get());
        if let (Some(block), Some(queue)) = (&block, collectives)
            && let Err(error) = block.record_use(queue)
        {
            log::error!("{error}");
        }
    }

    /// Records that commands of another stream use a block, which is then not free before they have ended.
    pub(crate) fn record_use(&self, block: &Block, stream: usize) -> bool {
        let (Some((device, _)), Some(block)) = (&self.0, block) else {
            return true;
        };
        device.queue(stream).is_ok_and(|queue| block.record_use(&queue).is_ok())
    }

    pub(crate) fn trim(&self) {
        if let Some((device, _)) = &self.0 {
            device.pool.trim_to(0);
        }
    }
}

/// A memory that gives each buffer a block of its storage.
pub(crate) fn transparent<S: ComputeStorage>(
    storage: S,
    properties: &MemoryDeviceProperties,
    config: MemoryConfiguration,
    logger: Arc<ServerLogger>,
    options: MemoryManagementOptions,
) -> MemoryManagement<S> {
    let options = options.mode(MemoryAllocationMode::Dedicated);
    MemoryManagement::from_configuration(storage, properties, config, logger, options)
}

fn failed(error: impl std::fmt::Display) -> IoError {
    IoError::Unknown { description: format!("binpool: {error:#}"), backtrace: BackTrace::capture() }
}
