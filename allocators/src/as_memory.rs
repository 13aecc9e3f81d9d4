//! The trait of everything that can be passed to a command as memory.

use std::sync::Arc;

use crate::{Backend, IntoRegion, InvalidRequest, Memory, Region, Result};

/// Memory that can be passed to commands: a block of a backend itself, a pooled block, or a typed view of either.
///
/// A call that enqueues a command asks for the memory *for the queue that the command will run on*, so that a pool
/// learns of every use. It stays within the [`size`](Self::size) bytes from [`start`](Self::start) on: the size that was
/// requested, not the rounded size of the block.
///
/// Such a call reads the memory by [`bytes_on`], which checks the bounds.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, Error, MemoryFlags, QueueOrder, bytes_on};
/// use binpool_mock::MockDevice;
///
/// fn clear<B: Backend>(backend: &B, queue: &B::Queue, block: &impl AsMemory<B>) -> Result<(), Error> {
///     if let Some((memory, region)) = bytes_on::<B, _>(block, queue, ..)? {
///         backend.enqueue_fill(queue, memory, region, &[0_u8])?;
///     }
///     Ok(())
/// }
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// clear(&backend, &queue, &memory)?;
///
/// // All of its 64 bytes, from its first one on.
/// assert_eq!((memory.size(), memory.start()), (64, 0));
/// assert!(memory.memory_on(&queue).is_some());
/// # Ok::<(), Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory of `{B}`",
    label = "expected memory of the backend, a pooled block, or a view of one"
)]
pub trait AsMemory<B: Backend> {
    /// The requested size in bytes. No command goes beyond it.
    fn size(&self) -> usize;

    /// The offset in bytes at which it starts in the memory of [`memory_on`](Self::memory_on): 0, unless it is a view without
    /// a memory object of its own.
    fn start(&self) -> usize {
        0
    }

    /// Returns the memory for commands on `queue`, or `None` for a block of 0 bytes. It may be larger than
    /// [`size`](Self::size).
    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory>;
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<B: Backend, M: AsMemory<B> + ?Sized> AsMemory<B> for $pointer {
            fn size(&self) -> usize {
                (**self).size()
            }

            fn start(&self) -> usize {
                (**self).start()
            }

            fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
                (**self).memory_on(queue)
            }
        }
    )*};
}

pointers!(&M, Box<M>, Arc<M>);

/// Returns the memory for commands on `queue`, and the bytes of it that `region` of `memory` means; `None` for a block of 0
/// bytes.
///
/// Both bounds are checked: the requested size, and the size of the memory itself, since an
/// implementation of [`AsMemory`] may report a wrong size.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, Memory, MemoryFlags, QueueOrder, Region, bytes_on};
/// use binpool_mock::{MockBackend, MockDevice, MockMemory, MockQueue};
///
/// /// The second half of some memory.
/// struct Half<'a>(&'a MockMemory);
///
/// impl AsMemory<MockBackend> for Half<'_> {
///     fn size(&self) -> usize {
///         self.0.size() / 2
///     }
///
///     fn start(&self) -> usize {
///         self.0.size() / 2
///     }
///
///     fn memory_on(&self, queue: &MockQueue) -> Option<&MockMemory> {
///         self.0.memory_on(queue)
///     }
/// }
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// let half = Half(&memory);
/// let (whole, region) = bytes_on::<MockBackend, _>(&half, &queue, 8..16)?.ok_or("0 bytes")?;
/// assert_eq!((whole.id(), region), (memory.id(), Region::new(40, 8)));
/// assert!(bytes_on::<MockBackend, _>(&half, &queue, ..33).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`OutOfBounds`](InvalidRequest::OutOfBounds).
pub fn bytes_on<'m, B: Backend, M: AsMemory<B> + ?Sized>(
    memory: &'m M,
    queue: &B::Queue,
    region: impl IntoRegion,
) -> Result<Option<(&'m B::Memory, Region)>> {
    let part = region.into_region(memory.size())?;
    let Some(whole) = memory.memory_on(queue) else {
        part.check_within(0)?;
        return Ok(None);
    };
    let out_of_bounds = InvalidRequest::OutOfBounds {
        offset: part.offset,
        bytes: part.bytes,
        size: whole.bytes(),
    };
    let offset = memory.start().checked_add(part.offset);
    let region = Region::new(offset.ok_or(out_of_bounds)?, part.bytes);
    region.check_within(whole.bytes())?;
    Ok(Some((whole, region)))
}
