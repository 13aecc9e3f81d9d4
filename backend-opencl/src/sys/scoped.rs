//! Transfers with bytes that a scope has borrowed.
//!
//! The caller is a [`TransferScope`](crate::transfer::TransferScope), which waits for the command before the borrow ends:
//! the bytes are borrowed for the whole scope, which ends only after all of its commands have, even if it panics.

use super::{ClResult, DeviceBytes, EventHandle, QueueHandle, WaitList, rect::HostRect};

/// Enqueues a write of `data`.
pub(crate) fn write(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    data: &[u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` stays borrowed until the command has ended (see the module).
    unsafe { super::transfer::write(queue, device, data.as_ptr(), data.len(), wait) }
}

/// Enqueues a read into `data`.
pub(crate) fn read(
    queue: &QueueHandle,
    device: DeviceBytes<'_>,
    data: &mut [u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` stays borrowed exclusively until the command has ended (see the module).
    unsafe { super::transfer::read(queue, device, data.as_mut_ptr(), data.len(), wait) }
}

/// Enqueues a write of a rectangle of `data`, in whose bounds its host side lies.
pub(crate) fn write_rect(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    data: &[u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` stays borrowed until the command has ended (see the module).
    unsafe { super::rect::write(queue, rect, data.as_ptr(), wait) }
}

/// Enqueues a read of a rectangle into `data`, in whose bounds its host side lies.
pub(crate) fn read_rect(
    queue: &QueueHandle,
    rect: &HostRect<'_>,
    data: &mut [u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` stays borrowed exclusively until the command has ended (see the module).
    unsafe { super::rect::read(queue, rect, data.as_mut_ptr(), wait) }
}
