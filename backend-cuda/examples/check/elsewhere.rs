//! The memory of one device on the queues of another, as a backend.

use binpool_allocators::{
    AsMemory, Backend, DeviceLimits, Memory, MemoryFlags, On, Outcome, QueueOrder, Region, Result,
    Span, Work,
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

    fn submit(
        &self,
        on: On<'_, CudaQueue, CudaEvent>,
        work: Work<'_, Span<'_, CudaMemory>>,
    ) -> Result<CudaEvent> {
        Backend::submit(&self.memory, on, work)
    }

    fn write_directly(
        &self,
        on: On<'_, CudaQueue, CudaEvent>,
        to: Span<'_, CudaMemory>,
        data: &[u8],
    ) -> Result<bool> {
        self.memory.write_directly(on, to, data)
    }

    fn read_directly(
        &self,
        on: On<'_, CudaQueue, CudaEvent>,
        from: Span<'_, CudaMemory>,
        data: &mut [u8],
    ) -> Result<bool> {
        self.memory.read_directly(on, from, data)
    }

    fn create_user_event(&self) -> Result<CudaEvent> {
        self.memory.create_user_event()
    }

    fn resolve_user_event(&self, event: &CudaEvent, outcome: Outcome) -> Result<()> {
        self.memory.resolve_user_event(event, outcome)
    }
}

impl AsMemory<Elsewhere> for CudaMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &CudaQueue) -> Option<&Self> {
        Some(self)
    }
}
