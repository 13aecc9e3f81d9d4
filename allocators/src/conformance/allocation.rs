//! Ways of getting memory.

use std::{slice::from_ref, thread};

use super::{
    AllocatorFixture,
    bench::{Bench, refusal},
};
use crate::{Allocator, Event, InvalidRequest, Memory};

/// Every block has what was asked for, or more.
pub fn blocks_are_large_enough<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let bench = Bench::on(allocator.backend().clone());
    assert!(allocator.largest_block() > 0);
    for bytes in [1, 255, 256, 257, 4096, 100_000] {
        let block = allocator.allocate(bytes).unwrap();
        assert!(block.bytes() >= bytes);
        let size = block.bytes();
        bench.write(&block, &vec![1; size]);
        assert_eq!(bench.read(&block), vec![1; size]);
        allocator.release(block, &[]).unwrap();
    }
}

/// Each block keeps its own bytes.
pub fn live_blocks_do_not_overlap<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let bench = Bench::on(allocator.backend().clone());
    let mut live = Vec::new();
    for round in 0..60_u8 {
        let block = allocator.allocate(1 + usize::from(round) * 131).unwrap();
        bench.write(&block, &vec![round; block.bytes()]);
        live.push((block, round));
        if round % 3 == 2 {
            let (block, byte) = live.swap_remove(usize::from(round) % live.len());
            assert_eq!(bench.read(&block), vec![byte; block.bytes()]);
            allocator.release(block, &[]).unwrap();
        }
    }
    for (block, byte) in live {
        assert_eq!(bench.read(&block), vec![byte; block.bytes()]);
    }
}

/// `ZeroSize` and `TooLarge`, neither of which is out-of-memory.
pub fn sizes_that_never_fit_are_refused<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let refused = refusal(allocator.allocate(0));
    assert_eq!(refused, InvalidRequest::ZeroSize);
    for bytes in [allocator.largest_block().saturating_add(1), usize::MAX] {
        let refused = refusal(allocator.allocate(bytes));
        assert!(
            matches!(refused, InvalidRequest::TooLarge { requested, .. } if requested == bytes),
            "{refused:?}"
        );
    }
}

/// Its events say when it may be used again.
pub fn a_block_can_be_released_while_commands_use_it<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let bench = Bench::on(allocator.backend().clone());
    let other = bench.another_queue();
    let gate = bench.gate();
    let block = allocator.allocate(4096).unwrap();
    let fill = bench.fill(&bench.queue, &block, 1, from_ref(&gate));
    allocator.release(block, from_ref(&fill)).unwrap();
    let next = allocator.allocate(4096).unwrap();
    let filled = bench.fill(&other, &next, 2, &[]);
    bench.open(&gate);
    fill.wait().unwrap();
    filled.wait().unwrap();
    assert_eq!(bench.read(&next), vec![2; next.bytes()]);
}

/// `Box` and `Arc` of it, erased or not, answer the same.
pub fn a_boxed_allocator_is_the_same_allocator<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let expected = (
        allocator.is_deferred(),
        allocator.release_needs_events(),
        allocator.alignment(),
        allocator.largest_block(),
    );
    let boxed: Box<dyn Allocator<Backend = _> + '_> = Box::new(allocator);
    let found = (
        boxed.is_deferred(),
        boxed.release_needs_events(),
        boxed.alignment(),
        boxed.largest_block(),
    );
    assert_eq!(found, expected);
    let block = boxed.allocate(100).unwrap();
    boxed.release(block, &[]).unwrap();
}

/// Blocks of several threads do not overlap either.
pub fn threads_share_an_allocator<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    thread::scope(|scope| {
        for byte in 0..4_u8 {
            let allocator = &allocator;
            scope.spawn(move || {
                let bench = Bench::on(allocator.backend().clone());
                for round in 1..20_usize {
                    let block = allocator.allocate(round * 301).unwrap();
                    bench.write(&block, &vec![byte; block.bytes()]);
                    assert_eq!(bench.read(&block), vec![byte; block.bytes()]);
                    allocator.release(block, &[]).unwrap();
                }
            });
        }
    });
}
