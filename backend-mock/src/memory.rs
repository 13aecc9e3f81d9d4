//! Memory of the mock device.

use std::{fmt, sync::Arc};

use binpool_allocators::{AsMemory, Memory, MemoryId, MemoryKind, Region, Result};
use parking_lot::Mutex;

use crate::{
    MockBackend, MockQueue,
    shared::Shared,
    state::{EventKey, ObjectKey, Operand},
};

/// A buffer, a block of SVM, or a view of either. Dropping it gives it back.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_mock::{CallKind, MockDevice, Violation};
///
/// let device = MockDevice::new();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
/// // Somebody gives it back behind the back of this value, which is used all the same.
/// backend.release_handle(buffer.handle())?;
/// assert!(backend.write(&queue, &buffer, 0, &[7; 1024], &[]).is_err());
/// let _gone = buffer.into_handle(); // So that it is not given back again.
/// let violations = device.violations();
/// let [Violation::UseAfterFree { bytes, call, .. }] = violations[..] else {
///     panic!("{violations:?}");
/// };
/// assert_eq!((bytes, call), (1024, CallKind::Write));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub struct MockMemory {
    shared: Arc<Shared>,
    operand: Operand,
    kind: MemoryKind,
    /// The queue that a block of SVM is bound to, as the host holds it, for the block and its views; the device has it,
    /// too. `None` for buffers.
    pub(crate) binding: Option<Binding>,
    /// Whether it was given back, or handed over, by other means than a drop.
    gone: bool,
}

pub(crate) type Binding = Arc<Mutex<Option<MockQueue>>>;

/// A block of memory as C-like code holds it: a name that may be copied, and that owns nothing.
///
/// With [`MockMemory::handle`], [`MockMemory::into_handle`] and
/// [`MockBackend::release_handle`](crate::MockBackend::release_handle) a test can do what types forbid: give
/// memory back twice, or use it after.
///
/// ```
/// use binpool_allocators::{Backend, Memory, MemoryFlags};
/// use binpool_mock::MockDevice;
///
/// let device = MockDevice::new();
/// let buffer = device.backend().create_buffer(1024, MemoryFlags::empty())?;
/// let handle = buffer.handle();
/// assert_eq!(handle.id(), buffer.id());
/// drop(buffer);
/// assert!(device.leaks().is_empty()); // The name keeps nothing,
/// assert!(device.backend().release_handle(handle).is_err()); // and names nothing any more.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MockHandle {
    pub(crate) device: u64,
    pub(crate) operand: Operand,
}

impl MockHandle {
    /// The identity of the memory.
    #[must_use]
    pub const fn id(&self) -> MemoryId {
        self.operand.id
    }
}

impl PartialEq for MockHandle {
    fn eq(&self, other: &Self) -> bool {
        self.operand.id == other.operand.id
    }
}

impl Eq for MockHandle {}

impl MockMemory {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        operand: Operand,
        kind: MemoryKind,
        binding: Option<Binding>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            operand,
            kind,
            binding,
            gone: false,
        }
    }

    /// The memory as C-like code holds it. This value still gives it back when it is dropped.
    #[must_use]
    pub fn handle(&self) -> MockHandle {
        MockHandle {
            device: self.shared.number,
            operand: self.operand,
        }
    }

    /// Hands the memory over to C-like code: only
    /// [`MockBackend::release_handle`](crate::MockBackend::release_handle) gives it back now.
    #[must_use = "without the handle the memory is leaked"]
    pub fn into_handle(mut self) -> MockHandle {
        self.gone = true;
        self.handle()
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    pub(crate) const fn key(&self) -> ObjectKey {
        self.operand.key
    }

    /// The whole of it, for a call.
    pub(crate) const fn operand(&self) -> Operand {
        self.operand
    }

    /// A region of it, which lies inside, for a call.
    pub(crate) const fn part(&self, region: Region) -> Operand {
        let offset = self.operand.region.offset.saturating_add(region.offset);
        Operand {
            region: Region::new(offset, region.bytes),
            ..self.operand
        }
    }

    /// Gives it back once the events in `after` have ended.
    pub(crate) fn release(mut self, after: &[EventKey]) -> Result<()> {
        self.gone = true;
        self.shared.with(|state| state.release(self.operand, after))
    }
}

impl Drop for MockMemory {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        let result = self.shared.with(|state| state.release(self.operand, &[]));
        if let Err(error) = result {
            let (memory, bytes) = (self.operand.id, self.operand.region.bytes);
            tracing::error!(%error, %memory, bytes, "memory could not be released");
        }
    }
}

impl Memory for MockMemory {
    fn id(&self) -> MemoryId {
        self.operand.id
    }

    fn bytes(&self) -> usize {
        self.operand.region.bytes
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }
}

impl fmt::Debug for MockMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockMemory")
            .field("id", &self.operand.id)
            .field("region", &self.operand.region)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl AsMemory<MockBackend> for MockMemory {
    fn size(&self) -> usize {
        self.operand.region.bytes
    }

    fn memory_on(&self, _queue: &MockQueue) -> Option<&Self> {
        Some(self)
    }
}
