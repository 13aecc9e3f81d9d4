//! Transfers of any runtime.

use std::sync::Arc;

use super::{
    Access, CoreEvent, CoreMemory, CoreQueue, Part, Runtime, Sink, Work,
    enqueue::{check, enqueue},
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
        if self.core().orders_conflicts() || data.is_empty() {
            let event = self.enqueue_write(queue, memory, offset, data.into(), wait_for)?;
            return R::wait(event.mark());
        }
        let after = check(self, queue, wait_for)?;
        let region = Region::new(offset, data.len());
        let to = host_part(self, memory, region, HostUse::Write)?;
        self.core().deferred.look_at_some();
        Runtime::write(self, queue.stream(), &after, &to, data)
    }

    fn read(
        &self,
        queue: &CoreQueue<R>,
        memory: &CoreMemory<R>,
        offset: usize,
        data: &mut [u8],
        wait_for: &[CoreEvent<R>],
    ) -> Result<()> {
        let region = Region::new(offset, data.len());
        if self.core().orders_conflicts() || data.is_empty() {
            let read = self.enqueue_read(queue, memory, region, wait_for)?;
            data.copy_from_slice(&read.wait()?);
            return Ok(());
        }
        let after = check(self, queue, wait_for)?;
        let from = host_part(self, memory, region, HostUse::Read)?;
        self.core().deferred.look_at_some();
        Runtime::read(self, queue.stream(), &after, &from, data)
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
            self.submit(stream, after, unless_empty(&to, Work::Write(&to, data)))
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
            let work = Work::Read(&from, sink.clone());
            self.submit(stream, after, unless_empty(&from, work))
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
        for memory in [source, destination] {
            memory.check_works_with(self)?;
        }
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
                let work = Work::Copy(&read, &written);
                self.submit(stream, after, unless_empty(&read, work))
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

/// The work, or a marker where it has no byte to do: it is ordered like any other.
pub(super) fn unless_empty<'a, R: Runtime>(part: &Part<'_, R>, work: Work<'a, R>) -> Work<'a, R> {
    if part.region().bytes == 0 {
        return Work::Marker;
    }
    work
}
