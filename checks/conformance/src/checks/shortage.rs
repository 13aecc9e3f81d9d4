//! Checks of out-of-memory, on devices that enforce their capacity.

use std::{error::Error as _, slice::from_ref};

use binpool_allocators::{
    Allocator, Backend, DeferredAllocator, Error, Event, ImmediateAllocator, Memory, MemoryFlags,
    Queue, Region,
};

use crate::{
    Fixture,
    bench::{Bench, eventually, out_of_memory},
};

/// Returns half of the capacity, where it is enforced.
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
        shortage
            .available
            .is_none_or(|free| free < requested as u64),
        "so much is free that the request fits: {error:?}"
    );
    assert!(
        shortage.source().is_some(),
        "the runtime's own error must be kept"
    );
}

/// Returns whether a block can be allocated. A lack of room is the only reason why not.
fn has_room(allocator: &impl Allocator, bytes: usize) -> bool {
    let refusal = allocator.allocate(bytes).err();
    refusal
        .as_ref()
        .inspect(|error| is_out_of_device_memory(error, bytes))
        .is_none()
}

/// The third half does not fit, the error is immediate, and its buffer is not leaked.
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

/// A third buffer of half the capacity beside two that fill it, where the device promises that many.
fn overcommitted<B: Backend>(bench: &Bench<B>, half: usize) -> Option<[B::Memory; 3]> {
    let taken = [(); 2].map(|()| bench.buffer(half));
    for block in &taken {
        bench.backend.commit(&bench.queue, block).unwrap();
    }
    let [first, second] = taken;
    match bench.backend.create_buffer(half, MemoryFlags::empty()) {
        Ok(third) => Some([first, second, third]),
        Err(error) => {
            is_out_of_device_memory(&error, half);
            None
        }
    }
}

/// The block remains, and fits once there is room.
pub fn a_failed_commit_leaves_the_block_to_be_committed_later<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let Some([first, second, third]) = overcommitted(&bench, half) else {
        return;
    };
    let error = bench.backend.commit(&bench.queue, &third).unwrap_err();
    is_out_of_device_memory(&error, half);
    drop(first);
    bench.backend.commit(&bench.queue, &third).unwrap();
    drop(second);
    bench.write(&third, &vec![1; half]);
}

/// The error comes from the first command that uses a block, if not from its creation.
pub fn a_deferred_allocator_tells_of_shortage_in_the_end<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let allocator = DeferredAllocator::new(&bench.backend);
    assert!(allocator.is_deferred());
    let blocks = [(); 2].map(|()| allocator.allocate(half).unwrap());
    let third = allocator.allocate(half);
    for block in &blocks {
        bench.write(block, &[1]);
    }
    let write = third.and_then(|third| bench.backend.write(&bench.queue, &third, 0, &[1_u8]));
    out_of_memory(&write);
}

/// Memory can be freed and allocated again many times.
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

/// The error comes from the call, or from its event.
pub fn a_command_without_room_for_its_memory_says_so<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let Some([first, second, third]) = overcommitted(&bench, half) else {
        return;
    };
    let fill = bench
        .backend
        .enqueue_fill(&bench.queue, &third, Region::first(64), &[1_u8])
        .and_then(|fill| fill.wait());
    out_of_memory(&fill);
    // The other blocks still work.
    for block in [first, second] {
        bench.write(&block, &vec![2; half]);
    }
}

/// The memory is not free before all commands that use it have ended, in whatever order, even if it is dropped earlier.
pub fn memory_that_a_command_uses_is_not_free<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let queues = [bench.another_queue(), bench.another_queue()];
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let _first = allocator.allocate(half).unwrap();
    for order in [[0, 1], [1, 0]] {
        let second = allocator.allocate(half).unwrap();
        let gates = [bench.gate(), bench.gate()];
        let reads = [0, 1].map(|index| {
            let on = queues[index].after(from_ref(&gates[index]));
            bench.backend.enqueue_read(on, &second, ..64).unwrap()
        });
        drop(second);
        for index in order {
            is_out_of_device_memory(&allocator.allocate(half).unwrap_err(), half);
            bench.open(&gates[index]);
            reads[index].event().wait().unwrap();
        }
        assert!(
            eventually(|| has_room(&allocator, half)),
            "memory must be free once the last command that uses it has ended"
        );
    }
}

/// The memory is not free before the events of its release have ended, whatever their commands are.
pub fn memory_is_not_free_before_the_events_of_its_release<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let _first = allocator.allocate(half).unwrap();
    for order in [[0, 1], [1, 0]] {
        let second = allocator.allocate(half).unwrap();
        let gates = [bench.gate(), bench.gate()];
        allocator.release(second, &gates).unwrap();
        for index in order {
            is_out_of_device_memory(&allocator.allocate(half).unwrap_err(), half);
            bench.open(&gates[index]);
        }
        assert!(
            eventually(|| has_room(&allocator, half)),
            "memory must be free once the events of its release have ended"
        );
    }
}

/// The room is not free before the last region is gone. A region itself takes no room.
pub fn a_region_holds_the_room_of_its_block<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let _first = allocator.allocate(half).unwrap();
    let second = allocator.allocate(half).unwrap();
    let regions = [(); 3].map(|()| bench.region(&second, Region::first(half)));
    drop(second);
    for region in regions {
        is_out_of_device_memory(&allocator.allocate(half).unwrap_err(), half);
        bench.backend.release(region, &[]).unwrap();
    }
    allocator.allocate(half).unwrap();
}

/// A repeated commit takes no more room.
pub fn a_block_is_committed_once<F: Fixture>(fixture: &F) {
    let Some(half) = half(fixture) else { return };
    let bench = Bench::new(fixture);
    let blocks = [bench.buffer(half), bench.buffer(half)];
    for _ in 0..3 {
        for block in &blocks {
            bench.backend.commit(&bench.queue, block).unwrap();
        }
    }
}
