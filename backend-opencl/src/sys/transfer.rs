//! Transfers between the host's bytes and the device's.

use std::{ffi::c_void, sync::Arc};

use super::{
    ClResult, EventHandle, HostBytes, MemHandle, QueueHandle, SvmRange, WaitList,
    enqueue::own_event, event::wait_borrowed, host_vec::HostVec,
};

const NOT_BLOCKING: u32 = cl3::types::CL_FALSE;

/// The device's side of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceBytes<'a> {
    /// A buffer and the offset of the first byte. The runtime checks the bounds.
    Buffer(&'a MemHandle, usize),
    /// Bytes of shared virtual memory.
    Svm(SvmRange<'a>),
}

/// Enqueues a write of the bytes at `source`.
///
/// # Safety
///
/// `bytes` bytes at `source` are readable until the command has ended.
pub(super) unsafe fn write(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    source: *const u8,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match device {
        DeviceBytes::Buffer(buffer, offset) => {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) `source` stays readable, as the
            // caller promises.
            let event = unsafe {
                cl3::command_queue::enqueue_write_buffer(
                    queue.raw(),
                    buffer.raw(),
                    NOT_BLOCKING,
                    offset,
                    bytes,
                    source.cast::<c_void>(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: The call above has just returned this event, and nothing else takes its reference.
            unsafe { own_event("clEnqueueWriteBuffer", event) }
        }
        DeviceBytes::Svm(range) => {
            // SAFETY: (1) `source` stays readable, as the caller promises; (2) the range lies in its block, which is not
            // freed while a command uses it (rule 1 of `sys`).
            let event = unsafe {
                cl3::command_queue::enqueue_svm_mem_cpy(
                    queue.raw(),
                    NOT_BLOCKING,
                    range.start().as_ptr().cast::<c_void>(),
                    source.cast::<c_void>(),
                    bytes.min(range.bytes()),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: The call above has just returned this event, and nothing else takes its reference.
            unsafe { own_event("clEnqueueSVMMemcpy", event) }
        }
    }
}

/// Enqueues a read into the bytes at `target`.
///
/// # Safety
///
/// `bytes` bytes at `target` are writable, and nothing else touches them, until the command has ended.
pub(super) unsafe fn read(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    target: *mut u8,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match device {
        DeviceBytes::Buffer(buffer, offset) => {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) `target` stays writable, as the
            // caller promises.
            let event = unsafe {
                cl3::command_queue::enqueue_read_buffer(
                    queue.raw(),
                    buffer.raw(),
                    NOT_BLOCKING,
                    offset,
                    bytes,
                    target.cast::<c_void>(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: The call above has just returned this event, and nothing else takes its reference.
            unsafe { own_event("clEnqueueReadBuffer", event) }
        }
        DeviceBytes::Svm(range) => {
            // SAFETY: (1) `target` stays writable, as the caller promises; (2) the range lies in its block, which is not
            // freed while a command uses it (rule 1 of `sys`).
            let event = unsafe {
                cl3::command_queue::enqueue_svm_mem_cpy(
                    queue.raw(),
                    NOT_BLOCKING,
                    target.cast::<c_void>(),
                    range.start().as_ptr().cast::<c_void>(),
                    bytes.min(range.bytes()),
                    wait.count(),
                    wait.pointer(),
                )
            };
            // SAFETY: The call above has just returned this event, and nothing else takes its reference.
            unsafe { own_event("clEnqueueSVMMemcpy", event) }
        }
    }
}

/// Writes `data`, calls `enqueued`, and waits until the command has ended.
///
/// The runtime's own blocking form is not used: on `PoCL` it waits for the whole queue, and if it fails there is no event
/// that says what happened.
pub(crate) fn write_borrowed(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    data: &[u8],
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    // SAFETY: `data` is borrowed until this function returns. It returns after the command has ended, even by a panic
    // (`wait_borrowed`).
    let event = unsafe { write(queue, device, data.as_ptr(), data.len(), wait) }?;
    Ok(wait_borrowed(event, enqueued))
}

/// Reads into `data`, calls `enqueued`, and waits until the command has ended.
pub(crate) fn read_borrowed(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    data: &mut [u8],
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    // SAFETY: `data` is borrowed exclusively until this function returns. It returns after the command has ended, even by a
    // panic (`wait_borrowed`).
    let event = unsafe { read(queue, device, data.as_mut_ptr(), data.len(), wait) }?;
    Ok(wait_borrowed(event, enqueued))
}

/// Enqueues a write of `data`, which the caller keeps until the command has ended.
pub(crate) fn write_retained(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    data: &Arc<[u8]>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` is kept until the command has ended (rule 3 of `sys`).
    unsafe { write(queue, device, data.as_ptr(), data.len(), wait) }
}

/// Enqueues a read into `target`, which the caller keeps until the command has ended.
pub(crate) fn read_retained(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    target: &Arc<HostBytes>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) `target` is kept until the command has ended (rule 3 of `sys`); (2) its bytes are taken only after that.
    unsafe { read(queue, device, target.start(), target.length(), wait) }
}

/// Enqueues a write of a vector's elements, which the caller keeps until the command has ended.
pub(crate) fn write_vec<T>(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    source: &Arc<HostVec<T>>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) `source` is kept until the command has ended (rule 3 of `sys`); (2) its elements have no padding, as the
    // bounds of the calls that make a `HostVec` for a write demand, so all their bytes can be read.
    unsafe { write(queue, device, source.start(), source.bytes(), wait) }
}

/// Enqueues a read into a vector's elements, which the caller keeps until the command has ended.
pub(crate) fn read_vec<T>(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    target: &Arc<HostVec<T>>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: (1) `target` is kept until the command has ended (rule 3 of `sys`); (2) its elements are taken only after
    // that; (3) any bytes are valid elements, as the bounds of the calls that make a `HostVec` for a read demand.
    unsafe { read(queue, device, target.start(), target.bytes(), wait) }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        panic::{AssertUnwindSafe, catch_unwind},
        thread,
    };

    use binpool_allocators::{Backend, MemoryFlags, Outcome, QueueOrder};

    use super::*;
    use crate::{OpenClBackend, sys::execution_status};

    #[test]
    fn borrowed_bytes_stay_until_the_command_has_ended_also_where_a_panic_comes_first() {
        let device = env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
        let backend = OpenClBackend::open(&device.parse().unwrap()).unwrap();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let device = DeviceBytes::Buffer(memory.buffer().unwrap(), 0);
        let gate = backend.create_user_event().unwrap();
        let mut command = None;
        let unwound = thread::scope(|scope| {
            let (queue, gate) = (queue.handle(), &gate);
            scope.spawn(|| {
                // So late that a write that was not waited for is still pending.
                for _ in 0..10_000 {
                    thread::yield_now();
                }
                let opened = backend.resolve_user_event(gate, Outcome::Complete);
                opened.unwrap();
            });
            let wait = WaitList::from_iter([gate.handle()]);
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                write_borrowed(queue, device, &[1; 64], &wait, |event| {
                    command = event.another().ok();
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
            }));
            let status = command.as_ref().map(execution_status);
            assert_eq!(status, Some(Ok(0)));
            unwound
        });
        assert!(unwound.is_err());
    }
}
