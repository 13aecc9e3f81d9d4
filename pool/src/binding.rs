//! Moving a block from queue to queue.

use binpool_allocators::{Backend, Error, InvalidRequest, Queue, QueueOrder, contained::guarded};
use smallvec::SmallVec;

use crate::{PooledBuffer, block::Lease, order::fence::wait_for_event};

/// Moving from queue to queue: `PyOpenCL`'s `bind_to_queue`, `unbind_from_queue` and `enqueue_release` of shared
/// virtual memory, for every pooled block.
///
/// The device waits, not the host, except on a device that [loses](binpool_allocators::FailureOrder::Lost) the order of
/// commands after a failure: there the host waits.
impl<B: Backend> PooledBuffer<B> {
    /// Makes `queue` wait for everything that was enqueued on the queues of this block so far, before it runs what is
    /// enqueued from now on. Records the use. The wait is on the device: a marker on each of the block's queues, and a
    /// barrier on `queue`.
    ///
    /// Enqueues nothing if `queue` is in order and the block's only queue.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Seeded(7)).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// block.enqueue_write(&upload, 0, vec![7; 4096].into())?;
    /// block.order_before(&compute)?;
    /// let mut bytes = [0_u8; 4096];
    /// block.read(&compute, 0, &mut bytes)?;
    /// assert_eq!(bytes, [7; 4096]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another backend, and the failures of the
    /// backend.
    pub fn order_before(&self, queue: &B::Queue) -> Result<(), Error> {
        // Array crates ask this before each operand, so the common case takes no lock.
        let is_only =
            self.queue_id() == Some(queue.id()) && self.lease().is_none_or(Lease::is_alone);
        if is_only && self.shared().is_ordered(queue) {
            return Ok(());
        }
        self.backend().check_use(queue)?;
        let events = self.mark_others(queue)?;
        if !events.is_empty() {
            self.backend().enqueue_barrier(queue.after(&events))?;
        }
        self.record_use(queue)
    }

    /// Moves the block to `queue`, as if it had been allocated for it: what is enqueued there from now on comes after
    /// everything that was enqueued on the block's queues so far. The block goes back to the free list of that queue,
    /// unless it is used on another queue again.
    ///
    /// # Errors
    ///
    /// [`OutOfOrderQueue`](InvalidRequest::OutOfOrderQueue) for a queue that is not in order.
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another backend, and the failures of the
    /// backend. After an error the block still belongs to its former queue.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Seeded(7)).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let mut block = pool.allocate_on(&upload, 4096)?;
    /// block.enqueue_write(&upload, 0, vec![7; 4096].into())?;
    /// block.bind_to_queue(&compute)?;
    /// assert_eq!(block.queue_id(), Some(compute.id()));
    ///
    /// // It goes back to the free list of `compute`, which gets it again without a wait.
    /// let memory = block.memory_id();
    /// drop(block);
    /// assert_eq!(pool.allocate_on(&compute, 4096)?.memory_id(), memory);
    ///
    /// let unordered = backend.create_queue(QueueOrder::OutOfOrder)?;
    /// assert!(pool.allocate(4096)?.bind_to_queue(&unordered).is_err());
    /// # assert!(device.violations().is_empty());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn bind_to_queue(&mut self, queue: &B::Queue) -> Result<(), Error> {
        self.backend().check_queue(queue)?;
        if queue.order() == QueueOrder::OutOfOrder {
            return Err(InvalidRequest::OutOfOrderQueue.into());
        }
        self.order_before(queue)?;
        self.move_to(queue);
        Ok(())
    }

    /// Makes `queue` the block's only queue. All other uses must come before what is enqueued there.
    fn move_to(&mut self, queue: &B::Queue) {
        let may_cache = self.shared().may_cache(queue);
        let queue_key = self
            .block()
            .map(|_| self.shared().state.lock().enter(queue));
        let Some(lease) = self.lease_mut() else {
            return;
        };
        let lease = std::mem::replace(lease, Lease::on(queue.id(), queue_key, may_cache));
        self.shared().state.lock().leave(lease.key);
    }

    /// Waits on the host for the block's queues, and takes it off its queue: it becomes free for all queues when it is
    /// dropped, unless it is used again.
    ///
    /// # Errors
    ///
    /// The failures of the backend. After an error the block still belongs to its former queue.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// use binpool::ReusePolicy;
    ///
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// // Under this policy a queue gets blocks that it used itself, and those of no queue.
    /// let pool = PoolOptions::new()
    ///     .segments(false)
    ///     .reuse(ReusePolicy::SameQueue)
    ///     .build(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let mut block = pool.allocate_on(&upload, 4096)?;
    /// block.enqueue_fill(&upload, 0..4096, &[7_u8])?;
    /// block.unbind_from_queue()?; // Waits for the fill.
    /// assert_eq!(block.queue_id(), None);
    /// drop(block);
    /// let block = pool.allocate_on(&compute, 4096)?;
    /// assert_eq!(pool.statistics().hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn unbind_from_queue(&mut self) -> Result<(), Error> {
        for queue in self.queues() {
            self.shared().finish(&queue)?;
        }
        let lease = self.lease_mut().map(std::mem::take);
        let queue_key = lease.and_then(|lease| lease.key);
        self.shared().state.lock().leave(queue_key);
        Ok(())
    }

    /// Frees the block by a command on `queue` (on the block's own queue if that is `None`), which comes after
    /// `wait_for` and after everything that was enqueued on the block's queues. Returns the command's event: once it
    /// has ended, nothing uses the block any more.
    ///
    /// # Errors
    ///
    /// [`NoQueue`](InvalidRequest::NoQueue) if `queue` is `None` and the block has no queue;
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another backend; the failures of the backend.
    /// The block is given up in any case. If waiting for an event of `wait_for` fails, the block is
    /// released to its allocator instead of being reused.
    ///
    /// ```
    /// # use binpool::{Queue, Backend, Event, EventStatus, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// let upload_done = block.enqueue_write(&upload, 0, vec![7; 4096].into())?;
    /// // A kernel that finds the block by its address. The pool knows nothing of it, but there is its event.
    /// let kernel = backend.enqueue_marker(compute.after(&[upload_done]))?;
    /// let released = block.enqueue_release(None, &[kernel])?;
    /// assert_eq!(pool.active_blocks(), 0); // The next user comes after all of that.
    /// assert_eq!(released.status()?, EventStatus::Pending);
    /// released.wait()?;
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_release(
        mut self,
        queue: Option<&B::Queue>,
        wait_for: &[B::Event],
    ) -> Result<B::Event, Error> {
        match guarded("a marker", || self.enqueue_end(queue, wait_for)) {
            Ok(event) if self.shared().scrubber.is_on_free() && !self.has_views() => {
                self.release_scrubbed(event)
            }
            Ok(event) => {
                self.release()?;
                Ok(event)
            }
            Err(error) => {
                self.free_unscrubbed(wait_for)?;
                Err(error)
            }
        }
    }

    /// Enqueues a marker after every use of the block and `wait_for`, and makes it the block's only use.
    fn enqueue_end(
        &mut self,
        queue: Option<&B::Queue>,
        wait_for: &[B::Event],
    ) -> Result<B::Event, Error> {
        let own = self.own_queue();
        let queue = queue
            .or(own.as_ref())
            .ok_or(InvalidRequest::NoQueue)?
            .clone();
        let queue = &queue;
        self.backend().check_queue(queue)?;
        let mut events = self.mark_others(queue)?;
        if !self.shared().failures.keeps_places() {
            // If one of them fails, the marker fails too, and proves nothing about the rest.
            wait_for.iter().try_for_each(wait_for_event)?;
        }
        events.extend(wait_for.iter().cloned());
        let end = self.backend().enqueue_marker(queue.after(&events))?;
        self.move_to(queue);
        Ok(end)
    }

    /// Returns events after everything that was enqueued so far on the block's queues, except for what the order of
    /// `queue` already puts before its next commands. On a device where a marker says nothing, waits on the host
    /// instead.
    fn mark_others(&self, queue: &B::Queue) -> Result<SmallVec<[B::Event; 4]>, Error> {
        let is_ordered = self.shared().is_ordered(queue);
        let queues = self.queues().into_iter();
        let mut queues = queues.filter(|used| used != queue || !is_ordered);
        if !self.shared().failures.keeps_places() {
            queues.try_for_each(|queue| queue.finish())?;
            return Ok(SmallVec::new());
        }
        let marked = queues.map(|queue| {
            let event = self.backend().enqueue_marker(&queue)?;
            // Another queue will wait for it: without a flush this one need not run it.
            queue.flush()?;
            Ok(event)
        });
        marked.collect()
    }

    /// Returns the queues that the block was used on, its own first.
    fn queues(&self) -> Vec<B::Queue> {
        let mut queues: Vec<_> = self.own_queue().into_iter().collect();
        if let Some(lease) = self.lease() {
            queues.extend(lease.others());
        }
        queues
    }

    pub(crate) fn own_queue(&self) -> Option<B::Queue> {
        let queue_key = self.lease()?.key?;
        let state = self.shared().state.lock();
        Some(state.queues.get(queue_key)?.queue.clone())
    }
}
