//! Checks that shared virtual memory is not freed early: its address is not handed out again before.

use std::{ops::Range, slice::from_ref};

use binpool_allocators::{Backend, Event, Memory, Queue, Region, SvmBackend};

use crate::{
    Fixture,
    bench::{Bench, numbered},
    checks::regions::has_views_until_the_last_region_is_gone,
    checks::svm::{blocks, bound_blocks},
};

const SIZE: usize = 4096;

/// The addresses of all bytes of a block.
pub(super) fn addresses<B: SvmBackend>(backend: &B, block: &B::Memory) -> Range<usize> {
    let start = backend.svm_address(block).expect("SVM has an address");
    let start = start.addr().get();
    start..start + block.bytes()
}

/// Checks that these addresses are not handed out again, as far as some allocations show. They are all held during the
/// check, so that each has an address of its own.
pub(super) fn assert_not_handed_out<B: SvmBackend>(backend: &B, taken: &Range<usize>) {
    let mut newcomers = Vec::new();
    for _ in 0..20 {
        newcomers.extend(blocks(backend, SIZE));
    }
    for newcomer in &newcomers {
        let given = addresses(backend, newcomer);
        assert!(
            given.end <= taken.start || taken.end <= given.start,
            "the addresses {taken:?} are still in use, and were given away as {given:?}"
        );
    }
}

/// Gives a block up by `release`, and checks that it is not freed before the last of some commands, each of which waits for a gate.
pub(super) fn freed_behind<B: SvmBackend>(
    bench: &Bench<B>,
    block: B::Memory,
    release: impl FnOnce(B::Memory),
    gated: &[(B::Event, B::Event)],
) {
    let taken = addresses(&bench.backend, &block);
    release(block);
    for (gate, command) in gated {
        assert_not_handed_out(&bench.backend, &taken);
        bench.open(gate);
        command.wait().unwrap();
    }
}

/// Blocks of every grain, several at once.
pub fn live_blocks_of_svm_do_not_overlap<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let backend = fixture.backend();
    let mut live = Vec::new();
    for bytes in (1..60).map(|step| step * 97) {
        live.extend(blocks(&backend, bytes));
        if live.len() > 20 {
            drop(live.swap_remove(bytes % 20));
        }
    }
    let mut ranges: Vec<_> = live
        .iter()
        .map(|block| addresses(&backend, block))
        .collect();
    ranges.sort_by_key(|range| range.start);
    for pair in ranges.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:?}");
    }
}

/// The backend frees it after the command.
pub fn svm_may_be_dropped_while_a_command_uses_it<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    for block in blocks(&bench.backend, SIZE) {
        bench.write(&block, &numbered(SIZE));
        let target = bench.buffer(SIZE);
        let gate = bench.gate();
        let copy = bench.copy(&bench.queue, &block, (&target, 0), from_ref(&gate));
        freed_behind(&bench, block, drop, &[(gate, copy)]);
        assert_eq!(bench.read(&target), numbered(SIZE));
    }
}

/// It is also freed after commands on the queue that use other memory.
pub fn svm_bound_to_a_queue_is_freed_behind_it<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let release = |block| bench.backend.release(block, &[]).unwrap();
    for (queue, block) in bound_blocks(&bench) {
        let buffer = bench.buffer(SIZE);
        let fill = bench.gated_fill(&queue, &buffer, 5);
        freed_behind(&bench, block, release, &[fill]);
        queue.finish().unwrap();
    }
}

/// The commands are on queues of both orders.
pub fn svm_of_several_queues_is_freed_behind_all<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let others: Vec<_> = bench.queues_of_both_orders().collect();
    for (bound, block) in bound_blocks(&bench) {
        let fill = |queue| bench.gated_fill(queue, &block, 5);
        let fills: Vec<_> = others.iter().map(fill).collect();
        freed_behind(&bench, block, drop, &fills);
        bound.finish().unwrap();
    }
}

/// The events may be those of any command.
pub fn svm_is_not_freed_before_the_events_of_its_release<F: Fixture<Backend: SvmBackend>>(
    fixture: &F,
) {
    let bench = Bench::new(fixture);
    for order in [[0, 1], [1, 0]] {
        for block in blocks(&bench.backend, SIZE) {
            let taken = addresses(&bench.backend, &block);
            let gates = [bench.gate(), bench.gate()];
            bench.backend.release(block, &gates).unwrap();
            for index in order {
                assert_not_handed_out(&bench.backend, &taken);
                bench.open(&gates[index]);
            }
        }
    }
}

/// Enqueues a marker that fails.
fn failed_marker<B: Backend>(bench: &Bench<B>, queue: &B::Queue) -> B::Event {
    let failing = bench.gate();
    let marker = bench.marker_on(queue, from_ref(&failing));
    bench.fail(&failing);
    marker
}

/// If a later command on its queue fails, the command still counts, whether the block is dropped or
/// released after the failed event.
pub fn svm_is_not_freed_under_a_command_before_a_failure<F: Fixture<Backend: SvmBackend>>(
    fixture: &F,
) {
    let bench = Bench::new(fixture);
    for released in [false, true] {
        for block in blocks(&bench.backend, SIZE) {
            let queue = bench.another_queue();
            let fill = bench.gated_fill(&queue, &block, 5);
            let failed = failed_marker(&bench, &queue);
            drop(bench.fill(&queue, &block, 6, &[]));
            let release = |block| {
                if released {
                    bench.backend.release(block, from_ref(&failed)).unwrap();
                } else {
                    drop(block);
                }
            };
            freed_behind(&bench, block, release, &[fill]);
            queue.finish().unwrap();
        }
    }
}

/// It is freed after everything on its queue, even if the last command there failed.
pub fn svm_bound_to_a_queue_is_freed_behind_it_though_a_command_failed<
    F: Fixture<Backend: SvmBackend>,
>(
    fixture: &F,
) {
    let bench = Bench::new(fixture);
    if !bench.backend.limits().failure_order.keeps_places() {
        return;
    }
    let release = |block| bench.backend.release(block, &[]).unwrap();
    for (queue, block) in bound_blocks(&bench) {
        let fill = bench.gated_fill(&queue, &bench.buffer(SIZE), 5);
        drop(failed_marker(&bench, &queue));
        freed_behind(&bench, block, release, &[fill]);
        queue.finish().unwrap();
    }
}

/// Views are counted as for a buffer.
pub fn svm_has_views_until_the_last_region_of_it_is_gone<F: Fixture<Backend: SvmBackend>>(
    fixture: &F,
) {
    let bench = Bench::new(fixture);
    for block in blocks(&bench.backend, SIZE) {
        has_views_until_the_last_region_is_gone(&bench, &block);
    }
}

/// A region may be dropped last, and its commands count as the block's.
pub fn a_region_of_svm_holds_its_block<F: Fixture<Backend: SvmBackend>>(fixture: &F) {
    let bench = Bench::new(fixture);
    let start = bench.backend.limits().alignment.bytes();
    for block in blocks(&bench.backend, start + SIZE) {
        let taken = addresses(&bench.backend, &block);
        let region = bench.region(&block, Region::new(start, SIZE));
        bench.backend.release(block, &[]).unwrap();
        assert_not_handed_out(&bench.backend, &taken);
        let other = bench.another_queue();
        let (gate, fill) = bench.gated_fill(&other, &region, 1);
        drop(region);
        assert_not_handed_out(&bench.backend, &taken);
        bench.open(&gate);
        fill.wait().unwrap();
    }
}
