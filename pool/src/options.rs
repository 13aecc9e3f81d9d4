//! The settings of a pool.

#[cfg(feature = "snapshot")]
use std::path::PathBuf;
use std::sync::Arc;

use binpool_allocators::adaptors::Budget;

use crate::{Retain, ReusePolicy, ScrubPolicy, SizeClasses};
use binpool_segments::GrowthPolicy;

/// Settings of a [`MemoryPool`](crate::MemoryPool).
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// // Blocks up to an eighth larger than requested: fewer classes, more hits.
/// let pool = PoolOptions::new()
///     .leading_bits(3)
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// assert_eq!(pool.allocate(9000)?.class_size(), 9216);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    pub(crate) classes: Option<ChosenClasses>,
    pub(crate) policy: ReusePolicy,
    pub(crate) bins_only: bool,
    pub(crate) growth: GrowthPolicy,
    /// `None` for 1.
    pub(crate) move_percent: Option<u32>,
    /// `None` for the largest number.
    pub(crate) arenas: Option<usize>,
    pub(crate) limit: ChosenLimit,
    pub(crate) retain: Retain,
    pub(crate) scrub: ScrubPolicy,
    #[cfg(feature = "snapshot")]
    pub(crate) snapshots: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) enum ChosenClasses {
    LeadingBits(u32),
    Given(Arc<dyn SizeClasses>),
}

#[derive(Clone, Debug)]
pub(crate) enum ChosenLimit {
    /// Each pool that is built has a limit of its own.
    Bytes(u64),
    Shared(Budget),
}

impl Default for ChosenLimit {
    fn default() -> Self {
        Self::Bytes(u64::MAX)
    }
}

impl PoolOptions {
    /// The default settings: [segments](Self::segments), size classes of [`LeadingBits`](crate::LeadingBits)
    /// with eight bits (four without segments), and the default [`ReusePolicy`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets size classes by `bits` leading bits: blocks are at most `1 / 2^bits` larger than requested. Small blocks of
    /// [segments](Self::segments) are up to 1/16 larger, since each serves the requests of several classes
    /// ([`MemoryPool::class_size`](crate::MemoryPool::class_size) has the size of a block).
    #[must_use]
    pub fn leading_bits(mut self, bits: u32) -> Self {
        self.classes = Some(ChosenClasses::LeadingBits(bits));
        self
    }

    /// Sets your own size classes.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use binpool::{PoolError, SizeClasses};
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// /// One size, for a program whose tiles all take up to 1 MiB: any free block fits.
    /// #[derive(Debug)]
    /// struct Tiles;
    ///
    /// impl SizeClasses for Tiles {
    ///     fn bin_count(&self) -> usize {
    ///         1
    ///     }
    ///     fn bin_number(&self, _bytes: usize) -> usize {
    ///         0
    ///     }
    ///     fn alloc_size(&self, _bin: usize) -> usize {
    ///         1 << 20
    ///     }
    /// }
    ///
    /// let pool = PoolOptions::new()
    ///     .size_classes(Tiles)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// assert_eq!(pool.allocate(1_000_000)?.class_size(), 1 << 20);
    /// // These classes break their contract here. That is an error, not a block that is too small.
    /// let error = pool.allocate(2 << 20).unwrap_err();
    /// assert!(matches!(
    ///     error,
    ///     PoolError::SizeClassTooSmall {
    ///         requested_bytes: 2_097_152,
    ///         class_bytes: 1_048_576
    ///     }
    /// ));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn size_classes(mut self, classes: impl SizeClasses + 'static) -> Self {
        self.classes = Some(ChosenClasses::Given(Arc::new(classes)));
        self
    }

    /// Sets whether blocks are carved from segments: large pieces of device memory in which free neighbours merge. By
    /// default they are.
    ///
    /// Without segments a free block serves requests of its own class only, and a program whose sizes vary takes far
    /// more from the device than it uses; with segments, little more. Blocks are then views of their segments
    /// ([`create_sub_region`](crate::Backend::create_sub_region)), which cost a call to the device if the pool has kept none
    /// of the right size.
    ///
    /// A program that passes bare handles of its blocks to other code may turn segments off: a block is then a whole buffer.
    ///
    /// ```
    /// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::new().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new().build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let blocks = [(); 100].map(|()| pool.allocate(1000).unwrap());
    /// assert_eq!(pool.statistics().misses, 1);
    /// drop(blocks);
    /// assert_eq!(pool.statistics().managed_bytes, pool.free_held());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn segments(mut self, carve: bool) -> Self {
        self.bins_only = !carve;
        self
    }

    /// Sets what [segments](Self::segments) and pages save as they grow: calls to the device, or memory. `binpool tune` tries each on a
    /// recorded program.
    ///
    /// The default is [`Balanced`](GrowthPolicy::Balanced). It keeps at most a tenth more than the peak in use, so that a program that repeats
    /// its work soon makes few calls or none. Pools of bins ignore this.
    ///
    /// ```
    /// use binpool::{Backend, GrowthPolicy, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .growth(GrowthPolicy::Dense)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// for mebibytes in [100, 60] {
    ///     drop(pool.allocate(mebibytes << 20)?);
    /// }
    /// // The idle segment of 100 MiB was not split for the second block, and went back for it.
    /// assert_eq!(pool.managed_bytes(), 60 << 20);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn growth(mut self, policy: GrowthPolicy) -> Self {
        self.growth = policy;
        self
    }

    /// Sets how many arenas the [segments](Self::segments) are divided among, each with a lock: from 1 to 16, which is the default.
    ///
    /// Each thread carves from an arena of its own while there are enough. So threads do not wait for each other, but one's free memory may
    /// not serve another's request, which costs memory. If threads take turns, as a Python program's do, one arena is denser, and no thread
    /// waits for it.
    ///
    /// ```
    /// use std::thread;
    ///
    /// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .arenas(1)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let mut blocks = Vec::new();
    /// for _ in 0..64 {
    ///     blocks.push(pool.allocate(1 << 20)?);
    /// }
    /// blocks.drain(..8);
    /// let before = pool.managed_bytes();
    /// thread::scope(|scope| {
    ///     let other = scope.spawn(|| pool.allocate(1 << 20).map(|block| block.size()));
    ///     assert_eq!(other.join().unwrap().unwrap(), 1 << 20);
    /// });
    /// assert_eq!(pool.managed_bytes(), before); // It reused what this thread had freed.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn arenas(mut self, arenas: usize) -> Self {
        self.arenas = Some(arenas);
        self
    }

    /// Sets the most bytes that the pool takes from its allocator at once. A request beyond it fails as on a full device, once the
    /// pool has tried everything, with the verdict [`Limited`](crate::Verdict::Limited), and without a call to the device. By default
    /// there is no limit.
    ///
    /// [`MemoryPool::set_limit`](crate::MemoryPool::set_limit) changes it while the pool is in use. Memory that was [detached](crate::PooledBuffer::detach) counts
    /// until it is released by the pool's allocator. Runtimes report more memory than they have (see
    /// [`DeviceLimits`](binpool_allocators::DeviceLimits)), so a limit also keeps a program within its device.
    ///
    /// ```
    /// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Verdict};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .limit(64 << 20)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(48 << 20)?;
    /// let error = pool.allocate(32 << 20).unwrap_err();
    /// assert_eq!(error.out_of_memory().map(|report| report.verdict), Some(Verdict::Limited));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = ChosenLimit::Bytes(bytes);
        self
    }

    /// Sets the budget that limits the pool, instead of a [limit](Self::limit) of its own. Pools that share a budget
    /// together take at most its bytes. A [soft limit](Budget::on_soft_limit) tells the program when they come
    /// close to it.
    ///
    /// ```
    /// use binpool::{Backend, Budget, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder, SvmGrain};
    /// use binpool::SvmAllocator;
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // Both kinds of memory come from the same device.
    /// let budget = Budget::new(64 << 20);
    /// let options = PoolOptions::new().budget(&budget);
    /// let buffers = options.clone().build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let svm = options.build(SvmAllocator::new(&backend, SvmGrain::Coarse)?, &queue)?;
    /// let block = buffers.allocate(48 << 20)?;
    /// assert_eq!(budget.available_bytes(), 16 << 20);
    /// assert!(svm.allocate(32 << 20).unwrap_err().is_out_of_memory());
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.limit = ChosenLimit::Shared(budget.clone());
        self
    }

    /// Sets how much free memory the pool keeps, and for how long: see [`Retain`].
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use binpool::Retain;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .retain(Retain::new().at_most(32 << 20))
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// drop(pool.allocate(16 << 20)?);
    /// assert_eq!(pool.managed_bytes(), 16 << 20);
    /// drop(pool.allocate(64 << 20)?);
    /// assert!(pool.managed_bytes() <= 32 << 20);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn retain(mut self, retain: Retain) -> Self {
        self.retain = retain;
        self
    }

    /// Sets how much time pages should take to move, in percent of the time that passes on the [clock](binpool_allocators::Backend::now) of the
    /// backend: 1 by default. A pool of pages ([`VirtualMemoryAllocator`](crate::VirtualMemoryAllocator)) moves those that are free to where a
    /// block needs them. If moves take just this time, the pool takes up to 2 % more pages than were in use at once, so that fewer have to move;
    /// if they take twice as much, 4 %; and so on. With 0, pages move only if the device has no others. A pool begins as if it were 10 seconds old.
    /// [`PoolStatistics`](crate::PoolStatistics::move_nanoseconds) has the time that moves took.
    ///
    /// ```
    /// use binpool::{Backend, PoolOptions, QueueOrder, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // For a service that answers within a millisecond, and has memory to spare.
    /// let pool = PoolOptions::new()
    ///     .move_budget(0)
    ///     .build(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// for mib in [64, 48, 80] {
    ///     drop(pool.allocate(mib << 20)?);
    /// }
    /// assert_eq!(pool.statistics().move_nanoseconds, 0);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn move_budget(mut self, percent: u32) -> Self {
        self.move_percent = Some(percent);
        self
    }

    /// Sets how free blocks are reused across queues.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::{Completion, MockDevice};
    /// use binpool::ReusePolicy;
    ///
    /// # let backend = MockDevice::builder().completion(Completion::Manual).build().backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// let pool = PoolOptions::new()
    ///     .segments(false) // With segments, `compute` would find other free memory.
    ///     .reuse(ReusePolicy::InsertWait)
    ///     .build(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let block = pool.allocate(4096)?;
    /// block.enqueue_fill(&upload, 0..4096, &[1_u8])?;
    /// drop(block);
    /// // The same memory, although the fill has not run: `compute` waits for it on the device.
    /// let block = pool.allocate_on(&compute, 4096)?;
    /// assert_eq!(pool.statistics().device_wait_hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn reuse(mut self, policy: ReusePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Writes a [`Snapshot`](crate::Snapshot) into this directory whenever memory runs out:
    /// `binpool-out-of-memory-PROCESS-NUMBER.json`, at most 16 files per process. Creates the directory if needed.
    /// `binpool view` shows the files. By default none are written.
    ///
    /// A failed write is logged; the error of the request is the same.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let directory = std::env::temp_dir().join(format!("binpool-doc-{}", std::process::id()));
    /// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .snapshot_at_out_of_memory(&directory)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// assert!(pool.allocate(128 << 20).is_err());
    /// assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[cfg(feature = "snapshot")]
    #[must_use]
    pub fn snapshot_at_out_of_memory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.snapshots = Some(directory.into());
        self
    }

    /// Sets when blocks are filled with zeros between their users: for tenants that share a pool and must not read what
    /// another left.
    ///
    /// ```
    /// use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, ScrubPolicy};
    /// use binpool_mock::MockDevice;
    ///
    /// let backend = MockDevice::new().backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = PoolOptions::new()
    ///     .scrub(ScrubPolicy::OnFree)
    ///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let secret = pool.allocate(4096)?;
    /// secret.write(&queue, 0, &[7_u8; 4096])?;
    /// drop(secret);
    ///
    /// let block = pool.allocate(4096)?; // The same memory, without a call to the device.
    /// let mut bytes = [1_u8; 4096];
    /// block.read(&queue, 0, &mut bytes)?;
    /// assert_eq!(bytes, [0; 4096]);
    /// # assert_eq!(pool.statistics().hits, 1);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn scrub(mut self, policy: ScrubPolicy) -> Self {
        self.scrub = policy;
        self
    }
}
