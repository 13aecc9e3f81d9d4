//! Allocators that arrays call.

use binpool::{Memory, MemoryPool, PooledBuffer, Tag};
use binpool_allocators::MemoryKind;
use binpool_opencl::{ClQueue, OpenClBackend};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    argument::number,
    buffer_block,
    call_site::caller,
    svm_block,
    uses::Uses,
    vectorcall::{Requests, Vectorcall, speed_up},
};

/// An allocator of a pool for arrays of one queue, or of some queues: `allocator=` of `pyopencl.array`.
///
/// May be called from any thread.
#[pyclass(frozen, subclass, module = "binpool")]
pub(crate) struct QueueAllocator {
    pool: MemoryPool<OpenClBackend>,
    uses: Uses,
    vectorcall: Vectorcall,
}

impl QueueAllocator {
    pub(crate) const fn new(pool: MemoryPool<OpenClBackend>, uses: Uses) -> Self {
        Self {
            pool,
            uses,
            vectorcall: Vectorcall::of::<Self>(),
        }
    }
}

#[pymethods]
impl QueueAllocator {
    /// Returns a block of at least `bytes` bytes, which goes back to the pool when Python drops it: a `pyopencl.Buffer`, or a
    /// `pyopencl.SVM` of an `SVMPool`.
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        bytes: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        speed_up(slf)?;
        slf.get().allocate(bytes)
    }

    /// Returns a block of at least `bytes` bytes, as a call does.
    fn allocate<'py>(&self, bytes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.request(bytes.py(), number("bytes", bytes)?)
    }

    fn __repr__(&self) -> String {
        format!("<binpool.QueueAllocator for {} queue(s)>", self.uses.len())
    }
}

impl Requests for QueueAllocator {
    fn request<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        if bytes == 0 {
            return Err(PyValueError::new_err(
                "0 bytes: an OpenCL buffer has at least one byte",
            ));
        }
        let queue = self.uses.queue();
        if let Some(block) = self.uses.allocate_cached(&self.pool, bytes) {
            return Made::of(block, queue)?.object(py, queue);
        }
        // Noted where the pool is watched or recorded.
        let caller = self.pool.is_watching().then(|| caller(py));
        let made = py.detach(|| {
            let allocate = || self.uses.allocate(&self.pool, bytes);
            let block = match caller {
                Some(caller) => Tag::new(caller).within(allocate),
                None => allocate(),
            }?;
            Made::of(block, queue)
        })?;
        made.object(py, queue)
    }

    fn vectorcall(&self) -> &Vectorcall {
        &self.vectorcall
    }
}

/// A block that no object of Python has yet.
struct Made {
    block: PooledBuffer<OpenClBackend>,
    /// Its handle or its address.
    number: usize,
    is_svm: bool,
}

impl Made {
    fn of(block: PooledBuffer<OpenClBackend>, queue: &ClQueue) -> PyResult<Self> {
        let kind = block.memory_on(queue).map(Memory::kind);
        let is_svm = matches!(kind, Some(MemoryKind::Svm(_)));
        let number = if is_svm {
            svm_block::address(&block, queue)
        } else {
            buffer_block::handle(&block, queue)
        }?;
        Ok(Self {
            block,
            number,
            is_svm,
        })
    }

    /// Returns the object of PyOpenCL over it.
    fn object<'py>(self, py: Python<'py>, queue: &ClQueue) -> PyResult<Bound<'py, PyAny>> {
        if self.is_svm {
            svm_block::svm(py, self.block, self.number)
        } else {
            buffer_block::buffer(py, self.block, self.number, queue)
        }
    }
}
