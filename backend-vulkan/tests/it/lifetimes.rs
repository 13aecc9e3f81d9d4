//! What is dropped while commands use it, or wait for the host.

use std::slice::from_ref;

use binpool_allocators::{Backend, Event, MemoryFlags, Outcome, Queue, QueueOrder};

use crate::common;

#[test]
fn a_user_event_holds_up_no_other_queue() {
    let backend = common::backend();
    let event = backend.create_user_event().unwrap();
    let queues: Vec<_> = (0..5)
        .map(|_| backend.create_queue(QueueOrder::InOrder).unwrap())
        .collect();
    let memory = backend.create_buffer(4096, MemoryFlags::empty()).unwrap();
    let held = backend
        .enqueue_fill(queues[0].after(from_ref(&event)), &memory, .., &[1_u8])
        .unwrap();
    // A chain over another queue, which waits with it.
    let chained = backend
        .enqueue_barrier(queues[1].after(from_ref(&held)))
        .unwrap();
    for queue in &queues[2..] {
        let other = backend.create_buffer(4096, MemoryFlags::empty()).unwrap();
        backend.write(queue, &other, 0, &[3_u8; 4096]).unwrap();
    }
    assert!(!held.status().unwrap().has_ended() && !chained.status().unwrap().has_ended());
    backend
        .resolve_user_event(&event, Outcome::Complete)
        .unwrap();
    chained.wait().unwrap();
    let mut bytes = [0_u8; 4096];
    backend.read(&queues[1], &memory, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 4096]);
}

#[test]
fn a_queue_and_its_memory_are_dropped_while_its_commands_wait() {
    let backend = common::backend();
    let event = backend.create_user_event().unwrap();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend
        .create_buffer(1 << 20, MemoryFlags::empty())
        .unwrap();
    let held = backend.enqueue_fill(queue.after(from_ref(&event)), &memory, .., &[1_u8, 2, 3]);
    // 1 MiB is not a multiple of three bytes.
    assert!(held.is_err());
    let held = backend
        .enqueue_fill(
            queue.after(from_ref(&event)),
            &memory,
            ..(1 << 20) - 1,
            &[1_u8, 2, 3, 4, 5],
        )
        .unwrap();
    drop((queue, memory));
    backend
        .resolve_user_event(&event, Outcome::Complete)
        .unwrap();
    held.wait().unwrap();
}

#[test]
fn a_pattern_of_any_length_is_repeated_at_any_place() {
    let backend = common::backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend
        .create_buffer(1 << 20, MemoryFlags::empty())
        .unwrap();
    for pattern in [1_usize, 2, 3, 4, 8, 12, 16, 128] {
        let bytes: Vec<u8> = (1..).take(pattern).collect();
        let region = 3 * pattern..3 * pattern + (900_000 / pattern * pattern);
        backend.enqueue_fill(&queue, &memory, .., &[0_u8]).unwrap();
        backend
            .enqueue_fill(&queue, &memory, region.clone(), &bytes)
            .unwrap();
        let mut read = vec![0_u8; 1 << 20];
        backend.read(&queue, &memory, 0, &mut read).unwrap();
        let mut expected = vec![0_u8; 1 << 20];
        for place in expected[region].chunks_mut(pattern) {
            place.copy_from_slice(&bytes);
        }
        assert!(read == expected, "a pattern of {pattern} bytes");
    }
    queue.finish().unwrap();
}
