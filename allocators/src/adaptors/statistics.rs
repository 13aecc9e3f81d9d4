//! The adaptor that counts and times calls.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{Allocator, EventOf, Memory, MemoryOf, Region, Result, forward_to_inner};

/// The counts of a [`Statistics`] allocator since it was made.
///
/// ```
/// use binpool_allocators::adaptors::Statistics;
/// use binpool_conformance::{AllocatorCall, AllocatorFault, Failing, FaultTrigger};
/// use binpool_allocators::{Allocator, ImmediateAllocator, Region};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let failing = Failing::new(ImmediateAllocator::new(&backend)?);
/// # failing.fail(AllocatorCall::Release, FaultTrigger::Nth(1), AllocatorFault::Backend(-36));
/// let allocator = Statistics::new(failing); // Its first release fails.
/// let [one, two] = [allocator.allocate(3000)?, allocator.allocate(1000)?];
/// allocator.release_view(allocator.create_view(&one, Region::first(500))?);
/// assert!(allocator.release(one, &[]).is_err());
/// let reading = allocator.reading();
/// assert_eq!((reading.allocations, reading.views), (2, 1));
/// assert_eq!((reading.releases, reading.failed_releases), (1, 1)); // The block is gone anyway.
/// assert_eq!((reading.current_bytes, reading.peak_bytes), (1000, 4000));
/// assert!(reading.time >= reading.view_time);
/// # allocator.release(two, &[])?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorStatistics {
    /// Blocks that were allocated.
    pub allocations: u64,
    /// Allocations that failed.
    pub failed_allocations: u64,
    /// Blocks that were released, including those whose release failed.
    pub releases: u64,
    /// Releases that failed.
    pub failed_releases: u64,
    /// The bytes of all live blocks.
    pub current_bytes: u64,
    /// The peak of the live bytes.
    pub peak_bytes: u64,
    /// Views that were created.
    pub views: u64,
    /// The host time of all calls, including those for views, summed over all threads.
    pub time: Duration,
    /// The part of it for creating and releasing views; 0 for views that are
    /// [only addresses](Allocator::views_are_addresses).
    pub view_time: Duration,
    /// Calls that mapped pages, to a first or a further address. Only their allocation counts as bytes, wherever they are mapped.
    pub maps: u64,
    /// Calls that unmapped pages, each at one or more addresses.
    pub unmaps: u64,
    /// The part of [`time`](Self::time) for mapping and unmapping.
    pub map_time: Duration,
}

impl AllocatorStatistics {
    fn add_view_time(&mut self, time: Duration) {
        self.time = self.time.saturating_add(time);
        self.view_time = self.view_time.saturating_add(time);
    }

    fn add_map_time(&mut self, time: Duration) {
        self.time = self.time.saturating_add(time);
        self.map_time = self.map_time.saturating_add(time);
    }
}

/// Counts and times the calls to an allocator. Clones share one count.
///
/// A block counts with its real size ([`Memory::bytes`]). One that is dropped instead of
/// [released](Allocator::release) is not counted as released, and counts as live forever.
///
/// ```
/// use binpool_allocators::adaptors::Statistics;
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
/// let allocator = Statistics::new(ImmediateAllocator::new(&backend)?);
/// let block = allocator.allocate(4096)?;
/// assert!(allocator.allocate(1 << 20).is_err());
/// allocator.release(block, &[])?;
/// let reading = allocator.reading();
/// assert_eq!((reading.allocations, reading.failed_allocations, reading.releases), (1, 1, 1));
/// assert_eq!((reading.current_bytes, reading.peak_bytes), (0, 4096));
///
/// let uncounted = allocator.inner().allocate(64)?;
/// assert_eq!(allocator.reading(), reading);
/// allocator.into_inner().release(uncounted, &[])?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct Statistics<A> {
    inner: A,
    reading: Arc<Mutex<AllocatorStatistics>>,
    /// The views that are [only addresses](Allocator::views_are_addresses). Counted without a lock, and not timed, since making one
    /// takes less than looking at the clock.
    addresses: Arc<AtomicU64>,
}

impl<A: fmt::Debug> fmt::Debug for Statistics<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.reading();
        f.debug_struct("Statistics")
            .field("inner", &self.inner)
            .field("allocations", &now.allocations)
            .field("releases", &now.releases)
            .field("bytes", &now.current_bytes)
            .finish_non_exhaustive()
    }
}

impl<A> Statistics<A> {
    /// Counts the calls to `inner`.
    pub fn new(inner: A) -> Self {
        Self {
            inner,
            reading: Arc::default(),
            addresses: Arc::default(),
        }
    }

    /// Returns the counts until now.
    #[must_use]
    pub fn reading(&self) -> AllocatorStatistics {
        let mut reading = *self.reading.lock();
        reading.views += self.addresses.load(Ordering::Relaxed);
        reading
    }

    /// The inner allocator. Blocks allocated or released through it directly are not counted.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns the inner allocator, no longer counted.
    pub fn into_inner(self) -> A {
        self.inner
    }
}

/// Makes a call. Returns its result, and the time that it took.
fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = call();
    (result, start.elapsed())
}

impl<A: Allocator> Allocator for Statistics<A> {
    forward_to_inner!(properties);
    forward_to_inner!(limits);

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let (memory, time) = timed(|| self.inner.allocate(bytes));
        let given = memory.as_ref().ok().map(Memory::bytes);
        let mut reading = self.reading.lock();
        reading.time = reading.time.saturating_add(time);
        match given {
            Some(given) => {
                reading.allocations += 1;
                reading.current_bytes = reading.current_bytes.saturating_add(given as u64);
                reading.peak_bytes = reading.peak_bytes.max(reading.current_bytes);
            }
            None => reading.failed_allocations += 1,
        }
        memory
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let bytes = memory.bytes();
        let (result, time) = timed(|| self.inner.release(memory, after));
        let mut reading = self.reading.lock();
        reading.time = reading.time.saturating_add(time);
        reading.releases += 1;
        reading.failed_releases += u64::from(result.is_err());
        reading.current_bytes = reading.current_bytes.saturating_sub(bytes as u64);
        result
    }

    fn create_view(&self, block: &MemoryOf<Self>, region: Region) -> Result<MemoryOf<Self>> {
        if self.inner.views_are_addresses() {
            let view = self.inner.create_view(block, region)?;
            self.addresses.fetch_add(1, Ordering::Relaxed);
            return Ok(view);
        }
        let (view, time) = timed(|| self.inner.create_view(block, region));
        let mut reading = self.reading.lock();
        reading.add_view_time(time);
        reading.views += u64::from(view.is_ok());
        view
    }

    fn views_are_addresses(&self) -> bool {
        self.inner.views_are_addresses()
    }

    fn release_view(&self, view: MemoryOf<Self>) {
        let ((), time) = timed(|| self.inner.release_view(view));
        self.reading.lock().add_view_time(time);
    }

    fn page_bytes(&self) -> Option<usize> {
        self.inner.page_bytes()
    }

    fn reserve(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        self.inner.reserve(bytes)
    }

    fn map(
        &self,
        reservation: &MemoryOf<Self>,
        offset: usize,
        pages: &MemoryOf<Self>,
    ) -> Result<()> {
        let (result, time) = timed(|| self.inner.map(reservation, offset, pages));
        let mut reading = self.reading.lock();
        reading.add_map_time(time);
        reading.maps += u64::from(result.is_ok());
        result
    }

    fn unmap(&self, reservation: &MemoryOf<Self>, region: Region) -> Result<()> {
        let (result, time) = timed(|| self.inner.unmap(reservation, region));
        let mut reading = self.reading.lock();
        reading.add_map_time(time);
        reading.unmaps += u64::from(result.is_ok());
        result
    }
}
