//! Out-of-order queues that the program has dropped, on a runtime that must not find out by itself.
//!
//! Intel's runtime (2026.2) destroys a queue with the last command on it, on the thread that has just run that command,
//! and destroying an out-of-order one waits for that command to end: a thread that waits for any event may run it, and
//! waits for itself. So such a queue is kept until a marker behind everything on it has ended. That is looked for when
//! another one is dropped or made.

use std::mem;

use parking_lot::Mutex;

use crate::{
    cl_error::ClResult,
    sys::{self, EventHandle, QueueHandle, WaitList},
};

static RETIRED: Mutex<Vec<(QueueHandle, EventHandle)>> = Mutex::new(Vec::new());

/// Keeps a queue that the program drops until it is idle.
pub(crate) fn retire(queue: &QueueHandle) {
    release_idle();
    match last_reference(queue) {
        Ok(retired) => RETIRED.lock().push(retired),
        Err(error) => {
            tracing::error!(%error, "a queue was dropped that may still be at work");
        }
    }
}

fn last_reference(queue: &QueueHandle) -> ClResult<(QueueHandle, EventHandle)> {
    let marker = sys::enqueue_marker(queue, &WaitList::none())?;
    sys::flush(queue)?;
    Ok((queue.another()?, marker))
}

/// Releases the queues that have become idle. The lock is not held meanwhile.
pub(crate) fn release_idle() {
    let mut retired = mem::take(&mut *RETIRED.lock());
    retired.retain(|(queue, marker)| {
        let ended = matches!(sys::execution_status(marker), Ok(..=0));
        // What the runtime does after the marker's end is waited for, too.
        !(ended && sys::finish(queue).is_ok())
    });
    RETIRED.lock().append(&mut retired);
}
