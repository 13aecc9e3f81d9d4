//! The traits' calls, in the order of [`Backend`].

use std::sync::Arc;

use binpool_allocators::{
    Backend, DeviceLimits, Error, Event, HostUse, InvalidRequest, Memory, MemoryFlags, Outcome,
    PendingRead, Queue, QueueOrder, Region, Result,
};

use crate::{
    backend::{OpenClBackend, Waited},
    cl_error::{ClResult, Purpose},
    event::ClEvent,
    memory::cl_memory::{Body, ClMemory},
    memory::flags,
    memory::root::Root,
    order::access::Access,
    queue::ClQueue,
    retired,
    sys::{self, EventHandle, HostBytes, Place, WaitList},
    transfer::MigrationFlags,
    transfer::copy,
};

/// A command over no bytes becomes a marker. On an out-of-order queue, and with nothing to wait for, OpenCL's
/// markers wait for everything before, which is more than such a command has to; a blocking one returns at once
/// there.
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
            return Err(Error::unsupported(format!(
                "out-of-order queues on {}: use several in-order queues",
                self.limits().device_name
            )));
        }
        let context = self.context();
        retired::release_idle();
        let handle = sys::create_queue(&context.handle, context.device, out_of_order)
            .map_err(|error| error.into_error(Purpose::Control))?;
        Ok(ClQueue::created(context, handle, order))
    }

    fn check_queue(&self, queue: &ClQueue) -> Result<()> {
        self.check_own_queue(queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<ClMemory> {
        self.limits().check_block(bytes)?;
        flags.check()?;
        let handle = sys::create_buffer(&self.context().handle, flags::to_cl(flags), bytes)
            .map_err(|error| error.into_error(Purpose::Memory(bytes)))?;
        let body = Body::Buffer(Arc::new(Root::new(handle)));
        Ok(ClMemory::new(self.context(), bytes, flags, body))
    }

    fn create_sub_region(&self, parent: &ClMemory, region: Region) -> Result<ClMemory> {
        self.check_own_memory(parent)?;
        parent.view(region)
    }

    fn commit(&self, queue: &ClQueue, memory: &ClMemory) -> Result<()> {
        self.check_own_queue(queue)?;
        self.check_own_memory(memory)?;
        let Some(buffer) = memory.buffer() else {
            // SVM is committed when it is allocated.
            return Ok(());
        };
        // It is waited for, so there is nothing to gain from several at once, and NVIDIA's driver crashes.
        let _one_at_a_time = queue.committing();
        let all = memory.used(Region::first(memory.bytes()), Access::Write);
        let undefined = MigrationFlags::CONTENT_UNDEFINED;
        self.migrate_objects(queue, &[buffer], &[all], undefined, &[])?
            .wait()
    }

    fn release(&self, memory: ClMemory, after: &[ClEvent]) -> Result<()> {
        self.check_own_memory(&memory)?;
        self.check_own_events(after)?;
        memory.release(after)
    }

    fn write(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[ClEvent],
    ) -> Result<()> {
        memory.check_host(HostUse::Write)?;
        let region = Region::new(offset, data.len());
        let target = (memory, region, Access::Write);
        self.blocking(queue, target, wait_for, |place, wait, enqueued| {
            sys::write_borrowed(queue.handle(), place, data, wait, enqueued)
        })
    }

    fn read(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[ClEvent],
    ) -> Result<()> {
        memory.check_host(HostUse::Read)?;
        let region = Region::new(offset, data.len());
        let source = (memory, region, Access::Read);
        self.blocking(queue, source, wait_for, |place, wait, enqueued| {
            sys::read_borrowed(queue.handle(), place, data, wait, enqueued)
        })
    }

    fn enqueue_write(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        memory.check_host(HostUse::Write)?;
        let region = Region::new(offset, data.len());
        let target = (memory, region, Access::Write);
        let event = self.command(queue, target, wait_for, |place, wait| {
            sys::write_kept(queue.handle(), place, &data, wait)
        })?;
        event.keep(data);
        Ok(event)
    }

    fn enqueue_read(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        region: Region,
        wait_for: &[ClEvent],
    ) -> Result<PendingRead<ClEvent>> {
        // Before the bytes are made: a region that is too large is not the host's lack of memory.
        region.check_within(memory.bytes())?;
        memory.check_host(HostUse::Read)?;
        let target = Arc::new(HostBytes::new(region.bytes)?);
        let source = (memory, region, Access::Read);
        let event = self.command(queue, source, wait_for, |place, wait| {
            sys::read_kept(queue.handle(), place, &target, wait)
        })?;
        event.keep(Arc::clone(&target));
        Ok(PendingRead::new(event, move || target.take()))
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
        self.check_own_queue(queue)?;
        self.check_own_memory(source)?;
        self.check_own_memory(destination)?;
        let into = Region::new(to, from.bytes);
        from.check_within(source.bytes())?;
        into.check_within(destination.bytes())?;
        if from.bytes == 0 {
            return self.enqueue_marker(queue, wait_for);
        }
        copy::enqueue(queue, (source, from), (destination, into), wait_for, self)
    }

    fn enqueue_fill(
        &self,
        queue: &ClQueue,
        memory: &ClMemory,
        region: Region,
        pattern: &[u8],
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        InvalidRequest::check_pattern(region, pattern)?;
        let target = (memory, region, Access::Write);
        self.command(queue, target, wait_for, |place, wait| match place {
            Place::Buffer(buffer, offset) => sys::enqueue_fill_buffer(
                queue.handle(),
                buffer,
                pattern,
                offset,
                region.bytes,
                wait,
            ),
            Place::Svm(range) => sys::enqueue_svm_fill(queue.handle(), range, pattern, wait),
        })
    }

    fn enqueue_marker(&self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        self.check_own_queue(queue)?;
        self.submit(queue, Purpose::Control, &[], wait_for, |wait| {
            sys::enqueue_marker(queue.handle(), wait)
        })
    }

    fn enqueue_barrier(&self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
        self.check_own_queue(queue)?;
        if queue.order() == QueueOrder::InOrder {
            return self.submit(queue, Purpose::Control, &[], wait_for, |wait| {
                sys::enqueue_barrier(queue.handle(), wait)
            });
        }
        // On PoCL the commands after a barrier wait for the last one only, which has to come after the one before.
        let mut last = queue.last_barrier();
        let before = last.take();
        let is_pending =
            |event: &&EventHandle| matches!(sys::execution_status(event), Ok(status) if status > 0);
        let after = before.as_ref().filter(|_| !wait_for.is_empty());
        let after = after.filter(is_pending);
        let barrier = self.submit(queue, Purpose::Control, &[], wait_for, |wait| {
            let both = wait.and(after);
            sys::enqueue_barrier(queue.handle(), &both)
        });
        *last = match &barrier {
            Ok(barrier) => barrier.handle().another().ok(),
            Err(_) => before,
        };
        barrier
    }

    fn create_user_event(&self) -> Result<ClEvent> {
        let handle = sys::create_user_event(&self.context().handle)
            .map_err(|error| error.into_error(Purpose::Control))?;
        Ok(ClEvent::user(self.context(), handle, true))
    }

    fn resolve_user_event(&self, event: &ClEvent, outcome: Outcome) -> Result<()> {
        self.check_own_events(std::slice::from_ref(event))?;
        event.resolve(outcome)
    }
}

impl OpenClBackend {
    /// A command on one region, or a marker where the region is empty.
    pub(crate) fn command(
        &self,
        queue: &ClQueue,
        memory: (&ClMemory, Region, Access),
        wait_for: &[ClEvent],
        enqueue: impl FnOnce(Place<'_>, &WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        let (memory, region, access) = memory;
        self.check(queue, memory, region)?;
        match memory.place(region) {
            Some(place) if region.bytes > 0 => {
                let purpose = Purpose::Memory(region.bytes);
                let used = memory.used(region, access);
                self.submit(queue, purpose, &[used], wait_for, |wait| {
                    enqueue(place, wait)
                })
            }
            _ => self.enqueue_marker(queue, wait_for),
        }
    }

    /// A command on one region that `run` waits for, with memory that is borrowed until then.
    fn blocking(
        &self,
        queue: &ClQueue,
        memory: (&ClMemory, Region, Access),
        wait_for: &[ClEvent],
        run: impl FnOnce(Place<'_>, &WaitList<'_>, &mut dyn FnMut(&EventHandle)) -> ClResult<Waited>,
    ) -> Result<()> {
        let (memory, region, access) = memory;
        self.check(queue, memory, region)?;
        match memory.place(region) {
            Some(place) if region.bytes > 0 => {
                let purpose = Purpose::Memory(region.bytes);
                let used = memory.used(region, access);
                self.submit_and_wait(queue, purpose, &[used], wait_for, |wait, enqueued| {
                    run(place, wait, enqueued)
                })
            }
            _ if wait_for.is_empty() && queue.order() == QueueOrder::OutOfOrder => Ok(()),
            _ => self.enqueue_marker(queue, wait_for)?.wait(),
        }
    }

    fn check(&self, queue: &ClQueue, memory: &ClMemory, region: Region) -> Result<()> {
        self.check_own_queue(queue)?;
        self.check_own_memory(memory)?;
        region.check_within(memory.bytes())
    }
}
