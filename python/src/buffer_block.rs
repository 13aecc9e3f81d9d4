//! Blocks of buffers as PyOpenCL has them.

use binpool::PooledBuffer;
use binpool_capi::OpenClAllocator;
use binpool_opencl::ClQueue;
use pyo3::{exceptions::PyValueError, intern, prelude::*, sync::PyOnceLock};

use crate::{
    block::{ForPyOpenCl, Held},
    error::other_error,
};

/// `pyopencl.MemoryObject.from_int_ptr`: PyOpenCL's kernels take no other class's buffers.
static FROM_HANDLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A block of a pool of buffers: the attribute `release` of the `pyopencl.Buffer` over it, which drops it with itself.
#[pyclass(frozen, module = "binpool")]
struct Block(Held<OpenClAllocator>);

#[pymethods]
impl Block {
    /// Gives the block back to its pool, instead of `pyopencl.Buffer.release`, which would only let go of the buffer's handle. Commands that
    /// were enqueued before may still use it.
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.release(py)
    }
}

impl ForPyOpenCl for OpenClAllocator {
    fn number(block: &PooledBuffer<Self>, queue: &ClQueue) -> PyResult<usize> {
        let memory = block.memory_on(queue);
        let memory = memory.ok_or_else(|| PyValueError::new_err("the block has no memory"))?;
        let handle = memory.raw_view().map_err(other_error)?;
        Ok(handle.expose_provenance())
    }

    fn object(
        py: Python<'_>,
        block: PooledBuffer<Self>,
        handle: usize,
    ) -> PyResult<Bound<'_, PyAny>> {
        let from_handle = FROM_HANDLE.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr("MemoryObject")?;
            class.getattr("from_int_ptr").map(Bound::unbind)
        })?;
        let buffer = from_handle.bind(py).call1((handle, true))?;
        buffer.setattr(intern!(py, "release"), Block(Held::new(block)))?;
        Ok(buffer)
    }
}

/// Notes that `queue` uses the block below a `pyopencl.Buffer`; `None` where there is none.
pub(crate) fn record_use(buffer: &Bound<'_, PyAny>, queue: &ClQueue) -> PyResult<Option<()>> {
    let py = buffer.py();
    let release = buffer.getattr_opt(intern!(py, "release"))?;
    let block = release.as_ref().and_then(|it| it.cast::<Block>().ok());
    let noted = block.map(|block| block.get().0.with(py, |block| block.record_use(queue)));
    noted.transpose()
}
