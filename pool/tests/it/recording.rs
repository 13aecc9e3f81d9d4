//! What a recording says is what the program did.

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::{Arc, Mutex},
    thread,
};

use binpool::{
    Backend, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder, RecordError, Tag,
    WatchOptions,
};
use binpool_mock::{MockBackend, MockDevice, MockQueue};

type Pool = MemoryPool<ImmediateAllocator<MockBackend>>;

fn pool_of(device: &MockDevice, options: PoolOptions) -> (Pool, MockQueue) {
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    (options.build(allocator, &queue).unwrap(), queue)
}

fn pool() -> (Pool, MockQueue) {
    pool_of(&MockDevice::new(), PoolOptions::new())
}

/// Text that can be read while it is written.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The lines without their times.
    fn timeless(&self) -> Vec<String> {
        let lines = self.lines();
        let lines = lines.iter().map(|line| {
            let mut words: Vec<_> = line.split(' ').collect();
            match words[0] {
                "a" => drop(words.remove(4)),
                "f" => drop(words.remove(2)),
                "o" => drop(words.remove(3)),
                _ => {}
            }
            words.join(" ")
        });
        lines.collect()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a recording says: the bytes of the blocks that live after it, and how many were allocated. Panics where it says
/// something that cannot be.
fn replay(lines: &[String]) -> (HashMap<u64, u64>, usize) {
    let (mut live, mut allocations, mut last) = (HashMap::new(), 0, 0);
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        let number = |place: usize| words[place].parse::<u64>().unwrap();
        let time = match words[0] {
            "a" => {
                allocations += 1;
                let before = live.insert(number(1), number(2));
                assert_eq!(before, None, "{line}: it lives");
                number(4)
            }
            "f" => {
                live.remove(&number(1))
                    .unwrap_or_else(|| panic!("{line}: it does not live"));
                number(2)
            }
            "o" => number(3),
            _ => continue,
        };
        assert!(time >= last, "{line}: time falls");
        last = time;
    }
    (live, allocations)
}

#[test]
fn every_block_is_written_with_its_size_queue_and_tag_in_the_order_of_the_program() {
    for segments in [true, false] {
        let (pool, _home) = pool_of(&MockDevice::new(), PoolOptions::new().segments(segments));
        let other = pool.backend().create_queue(QueueOrder::InOrder).unwrap();
        let text = Text::default();
        let recording = pool.record(text.clone()).unwrap();
        let weights = Tag::new("weights of a recorded program");
        let kept = weights.within(|| pool.allocate(5000).unwrap());
        for _ in 0..2 {
            // The second one is in the thread's cache.
            weights.within(|| drop(pool.allocate_on(&other, 100).unwrap()));
        }
        weights.within(|| pool.allocate(700).unwrap().release().unwrap());
        let detached = weights.within(|| pool.allocate(900).unwrap()).detach();
        drop(pool.allocate(0).unwrap());
        let summary = recording.finish().unwrap();
        assert_eq!((summary.allocations, summary.frees), (5, 4));
        let lines = text.timeless();
        let group = lines[0].split(' ').nth(1).unwrap();
        assert_eq!(lines[0], format!("g {group} weights of a recorded program"));
        let ids: Vec<_> = lines[1..]
            .iter()
            .filter(|line| line.starts_with('a'))
            .map(|line| line.split(' ').nth(1).unwrap())
            .collect();
        let expected = [
            format!("a {} 5000 0 {group}", ids[0]),
            format!("a {} 100 1 {group}", ids[1]),
            format!("f {}", ids[1]),
            format!("a {} 100 1 {group}", ids[2]),
            format!("f {}", ids[2]),
            format!("a {} 700 0 {group}", ids[3]),
            format!("f {}", ids[3]),
            format!("a {} 900 0 {group}", ids[4]),
            format!("f {}", ids[4]),
        ];
        assert_eq!(lines[1..], expected, "segments: {segments}");
        drop((kept, detached));
    }
}

#[test]
fn a_block_without_a_tag_is_written_with_the_line_that_asked_for_it() {
    let (pool, queue) = pool();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let line = line!() + 1;
    drop(pool.allocate(100).unwrap());
    drop(pool.allocate_on(&queue, 100).unwrap());
    recording.finish().unwrap();
    let names: Vec<_> = text
        .lines()
        .into_iter()
        .filter(|line| line.starts_with('g'))
        .collect();
    assert_eq!(names.len(), 2);
    for (name, line) in names.iter().zip(line..) {
        assert!(name.contains(&format!("recording.rs:{line}:")), "{name}");
    }
}

#[test]
fn nothing_is_written_before_the_recording_or_after_it() {
    let (pool, _) = pool();
    let before = pool.allocate(100).unwrap();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    drop(before);
    let during = pool.allocate(200).unwrap();
    assert_eq!(recording.finish().unwrap().allocations, 1);
    assert!(!pool.is_watching());
    drop((during, pool.allocate(300)));
    let (live, allocations) = replay(&text.lines());
    assert_eq!(live.into_values().collect::<Vec<_>>(), [200]);
    assert_eq!(allocations, 1);
}

#[test]
fn what_a_watching_pool_knows_to_be_in_use_is_a_part_of_the_recording() {
    let (pool, _) = pool();
    let unknown = pool.allocate(100).unwrap();
    pool.watch(WatchOptions::new());
    let known = pool.allocate(200).unwrap();
    let freed = pool.allocate(300).unwrap();
    let mut texts = Vec::new();
    for _ in 0..2 {
        let text = Text::default();
        pool.record(text.clone()).unwrap().finish().unwrap();
        texts.push(text);
    }
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    drop((unknown, freed));
    recording.finish().unwrap();
    assert!(pool.is_watching(), "the program wants it so");
    for text in &texts {
        let mut live: Vec<_> = replay(&text.lines()).0.into_values().collect();
        live.sort_unstable();
        assert_eq!(live, [200, 300]);
    }
    let (live, allocations) = replay(&text.lines());
    assert_eq!(
        (live.into_values().collect::<Vec<_>>(), allocations),
        (vec![200], 2)
    );
    drop(known);
}

#[test]
fn requests_that_fail_for_lack_of_memory_are_written() {
    let device = MockDevice::builder().capacity_bytes(1 << 20).build();
    let (pool, _) = pool_of(&device, PoolOptions::new());
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let tag = Tag::new("too much of a recorded program");
    tag.within(|| pool.allocate(2 << 20).unwrap_err());
    let block = pool.allocate(1 << 20).unwrap();
    tag.within(|| pool.allocate(4096).unwrap_err());
    drop(block);
    assert_eq!(recording.finish().unwrap().shortages, 2);
    let shortages: Vec<_> = text
        .timeless()
        .into_iter()
        .filter(|line| line.starts_with('o'))
        .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(shortages, ["o 2097152 0", "o 4096 0"]);
}

/// More events than a thread keeps before it hands them over, and than wait before they are written.
#[test]
fn blocks_of_many_threads_that_go_from_one_to_another_are_all_written_in_an_order_that_can_be() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 20_000;
    let (pool, _) = pool();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
        .map(|_| std::sync::mpsc::sync_channel(64))
        .unzip();
    thread::scope(|scope| {
        for (place, receiver) in receivers.into_iter().enumerate() {
            let (pool, next) = (pool.clone(), senders[(place + 1) % THREADS].clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let block = pool.allocate(100 + round % 3 * 4000).unwrap();
                    match round % 4 {
                        0 => drop(next.try_send(block)),
                        1 => receiver.try_iter().take(3).for_each(drop),
                        _ => {}
                    }
                }
            });
        }
    });
    drop(senders);
    let active = pool.statistics().active_blocks;
    let summary = recording.finish().unwrap();
    let (live, allocations) = replay(&text.lines());
    assert_eq!(allocations, THREADS * ROUNDS);
    assert_eq!(summary.allocations, allocations as u64);
    assert_eq!(live.len() as u64, active);
}

#[test]
fn a_pool_that_others_look_at_meanwhile_loses_nothing_of_its_recording() {
    let (pool, _) = pool();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for _ in 0..20_000 {
                drop(pool.allocate(4096).unwrap());
            }
        });
        while !worker.is_finished() {
            let _ = pool.statistics();
            pool.free_held();
            drop(pool.allocate(4096).unwrap());
        }
    });
    let allocations = recording.finish().unwrap().allocations;
    let (live, written) = replay(&text.lines());
    assert_eq!((live.len(), written as u64), (0, allocations));
    assert!(allocations > 20_000);
}

#[test]
fn a_pool_has_one_recording_at_a_time() {
    let (pool, _) = pool();
    let first = pool.record(io::sink()).unwrap();
    let error = pool.record(io::sink()).unwrap_err();
    assert!(matches!(error, RecordError::AlreadyRecording), "{error}");
    drop(first);
    pool.record(io::sink()).unwrap().finish().unwrap();
}

#[test]
fn a_recording_that_is_dropped_is_written_to_its_end() {
    let (pool, _) = pool();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    drop(pool.allocate(100).unwrap());
    drop(recording);
    assert_eq!(replay(&text.lines()).1, 1);
}

#[test]
fn blocks_that_outlive_their_pool_end_in_the_recording_too() {
    let (pool, _) = pool();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let [first, second] = [(); 2].map(|()| pool.allocate(100).unwrap());
    drop(first);
    drop(pool);
    drop(second);
    let summary = recording.finish().unwrap();
    assert_eq!((summary.allocations, summary.frees), (2, 2));
    assert!(replay(&text.lines()).0.is_empty());
}

struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the disk is full"));
        }
        self.0 -= 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_fails_ends_the_recording_and_not_the_program() {
    let (pool, _) = pool();
    let recording = pool.record(Failing(3)).unwrap();
    for _ in 0..10_000 {
        drop(pool.allocate(100).unwrap());
    }
    let error = recording.finish().unwrap_err();
    assert_eq!(error.to_string(), "the disk is full");
    assert!(!pool.is_watching());
    pool.record(io::sink()).unwrap().finish().unwrap();
}

struct Panicking;

impl Write for Panicking {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("a writer of a test")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_panics_ends_the_recording_and_not_the_program() {
    let (pool, _) = pool();
    let recording = pool.record(Panicking).unwrap();
    drop(pool.allocate(100).unwrap());
    let error = recording.finish().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    drop(pool.allocate(100).unwrap());
}
