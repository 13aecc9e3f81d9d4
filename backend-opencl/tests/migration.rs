//! Memory that moves before it is needed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_allocators::{
    AsMemory, Backend, Error, Event, InvalidRequest, ObjectKind, SvmBackend, SvmGrain,
};
use binpool_opencl::{MigrationFlags, OpenClBackend};
use common::{Bench, refusal};

#[test]
fn buffers_views_and_pooled_blocks_keep_what_they_hold() {
    let bench = Bench::new();
    let memory = bench.filled(1 << 20, 7);
    let view = bench
        .backend
        .create_sub_region(&memory, (0..4096).into())
        .unwrap();
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let block = pool.allocate(4096).unwrap();
    block.write(&bench.queue, 0, &[8; 4096], &[]).unwrap();
    let region = block.sub_region(0..4096).unwrap();
    let all: [&dyn AsMemory<OpenClBackend>; 4] = [&memory, &view, &block, &region];
    for flags in [MigrationFlags::HOST, MigrationFlags::empty()] {
        let moved = bench
            .backend
            .enqueue_migrate(&bench.queue, &all, flags, &[])
            .unwrap();
        moved.wait().unwrap();
        assert_eq!(bench.read(&memory), vec![7; 1 << 20]);
        assert_eq!(common::contents(&block, &bench.queue), [8; 4096]);
    }
    let undefined = MigrationFlags::CONTENT_UNDEFINED;
    bench
        .backend
        .enqueue_migrate(&bench.queue, &[&memory], undefined, &[])
        .unwrap()
        .wait()
        .unwrap();
}

#[test]
fn shared_virtual_memory_migrates_from_version_2_1_on() {
    let bench = Bench::new();
    let shared = bench
        .backend
        .allocate_svm(4096, None, SvmGrain::Coarse, None)
        .unwrap();
    bench.write(&shared, &[5; 4096]);
    let buffer = bench.filled(64, 6);
    let all: [&dyn AsMemory<OpenClBackend>; 2] = [&buffer, &shared];
    for memory in [&all[..], &all[1..]] {
        for flags in [MigrationFlags::HOST, MigrationFlags::empty()] {
            let moved = bench
                .backend
                .enqueue_migrate(&bench.queue, memory, flags, &[]);
            if bench.backend.version() >= (2, 1) {
                moved.unwrap().wait().unwrap();
                assert_eq!(bench.read(&shared), [5; 4096]);
                assert_eq!(bench.read(&buffer), [6; 64]);
            } else {
                assert!(matches!(moved, Err(Error::Unsupported { .. })));
            }
        }
    }
}

#[test]
fn nothing_migrates_as_a_marker() {
    let bench = Bench::new();
    let moved = bench
        .backend
        .enqueue_migrate(&bench.queue, &[], MigrationFlags::empty(), &[]);
    moved.unwrap().wait().unwrap();
}

#[test]
fn memory_of_another_context_stays_where_it_is() {
    let (bench, stranger) = (Bench::new(), Bench::new());
    let memory = stranger.buffer(64);
    let moved =
        bench
            .backend
            .enqueue_migrate(&bench.queue, &[&memory], MigrationFlags::empty(), &[]);
    let kind = ObjectKind::Memory;
    assert_eq!(refusal(moved), InvalidRequest::ForeignObject { kind });
    let moved = bench
        .backend
        .enqueue_migrate(&stranger.queue, &[], MigrationFlags::empty(), &[]);
    let kind = ObjectKind::Queue;
    assert_eq!(refusal(moved), InvalidRequest::ForeignObject { kind });
}
