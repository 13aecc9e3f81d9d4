//! Where a block lies in device memory.

use binpool_allocators::{Backend, Memory, MemoryId};

use crate::PooledBuffer;

/// Where a block lies in the memory from the allocator. Sizes and offsets in bytes.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let [first, second] = [pool.allocate(4096)?, pool.allocate(1024)?];
/// let first = first.place().ok_or("0 bytes")?;
/// let second = second.place().ok_or("0 bytes")?;
/// assert_eq!(first.memory, second.memory); // Neighbours in one segment.
/// assert_eq!(second.offset, first.offset + first.bytes);
///
/// // Without segments, each block is all of its memory.
/// let pool = PoolOptions::new()
///     .segments(false)
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// let place = pool.allocate(4096)?.place().ok_or("0 bytes")?;
/// assert_eq!((place.offset, place.bytes), (0, 4096));
/// assert_eq!(place.memory_bytes, 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The segment that the block was carved from, or the block's own memory if there is none.
    pub memory: MemoryId,
    /// The size of that memory.
    pub memory_bytes: usize,
    /// The offset of the block in it.
    pub offset: usize,
    /// The size of the block in it: its [`class_size`](PooledBuffer::class_size).
    pub bytes: usize,
}

impl<B: Backend> PooledBuffer<B> {
    /// Returns where the block lies, for pictures and for the search for fragmentation; `None` for the block of 0
    /// bytes. Takes the pool's lock.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let [first, second] = [(); 2].map(|()| pool.allocate(4096).unwrap().place().unwrap());
    /// assert_eq!(first, second); // The first one was dropped before.
    /// assert_eq!((first.offset, first.bytes), (0, 4096));
    /// assert!(first.memory_bytes > 4096, "a segment");
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        let block = self.block()?;
        let Some(range) = block.range else {
            return Some(Place {
                memory: block.memory.id(),
                memory_bytes: block.bytes,
                offset: 0,
                bytes: block.bytes,
            });
        };
        let state = self.shared().state.lock();
        let (segment, region) = state.segments.place_of(range)?;
        Some(Place {
            memory: segment.id(),
            memory_bytes: segment.bytes(),
            offset: region.offset,
            bytes: region.bytes,
        })
    }
}
