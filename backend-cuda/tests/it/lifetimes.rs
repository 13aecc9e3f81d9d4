//! What is freed when, and that everything is.

use std::{
    slice::from_ref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use binpool_allocators::{
    Allocator, Backend, Event, Memory, MemoryFlags, Outcome, Queue, Region, VirtualMemory,
};
use binpool_cuda::{CudaBackend, CudaEvent, CudaModule, CudaQueue, DriverPoolAllocator};

use crate::common::{Device, PAGE, bytes, logged, queue};

const SIZE: usize = 1 << 16;

#[test]
fn everything_is_destroyed_in_the_end() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
        let block = backend.create_buffer(SIZE, flags).unwrap();
        let all = Region::first(SIZE - 1);
        backend
            .enqueue_fill(&queue, &block, all, &[1_u8, 2, 3])
            .unwrap();
        backend
            .enqueue_write(&queue, &block, 0, [9; 100].into())
            .unwrap();
        let read = backend
            .enqueue_read(&queue, &block, Region::new(99, 4))
            .unwrap();
        assert_eq!(read.wait().unwrap(), [9, 2, 3, 1]);
    }
    let managed = backend.create_managed(SIZE).unwrap();
    backend
        .write(&queue, &managed, 0, &vec![5_u8; SIZE])
        .unwrap();
    assert_eq!(bytes(&backend, &queue, &managed), vec![5; SIZE]);
    assert!(device.objects() > 0);
    drop((queue, managed, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));
}

/// Uses everything that the driver frees, and drops it.
fn use_all(backend: &CudaBackend) {
    let queue = queue(backend);
    let blocks = [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT]
        .map(|flags| backend.create_buffer(SIZE, flags).unwrap());
    let all = Region::first(SIZE);
    for block in &blocks {
        backend.enqueue_fill(&queue, block, all, &[1_u8]).unwrap();
    }
    let ordered = DriverPoolAllocator::new(backend).unwrap();
    drop(ordered.allocate_on(&queue, SIZE).unwrap());
    drop(ordered.allocate(SIZE).unwrap());
    let reservation = backend.reserve(2 * PAGE).unwrap();
    for at in [0, PAGE] {
        let pages = backend.create_pages(PAGE).unwrap();
        backend.map(&reservation, at, &pages).unwrap();
    }
    let text = ".version 6.4\n.visible .entry add_to(";
    CudaModule::load_ptx(backend, text).unwrap();
    queue.finish().unwrap();
}

#[test]
fn what_the_driver_does_not_free_at_once_is_freed_later() {
    let calls = [
        "cuMemFree",
        "cuMemFreeHost",
        "cuMemFreeAsync",
        "cuMemPoolDestroy",
        "cuMemUnmap",
        "cuMemAddressFree",
        "cuMemRelease",
        "cuModuleUnload",
        "cuStreamDestroy",
    ];
    for call in calls {
        let device = Device::new(1 << 24);
        let backend = device.backend();
        use_all(&backend);
        let queue = queue(&backend);
        let level = |objects: usize| {
            // Each command asks for one thing, and looks at what was dropped under commands.
            for _ in 0..20 {
                backend.enqueue_marker(&queue).unwrap().wait().unwrap();
            }
            assert!(device.objects() <= objects, "{call}: {}", device.objects());
            assert_eq!(device.used(), 0, "{call}");
        };
        level(device.objects());
        let objects = device.objects();
        device.fail(call, 0, 3, 999);
        use_all(&backend);
        level(objects + 2); // Of events and pinned memory, which are kept.
        // And those that are refused when everything ends.
        device.fail(call, 0, 3, 999);
        device.fail("cuEventDestroy", 1, 3, 999);
        use_all(&backend);
        drop((queue, backend));
        assert_eq!((device.objects(), device.used()), (0, 0), "{call}");
        assert!(device.calls(call) > 3, "{call}");
    }
}

#[test]
fn the_driver_is_not_asked_to_free_again_while_it_waits_for_the_host() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| queue(&backend));
    // When it is dropped, and before the stream is held back.
    device.fail("cuMemFree", 0, 2, 999);
    drop(backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap());
    let gate = backend.create_user_event().unwrap();
    backend.enqueue_marker(one.after(from_ref(&gate))).unwrap();
    let (calls, marker) = (device.calls("cuMemFree"), backend.enqueue_marker(&two));
    marker.unwrap().wait().unwrap();
    assert_eq!((device.calls("cuMemFree"), calls), (2, 2));
    drop(gate);
    backend.enqueue_marker(&two).unwrap();
    assert_eq!(device.used(), 0);
}

#[test]
fn no_call_waits_for_the_device_while_it_waits_for_the_host() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| queue(&backend));
    let [used, idle] = [(); 2].map(|()| backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap());
    let gate = backend.create_user_event().unwrap();
    let fill = backend
        .enqueue_fill(
            one.after(from_ref(&gate)),
            &used,
            Region::first(SIZE),
            &[1_u8],
        )
        .unwrap();
    drop((used, idle)); // `cuMemFree` would wait forever.
    two.finish().unwrap();
    assert_eq!(device.used(), 2 * SIZE);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    fill.wait().unwrap();
    let block = backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap();
    assert_eq!((block.bytes(), device.used()), (SIZE, SIZE));
}

#[test]
fn memory_of_a_pool_of_the_driver_is_freed_after_the_last_command_of_each_queue() {
    let all = Region::first(SIZE);
    for name in [
        "the second of a queue",
        "one of many queues",
        "one without an event",
    ] {
        let device = Device::new(1 << 24);
        let backend = device.backend();
        // The only memory that the driver frees without a wait for the device.
        let allocator = DriverPoolAllocator::new(&backend).unwrap();
        let block = allocator.allocate(SIZE).unwrap();
        let fill = |queue: &CudaQueue, wait_for: &[CudaEvent]| {
            backend.enqueue_fill(queue.after(wait_for), &block, all, &[1_u8])
        };
        let (held, gate) = (queue(&backend), backend.create_user_event().unwrap());
        if name == "the second of a queue" {
            fill(&held, &[]).unwrap().wait().unwrap();
        }
        if name == "one without an event" {
            device.fail("cuEventRecord", 0, 1, 999);
        }
        assert_eq!(
            fill(&held, from_ref(&gate)).is_err(),
            name == "one without an event"
        );
        if name == "one of many queues" {
            for _ in 0..40 {
                fill(&queue(&backend), &[]).unwrap().wait().unwrap();
            }
        }
        drop(block);
        backend.create_user_event().unwrap();
        assert_eq!(device.used(), SIZE, "{name}");
        drop(gate);
        held.finish().unwrap();
        backend.enqueue_marker(&held).unwrap().wait().unwrap();
        assert_eq!((device.used(), backend.is_lost()), (0, false), "{name}");
    }
}

#[test]
fn the_end_of_a_backend_waits_for_no_user_event_and_leaves_what_that_holds_back() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap();
    let gate = backend.create_user_event().unwrap();
    let all = Region::first(SIZE);
    let fill = backend.enqueue_fill(queue.after(from_ref(&gate)), &block, all, &[1_u8]);
    drop((fill, block, queue, backend));
    drop(gate);
    assert_eq!(device.used(), SIZE);
}

#[test]
fn a_user_event_that_is_dropped_holds_nothing_back() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap();
    let gate = backend.create_user_event().unwrap();
    let marker = backend
        .enqueue_marker(queue.after(from_ref(&gate)))
        .unwrap();
    backend.release(block, from_ref(&gate)).unwrap();
    drop(gate);
    marker.wait().unwrap();
    backend.enqueue_marker(&queue).unwrap().wait().unwrap();
    assert_eq!(device.used(), 0);
    // The word is used again, and a new event of it is not resolved.
    let next = backend.create_user_event().unwrap();
    let behind = backend
        .enqueue_marker(queue.after(from_ref(&next)))
        .unwrap();
    assert!(!behind.has_ended());
    drop(next);
    behind.wait().unwrap();
}

#[test]
fn a_user_event_that_no_stream_waits_for_holds_nothing_back() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    std::mem::forget(backend.create_user_event().unwrap());
    let open = backend.create_user_event().unwrap();
    backend
        .resolve_user_event(&open, Outcome::Complete)
        .unwrap();
    let marker = backend.enqueue_marker(queue.after(&[open])).unwrap();
    drop(backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap());
    assert_eq!(device.used(), 0);
    marker.wait().unwrap();
}

#[test]
fn memory_that_a_user_event_keeps_is_named_once_where_it_is_missing() {
    let device = Device::new(SIZE);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = || backend.create_buffer(SIZE, MemoryFlags::empty());
    let gate = backend.create_user_event().unwrap();
    let first = block().unwrap();
    let warnings = count_warnings(|| assert!(block().unwrap_err().is_out_of_memory()));
    assert_eq!(warnings, 0);
    let warnings = count_warnings(|| {
        let marker = backend
            .enqueue_marker(queue.after(from_ref(&gate)))
            .unwrap();
        drop(first);
        for _ in 0..3 {
            assert!(block().unwrap_err().is_out_of_memory());
        }
        drop(gate);
        marker.wait().unwrap();
        block().unwrap();
    });
    assert_eq!(warnings, 1);
}

/// Counts what is logged on this thread.
fn count_warnings(program: impl FnOnce()) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let add = move || {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    logged(add, program);
    count.load(Ordering::Relaxed)
}

#[test]
fn a_failed_user_event_is_refused_and_stays_pending() {
    let backend = Device::new(1 << 24).backend();
    let gate = backend.create_user_event().unwrap();
    assert!(backend.resolve_user_event(&gate, Outcome::Failed).is_err());
    assert!(!gate.has_ended());
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert!(gate.has_ended());
}

#[test]
fn events_and_pinned_memory_are_used_again() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap();
    for _ in 0..100 {
        let write = backend.enqueue_write(&queue, &block, 0, vec![1; SIZE].into());
        write.unwrap().wait().unwrap();
    }
    assert!(
        device.calls("cuEventCreate") < 10,
        "{}",
        device.calls("cuEventCreate")
    );
    assert!(
        device.calls("cuMemHostAlloc") < 10,
        "{}",
        device.calls("cuMemHostAlloc")
    );
}

#[test]
fn the_words_of_user_events_are_used_again() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    for _ in 0..200 {
        drop(backend.create_user_event().unwrap());
    }
    assert_eq!(device.calls("cuMemHostAlloc"), 1);
}

#[test]
fn the_host_waits_until_a_user_event_is_resolved() {
    let backend = Device::new(1 << 24).backend();
    let queue = queue(&backend);
    let gate = backend.create_user_event().unwrap();
    let [waits, is_resolved] = [(); 2].map(|()| AtomicBool::new(false));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            waits.store(true, Ordering::SeqCst);
            gate.wait().unwrap();
            is_resolved.load(Ordering::SeqCst)
        });
        while !waits.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // Meanwhile the other thread comes to its wait.
        for _ in 0..200 {
            backend.enqueue_marker(&queue).unwrap();
        }
        queue.finish().unwrap();
        is_resolved.store(true, Ordering::SeqCst);
        backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn device_memory_tells_what_is_free() {
    let backend = Device::new(1 << 24).backend();
    let _block = backend.create_buffer(SIZE, MemoryFlags::empty()).unwrap();
    let memory = backend.device_memory().unwrap();
    assert_eq!(
        (memory.free_bytes, memory.total_bytes),
        ((1 << 24) - SIZE, 1 << 24)
    );
}

#[test]
fn a_fill_with_one_two_or_four_bytes_is_one_call() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    for (pattern, call) in [
        (&[7_u8][..], "cuMemsetD8Async"),
        (&[7, 8][..], "cuMemsetD16Async"),
        (&[7, 8, 9, 10][..], "cuMemsetD32Async"),
    ] {
        let length = pattern.len();
        let region = Region::new(length, 32);
        let fill = backend.enqueue_fill(&queue, &block, region, pattern);
        fill.unwrap();
        assert_eq!(device.calls(call), 1, "{call}");
        let seen = bytes(&backend, &queue, &block);
        assert_eq!(seen[length..length + 32], pattern.repeat(32 / length));
    }
}
