//! Reads that have been enqueued.

use std::fmt;

use crate::{Event, Result, Sink};

/// The bytes of a read that has been enqueued.
///
/// The backend owns the memory that the device writes to until the command has ended, so that dropping or
/// forgetting this value early is safe: the bytes are discarded when they arrive.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let buffer = backend.create_buffer(4, MemoryFlags::empty())?;
/// backend.write(&queue, &buffer, 0, &[1_u8, 2, 3, 4])?;
/// let on_the_way = backend.enqueue_read(&queue, &buffer, Region::new(1, 2))?;
/// // Other work, meanwhile.
/// assert_eq!(on_the_way.wait()?, [2, 3]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[must_use = "the bytes are lost unless `wait` returns them"]
pub struct PendingRead<E> {
    event: E,
    bytes: Sink,
}

impl<E: Event> PendingRead<E> {
    /// A read that ends with `event`, and puts its bytes into the sink.
    pub fn new(event: E, bytes: Sink) -> Self {
        Self { event, bytes }
    }

    /// The event of the read.
    ///
    /// ```
    /// use binpool_allocators::{Queue, Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let [download, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let buffer = backend.create_buffer(4, MemoryFlags::empty())?;
    /// # backend.write(&download, &buffer, 0, &[1_u8; 4])?;
    /// let read = backend.enqueue_read(&download, &buffer, Region::first(4))?;
    /// // Another queue overwrites the memory once it has been read.
    /// let after = [read.event().clone()];
    /// backend.enqueue_fill(compute.after(&after), &buffer, Region::first(4), &[2_u8])?;
    /// assert_eq!(read.wait()?, [1; 4]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn event(&self) -> &E {
        &self.event
    }

    /// Waits for the bytes.
    ///
    /// # Errors
    ///
    /// The failure of the read, or of an event that it waited for.
    pub fn wait(self) -> Result<Vec<u8>> {
        self.event.wait()?;
        Ok(self.bytes.take())
    }
}

impl<E: fmt::Debug> fmt::Debug for PendingRead<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRead")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}
