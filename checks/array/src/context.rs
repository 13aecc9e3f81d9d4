//! What the arrays of a program share.

use std::sync::Arc;

use binpool::{Backend, MemoryPool};

/// What the arrays of a program share: a pool, a queue that they are computed on, and kernels.
///
/// Clones are handles to the same context. A program with several queues has a context for each, over one pool: see
/// [`Array`](crate::Array) for what happens between them.
#[derive(Debug)]
pub struct Context<B: Backend, K> {
    inner: Arc<Inner<B, K>>,
}

#[derive(Debug)]
struct Inner<B: Backend, K> {
    pool: MemoryPool<B>,
    queue: B::Queue,
    kernels: K,
}

impl<B: Backend, K> Clone for Context<B, K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<B: Backend, K> Context<B, K> {
    /// A context that computes on `queue`, with memory from `pool`.
    pub fn new(pool: MemoryPool<B>, queue: B::Queue, kernels: K) -> Self {
        Self {
            inner: Arc::new(Inner {
                pool,
                queue,
                kernels,
            }),
        }
    }

    /// The queue that arrays of this context are computed on.
    pub fn queue(&self) -> &B::Queue {
        &self.inner.queue
    }

    /// The pool that arrays get their memory from.
    pub fn pool(&self) -> &MemoryPool<B> {
        &self.inner.pool
    }

    pub(crate) fn kernels(&self) -> &K {
        &self.inner.kernels
    }
}
