//! Transfers that take a vector of the host, and return it when they have ended.

use std::{fmt, sync::Arc};

use binpool_allocators::{AsMemory, Event};
use bytemuck::{AnyBitPattern, NoUninit};

use super::linear::{Bytes, Linear};
use crate::{
    backend::OpenClBackend, event::ClEvent, on::ClOn, refused::Refused, sys::host::HostVec,
};

/// A pending transfer, and the vector that it works on.
///
/// Dropping or forgetting this value early is safe: the vector is kept until the command has ended, and then dropped.
/// `PyOpenCL`'s `NannyEvent`, whose deletion waits.
///
/// ```
/// use std::slice::from_ref;
/// # use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let other_queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let written = backend.enqueue_write_owned(&queue, &memory, 0, vec![1_u8; 4096])?;
/// backend.enqueue_marker(other_queue.after(from_ref(written.event())))?;
///
/// let mut staging = written.wait()?; // The same vector: nothing is allocated for the next round.
/// assert_eq!(staging.len(), 4096);
/// staging.fill(2);
/// let written = backend.enqueue_write_owned(&queue, &memory, 0, staging)?;
/// drop(written); // The command has what it needs.
/// let mut seen = [0_u8; 1];
/// backend.read(&queue, &memory, 4095, &mut seen)?;
/// assert_eq!(seen, [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the vector is thrown away unless `wait` takes it"]
pub struct PendingTransfer<T> {
    event: ClEvent,
    elements: Arc<HostVec<T>>,
}

impl<T> PendingTransfer<T> {
    pub(super) const fn new(event: ClEvent, elements: Arc<HostVec<T>>) -> Self {
        Self { event, elements }
    }

    /// The event of the transfer.
    pub fn event(&self) -> &ClEvent {
        &self.event
    }

    /// Waits for the transfer, and returns the vector.
    ///
    /// # Errors
    ///
    /// The failure of the transfer, or of a command that it waited for, with the vector, which is empty if the command may
    /// still run. After a failed read its contents are unspecified.
    pub fn wait(self) -> Result<Vec<T>, Refused<Vec<T>>> {
        match self.event.wait() {
            Ok(()) => Ok(self.elements.take()),
            Err(error) => Err(Refused {
                error,
                // A wait may fail while the command still runs.
                value: if self.event.has_ended() {
                    self.elements.take()
                } else {
                    Vec::new()
                },
            }),
        }
    }
}

impl<T> fmt::Debug for PendingTransfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingTransfer")
            .field("event", &self.event)
            .field("elements", &self.elements)
            .finish()
    }
}

/// Transfers that take a vector: `PyOpenCL`'s `enqueue_copy` with `is_blocking=False`. The host cannot free or touch the
/// vector before the command has ended.
impl OpenClBackend {
    /// Enqueues a write of all of `elements`, from byte `offset` of the memory on.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer(16, MemoryFlags::empty())?;
    /// let rows = [[1.0_f32, 2.0], [3.0, 4.0]].map(|row| row.to_vec());
    /// let mut written = Vec::new();
    /// for (row, elements) in rows.into_iter().enumerate() {
    ///     // Enqueued, and the loop goes on; offsets are in bytes.
    ///     written.push(backend.enqueue_write_owned(&queue, &memory, row * 8, elements)?);
    /// }
    /// let last = written.pop().ok_or("there are two")?;
    /// assert_eq!(last.wait()?, [3.0, 4.0]); // The vector is back.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_write`](binpool_allocators::Transfers::enqueue_write), with the vector.
    pub fn enqueue_write_owned<'q, T: NoUninit + Send>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        elements: Vec<T>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        self.transfer_owned(
            on.into(),
            &Linear(memory, Bytes::From(offset)),
            elements,
            HostVec::as_source,
        )
    }

    /// Enqueues a read into all of `elements`, from byte `offset` of the memory on.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[1.0_f32, 2.0, 3.0, 4.0], MemoryFlags::empty())?;
    /// // As many elements as the vector has, from byte 4 on.
    /// let read = backend.enqueue_read_owned(&queue, &memory, 4, vec![0.0_f32; 2])?;
    /// assert_eq!(read.wait()?, [2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_read`](binpool_allocators::Transfers::enqueue_read), with the vector.
    pub fn enqueue_read_owned<'q, T: AnyBitPattern + NoUninit + Send>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &(impl AsMemory<Self> + ?Sized),
        offset: usize,
        elements: Vec<T>,
    ) -> Result<PendingTransfer<T>, Refused<Vec<T>>> {
        self.transfer_owned(
            on.into(),
            &Linear(memory, Bytes::From(offset)),
            elements,
            HostVec::as_target,
        )
    }
}
