//! `MemoryPool` of the Python package: a pool of PyOpenCL's buffers.

use binpool::ImmediateAllocator;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    opencl::origin_of,
    opencl_pool::{OpenClPool, options},
};

/// A pool of buffers for PyOpenCL. It is an allocator itself, for the queue that it was made for:
///
///     pool = binpool.MemoryPool(queue)
///     a = pyopencl.array.zeros(queue, 1000, numpy.float32, allocator=pool)
///
/// A block that is dropped goes to its next user only after the commands that were enqueued on its queue before, also where
/// the queue runs them out of order. `pool.on(other)` is the allocator for arrays of another queue of the context. Where commands on
/// another queue use an array, say so with `pool.used_on(array, other)` before it is dropped, or allocate it by
/// `pool.on_any(queue, other)`: then nothing has to be said, and a block goes to no next user before all of its commands have ended.
///
/// Parameters: `device` chooses one of several devices of a context; `limit` is the most bytes that the pool takes from the device;
/// `segments=False` makes each block a buffer of its own, which is the default on NVIDIA's OpenCL and takes more memory (the property
/// `segments` says which of them holds); `reuse` says what happens
/// where a free block was used on another queue: `'opportunistic'`, `'same_queue'`, `'insert_wait'` or `'wait_on_host'`.
#[pyclass(frozen, subclass, extends = OpenClPool, module = "binpool")]
pub(crate) struct MemoryPool {
    /// Set if blocks are parts of larger buffers, and not buffers of their own.
    #[pyo3(get)]
    segments: bool,
}

#[pymethods]
impl MemoryPool {
    #[new]
    #[pyo3(signature = (context_or_queue, *, device = None, limit = None, segments = None, reuse = "opportunistic"))]
    fn new(
        context_or_queue: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        limit: Option<&Bound<'_, PyAny>>,
        segments: Option<bool>,
        reuse: &str,
    ) -> PyResult<PyClassInitializer<Self>> {
        let py = context_or_queue.py();
        let options = options(limit, reuse)?;
        let origin = origin_of(context_or_queue, device)?;
        let may_carve = origin.backend.parts_have_handles();
        let segments = segments.unwrap_or(may_carve);
        if segments && !may_carve {
            return Err(PyValueError::new_err(
                "segments=True: NVIDIA's OpenCL crashes if PyOpenCL's commands use parts of buffers while other parts are made; leave it out",
            ));
        }
        let options = options.segments(segments);
        let pool = OpenClPool::initializer(py, origin, options, ImmediateAllocator::new)?;
        Ok(pool.add_subclass(Self { segments }))
    }
}
