//! Calls of Vulkan that fail.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, MemoryFlags, Outcome, Queue, QueueOrder,
};

use crate::common::faults::Faulty;

#[test]
fn a_command_that_cannot_be_submitted_has_no_effect() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    backend.write(&queue, &memory, 0, &[1_u8; 64]).unwrap();
    for call in ["begin_command_buffer", "end_command_buffer", "queue_submit"] {
        faults.fail_next(call);
        let failed = backend.enqueue_fill(&queue, &memory, .., &[2_u8]);
        assert!(matches!(failed, Err(Error::Backend(_))), "{call}");
    }
    let mut bytes = [0_u8; 64];
    backend.read(&queue, &memory, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 64]);
    assert!(!backend.is_lost());
}

/// What waits for it would wait forever otherwise. What runs on other queues has ended before it counts as failed, and its memory is freed.
#[test]
fn a_command_that_was_held_back_and_cannot_be_submitted_loses_the_device() {
    let faults = Faulty::alone();
    let before = faults.live();
    let backend = faults.backend();
    let [queue, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let memory = backend
        .create_buffer(1 << 24, MemoryFlags::empty())
        .unwrap();
    let gate = backend.create_user_event().unwrap();
    let held = backend
        .enqueue_fill(queue.after(from_ref(&gate)), &memory, .., &[1_u8])
        .unwrap();
    let running = backend
        .create_buffer(1 << 24, MemoryFlags::empty())
        .unwrap();
    for byte in 0..4_u8 {
        backend.enqueue_fill(&other, &running, .., &[byte]).unwrap();
    }
    faults.fail_next("queue_submit");
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert!(backend.is_lost());
    assert_eq!(held.status().unwrap(), EventStatus::Failed);
    let text = format!("{:?}", held.wait().unwrap_err());
    assert!(text.contains("vkQueueSubmit"), "{text}");
    let refused = backend.enqueue_fill(&other, &running, .., &[1_u8]);
    assert!(matches!(refused, Err(Error::DeviceLost { .. })));
    // The validation layer checks whether commands use what this frees.
    drop((queue, other, memory, running, held, gate, backend));
    assert_eq!(faults.live(), before);
}

#[test]
fn memory_that_commands_have_passed_through_is_freed_when_memory_runs_out() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend
        .create_buffer(1 << 20, MemoryFlags::empty())
        .unwrap();
    let with_one = faults.live();
    backend
        .write(&queue, &memory, 0, &vec![1_u8; 1 << 20])
        .unwrap();
    binpool_allocators::runtime::Runtime::core(&backend).drop_what_has_ended();
    assert_eq!(
        faults.live(),
        with_one + 2,
        "a buffer and its memory are kept"
    );
    faults.run_out_until_freed();
    let _second = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    assert_eq!(faults.live(), with_one + 2, "those of the second block");
}
