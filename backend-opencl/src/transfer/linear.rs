//! Transfers between the host and a run of bytes, and fills of one.
//!
//! Every call that takes memory goes through [`OpenClBackend::bytes_on`], which checks the memory.

use binpool_allocators::{
    AsMemory, Error, IntoRegion, InvalidRequest, Region, Result, Span, bytes_on, runtime::Access,
};

use super::{
    fill,
    host::{HostPart, HostTransfer, TransferPart},
};
use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    queue::ClQueue,
    sys::{Purpose, transfer::DeviceSide},
};

impl OpenClBackend {
    /// Enqueues a fill, or a marker where that has no bytes.
    pub(crate) fn fill(
        &self,
        on: ClOn<'_>,
        Span { memory, region }: Span<'_, ClMemory>,
        pattern: &[u8],
    ) -> Result<ClEvent> {
        self.bytes_on(on.queue, memory, region)?;
        InvalidRequest::check_pattern(Region::first(region.bytes), pattern)?;
        let used = memory.used(region, Access::Write);
        if region.bytes == 0 {
            return self.marker(on);
        }
        let device = memory.device_bytes(region);
        let purpose = Purpose::Memory(region.bytes);
        self.submit(on.queue, purpose, &[used], on.wait_for, |wait| {
            let place = (memory.address(region), region.bytes);
            fill::enqueue(on.queue, device, place, pattern, wait)
        })
    }

    /// Returns the memory for commands on `queue`, and the bytes of it that are `region` of `memory`; `None` for the block
    /// of 0 bytes. Checks the queue, the memory and the bounds.
    pub(crate) fn bytes_on<'m>(
        &self,
        queue: &ClQueue,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<Option<(&'m ClMemory, Region)>> {
        // Checked before a pool notes the use.
        self.check_own_queue(queue)?;
        let found = bytes_on::<Self, _>(memory, queue, region)?;
        if let Some((memory, _)) = found {
            self.check_own_memory(memory)?;
        }
        Ok(found)
    }
}

/// The bytes of the host, from an offset on; up to the end of the memory where the host has yet to allocate them.
impl<M: AsMemory<OpenClBackend> + ?Sized> TransferPart for (&M, usize) {
    type Error = Error;

    #[expect(private_interfaces, reason = "no program implements it")]
    fn checked(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        host: HostPart,
    ) -> Result<Option<HostTransfer<'_>>> {
        let (memory, offset) = *self;
        let rest = || memory.size().saturating_sub(offset);
        let region = Region::new(offset, host.bytes.unwrap_or_else(rest));
        linear(backend.bytes_on(queue, memory, region)?, host)
    }
}

/// Bytes that are checked by the vocabulary.
impl TransferPart for Span<'_, ClMemory> {
    type Error = Error;

    #[expect(private_interfaces, reason = "no program implements it")]
    fn checked(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        host: HostPart,
    ) -> Result<Option<HostTransfer<'_>>> {
        linear(backend.bytes_on(queue, self.memory, self.region)?, host)
    }
}

fn linear(found: Option<(&ClMemory, Region)>, host: HostPart) -> Result<Option<HostTransfer<'_>>> {
    let Some((memory, region)) = found else {
        return Ok(None);
    };
    memory.flags().check_host(host.host_use())?;
    Ok((region.bytes > 0).then(|| HostTransfer {
        device: DeviceSide::Bytes(memory.device_bytes(region)),
        used: memory.used(region, host.access),
        host_bytes: region.bytes,
    }))
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    use cl3::event::{
        CL_COMMAND_MARKER, CL_COMMAND_READ_BUFFER, CL_EVENT_COMMAND_TYPE, get_event_info,
    };

    use crate::testing::open_as;

    #[test]
    fn a_transfer_of_no_bytes_is_a_marker() {
        let backend = open_as(|_| {});
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        for (offset, expected) in [(63, CL_COMMAND_READ_BUFFER), (64, CL_COMMAND_MARKER)] {
            let read = backend
                .enqueue_read_part(&queue, (&memory, offset))
                .unwrap();
            let kind = get_event_info(read.event().handle().raw(), CL_EVENT_COMMAND_TYPE).unwrap();
            assert_eq!(kind.to_uint(), expected, "{offset}");
        }
    }
}
