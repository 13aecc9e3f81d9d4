//! Plans that are made and followed by one thread while others use the same arena.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    program::{
        Program,
        library::{
            sync::mpsc::{Sender, channel},
            thread::JoinHandle,
        },
    },
    world::{BYTES, Marked, World, join},
};

pub(crate) const PROGRAMS: &[Program] = &[Program::new("plans-beside-threads", 5, beside_threads)];

const MIB: usize = 1 << 20;

/// After this many schedules, some of them must have made a plan, and some must have changed the arena before it could be.
const SCHEDULES: usize = 1000;

static TRIED: AtomicUsize = AtomicUsize::new(0);
static PLANNED: AtomicUsize = AtomicUsize::new(0);

/// A thread that has a home, and does this once it is told.
fn waiting(world: &World, run: fn(&World)) -> (Sender<()>, JoinHandle<()>) {
    let (has_joined, joined) = channel();
    let (go, told) = channel();
    let thread = world.spawn(move |world| {
        world.allocate_and_drop();
        has_joined.send(()).unwrap();
        told.recv().unwrap();
        run(world);
    });
    joined.recv().unwrap();
    (go, thread)
}

/// Blocks of the sizes of the period, and another one.
fn take_some(world: &World) {
    for mib in [50, 20] {
        world.try_allocate(mib * MIB).unwrap().check();
    }
}

/// Has both blocks of a period at once.
fn period(world: &World) {
    let blocks = [50, 60].map(|mib| world.try_allocate(mib * MIB).unwrap());
    // Not the first one first, which the next period would have at once.
    blocks.into_iter().rev().for_each(Marked::check);
}

/// One thread repeats its work, and a request of it makes a plan, which it follows. Two others have its arena.
fn beside_threads() {
    let world = World::of_segments((1 << 30) / BYTES);
    world.allocate_and_drop();
    // Of each two threads, the second one has the arena of the first thread.
    let works: [fn(&World); 4] = [|_| {}, take_some, |_| {}, take_some];
    let others = works.map(|run| waiting(&world, run));
    world.try_allocate(70 * MIB).unwrap().check();
    (0..2).for_each(|_| period(&world));
    let before = world.pool.managed_bytes();
    for (go, _) in &others {
        go.send(()).unwrap();
    }
    let block = world.try_allocate(20 * MIB).unwrap();
    // No other request gives memory back.
    let is_planned = world.pool.managed_bytes() < before;
    block.check();
    (0..3).for_each(|_| period(&world));
    join(others.map(|(_, thread)| thread));
    world.end(1 + 4 + 1 + 2 * 2 + 4 + 1 + 3 * 2);
    let planned = PLANNED.fetch_add(usize::from(is_planned), Ordering::Relaxed);
    if TRIED.fetch_add(1, Ordering::Relaxed) + 1 == SCHEDULES {
        assert!(planned > 0 && planned < SCHEDULES, "{planned} plans");
    }
}
