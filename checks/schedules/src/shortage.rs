//! Devices with memory for just what threads have in use: no thread is told that memory has run out while another one is about to
//! give some back.

use std::{sync::Arc, time::Duration};

use binpool::{Backend, Outcome, PoolOptions, Queue, QueueOrder, Retain, ReusePolicy};
use binpool_mock::{Completion, HostWait, MockDevice};
use parking_lot::Mutex;

use crate::{
    program::{Program, library::thread::yield_now},
    world::{BYTES, Marked, World, has_nothing_left, join},
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("shortage-of-bins", 3, of_bins),
    Program::new("shortage-of-bins-of-two-sizes", 3, of_two_sizes),
    Program::new("shortage-of-segments", 3, of_segments),
    Program::new(
        "shortage-of-segments-of-two-sizes",
        3,
        of_segments_of_two_sizes,
    ),
    Program::new("shortage-while-others-trim", 4, while_others_trim),
    Program::new(
        "shortage-of-segments-while-others-trim",
        4,
        of_segments_while_others_trim,
    ),
    Program::new("shortage-while-nothing-is-held", 3, while_nothing_is_held),
    Program::new("shortage-until-commands-end", 3, until_commands_end),
    Program::new("shortage-until-a-gate-opens", 3, until_a_gate_opens),
    Program::new("shortage-that-a-hook-ends", 3, that_a_hook_ends),
    Program::new(
        "shortage-of-pools-with-each-others-hooks",
        3,
        each_others_hooks,
    ),
    Program::new("shortage-that-is-real", 3, that_is_real),
    Program::new("shortage-of-a-pool-without-caches", 3, without_caches),
];

/// Each of two threads has one block at a time, and there is room for two.
fn one_at_a_time(world: World, sizes: [usize; 3]) {
    let others = world.spawn_two(move |world| {
        for bytes in sizes {
            world.try_allocate(bytes).unwrap().check();
        }
    });
    join(others);
    world.end(6);
}

fn of_bins() {
    one_at_a_time(World::of_bins(2), [BYTES; 3]);
}

/// What is held of one size goes back for the other one.
fn of_two_sizes() {
    one_at_a_time(World::of_bins(4), [BYTES, 2 * BYTES, BYTES]);
}

fn of_segments() {
    one_at_a_time(World::of_segments(2), [BYTES; 3]);
}

fn of_segments_of_two_sizes() {
    one_at_a_time(World::of_segments(6), [BYTES, 2 * BYTES, BYTES]);
}

fn while_others_trim() {
    trimmed_meanwhile(World::of_bins(2), BYTES / 2);
}

fn of_segments_while_others_trim() {
    trimmed_meanwhile(World::of_segments(2), BYTES);
}

/// What others give back behind the back of a thread that needs it is waited for.
fn trimmed_meanwhile(world: World, other_bytes: usize) {
    let users = world.spawn_two(move |world| {
        world.allocate_and_drop();
        world.try_allocate(other_bytes).unwrap().check();
        world.allocate_and_drop();
    });
    let trimming = world.spawn(|world| {
        world.pool.trim_to(0);
        world.pool.sweep();
    });
    world.pool.free_held();
    world.pool.free_held();
    join(users);
    join([trimming]);
    world.end(6);
}

/// A thread that was refused memory was refused while another one had it, and none waits forever for a block that
/// is just being given back.
fn while_nothing_is_held() {
    let world = World::of_bins(1);
    world.pool.stop_holding();
    let users = world.spawn_two(|world| (0..3).map(|_| u64::from(world.is_served())).sum::<u64>());
    let got = join(users).into_iter().sum();
    world.end(got);
}

/// All memory is behind commands of a queue; a thread that needs it waits for them, and two threads run them.
fn until_commands_end() {
    let options = PoolOptions::new()
        .segments(false)
        .reuse(ReusePolicy::Opportunistic);
    let builder = MockDevice::builder().completion(Completion::Manual);
    let world = World::on(builder, 2, options);
    let users = [(); 2].map(|()| {
        let queue = world.another_queue(QueueOrder::InOrder);
        world.spawn(move |world| {
            for bytes in [BYTES, BYTES / 2] {
                let block = world.pool.allocate_on(&queue, bytes).unwrap();
                block.enqueue_fill(&queue, 0..bytes, &[1_u8]).unwrap();
            }
        })
    });
    world.device.step();
    join(users);
    world.device.run();
    world.end(4);
}

/// The command that holds the memory back waits for another thread.
fn until_a_gate_opens() {
    let options = PoolOptions::new().segments(false);
    let builder = MockDevice::builder().host_waits(HostWait::Block);
    let world = World::on(builder, 1, options);
    let gate = world.backend.create_user_event().unwrap();
    let other = world.another_queue(QueueOrder::InOrder);
    let block = world.pool.allocate_on(&other, BYTES).unwrap();
    block
        .enqueue_fill(other.after(std::slice::from_ref(&gate)), 0..BYTES, &[1_u8])
        .unwrap();
    drop(block);
    let opening = world.spawn(move |world| {
        yield_now();
        world
            .backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
    });
    let needing = world.spawn(World::allocate_and_drop);
    join([opening, needing]);
    drop(other);
    world.end(2);
}

/// What the program itself keeps is dropped by its hook, in the thread that needs memory.
fn that_a_hook_ends() {
    let world = World::of_bins(3);
    let cache = Arc::new(Mutex::new(Vec::<Marked>::new()));
    cache.lock().push(world.allocate());
    cache.lock().push(world.allocate());
    let dropping = Arc::clone(&cache);
    world.pool.add_reclaim_hook(move |_| {
        let one = dropping.lock().pop();
        one.into_iter().map(Marked::check).count() > 0
    });
    let users = world.spawn_two(|world| {
        world.allocate_and_drop();
        world.allocate_and_drop();
    });
    join(users);
    cache.lock().drain(..).for_each(Marked::check);
    world.end(6);
}

/// Two pools on one device, whose hooks release what the other one holds.
fn each_others_hooks() {
    let one = World::of_bins(2);
    let allocator = one.pool.allocator().clone();
    let pool = PoolOptions::new()
        .segments(false)
        .build(allocator, &one.queue)
        .unwrap();
    let other = one.with_pool(pool);
    let worlds = [one, other];
    let hooks = [(0, 1), (1, 0)].map(|(of, frees)| {
        let freed = worlds[frees].pool.clone();
        let hook = worlds[of]
            .pool
            .add_reclaim_hook(move |_| freed.free_held() > 0);
        (of, hook)
    });
    let users = worlds.each_ref().map(|world| {
        world.spawn(|world| {
            // One of them may be told no, as the pools know nothing of what is on the way in the other.
            world.is_served();
            world.is_served();
        })
    });
    join(users);
    for (of, hook) in hooks {
        assert!(worlds[of].pool.remove_reclaim_hook(hook));
    }
    let [one, other] = worlds;
    one.pool.free_held();
    other.pool.free_held();
    has_nothing_left(&one.device);
}

/// Where three blocks are wanted at the same time and there are two, no thread waits forever, and nothing is lost.
fn that_is_real() {
    let world = World::of_bins(2);
    let kept = world.allocate();
    let users = world.spawn_two(World::is_served);
    let got: u64 = join(users).into_iter().map(u64::from).sum();
    assert!(got >= 1, "one of them could always have the second block");
    kept.check();
    assert_eq!(world.pool.statistics().out_of_memory, 2 - got);
    world.end(1 + got);
}

fn without_caches() {
    let options = PoolOptions::new()
        .segments(false)
        .retain(Retain::new().unused_for(Duration::MAX));
    one_at_a_time(World::new(4, options), [BYTES, 2 * BYTES, BYTES]);
}
