//! `malloc` and `free`: blocks identified by their addresses.

use std::{array, collections::HashMap, fmt, hash::BuildHasher, sync::Arc};

use binpool_allocators::{Backend, InvalidRequest, Memory, Result};
use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::{MemoryPool, PoolError, PooledBuffer};

/// Allocates and frees blocks by their addresses, as `cudaMallocAsync` and `cudaFreeAsync` do, for code that can keep only an
/// address.
///
/// Where you can, keep the [`PooledBuffer`] itself: that saves a lookup for each block.
///
/// Any thread may allocate, use and free a block. An address at which no block starts, one that was freed before, and a queue of another
/// device are errors that change nothing. Dropping the `AddressedPool` frees the remaining blocks as if each were dropped:
/// do not enqueue further commands that use their addresses.
///
/// The memory needs addresses: CUDA's memory and OpenCL's shared virtual memory have them, OpenCL's buffers do not.
///
/// ```
/// # use binpool::{Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
/// # let [queue, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// use binpool::AddressedPool;
///
/// let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
/// let memory = AddressedPool::new(&pool);
///
/// let address = memory.allocate_on(&queue, 4096)?;
/// // ... a kernel on `queue` uses it, and, after that, one on `other`:
/// memory.record_use(&other, address)?;
/// memory.free_on(&queue, address)?;
/// assert_eq!(memory.pool().active_blocks(), 0);
///
/// let twice = memory.free_on(&queue, address).unwrap_err();
/// assert!(twice.to_string().contains("was freed before"), "{twice}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AddressedPool<B: Backend> {
    pool: MemoryPool<B>,
    blocks: Box<[Apart<B>; SHARDS]>,
}

/// The number of maps, so that threads seldom meet.
const SHARDS: usize = 64;

/// Addresses are the pool's own, so that no one can choose them to collide.
const HASHER: FixedState = FixedState::with_seed(0);

type Shard<B> = Mutex<HashMap<u64, Entry<B>, FixedState>>;

/// A block of one address.
enum Entry<B: Backend> {
    Own(PooledBuffer<B>),
    /// Shared with the callers of [`AddressedPool::with_block`]. A block that was never shown needs no reference count.
    Shared(Arc<PooledBuffer<B>>),
}

impl<B: Backend> Entry<B> {
    fn block(&self) -> &PooledBuffer<B> {
        match self {
            Self::Own(block) => block,
            Self::Shared(block) => block,
        }
    }

    fn into_shared(self) -> Arc<PooledBuffer<B>> {
        match self {
            Self::Own(block) => Arc::new(block),
            Self::Shared(block) => block,
        }
    }

    /// Returns the block; an error while it is shown.
    fn into_block(self) -> Result<PooledBuffer<B>, Self> {
        match self {
            Self::Own(block) => Ok(block),
            Self::Shared(block) => Arc::try_unwrap(block).map_err(Self::Shared),
        }
    }
}

// No two of them in one line of the processor's cache, which threads would take from each other.
#[repr(align(128))]
struct Apart<B: Backend>(Shard<B>);

impl<B: Backend> AddressedPool<B> {
    /// Makes one that takes its blocks from `pool`, which you can keep using directly.
    #[must_use]
    pub fn new(pool: &MemoryPool<B>) -> Self {
        Self {
            pool: pool.clone(),
            blocks: Box::new(array::from_fn(|_| Apart(Mutex::default()))),
        }
    }

    /// The pool below.
    #[must_use]
    pub fn pool(&self) -> &MemoryPool<B> {
        &self.pool
    }

    /// Allocates `bytes` bytes for commands on `queue`, and returns their address; 0 for 0 bytes.
    ///
    /// # Errors
    ///
    /// Those of [`MemoryPool::allocate_on`]; [`Unsupported`](crate::Error::Unsupported) if memory has no [address](Memory::device_address).
    pub fn allocate_on(&self, queue: &B::Queue, bytes: usize) -> Result<u64, PoolError> {
        Ok(self.add(queue, self.pool.allocate_on(queue, bytes)?)?)
    }

    /// Adds a block of the pool, and returns its address, by which it is freed from now on; 0 for the block of 0 bytes. `queue` is recorded as
    /// one that uses it. The opposite of [`take`](Self::take).
    ///
    /// ```
    /// # use binpool::{AddressedPool, Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// let memory = AddressedPool::new(&pool);
    /// let block = pool.allocate(4096)?;
    /// let whole = block.class_size(); // What it takes of the device.
    /// let address = memory.add(&queue, block)?;
    /// assert!(memory.contains(address) && whole >= 4096);
    /// memory.free_on(&queue, address)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) if memory has no [address](Memory::device_address); the block is freed then.
    pub fn add(&self, queue: &B::Queue, block: PooledBuffer<B>) -> Result<u64> {
        let Some(memory) = block.memory_on(queue) else {
            return Ok(0);
        };
        let address = memory.device_address()?;
        self.insert(address, Entry::Own(block));
        Ok(address)
    }

    /// Frees a block. Its memory is reused only after everything enqueued so far on `queue` and on the block's other queues. Address 0 does
    /// nothing. A block that [`with_block`](Self::with_block) is showing has no address from now on, and is freed when that returns.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](InvalidRequest::UnknownAddress); [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another device, and
    /// the block stays allocated; a failure of the device, and the block is still freed ([`PooledBuffer::release`]).
    pub fn free_on(&self, queue: &B::Queue, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let entry = self.shard_of(address).lock().remove(&address);
        let entry = entry.ok_or(InvalidRequest::UnknownAddress { address })?;
        if let Err(error) = entry.block().record_use(queue) {
            self.insert(address, entry);
            return Err(error);
        }
        match entry {
            Entry::Own(block) => block.release(),
            Entry::Shared(block) => Arc::into_inner(block).map_or(Ok(()), PooledBuffer::release),
        }
    }

    /// Records that commands on `queue` use a block: once it is freed, no other request gets it before they have ended. Address 0 does
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`UnknownAddress`](InvalidRequest::UnknownAddress), and those of [`PooledBuffer::record_use`].
    pub fn record_use(&self, queue: &B::Queue, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let blocks = self.shard_of(address).lock();
        let entry = blocks.get(&address);
        let entry = entry.ok_or(InvalidRequest::UnknownAddress { address })?;
        entry.block().record_use(queue)
    }

    /// Returns whether an allocated block starts at this address.
    ///
    /// ```
    /// # use binpool::{AddressedPool, Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// let memory = AddressedPool::new(&pool);
    /// let address = memory.allocate_on(&queue, 4096)?;
    /// assert!(memory.contains(address) && !memory.contains(address + 256));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        self.shard_of(address).lock().contains_key(&address)
    }

    /// Calls `look` with a block and returns what it returns; `None` if no block starts at this address. No lock is held meanwhile: `look` and
    /// other threads may allocate, use and [free](Self::free_on) any block, but nothing [takes](Self::take) this one.
    ///
    /// ```
    /// # use binpool::{AddressedPool, Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// let memory = AddressedPool::new(&pool);
    /// let address = memory.allocate_on(&queue, 4000)?;
    /// assert_eq!(memory.with_block(address, |block| block.size()), Some(4000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_block<R>(
        &self,
        address: u64,
        look: impl FnOnce(&PooledBuffer<B>) -> R,
    ) -> Option<R> {
        let mut blocks = self.shard_of(address).lock();
        let block = blocks.remove(&address)?.into_shared();
        blocks.insert(address, Entry::Shared(Arc::clone(&block)));
        drop(blocks);
        Some(look(&block))
    }

    /// Removes a block and returns it; `None` if no block starts at this address, or while [`with_block`](Self::with_block) shows it. It is freed
    /// when it is dropped, no longer by its address.
    ///
    /// ```
    /// # use binpool::{AddressedPool, Backend, MemoryPool, QueueOrder, VirtualMemoryAllocator};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::builder().virtual_memory(true).build().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    /// let memory = AddressedPool::new(&pool);
    /// let address = memory.allocate_on(&queue, 4096)?;
    /// let block = memory.take(address).ok_or("it is allocated")?;
    /// assert!(block.size() == 4096 && !memory.contains(address));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take(&self, address: u64) -> Option<PooledBuffer<B>> {
        let mut blocks = self.shard_of(address).lock();
        let block = blocks.remove(&address)?.into_block();
        block.map_err(|shown| blocks.insert(address, shown)).ok()
    }

    fn insert(&self, address: u64, entry: Entry<B>) {
        let former = self.shard_of(address).lock().insert(address, entry);
        if former.is_some() {
            // Only a pool that hands out memory twice leads here. The former block is kept from others.
            tracing::error!(address, "an address was handed out twice");
            std::mem::forget(former);
        }
    }

    fn shard_of(&self, address: u64) -> &Shard<B> {
        // A map takes the lowest and the highest bits.
        let middle = HASHER.hash_one(address) >> 32;
        // Below `SHARDS`, whatever the address.
        &self.blocks[usize::try_from(middle).unwrap_or(0) % SHARDS].0
    }
}

impl<B: Backend> fmt::Debug for AddressedPool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressedPool")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
