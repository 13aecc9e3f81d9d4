//! The end of a map is a command of its queue: `finish`, markers and barriers come after it.

use std::{slice::from_ref, thread};

use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, Queue};
use binpool_opencl::{ClEvent, ClMemory, ClQueue, MapMode};

use crate::common::{Bench, let_commands_run, step_waits_for_no_gate};

const SIZE: usize = 4096;

/// A buffer and, where there is any, shared virtual memory.
fn memories(bench: &Bench) -> Vec<ClMemory> {
    let shared = bench.backend.limits().svm.coarse;
    let shared = shared.then(|| bench.svm(SIZE));
    [bench.filled(SIZE, 1)].into_iter().chain(shared).collect()
}

/// Maps the memory, and ends the map after `gate`.
fn unmapped_after(bench: &Bench, queue: &ClQueue, memory: &ClMemory, gate: &ClEvent) -> ClEvent {
    let map = bench.backend.map::<u8>(queue, memory, ..).unwrap();
    map.unmap_on(queue.after(from_ref(gate))).unwrap()
}

fn is_pending(event: &ClEvent) -> bool {
    event.status().unwrap() == EventStatus::Pending
}

/// Waits until the runtime counts no map: `PoCL` counts an unmap a moment after it has told of its end.
fn until_unmapped(memory: &ClMemory) {
    while memory.info().unwrap().map_count.unwrap_or(0) > 0 {
        thread::yield_now();
    }
}

/// Calls `check` with a queue of each order, also where the program has the bare handle, and with memory of each kind.
fn for_each_queue(check: impl Fn(&Bench, &ClQueue, &ClMemory)) {
    for is_exposed in [false, true] {
        let bench = Bench::new();
        for queue in [bench.another_queue(), bench.out_of_order_queue()] {
            if is_exposed {
                let _handle = queue.raw();
            }
            for memory in memories(&bench) {
                check(&bench, &queue, &memory);
            }
        }
    }
}

#[test]
fn markers_and_barriers_come_after_the_end_of_a_map() {
    for_each_queue(|bench, queue, memory| {
        let gate = bench.gate();
        let unmapped = unmapped_after(bench, queue, memory, &gate);
        let marker = bench.backend.enqueue_marker(queue).unwrap();
        let barrier = bench.backend.enqueue_barrier(queue).unwrap();
        let behind = bench.fill(queue, &bench.buffer(64), 1, &[]);
        let_commands_run(bench);
        for event in [&unmapped, &marker, &barrier, &behind] {
            assert!(is_pending(event), "{queue:?}");
        }
        bench.open_gate(&gate);
        marker.wait().unwrap();
        assert!(!is_pending(&unmapped), "{queue:?}");
        barrier.wait().unwrap();
        behind.wait().unwrap();
    });
}

#[test]
fn finish_waits_for_the_end_of_a_map() {
    for_each_queue(|bench, queue, memory| {
        let gate = bench.gate();
        let unmapped = unmapped_after(bench, queue, memory, &gate);
        thread::scope(|scope| {
            scope.spawn(|| {
                let_commands_run(bench);
                bench.open_gate(&gate);
            });
            queue.finish().unwrap();
            assert!(!is_pending(&unmapped), "{queue:?}");
        });
    });
}

#[test]
fn after_finish_the_memory_is_not_mapped_any_more() {
    for_each_queue(|bench, queue, memory| {
        for is_pending in [false, true] {
            for _ in 0..20 {
                let map = bench.backend.map_mut::<u8>(queue, memory, ..).unwrap();
                if is_pending {
                    bench.fill(queue, &bench.buffer(1 << 16), 1, &[]);
                }
                let unmapped = map.unmap().unwrap();
                queue.finish().unwrap();
                assert_eq!(unmapped.status().unwrap(), EventStatus::Complete);
            }
        }
        until_unmapped(memory);
    });
}

#[test]
fn a_map_that_is_dropped_while_it_is_pending_or_has_failed_is_unmapped_after_finish() {
    for_each_queue(|bench, queue, memory| {
        for fails in [false, true] {
            let gate = bench.gate();
            let behind = queue.after(from_ref(&gate));
            let pending =
                bench
                    .backend
                    .enqueue_map_mut::<u8>(behind, memory, .., MapMode::ReadWrite);
            if fails {
                bench.fail_gate(&gate);
                drop(pending);
            } else {
                drop(pending);
                bench.open_gate(&gate);
            }
            queue.finish().unwrap();
            // NVIDIA's driver goes on to count a map that has failed.
            if !(fails && bench.is_nvidia()) {
                until_unmapped(memory);
            }
        }
    });
}

/// Intel's runtime runs the commands of its out-of-order queues in order.
#[test]
fn a_map_ends_while_later_commands_of_its_out_of_order_queue_are_pending() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        let queue = bench.out_of_order_queue();
        let map = bench.backend.map::<u8>(&queue, &memory, ..).unwrap();
        let gate = bench.gate();
        let fill = bench.fill(&queue, &bench.buffer(64), 1, from_ref(&gate));
        step_waits_for_no_gate(&bench, &gate, || drop(map));
        fill.wait().unwrap();
    }
}

#[test]
fn what_the_program_enqueues_by_the_bare_handle_comes_after_the_end_of_a_map() {
    let bench = Bench::new();
    let queue = &bench.queue;
    let handle = queue.raw();
    for memory in memories(&bench) {
        let gate = bench.gate();
        let unmapped = unmapped_after(&bench, queue, &memory, &gate);
        // SAFETY: the queue lives, and there is no wait list.
        let marker = unsafe {
            cl3::command_queue::enqueue_marker_with_wait_list(handle, 0, std::ptr::null())
        };
        // SAFETY: the event is the one that the call has just returned.
        let marker = unsafe { bench.backend.wrap_raw_event(marker.unwrap()) }.unwrap();
        let_commands_run(&bench);
        assert!(is_pending(&unmapped) && is_pending(&marker));
        bench.open_gate(&gate);
        marker.wait().unwrap();
        assert!(!is_pending(&unmapped));
    }
}

/// The runtime keeps memory whose unmap has failed.
#[test]
fn a_map_ends_though_what_the_program_has_enqueued_by_the_bare_handle_fails() {
    let bench = Bench::new();
    let (queue, gate) = (&bench.queue, bench.gate());
    let data = vec![1_u8; SIZE];
    let buffer = bench.backend.create_host_buffer(data, MemoryFlags::empty());
    let buffer = buffer.unwrap();
    let map = bench.backend.map_mut::<u8>(queue, &buffer, ..).unwrap();
    let wait = [gate.raw()];
    // SAFETY: queue and event live.
    let failing =
        unsafe { cl3::command_queue::enqueue_marker_with_wait_list(queue.raw(), 1, wait.as_ptr()) };
    // SAFETY: the event is the one that the call has just returned.
    let failing = unsafe { bench.backend.wrap_raw_event(failing.unwrap()) }.unwrap();
    let unmapped = map.unmap().unwrap();
    bench.fail_gate(&gate);
    assert!(failing.wait().is_err());
    // NVIDIA's runtime lets it fail, and keeps no memory.
    assert!(unmapped.wait().is_ok() || bench.is_nvidia());
    assert_eq!(buffer.into_host().unwrap(), [1; SIZE]);
}

/// It would prove nothing of commands that the program has enqueued by itself.
#[test]
fn after_a_failure_a_marker_is_refused_behind_the_end_of_a_map_too() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let memory = bench.filled(SIZE, 1);
    let fails = bench.gate();
    let failing = backend.enqueue_marker(queue.after(from_ref(&fails)));
    let map = backend.map::<u8>(&bench.another_queue(), &memory, ..);
    let _handle = queue.raw();
    queue.flush().unwrap();
    bench.fail_gate(&fails);
    assert!(failing.unwrap().wait().is_err());
    map.unwrap().unmap_on(queue).unwrap();
    let refused = backend.enqueue_marker(queue).unwrap_err().to_string();
    assert!(refused.contains("call `finish` first"), "{refused}");
    queue.finish().unwrap();
    backend.enqueue_marker(queue).unwrap().wait().unwrap();
}
