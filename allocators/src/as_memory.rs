//! Memory as commands are given it.

use crate::Backend;

/// Memory that commands of a queue can be given: a block of a backend itself, or one that a pool keeps account of.
///
/// It makes one signature serve both: whoever enqueues a command asks for the memory *for the queue that the command
/// will run on*, so that a pool learns of every use, and stays within [`size`](Self::size), which is what the owner
/// asked for and not what it was rounded up to.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, Error, MemoryFlags, QueueOrder, Region};
/// use binpool_mock::MockDevice;
///
/// fn clear<B: Backend>(backend: &B, queue: &B::Queue, block: &impl AsMemory<B>) -> Result<(), Error> {
///     if let Some(memory) = block.memory_on(queue) {
///         backend.enqueue_fill(queue, memory, Region::first(block.size()), &[0], &[])?;
///     }
///     Ok(())
/// }
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// clear(&backend, &queue, &memory)?;
/// # Ok::<(), Error>(())
/// ```
pub trait AsMemory<B: Backend> {
    /// The size in bytes, as it was asked for. No command goes beyond it.
    fn size(&self) -> usize;

    /// The memory, for commands on `queue`; `None` for the block of 0 bytes. It may be larger than
    /// [`size`](Self::size).
    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory>;
}

impl<B: Backend, M: AsMemory<B> + ?Sized> AsMemory<B> for &M {
    fn size(&self) -> usize {
        (**self).size()
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        (**self).memory_on(queue)
    }
}
