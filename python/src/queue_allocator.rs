//! Allocators that arrays call.

use binpool::{Memory, MemoryKind, MemoryPool, Tag};
use binpool_opencl::OpenClBackend;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{buffer_block, call_site::line_of_caller, svm_block, uses::Uses};

/// An allocator of a pool for arrays of one queue, or of some queues: `allocator=` of `pyopencl.array`.
///
/// May be called from any thread.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct QueueAllocator {
    pub(crate) pool: MemoryPool<OpenClBackend>,
    pub(crate) uses: Uses,
}

#[pymethods]
impl QueueAllocator {
    /// Returns a block of at least `bytes` bytes, which goes back to the pool when Python drops it: a `pyopencl.Buffer`, or a
    /// `pyopencl.SVM` of an `SVMPool`.
    pub(crate) fn __call__<'py>(
        &self,
        py: Python<'py>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if bytes == 0 {
            return Err(PyValueError::new_err(
                "0 bytes: OpenCL has no buffer without bytes",
            ));
        }
        // The line of the program is noted where the pool is watched or recorded.
        let line = self.pool.is_watching().then(|| line_of_caller(py));
        let queue = self.uses.queue();
        let (block, number, is_svm) = py.detach(|| {
            let allocate = || self.uses.allocate(&self.pool, bytes);
            let block = match line {
                Some(line) => Tag::new(line).within(allocate),
                None => allocate(),
            }?;
            let kind = block.memory_on(queue).map(Memory::kind);
            let is_svm = matches!(kind, Some(MemoryKind::Svm(_)));
            let number = if is_svm {
                svm_block::address(&block, queue)
            } else {
                buffer_block::handle(&block, queue)
            };
            Ok::<_, PyErr>((block, number?, is_svm))
        })?;
        if is_svm {
            svm_block::svm(py, block, number)
        } else {
            buffer_block::buffer(py, block, number, queue)
        }
    }

    /// Returns a block of at least `bytes` bytes, as a call does.
    fn allocate<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.__call__(py, bytes)
    }

    fn __repr__(&self) -> String {
        format!("<binpool.QueueAllocator for {} queue(s)>", self.uses.len())
    }
}
