//! Blocks, queues and what pools keep.

use std::{ptr, slice::from_ref};

use binpool::{Backend, Event, EventStatus, Outcome, Queue};
use binpool_capi::{
    Block, Options, Segments, binpool_allocate_on, binpool_block_cl_kernel_argument,
    binpool_block_order_before, binpool_block_record_use, binpool_pool_limit,
    binpool_pool_retire_queue, binpool_pool_set_limit, binpool_pool_trim,
};
use binpool_opencl::{ClEvent, ClMemory};

use crate::common::{Bench, MIB, free, ok, options, place};

/// The block's buffer, as the program has it by its handle.
fn buffer(bench: &Bench, block: *const Block) -> (ClMemory, usize) {
    let (memory, offset) = place(block);
    // SAFETY: The buffer lives, and is retained.
    (
        unsafe { bench.backend.wrap_raw_memory(memory, true) }.unwrap(),
        offset,
    )
}

#[test]
fn a_handle_and_an_offset_are_of_the_bytes_of_the_block() {
    let bench = Bench::new(0);
    let blocks = [1_u8, 2, 3].map(|number| (number, bench.allocate(5000)));
    for (number, block) in blocks {
        let (memory, offset) = buffer(&bench, block);
        bench
            .backend
            .write(&bench.queue, &memory, offset, &[number; 5000])
            .unwrap();
    }
    for (number, block) in blocks {
        let (memory, offset) = buffer(&bench, block);
        let mut bytes = [0; 5000];
        bench
            .backend
            .read(&bench.queue, &memory, offset, &mut bytes)
            .unwrap();
        assert_eq!(bytes, [number; 5000]);
    }
    let (first, second) = (blocks[0].1, blocks[1].1);
    let arguments = [first, second, second].map(|block| {
        let mut memory = ptr::null_mut();
        // SAFETY: The block lives.
        ok(unsafe { binpool_block_cl_kernel_argument(block, &raw mut memory) });
        memory
    });
    assert_ne!(arguments[0], arguments[1]);
    assert_eq!(arguments[1], arguments[2]);
    for (_, block) in blocks {
        free(block);
    }
}

#[test]
fn a_block_is_for_the_queue_that_its_allocation_names() {
    let bench = Bench::new(0);
    let mut block = ptr::null_mut();
    for _ in 0..10 {
        // SAFETY: The pool and the queue live.
        ok(unsafe { binpool_allocate_on(bench.pool, bench.other.raw(), 4096, &raw mut block) });
        let (memory, offset) = buffer(&bench, block);
        bench
            .backend
            .write(&bench.other, &memory, offset, &[7; 4096])
            .unwrap();
        drop(memory);
        free(block);
    }
    // It comes back at once, although another queue than the pool's has it.
    let now = bench.statistics();
    assert_eq!((now.misses, now.hits, now.ended_hits), (1, 9, 0));
    // SAFETY: The pool and the queue live.
    ok(unsafe { binpool_pool_retire_queue(bench.pool, bench.other.raw()) });
}

#[test]
fn a_use_that_is_recorded_keeps_the_block_until_that_queue_is_done() {
    let bench = Bench::with(Options {
        segments: Segments::Off as u32,
        ..options(0)
    });
    let gate = bench.backend.create_user_event().unwrap();
    let block = bench.allocate(4096);
    let held = bench
        .backend
        .enqueue_marker(bench.other.after(from_ref(&gate)));
    // SAFETY: The block and the queue live.
    ok(unsafe { binpool_block_record_use(block, bench.other.raw()) });
    free(block);
    assert_eq!(bench.statistics().pending_blocks, 1);
    bench
        .backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    drop(held.unwrap());
    bench.other.finish().unwrap();
    free(bench.allocate(4096));
    let now = bench.statistics();
    assert_eq!((now.misses, now.ended_hits), (1, 1));
}

#[test]
fn another_queue_waits_for_the_blocks_own_on_the_device() {
    let bench = Bench::new(0);
    let gate = bench.backend.create_user_event().unwrap();
    let block = bench.allocate(4096);
    bench
        .backend
        .enqueue_marker(bench.queue.after(from_ref(&gate)))
        .unwrap();
    // SAFETY: The block and the queue live.
    ok(unsafe { binpool_block_order_before(block, bench.other.raw()) });
    let behind = bench.backend.enqueue_marker(&bench.other).unwrap();
    bench.other.flush().unwrap();
    let status = |event: &ClEvent| event.status().unwrap();
    assert_ne!(status(&behind), EventStatus::Complete);
    bench
        .backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    bench.other.finish().unwrap();
    assert_eq!(status(&behind), EventStatus::Complete);
    free(block);
}

#[test]
fn blocks_outlive_their_pool() {
    let bench = Bench::new(0);
    let block = bench.allocate(4096);
    let (backend, queue) = (bench.backend.clone(), bench.queue.clone());
    let (memory, offset) = buffer(&bench, block);
    drop(bench);
    backend.write(&queue, &memory, offset, &[7; 4096]).unwrap();
    free(block);
}

#[test]
fn free_memory_goes_back_when_the_program_says_so() {
    let bench = Bench::new(0);
    let [kept, first, second] =
        [4 * MIB, 8 * MIB, 16 * MIB].map(|bytes| bench.allocate(usize::try_from(bytes).unwrap()));
    free(first);
    free(second);
    let before = bench.statistics().managed_bytes;
    let mut released = 0;
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_trim(bench.pool, before - MIB, &raw mut released) });
    let after = bench.statistics().managed_bytes;
    assert!(released >= MIB && after == before - released);
    // SAFETY: As above.
    ok(unsafe { binpool_pool_trim(bench.pool, 0, &raw mut released) });
    assert_eq!(bench.statistics().managed_bytes, after - released);
    assert_eq!(bench.statistics().active_bytes, 4 * MIB);
    // SAFETY: As above; a null pointer stands for no result.
    ok(unsafe { binpool_pool_trim(bench.pool, 0, ptr::null_mut()) });
    free(kept);
}

#[test]
fn a_limit_can_be_read_and_changed() {
    let bench = Bench::new(MIB);
    let limit = || {
        let mut bytes = 7;
        // SAFETY: The pool lives.
        ok(unsafe { binpool_pool_limit(bench.pool, &raw mut bytes) });
        bytes
    };
    assert_eq!(limit(), MIB);
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_set_limit(bench.pool, 8 * MIB) });
    assert_eq!(limit(), 8 * MIB);
    free(bench.allocate(6 << 20));
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_set_limit(bench.pool, 0) });
    assert_eq!(limit(), 0);
    free(bench.allocate(20 << 20));
}
