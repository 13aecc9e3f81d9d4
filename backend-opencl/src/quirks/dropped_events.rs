//! Events of commands that the program has dropped, kept until the runtime is done with them.
//!
//! `PoCL` 3.1 uses the event of a command that fails even after the program has dropped its last reference to it: when the failure
//! spreads, and again when anything ends that the failed command waited for. It sets the status of what ends before it
//! goes through the events that waited for that, and nothing tells when it is through. So those are kept for a
//! [while](GRACE) longer.

use std::time::{Duration, Instant};

use binpool_allocators::QueueId;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::sys::{self, EventHandle};

#[derive(Debug)]
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
    /// When it was seen first that all has ended that the command waited for.
    ended: Option<Instant>,
}

/// The time from the end of a command to the end of `PoCL`'s work on the events that waited for it, and more than that.
const GRACE: Duration = Duration::from_secs(1);

impl DroppedEvent {
    /// Returns whether the runtime may still use the event.
    fn is_in_use(&mut self, now: Instant) -> bool {
        match sys::execution_status(&self.event) {
            Ok(0) => false,
            // The command has failed: the runtime uses its event again when an event ends that it waited for.
            Ok(..0) if self.until_idle.is_none() && !self.waited_for.iter().any(is_pending) => {
                let ended = *self.ended.get_or_insert(now);
                now.saturating_duration_since(ended) < GRACE
            }
            Ok(_) | Err(_) => true,
        }
    }
}

fn is_pending(event: &EventHandle) -> bool {
    matches!(sys::execution_status(event), Ok(1..))
}

const FIRST_LIMIT: usize = 64;

/// The events of all contexts: the runtime may use those of a context that the program has dropped.
static DROPPED: Mutex<Dropped> = Mutex::new(Dropped {
    events: Vec::new(),
    limit: FIRST_LIMIT,
});

/// Keeps `event`, which the program drops. The caller holds the failure lock, so no event fails during the call.
pub(super) fn keep(event: &EventHandle, waited_for: WaitedFor, until_idle: Option<QueueId>) {
    if matches!(sys::execution_status(event), Ok(0)) {
        return;
    }
    let event = match event.another() {
        Ok(event) => event,
        Err(error) => {
            tracing::error!(%error, "the runtime may still use a dropped event");
            return;
        }
    };
    let mut dropped = DROPPED.lock();
    let mut done = Vec::new();
    if dropped.events.len() >= dropped.limit {
        done = dropped.take_done();
        dropped.limit = dropped.events.len().saturating_mul(2).max(FIRST_LIMIT);
    }
    dropped.events.push(DroppedEvent {
        event,
        waited_for,
        until_idle,
        ended: None,
    });
    drop(dropped);
    // Dropped after the lock, since that calls the runtime.
    drop(done);
}

/// Notes that no command is pending on this queue now.
pub(super) fn queue_is_idle(queue: QueueId) {
    for kept in &mut DROPPED.lock().events {
        kept.until_idle.take_if(|waiting| *waiting == queue);
    }
}

impl Dropped {
    /// Takes the events out that the runtime is done with.
    fn take_done(&mut self) -> Vec<DroppedEvent> {
        let now = Instant::now();
        self.events
            .extract_if(.., |kept| !kept.is_in_use(now))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Backend, Outcome};

    use super::*;
    use crate::{
        device::{DeviceKind, limits::POCL},
        quirks::Quirks,
        testing::open,
    };

    #[test]
    fn an_event_is_kept_past_the_end_of_its_context_and_a_moment_longer_than_what_it_waited_for() {
        let backend = open();
        let failed = backend.create_user_event().unwrap();
        let awaited = backend.create_user_event().unwrap();
        let waited_for = WaitedFor::from_iter([awaited.handle().another().unwrap()]);
        let quirks = Quirks::of(POCL, DeviceKind::Cpu);
        quirks.keep_dropped_event(failed.handle(), waited_for, None);
        drop(quirks);
        failed.resolve(Outcome::Failed).unwrap();

        let mut dropped = DROPPED.lock();
        let kept = dropped.events.iter_mut();
        let mut kept = kept.filter(|kept| kept.event.raw() == failed.handle().raw());
        let kept = kept.next().unwrap();
        let now = Instant::now();
        assert!(kept.is_in_use(now + GRACE), "what it waited for is pending");
        assert!(kept.is_in_use(now + 2 * GRACE));
        awaited.resolve(Outcome::Complete).unwrap();
        assert!(
            kept.is_in_use(now),
            "the runtime may still go through what waited"
        );
        assert!(!kept.is_in_use(now + GRACE));
    }
}
