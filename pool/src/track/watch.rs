//! What a pool tracks about its blocks.

use std::{panic::Location, sync::Arc};

use parking_lot::Mutex;

use crate::track::{
    allocation_record::AllocationTable,
    caller::Caller,
    event_buffer::EventBuffer,
    recorder::{self, Recorder},
};
use binpool_lock::sync::{AtomicU8, Ordering};

/// How a watching pool records the place of each request. It always records the queue, the time and the
/// [`Tag`](crate::Tag).
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// use binpool::WatchOptions;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let block = pool.allocate(4096)?;
/// let line = format!(":{}:", line!() - 1);
/// let live = pool.live_blocks();
/// let site = live.groups[0].call_site.as_deref().unwrap_or_default();
/// assert!(site.contains(&line), "{site}");
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    pub(crate) backtraces: bool,
    pub(crate) tags_only: bool,
    /// The crates whose frames a stack does not begin with.
    pub(crate) beyond: &'static [&'static str],
}

impl WatchOptions {
    /// Records the line of the program that calls the pool.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            backtraces: false,
            tags_only: false,
            beyond: &[],
        }
    }

    /// Records no place, only the [`Tag`](crate::Tag) of each request. For interfaces to other languages, whose tags name the place in the
    /// program: the line that calls the pool is always the interface's.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use binpool::{Tag, WatchOptions};
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// pool.watch(WatchOptions::new().tags_only(true));
    /// let block = Tag::new("train.py:12").within(|| pool.allocate(4096))?;
    /// let live = pool.live_blocks();
    /// assert_eq!(live.groups[0].tag.as_deref(), Some("train.py:12"));
    /// assert_eq!(live.groups[0].call_site, None);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub const fn tags_only(mut self, only: bool) -> Self {
        self.tags_only = only;
        self
    }

    /// Records the thread's frames instead of that line: from the first one outside binpool's crates and those that
    /// the program [names](Self::beyond) to where the thread begins, without the standard library's. Takes a few microseconds for each block, and far longer to
    /// look up the names when they are read. For array crates, where the line that calls the pool is always the same.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, PooledBuffer, PoolError, QueueOrder};
    /// # use binpool_mock::{MockBackend, MockDevice};
    /// use binpool::WatchOptions;
    ///
    /// # type Pool = MemoryPool<MockBackend>;
    /// # type Block = PooledBuffer<MockBackend>;
    /// // All blocks of an array crate come from one line.
    /// fn new_array(pool: &Pool) -> Result<Block, PoolError> {
    ///     pool.allocate(4096)
    /// }
    ///
    /// fn convolution(pool: &Pool) -> Result<Block, PoolError> {
    ///     let array = new_array(pool)?;
    ///     Ok(array)
    /// }
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// pool.watch(WatchOptions::new().backtraces(true));
    /// let array = convolution(&pool)?;
    /// let live = pool.live_blocks();
    /// let frames = live.groups[0].call_site.as_deref().unwrap_or_default();
    /// assert!(
    ///     frames.contains("new_array") && frames.contains("convolution"),
    ///     "{frames}"
    /// );
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[cfg(feature = "backtrace")]
    #[must_use]
    pub const fn backtraces(mut self, take: bool) -> Self {
        self.backtraces = take;
        self
    }

    /// Begins each stack at the first frame outside the crates whose names begin with one of `crates`, such as the array crate that
    /// all requests come from.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use binpool::WatchOptions;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// pool.watch(WatchOptions::new().backtraces(true).beyond(&["tensor"]));
    /// let array = pool.allocate(4096)?; // As `tensor::zeros` would do.
    /// let live = pool.live_blocks();
    /// let frames = live.groups[0].call_site.as_deref().unwrap_or_default();
    /// assert!(!frames.contains("tensor::"), "{frames}");
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[cfg(feature = "backtrace")]
    #[must_use]
    pub const fn beyond(mut self, crates: &'static [&'static str]) -> Self {
        self.beyond = crates;
        self
    }
}

/// The tracking state of a pool, under its lock.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The program's settings; `None` while it does not watch.
    pub(crate) options: Option<WatchOptions>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) allocations: AllocationTable,
    /// The events that are written under the pool's lock; `None` if nothing is tracked.
    pub(crate) event_buffer: Option<EventBuffer>,
    /// The bytes of pages that are mapped nowhere, as last recorded.
    pub(crate) spare_bytes: u64,
}

impl Watch {
    /// Returns an event buffer for a thread, if blocks are tracked.
    pub(crate) fn new_event_buffer(&self) -> Option<Box<EventBuffer>> {
        let ticks = self.event_buffer.as_ref()?.ticks().clone();
        let has_stacks = self.options.is_some_and(|options| options.backtraces);
        Some(Box::new(EventBuffer::new(
            ticks,
            self.recorder.as_ref(),
            has_stacks,
        )))
    }
}

/// The part of the tracking state that is read without the pool's lock.
#[derive(Debug, Default)]
pub(crate) struct TrackingFlag {
    kind: AtomicU8,
    /// The crates that stacks do not begin with.
    beyond: Mutex<&'static [&'static str]>,
}

impl TrackingFlag {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const CALL_SITES: u8 = 1;
    pub(crate) const WITH_STACKS: u8 = 2;
    pub(crate) const TAGS: u8 = 3;

    /// Returns the caller that requests a block at `site`, if blocks are tracked.
    #[inline]
    pub(crate) fn caller(&self, site: &'static Location<'static>) -> Option<Caller> {
        // A thread that reads an old value tracks one block too many or too few.
        match self.kind.load(Ordering::Relaxed) {
            Self::NONE => None,
            _ if recorder::is_on_this_thread() => None,
            Self::WITH_STACKS => Some(self.with_stack(site)),
            Self::TAGS => Some(Caller::without_site()),
            _ => Some(Caller::here(site)),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_stack(&self, site: &'static Location<'static>) -> Caller {
        let beyond = *self.beyond.lock();
        Caller::with_stack(site, beyond)
    }

    pub(crate) fn change(&self, kind: u8, options: Option<WatchOptions>) {
        *self.beyond.lock() = options.map_or(&[], |options| options.beyond);
        self.kind.store(kind, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.kind.load(Ordering::Relaxed) != Self::NONE
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::{io, thread};

    use super::*;
    use crate::track::{recorder::Recorder, ticks::Ticks, trace_writer::TraceWriter};

    /// A writer that requests blocks as the program does.
    struct Asks(Arc<TrackingFlag>);

    impl io::Write for Asks {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(self.0.caller(Location::caller()).is_none());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.write(&[]).map(drop)
        }
    }

    #[test]
    fn requests_are_tracked_while_that_is_on_but_not_those_of_the_thread_that_writes() {
        let flag = Arc::new(TrackingFlag::default());
        let is_tracked = || flag.caller(Location::caller()).is_some();
        assert!(!is_tracked() && !flag.is_on());
        flag.change(TrackingFlag::CALL_SITES, None);
        assert!(is_tracked() && flag.is_on());
        let recorder = Recorder::new();
        recorder.end();
        let writer = TraceWriter::new(Box::new(Asks(Arc::clone(&flag))), Ticks::new(), &[]);
        let written = thread::scope(|scope| {
            let write = || recorder.write(writer, || recorder.take());
            scope.spawn(write).join()
        });
        assert!(written.unwrap().is_ok());
        flag.change(TrackingFlag::NONE, None);
        assert!(!is_tracked());
    }
}
