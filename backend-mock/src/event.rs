//! Events of the mock device.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use binpool_allocators::{Event, EventId, EventStatus, Result};

use crate::{
    CallKind,
    queue::finish,
    shared::Shared,
    state::{EventKey, Progress, QueueKey},
};

/// What the clock of a device that is behind goes on by at each query of a status, beyond its cost.
const QUERY: Duration = Duration::from_nanos(100);

/// The event of a command, or a user event. Clones are the same event.
///
/// ```
/// use binpool_allocators::{Backend, Event, EventStatus, Queue, QueueOrder};
/// use binpool_mock::{Completion, MockDevice};
///
/// let device = MockDevice::builder().completion(Completion::Manual).build();
/// let backend = device.backend();
/// let [load, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// let loaded = backend.launch(&load, "load", &[], &[], |_, _| {})?;
/// let other = backend.launch(&load, "other", &[], &[], |_, _| {})?;
/// let summed = backend.launch(compute.after(&[loaded.clone()]), "sum", &[], &[], |_, _| {})?;
/// summed.wait()?; // Runs only the commands that it depends on.
/// assert_eq!(loaded.status()?, EventStatus::Complete);
/// assert_eq!(other.status()?, EventStatus::Pending);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct MockEvent(Arc<Held>);

/// The host's reference to an event.
struct Held {
    shared: Arc<Shared>,
    key: EventKey,
    id: EventId,
    /// The queue of the command; `None` for user events.
    queue: Option<QueueKey>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.with(|state| state.drop_event(self.key));
        if self.queue.is_none() {
            self.shared.user_event_was_dropped();
        }
    }
}

impl MockEvent {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        (key, id): (EventKey, EventId),
        queue: Option<QueueKey>,
    ) -> Self {
        let shared = Arc::clone(shared);
        Self(Arc::new(Held {
            shared,
            key,
            id,
            queue,
        }))
    }

    pub(crate) fn key(&self) -> EventKey {
        self.0.key
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.0.shared, shared)
    }

    /// Waits for the end of the command, as part of `call`.
    pub(crate) fn wait_in(&self, call: CallKind) -> Result<()> {
        let shared = &self.0.shared;
        shared.wait(&[self.0.key], call)?;
        let progress = shared.with(|state| {
            state.host_sees(self.0.key);
            state.progress(self.0.key)
        });
        match progress {
            Progress::Failed(error) => Err(error.into_error(call.name())),
            Progress::Complete | Progress::Pending => Ok(()),
        }
    }
}

impl Event for MockEvent {
    fn id(&self) -> EventId {
        self.0.id
    }

    fn status(&self) -> Result<EventStatus> {
        let shared = &self.0.shared;
        shared.with(|state| {
            state.charge(|costs| costs.status);
            state.pass(QUERY);
            state.call(CallKind::Status, 0, |_| Ok(()))
        })?;
        shared.make_progress();
        Ok(shared.with(|state| {
            let status = state.progress(self.0.key).status();
            if status.has_ended() {
                state.host_sees(self.0.key);
            }
            status
        }))
    }

    fn wait(&self) -> Result<()> {
        self.0.shared.with(|state| {
            state.charge(|costs| costs.wait);
            state.call(CallKind::Wait, 0, |_| Ok(()))
        })?;
        self.wait_in(CallKind::Wait)
    }

    fn wait_for_all_before(&self) -> Result<()> {
        let ended = match self.wait() {
            Err(_) if self.has_ended() => Ok(()),
            result => result,
        };
        match self.0.queue {
            Some(queue) => finish(&self.0.shared, queue),
            None => ended,
        }
    }
}

impl PartialEq for MockEvent {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for MockEvent {}

impl Hash for MockEvent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl fmt::Debug for MockEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MockEvent").field(&self.0.id).finish()
    }
}
