//! Finds free blocks that a queue may have.

use std::collections::BTreeSet;

use binpool_allocators::Backend;

use crate::{
    block::{BlockBox, HeldBlock},
    central::{State, queue_states::QueueStates},
    order::{
        queue_uses::{QueueUses, add_to},
        timestamps::{QueueKey, QueueUse, last_of},
    },
    request::{HitKind, Request},
};

/// The most blocks of a bin that are searched for one whose commands have ended, oldest first. Younger blocks were used later on the same
/// few queues, so the search would rarely succeed among them.
const MAX_BLOCKS_SEARCHED: usize = 16;

impl<B: Backend, O> State<B, O> {
    /// Takes a free block of exactly this bin that the queue may have at once: from its free list or the idle list.
    pub(crate) fn pop(&mut self, queue_key: QueueKey, request: Request) -> Option<BlockBox<B, O>> {
        let Request { bin, bytes, .. } = request;
        let own = self.queues.get_mut(queue_key);
        own.and_then(|queue_state| queue_state.free_list.pop_youngest(bin, bytes))
            .or_else(|| self.idle.pop_youngest(bin, bytes))
            .map(|held| held.block)
    }

    /// Returns whether there may be blocks that other queues use. Most misses find none, and need no search.
    fn has_blocks_of_others(&self) -> bool {
        self.pending.blocks() > 0 || self.queues.len() > 1
    }

    /// Takes a free block of exactly this bin whose commands have ended, or end before any later command of the queue starts. Blocks of
    /// other queues are searched only if `across` is set.
    pub(crate) fn pop_ready(
        &mut self,
        queue_key: QueueKey,
        request: Request,
        across: bool,
    ) -> Option<BlockBox<B, O>> {
        let Request { bin, bytes, .. } = request;
        if !self.has_blocks_of_others() {
            return None;
        }
        let queues = &self.queues;
        let mut oldest = self.pending.oldest(bin, bytes).take(MAX_BLOCKS_SEARCHED);
        let ready = oldest.find(|(_, uses)| {
            (across || is_own(queues, uses, queue_key)) && queues.are_before(uses, queue_key)
        });
        if let Some((index, _)) = ready {
            drop(oldest);
            return self.pending.take(bin, index).map(|held| held.block);
        }
        drop(oldest);
        let ready = self.queues.iter().find_map(|(key, other)| {
            if key == queue_key || !(across || other.is_retired) {
                return None;
            }
            let (index, uses) = other.free_list.oldest(bin, bytes).next()?;
            let ready = queues.are_before(uses, queue_key);
            ready.then_some((key, index))
        });
        let (key, index) = ready?;
        let other = self.queues.get_mut(key)?;
        other.free_list.take(bin, index).map(|held| held.block)
    }

    /// Takes a free block that the queue may have at once, from the first bin between the request's own and the `last` that has one.
    pub(crate) fn pop_up_to(
        &mut self,
        last: usize,
        queue_key: QueueKey,
        request: Request,
        across: bool,
    ) -> Option<(BlockBox<B, O>, HitKind)> {
        let mut bins = self.larger_bins(request, last).into_iter();
        bins.find_map(|request| {
            let own = self.pop(queue_key, request);
            let own = own.map(|block| (block, HitKind::Ready));
            own.or_else(|| {
                let ready = self.pop_ready(queue_key, request, across)?;
                Some((ready, HitKind::Ended))
            })
        })
    }

    /// Takes the block of this bin whose last use is the oldest, from the pending list or the free list of another queue. Commands may
    /// still use it.
    pub(crate) fn take_oldest(
        &mut self,
        queue_key: QueueKey,
        request: Request,
    ) -> Option<HeldBlock<B, O>> {
        let Request { bin, bytes, .. } = request;
        let pending = self.pending.oldest(bin, bytes).next();
        let pending = pending.map(|(index, uses)| (last_of(uses), None, index));
        let from_free_lists = self
            .queues
            .iter()
            .filter(|(key, _)| *key != queue_key)
            .filter_map(|(key, other)| {
                let (index, uses) = other.free_list.oldest(bin, bytes).next()?;
                Some((last_of(uses), Some(key), index))
            });
        match from_free_lists
            .chain(pending)
            .min_by_key(|(timestamp, ..)| *timestamp)?
        {
            (_, Some(key), index) => self.queues.get_mut(key)?.free_list.take(bin, index),
            (_, None, index) => self.pending.take(bin, index),
        }
    }

    /// The uses that keep blocks of this bin from the queue: the latest of each queue.
    pub(crate) fn in_the_way(
        &self,
        queue_key: QueueKey,
        request: Request,
        across: bool,
    ) -> QueueUses {
        let Request { bin, bytes, .. } = request;
        let mut found = QueueUses::new();
        if !self.has_blocks_of_others() {
            return found;
        }
        let pending = self.pending.oldest(bin, bytes).take(MAX_BLOCKS_SEARCHED);
        let pending = pending
            .map(|(_, uses)| uses)
            .filter(|uses| across || is_own(&self.queues, uses, queue_key));
        let others = self.queues.iter().filter(|(key, _)| *key != queue_key);
        let from_free_lists = others
            .filter(|(_, other)| across || other.is_retired)
            .filter_map(|(_, other)| other.free_list.oldest(bin, bytes).next())
            .map(|(_, uses)| uses);
        for use_ in pending.chain(from_free_lists).flatten() {
            if !self.queues.is_before(*use_, queue_key) {
                add_to(&mut found, *use_);
            }
        }
        found
    }

    /// Returns the request once for each bin that has blocks, from its own to the `last`.
    pub(crate) fn larger_bins(&self, request: Request, last: usize) -> Vec<Request> {
        let occupied = self
            .all_bins()
            .flat_map(|bins| bins.between(request.bin, last));
        let occupied: BTreeSet<usize> = occupied.collect();
        let requests = occupied.into_iter().map(|bin| Request { bin, ..request });
        requests.collect()
    }
}

/// Returns whether a block was allocated for the queue, or for one that is retired or gone.
pub(crate) fn is_own<B: Backend, O>(
    queues: &QueueStates<B, O>,
    uses: &[QueueUse],
    queue_key: QueueKey,
) -> bool {
    let first = uses
        .first()
        .and_then(|first| Some((first, queues.state_of(*first)?)));
    first.is_none_or(|(first, state)| first.key == queue_key || state.is_retired)
}
