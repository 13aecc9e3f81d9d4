//! Submits of the program's own, on queues that it has given.

use ash::vk;
use binpool_allocators::{Backend, MemoryFlags, QueueOrder};

use crate::common;

#[test]
fn a_submit_of_the_programs_own_waits_for_a_command() {
    let backend = common::backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(4096, MemoryFlags::empty()).unwrap();
    let event = backend.enqueue_fill(&queue, &memory, .., &[5_u8]).unwrap();
    let (semaphores, values) = ([event.mark().semaphore()], [event.mark().value()]);
    let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
    let mut numbers = vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values);
    let submit = vk::SubmitInfo::default()
        .wait_semaphores(&semaphores)
        .wait_dst_stage_mask(&stages)
        .push_next(&mut numbers);
    // SAFETY: The device lives.
    let fence = unsafe {
        backend
            .raw()
            .create_fence(&vk::FenceCreateInfo::default(), None)
    }
    .unwrap();
    let locked = queue.lock();
    // SAFETY: The queue is locked, and the semaphore lives until the fence is reached.
    unsafe { backend.raw().queue_submit(*locked, &[submit], fence) }.unwrap();
    drop(locked);
    // SAFETY: The fence lives.
    unsafe { backend.raw().wait_for_fences(&[fence], true, u64::MAX) }.unwrap();
    // SAFETY: It was reached.
    unsafe { backend.raw().destroy_fence(fence, None) };
    assert!(
        binpool_allocators::Event::status(&event)
            .unwrap()
            .has_ended()
    );
}
