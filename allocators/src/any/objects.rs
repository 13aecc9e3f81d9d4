//! Memory, queues and events of a backend that is chosen at run time.

use std::{
    any::Any,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::AnyBackend;
use crate::{
    AsMemory, Event, EventId, EventStatus, Memory, MemoryId, MemoryKind, Queue, QueueId,
    QueueOrder, Result,
    error::{InvalidRequest, ObjectKind},
};

fn foreign(kind: ObjectKind) -> InvalidRequest {
    InvalidRequest::ForeignObject { kind }
}

/// [`Memory`] that can be downcast to its own type.
trait ErasedMemory: Memory + Any {}

impl<M: Memory> ErasedMemory for M {}

/// A block of memory of a backend that is chosen at run time.
///
/// Properties that only one backend's memory has, such as the runtime's handle, are read from its own type:
///
/// ```
/// use binpool_allocators::{AnyBackend, AnyMemory, Backend, Memory, MemoryFlags};
/// use binpool_mock::{MockDevice, MockHandle, MockMemory};
///
/// fn handle_of(block: &AnyMemory) -> Option<MockHandle> {
///     let own: &MockMemory = block.downcast_ref()?; // `None` where it belongs to another backend.
///     Some(own.handle())
/// }
///
/// let backend = AnyBackend::new(MockDevice::new().backend());
/// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let handle = handle_of(&block).expect("memory of the mock");
/// assert_eq!((handle.id(), block.bytes()), (block.id(), 4096)); // These need no downcast.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Debug)]
pub struct AnyMemory(Box<dyn ErasedMemory>);

impl AnyMemory {
    pub(super) fn new(memory: impl Memory) -> Self {
        Self(Box::new(memory))
    }

    /// Returns the block in its backend's own type, or `None` where it belongs to another backend.
    #[must_use]
    pub fn downcast_ref<M: Memory>(&self) -> Option<&M> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    pub(super) fn expect_ref<M: Memory>(&self) -> Result<&M> {
        Ok(self
            .downcast_ref()
            .ok_or_else(|| foreign(ObjectKind::Memory))?)
    }

    pub(super) fn expect<M: Memory>(self) -> Result<M> {
        let any: Box<dyn Any> = self.0;
        match any.downcast() {
            Ok(memory) => Ok(*memory),
            Err(_) => Err(foreign(ObjectKind::Memory).into()),
        }
    }
}

impl Memory for AnyMemory {
    fn id(&self) -> MemoryId {
        self.0.id()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn kind(&self) -> MemoryKind {
        self.0.kind()
    }

    fn has_views(&self) -> bool {
        self.0.has_views()
    }
}

impl AsMemory<AnyBackend> for AnyMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &AnyQueue) -> Option<&Self> {
        Some(self)
    }
}

/// The object-safe part of [`Queue`].
trait ErasedQueue: Any + fmt::Debug + Send + Sync {
    fn id(&self) -> QueueId;
    fn order(&self) -> QueueOrder;
    fn flush(&self) -> Result<()>;
    fn finish(&self) -> Result<()>;
}

impl<Q: Queue> ErasedQueue for Q {
    fn id(&self) -> QueueId {
        Queue::id(self)
    }

    fn order(&self) -> QueueOrder {
        Queue::order(self)
    }

    fn flush(&self) -> Result<()> {
        Queue::flush(self)
    }

    fn finish(&self) -> Result<()> {
        Queue::finish(self)
    }
}

/// A queue of a backend that is chosen at run time.
///
/// Kernels are launched through the backend's own types, with the queue and the memory behind these:
///
/// ```
/// use binpool_allocators::{
///     AnyBackend, AnyMemory, AnyQueue, Backend, Error, MemoryFlags, QueueOrder,
/// };
/// use binpool_mock::{MockBackend, MockDevice, MockMemory, MockQueue};
///
/// fn increment(device: &MockBackend, queue: &AnyQueue, block: &AnyMemory) -> Result<(), Error> {
///     let (queue, block): (Option<&MockQueue>, Option<&MockMemory>) =
///         (queue.downcast_ref(), block.downcast_ref());
///     let (Some(queue), Some(block)) = (queue, block) else {
///         return Err(Error::unsupported("kernels for this device"));
///     };
///     let kernel = |_: &[&[u8]], writes: &mut [&mut [u8]]| {
///         writes[0].iter_mut().for_each(|byte| *byte += 1);
///     };
///     device.launch(queue, "increment", &[], &[block], kernel)?;
///     Ok(())
/// }
///
/// let device = MockDevice::new().backend();
/// let backend = AnyBackend::new(device.clone());
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(3, MemoryFlags::empty())?;
/// backend.write(&queue, &block, 0, &[1, 2, 3], &[])?;
/// increment(&device, &queue, &block)?;
/// # let mut bytes = [0; 3];
/// backend.read(&queue, &block, 0, &mut bytes, &[])?;
/// assert_eq!(bytes, [2, 3, 4]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyQueue(Arc<dyn ErasedQueue>);

impl AnyQueue {
    pub(super) fn new(queue: impl Queue) -> Self {
        Self(Arc::new(queue))
    }

    /// Returns the queue in its backend's own type, or `None` where it belongs to another backend.
    #[must_use]
    pub fn downcast_ref<Q: Queue>(&self) -> Option<&Q> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    pub(super) fn expect_ref<Q: Queue>(&self) -> Result<&Q> {
        Ok(self
            .downcast_ref()
            .ok_or_else(|| foreign(ObjectKind::Queue))?)
    }
}

impl PartialEq for AnyQueue {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for AnyQueue {}

impl Hash for AnyQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id().hash(state);
    }
}

impl Queue for AnyQueue {
    fn id(&self) -> QueueId {
        self.0.id()
    }

    fn order(&self) -> QueueOrder {
        self.0.order()
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn finish(&self) -> Result<()> {
        self.0.finish()
    }
}

/// The object-safe part of [`Event`].
trait ErasedEvent: Any + fmt::Debug + Send + Sync {
    fn id(&self) -> EventId;
    fn status(&self) -> Result<EventStatus>;
    fn wait(&self) -> Result<()>;
    fn wait_for_all_before(&self) -> Result<()>;
}

impl<E: Event> ErasedEvent for E {
    fn id(&self) -> EventId {
        Event::id(self)
    }

    fn status(&self) -> Result<EventStatus> {
        Event::status(self)
    }

    fn wait(&self) -> Result<()> {
        Event::wait(self)
    }

    fn wait_for_all_before(&self) -> Result<()> {
        Event::wait_for_all_before(self)
    }
}

/// An event of a backend that is chosen at run time.
///
/// Calls that only one backend has take its own event type in their wait lists:
///
/// ```
/// use binpool_allocators::{AnyBackend, Backend, Event, EventStatus, Outcome, Queue, QueueOrder};
/// use binpool_mock::{MockDevice, MockEvent};
///
/// let device = MockDevice::new().backend();
/// let backend = AnyBackend::new(device.clone());
/// let ready = backend.create_user_event()?;
/// let queue = device.create_queue(QueueOrder::InOrder)?;
/// let own = ready.downcast_ref::<MockEvent>().expect("an event of the mock");
/// let kernel = device.launch(queue.after(std::slice::from_ref(own)), "behind", &[], &[], |_, _| ())?;
/// assert_eq!(kernel.status()?, EventStatus::Pending);
/// backend.resolve_user_event(&ready, Outcome::Complete)?;
/// kernel.wait()?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyEvent(Arc<dyn ErasedEvent>);

impl AnyEvent {
    pub(super) fn new(event: impl Event) -> Self {
        Self(Arc::new(event))
    }

    /// Returns the event in its backend's own type, or `None` where it belongs to another backend.
    #[must_use]
    pub fn downcast_ref<E: Event>(&self) -> Option<&E> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    pub(super) fn expect_ref<E: Event>(&self) -> Result<&E> {
        Ok(self
            .downcast_ref()
            .ok_or_else(|| foreign(ObjectKind::Event))?)
    }
}

impl PartialEq for AnyEvent {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for AnyEvent {}

impl Hash for AnyEvent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id().hash(state);
    }
}

impl Event for AnyEvent {
    fn id(&self) -> EventId {
        self.0.id()
    }

    fn status(&self) -> Result<EventStatus> {
        self.0.status()
    }

    fn wait(&self) -> Result<()> {
        self.0.wait()
    }

    fn wait_for_all_before(&self) -> Result<()> {
        self.0.wait_for_all_before()
    }
}
