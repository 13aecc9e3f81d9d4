//! Transfers between the host and runs of bytes of the device.

use std::ffi::c_void;

use super::{
    ClResult, EventHandle, HostSide, MemHandle, QueueHandle, SvmRange, WaitList,
    enqueue::{enqueue_copy_buffer, own_event},
    svm::enqueue_svm_copy,
};

const NOT_BLOCKING: u32 = cl3::types::CL_FALSE;

/// Bytes on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceBytes<'a> {
    /// A buffer and the offset of the first byte. The runtime checks the bounds.
    Buffer(&'a MemHandle, usize),
    /// Bytes of shared virtual memory.
    Svm(SvmRange<'a>),
}

impl DeviceBytes<'_> {
    /// Calls `enqueue` with a buffer and the offset of the bytes in it. For shared virtual memory that is a buffer over its
    /// block, which the runtime keeps until the commands that `enqueue` enqueues have ended.
    pub(crate) fn on_buffer<T>(
        self,
        enqueue: impl FnOnce(&MemHandle, usize) -> ClResult<T>,
    ) -> ClResult<T> {
        match self {
            Self::Buffer(buffer, offset) => enqueue(buffer, offset),
            Self::Svm(range) => {
                let (buffer, offset) = range.as_buffer()?;
                enqueue(&buffer, offset)
            }
        }
    }
}

/// Enqueues a copy of `bytes` bytes on the device. The runtime checks the bounds.
pub(crate) fn enqueue_copy(
    queue: &QueueHandle,
    source: DeviceBytes<'_>,
    destination: DeviceBytes<'_>,
    bytes: usize,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    if let (DeviceBytes::Svm(source), DeviceBytes::Svm(destination)) = (source, destination) {
        return enqueue_svm_copy(queue, source, destination, wait);
    }
    // OpenCL has no copy between a buffer and SVM, so this makes a buffer over the block of SVM. Transfers with the block as
    // host memory would not work with NVIDIA's driver: it takes the address of the block for ordinary host memory, and reads
    // the bytes of a write when that is enqueued.
    source.on_buffer(|source, from| {
        destination.on_buffer(|destination, to| {
            enqueue_copy_buffer(queue, (source, from), (destination, to), bytes, wait)
        })
    })
}

/// Enqueues a transfer of all of the host's bytes, which the caller keeps until the command has ended.
pub(super) fn enqueue_bytes(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let (call, event) = match device {
        DeviceBytes::Buffer(buffer, offset) if host.is_target() => {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) the host's bytes can be written
            // (I1 of `HostSide`), and the caller keeps them until the command has ended (rule 3 of `sys`).
            let event = unsafe {
                cl3::command_queue::enqueue_read_buffer(
                    queue.raw(),
                    buffer.raw(),
                    NOT_BLOCKING,
                    offset,
                    host.bytes(),
                    host.start(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            ("clEnqueueReadBuffer", event)
        }
        DeviceBytes::Buffer(buffer, offset) => {
            // SAFETY: (1) queue, buffer and events are kept alive by their handles; (2) the host's bytes can be read (I1 of
            // `HostSide`), and the caller keeps them until the command has ended (rule 3 of `sys`).
            let event = unsafe {
                cl3::command_queue::enqueue_write_buffer(
                    queue.raw(),
                    buffer.raw(),
                    NOT_BLOCKING,
                    offset,
                    host.bytes(),
                    host.start(),
                    wait.count(),
                    wait.pointer(),
                )
            };
            ("clEnqueueWriteBuffer", event)
        }
        DeviceBytes::Svm(range) => {
            let start = range.start().as_ptr().cast::<c_void>();
            let (to, from) = if host.is_target() {
                (host.start(), start)
            } else {
                (start, host.start())
            };
            // SAFETY: (1) queue and events are kept alive by their handles; (2) the host's bytes can be read or written (I1
            // of `HostSide`), and the caller keeps them until the command has ended (rule 3 of `sys`); (3) the range lies in
            // its block, which is not freed while a command uses it (rule 1 of `sys`).
            let event = unsafe {
                cl3::command_queue::enqueue_svm_mem_cpy(
                    queue.raw(),
                    NOT_BLOCKING,
                    to,
                    from,
                    host.bytes().min(range.bytes()),
                    wait.count(),
                    wait.pointer(),
                )
            };
            ("clEnqueueSVMMemcpy", event)
        }
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event(call, event) }
}
