//! Transfers between the host and the device, of every shape and every owner of the host's bytes.

use std::sync::Arc;

use binpool_allocators::{PendingRead, Result, Sink};

use crate::{
    backend::OpenClBackend,
    event::ClEvent,
    on::ClOn,
    order::access::Access,
    order::memory_use::MemoryUse,
    sys::{self, DeviceSide, HostSide, Purpose, host_vec::HostVec},
};

/// The device's side of a transfer, which is checked.
#[derive(Debug)]
pub(crate) struct HostTransfer<'m> {
    pub(crate) device: DeviceSide<'m>,
    pub(crate) used: MemoryUse<'m>,
    /// The size of the transfer, for reports of failures.
    pub(crate) bytes: usize,
}

impl Access {
    /// Returns what a transfer with these bytes of the host does with the device's.
    pub(crate) const fn of_transfer(host: &HostSide<'_>) -> Self {
        if host.is_target() {
            Self::Read
        } else {
            Self::Write
        }
    }
}

impl OpenClBackend {
    /// Enqueues a transfer with the host's bytes, which the caller keeps until the command has ended.
    pub(crate) fn enqueue_transfer(
        &self,
        on: ClOn<'_>,
        transfer: &HostTransfer<'_>,
        host: &HostSide<'_>,
    ) -> Result<ClEvent> {
        let (queue, purpose) = (on.queue, Purpose::Memory(transfer.bytes));
        self.submit(queue, purpose, &[transfer.used], on.wait_for, |wait| {
            sys::enqueue_transfer(queue.handle(), transfer.device, host, wait)
        })
    }

    /// Makes a transfer with bytes that the host has borrowed, and waits until it has ended.
    pub(crate) fn transfer_and_wait(
        &self,
        on: ClOn<'_>,
        transfer: &HostTransfer<'_>,
        host: &HostSide<'_>,
    ) -> Result<()> {
        let (queue, purpose) = (on.queue, Purpose::Memory(transfer.bytes));
        let uses = [transfer.used];
        self.submit_and_wait(queue, purpose, &uses, on.wait_for, |wait, enqueued| {
            sys::transfer_and_wait(queue.handle(), transfer.device, host, wait, enqueued)
        })
    }

    /// Enqueues a write of `data`, which the command keeps.
    pub(crate) fn write_shared(
        &self,
        on: ClOn<'_>,
        transfer: &HostTransfer<'_>,
        data: Arc<[u8]>,
    ) -> Result<ClEvent> {
        let event = self.enqueue_transfer(on, transfer, &HostSide::source(&data))?;
        event.retain(data);
        Ok(event)
    }

    /// Enqueues a read into `bytes` new bytes, which the pending read returns.
    pub(crate) fn read_to_new(
        &self,
        on: ClOn<'_>,
        transfer: &HostTransfer<'_>,
        bytes: usize,
    ) -> Result<PendingRead<ClEvent>> {
        let target = Arc::new(HostVec::zeroed(bytes)?);
        let event = self.enqueue_transfer(on, transfer, &target.as_target())?;
        event.retain(Arc::clone(&target));
        let sink = Sink::default();
        sink.put(move || target.take());
        Ok(PendingRead::new(event, sink))
    }
}
