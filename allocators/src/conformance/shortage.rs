//! Too little memory, on devices that keep to their capacity.

use std::error::Error as _;

use super::{Fixture, bench::Bench};
use crate::{
    Allocator, Backend, DeferredAllocator, Error, ImmediateAllocator, Memory, MemoryFlags,
};

/// Half of the capacity, where it is enforced.
fn half<F: Fixture>(fixture: &F) -> Option<usize> {
    let capacity = fixture.enforced_capacity()?;
    Some(usize::try_from(capacity / 2).expect("the capacity is small"))
}

fn is_out_of_device_memory(error: &Error, requested: usize) {
    let Error::OutOfMemory(shortage) = error else {
        panic!("expected out-of-memory, got {error:?}");
    };
    assert_eq!(shortage.requested, requested);
    assert!(
        shortage.source().is_some(),
        "the runtime's own error must be kept"
    );
}

/// The third half does not fit, the failure shows at once, and its buffer is not leaked.
pub fn an_immediate_allocator_tells_of_shortage_and_leaks_nothing<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let allocator = ImmediateAllocator::new(&fixture.backend()).unwrap();
    assert!(!allocator.is_deferred());
    let first = allocator.allocate(half).unwrap();
    let second = allocator.allocate(half).unwrap();
    for _ in 0..10 {
        is_out_of_device_memory(&allocator.allocate(half).unwrap_err(), half);
    }
    allocator.release(first, &[]).unwrap();
    let third = allocator.allocate(half).unwrap();
    assert_eq!((second.bytes(), third.bytes()), (half, half));
}

/// The block is still there, and fits once there is room.
pub fn a_failed_commit_leaves_the_block_to_be_committed_later<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let blocks = [(); 3].map(|()| {
        bench
            .backend
            .create_buffer(half, MemoryFlags::empty())
            .unwrap()
    });
    let [first, second, third] = blocks;
    bench.backend.commit(&bench.queue, &first).unwrap();
    bench.backend.commit(&bench.queue, &second).unwrap();
    let error = bench.backend.commit(&bench.queue, &third).unwrap_err();
    is_out_of_device_memory(&error, half);
    drop(first);
    bench.backend.commit(&bench.queue, &third).unwrap();
    drop(second);
    bench.write(&third, &vec![1; half]);
}

/// The failure shows in the first command that uses a block.
pub fn a_deferred_allocator_promises_more_than_there_is<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let allocator = DeferredAllocator::new(&bench.backend);
    assert!(allocator.is_deferred());
    let blocks = [(); 3].map(|()| allocator.allocate(half).unwrap());
    bench.write(&blocks[0], &[1]);
    bench.write(&blocks[1], &[1]);
    let write = bench.backend.write(&bench.queue, &blocks[2], 0, &[1], &[]);
    is_out_of_device_memory(&write.unwrap_err(), half);
}

/// Over and over.
pub fn freed_memory_can_be_had_again<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let allocator = ImmediateAllocator::new(&fixture.backend()).unwrap();
    for round in 0..20 {
        let blocks = [
            allocator.allocate(half).unwrap(),
            allocator.allocate(half).unwrap(),
        ];
        if round % 2 == 0 {
            for block in blocks {
                allocator.release(block, &[]).unwrap();
            }
        }
    }
}
