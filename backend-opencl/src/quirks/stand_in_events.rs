//! Events of markers that stand for the events of commands.
//!
//! Intel's runtime keeps a memory object as long as the event of a command that used it is kept, even after the command has
//! ended. Programs and logs keep events, so a thread that waits for the end of memory would wait for all of them. So a
//! command on such memory is represented by the event of a marker after it, which ends and fails when the command does and
//! keeps no memory.

use crate::sys::{self, ClResult, EventHandle, QueueHandle, WaitList};

/// The event of a marker after `event`.
pub(crate) fn marker(queue: &QueueHandle, event: &EventHandle) -> ClResult<EventHandle> {
    let after = WaitList::from_iter([event]);
    sys::enqueue_marker(queue, &after)
}
