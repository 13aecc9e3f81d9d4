//! The runtime as a backend.

use super::{
    Access, CoreEvent, CoreMemory, CoreQueue, Runtime, Work,
    enqueue::{check_queue, enqueue},
    transfers::own_part,
};
use crate::{
    Backend, DeviceLimits, Error, InvalidRequest, Memory as _, MemoryFlags, Outcome, QueueOrder,
    Region, Result,
};

impl<R: Runtime> Backend for R {
    type Memory = CoreMemory<R>;
    type Queue = CoreQueue<R>;
    type Event = CoreEvent<R>;

    fn limits(&self) -> &DeviceLimits {
        self.core().limits()
    }

    fn free_bytes(&self) -> Option<u64> {
        Runtime::free_bytes(self)
    }

    fn create_queue(&self, order: QueueOrder) -> Result<CoreQueue<R>> {
        let limits = self.core().limits();
        if order == QueueOrder::OutOfOrder && !limits.out_of_order_queues {
            return Err(Error::unsupported(format!(
                "out-of-order queues on {}: make an in-order queue for each chain of commands, and order them by events",
                limits.device_name
            )));
        }
        let queue = CoreQueue::new(self, self.create_stream(order)?, order);
        self.core().queues.add(&queue);
        Ok(queue)
    }

    fn check_queue(&self, queue: &CoreQueue<R>) -> Result<()> {
        check_queue(self, queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<CoreMemory<R>> {
        self.core().limits().check_block(bytes)?;
        flags.check()?;
        let deferred = &self.core().deferred;
        let block = deferred.allocate(|| self.allocate(bytes, flags))?;
        Ok(CoreMemory::new(self, block, bytes, flags))
    }

    fn create_sub_region(&self, parent: &CoreMemory<R>, region: Region) -> Result<CoreMemory<R>> {
        parent.check_belongs(self)?;
        parent.view(region)
    }

    fn commit(&self, queue: &CoreQueue<R>, memory: &CoreMemory<R>) -> Result<()> {
        check_queue(self, queue)?;
        memory.check_belongs(self)?;
        let all = memory.part(Region::first(memory.bytes()), Access::Write)?;
        Runtime::commit(self, queue.stream(), &all)
    }

    fn release(&self, memory: CoreMemory<R>, after: &[CoreEvent<R>]) -> Result<()> {
        memory.check_belongs(self)?;
        for event in after {
            event.check_works_with(self)?;
        }
        let mut uses = memory.root().uses.lock();
        for event in after {
            uses.note_other(event.mark().clone());
        }
        drop(uses);
        drop(memory);
        self.core().deferred.look_at_some();
        Ok(())
    }

    fn enqueue_marker(
        &self,
        queue: &CoreQueue<R>,
        wait_for: &[CoreEvent<R>],
    ) -> Result<CoreEvent<R>> {
        enqueue(self, queue, &[], wait_for, |stream, after| {
            self.submit(stream, after, Work::Marker)
        })
    }

    fn enqueue_barrier(
        &self,
        queue: &CoreQueue<R>,
        wait_for: &[CoreEvent<R>],
    ) -> Result<CoreEvent<R>> {
        enqueue(self, queue, &[], wait_for, |stream, after| {
            self.submit(stream, after, Work::Barrier)
        })
    }

    fn enqueue_fill(
        &self,
        queue: &CoreQueue<R>,
        memory: &CoreMemory<R>,
        region: Region,
        pattern: &[u8],
        wait_for: &[CoreEvent<R>],
    ) -> Result<CoreEvent<R>> {
        let part = own_part(self, memory, region, Access::Write)?;
        InvalidRequest::check_pattern(region, pattern)?;
        let is_one_byte = pattern.iter().all(|byte| *byte == pattern[0]);
        let pattern = if is_one_byte { &pattern[..1] } else { pattern };
        enqueue(self, queue, &[&part], wait_for, |stream, after| {
            self.submit(stream, after, part.work(|| Work::Fill(&part, pattern)))
        })
    }

    fn create_user_event(&self) -> Result<CoreEvent<R>> {
        Ok(CoreEvent::of_user(self, self.create_user_mark()?))
    }

    fn resolve_user_event(&self, event: &CoreEvent<R>, outcome: Outcome) -> Result<()> {
        event.check_works_with(self)?;
        event.resolve(outcome)
    }
}
