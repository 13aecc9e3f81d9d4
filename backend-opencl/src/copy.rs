//! Copies between any two kinds of memory.

use std::sync::Arc;

use binpool_allocators::{Error, InvalidRequest, Memory, MemoryKind, Region, Result, SvmGrain};
use cl3::error_codes::CL_MEM_COPY_OVERLAP;

use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    event::ClEvent,
    memory::ClMemory,
    queue::ClQueue,
    sys::{self, HostBytes, Place, WaitList},
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
/// OpenCL has no copy between a buffer and SVM. Fine-grained SVM is memory that the host may touch at any
/// time, so the copy is a read or write of the buffer, with the block as the host's side. Coarse-grained SVM
/// is not, and the bytes go through the host in two commands.
pub(crate) fn enqueue(
    queue: &ClQueue,
    (source, from): (&ClMemory, Region),
    (destination, into): (&ClMemory, Region),
    wait_for: &[ClEvent],
    wait: &WaitList<'_>,
) -> Result<ClEvent> {
    let purpose = Purpose::Memory(from.bytes);
    let (Some(start), Some(end)) = (source.place(from), destination.place(into)) else {
        // Only a block that is being freed has no place, and that is not borrowed here.
        return Err(InvalidRequest::OutOfBounds {
            offset: from.offset,
            bytes: from.bytes,
            size: source.bytes(),
        }
        .into());
    };
    if needs_staging(source, destination) {
        let staged = Arc::new(HostBytes::new(from.bytes)?);
        let read = OpenClBackend::submit(queue, purpose, &[source], wait_for, || {
            sys::read_owned(queue.handle(), start, &staged, wait)
        })?;
        let read = [read];
        let after_read: WaitList<'_> = read.iter().map(ClEvent::handle).collect();
        return OpenClBackend::submit(queue, purpose, &[destination], &read, || {
            sys::stage(queue.handle(), end, &staged, &after_read)
        });
    }
    let handle = queue.handle();
    let enqueue = || match (start, end) {
        (Place::Buffer(source, at), Place::Buffer(destination, to)) => {
            sys::enqueue_copy_buffer(handle, (source, at), (destination, to), from.bytes, wait)
        }
        (Place::Svm(source), Place::Svm(destination)) => {
            sys::enqueue_svm_copy(handle, source, destination, wait)
        }
        (Place::Buffer(source, at), Place::Svm(destination)) => {
            sys::read_to_svm(handle, (source, at), destination, wait)
        }
        (Place::Svm(source), Place::Buffer(destination, to)) => {
            sys::write_from_svm(handle, source, (destination, to), wait)
        }
    };
    OpenClBackend::submit(queue, purpose, &[source, destination], wait_for, enqueue).map_err(
        |error| {
            // Different views of one block: the runtime has looked for what the trait leaves to the caller.
            match error {
                Error::Backend(failure) if failure.code == Some(CL_MEM_COPY_OVERLAP) => {
                    overlap(from, into).into()
                }
                error => error,
            }
        },
    )
}

/// Whether the copy is between a buffer and SVM that the host may not touch.
fn needs_staging(source: &ClMemory, destination: &ClMemory) -> bool {
    if std::env::var_os("DIRECT").is_some() { return false; }
    let coarse = MemoryKind::Svm(SvmGrain::Coarse);
    let kinds = (source.kind(), destination.kind());
    kinds == (MemoryKind::Buffer, coarse) || kinds == (coarse, MemoryKind::Buffer)
}
