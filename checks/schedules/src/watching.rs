//! Notes of blocks that threads get, free and pass on, while a thread begins and ends to take them.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool::WatchOptions;

use crate::{
    program::{
        Program,
        library::{sync::mpsc::channel, thread},
    },
    world::{BYTES, Marked, World, has_nothing_left, join},
};

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("watch-begins-beside-threads", 3, begins_beside_threads),
    Program::new("watch-ends-beside-threads", 3, ends_beside_threads),
    Program::new("watch-of-blocks-passed-on", 3, of_blocks_passed_on),
    Program::new("record-beside-threads", 4, record_beside_threads),
    Program::new("record-a-thread-that-ends", 4, record_a_thread_that_ends),
    Program::new("record-to-a-slow-writer", 4, record_to_a_slow_writer),
    Program::new(
        "record-to-a-writer-that-fails",
        4,
        record_to_a_writer_that_fails,
    ),
    Program::new(
        "record-a-pool-that-is-dropped",
        3,
        record_a_pool_that_is_dropped,
    ),
];

/// Whatever was noted of earlier blocks, nothing counts as in use when nothing is.
fn nothing_is_in_use(world: &World) {
    let live = world.pool.live_blocks();
    assert_eq!((live.blocks, live.groups.len()), (0, 0), "{live}");
}

fn begins_beside_threads() {
    let world = World::of_bins(64);
    let others = world.spawn_two(World::keep_and_drop);
    world.pool.watch(WatchOptions::new());
    let live = world.pool.live_blocks();
    let known: u64 = live.groups.iter().map(|group| group.blocks).sum();
    assert_eq!(known + live.unknown_blocks, live.blocks, "{live}");
    join(others);
    nothing_is_in_use(&world);
    world.end(4);
}

fn ends_beside_threads() {
    let world = World::of_bins(64);
    world.pool.watch(WatchOptions::new());
    let others = world.spawn_two(World::keep_and_drop);
    world.pool.stop_watching();
    world.pool.watch(WatchOptions::new());
    join(others);
    nothing_is_in_use(&world);
    world.end(4);
}

/// One thread allocates, another one drops.
fn of_blocks_passed_on() {
    let world = World::of_bins(64);
    world.pool.watch(WatchOptions::new());
    let others = world.pass_on(3, BYTES);
    let live = world.pool.live_blocks();
    // One may be on its way to the producer.
    assert!(live.unknown_blocks <= 1, "{live}");
    join(others);
    nothing_is_in_use(&world);
    world.end(3);
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Text {
    /// The blocks that are allocated in it, and whether each is freed; each is allocated before.
    fn blocks(&self) -> BTreeMap<u64, bool> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let mut blocks = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let id = || words[1].parse::<u64>().unwrap();
            match words[0] {
                "a" => assert_eq!(blocks.insert(id(), false), None, "{line}"),
                "f" => assert_eq!(blocks.insert(id(), true), Some(false), "{line}"),
                _ => {}
            }
        }
        blocks
    }
}

/// A recording ends while threads go on: what it has of each block can be.
fn record_beside_threads() {
    let world = World::of_bins(64);
    let text = Text::default();
    let recording = world.pool.record(text.clone()).unwrap();
    let others = world.spawn_two(World::keep_and_drop);
    world.allocate_and_drop();
    let summary = recording.finish().unwrap();
    join(others);
    let blocks = text.blocks();
    assert_eq!(blocks.len() as u64, summary.allocations);
    let freed = blocks.values().filter(|is_freed| **is_freed).count();
    assert_eq!(freed as u64, summary.frees);
    world.end(5);
}

/// What a thread wrote down is not lost with it.
fn record_a_thread_that_ends() {
    let world = World::of_bins(64);
    let text = Text::default();
    let recording = world.pool.record(text.clone()).unwrap();
    let (send, receive) = channel::<Marked>();
    let other = world.spawn(move |world| {
        world.allocate_and_drop();
        send.send(world.allocate()).unwrap();
    });
    let block = receive.recv().unwrap();
    join([other]);
    block.check();
    let summary = recording.finish().unwrap();
    assert_eq!((summary.allocations, summary.frees), (2, 2));
    assert!(text.blocks().values().all(|is_freed| *is_freed));
    world.end(2);
}

/// A writer that others overtake.
struct Slow {
    text: Text,
    /// The blocks that requests have returned.
    returned: Arc<AtomicUsize>,
}

/// The most blocks that the program is ahead of the writer. A chunk has two events under `shuttle`: two chunks wait and one more of each
/// thread, the same number is being written, and each thread has the events of another block or two. Elsewhere one chunk takes all 32 blocks.
const MOST_UNWRITTEN: usize = if cfg!(shuttle) { 16 } else { 32 };

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for _ in 0..8 {
            thread::yield_now();
        }
        let returned = self.returned.load(Ordering::Relaxed);
        let written = self.text.blocks().len();
        assert!(returned <= written + MOST_UNWRITTEN, "{returned} {written}");
        self.text.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// However slow the writer, what waits for it does not grow, nothing is lost, and a block that another thread frees is allocated before.
fn record_to_a_slow_writer() {
    const BLOCKS: usize = 16;
    let world = World::of_bins(64);
    let (text, returned) = (Text::default(), Arc::default());
    let recording = world.pool.record(Slow {
        text: text.clone(),
        returned: Arc::clone(&returned),
    });
    let (send, receive) = channel();
    let producer = world.spawn({
        let returned = Arc::clone(&returned);
        move |world| {
            for _ in 0..BLOCKS {
                let block = world.pool.allocate(BYTES).unwrap();
                returned.fetch_add(1, Ordering::Relaxed);
                send.send(block).unwrap();
            }
        }
    });
    let consumer = world.spawn(move |world| {
        for block in receive {
            drop(block);
            drop(world.pool.allocate(BYTES).unwrap());
            returned.fetch_add(1, Ordering::Relaxed);
        }
    });
    join([producer, consumer]);
    let summary = recording.unwrap().finish().unwrap();
    let blocks = text.blocks();
    assert_eq!(blocks.len(), 2 * BLOCKS);
    assert!(blocks.values().all(|is_freed| *is_freed));
    assert_eq!(summary.allocations + summary.frees, 4 * BLOCKS as u64);
    world.end(2 * BLOCKS as u64);
}

/// A disk with room for this many writes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        thread::yield_now();
        let left = self.0.checked_sub(1);
        self.0 = left.ok_or_else(|| io::Error::other("the disk is full"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Threads that wait for a writer, or help it, go on when it fails.
fn record_to_a_writer_that_fails() {
    let world = World::of_bins(64);
    // The header, and under `shuttle`, where a chunk has two events, some of the lines.
    let writes = if cfg!(shuttle) { 2 } else { 1 };
    let recording = world.pool.record(Full(writes)).unwrap();
    let others =
        world.spawn_two(|world| (0..12).for_each(|_| drop(world.pool.allocate(BYTES).unwrap())));
    join(others);
    let error = recording.finish().unwrap_err();
    assert_eq!(error.to_string(), "the disk is full");
    assert!(!world.pool.is_watching());
    world.end(24);
}

/// A block that outlives its pool ends in the recording, which is written whole.
fn record_a_pool_that_is_dropped() {
    let world = World::of_bins(64);
    let text = Text::default();
    let recording = world.pool.record(text.clone()).unwrap();
    let block = world.allocate();
    let other = thread::spawn(move || block.check());
    let device = world.device.clone();
    drop(world);
    join([other]);
    let summary = recording.finish().unwrap();
    assert_eq!((summary.allocations, summary.frees), (1, 1));
    assert!(text.blocks().values().all(|is_freed| *is_freed));
    device.run();
    has_nothing_left(&device);
}
