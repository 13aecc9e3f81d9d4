//! One event for several.

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cl3::error_codes::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;

use super::{
    ContextHandle, EventHandle, WaitList,
    callback::{Ended, when_ended},
    create_user_event, set_user_event_status,
};
use crate::cl_error::ClResult;

/// A user event that ends when all of `events` have ended, and fails where one of them has.
///
/// For runtimes that call the callbacks of commands that fail.
pub(crate) fn join(context: &ContextHandle, events: &WaitList<'_>) -> ClResult<EventHandle> {
    let event = create_user_event(context)?;
    let joint = Arc::new(Joint {
        event: event.another()?,
        failed: AtomicBool::new(false),
    });
    for part in events.handles()? {
        if let Err((error, joint)) = when_ended(&part, Part(Arc::clone(&joint))) {
            joint.0.failed.store(true, Ordering::Release);
            return Err(error);
        }
    }
    Ok(event)
}

/// The event, which ends when the last part has let go of this.
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
            tracing::error!(%error, "what waits for several events will wait for ever");
        }
    }
}

/// What one of the events still owes.
struct Part(Arc<Joint>);

impl Ended for Part {
    fn ended(self, _event: *mut c_void, status: i32) {
        if status < 0 {
            self.0.failed.store(true, Ordering::Release);
        }
    }
}
