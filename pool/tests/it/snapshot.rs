//! A snapshot says what the pool has, every byte of it once.

use std::{collections::HashMap, error::Error as _, fs, path::Path};

use binpool::{
    Backend, BlockState, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, Queue,
    QueueOrder, Retain, ReusePolicy, ScrubPolicy, Snapshot, SnapshotBlock, Tag, TraceErrorKind,
    WatchOptions,
};
use binpool_mock::{Completion, MockBackend, MockDevice, MockQueue};
use proptest::prelude::*;

type Pool = MemoryPool<MockBackend>;

fn pool_of(device: &MockDevice, options: PoolOptions) -> (Pool, MockQueue) {
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    (options.build(allocator, &queue).unwrap(), queue)
}

fn all_blocks(snapshot: &Snapshot) -> impl Iterator<Item = &SnapshotBlock> {
    let ranges = snapshot.segments.iter().flat_map(|segment| &segment.ranges);
    ranges.chain(&snapshot.blocks)
}

/// The number and the bytes of the blocks in each state.
fn by_state(snapshot: &Snapshot) -> HashMap<BlockState, (u64, u64)> {
    let mut found = HashMap::new();
    for block in all_blocks(snapshot) {
        let (blocks, bytes) = found.entry(block.state).or_insert((0, 0));
        *blocks += 1;
        *bytes += block.bytes;
    }
    found
}

/// What must hold of every snapshot of a pool that has watched from the beginning.
fn check(snapshot: &Snapshot) {
    for segment in &snapshot.segments {
        let mut end = 0;
        for range in &segment.ranges {
            assert_eq!(range.offset, end, "ranges lie next to each other");
            end += range.bytes;
        }
        assert_eq!(end, segment.bytes, "they cover the segment");
    }
    let states = by_state(snapshot);
    let of = |state| states.get(&state).copied().unwrap_or_default();
    let statistics = &snapshot.statistics;
    let (blocks, bytes) = of(BlockState::Active);
    assert_eq!(blocks, statistics.active_blocks);
    let all: u64 = states.values().map(|(_, bytes)| bytes).sum();
    assert_eq!(all, statistics.managed_bytes, "every byte is there once");
    assert_eq!(all - bytes, statistics.held_bytes);
    let (_, pending) = of(BlockState::Pending);
    assert_eq!(pending, statistics.pending_bytes, "one word, one number");
    let asked: u64 = all_blocks(snapshot)
        .filter_map(|block| block.requested_bytes)
        .sum();
    assert_eq!(asked, statistics.active_bytes);
    for block in all_blocks(snapshot).filter(|block| block.state == BlockState::Active) {
        assert!(block.requested_bytes.unwrap() <= block.bytes);
        assert!(block.call_site.is_some() && block.age_ns.is_some() && block.queue.is_some());
    }
    let json = snapshot.to_json().unwrap();
    assert_eq!(Snapshot::from_json(&json).unwrap(), *snapshot);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    /// The block at this place, counted around, after a use of it on the other queue where that says so.
    Drop(usize, bool),
    FreeHeld,
    Finish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_usize..3 << 20).prop_map(Step::Allocate),
        2 => (1_usize..5000).prop_map(Step::Allocate),
        4 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(at, used)| Step::Drop(at, used)),
        1 => Just(Step::FreeHeld),
        1 => Just(Step::Finish),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_of_the_pool_is_in_its_snapshot_once(
        segments: bool,
        caches: bool,
        scrub: bool,
        steps in steps(),
    ) {
        let device = MockDevice::builder().completion(Completion::Manual).build();
        let mut options = PoolOptions::new().segments(segments);
        if !caches {
            options = options.retain(Retain::new().unused_for(std::time::Duration::MAX));
        }
        if scrub {
            options = options.scrub(ScrubPolicy::OnFree);
        }
        let (pool, queue) = pool_of(&device, options);
        let other = pool.backend().create_queue(QueueOrder::OutOfOrder).unwrap();
        pool.watch(WatchOptions::new());
        let mut blocks: Vec<PooledBuffer<MockBackend>> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(bytes) => blocks.push(pool.allocate(bytes).unwrap()),
                Step::Drop(at, is_used) if !blocks.is_empty() => {
                    let block = blocks.swap_remove(at % blocks.len());
                    if is_used {
                        block.enqueue_fill(&other, 0..1, &[1_u8]).unwrap();
                    }
                    drop(block);
                }
                Step::Drop(..) => {}
                Step::FreeHeld => drop(pool.free_held()),
                Step::Finish => {
                    queue.finish().unwrap();
                    other.finish().unwrap();
                }
            }
            check(&pool.snapshot());
        }
    }
}

#[test]
fn blocks_are_there_with_their_tags_queues_and_states() {
    for segments in [true, false] {
        let device = MockDevice::builder().completion(Completion::Manual).build();
        let (pool, queue) = pool_of(&device, PoolOptions::new().segments(segments));
        pool.watch(WatchOptions::new());
        let tag = Tag::new("of a snapshot");
        let kept = tag.within(|| pool.allocate_on(&queue, 5000).unwrap());
        let cached = pool.allocate(8192).unwrap();
        let used = pool.allocate(16384).unwrap();
        let other = pool.backend().create_queue(QueueOrder::InOrder).unwrap();
        used.enqueue_fill(&other, 0..1, &[1_u8]).unwrap();
        drop((cached, used));
        let snapshot = pool.snapshot();
        check(&snapshot);
        let of = |state| {
            let mut found = all_blocks(&snapshot).filter(move |block| block.state == state);
            let block = found.next().unwrap();
            assert!(found.next().is_none(), "one block is {state:?}");
            block
        };
        let active = of(BlockState::Active);
        assert_eq!(active.tag.as_deref(), Some("of a snapshot"));
        assert_eq!(active.requested_bytes, Some(5000));
        assert_eq!(active.bytes, kept.class_size() as u64);
        assert_eq!(active.queue, Some(queue.id().get()));
        let held = of(BlockState::Held);
        assert_eq!((held.bytes, held.queue), (8192, Some(queue.id().get())));
        assert_eq!(of(BlockState::Pending).bytes, 16384);
        assert_eq!(snapshot.segments.is_empty(), !segments);
    }
}

#[test]
fn without_a_watch_blocks_of_segments_are_there_all_the_same() {
    let (pool, _) = pool_of(&MockDevice::new(), PoolOptions::new());
    let block = pool.allocate(5000).unwrap();
    let snapshot = pool.snapshot();
    assert!(!snapshot.settings.is_watching);
    let first = &snapshot.segments[0].ranges[0];
    assert_eq!(first.state, BlockState::Active);
    assert_eq!(first.bytes, block.class_size() as u64);
    assert_eq!(
        (first.requested_bytes, &first.tag, first.age_ns),
        (None, &None, None)
    );
}

#[test]
fn settings_and_limits_are_those_of_the_pool() {
    let device = MockDevice::builder().capacity_bytes(64 << 20).build();
    let options = PoolOptions::new()
        .segments(false)
        .reuse(ReusePolicy::InsertWait)
        .scrub(ScrubPolicy::OnHandOut)
        .retain(Retain::new().at_most(1 << 20));
    let (pool, _) = pool_of(&device, options);
    pool.stop_holding();
    let settings = pool.snapshot().settings;
    assert_eq!(settings.capacity_bytes, 64 << 20);
    assert_eq!(settings.device, pool.backend().limits().device_name);
    assert_eq!(
        (settings.reuse.as_str(), settings.scrub.as_str()),
        ("insert_wait", "on_hand_out")
    );
    assert_eq!(settings.release_threshold_bytes, Some(1 << 20));
    assert!(!settings.segments && !settings.is_holding);
    let (pool, _) = pool_of(&device, PoolOptions::new());
    assert_eq!(pool.snapshot().settings.release_threshold_bytes, None);
}

#[test]
fn json_that_is_no_snapshot_or_of_another_version_is_refused_with_what_it_is() {
    let message = |json: &str| Snapshot::from_json(json).unwrap_err().to_string();
    assert!(message("nothing").contains("not a snapshot of a pool"));
    assert!(message("{}").contains("expected \"binpool snapshot\""));
    assert!(message(r#"{"format": "other"}"#).contains("\"other\""));
    let newer = r#"{"format": "binpool snapshot", "version": 7, "anything": []}"#;
    let newer = Snapshot::from_json(newer).unwrap_err();
    assert_eq!(newer.kind(), TraceErrorKind::Version);
    assert!(newer.to_string().contains("version 7"), "{newer}");
    let bare = r#"{"format": "binpool snapshot", "version": 1}"#;
    let error = Snapshot::from_json(bare).unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("missing field"), "{cause}");
}

#[test]
fn fields_that_a_reader_does_not_know_are_ignored() {
    let (pool, _) = pool_of(&MockDevice::new(), PoolOptions::new());
    let snapshot = pool.snapshot();
    let json = snapshot.to_json().unwrap();
    let newer = json.replacen('{', "{\"a_new_field\": [1, 2],", 1);
    assert_eq!(Snapshot::from_json(&newer).unwrap(), snapshot);
}

fn files_of(directory: &Path) -> Vec<Snapshot> {
    let files = fs::read_dir(directory).unwrap();
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    texts
        .map(|json| Snapshot::from_json(&json).unwrap())
        .collect()
}

#[test]
fn a_shortage_writes_a_snapshot_that_says_why_and_who() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("made/where/missing");
    let device = MockDevice::builder().capacity_bytes(64 << 20).build();
    let options = PoolOptions::new().snapshot_at_out_of_memory(&inner);
    let (pool, _) = pool_of(&device, options);
    pool.watch(WatchOptions::new());
    let cache = Tag::new("cache of a shortage").within(|| pool.allocate(48 << 20).unwrap());
    let step = Tag::new("step of a shortage");
    step.within(|| pool.allocate(32 << 20).unwrap_err());
    let [snapshot] = &files_of(&inner)[..] else {
        panic!("one file")
    };
    check(snapshot);
    let shortage = snapshot.out_of_memory.as_ref().unwrap();
    assert_eq!(shortage.requested_bytes, 32 << 20);
    assert_eq!(shortage.verdict, "device_full");
    assert_eq!(shortage.tag.as_deref(), Some("step of a shortage"));
    assert!(
        shortage
            .call_site
            .as_deref()
            .unwrap()
            .contains("snapshot.rs")
    );
    let active = all_blocks(snapshot).find(|block| block.state == BlockState::Active);
    assert_eq!(active.unwrap().tag.as_deref(), Some("cache of a shortage"));
    // A request that never fits is one, too.
    drop(cache);
    pool.allocate(1 << 30).unwrap_err();
    let verdicts = files_of(&inner)
        .into_iter()
        .map(|it| it.out_of_memory.unwrap().verdict);
    let mut verdicts: Vec<_> = verdicts.collect();
    verdicts.sort();
    assert_eq!(verdicts, ["device_full", "never_fits"]);
}

#[test]
fn a_directory_that_cannot_be_written_changes_nothing_about_the_error() {
    let device = MockDevice::builder().capacity_bytes(1 << 20).build();
    let options = PoolOptions::new().snapshot_at_out_of_memory("/dev/null/nowhere");
    let (pool, _) = pool_of(&device, options);
    assert!(pool.allocate(2 << 20).unwrap_err().is_out_of_memory());
}

#[test]
fn what_one_queue_in_order_used_is_ready_for_it_and_not_pending_and_says_so_in_every_place() {
    for segments in [false, true] {
        let device = MockDevice::builder().completion(Completion::Manual);
        let options = PoolOptions::new().segments(segments);
        let (pool, queue) = pool_of(&device.build(), options);
        let others = [QueueOrder::InOrder, QueueOrder::OutOfOrder]
            .map(|order| pool.backend().create_queue(order).unwrap());
        let blocks = [(); 3].map(|()| pool.allocate(1 << 20).unwrap());
        for block in &blocks {
            block.enqueue_fill(&queue, 0..64, &[1_u8]).unwrap();
        }
        drop(blocks);
        let snapshot = pool.snapshot();
        check(&snapshot);
        assert_eq!(snapshot.statistics.pending_bytes, 0);
        let ready = all_blocks(&snapshot).filter(|block| block.queue == Some(queue.id().get()));
        let ready: u64 = ready.map(|block| block.bytes).sum();
        assert!(ready >= 3 << 20, "segments: {segments}, {ready} bytes");

        let block = pool.allocate(1 << 20).unwrap();
        for other in &others {
            block.enqueue_fill(other, 0..64, &[1_u8]).unwrap();
        }
        drop(block);
        let before = pool.statistics().pending_bytes;
        let snapshot = pool.snapshot();
        check(&snapshot);
        assert_eq!(snapshot.statistics.pending_bytes, 1 << 20);
        assert_eq!(before, 1 << 20, "segments: {segments}");
    }
}
