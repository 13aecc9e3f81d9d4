//! What a command does, and with which bytes.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use crate::Region;

/// What a command does. `P` is a part of memory: a [`Span`] for a [`Backend`](crate::Backend), a
/// [`Part`](crate::runtime::Part) for a [`Runtime`](crate::runtime::Runtime).
///
/// A backend around another one passes it on:
///
/// ```
/// use binpool_allocators::{Backend, On, Result, Span, Work};
///
/// fn logged<B: Backend>(
///     backend: &B,
///     on: On<'_, B::Queue, B::Event>,
///     work: Work<'_, Span<'_, B::Memory>>,
/// ) -> Result<B::Event> {
///     println!("{work:?}");
///     backend.submit(on, work)
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Work<'a, P> {
    /// Nothing. It ends when everything that it waits for has or, if it waits for nothing, every earlier command of the queue.
    Marker,
    /// A marker that every later command of the queue comes after.
    Barrier,
    /// Fills a part with repetitions of a pattern, whose length divides that of the part. The part may start anywhere.
    Fill(P, &'a [u8]),
    /// Writes bytes to a part of the same length.
    Write(P, Arc<[u8]>),
    /// Reads the bytes of a part into the sink.
    Read(P, Sink),
    /// Copies the first part to the second, of the same length.
    Copy(P, P),
}

/// Bytes of memory.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region, Span, Work};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = &backend.create_buffer(64, MemoryFlags::empty())?;
/// let bytes = Span { memory, region: Region::new(60, 4) };
/// backend.submit((&queue).into(), Work::Fill(bytes, &[7]))?;
/// assert_eq!(backend.enqueue_read(&queue, memory, 60..)?.wait()?, [7; 4]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Debug)]
pub struct Span<'a, M> {
    /// The memory: a block, or a view of one.
    pub memory: &'a M,
    /// The bytes, counted from its start. They may lie outside: a backend refuses that.
    pub region: Region,
}

impl<M> Clone for Span<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Span<'_, M> {}

/// Where a read puts its bytes. Clones are the same sink.
///
/// ```
/// use binpool_allocators::Sink;
///
/// let sink = Sink::default();
/// sink.clone().put(|| vec![1, 2, 3]);
/// assert_eq!(sink.take(), [1, 2, 3]);
/// ```
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Option<Take>>>);

type Take = Box<dyn FnOnce() -> Vec<u8> + Send>;

impl Sink {
    /// Sets the function that returns the bytes of the command. It is called at most once, and not at all if the read is dropped. It may be called before the
    /// command has ended: then it must not touch what the device still writes to, and return nothing.
    pub fn put(&self, bytes: impl FnOnce() -> Vec<u8> + Send + 'static) {
        *self.0.lock() = Some(Box::new(bytes));
    }

    /// Takes the bytes. Empty if none were put, if the command has not ended, or if they were taken before.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        let take = self.0.lock().take();
        take.map_or_else(Vec::new, |take| take())
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}
