//! Programs that go on whatever fails.

use std::{
    slice::from_ref,
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::Duration,
};

use binpool::{Allocator, Backend, Queue, Region};

use crate::rig::{Block, CAPACITY, Rig};

/// Blocks of several sizes, in no order.
pub(crate) fn blocks_come_and_go(rig: &mut Rig) {
    let home = rig.home.clone();
    let mut live: Vec<Block> = Vec::new();
    for (step, bytes) in [1, 300, 5000, 256, 70_000, 300, 5000, 1, 20_000]
        .into_iter()
        .enumerate()
    {
        live.extend(rig.block(&home, bytes));
        if step % 3 == 2 && !live.is_empty() {
            let block = live.swap_remove(step % live.len());
            drop(block);
        }
        rig.agrees_with(&live.iter().collect::<Vec<_>>());
    }
    let empty = rig.note(rig.pool.allocate(0));
    drop(empty);
    while let Some(block) = live.pop() {
        rig.note(block.release());
    }
    rig.agrees_with(&[]);
    // Hits, where nothing failed.
    for bytes in [300, 5000, 70_000] {
        live.extend(rig.block(&home, bytes));
    }
    rig.agrees_with(&live.iter().collect::<Vec<_>>());
}

/// The device is full: the pool gives back what it holds, asks its hooks, waits for queues, and gives up.
pub(crate) fn memory_runs_out(rig: &mut Rig) {
    let (home, other) = (rig.home.clone(), rig.other.clone());
    let cache: Arc<Mutex<Vec<Block>>> = Arc::default();
    let to_clear = Arc::downgrade(&cache);
    let hook = rig.pool.add_reclaim_hook(move |_| {
        if let Some(cache) = to_clear.upgrade() {
            cache.lock().unwrap().clear();
        }
        false
    });
    for _ in 0..4 {
        drop(rig.block(&home, CAPACITY / 8));
    }
    // Another class: what is held has to go.
    let large = rig.block(&home, CAPACITY / 2 + 1);
    let cached = rig.block(&other, CAPACITY / 4);
    cache.lock().unwrap().extend(cached);
    // The hook drops its block.
    let more = rig.block(&home, CAPACITY / 4);
    // Nothing helps.
    let too_much = rig.note(rig.pool.allocate(CAPACITY / 2));
    drop((more, too_much));
    drop(large);
    cache.lock().unwrap().clear();
    rig.agrees_with(&[]);
    // What another queue used, after a gate, is waited for.
    let gate = rig.gate();
    if let Some(block) = rig.block(&other, CAPACITY / 2 + 1) {
        rig.fill_behind(&block, &other, gate.as_ref());
    }
    let whole = rig.note(rig.pool.allocate_on(&home, CAPACITY));
    rig.open(gate);
    drop(whole);
    let whole = rig.note(rig.pool.allocate_on(&home, CAPACITY));
    rig.agrees_with(&whole.iter().collect::<Vec<_>>());
    drop(whole);
    assert!(rig.pool.remove_reclaim_hook(hook));
    assert!(rig.pool.would_fit(0));
}

/// Blocks go from queue to queue, in order or not.
pub(crate) fn blocks_cross_queues(rig: &mut Rig) {
    let queues = [rig.home.clone(), rig.other.clone(), rig.unordered.clone()];
    for step in 0..6 {
        let (first, second) = (&queues[step % 3], &queues[(step + 1) % 3]);
        let block = rig.block(first, 2000);
        if let Some(block) = &block
            && rig.note(block.order_before(second)).is_some()
        {
            rig.fill(block, second);
        }
        rig.agrees_with(&block.iter().collect::<Vec<_>>());
        drop(block);
        drop(rig.block(second, 2000));
    }
    // A queue that the program is done with.
    if let Some(third) = rig.note(rig.backend().create_queue(binpool::QueueOrder::InOrder)) {
        drop(rig.block(&third, 2000));
        rig.pool.retire_queue(&third);
        rig.note(third.flush());
    }
    drop(rig.block(&queues[0], 2000));
    rig.agrees_with(&[]);
}

/// Blocks are bound to queues, unbound, and released after events.
pub(crate) fn blocks_are_bound_and_released_by_commands(rig: &mut Rig) {
    let (home, other, unordered) = (rig.home.clone(), rig.other.clone(), rig.unordered.clone());
    if let Some(mut block) = rig.block(&home, 3000) {
        rig.note(block.bind_to_queue(&other));
        rig.agrees_with(&[&block]);
        rig.note(block.unbind_from_queue());
        rig.agrees_with(&[&block]);
        rig.note(block.bind_to_queue(&home));
        rig.note(block.release());
    }
    rig.agrees_with(&[]);
    for queue in [Some(&other), Some(&unordered), None] {
        let gate = rig.gate();
        if let Some(block) = rig.block(&home, 3000) {
            let events: Vec<_> = gate.iter().cloned().collect();
            let freed = rig.note(block.enqueue_release(queue, &events));
            rig.open(gate);
            drop(freed);
        } else {
            rig.open(gate);
        }
        rig.agrees_with(&[]);
    }
    // Views, and all kinds of transfers.
    if let Some(block) = rig.block(&home, 3000) {
        if let Some(view) = rig.note(block.view(0..512))
            && let Some(memory) = view.memory_on(&home)
        {
            let all = Region::first(512);
            rig.note(rig.backend().enqueue_fill(&home, memory, all, &[1_u8]));
        }
        rig.note(block.write(&home, 0, &[1_u8; 64]));
        let written = rig.note(block.enqueue_write(&home, 0, [2; 64].into()));
        let read = rig.note(block.enqueue_read(home.after(written.as_slice()), 0..64));
        if let Some(read) = read {
            rig.note(read.wait());
        }
        if let Some(copy) = rig.block(&home, 3000) {
            rig.note(
                block.enqueue_copy_to(
                    home.after(
                        from_ref(&written)
                            .iter()
                            .flatten()
                            .cloned()
                            .collect::<Vec<_>>()
                            .as_slice(),
                    ),
                    &copy,
                ),
            );
            rig.agrees_with(&[&block, &copy]);
        }
    }
    rig.agrees_with(&[]);
}

/// What comes after a pending command fails, on queues of both orders, while blocks go from queue to queue.
pub(crate) fn commands_fail(rig: &mut Rig) {
    let home = rig.home.clone();
    for queue in [rig.other.clone(), rig.unordered.clone()] {
        let (gate, failing) = (rig.gate(), rig.gate());
        if let Some(block) = rig.note(rig.pool.allocate_on(&queue, 2000)) {
            rig.fill_behind(&block, &queue, gate.as_ref());
        }
        let fails = rig
            .backend()
            .enqueue_marker(queue.after(failing.as_slice()));
        drop(rig.note(fails));
        // The pool looks at the queue before the failure, and after it.
        let before = rig.block(&home, 2000);
        rig.fail(failing);
        let after = rig.block(&home, 2000);
        drop((before, after));
        drop(rig.block(&queue, 2000));
        rig.open(gate);
        rig.agrees_with(&[]);
    }
}

/// No user reads what another left, not even where a fill fails.
pub(crate) fn blocks_are_scrubbed(rig: &mut Rig) {
    let queues = [rig.home.clone(), rig.other.clone(), rig.unordered.clone()];
    for queue in queues.iter().cycle().take(5) {
        if let Some(block) = rig.note(rig.pool.allocate_on(queue, 1024)) {
            let mut bytes = [0_u8; 1024];
            if rig.note(block.read(queue, 0, &mut bytes)).is_some() {
                assert_eq!(bytes, [0; 1024], "bytes of another user");
            }
            rig.fill(&block, queue);
            rig.agrees_with(&[&block]);
        }
        rig.agrees_with(&[]);
    }
    if let Some(block) = rig.block(&queues[0], 1024) {
        rig.note(block.enqueue_release(Some(&queues[1]), &[]));
    }
    rig.agrees_with(&[]);
}

/// The pool gives memory back in all the ways that it has.
pub(crate) fn memory_goes_back(rig: &mut Rig) {
    let (home, other) = (rig.home.clone(), rig.other.clone());
    let take = |rig: &Rig| {
        let sizes = [600, 9000, 40_000];
        let blocks: Vec<_> = sizes
            .into_iter()
            .map(|bytes| rig.block(&home, bytes))
            .collect();
        let kept = rig.block(&other, 700);
        drop(blocks);
        kept
    };
    let kept = take(rig);
    rig.pool.trim_to(10_000);
    rig.agrees_with(&kept.iter().collect::<Vec<_>>());
    drop(kept);
    let kept = take(rig);
    rig.pool.free_held();
    rig.agrees_with(&kept.iter().collect::<Vec<_>>());
    rig.pool.stop_holding();
    if let Some(kept) = kept {
        rig.note(kept.release());
    }
    drop(take(rig));
    rig.agrees_with(&[]);
    rig.pool.resume_holding();
    drop(take(rig));
    rig.pool.sweep();
    rig.pool.sweep();
    rig.agrees_with(&[]);
}

/// The pool sweeps by itself, and by a thread.
pub(crate) fn idle_memory_is_swept(rig: &mut Rig) {
    let home = rig.home.clone();
    for step in 0..12 {
        drop(rig.block(&home, 500 + 4000 * (step % 4)));
    }
    rig.agrees_with(&[]);
}

/// Detached memory belongs to the program alone.
pub(crate) fn blocks_leave_the_pool(rig: &mut Rig) {
    let home = rig.home.clone();
    let [first, second] = [4000, 4000].map(|bytes| rig.block(&home, bytes));
    let limited = rig.budget.used_bytes();
    let detached = first.and_then(Block::detach);
    let statistics = rig.pool.statistics();
    let live = u64::from(second.is_some());
    assert_eq!(statistics.active_blocks, live);
    assert_eq!(rig.budget.used_bytes(), limited);
    drop(second);
    // Back to the limit that it was taken from, if it was a block of its own.
    if let Some(memory) = detached {
        let is_own = limited > rig.pool.managed_bytes();
        if is_own {
            rig.note(rig.pool.allocator().release(memory, &[]));
        } else {
            rig.has_taken_a_part = true;
            drop(memory);
        }
    }
}

/// Threads allocate and drop, and drop what others allocated.
pub(crate) fn threads_share_the_pool(rig: &mut Rig) {
    let ears = tracing::dispatcher::get_default(Clone::clone);
    let sweeper = rig.pool.sweep_in_background(Duration::from_micros(200));
    let rig = &*rig;
    thread::scope(|scope| {
        let (give, take) = channel::<Block>();
        let givers = [&rig.home, &rig.other].map(|queue| {
            let (give, ears) = (give.clone(), ears.clone());
            scope.spawn(move || {
                tracing::dispatcher::with_default(&ears, || {
                    for step in 0..8 {
                        let block = rig.block(queue, 300 + 600 * (step % 3));
                        if step % 2 == 0 {
                            let _all_are_gone = block.map(|block| give.send(block));
                        }
                    }
                });
            })
        });
        drop(give);
        let taker = scope.spawn(move || {
            tracing::dispatcher::with_default(&ears, || take.iter().for_each(drop));
        });
        // A thread that is joined has given back what it kept.
        for giver in givers {
            giver.join().unwrap();
        }
        taker.join().unwrap();
    });
    drop(sweeper);
    // What the sweeper hears goes to its own log.
    rig.hear_elsewhere();
    rig.agrees_with(&[]);
}
