//! Events.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use binpool_allocators::{Error, Event, EventId, EventStatus, InvalidRequest, QueueId, Result};

use crate::{
    graveyard::End,
    sys::{Context, CudaResult, Gate, Mark, Stream},
};

/// The event of a command, or a user event. Clones are the same event; any thread may use them.
///
/// Behind it is a `CUevent` without timing, which is used again when the last clone is dropped. A user event is a word in pinned memory
/// that streams compare with (`cuStreamWaitValue32`); dropping it resolves it. While a stream waits for one, no memory of any device is freed
/// by calls that wait for the device, `cuMemFree` among them: resolve it soon, and do not `forget` it. An event has
/// [failed](EventStatus::Failed) where the context is lost.
///
/// Queues of all devices of a driver may wait for it.
///
/// The event of a command that is captured into a CUDA graph counts as ended, since the command runs when the graph is launched, and only there:
/// who needs to know waits for the launch. Commands of other queues may not wait for such an event.
///
/// ```no_run
/// use binpool_allocators::{Backend, Event, EventStatus, Outcome, QueueOrder};
/// use binpool_cuda::CudaDevice;
///
/// let backend = CudaDevice::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let gate = backend.create_user_event()?;
/// let behind = backend.enqueue_marker(&queue, &[gate.clone()])?;
/// assert_eq!(behind.status()?, EventStatus::Pending);
/// backend.resolve_user_event(&gate, Outcome::Complete)?;
/// behind.wait()?;
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaEvent {
    id: EventId,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Mark(Arc<Mark>),
    Gate(Arc<Gate>),
    /// Of a command of this queue that is in a graph.
    Captured(QueueId, Arc<Context>),
}

impl CudaEvent {
    pub(crate) fn of_command(mark: Arc<Mark>) -> Self {
        Self {
            id: EventId::fresh(),
            kind: Kind::Mark(mark),
        }
    }

    pub(crate) fn of_captured(queue: QueueId, context: &Arc<Context>) -> Self {
        Self {
            id: EventId::fresh(),
            kind: Kind::Captured(queue, Arc::clone(context)),
        }
    }

    pub(crate) fn of_user(context: &Arc<Context>) -> CudaResult<Self> {
        Ok(Self {
            id: EventId::fresh(),
            kind: Kind::Gate(Arc::new(Gate::new(context)?)),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        match &self.kind {
            Kind::Mark(mark) => mark.context(),
            Kind::Gate(gate) => gate.context(),
            Kind::Captured(_, context) => context,
        }
    }

    /// Resolves a user event.
    pub(crate) fn resolve(&self) -> Result<()> {
        let is_new = self.gate()?.open();
        is_new
            .then_some(())
            .ok_or_else(|| InvalidRequest::AlreadyResolved.into())
    }

    /// Checks that this is a user event which is not resolved.
    pub(crate) fn check_unresolved(&self) -> Result<()> {
        if self.gate()?.is_open() {
            return Err(InvalidRequest::AlreadyResolved.into());
        }
        Ok(())
    }

    fn gate(&self) -> Result<&Gate> {
        match &self.kind {
            Kind::Gate(gate) => Ok(gate),
            Kind::Mark(_) | Kind::Captured(..) => Err(InvalidRequest::NotAUserEvent.into()),
        }
    }

    /// Checks that commands of a queue may wait for this event. They come after captured commands of the same queue in any case.
    pub(crate) fn check_wait(&self, queue: QueueId) -> Result<()> {
        match self.kind {
            Kind::Captured(own, _) if own != queue => Err(Error::unsupported(
                "waiting on another queue for a command that is captured into a graph: order the streams of a capture by events of the \
                 driver, or wait for the launch of the graph",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that captured commands of a queue need not wait for this event: they cannot wait for what is not in the graph.
    pub(crate) fn check_captured_wait(&self, queue: QueueId) -> Result<()> {
        self.check_wait(queue)?;
        if self.has_ended() {
            return Ok(());
        }
        Err(Error::unsupported(
            "a captured command that waits for one before the capture, or for a user event: wait for it, on the host, before the capture \
             begins",
        ))
    }

    /// Lets later commands of a stream wait for this event.
    pub(crate) fn hold_back(&self, stream: &Stream) -> CudaResult<()> {
        match &self.kind {
            Kind::Mark(mark) => stream.wait_for_mark(mark),
            Kind::Gate(gate) => stream.wait_for_gate(gate),
            Kind::Captured(..) => Ok(()),
        }
    }

    /// What is to come before something is freed, if it has not come already.
    pub(crate) fn end(&self) -> Option<End> {
        match &self.kind {
            Kind::Mark(mark) => Some(End::Mark(Arc::clone(mark))),
            Kind::Gate(gate) => Some(End::Gate(Arc::downgrade(gate))),
            Kind::Captured(..) => None,
        }
    }
}

impl Event for CudaEvent {
    fn id(&self) -> EventId {
        self.id
    }

    fn status(&self) -> Result<EventStatus> {
        let has_ended = match &self.kind {
            Kind::Gate(gate) => Ok(gate.is_open()),
            Kind::Mark(mark) => mark.has_ended(),
            Kind::Captured(..) => Ok(true),
        };
        match has_ended {
            Ok(false) => Ok(EventStatus::Pending),
            Ok(true) => Ok(EventStatus::Complete),
            Err(error) if error.is_sticky() => Ok(EventStatus::Failed),
            Err(error) => Err(error.into()),
        }
    }

    fn wait(&self) -> Result<()> {
        match &self.kind {
            Kind::Gate(gate) => gate.wait(),
            Kind::Mark(mark) => mark.wait()?,
            Kind::Captured(..) => {}
        }
        Ok(())
    }
}

impl PartialEq for CudaEvent {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for CudaEvent {}

impl Hash for CudaEvent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for CudaEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaEvent")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
