//! The pool, as its users hold it.

use std::{io, sync::Arc, time::Duration};

use binpool_allocators::{Allocator, Backend, Queue, QueueId, QueueOf};

use crate::{
    HookId, PoolError, PoolOptions, PoolStatistics, PooledBuffer, ReusePolicy, ScrubPolicy,
    Shortage, Sweeper, WeakPool, shared::Shared,
};

/// A pool of device memory: keeps freed blocks in bins by size class, and hands them out again.
///
/// Clones are handles to the same pool, and may be used from any thread. When the last handle is dropped, what
/// the pool holds is freed; blocks still in use stay valid, and are freed when they are dropped.
///
/// `PyOpenCL`'s `MemoryPool`, made safe to share between threads and queues.
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let block = pool.allocate(1 << 20)?;
///
/// let worker = pool.clone();
/// std::thread::spawn(move || drop((worker, block))).join().unwrap();
/// assert_eq!(pool.statistics().active_blocks, 0);
/// assert!(pool.free_held() >= 1 << 20);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Debug)]
pub struct MemoryPool<A: Allocator> {
    handle: Arc<Handle<A>>,
}

impl<A: Allocator> Clone for MemoryPool<A> {
    fn clone(&self) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
        }
    }
}

/// What all handles of a pool share, apart from its blocks: dropped with the last handle.
#[derive(Debug)]
pub(crate) struct Handle<A: Allocator> {
    shared: Arc<Shared<A>>,
}

impl<A: Allocator> Drop for Handle<A> {
    fn drop(&mut self) {
        self.shared.set_holding(false);
        self.shared.stop_scrubbing_again();
        self.shared.release_all();
        if self.shared.notes.are_taken() {
            // What threads have of the pool may stay with them for long.
            self.shared.collect_tapes(|| ());
            self.shared.tell_of_live_blocks();
        }
        let unused = {
            let mut state = self.shared.state.lock();
            // Ranges between blocks that are in use remember their queues until their segment goes, with the last block; and
            // so does what is stranded.
            let has_ranges = state.managed_bytes() > 0 || !state.strand.is_empty();
            let lanes = &mut state.lanes;
            lanes.take(|lane| lane.active == 0 && (lane.has_caught_up() || !has_ranges))
        };
        drop(unused);
    }
}

impl<A: Allocator> MemoryPool<A> {
    /// A pool over `allocator` with the default settings, whose blocks are for `queue` unless their allocation
    /// names another. See [`PoolOptions`] for the settings.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject) for a queue of another backend.
    pub fn new(allocator: A, queue: &QueueOf<A>) -> Result<Self, PoolError> {
        PoolOptions::new().build(allocator, queue)
    }

    pub(crate) fn assemble(shared: Shared<A>) -> Self {
        let shared = Arc::new(shared);
        Self {
            handle: Arc::new(Handle { shared }),
        }
    }

    /// A block of `bytes` bytes for the pool's home queue, with undefined contents, unless the pool
    /// [scrubs](PoolOptions::scrub).
    ///
    /// 0 bytes are fine: such a block has no memory.
    ///
    /// # Errors
    ///
    /// [`PoolError::OutOfMemory`], with a report, when nothing can be done about it any more; the failures of
    /// the allocator and the backend.
    #[inline]
    #[track_caller]
    pub fn allocate(&self, bytes: usize) -> Result<PooledBuffer<A>, PoolError> {
        let shared = &self.handle.shared;
        self.allocate_unchecked(&shared.home, shared.home_id, bytes)
    }

    /// A block of `bytes` bytes for `queue`, with undefined contents, unless the pool
    /// [scrubs](PoolOptions::scrub).
    ///
    /// Commands that use the block on `queue` come after everything that its former users enqueued, by the
    /// queue's own order or because those commands have ended; commands on another queue have to be put after them:
    /// see [`PooledBuffer`]. What becomes of free blocks that other queues used is the pool's
    /// [policy](ReusePolicy).
    ///
    /// # Errors
    ///
    /// Those of [`allocate`](Self::allocate), and [`ForeignObject`](crate::InvalidRequest::ForeignObject) for
    /// a queue of another backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate_on(&compute, 4096)?;
    /// block.enqueue_fill(&compute, 0..4096, &[7], &[])?; // After all that its former users enqueued.
    /// assert_eq!(block.queue_id(), Some(compute.id()));
    /// assert_eq!(pool.allocate(4096)?.queue_id(), Some(upload.id()));
    ///
    /// let other_device = MockDevice::new().backend();
    /// let foreign = other_device.create_queue(QueueOrder::InOrder)?;
    /// assert!(pool.allocate_on(&foreign, 4096).is_err());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn allocate_on(
        &self,
        queue: &QueueOf<A>,
        bytes: usize,
    ) -> Result<PooledBuffer<A>, PoolError> {
        self.backend().check_queue(queue)?;
        self.allocate_unchecked(queue, queue.id(), bytes)
    }

    pub(crate) fn handle(&self) -> &Arc<Shared<A>> {
        &self.handle.shared
    }

    #[inline]
    #[track_caller]
    fn allocate_unchecked(
        &self,
        queue: &QueueOf<A>,
        queue_id: QueueId,
        bytes: usize,
    ) -> Result<PooledBuffer<A>, PoolError> {
        let shared = &self.handle.shared;
        if let Some(grant) = shared.at_hand(queue_id, bytes) {
            tracing::trace!(asked = bytes, bytes = grant.block.bytes, "allocated");
            return Ok(PooledBuffer::from_hand(grant, bytes));
        }
        shared.serve(queue, bytes)
    }

    /// Gives every held block back to the allocator, those included that commands may still use (the runtime
    /// frees them after those commands), and lets go of queues that no block needs. Active blocks stay.
    ///
    /// The bytes given back. Failures are logged: there is nothing to be done about them.
    pub fn free_held(&self) -> u64 {
        let shared = &self.handle.shared;
        let bytes = shared.release_all();
        // The home queue's lane stays, but none of its events.
        let home = shared.state.lock().not_ended(&shared.home);
        shared.look_at(home.as_slice());
        shared.retire_idle_lanes(false);
        bytes
    }

    /// Tells the pool that the program is done with `queue`: its free blocks are any queue's as soon as the
    /// commands there have ended, under every [policy](ReusePolicy), and the pool lets go of it then. Blocks of
    /// this queue that are in use come back as ever; allocating for it again takes this back. In the meantime threads keep
    /// no blocks at hand, and hits take a short lock.
    ///
    /// Other policies than [`SameQueue`](ReusePolicy::SameQueue) do the same by themselves for queues that have
    /// no block in use, when memory is asked of the device.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, ReusePolicy};
    /// # use binpool_mock::MockDevice;
    /// # let device = MockDevice::new();
    /// # let backend = device.backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .reuse(ReusePolicy::SameQueue)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let queues = device.live_queues();
    /// // A queue for one job, which the others have nothing of under this policy.
    /// let job = backend.create_queue(QueueOrder::InOrder)?;
    /// drop(pool.allocate_on(&job, 64 << 20)?);
    /// pool.retire_queue(&job);
    /// drop(job);
    /// assert_eq!(device.live_queues(), queues); // The pool keeps it no longer.
    /// let block = pool.allocate(64 << 20)?;
    /// assert_eq!(pool.statistics().hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn retire_queue(&self, queue: &QueueOf<A>) {
        self.handle.shared.retire_queue(queue);
    }

    /// How blocks are reused across queues.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, ReusePolicy};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = PoolOptions::new()
    /// #     .reuse(ReusePolicy::InsertWait)
    /// #     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // A pool for the program's second device, which does as the first one's.
    /// let other_device = MockDevice::new().backend();
    /// let other_queue = other_device.create_queue(QueueOrder::InOrder)?;
    /// let other_pool = PoolOptions::new()
    ///     .reuse(pool.reuse_policy())
    ///     .scrub(pool.scrub_policy())
    ///     .build(ImmediateAllocator::new(&other_device)?, &other_queue)?;
    /// assert_eq!(other_pool.reuse_policy(), ReusePolicy::InsertWait);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn reuse_policy(&self) -> ReusePolicy {
        self.handle.shared.policy
    }

    /// Whether blocks are filled with zeros between their users.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use binpool::ScrubPolicy;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = PoolOptions::new()
    /// #     .scrub(ScrubPolicy::OnHandOut)
    /// #     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // Zeros, which a pool that scrubs has written already.
    /// let block = pool.allocate(4096)?;
    /// if pool.scrub_policy() == ScrubPolicy::Never {
    ///     block.enqueue_fill(pool.home_queue(), 0..4096, &[0], &[])?;
    /// }
    /// let mut bytes = [1; 4096];
    /// block.read(pool.home_queue(), 0, &mut bytes, &[])?;
    /// assert_eq!(bytes, [0; 4096]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn scrub_policy(&self) -> ScrubPolicy {
        self.handle.shared.scrubber.policy()
    }

    /// Gives free blocks, or segments, back to the allocator until the pool manages at most `bytes` bytes: first those
    /// that no command uses, largest first and no more than is needed; where that is not enough, every free one. Active
    /// blocks stay, whatever they take.
    ///
    /// The bytes given back. Failures are logged: there is nothing to be done about them.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let [small, large] = [4 << 20, 16 << 20].map(|bytes| pool.allocate(bytes).unwrap());
    /// drop(large);
    /// assert_eq!(pool.trim_to(4 << 20), 16 << 20);
    /// assert_eq!(pool.managed_bytes(), 4 << 20);
    /// # drop(small);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn trim_to(&self, bytes: u64) -> u64 {
        self.handle.shared.trim_to(bytes)
    }

    /// Gives back what has been free since the sweep before, and what no command uses: the first sweep only takes note. See
    /// [`Decay`](crate::Decay), which has the pool call this by itself.
    ///
    /// The bytes given back. Failures are logged: there is nothing to be done about them.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let [once, often] = [16 << 20, 4 << 20].map(|bytes| pool.allocate(bytes).unwrap());
    /// drop((once, often));
    /// // At the end of each of the program's rounds:
    /// assert_eq!(pool.sweep(), 0);
    /// drop(pool.allocate(4 << 20)?);
    /// assert_eq!(pool.sweep(), 16 << 20); // Free for a whole round.
    /// assert_eq!(pool.managed_bytes(), 4 << 20);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn sweep(&self) -> u64 {
        self.handle.shared.sweep()
    }

    /// Has a thread [sweep](Self::sweep) the pool every so often, until what is returned is dropped or the pool has gone.
    ///
    /// # Errors
    ///
    /// Where the operating system has no thread to give.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use std::{thread, time::Duration};
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let sweeper = pool.sweep_in_background(Duration::from_millis(1))?;
    /// drop(pool.allocate(64 << 20)?);
    /// while pool.managed_bytes() > 0 {
    ///     thread::sleep(Duration::from_millis(1)); // Idle: the memory goes all the same.
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep_in_background(&self, every: Duration) -> io::Result<Sweeper>
    where
        A: 'static,
    {
        Sweeper::start(&self.handle.shared, every)
    }

    /// Whether a block of `bytes` bytes could be had now, as far as can be told without asking the device: from free memory
    /// of the pool, whatever still uses it, or because limits and capacity leave room for it. A forecast: the device may
    /// be full of what others have taken, and other threads may be faster.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(48 << 20)?;
    /// assert!(pool.would_fit(16 << 20) && !pool.would_fit(32 << 20));
    /// drop(block);
    /// assert!(pool.would_fit(32 << 20));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn would_fit(&self, bytes: usize) -> bool {
        bytes == 0
            || self.handle.shared.request(bytes).is_ok_and(|request| {
                request.is_some_and(|it| self.handle.shared.would_fit(it.bytes))
            })
    }

    /// Names the pool without keeping it.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // What a program that watches over all of its pools keeps of each.
    /// let known = vec![pool.downgrade()];
    /// let managed = || -> u64 {
    ///     let alive = known.iter().filter_map(|weak| weak.upgrade());
    ///     alive.map(|pool| pool.managed_bytes()).sum()
    /// };
    /// drop(pool.allocate(64 << 20)?);
    /// assert_eq!(managed(), 64 << 20);
    /// drop(pool); // The last handle: its memory goes.
    /// assert_eq!(managed(), 0);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn downgrade(&self) -> WeakPool<A> {
        WeakPool::new(Arc::downgrade(&self.handle))
    }

    pub(crate) const fn of(handle: Arc<Handle<A>>) -> Self {
        Self { handle }
    }

    /// Frees what is held, and from now on frees blocks when they are dropped.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(64 << 20)?;
    /// drop(pool.allocate(64 << 20)?);
    /// // Another library needs the device for a while.
    /// pool.stop_holding();
    /// assert!(!pool.is_holding());
    /// assert_eq!(pool.managed_bytes(), pool.active_bytes());
    /// drop(block);
    /// assert_eq!(pool.managed_bytes(), 0);
    ///
    /// pool.resume_holding();
    /// drop(pool.allocate(64 << 20)?);
    /// assert_eq!(pool.held_blocks(), 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn stop_holding(&self) {
        self.handle.shared.set_holding(false);
        self.free_held();
    }

    /// From now on holds dropped blocks again.
    pub fn resume_holding(&self) {
        self.handle.shared.set_holding(true);
    }

    /// Whether dropped blocks are held.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.handle.shared.state.lock().holding
    }

    /// Adds a hook that frees memory outside the pool, or blocks of the pool that the program can do without,
    /// when the device is full and the pool has nothing left to give back. Hooks are called in the order in
    /// which they were added, until the request succeeds, on the thread that made it.
    ///
    /// A hook may use the pool. One that keeps a handle of the pool keeps the pool alive until it is
    /// [removed](Self::remove_reclaim_hook); one that keeps a [`WeakPool`] does not. One that panics does no harm.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use std::sync::{Arc, Mutex};
    ///
    /// # let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let cache = Arc::new(Mutex::new(vec![pool.allocate(1 << 20)?]));
    /// let to_clear = Arc::clone(&cache);
    /// pool.add_reclaim_hook(move |_| to_clear.lock().unwrap().clear());
    /// // The device is full of cached blocks. The hook drops them, and the request is served.
    /// assert!(pool.allocate(1 << 20).is_ok());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn add_reclaim_hook(&self, hook: impl Fn(&Shortage) + Send + Sync + 'static) -> HookId {
        self.handle.shared.hooks.add(Arc::new(hook))
    }

    /// Takes a hook away. Whether it was there.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let weak = pool.downgrade();
    /// let handle = pool.clone();
    /// let hook = pool.add_reclaim_hook(move |_| {
    ///     handle.free_held();
    /// });
    /// drop(pool);
    /// // The hook keeps its pool. Taken away, it is dropped, and the pool goes with it.
    /// if let Some(pool) = weak.upgrade() {
    ///     assert!(pool.remove_reclaim_hook(hook));
    /// }
    /// assert!(weak.upgrade().is_none());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn remove_reclaim_hook(&self, id: HookId) -> bool {
        self.handle.shared.hooks.remove(id)
    }

    /// The pool's counters, all taken at the same moment.
    #[must_use]
    pub fn statistics(&self) -> PoolStatistics {
        self.handle.shared.statistics()
    }

    /// Free blocks in the pool.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.statistics().held_blocks
    }

    /// Blocks in the user's hands.
    #[must_use]
    pub fn active_blocks(&self) -> u64 {
        self.statistics().active_blocks
    }

    /// Bytes in the user's hands and held together, in whole blocks.
    #[must_use]
    pub fn managed_bytes(&self) -> u64 {
        self.statistics().managed_bytes
    }

    /// Bytes in the user's hands, as they were asked for.
    #[must_use]
    pub fn active_bytes(&self) -> u64 {
        self.statistics().active_bytes
    }

    /// The queue that blocks are for unless their allocation names another.
    #[must_use]
    pub fn home_queue(&self) -> &QueueOf<A> {
        &self.handle.shared.home
    }

    /// The allocator that the pool's blocks come from.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Statistics};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // An adaptor below the pool sees what the pool asks the device for.
    /// let pool = MemoryPool::new(Statistics::new(ImmediateAllocator::new(&backend)?), &queue)?;
    /// for _ in 0..100 {
    ///     drop(pool.allocate(64 << 20)?);
    /// }
    /// assert_eq!(pool.allocator().reading().allocations, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn allocator(&self) -> &A {
        &self.handle.shared.allocator
    }

    /// The backend that the pool's blocks live on.
    #[must_use]
    pub fn backend(&self) -> &A::Backend {
        self.handle.shared.allocator.backend()
    }
}
