//! Allocators that arrays call.

use std::sync::Arc;

use binpool_capi::any_pool::AnyPool;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{block::GivesBlocks, pool::line_of_request, uses::Uses};

/// An allocator of a pool for arrays of one queue, or of some queues: `allocator=` of `pyopencl.array`.
///
/// May be called from any thread.
#[pyclass(frozen, module = "binpool")]
pub(crate) struct QueueAllocator {
    pub(crate) any: Arc<dyn AnyPool>,
    pub(crate) pool: Arc<dyn GivesBlocks>,
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
        let line = line_of_request(py, &*self.any);
        self.pool.give(py, &self.uses, line, bytes)
    }

    /// Returns a block of at least `bytes` bytes, as a call does.
    fn allocate<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        self.__call__(py, bytes)
    }

    fn __repr__(&self) -> String {
        format!("<binpool.QueueAllocator for {} queue(s)>", self.uses.len())
    }
}
