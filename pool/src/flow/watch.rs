//! Tracking of blocks that pass through the caches of threads.

use std::sync::Arc;

use binpool_allocators::{Backend, QueueId};
use binpool_trace::ShortageReport;

use crate::{
    PoolError, PooledBuffer,
    block::Wanted,
    shared::{Block, LeasedBlock, OwnCache, Shared, ThreadCache},
    track::{
        caller::Caller,
        event_buffer::{EventBuffer, Tracked, begin},
        pool_event::PoolEvent,
        ticks::Ticks,
        watch::{TrackingFlag, Watch},
    },
};
use binpool_lock::per_thread as threads;

impl<B: Backend> Shared<B> {
    /// Changes what is tracked. All threads change at the same moment.
    pub(crate) fn change_watch(&self, change: impl FnOnce(&mut Watch)) {
        // The first clock takes up to 0.2 seconds to set up, so this comes before the lock.
        let ticks = Ticks::new();
        let mut state = self.state.lock();
        let state = &mut *state;
        let former = state.watch.recorder.clone();
        // Dropped event buffers hand over their events. The gates stay closed until the end.
        self.visit_all(state, |_, cache| cache.event_buffer = None);
        let watch = &mut state.watch;
        watch.event_buffer = None;
        change(watch);
        let flag = match (watch.options, &watch.recorder) {
            (None, None) => TrackingFlag::NONE,
            (Some(options), _) if options.backtraces => TrackingFlag::WITH_STACKS,
            (Some(options), _) if options.tags_only => TrackingFlag::TAGS,
            _ => TrackingFlag::CALL_SITES,
        };
        if flag == TrackingFlag::NONE {
            watch.allocations.forget_all();
        } else {
            let has_stacks = flag == TrackingFlag::WITH_STACKS;
            watch.event_buffer = Some(EventBuffer::new(ticks, watch.recorder.as_ref(), has_stacks));
        }
        let goes_on = match (&former, &watch.recorder) {
            (Some(former), Some(now)) => Arc::ptr_eq(former, now),
            (_, now) => now.is_none(),
        };
        if !goes_on {
            self.visit_all(state, |state, cache| {
                cache.take(Wanted::All, |cached| state.adopt_into_bin(cached));
            });
            for cached in state.depot.take_all(Wanted::All) {
                state.adopt_into_bin(cached);
            }
            state.begin_recording();
            state.threads.open();
        }
        self.visit_all(state, |state, cache| {
            cache.event_buffer = state.watch.new_event_buffer();
        });
        state.threads.set_tracked(flag != TrackingFlag::NONE);
        self.tracking.change(flag, state.watch.options);
        state.threads.open();
        state.threads.open();
    }

    /// Hands over the events of all threads, and runs `take` on them before any thread records more. Otherwise a block that one thread
    /// allocated and another freed in the meantime could end before it begins.
    pub(crate) fn collect_events<R>(&self, take: impl FnOnce() -> R) -> R {
        let mut state = self.state.lock();
        self.visit_all(&mut state, |_, cache| {
            cache
                .event_buffer
                .iter_mut()
                .for_each(|event_buffer| event_buffer.hand_over());
        });
        state
            .watch
            .event_buffer
            .iter_mut()
            .for_each(EventBuffer::hand_over);
        let taken = take();
        state.threads.open();
        taken
    }

    /// Writes what the pool did into the recording, if there is one. Takes the pool's lock then, so callers must not hold it.
    pub(crate) fn note(&self, event: impl FnOnce() -> PoolEvent) {
        if self.tracking.is_on() {
            self.state.lock().note(event);
        }
    }

    /// Tracks a block that was not in this thread's cache, or has no record yet.
    pub(crate) fn record_allocation(&self, block: &mut Block<B>, asked: usize, caller: Caller) {
        let is_behind = self.state.lock().record_allocation(block, asked, caller);
        if is_behind {
            self.wait_for_recorder();
        }
    }

    /// Tracks the block that a request got, or records why it got none.
    pub(crate) fn record_result(
        &self,
        result: &mut Result<PooledBuffer<B>, PoolError>,
        queue: QueueId,
        asked: usize,
        caller: Caller,
    ) {
        match result {
            Ok(buffer) => {
                if let Some(block) = buffer.block_mut() {
                    self.record_allocation(block, asked, caller);
                }
            }
            Err(PoolError::OutOfMemory(report)) => {
                let report = ShortageReport::from(&**report);
                let is_behind = match &mut self.state.lock().watch.event_buffer {
                    None => false,
                    Some(event_buffer) => event_buffer.refuse(asked, report, queue, caller),
                };
                if is_behind {
                    self.wait_for_recorder();
                }
            }
            Err(_) => {}
        }
    }

    /// Helps the writer of the recording, or waits for it.
    #[cold]
    pub(crate) fn wait_for_recorder(&self) {
        let recorder = self.state.lock().watch.recorder.clone();
        if let Some(recorder) = recorder {
            recorder.wait();
        }
    }

    /// Returns the block that this thread freed last, if it is for a request of `asked` bytes on this queue, and tracks it.
    #[inline]
    pub(crate) fn take_youngest_tracked(
        &self,
        queue: QueueId,
        asked: usize,
        caller: Caller,
    ) -> Option<LeasedBlock<B>> {
        let found = threads::with_latest(self.id, (), |key: OwnCache<'_, B>, ()| {
            let mut inside = key.go_in()?;
            inside.with(move |cache| {
                let cached = cache.pop_youngest(queue, asked)?;
                Some((begin_block(cache, &cached, asked, caller), cached))
            })
        });
        match found.ok()?? {
            (Tracked::Yes, cached) => Some(cached),
            (tracked, cached) => Some(self.track_further(tracked, cached, asked, caller)),
        }
    }

    /// Returns a block from this thread's cache, and tracks it.
    #[inline(never)]
    pub(crate) fn take_cached_tracked(
        &self,
        queue: QueueId,
        asked: usize,
        caller: Caller,
    ) -> Option<LeasedBlock<B>> {
        if asked == 0 {
            return None;
        }
        let size = self.size(asked);
        let found = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            key.enter(|cache| {
                // Again, because nothing has looked at it if the thread last used another pool.
                let youngest = cache.pop_youngest(queue, asked);
                let cached = youngest.or_else(|| cache.pop(queue, size))?;
                Some((begin_block(cache, &cached, asked, caller), cached))
            })
        });
        let (tracked, cached) = found.flatten().flatten()?;
        Some(self.track_further(tracked, cached, asked, caller))
    }

    /// Finishes tracking a block outside the gate: waits for the recorder, or gives the block a record under the pool's lock.
    #[inline(never)]
    fn track_further(
        &self,
        tracked: Tracked,
        mut block: LeasedBlock<B>,
        asked: usize,
        caller: Caller,
    ) -> LeasedBlock<B> {
        match tracked {
            Tracked::Yes => {}
            Tracked::IsBehind => self.wait_for_recorder(),
            Tracked::NeedsRecord => self.record_allocation(&mut block, asked, caller),
        }
        block
    }
}

/// Tracks a block that a thread takes from its own cache.
fn begin_block<B: Backend>(
    cache: &mut ThreadCache<B>,
    block: &Block<B>,
    asked: usize,
    caller: Caller,
) -> Tracked {
    let (event_buffer, record) = (cache.event_buffer.as_deref_mut(), block.record.as_deref());
    begin(event_buffer, record, asked, block.lease.queue, caller)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        panic::Location,
        sync::mpsc,
        thread,
    };

    use binpool_allocators::Queue;

    use crate::{PooledBuffer, WatchOptions, mock_pool::MockPool, track::trace_event::TraceEvent};

    /// A writer that tells of each write, and waits with it until it may go on.
    struct Stuck(mpsc::Sender<()>, mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _told_or_gone = self.0.send(());
            let _gone = self.1.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, for thousands of chunks")]
    fn a_thread_that_is_far_ahead_of_the_recording_waits_for_its_writer() {
        // Often, since the writer may be so fast that a thread which does not wait finds nothing to wait for.
        for _ in 0..10 {
            let mock = MockPool::of_blocks();
            let (began, begins) = mpsc::channel();
            let (go_on, goes_on) = mpsc::channel();
            let recording = mock.pool.record(Stuck(began, goes_on)).unwrap();
            let recorder = mock.shared.state.lock().watch.recorder.clone().unwrap();
            let mut chunk = recorder.first_chunk();
            let mut is_behind_with_one_more = || {
                chunk.events.push(TraceEvent::freed(0, 1));
                recorder.accept(&mut chunk)
            };
            while !is_behind_with_one_more() {}
            begins.recv().unwrap();
            while !is_behind_with_one_more() {}
            let (waits, waiting) = mpsc::channel();
            let releases = thread::spawn(move || {
                waiting.recv().unwrap();
                drop(go_on);
            });
            waits.send(()).unwrap();
            mock.shared.wait_for_recorder();
            assert!(!is_behind_with_one_more());
            releases.join().unwrap();
            recording.finish().unwrap();
        }
    }

    #[test]
    fn a_thread_takes_a_block_that_it_tracks_from_its_own_cache() {
        let mock = MockPool::of_blocks();
        mock.pool.watch(WatchOptions::new());
        let (shared, queue) = (&mock.shared, mock.queue.id());
        let caller = || shared.tracking.caller(Location::caller()).unwrap();
        let blocks = [(); 3].map(|()| mock.pool.allocate(1000).unwrap());
        drop(blocks);
        assert!(
            shared
                .take_youngest_tracked(queue, 5000, caller())
                .is_none()
        );
        let first = shared.take_youngest_tracked(queue, 1000, caller());
        assert!(first.is_some());
        assert!(
            shared
                .take_youngest_tracked(queue, 1000, caller())
                .is_none()
        );
        let second = shared.take_cached_tracked(queue, 1000, caller());
        assert!(second.is_some());
        assert!(shared.take_cached_tracked(queue, 0, caller()).is_none());
        assert!(shared.take_cached_tracked(queue, 5000, caller()).is_none());
        let taken = [first, second].map(|block| PooledBuffer::of_leased(block.unwrap(), 1000));
        assert_eq!(mock.pool.live_blocks().groups[0].blocks, 2);
        drop(taken);
    }
}
