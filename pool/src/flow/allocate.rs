//! A request, from the program's call to the block.

use std::{panic::Location, sync::Arc};

use binpool_allocators::{Allocator, Backend, Queue};

use crate::{
    PoolError, PooledBuffer,
    central::{
        ladder::{Ask, Free},
        rules::Limits,
    },
    flow::{make::Entered, thread_cache::Found},
    free::thread_cache::Looked,
    request::{HitKind, Request, Size, to_carve},
    retain::SweepClock,
    shared::{OwnCache, Shared, State, ThreadCache},
    track::caller::Caller,
};
use binpool_lock::{biased::Inside, per_thread as threads};

impl<B: Backend> Shared<B> {
    /// Returns a block for a request that does not fit this thread's youngest block. Out of line and cold, because inlined it would make
    /// the fast path save more registers than it has instructions. For the same reason all its calls are tail calls.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_further(
        self: &Arc<Self>,
        queue: &B::Queue,
        bytes: usize,
    ) -> Result<PooledBuffer<B>, PoolError> {
        // The program's own size classes may be slow, and may use the pool.
        if bytes == 0 || !self.classes.are_known() {
            return self.allocate_beyond(queue, bytes);
        }
        let size = self.size(bytes);
        let beyond = |()| self.allocate_beyond(queue, bytes);
        threads::with_latest_or(self.id, (), beyond, |key: OwnCache<'_, B>, ()| {
            let Some(mut inside) = key.go_in_at_once() else {
                return self.allocate_beyond(queue, bytes);
            };
            match inside.with(|cache| cache.pop_last(queue.id(), size)) {
                Ok(block) => {
                    drop(inside);
                    Ok(PooledBuffer::of_hit(block, bytes))
                }
                Err(looked) => self.allocate_inside(inside, queue, size, looked),
            }
        })
    }

    /// Returns a block for a request that could not look into this thread's cache at once, because the pool tracks its blocks, the gate is
    /// closed or needs a fence, or the thread last used another pool.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn allocate_anywhere(
        self: &Arc<Self>,
        queue: &B::Queue,
        bytes: usize,
    ) -> Result<PooledBuffer<B>, PoolError> {
        let Some(caller) = self.tracking.caller(Location::caller()) else {
            return self.allocate_beyond(queue, bytes);
        };
        let cached = self.take_youngest_tracked(queue.id(), bytes, caller);
        match cached.or_else(|| self.take_cached_tracked(queue.id(), bytes, caller)) {
            Some(block) => Ok(PooledBuffer::of_leased(block, bytes)),
            None => self.serve(queue, bytes, Some(caller)),
        }
    }

    /// Returns a block for a request that has looked nowhere yet, or only at this thread's youngest block. Does not track the block, even
    /// if tracking has begun in the meantime: the request came first.
    #[inline(never)]
    fn allocate_beyond(
        self: &Arc<Self>,
        queue: &B::Queue,
        bytes: usize,
    ) -> Result<PooledBuffer<B>, PoolError> {
        if bytes == 0 {
            return self.serve(queue, bytes, None);
        }
        let size = self.size(bytes);
        let allocated = threads::with_own(self.id, |key: OwnCache<'_, B>| {
            let inside = key.go_in_untracked()?;
            Some(self.allocate_inside(inside, queue, size, Looked::Nowhere))
        });
        allocated
            .flatten()
            .unwrap_or_else(|| self.serve(queue, bytes, None))
    }

    /// Returns a block for a request that has already searched this thread's cache as far as `looked` says. The block comes from the cache,
    /// from a magazine, from the thread's own arena, or else from [`serve`](Self::serve).
    #[inline(never)]
    fn allocate_inside(
        self: &Arc<Self>,
        mut inside: Inside<'_, ThreadCache<B>>,
        queue: &B::Queue,
        size: Size,
        looked: Looked,
    ) -> Result<PooledBuffer<B>, PoolError> {
        let id = queue.id();
        let found = inside.with(|cache| {
            let cached = match looked {
                Looked::Nowhere => cache.pop_any(id, size),
                Looked::AtYoungest => cache.pop(id, size),
                Looked::Everywhere => None,
            };
            match cached {
                Some(block) => Some(Found::Block(block)),
                // The program's own size classes may use the pool, and break its rules.
                None if !self.classes.are_known() => None,
                None => {
                    let bytes = self.alignment.round_up(self.classes.alloc_size(size.bin))?;
                    self.find_beyond_the_cache(cache, id, size, bytes, || self.widened(size.bin))
                }
            }
        });
        drop(inside);
        match found {
            Some(Found::Block(block)) => Ok(PooledBuffer::of_hit(block, size.asked)),
            Some(Found::Range(carved)) => {
                let block = self.hand_out_carved(id, size, carved)?;
                Ok(PooledBuffer::of_hit(block, size.asked))
            }
            None => self.serve(queue, size.asked, None),
        }
    }

    /// Returns a block for a request that this thread's cache cannot serve. Tracks the block if there is a `caller`.
    #[cold]
    #[inline(never)]
    fn serve(
        self: &Arc<Self>,
        queue: &B::Queue,
        bytes: usize,
        caller: Option<Caller>,
    ) -> Result<PooledBuffer<B>, PoolError> {
        let mut result = self.find(queue, bytes);
        if let Some(caller) = caller {
            self.record_result(&mut result, queue.id(), bytes, caller);
        }
        #[cfg(feature = "snapshot")]
        if let Err(PoolError::OutOfMemory(report)) = &result {
            self.write_shortage(report, caller);
        }
        result
    }

    /// Returns a block that is ready for its user: of the right size, and scrubbed if the pool scrubs.
    fn find(
        self: &Arc<Self>,
        queue: &B::Queue,
        bytes: usize,
    ) -> Result<PooledBuffer<B>, PoolError> {
        if bytes == 0 {
            self.state.lock().counters.empty_allocations += 1;
            return Ok(PooledBuffer::new(self, queue, 0, None));
        }
        let size = self.size(bytes);
        let Some(request) = self.request(size)? else {
            self.state.lock().counters.out_of_memory += 1;
            return Err(self.never_fits(bytes));
        };
        let mut block = self.find_unscrubbed(queue, size, request)?;
        tracing::trace!(asked = bytes, bytes = block.class_size(), "allocated");
        if self.scrubber.is_on_hand_out() {
            block.scrub_for(queue)?;
        } else if self.scrubber.is_on_free() {
            block.scrub_after_a_failure(queue)?;
        }
        Ok(block)
    }

    /// Returns how many bytes of the device a new block for a request of `bytes` bytes takes.
    pub(crate) fn class_size(&self, bytes: usize) -> Result<usize, PoolError> {
        if bytes == 0 {
            return Ok(0);
        }
        let Some(request) = self.request(self.size(bytes))? else {
            return Err(self.never_fits(bytes));
        };
        // Computed here, since the program's own size classes may use the pool.
        let widened = self.widened(request.bin);
        let state = self.state.lock();
        Ok(self.as_carved(&state, request, widened).bytes)
    }

    /// Returns the size of a request for `asked` bytes. It may call the program's own size classes, so it runs outside the gate of a
    /// thread cache.
    #[inline]
    pub(crate) fn size(&self, asked: usize) -> Size {
        let bytes = self.alignment.round_up(asked).unwrap_or(asked);
        let bin = self.classes.bin_number(bytes);
        let slot = self.classes.slot(bin);
        Size {
            asked,
            bytes,
            bin,
            slot,
        }
    }

    /// Returns the bin and block size for a request of this size; `None` if it is larger than the device's largest
    /// block. If only the size of its class is too large for the device, the block has the size of the request instead.
    pub(crate) fn request(&self, size: Size) -> Result<Option<Request>, PoolError> {
        let Size {
            asked,
            bytes: rounded,
            bin,
            ..
        } = size;
        let classes = &self.classes;
        let (alignment, largest) = (self.alignment, self.allocator.largest_block());
        let class_size = classes.alloc_size(bin);
        if class_size < rounded || bin >= classes.bin_count() {
            return Err(PoolError::SizeClassTooSmall {
                requested_bytes: rounded,
                class_bytes: class_size,
            });
        }
        let class_size = alignment.round_up(class_size).unwrap_or(class_size);
        let sizes = [class_size, rounded, asked];
        let bytes = sizes.into_iter().find(|size| *size <= largest);
        Ok(bytes.map(|bytes| Request {
            asked,
            bin,
            bytes,
            slot: size.slot,
            home: 0,
        }))
    }
}

impl<B: Backend> Shared<B> {
    /// Returns a block that does not come from this thread's cache: one that is free, or the result of a [climb](Self::climb).
    fn find_unscrubbed(
        self: &Arc<Self>,
        queue: &B::Queue,
        size: Size,
        request: Request,
    ) -> Result<PooledBuffer<B>, PoolError> {
        let has_joined = self.join();
        // Computed here, since the program's own size classes may use the pool.
        let widened = self.widened(request.bin);
        if (has_joined || !self.looks_beyond_the_cache())
            && let Some(block) =
                self.take_beyond_the_cache(queue.id(), size, request.bytes, widened)
        {
            return Ok(PooledBuffer::of_leased(block?, request.asked));
        }
        let mut state = self.lock_and_sync();
        if state.has_viewed() {
            self.return_unviewed_from(state);
            state = self.state.lock();
        }
        let request = self.as_carved(&state, request, widened);
        let queue_key = state.enter(queue);
        let have_doubled = state.queues.have_doubled();
        self.add_spare_leases(&mut state, queue, queue_key);
        let is_sweep_due = state
            .sweep_clock
            .as_mut()
            .is_some_and(SweepClock::allocation);
        let crosses = self.policy.crosses();
        let is_fence_due = crosses && state.is_fence_due(queue_key, request);
        let free = state.free(queue_key, request, |state, from, wanted| {
            self.drain_caches_of(state, from, wanted)
        });
        if let Some(Free::Block(block, kind)) = &free {
            state.activate(request.asked, block, *kind);
            self.prefill(&mut state, queue_key, request);
        }
        drop(state);
        let entered = Entered::new(self, queue_key);
        if have_doubled {
            self.retire_idle_queues(!crosses);
        }
        if is_fence_due {
            self.add_fence_to(queue_key);
        }
        let is_miss = free.is_none();
        if is_sweep_due && is_miss {
            self.sweep();
        }
        let block = match free {
            Some(Free::Block(block, _)) => Some(block),
            Some(Free::Range(carved)) => self
                .view(queue_key, request, carved, HitKind::Carved)?
                .hand_out(request.asked),
            _ => self
                .climb(Ask::for_block(queue_key, request))?
                .hand_out(request.asked),
        };
        let block_and_queue = block.map(|block| (block, entered.keep()));
        let buffer = PooledBuffer::new(self, queue, request.asked, block_and_queue);
        if is_sweep_due && !is_miss {
            self.sweep();
        }
        Ok(buffer)
    }

    /// Returns how much the limits leave at this moment.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            capacity: self.allocator.capacity_bytes(),
            available: self.allocator.available_bytes(),
            largest: self.allocator.largest_block(),
        }
    }

    /// Returns whether a block of `bytes` bytes is free, or the allocator would have room for one after a release of
    /// all free memory.
    pub(crate) fn would_fit(&self, bytes: usize) -> bool {
        self.flush();
        let limits = self.limits();
        let state = self.state.lock();
        if state.largest_held_bytes() >= bytes {
            return true;
        }
        let used = state
            .managed_bytes()
            .saturating_sub(state.releasable_bytes());
        let room = limits.capacity.saturating_sub(used);
        bytes as u64 <= room && !state.is_ruled_out(bytes, limits)
    }

    /// Adapts a request to this thread's arena. A small block is carved with `widened` bytes, which [`widened`](Self::widened) returns.
    fn as_carved(&self, state: &State<B>, request: Request, widened: usize) -> Request {
        if !self.carves {
            return request;
        }
        let home = self.home();
        Request {
            home,
            bytes: to_carve(request.bytes, state.segments.small_bytes(home), || widened),
            ..request
        }
    }

    /// Returns the size with which small blocks of this bin are carved: that of the largest class in the bin's slot of a thread cache. 0 in
    /// a pool that does not carve.
    pub(crate) fn widened(&self, bin: usize) -> usize {
        if !self.carves {
            return 0;
        }
        let slot_size = self.classes.slot_size(bin);
        self.alignment.round_up(slot_size).unwrap_or(slot_size)
    }
}

#[cfg(test)]
mod tests {
    use crate::{PoolOptions, mock_pool::MockPool};

    #[test]
    fn a_small_block_is_carved_with_the_largest_class_of_its_slot() {
        // With this many classes, these two share a slot.
        let (one, larger) = (65 << 10, 66 << 10);
        let mock = MockPool::new(PoolOptions::new().segments(true).leading_bits(10));
        let class_size = |bytes| mock.pool.class_size(bytes).unwrap();
        assert_eq!([one, larger].map(class_size), [one, larger]);
        // A program that has so much in use has small blocks of up to 256 KiB.
        mock.shared
            .state
            .lock()
            .segments
            .grow(0, 4096, 1280 << 20, 256, 4096 << 20);
        let widened = class_size(one);
        assert!(widened > larger);
        assert_eq!(class_size(larger), widened);
        assert_eq!(mock.pool.allocate(one).unwrap().class_size(), widened);
    }
}
