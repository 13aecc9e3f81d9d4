//! The allocator over a pool of the driver.

use std::slice::from_ref;

use binpool_allocators::{Allocator, Backend, Event, Region};
use binpool_cuda::DriverPoolAllocator;

use crate::common::{Device, queue};

#[test]
fn a_block_goes_back_to_the_driver_behind_its_commands() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let queue = queue(&backend);
    let allocator = DriverPoolAllocator::new(&backend).unwrap();
    let block = allocator.allocate(4096).unwrap();
    let gate = backend.create_user_event().unwrap();
    let fill = backend
        .enqueue_fill(&queue, &block, Region::first(4096), &[1], from_ref(&gate))
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
