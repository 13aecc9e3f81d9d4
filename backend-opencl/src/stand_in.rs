//! Events that stand in for those of commands.
//!
//! Intel's runtime keeps a memory object for as long as somebody keeps the event of a command that used it, however long
//! that command has ended. Programs keep events, and forget them, and logs keep them too; whoever waits for the end of
//! memory would wait for all of those. Commands on such memory therefore get the event of a marker behind them there,
//! which ends when they do, fails when they do, and keeps nothing.

use crate::{
    cl_error::ClResult,
    order::access::Use,
    queue::ClQueue,
    sys::{self, EventHandle, WaitList},
};

/// What stands in for `event`, of a command of `queue` that was just enqueued; `None` where the event itself does.
pub(crate) fn of(queue: &ClQueue, uses: &[Use<'_>], event: &EventHandle) -> Option<EventHandle> {
    let awaited = |used: &Use<'_>| used.log.end_is_awaited();
    if !queue.context().events_keep_memory || !uses.iter().any(awaited) {
        return None;
    }
    marker(queue, event)
        .inspect_err(|error| {
            tracing::error!(%error, "memory stays until the event of a command that used it is dropped");
        })
        .ok()
}

fn marker(queue: &ClQueue, event: &EventHandle) -> ClResult<EventHandle> {
    let behind = WaitList::from_iter([event]);
    sys::enqueue_marker(queue.handle(), &behind)
}
