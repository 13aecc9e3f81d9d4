//! A block that grows.

use std::{fmt, mem, ops::Deref, panic::Location, sync::Arc};

use binpool_allocators::{
    Allocator, AsMemory, Backend, Error, InvalidRequest, Memory, Queue, Region,
    contained::{contained, guarded},
};

use crate::{
    MemoryPool, PoolError, PooledBuffer,
    block::Lease,
    central::ladder::Ask,
    growing::{Growing, Piece},
    order::{queue_uses::QueueUses, timestamps::QueueKey},
    request::{HitKind, Request},
    shared::{Block, BlockBox, Shared},
};

/// A block that grows and shrinks at its end, such as the key-value cache of a language model, or an array to which others are appended.
///
/// In a pool of pages (over a [`VirtualMemoryAllocator`](crate::VirtualMemoryAllocator)), addresses for the largest size are reserved
/// once. [`grow`](Self::grow) maps more pages after the last one, so nothing is copied and nothing moves: kernels and CUDA graphs that were
/// given its address stay valid. In any other pool, a block that is full is replaced by one half as large again, and its bytes are copied
/// on the block's queue.
///
/// Otherwise it is used as a [`PooledBuffer`]. Its pages count in the pool's [limit](crate::PoolOptions::limit) and
/// [statistics](crate::PoolStatistics), as those of one active block.
///
/// When it is dropped, its pages are held by the pool, and count in the limit, until no command and no view uses them and the pool does not
/// [keep addresses](MemoryPool::keep_addresses). Then a request that needs memory, a trim or a sweep releases them.
///
/// ```
/// use binpool::{Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().virtual_memory(true).build().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
///
/// let mut cache = pool.growable_on(&queue, 1 << 30)?; // Addresses. They take no memory.
/// cache.grow(1000)?;
/// cache.enqueue_fill(&queue, .., &[7_u8])?;
/// let before = cache.memory_id();
/// cache.grow(64 << 20)?;
/// assert_eq!(cache.size(), 1000 + (64 << 20));
/// assert!(cache.stays_in_place() && cache.memory_id() == before);
/// let mut bytes = [0_u8; 1000];
/// cache.read(&queue, 0, &mut bytes)?;
/// assert_eq!(bytes, [7; 1000]);
///
/// cache.shrink(64 << 20)?; // No command uses what was added, so its pages go back to the device.
/// assert_eq!(pool.managed_bytes(), 2 << 20);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[must_use = "the block goes back to its pool when it is dropped"]
pub struct GrowableBuffer<B: Backend> {
    buffer: PooledBuffer<B>,
    /// `None` if the pool has no pages.
    growing: Option<Growing<B>>,
    queue: B::Queue,
    most_bytes: usize,
}

impl<B: Backend> MemoryPool<B> {
    /// Returns a block of 0 bytes for `queue` that can [grow](GrowableBuffer::grow) to `most_bytes`.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// // A pool without pages, where growth may copy.
    /// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let mut all = pool.growable_on(&queue, 1 << 20)?;
    /// for array in [&[1_u8, 2][..], &[3, 4, 5]] {
    ///     let end = all.size();
    ///     all.grow(array.len())?;
    ///     all.enqueue_write(&queue, end, array.into())?;
    /// }
    /// assert_eq!(all.enqueue_read(&queue, ..)?.wait()?, [1, 2, 3, 4, 5]);
    /// assert!(all.grow(1 << 20).is_err()); // More than its largest size.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ZeroSize`](InvalidRequest::ZeroSize) for a largest size of 0 bytes, [`TooLarge`](InvalidRequest::TooLarge) for more addresses than can be reserved,
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another backend, and the failures of the backend.
    pub fn growable_on(
        &self,
        queue: &B::Queue,
        most_bytes: usize,
    ) -> Result<GrowableBuffer<B>, PoolError> {
        self.backend().check_queue(queue)?;
        if most_bytes == 0 {
            return Err(Error::from(InvalidRequest::ZeroSize).into());
        }
        let shared = self.handle();
        let (buffer, growing) = match shared.allocator.page_bytes() {
            Some(page_bytes) => {
                let (buffer, growing) = shared.reserve(queue, most_bytes, page_bytes)?;
                (buffer, Some(growing))
            }
            None => (self.allocate_on(queue, 0)?, None),
        };
        Ok(GrowableBuffer {
            buffer,
            growing,
            queue: queue.clone(),
            most_bytes,
        })
    }
}

impl<B: Backend> GrowableBuffer<B> {
    /// Adds `bytes` bytes at the end. The bytes before them are kept. The new ones are undefined: they may be another user's, unless
    /// the pool [scrubs](crate::PoolOptions::scrub), or those that the block had there before it shrank.
    ///
    /// New pages can be used on every queue at once. A copy, and the zeros of a pool that scrubs on hand-out, are commands of the block's
    /// own queue, after everything enqueued on the queues that use the block; before commands on another queue, call
    /// [`order_before`](PooledBuffer::order_before).
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) beyond the largest size; [`PoolError::OutOfMemory`], with a report, once the pool has
    /// tried everything; a failure of the allocator or the backend. The block keeps its size and its bytes.
    #[track_caller]
    pub fn grow(&mut self, bytes: usize) -> Result<(), PoolError> {
        let before = self.buffer.size();
        let refusal = InvalidRequest::OutOfBounds {
            offset: before,
            bytes,
            size: self.most_bytes,
        };
        let size = before.checked_add(bytes);
        let size = size.filter(|size| *size <= self.most_bytes);
        let size = size.ok_or(Error::from(refusal))?;
        let shared = self.buffer.share();
        let Some((growing, block)) = self.growing.as_mut().zip(self.buffer.block_mut()) else {
            return self.grow_by_copies(size);
        };
        let end = shared.map_more(block, growing, size)?;
        if shared.scrubber.is_on_hand_out()
            && bytes > 0
            && let Err(error) = self.scrub(Region::new(before, end - before))
        {
            // The new pages have bytes of others. Where they cannot go yet, a later call unmaps them.
            let _failure = self.shrink(0);
            return Err(error.into());
        }
        self.resize(&shared, size);
        Ok(())
    }

    /// Fills new bytes with zeros, to the end of the last page: commands reach that through the memory.
    fn scrub(&self, region: Region) -> Result<(), Error> {
        self.buffer.order_before(&self.queue)?;
        let Some(memory) = self.buffer.memory() else {
            return Ok(());
        };
        let shared = self.buffer.shared();
        let filled = shared
            .backend
            .enqueue_fill(&self.queue, memory, region, &[0_u8])?;
        shared.put_before_later(&self.queue, filled)
    }

    #[track_caller]
    fn grow_by_copies(&mut self, size: usize) -> Result<(), PoolError> {
        let before = self.buffer.size();
        if size > self.buffer.class_size() {
            let shared = self.buffer.share();
            let ample = size.max(before.saturating_add(before / 2));
            let ample = ample.min(self.most_bytes);
            let larger = match shared.allocate_anywhere(&self.queue, ample) {
                Err(error) if error.is_out_of_memory() && ample > size => {
                    shared.allocate_anywhere(&self.queue, size)?
                }
                result => result?,
            };
            if before > 0 {
                // After everything that was enqueued on the block's queues, and before all later commands of its own.
                self.buffer.order_before(&self.queue)?;
                let copied = self.buffer.enqueue_copy_to(&self.queue, &larger)?;
                // Queues that the program has wait for the copy may wait for its queue.
                self.queue.flush()?;
                shared.put_before_later(&self.queue, copied)?;
            }
            self.buffer = larger;
        }
        let shared = self.buffer.share();
        self.resize(&shared, size);
        Ok(())
    }

    /// Removes `bytes` bytes at the end, or all if there are fewer.
    ///
    /// The pages that one call of [`grow`](Self::grow) mapped are unmapped together, and released to the allocator, once the block ends before
    /// all of them and no command uses them. The call waits for no command: pages that commands or views may still use stay until a later
    /// call finds them unused. `shrink(0)` does only that, for example after a [`finish`](binpool_allocators::Queue::finish). A block of a
    /// pool without pages keeps its memory until it is dropped.
    ///
    /// # Errors
    ///
    /// A failure of the device. The block is still smaller, and a later call tries again to unmap its spare pages.
    #[track_caller]
    pub fn shrink(&mut self, bytes: usize) -> Result<(), PoolError> {
        let size = self.buffer.size().saturating_sub(bytes);
        let shared = self.buffer.share();
        self.resize(&shared, size);
        if let Some((growing, block)) = self.growing.as_mut().zip(self.buffer.block_mut()) {
            shared.unmap_spare(block, growing, size)?;
        }
        Ok(())
    }

    /// Returns whether the block keeps its addresses as it grows, as it does in a pool of pages. Otherwise they may change.
    #[must_use]
    pub fn stays_in_place(&self) -> bool {
        self.growing.is_some()
    }

    #[track_caller]
    fn resize(&mut self, shared: &Shared<B>, size: usize) {
        if size == self.buffer.size() {
            return;
        }
        self.buffer.resize(size);
        if let Some(caller) = shared.tracking.caller(Location::caller())
            && let Some(block) = self.buffer.block_mut()
        {
            // A block of another size, as far as the pool's records go.
            let mut state = shared.state.lock();
            state.record_free(block);
            let former = block.record.take();
            let is_behind = size > 0 && state.record_allocation(block, size, caller);
            drop(state);
            drop(former);
            if is_behind {
                shared.wait_for_recorder();
            }
        }
    }
}

impl<B: Backend> Drop for GrowableBuffer<B> {
    fn drop(&mut self) {
        let size = self.buffer.size();
        if let Some(growing) = self.growing.take()
            && let Some(block) = self.buffer.take_block()
        {
            contained("giving a block back", || {
                self.buffer.shared().free_growing(block, growing, size);
            });
        }
    }
}

/// The block at its present size, for commands, slices and views. Slices and views borrow it, so it cannot grow while they live.
impl<B: Backend> Deref for GrowableBuffer<B> {
    type Target = PooledBuffer<B>;

    fn deref(&self) -> &PooledBuffer<B> {
        &self.buffer
    }
}

impl<B: Backend> AsMemory<B> for GrowableBuffer<B> {
    fn size(&self) -> usize {
        self.buffer.size()
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        self.buffer.memory_on(queue)
    }
}

impl<B: Backend> fmt::Debug for GrowableBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowableBuffer")
            .field("block", &self.buffer)
            .field("most_bytes", &self.most_bytes)
            .field("stays_in_place", &self.stays_in_place())
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Shared<B> {
    /// Reserves addresses for a block that grows to `most_bytes`, for `queue`, in pages of `page_bytes`.
    fn reserve(
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
    fn map_more(
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
            let pages = self.pages(queue_key, size - offset, missing)?;
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

    /// Returns pages of `bytes` bytes for a block that grows by `asked`. A full device is handled as for a block, except that no free block
    /// can serve this request.
    fn pages(
        &self,
        queue_key: QueueKey,
        asked: usize,
        bytes: usize,
    ) -> Result<B::Memory, PoolError> {
        if bytes > self.allocator.largest_block() {
            self.state.lock().counters.out_of_memory += 1;
            return Err(self.never_fits(asked));
        }
        let request = Request {
            asked,
            bin: 0,
            slot: 0,
            bytes,
            home: 0,
        };
        let hit = self.climb(Ask::for_pages(queue_key, request))?;
        hit.into_memory().ok_or_else(|| self.never_fits(asked))
    }

    /// Unmaps the pages after the first `size` bytes, last page first, as far as their commands have ended. All of them stay if a view of
    /// the block is left or the pool [keeps addresses](crate::KeptAddresses).
    fn unmap_spare(
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
}
