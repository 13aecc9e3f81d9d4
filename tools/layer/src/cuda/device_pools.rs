//! The pools of a device.

use binpool::{
    Backend, Budget, ImmediateAllocator, Memory, MemoryPool, PoolError, PoolOptions, PooledBuffer,
    Queue, QueueId, QueueOrder, VirtualMemoryAllocator,
};
use binpool_cuda::{CudaBackend, CudaDevice, CudaLibrary, CudaQueue};
use parking_lot::Mutex;

use crate::whole_blocks::{Bound, whole_blocks};

/// A pool of whole blocks keeps everything that is freed up to this size, and beyond that up to a percentage of the most bytes that were in use.
const KEPT_ANYWAY: u64 = 32 << 20;
const PERCENT_OF_PEAK: u64 = 105;

/// Blocks of the driver begin on multiples of this.
const UNIT: usize = 256;

/// A block, after its address.
type Block = (usize, PooledBuffer<CudaBackend>);

fn with_address(buffer: PooledBuffer<CudaBackend>, queue: &CudaQueue) -> Result<Block, PoolError> {
    let memory = buffer.memory_on(queue);
    let address = memory.map_or(Ok(0), Memory::device_address)?;
    let address = usize::try_from(address).unwrap_or(usize::MAX);
    Ok((address, buffer))
}

/// The pools of the primary context of a device.
#[derive(Debug)]
pub(super) struct DevicePools {
    /// Its number.
    pub(super) device: usize,
    pub(super) context: usize,
    backend: CudaBackend,
    /// For the memory of `cuMemAllocAsync`: blocks of one stream each, carved from pages.
    ordered: MemoryPool<CudaBackend>,
    /// For the memory of `cuMemAlloc`: whole blocks of the driver, whose former uses have all ended.
    plain: MemoryPool<CudaBackend>,
    /// The stream that blocks of `plain` are for, which has no commands.
    none: CudaQueue,
    legacy: CudaQueue,
    plain_use: Mutex<PlainUse>,
    /// The streams that the program has destroyed, which live until no pool needs them.
    ended: Mutex<Vec<(usize, QueueId)>>,
}

/// The bytes of the pool of whole blocks.
#[derive(Debug)]
struct PlainUse {
    managed: u64,
    bound: Bound,
}

impl DevicePools {
    /// Makes the pools of a device; `None` if this is not its primary context.
    ///
    /// # Errors
    ///
    /// The device lacks what a pool needs, or the driver fails.
    pub(super) fn open(
        library: &CudaLibrary,
        device: usize,
        context: usize,
        budget: &Budget,
    ) -> Result<Option<Self>, PoolError> {
        let ordinal = u32::try_from(device).unwrap_or(u32::MAX);
        let backend = CudaDevice::of(library, ordinal)?.backend()?;
        if backend.raw_context().addr() != context {
            return Ok(None);
        }
        let none = backend.create_queue(QueueOrder::InOrder)?;
        let options = PoolOptions::new().budget(budget);
        let ordered = options
            .clone()
            .build(VirtualMemoryAllocator::new(&backend), &none)?;
        let plain = whole_blocks(options, UNIT).build(ImmediateAllocator::new(&backend)?, &none)?;
        Ok(Some(Self {
            device,
            context,
            ordered,
            plain,
            none,
            legacy: backend.legacy_default_queue(),
            backend,
            plain_use: Mutex::new(PlainUse {
                managed: 0,
                bound: Bound::new(KEPT_ANYWAY, PERCENT_OF_PEAK),
            }),
            ended: Mutex::default(),
        }))
    }

    /// Allocates a block that any stream may use at once, and returns its address with it.
    pub(super) fn allocate_plain(&self, bytes: usize) -> Result<Block, PoolError> {
        let buffer = self.plain.allocate(bytes)?;
        self.keep_within_bounds();
        with_address(buffer, &self.none)
    }

    /// Allocates a block for a stream, and returns its address with it.
    pub(super) fn allocate_ordered(
        &self,
        queue: &CudaQueue,
        bytes: usize,
    ) -> Result<Block, PoolError> {
        with_address(self.ordered.allocate_on(queue, bytes)?, queue)
    }

    /// Releases blocks of the pool of whole blocks that it may not keep, once it has grown.
    fn keep_within_bounds(&self) {
        let managed = self.plain.managed_bytes();
        let most = {
            let mut plain_use = self.plain_use.lock();
            if managed <= plain_use.managed {
                return;
            }
            plain_use.managed = managed;
            plain_use.bound.most(self.plain.active_bytes())
        };
        if managed > most {
            self.plain.trim_to(most);
            self.plain_use.lock().managed = self.plain.managed_bytes();
        }
    }

    /// The queue of a stream of the context; a per-thread default stream is that of the calling thread.
    pub(super) fn queue_of(&self, stream: usize) -> Option<CudaQueue> {
        if stream == super::function::LEGACY {
            return Some(self.legacy.clone());
        }
        let stream = std::ptr::without_provenance_mut(stream);
        // SAFETY: the program passes a stream of the context. One that it destroys lives on until the queue is dropped.
        unsafe { self.backend.wrap_raw_queue(stream) }.ok()
    }

    /// Ends a stream: `destroy` gets each stream that no pool needs any more.
    pub(super) fn end(&self, stream: usize, queue: CudaQueue, destroy: impl Fn(usize)) {
        let id = queue.id();
        drop(queue);
        self.ended.lock().push((stream, id));
        let ended = std::mem::take(&mut *self.ended.lock());
        for (stream, id) in ended {
            if self.is_needed(stream, id) {
                self.ended.lock().push((stream, id));
            } else {
                destroy(stream);
            }
        }
    }

    /// Returns whether a pool still has the queue of a stream that it was asked to drop.
    fn is_needed(&self, stream: usize, id: QueueId) -> bool {
        // The same stream is the same queue, as long as anything has it.
        let has_it = || self.queue_of(stream).filter(|queue| queue.id() == id);
        if let Some(queue) = has_it() {
            self.ordered.retire_queue(&queue);
            self.plain.retire_queue(&queue);
        }
        has_it().is_some()
    }

    /// Destroys all streams that the program has destroyed.
    pub(super) fn destroy_ended(self: std::sync::Arc<Self>, destroy: impl Fn(usize)) {
        let ended = std::mem::take(&mut *self.ended.lock());
        drop(self);
        for (stream, _) in ended {
            destroy(stream);
        }
    }

    /// Releases all that the pools keep, and returns the bytes.
    pub(super) fn release_kept(&self) -> u64 {
        let bytes = self.ordered.free_held() + self.plain.free_held();
        if bytes > 0 {
            // The limit counts whole blocks until the pool's own markers there have ended.
            let _ = self.none.finish();
        }
        bytes
    }

    /// The bytes of blocks that the program has.
    pub(super) fn used_bytes(&self) -> usize {
        let bytes = self.ordered.active_bytes() + self.plain.active_bytes();
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The bytes that the pools have beyond these.
    pub(super) fn kept_bytes(&self) -> usize {
        let bytes = self.ordered.managed_bytes() + self.plain.managed_bytes();
        usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.used_bytes())
    }
}
