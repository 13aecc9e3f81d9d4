//! The memory of one device on the queues of another, as a backend.

use std::sync::Arc;

use binpool_allocators::{
    Backend, DeviceLimits, MemoryFlags, Outcome, PendingRead, QueueOrder, Region, Result, Transfers,
};
use binpool_cuda::{CudaBackend, CudaEvent, CudaMemory, CudaQueue};

/// Memory and user events are of `memory`, queues are of `queues`.
#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) memory: CudaBackend,
    pub(crate) queues: CudaBackend,
}

impl Backend for Elsewhere {
    type Memory = CudaMemory;
    type Queue = CudaQueue;
    type Event = CudaEvent;

    fn limits(&self) -> &DeviceLimits {
        self.memory.limits()
    }

    fn create_queue(&self, order: QueueOrder) -> Result<CudaQueue> {
        self.queues.create_queue(order)
    }

    fn check_queue(&self, queue: &CudaQueue) -> Result<()> {
        self.memory.check_queue(queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<CudaMemory> {
        self.memory.create_buffer(bytes, flags)
    }

    fn create_sub_region(&self, parent: &CudaMemory, region: Region) -> Result<CudaMemory> {
        self.memory.create_sub_region(parent, region)
    }

    fn commit(&self, queue: &CudaQueue, memory: &CudaMemory) -> Result<()> {
        self.memory.commit(queue, memory)
    }

    fn release(&self, memory: CudaMemory, after: &[CudaEvent]) -> Result<()> {
        self.memory.release(memory, after)
    }

    fn enqueue_marker(&self, queue: &CudaQueue, wait_for: &[CudaEvent]) -> Result<CudaEvent> {
        self.memory.enqueue_marker(queue, wait_for)
    }

    fn enqueue_barrier(&self, queue: &CudaQueue, wait_for: &[CudaEvent]) -> Result<CudaEvent> {
        self.memory.enqueue_barrier(queue, wait_for)
    }

    fn enqueue_fill(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[CudaEvent],
    ) -> Result<CudaEvent> {
        self.memory
            .enqueue_fill(queue, memory, region, pattern, wait_for)
    }

    fn create_user_event(&self) -> Result<CudaEvent> {
        self.memory.create_user_event()
    }

    fn resolve_user_event(&self, event: &CudaEvent, outcome: Outcome) -> Result<()> {
        self.memory.resolve_user_event(event, outcome)
    }
}

impl Transfers for Elsewhere {
    fn write(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        self.memory.write(queue, memory, offset, data, wait_for)
    }

    fn read(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        self.memory.read(queue, memory, offset, data, wait_for)
    }

    fn enqueue_write(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[CudaEvent],
    ) -> Result<CudaEvent> {
        self.memory
            .enqueue_write(queue, memory, offset, data, wait_for)
    }

    fn enqueue_read(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        region: Region,
        wait_for: &[CudaEvent],
    ) -> Result<PendingRead<CudaEvent>> {
        self.memory.enqueue_read(queue, memory, region, wait_for)
    }

    fn enqueue_copy(
        &self,
        queue: &CudaQueue,
        source: &CudaMemory,
        from: Region,
        destination: &CudaMemory,
        to: usize,
        wait_for: &[CudaEvent],
    ) -> Result<CudaEvent> {
        self.memory
            .enqueue_copy(queue, source, from, destination, to, wait_for)
    }
}
