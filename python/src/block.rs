//! Blocks of pools, whatever their memory.

use binpool::{Allocator, Error, MemoryPool, PooledBuffer, Tag};
use binpool_opencl::{ClQueue, OpenClBackend};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{error::other_error, uses::Uses};

/// A pool whose blocks PyOpenCL can use.
pub(crate) trait GivesBlocks: Send + Sync {
    fn backend(&self) -> &OpenClBackend;

    /// Allocates a block of `bytes` bytes, which are not 0, with the tag of the request. It is an object of PyOpenCL, which goes back
    /// when Python drops it.
    fn give<'py>(
        &self,
        py: Python<'py>,
        uses: &Uses,
        tag: Option<Tag>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// An allocator of memory that PyOpenCL has a class for.
pub(crate) trait ForPyOpenCl: Allocator<Backend = OpenClBackend> + Sized {
    /// Returns the handle or the address of a block, which is used on this queue, as a number.
    fn number(block: &PooledBuffer<Self>, queue: &ClQueue) -> PyResult<usize>;

    /// Returns an object of PyOpenCL over a block with this number, which goes back when Python drops it.
    fn object(
        py: Python<'_>,
        block: PooledBuffer<Self>,
        number: usize,
    ) -> PyResult<Bound<'_, PyAny>>;
}

impl<A: ForPyOpenCl> GivesBlocks for MemoryPool<A> {
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
        let (block, number) = py.detach(|| {
            let allocate = || uses.allocate(self, bytes);
            let block = match tag {
                Some(tag) => tag.within(allocate),
                None => allocate(),
            }?;
            let number = A::number(&block, uses.queue())?;
            Ok::<_, PyErr>((block, number))
        })?;
        A::object(py, block, number)
    }
}

/// A block that goes back to its pool once: when the program releases it, or when Python drops it.
pub(crate) struct Held<A: Allocator>(Mutex<Option<PooledBuffer<A>>>);

impl<A: Allocator<Backend = OpenClBackend>> Held<A> {
    pub(crate) fn new(block: PooledBuffer<A>) -> Self {
        Self(Mutex::new(Some(block)))
    }

    /// Calls `work` with the block, which the program has not released.
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut PooledBuffer<A>) -> Result<R, Error> + Send,
    ) -> PyResult<R>
    where
        R: Send,
    {
        py.detach(|| match &mut *self.0.lock() {
            Some(block) => work(block).map_err(other_error),
            None => Err(released()),
        })
    }

    /// Takes the block out, which the program has not released.
    pub(crate) fn take(&self) -> PyResult<PooledBuffer<A>> {
        self.0.lock().take().ok_or_else(released)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.0.lock().is_none()
    }

    pub(crate) fn release(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.take()?.release().map_err(other_error))
    }
}

fn released() -> PyErr {
    PyValueError::new_err("the block was released before")
}
