//! What is released while commands use it is not handed out before these have ended, also where the allocator goes.

use std::slice::from_ref;

use binpool_allocators::{Allocator, Backend, Outcome, SegmentAllocator, adaptors::Limit};
use binpool_mock::MockBackend;

use crate::segment_allocator::{KIB, MIB, Rig, immediate, manual, rig, svm};

/// A block is released while a command uses it, and another one of its size is used on another queue.
fn a_pending_range_is_not_reused<A: Allocator<Backend = MockBackend>>(rig: Rig<A>) {
    let block = rig.allocator.allocate(4096).unwrap();
    let fill = rig.fill(0, &block, 1, &[]);
    rig.allocator.release(block, from_ref(&fill)).unwrap();
    let statistics = rig.allocator.statistics();
    assert_eq!(
        (statistics.pending_bytes, statistics.live_blocks),
        (4096, 0)
    );
    let other = rig.allocator.allocate(4096).unwrap();
    let others = rig.fill(1, &other, 2, &[]);
    assert_eq!(rig.allocator.statistics().pending_bytes, 4096);
    rig.device.run();
    assert_eq!(rig.device.violations(), []);
    assert_eq!(rig.read(&other, &others), [2; 4096]);

    // Once the command has ended, the range is as good as any other, though no thread has asked for a while.
    let free = rig.allocator.statistics().free_bytes;
    let rest = rig
        .allocator
        .allocate(usize::try_from(free).unwrap())
        .unwrap();
    let made = rig.allocator.statistics().segments_made;
    let again = rig.allocator.allocate(4096).unwrap();
    let statistics = rig.allocator.statistics();
    assert_eq!(
        (statistics.pending_bytes, statistics.segments_made),
        (0, made)
    );
    let fills = [(0, &again), (1, &rest)].map(|(queue, block)| rig.fill(queue, block, 3, &[]));
    rig.device.run();
    for block in [again, rest] {
        rig.allocator.release(block, &fills).unwrap();
    }
    rig.allocator.release(other, from_ref(&others)).unwrap();
    rig.allocator.free_idle();
    drop((fill, others, fills));
    rig.ends_clean();
}

#[test]
fn a_range_is_not_reused_before_its_events_have_ended() {
    a_pending_range_is_not_reused(Rig::over(&manual(64 * MIB), immediate));
    a_pending_range_is_not_reused(Rig::over(&manual(64 * MIB), svm));
}

#[test]
fn all_events_of_a_release_count_those_too_that_fail() {
    let rig = rig(MIB);
    let gates = [rig.gate(), rig.gate()];
    let block = rig.allocator.allocate(100).unwrap();
    rig.allocator.release(block, &gates).unwrap();
    for (gate, outcome) in gates.iter().zip([Outcome::Complete, Outcome::Failed]) {
        rig.allocator.free_idle();
        assert_eq!(rig.allocator.statistics().pending_bytes, 256);
        rig.backend.resolve_user_event(gate, outcome).unwrap();
    }
    rig.allocator.free_idle();
    drop(gates);
    rig.ends_clean();
}

#[test]
fn a_block_that_is_dropped_is_lost_until_the_allocator_goes() {
    let rig = Rig::over(&manual(MIB), immediate);
    let block = rig.allocator.allocate(100).unwrap();
    let fill = rig.fill(0, &block, 1, &[]);
    drop(block);
    let other = rig.allocator.allocate(100).unwrap();
    let others = rig.fill(1, &other, 2, &[]);
    rig.device.run();
    rig.allocator.release(other, &[]).unwrap();
    assert_eq!(rig.allocator.statistics().live_blocks, 1);
    assert_eq!(rig.allocator.free_idle(), 0);
    let Rig {
        allocator,
        device,
        queues,
        ..
    } = rig;
    drop((allocator, queues, fill, others));
    assert!(device.leaks().is_empty(), "{}", device.leaks());
    assert_eq!(device.violations(), []);
}

#[test]
fn segments_go_back_to_the_inner_allocator_after_the_events_of_their_blocks() {
    // Commands may have been given the bare address, so that the runtime knows of none.
    let rig = Rig::over(&manual(MIB), |backend| Limit::new(svm(backend), MIB as u64));
    let budget = rig.allocator.inner().budget().clone();
    let gates = [rig.gate(), rig.gate()];
    let blocks = [100, 300 * KIB].map(|bytes| rig.allocator.allocate(bytes).unwrap());
    for (block, gate) in blocks.into_iter().zip(&gates) {
        rig.allocator.release(block, from_ref(gate)).unwrap();
    }
    let clone = rig.allocator.clone();
    drop(rig.allocator);
    assert!(budget.used_bytes() > 0);
    drop(clone);
    assert_eq!(budget.used_bytes(), 0);
    let live = || rig.device.statistics().live_blocks;
    assert_eq!(live(), 2);
    for gate in &gates {
        assert!(live() > 0);
        rig.backend
            .resolve_user_event(gate, Outcome::Complete)
            .unwrap();
    }
    assert_eq!(live(), 0);
}

#[test]
fn an_inner_allocator_that_keeps_segments_is_told_of_the_events() {
    let rig = Rig::over(&manual(MIB), immediate);
    let outer = SegmentAllocator::new(rig.allocator.clone());
    let block = outer.allocate(100).unwrap();
    let fill = rig.fill(0, &block, 1, &[]);
    outer.release(block, from_ref(&fill)).unwrap();
    drop(outer);
    assert!(rig.allocator.statistics().pending_bytes > 0);
    let other = rig.allocator.allocate(100).unwrap();
    let others = rig.fill(1, &other, 2, &[]);
    rig.device.run();
    rig.allocator.release(other, from_ref(&others)).unwrap();
    rig.allocator.free_idle();
    drop((fill, others));
    rig.ends_clean();
}

#[test]
fn a_segment_with_a_live_block_outlives_the_allocator_and_the_events_of_others() {
    let rig = Rig::over(&manual(MIB), svm);
    let gate = rig.gate();
    let [pending, kept] = [(); 2].map(|()| rig.allocator.allocate(100).unwrap());
    rig.allocator.release(pending, from_ref(&gate)).unwrap();
    drop(rig.allocator);
    drop(kept);
    assert_eq!(rig.device.statistics().live_blocks, 1, "the gate is closed");
    rig.backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(rig.device.statistics().live_blocks, 0);
}
