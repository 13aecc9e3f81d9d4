//! Copies between any two kinds of memory.

use binpool_allocators::{InvalidRequest, Memory, Region, Result};

use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::access::Access,
    queue::ClQueue,
    sys::{self, MemHandle, Place, WaitList},
};

pub(crate) const fn overlap(from: Region, into: Region) -> InvalidRequest {
    InvalidRequest::OverlappingCopy {
        from: from.offset,
        to: into.offset,
        bytes: from.bytes,
    }
}

/// Enqueues a copy of a region that is not empty. Everything is checked.
///
/// OpenCL has no copy between a buffer and SVM. It does let a buffer be made over a block of SVM, and that buffer
/// is what such a copy uses. The other ways are worse: NVIDIA's driver takes the address of a block for memory of
/// the host that it is not, and reads what a write is to write when the write is enqueued, so that neither a
/// read into the block nor two commands with host memory between them work there.
pub(crate) fn enqueue(
    queue: &ClQueue,
    (source, from): (&ClMemory, Region),
    (destination, into): (&ClMemory, Region),
    wait_for: &[ClEvent],
    backend: &OpenClBackend,
) -> Result<ClEvent> {
    let bytes = from.bytes;
    let purpose = Purpose::Memory(bytes);
    let (Some(start), Some(end)) = (source.place(from), destination.place(into)) else {
        // Only a block that is being freed has no place, and that is not borrowed here.
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
    // The runtime keeps a buffer that was made over a block until the copy has ended.
    let enqueue = |wait: &WaitList<'_>| match (start, end) {
        (Place::Buffer(source, from), Place::Buffer(destination, to)) => {
            buffers(source, from, destination, to, wait)
        }
        (Place::Svm(source), Place::Svm(destination)) => {
            sys::enqueue_svm_copy(handle, source, destination, wait)
        }
        (Place::Buffer(source, from), Place::Svm(range)) => {
            let (destination, to) = range.as_buffer()?;
            buffers(source, from, &destination, to, wait)
        }
        (Place::Svm(range), Place::Buffer(destination, to)) => {
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
