//! Copies between any two kinds of memory.

use binpool_allocators::{InvalidRequest, Memory, Region, Result, Span, runtime::Access};

use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    sys::{self, Purpose},
};

pub(crate) const fn overlap(from: Region, into: Region) -> InvalidRequest {
    InvalidRequest::OverlappingCopy {
        from: from.offset,
        to: into.offset,
        bytes: from.bytes,
    }
}

impl OpenClBackend {
    /// Enqueues a copy, or a marker where that has no bytes.
    pub(crate) fn copy(
        &self,
        on: ClOn<'_>,
        from: Span<'_, ClMemory>,
        to: Span<'_, ClMemory>,
    ) -> Result<ClEvent> {
        self.check_own_queue(on.queue)?;
        for Span { memory, region } in [from, to] {
            self.check_own_memory(memory)?;
            region.check_within(memory.bytes())?;
        }
        if from.region.bytes == 0 {
            return self.marker(on);
        }
        let uses = [
            from.memory.used(from.region, Access::Read),
            to.memory.used(to.region, Access::Write),
        ];
        if uses[0].shares_bytes_with(&uses[1]) {
            return Err(overlap(from.region, to.region).into());
        }
        let [source, destination] =
            [from, to].map(|Span { memory, region }| memory.device_bytes(region));
        let (queue, bytes) = (on.queue.handle(), from.region.bytes);
        let purpose = Purpose::Memory(bytes);
        self.submit(on.queue, purpose, &uses, on.wait_for, |wait| {
            sys::enqueue_copy(queue, source, destination, bytes, wait)
        })
    }
}
