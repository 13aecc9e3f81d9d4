//! Copies between any two kinds of memory.

use binpool_allocators::{InvalidRequest, Memory, Region, Result};

use crate::{
    backend::OpenClBackend,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::access::Access,
    queue::ClQueue,
    sys::{self, DeviceBytes, MemHandle, Purpose, WaitList},
};

pub(crate) const fn overlap(from: Region, into: Region) -> InvalidRequest {
    InvalidRequest::OverlappingCopy {
        from: from.offset,
        to: into.offset,
        bytes: from.bytes,
    }
}

/// Enqueues a copy of a region that is not empty. The caller has checked everything.
///
/// OpenCL has no copy between a buffer and SVM, so this makes a buffer over the block of SVM. Transfers with the block as
/// host memory would not work with NVIDIA's driver: it takes the address of the block for ordinary host memory, and reads
/// the bytes of a write when that is enqueued.
pub(crate) fn enqueue(
    queue: &ClQueue,
    (source, from): (&ClMemory, Region),
    (destination, into): (&ClMemory, Region),
    wait_for: &[ClEvent],
    backend: &OpenClBackend,
) -> Result<ClEvent> {
    let bytes = from.bytes;
    let purpose = Purpose::Memory(bytes);
    let (Some(start), Some(end)) = (source.device_bytes(from), destination.device_bytes(into))
    else {
        // Only a block that is being freed has no bytes, and such a block is not borrowed here.
        return Err(InvalidRequest::OutOfBounds {
            offset: from.offset,
            bytes: from.bytes,
            size: source.bytes(),
        }
        .into());
    };
    let handle = queue.handle();
    let buffers = |source: &MemHandle, from, destination: &MemHandle, to, wait: &WaitList<'_>| {
        sys::enqueue_copy_buffer(handle, (source, from), (destination, to), bytes, wait)
    };
    // The runtime keeps the buffer that was made over the block until the copy has ended.
    let enqueue = |wait: &WaitList<'_>| match (start, end) {
        (DeviceBytes::Buffer(source, from), DeviceBytes::Buffer(destination, to)) => {
            buffers(source, from, destination, to, wait)
        }
        (DeviceBytes::Svm(source), DeviceBytes::Svm(destination)) => {
            sys::enqueue_svm_copy(handle, source, destination, wait)
        }
        (DeviceBytes::Buffer(source, from), DeviceBytes::Svm(range)) => {
            let (destination, to) = range.as_buffer()?;
            buffers(source, from, &destination, to, wait)
        }
        (DeviceBytes::Svm(range), DeviceBytes::Buffer(destination, to)) => {
            let (source, from) = range.as_buffer()?;
            buffers(&source, from, destination, to, wait)
        }
    };
    let uses = [
        source.used(from, Access::Read),
        destination.used(into, Access::Write),
    ];
    if uses[0].shares_bytes_with(&uses[1]) {
        return Err(overlap(from, into).into());
    }
    backend.submit(queue, purpose, &uses, wait_for, enqueue)
}
