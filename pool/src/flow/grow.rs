//! Blocks that grow: pages are mapped after the existing ones, and unmapped once no command uses them.

use std::{
    iter,
    mem::{self, forget},
    sync::Arc,
};

use binpool_allocators::{
    Allocator, Backend, Error, Memory, Queue, Region,
    contained::{contained, guarded},
};

use crate::{
    PoolError, PooledBuffer,
    block::Lease,
    growing::{Dropped, Growing, Piece},
    order::queue_uses::QueueUses,
    request::HitKind,
    shared::{Block, BlockBox, Shared},
    track::caller::Caller,
};

impl<B: Backend> Shared<B> {
    /// Reserves addresses for a block that grows to `most_bytes`, for `queue`, in pages of `page_bytes`.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        queue: &B::Queue,
        most_bytes: usize,
        page_bytes: usize,
    ) -> Result<(PooledBuffer<B>, Growing<B>), Error> {
        let (reservation, memory) = guarded("Allocator::reserve", || {
            let reservation = self.allocator.reserve(most_bytes)?;
            let all = Region::first(reservation.bytes());
            let memory = self.allocator.create_view(&reservation, all)?;
            Ok((reservation, memory))
        })?;
        let block = BlockBox::new(Block {
            memory,
            bin: 0,
            bytes: 0,
            above: 0,
            slot: 0,
            range: None,
            record: None,
            lease: Lease::default(),
        });
        let queue_key = {
            let mut state = self.lock_and_sync();
            state.count_active(0, 0, HitKind::Fresh);
            state.enter(queue)
        };
        let growing = Growing {
            reservation,
            page_bytes,
            pieces: Vec::new(),
            was_viewed: false,
        };
        let buffer = PooledBuffer::new(self, queue, 0, Some((block, queue_key)));
        Ok((buffer, growing))
    }

    /// Maps the pages that a block of `size` bytes lacks. Returns the end of its last page.
    pub(crate) fn map_more(
        &self,
        block: &mut Block<B>,
        growing: &mut Growing<B>,
        size: usize,
    ) -> Result<usize, PoolError> {
        let offset = block.bytes;
        let missing = size
            .saturating_sub(offset)
            .next_multiple_of(growing.page_bytes);
        if missing > 0
            && let Some(queue_key) = block.lease.key
        {
            self.release_dropped();
            let pages = self.allocate_pages(queue_key, size - offset, missing)?;
            if let Err(error) = guarded("Allocator::map", || {
                self.allocator.map(&growing.reservation, offset, &pages)
            }) {
                self.release(pages, &QueueUses::new(), &[])?;
                return Err(error.into());
            }
            let piece = Piece {
                pages,
                offset,
                spare: None,
            };
            self.state.lock().add_mapped(block, piece.region());
            growing.pieces.push(piece);
        }
        for piece in &mut growing.pieces {
            if piece.offset < size {
                piece.spare = None;
            }
        }
        Ok(size.next_multiple_of(growing.page_bytes))
    }

    /// Unmaps the pages after the first `size` bytes, last page first, as far as their commands have ended. All of them stay if a view of
    /// the block is left or the pool [keeps addresses](crate::KeptAddresses).
    pub(crate) fn unmap_spare(
        &self,
        block: &mut Block<B>,
        growing: &mut Growing<B>,
        size: usize,
    ) -> Result<(), Error> {
        // Before the uses are stamped, since a view may be used until it is gone.
        let is_viewed = block.memory.has_views();
        let lost_views = mem::replace(&mut growing.was_viewed, is_viewed) && !is_viewed;
        if lost_views {
            // The program can no longer say where it used them.
            self.record_every_queue(&block.lease);
        }
        let uses = self
            .state
            .lock()
            .stamp(block.lease.key, &block.lease.others());
        for piece in &mut growing.pieces {
            if piece.offset >= size && (lost_views || piece.spare.is_none()) {
                piece.spare = Some(uses.clone());
            }
        }
        if is_viewed {
            return Ok(());
        }
        while let Some(piece) = growing.pieces.last()
            && let Some(uses) = &piece.spare
        {
            self.check(uses);
            let state = self.state.lock();
            let may_go = state.queues.are_over(uses) && !state.keeps_addresses();
            drop(state);
            if !may_go {
                break;
            }
            let region = piece.region();
            guarded("Allocator::unmap", || {
                self.allocator.unmap(&growing.reservation, region)
            })?;
            let mut state = self.state.lock();
            state.shrink_mapped(block, region);
            // A thread that is short of memory waits for it.
            state.transit.depart(1);
            drop(state);
            let piece = growing.pieces.pop();
            let released = piece.map(|piece| self.release(piece.pages, &QueueUses::new(), &[]));
            self.arrive();
            released.transpose()?;
        }
        Ok(())
    }

    /// Updates the size that the pool has on record for a block that grows.
    pub(crate) fn track_growth(&self, block: &mut Block<B>, size: usize, caller: Caller) {
        let mut state = self.state.lock();
        state.record_free(block);
        let former = block.record.take();
        let is_behind = size > 0 && state.record_allocation(block, size, caller);
        drop(state);
        drop(former);
        if is_behind {
            self.wait_for_recorder();
        }
    }

    /// Fills a part of a block with zeros, before all later commands of its queue.
    pub(crate) fn scrub_part(
        &self,
        queue: &B::Queue,
        memory: &B::Memory,
        region: Region,
    ) -> Result<(), Error> {
        let filled = self.backend.enqueue_fill(queue, memory, region, &[0_u8])?;
        self.put_before_later(queue, filled)
    }

    /// Frees a block that grows. It keeps its pages until no command uses them, since a limit counts them until then.
    pub(crate) fn free_growing(&self, mut block: BlockBox<B>, growing: Growing<B>, size: usize) {
        if growing.was_viewed {
            self.record_every_queue(&block.lease);
        }
        let (queue_key, others) = (block.lease.key, block.lease.take_others());
        let mut state = self.lock_and_sync();
        let uses = state.take_back(&block, size, &others);
        state.dropped.push(Dropped {
            memory: block.into_memory(),
            growing,
            uses,
        });
        drop(state);
        self.release_dropped();
        self.state.lock().leave(queue_key);
    }

    /// Releases the dropped blocks that grew and that no command and no view uses, or all of them once the last handle is gone. Returns the
    /// released bytes.
    pub(crate) fn release_dropped(&self) -> u64 {
        let mut state = self.state.lock();
        if state.dropped.is_empty() {
            return 0;
        }
        let uses = state.stamp_dropped();
        drop(state);
        self.check(&uses);
        let dropped = self.state.lock().take_dropped();
        let mut sum = 0;
        for dropped in dropped {
            let bytes = dropped.bytes();
            sum += bytes;
            contained("giving a block back", || {
                if let Err(error) = self.release_grown(dropped) {
                    tracing::error!(%error, bytes, "a block that had grown could not be released cleanly");
                }
            });
            self.arrive();
        }
        sum
    }

    fn release_grown(&self, dropped: Dropped<B>) -> Result<(), Error> {
        let Dropped {
            memory,
            growing,
            uses,
        } = dropped;
        drop(memory);
        let (reservation, pieces) = (growing.reservation, growing.pieces.into_iter());
        match self.events_after(&uses, &[]) {
            Ok((events, _)) => {
                // Not part of what the allocator counts. It goes first, since that unmaps the pages.
                let addresses = guarded("Backend::release", || {
                    self.backend.release(reservation, &events)
                });
                let pages = pieces.map(|piece| {
                    guarded("Allocator::release", || {
                        self.allocator.release(piece.pages, &events)
                    })
                });
                iter::once(addresses).chain(pages).fold(Ok(()), Result::and)
            }
            Err(error) => {
                // Commands that no backend knows of may use these addresses at any time, so they are never unmapped.
                forget(reservation);
                let pages = pieces.map(|piece| self.release(piece.pages, &uses, &[]));
                pages.fold(Err(error), Result::and)
            }
        }
    }
}

impl<B: Backend> PooledBuffer<B> {
    /// Enqueues a copy of this block to the start of `larger`, after everything that was enqueued on the block's queues, and before all later
    /// commands of `queue`.
    pub(crate) fn copy_to_larger(&self, queue: &B::Queue, larger: &Self) -> Result<(), Error> {
        self.order_before(queue)?;
        let copied = self.enqueue_copy_to(queue, larger)?;
        // Queues that the program has wait for the copy may wait for its queue.
        queue.flush()?;
        self.shared().put_before_later(queue, copied)
    }
}
