use binpool_allocators::{Memory, MemoryId, Queue};
use binpool_mock::{MockBackend, MockQueue};

use super::*;
use crate::{
    PoolOptions,
    mock_pool::MockPool,
    shared::{Cached, LeasedBlock, ThreadCache},
};

const KIB: usize = 1 << 10;

type Cache = ThreadCache<MockBackend>;

fn with_room_for(bytes: usize) -> Cache {
    let allowance = Allowance {
        bytes,
        bytes_for_small: 0,
        small_bytes: 0,
        largest_youngest: usize::MAX,
        bytes_in_depot: 0,
        may_be_limited: false,
    };
    ThreadCache::new(0, allowance, None, None)
}

fn push(cache: &mut Cache, cached_block: LeasedBlock<MockBackend>) -> bool {
    let requested = cached_block.bytes;
    cache
        .push(cached_block, Timestamp::default(), requested)
        .is_ok()
}

/// Pushes this many blocks of the default queue. Returns how many of them the cache took.
fn push_many(mock: &MockPool, cache: &mut Cache, count: usize, bytes: usize) -> usize {
    let blocks = (0..count).map(|_| mock.cached_block_for(&mock.queue, bytes));
    blocks
        .filter_map(|it| push(cache, it).then_some(()))
        .count()
}

/// Takes a block of this class on this queue, but not the youngest. Returns its size.
fn pop(mock: &MockPool, cache: &mut Cache, queue: &MockQueue, bytes: usize) -> Option<usize> {
    let cached_block = cache.pop(queue.id(), mock.shared.size(bytes))?;
    Some(cached_block.bytes)
}

fn ids(cached: &[Cached<MockBackend>]) -> Vec<MemoryId> {
    cached.iter().map(|it| it.block.memory.id()).collect()
}

#[test]
fn a_slot_is_limited_and_the_youngest_block_comes_on_top() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(usize::MAX);
    assert_eq!(
        push_many(&mock, &mut cache, 100, KIB),
        MAX_BLOCKS_PER_SLOT + 1
    );
    assert_eq!(cache.blocks(), MAX_BLOCKS_PER_SLOT + 1);
    assert_eq!(cache.bytes(), (MAX_BLOCKS_PER_SLOT + 1) * KIB);
}

#[test]
fn no_block_is_larger_than_the_allowance_and_all_but_the_youngest_stay_within_it() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(3 * KIB);
    assert!(push(&mut cache, mock.cached_block_for(&mock.queue, KIB)));
    assert!(push(
        &mut cache,
        mock.cached_block_for(&mock.queue, 2 * KIB)
    ));
    assert_eq!(push_many(&mock, &mut cache, 1, 4 * KIB), 0);
    assert!(push(
        &mut cache,
        mock.cached_block_for(&mock.queue, 3 * KIB)
    ));
    // The block of 3 KiB would have to go to its slot.
    assert_eq!(push_many(&mock, &mut cache, 1, 256), 0);
    assert_eq!(cache.bytes(), 6 * KIB);
    // Each block that leaves makes room.
    assert_eq!(pop(&mock, &mut cache, &mock.queue, 2 * KIB), Some(2 * KIB));
    assert!(cache.pop_youngest(mock.queue.id(), 3 * KIB).is_some());
    assert_eq!(push_many(&mock, &mut cache, 9, KIB), 3);
    cache.take(Wanted::All, drop);
    assert_eq!((cache.blocks(), cache.bytes()), (0, 0));
    assert_eq!(push_many(&mock, &mut cache, 9, KIB), 4);
}

#[test]
fn the_older_half_of_a_full_slot_goes_to_the_depot_as_far_as_that_has_room() {
    const HALF: usize = MAX_BLOCKS_PER_SLOT / 2 * KIB;
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(MAX_BLOCKS_PER_SLOT * KIB);
    let depot = Depot::default();
    cache.allowance.bytes_in_depot = 2 * HALF as u64 - 1;
    let blocks = (0..=MAX_BLOCKS_PER_SLOT).map(|_| mock.cached_block_for(&mock.queue, KIB));
    let blocks: Vec<_> = blocks.collect();
    let oldest = blocks[..MAX_BLOCKS_PER_SLOT / 2].iter();
    let oldest: Vec<_> = oldest.map(|it| it.memory.id()).collect();
    assert!(
        blocks
            .into_iter()
            .all(|cached_block| push(&mut cache, cached_block))
    );
    assert!(cache.make_room(&depot));
    assert_eq!((cache.bytes(), depot.bytes()), (HALF + KIB, HALF as u64));
    assert!(!cache.make_room(&depot), "the slot is no longer full");
    assert_eq!(
        push_many(&mock, &mut cache, 100, KIB),
        MAX_BLOCKS_PER_SLOT / 2
    );
    assert!(!cache.make_room(&depot), "the depot has no room");
    let surplus = cache.take_surplus();
    assert_eq!(
        (surplus.len(), cache.bytes()),
        (MAX_BLOCKS_PER_SLOT / 2, HALF + KIB)
    );

    // Another thread finds the magazine by the queue and the slot.
    let mut other = with_room_for(usize::MAX);
    let (queue, slot) = (mock.queue.id(), surplus[0].block.slot);
    assert!(!other.take_magazine(&depot, queue, slot + 1));
    assert!(other.take_magazine(&depot, queue, slot));
    assert_eq!((other.bytes(), depot.bytes()), (HALF, 0));
    let mut taken = Vec::new();
    other.take(Wanted::All, |cached| taken.push(cached));
    assert_eq!(ids(&taken), oldest);
}

#[test]
fn blocks_of_a_magazine_that_a_cache_has_no_room_for_stay_in_the_depot() {
    let mock = MockPool::of_blocks();
    let depot = Depot::default();
    let magazine: Vec<_> = (0..3).map(|_| mock.cached(KIB)).collect();
    let (queue, slot) = (mock.queue.id(), magazine[0].block.slot);
    depot.leave(0, queue, slot, magazine);
    let mut cache = with_room_for(2 * KIB);
    assert!(cache.take_magazine(&depot, queue, slot));
    assert_eq!((cache.bytes(), depot.bytes()), (2 * KIB, KIB as u64));
}

#[test]
fn the_youngest_block_leaves_if_its_slot_is_not_full() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(KIB);
    assert!(cache.take_surplus().is_empty());
    assert_eq!(push_many(&mock, &mut cache, 2, KIB), 2);
    let youngest = cache.take_surplus();
    assert_eq!((bytes_of(&youngest), cache.bytes()), (KIB, KIB));
    assert_eq!(push_many(&mock, &mut cache, 2, KIB), 1);
}

#[test]
fn a_cache_has_blocks_of_a_limited_number_of_queues() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(usize::MAX);
    let queues: Vec<_> = (0..=MAX_CACHED_QUEUES + 1)
        .map(|_| mock.another_queue())
        .collect();
    let (late, queues) = queues.split_last().unwrap();
    for queue in queues {
        assert!(push(&mut cache, mock.cached_block_for(queue, KIB)));
    }
    // The block before is the youngest, and there is no slot for it.
    assert!(!push(&mut cache, mock.cached_block_for(late, KIB)));
    assert!(pop(&mock, &mut cache, &queues[3], KIB).is_some());
    assert!(push(&mut cache, mock.cached_block_for(late, KIB)));
    for (number, queue) in queues.iter().enumerate() {
        let found = pop(&mock, &mut cache, queue, KIB);
        assert_eq!(found.is_some(), number != 3, "{number}");
    }
    assert!(cache.pop_youngest(late.id(), KIB).is_some());
}

#[test]
fn a_full_cache_has_a_place_only_for_the_queues_that_it_has() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(usize::MAX);
    let new = mock.another_queue();
    for _ in 0..MAX_CACHED_QUEUES {
        assert!(cache.has_place_for(new.id()));
        let queue = mock.another_queue();
        let cached = Cached {
            block: mock.cached_block_for(&queue, KIB),
            since: Timestamp::default(),
        };
        assert!(cache.insert(cached).is_ok());
        assert!(cache.has_place_for(queue.id()));
    }
    assert!(!cache.has_place_for(new.id()));
}

#[test]
fn the_youngest_block_is_for_the_sizes_of_its_class_alone() {
    let mock = MockPool::of_blocks();
    let block = mock.cached_block_for(&mock.queue, 3 * KIB);
    let (smaller_class, bytes) = (block.above, block.bytes);
    for (requested, is_for) in [
        (smaller_class, false),
        (smaller_class + 1, true),
        (bytes, true),
        (bytes + 1, false),
    ] {
        let mut cache = with_room_for(bytes);
        push_many(&mock, &mut cache, 1, 3 * KIB);
        let found = cache.pop_youngest(mock.queue.id(), requested);
        assert_eq!(found.is_some(), is_for, "{requested}");
    }
}

#[test]
fn blocks_go_to_their_arena_where_the_depot_has_no_room() {
    // So few of these lie in a segment that their views are kept.
    const BYTES: usize = 64 * KIB;
    let mock = MockPool::of_segments();
    let blocks = (0..=MAX_BLOCKS_PER_SLOT).map(|_| mock.cached_block_for(&mock.queue, BYTES));
    let blocks: Vec<_> = blocks.collect();
    let mut cache = with_room_for(usize::MAX);
    cache.arenas = Some(mock.shared.state.lock().segments.arenas());
    for block in blocks {
        assert!(push(&mut cache, block));
    }
    let free_bytes = || mock.shared.state.lock().held_bytes();
    let (depot, before) = (Depot::default(), free_bytes());
    assert!(cache.make_room(&depot));
    let returned = (MAX_BLOCKS_PER_SLOT / 2 * BYTES) as u64;
    assert_eq!((depot.blocks(), free_bytes() - before), (0, returned));
}

#[test]
fn a_block_serves_a_smaller_class_only_if_it_is_small() {
    // With this many classes, these two share a slot.
    const SMALL: usize = 65 * KIB;
    const LARGE: usize = 66 * KIB;
    let mock = MockPool::new(PoolOptions::new().segments(false).leading_bits(10));
    let slot = |bytes| {
        let classes = &mock.shared.classes;
        classes.slot(classes.bin_number(bytes))
    };
    assert_eq!(slot(SMALL), slot(LARGE));
    let programs = [
        (SMALL, SMALL, 0, true),
        (SMALL, LARGE, usize::MAX, false),
        (LARGE, SMALL, LARGE - 1, false),
        (LARGE, SMALL, LARGE, true),
    ];
    for (kept, requested, small_bytes, serves) in programs {
        let allowance = Allowance {
            bytes: usize::MAX,
            bytes_for_small: usize::MAX,
            small_bytes,
            largest_youngest: usize::MAX,
            bytes_in_depot: 0,
            may_be_limited: false,
        };
        let mut cache = ThreadCache::new(0, allowance, None, None);
        assert_eq!(push_many(&mock, &mut cache, 2, kept), 2);
        let found = pop(&mock, &mut cache, &mock.queue, requested);
        assert_eq!(
            found,
            serves.then_some(kept),
            "{kept} {requested} {small_bytes}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "a cache has fewer blocks there")]
fn only_the_youngest_few_blocks_of_a_slot_are_searched() {
    const SMALL: usize = 65 * KIB;
    const LARGE: usize = 66 * KIB;
    let mock = MockPool::new(PoolOptions::new().segments(false).leading_bits(10));
    for (in_front, is_found) in [
        (MAX_BLOCKS_SEARCHED - 1, true),
        (MAX_BLOCKS_SEARCHED, false),
    ] {
        let mut cache = with_room_for(usize::MAX);
        assert_eq!(push_many(&mock, &mut cache, 1, LARGE), 1);
        assert_eq!(
            push_many(&mock, &mut cache, in_front + 1, SMALL),
            in_front + 1
        );
        let found = pop(&mock, &mut cache, &mock.queue, LARGE);
        assert_eq!(found.is_some(), is_found, "{in_front}");
    }
}

#[test]
fn a_block_that_leaves_from_the_middle_of_its_slot_makes_room() {
    // Both share a slot.
    const SMALL: usize = 65 * KIB;
    const LARGE: usize = 66 * KIB;
    let mock = MockPool::new(PoolOptions::new().segments(false).leading_bits(10));
    let mut cache = with_room_for(LARGE + SMALL);
    for bytes in [LARGE, SMALL, SMALL] {
        assert_eq!(push_many(&mock, &mut cache, 1, bytes), 1);
    }
    assert_eq!(push_many(&mock, &mut cache, 1, SMALL), 0);
    assert_eq!(pop(&mock, &mut cache, &mock.queue, LARGE), Some(LARGE));
    assert_eq!(cache.bytes(), 2 * SMALL);
    assert_eq!(push_many(&mock, &mut cache, 1, SMALL), 1);
}

#[test]
fn the_depot_takes_as_many_bytes_as_it_may_have() {
    const HALF: usize = MAX_BLOCKS_PER_SLOT / 2 * KIB;
    let mock = MockPool::of_blocks();
    for (bytes_in_depot, has_room) in [(HALF - 1, false), (HALF, true)] {
        let mut cache = with_room_for(usize::MAX);
        cache.allowance.bytes_in_depot = bytes_in_depot as u64;
        let all = MAX_BLOCKS_PER_SLOT + 1;
        assert_eq!(push_many(&mock, &mut cache, all, KIB), all);
        assert_eq!(cache.make_room(&Depot::default()), has_room);
    }
}

#[test]
fn a_block_that_the_pool_gives_a_cache_is_no_activity_of_its_thread() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(usize::MAX);
    assert!(cache.insert(mock.cached(KIB)).is_ok());
    assert_eq!(cache.take_activity(), Activity::default());
    assert_eq!(pop(&mock, &mut cache, &mock.queue, KIB), Some(KIB));
    let activity = cache.take_activity();
    assert_eq!(
        (activity.block_bytes, activity.hits),
        (KIB.cast_signed(), 1)
    );
}
