//! What every allocator promises for an allocation and its release.

use std::{slice::from_ref, sync::Arc};

use binpool_allocators::{Align, Allocator, Backend, Event, InvalidRequest, Memory, Region};

use crate::{
    AllocatorFixture,
    bench::{Bench, refusal},
    sweep::on_threads,
};

/// Every block has at least the requested size.
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

/// The errors are `ZeroSize` and `TooLarge`, neither of which is out-of-memory.
pub fn sizes_that_never_fit_are_refused<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let refused = refusal(allocator.allocate(0));
    assert_eq!(refused, InvalidRequest::ZeroSize);
    let largest = allocator.largest_block();
    let sizes = [largest.saturating_add(1), usize::MAX];
    for bytes in sizes.into_iter().filter(|bytes| *bytes > largest) {
        let refused = refusal(allocator.allocate(bytes));
        assert!(
            matches!(refused, InvalidRequest::TooLarge { requested, .. } if requested == bytes),
            "{refused:?}"
        );
    }
}

/// The block may be used again once the events of its release have ended.
pub fn a_block_can_be_released_while_commands_use_it<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let bench = Bench::on(allocator.backend().clone());
    let other = bench.another_queue();
    let gate = bench.gate_if_any();
    let block = allocator.allocate(4096).unwrap();
    let fill = bench.fill(&bench.queue, &block, 1, gate.as_slice());
    allocator.release(block, from_ref(&fill)).unwrap();
    let next = allocator.allocate(4096).unwrap();
    let filled = bench.fill(&other, &next, 2, &[]);
    if let Some(gate) = gate {
        bench.open(&gate);
    }
    fill.wait().unwrap();
    filled.wait().unwrap();
    assert_eq!(bench.read(&next), vec![2; next.bytes()]);
}

/// `Box` and `Arc` of an allocator, erased or not, return the same.
pub fn a_boxed_allocator_is_the_same_allocator<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let expected = answers(&allocator);
    let boxed: Box<dyn Allocator<Backend = _> + '_> = Box::new(allocator);
    let found = answers(&boxed);
    assert_eq!(found, expected);
    let block = boxed.allocate(100).unwrap();
    boxed.release(block, &[]).unwrap();
    // An `Arc` is an allocator itself, as a pool requires.
    let shared: Arc<dyn Allocator<Backend = _> + '_> = Arc::from(boxed);
    assert_eq!(found, answers(&Arc::clone(&shared)));
    let block = shared.allocate(100).unwrap();
    assert!(block.bytes() >= 100);
    shared.release(block, &[]).unwrap();
}

/// The properties of an allocator.
fn answers(allocator: &impl Allocator) -> (bool, bool, Align, usize) {
    (
        allocator.is_deferred(),
        allocator.release_needs_events(),
        allocator.alignment(),
        allocator.largest_block(),
    )
}

/// Blocks of several threads do not overlap, and may be released by other threads.
pub fn threads_share_an_allocator<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let bench = || Bench::on(allocator.backend().clone());
    for _ in 0..5 {
        let mut dealt = on_threads([0, 50, 100, 150], |first| {
            let bench = bench();
            let fill = |byte: u8| {
                let block = allocator.allocate(usize::from(byte) * 31 + 1).unwrap();
                bench.write(&block, &vec![byte; block.bytes()]);
                (block, byte)
            };
            (first..first + 20).map(fill).collect::<Vec<_>>()
        });
        // Each thread releases the blocks of another one.
        dealt.rotate_left(1);
        on_threads(dealt, |blocks| {
            let bench = bench();
            for (block, byte) in blocks {
                assert_eq!(bench.read(&block), vec![byte; block.bytes()]);
                allocator.release(block, &[]).unwrap();
            }
        });
    }
}

/// Where the device enforces its capacity, a shortage shows at once, or in the first command if the allocator is
/// deferred.
pub fn shortage_shows_when_the_allocator_says<F: AllocatorFixture>(fixture: &F) {
    let Some(capacity) = fixture.enforced_capacity() else {
        return;
    };
    let allocator = fixture.allocator();
    let bench = Bench::on(allocator.backend().clone());
    let half = usize::try_from(capacity / 2).expect("the capacity is small");
    // Blocks may cost more than their size; at some number of them memory runs out.
    let mut live = Vec::new();
    let error = loop {
        assert!(
            live.len() < 3,
            "three halves of the capacity were handed out"
        );
        let block = match allocator.allocate(half) {
            Ok(block) => block,
            Err(error) => break error,
        };
        match bench.backend.write(&bench.queue, &block, 0, &[1_u8]) {
            Ok(()) => live.push(block),
            Err(error) => {
                assert!(
                    allocator.is_deferred(),
                    "the block was not there: {error:?}"
                );
                break error;
            }
        }
    };
    assert!(error.is_out_of_memory(), "{error:?}");
    for block in live {
        allocator.release(block, &[]).unwrap();
    }
    let block = allocator.allocate(half).unwrap();
    bench.write(&block, &[1]);
}

/// A block of the largest size is allocated, or is out of memory.
pub fn a_block_of_the_largest_size_is_no_invalid_request<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let largest = allocator.largest_block();
    // On a device that does not enforce its capacity, only a deferred block can be requested without harm.
    if fixture.enforced_capacity().is_none() && !allocator.is_deferred() {
        return;
    }
    match allocator.allocate(largest) {
        Ok(block) => assert!(block.bytes() >= largest),
        Err(error) => assert!(error.is_out_of_memory(), "{error:?}"),
    }
}

/// A region of a block starts where the device lets regions start.
pub fn parts_of_blocks_keep_to_themselves<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let bench = Bench::on(allocator.backend().clone());
    let start = bench.backend.limits().alignment.bytes();
    let block = allocator.allocate(4 * start).unwrap();
    bench.write(&block, &vec![1; block.bytes()]);
    let part = bench.region(&block, Region::new(start, start));
    bench.write(&part, &vec![2; start]);
    let mut expected = vec![1; block.bytes()];
    expected[start..2 * start].fill(2);
    assert_eq!(bench.read(&block), expected);
}

/// A view outlives the release of its block, and no later block has its bytes.
pub fn a_view_of_a_released_block_keeps_its_bytes<F: AllocatorFixture>(fixture: &F) {
    let allocator = fixture.allocator();
    let bench = Bench::on(allocator.backend().clone());
    let block = allocator.allocate(4096).unwrap();
    let view = bench.region(&block, Region::first(4096));
    bench.write(&view, &[1; 4096]);
    allocator.release(block, &[]).unwrap();
    for _ in 0..10 {
        let next = allocator.allocate(4096).unwrap();
        bench.write(&next, &vec![2; next.bytes()]);
        allocator.release(next, &[]).unwrap();
    }
    assert_eq!(bench.read(&view), [1; 4096]);
}
