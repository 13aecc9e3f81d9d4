//! A block that the program has.

use std::sync::atomic::{AtomicBool, Ordering};

use binpool::{Error, PooledBuffer};
use binpool_opencl::OpenClBackend;
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::error::raised;

/// A block that goes back to its pool once: when the program releases it, or when Python drops it.
pub(crate) struct Held {
    /// Locked only while other threads of Python may run: a call that waits for commands holds it.
    block: Mutex<Option<PooledBuffer<OpenClBackend>>>,
    /// Set by the call that takes the block out.
    released: AtomicBool,
}

impl Held {
    pub(crate) fn new(block: PooledBuffer<OpenClBackend>) -> Self {
        Self {
            block: Mutex::new(Some(block)),
            released: AtomicBool::new(false),
        }
    }

    /// Calls `work` with the block, which the program has not released.
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut PooledBuffer<OpenClBackend>) -> Result<R, Error> + Send,
    ) -> PyResult<R>
    where
        R: Send,
    {
        py.detach(|| match &mut *self.block.lock() {
            Some(block) => work(block).map_err(raised),
            None => Err(released()),
        })
    }

    /// Takes the block out for `work`, which gives it back to its pool. An error if the program has released it before, or if `check`, which
    /// is called once no other call can take it, objects.
    pub(crate) fn take<R>(
        &self,
        py: Python<'_>,
        check: impl FnOnce() -> PyResult<()>,
        work: impl FnOnce(PooledBuffer<OpenClBackend>) -> Result<R, Error> + Send,
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
            work(block).map_err(raised)
        })
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::SeqCst)
    }
}

pub(crate) fn released() -> PyErr {
    PyValueError::new_err("the block was already released")
}
