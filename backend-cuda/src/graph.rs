//! What a captured graph keeps alive until it is destroyed.

use binpool_allocators::{Error, Result};

use crate::backend::{CudaBackend, CudaQueue};

/// # Graphs
impl CudaBackend {
    /// Returns the number of the capture that the stream of a queue is part of; `None` if its commands run, or the capture has been
    /// invalidated. All streams of a capture have the same number, and no other capture of the process has it.
    ///
    /// ```no_run
    /// use binpool_allocators::{Backend, QueueOrder};
    /// use binpool_cuda::CudaBackend;
    ///
    /// let backend = CudaBackend::open(0)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// assert_eq!(backend.capture_number(&queue)?, None);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for a queue of another device; a failure of the driver.
    pub fn capture_number(&self, queue: &CudaQueue) -> Result<Option<u64>> {
        self.check_own_queue(queue)?;
        Ok(queue.stream().stream().capture_number()?)
    }

    /// Gives a value to the graph that the stream of a queue is captured into, such as a block that its commands use. It is kept until
    /// the graph, its copies and its executables are destroyed and their launches have ended.
    ///
    /// The driver reports that on a thread that must not call CUDA, so the value is dropped by the next
    /// [`drop_what_graphs_kept`](Self::drop_what_graphs_kept), of any backend of the library.
    ///
    /// ```no_run
    /// use binpool::{MemoryPool, VirtualMemoryAllocator};
    /// use binpool_allocators::{Backend, QueueOrder};
    /// use binpool_cuda::CudaBackend;
    ///
    /// # fn begin_capture() {}
    /// # fn end_capture() {}
    /// # fn destroy_the_graph() {}
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = CudaBackend::open(0)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// begin_capture();
    /// let temporary = pool.allocate(1 << 20)?;
    /// temporary.enqueue_fill(&queue, .., &[1])?;
    /// backend.keep_with_graph(&queue, temporary)?; // Each launch writes to it.
    /// end_capture();
    /// // ... launches ...
    /// destroy_the_graph();
    /// backend.drop_what_graphs_kept(); // The block goes back to the pool.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) if the stream is not captured, and the value is dropped;
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject) for a queue of another device; a failure of the driver.
    pub fn keep_with_graph(&self, queue: &CudaQueue, value: impl Send + 'static) -> Result<()> {
        self.check_own_queue(queue)?;
        if queue.stream().stream().keep(Box::new(value))? {
            return Ok(());
        }
        Err(Error::unsupported(
            "keeping a value with a graph while the stream of the queue is not captured: keep it between the beginning and the end of the \
             capture",
        ))
    }

    /// Drops the values that were [kept](Self::keep_with_graph) with graphs that are gone.
    #[inline]
    pub fn drop_what_graphs_kept(&self) {
        self.shared.context.drop_what_graphs_kept();
    }
}
