//! What each reuse policy lets a queue take from another, in which order, and what it costs.

use std::{thread, time::Duration};

use binpool::{Event, EventStatus, PoolOptions, Queue, QueueOrder, ReusePolicy};
use binpool_mock::{CallKind, Completion, Fault, HostWait, MockDevice, MockQueue, Persistence};

use crate::common::{Block, MIB, Rig};

fn rig(policy: ReusePolicy) -> Rig {
    Rig::with_policy(MockDevice::builder().log_calls(true), policy)
}

/// Commands run only when the test, or a wait, has them run.
fn manual_rig(policy: ReusePolicy) -> Rig {
    let builder = MockDevice::builder()
        .log_calls(true)
        .completion(Completion::Manual);
    Rig::with_policy(builder, policy)
}

/// How often these kinds of call were made since.
fn calls(rig: &Rig, kinds: [CallKind; 2]) -> [u64; 2] {
    kinds.map(|kind| rig.device.call_count(kind))
}

#[test]
fn every_policy_reuses_on_the_same_queue_without_a_call() {
    for policy in ReusePolicy::ALL {
        let rig = manual_rig(policy);
        let gate = rig.gate();
        drop(rig.gated(&rig.queue, &gate));
        let before = rig.device.statistics().total_calls();
        let block = rig.pool.allocate(100).unwrap();
        assert_eq!(rig.device.statistics().total_calls(), before, "{policy:?}");
        assert_eq!(rig.pool.statistics().hits, 1, "{policy:?}");
        drop(block);
        rig.open(&gate);
    }
}

#[test]
fn the_same_queue_never_crosses() {
    let rig = rig(ReusePolicy::SameQueue);
    let other = rig.another_queue(QueueOrder::InOrder);
    drop(rig.pool.allocate(100).unwrap());
    let elsewhere = rig.pool.allocate_on(&other, 100).unwrap();
    assert_eq!(rig.pool.statistics().hits, 0);
    drop(elsewhere);
    let _own = [
        rig.pool.allocate(100).unwrap(),
        rig.pool.allocate_on(&other, 100).unwrap(),
    ];
    assert_eq!(rig.pool.statistics().hits, 2);
}

#[test]
fn the_same_queue_has_its_own_blocks_back_when_other_queues_are_done_with_them() {
    let rig = rig(ReusePolicy::SameQueue);
    let [other, unordered] =
        [QueueOrder::InOrder, QueueOrder::OutOfOrder].map(|order| rig.another_queue(order));
    let lent = rig.pool.allocate(100).unwrap();
    lent.enqueue_fill(&other, 0..100, &[1_u8]).unwrap();
    let memory = lent.memory_id();
    drop(lent);
    assert_ne!(
        rig.pool.allocate_on(&other, 100).unwrap().memory_id(),
        memory
    );
    assert_eq!(rig.pool.allocate(100).unwrap().memory_id(), memory);

    let gate = rig.gate();
    let block = rig.gated(&unordered, &gate);
    let memory = block.memory_id();
    drop(block);
    assert_ne!(
        rig.pool.allocate_on(&unordered, 100).unwrap().memory_id(),
        memory
    );
    rig.open(&gate);
    assert_eq!(
        rig.pool.allocate_on(&unordered, 100).unwrap().memory_id(),
        memory
    );
}

#[test]
fn opportunism_crosses_when_the_commands_have_ended() {
    let rig = rig(ReusePolicy::Opportunistic);
    let [producer, consumer] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
    let gate = rig.gate();
    let block = rig.gated(&producer, &gate);
    let memory = block.memory_id();
    drop(block);
    let fresh = rig.pool.allocate_on(&consumer, 100).unwrap();
    assert_ne!(fresh.memory_id(), memory);
    rig.open(&gate);
    let crossed = rig.pool.allocate_on(&consumer, 100).unwrap();
    assert_eq!(crossed.memory_id(), memory);
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.ended_hits, statistics.hits), (1, 1));
    // It asked once, waited nowhere, and held no thread up.
    assert_eq!(calls(&rig, [CallKind::Marker, CallKind::Barrier]), [1, 0]);
    assert_eq!(calls(&rig, [CallKind::Wait, CallKind::Finish]), [0, 0]);
}

#[test]
fn an_inserted_wait_crosses_at_once_and_the_host_waits_for_nothing() {
    let rig = manual_rig(ReusePolicy::InsertWait);
    let [producer, consumer] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
    let gate = rig.gate();
    let block = rig.gated(&producer, &gate);
    let memory = block.memory_id();
    drop(block);
    let before = rig.device.calls().len();
    let block = rig.pool.allocate_on(&consumer, 100).unwrap();
    assert_eq!(block.memory_id(), memory);
    assert_eq!(rig.pool.statistics().device_wait_hits, 1);
    // The producer is flushed before the consumer waits for it (OpenCL 3.0, section 5.15).
    let made: Vec<CallKind> = rig.device.calls()[before..]
        .iter()
        .map(|call| call.kind)
        .filter(|kind| *kind != CallKind::Status)
        .collect();
    assert_eq!(made, [CallKind::Marker, CallKind::Flush, CallKind::Barrier]);
    // Opened late, the new owner's bytes are the ones that stay.
    let filled = block.enqueue_fill(&consumer, 0..100, &[2_u8]).unwrap();
    rig.device.run();
    assert_eq!(filled.status().unwrap(), EventStatus::Pending);
    rig.open(&gate);
    rig.device.run();
    assert_eq!(filled.status().unwrap(), EventStatus::Complete);
    let mut bytes = [0_u8; 100];
    block.read(&consumer, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 100]);
}

#[test]
fn an_inserted_wait_orders_an_out_of_order_queue() {
    for seed in 0..50 {
        let builder = MockDevice::builder().completion(Completion::Seeded(seed));
        let rig = Rig::with_policy(builder, ReusePolicy::InsertWait);
        let queue = rig.another_queue(QueueOrder::OutOfOrder);
        let gate = rig.gate();
        drop(rig.gated(&queue, &gate));
        let block = rig.pool.allocate_on(&queue, 100).unwrap();
        assert_eq!(rig.pool.statistics().hits, 1);
        let filled = block.enqueue_fill(&queue, 0..100, &[2_u8]).unwrap();
        rig.open(&gate);
        let mut bytes = [0_u8; 100];
        block.read(queue.after(&[filled]), 0, &mut bytes).unwrap();
        assert_eq!(bytes, [2; 100], "seed {seed}");
    }
}

#[test]
fn one_inserted_wait_serves_every_block_that_was_free_before_it() {
    let rig = manual_rig(ReusePolicy::InsertWait);
    let [producer, consumer] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
    let blocks: Vec<_> = (0..10)
        .map(|_| {
            let block = rig.pool.allocate_on(&producer, 100).unwrap();
            block.enqueue_fill(&producer, 0..100, &[1_u8]).unwrap();
            block
        })
        .collect();
    drop(blocks);
    let blocks: Vec<_> = (0..10)
        .map(|_| rig.pool.allocate_on(&consumer, 100).unwrap())
        .collect();
    assert_eq!(rig.pool.statistics().hits, 10);
    assert_eq!(calls(&rig, [CallKind::Marker, CallKind::Barrier]), [1, 1]);
    drop(blocks);
}

#[test]
fn waiting_on_the_host_crosses_at_once() {
    let rig = manual_rig(ReusePolicy::WaitOnHost);
    let [producer, consumer] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
    let block = rig.pool.allocate_on(&producer, 100).unwrap();
    let filled = block.enqueue_fill(&producer, 0..100, &[1_u8]).unwrap();
    drop(block);
    assert_eq!(filled.status().unwrap(), EventStatus::Pending);
    let _block = rig.pool.allocate_on(&consumer, 100).unwrap();
    assert_eq!(filled.status().unwrap(), EventStatus::Complete);
    let statistics = rig.pool.statistics();
    assert_eq!((statistics.hits, statistics.host_wait_hits), (1, 1));
    assert_eq!(rig.device.call_count(CallKind::Barrier), 0);
}

#[test]
fn a_wait_that_cannot_be_had_costs_fresh_memory_and_no_block() {
    for (policy, kind) in [
        (ReusePolicy::InsertWait, CallKind::Barrier),
        (ReusePolicy::WaitOnHost, CallKind::Wait),
    ] {
        let rig = manual_rig(policy);
        let [producer, consumer] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
        let gate = rig.gate();
        let block = rig.gated(&producer, &gate);
        let memory = block.memory_id();
        drop(block);
        rig.device
            .fail_nth(kind, 1, Fault::Backend(-1), Persistence::Once);
        let fresh = rig.pool.allocate_on(&consumer, 100).unwrap();
        assert_ne!(fresh.memory_id(), memory);
        assert_eq!(rig.pool.held_blocks(), 1);
        let again = rig.pool.allocate_on(&producer, 100).unwrap();
        assert_eq!(again.memory_id(), memory, "{policy:?}");
        rig.open(&gate);
    }
}

#[test]
fn the_cheapest_block_comes_first() {
    let rig = manual_rig(ReusePolicy::InsertWait);
    let [own, ended, running] = [(); 3].map(|()| rig.another_queue(QueueOrder::InOrder));
    let gate = rig.gate();
    // Allocated before any is free, so that they are four blocks.
    let blocks = [&own, &ended, &running].map(|queue| {
        let block = rig.pool.allocate_on(queue, 100).unwrap();
        let wait_for = if queue == &ended {
            &[]
        } else {
            std::slice::from_ref(&gate)
        };
        block
            .enqueue_fill(queue.after(wait_for), 0..100, &[1_u8])
            .unwrap();
        block
    });
    let memories = [&blocks[0], &blocks[1], &blocks[2]].map(Block::memory_id);
    ended.finish().unwrap();
    drop(blocks);
    // The marker that will tell that its commands have ended has to run, too.
    let fresh_for_nobody = rig.pool.allocate_on(&ended, 200_000).unwrap();
    rig.device.run();

    let got: Vec<_> = (0..4)
        .map(|_| rig.pool.allocate_on(&own, 100).unwrap())
        .collect();
    let found: Vec<_> = got.iter().map(Block::memory_id).collect();
    assert_eq!(found[0], memories[0], "same queue");
    assert!(found[1..3].contains(&memories[1]) && found[1..3].contains(&memories[2]));
    assert!(!memories.contains(&found[3]), "fresh memory");
    rig.open(&gate);
    drop(fresh_for_nobody);
}

#[test]
fn all_uses_on_all_queues_are_honoured() {
    for policy in ReusePolicy::ALL {
        let rig = manual_rig(policy);
        let queues = [(); 3].map(|()| rig.another_queue(QueueOrder::InOrder));
        let gates = [(); 3].map(|()| rig.gate());
        let block = rig.pool.allocate_on(&queues[0], 100).unwrap();
        let memory = block.memory_id();
        for (queue, gate) in queues.iter().zip(&gates) {
            block
                .enqueue_fill(queue.after(std::slice::from_ref(gate)), 0..100, &[1_u8])
                .unwrap();
        }
        drop(block);
        for gate in &gates {
            if policy != ReusePolicy::InsertWait {
                let early = rig.pool.allocate_on(&queues[0], 100).unwrap();
                assert_ne!(early.memory_id(), memory, "{policy:?}");
                // Out of the way, so that the next round asks for the first one again.
                drop(early.detach());
            }
            rig.open(gate);
            rig.device.run();
        }
        let block = rig.pool.allocate_on(&queues[0], 100).unwrap();
        assert_eq!(block.memory_id(), memory, "{policy:?}");
    }
}

#[test]
fn hand_overs_leave_nothing_behind() {
    for policy in ReusePolicy::ALL {
        for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
            let rig = Rig::with_policy(
                MockDevice::builder().completion(Completion::Seeded(1)),
                policy,
            );
            let queues = [(); 2].map(|()| rig.another_queue(order));
            let mut most_events = 0;
            for turn in 0..5_000 {
                let queue = &queues[turn % 2];
                let block = rig.pool.allocate_on(queue, 100).unwrap();
                block.enqueue_fill(queue, 0..100, &[1_u8]).unwrap();
                drop(block);
                if turn % 64 == 0 {
                    rig.device.run();
                }
                most_events = most_events.max(rig.device.live_events());
            }
            // A command's event lives until it has ended: 64 turns of a fill, a marker and a barrier.
            assert!(
                most_events < 64 * 3 + 16,
                "{policy:?}, {order:?}: {most_events} events"
            );
            // The first has the queues marked, the second sees that they have got there.
            for _ in 0..2 {
                rig.pool.free_held();
                rig.device.run();
            }
            rig.pool.free_held();
            drop(queues);
            assert_eq!(rig.device.live_events(), 0, "{policy:?}, {order:?}");
            assert_eq!(rig.device.live_queues(), 2, "{policy:?}, {order:?}");
        }
    }
}

#[test]
fn a_pipeline_needs_no_more_memory_in_its_later_rounds() {
    for policy in ReusePolicy::ALL {
        let rig = manual_rig(policy);
        let [upload, compute] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
        let round = || {
            for _ in 0..8 {
                let chunk = rig.pool.allocate_on(&upload, 100).unwrap();
                chunk.enqueue_fill(&upload, 0..100, &[1_u8]).unwrap();
                chunk.order_before(&compute).unwrap();
                let result = rig.pool.allocate_on(&compute, 100).unwrap();
                chunk.enqueue_copy_to(&compute, &result).unwrap();
            }
            rig.device.run();
            rig.pool.statistics().misses
        };
        let misses = (round(), round()).1;
        for _ in 0..5 {
            assert_eq!(round(), misses, "{policy:?}");
        }
    }
}

#[test]
fn memory_of_a_queue_that_is_gone_comes_back() {
    // RMM's issue 2039: two streams, one of them gone, and out of memory with everything free.
    for policy in ReusePolicy::ALL {
        let builder = MockDevice::builder().capacity_bytes(MIB as u64);
        let rig = Rig::with_policy(builder, policy);
        let queues = rig.device.live_queues();
        {
            let gone = rig.another_queue(QueueOrder::InOrder);
            let block = rig.pool.allocate_on(&gone, MIB).unwrap();
            block.enqueue_fill(&gone, 0..MIB, &[1_u8]).unwrap();
        }
        let all = rig.pool.allocate(MIB).unwrap();
        assert_eq!(all.class_size(), MIB, "{policy:?}");
        drop(all);
        // And the queue goes with the next memory that is asked of the device, or when it is told to.
        if policy == ReusePolicy::SameQueue {
            rig.pool.free_held();
        } else {
            drop(rig.pool.allocate(100));
        }
        assert_eq!(rig.device.live_queues(), queues, "{policy:?}");
    }
}

#[test]
fn a_queue_that_is_retired_gives_its_blocks_to_all() {
    let rig = rig(ReusePolicy::SameQueue);
    let queues = rig.device.live_queues();
    let done = rig.another_queue(QueueOrder::InOrder);
    let gate = rig.gate();
    let (gated, active) = (
        rig.gated(&done, &gate),
        rig.pool.allocate_on(&done, 100).unwrap(),
    );
    let memories = [gated.memory_id(), active.memory_id()];
    drop(gated);
    rig.pool.retire_queue(&done);
    drop(done);
    let early = rig.pool.allocate(100).unwrap();
    assert!(!memories.contains(&early.memory_id()));
    rig.open(&gate);
    assert_eq!(rig.pool.allocate(100).unwrap().memory_id(), memories[0]);
    // What was in use then comes back later, and with it the queue goes.
    drop(active);
    let blocks = [(); 3].map(|()| rig.pool.allocate(100).unwrap());
    assert!(blocks.iter().any(|block| block.memory_id() == memories[1]));
    drop((blocks, early));
    rig.pool.retire_queue(&rig.queue);
    assert_eq!(rig.device.live_queues(), queues);
}

#[test]
fn a_retired_queue_that_is_used_again_is_a_queue_like_any_other() {
    let rig = rig(ReusePolicy::SameQueue);
    let other = rig.another_queue(QueueOrder::InOrder);
    let active = rig.pool.allocate_on(&other, 100).unwrap();
    rig.pool.retire_queue(&other);
    drop(rig.pool.allocate_on(&other, 100).unwrap());
    drop(active);
    let _fresh = rig.pool.allocate(100).unwrap();
    assert_eq!(rig.pool.statistics().hits, 0);
}

#[test]
fn a_full_device_lends_across_queues_under_every_policy() {
    for policy in ReusePolicy::ALL {
        let builder = MockDevice::builder().capacity_bytes(MIB as u64);
        let rig = Rig::with_policy(builder, policy);
        let other = rig.another_queue(QueueOrder::InOrder);
        let block = rig.pool.allocate_on(&other, MIB).unwrap();
        block.enqueue_fill(&other, 0..MIB, &[1_u8]).unwrap();
        let memory = block.memory_id();
        drop(block);
        // A smaller request: the larger free block of the other queue, rather than no memory.
        assert_eq!(
            rig.pool.allocate(MIB / 2).unwrap().memory_id(),
            memory,
            "{policy:?}"
        );
    }
}

#[test]
fn only_queues_that_hold_memory_back_are_waited_for() {
    for policy in ReusePolicy::ALL {
        let builder = MockDevice::builder()
            .capacity_bytes(MIB as u64)
            .completion(Completion::Manual);
        let rig = Rig::with_policy(builder, policy);
        let [stuck, holding] = [(); 2].map(|()| rig.another_queue(QueueOrder::InOrder));
        // Waiting for this queue would be waiting forever. It has used a block, but holds none back.
        let gate = rig.gate();
        let active = rig.gated(&stuck, &gate);
        drop(rig.gated(&stuck, &gate));
        let reused = rig.gated(&stuck, &gate);
        let block = rig.pool.allocate_on(&holding, MIB / 2).unwrap();
        block.enqueue_fill(&holding, 0..1, &[1_u8]).unwrap();
        drop(block);
        let got = rig.pool.allocate(MIB * 3 / 4).unwrap();
        assert_eq!(rig.device.call_count(CallKind::Finish), 0, "{policy:?}");
        drop((got, active, reused));
        rig.open(&gate);
    }
}

#[test]
fn threads_with_queues_of_their_own_share_a_pool_under_every_policy() {
    const THREADS: u8 = 4;
    const ROUNDS: usize = 300;
    for policy in ReusePolicy::ALL {
        // As much memory as the threads have in use at most, so that blocks have to cross.
        let builder = MockDevice::builder()
            .capacity_bytes(u64::from(THREADS) * 2 * 4096)
            .completion(Completion::Seeded(3))
            .host_waits(HostWait::Block);
        let rig = Rig::with_policy(builder, policy);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let rig = &rig;
                scope.spawn(move || {
                    let order =
                        [QueueOrder::InOrder, QueueOrder::OutOfOrder][usize::from(thread % 2)];
                    let queue = rig.another_queue(order);
                    for round in 0..ROUNDS {
                        let bytes = 1024 << (round % 3);
                        let blocks = [(); 2].map(|()| rig.pool.allocate_on(&queue, bytes).unwrap());
                        let filled = blocks
                            .each_ref()
                            .map(|block| block.enqueue_fill(&queue, 0..bytes, &[thread]).unwrap());
                        let mut contents = vec![!thread; bytes];
                        blocks[1]
                            .read(queue.after(&filled), 0, &mut contents)
                            .unwrap();
                        assert!(contents.iter().all(|byte| *byte == thread), "{policy:?}");
                    }
                });
            }
        });
        let statistics = rig.pool.statistics();
        assert_eq!(statistics.active_blocks, 0);
        assert_eq!(statistics.held_bytes, statistics.managed_bytes);
        assert!(rig.device.violations().is_empty());
    }
}

#[test]
fn a_queue_alone_has_its_blocks_whatever_has_ended() {
    let rig = rig(ReusePolicy::SameQueue);
    let other = rig.another_queue(QueueOrder::InOrder);
    let [theirs, own] = [&other, &rig.queue].map(|queue| {
        let block = rig.pool.allocate_on(queue, 100).unwrap();
        block.enqueue_fill(queue, 0..100, &[1_u8]).unwrap();
        block
    });
    own.enqueue_fill(&other, 0..100, &[2_u8]).unwrap();
    let [theirs, own] = [theirs, own].map(|block| block.memory_id());
    // The look that it takes for this one shows that the other queue has ended.
    let first = rig.pool.allocate(100).unwrap();
    assert_eq!(first.memory_id(), own);
    let second = rig.pool.allocate(100).unwrap();
    assert_ne!(second.memory_id(), theirs);
}

#[test]
fn a_block_that_comes_back_has_a_marker_behind_each_use_that_no_order_covers() {
    let [ordered, unordered] = [QueueOrder::InOrder, QueueOrder::OutOfOrder];
    for (own, others, markers) in [
        (ordered, &[][..], 0),
        (ordered, &[ordered][..], 1),
        (ordered, &[unordered, ordered], 2),
        (unordered, &[], 1),
        (unordered, &[ordered], 2),
    ] {
        let rig = manual_rig(ReusePolicy::default());
        let block = rig.pool.allocate_on(&rig.another_queue(own), 100).unwrap();
        for other in others {
            block.record_use(&rig.another_queue(*other)).unwrap();
        }
        let before = rig.device.call_count(CallKind::Marker);
        drop(block);
        let made = rig.device.call_count(CallKind::Marker) - before;
        assert_eq!(made, markers, "{own:?} {others:?}");
    }
}

/// A pool of segments where commands end only when they are told to, or when something waits for them.
fn manual_rig_of_segments(policy: ReusePolicy) -> Rig {
    let builder = MockDevice::builder().completion(Completion::Manual);
    Rig::with_options(builder, PoolOptions::new().segments(true).reuse(policy))
}

/// A block of 32 MiB that was used on this queue.
fn use_and_drop(rig: &Rig, queue: &MockQueue) {
    let block = rig.pool.allocate_on(queue, 32 * MIB).unwrap();
    block.enqueue_fill(queue, 0..MIB, &[1_u8]).unwrap();
    drop(block);
}

#[test]
fn the_same_queue_looks_at_no_segment_of_another_queue() {
    // The first look enqueues a marker, and the queue of a request gets one so early that other queues can have its memory.
    for (policy, looks, markers) in [
        (ReusePolicy::SameQueue, false, 0),
        (ReusePolicy::Opportunistic, true, 2),
    ] {
        let rig = manual_rig_of_segments(policy);
        let other = rig.another_queue(QueueOrder::InOrder);
        use_and_drop(&rig, &other);
        let before = calls(&rig, [CallKind::Marker, CallKind::Status]);
        let block = rig.pool.allocate(32 * MIB).unwrap();
        let after = calls(&rig, [CallKind::Marker, CallKind::Status]);
        assert_eq!(after[0] - before[0], markers, "{policy:?}");
        assert_eq!(after[1] > before[1], looks, "{policy:?}");
        assert_eq!(
            rig.device.call_count(CallKind::CreateBuffer),
            2,
            "{policy:?}"
        );
        drop(block);
        assert!(rig.device.violations().is_empty());
    }
}

#[test]
fn the_same_queue_looks_at_its_own_segments_and_at_those_of_queues_that_are_gone() {
    // An out-of-order queue has its own memory back once its commands have ended.
    let builder = MockDevice::builder();
    let options = PoolOptions::new()
        .segments(true)
        .reuse(ReusePolicy::SameQueue);
    let rig = Rig::with_options(builder, options);
    let unordered = rig.another_queue(QueueOrder::OutOfOrder);
    for _ in 0..3 {
        use_and_drop(&rig, &unordered);
    }
    assert_eq!(rig.device.call_count(CallKind::CreateBuffer), 1);
    // So has every queue that of one that the program is done with.
    rig.pool.retire_queue(&unordered);
    let _block = rig.pool.allocate(32 * MIB).unwrap();
    assert_eq!(rig.device.call_count(CallKind::CreateBuffer), 1);
}

#[test]
fn the_same_queue_looks_once_where_only_another_queue_holds_memory_back() {
    let rig = manual_rig_of_segments(ReusePolicy::SameQueue);
    let other = rig.another_queue(QueueOrder::InOrder);
    let own = rig.pool.allocate(4 * MIB).unwrap();
    own.enqueue_fill(&rig.queue, 0..MIB, &[1_u8]).unwrap();
    drop(own);
    use_and_drop(&rig, &other);
    let before = rig.device.call_count(CallKind::Status);
    // Its own segment is too small, and needs no look.
    let _block = rig.pool.allocate(32 * MIB).unwrap();
    let looks = rig.device.call_count(CallKind::Status) - before;
    assert!(looks <= 1, "{looks} looks");
}

/// What a request does on a device where markers take so long on a queue that has nothing else to do: how many segments were made, and
/// how often the request read a status.
fn look_at_an_idle_queue(markers: Duration) -> (u64, u64) {
    let behind = Completion::Behind {
        commands: Duration::from_millis(2),
        markers,
    };
    let builder = MockDevice::builder().completion(behind);
    let rig = Rig::with_options(builder, PoolOptions::new().segments(true));
    let other = rig.another_queue(QueueOrder::InOrder);
    use_and_drop(&rig, &other);
    // The fill has ended, which the pool has not seen.
    rig.device.pass(Duration::from_millis(2));
    let before = rig.device.call_count(CallKind::Status);
    let block = rig.pool.allocate(32 * MIB).unwrap();
    let looks = rig.device.call_count(CallKind::Status) - before;
    drop(block);
    assert!(rig.device.violations().is_empty());
    (rig.device.call_count(CallKind::CreateBuffer), looks)
}

#[test]
fn a_marker_that_ends_after_a_few_looks_serves_a_request_without_a_call_for_memory() {
    // A look takes 100 ns.
    for (nanoseconds, segments, looks) in [
        (0, 1, 1),
        (500, 1, 5),
        (1500, 1, 15),
        // The request does not go on forever: it looks as long as fresh memory takes.
        (100_000, 2, 129),
    ] {
        let markers = Duration::from_nanos(nanoseconds);
        assert_eq!(
            look_at_an_idle_queue(markers),
            (segments, looks),
            "{markers:?}"
        );
    }
}

/// Commands that never end. The price of fresh memory doubles for each sixteenth of what was in use that the pool has beyond it.
#[test]
fn the_more_the_pool_has_the_longer_a_request_looks_before_it_asks_for_more() {
    let builder = MockDevice::builder().completion(Completion::Manual);
    let options = PoolOptions::new().segments(true);
    let rig = Rig::with_options(builder.capacity_bytes(64 << 30), options);
    let other = rig.another_queue(QueueOrder::InOrder);
    // 512 MiB that the first queue uses forever.
    let blocks: Vec<_> = (0..16)
        .map(|_| {
            let block = rig.pool.allocate(32 * MIB).unwrap();
            block.enqueue_fill(&rig.queue, .., &[1_u8]).unwrap();
            block
        })
        .collect();
    drop(blocks);
    let mut live = Vec::new();
    let mut looks = || {
        let before = rig.device.call_count(CallKind::Status);
        live.push(rig.pool.allocate_on(&other, 32 * MIB).unwrap());
        rig.device.call_count(CallKind::Status) - before
    };
    // A first look makes the marker. The pool may have a tenth more than was in use; then an idle segment goes for each new one.
    let until_as_much_is_live = [(); 16].map(|()| looks());
    assert!(
        until_as_much_is_live.is_sorted(),
        "{until_as_much_is_live:?}"
    );
    let each = |doublings: u32| 1 + (128_u64 << doublings);
    assert_eq!(until_as_much_is_live[..5], [0, 1, 1, 1, 1].map(each));
    // What is in use is the most that has been from here on, and the pool has nothing beyond it.
    assert_eq!([(); 4].map(|()| looks()), [each(0); 4]);
    assert_eq!(rig.device.violations(), []);
}
