//! Reads, writes and copies.

use std::sync::Arc;

use binpool_allocators::{
    Event, HostUse, InvalidRequest, Memory, PendingRead, Region, Result, Transfers,
};

use crate::{
    backend::CudaBackend,
    event::CudaEvent,
    memory::{CudaMemory, Part},
    queue::CudaQueue,
    sys::Staging,
};

/// Enqueued transfers pass through pinned memory, which the backend keeps, and so do those between the host and memory of another device
/// than the queue's. Others that block copy from and to the host's bytes.
///
/// While the stream of the queue is captured into a graph, reads and writes that block are [`Unsupported`](binpool_allocators::Error::Unsupported);
/// the bytes of an enqueued write are kept as long as the backend, since each launch of the graph copies them.
impl Transfers for CudaBackend {
    fn write(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        queue.check_not_captured("a write that blocks")?;
        if is_far(queue, memory) {
            let write = self.enqueue_write(queue, memory, offset, data.into(), wait_for)?;
            return write.wait();
        }
        self.check_command(queue, &[memory], wait_for)?;
        memory.root().flags().check_host(HostUse::Write)?;
        let part = memory.part(Region::new(offset, data.len()))?;
        let to = part.address();
        self.run(queue, wait_for, |stream, mark| {
            if data.is_empty() {
                stream.record(mark)?;
                return mark.wait();
            }
            stream.write(to, data, mark)
        })
    }

    fn read(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        queue.check_not_captured("a read")?;
        if is_far(queue, memory) {
            let region = Region::new(offset, data.len());
            let read = self.enqueue_read(queue, memory, region, wait_for)?;
            data.copy_from_slice(&read.wait()?);
            return Ok(());
        }
        self.check_command(queue, &[memory], wait_for)?;
        memory.root().flags().check_host(HostUse::Read)?;
        let part = memory.part(Region::new(offset, data.len()))?;
        let from = part.address();
        self.run(queue, wait_for, |stream, mark| {
            if data.is_empty() {
                stream.record(mark)?;
                return mark.wait();
            }
            stream.read(data, from, mark)
        })
    }

    fn enqueue_write(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[CudaEvent],
    ) -> Result<CudaEvent> {
        self.check_command(queue, &[memory], wait_for)?;
        memory.root().flags().check_host(HostUse::Write)?;
        let part = memory.part(Region::new(offset, data.len()))?;
        let to = part.address();
        if is_far(queue, memory) {
            queue.check_not_captured("a write to memory of another device")?;
        }
        if data.is_empty() {
            return self.submit(queue, &[part], wait_for, |_, _| Ok(()));
        }
        let staging = Arc::new(self.staging(data.len(), |context| Staging::of(context, &data))?);
        self.submit(queue, &[part], wait_for, |stream, held| {
            stream.copy_in(to, held.staging.insert(staging), data.len())
        })
    }

    fn enqueue_read(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        region: Region,
        wait_for: &[CudaEvent],
    ) -> Result<PendingRead<CudaEvent>> {
        self.check_command(queue, &[memory], wait_for)?;
        memory.root().flags().check_host(HostUse::Read)?;
        let part = memory.part(region)?;
        let from = part.address();
        queue.check_not_captured("a read")?;
        if region.bytes == 0 {
            let event = self.submit(queue, &[part], wait_for, |_, _| Ok(()))?;
            return Ok(PendingRead::new(event, Vec::new));
        }
        let bytes = region.bytes;
        let staging = Arc::new(self.staging(bytes, |context| Staging::new(context, bytes))?);
        let result = Arc::clone(&staging);
        let event = self.submit(queue, &[part], wait_for, |stream, held| {
            stream.copy_out(held.staging.insert(staging), from, bytes)
        })?;
        Ok(PendingRead::new(event, move || result.to_vec(bytes)))
    }

    /// Copies between devices of one driver, too: either memory may be of another device, and the queue of either.
    fn enqueue_copy(
        &self,
        queue: &CudaQueue,
        source: &CudaMemory,
        from: Region,
        destination: &CudaMemory,
        to: usize,
        wait_for: &[CudaEvent],
    ) -> Result<CudaEvent> {
        let both = [source, destination];
        self.check_command_of_devices(queue, &both, wait_for)?;
        let target = Region::new(to, from.bytes);
        let parts = [source.part(from)?, destination.part(target)?];
        let [first, second] = parts.each_ref().map(Part::address);
        if source.id() == destination.id() && from.overlaps(target) {
            let (from, bytes) = (from.offset, from.bytes);
            return Err(InvalidRequest::OverlappingCopy { from, to, bytes }.into());
        }
        let [here, there] = both.map(|memory| memory.root().device_context());
        self.submit(queue, &parts, wait_for, |stream, _| match (here, there) {
            _ if from.bytes == 0 => Ok(()),
            (Some(here), Some(there)) if !here.is_same(there) => {
                stream.copy_across((there, second), (here, first), from.bytes)
            }
            _ => stream.copy(second, first, from.bytes),
        })
    }
}

/// Returns whether the memory is of another device than the queue. It is not copied from and to the host's bytes: such a call may last until
/// the copy on the other stream has ended, and only then could it tell the queue to wait for that.
fn is_far(queue: &CudaQueue, memory: &CudaMemory) -> bool {
    let context = memory.root().device_context();
    context.is_some_and(|context| !context.is_same(queue.stream().context()))
}

impl CudaBackend {
    fn staging(
        &self,
        bytes: usize,
        make: impl Fn(&Arc<crate::sys::Context>) -> crate::sys::CudaResult<Staging>,
    ) -> Result<Staging> {
        let scope = binpool_allocators::Scope::Host;
        self.shared
            .allocate(bytes, scope, || make(&self.shared.context))
    }
}
