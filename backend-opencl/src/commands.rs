//! The trait [`Backend`], call by call.

use binpool_allocators::{
    AsMemory, Backend, DeviceLimits, Error, Memory, MemoryFlags, Outcome, QueueOrder, Region,
    Result, Span, Work,
};

use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    queue::ClQueue,
    quirks::dropped_queues,
    sys::{self, host::HostSide},
};

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

    fn submit(&self, on: ClOn<'_>, work: Work<'_, Span<'_, ClMemory>>) -> Result<ClEvent> {
        match work {
            Work::Marker => self.marker(on),
            Work::Barrier => self.barrier(on),
            Work::Fill(to, pattern) => self.fill(on, to, pattern),
            Work::Write(to, data) => self.enqueue_write_part(on, to, data),
            Work::Read(from, sink) => self.read_to(on, &from, &sink),
            Work::Copy(from, to) => self.copy(on, from, to),
            _ => Err(Error::unsupported("this command on OpenCL")),
        }
    }

    fn write_directly(&self, on: ClOn<'_>, to: Span<'_, ClMemory>, data: &[u8]) -> Result<bool> {
        self.transfer(on, &to, &HostSide::source(data))?;
        Ok(true)
    }

    fn read_directly(
        &self,
        on: ClOn<'_>,
        from: Span<'_, ClMemory>,
        data: &mut [u8],
    ) -> Result<bool> {
        self.transfer(on, &from, &HostSide::target(data))?;
        Ok(true)
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

impl AsMemory<OpenClBackend> for ClMemory {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&Self> {
        Some(self)
    }
}
