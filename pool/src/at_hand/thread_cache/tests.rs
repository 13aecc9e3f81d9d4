use binpool_allocators::{Memory, MemoryId, Queue};
use binpool_mock::MockQueue;

use super::*;
use crate::{
    PoolOptions,
    mock_pool::{Immediate, MockPool},
};

const KIB: usize = 1 << 10;

type Cache = ThreadCache<Immediate>;

fn with_room_for(bytes: usize) -> Cache {
    let allowance = Allowance {
        bytes,
        loose_bytes: 0,
    };
    ThreadCache::new(allowance, None)
}

fn push(cache: &mut Cache, grant: Grant<Immediate>) -> bool {
    let asked = grant.block.bytes;
    cache.push(grant, Stamp::default(), asked).is_ok()
}

/// Has the cache take so many blocks of the home queue, as far as it does. How many it took.
fn push_many(mock: &MockPool, cache: &mut Cache, count: usize, bytes: usize) -> usize {
    let grants = (0..count).map(|_| mock.grant_for(&mock.queue, bytes));
    grants
        .filter_map(|it| push(cache, it).then_some(()))
        .count()
}

/// What the cache has for somebody who asks for a block of this class on this queue, apart from the youngest.
fn pop(mock: &MockPool, cache: &mut Cache, queue: &MockQueue, bytes: usize) -> Option<usize> {
    let bin = mock.shared.classes.bin_number(bytes);
    let place = mock.shared.classes.place(bin);
    let grant = cache.pop(queue.id(), place, bin, bytes, bytes)?;
    Some(grant.block.bytes)
}

fn ids(cached: &[Cached<Immediate>]) -> Vec<MemoryId> {
    cached.iter().map(|it| it.grant.block.memory.id()).collect()
}

#[test]
fn a_place_has_its_blocks_and_the_youngest() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(usize::MAX);
    assert_eq!(push_many(&mock, &mut cache, 100, KIB), MOST_IN_A_PLACE + 1);
    assert_eq!(cache.blocks(), MOST_IN_A_PLACE + 1);
    assert_eq!(cache.bytes(), (MOST_IN_A_PLACE + 1) * KIB);
}

#[test]
fn all_blocks_but_the_youngest_have_the_bytes_that_are_allowed() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(3 * KIB);
    assert!(push(&mut cache, mock.grant_for(&mock.queue, KIB)));
    assert!(push(&mut cache, mock.grant_for(&mock.queue, 2 * KIB)));
    assert!(push(&mut cache, mock.grant_for(&mock.queue, 9 * KIB)));
    // The nine would have to join the others.
    assert_eq!(push_many(&mock, &mut cache, 1, 256), 0);
    assert_eq!(cache.bytes(), 12 * KIB);
    // Whatever leaves makes room.
    assert_eq!(pop(&mock, &mut cache, &mock.queue, 2 * KIB), Some(2 * KIB));
    assert!(cache.pop_youngest(mock.queue.id(), 9 * KIB).is_some());
    assert_eq!(push_many(&mock, &mut cache, 9, KIB), 3);
    cache.take(None, drop);
    assert_eq!((cache.blocks(), cache.bytes()), (0, 0));
    assert_eq!(push_many(&mock, &mut cache, 9, KIB), 4);
}

#[test]
fn the_older_half_of_a_full_place_makes_room() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(MOST_IN_A_PLACE * KIB);
    let grants = (0..=MOST_IN_A_PLACE).map(|_| mock.grant_for(&mock.queue, KIB));
    let grants: Vec<_> = grants.collect();
    let oldest = grants[..MOST_IN_A_PLACE / 2].iter();
    let oldest: Vec<_> = oldest.map(|it| it.block.memory.id()).collect();
    assert!(grants.into_iter().all(|grant| push(&mut cache, grant)));
    let Some(Surplus::Magazine(queue, place, magazine)) = cache.make_room() else {
        panic!("its place is full");
    };
    let bin = magazine[0].grant.block.bin;
    assert_eq!(
        (queue, place),
        (mock.queue.id(), mock.shared.classes.place(bin))
    );
    assert_eq!(ids(&magazine), oldest);
    assert_eq!(cache.bytes(), (MOST_IN_A_PLACE / 2 + 1) * KIB);
    assert_eq!(push_many(&mock, &mut cache, 100, KIB), MOST_IN_A_PLACE / 2);
}

#[test]
fn the_youngest_makes_room_where_its_place_is_not_full() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(KIB);
    assert!(cache.make_room().is_none());
    assert_eq!(push_many(&mock, &mut cache, 2, KIB), 2);
    let Some(Surplus::Block(youngest)) = cache.make_room() else {
        panic!("there is a youngest");
    };
    assert_eq!((youngest.bytes(), cache.bytes()), (KIB, KIB));
    assert_eq!(push_many(&mock, &mut cache, 2, KIB), 1);
}

#[test]
fn a_cache_has_blocks_of_so_many_queues_unless_it_has_run_out_of_those_of_one() {
    let mock = MockPool::of_blocks();
    let mut cache = with_room_for(usize::MAX);
    let queues: Vec<_> = (0..=MOST_QUEUES + 1)
        .map(|_| mock.another_queue())
        .collect();
    let (late, queues) = queues.split_last().unwrap();
    for queue in queues {
        assert!(push(&mut cache, mock.grant_for(queue, KIB)));
    }
    // The one before is the youngest, and has no place to go.
    assert!(!push(&mut cache, mock.grant_for(late, KIB)));
    assert!(pop(&mock, &mut cache, &queues[3], KIB).is_some());
    assert!(push(&mut cache, mock.grant_for(late, KIB)));
    for (number, queue) in queues.iter().enumerate() {
        let found = pop(&mock, &mut cache, queue, KIB);
        assert_eq!(found.is_some(), number != 3, "{number}");
    }
    assert!(cache.pop_youngest(late.id(), KIB).is_some());
}

#[test]
fn a_block_serves_its_own_class_and_a_smaller_one_if_it_is_hardly_larger() {
    // So many classes that these two have one place.
    const SMALL: usize = 65 * KIB;
    const LARGE: usize = 66 * KIB;
    let mock = MockPool::new(PoolOptions::new().segments(false).leading_bits(10));
    let place = |bytes| {
        let classes = &mock.shared.classes;
        classes.place(classes.bin_number(bytes))
    };
    assert_eq!(place(SMALL), place(LARGE));
    let programs = [
        (SMALL, SMALL, 0, true),
        (SMALL, LARGE, usize::MAX, false),
        (LARGE, SMALL, LARGE - 1, false),
        (LARGE, SMALL, LARGE, true),
    ];
    for (kept, asked, loose_bytes, serves) in programs {
        let allowance = Allowance {
            bytes: usize::MAX,
            loose_bytes,
        };
        let mut cache = ThreadCache::new(allowance, None);
        assert_eq!(push_many(&mock, &mut cache, 2, kept), 2);
        let found = pop(&mock, &mut cache, &mock.queue, asked);
        assert_eq!(
            found,
            serves.then_some(kept),
            "{kept} {asked} {loose_bytes}"
        );
    }
}

#[test]
fn the_youngest_few_of_a_place_are_looked_at() {
    const SMALL: usize = 65 * KIB;
    const LARGE: usize = 66 * KIB;
    let mock = MockPool::new(PoolOptions::new().segments(false).leading_bits(10));
    for (in_front, is_found) in [(LOOK_AT - 1, true), (LOOK_AT, false)] {
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
