//! Blocks of pools, whatever their memory.

use std::sync::atomic::{AtomicBool, Ordering};

use binpool::{Allocator, Error, MemoryPool, PooledBuffer, Tag};
use binpool_opencl::{ClQueue, OpenClBackend};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{error::other_error, uses::Uses};

/// A pool whose blocks PyOpenCL can use.
pub(crate) trait GivesBlocks: Send + Sync {
    fn backend(&self) -> &OpenClBackend;

    /// Allocates a block of `bytes` bytes, which are not 0, with the line of the program as its tag. It is an object of PyOpenCL, which goes back
    /// when Python drops it.
    fn give<'py>(
        &self,
        py: Python<'py>,
        uses: &Uses,
        line: Option<String>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// An allocator of memory that PyOpenCL has a class for.
pub(crate) trait ForPyOpenCl: Allocator<Backend = OpenClBackend> + Sized {
    /// Returns the handle or the address of a block, which is used on this queue, as a number.
    fn number(block: &PooledBuffer<Self>, queue: &ClQueue) -> PyResult<usize>;

    /// Returns an object of PyOpenCL over a block with this number, which is used on this queue. The block goes back when Python drops
    /// the object.
    fn object<'py>(
        py: Python<'py>,
        block: PooledBuffer<Self>,
        number: usize,
        queue: &ClQueue,
    ) -> PyResult<Bound<'py, PyAny>>;
}

impl<A: ForPyOpenCl> GivesBlocks for MemoryPool<A> {
    fn backend(&self) -> &OpenClBackend {
        Self::backend(self)
    }

    fn give<'py>(
        &self,
        py: Python<'py>,
        uses: &Uses,
        line: Option<String>,
        bytes: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (block, number) = py.detach(|| {
            let allocate = || uses.allocate(self, bytes);
            let block = match line {
                Some(line) => Tag::new(line).within(allocate),
                None => allocate(),
            }?;
            let number = A::number(&block, uses.queue())?;
            Ok::<_, PyErr>((block, number))
        })?;
        A::object(py, block, number, uses.queue())
    }
}

/// A block that goes back to its pool once: when the program releases it, or when Python drops it.
pub(crate) struct Held<A: Allocator> {
    /// Locked only while other threads of Python may run: a call that waits for commands holds it.
    block: Mutex<Option<PooledBuffer<A>>>,
    /// Set by the call that takes the block out.
    released: AtomicBool,
}

impl<A: Allocator<Backend = OpenClBackend>> Held<A> {
    pub(crate) fn new(block: PooledBuffer<A>) -> Self {
        Self {
            block: Mutex::new(Some(block)),
            released: AtomicBool::new(false),
        }
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
        py.detach(|| match &mut *self.block.lock() {
            Some(block) => work(block).map_err(other_error),
            None => Err(released()),
        })
    }

    /// Takes the block out for `work`, which gives it back to its pool. An error if the program has released it before, or if `check`, which
    /// is called once no other call can take it, objects.
    pub(crate) fn take<R>(
        &self,
        py: Python<'_>,
        check: impl FnOnce() -> PyResult<()>,
        work: impl FnOnce(PooledBuffer<A>) -> Result<R, Error> + Send,
    ) -> PyResult<R>
    where
        R: Send,
    {
        if self.released.swap(true, Ordering::SeqCst) {
            return Err(released());
        }
        check().inspect_err(|_| self.released.store(false, Ordering::SeqCst))?;
        py.detach(|| {
            let block = self.block.lock().take().ok_or_else(released)?;
            work(block).map_err(other_error)
        })
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }
}

pub(crate) fn released() -> PyErr {
    PyValueError::new_err("the block was released before")
}
