//! What a thread keeps at hand: how blocks get there, and from there to their users.

pub(crate) mod allowance;
pub(crate) mod barrier;
pub(crate) mod biased;
pub(crate) mod depot;
pub(crate) mod gathering;
pub(crate) mod thread_cache;
pub(crate) mod threads;

use std::sync::Arc;

use binpool_allocators::{Allocator, Queue, QueueId, QueueOf};
use smallvec::{SmallVec, smallvec};

use crate::{
    at_hand::{
        gathering::Key,
        thread_cache::{Cached, Grant, Surplus, ThreadCache},
    },
    request::Request,
    shared::Shared,
    state::{
        State,
        bins::HeldBlock,
        lane::{LaneKey, is_in_order},
        tenure::Tenure,
    },
};

/// How many more blocks of its bin a thread takes along when it comes for one.
const TAKE_ALONG: usize = 15;

impl<A: Allocator> Shared<A> {
    /// Whether threads keep blocks at hand that were used on this queue.
    pub(crate) fn may_keep(&self, queue: &QueueOf<A>) -> bool {
        self.has_thread_caches && is_in_order(queue)
    }

    /// A block that this thread has at hand, for somebody who asks for `asked` bytes for this queue.
    #[inline]
    pub(crate) fn at_hand(&self, queue: QueueId, asked: usize) -> Option<Grant<A>> {
        let youngest = threads::with_own(self.id, |key: &Key<A>| {
            key.enter_unseen((), |cache, ()| cache.pop_youngest(queue, asked))
        })?;
        // Without a room to enter there is nothing else either.
        youngest.ok()?.or_else(|| self.at_hand_by_bin(queue, asked))
    }

    /// The rest, out of line: it would make the first part save more registers than it has instructions.
    #[inline(never)]
    fn at_hand_by_bin(&self, queue: QueueId, asked: usize) -> Option<Grant<A>> {
        self.by_bin(queue, asked, |_, _| ())
            .map(|((), grant)| grant)
    }

    /// A block of the right bin, and what `note` makes of it in this thread's room.
    #[inline]
    pub(crate) fn by_bin<N>(
        &self,
        queue: QueueId,
        asked: usize,
        note: impl FnOnce(&mut ThreadCache<A>, &Grant<A>) -> N,
    ) -> Option<(N, Grant<A>)> {
        if asked == 0 {
            return None;
        }
        // These may be the program's own functions, so they are called outside of the room.
        let bytes = self.alignment.round_up(asked)?;
        let bin = self.classes.bin_number(bytes);
        let place = self.classes.place(bin);
        threads::with_own(self.id, |key: &Key<A>| {
            key.enter(|cache| {
                let grant = cache.pop(queue, place, bin, bytes, asked)?;
                Some((note(cache, &grant), grant))
            })
        })??
    }

    /// Keeps a block at hand that its user, who had asked for `asked` bytes, is done with. What is returned could not be kept.
    #[inline]
    pub(crate) fn keep_at_hand(grant: Grant<A>, asked: usize) -> Option<Grant<A>> {
        let left = Self::push(grant, asked)?;
        Self::make_room_and_keep(left, asked)
    }

    #[inline]
    fn push(grant: Grant<A>, asked: usize) -> Option<Grant<A>> {
        let (id, since) = (grant.shared.id, grant.shared.clock.now());
        let pushed = threads::with_own_and(id, grant, |key: &Key<A>, grant| {
            key.enter_unseen(grant, |cache, grant| cache.push(grant, since, asked))
        });
        match pushed {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(left)) | Err(left)) | Err(left) => Some(left),
        }
    }

    #[inline(never)]
    fn make_room_and_keep(grant: Grant<A>, asked: usize) -> Option<Grant<A>> {
        let is_noted = grant.shared.notes.are_taken();
        let grant = if is_noted {
            Self::keep_at_hand_noted(grant, asked)?
        } else {
            grant
        };
        let is_in = threads::with_own(grant.shared.id, |key: &Key<A>| key.enter(|_| ()).is_some());
        let may_stay = match is_in {
            Some(is_open) => is_open && grant.shared.make_room(),
            None => grant.shared.join(),
        };
        match may_stay {
            true if is_noted => Self::keep_at_hand_noted(grant, asked),
            true => Self::push(grant, asked),
            false => Some(grant),
        }
    }

    /// Gives this thread a cache, if it has none and is to have one. Whether it has got one.
    pub(crate) fn join(self: &Arc<Self>) -> bool {
        let is_member = || threads::with_own(self.id, |_: &Key<A>| ()).is_some();
        if !self.has_thread_caches || is_member() {
            return false;
        }
        threads::join(self, || {
            let mut state = self.state.lock();
            let allowance = state.allowance();
            let tape = state.watch.new_tape();
            state.threads.add(ThreadCache::new(allowance, tape))
        })
    }

    /// Takes more blocks for this thread, which has just got one of this bin.
    pub(crate) fn take_along(
        self: &Arc<Self>,
        state: &mut State<A>,
        lane: LaneKey,
        request: Request,
    ) {
        let stock = state.lanes.get(lane).map(|lane| &lane.stock);
        let stocked = stock.map_or(0, |stock| stock.blocks_of(request.bin));
        threads::with_own(self.id, |key: &Key<A>| {
            key.enter(|cache| {
                // Others may come for the rest.
                for _ in 0..(stocked / 2).min(TAKE_ALONG) {
                    if state.move_to(cache, self, lane, request).is_none() {
                        break;
                    }
                }
            })
        });
    }

    /// Moves blocks that this thread keeps to where other threads find them. Whether there were any.
    fn make_room(&self) -> bool {
        let mut state = self.lock_and_tell();
        let surplus = threads::with_own(self.id, |key: &Key<A>| key.enter(ThreadCache::make_room));
        let surplus: SmallVec<[Cached<A>; 1]> = match surplus.flatten().flatten() {
            None => return false,
            Some(Surplus::Magazine(queue, place, magazine)) => {
                if state.has_room_in_bins(&magazine) {
                    state.depot.leave(queue, place, magazine);
                    return true;
                }
                magazine.into()
            }
            Some(Surplus::Block(cached)) => smallvec![cached],
        };
        let leaving: SmallVec<[HeldBlock<A>; 1]> = surplus
            .into_iter()
            .filter_map(|cached| {
                let held = state.let_in(cached);
                // The order of their queue covers their only use.
                state.hold(held).1
            })
            .collect();
        drop(state);
        for held in leaving {
            self.return_to_segment(held);
        }
        true
    }

    /// A block that another thread had too much of, and more of them for this thread to keep.
    pub(crate) fn take_over(
        &self,
        state: &mut State<A>,
        queue: QueueId,
        request: Request,
    ) -> Option<Grant<A>> {
        let Request { asked, bin, .. } = request;
        let place = self.classes.place(bin);
        let bytes = self.alignment.round_up(asked)?;
        let magazine = state.depot.take(queue, place)?;
        let taken = threads::with_own_and(self.id, magazine, |key: &Key<A>, magazine| {
            key.enter_with(magazine, |cache, magazine| {
                let left = cache.take_over(magazine);
                (cache.pop(queue, place, bin, bytes, asked), left)
            })
        });
        let (grant, left) = match taken {
            Ok(Ok(taken)) => taken,
            Ok(Err(magazine)) | Err(magazine) => (None, magazine),
        };
        if !left.is_empty() {
            state.depot.leave(queue, place, left);
        }
        grant
    }
}

impl<A: Allocator> State<A> {
    /// Moves a block of this bin from a lane's stock to a thread's cache. `None` where there is none, or no room for it.
    fn move_to(
        &mut self,
        cache: &mut ThreadCache<A>,
        shared: &Arc<Shared<A>>,
        key: LaneKey,
        request: Request,
    ) -> Option<()> {
        let lane = self.lanes.get_mut(key)?;
        let held = lane.stock.pop_youngest(request.bin, request.bytes)?;
        let queue = lane.queue.id();
        let mut block = held.block;
        let stamps = held.uses.iter().map(|use_| use_.stamp);
        let since = stamps.max().unwrap_or_default();
        block.tenure = Tenure::on(queue, Some(key), true);
        lane.active += 1;
        let share = block.share.take();
        let shared = share.unwrap_or_else(|| Arc::clone(shared));
        let cached = Cached {
            grant: Grant { shared, block },
            since,
        };
        match cache.insert(cached) {
            Ok(()) => Some(()),
            Err(cached) => {
                self.let_into_bin(cached);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::mock_pool::{Immediate, MockPool};

    fn hold(mock: &MockPool, blocks: usize) {
        let blocks = (0..blocks).map(|_| mock.pool.allocate(1000).unwrap());
        drop(blocks.collect::<Vec<_>>());
    }

    fn in_depot(shared: &Shared<Immediate>) -> usize {
        shared.state.lock().depot.blocks()
    }

    #[test]
    fn who_comes_for_a_block_takes_half_of_the_rest_along_if_that_is_not_too_much() {
        for (blocks, left) in [(1, 0), (2, 1), (3, 1), (11, 5), (31, 15), (40, 24)] {
            let mock = MockPool::of_blocks();
            hold(&mock, blocks);
            mock.shared.gather();
            assert_eq!(mock.stocked(), blocks);
            let block = mock.pool.allocate(1000).unwrap();
            assert_eq!(mock.stocked(), left, "of {blocks}");
            // What was taken along is at hand.
            let along: Vec<_> = (left + 1..blocks)
                .map(|_| mock.pool.allocate(1000).unwrap())
                .collect();
            assert_eq!(mock.stocked(), left, "of {blocks}");
            drop((block, along));
        }
    }

    #[test]
    fn what_a_thread_has_too_much_of_the_next_one_takes_over_as_it_is() {
        let mock = MockPool::of_blocks();
        hold(&mock, 65);
        assert_eq!(in_depot(&mock.shared), 0);
        hold(&mock, 66);
        assert_eq!((in_depot(&mock.shared), mock.stocked()), (32, 0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let blocks = (0..32).map(|_| mock.pool.allocate(1000).unwrap());
                let mut blocks: Vec<_> = blocks.collect();
                assert_eq!((in_depot(&mock.shared), mock.stocked()), (0, 0));
                assert_eq!(mock.pool.statistics().misses, 66);
                blocks.truncate(1);
            });
        });
        assert_eq!(mock.pool.held_blocks(), 66);
    }
}
