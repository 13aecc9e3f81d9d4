//! The handle of a pool.

use std::{
    fmt, io,
    sync::{Arc, Weak},
    time::Duration,
};

use binpool_allocators::{Allocator, Backend, Queue, QueueId, contained::contained, words};

use crate::{
    HookId, PoolError, PoolOptions, PoolStatistics, PooledBuffer, ReusePolicy, ScrubPolicy,
    Shortage, Sweeper, free::thread_cache::Looked, shared::Shared,
};

/// A pool of device memory: keeps freed blocks, and reuses them for later requests.
///
/// Clones are handles to the same pool, and may be used from any thread. When the last handle is dropped, what the pool
/// holds is released; active blocks stay valid, and are released when they are dropped.
///
/// It is like `PyOpenCL`'s `MemoryPool`, but safe to share between threads and queues. An array crate needs nine methods:
///
/// | method | what it does |
/// |---|---|
/// | [`new`](Self::new) | makes a pool; [`PoolOptions`] does so with other settings |
/// | [`allocate`](Self::allocate) | returns a block for the default queue |
/// | [`allocate_on`](Self::allocate_on) | returns a block for another queue |
/// | [`home_queue`](Self::home_queue) | the default queue |
/// | [`backend`](Self::backend) | the backend, for commands on the blocks |
/// | [`free_held`](Self::free_held) | releases all free memory |
/// | [`trim_to`](Self::trim_to) | releases free memory down to a size in bytes |
/// | [`stop_holding`](Self::stop_holding) | from now on, releases each block when it is dropped |
/// | [`statistics`](Self::statistics) | the counters |
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
///
/// The type depends on the backend only, not on the allocator:
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, PooledBuffer, QueueOrder};
/// use binpool_mock::{MockBackend, MockDevice};
///
/// struct Solver {
///     pool: MemoryPool<MockBackend>,
///     state: PooledBuffer<MockBackend>,
/// }
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let solver = Solver { state: pool.allocate(1000)?, pool };
/// assert_eq!(solver.pool.statistics().active_bytes, 1000);
/// # drop(solver.state);
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub struct MemoryPool<B: Backend> {
    handle: Arc<Handle<B>>,
}

impl<B: Backend> Clone for MemoryPool<B> {
    fn clone(&self) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
        }
    }
}

/// The device and the main counters, in a line.
impl<B: Backend> fmt::Debug for MemoryPool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.statistics();
        let bytes = words::bytes;
        f.debug_struct("MemoryPool")
            .field("device", &self.backend().limits().device_name)
            .field("active_blocks", &now.active_blocks)
            .field("active", &format_args!("{}", bytes(now.active_bytes)))
            .field("held", &format_args!("{}", bytes(now.held_bytes)))
            .field("managed", &format_args!("{}", bytes(now.managed_bytes)))
            .finish_non_exhaustive()
    }
}

/// What all handles of a pool share. It is dropped with the last handle; blocks may live on.
pub(crate) struct Handle<B: Backend> {
    shared: Arc<Shared<B>>,
}

impl<B: Backend> Drop for Handle<B> {
    fn drop(&mut self) {
        self.shared.set_holding(false);
        contained("giving memory back", || {
            self.shared.stop_scrubbing_again();
        });
        contained("giving memory back", || {
            self.shared.stop_keeping_viewed();
        });
        contained("giving memory back", || self.shared.release_all());
        if self.shared.tracking.is_on() {
            // Threads may keep their part of the pool for long after this.
            self.shared.collect_events(|| ());
            contained("a subscriber", || self.shared.log_live_blocks());
        }
        let unused = {
            let mut state = self.shared.state.lock();
            // Free ranges between active blocks remember their queues until their segment goes with its last block, and
            // so does what is quarantined.
            let has_ranges = state.managed_bytes() > 0 || !state.quarantine.is_empty();
            let queues = &mut state.queues;
            queues.take(|queue_state| {
                queue_state.active == 0 && (queue_state.has_caught_up() || !has_ranges)
            })
        };
        contained("dropping queues", || drop(unused));
    }
}

/// # What an array crate needs
impl<B: Backend> MemoryPool<B> {
    /// Makes a pool over `allocator` with the default settings, whose blocks are for `queue` unless their allocation
    /// names another. See [`PoolOptions`] for the settings.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject) for a queue of another backend.
    pub fn new(
        allocator: impl Allocator<Backend = B>,
        queue: &B::Queue,
    ) -> Result<Self, PoolError> {
        PoolOptions::new().build(allocator, queue)
    }

    /// Returns a block of `bytes` bytes for the pool's default queue. Its contents are undefined, unless the pool
    /// [scrubs](PoolOptions::scrub). The block of 0 bytes has no memory.
    ///
    /// # Errors
    ///
    /// [`PoolError::OutOfMemory`], with a report, once the pool has tried everything; the failures of the
    /// allocator and the backend.
    #[inline]
    #[track_caller]
    pub fn allocate(&self, bytes: usize) -> Result<PooledBuffer<B>, PoolError> {
        let shared = &self.handle.shared;
        self.allocate_unchecked(&shared.default_queue, shared.default_queue_id, bytes)
    }

    /// Returns a block of `bytes` bytes for `queue`. Its contents are undefined, unless the pool
    /// [scrubs](PoolOptions::scrub).
    ///
    /// Commands that use the block on `queue` come after everything that its former users enqueued, by the queue's own
    /// order or because those commands have ended. Order commands on other queues after them yourself: see
    /// [`PooledBuffer`]. How free blocks go from queue to queue is the pool's [policy](ReusePolicy).
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
    /// block.enqueue_fill(&compute, 0..4096, &[7_u8])?; // After all that its former users enqueued.
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
        queue: &B::Queue,
        bytes: usize,
    ) -> Result<PooledBuffer<B>, PoolError> {
        self.backend().check_queue(queue)?;
        self.allocate_unchecked(queue, queue.id(), bytes)
    }

    /// Returns a block of `bytes` bytes for `queue` from the cache of this thread; `None` if no cached block has this size, and while the
    /// pool [watches](Self::watch) or [records](Self::record). It takes no lock, calls no device, and waits for nothing.
    ///
    /// For callers that hold a lock that others need, such as an interpreter's: if this returns `None`, release that lock, then call
    /// [`allocate_on`](Self::allocate_on).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, Queue, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// drop(pool.allocate(4096)?);
    /// let block = pool.allocate_cached(&queue, 4096).ok_or("not cached")?;
    /// assert_eq!((block.size(), block.queue_id()), (4096, Some(queue.id())));
    /// assert!(pool.allocate_cached(&queue, 1 << 30).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn allocate_cached(&self, queue: &B::Queue, bytes: usize) -> Option<PooledBuffer<B>> {
        self.backend().check_queue(queue).ok()?;
        let cached = self.handle.shared.take_cached(queue.id(), bytes)?;
        Some(PooledBuffer::of_hit(cached, bytes))
    }

    /// The default queue: blocks are for it unless their allocation names another.
    #[must_use]
    pub fn home_queue(&self) -> &B::Queue {
        &self.handle.shared.default_queue
    }

    /// The backend of the pool's blocks.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.handle.shared.backend
    }

    /// Releases every held block to the allocator, including those that commands may still use (the runtime frees them
    /// after those commands), and drops queues that no block needs. Active blocks stay. Returns the released bytes: of
    /// blocks, or of whole segments. Failures are logged.
    ///
    /// With [segments](PoolOptions::segments), every segment without an active block is released. The free parts of all
    /// other segments stay, and count as [held bytes](PoolStatistics::held_bytes).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .segments(true)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let [one, other] = [(); 2].map(|()| pool.allocate(1 << 20).unwrap());
    /// drop(one);
    /// assert_eq!(pool.free_held(), 0); // The other block is in the same segment.
    /// assert_eq!(pool.statistics().held_bytes, 1 << 20);
    /// drop(other);
    /// assert_eq!(pool.free_held(), 2 << 20);
    /// assert_eq!(pool.managed_bytes(), 0);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn free_held(&self) -> u64 {
        self.handle.shared.free_held()
    }

    /// Releases free blocks, or segments, to the allocator until the pool manages at most `bytes` bytes: first what no
    /// command uses, largest first and no more than needed; if that is not enough, all free memory. Active blocks
    /// stay. Returns the released bytes. Failures are logged.
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
        self.handle.shared.return_unviewed();
        self.handle.shared.trim_to(bytes)
    }

    /// Releases all held memory, and from now on releases blocks when they are dropped; with segments, each segment with
    /// its last block. Returns the bytes released at once.
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
    /// drop(pool.allocate(4 << 20)?);
    /// assert_eq!(pool.held_blocks(), 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn stop_holding(&self) -> u64 {
        self.handle.shared.set_holding(false);
        self.free_held()
    }

    /// Returns the pool's counters, all taken at the same moment. Takes the pool's lock.
    #[must_use]
    pub fn statistics(&self) -> PoolStatistics {
        self.handle.shared.statistics()
    }

    /// Resets [`peak_active_bytes`](PoolStatistics::peak_active_bytes) and [`peak_managed_bytes`](PoolStatistics::peak_managed_bytes)
    /// to the present values, to measure a part of a program. The pool's behaviour stays the same.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// drop(pool.allocate(64 << 20)?);
    /// pool.free_held();
    /// pool.reset_peaks();
    /// let block = pool.allocate(4 << 20)?;
    /// let now = pool.statistics();
    /// assert_eq!((now.peak_active_bytes, now.peak_managed_bytes), (4 << 20, 4 << 20));
    /// # drop(block);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn reset_peaks(&self) {
        self.handle.shared.reset_peaks();
    }
}

/// # Giving memory back
impl<B: Backend> MemoryPool<B> {
    /// Returns the most bytes that the pool takes from its allocator at once: its [limit](PoolOptions::limit), or that of the
    /// [budget](PoolOptions::budget) that it shares. `u64::MAX` if there is none.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.handle.shared.budget.max_bytes()
    }

    /// Sets the most bytes that the pool takes from its allocator at once, for all pools that share its
    /// [budget](PoolOptions::budget). `u64::MAX` means no limit.
    ///
    /// Memory that the pool already has stays, even above the limit: then the pool takes nothing more from the allocator, and
    /// [`trim_to`](Self::trim_to) releases free memory. [Detached](crate::PooledBuffer::detach) memory counts, too.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// drop(pool.allocate(64 << 20)?);
    /// // Another program needs the device.
    /// pool.set_limit(16 << 20);
    /// pool.trim_to(pool.limit());
    /// assert_eq!(pool.managed_bytes(), 0);
    /// assert!(pool.allocate(32 << 20).unwrap_err().is_out_of_memory());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn set_limit(&self, bytes: u64) {
        self.handle.shared.budget.set_max_bytes(bytes);
    }

    /// Holds dropped blocks again from now on.
    pub fn resume_holding(&self) {
        self.handle.shared.set_holding(true);
    }

    /// Returns whether dropped blocks are held.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.handle.shared.state.lock().holding
    }

    /// Releases memory that has been free since the last sweep and that no command uses; the first sweep releases nothing.
    /// Returns the released bytes. Failures are logged. [`Retain::unused_for`](crate::Retain::unused_for) makes the pool do this by itself.
    ///
    /// A pool of segments or pages keeps more memory if it had to allocate again what it had released ([`GrowthPolicy`](crate::GrowthPolicy)). A sweep
    /// without such an allocation since the last one halves that, so that the pool forgets work that is over.
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
        self.handle.shared.return_unviewed();
        self.handle.shared.sweep()
    }

    /// Starts a thread that [sweeps](Self::sweep) the pool at this interval, until the result is dropped or the pool is
    /// gone.
    ///
    /// # Errors
    ///
    /// An error of the operating system if it cannot start a thread.
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
    ///     thread::sleep(Duration::from_millis(1)); // The program is idle, and the memory is still released.
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep_in_background(&self, every: Duration) -> io::Result<Sweeper>
    where
        B: 'static,
    {
        Sweeper::start(&self.handle.shared, every)
    }

    /// Tells the pool that the program is done with `queue`: once the commands there have ended, any queue may
    /// reuse its free blocks, under every [policy](ReusePolicy), and the pool drops the queue. Active blocks of this
    /// queue come back as usual; a later allocation for the queue undoes the call. Until the queue is gone, threads
    /// cache no blocks, and hits take a short lock.
    ///
    /// Policies other than [`SameQueue`](ReusePolicy::SameQueue) do the same by themselves for queues without active
    /// blocks, when a request goes to the device.
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
    /// // A queue for one job. Under this policy its blocks serve no other queue.
    /// let job = backend.create_queue(QueueOrder::InOrder)?;
    /// drop(pool.allocate_on(&job, 64 << 20)?);
    /// pool.retire_queue(&job);
    /// drop(job);
    /// assert_eq!(device.live_queues(), queues); // The pool has dropped it.
    /// let block = pool.allocate(64 << 20)?;
    /// assert_eq!(pool.statistics().hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn retire_queue(&self, queue: &B::Queue) {
        self.handle.shared.retire_queue(queue);
    }
}

/// # When memory runs out
impl<B: Backend> MemoryPool<B> {
    /// Adds a hook that frees memory outside the pool, or blocks of the pool that the program can do without, when the
    /// device is full and the pool has nothing left to release. Hooks run in the order in which they were added, until
    /// the request succeeds, on the thread that made it, without a lock of the pool.
    ///
    /// A hook says whether it freed anything. If it did, and the request still fails, because the hook frees little by little or other threads
    /// were quicker, it is called again, up to 100 times for one request; then the next hook is called.
    ///
    /// A hook may use the pool. If a request inside a hook does not fit, it fails without another call of this pool's
    /// hooks. A hook that keeps a handle keeps the pool alive until it is [removed](Self::remove_reclaim_hook); one
    /// that keeps a [`WeakPool`](crate::WeakPool) does not. A panic in a hook is contained.
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
    /// pool.add_reclaim_hook(move |_| !std::mem::take(&mut *to_clear.lock().unwrap()).is_empty());
    /// // The device is full of cached blocks. The hook drops them, and the request is served.
    /// assert!(pool.allocate(1 << 20).is_ok());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn add_reclaim_hook(
        &self,
        hook: impl Fn(&Shortage) -> bool + Send + Sync + 'static,
    ) -> HookId {
        self.handle.shared.hooks.add(Arc::new(hook))
    }

    /// Removes a hook. Returns whether it was there.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let weak = pool.downgrade();
    /// let handle = pool.clone();
    /// let hook = pool.add_reclaim_hook(move |_| handle.free_held() > 0);
    /// drop(pool);
    /// // The hook keeps the pool alive. Its removal drops the hook, and the pool with it.
    /// if let Some(pool) = weak.upgrade() {
    ///     assert!(pool.remove_reclaim_hook(hook));
    /// }
    /// assert!(weak.upgrade().is_none());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn remove_reclaim_hook(&self, id: HookId) -> bool {
        self.handle.shared.hooks.remove(id)
    }
}

/// # Asking and tracking
impl<B: Backend> MemoryPool<B> {
    /// Returns whether a request of `bytes` bytes would fit now, as far as the pool can tell without asking the device:
    /// in its free memory, pending or not, or within limits and capacity. This is a forecast: other
    /// programs may fill the device, and other threads may allocate first.
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
        self.handle.shared.return_unviewed();
        bytes == 0
            || self
                .class_size(bytes)
                .is_ok_and(|block_bytes| self.handle.shared.would_fit(block_bytes))
    }

    /// Returns the device memory, in bytes, that a block for a request of `bytes` bytes takes: the size of its class
    /// ([`PooledBuffer::class_size`]), or of the request, if the device has no block as large as the class. A small block of a
    /// segment has the size of the largest of 16 classes or so, at most 1/16 more than was requested, so that it serves later
    /// requests for all of them. A larger block of the thread cache may serve the request anyway.
    ///
    /// Segments that the pool [takes from the device](PoolOptions::segments) are larger, and serve later requests, too.
    ///
    /// # Errors
    ///
    /// [`PoolError::OutOfMemory`], with the verdict [`NeverFits`](crate::Verdict::NeverFits), for more than the largest
    /// block of the device; [`PoolError::SizeClassTooSmall`].
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use binpool::Verdict;
    ///
    /// # let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .leading_bits(4)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // The cost of rounding up, before anything is allocated.
    /// assert_eq!(pool.class_size(100_000)?, 102_400);
    /// assert_eq!(pool.allocate(100_000)?.class_size(), 102_400);
    /// assert_eq!(pool.class_size(0)?, 0);
    ///
    /// let error = pool.class_size(2 << 20).unwrap_err();
    /// let report = error.out_of_memory().unwrap();
    /// assert_eq!(report.verdict, Verdict::NeverFits);
    /// assert_eq!(report.largest_block_bytes, 1 << 20);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn class_size(&self, bytes: usize) -> Result<usize, PoolError> {
        self.handle.shared.class_size(bytes)
    }

    /// Returns the number of active blocks: [`PoolStatistics::active_blocks`].
    #[must_use]
    pub fn active_blocks(&self) -> u64 {
        self.statistics().active_blocks
    }

    /// Returns the bytes of active blocks, as requested: [`PoolStatistics::active_bytes`].
    #[must_use]
    pub fn active_bytes(&self) -> u64 {
        self.statistics().active_bytes
    }

    /// Returns the number of free blocks in the pool: [`PoolStatistics::held_blocks`].
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.statistics().held_blocks
    }

    /// Returns the bytes that the pool has from its allocator: [`PoolStatistics::managed_bytes`].
    #[must_use]
    pub fn managed_bytes(&self) -> u64 {
        self.statistics().managed_bytes
    }

    /// Returns how blocks are reused across queues.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, ReusePolicy};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = PoolOptions::new()
    /// #     .reuse(ReusePolicy::InsertWait)
    /// #     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// // A pool for the program's second device, with the same policies.
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

    /// Returns when blocks are filled with zeros between their users.
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
    /// // A pool that scrubs has written zeros already.
    /// let block = pool.allocate(4096)?;
    /// if pool.scrub_policy() == ScrubPolicy::Never {
    ///     block.enqueue_fill(pool.home_queue(), 0..4096, &[0_u8])?;
    /// }
    /// let mut bytes = [1_u8; 4096];
    /// block.read(pool.home_queue(), 0, &mut bytes)?;
    /// assert_eq!(bytes, [0; 4096]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn scrub_policy(&self) -> ScrubPolicy {
        self.handle.shared.scrubber.policy()
    }

    /// The allocator that the pool's blocks come from, within the pool's [limit](Self::limit). Its type is erased: to read an
    /// adaptor's figures, keep a clone of the adaptor.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use binpool::adaptors::Statistics;
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // An adaptor below the pool sees what the pool requests of the device.
    /// let counted = Statistics::new(ImmediateAllocator::new(&backend)?);
    /// let pool = MemoryPool::new(counted.clone(), &queue)?;
    /// for _ in 0..100 {
    ///     drop(pool.allocate(64 << 20)?);
    /// }
    /// assert_eq!(counted.reading().allocations, 1);
    /// // The same allocator, for another pool.
    /// let other = MemoryPool::new(Arc::clone(pool.allocator()), &queue)?;
    /// drop(other.allocate(4096)?);
    /// assert_eq!(counted.reading().allocations, 2);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn allocator(&self) -> &Arc<dyn Allocator<Backend = B>> {
        &self.handle.shared.allocator
    }
}

impl<B: Backend> MemoryPool<B> {
    pub(crate) fn assemble(shared: Shared<B>) -> Self {
        let shared = Arc::new(shared);
        Self {
            handle: Arc::new(Handle { shared }),
        }
    }

    pub(crate) const fn of(handle: Arc<Handle<B>>) -> Self {
        Self { handle }
    }

    pub(crate) fn weak_handle(&self) -> Weak<Handle<B>> {
        Arc::downgrade(&self.handle)
    }

    pub(crate) fn handle(&self) -> &Arc<Shared<B>> {
        &self.handle.shared
    }

    #[inline]
    #[track_caller]
    fn allocate_unchecked(
        &self,
        queue: &B::Queue,
        queue_id: QueueId,
        bytes: usize,
    ) -> Result<PooledBuffer<B>, PoolError> {
        let shared = &self.handle.shared;
        match shared.take_youngest(queue_id, bytes) {
            Ok(block) => Ok(PooledBuffer::of_hit(block, bytes)),
            Err(Looked::Nowhere) => shared.allocate_anywhere(queue, bytes),
            Err(Looked::AtYoungest | Looked::Everywhere) => shared.allocate_further(queue, bytes),
        }
    }
}
