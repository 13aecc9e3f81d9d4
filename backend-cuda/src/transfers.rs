//! Reads, writes and copies.

use std::sync::Arc;

use binpool_allocators::{HostUse, InvalidRequest, Memory, PendingRead, Region, Result, Transfers};

use crate::{
    backend::CudaBackend, event::CudaEvent, memory::CudaMemory, queue::CudaQueue, sys::Staging,
};

/// Enqueued transfers pass through pinned memory, which the backend keeps. Those that block copy from and to the host's bytes.
impl Transfers for CudaBackend {
    fn write(
        &self,
        queue: &CudaQueue,
        memory: &CudaMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        self.check_command(queue, &[memory], wait_for)?;
        memory.root().flags().check_host(HostUse::Write)?;
        let to = memory.region(Region::new(offset, data.len()))?;
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
        self.check_command(queue, &[memory], wait_for)?;
        memory.root().flags().check_host(HostUse::Read)?;
        let from = memory.region(Region::new(offset, data.len()))?;
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
        let to = memory.region(Region::new(offset, data.len()))?;
        if data.is_empty() {
            return self.submit(queue, &[memory], wait_for, |_| Ok(None));
        }
        let staging = Arc::new(self.staging(data.len(), |context| Staging::of(context, &data))?);
        self.submit(queue, &[memory], wait_for, |stream| {
            stream.copy_in(to, &staging, data.len())?;
            Ok(Some(staging))
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
        let from = memory.region(region)?;
        if region.bytes == 0 {
            let event = self.submit(queue, &[memory], wait_for, |_| Ok(None))?;
            return Ok(PendingRead::new(event, Vec::new));
        }
        let bytes = region.bytes;
        let staging = Arc::new(self.staging(bytes, |context| Staging::new(context, bytes))?);
        let result = Arc::clone(&staging);
        let event = self.submit(queue, &[memory], wait_for, |stream| {
            stream.copy_out(&staging, from, bytes)?;
            Ok(Some(staging))
        })?;
        Ok(PendingRead::new(event, move || result.to_vec(bytes)))
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
        self.check_command(queue, &[source, destination], wait_for)?;
        let target = Region::new(to, from.bytes);
        let (first, second) = (source.region(from)?, destination.region(target)?);
        if source.id() == destination.id() && from.overlaps(target) {
            let (from, bytes) = (from.offset, from.bytes);
            return Err(InvalidRequest::OverlappingCopy { from, to, bytes }.into());
        }
        self.submit(queue, &[source, destination], wait_for, |stream| {
            if from.bytes > 0 {
                stream.copy(second, first, from.bytes)?;
            }
            Ok(None)
        })
    }
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
