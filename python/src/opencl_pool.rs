//! Pools for PyOpenCL.

use std::sync::Arc;

use binpool::{
    Allocator, Backend, ImmediateAllocator, MemoryPool as RustPool, PoolOptions, QueueOrder,
    ReusePolicy, SvmAllocator, SvmGrain, adaptors::Limit,
};
use binpool_capi::any_pool::AnyPool;
use binpool_opencl::{ClQueue, OpenClBackend};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyTuple};

use crate::{
    block::{Buffers, Svm},
    error::{other_error, pool_error},
    opencl::{Origin, origin_of, queue_of},
    pool::{Pool, Shared, checked_limit},
    queue_allocator::{QueueAllocator, SvmQueueAllocator, Uses, used_on},
};

/// Returns the policy of that name.
fn reuse_policy(name: &str) -> PyResult<ReusePolicy> {
    Ok(match name {
        "same_queue" => ReusePolicy::SameQueue,
        "opportunistic" => ReusePolicy::Opportunistic,
        "insert_wait" => ReusePolicy::InsertWait,
        "wait_on_host" => ReusePolicy::WaitOnHost,
        other => {
            return Err(PyValueError::new_err(format!(
                "reuse='{other}': one of 'opportunistic', 'same_queue', 'insert_wait' and 'wait_on_host' is needed"
            )));
        }
    })
}

/// A pool, and the queue of requests that name none.
struct Made<A: Allocator> {
    pool: RustPool<A>,
    queue: Option<ClQueue>,
    shared: Arc<Shared>,
}

impl<A: Allocator<Backend = OpenClBackend> + 'static> Made<A>
where
    RustPool<A>: AnyPool,
{
    fn new(
        origin: Origin,
        options: PoolOptions,
        allocator: impl FnOnce(&OpenClBackend) -> binpool::Result<A>,
    ) -> PyResult<Self> {
        let Origin { backend, queue, .. } = origin;
        let allocator = allocator(&backend).map_err(other_error)?;
        let home = match &queue {
            Some(queue) => queue.clone(),
            None => own_queue(&backend)?,
        };
        let pool = options.build(allocator, &home).map_err(pool_error)?;
        let shared = Shared::new(Arc::new(pool.clone()));
        Ok(Self {
            pool,
            queue,
            shared,
        })
    }

    /// Returns the uses of arrays on one queue.
    fn on(&self, queue: &Bound<'_, PyAny>) -> PyResult<Uses> {
        Ok(Uses::Of(queue_of(self.pool.backend(), queue)?))
    }

    /// Returns the uses of arrays on any of some queues.
    fn on_any(&self, queues: &Bound<'_, PyTuple>) -> PyResult<Uses> {
        let backend = self.pool.backend();
        if queues.is_empty() {
            return Err(PyValueError::new_err(
                "name the queues on which commands use the arrays",
            ));
        }
        let queues: PyResult<Arc<[_]>> = queues
            .iter()
            .map(|queue| queue_of(backend, &queue))
            .collect();
        Ok(Uses::Any(own_queue(backend)?, queues?))
    }

    /// Returns the uses of requests that name no queue.
    fn by_default(&self) -> PyResult<Uses> {
        let queue = self.queue.clone().ok_or_else(|| {
            PyValueError::new_err(
                "the pool was made for a context, so it does not know the queue of this request: call pool.on(queue), or make the \
                 pool for a queue",
            )
        });
        queue.map(Uses::Of)
    }
}

/// Makes a queue of the pool's own.
fn own_queue(backend: &OpenClBackend) -> PyResult<ClQueue> {
    backend
        .create_queue(QueueOrder::InOrder)
        .map_err(other_error)
}

/// A pool of buffers for PyOpenCL. It is an allocator itself, for the queue that it was made for:
///
///     pool = binpool.MemoryPool(queue)
///     a = pyopencl.array.zeros(queue, 1000, numpy.float32, allocator=pool)
///
/// A block that is dropped goes to its next user only behind the commands that were enqueued on its queue before, also where
/// the queue runs them out of order. `pool.on(other)` is the allocator for arrays of another queue of the context. Where commands on
/// another queue use an array, say so with `pool.used_on(array, other)` before it is dropped, or allocate it by
/// `pool.on_any(queue, other)`: then nothing has to be said, and a block goes to no next user before all of its commands have ended.
///
/// Parameters: `device` chooses one of several devices of a context; `limit` is the most bytes that the pool takes from the device;
/// `segments=False` makes each block a buffer of its own (the default on NVIDIA's OpenCL, which needs that); `reuse` says what happens
/// where a free block was used on another queue: `'opportunistic'`, `'same_queue'`, `'insert_wait'` or `'wait_on_host'`.
#[pyclass(frozen, extends = Pool, module = "binpool")]
pub(crate) struct MemoryPool(Made<Buffers>);

#[pymethods]
impl MemoryPool {
    #[new]
    #[pyo3(signature = (context_or_queue, *, device = None, limit = None, segments = None, reuse = "opportunistic"))]
    fn new(
        context_or_queue: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        limit: Option<u64>,
        segments: Option<bool>,
        reuse: &str,
    ) -> PyResult<PyClassInitializer<Self>> {
        let limit = checked_limit(limit)?;
        let origin = origin_of(context_or_queue, device)?;
        let may_carve = origin.may_carve;
        if segments == Some(true) && !may_carve {
            return Err(PyValueError::new_err(
                "segments=True: NVIDIA's OpenCL crashes where a program uses parts of buffers as PyOpenCL does; leave it out",
            ));
        }
        let options = PoolOptions::new()
            .segments(segments.unwrap_or(may_carve))
            .reuse(reuse_policy(reuse)?);
        let made = Made::new(origin, options, |backend| {
            Ok(Limit::new(ImmediateAllocator::new(backend)?, limit))
        })?;
        let shared = Arc::clone(&made.shared);
        Ok(PyClassInitializer::from(Pool { shared }).add_subclass(Self(made)))
    }

    /// Returns the allocator for arrays of `queue`.
    fn on(&self, queue: &Bound<'_, PyAny>) -> PyResult<QueueAllocator> {
        self.0.on(queue).map(|uses| self.allocator(uses))
    }

    /// Returns an allocator for arrays that commands on any of these queues use. A block goes to no next user before all commands of these
    /// queues that were enqueued before its drop have ended.
    #[pyo3(signature = (*queues))]
    fn on_any(&self, queues: &Bound<'_, PyTuple>) -> PyResult<QueueAllocator> {
        self.0.on_any(queues).map(|uses| self.allocator(uses))
    }

    /// Notes that commands on `queue` use an array, or what an allocator of this pool has returned.
    fn used_on(&self, data: &Bound<'_, PyAny>, queue: &Bound<'_, PyAny>) -> PyResult<()> {
        used_on(data, &queue_of(self.0.pool.backend(), queue)?)
    }

    /// Returns a `pyopencl.Buffer` of at least `bytes` bytes for the pool's queue, which goes back to the pool when Python drops it.
    fn __call__<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.allocator(self.0.by_default()?).__call__(py, bytes)
    }

    /// Returns a `pyopencl.Buffer`, as a call does.
    fn allocate<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.__call__(py, bytes)
    }
}

impl MemoryPool {
    fn allocator(&self, uses: Uses) -> QueueAllocator {
        QueueAllocator {
            shared: Arc::clone(&self.0.shared),
            pool: self.0.pool.clone(),
            uses,
        }
    }
}

/// A pool of shared virtual memory for PyOpenCL. It is used as a `MemoryPool` is; its blocks are `pyopencl.SVM`.
///
/// Parameters: `device` chooses one of several devices of a context; `limit` is the most bytes that the pool takes from the device;
/// `fine_grained=True` gives memory that the host may use without mapping it, where the device has that.
#[pyclass(frozen, extends = Pool, module = "binpool", name = "SVMPool")]
pub(crate) struct SvmPool(Made<Svm>);

#[pymethods]
impl SvmPool {
    #[new]
    #[pyo3(signature = (context_or_queue, *, device = None, limit = None, fine_grained = false, reuse = "opportunistic"))]
    fn new(
        context_or_queue: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        limit: Option<u64>,
        fine_grained: bool,
        reuse: &str,
    ) -> PyResult<PyClassInitializer<Self>> {
        let limit = checked_limit(limit)?;
        let origin = origin_of(context_or_queue, device)?;
        let grain = if fine_grained {
            SvmGrain::Fine
        } else {
            SvmGrain::Coarse
        };
        let options = PoolOptions::new().reuse(reuse_policy(reuse)?);
        let made = Made::new(origin, options, |backend| {
            Ok(Limit::new(SvmAllocator::new(backend, grain)?, limit))
        })?;
        let shared = Arc::clone(&made.shared);
        Ok(PyClassInitializer::from(Pool { shared }).add_subclass(Self(made)))
    }

    /// Returns the allocator for arrays of `queue`.
    fn on(&self, queue: &Bound<'_, PyAny>) -> PyResult<SvmQueueAllocator> {
        self.0.on(queue).map(|uses| self.allocator(uses))
    }

    /// Returns an allocator for arrays that commands on any of these queues use. A block goes to no next user before all commands of these
    /// queues that were enqueued before its drop have ended.
    #[pyo3(signature = (*queues))]
    fn on_any(&self, queues: &Bound<'_, PyTuple>) -> PyResult<SvmQueueAllocator> {
        self.0.on_any(queues).map(|uses| self.allocator(uses))
    }

    /// Notes that commands on `queue` use an array, or what an allocator of this pool has returned.
    fn used_on(&self, data: &Bound<'_, PyAny>, queue: &Bound<'_, PyAny>) -> PyResult<()> {
        used_on(data, &queue_of(self.0.pool.backend(), queue)?)
    }

    /// Returns a `pyopencl.SVM` over `bytes` bytes for the pool's queue, which go back to the pool when Python drops it.
    fn __call__<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.allocator(self.0.by_default()?).__call__(py, bytes)
    }

    /// Returns a `pyopencl.SVM`, as a call does.
    fn allocate<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.__call__(py, bytes)
    }
}

impl SvmPool {
    fn allocator(&self, uses: Uses) -> SvmQueueAllocator {
        SvmQueueAllocator {
            shared: Arc::clone(&self.0.shared),
            pool: self.0.pool.clone(),
            uses,
        }
    }
}
