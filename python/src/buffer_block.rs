//! Blocks of buffers as PyOpenCL has them.

use binpool::{MemoryPool, Tag};
use binpool_capi::OpenClAllocator;
use binpool_opencl::{ClQueue, OpenClBackend};
use pyo3::{exceptions::PyValueError, intern, prelude::*, sync::PyOnceLock};

use crate::{
    block::{GivesBlocks, Held, within},
    error::other_error,
    uses::Uses,
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

impl GivesBlocks for MemoryPool<OpenClAllocator> {
    fn backend(&self) -> &OpenClBackend {
        Self::backend(self)
    }

    fn give<'py>(
        &self,
        py: Python<'py>,
        uses: &Uses,
        tag: Option<Tag>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (block, handle) = py.detach(|| {
            let block = within(tag, || uses.allocate(self, bytes))?;
            let memory = block.memory_on(uses.queue());
            let memory = memory.ok_or_else(|| PyValueError::new_err("the block has no memory"))?;
            let handle = memory.raw_view().map_err(other_error)?.expose_provenance();
            Ok::<_, PyErr>((block, handle))
        })?;
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
