//! The runtime as a backend.

use super::{
    Access, CoreEvent, CoreMemory, CoreQueue, Part, Runtime,
    enqueue::{check, check_queue, enqueue, note_failure},
    memory::Kind,
    queue::note,
};
use crate::{
    AsMemory, Backend, DeviceLimits, Error, HostUse, InvalidRequest, Memory as _, MemoryFlags,
    ObjectKind, On, Outcome, QueueOrder, Region, Result, Span, Work,
};

type OnCore<'a, R> = On<'a, CoreQueue<R>, CoreEvent<R>>;
type Bytes<'a, R> = Span<'a, CoreMemory<R>>;

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
        note(&queue);
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
        Ok(memory_of(self, block, bytes, flags, Kind::Buffer))
    }

    fn create_sub_region(&self, parent: &CoreMemory<R>, region: Region) -> Result<CoreMemory<R>> {
        parent.check_own(self.core())?;
        parent.view(region)
    }

    fn commit(&self, queue: &CoreQueue<R>, memory: &CoreMemory<R>) -> Result<()> {
        check_queue(self, queue)?;
        memory.check_own(self.core())?;
        let all = memory.part(Region::first(memory.bytes()), Access::Write)?;
        // SAFETY: the memory is of this device, and the queue of its family.
        unsafe { Runtime::commit(self, queue.stream(), &all) }
    }

    fn release(&self, memory: CoreMemory<R>, after: &[CoreEvent<R>]) -> Result<()> {
        memory.check_own(self.core())?;
        for event in after {
            self.core().check_family(event.core(), ObjectKind::Event)?;
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

    fn submit(
        &self,
        On { queue, wait_for }: OnCore<'_, R>,
        work: Work<'_, Bytes<'_, R>>,
    ) -> Result<CoreEvent<R>> {
        let submit = |work: Work<'_, &Part<'_, R>>, parts: &[&Part<'_, R>]| {
            // A command over no bytes does nothing, and is ordered like any other.
            let is_empty = parts.first().is_some_and(|part| part.region().bytes == 0);
            let work = if is_empty { Work::Marker } else { work };
            let call = |stream: &R::Stream, after: &[R::Mark]| {
                // SAFETY: the code below has checked the parts, and `enqueue` the queue and the marks.
                unsafe { Runtime::submit(self, stream, after, work) }
            };
            // SAFETY: the runtime returns the mark of a command that uses these parts.
            unsafe { enqueue(self, queue, parts, wait_for, call) }
        };
        match work {
            Work::Marker => submit(Work::Marker, &[]),
            Work::Barrier => submit(Work::Barrier, &[]),
            Work::Fill(to, pattern) => {
                let part = own_part(self, to, Access::Write)?;
                InvalidRequest::check_pattern(Region::first(to.region.bytes), pattern)?;
                let is_one_byte = pattern.iter().all(|byte| *byte == pattern[0]);
                let pattern = if is_one_byte { &pattern[..1] } else { pattern };
                submit(Work::Fill(&part, pattern), &[&part])
            }
            Work::Write(to, data) => {
                let part = host_part(self, to, HostUse::Write)?;
                submit(Work::Write(&part, data), &[&part])
            }
            Work::Read(from, sink) => {
                let part = host_part(self, from, HostUse::Read)?;
                submit(Work::Read(&part, sink), &[&part])
            }
            Work::Copy(from, to) => {
                let read = from.memory.part(from.region, Access::Read)?;
                let written = to.memory.part(to.region, Access::Write)?;
                if from.memory.id() == to.memory.id() && from.region.overlaps(to.region) {
                    let (to, Region { offset, bytes }) = (to.region.offset, from.region);
                    let from = offset;
                    return Err(InvalidRequest::OverlappingCopy { from, to, bytes }.into());
                }
                submit(Work::Copy(&read, &written), &[&read, &written])
            }
        }
    }

    fn write_directly(&self, on: OnCore<'_, R>, to: Bytes<'_, R>, data: &[u8]) -> Result<bool> {
        let after = check(self, on.queue, on.wait_for)?;
        let part = host_part(self, to, HostUse::Write)?;
        directly(self, on.queue, &part, |stream| {
            // SAFETY: `check` and `host_part` have checked the arguments.
            unsafe { self.write(stream, &after, &part, data) }
        })
    }

    fn read_directly(
        &self,
        on: OnCore<'_, R>,
        from: Bytes<'_, R>,
        data: &mut [u8],
    ) -> Result<bool> {
        let after = check(self, on.queue, on.wait_for)?;
        let part = host_part(self, from, HostUse::Read)?;
        directly(self, on.queue, &part, |stream| {
            // SAFETY: `check` and `host_part` have checked the arguments.
            unsafe { self.read(stream, &after, &part, data) }
        })
    }

    fn create_user_event(&self) -> Result<CoreEvent<R>> {
        Ok(CoreEvent::of_user(self.core(), self.create_user_mark()?))
    }

    fn resolve_user_event(&self, event: &CoreEvent<R>, outcome: Outcome) -> Result<()> {
        self.core().check_family(event.core(), ObjectKind::Event)?;
        event.resolve(outcome)
    }
}

/// Makes memory of a block that the backend has allocated by another call than [`Runtime::allocate`].
///
/// # Safety
///
/// The block is of this backend, and has `bytes` bytes, which commands may access as `flags` allow.
#[must_use]
pub unsafe fn adopt_block<R: Runtime>(
    backend: &R,
    block: R::Block,
    bytes: usize,
    flags: MemoryFlags,
) -> CoreMemory<R> {
    memory_of(backend, block, bytes, flags, Kind::Buffer)
}

/// Makes memory of a block, which keeps a clone of the backend.
pub(super) fn memory_of<R: Runtime>(
    backend: &R,
    block: R::Block,
    bytes: usize,
    flags: MemoryFlags,
    kind: Kind<R>,
) -> CoreMemory<R> {
    CoreMemory::of_kind(backend.core(), backend.clone(), block, bytes, flags, kind)
}

impl<R: Runtime> AsMemory<R> for CoreMemory<R> {
    fn size(&self) -> usize {
        self.bytes()
    }

    fn memory_on(&self, _queue: &CoreQueue<R>) -> Option<&Self> {
        Some(self)
    }
}

fn own_part<'a, R: Runtime>(
    backend: &R,
    span: Bytes<'a, R>,
    access: Access,
) -> Result<Part<'a, R>> {
    span.memory.check_own(backend.core())?;
    span.memory.part(span.region, access)
}

/// A part that the host reads or writes.
fn host_part<'a, R: Runtime>(
    backend: &R,
    span: Bytes<'a, R>,
    host_use: HostUse,
) -> Result<Part<'a, R>> {
    span.memory.check_own(backend.core())?;
    span.memory.flags().check_host(host_use)?;
    let access = match host_use {
        HostUse::Read => Access::Read,
        HostUse::Write => Access::Write,
    };
    span.memory.part(span.region, access)
}

/// Has the runtime transfer bytes of the program and wait, unless conflicting commands are put in order, which needs a mark.
fn directly<R: Runtime>(
    backend: &R,
    queue: &CoreQueue<R>,
    part: &Part<'_, R>,
    transfer: impl FnOnce(&R::Stream) -> Result<bool>,
) -> Result<bool> {
    let core = backend.core();
    core.deferred.look_at_some();
    if core.orders_conflicts() {
        return Ok(false);
    }
    transfer(queue.stream()).inspect_err(|_| note_failure(backend, queue, &[part]))
}
