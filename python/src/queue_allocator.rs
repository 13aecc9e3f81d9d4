//! Allocators that arrays call.

use std::sync::Arc;

use binpool::{Allocator, MemoryPool, PooledBuffer, SvmBackend, Tag};
use binpool_opencl::ClQueue;
use pyo3::{exceptions::PyValueError, intern, prelude::*, sync::PyOnceLock};

use crate::{
    block::{Block, Buffers, Svm, SvmBlock},
    error::{other_error, pool_error},
    pool::Shared,
};

/// `pyopencl.MemoryObject.from_int_ptr`: PyOpenCL's kernels take no other class's buffers.
static FROM_HANDLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `pyopencl.SVM`.
static SVM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Where blocks are used.
pub(crate) enum Uses {
    /// On this queue, behind its former commands.
    Of(ClQueue),
    /// On any of these queues, in no order. Blocks are handed out for the first queue, which is the pool's own and has no
    /// commands.
    Any(ClQueue, Arc<[ClQueue]>),
}

impl Uses {
    /// Allocates a block for these uses.
    fn allocate<A>(&self, pool: &MemoryPool<A>, bytes: usize) -> PyResult<PooledBuffer<A>>
    where
        A: Allocator<Backend = binpool_opencl::OpenClBackend>,
    {
        match self {
            Self::Of(queue) => pool.allocate_on(queue, bytes).map_err(pool_error),
            Self::Any(own, queues) => {
                let mut block = pool.allocate_on(own, bytes).map_err(pool_error)?;
                // Where the pool has put a wait for former commands on its own queue, that is waited for: the other queues know
                // nothing of it.
                block.unbind_from_queue().map_err(other_error)?;
                for queue in &**queues {
                    block.record_use(queue).map_err(other_error)?;
                }
                Ok(block)
            }
        }
    }

    /// A queue of these.
    fn queue(&self) -> &ClQueue {
        match self {
            Self::Of(queue) => queue,
            Self::Any(own, queues) => queues.first().unwrap_or(own),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Of(_) => 1,
            Self::Any(_, queues) => queues.len(),
        }
    }
}

/// Allocates with the tag that the request has.
fn within<R>(tag: Option<Tag>, allocate: impl FnOnce() -> R) -> R {
    match tag {
        Some(tag) => tag.within(allocate),
        None => allocate(),
    }
}

fn check_bytes(bytes: usize) -> PyResult<()> {
    if bytes == 0 {
        return Err(PyValueError::new_err(
            "0 bytes: OpenCL has no buffer without bytes",
        ));
    }
    Ok(())
}

/// An allocator of a `MemoryPool` for arrays of one queue, or of some queues: `allocator=` of `pyopencl.array`.
///
/// May be called from any thread.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct QueueAllocator {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: MemoryPool<Buffers>,
    pub(crate) uses: Uses,
}

#[pymethods]
impl QueueAllocator {
    /// Returns a `pyopencl.Buffer` of at least `bytes` bytes, which goes back to the pool when Python drops it.
    pub(crate) fn __call__<'py>(
        &self,
        py: Python<'py>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        check_bytes(bytes)?;
        let tag = self.shared.tag(py)?;
        let (block, handle) = py.detach(|| {
            let block = within(tag, || self.uses.allocate(&self.pool, bytes))?;
            let memory = block.memory_on(self.uses.queue());
            let memory = memory.ok_or_else(|| PyValueError::new_err("the block has no memory"))?;
            let handle = memory.raw_view().map_err(other_error)?.expose_provenance();
            Ok::<_, PyErr>((block, handle))
        })?;
        let from_handle = FROM_HANDLE.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr("MemoryObject")?;
            class.getattr("from_int_ptr").map(Bound::unbind)
        })?;
        let buffer = from_handle.bind(py).call1((handle, true))?;
        buffer.setattr(intern!(py, "_binpool_block"), Block(block))?;
        Ok(buffer)
    }

    /// Returns a `pyopencl.Buffer` of at least `bytes` bytes, as a call does.
    fn allocate<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.__call__(py, bytes)
    }

    fn __repr__(&self) -> String {
        format!("<binpool.QueueAllocator for {} queue(s)>", self.uses.len())
    }
}

/// An allocator of an `SVMPool` for arrays of one queue, or of some queues: `allocator=` of `pyopencl.array`.
///
/// May be called from any thread.
#[pyclass(frozen, module = "binpool", name = "SVMQueueAllocator")]
pub(crate) struct SvmQueueAllocator {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: MemoryPool<Svm>,
    pub(crate) uses: Uses,
}

#[pymethods]
impl SvmQueueAllocator {
    /// Returns a `pyopencl.SVM` over `bytes` bytes, which go back to the pool when Python drops it.
    pub(crate) fn __call__<'py>(
        &self,
        py: Python<'py>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        check_bytes(bytes)?;
        let tag = self.shared.tag(py)?;
        let block = py.detach(|| {
            let block = within(tag, || self.uses.allocate(&self.pool, bytes))?;
            let memory = block.memory_on(self.uses.queue());
            let address = memory.and_then(|memory| block.backend().svm_address(memory));
            let address =
                address.ok_or_else(|| PyValueError::new_err("the block has no address"))?;
            let address = address.as_ptr().expose_provenance();
            Ok::<_, PyErr>(SvmBlock { block, address })
        })?;
        let class = SVM.get_or_try_init(py, || {
            let class = py.import("pyopencl")?.getattr("SVM");
            class.map(Bound::unbind)
        })?;
        class.bind(py).call1((block,))
    }

    /// Returns a `pyopencl.SVM` over `bytes` bytes, as a call does.
    fn allocate<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.__call__(py, bytes)
    }

    fn __repr__(&self) -> String {
        format!(
            "<binpool.SVMQueueAllocator for {} queue(s)>",
            self.uses.len()
        )
    }
}

/// Returns the block below a `pyopencl.Buffer` or `pyopencl.SVM`, or below the data of an array, and notes that `queue` uses it.
pub(crate) fn used_on(data: &Bound<'_, PyAny>, queue: &ClQueue) -> PyResult<()> {
    let py = data.py();
    let base = data.getattr_opt(intern!(py, "base_data"))?;
    let data = base.as_ref().unwrap_or(data);
    if let Some(block) = data.getattr_opt(intern!(py, "_binpool_block"))? {
        return block.cast::<Block>()?.get().used_on(queue);
    }
    if let Some(memory) = data.getattr_opt(intern!(py, "mem"))?
        && let Ok(block) = memory.cast::<SvmBlock>()
    {
        return block.get().used_on(queue);
    }
    Err(PyValueError::new_err(
        "no block of a binpool pool: pass an array, or what an allocator of the pool has returned",
    ))
}
