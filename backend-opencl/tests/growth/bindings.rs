//! Shared virtual memory that is bound to one queue and another.

use binpool_allocators::{Queue, SvmBackend, SvmGrain};

use crate::{alone, common::Bench, resident_bytes};

/// PyOpenCL leaks an event for each binding.
#[test]
fn bindings_leave_nothing_behind() {
    let _alone = alone();
    let bench = Bench::new();
    let queues = [bench.queue.clone(), bench.another_queue()];
    let block = bench
        .backend
        .allocate_svm(4096, None, SvmGrain::Coarse, Some(&bench.queue))
        .unwrap();
    let bind = |times: usize| {
        for turn in 0..times {
            let queue = &queues[turn % 2];
            bench.backend.bind_to_queue(&block, queue).unwrap();
            if turn % 256 == 255 {
                queue.finish().unwrap();
            }
        }
        resident_bytes()
    };
    let mut before = bind(5_000);
    // The runtime takes memory for a while, too. A leak grows every time.
    let grown = [(); 5].map(|()| {
        let after = bind(20_000);
        after.saturating_sub(std::mem::replace(&mut before, after))
    });
    let least = grown.into_iter().min();
    assert!(least < Some(2 << 20), "bytes more, each time: {grown:?}");
}
