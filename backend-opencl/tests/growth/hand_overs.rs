//! Blocks that go to and fro between queues.

use binpool::{ImmediateAllocator, PoolOptions, Queue, ReusePolicy};

use crate::{alone, common::Bench, resident_bytes};

/// Hands one block to and fro between two queues, with a command on each, and checks that neither the memory of the
/// process nor the pool grows.
fn hand_over(policy: ReusePolicy, times: usize) {
    const WARM_UP: usize = 5_000;
    let bench = Bench::new();
    let pool = PoolOptions::new()
        .reuse(policy)
        .build(
            ImmediateAllocator::new(&bench.backend).unwrap(),
            &bench.queue,
        )
        .unwrap();
    let queues = [bench.queue.clone(), bench.another_queue()];
    let mut turn = 0;
    let mut hand_over = |times: usize| {
        for _ in 0..times {
            let queue = &queues[turn % 2];
            let block = pool.allocate_on(queue, 4096).unwrap();
            block.enqueue_fill(queue, 0..64, &[1_u8]).unwrap();
            drop(block);
            turn += 1;
            // So that what the runtime itself keeps for pending commands stays small.
            if turn % 256 == 0 {
                queue.finish().unwrap();
            }
        }
        resident_bytes()
    };
    let mut before = hand_over(WARM_UP);
    // What the runtime keeps for a while shows in some window; a leak would show in every one.
    let windows = [(); 5].map(|()| {
        let after = hand_over(times / 5);
        let grown = after.saturating_sub(before);
        before = after;
        grown
    });
    let grown = windows.into_iter().min().unwrap();
    let statistics = pool.statistics();
    println!("{policy:?}: {times} hand-overs, {grown} bytes more a fifth, {statistics:?}");
    assert!(grown < 1 << 20, "{policy:?}: {windows:?} bytes more");
    assert!(statistics.managed_bytes <= 4096 * 600, "{statistics:?}");
}

#[test]
fn hand_overs_leave_nothing_behind() {
    let _alone = alone();
    for policy in ReusePolicy::ALL {
        hand_over(policy, 20_000);
    }
}

/// `cargo test --release -p binpool-opencl --test growth -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes; the test above does the same with fewer"]
fn a_million_hand_overs_leave_nothing_behind() {
    let _alone = alone();
    for policy in ReusePolicy::ALL {
        hand_over(policy, 1_000_000);
    }
}
