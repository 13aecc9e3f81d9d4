//! The trait [`Backend`], call by call.

use std::sync::Arc;

use binpool_allocators::{
    AsMemory, Backend, DeviceLimits, Memory, MemoryFlags, Outcome, PendingRead, Queue, QueueOrder,
    Region, Result, Transfers,
};

use crate::{
    backend::OpenClBackend, event::ClEvent, memory::cl_memory::ClMemory, queue::ClQueue,
    quirks::dropped_queues, sys,
};

/// The commands are methods of [`OpenClBackend`] itself, which take more kinds of memory.
impl Backend for OpenClBackend {
    type Memory = ClMemory;
    type Queue = ClQueue;
    type Event = ClEvent;

    fn limits(&self) -> &DeviceLimits {
        self.device_limits()
    }

    fn create_queue(&self, order: QueueOrder) -> Result<ClQueue> {
        let out_of_order = order == QueueOrder::OutOfOrder;
        if out_of_order && !self.limits().out_of_order_queues {
            let instead = "use several in-order queues";
            return Err(self.context().lacks("out-of-order queues", instead));
        }
        let context = self.context();
        dropped_queues::release_idle();
        let unordered = out_of_order && !context.quirks.out_of_order_queues_crash;
        let handle = sys::create_queue(&context.handle, context.device, unordered)?;
        Ok(ClQueue::created(context, handle, order))
    }

    fn check_queue(&self, queue: &ClQueue) -> Result<()> {
        self.check_own_queue(queue)
    }

    fn check_use(&self, queue: &ClQueue) -> Result<()> {
        self.check_queue_of_context(queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<ClMemory> {
        let quirks = &self.context().quirks;
        self.buffer_by(bytes, flags, |context, flags| {
            sys::create_buffer(context, quirks.flags_to_make(flags), bytes)
        })
    }

    fn create_sub_region(&self, parent: &ClMemory, region: Region) -> Result<ClMemory> {
        self.check_own_memory(parent)?;
        parent.view(region)
    }

    fn commit(&self, queue: &ClQueue, memory: &ClMemory) -> Result<()> {
        self.check_own_queue(queue)?;
        self.check_own_memory(memory)?;
        self.commit_memory(queue, memory)
    }

    fn release(&self, memory: ClMemory, after: &[ClEvent]) -> Result<()> {
        self.check_own_memory(&memory)?;
        self.check_own_events(after)?;
        memory.release(after)
    }

    fn enqueue_fill(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        Self::enqueue_fill(self, queue.after(wait_for), memory, region, pattern)
    }

    fn enqueue_marker(&self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        Self::enqueue_marker(self, queue.after(wait_for))
    }

    fn enqueue_barrier(&self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        Self::enqueue_barrier(self, queue.after(wait_for))
    }

    fn create_user_event(&self) -> Result<ClEvent> {
        let context = self.context();
        let handle = sys::create_user_event(&context.handle)?;
        let noted = context.quirks.user_event_made(&context.handle, &handle);
        noted?;
        Ok(ClEvent::user(context, handle, true))
    }

    fn resolve_user_event(&self, event: &ClEvent, outcome: Outcome) -> Result<()> {
        self.check_own_events(std::slice::from_ref(event))?;
        event.resolve(outcome)
    }
}

impl Transfers for OpenClBackend {
    fn write(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[ClEvent],
    ) -> Result<()> {
        Self::write(self, queue.after(wait_for), memory, offset, data)
    }

    fn read(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[ClEvent],
    ) -> Result<()> {
        Self::read(self, queue.after(wait_for), memory, offset, data)
    }

    fn enqueue_write(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        Self::enqueue_write(self, queue.after(wait_for), memory, offset, data)
    }

    fn enqueue_read(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        region: Region,
        wait_for: &[ClEvent],
    ) -> Result<PendingRead<ClEvent>> {
        Self::enqueue_read(self, queue.after(wait_for), memory, region)
    }

    fn enqueue_copy(
        &self,
        queue: &ClQueue,
        source: &ClMemory,
        from: Region,
        destination: &ClMemory,
        to: usize,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        Self::enqueue_copy(self, queue.after(wait_for), source, from, destination, to)
    }
}

impl AsMemory<OpenClBackend> for ClMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&Self> {
        Some(self)
    }
}
