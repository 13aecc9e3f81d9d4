//! Transfers between the host and memory, and between memory and memory.

use std::sync::Arc;

use crate::{Backend, PendingRead, Region, Result};

/// A backend that moves bytes. No allocator and no pool needs it, but the programs that use their memory.
///
/// # Examples
///
/// Transfers either block, or return an event to wait for. On one in-order queue they need no wait lists:
///
/// ```
/// # use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder, Region, Transfers};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let [input, output] = [(); 2].map(|()| backend.create_buffer(8, MemoryFlags::empty()).unwrap());
/// backend.write(&queue, &input, 0, &[1, 2, 3, 4], &[])?; // Blocks: the host may change its bytes again.
/// backend.enqueue_write(&queue, &input, 4, [5, 6, 7, 8].into(), &[])?; // The backend keeps the bytes.
/// backend.enqueue_fill(&queue, &output, Region::first(4), &[0xAB, 0xCD], &[])?;
/// let copied = backend.enqueue_copy(&queue, &input, Region::new(2, 4), &output, 4, &[])?;
/// copied.wait()?; // Everything before it has ended, too.
/// let mut bytes = [0; 8];
/// backend.read(&queue, &output, 0, &mut bytes, &[])?;
/// assert_eq!(bytes, [0xAB, 0xCD, 0xAB, 0xCD, 3, 4, 5, 6]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait Transfers: Backend {
    /// Writes `data` to `memory` from `offset` on, and waits until it is there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds), [`ForeignObject`](crate::InvalidRequest::ForeignObject),
    /// [`HostAccess`](crate::InvalidRequest::HostAccess) where the memory's flags forbid it,
    /// [`OutOfMemory`](crate::Error::OutOfMemory) where deferred memory turns out not to exist, the failure of
    /// the command or of something that it waits for.
    fn write(
        &self,
        queue: &Self::Queue,
        memory: &Self::Memory,
        offset: usize,
        data: &[u8],
        wait_for: &[Self::Event],
    ) -> Result<()>;

    /// Reads into `data` from `memory` from `offset` on, and waits until it is there.
    ///
    /// On an error the contents of `data` are unspecified, but no command writes to it any more.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds), [`ForeignObject`](crate::InvalidRequest::ForeignObject),
    /// [`HostAccess`](crate::InvalidRequest::HostAccess) where the memory's flags forbid it,
    /// [`OutOfMemory`](crate::Error::OutOfMemory) where deferred memory turns out not to exist, the failure of
    /// the command or of something that it waits for.
    fn read(
        &self,
        queue: &Self::Queue,
        memory: &Self::Memory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[Self::Event],
    ) -> Result<()>;

    /// Enqueues a write of `data` to `memory` from `offset` on. The backend keeps `data` until it is done.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds), [`ForeignObject`](crate::InvalidRequest::ForeignObject),
    /// [`HostAccess`](crate::InvalidRequest::HostAccess) where the memory's flags forbid it,
    /// [`OutOfMemory`](crate::Error::OutOfMemory) where deferred memory turns out not to exist, or a
    /// failure of the runtime.
    fn enqueue_write(
        &self,
        queue: &Self::Queue,
        memory: &Self::Memory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[Self::Event],
    ) -> Result<Self::Event>;

    /// Enqueues a read of `region` of `memory`.
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region, Transfers};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer(8, MemoryFlags::empty())?;
    /// backend.enqueue_write(&queue, &memory, 0, [1, 2, 3, 4, 5, 6, 7, 8].into(), &[])?;
    /// let read = backend.enqueue_read(&queue, &memory, Region::new(2, 3), &[])?;
    /// assert_eq!(read.wait()?, [3, 4, 5]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](crate::InvalidRequest::OutOfBounds), [`ForeignObject`](crate::InvalidRequest::ForeignObject),
    /// [`HostAccess`](crate::InvalidRequest::HostAccess) where the memory's flags forbid it,
    /// [`OutOfMemory`](crate::Error::OutOfMemory) where deferred memory turns out not to exist, or a
    /// failure of the runtime.
    fn enqueue_read(
        &self,
        queue: &Self::Queue,
        memory: &Self::Memory,
        region: Region,
        wait_for: &[Self::Event],
    ) -> Result<PendingRead<Self::Event>>;

    /// Enqueues a copy of the region `from` of `source` to `destination`, from offset `to` on.
    ///
    /// # Errors
    ///
    /// [`OverlappingCopy`](crate::InvalidRequest::OverlappingCopy) where both are the same memory and the
    /// regions share a byte. The caller must avoid overlaps between different views of one block: they
    /// are not detected, and leave undefined bytes.
    fn enqueue_copy(
        &self,
        queue: &Self::Queue,
        source: &Self::Memory,
        from: Region,
        destination: &Self::Memory,
        to: usize,
        wait_for: &[Self::Event],
    ) -> Result<Self::Event>;
}
