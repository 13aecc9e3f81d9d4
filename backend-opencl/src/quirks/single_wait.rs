//! One event that stands for all that a command waits for.
//!
//! Intel's runtime (2026.2) ends a command once for each event in its wait list that fails, and frees twice what belongs to it. It
//! also does not look at events of the command's own queue: a command runs although one that it waits for there has failed.
//! So a command waits for one user event there, which ends when all of the others have. That runtime calls the callbacks of commands
//! that fail, which this needs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use cl3::error_codes::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;

use crate::sys::{
    ClResult, ContextHandle, EventHandle, QueueHandle, WaitList, callback::when_ended,
    create_user_event, event_queue_address, set_user_event_status,
};

/// The event that a command of `queue` waits for instead of `wait`; `None` if it may wait for those.
pub(super) fn single_wait(
    context: &ContextHandle,
    queue: &QueueHandle,
    wait: &WaitList<'_>,
) -> ClResult<Option<EventHandle>> {
    let events = wait.handles()?;
    let is_joined = match events.as_slice() {
        [] => false,
        [one] => event_queue_address(one)? == queue.raw().addr(),
        _ => true,
    };
    if is_joined {
        join(context, wait).map(Some)
    } else {
        Ok(None)
    }
}

/// A user event that ends when all of `events` have ended, and fails where one of them has.
fn join(context: &ContextHandle, events: &WaitList<'_>) -> ClResult<EventHandle> {
    let event = create_user_event(context)?;
    let joint = Arc::new(Joint {
        event: event.another()?,
        failed: AtomicBool::new(false),
    });
    for part in events.handles()? {
        let told = Arc::clone(&joint);
        let note = move |status| {
            told.failed.fetch_or(status < 0, Ordering::Release);
        };
        when_ended(&part, note).inspect_err(|_| joint.failed.store(true, Ordering::Release))?;
    }
    Ok(event)
}

/// The user event. It is resolved when the last callback drops its reference.
struct Joint {
    event: EventHandle,
    failed: AtomicBool,
}

impl Drop for Joint {
    fn drop(&mut self) {
        let status = if *self.failed.get_mut() {
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        } else {
            0
        };
        if let Err(error) = set_user_event_status(&self.event, status) {
            tracing::error!(%error, "commands that wait for several events never end");
        }
    }
}
