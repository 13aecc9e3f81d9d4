//! Events.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use binpool_allocators::{Event, EventId, EventStatus, InvalidRequest, Result};

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
}

impl CudaEvent {
    pub(crate) fn of_command(mark: Arc<Mark>) -> Self {
        Self {
            id: EventId::fresh(),
            kind: Kind::Mark(mark),
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
            Kind::Mark(_) => Err(InvalidRequest::NotAUserEvent.into()),
        }
    }

    /// Lets later commands of a stream wait for this event.
    pub(crate) fn hold_back(&self, stream: &Stream) -> CudaResult<()> {
        match &self.kind {
            Kind::Mark(mark) => stream.wait_for_mark(mark),
            Kind::Gate(gate) => stream.wait_for_gate(gate),
        }
    }

    pub(crate) fn end(&self) -> End {
        match &self.kind {
            Kind::Mark(mark) => End::Mark(Arc::clone(mark)),
            Kind::Gate(gate) => End::Gate(Arc::downgrade(gate)),
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
