//! What a recording says is what the program did.

use std::{
    collections::HashMap,
    env,
    io::{self, Write},
    panic::resume_unwind,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use binpool::{
    Allocator, Backend, GrowthPolicy, ImmediateAllocator, MemoryPool, PoolOptions, Queue,
    QueueOrder, Retain, ReusePolicy, Tag, TraceErrorKind, VirtualMemoryAllocator, WatchOptions,
};
use binpool_mock::{CallKind, Completion, Fault, MockBackend, MockDevice, MockQueue, Persistence};

type Pool = MemoryPool<MockBackend>;

fn pool_of(device: &MockDevice, options: PoolOptions) -> (Pool, MockQueue) {
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    (options.build(allocator, &queue).unwrap(), queue)
}

fn pool() -> (Pool, MockQueue) {
    pool_of(&MockDevice::new(), PoolOptions::new())
}

/// A pool of pages, its device and its queue.
fn pool_of_pages() -> (MockDevice, Pool, MockQueue) {
    let device = MockDevice::builder().virtual_memory(true).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = VirtualMemoryAllocator::new(&backend);
    let pool = MemoryPool::new(allocator, &queue).unwrap();
    (device, pool, queue)
}

/// Text that can be read while it is written.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The lines about what the program did, without their times.
    fn timeless(&self) -> Vec<String> {
        let lines = self.lines();
        let lines = lines.iter().filter_map(|line| {
            let mut words: Vec<_> = line.split(' ').collect();
            match words[0] {
                "a" => drop(words.remove(4)),
                "f" => drop(words.remove(2)),
                "o" => drop(words.remove(3)),
                "g" => {}
                _ => return None,
            }
            Some(words.join(" "))
        });
        lines.collect()
    }

    /// The lines about what the pool did, each without its letter and its time.
    fn of_pool(&self, letter: &str) -> Vec<Vec<String>> {
        let lines = self.lines();
        let lines = lines.iter().filter_map(|line| {
            let mut words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let time = match letter {
                "s" | "p" => 3,
                "S" => 2,
                "b" => 5,
                _ => 0,
            };
            (words.remove(0) == letter).then(|| {
                if time > 0 {
                    words.remove(time - 1);
                }
                words
            })
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
fn what_threads_have_not_handed_over_when_they_end_or_panic_is_written() {
    const THREADS: usize = 64;
    let (pool, _) = pool();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let kept: Vec<_> = (0..THREADS)
        .map(|number| {
            let pool = pool.clone();
            let thread = thread::spawn(move || {
                let kept = pool.allocate(100).unwrap();
                let dropped = pool.allocate(4096).unwrap();
                if number % 2 == 0 {
                    // Silently: the hook of panics is not called. Both blocks are freed meanwhile.
                    resume_unwind(Box::new("a thread of a test"));
                }
                drop(dropped);
                kept
            });
            thread.join()
        })
        .filter_map(Result::ok)
        .collect();
    assert_eq!(kept.len(), THREADS / 2);
    let summary = recording.finish().unwrap();
    let allocations = 2 * THREADS;
    let frees = allocations - kept.len();
    assert_eq!(
        (summary.allocations, summary.frees),
        (allocations as u64, frees as u64)
    );
    let (live, written) = replay(&text.lines());
    assert_eq!((live.len(), written), (kept.len(), allocations));
    assert!(live.values().all(|bytes| *bytes == 100));
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
    assert_eq!(error.kind(), TraceErrorKind::AlreadyRecording, "{error}");
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

#[test]
fn a_recording_whose_writer_panicked_makes_way_for_the_next_one() {
    let (pool, _) = pool();
    let panicked = pool.record(Panicking).unwrap();
    let latest = Instant::now() + Duration::from_secs(60);
    let next = loop {
        match pool.record(io::sink()) {
            Ok(next) => break next,
            Err(error) => assert!(Instant::now() < latest, "{error}"),
        }
        thread::yield_now();
    };
    next.finish().unwrap();
    assert!(panicked.finish().is_err());
}

#[test]
fn a_header_says_what_was_recorded() {
    let backend = MockDevice::builder()
        .capacity_bytes(1 << 30)
        .build()
        .backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let options = PoolOptions::new()
        .limit(64 << 20)
        .growth(GrowthPolicy::Dense)
        .reuse(ReusePolicy::InsertWait)
        .retain(Retain::new().at_most(1 << 20));
    let pool = options.build(allocator, &queue).unwrap();
    let text = Text::default();
    pool.record(text.clone()).unwrap().finish().unwrap();
    let lines = text.lines();
    assert_eq!(lines[0], "h version 2");
    for expected in [
        "h device mock device".to_owned(),
        format!("h capacity {}", 1 << 30),
        format!("h limit {}", 64 << 20),
        "h blocks segments".to_owned(),
        "h growth dense".to_owned(),
        "h reuse insert_wait".to_owned(),
        "h scrub never".to_owned(),
        "h thread_caches yes".to_owned(),
        format!("h release_threshold {}", 1 << 20),
    ] {
        assert!(lines.contains(&expected), "{expected}: {lines:#?}");
    }
    let backend = lines.iter().find(|line| line.starts_with("h backend "));
    assert!(backend.unwrap().ends_with("MockBackend"));
    let program = env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    assert!(lines.contains(&format!("h program {program}")));
    assert!(
        lines.iter().all(|line| line.starts_with("h ")),
        "{lines:#?}"
    );
}

#[test]
fn a_header_has_no_limits_where_the_pool_has_none() {
    let (pool, _) = pool();
    let text = Text::default();
    pool.record(text.clone()).unwrap().finish().unwrap();
    for unlimited in ["h limit", "h release_threshold"] {
        let mut lines = text.lines().into_iter();
        assert!(
            lines.all(|line| !line.starts_with(unlimited)),
            "{unlimited}"
        );
    }
}

/// Where the recorded blocks lie, by their IDs.
fn places(text: &Text) -> HashMap<u64, (u64, usize, usize)> {
    let placed = text.of_pool("b").into_iter().map(|words| {
        let numbers: Vec<u64> = words.iter().map(|word| word.parse().unwrap()).collect();
        let [offset, bytes] = [2, 3].map(|index| usize::try_from(numbers[index]).unwrap());
        (numbers[0], (numbers[1], offset, bytes))
    });
    placed.collect()
}

#[test]
fn a_recording_begins_with_the_memory_and_the_blocks_that_are_there() {
    for segments in [true, false] {
        let options = PoolOptions::new().segments(segments);
        let (pool, _) = pool_of(&MockDevice::new(), options);
        let unknown = pool.allocate(5000).unwrap();
        pool.watch(WatchOptions::new());
        let kept = pool.allocate(3 << 20).unwrap();
        drop(pool.allocate(300).unwrap());
        let text = Text::default();
        let recording = pool.record(text.clone()).unwrap();
        let later = pool.allocate(300).unwrap();
        recording.finish().unwrap();

        let of_blocks = text.timeless();
        let ids = of_blocks.iter().filter(|line| line.starts_with('a'));
        let ids: Vec<u64> = ids
            .map(|line| line.split(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        assert_eq!(
            ids.len(),
            2,
            "of the unknown block no more than its size is known"
        );
        let places = places(&text);
        for (id, block) in ids.iter().zip([&kept, &later]) {
            let place = block.place().unwrap();
            let expected = (place.memory.get(), place.offset, place.bytes);
            assert_eq!(places[&(id >> 8)], expected, "segments: {segments}");
        }
        let taken: usize = text
            .of_pool("s")
            .iter()
            .map(|words| words[1].parse::<usize>().unwrap())
            .sum();
        let unknown_bytes = if segments { 0 } else { unknown.class_size() };
        assert_eq!((taken + unknown_bytes) as u64, pool.managed_bytes());
        let told = text.of_pool("p");
        assert!(
            told.contains(
                &["untracked", "5000", "1", "blocks"]
                    .map(str::to_owned)
                    .to_vec()
            ),
            "{told:?}"
        );
    }
}

#[test]
fn a_watch_that_begins_or_ends_meanwhile_does_not_repeat_the_blocks() {
    let (pool, _) = pool();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let kept = pool.allocate(100).unwrap();
    pool.watch(WatchOptions::new());
    pool.stop_watching();
    drop(kept);
    recording.finish().unwrap();
    let (live, allocations) = replay(&text.lines());
    assert_eq!((live.len(), allocations), (0, 1));
}

#[test]
fn what_the_pool_did_is_in_the_recording() {
    for segments in [true, false] {
        let device = MockDevice::builder()
            .capacity_bytes(64 << 20)
            .completion(Completion::Manual)
            .build();
        let options = PoolOptions::new()
            .segments(segments)
            .reuse(ReusePolicy::WaitOnHost);
        let (pool, _) = pool_of(&device, options);
        let other = pool.backend().create_queue(QueueOrder::InOrder).unwrap();
        pool.add_reclaim_hook(|_| false);
        let text = Text::default();
        let recording = pool.record(text.clone()).unwrap();
        let first = pool.allocate(16 << 20).unwrap();
        first
            .enqueue_fill(pool.home_queue(), 0..4096, &[7_u8])
            .unwrap();
        drop(first);
        drop(pool.allocate_on(&other, 16 << 20).unwrap());
        let kept = pool.allocate(40 << 20).unwrap();
        let error = pool.allocate(32 << 20).unwrap_err();
        pool.trim_to(0);
        recording.finish().unwrap();

        let told = text.of_pool("p");
        let of = |what: &str| {
            let found: Vec<_> = told.iter().filter(|words| words[0] == what).collect();
            assert!(
                !found.is_empty(),
                "segments: {segments}: no {what}: {told:?}"
            );
            found
        };
        assert_eq!(of("miss")[0][1], (16 << 20).to_string());
        assert_eq!(of("miss").len() as u64, pool.statistics().misses);
        assert_eq!(of("hook")[0][1], (32 << 20).to_string());
        assert_eq!(
            of("wait")[0][2..],
            [
                "for".to_owned(),
                "queue".to_owned(),
                pool.home_queue().id().get().to_string()
            ]
        );
        assert_eq!(of("trim").len(), 1);
        // What was taken and not given back is what the pool has.
        let sizes = text.of_pool("s").into_iter();
        let mut has: HashMap<_, u64> = sizes
            .map(|words| (words[0].clone(), words[1].parse().unwrap()))
            .collect();
        for words in text.of_pool("S") {
            has.remove(&words[0]).unwrap();
        }
        assert_eq!(has.values().sum::<u64>(), pool.managed_bytes());
        let report = error.out_of_memory().unwrap();
        let told = text.of_pool("r");
        assert_eq!(told.len(), 1);
        assert!(told[0].contains(&format!("verdict={}", report.verdict.name())));
        assert!(told[0].contains(&format!("active_bytes={}", report.active_bytes)));
        assert!(told[0].contains(&format!("managed_bytes={}", report.managed_bytes)));
        drop(kept);
    }
}

#[test]
fn a_pool_of_pages_writes_what_it_maps_and_unmaps() {
    let (_device, pool, _queue) = pool_of_pages();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    drop(pool.allocate(20 << 20).unwrap());
    let managed = pool.managed_bytes();
    pool.trim_to(0);
    recording.finish().unwrap();
    let told = text.of_pool("p");
    let sum = |what: &str| -> u64 {
        let of_it = told.iter().filter(|words| words[0] == what);
        of_it.map(|words| words[1].parse::<u64>().unwrap()).sum()
    };
    assert_eq!(
        (sum("map"), sum("trim"), sum("spare")),
        (managed, managed, 0)
    );
    // Where the pages were, without the times.
    let places = |letter| -> Vec<Vec<String>> {
        let of_it = text.of_pool(letter).into_iter();
        of_it.map(|words| words[..3].to_vec()).collect()
    };
    let mut mapped = places("m");
    let mut unmapped = places("M");
    mapped.sort_unstable();
    unmapped.sort_unstable();
    assert_eq!(mapped, unmapped);
    let bytes = mapped.iter().map(|place| place[2].parse::<u64>().unwrap());
    assert_eq!(bytes.sum::<u64>(), managed);
    assert_eq!((text.of_pool("s").len(), text.of_pool("S").len()), (0, 0));
    assert_eq!(text.of_pool("b").len(), 1);
    let page = pool.allocator().page_bytes().unwrap();
    assert!(text.lines().contains(&format!("h pages {page}")));
}

#[test]
fn the_pages_of_a_block_that_grows_are_written_also_those_from_before_the_recording() {
    let (_device, pool, queue) = pool_of_pages();
    let mut block = pool.growable_on(&queue, 1 << 30).unwrap();
    block.grow(1 << 20).unwrap();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    block.grow(2 << 20).unwrap();
    block.grow(3 << 20).unwrap();
    block.shrink(3 << 20).unwrap();
    drop(block);
    recording.finish().unwrap();
    let places = |letter| -> Vec<Vec<String>> {
        let of_it = text.of_pool(letter).into_iter();
        let mut places: Vec<_> = of_it.map(|words| words[..3].to_vec()).collect();
        places.sort_unstable();
        places
    };
    assert_eq!(places("m").len(), 3);
    assert_eq!(places("m"), places("M"));
    // Each size is a block of its own, which ends where the next begins.
    let (live, freed) = replay(&text.lines());
    assert!(live.is_empty(), "{live:?}");
    assert_eq!(freed, 3);
}

#[test]
fn a_block_that_shrinks_to_nothing_ends_in_the_recording() {
    let (_device, pool, queue) = pool_of_pages();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let mut block = pool.growable_on(&queue, 1 << 30).unwrap();
    block.grow(1 << 20).unwrap();
    block.shrink(1 << 20).unwrap();
    recording.finish().unwrap();
    let (live, allocations) = replay(&text.lines());
    assert_eq!((live.len(), allocations), (0, 1));
    drop(block);
}

#[test]
fn pages_that_a_failed_call_leaves_without_a_place_are_written_once() {
    let (device, pool, _queue) = pool_of_pages();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    device.fail_nth(CallKind::Map, 1, Fault::Backend(-5), Persistence::Once);
    pool.allocate(20 << 20).unwrap_err();
    let spare = pool.managed_bytes();
    drop(pool.allocate(20 << 20).unwrap());
    drop(pool.allocate(60 << 20).unwrap());
    recording.finish().unwrap();
    let told = text.of_pool("p").into_iter();
    let told = told.filter(|words| words[0] == "spare");
    let told: Vec<u64> = told.map(|words| words[1].parse().unwrap()).collect();
    assert_eq!(told, [spare, 0]);
}

#[test]
fn pages_without_a_place_are_written_where_a_recording_begins_with_some() {
    let (device, pool, _queue) = pool_of_pages();
    let spare_at_the_beginning = || {
        let text = Text::default();
        pool.record(text.clone()).unwrap().finish().unwrap();
        let told = text.of_pool("p").into_iter();
        let told = told.filter(|words| words[0] == "spare");
        told.map(|words| words[1].parse().unwrap())
            .collect::<Vec<u64>>()
    };
    assert_eq!(spare_at_the_beginning(), [0_u64; 0]);
    device.fail_nth(CallKind::Map, 1, Fault::Backend(-5), Persistence::Once);
    pool.allocate(20 << 20).unwrap_err();
    assert_eq!(spare_at_the_beginning(), [pool.managed_bytes()]);
}

#[test]
fn blocks_that_go_back_to_their_segments_are_written() {
    let (pool, _) = pool();
    let other = pool.backend().create_queue(QueueOrder::InOrder).unwrap();
    let text = Text::default();
    let recording = pool.record(text.clone()).unwrap();
    let block = pool.allocate(1 << 20).unwrap();
    // No thread caches a block of two queues.
    block.record_use(&other).unwrap();
    drop(block);
    for _ in 0..2 {
        assert!(pool.would_fit(1 << 20));
    }
    recording.finish().unwrap();
    let told = text.of_pool("p").into_iter();
    let told: Vec<_> = told.filter(|words| words[0] == "flush").collect();
    assert_eq!(told.len(), 1, "{:?}", text.lines());
    assert_eq!(told[0][1], (1 << 20).to_string());
}

#[cfg(feature = "backtrace")]
#[test]
fn a_stack_is_written_once_from_the_program_that_asked_on() {
    #[inline(never)]
    fn layer(pool: &Pool, requests: usize) {
        for _ in 0..requests {
            drop(std::hint::black_box(pool.allocate(100).unwrap()));
        }
    }
    let frames_of = |requests| {
        let (pool, _) = pool();
        pool.watch(WatchOptions::new().backtraces(true));
        let text = Text::default();
        let recording = pool.record(text.clone()).unwrap();
        let tag = Tag::new("tag of a stack");
        tag.within(|| layer(&pool, requests));
        recording.finish().unwrap();
        check_stack(&text.lines(), requests)
    };
    assert_eq!(frames_of(1), frames_of(3), "each frame is written once");
}

/// Checks the blocks of `layer` above and their stack. Returns the number of its frames.
#[cfg(feature = "backtrace")]
fn check_stack(lines: &[String], requests: usize) -> usize {
    let of = |letter: &str| -> Vec<&str> {
        let start = format!("{letter} ");
        let found = lines.iter().filter(|line| line.starts_with(&start));
        found.map(|line| line.split_once(' ').unwrap().1).collect()
    };
    let frames: Vec<_> = of("k")
        .iter()
        .map(|rest| rest.split_once(' ').unwrap())
        .collect();
    let number = frames[0].0;
    assert!(
        frames.iter().all(|(stack, _)| *stack == number),
        "one stack: {frames:?}"
    );
    assert!(
        frames[0].1.contains("layer at pool/tests/it/recording.rs:"),
        "{frames:?}"
    );
    for (_, frame) in &frames {
        assert!(
            !frame.starts_with("std::") && !frame.starts_with("core::"),
            "{frames:?}"
        );
        assert!(!frame.starts_with("binpool::"), "{frames:?}");
    }
    let blocks = of("a");
    assert_eq!(blocks.len(), requests);
    assert!(
        blocks
            .iter()
            .all(|block| block.ends_with(&format!(" {number}"))),
        "{blocks:?}"
    );
    assert!(of("g")[0].ends_with("tag of a stack"));
    frames.len()
}
