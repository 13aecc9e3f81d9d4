//! OpenCL events: the state of a command, and what is kept until it has ended.

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
};

use binpool_allocators::{
    Error, Event, EventId, EventStatus, InvalidRequest, On, Outcome, Queue, Result, debug_by,
};
use cl3::error_codes::{CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_INVALID_OPERATION};
use parking_lot::Mutex;

use crate::{
    after_use::{drop_after_end, free_what_has_ended},
    context::Context,
    identity::same_by,
    order::tracked_command::TrackedCommand,
    queue::ClQueue,
    quirks::dropped_events::WaitedFor,
    sys::{self, ClError, ClResult, EventHandle, Progress, Purpose},
};

/// The queue that an OpenCL command runs on, and the events that it waits for: made from a reference to a queue, or by
/// [`queue.after(&events)`](binpool_allocators::Queue::after).
///
/// ```
/// use binpool_allocators::{Backend, Event, MemoryFlags, Queue, QueueOrder, Result};
/// use binpool_opencl::{ClEvent, ClMemory, ClOn, OpenClBackend};
///
/// /// A command of the program's own, which is enqueued as those of this crate are.
/// fn clear<'a>(backend: &OpenClBackend, on: impl Into<ClOn<'a>>, memory: &ClMemory) -> Result<ClEvent> {
///     backend.enqueue_fill(on, memory, .., &[0_u8])
/// }
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let [one, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let cleared = clear(&backend, &one, &memory)?;
/// clear(&backend, other.after(&[cleared]), &memory)?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type ClOn<'a> = On<'a, ClQueue, ClEvent>;

/// An event of OpenCL. Clones are the same event.
///
/// Wrapping one event of the runtime twice gives two values with different identities; clone the first value
/// instead.
///
/// Asking for the [`status`](Event::status) of a command that has not ended flushes its queue, once, so a program that polls it sees the
/// command end. If the last clone of a user event is dropped before the event is resolved, it is resolved as failed: nothing could resolve
/// it then, and commands that wait for it would wait forever.
///
/// ```
/// use std::slice::from_ref;
///
/// # use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder};
/// use binpool_allocators::{Event, EventStatus, Outcome, Region};
/// # use binpool_opencl::OpenClBackend;
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// let gate = backend.create_user_event()?;
/// let filled = backend.enqueue_fill(queue.after(from_ref(&gate)), &memory, Region::first(64), &[7_u8])?;
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
    source: EventSource,
    /// What its command is for.
    purpose: Purpose,
    /// The state that is known so far: [`PENDING`], [`COMPLETE`], or the code of the failure.
    known: AtomicI32,
    /// Bytes of the host that the command works on.
    retained: Mutex<Option<Box<dyn Send>>>,
    /// The tracked command; `None` for user events and for commands that the program enqueued by itself.
    tracked: Option<Arc<TrackedCommand>>,
    /// The events that the command waits for, on a runtime that uses its event until all of those have ended.
    waited_for: Mutex<WaitedFor>,
}

const PENDING: i32 = 1;
const COMPLETE: i32 = 0;

enum EventSource {
    /// A command of this queue, and its number among those of the queue, from 1 on.
    Command(ClQueue, u64),
    /// Nothing was enqueued, because an event to wait for had failed.
    FailedBeforeEnqueue(Arc<Context>),
    User {
        context: Arc<Context>,
        resolved: AtomicBool,
        /// Set if this crate made it, and not the program by a call of its own.
        ours: bool,
    },
}

impl ClEvent {
    /// The event of a command that was just enqueued.
    pub(crate) fn command(queue: &ClQueue, handle: EventHandle, purpose: Purpose) -> Self {
        Self::tracked_command(queue, handle, purpose, None, WaitedFor::new())
    }

    /// The event of the tracked command `tracked`, which was just enqueued to wait for `waited_for`.
    pub(crate) fn tracked_command(
        queue: &ClQueue,
        handle: EventHandle,
        purpose: Purpose,
        tracked: Option<&Arc<TrackedCommand>>,
        waited_for: WaitedFor,
    ) -> Self {
        let source = EventSource::Command(queue.clone(), queue.number_command());
        Self::new(handle, source, purpose, tracked, waited_for)
    }

    /// A user event, made by this backend or by the program itself.
    pub(crate) fn user(context: &Arc<Context>, handle: EventHandle, ours: bool) -> Self {
        let source = EventSource::User {
            context: Arc::clone(context),
            resolved: AtomicBool::new(false),
            ours,
        };
        Self::new(handle, source, Purpose::Control, None, WaitedFor::new())
    }

    /// The event of a command that was not enqueued, because an event that it was to wait for has failed.
    pub(crate) fn failed_before_enqueue(
        context: &Arc<Context>,
        purpose: Purpose,
        tracked: Option<&Arc<TrackedCommand>>,
    ) -> ClResult<Self> {
        let handle = sys::create_user_event(&context.handle)?;
        sys::set_user_event_status(&handle, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)?;
        let source = EventSource::FailedBeforeEnqueue(Arc::clone(context));
        let waited_for = WaitedFor::new();
        Ok(Self::new(handle, source, purpose, tracked, waited_for))
    }

    fn new(
        handle: EventHandle,
        source: EventSource,
        purpose: Purpose,
        tracked: Option<&Arc<TrackedCommand>>,
        waited_for: WaitedFor,
    ) -> Self {
        Self {
            inner: Arc::new(EventInner {
                id: EventId::fresh(),
                handle,
                source,
                purpose,
                known: AtomicI32::new(PENDING),
                retained: Mutex::default(),
                tracked: tracked.cloned(),
                waited_for: Mutex::new(waited_for),
            }),
        }
    }

    /// The runtime's handle, for wait lists of kernels.
    ///
    /// It is borrowed: valid while this value or a clone lives, and not to be released. Code that keeps it longer has to
    /// retain it. Resolve user events through
    /// [`resolve_user_event`](binpool_allocators::Backend::resolve_user_event) only.
    ///
    /// ```
    /// # use std::slice::from_ref;
    /// # use binpool_allocators::{Backend, Event, MemoryFlags, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # // SAFETY: the context is one that `opencl3` has made.
    /// # let backend = unsafe { OpenClBackend::from_raw(context.get(), context.default_device()) }?;
    /// # let queue = backend.create_queue(binpool_allocators::QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// # // SAFETY: the device is the context's.
    /// # let own_queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// let filled = backend.enqueue_fill(&queue, &memory, Region::first(64), &[7_u8])?;
    /// // A command that the program enqueues by itself, after the fill.
    /// // SAFETY: the event in the wait list lives.
    /// let marker = unsafe { own_queue.enqueue_marker_with_wait_list(&[filled.raw()]) }?;
    /// // SAFETY: the event is one that `opencl3` has made.
    /// unsafe { backend.wrap_raw_event(marker.get()) }?.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raw(&self) -> *mut c_void {
        self.inner.handle.raw()
    }

    pub(crate) fn handle(&self) -> &EventHandle {
        &self.inner.handle
    }

    pub(crate) fn context(&self) -> &Context {
        match &self.inner.source {
            EventSource::Command(queue, _) => queue.context(),
            EventSource::User { context, .. } | EventSource::FailedBeforeEnqueue(context) => {
                context
            }
        }
    }

    /// The queue of the command, and its number there; `None` for user events.
    fn command_of(&self) -> Option<(&ClQueue, u64)> {
        match &self.inner.source {
            EventSource::Command(queue, number) => Some((queue, *number)),
            EventSource::User { .. } | EventSource::FailedBeforeEnqueue(_) => None,
        }
    }

    fn is_user_event(&self) -> bool {
        matches!(self.inner.source, EventSource::User { .. })
    }

    /// The queue of the command; `None` for user events.
    pub(crate) fn queue(&self) -> Option<&ClQueue> {
        self.command_of().map(|(queue, _)| queue)
    }

    /// Returns the event that a command has to wait for, too, if it waits for this one, on a runtime that needs that.
    pub(crate) fn companion(&self) -> ClResult<Option<EventHandle>> {
        if self.is_user_event() {
            return self.context().quirks.companion(&self.inner.handle);
        }
        Ok(None)
    }

    /// Returns its number among the commands of its queue; 0 for user events.
    pub(crate) fn number(&self) -> u64 {
        self.command_of().map_or(0, |(_, number)| number)
    }

    /// Returns the tracked command.
    pub(crate) fn tracked(&self) -> Option<&Arc<TrackedCommand>> {
        self.inner.tracked.as_ref()
    }

    /// Flushes the command's queue, unless that was done: a command of another queue that waits for this event needs it
    /// (OpenCL 3.0, section 5.13).
    pub(crate) fn flush_producer(&self) -> ClResult<()> {
        self.command_of()
            .map_or(Ok(()), |(queue, number)| queue.flush_up_to(number))
    }

    /// Returns whether the command is known to have failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.status(), Ok(EventStatus::Failed))
    }

    /// Keeps `bytes` until the command has ended.
    pub(crate) fn retain(&self, bytes: impl Send + 'static) {
        free_what_has_ended();
        *self.inner.retained.lock() = Some(Box::new(bytes));
    }

    /// Notes how the command ended, and drops what it needed.
    fn ended(&self, known: i32) {
        self.inner.known.store(known, Ordering::Relaxed);
        let retained = self.inner.retained.lock().take();
        drop(retained);
        if known == COMPLETE {
            // They stay with a failed command: the runtime uses its event when they end.
            let waited_for = std::mem::take(&mut *self.inner.waited_for.lock());
            drop(waited_for);
            if let Some(command) = &self.inner.tracked {
                // It releases its event, without asking the runtime once more.
                command.gone();
            }
        }
    }

    /// Returns how far the command is. One call decides, since the state may change between two.
    fn look(&self) -> ClResult<Progress> {
        if !self.is_user_event() {
            return sys::look(&self.inner.handle);
        }
        // A user event waits for nothing, so its status says all.
        Ok(match sys::execution_status(&self.inner.handle)? {
            1.. => Progress::Pending,
            0 => Progress::Complete,
            code => Progress::Failed(code),
        })
    }

    /// Notes the result of a wait for this event, and returns it.
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
            // The wait only says that some command failed; the status of this one says why, unless it is -1.
            Ok(code) if code < -1 => ClError::new(error.operation, code),
            _ => error,
        };
        let ended = matches!(status, Ok(code) if code <= 0)
            || error.code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if ended {
            self.ended(error.code);
        }
        Err(error.into_error(self.inner.purpose))
    }

    pub(crate) fn resolve(&self, outcome: Outcome) -> Result<()> {
        let EventSource::User { resolved, ours, .. } = &self.inner.source else {
            return Err(InvalidRequest::NotAUserEvent.into());
        };
        // The program may have resolved it by a call of its own, and some runtimes accept a second call.
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
        let quirks = &self.context().quirks;
        // While one thread makes an event fail, no other thread resolves one.
        let (completing, failing) = match outcome {
            Outcome::Complete => (Some(quirks.while_completing()), None),
            Outcome::Failed => (None, Some(quirks.while_failing())),
        };
        let result = sys::set_user_event_status(&self.inner.handle, status);
        let has_ended =
            result.is_ok() || matches!(&result, Err(error) if error.code == CL_INVALID_OPERATION);
        if has_ended {
            quirks.user_event_ended(&self.inner.handle);
        }
        drop((completing, failing));
        result.map_err(|error| {
            // The program has resolved it first.
            if error.code == CL_INVALID_OPERATION {
                return InvalidRequest::AlreadyResolved.into();
            }
            resolved.store(false, Ordering::Relaxed);
            error.into()
        })
    }
}

/// Callbacks for the end of a command. A thread waits and then calls. The runtime's callbacks would not do: `PoCL` 3.1 does
/// not call those of commands that fail, and NVIDIA's driver (580) may deadlock between a callback and a release on another
/// thread.
impl ClEvent {
    /// Calls `call` once with the outcome, when the command has ended: `set_callback` of `PyOpenCL`'s `Event`.
    ///
    /// It is called on a thread of its own, never on this one, even if the command has ended before. No other thread waits
    /// for it, so it may take long and make any call. The thread exists from now on: for many events, wait for one marker
    /// after them. A panic in it is caught and logged. It is not called if the program ends first.
    ///
    /// This does not keep a user event from being resolved as failed when its last clone is dropped.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use binpool_allocators::Outcome;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let (tell, told) = mpsc::channel();
    /// let filled = backend.enqueue_fill(&queue, &memory, Region::first(64), &[7_u8])?;
    /// filled.on_ended(move |outcome| {
    ///     let _listening = tell.send(outcome);
    /// })?;
    /// assert_eq!(told.recv()?, Outcome::Complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Backend`](Error::Backend) if the operating system refuses a thread, and the failures of the runtime: `call` is
    /// dropped without having been called.
    pub fn on_ended(&self, call: impl FnOnce(Outcome) + Send + 'static) -> Result<()> {
        self.flush_producer()?;
        // Holds the runtime's event alone: a clone of this value would keep a user event from being resolved as failed when
        // it is dropped.
        let event = self.handle().another()?;
        let wait_and_call = move || {
            let waited = sys::wait_until_ended(&event);
            // A wait for a user event that has failed succeeds on NVIDIA's runtime, and the status of a command that
            // has failed reads as complete on Intel's.
            let failed = waited.is_err() || matches!(sys::execution_status(&event), Ok(..=-1));
            drop(event);
            let outcome = if failed {
                Outcome::Failed
            } else {
                Outcome::Complete
            };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(outcome))) {
                tracing::error!("a callback for the end of a command panicked");
                // Dropping it might panic again.
                std::mem::forget(payload);
            }
        };
        thread::Builder::new()
            .name("binpool-on-ended".into())
            .spawn(wait_and_call)
            .map(drop)
            .map_err(|error| Error::backend("starting a thread", error.raw_os_error(), error))
    }
}

impl Drop for EventInner {
    fn drop(&mut self) {
        if let Some(bytes) = self.retained.get_mut().take() {
            drop_after_end(bytes, &self.handle);
        }
        let (context, resolved) = match &self.source {
            EventSource::Command(queue, _) => {
                if self.known.load(Ordering::Relaxed) != COMPLETE {
                    let waited_for = std::mem::take(self.waited_for.get_mut());
                    let quirks = &queue.context().quirks;
                    quirks.keep_dropped_event(&self.handle, waited_for, queue.id_if_exposed());
                }
                return;
            }
            EventSource::User {
                context,
                resolved,
                ours: true,
            } => (context, resolved),
            _ => return,
        };
        if resolved.load(Ordering::Relaxed) {
            return;
        }
        let _failing = context.quirks.while_failing();
        let failed = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if let Err(error) = sys::set_user_event_status(&self.handle, failed) {
            tracing::error!(%error, "commands that wait for a dropped user event never end");
        }
        context.quirks.user_event_ended(&self.handle);
    }
}

debug_by!(ClEvent, |this| id: this.inner.id, queue: this.queue().map(Queue::id), handle: this.inner.handle);

same_by!(ClEvent, |this| this.inner.id);

impl Event for ClEvent {
    fn id(&self) -> EventId {
        self.inner.id
    }

    fn status(&self) -> Result<EventStatus> {
        let progress = match self.inner.known.load(Ordering::Relaxed) {
            PENDING => self.look()?,
            COMPLETE => return Ok(EventStatus::Complete),
            _ => return Ok(EventStatus::Failed),
        };
        match progress {
            Progress::Complete => {
                self.ended(COMPLETE);
                Ok(EventStatus::Complete)
            }
            Progress::Failed(code) => {
                self.ended(code);
                Ok(EventStatus::Failed)
            }
            Progress::Pending => {
                self.flush_producer()?;
                Ok(EventStatus::Pending)
            }
        }
    }

    fn wait(&self) -> Result<()> {
        match self.inner.known.load(Ordering::Relaxed) {
            COMPLETE => Ok(()),
            PENDING => self.waited(sys::wait_for_event(&self.inner.handle)),
            code => Err(ClError::new("clWaitForEvents", code).into_error(self.inner.purpose)),
        }
    }

    fn wait_for_all_before(&self) -> Result<()> {
        match (self.queue(), self.wait()) {
            // The end of this command says nothing of earlier ones: it may have failed early.
            (Some(queue), _) => queue.finish(),
            (None, Err(_)) if self.has_ended() => Ok(()),
            (None, ended) => ended,
        }
    }
}
