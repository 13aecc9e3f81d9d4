//! What is in use is known by who asked for it, and told from what is cached.

use std::{thread, time::Duration};

use binpool::{
    Backend, ImmediateAllocator, LiveBlocks, LiveGroup, MemoryPool, PoolOptions, QueueOrder,
    Retain, Tag, WatchOptions,
};
use binpool_mock::{MockBackend, MockDevice};
use tracing_subscriber::filter::LevelFilter;

use crate::common::log::logged;

type Pool = MemoryPool<MockBackend>;

fn pool(options: PoolOptions) -> Pool {
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    options.build(allocator, &queue).unwrap()
}

fn watching(options: PoolOptions) -> Pool {
    let pool = pool(options);
    pool.watch(WatchOptions::new());
    pool
}

/// Tag, blocks and bytes of each group.
fn figures(live: &LiveBlocks) -> Vec<(Option<&str>, u64, u64)> {
    let figures = |group: &'_ LiveGroup| (group.blocks, group.requested_bytes);
    let groups = live.groups.iter();
    groups
        .map(|group| {
            let (blocks, bytes) = figures(group);
            (group.tag.as_deref(), blocks, bytes)
        })
        .collect()
}

#[test]
fn a_pool_that_watches_tags_only_groups_by_tag_and_names_no_line() {
    let pool = pool(PoolOptions::new());
    pool.watch(WatchOptions::new().tags_only(true));
    let tag = Tag::new("model.py:3 of live blocks");
    let one = tag.within(|| pool.allocate(1 << 20).unwrap());
    let other = tag.within(|| pool.allocate(1 << 20).unwrap());
    let untagged = pool.allocate(4096).unwrap();
    let live = pool.live_blocks();
    let expected = [
        (Some("model.py:3 of live blocks"), 2, 2 << 20),
        (None, 1, 4096),
    ];
    assert_eq!(figures(&live), expected);
    assert!(live.groups.iter().all(|group| group.call_site.is_none()));
    let text = live.to_string();
    assert!(text.contains("model.py:3 of live blocks\n"), "{text}");
    assert!(!text.contains(".rs:"), "{text}");
    drop((one, other, untagged));
}

#[test]
fn blocks_in_use_are_grouped_by_tag_the_most_bytes_first() {
    for options in [
        PoolOptions::new(),
        PoolOptions::new().segments(false),
        // Without thread caches.
        PoolOptions::new().retain(Retain::new().unused_for(Duration::MAX)),
    ] {
        let pool = watching(options);
        let [small, large] = ["small of live blocks", "large of live blocks"].map(Tag::new);
        let mut blocks = Vec::new();
        for _ in 0..3 {
            blocks.push(small.within(|| pool.allocate(100).unwrap()));
        }
        blocks.push(large.within(|| pool.allocate(1 << 20).unwrap()));
        // What has gone, by whatever way, is in no group.
        large.within(|| drop(pool.allocate(1 << 20).unwrap()));
        drop(large.within(|| pool.allocate(1 << 20).unwrap().detach()));
        large.within(|| pool.allocate(1 << 20).unwrap().release().unwrap());
        drop(blocks.remove(0));
        let live = pool.live_blocks();
        let expected = [
            (Some("large of live blocks"), 1, 1 << 20),
            (Some("small of live blocks"), 2, 200),
        ];
        assert_eq!(figures(&live), expected);
        assert_eq!((live.blocks, live.requested_bytes), (3, (1 << 20) + 200));
        assert_eq!(live.unknown_blocks, 0);
        assert_eq!(live.held_bytes, pool.statistics().held_bytes);
    }
}

#[test]
fn blocks_of_two_lines_are_two_groups_that_name_them() {
    let pool = watching(PoolOptions::new());
    let line = line!() + 1;
    let first = pool.allocate(200).unwrap();
    let second = pool.allocate(100).unwrap();
    let live = pool.live_blocks();
    for (group, line) in live.groups.iter().zip(line..) {
        let site = group.call_site.as_deref().unwrap();
        assert!(site.contains(&format!("live_blocks.rs:{line}:")), "{site}");
    }
    assert_eq!(figures(&live), [(None, 1, 200), (None, 1, 100)]);
    drop((first, second));
}

#[test]
fn a_block_that_another_thread_drops_or_has_is_counted_once() {
    let pool = watching(PoolOptions::new());
    let block = pool.allocate(100).unwrap();
    let kept = thread::spawn({
        let pool = pool.clone();
        move || {
            drop(block);
            pool.allocate(100).unwrap()
        }
    });
    let kept = kept.join().unwrap();
    let live = pool.live_blocks();
    assert_eq!((live.groups.len(), live.groups[0].blocks), (1, 1));
    drop(kept);
    assert!(pool.live_blocks().groups.is_empty());
}

#[test]
fn blocks_from_before_the_watch_are_counted_and_said_to_be_unknown() {
    let pool = pool(PoolOptions::new());
    let old = pool.allocate(300).unwrap();
    pool.watch(WatchOptions::new());
    let new = pool.allocate(100).unwrap();
    let live = pool.live_blocks();
    assert_eq!((live.unknown_blocks, live.unknown_bytes), (1, 300));
    assert_eq!((live.blocks, live.groups[0].blocks), (2, 1));
    assert!(live.to_string().contains("before the pool watched"));
    drop((old, new));
}

#[test]
fn who_stops_watching_forgets_and_begins_afresh() {
    let pool = watching(PoolOptions::new());
    let first = pool.allocate(100).unwrap();
    pool.stop_watching();
    assert!(!pool.is_watching());
    assert_eq!(pool.live_blocks().unknown_blocks, 1);
    // It comes back unseen, and must not seem to be in use.
    drop(first);
    pool.watch(WatchOptions::new());
    assert!(pool.live_blocks().groups.is_empty());
    let second = pool.allocate(100).unwrap();
    assert_eq!(pool.live_blocks().groups.len(), 1);
    drop(second);
}

#[test]
fn ages_are_those_of_the_oldest_and_the_youngest() {
    let pool = watching(PoolOptions::new());
    let ask = || pool.allocate(100).unwrap();
    let tag = Tag::new("ages of live blocks");
    let first = tag.within(ask);
    thread::sleep(Duration::from_millis(20));
    let second = tag.within(ask);
    let live = pool.live_blocks();
    let [group] = live.groups.as_slice() else {
        panic!("one group: {live}")
    };
    let between = group.oldest.checked_sub(group.youngest).unwrap();
    // Less than the pause, since the ticks are not exact.
    assert!(between >= Duration::from_millis(10), "{between:?}");
    drop((first, second));
}

#[test]
fn printed_it_says_what_is_in_use_and_what_is_cached() {
    let pool = watching(PoolOptions::new().segments(false));
    let tag = Tag::new("printed");
    let blocks = [(); 2].map(|()| tag.within(|| pool.allocate(1 << 20).unwrap()));
    drop(pool.allocate(4 << 20).unwrap());
    let text = pool.live_blocks().to_string();
    assert!(text.starts_with("in use: 2 blocks, 2.0 MiB ("), "{text}");
    assert!(text.contains("cached: 4.0 MiB, kept by the pool"), "{text}");
    assert!(text.contains("printed, at "), "{text}");
    drop(blocks);
}

#[test]
fn a_watching_pool_says_which_blocks_outlive_it() {
    let log = logged(LevelFilter::INFO, || {
        let pool = watching(PoolOptions::new());
        let block = Tag::new("left behind").within(|| pool.allocate(100).unwrap());
        drop(pool);
        drop(block);
    });
    assert!(log.contains("after the last handle of their pool"), "{log}");
    assert!(log.contains("left behind"), "{log}");
    let log = logged(LevelFilter::INFO, || {
        drop(watching(PoolOptions::new()).allocate(100).unwrap());
    });
    assert!(!log.contains("after the last handle"), "{log}");
}

#[cfg(feature = "backtrace")]
#[test]
fn with_backtraces_the_functions_that_led_to_a_block_are_named() {
    #[inline(never)]
    fn ask_for_a_block(pool: &Pool) -> binpool::PooledBuffer<MockBackend> {
        pool.allocate(100).unwrap()
    }

    let pool = pool(PoolOptions::new());
    pool.watch(WatchOptions::new().backtraces(true));
    let block = ask_for_a_block(&pool);
    let live = pool.live_blocks();
    let site = live.groups[0].call_site.as_deref().unwrap();
    let innermost = site.lines().next().unwrap();
    assert!(innermost.contains("ask_for_a_block"), "{site}");
    assert!(innermost.contains("live_blocks.rs:"), "{site}");
    drop(block);
}
