//! All tests once more under the validation layer with synchronization validation, which says what commands read or write without a barrier in between.

use std::env;

use ash::vk;
use binpool_allocators::{Backend, MemoryFlags, QueueOrder};

use crate::common;

const ENABLES: &str = "VK_LAYER_ENABLES";
const SYNCHRONIZATION: &str = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT";

#[test]
fn no_command_needs_a_barrier_that_it_lacks() {
    common::again_one_by_one(
        "no_command_needs_a_barrier_that_it_lacks",
        &[(ENABLES, SYNCHRONIZATION)],
    );
}

/// Two copies to the same bytes.
#[test]
fn a_barrier_that_is_missing_is_seen_where_that_is_on() {
    let backend = common::backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let buffer = memory.block().unwrap().buffer();
    let raw = backend.raw();
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue.family());
    // SAFETY: The device lives.
    let pool = unsafe { raw.create_command_pool(&info, None) }.unwrap();
    let info = vk::CommandBufferAllocateInfo::default()
        .command_pool(pool)
        .command_buffer_count(1);
    // SAFETY: The pool is used here alone.
    let commands = unsafe { raw.allocate_command_buffers(&info) }.unwrap()[0];
    // SAFETY: It is new.
    unsafe { raw.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()) }.unwrap();
    let messages = common::messages(|| {
        for word in 0..2 {
            // SAFETY: It is being recorded, and never runs.
            unsafe { raw.cmd_fill_buffer(commands, buffer, 0, 64, word) };
        }
    });
    // SAFETY: The commands never run.
    unsafe { raw.destroy_command_pool(pool, None) };
    let is_on = env::var(ENABLES).is_ok_and(|on| on.contains(SYNCHRONIZATION));
    assert_eq!(messages > 0, is_on);
}
