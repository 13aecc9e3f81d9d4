//! Transfers with bytes that a scope has borrowed.
//!
//! The caller is a [`TransferScope`](crate::transfer::TransferScope), which waits for the command before the borrow ends:
//! the bytes are borrowed for the whole scope, and it does not end before, whatever happens in it.

use super::{EventHandle, Place, QueueHandle, WaitList, rect::HostRect};
use crate::cl_error::ClResult;

/// Enqueues a write of `data`.
pub(crate) fn write(
    queue: &QueueHandle,
    place: Place<'_>,
    data: &[u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` stays borrowed until the command has ended (see the module).
    unsafe { super::transfer::write(queue, place, data.as_ptr(), data.len(), wait) }
}

/// Enqueues a read into `data`.
pub(crate) fn read(
    queue: &QueueHandle,
    place: Place<'_>,
    data: &mut [u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    // SAFETY: `data` stays borrowed exclusively until the command has ended (see the module).
    unsafe { super::transfer::read(queue, place, data.as_mut_ptr(), data.len(), wait) }
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
