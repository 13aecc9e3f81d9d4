//! Events of commands that the program has dropped, kept until the runtime is done with them.
//!
//! `PoCL` 3.1 uses the event of a command that fails where the program holds no reference to it any more: when the failure
//! spreads, and again when anything ends that the failed command waited for.

use binpool_allocators::QueueId;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::sys::{self, EventHandle};

#[derive(Debug, Default)]
struct Dropped {
    events: Vec<DroppedEvent>,
    /// The number of events at which those that the runtime is done with are looked for.
    limit: usize,
}

/// The events that a command was told to wait for.
pub(crate) type WaitedFor = SmallVec<[EventHandle; 8]>;

#[derive(Debug)]
struct DroppedEvent {
    event: EventHandle,
    waited_for: WaitedFor,
    /// The queue, where the command may also wait for commands that the program has enqueued with the bare handle.
    until_idle: Option<QueueId>,
}

impl DroppedEvent {
    /// Returns whether the runtime may still use the event.
    fn is_in_use(&self) -> bool {
        match sys::execution_status(&self.event) {
            Ok(0) => false,
            // The command has failed: the runtime uses its event again when an event ends that it waited for.
            Ok(..0) => self.until_idle.is_some() || self.waited_for.iter().any(is_pending),
            Ok(1..) | Err(_) => true,
        }
    }
}

fn is_pending(event: &EventHandle) -> bool {
    matches!(sys::execution_status(event), Ok(1..))
}

const FIRST_LIMIT: usize = 64;

/// The events that are kept.
#[derive(Debug, Default)]
pub(super) struct DroppedEvents {
    dropped: Mutex<Dropped>,
}

impl DroppedEvents {
    /// Keeps `event`, which the program drops. The caller holds the failure lock, so no event fails during the call.
    pub(super) fn keep(
        &self,
        event: &EventHandle,
        waited_for: WaitedFor,
        until_idle: Option<QueueId>,
    ) {
        if matches!(sys::execution_status(event), Ok(0)) {
            return;
        }
        let event = match event.another() {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(%error, "an event was dropped that the runtime may still use");
                return;
            }
        };
        let mut dropped = self.dropped.lock();
        let mut done = Vec::new();
        if dropped.events.len() >= dropped.limit.max(FIRST_LIMIT) {
            done = dropped.take_done();
            dropped.limit = dropped.events.len().saturating_mul(2);
        }
        dropped.events.push(DroppedEvent {
            event,
            waited_for,
            until_idle,
        });
        drop(dropped);
        // Dropped after the lock, since that calls the runtime.
        drop(done);
    }

    /// Notes that no command is pending on this queue any more.
    pub(super) fn queue_is_idle(&self, queue: QueueId) {
        let mut dropped = self.dropped.lock();
        for kept in &mut dropped.events {
            kept.until_idle.take_if(|waiting| *waiting == queue);
        }
    }
}

impl Dropped {
    /// Takes the events out that the runtime is done with.
    fn take_done(&mut self) -> Vec<DroppedEvent> {
        self.events
            .extract_if(.., |kept| !kept.is_in_use())
            .collect()
    }
}
