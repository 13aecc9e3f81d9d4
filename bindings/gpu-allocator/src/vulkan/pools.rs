//! The pools of a memory type.

use std::sync::{Arc, OnceLock};

use ash::vk;
use binpool::{MemoryPool, PoolError, PoolOptions, PooledBuffer, Retain};
use binpool_allocators::{Align, Backend as _, Error, ImmediateAllocator, QueueOrder};

use super::{
    memory::Mapped,
    runtime::{Kind, OneType},
};

/// The alignments of the pools. Those of buffers are 256 at most on most devices, those of images a page of 4 or 64 KiB.
///
/// Sizes of parts are multiples of them, too. So a part shares no page of `bufferImageGranularity` with another one if its pool's alignment is
/// as large: images are asked for with that as their alignment, and buffers lie beside images only where theirs is as large. Of larger pages, images
/// ask for whole ones.
const ALIGNMENTS: [usize; 3] = [1 << 8, 1 << 12, 1 << 16];

/// The bytes that the cache of each thread may keep. More makes nothing faster here, and with the default of 8 MiB 16 threads take more memory than with
/// gpu-allocator.
const BYTES_PER_THREAD: u64 = 1 << 18;

/// A part of a memory block, while it is allocated.
pub(super) type Pooled = PooledBuffer<OneType>;

/// Where a part lies.
pub(super) struct Place {
    pub(super) memory: vk::DeviceMemory,
    pub(super) offset: u64,
    pub(super) mapped: Option<Mapped>,
}

/// The pools of a memory type, which are made when they are first asked.
pub(super) struct Pools {
    pub(super) kind: Arc<Kind>,
    pools: [OnceLock<MemoryPool<OneType>>; ALIGNMENTS.len()],
}

impl Pools {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind: Arc::new(kind),
            pools: Default::default(),
        }
    }

    /// Allocates `bytes` bytes, from a multiple of `alignment` on.
    pub(super) fn allocate(
        &self,
        bytes: usize,
        alignment: usize,
    ) -> Result<(Pooled, Place), PoolError> {
        let fitting = ALIGNMENTS.iter().position(|&own| own >= alignment);
        let index = fitting.unwrap_or(ALIGNMENTS.len() - 1);
        // What no pool has is found within more bytes.
        let more = alignment.saturating_sub(ALIGNMENTS[index]);
        let pool = match self.pools[index].get() {
            Some(pool) => pool,
            None => self.make(index)?,
        };
        let block = pool.allocate(bytes.saturating_add(more))?;
        let memory = block.memory_on(pool.home_queue());
        let memory = memory.and_then(|memory| Some((memory.block()?, memory.offset())));
        let Some((own, offset)) = memory else {
            return Err(Error::unsupported("memory without bytes").into());
        };
        let offset = offset.next_multiple_of(alignment);
        let place = Place {
            memory: own.raw,
            offset: offset as u64,
            mapped: own.mapped.as_ref().map(|mapped| mapped.at(offset)),
        };
        Ok((block, place))
    }

    fn make(&self, index: usize) -> Result<&MemoryPool<OneType>, PoolError> {
        let alignment = Align::new(ALIGNMENTS[index]).unwrap_or(Align::ONE);
        let backend = OneType::new(&self.kind, alignment);
        let queue = backend.create_queue(QueueOrder::InOrder)?;
        let allocator = ImmediateAllocator::new(&backend)?.with_commit_queue(&queue);
        let retain = Retain::new().per_thread(BYTES_PER_THREAD);
        let options = PoolOptions::new().retain(retain);
        let made = options.build(allocator, &queue)?;
        Ok(self.pools[index].get_or_init(|| made))
    }

    /// Frees what no allocation uses.
    pub(super) fn free_held(&self) -> u64 {
        self.made().map(MemoryPool::free_held).sum()
    }

    /// Frees what no allocation has used since the last call.
    pub(super) fn sweep(&self) {
        for pool in self.made() {
            pool.sweep();
        }
    }

    fn made(&self) -> impl Iterator<Item = &MemoryPool<OneType>> {
        self.pools.iter().filter_map(OnceLock::get)
    }
}
