//! A queue of OpenCL commands as a value that clones share.

use std::{
    ffi::c_void,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use binpool_allocators::{Error, Queue, QueueId, QueueOrder, Result, debug_by};
use cl3::error_codes::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;

use crate::{
    after_use::free_what_has_ended,
    context::Context,
    identity::same_by,
    order::{
        access_log::{AccessLog, wait_for_commands},
        weak_queue::{QueueCalls, WeakQueue},
    },
    quirks::{dropped_queues, stand_in_events},
    registry::Registry,
    sys::{self, ClResult, DeviceId, EventHandle, QueueHandle, WaitList},
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

/// The queues, by the addresses of the runtime's queues.
static QUEUES: Registry<usize, QueueInner> = Registry::new();

/// # Invariants
///
/// I1: `flushed` is at most `enqueued`, and every command numbered up to `flushed` was flushed.
pub(crate) struct QueueInner {
    id: QueueId,
    handle: QueueHandle,
    order: QueueOrder,
    /// The queue as its commands know it.
    weak: WeakQueue,
    /// Set if it was made here, and not by the program.
    ours: bool,
    /// The address of the device, to compare.
    device: usize,
    context: Arc<Context>,
    /// The number of the last command, counted from 1.
    enqueued: AtomicU64,
    /// The number of the last command that is known to be flushed.
    flushed: AtomicU64,
    /// The log of the queue's commands: the runtime may forget their order after one that fails early.
    log: AccessLog,
    /// Set if the program has the bare handle, and so may enqueue commands that are not in the log.
    is_exposed: AtomicBool,
    /// The number of the last command at the time of the last `finish`.
    finished: AtomicU64,
}

impl ClQueue {
    /// Returns the value that stands for the queue of `handle`, which is a queue of `context`.
    pub(crate) fn adopt(context: &Arc<Context>, handle: QueueHandle) -> ClResult<Self> {
        if let Some(inner) = QUEUES.find(&handle.raw().addr()) {
            inner.is_exposed.store(true, Ordering::Relaxed);
            return Ok(Self { inner });
        }
        let info = sys::queue_info(&handle)?;
        let order = if info.out_of_order {
            QueueOrder::OutOfOrder
        } else {
            QueueOrder::InOrder
        };
        let adopted = Self::insert(context, handle, order, (info.device, false));
        adopted.inner.is_exposed.store(true, Ordering::Relaxed);
        Ok(adopted)
    }

    /// Returns the value that stands for a queue that was just made.
    pub(crate) fn created(context: &Arc<Context>, handle: QueueHandle, order: QueueOrder) -> Self {
        let device = context.device.raw().addr();
        Self::insert(context, handle, order, (device, true))
    }

    fn insert(
        context: &Arc<Context>,
        handle: QueueHandle,
        order: QueueOrder,
        (device, ours): (usize, bool),
    ) -> Self {
        let id = QueueId::fresh();
        let inner = Arc::new_cyclic(|this: &Weak<QueueInner>| QueueInner {
            id,
            handle,
            order,
            weak: WeakQueue::new(id, order, Weak::clone(this) as Weak<dyn QueueCalls>),
            ours,
            device,
            context: Arc::clone(context),
            enqueued: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            log: AccessLog::default(),
            is_exposed: AtomicBool::new(false),
            finished: AtomicU64::new(0),
        });
        Self {
            inner: QUEUES.find_or_insert(inner.handle.raw().addr(), inner),
        }
    }

    /// Makes a queue for one command, which then waits for no other command of a queue and holds up none, and which no failure of
    /// another command reaches.
    pub(crate) fn for_one_command(context: &Arc<Context>) -> ClResult<Self> {
        let handle = sys::create_queue(&context.handle, context.device, false)?;
        Ok(Self::created(context, handle, QueueOrder::InOrder))
    }

    /// The runtime's handle, to enqueue kernels with.
    ///
    /// It is borrowed: valid while this value or a clone lives, and not to be released. Code that keeps it longer has to
    /// retain it.
    pub fn raw(&self) -> *mut c_void {
        self.inner.is_exposed.store(true, Ordering::Relaxed);
        self.inner.handle.raw()
    }

    /// The log that keeps the queue's order after commands that fail early.
    pub(crate) fn order_log(&self) -> &AccessLog {
        &self.inner.log
    }

    /// Checks that the end of a marker on the queue says that everything before it has ended. It does not where a command
    /// of an in-order queue has failed early and the program has the bare handle: the runtime has forgotten the order, and
    /// commands that the program enqueued by itself are not in the log.
    pub(crate) fn check_order(&self) -> Result<()> {
        let is_exposed = self.inner.is_exposed.load(Ordering::Relaxed);
        let failed = self.inner.weak.last_failure();
        let finished = self.inner.finished.load(Ordering::Relaxed);
        if !self.is_in_order() || !is_exposed || failed <= finished {
            return Ok(());
        }
        Err(Error::unsupported(
            "a marker after a command that failed, on an in-order queue whose raw handle the program has: this runtime has \
             forgotten the order of such a queue until it is finished; call `finish` first",
        ))
    }

    /// Returns its identity if the program may enqueue commands with the bare handle.
    pub(crate) fn id_if_exposed(&self) -> Option<QueueId> {
        let is_exposed = self.inner.is_exposed.load(Ordering::Relaxed);
        is_exposed.then_some(self.inner.id)
    }

    /// Returns its identity, which tracked commands know it by.
    pub(crate) fn identity(&self) -> QueueId {
        self.inner.id
    }

    pub(crate) fn downgrade(&self) -> WeakQueue {
        self.inner.weak.clone()
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

    /// Returns whether this is a queue of `context`'s device.
    pub(crate) fn is_of(&self, context: &Context) -> bool {
        self.is_on(context.handle.raw().addr(), context.device)
    }

    /// Returns whether this is a queue of `device` and of the context of that address.
    pub(crate) fn is_on(&self, context: usize, device: DeviceId) -> bool {
        self.inner.context.handle.raw().addr() == context
            && self.inner.device == device.raw().addr()
    }

    /// Returns the number of a command that has just been enqueued.
    pub(crate) fn number_command(&self) -> u64 {
        self.inner.enqueued.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Flushes, unless the command of that number was flushed before.
    pub(crate) fn flush_up_to(&self, number: u64) -> ClResult<()> {
        self.inner.flush_up_to(number)
    }
}

impl QueueInner {
    fn flush_all(&self, flush: fn(&QueueHandle) -> ClResult<()>) -> ClResult<()> {
        // Read before the call: commands that are enqueued during it may or may not be flushed.
        let enqueued = self.enqueued.load(Ordering::Relaxed);
        flush(&self.handle)?;
        self.flushed.fetch_max(enqueued, Ordering::Relaxed);
        Ok(())
    }
}

impl QueueCalls for QueueInner {
    fn flush_up_to(&self, number: u64) -> ClResult<()> {
        // Relaxed: the runtime's own locks order the commands; the numbers only save calls.
        if self.flushed.load(Ordering::Relaxed) >= number {
            return Ok(());
        }
        self.flush_all(sys::flush)
    }

    fn stand_in(&self, event: &EventHandle) -> ClResult<EventHandle> {
        // On this queue it would come after commands that may wait for what waits for `event`.
        let queue = ClQueue::for_one_command(&self.context)?;
        let marker = stand_in_events::marker(queue.handle(), event)?;
        sys::flush(queue.handle())?;
        Ok(marker)
    }
}

impl Drop for QueueInner {
    fn drop(&mut self) {
        // A queue of the program's own is kept only if it is out of order: keeping it changes the number of references that
        // the program sees.
        if self.context.quirks.keeps_dropped_queues
            && (self.ours || self.order == QueueOrder::OutOfOrder)
        {
            dropped_queues::keep_until_idle(&self.handle);
        }
        // Before the handle is released: until then the runtime cannot give it to another queue.
        QUEUES.forget(&self.handle.raw().addr());
    }
}

debug_by!(ClQueue, |this| id: this.inner.id, order: this.inner.order, handle: this.inner.handle);

same_by!(ClQueue, |this| this.inner.id);

impl Queue for ClQueue {
    fn id(&self) -> QueueId {
        self.inner.id
    }

    fn order(&self) -> QueueOrder {
        self.inner.order
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush_all(sys::flush).map_err(Error::from)
    }

    fn finish(&self) -> Result<()> {
        let last = self.inner.enqueued.load(Ordering::Relaxed);
        let commands = self.order_log().commands();
        let quirks = &self.inner.context.quirks;
        let after_all = quirks
            .finish_returns_early
            .then(|| sys::enqueue_marker(self.handle(), &WaitList::none()))
            .transpose()?;
        let finished = match self.inner.flush_all(sys::finish) {
            // A command that failed has ended too.
            Err(error) if error.code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => Ok(()),
            result => result,
        };
        // Where a command has failed, a runtime may return while others still run.
        let finished = finished.and_then(|()| wait_for_commands(self.inner.id, commands));
        if let Some(marker) = after_all {
            // It may have failed.
            let _ended = sys::wait_until_ended(&marker);
        }
        free_what_has_ended();
        if finished.is_ok() {
            quirks.queue_is_idle(self.inner.id);
            self.inner.finished.fetch_max(last, Ordering::Relaxed);
        }
        finished.map_err(Error::from)
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::Backend;

    use super::*;
    use crate::testing::open;

    /// Two threads may find failures in another order than that of their commands.
    #[test]
    fn a_queue_has_lost_its_order_until_all_that_failed_is_finished() {
        let queue = open().create_queue(QueueOrder::InOrder).unwrap();
        let _handle = queue.raw();
        let before = queue.number_command();
        queue.finish().unwrap();
        assert!(queue.check_order().is_ok());
        let last = queue.number_command();
        queue.downgrade().note_failure(last);
        queue.downgrade().note_failure(before);
        assert!(queue.check_order().is_err());
        queue.finish().unwrap();
        assert!(queue.check_order().is_ok());
    }
}
