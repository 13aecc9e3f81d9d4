//! Migrations: memory moves to a device, or to the host, before it is needed there.

use std::{ffi::c_void, ptr};

use super::{
    ClResult, EventHandle, MemHandle, QueueHandle, SvmRange, WaitList, enqueue::own_event,
};

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
    let event = unsafe {
        cl3::command_queue::enqueue_migrate_mem_object(
            queue.raw(),
            u32::try_from(objects.len()).unwrap_or(0),
            objects.as_ptr(),
            flags,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueMigrateMemObjects", event) }
}

/// Enqueues a migration of whole blocks of shared virtual memory.
pub(crate) fn enqueue_svm_migrate(
    queue: &QueueHandle,
    blocks: &[SvmRange<'_>],
    flags: u64,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let pointers: Vec<*const c_void> = blocks
        .iter()
        .map(|block| block.start().as_ptr().cast::<c_void>().cast_const())
        .collect();
    // SAFETY: (1) queue and events are kept alive by their handles; (2) the count that is passed is that of the list; (3)
    // each pointer lies in its block, which is not freed while a command uses it (rule 1 of `sys`); (4) a null list of
    // sizes means whole blocks.
    let event = unsafe {
        cl3::command_queue::enqueue_svm_migrate_mem(
            queue.raw(),
            u32::try_from(pointers.len()).unwrap_or(0),
            pointers.as_ptr(),
            ptr::null(),
            flags,
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event("clEnqueueSVMMigrateMem", event) }
}
