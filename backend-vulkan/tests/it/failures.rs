//! Calls of Vulkan that fail.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, MemoryFlags, Outcome, Queue, QueueOrder,
};

use ash::vk;

use crate::{common::faults::Faulty, kernels};

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

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::DeviceLost { .. })
}

#[test]
fn a_device_that_is_lost_says_so_in_every_call() {
    let faults = Faulty::alone();
    for call in [
        "queue_submit",
        "get_semaphore_counter_value",
        "wait_semaphores",
    ] {
        let backend = faults.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
        let gate = backend.create_user_event().unwrap();
        let filled = backend.enqueue_fill(queue.after(from_ref(&gate)), &memory, .., &[1_u8]);
        let held = filled.unwrap();
        assert!(!backend.is_lost());
        faults.fail_next_with(call, vk::Result::ERROR_DEVICE_LOST);
        match call {
            "queue_submit" => {
                let other = backend.create_queue(QueueOrder::InOrder).unwrap();
                let error = backend
                    .enqueue_fill(&other, &memory, .., &[1_u8])
                    .unwrap_err();
                assert!(is_lost(&error), "{error:?}");
            }
            "get_semaphore_counter_value" => {
                assert_eq!(held.status().unwrap(), EventStatus::Failed);
            }
            _ => assert!(is_lost(&held.wait().unwrap_err())),
        }
        assert!(backend.is_lost(), "{call}");
        assert_eq!(held.status().unwrap(), EventStatus::Failed);
        for failed in [held.wait(), backend.write(&queue, &memory, 0, &[1_u8; 64])] {
            assert!(is_lost(&failed.unwrap_err()), "{call}");
        }
        // Commands that failed have ended.
        queue.finish().unwrap();
    }
}

/// Only a device that is lost is a reason why commands do not end.
#[test]
fn a_command_whose_status_is_not_told_is_not_failed() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let filled = backend.enqueue_fill(&queue, &memory, .., &[1_u8]).unwrap();
    faults.fail_next("get_semaphore_counter_value");
    assert_eq!(filled.status().unwrap(), EventStatus::Pending);
    let gate = backend.create_user_event().unwrap();
    let held = backend.enqueue_fill(queue.after(from_ref(&gate)), &memory, .., &[1_u8]);
    let held = held.unwrap();
    faults.fail_next("wait_semaphores");
    assert!(matches!(held.wait(), Err(Error::Backend(_))));
    assert_eq!(held.status().unwrap(), EventStatus::Pending);
    assert!(!backend.is_lost());
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    held.wait().unwrap();
}

/// A wait looks now and then whether the device is lost, and otherwise goes on.
#[test]
fn a_wait_lasts_until_its_command_has_ended() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let filled = backend.enqueue_fill(&queue, &memory, .., &[1_u8]).unwrap();
    faults.fail_next_with("wait_semaphores", vk::Result::TIMEOUT);
    filled.wait().unwrap();
    assert!(filled.has_ended());
}

#[test]
fn a_kernel_that_cannot_be_made_leaves_nothing() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let before = faults.live();
    for call in [
        "create_pipeline_layout",
        "create_shader_module",
        "create_compute_pipelines",
    ] {
        faults.fail_next(call);
        let failed = kernels::load(&backend, 0);
        assert!(matches!(failed, Err(Error::Backend(_))), "{call}");
        assert_eq!(faults.live(), before, "{call}");
    }
    let kernel = kernels::load(&backend, 0).unwrap();
    assert_eq!(faults.live(), before + 2, "the pipeline and its layout");
    drop((kernel.clone(), kernel));
    assert_eq!(faults.live(), before);
}

#[test]
fn queues_and_events_take_the_semaphores_of_those_that_were_dropped() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let one = || {
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let event = backend.create_user_event().unwrap();
        let after = backend
            .enqueue_barrier(queue.after(from_ref(&event)))
            .unwrap();
        assert_eq!(after.status().unwrap(), EventStatus::Pending);
        backend
            .resolve_user_event(&event, Outcome::Complete)
            .unwrap();
        after.wait().unwrap();
    };
    one();
    let made = faults.calls_of("create_semaphore", || (0..20).for_each(|_| one()));
    assert_eq!(made, 0);
}

#[test]
fn a_queue_takes_the_command_buffers_of_what_has_ended() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let one = || backend.write(&queue, &memory, 0, &[1_u8; 64]).unwrap();
    one();
    let made = faults.calls_of("allocate_command_buffers", || (0..20).for_each(|_| one()));
    assert_eq!(made, 0);
    let event = backend.create_user_event().unwrap();
    backend
        .enqueue_barrier(queue.after(from_ref(&event)))
        .unwrap();
    let made = faults.calls_of("allocate_command_buffers", || {
        for _ in 0..20 {
            backend.enqueue_fill(&queue, &memory, .., &[1_u8]).unwrap();
        }
    });
    assert_eq!(made, 20, "each is still used");
    backend
        .resolve_user_event(&event, Outcome::Complete)
        .unwrap();
    queue.finish().unwrap();
}

#[test]
fn the_command_buffer_of_what_was_not_submitted_is_freed() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    backend.enqueue_fill(&queue, &memory, .., &[0_u8]).unwrap();
    // The numbers of those that failed are used again.
    let number = || backend.enqueue_marker(&queue).unwrap().mark().value();
    let last = number();
    for call in ["begin_command_buffer", "end_command_buffer", "queue_submit"] {
        let freed = faults.freed_command_buffers();
        faults.fail_next(call);
        backend
            .enqueue_fill(&queue, &memory, .., &[1_u8])
            .unwrap_err();
        assert_eq!(faults.freed_command_buffers(), freed + 1, "{call}");
    }
    assert_eq!(number(), last);
    backend.enqueue_fill(&queue, &memory, .., &[1_u8]).unwrap();
    assert_eq!(number(), last + 1);
}

/// The host would wait forever for a command that is not submitted. Its memory is left to the device.
#[test]
fn a_backend_ends_though_a_user_event_that_a_command_waits_for_is_never_reached() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let gate = backend.create_user_event().unwrap();
    let held = backend.enqueue_fill(queue.after(from_ref(&gate)), &memory, .., &[1_u8]);
    let held = held.unwrap();
    faults.fail_next("signal_semaphore");
    drop(gate);
    assert_eq!(held.status().unwrap(), EventStatus::Pending);
    let with_all = faults.live();
    drop((held, queue, memory, backend));
    assert!(
        faults.live() > with_all - 2,
        "the buffer and its memory stay"
    );
}

/// Two objects each: a buffer and its memory.
#[test]
fn memory_that_commands_pass_through_is_kept_within_bounds() {
    let faults = Faulty::alone();
    let backend = faults.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend
        .create_buffer(1 << 23, MemoryFlags::empty())
        .unwrap();
    let before = faults.live();
    let write = |bytes| {
        let data = vec![1_u8; bytes];
        backend
            .enqueue_write(&queue, &memory, 0, data.into())
            .unwrap()
    };
    let settle = || {
        queue.finish().unwrap();
        binpool_allocators::runtime::Runtime::core(&backend).drop_what_has_ended();
        (faults.live() - before) / 2
    };
    write((1 << 22) + 1).wait().unwrap();
    assert_eq!(settle(), 0, "more than 4 MiB");
    for _ in 0..3 {
        write(1 << 22).wait().unwrap();
        assert_eq!(settle(), 1, "it serves the next command");
    }
    for bytes in [65_538, 65_539, 1 << 17] {
        write(bytes).wait().unwrap();
        assert_eq!(settle(), 2, "sizes are rounded up");
    }
    let event = backend.create_user_event().unwrap();
    backend
        .enqueue_barrier(queue.after(from_ref(&event)))
        .unwrap();
    for _ in 0..12 {
        drop(write(100_001));
    }
    assert_eq!((faults.live() - before) / 2, 13, "each command has its own");
    backend
        .resolve_user_event(&event, Outcome::Complete)
        .unwrap();
    assert_eq!(settle(), 8);
}
