//! Transfers between the host and the device.

use super::{
    ClResult, DeviceBytes, EventHandle, HostSide, QueueHandle, WaitList,
    event::wait_borrowed,
    image::{self, DevicePixels, HostLayout},
    rect::{self, HostRect},
    transfer,
};

/// The device's side of a transfer with the host, and the shape of both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceSide<'a> {
    /// As many bytes as the host has, without gaps.
    Bytes(DeviceBytes<'a>),
    /// A rectangle. The caller has checked that it lies in the host's bytes.
    Rect(HostRect<'a>),
    /// Pixels, and how they lie in the host's bytes.
    Pixels(DevicePixels<'a>, HostLayout),
}

/// Enqueues a transfer between the two sides: a read of the device's if the host's side is a target, and else a write.
///
/// The caller keeps the host's bytes until the command has ended (rule 3 of `sys`).
pub(crate) fn enqueue_transfer(
    queue: &QueueHandle,
    device: DeviceSide<'_>,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    match device {
        DeviceSide::Bytes(device) => transfer::enqueue_bytes(queue, device, host, wait),
        DeviceSide::Rect(rect) => rect::enqueue_transfer(queue, &rect, host, wait),
        DeviceSide::Pixels(pixels, layout) => {
            image::enqueue_transfer(queue, pixels, layout, host, wait)
        }
    }
}

/// Makes a transfer between the two sides: enqueues it, calls `enqueued`, and waits until the command has ended, even if
/// `enqueued` panics. The host's bytes are borrowed until then.
///
/// The runtime's own blocking form is not used: on `PoCL` it waits for the whole queue, and if it fails there is no event
/// that says what happened.
pub(crate) fn transfer_and_wait(
    queue: &QueueHandle,
    device: DeviceSide<'_>,
    host: &HostSide<'_>,
    wait: &WaitList<'_>,
    enqueued: impl FnOnce(&EventHandle),
) -> ClResult<(EventHandle, ClResult<()>)> {
    let event = enqueue_transfer(queue, device, host, wait)?;
    Ok(wait_borrowed(event, enqueued))
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        thread,
    };

    use binpool_allocators::{Backend, MemoryFlags, Outcome, QueueOrder};

    use super::*;
    use crate::{sys::execution_status, testing::open};

    #[test]
    fn borrowed_bytes_stay_until_the_command_has_ended_also_where_a_panic_comes_first() {
        let backend = open();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let device = DeviceBytes::Buffer(memory.object().unwrap().unwrap(), 0);
        let device = DeviceSide::Bytes(device);
        let gate = backend.create_user_event().unwrap();
        let mut command = None;
        let unwound = thread::scope(|scope| {
            let (queue, gate) = (queue.handle(), &gate);
            scope.spawn(|| {
                // So late that a write that was not waited for is still pending.
                for _ in 0..10_000 {
                    thread::yield_now();
                }
                let opened = backend.resolve_user_event(gate, Outcome::Complete);
                opened.unwrap();
            });
            let wait = WaitList::from_iter([gate.handle()]);
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let host = HostSide::source(&[1_u8; 64]);
                transfer_and_wait(queue, device, &host, &wait, |event| {
                    command = event.another().ok();
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
            }));
            let status = command.as_ref().map(execution_status);
            assert_eq!(status, Some(Ok(0)));
            unwound
        });
        assert!(unwound.is_err());
    }
}
