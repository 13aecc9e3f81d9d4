//! Commands that fill memory with a pattern.

use binpool_allocators::Align;
use cl3::memory::CL_MEM_READ_ONLY;

use super::parts;
use crate::{
    queue::ClQueue,
    sys::{self, ClResult, DeviceBytes, EventHandle, MemHandle, WaitList},
};

/// The number of bytes of repeated patterns that are copied from the host, for patterns that OpenCL cannot fill with.
const FIRST_BYTES: usize = 1 << 16;

/// Enqueues a fill of `bytes` bytes, at least one, with whole patterns. The caller has checked everything.
///
/// OpenCL fills with patterns of 1, 2, 4, ... 128 bytes, from a multiple of that on: of the address, and of the offset in a buffer. In
/// other cases the pattern is copied: the first bytes from the host, then the bytes that are there already, which doubles them with
/// each copy.
pub(crate) fn enqueue(
    queue: &ClQueue,
    device: DeviceBytes<'_>,
    (address, bytes): (usize, usize),
    pattern: &[u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let offset = match device {
        DeviceBytes::Buffer(_, offset) => offset,
        DeviceBytes::Svm(_) => 0,
    };
    let aligned = |by: Align| by.bytes() <= 128 && by.divides(address | offset);
    if Align::new(pattern.len()).is_some_and(aligned) {
        return sys::enqueue_fill(queue.handle(), device, bytes, pattern, wait);
    }
    device.on_buffer(|buffer, offset| copies(queue, (buffer, offset), bytes, pattern, wait))
}

/// Fills by copies, each of which waits for the one before. The event is that of the last one.
fn copies(
    queue: &ClQueue,
    (buffer, offset): (&MemHandle, usize),
    bytes: usize,
    pattern: &[u8],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let times = (FIRST_BYTES / pattern.len()).clamp(1, bytes / pattern.len());
    let first = pattern.repeat(times);
    let copy = |from: (&MemHandle, usize), done: usize, bytes: usize, wait: &WaitList<'_>| {
        let to = (buffer, offset.saturating_add(done));
        sys::enqueue_copy_buffer(queue.handle(), from, to, bytes, wait)
    };
    // The runtime keeps the buffer until its copy has ended.
    let patterns = sys::buffer::create_copying(&queue.context().handle, CL_MEM_READ_ONLY, &first)?;
    let mut last = copy((&patterns, 0), 0, first.len(), wait)?;
    let mut done = first.len();
    while done < bytes {
        let next = done.min(bytes - done);
        last = parts::enqueue_after(queue, &last, |after| {
            copy((buffer, offset), done, next, after)
        })?;
        done += next;
    }
    Ok(last)
}
