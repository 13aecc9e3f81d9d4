//! Commands on buffers, and commands that only order others.

use super::{ClError, ClResult, EventHandle, MemHandle, QueueHandle, WaitList};

/// Takes the reference to the event that an enqueueing call has returned.
///
/// # Safety
///
/// `event` is the result of an enqueueing call, and nothing else takes its reference.
pub(super) unsafe fn own_event(
    call: &'static str,
    event: Result<*mut std::ffi::c_void, i32>,
) -> ClResult<EventHandle> {
    let raw = event.map_err(|code| ClError::new(call, code))?;
    // SAFETY: Nothing else takes this reference, as the caller promises.
    unsafe { EventHandle::own(raw, call) }
}

/// Enqueues a fill. The runtime copies `pattern` before it returns, and checks the bounds.
pub(crate) fn enqueue_fill_buffer(
    queue: &QueueHandle,
    buffer: &MemHandle,
    pattern: &[u8],
    offset: usize,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) `pattern` is readable for its length.
    let event = unsafe {
        cl3::command_queue::enqueue_fill_buffer(
            queue.raw(),
            buffer.raw(),
            pattern.as_ptr().cast(),
            pattern.len(),
            offset,
            bytes,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueFillBuffer", event) }
}

/// Enqueues a copy between buffers. The runtime checks the bounds.
pub(crate) fn enqueue_copy_buffer(
    queue: &QueueHandle,
    (source, from): (&MemHandle, usize),
    (destination, to): (&MemHandle, usize),
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: Queue, buffers and events are kept alive by their handles.
    let event = unsafe {
        cl3::command_queue::enqueue_copy_buffer(
            queue.raw(),
            source.raw(),
            destination.raw(),
            from,
            to,
            bytes,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueCopyBuffer", event) }
}

/// Enqueues a marker.
pub(crate) fn enqueue_marker(queue: &QueueHandle, wait: &WaitList<'_>) -> ClResult<EventHandle> {
    // SAFETY: Queue and events are kept alive by their handles.
    let event = unsafe {
        cl3::command_queue::enqueue_marker_with_wait_list(queue.raw(), wait.count(), wait.pointer())
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueMarkerWithWaitList", event) }
}

/// Enqueues a barrier.
pub(crate) fn enqueue_barrier(queue: &QueueHandle, wait: &WaitList<'_>) -> ClResult<EventHandle> {
    // SAFETY: Queue and events are kept alive by their handles.
    let event = unsafe {
        cl3::command_queue::enqueue_barrier_with_wait_list(
            queue.raw(),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueBarrierWithWaitList", event) }
}

/// Sends what was enqueued to the device.
pub(crate) fn flush(queue: &QueueHandle) -> ClResult<()> {
    cl3::command_queue::flush(queue.raw()).map_err(|code| ClError::new("clFlush", code))
}

/// Waits until everything that was enqueued has ended.
pub(crate) fn finish(queue: &QueueHandle) -> ClResult<()> {
    cl3::command_queue::finish(queue.raw()).map_err(|code| ClError::new("clFinish", code))
}
