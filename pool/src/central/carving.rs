//! The next step of a request that finds no free range of a segment.

use std::slice;

use binpool_allocators::Backend;

use crate::{
    block::{HeldBlock, Released},
    central::{
        State,
        caches::DrainFrom,
        find::is_own,
        limits::Limits,
        ranges::{Carved, RangeFilter},
    },
    free::cached::Wanted,
    order::{
        queue_uses::QueueUses,
        timestamps::{QueueKey, QueueUse},
    },
    request::{HitKind, Request},
};

/// What fresh memory costs, counted in looks at the commands that hold memory back: a look takes half a microsecond to one, fresh memory
/// 100 us and more (on an H100). Few under `shuttle` and Miri, whose programs are short.
pub(crate) const LOOKS: u32 = if cfg!(any(shuttle, miri)) { 2 } else { 128 };

/// That price doubles for each of these parts of the high water by which the pool exceeds it, because fresh memory stays.
const EXCESS_PARTS: u64 = 16;

/// The most doublings of the price.
const MOST_DOUBLINGS: u64 = 12;

/// The most looks of one request. They take one to two milliseconds on an otherwise idle processor.
pub(crate) const MOST_LOOKS: u32 = 16 * LOOKS;

/// How far a request has come. Each stage is tried once, in this order, except that [`TakeEnded`](Self::TakeEnded) repeats while it is
/// worth looking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CarvingStage {
    /// Quarantined and unscrubbed memory is tried again.
    Retry,
    /// Blocks in bins go back to their segments.
    Drain,
    /// A range that those blocks became part of is taken.
    TakeDrained,
    /// Commands that hold ranges back are looked at.
    Look,
    /// A range whose commands have ended is taken.
    TakeEnded,
    /// A range is taken, and the request waits for its commands.
    Wait,
    /// The allocator is asked for a segment, or for pages.
    Grow,
}

/// What the request does next, without the lock.
#[derive(Debug)]
pub(crate) enum CarvingStep<B: Backend, O> {
    /// Tries quarantined and unscrubbed memory again.
    Retry,
    /// Gives these blocks back to their segments.
    Return(Vec<HeldBlock<B, O>>),
    /// Checks whether the commands of these uses have ended.
    LookAt(QueueUses),
    /// Has this range.
    Take(Carved<B>),
    /// Waits for the commands that use this range, in this way.
    WaitFor(Carved<B>, HitKind),
    /// Releases `leaving`, and asks the allocator for a segment of `bytes` bytes, which is in transit from now on.
    Grow {
        bytes: usize,
        leaving: Vec<Released<B>>,
    },
    /// Maps pages.
    Map,
    /// Fails: limits rule out a further segment or page for the request, whatever is released.
    Refuse,
}

/// The conditions that stay the same while a request is carved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarvingTerms {
    pub(crate) queue_key: QueueKey,
    pub(crate) request: Request,
    /// How the pool's policy waits for a range that commands use; `None` if it does not.
    pub(crate) wait: Option<HitKind>,
    pub(crate) drain_from: DrainFrom,
    /// What segments are rounded up to, in bytes.
    pub(crate) alignment: usize,
    pub(crate) limits: Limits,
    /// Set if the pool's policy lets memory cross from one queue to another.
    pub(crate) crosses: bool,
    /// Set while it is worth looking again at the commands that hold ranges back.
    pub(crate) looks_again: bool,
}

impl<B: Backend, O> State<B, O> {
    /// Returns the next step of a request at this stage, and advances the stage. `drain` takes the wanted blocks out of thread caches, and
    /// returns whether there were any.
    ///
    /// Small blocks stay in the caches. Their ranges can serve only small requests, and such a request takes a further segment for small
    /// blocks instead: refilling the caches costs more than the few bytes that they may have.
    pub(crate) fn next_carving_step(
        &mut self,
        stage: &mut CarvingStage,
        terms: CarvingTerms,
        drain: impl FnOnce(&mut Self, Wanted) -> bool,
    ) -> CarvingStep<B, O> {
        let CarvingTerms {
            queue_key, request, ..
        } = terms;
        if *stage == CarvingStage::Retry {
            *stage = CarvingStage::Drain;
            if !self.quarantine.is_empty() || self.has_unscrubbed() {
                return CarvingStep::Retry;
            }
        }
        if *stage == CarvingStage::Drain {
            let small_bytes = self.segments.small_bytes(request.home);
            let has_drained =
                request.bytes > small_bytes && drain(self, Wanted::LargerThan(small_bytes));
            let cached = self.take_cached();
            *stage = if has_drained || !cached.is_empty() {
                CarvingStage::TakeDrained
            } else {
                CarvingStage::Look
            };
            if !cached.is_empty() {
                return CarvingStep::Return(cached);
            }
        }
        if *stage == CarvingStage::TakeDrained {
            *stage = CarvingStage::Look;
            if terms.drain_from == DrainFrom::All {
                self.steals += 1;
            }
            if let Some(carved) = self.take_range(queue_key, request, RangeFilter::Free) {
                return CarvingStep::Take(carved);
            }
        }
        if *stage == CarvingStage::Look
            && !self.segments.has_pages()
            && self.segments.free_bytes() == 0
        {
            // Nothing is held back that a look or a wait could free.
            *stage = CarvingStage::Grow;
        }
        if *stage == CarvingStage::Look {
            *stage = CarvingStage::TakeEnded;
            let in_the_way = self.ranges_in_the_way(terms);
            if !in_the_way.is_empty() {
                return CarvingStep::LookAt(in_the_way);
            }
        }
        if *stage == CarvingStage::TakeEnded {
            *stage = CarvingStage::Wait;
            self.settle();
            if let Some(carved) = self.take_range(queue_key, request, RangeFilter::Free) {
                return CarvingStep::Take(carved);
            }
            if terms.looks_again && self.held_back_bytes(Some(queue_key)) >= request.bytes as u64 {
                let in_the_way = self.ranges_in_the_way(terms);
                // Ranges that the queue may have as they are need no further look.
                let is_before = |use_: &QueueUse| self.queues.is_before(*use_, queue_key);
                if !in_the_way.iter().all(is_before) {
                    *stage = CarvingStage::TakeEnded;
                    return CarvingStep::LookAt(in_the_way);
                }
            }
        }
        if *stage == CarvingStage::Wait {
            *stage = CarvingStage::Grow;
            if let Some(kind) = terms.wait
                && let Some(carved) = self.take_range(queue_key, request, RangeFilter::Any)
            {
                return CarvingStep::WaitFor(carved, kind);
            }
        }
        if self.is_ruled_out(request.bytes, terms.limits) {
            return CarvingStep::Refuse;
        }
        self.transit.depart(1);
        if self.segments.has_pages() {
            return CarvingStep::Map;
        }
        let (bytes, leaving) =
            self.grow(queue_key, request, terms.alignment, terms.limits.capacity);
        CarvingStep::Grow { bytes, leaving }
    }

    /// The number of further looks that a request may take at the commands that hold memory back, before it asks for fresh memory: until
    /// all looks since the pool last grew have cost as much as that memory.
    pub(crate) fn most_looks(&self, request: Request) -> u32 {
        let in_use = self.bytes_in_use().saturating_add(request.bytes as u64);
        let high_water = self.segments.high_water().max(in_use);
        let excess = self.segments.bytes().saturating_sub(high_water);
        let doublings = excess.saturating_mul(EXCESS_PARTS) / high_water.max(1);
        let price = LOOKS << doublings.min(MOST_DOUBLINGS);
        price.saturating_sub(self.looked)
    }

    /// Counts looks that a request took.
    pub(crate) fn count_looks(&mut self, looks: u32) {
        self.looked = self.looked.saturating_add(looks);
    }

    /// The uses that hold memory back and that the policy lets a request look at, the latest of each queue.
    fn ranges_in_the_way(&self, terms: CarvingTerms) -> QueueUses {
        let held_back = self.holding_back();
        let allowed = held_back.iter().filter(|use_| {
            terms.crosses || is_own(&self.queues, slice::from_ref(*use_), terms.queue_key)
        });
        allowed.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolOptions, ReusePolicy, mock_pool::MockPool};

    const BYTES: usize = 40 << 20;

    /// The names of the steps of a request for the default queue, of which only blocks that go back to their segments are done.
    fn steps(mock: &MockPool, waits: bool) -> Vec<&'static str> {
        steps_within(mock, waits, 1 << 32)
    }

    /// The same where limits leave `available` bytes.
    fn steps_within(mock: &MockPool, waits: bool, available: u64) -> Vec<&'static str> {
        let terms = CarvingTerms {
            queue_key: mock.default_key(),
            request: Request {
                asked: BYTES,
                bin: mock.shared.classes.bin_number(BYTES),
                bytes: BYTES,
                home: 0,
            },
            wait: waits.then_some(HitKind::HostWait),
            drain_from: DrainFrom::Own,
            alignment: 256,
            limits: Limits {
                capacity: 1 << 32,
                available,
            },
            crosses: true,
            looks_again: false,
        };
        let mut stage = CarvingStage::Retry;
        let mut names = Vec::new();
        loop {
            let step = {
                let mut state = mock.shared.state.lock();
                state.next_carving_step(&mut stage, terms, |state, wanted| {
                    let drained = mock.shared.drain_caches_of(state, DrainFrom::All, wanted);
                    drained.threads_had_blocks
                })
            };
            names.push(match step {
                CarvingStep::Retry => "retry",
                CarvingStep::Return(cached) => {
                    for held in cached {
                        mock.shared.return_to_segment(held);
                    }
                    "return"
                }
                CarvingStep::LookAt(_) => "look",
                CarvingStep::Take(_) => "take",
                CarvingStep::WaitFor(..) => "wait",
                CarvingStep::Grow { .. } => "grow",
                CarvingStep::Map => "map",
                CarvingStep::Refuse => "refuse",
            });
            if matches!(names.last(), Some(&("take" | "grow" | "refuse"))) {
                return names;
            }
        }
    }

    #[test]
    fn a_pool_that_holds_nothing_asks_the_allocator_at_once() {
        let mock = MockPool::of_segments();
        for waits in [false, true] {
            assert_eq!(steps(&mock, waits), ["grow"]);
        }
    }

    #[test]
    fn a_block_that_was_used_on_the_same_queue_is_had_without_a_look() {
        let mock = MockPool::of_segments();
        drop(mock.pool.allocate(BYTES).unwrap());
        assert_eq!(steps(&mock, false), ["take"]);
    }

    #[test]
    fn a_range_that_another_queue_uses_is_looked_at_and_waited_for_before_a_segment_is_made() {
        for (waits, expected) in [
            (false, &["look", "grow"][..]),
            (true, &["look", "wait", "grow"]),
        ] {
            let mock = MockPool::of_segments();
            let other = mock.another_queue();
            drop(mock.pool.allocate_on(&other, BYTES).unwrap());
            assert_eq!(steps(&mock, waits), expected);
        }
    }

    #[test]
    fn a_request_that_waits_for_a_range_looks_once_whether_its_commands_have_ended() {
        let options = PoolOptions::new().segments(true);
        let mock = MockPool::new(options.reuse(ReusePolicy::WaitOnHost));
        let other = mock.another_queue();
        let block = mock.pool.allocate_on(&other, BYTES).unwrap();
        block.enqueue_fill(&other, .., &[7_u8]).unwrap();
        drop(block);
        let block = mock.pool.allocate(BYTES).unwrap();
        assert_eq!(mock.pool.statistics().host_wait_hits, 1);
        assert_eq!(mock.shared.state.lock().looked, 0, "it did not look again");
        drop(block);
    }

    #[test]
    fn looks_have_their_price_again_once_pages_were_added() {
        let mock = MockPool::of_pages();
        let looked = || mock.shared.state.lock().looked;
        mock.shared.state.lock().count_looks(3);
        let block = mock.pool.allocate(BYTES).unwrap();
        assert_eq!(looked(), 0);
        drop(block);
    }

    #[test]
    fn a_limit_that_rules_a_request_out_refuses_it_before_segments_are_released() {
        let mock = MockPool::of_segments();
        // Another queue's, so that the request gets none of it.
        let other = mock.another_queue();
        let block = mock.pool.allocate_on(&other, BYTES / 2).unwrap();
        let free = mock.pool.managed_bytes() - (BYTES / 2) as u64;
        assert_eq!(free, 0, "a segment of the block alone");
        assert_eq!(steps_within(&mock, false, BYTES as u64 - 1), ["refuse"]);
        drop(block);
        mock.shared.flush();
        let least = (BYTES - BYTES / 2) as u64;
        let last = |available| steps_within(&mock, false, available).pop();
        assert_eq!(last(least - 1), Some("refuse"));
        assert_eq!(mock.pool.managed_bytes(), (BYTES / 2) as u64);
        assert_eq!(last(least), Some("grow"));
    }
}
