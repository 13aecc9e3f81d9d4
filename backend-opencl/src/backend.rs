//! The backend: one device and its context.

use std::{ffi::c_void, sync::Arc};

use binpool_allocators::{DeviceLimits, InvalidRequest, ObjectKind, Result};
use cl3::error_codes::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;

use smallvec::{SmallVec, smallvec};

use crate::{
    cl_error::{ClError, ClResult, Purpose},
    context::Context,
    context_registry,
    device::info::{DeviceInfo, System},
    device::selector::DeviceSelector,
    error::OpenClError,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::access::Use,
    order::admission::Admission,
    queue::ClQueue,
    stand_in,
    sys::{self, EventHandle, WaitList},
};

/// One OpenCL device, and the context that memory, queues and events belong to. Clones are the same.
///
/// Memory and events work with every backend of the same context; queues belong to one device of it.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::OpenClBackend;
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// assert!(backend.version() >= (1, 2), "older devices are not opened");
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// backend.write(&queue, &memory, 0, &[1, 2, 3], &[])?;
/// let mut seen = [0; 2];
/// backend.read(&queue, &memory, 1, &mut seen, &[])?;
/// assert_eq!(seen, [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenClBackend {
    context: Arc<Context>,
}

impl OpenClBackend {
    /// Opens a device of this system, with a context of its own.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](OpenClError::NoDevice), which lists what there is; [`NoLibrary`](OpenClError::NoLibrary)
    /// and [`NoPlatform`](OpenClError::NoPlatform), which say what to install;
    /// [`TooOld`](OpenClError::TooOld) before OpenCL 1.2; or a failure of the runtime.
    pub fn open(selector: &DeviceSelector) -> Result<Self, OpenClError> {
        let system = System::look()?;
        let Some(device) = selector.select(&system.devices) else {
            return Err(OpenClError::NoDevice {
                selector: selector.clone(),
                available: system.available(),
            });
        };
        device.check_version()?;
        Self::with_context(sys::create_context(device.id())?, device)
    }

    /// The backend of a context and a device that was looked up.
    pub(crate) fn with_context(
        context: sys::ContextHandle,
        device: &DeviceInfo,
    ) -> Result<Self, OpenClError> {
        device.check_version()?;
        tracing::debug!(%device, limits = ?device.limits(), "opened an OpenCL device");
        let context = Context::new(
            context,
            device.id(),
            device.limits().clone(),
            device.version(),
        )?;
        Ok(Self {
            context: context_registry::find_or_insert(Arc::new(context)),
        })
    }

    /// The backend that an object belongs to.
    pub(crate) fn of_context(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
        }
    }

    /// The device's OpenCL version, major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.context.version
    }

    /// The runtime's `cl_context`. It is borrowed: valid while this value or an object of it lives.
    #[must_use]
    pub fn raw_context(&self) -> *mut c_void {
        self.context.handle.raw()
    }

    /// The runtime's `cl_device_id`.
    #[must_use]
    pub fn raw_device(&self) -> *mut c_void {
        self.context.device.raw()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn device_limits(&self) -> &DeviceLimits {
        &self.context.limits
    }

    pub(crate) fn check_own_queue(&self, queue: &ClQueue) -> Result<()> {
        foreign_unless(queue.is_of(&self.context), ObjectKind::Queue)
    }

    pub(crate) fn check_own_memory(&self, memory: &ClMemory) -> Result<()> {
        foreign_unless(memory.context().is_same(&self.context), ObjectKind::Memory)
    }

    pub(crate) fn check_own_events(&self, events: &[ClEvent]) -> Result<()> {
        let own = events
            .iter()
            .all(|event| event.context().is_same(&self.context));
        foreign_unless(own, ObjectKind::Event)
    }

    /// The wait list of a command of `queue`. The queues of its events are flushed, as the specification asks
    /// of whoever waits for one queue on another.
    pub(crate) fn wait_list<'a>(
        &self,
        queue: &ClQueue,
        events: &'a [ClEvent],
    ) -> Result<WaitList<'a>> {
        self.check_own_events(events)?;
        for event in events {
            if event.queue() != Some(queue) {
                event
                    .flush_producer()
                    .map_err(|error| error.into_error(Purpose::Control))?;
            }
        }
        Ok(events.iter().map(ClEvent::handle).collect())
    }

    /// Whether a command that waits for `events` fails already, on a runtime that cannot be told to wait for them
    /// (see [`failures`](crate::failures)).
    pub(crate) fn is_stillborn(queue: &ClQueue, events: &[ClEvent]) -> bool {
        queue.context().failures.are_fragile() && events.iter().any(ClEvent::has_failed)
    }

    /// Everything that an admitted command of `queue` waits for: what it names, and what stands before it in the logs; or
    /// one event for all of that, on a runtime that minds several failures (see [`failures`](crate::failures)).
    fn awaited<'a>(
        queue: &ClQueue,
        named: WaitList<'a>,
        admission: &Admission<'_>,
        purpose: Purpose,
    ) -> Result<Awaited<'a>> {
        let events = admission.events(purpose)?;
        let context = queue.context();
        let joined = context
            .failures
            .joined(&context.handle, &named.and(&events))
            .map_err(|error| error.into_error(purpose))?;
        Ok(match joined {
            Some(one) => Awaited {
                named: WaitList::none(),
                events: smallvec![one],
            },
            None => Awaited { named, events },
        })
    }

    /// Enqueues a command of `queue` by `enqueue`, which is given everything that the command has to wait for: the
    /// events of `wait_for`, and what is known of `uses`. Those remember the command.
    pub(crate) fn submit(
        &self,
        queue: &ClQueue,
        purpose: Purpose,
        uses: &[Use<'_>],
        wait_for: &[ClEvent],
        enqueue: impl FnOnce(&WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        let admission = Admission::of_command(queue, uses)?;
        self.submit_admitted(queue, purpose, admission, wait_for, enqueue)
    }

    /// The same for a command that stands in its logs already.
    pub(crate) fn submit_admitted(
        &self,
        queue: &ClQueue,
        purpose: Purpose,
        mut admission: Admission<'_>,
        wait_for: &[ClEvent],
        enqueue: impl FnOnce(&WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        let named = self.wait_list(queue, wait_for)?;
        let uses = admission.uses();
        let shared = || uses.iter().filter_map(|used| used.block);
        let context = queue.context();
        admission.wait_for_turn();
        let enqueueing = context.failures.while_enqueueing();
        if Self::is_stillborn(queue, wait_for) {
            return ClEvent::stillborn(context, purpose).map_err(|error| error.into_error(purpose));
        }
        let awaited = Self::awaited(queue, named, &admission, purpose)?;
        let wait = awaited.list();
        let numbering = shared().next().map(|_| queue.numbering());
        let handle = enqueue(&wait).map_err(|error| error.into_error(purpose))?;
        let handle = stand_in::of(queue, uses, &handle).unwrap_or(handle);
        let event = ClEvent::command(queue, handle, purpose);
        drop(numbering);
        admission.enqueued(event.handle(), event.number(), !wait.is_empty());
        drop(enqueueing);
        for block in shared() {
            block.record_command(&event);
        }
        Ok(event)
    }

    /// The same for a command that `run` waits for, with memory of the host that is borrowed until then. It passes
    /// the event on as soon as the command is enqueued.
    pub(crate) fn submit_and_wait(
        &self,
        queue: &ClQueue,
        purpose: Purpose,
        uses: &[Use<'_>],
        wait_for: &[ClEvent],
        run: impl FnOnce(&WaitList<'_>, &mut dyn FnMut(&EventHandle)) -> ClResult<Waited>,
    ) -> Result<()> {
        let named = self.wait_list(queue, wait_for)?;
        let mut admission = Admission::of_command(queue, uses)?;
        admission.wait_for_turn();
        let mut enqueueing = queue.context().failures.while_enqueueing();
        if Self::is_stillborn(queue, wait_for) {
            let error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
            return Err(ClError::new("clWaitForEvents", error).into_error(purpose));
        }
        let awaited = Self::awaited(queue, named, &admission, purpose)?;
        let wait = awaited.list();
        // The lock is not held during the wait: the event to fail may be the one waited for.
        let mut enqueued = |event: &EventHandle| {
            let stand_in = stand_in::of(queue, uses, event);
            let event = stand_in.as_ref().unwrap_or(event);
            admission.enqueued(event, queue.number_command(), !wait.is_empty());
            enqueueing = None;
        };
        let (handle, ended) =
            run(&wait, &mut enqueued).map_err(|error| error.into_error(purpose))?;
        if ended.is_ok() {
            return Ok(());
        }
        ClEvent::command(queue, handle, purpose).waited(ended)
    }
}

/// What a command waits for.
struct Awaited<'a> {
    named: WaitList<'a>,
    events: SmallVec<[EventHandle; 4]>,
}

impl Awaited<'_> {
    fn list(&self) -> WaitList<'_> {
        self.named.and(&self.events)
    }
}

/// How a command that was waited for came back: its event, and what the wait said.
pub(crate) type Waited = (EventHandle, ClResult<()>);

fn foreign_unless(own: bool, kind: ObjectKind) -> Result<()> {
    if own {
        Ok(())
    } else {
        Err(InvalidRequest::ForeignObject { kind }.into())
    }
}
