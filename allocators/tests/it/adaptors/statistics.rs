//! `Statistics`.

use std::{thread, time::Duration};

use binpool_allocators::{
    Allocator, Error, Region, VirtualMemoryAllocator,
    adaptors::{AllocatorStatistics, Statistics},
};
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};

use crate::adaptors::{deferred, device, immediate, odd::Odd};

/// What was counted, without the time.
fn counts(reading: AllocatorStatistics) -> [u64; 6] {
    [
        reading.allocations,
        reading.failed_allocations,
        reading.releases,
        reading.failed_releases,
        reading.current_bytes,
        reading.peak_bytes,
    ]
}

#[test]
fn a_block_counts_with_the_bytes_that_it_really_has() {
    let statistics = Statistics::new(Odd::generous(&device()));
    let counts = || counts(statistics.reading());
    assert_eq!(statistics.reading(), AllocatorStatistics::default());
    let small = statistics.allocate(1).unwrap();
    assert_eq!(counts(), [1, 0, 0, 0, 1024, 1024]);
    let large = statistics.allocate(1025).unwrap();
    assert_eq!(counts(), [2, 0, 0, 0, 3072, 3072]);
    statistics.release(small, &[]).unwrap();
    statistics.release(large, &[]).unwrap();
    assert_eq!(counts(), [2, 0, 2, 0, 0, 3072]);
}

#[test]
fn failures_count_apart_and_take_nothing() {
    let device = device();
    let statistics = Statistics::new(immediate(&device));
    let all = statistics.allocate(1 << 20).unwrap();
    assert!(statistics.allocate(1).is_err());
    assert!(statistics.allocate(0).is_err());
    assert_eq!(counts(statistics.reading()), [1, 2, 0, 0, 1 << 20, 1 << 20]);
    device.fail_nth(CallKind::Release, 1, Fault::Backend(-5), Persistence::Once);
    assert!(statistics.release(all, &[]).is_err());
    // It is gone anyway.
    assert_eq!(counts(statistics.reading()), [1, 2, 1, 1, 0, 1 << 20]);
}

#[test]
fn time_is_that_of_all_calls_failed_ones_too() {
    const CALL: Duration = Duration::from_millis(2);
    let odd = Odd::new(&device())
        .on_allocate(|_| {
            thread::sleep(CALL);
            Ok(())
        })
        .on_release(|_| {
            thread::sleep(CALL);
            Ok(())
        });
    let statistics = Statistics::new(odd);
    let time = || statistics.reading().time;
    assert_eq!(time(), Duration::ZERO);
    let block = statistics.allocate(1).unwrap();
    let after_one = time();
    assert!(after_one >= CALL);
    statistics.release(block, &[]).unwrap();
    let after_two = time();
    assert!(after_two >= after_one + CALL);
    assert!(statistics.allocate(0).is_err());
    assert!(time() >= after_two + CALL);
}

#[test]
fn views_count_and_their_time_is_a_part_of_all() {
    const CALL: Duration = Duration::from_millis(2);
    let odd = Odd::new(&device())
        .on_create_view(|bytes| {
            thread::sleep(CALL);
            match bytes {
                64 => Err(Error::unsupported("64 bytes")),
                _ => Ok(()),
            }
        })
        .on_release_view(|_| thread::sleep(CALL));
    let statistics = Statistics::new(odd);
    let block = statistics.allocate(1024).unwrap();
    let view_time = || {
        let reading = statistics.reading();
        assert!(reading.view_time <= reading.time);
        reading.view_time
    };
    assert_eq!(
        (statistics.reading().views, view_time()),
        (0, Duration::ZERO)
    );
    let view = statistics.create_view(&block, Region::first(100)).unwrap();
    let after_one = view_time();
    assert!(after_one >= CALL);
    assert!(statistics.create_view(&block, Region::first(64)).is_err());
    let after_two = view_time();
    assert!(after_two >= after_one + CALL);
    statistics.release_view(view);
    assert!(view_time() >= after_two + CALL);
    let other = statistics.create_view(&block, Region::first(200)).unwrap();
    statistics.release_view(other);
    assert_eq!(statistics.reading().views, 2);
}

#[test]
fn clones_count_together_and_blocks_that_are_dropped_stay_counted() {
    let statistics = Statistics::new(deferred(&device()));
    let block = statistics.clone().allocate(100).unwrap();
    drop(statistics.allocate(50).unwrap());
    statistics.clone().release(block, &[]).unwrap();
    assert_eq!(counts(statistics.reading()), [2, 0, 1, 0, 50, 150]);
    assert_eq!(statistics.clone().reading(), statistics.reading());
}

#[test]
fn each_address_of_pages_counts_as_a_map_and_their_bytes_count_once() {
    for is_at_two in [true, false] {
        let device = MockDevice::builder()
            .virtual_memory(true)
            .page_aliases(is_at_two)
            .build();
        let statistics = Statistics::new(VirtualMemoryAllocator::new(&device.backend()));
        let page = statistics.page_bytes().unwrap();
        let moves = || (statistics.reading().maps, statistics.reading().unmaps);
        let addresses = statistics.reserve(4 * page).unwrap();
        let pages = statistics.allocate(page).unwrap();
        statistics.map(&addresses, 0, &pages).unwrap();
        assert_eq!(moves(), (1, 0));
        let second = statistics.map(&addresses, page, &pages);
        assert_eq!(second.is_ok(), is_at_two);
        assert_eq!(moves(), (1 + u64::from(is_at_two), 0));
        assert_eq!(
            counts(statistics.reading()),
            [1, 0, 0, 0, page as u64, page as u64]
        );
        // One call unmaps both.
        let mapped = Region::first(if is_at_two { 2 * page } else { page });
        statistics.unmap(&addresses, mapped).unwrap();
        assert_eq!(moves(), (1 + u64::from(is_at_two), 1));
        statistics.release(pages, &[]).unwrap();
        assert_eq!(counts(statistics.reading()), [1, 0, 1, 0, 0, page as u64]);
    }
}
