//! Commands of several calls of OpenCL. The program gets the event of the last part.

use binpool_allocators::Queue;
use cl3::memory::CL_MEM_READ_WRITE;

use crate::{
    kept_memory,
    queue::ClQueue,
    quirks::dropped_events::WaitedFor,
    sys::{self, ClResult, EventHandle, MemHandle, WaitList},
};

/// Enqueues a copy by way of a further buffer of `bytes` bytes: `first` copies to it, after `wait`, and `second` from it.
pub(crate) fn enqueue_through_buffer(
    queue: &ClQueue,
    bytes: usize,
    wait: &WaitList<'_>,
    first: impl FnOnce(&MemHandle, &WaitList<'_>) -> ClResult<EventHandle>,
    second: impl FnOnce(&MemHandle, &WaitList<'_>) -> ClResult<EventHandle>,
) -> ClResult<EventHandle> {
    let context = queue.context();
    let flags = context.quirks.flags_to_make(CL_MEM_READ_WRITE);
    // The runtime keeps this buffer until the second copy has ended.
    let between = kept_memory::allocate(|| sys::create_buffer(&context.handle, flags, bytes))?;
    let first = first(&between, wait)?;
    enqueue_after(queue, &first, |after| second(&between, after))
}

/// Enqueues the next part of a command, after the part `before`. If it cannot be enqueued, this waits until `before` has
/// ended.
pub(super) fn enqueue_after(
    queue: &ClQueue,
    before: &EventHandle,
    enqueue: impl FnOnce(&WaitList<'_>) -> ClResult<EventHandle>,
) -> ClResult<EventHandle> {
    let (context, quirks) = (&queue.context().handle, &queue.context().quirks);
    let before_alone = WaitList::none().and([before]);
    let enqueued = match quirks.single_wait(context, queue.handle(), &before_alone) {
        Ok(Some(joined)) => enqueue(&WaitList::none().and([&joined])),
        Ok(None) => enqueue(&before_alone),
        Err(error) => Err(error),
    };
    if enqueued.is_ok() {
        // The program does not hold the event of this part, which `PoCL` uses when the part fails.
        quirks.keep_dropped_event(before, WaitedFor::new(), Some(queue.id()));
    } else if let Err(error) = sys::wait_until_ended(before) {
        // No log tracks this part, so it must not stay pending.
        tracing::debug!(%error, "a part of a command has failed");
    }
    enqueued
}
