//! Commands on buffers, and commands that only order others.

use std::ffi::c_void;

use super::{ClError, ClResult, EventHandle, MemHandle, QueueHandle, WaitList};

/// Makes an enqueueing call of `cl3`, with the wait list as its last arguments, and takes the event that it returns. The
/// comment at an invocation says why its call is sound.
macro_rules! enqueue {
    ($wait:expr; $call:expr, unsafe $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: As the comment at the invocation says.
        let event = unsafe {
            cl3::command_queue::$function($($argument,)* $wait.count(), $wait.pointer())
        };
        // SAFETY: The call above has just returned this event, and nothing else takes its reference.
        unsafe { $crate::sys::EventHandle::own(event, $call) }
    }};
}
pub(super) use enqueue;

/// Enqueues a copy between buffers. The runtime checks the bounds.
pub(crate) fn enqueue_copy_buffer(
    queue: &QueueHandle,
    (source, from): (&MemHandle, usize),
    (destination, to): (&MemHandle, usize),
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: Queue, buffers and events are kept alive by their handles.
    enqueue!(wait; "clEnqueueCopyBuffer", unsafe enqueue_copy_buffer(
        queue.raw(), source.raw(), destination.raw(), from, to, bytes
    ))
}

/// Enqueues a marker.
pub(crate) fn enqueue_marker(queue: &QueueHandle, wait: &WaitList<'_>) -> ClResult<EventHandle> {
    // SAFETY: Queue and events are kept alive by their handles.
    enqueue!(wait; "clEnqueueMarkerWithWaitList", unsafe enqueue_marker_with_wait_list(queue.raw()))
}

/// Enqueues a barrier.
pub(crate) fn enqueue_barrier(queue: &QueueHandle, wait: &WaitList<'_>) -> ClResult<EventHandle> {
    // SAFETY: Queue and events are kept alive by their handles.
    enqueue!(wait; "clEnqueueBarrierWithWaitList", unsafe enqueue_barrier_with_wait_list(
        queue.raw()
    ))
}

/// Sends what was enqueued to the device.
pub(crate) fn flush(queue: &QueueHandle) -> ClResult<()> {
    cl3::command_queue::flush(queue.raw()).map_err(|code| ClError::new("clFlush", code))
}

/// Waits until everything that was enqueued has ended.
pub(crate) fn finish(queue: &QueueHandle) -> ClResult<()> {
    cl3::command_queue::finish(queue.raw()).map_err(|code| ClError::new("clFinish", code))
}

/// Enqueues a migration of buffers and images.
pub(crate) fn enqueue_migrate(
    queue: &QueueHandle,
    objects: &[&MemHandle],
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let objects: Vec<*mut c_void> = objects.iter().map(|object| object.raw()).collect();
    // SAFETY: (1) queue, objects and events are kept alive by their handles; (2) the count that is passed is that of the
    // list.
    enqueue!(wait; "clEnqueueMigrateMemObjects", unsafe enqueue_migrate_mem_object(
        queue.raw(), u32::try_from(objects.len()).unwrap_or(0), objects.as_ptr(), flags
    ))
}
