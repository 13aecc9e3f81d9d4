//! Builds a pool from its settings.

use std::{any::type_name, sync::Arc};

use binpool_allocators::{
    Allocator, Backend, Error, Queue, QueueOf,
    adaptors::{Budget, Limit},
};
use crossbeam_utils::CachePadded;
use parking_lot::Condvar;

use crate::{
    LeadingBits, MemoryPool, PoolError, PoolOptions, ScrubPolicy,
    central::{homes::ARENAS, rules::Rules},
    classes::Classes,
    hooks::Hooks,
    options::{ChosenClasses, ChosenLimit},
    order::{queue_uses::join, timestamps::Clock},
    scrubber::Scrubber,
    shared::{Shared, State},
    track::watch::TrackingFlag,
};
use binpool_lock::{per_thread::PoolId, spin_lock::Lock};
use binpool_segments::{GrowthPolicy, Segments};

/// The leading bits for pools with segments: a free range serves any class, so fine classes cost no hits and waste
/// less.
const LEADING_BITS_WITH_SEGMENTS: u32 = 8;

impl PoolOptions {
    /// Builds a pool over `allocator`, whose blocks are for `queue` unless their allocation names another.
    ///
    /// A deferred allocator is accepted, with a warning through `tracing`: a pool over it does not see out-of-memory
    /// errors, so it cannot act on them.
    ///
    /// # Errors
    ///
    /// [`PoolError::LeadingBits`] for more leading bits than permitted, [`Unsupported`](crate::Error::Unsupported) for a pool of
    /// [pages](Allocator::page_bytes) without segments or that scrubs on free,
    /// [`ForeignObject`](crate::InvalidRequest::ForeignObject) for a queue of another backend, and an error of the
    /// backend if a pool that [scrubs on free](ScrubPolicy::OnFree) gets no queue of its own.
    pub fn build<A: Allocator>(
        self,
        allocator: A,
        queue: &QueueOf<A>,
    ) -> Result<MemoryPool<A::Backend>, PoolError> {
        let carves = !self.bins_only;
        let leading_bits = if carves {
            LEADING_BITS_WITH_SEGMENTS
        } else {
            LeadingBits::default().bits()
        };
        let classes = match self.classes {
            None => Classes::from(LeadingBits::new(leading_bits)?),
            Some(ChosenClasses::LeadingBits(bits)) => Classes::from(LeadingBits::new(bits)?),
            Some(ChosenClasses::Given(classes)) => Classes::from(classes),
        };
        allocator.backend().check_queue(queue)?;
        if allocator.is_deferred() {
            tracing::warn!(
                ?allocator,
                "a pool over a deferred allocator: out-of-memory will show in commands, where the pool \
                 cannot free anything; use an `ImmediateAllocator`"
            );
        }
        let page_bytes = allocator.page_bytes();
        if page_bytes.is_some() && self.bins_only {
            let refused =
                "a pool without segments over pages: pages have no addresses of their own";
            return Err(Error::unsupported(refused).into());
        }
        if page_bytes.is_some() && self.scrub == ScrubPolicy::OnFree {
            let refused = "scrubbing on free by a pool of pages: scrub on hand-out instead";
            return Err(Error::unsupported(refused).into());
        }
        let budget = match self.limit {
            ChosenLimit::Bytes(bytes) => Budget::new(bytes),
            ChosenLimit::Shared(budget) => budget,
        };
        let scrubber = Scrubber::new(self.scrub, allocator.backend())?;
        let clock = Arc::<Clock>::default();
        let alignment = if carves {
            // Views of segments need the alignment of the device's buffers, even if the allocator's own blocks need
            // less.
            allocator
                .alignment()
                .max(allocator.backend().limits().alignment)
        } else {
            allocator.alignment()
        };
        // These settings need to see each block at once, so such pools have no thread caches.
        let failures = allocator.backend().limits().failure_order;
        let has_thread_caches = !self.retain.counts_requests() && self.scrub == ScrubPolicy::Never;
        // What goes back as soon as it is free lies in segments that can go.
        let goes_back = self.retain.release_threshold() < u64::MAX;
        let growth = if goes_back {
            GrowthPolicy::Dense
        } else {
            self.growth
        };
        let segments = Segments::new(join)
            .with_arenas(self.arenas.unwrap_or(ARENAS).clamp(1, ARENAS))
            .with_growth(growth);
        let rules = Rules {
            crosses: self.policy.crosses(),
            wait: self.policy.waits(failures),
            retain: self.retain,
            alignment: alignment.bytes(),
            default_queue: queue.id(),
            move_percent: self.move_percent.unwrap_or(1),
        };
        let state = State::new(
            queue,
            failures,
            Arc::clone(&clock),
            carves,
            match page_bytes {
                Some(page_bytes) => segments.with_pages(page_bytes),
                None if allocator.views_are_addresses() => segments.without_cached_views(),
                None => segments,
            },
            rules,
        );
        let shared = Shared {
            id: PoolId::fresh(),
            backend: allocator.backend().clone(),
            default_queue: queue.clone(),
            default_queue_id: queue.id(),
            alignment,
            has_thread_caches,
            clock,
            classes,
            policy: self.policy,
            carves,
            growth,
            retain: self.retain,
            scrubber,
            hooks: Hooks::default(),
            tracking: TrackingFlag::default(),
            #[cfg(feature = "snapshot")]
            snapshots: self.snapshots,
            failures,
            depot: Arc::clone(&state.depot),
            state: CachePadded::new(Lock::new(state)),
            arrived: Condvar::new(),
            allocator_name: type_name::<A>(),
            allocator: Arc::new(Limit::shared(allocator, &budget)),
            budget,
        };
        Ok(MemoryPool::assemble(shared))
    }
}
