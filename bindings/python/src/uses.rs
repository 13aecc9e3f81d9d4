//! The queues on which arrays are used.

use std::sync::Arc;

use binpool::{Backend, MemoryPool, PooledBuffer, QueueOrder};
use binpool_opencl::{ClQueue, OpenClBackend};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyTuple};

use crate::{error::raised, opencl::queue_of};

/// Where blocks are used.
pub(crate) enum Uses {
    /// On this queue, after its former commands.
    Of(ClQueue),
    /// On any of these queues, in no order. Blocks are handed out for the first queue, which is the pool's own and has no
    /// commands.
    Any(ClQueue, Arc<[ClQueue]>),
}

impl Uses {
    /// Returns the uses on one queue of Python's.
    pub(crate) fn of(backend: &OpenClBackend, queue: &Bound<'_, PyAny>) -> PyResult<Self> {
        queue_of(backend, queue).map(Self::Of)
    }

    /// Returns the uses on any of some queues of Python's.
    pub(crate) fn any(backend: &OpenClBackend, queues: &Bound<'_, PyTuple>) -> PyResult<Self> {
        if queues.is_empty() {
            return Err(PyValueError::new_err(
                "name the queues on which commands use the arrays",
            ));
        }
        let py = queues.py();
        let queues: PyResult<Arc<[_]>> = queues
            .iter()
            .map(|queue| queue_of(backend, &queue))
            .collect();
        let own = py.detach(|| own_queue(backend))?;
        Ok(Self::Any(own, queues?))
    }

    /// Returns a block for these uses without waiting for anything, so that Python's lock may be kept; `None` if there is
    /// none.
    ///
    /// What waits for that lock cannot stand in the way: the cache of a thread has no lock that another thread holds for longer than
    /// the pool's own work, and no thread asks for Python's lock during that.
    pub(crate) fn allocate_cached(
        &self,
        pool: &MemoryPool<OpenClBackend>,
        bytes: usize,
    ) -> Option<PooledBuffer<OpenClBackend>> {
        match self {
            Self::Of(queue) => pool.allocate_cached(queue, bytes),
            Self::Any(..) => None,
        }
    }

    /// Allocates a block for these uses.
    pub(crate) fn allocate(
        &self,
        pool: &MemoryPool<OpenClBackend>,
        bytes: usize,
    ) -> PyResult<PooledBuffer<OpenClBackend>> {
        match self {
            Self::Of(queue) => pool.allocate_on(queue, bytes).map_err(raised),
            Self::Any(own, queues) => {
                let mut block = pool.allocate_on(own, bytes).map_err(raised)?;
                // Where the pool has put a wait for former commands on its own queue, that is waited for: the other queues know
                // nothing of it.
                block.unbind_from_queue().map_err(raised)?;
                for queue in &**queues {
                    block.record_use(queue).map_err(raised)?;
                }
                Ok(block)
            }
        }
    }

    /// A queue of these.
    pub(crate) fn queue(&self) -> &ClQueue {
        match self {
            Self::Of(queue) => queue,
            Self::Any(own, queues) => queues.first().unwrap_or(own),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Of(_) => 1,
            Self::Any(_, queues) => queues.len(),
        }
    }
}

/// Makes a queue of the pool's own.
pub(crate) fn own_queue(backend: &OpenClBackend) -> PyResult<ClQueue> {
    backend.create_queue(QueueOrder::InOrder).map_err(raised)
}
