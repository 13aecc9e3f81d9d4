//! Pools of shared virtual memory.

use binpool::{SvmAllocator, SvmGrain};
use pyo3::prelude::*;

use crate::{
    opencl::origin_of,
    opencl_pool::{OpenClPool, options},
};

/// A pool of shared virtual memory for PyOpenCL. It is used as a `MemoryPool` is; its blocks are `pyopencl.SVM`.
///
/// Parameters: `device` chooses one of several devices of a context; `limit` is the most bytes that the pool takes from the device;
/// `fine_grained=True` gives memory that the host may use without mapping it, where the device has that.
#[pyclass(frozen, subclass, extends = OpenClPool, module = "binpool", name = "SVMPool")]
pub(crate) struct SvmPool;

#[pymethods]
impl SvmPool {
    #[new]
    #[pyo3(signature = (context_or_queue, *, device = None, limit = None, fine_grained = false, reuse = "opportunistic"))]
    fn new(
        context_or_queue: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        limit: Option<&Bound<'_, PyAny>>,
        fine_grained: bool,
        reuse: &str,
    ) -> PyResult<PyClassInitializer<Self>> {
        let py = context_or_queue.py();
        let options = options(limit, reuse)?;
        let origin = origin_of(context_or_queue, device)?;
        let grain = if fine_grained {
            SvmGrain::Fine
        } else {
            SvmGrain::Coarse
        };
        let pool = OpenClPool::initializer(py, origin, options, |backend| {
            SvmAllocator::new(backend, grain)
        })?;
        Ok(pool.add_subclass(Self))
    }
}
