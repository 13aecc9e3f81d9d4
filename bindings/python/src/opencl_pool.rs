//! What every pool for PyOpenCL has.

use binpool::{Allocator, MemoryPool, PoolOptions, PoolStatistics, ReusePolicy};
use binpool_capi::OfBackend;
use binpool_opencl::OpenClBackend;
use pyo3::{exceptions::PyValueError, intern, prelude::*, types::PyTuple};

use crate::{
    argument::{limit, number},
    buffer_block,
    error::raised,
    opencl::{Origin, queue_of},
    pool::Pool,
    queue_allocator::QueueAllocator,
    reclaim, svm_block,
    uses::{Uses, own_queue},
    vectorcall::{Requests, Vectorcall, speed_up},
};

/// What every pool for PyOpenCL has: `MemoryPool` and `SVMPool` are such.
#[pyclass(frozen, subclass, extends = Pool, module = "binpool", name = "OpenCLPool")]
pub(crate) struct OpenClPool {
    pool: MemoryPool<OpenClBackend>,
    /// What serves requests that name no queue; `None` for a pool that was made for a context.
    of_own_queue: Option<QueueAllocator>,
    vectorcall: Vectorcall,
}

impl OpenClPool {
    /// Makes a pool for a context or queue of PyOpenCL.
    pub(crate) fn initializer<A>(
        py: Python<'_>,
        origin: Origin,
        options: PoolOptions,
        allocator: impl FnOnce(&OpenClBackend) -> binpool::Result<A> + Send,
    ) -> PyResult<PyClassInitializer<Self>>
    where
        A: Allocator<Backend = OpenClBackend>,
    {
        let Origin { backend, queue, .. } = origin;
        let pool = py.detach(|| {
            let allocator = allocator(&backend).map_err(raised)?;
            let home = match &queue {
                Some(queue) => queue.clone(),
                None => own_queue(&backend)?,
            };
            // The threads of Python take turns.
            let pool = options.arenas(1).build(allocator, &home);
            pool.map_err(raised)
        })?;
        pool.add_reclaim_hook(reclaim::hook(reclaim::collector(py)?)?);
        let base = Pool {
            any: OfBackend::OpenCl(pool.clone()),
        };
        let of_own_queue = queue.map(|queue| QueueAllocator::new(pool.clone(), Uses::Of(queue)));
        Ok(PyClassInitializer::from(base).add_subclass(Self {
            pool,
            of_own_queue,
            vectorcall: Vectorcall::of::<Self>(),
        }))
    }

    fn figures(&self, py: Python<'_>) -> PoolStatistics {
        py.detach(|| self.pool.statistics())
    }

    fn allocator(&self, uses: Uses) -> QueueAllocator {
        QueueAllocator::new(self.pool.clone(), uses)
    }
}

/// Returns the options that both kinds of pools have.
pub(crate) fn options(most_bytes: Option<&Bound<'_, PyAny>>, reuse: &str) -> PyResult<PoolOptions> {
    let options = PoolOptions::new().limit(limit(most_bytes)?);
    Ok(options.reuse(reuse_policy(reuse)?))
}

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

#[pymethods]
impl OpenClPool {
    /// Returns the allocator for arrays of `queue`.
    fn on(&self, queue: &Bound<'_, PyAny>) -> PyResult<QueueAllocator> {
        Ok(self.allocator(Uses::of(self.pool.backend(), queue)?))
    }

    /// Returns an allocator for arrays that commands on any of these queues use. A block goes to no next user before all commands of these
    /// queues that were enqueued before its drop have ended.
    #[pyo3(signature = (*queues))]
    fn on_any(&self, queues: &Bound<'_, PyTuple>) -> PyResult<QueueAllocator> {
        Ok(self.allocator(Uses::any(self.pool.backend(), queues)?))
    }

    /// Notes that commands on `queue` use an array, or what an allocator of this pool has returned.
    fn used_on(&self, data: &Bound<'_, PyAny>, queue: &Bound<'_, PyAny>) -> PyResult<()> {
        let queue = queue_of(self.pool.backend(), queue)?;
        let below = data.getattr_opt(intern!(data.py(), "base_data"))?;
        let data = below.as_ref().unwrap_or(data);
        if buffer_block::record_use(data, &queue)?.is_some()
            || svm_block::record_use(data, &queue)?.is_some()
        {
            return Ok(());
        }
        Err(PyValueError::new_err(
            "not a block of a binpool pool: pass an array, or a block that an allocator of the pool returned",
        ))
    }

    /// Releases all free memory, as PyOpenCL's pools do, and returns the bytes released; the same as `trim()`.
    fn free_held(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.pool.trim_to(0))
    }

    /// Releases all free memory, and from now on each block when it is dropped, as PyOpenCL's pools do. Returns the bytes released.
    fn stop_holding(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.pool.stop_holding())
    }

    /// The blocks in use, as PyOpenCL's pools have them: `statistics` has more.
    #[getter]
    fn active_blocks(&self, py: Python<'_>) -> u64 {
        self.figures(py).active_blocks
    }

    /// What the blocks in use take, in bytes.
    #[getter]
    fn active_bytes(&self, py: Python<'_>) -> u64 {
        self.figures(py).active_bytes
    }

    /// The free blocks of the pool.
    #[getter]
    fn held_blocks(&self, py: Python<'_>) -> u64 {
        self.figures(py).held_blocks
    }

    /// What the pool has of the device, in bytes.
    #[getter]
    fn managed_bytes(&self, py: Python<'_>) -> u64 {
        self.figures(py).managed_bytes
    }

    /// Returns a block of at least `bytes` bytes for the pool's queue, which goes back to the pool when Python drops it: a
    /// `pyopencl.Buffer`, or a `pyopencl.SVM` of an `SVMPool`.
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        bytes: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        speed_up(slf)?;
        slf.get().allocate(bytes)
    }

    /// Returns a block of at least `bytes` bytes for the pool's queue, as a call does.
    fn allocate<'py>(&self, bytes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.request(bytes.py(), number("bytes", bytes)?)
    }
}

impl Requests for OpenClPool {
    fn request<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        let allocator = self.of_own_queue.as_ref().ok_or_else(|| {
            PyValueError::new_err(
                "the pool was made for a context, so it does not know the queue of this request: call pool.on(queue), or make the \
                 pool for a queue",
            )
        })?;
        allocator.request(py, bytes)
    }

    fn vectorcall(&self) -> &Vectorcall {
        &self.vectorcall
    }
}
