//! Transfers of any runtime.

use std::sync::Arc;

use super::{
    Access, CoreEvent, CoreMemory, CoreQueue, Part, Runtime, Sink, Work,
    enqueue::{check, enqueue, note_failure},
};
use crate::{HostUse, InvalidRequest, Memory as _, PendingRead, Region, Result, Transfers};

impl<R: Runtime> Transfers for R {
    fn write(
        &self,
        queue: &CoreQueue<R>,
        memory: &CoreMemory<R>,
        offset: usize,
        data: &[u8],
        wait_for: &[CoreEvent<R>],
    ) -> Result<()> {
        let after = check(self, queue, wait_for)?;
        let region = Region::new(offset, data.len());
        let to = host_part(self, memory, region, HostUse::Write)?;
        let write = |stream: &_| Runtime::write(self, stream, &after, &to, data);
        if directly(self, queue, &to, write)? {
            return Ok(());
        }
        let written = self.enqueue_write(queue, memory, offset, data.into(), wait_for)?;
        R::wait(written.mark())
    }

    fn read(
        &self,
        queue: &CoreQueue<R>,
        memory: &CoreMemory<R>,
        offset: usize,
        data: &mut [u8],
        wait_for: &[CoreEvent<R>],
    ) -> Result<()> {
        let after = check(self, queue, wait_for)?;
        let region = Region::new(offset, data.len());
        let from = host_part(self, memory, region, HostUse::Read)?;
        let read = |stream: &_| Runtime::read(self, stream, &after, &from, data);
        if directly(self, queue, &from, read)? {
            return Ok(());
        }
        let read = self.enqueue_read(queue, memory, region, wait_for)?;
        data.copy_from_slice(&read.wait()?);
        Ok(())
    }

    fn enqueue_write(
        &self,
        queue: &CoreQueue<R>,
        memory: &CoreMemory<R>,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[CoreEvent<R>],
    ) -> Result<CoreEvent<R>> {
        let to = host_part(
            self,
            memory,
            Region::new(offset, data.len()),
            HostUse::Write,
        )?;
        enqueue(self, queue, &[&to], wait_for, |stream, after| {
            self.submit(stream, after, to.work(|| Work::Write(&to, data)))
        })
    }

    fn enqueue_read(
        &self,
        queue: &CoreQueue<R>,
        memory: &CoreMemory<R>,
        region: Region,
        wait_for: &[CoreEvent<R>],
    ) -> Result<PendingRead<CoreEvent<R>>> {
        let from = host_part(self, memory, region, HostUse::Read)?;
        let sink = Sink::default();
        let event = enqueue(self, queue, &[&from], wait_for, |stream, after| {
            let work = from.work(|| Work::Read(&from, sink.clone()));
            self.submit(stream, after, work)
        })?;
        Ok(PendingRead::new(event, move || sink.take()))
    }

    fn enqueue_copy(
        &self,
        queue: &CoreQueue<R>,
        source: &CoreMemory<R>,
        from: Region,
        destination: &CoreMemory<R>,
        to: usize,
        wait_for: &[CoreEvent<R>],
    ) -> Result<CoreEvent<R>> {
        let target = Region::new(to, from.bytes);
        let read = source.part(from, Access::Read)?;
        let written = destination.part(target, Access::Write)?;
        if source.id() == destination.id() && from.overlaps(target) {
            let (from, bytes) = (from.offset, from.bytes);
            return Err(InvalidRequest::OverlappingCopy { from, to, bytes }.into());
        }
        enqueue(
            self,
            queue,
            &[&read, &written],
            wait_for,
            |stream, after| {
                let work = read.work(|| Work::Copy(&read, &written));
                self.submit(stream, after, work)
            },
        )
    }
}

pub(super) fn own_part<'a, R: Runtime>(
    backend: &R,
    memory: &'a CoreMemory<R>,
    region: Region,
    access: Access,
) -> Result<Part<'a, R>> {
    memory.check_belongs(backend)?;
    memory.part(region, access)
}

/// A part that the host reads or writes.
fn host_part<'a, R: Runtime>(
    backend: &R,
    memory: &'a CoreMemory<R>,
    region: Region,
    host_use: HostUse,
) -> Result<Part<'a, R>> {
    memory.check_belongs(backend)?;
    memory.flags().check_host(host_use)?;
    let access = match host_use {
        HostUse::Read => Access::Read,
        HostUse::Write => Access::Write,
    };
    memory.part(region, access)
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
