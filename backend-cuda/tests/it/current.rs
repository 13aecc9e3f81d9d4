//! Calls leave the context of the calling thread as it was, as libraries do that live beside the runtime API.

use std::ptr;

use binpool_allocators::{Backend, MemoryFlags, Queue, Region, VirtualMemory};
use binpool_cuda::{CudaBackend, DriverPoolAllocator};

use crate::common::{Device, PAGE, current_context, queue};

/// Makes, uses and drops all kinds of objects.
fn program(backend: &CudaBackend) {
    let queue = queue(backend);
    let reservation = backend.reserve(PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    for flags in [MemoryFlags::empty(), MemoryFlags::HOST_RESIDENT] {
        let block = backend.create_buffer(64, flags).unwrap();
        let gate = backend.create_user_event().unwrap();
        let fill = backend.enqueue_fill(
            queue.after(&[gate]),
            &block,
            Region::first(63),
            &[1_u8, 2, 3],
        );
        backend
            .enqueue_copy(
                queue.after(&[fill.unwrap()]),
                &block,
                Region::first(64),
                &reservation,
                0,
            )
            .unwrap();
    }
    backend
        .read(&queue, &reservation, 0, &mut [0_u8; 64])
        .unwrap();
    queue.finish().unwrap();
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    backend.device_memory().unwrap();
    drop(DriverPoolAllocator::new(backend).unwrap());
}

#[test]
fn a_thread_keeps_the_context_that_it_has_made_current() {
    let [device, other] = Device::pair(1 << 24);
    let theirs = other.backend();
    other.make_current();
    let backend = device.backend();
    assert_ne!(backend.raw_context(), theirs.raw_context());
    program(&backend);
    drop(backend);
    assert_eq!(current_context(), theirs.raw_context());
    // Its own is not set anew.
    let before = other.calls("cuCtxSetCurrent");
    program(&theirs);
    assert_eq!(
        (current_context(), other.calls("cuCtxSetCurrent")),
        (theirs.raw_context(), before)
    );
}

#[test]
fn a_thread_without_a_context_has_none_afterwards() {
    let backend = Device::new(1 << 24).backend();
    program(&backend);
    drop(backend);
    assert_eq!(current_context(), ptr::null_mut());
}
