//! Which queues hold free memory back.

use binpool_allocators::{Backend, Queue, QueueId};

use crate::{MemoryPool, order::queue_uses::QueueUses, shared::State};

/// Free memory that other queues must wait for, since commands of this queue may still use it.
///
/// ```
/// use binpool::{Backend, HeldBack, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
/// use binpool_mock::{Completion, MockDevice};
///
/// let device = MockDevice::builder().completion(Completion::Manual).build();
/// let [upload, compute] = [(); 2].map(|()| device.backend().create_queue(QueueOrder::InOrder).unwrap());
/// let pool = MemoryPool::new(ImmediateAllocator::new(&device.backend())?, &upload)?;
/// let block = pool.allocate_on(&compute, 64 << 20)?;
/// block.enqueue_fill(&compute, .., &[0_u8])?;
/// drop(block);
/// assert_eq!(pool.held_back(), [HeldBack { queue: compute.id(), bytes: 64 << 20 }]);
/// pool.sweep(); // Enqueues a marker after the fill, as a request does that finds nothing else.
/// device.run();
/// pool.sweep(); // Sees that it has ended.
/// assert_eq!(pool.held_back(), []);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The queue.
    pub queue: QueueId,
    /// The free bytes that it used last and whose commands, as far as the pool knows, have not ended. Memory that several queues used counts
    /// for each of them.
    pub bytes: u64,
}

/// # Memory that waits for commands
impl<B: Backend> MemoryPool<B> {
    /// Returns which queues hold free memory back, the most bytes first. If this is much, the device is far behind the host, or queues
    /// no longer in use were not [retired](Self::retire_queue). Takes the pool's lock.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// # let device = MockDevice::builder().completion(Completion::Manual).build();
    /// # let [upload, compute] = [(); 2].map(|()| device.backend().create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&device.backend())?, &upload)?;
    /// let blocks = [(&upload, 16), (&compute, 32)].map(|(queue, mebibytes)| {
    ///     let block = pool.allocate_on(queue, mebibytes << 20).unwrap();
    ///     block.enqueue_fill(queue, .., &[0_u8]).unwrap();
    ///     block
    /// });
    /// drop(blocks);
    /// for held in pool.held_back() {
    ///     println!("{} bytes wait for queue {}", held.bytes, held.queue);
    /// }
    /// # let bytes: Vec<u64> = pool.held_back().iter().map(|held| held.bytes >> 20).collect();
    /// # assert_eq!(bytes, [32, 16]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn held_back(&self) -> Vec<HeldBack> {
        self.handle().inspect(State::held_back_by_queue)
    }
}

impl<B: Backend> State<B> {
    fn held_back_by_queue(&self) -> Vec<HeldBack> {
        let mut found: Vec<HeldBack> = Vec::new();
        let mut add = |uses: &QueueUses, bytes: u64| {
            let pending = uses.iter().filter(|use_| !self.queues.is_over(**use_));
            for state in pending.filter_map(|use_| self.queues.state_of(*use_)) {
                let queue = state.queue.id();
                match found.iter_mut().find(|it| it.queue == queue) {
                    Some(it) => it.bytes += bytes,
                    None => found.push(HeldBack { queue, bytes }),
                }
            }
        };
        self.each_free(|uses, bytes| add(uses, bytes as u64));
        self.dropped.iter().for_each(|it| add(&it.uses, it.bytes()));
        found.retain(|it| it.bytes > 0);
        found.sort_by_key(|it| std::cmp::Reverse(it.bytes));
        found
    }
}
