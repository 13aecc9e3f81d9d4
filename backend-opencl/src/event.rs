//! Events.

use std::{
    ffi::c_void,
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
};

use binpool_allocators::{
    Error, Event, EventId, EventStatus, InvalidRequest, Outcome, Queue, Result,
};
use cl3::error_codes::{CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_INVALID_OPERATION};

use crate::{
    cl_error::{ClError, ClResult, Purpose},
    context::Context,
    kept::Kept,
    queue::ClQueue,
    sys::{self, EventHandle},
};

/// An event of OpenCL. Clones are the same event.
///
/// Wrapping one event of the runtime twice gives two values with different identities; clone the first value
/// instead.
///
/// Asking for the [`status`](Event::status) of a command that has not ended flushes its queue, once, so that
/// a program that asks again and again comes to an end. Where the last clone of a user event is dropped
/// before it was resolved, it is resolved as failed: nobody could do it any more, and what waits for it would
/// wait for ever.
///
/// On some runtimes (Intel's, for one) a command that failed because of something that it waited for reads as
/// complete; [`wait`](Event::wait) tells.
///
/// ```
/// use std::slice::from_ref;
///
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_allocators::{Event, EventStatus, Outcome, Region};
/// # use binpool_opencl::OpenClBackend;
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// let gate = backend.create_user_event()?;
/// let filled = backend.enqueue_fill(&queue, &memory, Region::first(64), &[7], from_ref(&gate))?;
/// assert_eq!(filled.status()?, EventStatus::Pending); // However long one asks.
/// backend.resolve_user_event(&gate, Outcome::Complete)?;
/// filled.wait()?;
/// assert_eq!(filled.status()?, EventStatus::Complete);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClEvent {
    inner: Arc<EventInner>,
}

struct EventInner {
    id: EventId,
    handle: EventHandle,
    origin: Origin,
    /// What is known so far: [`PENDING`], [`SEEN_COMPLETE`], [`COMPLETE`], or the code of the failure.
    known: AtomicI32,
    /// Bytes of the host that the command works on.
    kept: Kept,
}

const PENDING: i32 = 2;
/// The status says so, but a wait may still tell of a failure.
const SEEN_COMPLETE: i32 = 1;
const COMPLETE: i32 = 0;

enum Origin {
    Command {
        queue: ClQueue,
        /// Which command of the queue it is.
        number: u64,
        purpose: Purpose,
    },
    /// Nothing was enqueued, because something to wait for had failed.
    Stillborn {
        context: Arc<Context>,
        purpose: Purpose,
    },
    User {
        context: Arc<Context>,
        resolved: AtomicBool,
        /// Whether it was made here, and not by the program's own calls.
        ours: bool,
    },
}

impl ClEvent {
    /// The event of a command that was just enqueued.
    pub(crate) fn command(queue: &ClQueue, handle: EventHandle, purpose: Purpose) -> Self {
        Self::new(
            handle,
            Origin::Command {
                number: queue.number_command(),
                queue: queue.clone(),
                purpose,
            },
        )
    }

    /// A user event, made by this backend or by the program itself.
    pub(crate) fn user(context: &Arc<Context>, handle: EventHandle, ours: bool) -> Self {
        Self::new(
            handle,
            Origin::User {
                context: Arc::clone(context),
                resolved: AtomicBool::new(false),
                ours,
            },
        )
    }

    /// The event of a command that was not enqueued, because something that it was to wait for has failed.
    pub(crate) fn stillborn(context: &Arc<Context>, purpose: Purpose) -> ClResult<Self> {
        let handle = sys::create_user_event(&context.handle)?;
        sys::set_user_event_status(&handle, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)?;
        let context = Arc::clone(context);
        Ok(Self::new(handle, Origin::Stillborn { context, purpose }))
    }

    fn new(handle: EventHandle, origin: Origin) -> Self {
        Self {
            inner: Arc::new(EventInner {
                id: EventId::fresh(),
                handle,
                origin,
                known: AtomicI32::new(PENDING),
                kept: Kept::default(),
            }),
        }
    }

    /// The runtime's handle, for wait lists of kernels.
    ///
    /// It is borrowed: valid while this value or a clone lives, and not to be released. Whoever keeps it
    /// longer retains it. User events are to be resolved through
    /// [`resolve_user_event`](binpool_allocators::Backend::resolve_user_event) only.
    ///
    /// ```
    /// # use std::slice::from_ref;
    /// # use binpool_allocators::{Backend, Event, MemoryFlags, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # let backend = OpenClBackend::from_context(&context)?;
    /// # let queue = backend.create_queue(binpool_allocators::QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// # // SAFETY: the device is the context's.
    /// # let own_queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// let filled = backend.enqueue_fill(&queue, &memory, Region::first(64), &[7], &[])?;
    /// // A command that the program enqueues by itself, behind the fill.
    /// // SAFETY: the event in the wait list lives.
    /// let marker = unsafe { own_queue.enqueue_marker_with_wait_list(&[filled.raw()]) }?;
    /// backend.wrap_event(&marker)?.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn raw(&self) -> *mut c_void {
        self.inner.handle.raw()
    }

    pub(crate) fn handle(&self) -> &EventHandle {
        &self.inner.handle
    }

    pub(crate) fn context(&self) -> &Context {
        match &self.inner.origin {
            Origin::Command { queue, .. } => queue.context(),
            Origin::User { context, .. } | Origin::Stillborn { context, .. } => context,
        }
    }

    /// The queue of the command; user events have none.
    pub(crate) fn queue(&self) -> Option<&ClQueue> {
        match &self.inner.origin {
            Origin::Command { queue, .. } => Some(queue),
            Origin::User { .. } | Origin::Stillborn { .. } => None,
        }
    }

    /// Which command of its queue it is; 0 for user events.
    pub(crate) fn number(&self) -> u64 {
        match &self.inner.origin {
            Origin::Command { number, .. } => *number,
            Origin::User { .. } | Origin::Stillborn { .. } => 0,
        }
    }

    fn purpose(&self) -> Purpose {
        match &self.inner.origin {
            Origin::Command { purpose, .. } | Origin::Stillborn { purpose, .. } => *purpose,
            Origin::User { .. } => Purpose::Control,
        }
    }

    /// Flushes the command's queue, unless that was done: whatever waits for this event on another queue needs
    /// it (OpenCL 3.0, section 5.13).
    pub(crate) fn flush_producer(&self) -> ClResult<()> {
        match &self.inner.origin {
            Origin::Command { queue, number, .. } => queue.flush_up_to(*number),
            Origin::User { .. } | Origin::Stillborn { .. } => Ok(()),
        }
    }

    /// Whether the command is known to have ended. A runtime that does not say is taken to be still at it.
    pub(crate) fn has_ended(&self) -> bool {
        self.status().is_ok_and(EventStatus::has_ended)
    }

    /// Whether the command is known to have failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.status(), Ok(EventStatus::Failed))
    }

    /// Keeps `bytes` until the command has ended.
    pub(crate) fn keep(&self, bytes: impl Send + 'static) {
        self.inner.kept.hold(bytes);
    }

    /// Takes note of what is known, and lets go of what the command needed.
    fn ended(&self, known: i32) {
        self.inner.known.store(known, Ordering::Relaxed);
        self.inner.kept.let_go();
    }

    /// Takes note of how a wait for this event came back.
    pub(crate) fn waited(&self, result: ClResult<()>) -> Result<()> {
        let status = sys::execution_status(&self.inner.handle);
        let error = match (result, &status) {
            // A wait for a user event that has failed succeeds on NVIDIA's runtime.
            (Ok(()), Ok(code)) if *code < 0 => ClError::new("clWaitForEvents", *code),
            (Ok(()), _) => {
                self.ended(COMPLETE);
                return Ok(());
            }
            (Err(error), _) => error,
        };
        let error = match status {
            // The wait only says that something failed; the command itself knows what. -1 says nothing.
            Ok(code) if code < -1 => ClError::new(error.operation, code),
            _ => error,
        };
        let ended = matches!(status, Ok(code) if code <= 0)
            || error.code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if ended {
            self.ended(error.code);
        }
        Err(error.into_error(self.purpose()))
    }

    pub(crate) fn resolve(&self, outcome: Outcome) -> Result<()> {
        let Origin::User { resolved, ours, .. } = &self.inner.origin else {
            return Err(InvalidRequest::NotAUserEvent.into());
        };
        // The program may have resolved it by a call of its own, and not every runtime minds a second one.
        if !ours && self.has_ended() {
            return Err(InvalidRequest::AlreadyResolved.into());
        }
        if resolved.swap(true, Ordering::Relaxed) {
            return Err(InvalidRequest::AlreadyResolved.into());
        }
        let status = match outcome {
            Outcome::Complete => COMPLETE,
            Outcome::Failed => CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
        };
        let failing = match outcome {
            Outcome::Complete => None,
            Outcome::Failed => self.context().failures.while_failing(),
        };
        let result = sys::set_user_event_status(&self.inner.handle, status);
        drop(failing);
        result.map_err(|error| {
            // The program was faster.
            if error.code == CL_INVALID_OPERATION {
                return InvalidRequest::AlreadyResolved.into();
            }
            resolved.store(false, Ordering::Relaxed);
            error.into_error(Purpose::Control)
        })
    }
}

impl Drop for EventInner {
    fn drop(&mut self) {
        self.kept.abandon(&self.handle);
        let (context, resolved) = match &self.origin {
            Origin::Command { queue, .. } => {
                if !matches!(self.known.load(Ordering::Relaxed), COMPLETE | SEEN_COMPLETE) {
                    queue.context().failures.keep(&self.handle);
                }
                return;
            }
            Origin::User {
                context,
                resolved,
                ours: true,
            } => (context, resolved),
            Origin::User { ours: false, .. } | Origin::Stillborn { .. } => return,
        };
        if resolved.load(Ordering::Relaxed) {
            return;
        }
        let _failing = context.failures.while_failing();
        let failed = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if let Err(error) = sys::set_user_event_status(&self.handle, failed) {
            tracing::error!(%error, "what waits for a dropped user event will wait for ever");
        }
    }
}

impl fmt::Debug for ClEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClEvent")
            .field("id", &self.inner.id)
            .field("queue", &self.queue().map(Queue::id))
            .field("handle", &self.inner.handle)
            .finish_non_exhaustive()
    }
}

impl PartialEq for ClEvent {
    fn eq(&self, other: &Self) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for ClEvent {}

impl Hash for ClEvent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.id.hash(state);
    }
}

impl Event for ClEvent {
    fn id(&self) -> EventId {
        self.inner.id
    }

    fn status(&self) -> Result<EventStatus> {
        let control = |error: ClError| -> Error { error.into_error(Purpose::Control) };
        let known = match self.inner.known.load(Ordering::Relaxed) {
            PENDING => sys::execution_status(&self.inner.handle).map_err(control)?,
            SEEN_COMPLETE => COMPLETE,
            known => known,
        };
        match known {
            COMPLETE => {
                // Only from pending: what a wait has found out stays.
                let _ = self.inner.known.compare_exchange(
                    PENDING,
                    SEEN_COMPLETE,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                self.inner.kept.let_go();
                Ok(EventStatus::Complete)
            }
            code if code < 0 => {
                self.ended(code);
                Ok(EventStatus::Failed)
            }
            _ => {
                self.flush_producer().map_err(control)?;
                Ok(EventStatus::Pending)
            }
        }
    }

    fn wait(&self) -> Result<()> {
        match self.inner.known.load(Ordering::Relaxed) {
            COMPLETE => Ok(()),
            PENDING | SEEN_COMPLETE => self.waited(sys::wait_for_event(&self.inner.handle)),
            code => Err(ClError::new("clWaitForEvents", code).into_error(self.purpose())),
        }
    }
}
