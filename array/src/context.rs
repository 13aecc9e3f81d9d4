//! What the arrays of a program share.

use std::sync::Arc;

use binpool::{Backend, MemoryPool};

use crate::{Array, ArrayError, Kernels};

/// What the arrays of a program share: a pool, a queue that they are computed on, and kernels.
///
/// Clones are handles to the same context. A program with several queues has a context for each, over one pool: see
/// [`Array`] for what happens between them.
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

impl<B: Backend, K: Kernels<B>> Context<B, K> {
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

    /// An array with these elements.
    ///
    /// # Errors
    ///
    /// Where the pool has no memory, or the write fails.
    pub fn array(&self, elements: &[f32]) -> Result<Array<B, K>, ArrayError> {
        let array = self.uninitialized(elements.len())?;
        array.buffer().write(self.queue(), 0, elements)?;
        Ok(array)
    }

    /// An array of undefined elements, to be written by a kernel.
    pub(crate) fn uninitialized(&self, length: usize) -> Result<Array<B, K>, ArrayError> {
        // A length that overflows asks for more than any device has, and is refused by the pool.
        let bytes = length.saturating_mul(size_of::<f32>());
        let buffer = self.inner.pool.allocate_on(self.queue(), bytes)?;
        Ok(Array::new(self.clone(), buffer, length))
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
