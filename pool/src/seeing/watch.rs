//! Whether a pool takes note of who has which block.

use std::{panic::Location, sync::Arc};

use binpool_allocators::{Allocator, QueueId};

use crate::{
    MemoryPool,
    at_hand::{gathering::Key, thread_cache::Grant, threads},
    seeing::{
        asker::Asker,
        life::Ledger,
        recorder::Recorder,
        tape::{Taken, Tape, begin},
        ticks::Ticks,
    },
    shared::Shared,
    state::{State, bins::Block},
    sync::{AtomicU8, Ordering},
};

/// What a pool that watches takes note of, besides who has which block, since when, for which queue and under which
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
    backtraces: bool,
}

impl WatchOptions {
    /// The line of the program that calls the pool.
    #[must_use]
    pub const fn new() -> Self {
        Self { backtraces: false }
    }

    /// Instead of that line, all frames of the thread that lead there: some microseconds for each block, and their names take
    /// far longer once they are read. For array crates, where the line that calls the pool is always the same one.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, PooledBuffer, PoolError, QueueOrder};
    /// # use binpool_mock::{MockBackend, MockDevice};
    /// use binpool::WatchOptions;
    ///
    /// # type Allocator = ImmediateAllocator<MockBackend>;
    /// # type Pool = MemoryPool<Allocator>;
    /// # type Block = PooledBuffer<Allocator>;
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
}

/// What a pool has on its blocks' users.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// What the program asked for.
    options: Option<WatchOptions>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) ledger: Ledger,
    /// What is written under the pool's lock; `None` where nothing is taken note of.
    pub(crate) tape: Option<Tape>,
}

impl Watch {
    /// A tape for a thread, where it is to have one.
    pub(crate) fn new_tape(&self) -> Option<Box<Tape>> {
        let ticks = self.tape.as_ref()?.ticks().clone();
        Some(Box::new(Tape::new(ticks, self.recorder.as_ref())))
    }
}

/// Whether notes are taken: what is read without the pool's lock.
#[derive(Debug, Default)]
pub(crate) struct Notes(AtomicU8);

impl Notes {
    const NONE: u8 = 0;
    const TAKEN: u8 = 1;
    const WITH_STACKS: u8 = 2;

    /// Who asks for a block at `site`, if somebody wants to know.
    #[inline]
    pub(crate) fn asker(&self, site: &'static Location<'static>) -> Option<Asker> {
        // Whoever reads something old takes one note more, or one less.
        match self.0.load(Ordering::Relaxed) {
            Self::NONE => None,
            notes => Some(Asker::here(site, notes == Self::WITH_STACKS)),
        }
    }

    #[inline]
    pub(crate) fn are_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::NONE
    }
}

impl<A: Allocator> MemoryPool<A> {
    /// From now on takes note of who has which block: the tag and the line of the program that asked for it, and when. What
    /// [`live_blocks`](Self::live_blocks) and [snapshots](Self::snapshot) say of each block comes from here. Blocks that are in
    /// use already are counted there, but not known.
    ///
    /// Costs some nanoseconds an allocation, and nothing where it is off. The first pool of a process that watches waits up to
    /// 0.2 seconds for its clock.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, WatchOptions};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let before = pool.allocate(4096)?;
    /// assert!(!pool.is_watching());
    /// pool.watch(WatchOptions::new());
    /// let block = pool.allocate(4096)?;
    /// let live = pool.live_blocks();
    /// assert_eq!((live.groups.len(), live.unknown_blocks), (1, 1));
    ///
    /// pool.stop_watching();
    /// assert_eq!(pool.live_blocks().unknown_blocks, 2); // Counted as ever, and no longer known.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn watch(&self, options: WatchOptions) {
        self.handle()
            .change_watch(|watch| watch.options = Some(options));
    }

    /// Takes no more notes, and forgets those that it has, unless a [recording](Self::record) goes on.
    pub fn stop_watching(&self) {
        self.handle().change_watch(|watch| watch.options = None);
    }

    /// Whether the pool takes note of who has which block.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.handle().notes.are_taken()
    }
}

impl<A: Allocator> Shared<A> {
    /// Changes what notes are taken, by all threads from the same moment on.
    pub(crate) fn change_watch(&self, change: impl FnOnce(&mut Watch)) {
        // It may have to be made first, which takes time.
        let ticks = Ticks::new();
        let mut state = self.state.lock();
        let state = &mut *state;
        // Threads hand over what they have, and are kept out until the end.
        self.visit_all(state, |_, cache| cache.tape = None);
        let watch = &mut state.watch;
        watch.tape = None;
        change(watch);
        let notes = match (watch.options, &watch.recorder) {
            (None, None) => Notes::NONE,
            (Some(options), _) if options.backtraces => Notes::WITH_STACKS,
            _ => Notes::TAKEN,
        };
        if notes == Notes::NONE {
            watch.ledger.forget_all();
        } else {
            let mut tape = Tape::new(ticks, watch.recorder.as_ref());
            for (life, ownership) in watch.ledger.active() {
                tape.adopt(life, ownership);
            }
            watch.tape = Some(tape);
        }
        self.visit_all(state, |state, cache| cache.tape = state.watch.new_tape());
        state.threads.watch(notes != Notes::NONE);
        self.notes.0.store(notes, Ordering::Relaxed);
        state.threads.open();
        state.threads.open();
    }

    /// Has all threads hand over what they have written down, and takes that before anybody writes more: a block that one
    /// thread has got and another has given back meanwhile would otherwise end before it begins.
    pub(crate) fn collect_tapes<R>(&self, take: impl FnOnce() -> R) -> R {
        let mut state = self.state.lock();
        self.visit_all(&mut state, |_, cache| {
            cache.tape.iter_mut().for_each(|tape| tape.hand_over());
        });
        state.watch.tape.iter_mut().for_each(Tape::hand_over);
        let taken = take();
        state.threads.open();
        taken
    }

    /// A block that this thread has at hand, of which a note is taken.
    #[inline(never)]
    pub(crate) fn at_hand_noted(
        &self,
        queue: QueueId,
        asked: usize,
        asker: Asker,
    ) -> Option<Grant<A>> {
        let found = threads::with_own(self.id, |key: &Key<A>| {
            key.enter(|cache| {
                let grant = cache.pop_youngest(queue, asked)?;
                Some((
                    begin(cache.tape.as_deref_mut(), &grant.block, asked, asker),
                    grant,
                ))
            })
        })?;
        let (noted, mut grant) = match found? {
            Some(found) => found,
            None => self.by_bin(queue, asked, |cache, grant| {
                begin(cache.tape.as_deref_mut(), &grant.block, asked, asker)
            })?,
        };
        match noted {
            Taken::Yes(None) => {}
            Taken::Yes(Some(behind)) => behind.wait(),
            Taken::NeedsLife => {
                let mut state = self.state.lock();
                state.note_begin(&mut grant.block, asked, asker);
            }
        }
        Some(grant)
    }

    /// Keeps a block at hand that its user is done with, and takes a note of that. What is returned could not be kept.
    pub(crate) fn keep_at_hand_noted(grant: Grant<A>, asked: usize) -> Option<Grant<A>> {
        let (id, since) = (grant.shared.id, grant.shared.clock.now());
        let pushed = threads::with_own_and(id, grant, |key: &Key<A>, grant| {
            key.enter_with(grant, |cache, grant| {
                let life = grant.block.life.as_ref();
                let noted = cache.tape.as_deref_mut().zip(life);
                let behind = noted.and_then(|(tape, life)| tape.end(life));
                (cache.push(grant, since, asked), behind)
            })
        });
        let (pushed, behind) = match pushed {
            Ok(Ok(pushed)) => pushed,
            Ok(Err(left)) | Err(left) => (Err(left), None),
        };
        if let Some(behind) = behind {
            behind.wait();
        }
        pushed.err()
    }
}

impl<A: Allocator> State<A> {
    /// Takes a note of a block that is handed out.
    pub(crate) fn note_begin(&mut self, block: &mut Block<A>, asked: usize, asker: Asker) {
        let Watch { ledger, tape, .. } = &mut self.watch;
        let Some(tape) = tape else { return };
        let queue = block.tenure.queue;
        let life = match &block.life {
            Some(life) => life,
            None => ledger.add(block),
        };
        // Nobody waits for the recorder under this lock.
        let _behind = tape.begin(life, asked, queue, asker);
    }

    /// Takes a note of a block that is taken back.
    pub(crate) fn note_end(&mut self, block: &Block<A>) {
        if let (Some(tape), Some(life)) = (&mut self.watch.tape, &block.life) {
            let _behind = tape.end(life);
        }
    }
}
