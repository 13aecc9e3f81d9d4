//! Tracking of blocks that pass through the caches of threads.

use binpool_allocators::{Allocator, QueueId};

use crate::{
    lock::per_thread as threads,
    shared::{Block, CachedBlock, OwnCache, Shared, ThreadCache},
    sync::Ordering,
    track::{
        caller::Caller,
        event_buffer::{EventBuffer, Tracked, begin},
        ticks::Ticks,
        watch::{TrackingFlag, Watch},
    },
};

impl<A: Allocator> Shared<A> {
    /// Changes what is tracked. All threads change at the same moment.
    pub(crate) fn change_watch(&self, change: impl FnOnce(&mut Watch)) {
        // The first clock takes up to 0.2 seconds to set up, so this comes before the lock.
        let ticks = Ticks::new();
        let mut state = self.state.lock();
        let state = &mut *state;
        // Dropped event buffers hand over their events. The gates stay closed until the end.
        self.visit_all(state, |_, cache| cache.event_buffer = None);
        let watch = &mut state.watch;
        watch.event_buffer = None;
        change(watch);
        let flag = match (watch.options, &watch.recorder) {
            (None, None) => TrackingFlag::NONE,
            (Some(options), _) if options.backtraces => TrackingFlag::WITH_STACKS,
            _ => TrackingFlag::CALL_SITES,
        };
        if flag == TrackingFlag::NONE {
            watch.allocations.forget_all();
        } else {
            let mut event_buffer = EventBuffer::new(ticks, watch.recorder.as_ref());
            for (record, ownership) in watch.allocations.active() {
                event_buffer.adopt(record, ownership);
            }
            watch.event_buffer = Some(event_buffer);
        }
        self.visit_all(state, |state, cache| {
            cache.event_buffer = state.watch.new_event_buffer();
        });
        state.threads.set_tracked(flag != TrackingFlag::NONE);
        self.tracking.0.store(flag, Ordering::Relaxed);
        state.threads.open();
        state.threads.open();
    }

    /// Hands over the events of all threads, and runs `take` on them before any thread writes more. Otherwise a block
    /// that one thread allocated and another freed meanwhile could end before it begins.
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

    /// Returns a block from this thread's cache, and tracks it.
    #[inline(never)]
    pub(crate) fn take_cached_tracked(
        &self,
        queue: QueueId,
        asked: usize,
        caller: Caller,
    ) -> Option<CachedBlock<A>> {
        if asked == 0 {
            return None;
        }
        let found = threads::with_own(self.id, |key: &OwnCache<A>| {
            key.enter(|cache| {
                let cached = cache.pop_youngest(queue, asked)?;
                Some((begin_block(cache, &cached.block, asked, caller), cached))
            })
        })?;
        let (tracked, mut cached) = match found? {
            Some(found) => found,
            None => self.take_by_bin(queue, self.size(asked), |cache, cached| {
                begin_block(cache, &cached.block, asked, caller)
            })?,
        };
        match tracked {
            Tracked::Yes(None) => {}
            Tracked::Yes(Some(recorder)) => recorder.wait(),
            Tracked::NeedsRecord => {
                let mut state = self.state.lock();
                state.record_allocation(&mut cached.block, asked, caller);
            }
        }
        Some(cached)
    }

    /// Caches a block that its user freed, and tracks that. Returns the block if it could not be cached.
    pub(crate) fn cache_tracked(cached: CachedBlock<A>, asked: usize) -> Option<CachedBlock<A>> {
        let (id, since) = (cached.shared.id, cached.shared.clock.now());
        let pushed = threads::with_own_and(id, cached, |key: &OwnCache<A>, cached| {
            key.enter_with(cached, |cache, cached| {
                let record = cached.block.record.as_ref();
                let tracked = cache.event_buffer.as_deref_mut().zip(record);
                let recorder = tracked.and_then(|(event_buffer, record)| event_buffer.end(record));
                (cache.push(cached, since, asked), recorder)
            })
        });
        let (pushed, recorder) = match pushed {
            Ok(Ok(pushed)) => pushed,
            Ok(Err(left)) | Err(left) => (Err(left), None),
        };
        if let Some(recorder) = recorder {
            recorder.wait();
        }
        pushed.err()
    }
}

/// Tracks a block that a thread takes from its own cache.
fn begin_block<A: Allocator>(
    cache: &mut ThreadCache<A>,
    block: &Block<A>,
    asked: usize,
    caller: Caller,
) -> Tracked {
    let (event_buffer, record) = (cache.event_buffer.as_deref_mut(), block.record.as_deref());
    begin(event_buffer, record, asked, block.lease.queue, caller)
}
