//! The allocator over a pool of the driver.

use std::{
    slice::from_ref,
    sync::atomic::{AtomicU32, Ordering},
};

use binpool_allocators::{
    Allocator, Backend, Error, Event, InvalidRequest, MemoryFlags, ObjectKind, Queue, Region,
};
use binpool_cuda::DriverPoolAllocator;

use crate::common::{Device, bytes, queue};

#[test]
fn a_block_goes_back_to_the_driver_behind_its_commands() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let block = allocator.allocate(4096).unwrap();
    let gate = backend.create_user_event().unwrap();
    let fill = backend
        .enqueue_fill(
            queue.after(from_ref(&gate)),
            &block,
            Region::first(4096),
            &[1_u8],
        )
        .unwrap();
    allocator.release(block, &[]).unwrap();
    assert_eq!((device.used(), device.calls("cuMemFreeAsync")), (4096, 0));
    // Idle blocks go at once, since the driver waits for nothing.
    allocator
        .release(allocator.allocate(64).unwrap(), &[])
        .unwrap();
    assert_eq!(device.used(), 4096);
    drop(gate);
    fill.wait().unwrap();
    allocator.trim_to(0).unwrap();
    assert_eq!((device.used(), backend.is_lost()), (0, false));
    drop((allocator, queue, fill, backend));
    assert_eq!(device.objects(), 0);
}

#[test]
fn a_release_comes_after_the_events_that_the_program_names() {
    static LET_RUN: AtomicU32 = AtomicU32::new(0);

    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let block = allocator.allocate(4096).unwrap();
    device.hold(queue.raw(), &LET_RUN);
    let last = backend.enqueue_marker(&queue).unwrap();
    allocator.release(block, &[last]).unwrap();
    assert_eq!(device.used(), 4096);
    LET_RUN.store(1, Ordering::Release);
    queue.finish().unwrap();
    allocator.trim_to(0).unwrap();
    assert_eq!(device.used(), 0);
}

#[test]
fn the_drivers_pool_keeps_what_is_free_until_it_is_trimmed() {
    let device = Device::new(1 << 24);
    let allocator = DriverPoolAllocator::new(&device.backend()).unwrap();
    // The threshold up to which it keeps memory.
    assert_eq!(device.calls("cuMemPoolSetAttribute"), 1);
    let block = allocator.allocate(4096).unwrap();
    allocator.release(block, &[]).unwrap();
    assert_eq!(device.calls("cuMemPoolTrimTo"), 0);
    allocator.trim_to(0).unwrap();
    assert_eq!(device.calls("cuMemPoolTrimTo"), 1);
}

#[test]
fn blocks_are_there_when_they_are_returned_and_their_parts_are_addresses() {
    let backend = Device::new(1 << 24).backend();
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    assert!(!allocator.is_deferred() && allocator.views_are_addresses());
}

#[test]
fn memory_in_the_order_of_a_queue_is_freed_behind_its_commands_and_is_for_that_queue_alone() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| queue(&backend));
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let block = allocator.allocate_on(&one, 4096).unwrap();
    let gate = backend.create_user_event().unwrap();
    let all = Region::first(4096);
    let fill = backend
        .enqueue_fill(one.after(from_ref(&gate)), &block, all, &[1_u8])
        .unwrap();
    let elsewhere = backend.enqueue_fill(&two, &block, all, &[1_u8]);
    let error = elsewhere.unwrap_err().to_string();
    assert!(error.contains("another queue"), "{error}");
    // The call does not wait for the fill; the driver does.
    drop(block);
    assert_eq!((device.used(), device.calls("cuMemFreeAsync")), (4096, 1));
    drop(gate);
    one.finish().unwrap();
    assert_eq!((device.used(), backend.is_lost()), (0, false));
    let peaks = allocator.peaks().unwrap();
    assert_eq!((peaks.reserved_bytes, peaks.used_bytes), (4096, 4096));
    let per_thread = backend.per_thread_default_queue();
    let error = allocator.allocate_on(&per_thread, 64).unwrap_err();
    assert!(error.to_string().contains("per-thread"), "{error}");
    drop((allocator, one, two, fill, per_thread, backend));
    assert_eq!(device.objects(), 0);
}

/// Not on a side stream, since it is freed after the commands of its queue's stream alone.
#[test]
fn memory_in_the_order_of_a_queue_is_for_no_queue_of_another_device() {
    let devices = Device::pair(1 << 24);
    let [here, there] = [&devices[0], &devices[1]].map(Device::backend);
    let [own, theirs] = [&here, &there].map(queue);
    here.enable_peer_access(&there).unwrap();
    there.enable_peer_access(&here).unwrap();
    let allocator = DriverPoolAllocator::new(&here).unwrap();
    let kind = ObjectKind::Queue;
    let foreign = InvalidRequest::ForeignObject { kind };
    let refused = [
        allocator.allocate_on(&theirs, 4096).map(drop),
        allocator.time_pairs(&theirs, 4096, 1).map(drop),
    ];
    for refused in refused {
        assert!(
            matches!(&refused, Err(Error::InvalidRequest(refusal)) if *refusal == foreign),
            "{refused:?}"
        );
    }
    let block = allocator.allocate_on(&own, 4096).unwrap();
    let far = there.create_buffer(4096, MemoryFlags::empty()).unwrap();
    let all = Region::first(4096);
    let streams = devices[0].calls("cuStreamCreate");
    // On its own queue, copies go to and from another device.
    here.enqueue_fill(&own, &block, all, &[7_u8]).unwrap();
    for backend in [&here, &there] {
        backend.enqueue_copy(&own, &block, all, &far, 0).unwrap();
        backend.enqueue_copy(&own, &far, all, &block, 0).unwrap();
    }
    let refused = [
        here.enqueue_fill(&theirs, &block, all, &[1_u8]).map(drop),
        here.write(&theirs, &block, 0, &[1_u8]),
        here.read(&theirs, &block, 0, &mut [0_u8]),
        here.enqueue_copy(&theirs, &block, all, &far, 0).map(drop),
        there.enqueue_copy(&theirs, &far, all, &block, 0).map(drop),
    ];
    for refused in refused {
        assert!(
            matches!(&refused, Err(Error::Unsupported { what }) if what.contains("another queue")),
            "{refused:?}"
        );
    }
    drop(block); // After the copies.
    own.finish().unwrap();
    assert_eq!(bytes(&there, &theirs, &far), vec![7; 4096]);
    assert_eq!(devices[0].calls("cuStreamCreate"), streams);
    assert_eq!(devices[0].used(), 0);
    assert!(!here.is_lost() && !there.is_lost());
}

#[test]
fn the_drivers_bare_calls_are_timed_without_anything_besides() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    allocator.time_pairs(&queue, 4096, 10).unwrap();
    for call in ["cuMemAllocFromPoolAsync", "cuMemFreeAsync"] {
        assert_eq!(device.calls(call), 10, "{call}");
    }
    assert_eq!((device.used(), device.calls("cuEventRecord")), (0, 0));
    let error = allocator.time_pairs(&queue, 1 << 25, 1).unwrap_err();
    assert!(!error.to_string().is_empty());
}
