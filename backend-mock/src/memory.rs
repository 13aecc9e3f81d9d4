//! Memory of the mock device.

use std::{fmt, sync::Arc};

use binpool_allocators::{Error, Memory, MemoryId, MemoryKind, Region, Result, ViewCount};
use parking_lot::Mutex;

use crate::{
    MockQueue,
    shared::Shared,
    state::{EventKey, ObjectKey, Operand},
};

/// A buffer, a block of SVM, or a view of either. Dropping it releases it.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_mock::{CallKind, MockDevice, Violation};
///
/// let device = MockDevice::new();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
/// // The memory is released without this value's knowledge, and used anyway.
/// backend.release_handle(buffer.handle())?;
/// assert!(backend.write(&queue, &buffer, 0, &[7_u8; 1024]).is_err());
/// let _gone = buffer.into_handle(); // So that it is not released a second time.
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
    /// The queue that a block of SVM is bound to, shared by the block and its views. The device's state has it as
    /// well. `None` for buffers.
    pub(crate) binding: Option<Binding>,
    /// Set if the memory was released, or handed over, other than by a drop.
    gone: bool,
    views: ViewCount,
}

pub(crate) type Binding = Arc<Mutex<Option<MockQueue>>>;

/// A bare handle of a block, as C code uses it: it can be copied, and owns nothing.
///
/// With [`MockMemory::handle`], [`MockMemory::into_handle`] and
/// [`MockBackend::release_handle`](crate::MockBackend::release_handle) a test can do what types forbid: release
/// memory twice, or use it afterwards.
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
/// assert!(device.leaks().is_empty()); // The handle keeps nothing alive,
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
            views: ViewCount::default(),
        }
    }

    /// Shares the binding of `parent`, whose view this is.
    pub(crate) fn into_view_of(mut self, parent: &Self) -> Self {
        self.views = ViewCount::of_view(parent.views.count_view());
        self
    }

    /// Returns a handle of the memory. This value still releases it when it is dropped.
    #[must_use]
    pub fn handle(&self) -> MockHandle {
        MockHandle {
            device: self.shared.number,
            operand: self.operand,
        }
    }

    /// Turns the memory into a handle: from now on only
    /// [`MockBackend::release_handle`](crate::MockBackend::release_handle) releases it.
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

    /// The whole memory as an operand of a call.
    pub(crate) const fn operand(&self) -> Operand {
        self.operand
    }

    /// A region of the memory as an operand of a call. The region must lie inside.
    pub(crate) const fn part(&self, region: Region) -> Operand {
        let offset = self.operand.region.offset.saturating_add(region.offset);
        Operand {
            region: Region::new(offset, region.bytes),
            ..self.operand
        }
    }

    /// Releases the memory once the events in `after` have ended.
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

    fn device_address(&self) -> Result<u64> {
        let address = self.shared.with(|state| state.device_address(self.key()));
        address.ok_or_else(|| {
            Error::unsupported("the address of a buffer: shared and virtual memory have addresses")
        })
    }

    fn has_views(&self) -> bool {
        self.views.has_views()
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
