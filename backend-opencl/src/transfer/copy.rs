//! Copies between any two kinds of memory.

use binpool_allocators::{InvalidRequest, Memory, Region, Result};

use crate::{
    backend::OpenClBackend,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::access::Access,
    queue::ClQueue,
    sys::{self, DeviceBytes, Purpose, WaitList},
};

pub(crate) const fn overlap(from: Region, into: Region) -> InvalidRequest {
    InvalidRequest::OverlappingCopy {
        from: from.offset,
        to: into.offset,
        bytes: from.bytes,
    }
}

/// Returns the device's side of a transfer of a region, which lies in `memory`.
pub(super) fn bytes_of(memory: &ClMemory, region: Region) -> Result<DeviceBytes<'_>> {
    let bytes = memory.device_bytes(region);
    // Only a block that is being freed has no bytes, and such a block is not borrowed here.
    Ok(bytes.ok_or(InvalidRequest::OutOfBounds {
        offset: region.offset,
        bytes: region.bytes,
        size: memory.bytes(),
    })?)
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
    let (start, end) = (bytes_of(source, from)?, bytes_of(destination, into)?);
    let handle = queue.handle();
    let enqueue = |wait: &WaitList<'_>| match (start, end) {
        (DeviceBytes::Svm(source), DeviceBytes::Svm(destination)) => {
            sys::enqueue_svm_copy(handle, source, destination, wait)
        }
        _ => start.on_buffer(|source, from| {
            end.on_buffer(|destination, to| {
                sys::enqueue_copy_buffer(handle, (source, from), (destination, to), bytes, wait)
            })
        }),
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
