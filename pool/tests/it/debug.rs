//! `{:?}` of what a program holds: array crates derive `Debug` over it, and tests that fail print it.

use std::fmt::Debug;

use binpool::{
    Allocator, DeferredAllocator, ImmediateAllocator, WatchOptions,
    adaptors::{Budget, Fallback, Limit, Statistics},
};
use binpool_mock::MockDevice;

use crate::common::{MIB, Rig};

/// Fails unless the value is printed in less than 300 bytes.
fn assert_short(value: &impl Debug) {
    let text = format!("{value:?}");
    assert!(text.len() < 300, "{} bytes: {text}", text.len());
}

#[test]
fn a_pool_and_its_blocks_are_printed_in_a_line_however_many_there_are() {
    let rig = Rig::with_capacity(16 * MIB);
    let mut blocks: Vec<_> = (0..10_000)
        .map(|_| rig.pool.allocate(100).unwrap())
        .collect();
    blocks.truncate(5_000);
    let text = format!("{:?}", rig.pool);
    assert!(text.contains("active_blocks: 5000"), "{text}");
    assert!(text.contains("active: 488.3 KiB"), "{text}");
    assert_short(&rig.pool);
    assert_short(&rig.pool.downgrade());
    let text = format!("{:?}", blocks[0]);
    assert!(text.starts_with("PooledBuffer { bytes: 100, "), "{text}");
    assert_short(&blocks[0]);
    assert_short(&blocks[0].slice(..10).unwrap());
    assert_short(&blocks[0].memory_on(&rig.queue));
    assert_short(&rig.queue);
    assert_short(&rig.backend);
    assert_short(&rig.device);
}

#[test]
fn an_allocator_is_printed_in_a_line() {
    let backend = MockDevice::new().backend();
    let inner = ImmediateAllocator::new(&backend).unwrap();
    let counted = Statistics::new(inner.clone());
    let _blocks: Vec<_> = (0..1000).map(|_| counted.allocate(4096).unwrap()).collect();
    assert_short(&inner);
    assert_short(&DeferredAllocator::new(&backend));
    assert_short(&counted);
    assert_short(&Budget::new(1 << 30));
    assert_short(&Limit::new(inner.clone(), 1 << 30));
    assert_short(&Fallback::new(inner.clone(), inner));
}

#[test]
fn a_report_is_printed_as_its_table_by_every_way() {
    let rig = Rig::with_capacity(MIB);
    let _block = rig.pool.allocate(MIB).unwrap();
    let error = rig.pool.allocate(MIB).unwrap_err();
    let table = error.to_string();
    assert!(
        table.starts_with("out of memory: could not allocate 1.0 MiB"),
        "{table}"
    );
    let with_cause = format!("{error:?}");
    assert!(with_cause.starts_with(&table), "{with_cause}");
    assert!(with_cause.contains("\ncause: out of device memory: 1.0 MiB requested"));
    let last = with_cause.lines().last().unwrap();
    assert_eq!(
        last,
        "cause: MEM_OBJECT_ALLOCATION_FAILURE: 1.0 MiB to commit, 0 B free"
    );
    let common = binpool::Error::from(error);
    assert_eq!(common.to_string(), table);
    assert_eq!(format!("{common:?}"), with_cause);
}

#[test]
fn the_report_of_a_pool_that_watches_names_the_five_groups_with_the_most_bytes() {
    let rig = Rig::with_capacity(MIB);
    rig.pool.watch(WatchOptions::new());
    let mut kept = Vec::new();
    for kib in 1..=7 {
        let tag = binpool::Tag::new(format!("layer {kib}"));
        kept.push(tag.within(|| rig.pool.allocate(kib << 10)).unwrap());
    }
    let error = rig.pool.allocate(MIB).unwrap_err();
    let groups = &error.out_of_memory().unwrap().largest_groups;
    let tags: Vec<_> = groups
        .iter()
        .filter_map(|group| group.tag.as_deref())
        .collect();
    assert_eq!(
        tags,
        ["layer 7", "layer 6", "layer 5", "layer 4", "layer 3"]
    );
    let table = error.to_string();
    assert!(
        table.contains("7.0 KiB in 1 block: layer 7, at "),
        "{table}"
    );

    rig.pool.stop_watching();
    let error = rig.pool.allocate(MIB).unwrap_err();
    assert!(error.out_of_memory().unwrap().largest_groups.is_empty());
    assert!(!error.to_string().contains("in use by"));
}
