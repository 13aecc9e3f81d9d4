//! What transfers between the host and a run of bytes have in common.

use binpool_allocators::{AsMemory, Backend, Memory, Region, Result};

use crate::{
    backend::OpenClBackend,
    cl_error::ClResult,
    event::ClEvent,
    order::access::Access,
    queue::ClQueue,
    sys::{EventHandle, Place, WaitList},
};

impl OpenClBackend {
    /// Enqueues a transfer of `region` by `enqueue`: a write of the memory, or a read. A marker, where there is no memory.
    pub(super) fn linear(
        &self,
        queue: &ClQueue,
        (memory, region, access): (&(impl AsMemory<Self> + ?Sized), Region, Access),
        wait_for: &[ClEvent],
        enqueue: impl FnOnce(Place<'_>, &WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        region.check_within(memory.size())?;
        self.check_own_queue(queue)?;
        let Some(memory) = memory.memory_on(queue) else {
            return self.enqueue_marker(queue, wait_for);
        };
        region.check_within(memory.bytes())?;
        memory.check_host(access.host_use())?;
        self.command(queue, (memory, region, access), wait_for, enqueue)
    }
}
