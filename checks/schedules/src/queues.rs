//! Threads with queues of their own, on a device that runs commands when it likes: the mock reports every race.

use std::slice::from_ref;

use binpool::{Backend, Outcome, PoolOptions, Queue, QueueOrder, ReusePolicy, ScrubPolicy};
use binpool_allocators::FailureOrder;
use binpool_mock::{Completion, Failures, HostWait, MockDevice, MockQueue};

use crate::{
    program::{
        Program,
        library::{sync::mpsc::channel, thread::yield_now},
    },
    world::{BYTES, Block, World, join},
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("queues-that-never-cross", 4, never_cross),
    Program::new("queues-that-cross-once-done", 4, cross_once_done),
    Program::new("queues-that-wait-for-each-other", 4, wait_for_each_other),
    Program::new("queues-of-segments", 4, of_segments),
    Program::new("queues-out-of-order", 4, out_of_order),
    Program::new("queues-that-are-retired", 3, are_retired),
    Program::new("queues-of-one-block", 3, of_one_block),
    Program::new("queues-that-blocks-are-bound-to", 3, blocks_are_bound_to),
    Program::new("queues-that-scrub", 3, scrub),
    Program::new("queues-of-commands-that-fail", 4, fail_in_turn),
    Program::new("queues-of-commands-that-fail-early", 4, fail_early),
    Program::new("queues-that-lose-their-order", 4, lose_their_order),
];

fn world(blocks: usize, options: PoolOptions) -> World {
    World::on(
        MockDevice::builder().completion(Completion::Manual),
        blocks,
        options,
    )
}

fn fill(block: &Block, queue: &MockQueue) {
    block.enqueue_fill(queue, 0..BYTES, &[1_u8]).unwrap();
}

/// Two threads use blocks on a queue each, a third steps the device, and a fourth looks at what is there.
fn two_queues(world: World, orders: [QueueOrder; 2]) {
    let users = orders.map(|order| {
        let queue = world.another_queue(order);
        world.spawn(move |world| {
            for _ in 0..2 {
                let block = world.pool.allocate_on(&queue, BYTES).unwrap();
                fill(&block, &queue);
            }
        })
    });
    let device = world.spawn(|world| {
        for _ in 0..3 {
            world.device.step();
            yield_now();
        }
    });
    let statistics = world.pool.statistics();
    assert!(statistics.pending_bytes <= statistics.held_bytes);
    world.pool.trim_to(BYTES as u64);
    join(users);
    join([device]);
    world.device.run();
    world.end(4);
}

fn crossing(blocks: usize, policy: ReusePolicy) -> World {
    world(blocks, PoolOptions::new().segments(false).reuse(policy))
}

const IN_ORDER: [QueueOrder; 2] = [QueueOrder::InOrder; 2];

fn never_cross() {
    two_queues(crossing(8, ReusePolicy::SameQueue), IN_ORDER);
}

fn cross_once_done() {
    two_queues(crossing(2, ReusePolicy::Opportunistic), IN_ORDER);
}

fn wait_for_each_other() {
    two_queues(crossing(2, ReusePolicy::InsertWait), IN_ORDER);
}

fn of_segments() {
    let options = PoolOptions::new()
        .segments(true)
        .reuse(ReusePolicy::InsertWait);
    two_queues(world(8, options), IN_ORDER);
}

fn out_of_order() {
    let orders = [QueueOrder::OutOfOrder, QueueOrder::InOrder];
    two_queues(crossing(2, ReusePolicy::Opportunistic), orders);
}

/// A queue is retired while one thread uses blocks on it, and another one allocates for it again.
fn are_retired() {
    let world = crossing(8, ReusePolicy::SameQueue);
    let queue = world.another_queue(QueueOrder::InOrder);
    let users = [(); 2].map(|()| {
        let queue = queue.clone();
        world.spawn(move |world| {
            let block = world.pool.allocate_on(&queue, BYTES).unwrap();
            fill(&block, &queue);
            drop(block);
            let block = world.pool.allocate(BYTES).unwrap();
            fill(&block, &world.queue);
        })
    });
    world.pool.retire_queue(&queue);
    world.pool.retire_queue(&queue);
    join(users);
    world.pool.retire_queue(&queue);
    drop(queue);
    // What is known to have ended depends on who looked when.
    for _ in 0..2 {
        world.device.run();
        world.pool.free_held();
    }
    // The home queue, and the allocator's own.
    assert_eq!(
        world.device.live_queues(),
        2,
        "the pool drops a retired queue"
    );
    // Threads have caches again.
    drop(world.pool.allocate(BYTES).unwrap());
    drop(world.pool.allocate(BYTES).unwrap());
    world.end(6);
}

/// Two threads use one block on a queue each, and a third one has the block at the end.
fn of_one_block() {
    let world = crossing(4, ReusePolicy::InsertWait);
    let block = std::sync::Arc::new(world.pool.allocate(BYTES).unwrap());
    let users = [(); 2].map(|()| {
        let block = std::sync::Arc::clone(&block);
        world.spawn(move |world| {
            let queue = world.another_queue(QueueOrder::InOrder);
            // Both only read, so that it is theirs at the same time.
            let read = block.enqueue_read(&queue, 0..BYTES).unwrap();
            drop(block);
            drop(read);
            let own = world.pool.allocate_on(&queue, BYTES).unwrap();
            fill(&own, &queue);
        })
    });
    drop(block);
    let next = world.pool.allocate(BYTES).unwrap();
    fill(&next, &world.queue);
    drop(next);
    join(users);
    world.device.run();
    world.end(4);
}

/// Blocks go from a thread with one queue to one with another, bound to it or to none.
fn blocks_are_bound_to() {
    let world = crossing(4, ReusePolicy::Opportunistic);
    let (send, receive) = channel::<Block>();
    let producer = world.spawn(move |world| {
        for is_bound in [true, false] {
            let mut block = world.pool.allocate(BYTES).unwrap();
            fill(&block, &world.queue);
            if !is_bound {
                block.unbind_from_queue().unwrap();
            }
            send.send(block).unwrap();
        }
    });
    let consumer = world.spawn(move |world| {
        let queue = world.another_queue(QueueOrder::InOrder);
        for mut block in receive {
            block.bind_to_queue(&queue).unwrap();
            fill(&block, &queue);
        }
        let own = world.pool.allocate_on(&queue, BYTES).unwrap();
        fill(&own, &queue);
    });
    world.device.step();
    world.pool.free_held();
    join([producer, consumer]);
    world.device.run();
    world.end(3);
}

/// No thread sees what another one left in a block.
fn scrub() {
    let options = PoolOptions::new()
        .segments(false)
        .scrub(ScrubPolicy::OnFree);
    let world = World::new(2, options);
    let users = world.spawn_two(|world| {
        for _ in 0..2 {
            let block = world.pool.allocate(BYTES).unwrap();
            let mut first = [1_u8];
            if world.pool.statistics().hits > 2 {
                block.read(&world.queue, 0, &mut first).unwrap();
                assert_eq!(first, [0]);
            }
            block.write(&world.queue, 0, &[7_u8]).unwrap();
        }
    });
    join(users);
    let block = world.pool.allocate(BYTES).unwrap();
    let mut first = [1_u8];
    block.read(&world.queue, 0, &mut first).unwrap();
    assert_eq!(first, [0]);
    drop(block);
    world.pool.free_held();
    world.check_counters(5);
}

/// A block goes while its command is pending, and what is behind that command fails: two threads allocate, a third one
/// fails the one event and completes the other.
fn behind_a_failure(order: FailureOrder) {
    let device = MockDevice::builder()
        .completion(Completion::Manual)
        .host_waits(HostWait::Block)
        .failures(Failures {
            order,
            spread: true,
        });
    let options = PoolOptions::new()
        .segments(false)
        .reuse(ReusePolicy::Opportunistic);
    let world = World::on(device, 4, options);
    let queue = world.another_queue(QueueOrder::InOrder);
    let [gate, failing] = [(); 2].map(|()| world.backend.create_user_event().unwrap());
    let block = world.pool.allocate_on(&queue, BYTES).unwrap();
    let filled = block.enqueue_fill(queue.after(from_ref(&gate)), 0..BYTES, &[1]);
    drop(filled.unwrap());
    world
        .backend
        .enqueue_marker(queue.after(from_ref(&failing)))
        .unwrap();
    drop(block);
    let users = [queue, world.another_queue(QueueOrder::InOrder)].map(|queue| {
        world.spawn(move |world| {
            for _ in 0..2 {
                let block = world.pool.allocate_on(&queue, BYTES).unwrap();
                fill(&block, &queue);
            }
        })
    });
    let resolving = world.spawn(move |world| {
        let resolve = |event, outcome| world.backend.resolve_user_event(event, outcome).unwrap();
        resolve(&failing, Outcome::Failed);
        world.device.step();
        yield_now();
        resolve(&gate, Outcome::Complete);
        world.device.step();
    });
    join(users);
    join([resolving]);
    world.device.run();
    world.end(5);
}

fn fail_in_turn() {
    behind_a_failure(FailureOrder::Kept);
}

fn fail_early() {
    behind_a_failure(FailureOrder::FailsEarly);
}

fn lose_their_order() {
    behind_a_failure(FailureOrder::Lost);
}
