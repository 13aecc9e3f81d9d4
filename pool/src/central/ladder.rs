//! The ladder: what a request that the cache of its thread cannot serve tries, in order, until it has memory.
//!
//! [`State::next_step`] decides under the pool's lock what comes next, and calls nothing: no device, no allocator, no hook.
//! [`climb`](crate::shared::Shared::climb) carries that out without the lock, and asks again. A step is taken only if all earlier ones found
//! nothing.
//!
//! 1. Memory that the queue may have at once: a block of the class, or a range of a segment ([`State::free`]).
//! 2. A block of the class that commands keep from the queue: after a check whether they have ended, or a wait for them if the policy waits.
//! 3. A block of a queue that the program is done with.
//! 4. In a pool of bins above its high water: a larger block. If there is none, free blocks are released.
//! 5. In a pool of segments or pages: quarantined and unscrubbed memory is tried again, and cached blocks go back to their segments. At a low
//!    point of the program, a plan may then take the place of idle segments. Otherwise a range is taken: at once; or once commands have been
//!    checked, again and again while that is cheaper than new memory; or after a wait.
//! 6. New memory: a block of its own, a segment, or pages.
//!
//! If the allocator refuses, the device is full. The thread caches stay closed from here on. Each of the following steps is followed by one
//! [round](Rung::Gather): all free memory is gathered; a held block is taken if it is large enough and not much too large, or a range; free
//! memory goes back to the allocator; and the allocator is asked again.
//!
//! 7. Just the round. It releases only what is needed, and may take a larger block after a wait if the policy waits. Unless it releases something,
//!    or has to wait for commands, it does not ask the allocator again.
//! 8. The same, with all free memory released.
//! 9. The program's hooks, one after the other. A hook that freed something is called again.
//! 10. A wait for each queue whose commands hold memory back, then for memory that other threads have in transit. This is repeated while other
//!     threads make progress, at most 100 times.
//!
//! Finally the request is refused, with a report. Nothing is released for a request that could not fit even if everything were released.
//!
//! A pool of bins has no ranges, and skips the steps for them. Pages for a block that [grows](crate::GrowableBuffer) start at step 6, and no held
//! block can serve them.

use std::slice;

use binpool_allocators::{Backend, Error};

use binpool_segments::{NewPlan, Review, Reviewed};

use crate::{
    block::{BlockBox, HeldBlock, Released, Wanted},
    central::{
        State,
        caches::{DrainFrom, Drained},
        find::is_own,
        ranges::{Carved, RangeFilter},
        rules::{Limits, Rules},
    },
    order::{
        queue_uses::QueueUses,
        timestamps::{QueueKey, QueueUse},
    },
    rare::{Rare, reached},
    request::{HitKind, Request},
};

/// If a new block would exceed the high water, a request gets a free block that is up to this percentage larger. In recorded programs that
/// saves a tenth to a half of the calls to the device, and larger blocks than these save few more.
const MOST_LARGER_PERCENT: usize = 50;

/// The same limit after the program has requested again as many released bytes as it had in use at its peak. Without a limit, small
/// requests would take the large blocks, and pools of the recorded programs would reserve twice what is live.
const MOST_LARGER_PERCENT_REPEATED: usize = 200;

/// The largest held block that may serve a request when the device is full, in multiples of the request. A larger one is released instead,
/// to make room for blocks of the right size: otherwise one recorded program had half of its memory in blocks a hundred times too large.
const MAX_SIZE_RATIO: usize = 2;

/// What fresh memory costs, counted in looks at the commands that hold memory back: a look takes half a microsecond to one, fresh memory
/// 100 us and more (on an H100). Few under `shuttle` and Miri, whose programs are short.
pub(crate) const LOOKS: u32 = if cfg!(any(shuttle, miri)) { 2 } else { 128 };

/// That price doubles for every part of this size of the high water by which the pool exceeds it, because fresh memory stays.
const EXCESS_PARTS: u64 = 16;

/// The most doublings of the price.
const MOST_DOUBLINGS: u64 = 12;

/// The most looks of one request. They take one to two milliseconds on an otherwise idle processor.
const MOST_LOOKS: u32 = 16 * LOOKS;

/// The most times that a request waits for all queues again, while other threads allocate and free.
const MOST_PASSES: u32 = 100;

/// What is tried next. In the order of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rung {
    Look,
    AfterLook,
    Retire,
    AfterRetire,
    HighWater,
    Larger,
    Excess,
    Retry,
    Return,
    LowPoint,
    BeforeReview,
    Review,
    AfterReturn,
    LookAtRanges,
    AfterLookAtRanges,
    WaitForRange,
    New,
    /// The allocator has refused for the first time.
    Full,
    ReleaseAll,
    Hook,
    AfterHook,
    Queues,
    Queue,
    Transit,
    /// The start of a round.
    Gather,
    Held,
    HeldLarger,
    Release,
}

/// A request on the ladder.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) queue_key: QueueKey,
    pub(crate) request: Request,
    /// As they were before the lock was taken for the next step. Read for steps that [need](Self::needs_limits) them.
    pub(crate) limits: Limits,
    /// Whether the last step did something: a check found commands that had ended, or was the first one; dropped blocks were released; a hook
    /// was called.
    pub(crate) answer: bool,
    /// The last bin whose blocks may serve the request.
    pub(crate) last_bin: usize,
    /// The allocator's last refusal.
    pub(crate) refusal: Option<Error>,
    pub(crate) released_bytes: u64,
    /// Set if a queue that holds memory back could not be waited for.
    pub(crate) wait_failed: bool,
    /// What a [review](Step::Review) has found.
    pub(crate) reviewed: Option<Box<Reviewed>>,
    rung: Rung,
    /// Set if the request is for pages of a block that grows.
    is_for_pages: bool,
    looks_left: u32,
    /// Set while there is no use in asking the allocator again unless something is released.
    asks_only_after_release: bool,
    /// How much a round releases at least, in bytes, if that much is free.
    enough: u64,
    /// Where the ladder goes on after a round.
    after_round: Rung,
    /// The first bin whose blocks were not waited for yet.
    next_bin: usize,
    /// The queues that hold memory back and are yet to be waited for.
    holding_back: Vec<QueueUse>,
    /// The pool's count of changes at the start of the last round, plus this request's own changes since.
    changes: u64,
    passes: u32,
}

impl Ask {
    /// A request that found nothing [free](State::free).
    pub(crate) fn for_block(queue_key: QueueKey, request: Request) -> Self {
        Self {
            queue_key,
            request,
            limits: Limits::default(),
            answer: false,
            last_bin: 0,
            refusal: None,
            released_bytes: 0,
            wait_failed: false,
            reviewed: None,
            rung: Rung::Look,
            is_for_pages: false,
            looks_left: MOST_LOOKS,
            asks_only_after_release: false,
            enough: 0,
            after_round: Rung::Full,
            next_bin: 0,
            holding_back: Vec::new(),
            changes: 0,
            passes: 0,
        }
    }

    /// A request for pages of a block that grows.
    pub(crate) fn for_pages(queue_key: QueueKey, request: Request) -> Self {
        Self {
            rung: Rung::New,
            is_for_pages: true,
            ..Self::for_block(queue_key, request)
        }
    }

    /// Returns whether the next step may depend on the limits. A pool of bins that has room does not ask for them.
    pub(crate) fn needs_limits(&self, carves: bool) -> bool {
        carves || self.rung > Rung::HighWater
    }

    /// Goes on at `next` after this step.
    fn go_to<S>(&mut self, next: Rung, step: Option<S>) -> Option<S> {
        self.rung = next;
        step
    }

    /// Begins a round after this step. It releases `enough` bytes, and goes on at `after` if it finds nothing. With `asks_only_after_release`, the
    /// allocator is asked only if that releases anything.
    fn begin_round<S>(
        &mut self,
        enough: u64,
        after: Rung,
        asks_only_after_release: bool,
        step: Option<S>,
    ) -> Option<S> {
        self.enough = enough;
        self.after_round = after;
        self.asks_only_after_release = asks_only_after_release;
        self.go_to(Rung::Gather, step)
    }
}

/// What a request finds that may have it at once.
#[derive(Debug)]
pub(crate) enum Free<B: Backend, O> {
    Block(BlockBox<B, O>, HitKind),
    Range(Carved<B>),
}

/// Something that [`climb`](crate::shared::Shared::climb) does for a request without the lock.
#[derive(Debug)]
pub(crate) enum Step<B: Backend, O> {
    /// The request has this block.
    Block(BlockBox<B, O>, HitKind),
    /// The request has this range. In a box, as a step would be three times as large otherwise, and some threads have small stacks.
    Range(Box<Carved<B>>),
    /// The request has this block once its commands have ended, or the queue waits for them.
    WaitForBlock(HeldBlock<B, O>, HitKind),
    /// The same for a range.
    WaitForRange(Box<Carved<B>>, HitKind),
    /// Checks whether the commands of these uses have ended: once, or as often as this until some have.
    Look(QueueUses, Option<u32>),
    /// Drops idle queues.
    RetireQueues,
    /// Tries quarantined and unscrubbed memory again.
    Retry,
    /// Puts these blocks back into their segments.
    Return(Vec<HeldBlock<B, O>>),
    /// Checks whether a plan would save memory.
    Review(Box<Review>),
    /// Takes the blocks out of all caches. Blocks of at most this many bytes may serve the request.
    Flush(usize),
    /// Gathers all free memory: takes the blocks out of all caches, and checks which commands have ended and which views and dropped blocks are
    /// gone. Blocks of at most this many bytes may serve the request.
    Gather(usize),
    /// Releases this to the allocator.
    Release(Vec<Released<B>>),
    /// Asks the allocator, and the device how much of it is free if it `asks_free`.
    New { new: New<B>, asks_free: bool },
    /// Closes the thread caches until the request has ended.
    CloseCaches,
    /// Calls the next hook.
    Hook,
    /// Waits for a queue that holds memory back.
    WaitForQueue(QueueUse),
    /// Waits for memory that other threads have in transit.
    WaitForTransit,
    /// Fails, with a report.
    Refuse,
}

/// What the allocator is asked for.
#[derive(Debug)]
pub(crate) enum New<B: Backend> {
    /// A block of its own, or pages for one that grows.
    Block,
    /// A segment of this many bytes, after `leaving` is released. In transit from now on.
    Segment {
        bytes: usize,
        leaving: Vec<Released<B>>,
    },
    /// Pages at addresses that the pool has reserved. In transit from now on.
    Pages,
    /// Memory for a plan, after `leaving` is released; then that of the request, if the plan has no place for it.
    Planned {
        plan: NewPlan,
        leaving: Vec<Released<B>>,
    },
}

impl<B: Backend, O> State<B, O> {
    /// Step 1: takes memory that the queue may have at once. `drain` takes blocks out of the thread caches: in a pool of bins, those of other
    /// threads serve a request, too.
    pub(crate) fn free(
        &mut self,
        queue_key: QueueKey,
        request: Request,
        drain: impl FnOnce(&mut Self, DrainFrom, Wanted) -> Drained,
    ) -> Option<Free<B, O>> {
        if let Some(block) = self.pop(queue_key, request) {
            return Some(Free::Block(block, HitKind::Ready));
        }
        if self.carves {
            if let Some(carved) = self.take_range(queue_key, request, RangeFilter::Free) {
                return Some(Free::Range(carved));
            }
        } else {
            let from = self.caches_to_drain();
            let drained = drain(self, from, Wanted::Slot(request.slot));
            if drained.threads_had_blocks && from == DrainFrom::All {
                reached(Rare::Stolen);
                self.steals += 1;
            }
            if (drained.threads_had_blocks || drained.depot_had_blocks)
                && let Some(block) = self.pop(queue_key, request)
            {
                return Some(Free::Block(block, HitKind::Ready));
            }
        }
        let block = self.pop_ready(queue_key, request, self.rules.crosses)?;
        Some(Free::Block(block, HitKind::Ended))
    }

    /// Returns the next step of a request that has not found anything yet.
    pub(crate) fn next_step(
        &mut self,
        ask: &mut Ask,
        mut drain: impl FnMut(&mut Self, DrainFrom, Wanted) -> Drained,
    ) -> Step<B, O> {
        loop {
            if let Some(step) = self.try_rung(ask, &mut drain) {
                return step;
            }
        }
    }

    /// Returns what the request's present rung finds to do, if anything, and goes on to the next.
    fn try_rung(
        &mut self,
        ask: &mut Ask,
        drain: &mut impl FnMut(&mut Self, DrainFrom, Wanted) -> Drained,
    ) -> Option<Step<B, O>> {
        let Ask {
            queue_key, request, ..
        } = *ask;
        let crosses = self.rules.crosses;
        match ask.rung {
            // 2. Blocks of the class that commands keep from the queue.
            Rung::Look => {
                let uses = self.in_the_way(queue_key, request, crosses);
                // Without any, there is no block to wait for either.
                if uses.is_empty() {
                    return ask.go_to(Rung::Retire, None);
                }
                ask.go_to(Rung::AfterLook, Some(Step::Look(uses, None)))
            }
            Rung::AfterLook => {
                let ended = self.pop_ready(queue_key, request, crosses);
                let ended = ended.map(|block| Step::Block(block, HitKind::Ended));
                let step = ended.or_else(|| self.oldest_after_a_wait(queue_key, request));
                ask.go_to(Rung::Retire, step)
            }
            // 3. Queues that no thread uses any more leave their blocks to all others.
            Rung::Retire => {
                let mut queues = self.queues.iter();
                if queues.any(|(_, queue)| self.rules.may_retire(queue, !crosses)) {
                    return ask.go_to(Rung::AfterRetire, Some(Step::RetireQueues));
                }
                ask.go_to(Rung::HighWater, None)
            }
            Rung::AfterRetire => {
                let block = self.pop(queue_key, request);
                let step = block.map(|block| Step::Block(block, HitKind::Ended));
                ask.go_to(Rung::HighWater, step)
            }
            // 4. A pool of bins keeps to its high water.
            Rung::HighWater if self.carves => ask.go_to(Rung::Retry, None),
            Rung::HighWater if self.excess_above(request) == 0 => ask.go_to(Rung::New, None),
            Rung::HighWater => {
                let most = self.most_larger(request);
                ask.go_to(Rung::Larger, Some(Step::Flush(most)))
            }
            Rung::Larger => {
                let step = self.larger_or_gather(ask);
                ask.go_to(Rung::Excess, step)
            }
            Rung::Excess => {
                let step = self.release_excess(ask);
                ask.go_to(Rung::New, step)
            }
            // 5. Segments: free neighbours become one range again, and commands end.
            Rung::Retry => {
                let has_any = !self.quarantine.is_empty() || self.has_unscrubbed();
                ask.go_to(Rung::Return, has_any.then_some(Step::Retry))
            }
            Rung::Return => {
                let has_drained = self.drain_for_range(request, drain);
                let cached = self.take_cached();
                let is_low = self.segments.is_at_low_point(request.home, request.bytes);
                if cached.is_empty() && !has_drained && !is_low {
                    return ask.go_to(Rung::LookAtRanges, None);
                }
                let step = (!cached.is_empty()).then_some(Step::Return(cached));
                let next = if is_low {
                    Rung::LowPoint
                } else {
                    Rung::AfterReturn
                };
                ask.go_to(next, step)
            }
            Rung::LowPoint | Rung::BeforeReview | Rung::Review => self.try_rung_at_low_point(ask),
            Rung::AfterReturn => {
                let found = self.range_at_once(ask);
                ask.go_to(Rung::LookAtRanges, found)
            }
            Rung::LookAtRanges => {
                ask.answer = false;
                if !self.segments.has_pages() && self.segments.free_bytes() == 0 {
                    // Nothing is held back that a look or a wait could free.
                    return ask.go_to(Rung::New, None);
                }
                let uses = self.ranges_in_the_way(queue_key);
                let look = (!uses.is_empty()).then_some(Step::Look(uses, None));
                ask.go_to(Rung::AfterLookAtRanges, look)
            }
            Rung::AfterLookAtRanges => {
                self.settle();
                let found = self.range_at_once(ask);
                match found.or_else(|| self.look_again(ask)) {
                    None => ask.go_to(Rung::WaitForRange, None),
                    step => ask.go_to(Rung::AfterLookAtRanges, step),
                }
            }
            Rung::WaitForRange => {
                let waited = self.rules.wait.and_then(|kind| {
                    let carved = self.take_range(queue_key, request, RangeFilter::Any)?;
                    Some(Step::WaitForRange(Box::new(carved), kind))
                });
                ask.go_to(Rung::New, waited)
            }
            // 6. The allocator.
            Rung::New => {
                let step = self.new_memory(ask);
                ask.go_to(ask.after_round, step)
            }
            _ => self.try_rung_when_full(ask),
        }
    }

    /// The rest of [`try_rung`](Self::try_rung), after the allocator has refused.
    #[cold]
    fn try_rung_when_full(&mut self, ask: &mut Ask) -> Option<Step<B, O>> {
        let request = ask.request;
        match ask.rung {
            // 7. The device is full.
            Rung::Full if self.is_beyond_all(ask) => ask.go_to(Rung::Full, Some(Step::Refuse)),
            Rung::Full => {
                // Memory that was released before may be free now, because its commands have ended in the meantime.
                let asks_only_after_release = ask.is_for_pages || self.holding_back().is_empty();
                let enough = request.bytes as u64;
                let step = Some(Step::CloseCaches);
                ask.begin_round(enough, Rung::ReleaseAll, asks_only_after_release, step)
            }
            // 8. All free memory is released.
            Rung::ReleaseAll => {
                ask.begin_round(u64::MAX, Rung::Hook, ask.asks_only_after_release, None)
            }
            // 9. Hooks, as long as there is one to call.
            Rung::Hook => ask.go_to(Rung::AfterHook, Some(Step::Hook)),
            Rung::AfterHook if std::mem::take(&mut ask.answer) => {
                ask.begin_round(u64::MAX, Rung::Hook, false, None)
            }
            Rung::AfterHook => ask.go_to(Rung::Queues, None),
            // 10. Queues that hold memory back, one after the other, and other threads.
            Rung::Queues => {
                ask.holding_back = self.holding_back().iter().rev().copied().collect();
                ask.passes += 1;
                if ask.holding_back.is_empty() {
                    return ask.begin_round(u64::MAX, Rung::Transit, false, None);
                }
                ask.go_to(Rung::Queue, None)
            }
            Rung::Queue => match ask.holding_back.pop() {
                None => ask.go_to(Rung::Transit, None),
                Some(use_) => {
                    let step = Some(Step::WaitForQueue(use_));
                    ask.begin_round(u64::MAX, Rung::Queue, false, step)
                }
            },
            Rung::Transit if self.transit.is_worth_a_wait() => {
                ask.go_to(Rung::Transit, Some(Step::WaitForTransit))
            }
            Rung::Transit if self.may_go_on(ask) => ask.go_to(Rung::Queues, None),
            // The round.
            Rung::Gather => {
                ask.changes = self.changes;
                ask.go_to(Rung::Held, Some(self.gather(ask)))
            }
            Rung::Held => {
                ask.asks_only_after_release &= !std::mem::take(&mut ask.answer);
                ask.next_bin = request.bin;
                ask.go_to(Rung::HeldLarger, self.held(ask))
            }
            Rung::HeldLarger => match self.larger_after_a_wait(ask) {
                None => ask.go_to(Rung::Release, None),
                step => ask.go_to(Rung::HeldLarger, step),
            },
            Rung::Release => {
                let released = self.release_for(ask);
                if ask.asks_only_after_release && released.is_empty() {
                    return ask.go_to(ask.after_round, None);
                }
                ask.go_to(Rung::New, release(released))
            }
            // Only `Transit` is left.
            _ => ask.go_to(Rung::Transit, Some(Step::Refuse)),
        }
    }

    /// Takes the block of exactly this bin with the oldest uses, if the policy waits for it.
    fn oldest_after_a_wait(&mut self, queue_key: QueueKey, request: Request) -> Option<Step<B, O>> {
        let kind = self.rules.wait?;
        let held = self.take_oldest(queue_key, request)?;
        Some(Step::WaitForBlock(held, kind))
    }

    /// Returns the most bytes of a larger block for a request for which the pool would exceed its high water.
    fn most_larger(&mut self, request: Request) -> usize {
        let percent = if self.regrets(request) {
            MOST_LARGER_PERCENT_REPEATED
        } else {
            MOST_LARGER_PERCENT
        };
        let larger = (request.bytes / 100).saturating_mul(percent);
        request.bytes.saturating_add(larger)
    }

    /// Takes a larger block, or gathers all free memory, unless a release would not make room for the request.
    fn larger_or_gather(&mut self, ask: &Ask) -> Option<Step<B, O>> {
        let (bytes, crosses) = (ask.request.bytes, self.rules.crosses);
        if let Some((block, kind)) =
            self.pop_up_to(ask.last_bin, ask.queue_key, ask.request, crosses)
        {
            reached(Rare::LargerBlock);
            return Some(Step::Block(block, kind));
        }
        (!self.is_ruled_out(bytes, ask.limits)).then_some(Step::Gather(bytes))
    }

    /// Takes out free blocks to be released, until a new block for the request fits under the high water.
    fn release_excess(&mut self, ask: &Ask) -> Option<Step<B, O>> {
        if self.is_ruled_out(ask.request.bytes, ask.limits) {
            return None;
        }
        let released = self.release_tightly(self.excess_above(ask.request));
        self.regret_what_went(&released);
        release(released)
    }

    /// Takes blocks out of thread caches, so that their ranges may become one that is large enough. Returns whether there were any.
    ///
    /// Small blocks stay. Their ranges serve small requests only, and refilling the caches costs more than the few bytes of one more segment
    /// for these.
    fn drain_for_range(
        &mut self,
        request: Request,
        drain: &mut impl FnMut(&mut Self, DrainFrom, Wanted) -> Drained,
    ) -> bool {
        let small_bytes = self.segments.small_bytes(request.home);
        if request.bytes <= small_bytes {
            return false;
        }
        let from = self.caches_to_drain();
        let has_drained = drain(self, from, Wanted::LargerThan(small_bytes)).threads_had_blocks;
        self.steals += u64::from(has_drained && from == DrainFrom::All);
        has_drained
    }

    /// Decides what to ask the allocator for. A pool of segments does not ask if the limits rule the request out.
    fn new_memory(&mut self, ask: &mut Ask) -> Option<Step<B, O>> {
        let Ask {
            request, limits, ..
        } = *ask;
        if !self.carves || ask.is_for_pages {
            let (new, asks_free) = (New::Block, false);
            return Some(Step::New { new, asks_free });
        }
        if self.is_ruled_out(request.bytes, limits) {
            ask.refusal = Some(limits.refusal(request.bytes));
            return None;
        }
        self.transit.depart(1);
        let asks_free = self.is_look_for_pressure_due();
        let new = if self.segments.has_pages() {
            self.note_miss(request.bytes);
            New::Pages
        } else {
            let (bytes, leaving) = self.grow(request, limits.capacity);
            New::Segment { bytes, leaving }
        };
        Some(Step::New { new, asks_free })
    }

    /// Takes a range that the queue may have at once.
    fn range_at_once(&mut self, ask: &Ask) -> Option<Step<B, O>> {
        let carved = self.take_range(ask.queue_key, ask.request, RangeFilter::Free);
        carved.map(Box::new).map(Step::Range)
    }

    /// The part of [`try_rung`](Self::try_rung) that comes at a low point of the program.
    #[cold]
    fn try_rung_at_low_point(&mut self, ask: &mut Ask) -> Option<Step<B, O>> {
        match ask.rung {
            // Pages move only once it is known that their commands have ended.
            Rung::LowPoint => {
                let has_pages = self.segments.has_pages();
                let uses = has_pages.then(|| self.ranges_in_the_way(ask.queue_key));
                let uses = uses.filter(|uses| !uses.is_empty());
                ask.go_to(Rung::BeforeReview, uses.map(|uses| Step::Look(uses, None)))
            }
            Rung::BeforeReview => {
                self.settle();
                let queues = &self.queues;
                let home = ask.request.home;
                let leaving = self
                    .segments
                    .take_unneeded(home, |uses| queues.are_over(uses));
                self.count_released(&leaving);
                ask.go_to(Rung::Review, release(leaving))
            }
            _ => {
                if let Some(review) = self.review(ask) {
                    return ask.go_to(Rung::Review, Some(Step::Review(review)));
                }
                match self.join_idle(ask) {
                    None => ask.go_to(Rung::AfterReturn, None),
                    step => ask.go_to(ask.after_round, step),
                }
            }
        }
    }

    /// At a low point of the program, checks whether a plan would save memory.
    fn review(&mut self, ask: &Ask) -> Option<Box<Review>> {
        let Request { home, bytes, .. } = ask.request;
        // A pool above a limit that was lowered gets no segment for those that leave, and pages that must not move stay.
        let may_move = !self.segments.has_pages() || self.rules.move_percent > 0;
        let may_change = ask.limits.available > 0 && may_move;
        let largest = if may_change { ask.limits.largest } else { 0 };
        self.segments.review(home, bytes, largest).map(Box::new)
    }

    /// Asks for the segment or the pages of a plan.
    fn join_idle(&mut self, ask: &mut Ask) -> Option<Step<B, O>> {
        let reviewed = *ask.reviewed.take()?;
        let alignment = self.rules.alignment;
        let (queues, key) = (&self.queues, ask.queue_key);
        let (plan, leaving) = self.segments.join_idle(
            reviewed,
            ask.request.bytes,
            alignment,
            |uses| queues.are_before(uses, key),
            |uses| queues.are_over(uses),
        )?;
        self.count_released(&leaving);
        self.transit.depart(1);
        let new = New::Planned { plan, leaving };
        let asks_free = false;
        Some(Step::New { new, asks_free })
    }

    /// Returns whether the request is for more than the limit. A pool above its limit, because that was lowered, may have a free block all the
    /// same.
    fn is_beyond_all(&self, ask: &Ask) -> bool {
        let bytes = ask.request.bytes as u64;
        bytes > ask.limits.capacity && bytes > self.managed_bytes()
    }

    /// Returns whether it is worth waiting for all queues again: other threads have made progress since the last round, or what this request
    /// has released still waits for a queue.
    fn may_go_on(&self, ask: &Ask) -> bool {
        let may_wait = !ask.wait_failed && !self.holding_back().is_empty();
        ask.passes < MOST_PASSES && (self.changes != ask.changes || may_wait)
    }

    /// Asks for all free memory to be gathered. No block is too large for a request that is ruled out, since a release would not make room
    /// for it.
    fn gather(&self, ask: &Ask) -> Step<B, O> {
        let bytes = ask.request.bytes;
        if self.is_ruled_out(bytes, ask.limits) {
            return Step::Gather(usize::MAX);
        }
        Step::Gather(bytes.saturating_mul(MAX_SIZE_RATIO))
    }

    /// Takes the smallest held block that is large enough, or a range, that the queue may have at once.
    fn held(&mut self, ask: &Ask) -> Option<Step<B, O>> {
        if ask.is_for_pages {
            return None;
        }
        let block = self.pop_up_to(ask.last_bin, ask.queue_key, ask.request, true);
        let block = block.map(|(block, kind)| Step::Block(block, kind));
        block.or_else(|| {
            let carved = self.take_range(ask.queue_key, ask.request, RangeFilter::FreeAnywhere);
            carved.map(Box::new).map(Step::Range)
        })
    }

    /// Takes a held block of the next bin that has one, in the first round, if the policy waits for it.
    fn larger_after_a_wait(&mut self, ask: &mut Ask) -> Option<Step<B, O>> {
        if ask.is_for_pages || ask.after_round != Rung::ReleaseAll {
            return None;
        }
        let from = Request {
            bin: ask.next_bin,
            ..ask.request
        };
        self.larger_bins(from, ask.last_bin)
            .into_iter()
            .find_map(|request| {
                ask.next_bin = request.bin + 1;
                self.oldest_after_a_wait(ask.queue_key, request)
            })
            .inspect(|_| reached(Rare::LargerAfterWait))
    }

    /// Takes out free memory to be released, the largest first, until it is enough for this round; none for a request that is ruled out.
    fn release_for(&mut self, ask: &mut Ask) -> Vec<Released<B>> {
        if self.is_ruled_out(ask.request.bytes, ask.limits) {
            return Vec::new();
        }
        let released = self.release_largest(ask.enough);
        ask.changes += released.len() as u64;
        if !released.is_empty() {
            reached(Rare::RoomMade);
        }
        released
    }

    /// Returns a further check of the commands that hold ranges back. A policy that waits needs none. Otherwise a request checks again as long as
    /// the last check found commands that had ended, and all checks since the pool last grew have cost less than new memory.
    fn look_again(&self, ask: &Ask) -> Option<Step<B, O>> {
        let Rules { crosses, wait, .. } = self.rules;
        let bytes = ask.request.bytes as u64;
        if !ask.answer
            || !crosses
            || wait.is_some()
            || self.held_back_bytes(Some(ask.queue_key)) < bytes
        {
            return None;
        }
        let uses = self.ranges_in_the_way(ask.queue_key);
        let most = self.most_looks(ask.request).min(ask.looks_left);
        // Ranges that the queue may have as they are need no further look.
        let is_before = |use_: &QueueUse| self.queues.is_before(*use_, ask.queue_key);
        let is_any = most > 0 && !uses.iter().all(is_before);
        is_any.then_some(Step::Look(uses, Some(most)))
    }

    /// The number of further looks that a request may take at the commands that hold memory back, before it asks for fresh memory: until
    /// all looks since the pool last grew have cost as much as that memory.
    fn most_looks(&self, request: Request) -> u32 {
        let in_use = self.bytes_in_use().saturating_add(request.bytes as u64);
        let high_water = self.segments.high_water().max(in_use);
        let excess = self.segments.bytes().saturating_sub(high_water);
        let doublings = excess.saturating_mul(EXCESS_PARTS) / high_water.max(1);
        let price = LOOKS << doublings.min(MOST_DOUBLINGS);
        price.saturating_sub(self.looked)
    }

    /// Counts looks that a request took. `has_ended` says whether commands ended during them.
    pub(crate) fn count_looks(&mut self, ask: &mut Ask, looks: u32, has_ended: bool) {
        self.looked = self.looked.saturating_add(looks);
        ask.looks_left -= looks;
        ask.answer = has_ended;
    }

    /// The uses that hold memory back and that the policy lets a request look at, the latest of each queue.
    fn ranges_in_the_way(&self, queue_key: QueueKey) -> QueueUses {
        let held_back = self.holding_back();
        let allowed = held_back.iter().filter(|use_| {
            self.rules.crosses || is_own(&self.queues, slice::from_ref(*use_), queue_key)
        });
        allowed.copied().collect()
    }
}

/// The step that releases this, if there is any.
fn release<B: Backend, O>(released: Vec<Released<B>>) -> Option<Step<B, O>> {
    (!released.is_empty()).then_some(Step::Release(released))
}

#[cfg(test)]
mod tests {
    use crate::{PoolOptions, ReusePolicy, mock_pool::MockPool};

    const BYTES: usize = 40 << 20;

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
    fn looks_have_their_price_again_once_the_pool_has_grown() {
        for mock in [MockPool::of_segments(), MockPool::of_pages()] {
            mock.shared.state.lock().looked = 3;
            let block = mock.pool.allocate(BYTES).unwrap();
            assert_eq!(mock.shared.state.lock().looked, 0);
            drop(block);
        }
    }

    #[test]
    fn a_limit_that_rules_a_request_out_refuses_it_before_segments_are_released() {
        let mock = MockPool::new(PoolOptions::new().segments(true).limit(BYTES as u64));
        let half = mock.pool.allocate(BYTES / 2).unwrap();
        drop(mock.pool.allocate(BYTES / 4).unwrap());
        let managed = mock.pool.managed_bytes();
        mock.pool.allocate(BYTES).unwrap_err();
        assert_eq!(mock.pool.managed_bytes(), managed);
        assert_eq!(mock.pool.statistics().released_blocks, 0);
        drop(half);
        drop(mock.pool.allocate(BYTES).unwrap());
    }
}
