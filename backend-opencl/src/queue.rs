//! Queues of commands.

use std::{
    ffi::c_void,
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use binpool_allocators::{Queue, QueueId, QueueOrder, Result};
use cl3::error_codes::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
use parking_lot::{Mutex, MutexGuard};

use crate::{
    cl_error::{ClResult, Purpose},
    context::Context,
    kept, queue_registry, retired,
    sys::{self, DeviceId, EventHandle, QueueHandle},
};

/// A command queue of OpenCL. Clones are the same queue.
///
/// However often one queue of the runtime is wrapped, the values are equal and have the same
/// [`id`](Queue::id), for as long as one of them lives.
///
/// ```
/// use binpool_allocators::{Backend, Queue, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// // The same queue, by way of some other part of the program that has its handle.
/// // SAFETY: the queue lives.
/// let wrapped = unsafe { backend.wrap_raw_queue(queue.raw()) }?;
/// assert_eq!(wrapped, queue); // To a pool, too: what was freed on one is there on the other at once.
/// assert_eq!(wrapped.order(), QueueOrder::InOrder);
///
/// let another = backend.create_queue(QueueOrder::InOrder)?;
/// assert_ne!(another.id(), queue.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClQueue {
    inner: Arc<QueueInner>,
}

/// # Invariants
///
/// I1: `flushed` is at most `enqueued`, and every command numbered up to `flushed` was flushed.
pub(crate) struct QueueInner {
    id: QueueId,
    handle: QueueHandle,
    order: QueueOrder,
    /// The device, to compare.
    device: usize,
    context: Arc<Context>,
    /// The number of the last command, counted from 1.
    enqueued: AtomicU64,
    /// The number of the last command that is known to be flushed.
    flushed: AtomicU64,
    /// Held while a command on shared virtual memory is enqueued and numbered, so that the numbers of such
    /// commands are in the order of the queue.
    numbering: Mutex<()>,
    /// Held during a commit.
    committing: Mutex<()>,
    /// The last barrier of an out-of-order queue.
    barrier: Mutex<Option<EventHandle>>,
}

impl ClQueue {
    /// The value that stands for the queue of `handle`, which is a queue of `context`.
    pub(crate) fn adopt(context: &Arc<Context>, handle: QueueHandle) -> ClResult<Self> {
        if let Some(inner) = queue_registry::find(handle.raw()) {
            return Ok(Self { inner });
        }
        let info = sys::queue_info(&handle)?;
        let order = if info.out_of_order {
            QueueOrder::OutOfOrder
        } else {
            QueueOrder::InOrder
        };
        Ok(Self::insert(context, handle, order, info.device))
    }

    /// The value that stands for a queue that was just made.
    pub(crate) fn created(context: &Arc<Context>, handle: QueueHandle, order: QueueOrder) -> Self {
        Self::insert(context, handle, order, context.device.raw().addr())
    }

    fn insert(
        context: &Arc<Context>,
        handle: QueueHandle,
        order: QueueOrder,
        device: usize,
    ) -> Self {
        let inner = Arc::new(QueueInner {
            id: QueueId::fresh(),
            handle,
            order,
            device,
            context: Arc::clone(context),
            enqueued: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            numbering: Mutex::new(()),
            committing: Mutex::new(()),
            barrier: Mutex::new(None),
        });
        Self {
            inner: queue_registry::find_or_insert(inner),
        }
    }

    /// The runtime's handle, to enqueue kernels with.
    ///
    /// It is borrowed: valid while this value or a clone lives, and not to be released. Whoever keeps it
    /// longer retains it.
    #[must_use]
    pub fn raw(&self) -> *mut c_void {
        self.inner.handle.raw()
    }

    /// The last barrier of an out-of-order queue, which whoever enqueues the next one puts it behind.
    pub(crate) fn last_barrier(&self) -> MutexGuard<'_, Option<EventHandle>> {
        self.inner.barrier.lock()
    }

    /// Whether no command of it runs before an earlier one has ended, whatever fails. On `PoCL` 3.1, what comes after a
    /// command that has failed does not wait for what came before it.
    pub(crate) fn keeps_its_order(&self) -> bool {
        self.is_in_order() && !self.inner.context.failures.are_fragile()
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.inner.order == QueueOrder::InOrder
    }

    pub(crate) fn handle(&self) -> &QueueHandle {
        &self.inner.handle
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }

    /// Whether this is a queue of `context`'s device.
    pub(crate) fn is_of(&self, context: &Context) -> bool {
        self.is_on(context.handle.raw().addr(), context.device)
    }

    /// The same, where only the context's handle is known.
    pub(crate) fn is_on(&self, context: usize, device: DeviceId) -> bool {
        self.inner.context.handle.raw().addr() == context
            && self.inner.device == device.raw().addr()
    }

    /// Held while a command on shared virtual memory is enqueued and numbered.
    pub(crate) fn numbering(&self) -> MutexGuard<'_, ()> {
        self.inner.numbering.lock()
    }

    /// Held during a commit.
    pub(crate) fn committing(&self) -> MutexGuard<'_, ()> {
        self.inner.committing.lock()
    }

    /// Numbers a command that has just been enqueued.
    pub(crate) fn number_command(&self) -> u64 {
        self.inner.enqueued.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Flushes, unless the command of that number was flushed before.
    pub(crate) fn flush_up_to(&self, number: u64) -> ClResult<()> {
        // Relaxed: the runtime's own locks order the commands; the numbers only save calls.
        if self.inner.flushed.load(Ordering::Relaxed) >= number {
            return Ok(());
        }
        self.flush_all(sys::flush)
    }

    fn flush_all(&self, flush: fn(&QueueHandle) -> ClResult<()>) -> ClResult<()> {
        // Read before the call: commands that are enqueued during it may or may not be flushed.
        let enqueued = self.inner.enqueued.load(Ordering::Relaxed);
        flush(&self.inner.handle)?;
        self.inner.flushed.fetch_max(enqueued, Ordering::Relaxed);
        Ok(())
    }
}

impl QueueInner {
    pub(crate) const fn raw(&self) -> *mut c_void {
        self.handle.raw()
    }
}

impl Drop for QueueInner {
    fn drop(&mut self) {
        if self.context.retires_queues && self.order == QueueOrder::OutOfOrder {
            retired::retire(&self.handle);
        }
        // Before the handle is released: until then nobody else can have a queue of the same handle.
        queue_registry::forget(self);
    }
}

impl fmt::Debug for ClQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClQueue")
            .field("id", &self.inner.id)
            .field("order", &self.inner.order)
            .field("handle", &self.inner.handle)
            .finish_non_exhaustive()
    }
}

impl PartialEq for ClQueue {
    fn eq(&self, other: &Self) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for ClQueue {}

impl Hash for ClQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.id.hash(state);
    }
}

impl Queue for ClQueue {
    fn id(&self) -> QueueId {
        self.inner.id
    }

    fn order(&self) -> QueueOrder {
        self.inner.order
    }

    fn flush(&self) -> Result<()> {
        self.flush_all(sys::flush)
            .map_err(|error| error.into_error(Purpose::Control))
    }

    fn finish(&self) -> Result<()> {
        let finished = self.flush_all(sys::finish);
        kept::drop_what_has_ended();
        match finished {
            // A command that failed has ended too.
            Err(error) if error.code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => Ok(()),
            result => result.map_err(|error| error.into_error(Purpose::Control)),
        }
    }
}
