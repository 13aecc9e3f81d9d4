//! What threads have in their caches, and how it gets from one to the other, to the pool and to the device.

use std::{cell::RefCell, time::Duration};

use binpool::{PoolOptions, Retain};

use crate::{
    program::{
        Program,
        library::{self, sync::mpsc::channel},
    },
    world::{BYTES, Marked, World, has_nothing_left, join},
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("caches-beside-the-pool", 3, beside_the_pool),
    Program::new("caches-of-segments", 3, of_segments),
    Program::new(
        "caches-drop-what-others-allocate",
        3,
        drop_what_others_allocate,
    ),
    Program::new("caches-in-a-circle", 3, in_a_circle),
    Program::new("arenas-beside-each-other", 3, beside_each_other),
    Program::new("arenas-whose-blocks-others-drop", 3, blocks_that_go_home),
    Program::new("arenas-that-others-take-from", 3, taken_from),
    Program::new("arenas-of-threads-that-end", 4, arenas_of_threads_that_end),
    Program::new("arenas-that-outlive-the-pool", 3, arenas_that_outlive),
    Program::new("caches-that-overflow-into-the-depot", 3, overflow),
    Program::new("caches-of-threads-that-end", 4, threads_that_end),
    Program::new(
        "caches-that-end-while-others-look",
        3,
        end_while_others_look,
    ),
    Program::new("caches-that-outlive-the-pool", 3, outlive_the_pool),
    Program::new("caches-of-two-pools", 3, of_two_pools),
    Program::new("caches-that-stop-holding", 3, stop_holding),
    Program::new("caches-that-take-from-each-other", 3, take_from_each_other),
    Program::new(
        "caches-with-blocks-in-thread-locals",
        3,
        blocks_in_thread_locals,
    ),
    Program::new("caches-that-detach", 3, detach),
    Program::new("caches-that-are-counted", 3, are_counted),
    Program::new("no-caches-above-a-threshold", 3, above_a_threshold),
    Program::new("sweeper-beside-threads", 3, sweeper),
    Program::new("sweeper-outlives-the-pool", 3, sweeper_outlives_the_pool),
];

/// Two threads come and go for blocks; a third looks at the counters and takes what it can.
fn beside_the_pool() {
    come_and_go(World::of_bins(64));
}

fn of_segments() {
    come_and_go(World::of_segments(1024));
}

fn come_and_go(world: World) {
    let others = world.spawn_two(|world| {
        world.keep_and_drop();
        world.allocate_and_drop();
    });
    let statistics = world.pool.statistics();
    assert!(statistics.held_bytes <= statistics.managed_bytes);
    assert!(statistics.active_blocks <= 4);
    world.pool.free_held();
    join(others);
    world.end(6);
}

/// One thread allocates, another one drops, and a third trims.
fn drop_what_others_allocate() {
    let world = World::of_bins(64);
    let others = world.pass_on(4, BYTES);
    world.pool.trim_to(0);
    join(others);
    world.end(4);
}

/// More than a thread caches besides the block that came back last, so that each further one goes back to its arena.
const LARGE: usize = 9 << 20;

fn world_of_large(blocks: usize) -> World {
    World::of_segments(blocks * LARGE / BYTES)
}

/// Two threads carve from arenas of their own, and return to them. A third one looks at the counters, and at every block.
fn beside_each_other() {
    let world = world_of_large(64);
    let others = world.spawn_two(|world| {
        let blocks = [LARGE, LARGE + BYTES, LARGE].map(|bytes| world.try_allocate(bytes).unwrap());
        blocks.into_iter().for_each(Marked::check);
        world.try_allocate(LARGE).unwrap().check();
    });
    let statistics = world.pool.statistics();
    assert!(statistics.held_bytes <= statistics.managed_bytes);
    assert!(statistics.active_blocks <= 6);
    let _removed = world.pool.trim_to(0);
    join(others);
    world.end(8);
}

/// One thread carves, another one drops: the ranges go home to the first one's arena, which has them again.
fn blocks_that_go_home() {
    let world = world_of_large(64);
    let others = world.pass_on(4, LARGE);
    world.try_allocate(LARGE).unwrap().check();
    join(others);
    world.end(5);
}

/// A device with room for what the threads need together: each finds in the other's arena what that has returned.
fn taken_from() {
    let world = world_of_large(4);
    let others = world.spawn_two(|world| {
        world.allocate_and_drop_all::<2>(LARGE);
        world.allocate_and_drop_all::<2>(LARGE);
    });
    join(others);
    world.allocate_and_drop_all::<4>(LARGE);
    world.end(12);
}

/// Threads end, and those that begin have the arenas that these had.
fn arenas_of_threads_that_end() {
    let world = world_of_large(64);
    let ending = world.spawn(|world| world.allocate_and_drop_all::<3>(LARGE));
    let others = world.spawn_two(|world| world.allocate_and_drop_all::<2>(LARGE));
    join([ending]);
    let after = world.spawn(|world| world.try_allocate(LARGE).unwrap().check());
    join(others);
    join([after]);
    world.end(8);
}

/// A thread has its arena, and a block, for longer than the program has the pool.
fn arenas_that_outlive() {
    let world = world_of_large(64);
    let (send, receive) = channel::<Marked>();
    let other = world.spawn(move |world| {
        world.allocate_and_drop_all::<3>(LARGE);
        send.send(world.try_allocate(LARGE).unwrap()).unwrap();
    });
    let dropping = library::thread::spawn(move || receive.into_iter().for_each(Marked::check));
    world.try_allocate(LARGE).unwrap().check();
    join([other]);
    join([dropping]);
    world.end_of_pool();
}

/// Each thread drops what its neighbour allocates.
fn in_a_circle() {
    let world = World::of_bins(64);
    let (to_second, from_first) = channel::<Marked>();
    let (to_first, from_second) = channel::<Marked>();
    let first = world.spawn(move |world| {
        to_second.send(world.allocate()).unwrap();
        from_second.recv().unwrap().check();
        world.allocate_and_drop();
    });
    let second = world.spawn(move |world| {
        to_first.send(world.allocate()).unwrap();
        from_first.recv().unwrap().check();
        world.allocate_and_drop();
    });
    join([first, second]);
    world.end(4);
}

/// More blocks come back to a thread than it keeps; others take them over by the magazine.
fn overflow() {
    const BLOCKS: usize = 8;
    let world = World::of_bins(64);
    let blocks: Vec<_> = (0..BLOCKS).map(|_| world.allocate()).collect();
    let dropping = world.spawn(|_| blocks.into_iter().for_each(Marked::check));
    let taking = world.spawn(|world| world.allocate_and_drop_all::<3>(BYTES));
    let third = world.allocate();
    let _counters = world.pool.statistics();
    third.check();
    join([dropping, taking]);
    world.end(BLOCKS as u64 + 4);
}

/// Threads end with cached blocks; those that come after them find these.
fn threads_that_end() {
    let world = World::of_bins(4);
    let first = world.spawn_two(World::allocate_and_drop);
    let between = world.spawn(World::keep_and_drop);
    join(first);
    join([between]);
    // The threads have gone, and what they had is held.
    let statistics = world.pool.statistics();
    assert_eq!(statistics.held_blocks, statistics.misses);
    world.allocate_and_drop_all::<4>(BYTES);
    world.end(8);
}

/// A thread ends while another one looks at all of them, and a third one empties them.
fn end_while_others_look() {
    let world = World::of_bins(64);
    let ending = world.spawn(World::allocate_and_drop);
    let emptying = world.spawn(|world| {
        world.pool.stop_holding();
        world.pool.resume_holding();
    });
    let statistics = world.pool.statistics();
    assert!(statistics.active_blocks <= 1);
    join([ending, emptying]);
    world.end(1);
}

/// The pool's last handle goes in any thread, blocks in any order, and the device has all of it back.
fn outlive_the_pool() {
    let world = World::of_bins(64);
    let device = world.device.clone();
    let (to_other, from_other) = channel::<Marked>();
    let first = world.spawn(move |world| {
        world.allocate_and_drop();
        to_other.send(world.allocate()).unwrap();
    });
    let second = world.spawn(|world| {
        let block = world.allocate();
        let world = world.clone();
        drop(world.pool);
        block.check();
    });
    drop(world);
    from_other.recv().unwrap().check();
    join([first, second]);
    has_nothing_left(&device);
}

/// Two threads use two pools each, and one of the pools goes meanwhile.
fn of_two_pools() {
    let (one, other) = (World::of_bins(64), World::of_bins(64));
    let threads = [(); 2].map(|()| {
        let other = other.clone();
        one.spawn(move |one| {
            other.allocate_and_drop();
            one.allocate_and_drop();
            drop(other);
            one.allocate_and_drop();
        })
    });
    drop(other);
    join(threads);
    one.end(4);
}

/// One thread has the pool hold nothing, and hold again, while two come and go.
fn stop_holding() {
    let world = World::of_bins(64);
    let others = world.spawn_two(|world| {
        world.allocate_and_drop();
        world.allocate_and_drop();
    });
    world.pool.stop_holding();
    assert!(!world.pool.is_holding());
    world.allocate_and_drop();
    world.pool.resume_holding();
    world.allocate_and_drop();
    join(others);
    let held = world.pool.statistics().held_blocks;
    world.allocate_and_drop();
    assert!(
        world.pool.statistics().held_blocks >= held.max(1),
        "it holds again"
    );
    world.end(7);
}

/// More threads than blocks, so that each takes what the others have cached.
fn take_from_each_other() {
    let world = World::of_bins(2);
    let others = world.spawn_two(|world| {
        for _ in 0..3 {
            world.allocate_and_drop();
        }
    });
    join(others);
    world.allocate_and_drop_all::<2>(BYTES);
    world.end(8);
}

library::thread_local! {
    static EARLY: RefCell<Option<Marked>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<Marked>> = const { RefCell::new(None) };
}

/// Blocks that go with their thread, before what the thread has cached does, and after.
fn blocks_in_thread_locals() {
    let world = World::of_bins(64);
    let others = world.spawn_two(|world| {
        EARLY.with(|_| ());
        let blocks = [world.allocate(), world.allocate()];
        world.allocate_and_drop();
        let [early, late] = blocks;
        EARLY.with(|it| *it.borrow_mut() = Some(early));
        LATE.with(|it| *it.borrow_mut() = Some(late));
    });
    let _counters = world.pool.statistics();
    join(others);
    let statistics = world.pool.statistics();
    assert_eq!(statistics.held_blocks, statistics.misses);
    world.end(6);
}

/// Blocks leave the pool for good while others come and go.
fn detach() {
    let world = World::of_bins(64);
    let others = world.spawn_two(|world| {
        world.allocate_and_drop();
        let memory = world.pool.allocate(1000).unwrap().detach();
        drop(memory);
    });
    world.pool.free_held();
    join(others);
    world.end(4);
}

/// A caller gets counters of one moment: blocks are held or in use, and never neither.
fn are_counted() {
    let world = World::of_bins(64);
    let kept: Vec<_> = (0..3).map(|_| world.allocate()).collect();
    let moving = world.spawn(|world| {
        for block in kept {
            block.check();
            world.allocate_and_drop();
        }
    });
    let looking = world.spawn(|world| {
        for _ in 0..3 {
            let statistics = world.pool.statistics();
            assert_eq!(statistics.active_blocks + statistics.held_blocks, 3);
            assert_eq!(statistics.managed_bytes, 3 * 1024);
        }
    });
    join([moving, looking]);
    world.end(6);
}

/// A pool that gives back what is above a threshold, block by block.
fn above_a_threshold() {
    let options = PoolOptions::new()
        .segments(false)
        .retain(Retain::new().at_most(1024));
    let world = World::new(64, options);
    let others = world.spawn_two(World::keep_and_drop);
    world.allocate_and_drop();
    join(others);
    assert!(world.pool.managed_bytes() <= 1024);
    world.end(5);
}

/// A thread of the pool's own sweeps while others come and go; it ends when it is told to.
fn sweeper() {
    let world = World::of_bins(64);
    let sweeper = world
        .pool
        .sweep_in_background(Duration::from_secs(1))
        .unwrap();
    let other = world.spawn(|world| {
        world.allocate_and_drop();
        world.allocate_and_drop();
    });
    world.allocate_and_drop();
    join([other]);
    drop(sweeper);
    world.end(3);
}

/// The pool may go while its sweeper sweeps.
fn sweeper_outlives_the_pool() {
    let world = World::of_bins(64);
    let device = world.device.clone();
    let sweeper = world
        .pool
        .sweep_in_background(Duration::from_secs(1))
        .unwrap();
    let other = world.spawn(World::allocate_and_drop);
    world.allocate_and_drop();
    drop(world);
    join([other]);
    drop(sweeper);
    has_nothing_left(&device);
}
