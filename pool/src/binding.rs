//! Moving a block from queue to queue.

use binpool_allocators::{Allocator, Backend, Error, EventOf, InvalidRequest, Queue, QueueOf};
use smallvec::SmallVec;

use crate::{
    PooledBuffer,
    state::{lane::is_in_order, tenure::Tenure},
};

/// Moving from queue to queue: `PyOpenCL`'s `bind_to_queue`, `unbind_from_queue` and `enqueue_release` of shared
/// virtual memory, for every pooled block.
impl<A: Allocator> PooledBuffer<A> {
    /// Puts what is enqueued on `queue` from now on after everything that was enqueued on the queues of this block so
    /// far, and records the use. The wait is the device's: a marker on each of the block's queues, and a barrier on
    /// `queue`.
    ///
    /// Nothing is enqueued where `queue` is in order and the block's only one.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Seeded(7)).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// block.enqueue_write(&upload, 0, vec![7; 4096].into(), &[])?;
    /// block.order_before(&compute)?;
    /// let mut bytes = [0; 4096];
    /// block.read(&compute, 0, &mut bytes, &[])?;
    /// assert_eq!(bytes, [7; 4096]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject), and the failures of the backend.
    pub fn order_before(&self, queue: &QueueOf<A>) -> Result<(), Error> {
        // What array crates ask before each operand: answered without the pool's lock.
        let is_only =
            self.queue_id() == Some(queue.id()) && self.tenure().is_none_or(Tenure::is_alone);
        if is_only && is_in_order(queue) {
            return Ok(());
        }
        self.backend().check_queue(queue)?;
        let events = self.mark_queues(|used| used != queue || !is_in_order(queue))?;
        if !events.is_empty() {
            self.backend().enqueue_barrier(queue, &events)?;
        }
        self.record_use(queue)
    }

    /// Makes the block one for `queue`, as if it had been allocated for it: what is enqueued there from now on comes
    /// after everything that was enqueued on the block's queues so far, and the block goes back to that queue's stock
    /// unless it is used elsewhere again.
    ///
    /// # Errors
    ///
    /// [`OutOfOrderQueue`](InvalidRequest::OutOfOrderQueue): its order is none that a block could go back by.
    /// [`ForeignObject`](InvalidRequest::ForeignObject), and the failures of the backend, after which the block is
    /// where it was.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Seeded(7)).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let mut block = pool.allocate_on(&upload, 4096)?;
    /// block.enqueue_write(&upload, 0, vec![7; 4096].into(), &[])?;
    /// block.bind_to_queue(&compute)?;
    /// assert_eq!(block.queue_id(), Some(compute.id()));
    ///
    /// // It goes back to the stock of `compute`, which has it again without a wait.
    /// let memory = block.memory_id();
    /// drop(block);
    /// assert_eq!(pool.allocate_on(&compute, 4096)?.memory_id(), memory);
    ///
    /// let unordered = backend.create_queue(QueueOrder::OutOfOrder)?;
    /// assert!(pool.allocate(4096)?.bind_to_queue(&unordered).is_err());
    /// # assert!(device.violations().is_empty());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn bind_to_queue(&mut self, queue: &QueueOf<A>) -> Result<(), Error> {
        self.backend().check_queue(queue)?;
        if !is_in_order(queue) {
            return Err(InvalidRequest::OutOfOrderQueue.into());
        }
        self.order_before(queue)?;
        self.move_to(queue);
        Ok(())
    }

    /// Makes this the block's queue, and its only one: everything else comes before what is enqueued there.
    fn move_to(&mut self, queue: &QueueOf<A>) {
        let may_stay = self.shared.may_keep(queue);
        let lane = self.block().map(|_| self.shared.state.lock().enter(queue));
        let Some(tenure) = self.tenure_mut() else {
            return;
        };
        let tenure = std::mem::replace(tenure, Tenure::on(queue.id(), lane, may_stay));
        self.shared.state.lock().leave(tenure.lane);
    }

    /// Waits for the block's queues, and makes it one for no queue: it goes back to the stock of all queues, unless
    /// it is used again.
    ///
    /// # Errors
    ///
    /// The failures of the backend, after which the block is where it was.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// use binpool::ReusePolicy;
    ///
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// // Under this policy a queue has blocks that it used itself, and those of no queue.
    /// let pool = PoolOptions::new()
    ///     .segments(false)
    ///     .reuse(ReusePolicy::SameQueue)
    ///     .build(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let mut block = pool.allocate_on(&upload, 4096)?;
    /// block.enqueue_fill(&upload, 0..4096, &[7], &[])?;
    /// block.unbind_from_queue()?; // Waits for the fill.
    /// assert_eq!(block.queue_id(), None);
    /// drop(block);
    /// let block = pool.allocate_on(&compute, 4096)?;
    /// assert_eq!(pool.statistics().hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn unbind_from_queue(&mut self) -> Result<(), Error> {
        for queue in self.queues() {
            queue.finish()?;
        }
        let tenure = self.tenure_mut().map(std::mem::take);
        let lane = tenure.and_then(|tenure| tenure.lane);
        self.shared.state.lock().leave(lane);
        Ok(())
    }

    /// Gives the block back by a command on `queue` (on the block's own queue where that is `None`) that comes after
    /// `wait_for` and after everything that was enqueued on the block's queues. The command's event: once it has
    /// ended, nothing uses the block any more.
    ///
    /// # Errors
    ///
    /// [`NoQueue`](InvalidRequest::NoQueue) where `queue` is `None` and the block is for none;
    /// [`ForeignObject`](InvalidRequest::ForeignObject); the failures of the backend. The block is gone all the
    /// same: to its allocator, and not to the next user, where something of `wait_for` could not be waited for.
    ///
    /// ```
    /// # use binpool::{Backend, Event, EventStatus, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let backend = device.backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate_on(&upload, 4096)?;
    /// let upload_done = block.enqueue_write(&upload, 0, vec![7; 4096].into(), &[])?;
    /// // A kernel that finds the block by its address. The pool knows nothing of it, but there is its event.
    /// let kernel = backend.enqueue_marker(&compute, &[upload_done])?;
    /// let released = block.enqueue_release(None, &[kernel])?;
    /// assert_eq!(pool.active_blocks(), 0); // The next user comes after all of that.
    /// assert_eq!(released.status()?, EventStatus::Pending);
    /// released.wait()?;
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn enqueue_release(
        mut self,
        queue: Option<&QueueOf<A>>,
        wait_for: &[EventOf<A>],
    ) -> Result<EventOf<A>, Error> {
        match self.enqueue_end(queue, wait_for) {
            Ok(event) if self.shared.scrubber.is_on_free() => self.release_scrubbed(event),
            Ok(event) => {
                self.release()?;
                Ok(event)
            }
            Err(error) => {
                self.give_back_unscrubbed(wait_for)?;
                Err(error)
            }
        }
    }

    /// Enqueues what comes after every use of the block and `wait_for`, and makes it the block's only use.
    fn enqueue_end(
        &mut self,
        queue: Option<&QueueOf<A>>,
        wait_for: &[EventOf<A>],
    ) -> Result<EventOf<A>, Error> {
        let own = self.own_queue();
        let queue = queue
            .or(own.as_ref())
            .ok_or(InvalidRequest::NoQueue)?
            .clone();
        let queue = &queue;
        self.backend().check_queue(queue)?;
        let mut events = self.mark_queues(|used| used != queue || !is_in_order(queue))?;
        events.extend(wait_for.iter().cloned());
        let end = self.backend().enqueue_marker(queue, &events)?;
        self.move_to(queue);
        Ok(end)
    }

    /// Events after everything that was enqueued so far on those of the block's queues that `wanted` picks.
    fn mark_queues(
        &self,
        wanted: impl Fn(&QueueOf<A>) -> bool,
    ) -> Result<SmallVec<[EventOf<A>; 4]>, Error> {
        let queues = self.queues().into_iter().filter(wanted);
        let marked = queues.map(|queue| {
            let event = self.backend().enqueue_marker(&queue, &[])?;
            // What waits for it is on another queue.
            queue.flush()?;
            Ok(event)
        });
        marked.collect()
    }

    /// The queues that the block was used on, its own first.
    fn queues(&self) -> Vec<QueueOf<A>> {
        let mut queues: Vec<_> = self.own_queue().into_iter().collect();
        if let Some(tenure) = self.tenure() {
            queues.extend(tenure.others());
        }
        queues
    }

    pub(crate) fn own_queue(&self) -> Option<QueueOf<A>> {
        let lane = self.tenure()?.lane?;
        let state = self.shared.state.lock();
        Some(state.lanes.get(lane)?.queue.clone())
    }
}
